"""What subscriptions to SOW topics get: keys, out-of-focus messages, select lists (sow.md §§3, 13, 18 and §25).

Each behaviour is tested on a topic that the transaction log records, and on one that it does not record: values of the
first are in journals, values of the second in the value file.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer
from tests.support.sow_topics import Record, focus_server, seen, sow_topic_xml, sow_xml


@pytest.fixture(scope="module")
def sow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from focus_server(tmp_path_factory)


@pytest.fixture(params=["", "L/"], ids=["unrecorded", "recorded"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def orders(place: str) -> str:
    return f"{place}orders"


@pytest.fixture
def client(peers: Peers, sow_server: ServerProcess) -> RawClient:
    return peers.logged_on(sow_server)


@pytest.fixture
def publisher(peers: Peers, sow_server: ServerProcess) -> RawClient:
    return peers.logged_on(sow_server)


@pytest.fixture
def record(publisher: RawClient, orders: str, unique: str) -> Record:
    return Record(publisher, orders, unique)


def test_sow_19_a_record_that_leaves_the_filter(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 19, 22; §13: one `oof` with the new body; without the option nothing."""
    client.subscribe(orders, "with", f="/a > 10", o="oof")
    client.subscribe(orders, "without", f="/a >= 10")
    first = record.publish(a=20)
    message = client.receive()
    assert seen(message) == ("p", first)
    assert message.subscriptions == {"with", "without"}
    second = record.publish(a=5)
    left = client.receive()
    assert seen(left) == ("oof", second)
    assert left.header == {
        "c": "oof", "t": orders, "sids": "with", "k": message["k"], "reason": "match", "l": len(left.body),
    }  # fmt: skip
    client.expect_silence()
    record.publish(a=4)
    client.expect_silence()


def test_sow_20_a_delta_that_makes_a_record_leave(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 20, §13: the body is the merged message."""
    record.publish(a=20, b=7)
    client.subscribe(orders, "s", f="/a > 10", o="oof")
    record.change(a=5)
    assert seen(client.receive()) == ("oof", {"id": record.key, "a": 5, "b": 7})
    client.expect_silence()


def test_sow_21_a_record_that_never_matched(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md §25 21: neither an update nor the removal of a record that never matched gives an `oof`."""
    record = Record(publisher, f"{place}short", unique)
    client.subscribe(record.topic, "none", f="/a > 10", o="oof")
    client.subscribe(record.topic, "all", o="oof")
    record.publish(a=1)
    record.publish(a=2)
    messages = client.receive_many(3)
    assert [message.subscriptions for message in messages] == [{"all"}] * 3
    assert messages[2]["reason"] == "expired"


def test_sow_12_an_expired_record(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md §25 12, §13: `oof` with reason `expired`, key, correlation id and body of the last value."""
    record = Record(publisher, f"{place}short", unique)
    client.subscribe(record.topic, "all", o="oof")
    client.subscribe(record.topic, "some", f="/a > 10", o="oof")
    client.subscribe(record.topic, "other", f="/a > 99", o="oof")
    client.subscribe(record.topic, "plain")
    publisher.publish(record.topic, json.dumps({"id": unique, "a": 11}).encode(), x="abc=")
    published, left = client.receive_many(2)
    assert published.subscriptions == {"all", "some", "plain"}
    assert seen(left) == ("oof", {"id": unique, "a": 11})
    assert (left["reason"], left["k"], left["x"]) == ("expired", published["k"], "abc=")
    assert left.subscriptions == {"all", "some"}
    client.expect_silence()


def test_sow_70_oof_on_a_plain_subscription(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 70, D9: states decide, not what was delivered."""
    record.publish(a=20)
    client.subscribe(orders, "s", f="/a > 10", o="oof")
    record.publish(a=1)
    message = client.receive()
    assert (message.command, message["reason"]) == ("oof", "match")


@pytest.mark.parametrize("said", [{"o": "oof"}, {"send_oof": True}])
def test_sow_oof_is_ignored_where_there_is_no_focus(
    client: RawClient, record: Record, unique: str, orders: str, place: str, said: dict[str, str | bool]
) -> None:
    """sow.md §13, D9: on topics without state, and on bookmark subscriptions, the option is accepted and ignored."""
    topic = f"{place}plain/{unique}"
    client.subscribe(topic, "s", f="/a > 10", **said)
    if place:
        client.subscribe(orders, "b", f="/a > 10", bm="0|1|", **said)
    for a in (20, 5):
        record.publisher.publish(topic, b'{"id":1,"a":%d}' % a)
        record.publish(a=a)
    assert [message.command for message in client.receive_many(2 if place else 1)] == ["p"] * (2 if place else 1)
    client.expect_silence()


def test_sow_oof_of_regex_subscriptions_is_per_topic(
    client: RawClient, publisher: RawClient, place: str, unique: str
) -> None:
    """sow.md D9: equal keys in two topics are two records, and each topic has its own focus."""
    client.subscribe(f"^{place}(orders|others|plain/{unique})$", "s", f="/a > 10", o="oof")
    both = [Record(publisher, f"{place}{name}", unique) for name in ("orders", "others")]
    for record in both:
        record.publish(a=20)
    publisher.publish(f"{place}plain/{unique}", b'{"a":20}')
    both[0].publish(a=1)
    publisher.publish(f"{place}plain/{unique}", b'{"a":1}')
    messages = client.receive_many(4)
    assert [(m.command, m["t"]) for m in messages] == [
        ("p", f"{place}orders"), ("p", f"{place}others"), ("p", f"{place}plain/{unique}"), ("oof", f"{place}orders"),
    ]  # fmt: skip
    assert ["k" in m for m in messages] == [True, True, False, True]
    client.expect_silence()


def test_sow_oof_several_subscriptions_share_a_frame(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §1: one `oof` per connection, with the ids of all subscriptions that the record left."""
    for sub_id, text in (("a", "/a > 10"), ("b", "/a > 15"), ("c", "/a > 30"), ("d", "/a < 10"), ("e", "/a = 20")):
        client.subscribe(orders, sub_id, f=text, o="oof")
    record.publish(a=20)
    assert client.receive().subscriptions == {"a", "b", "e"}
    record.publish(a=12)
    assert [(m.command, m.subscriptions) for m in client.receive_many(2)] == [("p", {"a"}), ("oof", {"b", "e"})]
    record.publish(a=5)
    assert [(m.command, m.subscriptions) for m in client.receive_many(2)] == [("p", {"d"}), ("oof", {"a"})]


def test_sow_oof_after_a_removal_starts_anew(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md §13: a removed record is out of focus, so a new value that does not match gives no `oof`."""
    record = Record(publisher, f"{place}short", unique)
    client.subscribe(record.topic, "s", f="/a > 10", o="oof")
    record.publish(a=20)
    assert [message.command for message in client.receive_many(2)] == ["p", "oof"]
    record.publish(a=5)
    client.expect_silence()


def test_sow_69_filters_of_oof_subscriptions_are_deterministic(client: RawClient, orders: str) -> None:
    """sow.md §25 69, §1."""
    client.subscribe(orders, "s", f="/a < UNIX_TIMESTAMP()")
    ack = client.try_subscribe(orders, "t", f="/a < UNIX_TIMESTAMP()", o="oof")
    assert (ack["status"], ack.reason) == ("failure", "bad filter")


def test_sow_32_the_key_header(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 32 and 6, protocol.md §12.1: digits, the same for all values of a record; not with `no_sowkey`."""
    client.subscribe(orders, "s")
    record.publish(a=1)
    record.change(b=1)
    first, second = client.receive_many(2)
    assert str(first["k"]).isdigit()
    assert first["k"] == second["k"]
    client.unsubscribe("s")
    client.subscribe(orders, "s", o="no_sowkey,oof", f="/a = 1")
    record.publish(a=1)
    record.publish(a=2)
    assert ["k" in message for message in client.receive_many(2)] == [False, False]


def test_sow_8_the_key_of_the_publisher(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md §25 8, §3: the string of the publisher is returned, on out-of-focus messages too."""
    client.subscribe(f"{place}given", "s", f="/a > 10", o="oof")
    for a in (20, 5):
        publisher.publish(f"{place}given", b'{"a":%d}' % a, k="Ab+/=")
    published, left = client.receive_many(2)
    assert [published["k"], left["k"]] == ["Ab+/=", "Ab+/="]
    assert left.command == "oof"


def test_sow_28_replays_have_keys_and_merged_messages(client: RawClient, record: Record) -> None:
    """sow.md §25 28, §14: the log holds the merged message; a replay delivers it as a publish, with the key."""
    topic = "L/orders"
    kept = Record(record.publisher, topic, record.key)
    client.subscribe(topic, "live", f=f"/id = '{record.key}'")
    kept.publish(a=1)
    kept.change(b=2)
    live = client.receive_many(2)
    client.unsubscribe("live")
    client.subscribe(topic, "replay", f=f"/id = '{record.key}'", bm="0")
    replayed = client.receive_many(2)
    assert [seen(message) for message in replayed] == [seen(message) for message in live]
    assert seen(replayed[1]) == ("p", {"id": record.key, "a": 1, "b": 2})
    assert [message["k"] for message in replayed] == [message["k"] for message in live]


def test_sow_27_a_delta_to_a_topic_without_state(
    client: RawClient, publisher: RawClient, place: str, unique: str
) -> None:
    """sow.md §25 27: subscribers get the published body."""
    topic = f"{place}plain/{unique}"
    client.subscribe(topic, "s")
    publisher.send({"c": "delta_publish", "t": topic}, b'{"id":1,"a":null}')
    assert client.receive().body == b'{"id":1,"a":null}'


def test_sow_68_correlation_ids_of_deltas(client: RawClient, publisher: RawClient, orders: str, unique: str) -> None:
    """sow.md §25 68."""
    client.subscribe(orders, "s", f=f"/id = '{unique}'")
    body = json.dumps({"id": unique}).encode()
    for command, said in (("p", {"x": "A"}), ("delta_publish", {}), ("delta_publish", {"x": "B"}), ("p", {})):
        publisher.send({"c": command, "t": orders, **said}, body)
    assert [message.get("x") for message in client.receive_many(4)] == ["A", "A", "B", None]


# --- select lists -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("[-/,+/id,+/n/a]", {"n": {"a": 1}}),
        ("[-/n,+/n/a]", {"n": {"a": 1}, "a": 9, "z": 0}),
        ("[-/a,+/a]", {"n": {"a": 1, "b": 2}, "z": 0}),
        ("[-/,+/id,+/nothing]", {}),
    ],
)
def test_sow_39_select_lists(
    client: RawClient, record: Record, orders: str, text: str, fields: dict[str, object]
) -> None:
    """sow.md §25 39, §18, D30: selected fields of publishes and out-of-focus messages; the filter sees the whole."""
    client.subscribe(orders, "s", f="/z < 5", o=f"oof,select={text}")
    record.publish(a=9, n={"a": 1, "b": 2}, z=0)
    assert seen(client.receive()) == ("p", {"id": record.key, **fields})
    record.publish(a=9, n={"a": 1, "b": 2}, z=7)
    if "z" in fields:
        fields = {**fields, "z": 7}
    assert seen(client.receive()) == ("oof", {"id": record.key, **fields})


def test_sow_39_an_empty_selection(client: RawClient, record: Record, orders: str) -> None:
    """sow.md D30: a body of which nothing is selected is an empty object."""
    client.subscribe(orders, "s", o="select=[-/]")
    record.publish(a=9)
    assert client.receive().body == b"{}"


def test_sow_39_each_select_list_has_frames_of_its_own(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §18: a list does not affect other subscriptions; those with the same list share a frame."""
    client.subscribe(orders, "whole")
    client.subscribe(orders, "one", o="select=[-/a]")
    client.subscribe(orders, "two", o="select=[-/a]", f="/a = 1")
    client.subscribe(orders, "three", o="select=[-/b]")
    whole = record.publish(a=1, b=2)
    found = {frozenset(m.subscriptions): json.loads(m.body) for m in client.receive_many(3)}
    assert found == {
        frozenset({"whole"}): whole,
        frozenset({"one", "two"}): {"id": record.key, "b": 2},
        frozenset({"three"}): {"id": record.key, "a": 1},
    }
    client.expect_silence()


def test_sow_39_topics_without_state_and_replays(client: RawClient, publisher: RawClient, unique: str) -> None:
    """sow.md §18: select lists work on all subscriptions; a message that cannot be parsed has no fields to select."""
    topic = f"L/plain/{unique}"
    client.subscribe(topic, "live", o="select=[-/,+/a]")
    for body in (b'{"a":1,"b":2}', b"[no message", b'{"b":2}'):
        publisher.publish(topic, body)
    assert [message.body for message in client.receive_many(3)] == [b'{"a":1}', b"", b"{}"]
    client.subscribe(topic, "replay", o="select=[-/a]", bm="0")
    assert [message.body for message in client.receive_many(3)] == [b'{"b":2}', b"", b'{"b":2}']


def test_sow_39_large_messages(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §18: a message that would be sent without a copy is reduced, too."""
    client.subscribe(orders, "s", o="select=[-/,+/id,+/big]")
    sent = record.publish(big="x" * 200_000, b=1)
    assert seen(client.receive()) == ("p", {"id": record.key, "big": sent["big"]})


def test_sow_39_types_that_are_sent_as_a_whole(peers: Peers, sow_server: ServerProcess, unique: str) -> None:
    """sow.md §18: the command fails on a message type without fields."""
    client = peers.logged_on(sow_server, "binary")
    ack = client.try_subscribe(unique, "s", o="select=[-/a]")
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_sow_65_oof_follows_a_literal_topic(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 65: an expression that matches the name, unanchored, gets the same as the name itself."""
    client.subscribe(f"{orders[:-1]}.", "s", f="/a > 10", o="oof")
    record.publish(a=11)
    record.publish(a=1)
    assert [message.command for message in client.receive_many(2)] == ["p", "oof"]


def test_sow_39_rows_of_queries(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §18: the list is applied to the rows of a query, and to the messages after it."""
    record.publish(a=1, n={"a": 1, "b": 2})
    said = {"t": orders, "f": f"/id = '{record.key}' AND /a > 0", "o": "select=[-/,+/n/a],oof"}
    for header in (
        {"c": "sow", "query_id": "q", **said, "orderby": "/a"},
        {"c": "sow_and_subscribe", "query_id": "q", "sub_id": "s", **said},
    ):
        client.request(header)
        begin, row, end = client.receive_many(3)
        assert (begin.command, row.command, end.command) == ("group_begin", "sow", "group_end")
        assert json.loads(row.body[row.body.index(b"}") + 1 :]) == {"n": {"a": 1}}
    record.publish(a=2, n={"a": 3, "b": 2})
    assert seen(client.receive()) == ("p", {"n": {"a": 3}})
    record.publish(a=0, n={"a": 4, "b": 2})
    assert seen(client.receive()) == ("oof", {"n": {"a": 4}})


# --- other kinds of topics ----------------------------------------------------------------------------------------


def test_sow_70_no_oof_on_queues(client: RawClient, publisher: RawClient, unique: str) -> None:
    """sow.md §25 70, D9: the option is accepted and ignored, though the underlying topic has state."""
    client.subscribe("jobs", "s", o="oof,max_backlog=10", f="/a > 10")
    record = Record(publisher, "worked", unique)
    first = record.publish(a=20)
    record.publish(a=5)
    last = record.publish(a=30)
    assert [seen(message) for message in client.receive_many(2)] == [("p", first), ("p", last)]
    client.expect_silence()


def test_sow_59_logical_topics_have_their_own_focus(client: RawClient, publisher: RawClient, unique: str) -> None:
    """sow.md §7, §13: equal keys in two logical topics are two records, also when they expire."""
    names = [f"/logical/{unique}/{letter}" for letter in "ab"]
    client.subscribe(f"^/logical/{unique}", "all", o="oof")
    client.subscribe(names[0], "one", f="/a > 10", o="oof")
    first, second = (Record(publisher, name, "1") for name in names)
    second.publish(a=30)
    first.publish(a=20)
    first.publish(a=5)
    messages = client.receive_many(6)
    assert [(m.command, m["t"], m.subscriptions, m.reason) for m in messages[:4]] == [
        ("p", names[1], {"all"}, ""),
        ("p", names[0], {"all", "one"}, ""),
        ("p", names[0], {"all"}, ""),
        ("oof", names[0], {"one"}, "match"),
    ]
    assert sorted((m.command, m["t"], m["k"], m.reason) for m in messages[4:]) == [
        ("oof", names[0], messages[1]["k"], "expired"),
        ("oof", names[1], messages[0]["k"], "expired"),
    ]
    client.expect_silence()


# --- changes of subscriptions -------------------------------------------------------------------------------------


def test_sow_1_2_options_hold_from_the_replacement_on(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §1.2: adding `oof` gives none for earlier changes; a new filter decides about the next change."""
    client.subscribe(orders, "s", f="/a > 10")
    record.publish(a=20)
    record.publish(a=5)
    client.subscribe(orders, "s", f="/a > 1", o="oof,replace")
    record.publish(a=6)
    record.publish(a=0)
    client.subscribe(orders, "s", f="/a > 1", o="replace,no_sowkey,select=[-/id]")
    record.publish(a=7)
    record.publish(a=0)
    messages = client.receive_many(4)
    assert [message.command for message in messages] == ["p", "p", "oof", "p"]
    assert messages[3].body == b'{ "a": 7}'
    assert "k" not in messages[3]
    client.expect_silence()


def test_sow_13_a_restart_keeps_the_values_before(
    peers: Peers, start_server: StartServer, tmp_path: Path, unique: str
) -> None:
    """sow.md §13: the value before may be from before a restart, from a journal or from a file."""
    topics = sow_xml(
        *(
            sow_topic_xml(name, "/id").replace(
                "<Durability>transient</Durability>", f"<FileName>{tmp_path / file}</FileName>"
            )
            for name, file in (("orders", "one.sow"), ("L/orders", "two.sow"))
        )
    )
    server = start_server(log_topics=("^L/",), instance_xml=topics)
    for name in ("orders", "L/orders"):
        Record(peers.logged_on(server), name, unique).publish(a=20)
    server.restart()
    client, publisher = peers.logged_on(server), peers.logged_on(server)
    client.subscribe("orders$", "s", f="/a > 10", o="oof")
    for name in ("orders", "L/orders"):
        left = Record(publisher, name, unique).publish(a=5)
        assert seen(client.receive()) == ("oof", left)
