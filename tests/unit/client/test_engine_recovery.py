"""The engine over lost connections: what happens in which order, and how it ends."""

import pytest

from amps.client import (
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
)
from amps.client.protocol.engine_types import (
    Phase,
    State,
    StreamEnd,
    TicketFailed,
)
from tests.unit.client.recovering import LOST, TEMPLATE, Recovering, subscribe


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
