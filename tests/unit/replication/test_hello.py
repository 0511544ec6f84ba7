"""Who may connect to whom (replication.md §6, §24.2, decision 25.1)."""

import json

import pytest

from amps.config.model_replication import DestinationConfig, DestinationTransport
from amps.server.replication import frames, hello
from amps.server.replication.frames import Content, Frame, ProtocolError
from amps.server.replication.hello import Flow, Identity, Refused

OWN = Identity("A", "G", "uuid-a", "epoch-a", "run", "1.0", "h:1")
PEER = Identity("B", "G", "uuid-b", "epoch-b", "run")


def _content(values: dict[str, object]) -> Content:
    return Content(Frame(frames.HELLO, 0, json.dumps(values).encode()))


def _flow(name: str | None = None, group: str | None = None) -> Flow:
    return Flow(name or group or "", "A!B!sync!amps-replication", True, 50, name, group, ("zlib",), True)


def _destination(label: str, name: str | None, group: str | None, is_sync: bool = True) -> DestinationConfig:
    return DestinationConfig(label, name, group, is_sync, (), ())


def test_identity_and_flow_arrive_as_they_were_sent() -> None:
    flow = _flow("B", "G")
    content = _content({**OWN.to_json(), **flow.to_json()})
    assert Identity.from_content(content) == OWN
    assert Flow.from_content(content) == flow


@pytest.mark.parametrize(
    "change", [{"name": ""}, {"name": "a\tb"}, {"journal_epoch": "a b"}, {"group": 7}, {"name": "x" * 5000}]
)
def test_identities_that_would_break_names_of_the_log_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        Identity.from_content(_content({**OWN.to_json(), **change}))


@pytest.mark.parametrize(
    "change",
    [{"expect": 1}, {"expect": {"name": 1}}, {"sync": 1}, {"ack_interval_ms": -1}, {"destination": None}],
)
def test_malformed_flows_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        Flow.from_content(_content({**_flow("B").to_json(), **change}))


@pytest.mark.parametrize(
    ("name", "group", "matches"),
    [
        ("B", None, True),
        ("G", None, True),
        ("C", None, False),
        (None, "G", True),
        (None, "B", False),
        ("C", "G", True),
        ("B", "X", False),
    ],
)
def test_a_peer_is_checked_by_group_or_else_by_name_or_group(
    name: str | None, group: str | None, matches: bool
) -> None:
    """Behaviour 44, decision 25.1."""
    assert hello.destination_matches(_destination("d", name, group), PEER) == matches
    if matches:
        _flow(name, group).check_peer(PEER)
    else:
        with pytest.raises(Refused) as refused:
            _flow(name, group).check_peer(PEER)
        assert refused.value.code == hello.WRONG_PEER


def test_itself_and_instances_with_one_name_are_refused() -> None:
    hello.check_identity(OWN, PEER, [PEER])
    for peer, connected, code in (
        (Identity("A", "G", "uuid-a", "e", "r"), [], hello.SELF),
        (Identity("A", "G", "uuid-x", "e", "r"), [], hello.DUP_NAME),
        (Identity("B", "G", "uuid-x", "e", "r"), [PEER], hello.DUP_NAME),
    ):
        with pytest.raises(Refused) as refused:
            hello.check_identity(OWN, peer, connected)
        assert refused.value.code == code


def test_a_common_version_is_needed() -> None:
    hello.check_version(_content({"proto": [1, 2]}))
    with pytest.raises(Refused) as refused:
        hello.check_version(_content({"proto": [2]}))
    assert refused.value.code == hello.VERSION
    with pytest.raises(ProtocolError):
        hello.check_version(_content({}))


def test_an_instance_takes_no_place_that_is_meant_for_another_one() -> None:
    """Decision 25.91."""
    addresses = (DestinationTransport("t", "amps-replication", (("h", 1),)),)
    partner = DestinationConfig("B", "B", "G", True, (), addresses)
    other = DestinationConfig("C", "C", "G", True, (), addresses)
    label = DestinationConfig("east", "east", "G", True, (), addresses)
    anybody = DestinationConfig("G", None, "G", True, (), addresses)
    group_by_name = DestinationConfig("G", "G", None, True, (), addresses)
    waits = _destination("from outside", "from outside", "G")
    assert hello.is_meant(partner, [other, partner], PEER)
    for destination in (other, label):
        assert not hello.is_meant(destination, [destination], PEER)
    for destination in (anybody, group_by_name, waits):
        assert hello.is_meant(destination, [destination, other], PEER)
        assert not hello.is_meant(destination, [destination, partner], PEER)


def test_client_names_have_the_documented_form() -> None:
    assert (
        hello.client_name("orders-1", _destination("orders-2", "orders-2", None), "amps-replication")
        == "orders-1!orders-2!sync!amps-replication"
    )
    assert (
        hello.client_name("a", _destination("b", "b", "g", False), "amps-replication-secure")
        == "a!b@g!async!amps-replication-secure"
    )
    assert (
        hello.client_name("a", _destination("g", None, "g"), "amps-replication")
        == "a!g!sync!amps-replication"
    )


def test_compression_is_chosen_from_what_both_have() -> None:
    assert hello.chosen_compression(["snappy", "zstd", "zlib"]) == "zstd"
    assert hello.chosen_compression([]) is None
