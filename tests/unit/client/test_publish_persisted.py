"""`publish_persisted` of both front ends, against a scripted peer: it returns when persisted, or raises the failure."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amps.aio import AsyncClient
from amps.client import (
    Client,
    Command,
    DisconnectedException,
    FilePublishStore,
    MemoryPublishStore,
    Message,
    NotEntitledException,
    StoreFullException,
    TimedOutException,
    UsageException,
)
from tests.unit.client.aio import logged_on as logged_on_aio
from tests.unit.client.aio import run
from tests.unit.client.peer import WAIT_S, Connection, Frame, Outcome, in_background
from tests.unit.client.talk import LoggedOn, subscribe


def persisted(connection: Connection, sequence: int, status: str = "success", **fields: str) -> None:
    connection.send({"c": "ack", "a": "persisted", "status": status, "s": sequence, **fields})


def test_without_a_store_it_waits_for_its_own_acknowledgement(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    call = Outcome(client.publish_persisted, ("t", {"id": 1}), {"correlation_id": "abc=", "expiration": 5})
    frame = connection.expect("publish")
    assert (frame.body, frame["t"], frame["x"], frame["e"]) == (b'{"id":1}', "t", "abc=", 5)
    assert frame.acks == {"processed", "persisted"}
    connection.ack(frame)
    connection.expect_nothing(0.05)
    assert call.error is None
    assert call.value is None
    connection.ack(frame, "persisted")
    assert call.result() == 0


@pytest.mark.parametrize("ack_type", ["processed", "persisted"])
def test_without_a_store_a_refusal_is_raised(logged_on: LoggedOn, ack_type: str) -> None:
    client, connection = logged_on()
    call = Outcome(client.publish_persisted, ("t", b"x"), {})
    connection.ack(connection.expect("publish"), ack_type, "failure", reason="not entitled")
    call.wait()
    assert isinstance(call.error, NotEntitledException)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_with_a_store_a_conflated_acknowledgement_is_enough(
    logged_on: LoggedOn, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "s"
    client, connection = logged_on(publish_store=MemoryPublishStore() if kind == "memory" else FilePublishStore(path))
    assert client.publish("t", b"before") == 1
    connection.expect("publish")
    call = Outcome(client.publish_persisted, ("t", b"x"), {})
    frame = connection.expect("publish")
    assert (frame["s"], frame.acks) == (2, {"persisted"})
    persisted(connection, 1)
    connection.expect_nothing(0.05)
    assert call.value is None
    persisted(connection, 2)
    assert call.result() == 2
    assert client.unpersisted_count == 0
    client.close()
    assert client.publish_store is not None
    client.publish_store.close()


def test_with_a_store_a_refusal_is_raised_and_told(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore())
    told: list[str] = []
    client.set_failed_write_handler(lambda message, reason: told.append(reason))
    call = Outcome(client.publish_persisted, ("t", b"x"), {})
    connection.expect("publish")
    persisted(connection, 1, "failure", reason="not entitled")
    call.wait()
    assert isinstance(call.error, NotEntitledException)
    assert told == ["not entitled"]


@pytest.mark.parametrize("stored", [False, True])
def test_it_waits_no_longer_than_its_timeout(logged_on: LoggedOn, stored: bool) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore() if stored else None)
    with pytest.raises(TimedOutException):
        client.publish_persisted("t", b"x", timeout=0.05)
    frame = connection.expect("publish")
    assert client.unpersisted_count == stored  # the store sends it again after a loss
    if stored:
        persisted(connection, frame["s"])
    else:
        connection.ack(frame, "persisted")
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")


def test_a_lost_connection_is_told(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    call = Outcome(client.publish_persisted, ("t", b"x"), {})
    connection.expect("publish")
    connection.close()
    call.wait()
    assert isinstance(call.error, DisconnectedException)


def test_it_waits_for_room_in_the_store(logged_on: LoggedOn) -> None:
    client, connection = logged_on(publish_store=MemoryPublishStore(max_bytes=1))
    client.publish("t", b"1")
    call = Outcome(client.publish_persisted, ("t", b"2"), {})
    connection.expect("publish")
    connection.expect_nothing(0.05)
    persisted(connection, 1)
    assert connection.expect("publish")["s"] == 2
    persisted(connection, 2)
    assert call.result() == 2
    client.publish("t", b"3")
    with pytest.raises(TimedOutException, match="no room in time, 1 messages"):
        client.publish_persisted("t", b"4", timeout=0.05)
    with pytest.raises(TimedOutException, match="sow_delete: the publish store had no room"):
        client.sow_delete("t", filter="1=1", timeout=0.05)


def test_a_full_store_that_raises(logged_on: LoggedOn) -> None:
    client, _ = logged_on(publish_store=MemoryPublishStore(max_bytes=1, on_full="raise"))
    client.publish("t", b"1")
    with pytest.raises(StoreFullException):
        client.publish_persisted("t", b"2")


def test_an_inline_handler_may_not_wait(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    errors: list[BaseException] = []
    client.set_exception_listener(errors.append)

    def handler(message: Message) -> None:
        client.publish_persisted("t", b"x")

    connection.publish(subscribe(client, connection, handler))
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")
    assert isinstance(errors[0], UsageException)


def blocking_call(**arguments: Any) -> int:
    return Client("me").publish_persisted("t", b"x", **arguments)


def awaited_call(**arguments: Any) -> int:
    return asyncio.run(AsyncClient("me").publish_persisted("t", b"x", **arguments))


@pytest.mark.parametrize("call", [blocking_call, awaited_call])
@pytest.mark.parametrize("wrong", [{"expiration": -1}, {"sow_key": "a b"}, {"correlation_id": "a b"}])
def test_wrong_arguments_are_refused(call: Callable[..., int], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        call(**wrong)


# asyncio


@run
async def test_aio_without_a_store() -> None:
    async with logged_on_aio() as (client, peer):
        answers = iter([("persisted", "success"), ("processed", "failure")])

        def answer(frame: Frame) -> None:
            kind, status = next(answers)
            peer.ack(frame, kind, status, reason="not entitled")

        peer.answer = answer
        assert await client.publish_persisted("t", {"id": 1}) == 0
        frame = await peer.expect("publish")
        assert (frame.body, frame.acks) == (b'{"id":1}', {"processed", "persisted"})
        with pytest.raises(NotEntitledException):
            await client.publish_persisted("t", b"x")
        peer.answering = False
        with pytest.raises(TimedOutException):
            await client.publish_persisted("t", b"x", timeout=0.05)
        peer.answering, peer.answer = True, peer.acknowledge


@run
async def test_aio_with_a_store() -> None:
    async with logged_on_aio(publish_store=MemoryPublishStore(max_bytes=1)) as (client, peer):
        assert await client.publish_persisted("t", b"1") == 1
        peer.persisting = False
        call = asyncio.create_task(client.publish_persisted("t", b"2"))
        assert (await peer.expect("publish", 2))["s"] == 2
        second = asyncio.create_task(client.publish_persisted("t", b"3"))  # the store is full
        await client.flush()
        assert not call.done()
        assert len([frame for frame in peer.frames if frame["c"] == "publish"]) == 2
        peer.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
        assert await asyncio.wait_for(call, WAIT_S) == 2
        await peer.expect("publish", 3)
        peer.send({"c": "ack", "a": "persisted", "status": "failure", "s": 3, "reason": "not entitled"})
        with pytest.raises(NotEntitledException):
            await second
        assert client.unpersisted_count == 0
        peer.answering = False
        call = asyncio.create_task(client.publish_persisted("t", b"4"))
        await peer.expect("publish", 4)
        peer.kill()
        with pytest.raises(DisconnectedException):
            await call
        with pytest.raises(DisconnectedException):
            await client.execute_async(Command("flush"))
