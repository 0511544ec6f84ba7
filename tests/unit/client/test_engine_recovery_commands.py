"""The engine over lost connections: which commands and publishes are sent again."""

import pytest

from amps.client import (
    AckType,
    Command,
    DisconnectedException,
    MemoryPublishStore,
    RetryOperationException,
)
from amps.client.protocol.engine_state import MAX_DEFERRED_BYTES
from amps.client.protocol.engine_types import (
    Phase,
    Route,
    RouteKind,
    StreamEnd,
    TicketDone,
)
from tests.unit.client.bookmarks import ListStore
from tests.unit.client.recovering import LOST, TEMPLATE, Recovering, subscribe


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
