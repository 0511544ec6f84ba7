"""Delta subscriptions to SOW topics, and their conflation (sow.md §§16, 17 and §25).

Each behaviour is tested on a topic that the transaction log records, and on one that it does not record.
"""

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess
from tests.support.sow_topics import Record, focus_server, seen

LONG = "conflation=1h"
SHORT = "conflation=400ms"


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


def try_deltas(client: RawClient, topic: str, sub_id: str, **fields: str | bool) -> Message:
    return client.request({"c": "delta_subscribe", "t": topic, "sub_id": sub_id, **fields})


def subscribe_deltas(client: RawClient, topic: str, sub_id: str, **fields: str | bool) -> None:
    assert try_deltas(client, topic, sub_id, **fields).succeeded


def test_sow_30_a_delta_has_the_key_and_what_changed(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 30, §17: a new record comes whole; then keys and changes, however it was published."""
    subscribe_deltas(client, orders, "s")
    first = record.publish(a=1, b=2, n={"x": 1, "y": [1, 2]})
    new = client.receive()
    assert seen(new) == ("p", first)
    record.publish(a=1, b=3, n={"x": 1, "y": [1, 2]})
    delta = client.receive()
    assert seen(delta) == ("p", {"id": record.key, "b": 3})
    assert (delta["k"], delta.subscriptions) == (new["k"], {"s"})
    record.change(n={"y": [1, 3]})
    assert seen(client.receive()) == ("p", {"id": record.key, "n": {"y": [1, 3]}})
    record.publish(a=1, b=3)
    assert seen(client.receive()) == ("p", {"id": record.key, "n": None})  # D10
    client.expect_silence()


def test_sow_31_a_publish_that_changes_nothing(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 31: keys only; nothing with `no_empties`, or the header `send_empty`."""
    subscribe_deltas(client, orders, "plain", f=f"/id = '{record.key}'")
    record.publish(a=1)
    record.publish(a=1)
    assert [json.loads(m.body) for m in client.receive_many(2)] == [
        {"id": record.key, "a": 1},
        {"id": record.key},
    ]
    client.unsubscribe("plain")
    subscribe_deltas(client, orders, "terse", o="no_empties")
    subscribe_deltas(client, orders, "header", send_empty=False)
    record.publish(a=1)
    client.expect_silence()
    record.publish(a=2)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", {"id": record.key, "a": 2}), {"terse", "header"})
    # Of two subscriptions on a connection only the one gets it that wants empty ones.
    subscribe_deltas(client, orders, "plain")
    record.publish(a=2)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", {"id": record.key}), {"plain"})


def test_sow_33_a_record_that_comes_into_focus(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 33, §13: whole with `oof`; without, a delta as of any update (D10)."""
    record.publish(a=5, b=7)
    subscribe_deltas(client, orders, "s", f="/a > 10", o="oof")
    whole = record.publish(a=20, b=7)
    assert seen(client.receive()) == ("p", whole)
    record.publish(a=21, b=7)
    assert seen(client.receive()) == ("p", {"id": record.key, "a": 21})
    gone = record.publish(a=1, b=7)
    assert seen(client.receive()) == ("oof", gone)
    whole = record.change(a=22)
    assert seen(client.receive()) == ("p", {**whole, "b": 7})
    client.unsubscribe("s")
    subscribe_deltas(client, orders, "s", f="/a > 10")
    record.publish(a=1, b=7)
    record.publish(a=22, b=7)
    assert seen(client.receive()) == ("p", {"id": record.key, "a": 22})


def test_sow_33_deltas_with_oof_and_without_a_filter(
    client: RawClient, publisher: RawClient, place: str, unique: str
) -> None:
    """sow.md §17: a record is new again after its removal."""
    record = Record(publisher, f"{place}short", unique)
    subscribe_deltas(client, record.topic, "s", o="oof")
    first = record.publish(a=1, b=1)
    record.publish(a=2, b=1)
    messages = client.receive_many(3)
    assert [seen(m) for m in messages] == [
        ("p", first), ("p", {"id": unique, "a": 2}), ("oof", {"id": unique, "a": 2, "b": 1}),
    ]  # fmt: skip
    again = record.publish(a=2, b=1)
    assert seen(client.receive()) == ("p", again)


def test_sow_34_one_message_for_a_connection(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 34, §17: if a matching subscription wants the whole message, all get it."""
    record.publish(a=1, b=2)
    subscribe_deltas(client, orders, "delta")
    client.subscribe(orders, "full", f="/a > 1")
    whole = record.publish(a=2, b=2)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", whole), {"full", "delta"})
    record.publish(a=1, b=2)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", {"id": record.key, "a": 1}), {"delta"})
    client.expect_silence()


def test_sow_17_other_connections_get_deltas(
    peers: Peers, sow_server: ServerProcess, client: RawClient, record: Record, orders: str
) -> None:
    """sow.md §17: a full subscription of one connection does not change what another one gets."""
    full = peers.logged_on(sow_server)
    full.subscribe(orders, "full")
    subscribe_deltas(client, orders, "delta")
    record.publish(a=1, b=2)
    whole = record.publish(a=2, b=2)
    assert seen(full.receive_many(2)[1]) == ("p", whole)
    assert seen(client.receive_many(2)[1]) == ("p", {"id": record.key, "a": 2})


def test_sow_17_topics_and_types_without_deltas(
    peers: Peers, sow_server: ServerProcess, client: RawClient, publisher: RawClient, place: str, unique: str
) -> None:
    """sow.md §17: topics without state, and message types without deltas: whole messages."""
    topic = f"{place}plain/{unique}"
    subscribe_deltas(client, topic, "s", o="no_empties,oof")
    for _ in range(2):
        publisher.publish(topic, b'{"id":1,"a":1}')
    assert [m.body for m in client.receive_many(2)] == [b'{"id":1,"a":1}'] * 2
    other = peers.logged_on(sow_server, "binary")
    subscribe_deltas(other, "bytes", "s")
    for _ in range(2):
        other.publish("bytes", b"same", k="a")
    assert [m.body for m in other.receive_many(2)] == [b"same"] * 2


def test_sow_29_deltas_of_fix_messages(peers: Peers, sow_server: ServerProcess, unique: str) -> None:
    """sow.md §25 29, §17."""
    client = peers.logged_on(sow_server, "fix")
    subscribe_deltas(client, "fixes", "s")
    for command, body in (("p", "38=5|39=1|"), ("delta_publish", "39=2|")):
        client.send({"c": command, "t": "fixes"}, f"37={unique}|{body}".replace("|", "\x01").encode())
    client.subscribe("fixes", "full")
    client.send({"c": "delta_publish", "t": "fixes"}, f"37={unique}\x0140=1\x01".encode())
    messages = client.receive_many(3)
    assert [m.body.decode().replace("\x01", "|") for m in messages] == [
        f"37={unique}|38=5|39=1|", f"37={unique}|39=2|", f"37={unique}|38=5|39=2|40=1|",
    ]  # fmt: skip


def test_sow_17_an_unreadable_message_comes_whole(client: RawClient, publisher: RawClient, place: str) -> None:
    """sow.md §17: there is no difference of messages that cannot be parsed."""
    topic = f"{place}given"
    subscribe_deltas(client, topic, "s", o="no_empties")
    for body in (b'{"a":1}', b"{broken", b'{"a":1}', b'{"a":2}'):
        publisher.publish(topic, body, k="deltas")
    assert [m.body for m in client.receive_many(4)][1:] == [b"{broken", b'{"a":1}', b'{"a":2}']


@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_delta_subscribe"])
def test_sow_63_no_deltas_from_a_bookmark(client: RawClient, orders: str, command: str) -> None:
    """sow.md §25 63, D27."""
    ack = client.request({"c": command, "t": orders, "sub_id": "s", "bm": "0"})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_sow_39_selected_changes(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §17, §18, D30: the list is applied to the delta; with `no_empties` only selected changes count."""
    record.publish(a=1, b=1, c=1)
    subscribe_deltas(client, orders, "all", o="select=[-/b]")
    subscribe_deltas(client, orders, "few", o="no_empties,select=[-/,+/a]")
    record.publish(a=1, b=2, c=1)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", {"id": record.key}), {"all"})
    record.publish(a=2, b=3, c=1)
    found = {frozenset(m.subscriptions): json.loads(m.body) for m in client.receive_many(2)}
    assert found == {frozenset({"all"}): {"id": record.key, "a": 2}, frozenset({"few"}): {"a": 2}}
    client.expect_silence()


# --- conflation ---------------------------------------------------------------------------------------------------


def test_sow_35_conflation_by_the_key_of_the_topic(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 35: many updates give one message, the last, with the time of the first."""
    client.subscribe(orders, "whole", o="timestamp")
    client.subscribe(orders, "s", o=f"timestamp,{SHORT}")
    for a in range(5):
        record.publish(a=a)
    whole = client.receive_many(5)
    held = client.receive()
    assert (seen(held), held.subscriptions) == (("p", {"id": record.key, "a": 4}), {"s"})
    assert (held["ts"], held["k"]) == (whole[0]["ts"], whole[0]["k"])
    client.expect_silence()


def test_sow_35_conflation_of_keys_that_publishers_provide(
    client: RawClient, publisher: RawClient, place: str
) -> None:
    """sow.md §16: the key is that of the record, and need not be in the message."""
    client.subscribe(f"{place}given", "s", o=SHORT)
    for key, body in (("one", b"1"), ("two", b"2"), ("one", b"3")):
        publisher.publish(f"{place}given", body, k=key)
    assert {(m["k"], m.body) for m in client.receive_many(2)} == {("one", b"3"), ("two", b"2")}
    client.expect_silence()


def test_sow_36_keys_of_conflation(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md §25 36, D13: a topic without state needs a key; with `oof` it must be that of the topic."""
    topic, orders = f"{place}plain/{unique}", f"{place}orders"
    for name, options in (
        (topic, "conflation=1s"),
        (orders, "oof,conflation=1s,conflation_key=[/other]"),
        (f"^{orders}$", "oof,conflation=1s,conflation_key=[/id,/other]"),
        (f"{place}given", "oof,conflation=1s,conflation_key=[/id]"),
        (orders, "conflation_key=[/id]"),
        (orders, "conflation=0.1ms"),
    ):
        ack = client.try_subscribe(name, "s", o=options)
        assert (ack["status"], ack.reason) == ("failure", "invalid options"), options
    for number, (name, options) in enumerate(
        (
            (topic, "oof,conflation=1s,conflation_key=[/id]"),
            (orders, "oof,conflation=1s,conflation_key=[/id]"),
            (orders, "oof,conflation=1s"),
            (orders, "conflation=1s,conflation_key=[/other]"),
            (f"^{orders}$", "conflation=1s"),
        )
    ):
        client.subscribe(name, str(number), o=options)


@pytest.mark.parametrize("key", ["", ",conflation_key=[/id]"])
def test_sow_37_deltas_of_an_interval_are_merged(client: RawClient, record: Record, orders: str, key: str) -> None:
    """sow.md §25 37, §16: a field that occurred in any delta appears, with its final value."""
    record.publish(s="open", n="-", x=8)
    subscribe_deltas(client, orders, "s", o=SHORT + key)
    for s, n in (("q", "-"), ("q", "hold"), ("c", "-"), ("open", "-")):
        record.publish(s=s, n=n, x=8)
    assert seen(client.receive()) == ("p", {"id": record.key, "s": "open", "n": "-"})
    client.expect_silence()


def test_sow_37_an_interval_without_changes(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §17: keys only, or nothing with `no_empties`."""
    record.publish(a=1)
    subscribe_deltas(client, orders, "plain", o=SHORT)
    subscribe_deltas(client, orders, "terse", o=f"no_empties,{SHORT}")
    record.publish(a=1)
    message = client.receive()
    assert (seen(message), message.subscriptions) == (("p", {"id": record.key}), {"plain"})
    client.expect_silence()


def test_sow_37_a_field_that_was_removed(client: RawClient, record: Record, orders: str) -> None:
    """sow.md D10: a field that the final state lacks is NULL, even if it changed before."""
    record.publish(a=1, b=1)
    subscribe_deltas(client, orders, "s", o=SHORT)
    record.publish(a=2, b=1)
    record.publish(b=1)
    assert seen(client.receive()) == ("p", {"id": record.key, "a": None})


def test_sow_37_new_records_and_foreign_keys(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §16: a record that is new in the interval comes whole. So do messages under another key, which may
    be of different records.
    """
    subscribe_deltas(client, orders, "s", o=SHORT)
    subscribe_deltas(client, orders, "f", o=f"{SHORT},conflation_key=[/g]")
    record.publish(a=1, g=1)
    last = record.publish(a=2, g=1)
    found = {next(iter(m.subscriptions)): seen(m) for m in client.receive_many(2)}
    assert found == {"s": ("p", last), "f": ("p", last)}
    last = record.publish(a=3, g=1)
    found = {next(iter(m.subscriptions)): seen(m) for m in client.receive_many(2)}
    assert found == {"s": ("p", {"id": record.key, "a": 3}), "f": ("p", last)}


def test_sow_38_focus_at_the_end_of_an_interval(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 38, §16: leaving and coming back gives one publish; an update and leaving give one `oof` with the body
    that the client had before; a record that was not delivered and leaves gives nothing.
    """
    client.subscribe(orders, "s", f="/a > 10", o=f"oof,{SHORT}")
    for a in (11, 5):
        record.publish(a=a)
    other = Record(record.publisher, record.topic, f"{record.key}-2")
    had = other.publish(a=30)
    message = client.receive()
    assert seen(message) == ("p", had)  # and nothing of the first record
    for a in (5, 40):
        last = other.publish(a=a)
    assert seen(client.receive()) == ("p", last)
    for a in (41, 5):
        other.publish(a=a)
    left = client.receive()
    assert (seen(left), left["reason"], left["k"]) == (("oof", last), "match", message["k"])
    client.expect_silence()


def test_sow_38_removal_in_an_interval(client: RawClient, publisher: RawClient, place: str, unique: str) -> None:
    """sow.md D13: `oof` at the end of the interval if the record was there before, else nothing."""
    record = Record(publisher, f"{place}short", unique)
    client.subscribe(record.topic, "all", o="oof")
    client.subscribe(record.topic, "long", o="oof,conflation=2500ms")
    client.subscribe(record.topic, "short", o=f"oof,{SHORT}")
    had = record.publish(a=1)
    found = [(next(iter(m.subscriptions)), *seen(m)) for m in client.receive_many(4)]
    assert found == [("all", "p", had), ("short", "p", had), ("all", "oof", had), ("short", "oof", had)]
    time.sleep(0.1)
    marker = Record(publisher, f"{place}short", f"{unique}-2")
    marker.publish(a=2)
    assert {next(iter(m.subscriptions)) for m in client.receive_many(4)} == {"all", "short"}
    client.expect_nothing_for(2.5)


def test_sow_38_deltas_and_focus_of_an_interval(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §§13, 16: whole if the record was out of focus before the interval, else what changed."""
    record.publish(a=1, b=1)
    subscribe_deltas(client, orders, "s", f="/a > 10", o=f"oof,{SHORT}")
    whole = record.publish(a=11, b=1)
    assert seen(client.receive()) == ("p", whole)
    record.publish(a=1, b=1)
    record.publish(a=12, b=1)
    assert seen(client.receive()) == ("p", {"id": record.key, "a": 12})


def test_sow_39_select_lists_of_conflated_subscriptions(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §§16, 18."""
    client.subscribe(orders, "full", f="/b < 9", o=f"oof,select=[-/b],{SHORT}")
    subscribe_deltas(client, orders, "delta", o=f"no_empties,select=[-/b],{SHORT}")
    record.publish(a=1, b=1, c=1)
    first = {next(iter(m.subscriptions)): seen(m) for m in client.receive_many(2)}
    assert first == dict.fromkeys(("full", "delta"), ("p", {"id": record.key, "a": 1, "c": 1}))
    record.publish(a=2, b=9, c=1)
    second = {next(iter(m.subscriptions)): seen(m) for m in client.receive_many(2)}
    assert second == {"full": ("oof", {"id": record.key, "a": 1, "c": 1}), "delta": ("p", {"id": record.key, "a": 2})}
    record.publish(a=2, b=10, c=1)
    client.expect_nothing_for(0.8)


def test_sow_16_replays_are_conflated_by_the_key(client: RawClient, publisher: RawClient, unique: str) -> None:
    """sow.md §16: the default key holds for replays, too."""
    record = Record(publisher, "L/others", unique)
    for a in range(3):
        last = record.publish(a=a)
    client.subscribe("L/others", "s", f=f"/id = '{unique}'", bm="0", o=SHORT)
    assert seen(client.receive()) == ("p", last)
    client.expect_nothing_for(0.6)


# --- with a query -------------------------------------------------------------------------------------------------


def test_sow_30_rows_are_whole(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 30 and 33: rows come whole, then deltas; a record that comes into focus comes whole."""
    whole = record.publish(a=11, b=2)
    header = {"c": "sow_and_delta_subscribe", "t": orders, "sub_id": "s", "query_id": "q", "o": "oof"}
    assert client.request({**header, "f": f"/a > 10 AND /id = '{record.key}'"}).succeeded
    row = client.receive_many(3)[1]
    assert json.loads(row.body[row.body.index(b"}") + 1 :]) == whole
    record.publish(a=12, b=2)
    delta = client.receive()
    assert seen(delta) == ("p", {"id": record.key, "a": 12})
    assert "k" in delta
    record.publish(a=1, b=2)
    whole = record.publish(a=13, b=2)
    assert [m.command for m in client.receive_many(1)] == ["oof"]
    assert seen(client.receive()) == ("p", whole)


def test_sow_35_rows_are_not_conflated(client: RawClient, record: Record, orders: str) -> None:
    """sow.md §25 35 and 37: the rows come at once, the updates after them are conflated."""
    record.publish(s="open", n="-", x=8)
    header = {"c": "sow_and_delta_subscribe", "t": orders, "sub_id": "s", "query_id": "q", "o": SHORT}
    assert client.request({**header, "f": f"/id = '{record.key}'"}).succeeded
    assert [m.command for m in client.receive_many(3)] == ["group_begin", "sow", "group_end"]
    for s, n in (("q", "-"), ("q", "hold"), ("c", "-"), ("open", "-")):
        record.publish(s=s, n=n, x=8)
    assert seen(client.receive()) == ("p", {"id": record.key, "s": "open", "n": "-"})
    client.expect_silence()
