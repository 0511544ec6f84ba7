"""The engine's publish store: numbers, replay after a logon, refused writes, limits."""

from typing import Any

import pytest

from amps.client import (
    AckType,
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
    NotEntitledException,
    PublishStoreGapException,
    StoreFullException,
    UsageException,
)
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine_types import Close, FailedWrite, Phase, State, Ticket, TicketFailed
from tests.unit.client.harness import Harness
from tests.unit.client.peer import split_frames

TEMPLATE = PublishTemplate("publish", "t")


def test_replay_comes_before_everything_else_and_takes_in_new_publishes() -> None:
    """client.md §19.10: messages are sent in the order of their numbers, and commands wait for the end of the replay"""
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


def test_numbers_start_above_the_server_s_last() -> None:
    h = Harness(publish_store=MemoryPublishStore()).ready(seq=41)
    assert h.engine.publish_body(PublishTemplate("publish", "t"), b"") == 42


def test_client_56_a_lagging_server_is_an_error_if_configured() -> None:
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
    """client.md §20: before the logon there is no starting number"""
    h = Harness(publish_store=MemoryPublishStore())
    h.connect()
    with pytest.raises(UsageException):
        h.engine.publish_body(PublishTemplate("publish", "t"), b"")
    plain = Harness()
    plain.connect()
    assert plain.engine.publish_body(PublishTemplate("publish", "t"), b"x") == 0
    assert plain.sent()[0].header == {"c": "publish", "t": "t"}


def test_client_58_a_refused_write_is_reported_with_its_data() -> None:
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


def test_oversize_messages_are_refused_before_a_number_is_used() -> None:
    store = MemoryPublishStore()
    h = Harness(publish_store=store, max_message_bytes=1000).ready()
    with pytest.raises(ValueError, match="max_message_size"):
        h.engine.publish_body(PublishTemplate("publish", "t"), bytes(1000))
    with pytest.raises(ValueError, match="max_message_size"):
        h.engine.publish(Command("publish", "t", data=bytes(1000)), h.now)
    assert store.unpersisted_count() == 0
    assert h.engine.publish_body(PublishTemplate("publish", "t"), b"") == 1


class InterruptedStore:
    """A store that numbers by itself. If `interrupted`, the next `append` is, after it has kept the frame."""

    def __init__(self, **options: Any) -> None:
        self._kept = MemoryPublishStore(**options)
        self.frames = None  # no log for the outbox
        self.interrupted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)

    def append(self, start: bytes, body: bytes) -> int:
        sequence = self._kept.append(start, body)
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        return sequence


def stored(h: Harness) -> Any:
    return h.engine._publish_store


@pytest.fixture
def interrupted() -> Harness:
    """An engine whose publish number 2 was interrupted when the store had taken it."""
    store = InterruptedStore()
    h = Harness(publish_store=store).ready()
    assert h.engine.publish_body(TEMPLATE, b"1") == 1
    store.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        h.engine.publish_body(TEMPLATE, b"2")
    return h


def test_an_interrupted_publish_that_is_stored_is_sent_before_the_next(interrupted: Harness) -> None:
    """Ctrl-C between the store and the output: the store must hold no message that this connection never sends"""
    assert interrupted.engine.publish_body(TEMPLATE, b"3") == 3
    assert [(f["s"], f.body) for f in interrupted.sent()] == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert interrupted.engine.publish_body(TEMPLATE, b"4") == 4
    assert [f["s"] for f in interrupted.sent()] == [4]


def test_an_interrupted_publish_that_is_stored_is_sent_without_a_next(interrupted: Harness) -> None:
    interrupted.engine.outbox.take()
    assert interrupted.engine.has_outgoing
    assert [(f["s"], f.body) for f in interrupted.sent()] == [(2, b"2")]
    assert not interrupted.engine.has_outgoing


def test_a_replay_sends_an_interrupted_publish_once(interrupted: Harness) -> None:
    interrupted.engine.connection_lost(interrupted.now, None)
    assert interrupted.engine.outgoing() == []
    interrupted.logon(seq=1)
    assert [f.get("s") for f in interrupted.sent()] == [None, 2]
    assert interrupted.engine.publish_body(TEMPLATE, b"3") == 3
    assert [f.get("s") for f in interrupted.sent()] == [3]


def test_after_a_replay_only_what_it_has_not_sent_follows_an_interrupt(interrupted: Harness) -> None:
    interrupted.engine.connection_lost(interrupted.now, None)
    interrupted.logon()
    assert [f.get("s") for f in interrupted.sent()] == [None, 1, 2]
    stored(interrupted).interrupted = True
    with pytest.raises(KeyboardInterrupt):
        interrupted.engine.publish_body(TEMPLATE, b"3")
    assert [f["s"] for f in interrupted.sent()] == [3]


def test_a_refused_append_leaves_nothing_to_send() -> None:
    store = InterruptedStore(max_bytes=1, on_full="raise")
    h = Harness(publish_store=store).ready()
    h.engine.publish_body(TEMPLATE, b"1")
    h.sent()
    with pytest.raises(StoreFullException):
        h.engine.publish_body(TEMPLATE, b"2")
    assert not h.engine.has_outgoing


def persisting(h: Harness, body: bytes) -> Ticket:
    return h.engine.execute(Command("publish", "t", data=body), None, h.now, awaited=AckType.PERSISTED)


def test_conflated_acknowledgements_settle_the_publishes_that_wait_for_them() -> None:
    """client.md §3.4: such an acknowledgement has no command id, and a failure is never held back"""
    h = Harness(publish_store=MemoryPublishStore()).ready()
    tickets = [persisting(h, b"%d" % n) for n in range(1, 6)]
    assert [ticket.sequence for ticket in tickets] == [1, 2, 3, 4, 5]
    assert all(f.acks == {"persisted"} for f in h.sent())
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 2})
    assert [ticket.done for ticket in tickets] == [True, True, False, False, False]
    h.receive({"c": "ack", "a": "persisted", "status": "failure", "s": 3, "reason": "not entitled"})
    assert isinstance(tickets[2].error, NotEntitledException)
    assert not tickets[3].done
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 5})
    assert [(ticket.done, ticket.error) for ticket in tickets[3:]] == [(True, None)] * 2


def test_deletes_and_flushes_are_not_settled_by_persisted_publishes() -> None:
    h = Harness(publish_store=MemoryPublishStore()).ready()
    flush = h.engine.execute(Command("flush"), None, h.now, awaited=AckType.PERSISTED)
    delete = h.engine.execute(Command("sow_delete", "t", filter="1=1"), None, h.now, awaited=AckType.STATS)
    assert delete.sequence == 1
    h.receive({"c": "ack", "a": "persisted", "status": "success", "s": 1})
    assert not flush.done
    assert not delete.done
