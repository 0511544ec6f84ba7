"""Delays of messages: the publishing calls of all front ends against scripted peers, stores and wrong values.

client.md §19.14; §21, 71 to 73 and 77.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import amps.compat as AMPS
from amps.aio import AsyncClient
from amps.client import Client, Command, FilePublishStore, HybridPublishStore, MemoryPublishStore, Message
from amps.client.frontend.transactions import Transaction
from tests.unit.client.harness import Harness
from tests.unit.client.peer import (
    WAIT_S,
    Connection,
    Frame,
    Outcome,
    ScriptedPeer,
    in_background,
    split_frames,
)
from tests.unit.client.talk import LoggedOn, wait_for
from tests.unit.client.test_aio import logged_on as logged_on_aio
from tests.unit.client.test_aio import run
from tests.unit.client.test_aio import until as until_aio

AT = datetime(2027, 1, 31, 9, 30, tzinfo=timezone(timedelta(hours=1)))
AT_MS = 1_801_384_200_000
FIELDS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"delay": 0.25}, {"delay": 250}),
    ({"delay": 3}, {"delay": 3000}),
    ({"delay": 0}, {"delay": 0}),
    ({"delay": 0.0001}, {"delay": 1}),
    ({"delay": 0.07}, {"delay": 70}),
    ({"not_before": AT}, {"not_before": AT_MS}),
    ({"not_before": AT + timedelta(microseconds=1)}, {"not_before": AT_MS + 1}),
    ({"not_before": AT_MS / 1000}, {"not_before": AT_MS}),
    ({"not_before": AT_MS / 1000 + 0.0004}, {"not_before": AT_MS + 1}),
    ({"not_before": AT_MS // 1000}, {"not_before": AT_MS}),
    ({"delay": None, "not_before": None, "sow_key": None}, {}),
]
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"delay": 1, "not_before": AT}, ValueError, "a delay or a time not_before, not both"),
    ({"delay": -0.001}, ValueError, "delay must lie between 0 and 315619200"),
    ({"delay": 3653 * 86_400 + 1}, ValueError, "delay must lie between"),
    ({"delay": float("nan")}, TypeError, "delay must be a number of seconds: nan"),
    ({"delay": "5s"}, TypeError, "delay must be a number of seconds: '5s'"),
    ({"delay": True}, TypeError, "delay must be a number of seconds"),
    ({"not_before": AT.replace(tzinfo=None)}, ValueError, "has no time zone: write datetime.now"),
    ({"not_before": datetime(1969, 12, 31, tzinfo=UTC)}, ValueError, "between the years 1970 and 2262"),
    ({"not_before": datetime(2263, 1, 1, tzinfo=UTC)}, ValueError, "between the years 1970 and 2262"),
    ({"not_before": -1}, ValueError, "not_before must lie between 0"),
    ({"not_before": AT_MS}, ValueError, "in UNIX seconds"),
    ({"not_before": "2027-01-31"}, TypeError, "number of seconds or a datetime: '2027-01-31'"),
    ({"dellay": 1}, TypeError, "dellay"),
    ({"filter": "/a = 1"}, TypeError, "filter"),
    ({"dellay": None}, TypeError, "dellay"),
]


def frames_of(connection: Connection, count: int) -> list[Frame]:
    """The next frames, which must be there soon."""
    found = [connection.frames.get(timeout=WAIT_S) for _ in range(count)]
    return [frame for frame in found if frame is not None]


def times_of(header: dict[str, Any]) -> dict[str, Any]:
    return {name: header[name] for name in ("delay", "not_before") if name in header}


@pytest.mark.parametrize(("fields", "expected"), FIELDS, ids=str)
def test_client_71_delays_in_whole_milliseconds(
    logged_on: LoggedOn, fields: dict[str, Any], expected: dict[str, int]
) -> None:
    """client.md §21, 71: in each call of the blocking client."""
    client, connection = logged_on()
    client.publish("t", b"x", **fields)
    client.delta_publish("t", b"x", **fields)
    client.send(Command("publish", "t", data=b"x", **fields))
    persisted = Outcome(client.publish_persisted, ("t", b"x"), fields)
    frames = frames_of(connection, 4)
    connection.ack(frames[3], "persisted")
    persisted.result()
    for frame in frames:
        assert (times_of(frame.header), frame.body) == (expected, b"x")


@pytest.mark.parametrize(("fields", "expected"), FIELDS, ids=str)
def test_client_71_delays_of_the_asyncio_client(fields: dict[str, Any], expected: dict[str, int]) -> None:
    """client.md §21, 71"""

    @run
    async def publishes() -> None:
        async with logged_on_aio() as (client, peer):
            await client.publish("t", b"x", **fields)
            await client.delta_publish("t", b"x", **fields)
            client.publish_nowait("t", b"x", **fields)
            client.send(Command("publish", "t", data=b"x", **fields))
            found = [await peer.expect("publish"), await peer.expect("delta_publish")]
            found += [await peer.expect("publish") for _ in range(2)]
            assert [times_of(frame.header) for frame in found] == [expected] * 4

    publishes()


@pytest.mark.parametrize(("fields", "expected"), FIELDS, ids=str)
def test_client_71_a_publish_in_a_transaction(fields: dict[str, Any], expected: dict[str, int]) -> None:
    """client.md §21, 71; queue_guarantees.md Q-39: its delay counts from the moment at which the server reads it."""
    transaction = open_transaction()
    transaction.publish("t", b"x", **fields)
    (frame,) = split_frames(bytes(transaction._body))
    assert (times_of(frame.header), frame.body) == (expected, b"x")


def open_transaction() -> Transaction:
    """A transaction inside its block, without a client."""
    transaction = Transaction.__new__(Transaction)
    transaction._state, transaction._publishes, transaction._body = "open", 0, bytearray()
    return transaction


def test_client_71_setters_of_a_command() -> None:
    """client.md §21, 71: in milliseconds in compat, which an encoded command shows."""
    for command in (
        Command("publish", "t").set_delay(0.25),
        AMPS.Command("publish", "t").set_delay(250),
    ):
        (frame,) = split_frames(command.encode())
        assert times_of(frame.header) == {"delay": 250}
    for command in (
        Command("publish", "t").set_not_before(AT),
        AMPS.Command("publish", "t").set_not_before(AT),
        AMPS.Command("publish", "t").set_delay(5).set_delay(None).set_not_before(AT_MS),
    ):
        (frame,) = split_frames(command.encode())
        assert times_of(frame.header) == {"not_before": AT_MS}
    assert times_of(split_frames(AMPS.Command("publish", "t").set_not_before(None).encode())[0].header) == {}


@pytest.mark.parametrize(("fields", "error", "text"), WRONG, ids=str)
def test_client_72_wrong_delays(
    logged_on: LoggedOn, fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    """client.md §21, 72: nothing is sent, and no number is used."""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    calls: list[Callable[..., Any]] = [client.publish, client.delta_publish, client.publish_persisted]
    if not {"dellay", "filter"} & set(fields):
        calls.append(lambda topic, data, **fields: client.send(Command("publish", topic, data=data, **fields)))
    aio = AsyncClient("aio", "tcp://h:1/amps/json")
    transaction = open_transaction()
    calls += [transaction.publish, aio.publish_nowait]
    for call in calls:
        with pytest.raises(error, match=text):
            call("t", b"x", **fields)
    assert not transaction._body
    assert client.publish("t", b"x") == 1
    assert connection.expect("publish")["s"] == 1


@pytest.mark.parametrize("kind", ["memory", "file", "hybrid"])
def test_client_73_a_store_keeps_the_time_at_which_the_delay_ends(
    peer: ScriptedPeer, logged_on: LoggedOn, kind: str, tmp_path: Path
) -> None:
    """client.md §21, 73 and queue_guarantees.md Q-47: the frame that is sent again is the first one."""
    makers: dict[str, Callable[[], Any]] = {
        "memory": MemoryPublishStore,
        "file": lambda: FilePublishStore(tmp_path / "s"),
        "hybrid": lambda: HybridPublishStore(tmp_path / "s", memory_messages=2),
    }
    store = makers[kind]()
    client, connection = logged_on(publish_store=store)
    before = time.time()
    client.publish("t", b"1", delay=7.5)
    client.delta_publish("t", b"2", delay=7.5)
    client.send(Command("publish", "t", data=b"3", delay=7.5))
    client.publish("t", b"4", not_before=AT)
    call = Outcome(client.publish_persisted, ("t", b"5"), {"delay": 7.5})
    first = frames_of(connection, 5)
    after = time.time()
    for frame in (*first[:3], first[4]):
        assert "delay" not in frame.header
        assert before + 7.5 <= frame["not_before"] / 1000 <= after + 7.501
    assert first[3]["not_before"] == AT_MS
    connection.close()
    call.wait()
    wait_for(lambda: not client.connected)
    with in_background(client.open):
        connection = peer.accept()
        connection.logon(seq=0)
    assert frames_of(connection, 5) == first
    found = store.find(1)
    assert (found.delay, found.not_before) == (None, first[0]["not_before"] / 1000)
    assert split_frames(found.encode())[0]["not_before"] == first[0]["not_before"]


def test_client_73_the_asyncio_client_does_so_too() -> None:
    """client.md §21, 73"""

    @run
    async def publishes() -> None:
        async with logged_on_aio(publish_store=MemoryPublishStore()) as (client, peer):
            before = time.time()
            await client.publish("t", b"x", delay=7.5)
            await client.delta_publish("t", b"x", delay=7.5)
            client.publish_nowait("t", b"x", delay=7.5)
            found = [await peer.expect("publish"), await peer.expect("delta_publish"), await peer.expect("publish")]
            for frame in found:
                assert "delay" not in frame.header
                assert before + 7.5 <= frame["not_before"] / 1000 <= time.time() + 7.501
            await until_aio(lambda: client.unpersisted_count == 3)

    publishes()


def test_client_73_the_failed_write_handler_gets_the_time(logged_on: LoggedOn) -> None:
    """client.md §21, 73"""
    client, connection = logged_on(publish_store=MemoryPublishStore())
    failed: list[Message] = []
    client.set_failed_write_handler(lambda message, reason: failed.append(message))
    client.publish("t", b"x", not_before=AT)
    frame = connection.expect("publish")
    connection.send({"c": "ack", "a": "persisted", "status": "failure", "reason": "bad delay", "s": frame["s"]})
    wait_for(lambda: bool(failed))
    assert failed[0].not_before == AT.timestamp()


def test_a_delay_does_not_change_the_command_that_was_given() -> None:
    """A Command may be executed again: its delay then counts anew."""
    harness = Harness(publish_store=MemoryPublishStore()).ready()
    command = Command("publish", "t", delay=5)
    for _ in range(2):
        harness.engine.publish(command, harness.now)
    assert (command.delay, command.not_before) == (5, None)
    assert len(harness.sent()) == 2


def test_received_times_are_unix_seconds() -> None:
    """client.md §21, 74; in milliseconds in compat."""
    delayed = Message(b'{"c":"p","t":"t","not_before":%d}' % AT_MS)
    plain = Message(b'{"c":"p","t":"t"}')
    assert (delayed.not_before, plain.not_before) == (AT.timestamp(), None)
    assert (AMPS.Message(delayed).get_not_before(), AMPS.Message(plain).get_not_before()) == (AT_MS, 0)


@pytest.mark.parametrize("options", ["cancel,delay=1s", "cancel,delay=0"])
def test_client_77_a_delayed_return_is_sent_alone(logged_on: LoggedOn, options: str) -> None:
    """client.md §21, 77: behind the pending plain acknowledgements of its topic."""
    client, connection = logged_on(ack_batch_size=10)
    client.ack("q", "1|1|")
    client.ack("q", "1|2|", options)
    client.ack("q", "1|3|")
    client.flush_acks()
    found = [connection.expect("sow_delete") for _ in range(3)]
    assert [(frame["bm"], frame.get("o")) for frame in found] == [("1|1|", None), ("1|2|", options), ("1|3|", None)]


def test_a_plain_client_has_templates_for_what_is_none(make_client: Callable[..., Client]) -> None:
    """A wrapper that passes absent fields on as None publishes as fast as a call without them."""
    client = make_client()
    client._outbox.ready = True
    client._publisher.templates.of("t")
    for _ in range(2):
        client.publish("t", b"x", expiration=None, delay=None)
    assert client._outbox.frames == 2
