"""Instances of different versions: a proxy writes control frames as a later version would.

replication.md §18, §24.1, §24.2.

Rolling upgrades rest on this: unknown keys are ignored, `version` is only shown, and one common `proto` is enough.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.instances import REPLICATION, Instances, To, two_way
from tests.support.rewriting_proxy import Change, RewritingProxy
from tests.support.server import numbered_bodies

HELLO, HELLO_ACK = 0x01, 0x02
NEEDED = frozenset([0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x18, 0x19, 0x1C])
"""A link in both directions has a control frame of each of these types."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _behind_proxy(group: Instances, change: Change) -> RewritingProxy:
    """A dials B through a proxy, B waits for A; both replicate."""
    for name, to in two_way(dial=False):
        group.add(name, to)
    proxy = RewritingProxy(group["B"].port(REPLICATION), change)
    group.change("A", to=[To("B", dial=False, transport_xml=f"<InetAddr>127.0.0.1:{proxy.port}</InetAddr>")])
    return proxy


def _later(kind: int, content: dict[str, Any]) -> dict[str, Any]:
    """A frame of a later version: other `version`, further protocols, and keys that this version does not know."""
    if kind in (HELLO, HELLO_ACK):
        content |= {"version": "77.1-later", "proto": [3, 2, 1]} if kind == HELLO else {"version": "77.1-later"}
    if kind == 0x05:
        content["destinations"] = [
            {**each, "topics": [{**topic, "later": None} for topic in each["topics"]], "later": 1.5}
            for each in content["destinations"]
        ]
    return {"a_later_key": {"with": ["content", 1, None]}, **content, "later": True}


def test_a_later_version_is_accepted(group: Instances, unique: str) -> None:
    """replication.md §24.1: unknown keys are ignored, in each control frame and in both directions."""
    with _behind_proxy(group, _later) as proxy:
        group.start()
        for name, other in ("AB", "BA"):
            with group.client(name, f"{unique}-{name}") as client:
                client.publish_persisted("t", numbered_bodies(50, 1 if name == "A" else 100), 1)
            group.wait_connected(other, name)
        for name in "AB":
            assert len(group.log_of(name, 100)) == 100
        assert proxy.seen >= NEEDED
        for name in "AB":
            assert not group[name].log.find("1E-0010")
        group.stop()


def test_a_version_without_a_common_protocol_is_refused_and_both_say_why(group: Instances) -> None:
    """replication.md §24.2: BYE `VERSION`. The instance goes on, and the other one tries again."""

    def only_later(kind: int, content: dict[str, Any]) -> dict[str, Any]:
        return {**content, "proto": [2]} if kind == HELLO else content

    with _behind_proxy(group, only_later):
        group.start(connected=False)
        group["A"].log.wait_for("1E-0010", "VERSION", "[2]", timeout_s=20)
        assert not group.is_connected("A", "B")
        assert not group["B"].log.find("1E-0012")
        group.stop()
