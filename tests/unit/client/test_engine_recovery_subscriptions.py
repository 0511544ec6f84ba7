"""The engine over lost connections: which subscriptions are entered again, how, and which are refused."""

import pytest

from amps.client import (
    EPOCH,
    MOST_RECENT,
    NOW,
    BadFilterException,
    Command,
    NotEntitledException,
)
from amps.client.protocol.engine_types import (
    Duplicate,
    LastChance,
    Phase,
    RecoveryFailed,
    Route,
    RouteKind,
    StreamEnd,
)
from tests.unit.client.bookmarks import ListStore
from tests.unit.client.harness import delivered
from tests.unit.client.peer import Frame
from tests.unit.client.recovering import TEMPLATE, Recovering, subscribe


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
    assert frame.acks == {"processed", "persisted"} | (
        {"completed"} if again[0] in "[(" or again == NOW else set()
    )


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
