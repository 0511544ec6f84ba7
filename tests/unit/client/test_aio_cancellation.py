"""Every awaitable call of the asyncio client, disturbed at every point where it waits.

Each call is first run undisturbed, to count its waits. Then it is run once for each wait and each disturbance:
cancelled at the wait; cancelled when the wait is over, so that result and cancellation meet; the connection cut at the
wait; a server that from then on answers nothing; a server that from then on reads nothing. Each time the call must end,
the client must tell its state and be usable, nothing may be left behind, and a second subscription must have all
messages. docs/guide/cancellation.md publishes the calls and disturbances.
"""

import asyncio
import re
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest

from amps.aio import AsyncClient
from amps.client import AMPSException, Command, MemoryPublishStore, Message
from tests.support.documents import CHECKOUT
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Frame

CALL_TIMEOUT_S = 0.3
ENDS_WITHIN_S = 10.0


@types.coroutine
def disturbed(
    work: Coroutine[Any, Any, Any], at: int, disturb: Callable[[Any], None], waits: list[int]
) -> Generator[Any, Any, Any]:
    """Run a coroutine; at its wait number `at` (from 1), call `disturb` with what it waits for."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            waited = work.send(answer) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value
        waits.append(len(waits) + 1)
        if len(waits) == at:
            disturb(waited)
        answer, error = None, None
        try:
            answer = yield waited
        except BaseException as raised:
            error = raised


@dataclass
class Scene:
    """A logged-on client, and a subscription whose messages must all arrive."""

    peer: AsyncPeer
    target: AsyncPeer  # the one that is disturbed
    client: AsyncClient
    witness: str = ""
    sent: int = 0
    received: list[bytes] = field(default_factory=list)
    handled: list[bytes] = field(default_factory=list)
    stream: Any = None

    def tick(self) -> None:
        """Publish one message for the witness, if its connection stands."""
        if self.peer.connected and self.client.connected:
            self.peer.publish(self.witness, b"%d" % self.sent)
            self.sent += 1


Call = Callable[[Scene], Coroutine[Any, Any, Any]]


async def open_another(scene: Scene) -> None:
    other = AsyncClient("other", scene.target.uri, timeout=CALL_TIMEOUT_S)
    try:
        await other.open()
    finally:
        other._link.abort()


async def close_another(scene: Scene) -> None:
    """Close a client whose coroutine handler would run for ever."""

    async def handler(message: Message) -> None:
        await asyncio.sleep(1000)

    other = AsyncClient("other", scene.target.uri, timeout=CALL_TIMEOUT_S)
    try:
        await other.open()
        sub_id = await other.subscribe("t", handler=handler)
        scene.target.publish(sub_id, b"x")
        await asyncio.sleep(0.01)
    except BaseException:
        await other.close(timeout=0)
        raise
    await other.close(timeout=CALL_TIMEOUT_S)


async def execute(scene: Scene) -> None:
    for call in (scene.client.execute_async, scene.client.execute_async_no_resubscribe):
        command = Command("subscribe", "t", timeout=CALL_TIMEOUT_S)
        sub_id = await call(command, lambda message: None)
        await scene.client.unsubscribe(sub_id, timeout=CALL_TIMEOUT_S)


async def reconnect(scene: Scene) -> None:
    await scene.client.disconnect(timeout=CALL_TIMEOUT_S)
    await scene.client.connect(timeout=CALL_TIMEOUT_S)


async def log_on_again(scene: Scene) -> None:
    await reconnect(scene)
    await scene.client.logon(timeout=CALL_TIMEOUT_S)


async def use_stream(scene: Scene) -> None:
    async with scene.client.subscribe("t", timeout=CALL_TIMEOUT_S) as stream:
        await stream.get(0.02)


async def iterate(scene: Scene) -> None:
    async for _ in scene.client.sow("t", timeout=CALL_TIMEOUT_S):
        pass


async def subscribe_with_handler(scene: Scene) -> None:
    sub_id = await scene.client.subscribe("t", handler=lambda message: None, timeout=CALL_TIMEOUT_S)
    await scene.client.unsubscribe(sub_id, timeout=CALL_TIMEOUT_S)


async def consume(scene: Scene) -> None:
    async def handler(message: Message) -> None:
        await asyncio.sleep(0)

    sub_id = await scene.client.consume("q", handler, concurrency=2, timeout=CALL_TIMEOUT_S)
    await scene.client.unsubscribe(sub_id, timeout=CALL_TIMEOUT_S)


async def publish_when_full(scene: Scene) -> None:
    for _ in range(3):
        await scene.client.publish("t", b"x" * 300, timeout=CALL_TIMEOUT_S)


async def publish_and_flush(scene: Scene) -> None:
    await scene.client.publish("t", b"x", timeout=CALL_TIMEOUT_S)
    await scene.client.publish_flush(timeout=CALL_TIMEOUT_S)


async def publish_persisted(scene: Scene) -> None:
    await scene.client.publish_persisted("t", b"x", timeout=CALL_TIMEOUT_S)


async def read_stream(scene: Scene) -> None:
    stream = await scene.client.subscribe("t", timeout=CALL_TIMEOUT_S)
    try:
        scene.peer.publish(stream.sub_id or "", b"one")
        await stream.get(CALL_TIMEOUT_S)
    finally:
        await stream.close()


async def pause_and_resume(scene: Scene) -> None:
    client = scene.client
    client.timeout = CALL_TIMEOUT_S
    sub_id = await client.subscribe("t", handler=lambda message: None)
    try:
        await client.pause(sub_id)
        await client.resume(sub_id)
    finally:
        if client.connected and client._engine.route_of(sub_id) is not None:
            await client.unsubscribe(sub_id)


CALLS: dict[str, Call] = {
    "open": open_another,
    "close": close_another,
    "execute_async": execute,
    "disconnect, connect": reconnect,
    "logon": log_on_again,
    "flush": lambda scene: scene.client.flush(timeout=CALL_TIMEOUT_S),
    "sow_count": lambda scene: scene.client.sow_count("t", timeout=CALL_TIMEOUT_S),
    "sow_delete": lambda scene: scene.client.sow_delete("t", filter="1=1", timeout=CALL_TIMEOUT_S),
    "subscribe with a handler, unsubscribe": subscribe_with_handler,
    "async with subscribe, stream.get": use_stream,
    "stream.get, stream.close": read_stream,
    "async for over sow": iterate,
    "pause, resume": pause_and_resume,
    "consume": consume,
    "publish into a full store": publish_when_full,
    "publish, publish_flush": publish_and_flush,
    "publish_persisted": publish_persisted,
    "set_heartbeat": lambda scene: scene.client.set_heartbeat(1000),
}


def cancel(scene: Scene, task: "asyncio.Task[Any]") -> Callable[[Any], None]:
    return lambda waited: task.cancel()  # type: ignore[return-value]


def cancel_when_over(scene: Scene, task: "asyncio.Task[Any]") -> Callable[[Any], None]:
    def disturb(waited: Any) -> None:
        if waited is None:  # a bare yield: sleep(0)
            task.cancel()
        else:
            waited.add_done_callback(lambda _: task.cancel())

    return disturb


def cut(scene: Scene, task: "asyncio.Task[Any]") -> Callable[[Any], None]:
    return lambda waited: scene.target.kill()


def fall_silent(scene: Scene, task: "asyncio.Task[Any]") -> Callable[[Any], None]:
    return lambda waited: setattr(scene.target, "answering", False)


def stop_reading(scene: Scene, task: "asyncio.Task[Any]") -> Callable[[Any], None]:
    return lambda waited: scene.target.read(False) if scene.target.connected else None


Disturbance = Callable[[Scene, "asyncio.Task[Any]"], Callable[[Any], None]]
DISTURBANCES: dict[str, Disturbance] = {
    "cancelled while it waits": cancel,
    "cancelled as its wait ends": cancel_when_over,
    "the connection is cut": cut,
    "the server answers nothing": fall_silent,
    "the server reads nothing": stop_reading,
}


async def play(call: Call, at: int, disturbance: Disturbance | None) -> int:
    """Run a call in a new scene, disturbed at one of its waits; check the scene. Return the number of waits."""
    before = asyncio.all_tasks()
    async with AsyncPeer() as peer, AsyncPeer() as other:
        peer.persisting = call is not publish_when_full
        store = MemoryPublishStore(max_bytes=400 if call is publish_when_full else None)
        client = AsyncClient("me", peer.uri, publish_store=store)
        scene = Scene(peer, other if call in (open_another, close_another) else peer, client)
        await client.open()
        scene.witness = await client.subscribe("w", handler=lambda message: scene.received.append(message.data))
        scene.tick()
        if call is publish_when_full:
            asyncio.get_running_loop().call_later(
                0.05, lambda: peer.send({"c": "ack", "a": "persisted", "status": "success", "s": 1})
            )
            asyncio.get_running_loop().call_later(
                0.1, lambda: peer.send({"c": "ack", "a": "persisted", "status": "success", "s": 2})
            )
        waits: list[int] = []
        first_connection = peer.connections

        async def whole() -> None:
            task = asyncio.current_task()
            assert task is not None
            disturb = disturbance(scene, task) if disturbance is not None else lambda waited: None
            await disturbed(call(scene), at, disturb, waits)

        task = asyncio.create_task(whole())
        done, _ = await asyncio.wait([task], timeout=ENDS_WITHIN_S)
        assert done, "the call hangs"
        if not task.cancelled():
            error = task.exception()
            assert error is None or isinstance(error, AMPSException), error
            assert error is None or disturbance not in (None, cancel, cancel_when_over)
        await check(scene, kept=client.connected and peer.connections == first_connection)
        peer.persisting = True
        for frame in [frame for frame in peer.frames if "publish" in frame["c"]][-1:]:
            peer.acknowledge(frame)
        await client.close(timeout=1)
        assert not client.connected
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set(), "a task is left"
    return len(waits)


async def check(scene: Scene, *, kept: bool) -> None:
    """The client is usable, has lost no message of the witness, and has nothing else subscribed."""
    peer, client = scene.peer, scene.client
    peer.answering = True
    if peer.connected and not peer._reading.is_set():
        peer.read(True)
    client.timeout = 5.0
    if not client.connected:
        assert client._engine.routes() == []
        await client.open()
        await client.flush()
        return
    if not client.logged_on:
        await client.logon()
    if kept:
        scene.tick()
    await client.flush()
    await client.flush()
    if kept:
        assert scene.received == [b"%d" % at for at in range(scene.sent)]
        assert [route.id for route in client._engine.routes()] == [scene.witness]
        entered, ended = subscriptions(peer.frames)
        assert entered - ended == {scene.witness}, "the server still has a subscription"
    assert not client._link.delivery.waiting
    assert client._link.delivery.reading


def subscriptions(frames: list[Frame]) -> tuple[set[str], set[str]]:
    entered = {
        frame["sub_id"]
        for frame in frames
        if frame["c"] == "subscribe" and frame.get("o") not in ("pause", "resume")
    }
    ended = {frame["sub_id"] for frame in frames if frame["c"] == "unsubscribe" and frame.get("sub_id")}
    return entered, ended


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_survives_a_disturbance_at_each_of_its_waits(name: str, disturbance: str) -> None:
    async def matrix() -> None:
        waits = await play(CALLS[name], 0, None)
        for at in range(1, waits + 1):
            await play(CALLS[name], at, DISTURBANCES[disturbance])

    asyncio.run(matrix())


def test_all_awaitable_calls_are_in_the_matrix() -> None:
    named = set(re.findall(r"\w+", " ".join(CALLS)))
    import inspect

    calls = {
        name
        for name, value in vars(AsyncClient).items()
        if not name.startswith("_") and inspect.iscoroutinefunction(value)
    }
    tried_as = {"execute_async_no_resubscribe": "execute_async", "delta_publish": "publish"}
    assert {tried_as.get(name, name) for name in calls} <= named


def test_the_published_matrix_names_each_call_and_disturbance() -> None:
    text = (CHECKOUT / "docs/guide/cancellation.md").read_text()
    for name in [*CALLS, *DISTURBANCES]:
        assert f"| {name} |" in text or f"- {name}" in text, name


def test_the_matrix_sees_a_wait_that_is_never_ended() -> None:
    async def hang(scene: Scene) -> None:
        await asyncio.get_running_loop().create_future()

    async def short() -> None:
        with pytest.raises(AssertionError, match="the call hangs"):
            await play(hang, 0, None)

    global ENDS_WITHIN_S
    before, ENDS_WITHIN_S = ENDS_WITHIN_S, 0.2
    try:
        asyncio.run(short())
    finally:
        ENDS_WITHIN_S = before


