"""Publishing: protocol.md §4, and the behaviours 18, 19 and 46 of §21; topics that the server reserves."""

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


def test_protocol_18_the_correlation_id_is_passed_on(client: RawClient, topic: str) -> None:
    """protocol.md §21 18, first part"""
    client.subscribe(topic, "s")
    client.publish(topic, b"1", x="abc+/=")
    client.publish(topic, b"2")
    assert client.receive()["x"] == "abc+/="
    assert "x" not in client.receive()


def test_protocol_19_devnull_swallows(client: RawClient) -> None:
    """protocol.md §21 19 (R), D12"""
    client.subscribe("/AMPS/devnull", "s")
    client.subscribe("devnull$", "expression")
    assert client.request({"c": "p", "t": "/AMPS/devnull"}, b"x").succeeded
    client.expect_silence()


def test_protocol_19_devnull_takes_numbered_messages(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §7.1, D9: a publisher's store drains although the message is discarded."""
    client = peers.logged_on(logged_server)
    client.publish(recorded_topic, b"1", s=1, a="persisted")
    client.publish("/AMPS/devnull", b"2", s=2, a="persisted")
    client.wait_for_persisted(2)


@pytest.mark.parametrize("reserved", ["/AMPS/ClientStatus", "/AMPS/Tx/Checkpoint", "/AMPS/anything"])
def test_protocol_d12_reserved_topics_are_refused(client: RawClient, reserved: str) -> None:
    """protocol.md §7.1 D12"""
    for header in ({"c": "p", "t": reserved}, {"c": "p", "t": reserved, "e": 1}):
        ack = client.request(header, b"x")
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")
        assert ack["detail"] == f"{reserved!r}: names that begin with /AMPS belong to the server"


EVENT_TOPICS = ["/AMPS/ClientStatus", "/AMPS/SOWStats"]


@pytest.mark.parametrize(
    "command", ["subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"]
)
@pytest.mark.parametrize("event_topic", EVENT_TOPICS)
def test_operations_50_event_topics_are_not_silent(client: RawClient, event_topic: str, command: str) -> None:
    """operations.md §7: events are not published yet, so a client must not wait for them in vain."""
    ack = client.request({"c": command, "t": event_topic, "sub_id": "s"})
    assert (ack["status"], ack.reason) == ("failure", "not supported yet: event topics")
    assert client.request({"c": command, "t": event_topic, "sub_id": "s", "o": "non_regex_topic"}).failed
    client.expect_silence()
    client.subscribe("other", "s")


@pytest.mark.parametrize(
    "expression",
    ["^/AMPS/", "^/AMPS/.*", "/AMPS/Client.*", "^/AMPS/(ClientStatus|SOWStats)$", r"^/AMPS/[|]\|(a|(b|c))"],
)
@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_operations_50_expressions_for_event_topics_are_not_silent(
    client: RawClient, expression: str, command: str
) -> None:
    """operations.md §7: with such an expression a client waits for events just as with the name."""
    ack = client.request({"c": command, "t": expression, "sub_id": "s"})
    assert (ack["status"], ack.reason) == ("failure", "not supported yet: event topics")
    assert ".+" in str(ack["detail"])
    client.expect_silence()


@pytest.mark.parametrize(
    "expression", ["^/AMPS/Client.*|^{topic}$", "^(/AMPS/.*|{topic})$", ".*", ".+/AMPS/|{topic}"]
)
def test_operations_50_expressions_for_other_topics_too_are_taken(
    client: RawClient, topic: str, expression: str
) -> None:
    """operations.md §7, protocol.md §8: they match other topics, and event topics once there are some."""
    client.subscribe(expression.format(topic=topic), "s")
    client.publish(topic, b"{}")
    assert client.receive()["t"] == topic


@pytest.mark.parametrize("event_topic", EVENT_TOPICS)
def test_operations_50_event_topics_have_no_state_and_no_log(
    peers: Peers, logged_server: ServerProcess, event_topic: str
) -> None:
    """operations.md §7: not stored unless a SOW topic of that name exists; not in the transaction log."""
    client = peers.logged_on(logged_server)
    for header in (
        {"c": "sow"},
        {"c": "sow_delete", "f": "1=1"},
        {"c": "subscribe", "bm": "0"},
        {"c": "delta_publish"},
    ):
        ack = client.request({**header, "t": event_topic})
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")


@pytest.mark.parametrize("replaced", ["/AMPS/ClientStatus", "/AMPS/SOWStats"])
def test_operations_50_a_replacement_by_an_event_topic_changes_nothing(
    client: RawClient, topic: str, replaced: str
) -> None:
    """operations.md §7, protocol.md §8.2: a refused replacement leaves the subscription unchanged."""
    client.subscribe(topic, "s")
    assert client.request({"c": "subscribe", "t": replaced, "sub_id": "s", "o": "replace"}).failed
    client.publish(topic, b"1")
    assert client.receive().body == b"1"


@pytest.mark.parametrize("command", ["p", "delta_publish", "subscribe", "sow", "sow_and_subscribe"])
@pytest.mark.parametrize("header", [{}, {"t": ""}], ids=["missing", "empty"])
def test_protocol_d12_a_topic_is_required(client: RawClient, command: str, header: dict[str, str]) -> None:
    """protocol.md §7.1 D12, §13: `no topic`."""
    ack = client.request({"c": command, **header})
    assert (ack["status"], ack.reason) == ("failure", "no topic")


def test_protocol_d12_a_late_failure_is_in_the_persisted_ack(client: RawClient) -> None:
    """protocol.md §7.1, §13: the failure is in whichever of the two acks was requested."""
    for wanted in ("processed", "persisted"):
        ack = client.request({"c": "p", "t": "/AMPS/x"}, b"x", ack=wanted)
        assert (ack["a"], ack["status"], ack.reason) == (wanted, "failure", "invalid topic")


def test_protocol_a_publish_topic_is_always_literal(client: RawClient, topic: str) -> None:
    """protocol.md §7.1: regex characters have no meaning."""
    client.subscribe(f"{topic}.*", "all")
    client.publish(f"{topic}.*", b"odd name")
    delivered = client.receive()
    assert (delivered["t"], delivered.body) == (f"{topic}.*", b"odd name")


def test_protocol_46_delta_commands_act_plainly_on_topics_without_state(
    client: RawClient, topic: str
) -> None:
    """protocol.md §21 46, last part; §7.2: full messages."""
    assert client.request({"c": "delta_subscribe", "t": topic, "sub_id": "d"}).succeeded
    client.publish(topic, b'{"id":1,"a":1}')
    client.send({"c": "delta_publish", "t": topic}, b'{"id":1,"b":2}')
    assert [client.receive().body for _ in range(2)] == [b'{"id":1,"a":1}', b'{"id":1,"b":2}']
