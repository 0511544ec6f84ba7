"""The protocol engine alone: bytes and clock readings in, bytes and events out."""

import ast
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import amps.client.engine
from amps.client import (
    EPOCH,
    MOST_RECENT,
    NOW,
    AckType,
    AuthenticationException,
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
    Message,
    PublishStoreGapException,
    SubscriptionAlreadyExistsException,
    UsageException,
)
from amps.client.command import PublishTemplate
from amps.client.engine import Engine
from amps.client.engine_types import (
    Close,
    Deliver,
    Duplicate,
    EngineConfig,
    Event,
    FailedWrite,
    Global,
    LastChance,
    Phase,
    Retry,
    Route,
    RouteKind,
    State,
    StreamEnd,
    Ticket,
    TicketDone,
    TicketFailed,
)
from amps.client.errors import BadFilterException, StreamException
from amps.client.uri import parse_uri
from tests.support.server import package_path
from tests.unit.client.peer import Frame, encode, split_frames

URI = parse_uri("tcp://h:1/amps/json")


class Harness:
    """An engine with the peer's side of the wire in plain sight."""

    def __init__(self, **options: Any) -> None:
        stores = {name: options.pop(name, None) for name in ("publish_store", "bookmark_store")}
        if stores["publish_store"] is not None:
            stores["publish_store"].open("me")
        self.engine = Engine(EngineConfig("me", **options), **stores)
        self.now = 100.0

    def sent(self) -> list[Frame]:
        """What the engine wants to send, drained."""
        return split_frames(b"".join(self.engine.outgoing()))

    def events(self, *kinds: type) -> list[Any]:
        return [event for event in self.engine.events() if not kinds or isinstance(event, kinds)]

    def receive(self, *headers: dict[str, Any], body: bytes = b"") -> None:
        data = b"".join(encode(header) for header in headers[:-1]) + encode(headers[-1], body)
        self.engine.receive(data, self.now)

    def connect(self) -> None:
        self.engine.connection_made(self.now, URI)

    def logon(self, seq: int = 0) -> None:
        self.connect()
        ticket = self.engine.logon(self.now, None, None, "")
        self.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success", "s": seq})

    def ready(self, seq: int = 0) -> "Harness":
        self.logon(seq)
        self.sent()
        self.engine.events()
        return self

    def subscribe(self, sub_id: str | None = None, **options: Any) -> Route:
        route = Route(RouteKind.COMMAND)
        command = Command("subscribe", "t", sub_id=sub_id, **options)
        ticket = self.engine.execute(command, route, self.now)
        self.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
        self.engine.outgoing()
        self.engine.events()
        return route


def delivered(events: list[Event]) -> list[tuple[str | None, bytes]]:
    return [(m.sub_id, m.data) for event in events if isinstance(event, Deliver) for m in event.messages]


def test_client_1_logon_is_first_and_alone() -> None:
    """client.md §21 1: what others want to send meanwhile waits behind the ack"""
    h = Harness(version="1.2:python")
    h.connect()
    assert h.sent() == []
    ticket = h.engine.logon(h.now, None, None, "")
    h.engine.execute(Command("flush"), None, h.now)
    (logon,) = h.sent()
    assert logon.header == {
        "c": "logon", "cid": ticket.command_id, "client_name": "me", "a": "processed", "mt": "json",
        "version": "1.2:python",
    }  # fmt: skip
    h.receive(
        {"c": "ack", "cid": logon["cid"], "a": "processed", "status": "Success", "s": 0, "version": "5"}
    )
    assert [frame["c"] for frame in h.sent()] == ["flush"]
    assert h.engine.server_version == "5"
    assert [event.ticket for event in h.events(TicketDone)] == [ticket]


def test_client_4_challenges_are_answered_on_the_same_connection() -> None:
    """client.md §21 4: at most 32 rounds"""
    h = Harness()
    h.connect()
    ticket: Ticket | None = None
    for round_number in range(33):
        ticket = h.engine.logon(h.now, "u", f"p{round_number}", "", ticket)
        (logon,) = h.sent()
        assert logon["pw"] == f"p{round_number}"
        h.receive(
            {"c": "ack", "cid": logon["cid"], "a": "processed", "status": "retry", "user_id": "v", "pw": "c"}
        )
        events = h.events(Retry, TicketFailed)
        if round_number < 32:
            assert events == [Retry(ticket, "v", "c")]
    assert isinstance(events[0].error, AuthenticationException)
    assert not h.engine.logged_on


def test_a_refused_logon_leaves_the_connection_not_logged_on() -> None:
    h = Harness()
    h.connect()
    ticket = h.engine.logon(h.now, None, None, "")
    h.receive(
        {
            "c": "ack",
            "cid": ticket.command_id,
            "a": "processed",
            "status": "failure",
            "reason": "auth failure",
        }
    )
    (failed,) = h.events(TicketFailed)
    assert isinstance(failed.error, AuthenticationException)
    assert h.engine.phase is Phase.CONNECTED


def test_replay_comes_before_everything_else_and_takes_in_new_publishes() -> None:
    """client.md §19.10: order of numbers is order on the wire, commands wait behind the replay"""
    store = MemoryPublishStore()
    h = Harness(publish_store=store).ready()
    template = PublishTemplate("publish", "t")
    assert [h.engine.publish_body(template, b"%d" % n) for n in range(1, 6)] == [1, 2, 3, 4, 5]
    h.sent()
    h.engine.connection_lost(h.now, None)
    with pytest.raises(DisconnectedException):
        h.engine.publish_body(template, b"lost")
    h.engine.events()
    h.logon(seq=2)
    assert h.engine.phase is Phase.REPLAYING
    h.engine.execute(Command("flush"), None, h.now)
    assert h.engine.publish_body(template, b"6") == 6
    frames = h.sent()
    assert [frame["c"] for frame in frames[:1]] == ["logon"]
    assert [frame.get("s") for frame in frames[1:]] == [3, 4, 5, 6, None]
    assert [frame.body for frame in frames[1:]] == [b"3", b"4", b"5", b"6", b""]
    assert frames[-1]["c"] == "flush"
    states = [event.state for event in h.events(State)]
    assert states[-2:] == [ConnectionState.LOGGED_ON, ConnectionState.PUBLISH_REPLAYED]
    assert h.engine.publish_body(template, b"7") == 7
    assert [frame["s"] for frame in h.sent()] == [7]


def test_replay_goes_out_in_bounded_chunks() -> None:
    store = MemoryPublishStore()
    h = Harness(publish_store=store).ready()
    template = PublishTemplate("publish", "t")
    for _ in range(40):
        h.engine.publish_body(template, bytes(100_000))
    h.sent()
    h.engine.connection_lost(h.now, None)
    h.logon()
    h.engine.outgoing()
    sizes = []
    while chunk := h.engine.outgoing():
        sizes.append(sum(map(len, chunk)))
    assert sum(sizes) > 2_000_000
    assert max(sizes) < 2_000_000


def test_acks_during_replay_shorten_it() -> None:
    store = MemoryPublishStore()
    h = Harness(publish_store=store).ready()
    template = PublishTemplate("publish", "t")
    for _ in range(40):
        h.engine.publish_body(template, bytes(100_000))
    h.sent()
    h.engine.connection_lost(h.now, None)
    h.logon()
    first = split_frames(b"".join(h.engine.outgoing()))
    assert first[-1]["s"] < 30
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 38})
    assert [frame["s"] for frame in h.sent()] == [39, 40]
    assert h.engine.phase is Phase.READY


def test_numbers_start_above_what_the_server_has() -> None:
    h = Harness(publish_store=MemoryPublishStore()).ready(seq=41)
    assert h.engine.publish_body(PublishTemplate("publish", "t"), b"") == 42


def test_client_56_a_lagging_server_is_an_error_if_asked_for() -> None:
    """client.md §21 56, the engine's part"""
    store = MemoryPublishStore(error_on_publish_gap=True)
    store.open("me")
    store.discard_up_to(10)
    h = Harness(publish_store=store)
    h.logon(seq=9)
    assert isinstance(h.events(TicketFailed, Close)[0].error, PublishStoreGapException)
    tolerant = Harness(publish_store=MemoryPublishStore())
    tolerant.ready(seq=10)
    tolerant.engine.connection_lost(0, None)
    tolerant.logon(seq=9)
    assert tolerant.engine.logged_on
    assert tolerant.engine.publish_body(PublishTemplate("publish", "t"), b"") == 11


def test_publishing_with_a_store_needs_a_logon() -> None:
    """client.md §20: there is no starting number before"""
    h = Harness(publish_store=MemoryPublishStore())
    h.connect()
    with pytest.raises(UsageException):
        h.engine.publish_body(PublishTemplate("publish", "t"), b"")
    plain = Harness()
    plain.connect()
    assert plain.engine.publish_body(PublishTemplate("publish", "t"), b"x") == 0
    assert plain.sent()[0].header == {"c": "publish", "t": "t"}


def test_client_17_one_message_for_several_subscriptions() -> None:
    """client.md §21 17, for ids the short way takes and ids it does not"""
    h = Harness().ready()
    for sub_id in ("A", "B", 'odd"id', "ä"):
        h.subscribe(sub_id)
    h.receive({"c": "p", "t": "t", "sids": "A,B"}, body=b"1")
    h.receive({"c": "publish", "t": "t", "sub_id": "A"}, body=b"2")
    h.receive({"c": "p", "t": "t", "sids": 'odd"id,ä,A'}, body=b"3")
    h.receive({"c": "p", "t": "t", "sids": "B"}, body=b'{"sids":"A"}')
    assert delivered(h.events()) == [
        ("A", b"1"), ("B", b"1"), ("A", b"2"), ('odd"id', b"3"), ("ä", b"3"), ("A", b"3"),
        ("B", b'{"sids":"A"}'),
    ]  # fmt: skip


def test_ids_in_a_body_never_route_a_message() -> None:
    h = Harness().ready()
    h.subscribe("A")
    h.receive({"c": "p", "t": "t"}, body=b'{"sids":"A"}')
    (lost,) = h.events(Deliver, LastChance)
    assert isinstance(lost, LastChance)


def test_neighbouring_messages_are_delivered_together() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    h.receive(*[{"c": "p", "t": "t", "sids": "A"} for _ in range(5)])
    (event,) = h.events()
    assert event.route is route
    assert len(event.messages) == 5
    assert h.engine.stats.content_in == 5


def test_failure_settles_the_ticket_and_drops_the_route() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", filter="/a >"), route, h.now)
    cid = ticket.command_id
    h.receive({"c": "ack", "cid": cid, "a": "processed", "status": "failure", "reason": "bad filter"})
    (failed,) = h.events()
    assert isinstance(failed.error, BadFilterException)
    assert route.closed
    h.receive({"c": "p", "t": "t", "sids": cid})
    assert isinstance(h.events()[0], LastChance)


def test_a_failed_replace_leaves_the_subscription_alone() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    ticket = h.engine.execute(
        Command("subscribe", "t", sub_id="A", options="replace", filter="/a >"), route, h.now
    )
    h.receive(
        {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "failure", "reason": "bad filter"}
    )
    assert isinstance(h.events()[0], TicketFailed)
    h.receive({"c": "p", "t": "t", "sids": "A"}, body=b"still")
    assert delivered(h.events()) == [("A", b"still")]


def test_an_active_subscription_id_is_not_taken_twice() -> None:
    h = Harness().ready()
    h.subscribe("A")
    with pytest.raises(SubscriptionAlreadyExistsException):
        h.engine.execute(Command("subscribe", "u", sub_id="A"), Route(RouteKind.COMMAND), h.now)
    assert h.sent() == []


def test_client_16_an_abandoned_command_is_cancelled_and_its_late_ack_ignored() -> None:
    """client.md §21 16"""
    h = Harness().ready()
    subscription = h.engine.execute(Command("subscribe", "t"), Route(RouteKind.COMMAND), h.now)
    query = h.engine.execute(Command("sow", "t"), Route(RouteKind.COMMAND), h.now)
    h.sent()
    h.engine.abandon(subscription, h.now)
    h.engine.abandon(query, h.now)
    first, second = h.sent()
    assert (first["c"], first["sub_id"], first.get("query_id")) == (
        "unsubscribe",
        subscription.command_id,
        None,
    )
    assert (second["c"], second.get("sub_id"), second["query_id"]) == ("unsubscribe", None, query.command_id)
    h.engine.events()
    h.receive({"c": "ack", "cid": query.command_id, "a": "processed", "status": "success"})
    assert h.events() == []


def test_client_18_late_messages_of_ended_subscriptions() -> None:
    """client.md §21 18"""
    h = Harness().ready()
    routes = [h.subscribe(sub_id) for sub_id in "ABC"]
    h.engine.execute(Command("unsubscribe", sub_id="A"), None, h.now)
    assert h.sent()[0].header == {"c": "unsubscribe", "cid": "5", "sub_id": "A", "a": "processed"}
    assert [event.route for event in h.events(StreamEnd)] == routes[:1]
    h.receive({"c": "p", "t": "t", "sids": "A"}, body=b"late")
    assert [event.message.data for event in h.events(LastChance)] == [b"late"]
    h.engine.execute(Command("unsubscribe", sub_id="all"), None, h.now)
    assert [event.route for event in h.events(StreamEnd)] == routes[1:]


def test_client_22_conflated_acks_without_a_store() -> None:
    """client.md §21 22: a persisted ack without command id belongs to nobody"""
    h = Harness().ready()
    h.engine.execute(Command("publish", "t", ack_type="persisted"), Route(RouteKind.COMMAND), h.now)
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 7})
    (event,) = h.events()
    assert isinstance(event, LastChance)
    h.engine.set_global("ack", True)
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 8})
    assert [type(event) for event in h.events()] == [Global, LastChance]


def test_client_22_asked_for_acks_reach_the_route() -> None:
    """client.md §21 22"""
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("publish", "t", ack_type="processed"), route, h.now)
    assert ticket.done
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    deliver, end = h.events()
    assert deliver.messages[0].ack_type == AckType.PROCESSED
    assert isinstance(end, StreamEnd)


def test_client_58_a_refused_write_is_told_with_its_data() -> None:
    """client.md §21 58, the engine's part: acks in order, a failure in the middle"""
    store = MemoryPublishStore()
    h = Harness(publish_store=store).ready()
    for n in range(1, 6):
        h.engine.publish_body(PublishTemplate("publish", f"t{n}"), b"%d" % n)
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    h.receive({"c": "ack", "a": "persisted", "status": "failure", "s": 3, "reason": "not entitled"})
    (failed,) = h.events(FailedWrite)
    assert (failed.message.command, failed.message.sequence, failed.message.topic) == ("publish", 3, "t3")
    assert (failed.message.data, failed.reason) == (b"3", "not entitled")
    assert store.unpersisted_count() == 2
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 5})
    assert store.unpersisted_count() == 0
    assert h.engine.stats.failed_writes == 1


def test_a_query_ends_with_its_group_and_the_acks_asked_for() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("sow", "t", ack_type="stats"), route, h.now)
    (query,) = h.sent()
    assert (query["bs"], query.acks, query["query_id"]) == (10, {"processed", "stats"}, ticket.command_id)
    query_id = query["query_id"]
    h.receive(
        {"c": "ack", "cid": query_id, "a": "processed", "status": "success"},
        {"c": "group_begin", "query_id": query_id},
        {"c": "sow", "t": "t", "query_id": query_id, "bs": 2, "gseq": 1, "ts": "now"},
        body=b'{"k":"1","l":2,"x":"c="}{}{"k":"2","l":0}',
    )
    h.receive({"c": "sow", "t": "t", "query_id": query_id, "bs": 1, "k": "3", "l": 4}, body=b'{"}"')
    h.receive({"c": "group_end", "query_id": query_id})
    messages = [message for event in h.events(Deliver) for message in event.messages]
    assert [message.command for message in messages] == ["group_begin", "sow", "sow", "sow", "group_end"]
    assert [(m.sow_key, m.data, m.timestamp) for m in messages[1:4]] == [
        ("1", b"{}", "now"), ("2", b"", "now"), ("3", b'{"}"', None),
    ]  # fmt: skip
    assert messages[1].correlation_id == "c="
    assert not route.closed
    h.receive({"c": "ack", "cid": query_id, "a": "stats", "status": "success", "matches": 3})
    deliver, end = h.events()
    assert deliver.messages[0].matches == 3
    assert isinstance(end, StreamEnd)


def test_sow_and_subscribe_delivers_query_and_updates_to_one_route() -> None:
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("sow_and_subscribe", "t", sub_id="S"), route, h.now)
    assert ticket.query_id == ticket.command_id
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "group_begin", "query_id": ticket.query_id})
    h.receive({"c": "sow", "t": "t", "query_id": ticket.query_id}, body=b'{"k":"1","l":1}a')
    h.receive({"c": "group_end", "query_id": ticket.query_id})
    h.receive({"c": "p", "t": "t", "sids": "S"}, body=b"b")
    h.receive({"c": "oof", "t": "t", "sids": "S", "reason": "match"}, body=b"c")
    messages = [message for event in h.events(Deliver) for message in event.messages]
    assert [(m.command, m.data, m.sub_id) for m in messages if m.is_content] == [
        ("sow", b"a", "S"), ("publish", b"b", "S"), ("oof", b"c", "S"),
    ]  # fmt: skip
    h.engine.cancel(route)
    assert h.sent()[-1].header == {"c": "unsubscribe", "sub_id": "S"}


@pytest.mark.parametrize("damage", [b"\x00\x00\x00\x02{]", b"\xff\xff\xff\xff", b'\x00\x00\x00\x08{"c":"p"'])
def test_corrupt_data_closes_the_connection(damage: bytes) -> None:
    """client.md §19.10 rule 6"""
    h = Harness().ready()
    h.subscribe("A")
    h.engine.receive(encode({"c": "p", "t": "t", "sids": "A"}, b"good") + damage, h.now)
    deliver, close = h.events()
    assert deliver.messages[0].data == b"good"
    assert isinstance(close.error, StreamException)
    assert not h.engine.connected


def test_a_sow_record_longer_than_its_frame_is_corrupt() -> None:
    h = Harness().ready()
    h.receive({"c": "sow", "t": "t", "query_id": "9"}, body=b'{"k":"1","l":100}{}')
    assert isinstance(h.events()[-1], Close)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=30))
def test_frames_may_be_split_anywhere(cuts: list[int]) -> None:
    h = Harness().ready()
    h.subscribe("A")
    stream = b"".join(encode({"c": "p", "t": "t", "sids": "A"}, b"%d" % n) for n in range(12))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in pairwise(edges):
        h.engine.receive(stream[start:end], h.now)
    assert [data for _, data in delivered(h.events())] == [b"%d" % n for n in range(12)]


def test_heartbeats_beat_each_interval_and_answer_the_server() -> None:
    """client.md §9.6: `start` in whole seconds, a beat each interval and one per server heartbeat"""
    h = Harness(heartbeat_s=1.5)
    h.logon()
    assert [frame.get("o") for frame in h.sent()] == [None, "start,2"]
    assert h.engine.deadline() == pytest.approx(101.5)
    h.engine.tick(101.4)
    assert h.sent() == []
    h.engine.tick(101.5)
    assert [frame["o"] for frame in h.sent()] == ["beat"]
    h.receive({"c": "heartbeat"})
    assert [frame["o"] for frame in h.sent()] == ["beat"]
    assert h.engine.deadline() == pytest.approx(103.0)


def test_silence_counts_only_while_reading() -> None:
    """client.md §21 33: a slow handler must not look like a dead server"""
    h = Harness(heartbeat_s=1.0)
    h.ready()
    assert h.engine.silence_deadline() == pytest.approx(102.0)
    h.engine.tick(109.0)
    assert h.events(Close) == []
    h.engine.tick(109.0, reading=True)
    assert "9.0 s" in str(h.events(Close)[0].error)


def test_heartbeats_can_be_stopped() -> None:
    h = Harness(heartbeat_s=1.0).ready()
    h.engine.config = replace(h.engine.config, heartbeat_s=None)
    h.engine.start_heartbeat(h.now)
    assert [frame["o"] for frame in h.sent()] == ["stop"]
    assert h.engine.deadline() is None


@pytest.mark.parametrize(
    ("bookmark", "wire"),
    [
        (EPOCH, "0"),
        (NOW, "0|1|"),
        ("0|1", "0|1|"),
        (MOST_RECENT, "0"),
        ("1|2|,3|4|", "1|2|,3|4|"),
        ("20240301T090000Z", "20240301T090000Z"),
        ("[1|2|:3|4|)", "[1|2|:3|4|)"),
    ],
)
def test_client_43_bookmarks_on_the_wire(bookmark: str, wire: str) -> None:
    """client.md §21 43"""
    h = Harness().ready()
    h.engine.execute(Command("subscribe", "t", bookmark=bookmark), Route(RouteKind.COMMAND), h.now)
    assert h.sent()[0]["bm"] == wire


class Bookmarks:
    """A bookmark store that remembers what it was asked."""

    def __init__(self, recent: str | None) -> None:
        self.recent = recent
        self.seen: set[str | None] = set()
        self.stable: list[tuple[str, str]] = []
        self.released_ids: list[str] = []

    def log(self, message: Message) -> int:
        self.seen.add(message.bookmark)
        return len(self.seen)

    def is_discarded(self, message: Message) -> bool:
        return message.bookmark in self.seen

    def discard(self, sub_id: str, store_seq: int) -> None: ...

    def persisted(self, sub_id: str, bookmark: str) -> None:
        self.stable.append((sub_id, bookmark))

    def get_most_recent(self, sub_id: str) -> str | None:
        return self.recent

    def get_oldest_seq(self, sub_id: str) -> int:
        return 0

    def released(self, sub_id: str) -> None:
        self.released_ids.append(sub_id)

    def purge(self, sub_id: str | None = None) -> None: ...

    def prune(self) -> None: ...

    def close(self) -> None: ...


def test_client_44_a_bookmark_store_is_asked_and_told() -> None:
    """client.md §21 44 and §7: resume point, duplicates, persisted acks"""
    store = Bookmarks("7|8|")
    h = Harness(bookmark_store=store).ready()
    command = Command("subscribe", "t", sub_id="S", bookmark=MOST_RECENT)
    ticket = h.engine.execute(command, Route(RouteKind.COMMAND), h.now)
    (sent,) = h.sent()
    assert (sent["bm"], sent.acks) == ("7|8|", {"processed", "persisted"})
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.engine.events()
    h.receive({"c": "p", "t": "t", "sids": "S", "bm": "1|1|"}, body=b"x")
    h.receive({"c": "p", "t": "t", "sids": "S", "bm": "1|1|"}, body=b"x")
    h.receive(
        {
            "c": "ack",
            "cid": ticket.command_id,
            "a": "persisted",
            "sub_id": "S",
            "bm": "1|9|",
            "status": "success",
        }
    )
    deliver, duplicate = h.events()
    assert deliver.messages[0].store_seq == 1
    assert isinstance(duplicate, Duplicate)
    assert h.engine.stats.duplicates_dropped == 1
    assert store.stable == [("S", "1|9|")]
    h.engine.connection_lost(h.now, None)
    assert store.released_ids == ["S"]


def test_client_44_without_a_store_only_processed_is_asked_for() -> None:
    """client.md §21 44"""
    h = Harness().ready()
    h.engine.execute(Command("subscribe", "t", bookmark=EPOCH), Route(RouteKind.COMMAND), h.now)
    assert h.sent()[0].acks == {"processed"}


def test_client_51_replays_with_an_end_end() -> None:
    """client.md §21 51, the engine's part: ranges at `completed`, top_n after that many messages"""
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", bookmark="[1|1|:1|3|)"), route, h.now)
    (sent,) = h.sent()
    assert sent.acks == {"processed", "completed"}
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "completed", "status": "success"})
    assert [type(event) for event in h.events()] == [TicketDone, StreamEnd]
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", bookmark=EPOCH, top_n=2), route, h.now)
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive(*[{"c": "p", "t": "t", "sids": ticket.command_id}] * 2)
    assert isinstance(h.events()[-1], StreamEnd)
    assert route.closed


def test_client_37_acks_are_batched_by_topic_and_backlog() -> None:
    """client.md §21 37, 38"""
    h = Harness(ack_batch_size=100).ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "q.*", sub_id="S", options="max_backlog=5"), route, h.now)
    h.receive(
        {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success", "o": "max_backlog=3"}
    )
    assert route.max_backlog == 3
    h.sent()
    h.engine.ack("q.1", "1|1|", "", "S", h.now)
    h.engine.ack("q.2", "1|2|", "", "S", h.now)
    assert h.sent() == []
    h.engine.ack("q.1", "1|3|", "", "S", h.now)
    assert [frame.header for frame in h.sent()] == [
        {"c": "sow_delete", "t": "q.1", "bm": "1|1|,1|3|"},
        {"c": "sow_delete", "t": "q.2", "bm": "1|2|"},
    ]


def test_client_42_leftover_acks_go_out_after_logon_before_anything_else() -> None:
    """client.md §21 42, the engine's part"""
    h = Harness(ack_batch_size=10).ready()
    h.subscribe("S")
    h.engine.ack("q", "1|1|", "", "S", h.now)
    h.engine.ack("q", "1|2|", "", "S", h.now)
    h.engine.connection_lost(h.now, None)
    h.logon()
    h.engine.execute(Command("subscribe", "q"), Route(RouteKind.COMMAND), h.now)
    assert [(frame["c"], frame.get("bm")) for frame in h.sent()][1:] == [
        ("sow_delete", "1|1|,1|2|"), ("subscribe", None),
    ]  # fmt: skip


def test_a_lost_connection_fails_what_waits_and_ends_every_route() -> None:
    h = Harness().ready()
    route = h.subscribe("A")
    ticket = h.engine.execute(Command("flush"), None, h.now)
    error = DisconnectedException("gone")
    h.engine.connection_lost(h.now, error)
    state, failed, end = h.events()
    assert state.state is ConnectionState.DISCONNECTED
    assert (failed.ticket, failed.error) == (ticket, error)
    assert (end.route, end.error) == (route, error)
    with pytest.raises(DisconnectedException):
        h.engine.execute(Command("flush"), None, h.now)


def test_oversize_messages_are_refused_before_a_number_is_used() -> None:
    store = MemoryPublishStore()
    h = Harness(publish_store=store, max_message_bytes=1000).ready()
    with pytest.raises(ValueError, match="max_message_size"):
        h.engine.publish_body(PublishTemplate("publish", "t"), bytes(1000))
    with pytest.raises(ValueError, match="max_message_size"):
        h.engine.publish(Command("publish", "t", data=bytes(1000)), h.now)
    assert store.unpersisted_count() == 0
    assert h.engine.publish_body(PublishTemplate("publish", "t"), b"") == 1


def test_client_70_the_engine_does_no_input_or_output() -> None:
    """client.md §21 70"""
    source = Path(amps.client.engine.__file__).parent
    for module in (
        "engine.py",
        "engine_state.py",
        "engine_types.py",
        "inbound.py",
        "outbound.py",
        "acknowledger.py",
    ):
        imported = set()
        for node in ast.walk(ast.parse((source / module).read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert not imported & {"socket", "ssl", "threading", "time", "asyncio", "logging", "select"}, module


def test_client_70_importing_the_client_brings_in_neither_asyncio_nor_the_server() -> None:
    """client.md §21 70"""
    program = (
        "import sys, amps.client;"
        " print([m for m in sys.modules if m == 'asyncio' or m.startswith('amps.server')])"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", program],  # the package under test, not sources in the working directory
        env={**os.environ, "PYTHONPATH": package_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
