"""Lookup, filtering and output formats of resources."""

import asyncio
import json
from xml.etree import ElementTree

import pytest

from amps.server.admin.formats import as_csv, as_json, as_xml, format_time_ns
from amps.server.admin.pages import resource_page
from amps.server.admin.tree import (
    Collection,
    Content,
    Dynamic,
    Group,
    Leaf,
    Members,
    Node,
    Operation,
    Question,
    find,
    snapshot,
)


def leaf(value: str) -> Leaf:
    return Leaf(lambda: value)


async def _nothing(parameters: object) -> None:
    return None


async def _made() -> Collection:
    return Collection("journal", {"b": Group({"z": leaf("1"), "a": leaf("2")}), "a/c": Group({})})


ROOT = Group(
    {
        "amps": Group(
            {
                "instance": Group({"name": leaf("<n>&\x01"), "journals": Dynamic(_made)}),
                "administrator": Group(
                    {"do": Operation(_nothing, "D <1>"), "ask": Question(lambda p, i: "x")}
                ),
            }
        )
    }
)


def content(*names: str, hidden: str = "-") -> Content:
    async def body() -> Content:
        place = await find(ROOT, list(names))
        assert place is not None
        return await snapshot(place, lambda path: not path.startswith(hidden))

    return asyncio.run(body())


def test_operations_5_2_json_nests_from_the_root() -> None:
    """operations.md §5.2: members of a collection have `id` first, the others alphabetical; values are strings."""
    assert as_json(content("amps", "instance")) == (
        '{"amps":{"instance":{"journals":[{"id":"b","a":"2","z":"1"},{"id":"a/c"}],"name":"<n>&\\u0001"}}}\n'
    )


def test_operations_5_2_one_member_comes_in_its_container() -> None:
    """operations.md §5.2: one member is written inside its container."""
    assert json.loads(as_json(content("amps", "instance", "journals", "b"))) == {
        "amps": {"instance": {"journals": [{"id": "b", "a": "2", "z": "1"}]}}
    }
    assert json.loads(as_json(content("amps", "instance", "journals", "b", "z"))) == {
        "amps": {"instance": {"journals": [{"id": "b", "z": "1"}]}}
    }


def test_operations_29_xml_members_have_an_id() -> None:
    """operations.md §13 29: elements nested from `amps`, members by the singular with an `id`."""
    root = ElementTree.fromstring(as_xml(content("amps", "instance")).encode())
    assert root.tag == "amps"
    (one, other) = root.findall("instance/journals/journal")
    assert (one.get("id"), one.findtext("a"), other.get("id")) == ("b", "2", "a/c")
    assert root.findtext("instance/name") == "<n>&\ufffd"


def test_a_hidden_resource_is_left_out_with_all_below() -> None:
    assert content("amps", hidden="/amps/instance/journals") == {
        "amps": {"administrator": {}, "instance": {"name": "<n>&\x01"}}
    }
    assert content("amps", hidden="/amps/instance") == {"amps": {"administrator": {}}}
    hidden = content("amps", "instance", "journals", hidden="/amps/instance/journals/b")
    assert hidden == {"amps": {"instance": {"journals": Members("journal", (("a/c", {}),))}}}


@pytest.mark.parametrize(
    "names",
    [["amps", "none"], ["amps", "instance", "name", "x"], ["other"], ["amps", "administrator", "do", "x"]],
)
def test_unknown_resources_are_not_found(names: list[str]) -> None:
    assert asyncio.run(find(ROOT, names)) is None


def test_a_page_links_its_members() -> None:
    def page(path: str, node: Node) -> str:
        return resource_page(path, node, lambda path: True, lambda path: "token")

    made = asyncio.run(_made())
    assert '<a href="/amps/instance/journals/a%2Fc">a/c</a>' in page("/amps/instance/journals", made)
    administrator = ROOT.children["amps"]
    assert isinstance(administrator, Group)
    assert "D &lt;1&gt;" in page("/amps/administrator", administrator.children["administrator"])
    assert "<script>" not in page("/amps/<script>", Group({"<script>": leaf("")}))


def test_operations_31_csv() -> None:
    """operations.md §13 31"""
    assert as_csv("v", 1_700_000_000.25) == "20231114T221320.250000Z,v\n"


def test_times_of_journals() -> None:
    assert format_time_ns(1_700_000_000_123_456_789) == "20231114T221320.123456Z"
    assert format_time_ns(0) == ""
