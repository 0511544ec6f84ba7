"""The engine over lost connections: what survives, what is sent again, and in which order."""

from typing import Any

import pytest

from amps.client import (
    EPOCH,
    MOST_RECENT,
    NOW,
    AckType,
    BadFilterException,
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
    NotEntitledException,
    RetryOperationException,
)
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine_state import MAX_DEFERRED_BYTES
from amps.client.protocol.engine_types import (
    Duplicate,
    LastChance,
    Phase,
    RecoveryFailed,
    Route,
    RouteKind,
    State,
    StreamEnd,
    Ticket,
    TicketDone,
    TicketFailed,
)
from tests.unit.client.bookmarks import ListStore
from tests.unit.client.harness import Harness, delivered
from tests.unit.client.peer import Frame

LOST = DisconnectedException("gone")
TEMPLATE = PublishTemplate("publish", "t")


class Recovering(Harness):
    """An engine that recovers, and its changing servers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.engine.recovers = True

    def ready(self, seq: int = 0) -> "Recovering":
        self.logon(seq)
        self.engine.recover(self.now)
        self.sent()
        assert self.engine.phase is Phase.READY
        self.engine.events()
        return self

    def lose(self) -> list[Any]:
        self.engine.connection_lost(self.now, LOST)
        return self.events()

    def reconnect(self, seq: int = 0) -> list[Frame]:
        """Log on to the next server and recover; return what the engine sends before subscriptions are accepted."""
        self.logon(seq)
        self.sent()
        self.engine.recover(self.now)
        return self.sent()

    def accept(self, *frames: Frame) -> None:
        for frame in frames:
            self.receive({"c": "ack", "cid": frame["cid"], "a": "processed", "status": "success"})

    def again(self, seq: int = 0) -> list[Frame]:
        """Lose the connection, recover on the next, accept all subscriptions; return what was sent."""
        self.lose()
        frames = self.reconnect(seq)
        self.accept(*[frame for frame in frames if "subscribe" in frame["c"]])
        assert self.engine.phase is Phase.READY
        return frames + self.sent()

    def start(self, command: Command, route: Route | None = None, **options: Any) -> Ticket:
        return self.engine.execute(command, route, self.now, **options)

    def enter(self, command: Command, **options: Any) -> Route:
        """Execute a command that the server accepts."""
        route = Route(RouteKind.COMMAND)
        ticket = self.start(command, route, **options)
        self.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
        self.sent()
        self.engine.events()
        return route

    def message(self, sub_id: str, bookmark: str, body: bytes = b"{}") -> None:
        self.receive({"c": "p", "t": "t", "sids": sub_id, "bm": bookmark, "l": len(body)}, body=body)


def subscribe(sub_id: str = "s", **fields: Any) -> Command:
    return Command("subscribe", "t", sub_id=sub_id, **fields)


def test_client_61_recovery_happens_in_order() -> None:
    """client.md §21 61, and §9.1: heartbeat, publish store, leftover acks, subscriptions"""
    store = MemoryPublishStore()
    h = Recovering(publish_store=store, heartbeat_s=1.0, ack_batch_size=10).ready()
    h.enter(subscribe())
    for body in (b"1", b"2"):
        h.engine.publish_body(TEMPLATE, body)
    h.sent()
    h.engine.ack("q", "7|1|", "", "s", h.now)
    states = [event.state for event in h.lose() if isinstance(event, State)]
    assert h.engine.publish_body(TEMPLATE, b"3") == 3
    h.logon()
    h.sent()
    assert h.engine.publish_body(TEMPLATE, b"4") == 4
    assert h.engine.phase is Phase.LOGGED_ON
    assert h.sent() == []
    h.engine.recover(h.now)
    assert h.engine.publish_body(TEMPLATE, b"5") == 6
    frames = h.sent()
    assert [(f["c"], f.get("s")) for f in frames] == [
        ("heartbeat", None), ("publish", 1), ("publish", 2), ("publish", 3), ("publish", 4), ("sow_delete", 5),
        ("publish", 6), ("subscribe", None),
    ]  # fmt: skip
    assert h.engine.publish_body(TEMPLATE, b"6") == 7
    assert [f["s"] for f in h.sent()] == [7]
    h.start(Command("flush"))
    assert h.sent() == []
    h.accept(frames[-1])
    assert [f["c"] for f in h.sent()] == ["flush"]
    states += [event.state for event in h.events(State)]
    assert states == [
        ConnectionState.DISCONNECTED,
        ConnectionState.CONNECTED,
        ConnectionState.LOGGED_ON,
        ConnectionState.HEARTBEAT_INITIATED,
        ConnectionState.PUBLISH_REPLAYED,
        ConnectionState.RESUBSCRIBED,
    ]


def test_a_publish_while_the_last_subscription_is_accepted_is_sent() -> None:
    """client.md §19.10: the replay sends what is stored until recovery has finished"""
    h = Recovering(publish_store=MemoryPublishStore()).ready()
    h.enter(subscribe())
    h.lose()
    frames = h.reconnect()
    h.engine.publish_body(TEMPLATE, b"1")
    h.accept(frames[-1])
    assert h.engine.has_outgoing
    assert [f.body for f in h.sent()] == [b"1"]
    assert h.engine.phase is Phase.READY
    assert not h.engine.has_outgoing
    h.engine.publish_body(TEMPLATE, b"2")
    assert [f.body for f in h.sent()] == [b"2"]


def test_client_42_leftover_acks_go_out_before_subscriptions() -> None:
    """client.md §21 42, the engine's part, without a publish store"""
    h = Recovering(ack_batch_size=10).ready()
    h.enter(subscribe())
    for bookmark in ("1|1|", "1|2|"):
        h.engine.ack("q", bookmark, "", "s", h.now)
    frames = h.again()
    assert [(f["c"], f.get("bm")) for f in frames] == [("sow_delete", "1|1|,1|2|"), ("subscribe", None)]


def test_acks_that_a_full_store_has_no_room_for_are_kept() -> None:
    """client.md §20: leftover acknowledgements are not lost; they are sent when messages are persisted"""
    h = Recovering(publish_store=MemoryPublishStore(max_bytes=10, on_full="raise")).ready()
    h.engine.publish_body(TEMPLATE, b"1")
    h.sent()
    h.engine.ack("q", "1|1|", "", None, h.now)
    assert h.sent() == []
    assert [f["c"] for f in h.again()] == ["publish"]
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert [(f["c"], f["bm"]) for f in h.sent()] == [("sow_delete", "1|1|")]


# Subscriptions


def test_client_62_subscriptions_are_entered_again_in_their_order() -> None:
    """client.md §21 62: with their ids, on the same routes; a query of sow_and_subscribe is asked again"""
    h = Recovering().ready()
    first = h.enter(subscribe("a", filter="/x = 1", options="oof"))
    second = h.enter(Command("sow_and_subscribe", "u", sub_id="b", query_id="bq"))
    single = h.enter(subscribe("c"), resubscribe=False)
    events = h.lose()
    assert [event.route for event in events if isinstance(event, StreamEnd)] == [single]
    frames = h.reconnect()
    assert [f.header for f in frames] == [
        {"c": "subscribe", "cid": "2", "t": "t", "f": "/x = 1", "sub_id": "a", "o": "oof", "a": "processed"},
        {
            "c": "sow_and_subscribe", "cid": "3", "t": "u", "sub_id": "b", "query_id": "bq", "bs": 10,
            "a": "processed",
        },
    ]  # fmt: skip
    h.receive({"c": "p", "t": "t", "sids": "a", "l": 1}, body=b"1")
    h.accept(*frames)
    assert delivered(h.events()) == [("a", b"1")]
    h.receive({"c": "group_begin", "query_id": "bq"}, {"c": "group_end", "query_id": "bq"})
    assert h.engine.route_of("a") is first
    assert h.engine.route_of("b") is second
    assert second.group_ended


def test_client_19_the_last_form_is_entered_again() -> None:
    """client.md §21 19: a replaced subscription has its new filter after a reconnect"""
    h = Recovering().ready()
    route = h.enter(subscribe(filter="/x = 1"))
    ticket = h.start(subscribe(filter="/x = 2", options="replace,oof"), route)
    h.accept(Frame({"cid": ticket.command_id}, b""))
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    assert (frame["f"], frame["o"]) == ("/x = 2", "oof")
    assert h.engine.route_of("s") is route


def test_a_refused_replacement_leaves_the_old_form() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe(filter="/x = 1"))
    ticket = h.start(subscribe(filter="/x >", options="replace"), route)
    h.receive(
        {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "failure", "reason": "bad filter"}
    )
    assert isinstance(ticket.error, BadFilterException)
    assert [f["f"] for f in h.again() if f["c"] == "subscribe"] == ["/x = 1"]


def test_a_replacement_that_is_cut_off_follows_the_old_form() -> None:
    """client.md §19.5: the waiting command is sent again after recovery"""
    h = Recovering().ready()
    route = h.enter(subscribe(filter="/x = 1"))
    ticket = h.start(subscribe(filter="/x = 2", options="replace"), route)
    frames = [f for f in h.again() if f["c"] == "subscribe"]
    assert [(f["f"], f.get("o")) for f in frames] == [("/x = 1", None), ("/x = 2", "replace")]
    assert not ticket.done
    h.accept(frames[1])
    assert ticket.done
    assert [f["f"] for f in h.again() if f["c"] == "subscribe"] == ["/x = 2"]


def test_client_52_a_paused_subscription_is_paused_again() -> None:
    """client.md §21 52: paused at entry or later, until it is resumed"""
    h = Recovering(bookmark_store=ListStore()).ready()
    h.enter(subscribe("a", bookmark=EPOCH, options="rate=1,pause"))
    h.enter(subscribe("b", bookmark=EPOCH))
    h.enter(subscribe("c", bookmark=EPOCH, options="pause"))
    for option, names in (("resume", "c"), ("pause", "b")):
        ticket = h.start(Command("subscribe", sub_id=names, options=option))
        h.accept(Frame({"cid": ticket.command_id}, b""))
    frames = [f for f in h.again() if f["c"] == "subscribe"]
    assert [(f["sub_id"], f.get("o")) for f in frames] == [("a", "rate=1,pause"), ("b", "pause"), ("c", None)]
    ticket = h.start(Command("subscribe", sub_id="a,b", options="resume"))
    h.accept(Frame({"cid": ticket.command_id}, b""))
    frames = [f for f in h.again() if f["c"] == "subscribe"]
    assert [(f["sub_id"], f.get("o")) for f in frames] == [("a", "rate=1"), ("b", None), ("c", None)]


@pytest.mark.parametrize(
    ("entered", "seen", "again"),
    [
        (EPOCH, "5|1|", "5|1|"),
        (NOW, "5|1|", "5|1|"),
        (NOW, None, NOW),
        (MOST_RECENT, "5|1|", "5|1|"),
        (MOST_RECENT, None, EPOCH),
        ("20300101T000000Z", None, "20300101T000000Z"),
        ("[1|1|:9|9|)", "5|1|", "(5|1|:9|9|)"),
        ("(20200101T000000Z:20300101T000000Z]", "5|1|,6|2|", "(5|1|,6|2|:20300101T000000Z]"),
        ("[1|1|:9|9|)", None, "[1|1|:9|9|)"),
        ("[1|1|:9|9|)", "[5|1|:99991231T235959]", "[5|1|:9|9|)"),
        (EPOCH, "[5|1|:99991231T235959]", "[5|1|:99991231T235959]"),
    ],
)
def test_bookmark_subscriptions_go_on_from_the_store(entered: str, seen: str | None, again: str) -> None:
    """client.md §19.5, §7: whatever bookmark they were entered with; a range keeps its end"""
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    h.enter(subscribe(bookmark=entered))
    if seen is not None:
        store.points["s"] = seen
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    assert frame["bm"] == again
    assert frame.acks == {"processed", "persisted"} | ({"completed"} if again[0] in "[(" or again == NOW else set())


@pytest.mark.parametrize(("completed", "again"), [("5|7|", "5|7|"), ("0", EPOCH), (None, NOW)])
def test_a_subscription_at_now_that_received_nothing_goes_on_where_it_began(
    completed: str | None, again: str
) -> None:
    """client.md §19.5: messages of the time without a connection are not lost"""
    h = Recovering(bookmark_store=ListStore()).ready()
    ticket = h.start(subscribe(bookmark=NOW), Route(RouteKind.COMMAND))
    assert h.sent()[0].acks == {"processed", "persisted", "completed"}
    h.accept(Frame({"cid": ticket.command_id}, b""))
    if completed is not None:
        h.receive({"c": "ack", "cid": ticket.command_id, "a": "completed", "sub_id": "s", "bm": completed})
    assert h.events(LastChance) == []
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    assert frame["bm"] == again


def test_client_51_a_limited_replay_asks_for_the_rest() -> None:
    """client.md §21 51: 7 messages in all, 3 of them before the reconnect"""
    h = Recovering(bookmark_store=ListStore()).ready()
    route = h.enter(subscribe(bookmark=EPOCH, top_n=7))
    for n in (1, 2, 3):
        h.message("s", f"1|{n}|")
    h.events()
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    assert (frame["top_n"], frame["bm"]) == (4, "1|3|")
    for n in (4, 5, 6, 7):
        h.message("s", f"1|{n}|")
    assert [event.route for event in h.events(StreamEnd)] == [route]
    assert route.closed
    assert [f["c"] for f in h.again()] == []


def test_a_limited_replay_makes_up_for_duplicates() -> None:
    """client.md §21 51: duplicates count to the server's limit, not to the application's"""
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    route = h.enter(subscribe(bookmark=EPOCH, top_n=7))
    for n in (1, 2, 3):
        h.message("s", f"1|{n}|")
    store.get_most_recent = lambda sub_id: "1|1|"  # type: ignore[method-assign]  # 2 and 3 are not discarded
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    h.events()
    for n in (2, 3, 4, 5):
        h.message("s", f"1|{n}|")
    h.receive({"c": "ack", "cid": frame["cid"], "a": "completed", "status": "success", "sub_id": "s"})
    assert len(delivered(h.events())) == 2
    ended, again = h.sent()
    assert (ended["c"], ended["sub_id"]) == ("unsubscribe", "s")
    assert (again["c"], again["bm"], again["top_n"]) == ("subscribe", "1|1|", 4)
    h.accept(again)
    for n in (2, 3, 6, 7):
        h.message("s", f"1|{n}|")
    events = h.events()
    assert len(delivered(events)) == 2
    assert [event.route for event in events if isinstance(event, StreamEnd)] == [route]
    assert h.engine._resubscribing == {}


def test_a_limited_replay_that_cannot_be_continued_ends() -> None:
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    route = h.enter(subscribe(bookmark=EPOCH, top_n=2))
    h.message("s", "1|1|")
    store.get_most_recent = lambda sub_id: "0"  # type: ignore[method-assign]
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    h.message("s", "1|1|")
    h.receive({"c": "ack", "cid": frame["cid"], "a": "completed", "status": "success", "sub_id": "s"})
    _, again = h.sent()
    h.events()
    h.receive(
        {"c": "ack", "cid": again["cid"], "a": "processed", "status": "failure", "reason": "not entitled"}
    )
    (end,) = h.events(StreamEnd)
    assert end.route is route
    assert isinstance(end.error, NotEntitledException)
    assert h.engine.refusal is None
    assert h.engine.phase is Phase.READY


def test_a_limited_replay_that_reaches_the_end_of_the_log_ends() -> None:
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    route = h.enter(subscribe(bookmark=EPOCH, top_n=7))
    h.message("s", "1|1|")
    store.get_most_recent = lambda sub_id: "0"  # type: ignore[method-assign]
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    h.message("s", "1|1|")
    h.message("s", "1|2|")
    h.receive({"c": "ack", "cid": frame["cid"], "a": "completed", "status": "success", "sub_id": "s"})
    assert route.closed
    assert h.sent() == []


def test_client_46_messages_of_the_lost_connection_are_not_delivered_again() -> None:
    """client.md §21 46, the engine's part: they are known to the bookmark store, also undiscarded"""
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    h.enter(subscribe(bookmark=EPOCH))
    h.message("s", "1|1|", b"1")
    assert delivered(h.events()) == [("s", b"1")]
    h.again()
    assert store.ended == []
    h.engine.events()
    h.message("s", "1|1|", b"1")
    h.message("s", "1|2|", b"2")
    events = h.events()
    assert delivered(events) == [("s", b"2")]
    assert len([event for event in events if isinstance(event, Duplicate)]) == 1


def test_the_end_of_a_subscription_releases_its_messages() -> None:
    """client.md §19.7: after `released`, undiscarded messages may be delivered again"""
    store = ListStore()
    h = Recovering(bookmark_store=store).ready()
    h.engine.cancel(h.enter(subscribe("a", bookmark=EPOCH)))
    h.enter(subscribe("b", bookmark=EPOCH), resubscribe=False)
    assert store.ended == ["a"]
    h.again()
    assert store.ended == ["a", "b"]


def test_acks_that_were_delivered_are_not_requested_again() -> None:
    h = Recovering(bookmark_store=ListStore()).ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.start(subscribe(bookmark=EPOCH, ack_type="completed,stats"), route)
    h.accept(Frame({"cid": ticket.command_id}, b""))
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "completed", "status": "success", "sub_id": "s"})
    (frame,) = [f for f in h.again() if f["c"] == "subscribe"]
    assert frame.acks == {"processed", "persisted", "stats"}


def test_an_ended_subscription_is_not_entered_again() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe("a"))
    h.enter(subscribe("b"))
    h.engine.cancel(route)
    h.lose()
    unsubscribing = h.start(Command("unsubscribe", sub_id="b"))
    assert unsubscribing.done
    assert unsubscribing.error is None
    assert h.reconnect() == []
    assert h.engine.phase is Phase.READY


def test_a_subscription_ended_after_a_recovery_was_cut_off_is_not_awaited() -> None:
    h = Recovering().ready()
    h.enter(subscribe("a"))
    h.lose()
    h.reconnect()
    assert h.engine.phase is Phase.RESUBSCRIBING
    h.lose()
    h.start(Command("unsubscribe", sub_id="a"))
    assert h.reconnect() == []
    assert h.engine.phase is Phase.READY


def test_reconnecting_accumulates_nothing() -> None:
    h = Recovering(bookmark_store=ListStore()).ready()
    route = h.enter(subscribe("a", bookmark=EPOCH))
    for _ in range(3):
        h.again()
    assert route.command_ids == ["2"]
    assert len(h.engine._commands) == 1
    assert h.engine._tickets == {}


def test_a_subscription_ended_during_recovery_is_ended_on_the_new_server() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe("a"))
    h.lose()
    (frame,) = h.reconnect()
    h.engine.cancel(route)
    h.receive({"c": "p", "t": "t", "sids": "a", "l": 1}, body=b"1")
    assert len(h.events(LastChance)) == 1
    h.accept(frame)
    assert [(f["c"], f["sub_id"]) for f in h.sent()] == [("unsubscribe", "a")]


def test_a_subscription_ended_before_it_is_entered_again_needs_no_unsubscribe() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe("a"))
    h.lose()
    h.logon()
    h.engine.cancel(route)
    h.sent()
    h.engine.recover(h.now)
    assert h.sent() == []


def test_no_publish_overtakes_what_has_waited() -> None:
    """Other threads publish without the engine lock as soon as the outbox is ready"""
    h = Recovering().ready()
    h.enter(subscribe("a"))
    h.lose()
    (frame,) = h.reconnect()
    h.engine.publish_body(TEMPLATE, b"waits")
    ready: list[bool] = []
    h.engine.watcher = lambda state: ready.append(h.engine.outbox.ready)
    h.accept(frame)
    assert ready == [False]
    assert h.engine.outbox.ready
    assert [f.body for f in h.sent()] == [b"waits"]


# Refused subscriptions


def test_a_refused_subscription_can_be_left_out() -> None:
    """client.md §9.1 9: the failed-resubscribe handler accepts it"""
    h = Recovering().ready()
    refused, kept = h.enter(subscribe("a")), h.enter(subscribe("b"))
    h.lose()
    frames = h.reconnect()
    h.receive(
        {"c": "ack", "cid": frames[0]["cid"], "a": "processed", "status": "failure", "reason": "not entitled"}
    )
    (failed,) = h.events(RecoveryFailed)
    assert isinstance(failed.error, NotEntitledException)
    assert failed.command.sub_id == "a"
    assert h.engine.refusal == failed
    h.accept(frames[1])
    assert h.engine.phase is Phase.RESUBSCRIBING
    h.engine.leave_out(failed)
    assert h.engine.phase is Phase.READY
    assert h.engine.refusal is None
    assert [(event.route, event.error) for event in h.events(StreamEnd)] == [(refused, failed.error)]
    assert [f["sub_id"] for f in h.again() if f["c"] == "subscribe"] == ["b"]
    assert not kept.closed


def test_a_refused_subscription_is_tried_on_the_next_server() -> None:
    """client.md §9.1 9: without a decision the connection is dropped, and nothing is lost"""
    h = Recovering().ready()
    h.enter(subscribe("a"))
    h.lose()
    (frame,) = h.reconnect()
    h.receive(
        {"c": "ack", "cid": frame["cid"], "a": "processed", "status": "failure", "reason": "not entitled"}
    )
    (failed,) = h.events(RecoveryFailed)
    assert [f["sub_id"] for f in h.again() if f["c"] == "subscribe"] == ["a"]
    h.engine.leave_out(failed)  # too late, without effect
    assert h.engine.route_of("a") is not None


# Commands


@pytest.mark.parametrize("sent", [True, False])
def test_waiting_commands_are_sent_again(sent: bool) -> None:
    """client.md §9.5: also those that begin between two servers; in their order, each once"""
    h = Recovering(publish_store=MemoryPublishStore()).ready()
    tickets = []

    def begin() -> None:
        tickets.append(h.start(Command("flush")))
        tickets.append(h.start(subscribe("a"), Route(RouteKind.COMMAND)))
        tickets.append(h.start(Command("sow", "t"), Route(RouteKind.COMMAND)))

    if sent:
        begin()
        h.lose()
    else:
        h.lose()
        begin()
    for _ in range(2):
        h.connect()
        h.lose()
    assert h.sent() == []
    frames = h.reconnect()
    assert [f["cid"] for f in frames] == [ticket.command_id for ticket in tickets]
    assert not any(ticket.done for ticket in tickets)
    h.receive({"c": "ack", "cid": frames[0]["cid"], "a": "completed", "status": "success"})
    h.accept(*frames[1:])
    assert [event.ticket for event in h.events(TicketDone)][1:] == tickets
    assert [f["sub_id"] for f in h.again() if f["c"] == "subscribe"] == ["a"]


def test_an_abandoned_command_is_not_sent() -> None:
    h = Recovering().ready()
    h.lose()
    ticket = h.start(subscribe("a"), Route(RouteKind.COMMAND))
    h.engine.abandon(ticket, h.now)
    assert h.reconnect() == []
    assert h.engine.route_of("a") is None


def test_a_command_whose_subscription_was_ended_meanwhile_is_not_sent() -> None:
    h = Recovering().ready()
    h.lose()
    ticket = h.start(subscribe("a"), Route(RouteKind.COMMAND))
    h.start(Command("unsubscribe", sub_id="all"))
    assert h.reconnect() == []
    assert ticket.done


def test_a_plain_query_that_is_cut_off_ends() -> None:
    """client.md §19.5: after `processed`, with DisconnectedException"""
    h = Recovering().ready()
    route = h.enter(Command("sow", "t", query_id="q"))
    ends = [event for event in h.lose() if isinstance(event, StreamEnd)]
    assert [(event.route, event.error) for event in ends] == [(route, LOST)]
    assert h.reconnect() == []


def test_without_retry_waiting_commands_fail() -> None:
    """client.md §19.5: retry_on_disconnect=False"""
    h = Recovering(retry=False).ready()
    route = Route(RouteKind.COMMAND)
    cut_off = h.start(subscribe("a"), route)
    ended = h.start(Command("unsubscribe", sub_id="x"))
    h.lose()
    assert isinstance(cut_off.error, RetryOperationException)
    assert route.closed
    assert (ended.done, ended.error) == (True, None)
    with pytest.raises(DisconnectedException):
        h.start(Command("flush"))
    assert h.reconnect() == []


def test_a_flush_that_cannot_vouch_for_publishes_fails() -> None:
    """Without a publish store, publishes before it may be lost: a later `completed` would promise too much"""
    h = Recovering().ready()
    h.engine.publish_body(TEMPLATE, b"1")
    ticket = h.start(Command("flush"))
    h.lose()
    assert isinstance(ticket.error, RetryOperationException)


def test_a_flush_that_was_not_sent_waits_on() -> None:
    h = Recovering().ready()
    h.lose()
    ticket = h.start(Command("flush"))
    h.connect()
    h.lose()
    assert [f["c"] for f in h.reconnect()] == ["flush"]
    assert not ticket.done


def test_commands_that_wait_are_checked_at_once() -> None:
    """An age counts from the call; a command that is too large is refused"""
    h = Recovering(bookmark_store=ListStore(), max_message_bytes=200).ready()
    h.lose()
    ticket = h.start(subscribe("a", bookmark="-5m"), Route(RouteKind.COMMAND))
    assert ticket.request is not None
    assert str(ticket.request.bookmark).endswith("Z")
    with pytest.raises(ValueError, match="max_message_size"):
        h.start(subscribe("b", filter="x" * 200), Route(RouteKind.COMMAND))
    assert [f["sub_id"] for f in h.reconnect()] == ["a"]


def test_a_numbered_delete_is_sent_again_by_the_replay_only() -> None:
    """client.md §8.1: under its old number, once; its answer still settles the call"""
    h = Recovering(publish_store=MemoryPublishStore()).ready()
    ticket = h.start(Command("sow_delete", "t", filter="1=1", ack_type="processed"))
    assert ticket.sequence == 1
    frames = h.again(seq=0)
    assert [(f["c"], f["s"], f["cid"]) for f in frames] == [("sow_delete", 1, ticket.command_id)]
    h.accept(frames[0])
    assert ticket.done
    assert ticket.error is None


def test_a_numbered_delete_that_was_processed_is_reported() -> None:
    h = Recovering(publish_store=MemoryPublishStore()).ready()
    ticket = h.start(Command("sow_delete", "t", filter="1=1"))
    assert h.again(seq=1) == []
    assert isinstance(ticket.error, RetryOperationException)
    assert "processed" in str(ticket.error)


def test_publishing_with_a_store_needs_one_logon() -> None:
    """client.md §19.5: before the first logon the starting number is unknown"""
    h = Recovering(publish_store=MemoryPublishStore())
    with pytest.raises(DisconnectedException):
        h.engine.publish_body(TEMPLATE, b"1")
    h.connect()
    with pytest.raises(DisconnectedException, match="first logon"):
        h.engine.publish_body(TEMPLATE, b"1")
    assert h.engine.phase is Phase.CONNECTED
    h.engine.connection_lost(h.now, LOST)
    h.ready(seq=5)
    h.lose()
    assert h.engine.publish_body(TEMPLATE, b"1") == 6
    assert h.engine.publish(Command("publish", "t"), h.now) == 7


def test_publishing_without_a_store_is_refused_between_servers() -> None:
    """During a recovery a bounded amount waits for its end; it is sent once, even if that connection is lost, too"""
    h = Recovering().ready()
    h.enter(subscribe())
    h.lose()
    with pytest.raises(DisconnectedException):
        h.engine.publish_body(TEMPLATE, b"0")
    h.reconnect()
    h.engine.publish_body(TEMPLATE, b"1")
    assert h.sent() == []
    h.engine.publish_body(TEMPLATE, bytes(MAX_DEFERRED_BYTES))
    with pytest.raises(DisconnectedException):
        h.engine.publish_body(TEMPLATE, b"2")
    frames = [f for f in h.again() if f["c"] == "publish"]
    assert [len(f.body) for f in frames] == [1, MAX_DEFERRED_BYTES]
    h.engine.publish_body(TEMPLATE, b"3")
    assert [f.body for f in h.sent()] == [b"3"]


@pytest.mark.parametrize("command", ["publish", "delta_publish"])
def test_a_publish_that_waits_for_persisted_is_not_sent_twice(command: str) -> None:
    """Without a number the server cannot drop the second; one that was not sent waits for the next server."""
    h = Recovering().ready()
    sent = h.start(Command(command, "t", data=b"1"), awaited=AckType.PERSISTED)
    h.sent()
    h.lose()
    assert isinstance(sent.error, RetryOperationException)
    waiting = h.start(Command(command, "t", data=b"2"), awaited=AckType.PERSISTED)
    (frame,) = h.again()
    assert frame.body == b"2"
    h.receive({"c": "ack", "cid": frame["cid"], "a": "persisted", "status": "success"})
    assert (waiting.done, waiting.error) == (True, None)


def test_a_numbered_publish_that_waits_for_persisted_is_replayed() -> None:
    """One that the server has processed may have been refused: nobody knows, so its caller is told."""
    h = Recovering(publish_store=MemoryPublishStore()).ready()
    processed, kept = (
        h.start(Command("publish", "t", data=body), awaited=AckType.PERSISTED) for body in (b"1", b"2")
    )
    h.sent()
    assert [(f["s"], f.body) for f in h.again(seq=1)] == [(2, b"2")]
    assert isinstance(processed.error, RetryOperationException)
    assert not kept.done
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    assert (kept.done, kept.error) == (True, None)


# The end


def test_giving_up_ends_everything() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe("a"))
    h.lose()
    waiting = h.start(Command("flush"))
    error = DisconnectedException("no server")
    h.engine.give_up(error)
    assert waiting.error is error
    assert [(event.route, event.error) for event in h.events(StreamEnd)] == [(route, error)]
    with pytest.raises(DisconnectedException, match="no server"):
        h.start(Command("flush"))
    h.engine.recovers = True
    assert h.reconnect() == []


def test_closing_ends_everything_with_the_connection() -> None:
    h = Recovering().ready()
    route = h.enter(subscribe("a"))
    h.engine.give_up(None)
    assert not route.closed
    h.engine.connection_lost(h.now, None)
    assert [(event.route, event.error) for event in h.events(StreamEnd)] == [(route, None)]


def test_a_failed_logon_keeps_what_survives() -> None:
    h = Recovering().ready()
    h.enter(subscribe("a"))
    h.lose()
    h.connect()
    ticket = h.engine.logon(h.now, None, None, "")
    h.engine.connection_lost(h.now, LOST)
    assert [event.ticket for event in h.events(TicketFailed)] == [ticket]
    assert [f["sub_id"] for f in h.reconnect()] == ["a"]


def test_a_connection_lost_before_its_recovery() -> None:
    """The front end calls `recover` without knowing that the connection is gone"""
    h = Recovering().ready()
    h.lose()
    h.logon()
    h.lose()
    h.engine.recover(h.now)
    assert h.engine.phase is Phase.DISCONNECTED
    assert h.reconnect() == []
    assert h.engine.phase is Phase.READY


def test_a_custom_manager_decides_what_is_entered_again() -> None:
    """client.md §9.5"""

    class Filtering:
        def __init__(self) -> None:
            self.known: dict[str, Command] = {}

        def subscribe(self, sub_id: str, command: Command) -> None:
            self.known[sub_id] = command

        def unsubscribe(self, sub_id: str) -> None:
            self.known.pop(sub_id, None)

        def commands(self) -> list[Command]:
            unknown = Command("subscribe", "t", sub_id="unknown")
            return [unknown, *(self.known[sub_id] for sub_id in sorted(self.known, reverse=True))]

        def clear(self) -> None:
            self.known.clear()

    manager = Filtering()
    h = Recovering(subscriptions=manager).ready()
    h.enter(subscribe("a"))
    h.enter(subscribe("b"))
    assert [f["sub_id"] for f in h.again()] == ["b", "a"]
    h.engine.cancel(h.engine.route_of("a"))  # type: ignore[arg-type]
    assert list(manager.known) == ["b"]
