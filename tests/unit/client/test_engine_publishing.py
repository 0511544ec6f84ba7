"""The engine's publish store: numbers, replay after a logon, refused writes, limits."""

import pytest

from amps.client import (
    Command,
    ConnectionState,
    DisconnectedException,
    MemoryPublishStore,
    PublishStoreGapException,
    UsageException,
)
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine_types import Close, FailedWrite, Phase, State, TicketFailed
from tests.unit.client.harness import Harness
from tests.unit.client.peer import split_frames


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
