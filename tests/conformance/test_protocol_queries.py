"""Queries and deletions on topics without state: protocol.md §11, and the behaviours 33, 36, 37, 46 and 47 of §21."""

from collections.abc import Callable

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


STATE_COMMANDS = ({"c": "sow"}, {"c": "sow", "f": "/id = 1"}, {"c": "sow_delete", "f": "1=1"})
COUNTERS = ("topic_matches", "matches", "records_returned")


@pytest.mark.parametrize("command", STATE_COMMANDS, ids=["sow", "filtered sow", "sow_delete"])
@pytest.mark.parametrize("setup", ["J", "T"])
@pytest.mark.parametrize("name", ["{}", "{}.new", "orders.{}.eu", "{}(1)"])
def test_protocol_36_a_query_needs_a_topic_with_state(
    peers: Peers, shared_servers: Callable[[str], ServerProcess], unique: str, command: dict[str, str],
    setup: str, name: str,
) -> None:  # fmt: skip
    """protocol.md §21 36, sow.md §1.1: failure and no group, for any name; a name with a dot is valid as well."""
    client = peers.logged_on(shared_servers(setup))
    literal = {"o": "non_regex_topic"} if "(" in name else {}
    ack = client.request({**command, "t": name.format(unique), "query_id": "q", **literal})
    assert (ack["status"], ack.reason, ack["query_id"]) == ("failure", "invalid topic", "q")
    client.expect_silence()


def test_protocol_d15_an_expression_may_match_no_topic_with_state(client: RawClient, topic: str) -> None:
    """protocol.md §9.1 D15: the group is empty, and nothing is deleted."""
    client.send(
        {"c": "sow", "t": f"^{topic}", "cid": "1", "a": "processed,completed,stats", "orderby": "/id"}
    )
    came = client.receive_many(5)
    assert [m.get("a") or m["c"] for m in came] == [
        "processed",
        "group_begin",
        "group_end",
        "completed",
        "stats",
    ]
    assert all(m["query_id"] == "1" for m in came[1:3])
    assert [came[4][name] for name in COUNTERS] == [0, 0, 0]
    client.send(
        {"c": "sow_delete", "t": f"^{topic}", "f": "1=1", "cid": "2", "a": "processed,completed,stats"}
    )
    came = client.receive_many(3)
    assert [m["a"] for m in came] == ["processed", "completed", "stats"]
    assert [came[2][name] for name in ("topic_matches", "matches", "records_deleted")] == [0, 0, 0]


@pytest.mark.parametrize("command", STATE_COMMANDS, ids=["sow", "filtered sow", "sow_delete"])
def test_protocol_26_queries_and_deletions_check_the_expression(
    client: RawClient, topic: str, command: dict[str, str]
) -> None:
    """protocol.md §21 26: a malformed topic expression fails, also where no topic has state."""
    ack = client.request({**command, "t": f"^{topic}("})
    assert (ack["status"], ack.reason) == ("failure", "bad regex topic")


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
@pytest.mark.parametrize("recorded", [False, True])
def test_protocol_36_the_counts_of_a_query_of_no_state_come(
    peers: Peers, logged_server: ServerProcess, topic: str, recorded_topic: str, command: str, recorded: bool
) -> None:
    """protocol.md §5.1, §12.3: `stats` after the group, then live messages."""
    client = peers.logged_on(logged_server)
    name = recorded_topic if recorded else topic
    client.send(
        {"c": command, "t": name, "cid": "1", "sub_id": "s", "a": "received,processed,completed,stats"}
    )
    came = client.receive_many(6)
    wanted = ["received", "processed", "group_begin", "group_end", "completed", "stats"]
    assert [m.get("a") or m["c"] for m in came] == wanted
    assert (came[5]["cid"], came[5]["sub_id"], came[5]["status"]) == ("1", "s", "success")
    assert [came[5][counter] for counter in COUNTERS] == [0, 0, 0]
    client.publish(name, b"1")
    assert client.receive().body == b"1"


def test_protocol_36_the_counts_come_with_a_bookmark_too(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §9.2: `sow_and_subscribe` from now on."""
    client = peers.logged_on(logged_server)
    client.send(
        {"c": "sow_and_subscribe", "t": recorded_topic, "cid": "1", "bm": "0|1|", "a": "processed,stats"}
    )
    came = client.receive_many(4)
    assert [m.get("a") or m["c"] for m in came] == ["processed", "group_begin", "group_end", "stats"]
    client.publish(recorded_topic, b"1")
    delivered = client.receive()
    assert (delivered.body, "bm" in delivered) == (b"1", True)


def test_protocol_46_the_counts_of_a_delta_subscription_come(client: RawClient, topic: str) -> None:
    """protocol.md §5.1: `delta_subscribe` has `stats`; it queries nothing."""
    client.send({"c": "delta_subscribe", "t": topic, "cid": "1", "sub_id": "s", "a": "processed,stats"})
    processed, stats = client.receive_many(2)
    assert processed.is_ack("processed", "1")
    assert stats.is_ack("stats", "1")
    assert (stats["status"], stats["sub_id"], [stats[counter] for counter in COUNTERS]) == (
        "success",
        "s",
        [0] * 3,
    )


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe", "delta_subscribe"])
@pytest.mark.parametrize(("message_type", "told"), [("json", True), ("binary", False)])
def test_protocol_d32_opaque_types_have_no_counts(
    peers: Peers, plain_server: ServerProcess, topic: str, command: str, message_type: str, told: bool
) -> None:
    """protocol.md §1, D32; `subscribe` has none either (§5.1, D7)."""
    client = peers.logged_on(plain_server, "any", mt=message_type)
    client.send({"c": command, "t": topic, "cid": "1", "sub_id": "s", "a": "stats"})
    client.send({"c": "flush", "cid": "fence", "a": "completed"})
    kinds = [client.receive().get("a")]
    while kinds[-1] != "completed":
        kinds.append(client.receive().get("a"))
    assert ("stats" in kinds) == (told and command != "subscribe")


@pytest.mark.parametrize("orderby", ["no field", "/id SIDEWAYS"])
def test_protocol_37_an_order_is_checked_where_nothing_is_ordered(
    client: RawClient, topic: str, orderby: str
) -> None:
    """protocol.md §9.4: `invalid orderby`, and nothing is subscribed."""
    ack = client.request({"c": "sow_and_subscribe", "t": topic, "sub_id": "s", "orderby": orderby})
    assert (ack["status"], ack.reason) == ("failure", "invalid orderby")
    client.publish(topic, b"1")
    client.expect_silence()


def test_protocol_36_sow_and_subscribe_on_a_topic_without_state(client: RawClient, topic: str) -> None:
    """protocol.md §21 36, §12.3: empty group, then live messages."""
    client.send({"c": "sow_and_subscribe", "t": topic, "cid": "1", "sub_id": "s", "query_id": "q",
                 "a": "processed,completed"})  # fmt: skip
    processed, begin, end, completed = client.receive_many(4)
    assert processed.is_ack("processed", "1")
    assert processed.succeeded
    assert processed["sub_id"] == "s"
    assert (begin.command, begin["query_id"]) == ("group_begin", "q")
    assert (end.command, end["query_id"]) == ("group_end", "q")
    assert completed.is_ack("completed", "1")
    client.publish(topic, b"1")
    delivered = client.receive()
    assert (delivered.command, delivered["sids"], delivered.body) == ("p", "s", b"1")


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_protocol_36_the_group_carries_the_command_id_without_a_query_id(
    client: RawClient, topic: str, command: str
) -> None:
    """protocol.md §4"""
    client.send({"c": command, "t": topic, "cid": "77"})
    begin, end = client.receive_many(2)
    assert [(m.command, m["query_id"]) for m in (begin, end)] == [("group_begin", "77"), ("group_end", "77")]
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "77"


def test_protocol_33_a_batch_size_above_the_limit_fails(client: RawClient, topic: str) -> None:
    """protocol.md §10 D12: more than 10,000."""
    ack = client.request({"c": "sow_and_subscribe", "t": topic, "bs": 10001})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_47_sow_delete_needs_exactly_one_selector(client: RawClient, topic: str) -> None:
    """protocol.md §21 47 (R), §11.2 D12"""
    none = client.request({"c": "sow_delete", "t": topic})
    assert (none["status"], none.reason) == ("failure", "no filter or bookmark")
    for selectors in (
        {"f": "1=1", "sow_keys": "1"},
        {"f": "1=1", "bm": "1|1|"},
        {"sow_keys": "1", "bm": "1|1|"},
    ):
        ack = client.request({"c": "sow_delete", "t": topic, **selectors})
        assert (ack["status"], ack.reason) == ("failure", "invalid options")
    ack = client.request({"c": "sow_delete", "t": topic, "sow_keys": "1"}, b'{"id":1}')
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_47_bookmarks_acknowledge_queue_messages_only(client: RawClient, topic: str) -> None:
    """protocol.md §21 47, §11.2"""
    ack = client.request({"c": "sow_delete", "t": topic, "bm": "1|1|"})
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")


def test_protocol_47_sow_delete_needs_a_topic(client: RawClient) -> None:
    """protocol.md §11.2"""
    ack = client.request({"c": "sow_delete", "sow_keys": "1"})
    assert (ack["status"], ack.reason) == ("failure", "no topic")
