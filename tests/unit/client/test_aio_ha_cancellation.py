"""The calls of the highly available asyncio client, disturbed at every point where they wait.

The calls and disturbances are those of `test_aio_cancellation`. The connection is cut and made again beneath the calls:
each must end, the client must have recovered by itself, and the server must have exactly its subscriptions.
"""

import asyncio
from typing import Any

import pytest

from amps.aio import AsyncHAClient
from amps.client import AMPSException, FixedDelayStrategy, MemoryPublishStore
from tests.unit.client.aio import until
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.test_aio_cancellation import (
    CALL_TIMEOUT_S,
    CALLS,
    DISTURBANCES,
    ENDS_WITHIN_S,
    Call,
    Disturbance,
    Scene,
    cancel,
    cancel_when_over,
    disturbed,
    subscriptions,
)


def make(name: str, peer: AsyncPeer, **options: Any) -> AsyncHAClient:
    return AsyncHAClient(
        name, peer.uri, delay_strategy=FixedDelayStrategy(0.01), attempt_timeout=0.2, **options
    )


async def open_another(scene: Scene) -> None:
    other = make("other", scene.target)
    try:
        await other.connect_and_logon(timeout=CALL_TIMEOUT_S)
    finally:
        await other.close(timeout=CALL_TIMEOUT_S)


async def disconnect(scene: Scene) -> None:
    await scene.client.disconnect(timeout=CALL_TIMEOUT_S)
    await scene.client.open(timeout=CALL_TIMEOUT_S)


HA_CALLS: dict[str, Call] = {
    "connect_and_logon, close": open_another,
    "disconnect, open": disconnect,
    **{
        name: call
        for name, call in CALLS.items()
        if name not in ("open", "close", "disconnect, connect", "logon", "publish into a full store")
    },
}


async def play(call: Call, at: int, disturbance: Disturbance | None) -> int:
    """Run a call in a new scene, disturbed at one of its waits; check the scene. Return the number of waits."""
    before = asyncio.all_tasks()
    async with AsyncPeer() as peer, AsyncPeer() as other:
        client = make("me", peer, publish_store=MemoryPublishStore())
        scene = Scene(peer, other if call is open_another else peer, client)
        await client.open()
        scene.witness = await client.subscribe("w", handler=lambda message: scene.received.append(message.data))
        scene.tick()
        waits: list[int] = []

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
        peer.answering = True
        if peer.connected and not peer._reading.is_set():
            peer.read(True)
        await check(scene, call)
        await client.close(timeout=1)
        assert not client.connected
    await asyncio.sleep(0)
    assert {task for task in asyncio.all_tasks() - before if not task.done()} == set(), "a task is left"
    return len(waits)


async def check(scene: Scene, call: Call) -> None:
    peer, client = scene.peer, scene.client
    assert isinstance(client, AsyncHAClient)
    client.timeout = ENDS_WITHIN_S
    if call is disconnect:
        if not client.connected and not client.reconnecting:
            await client.open(timeout=ENDS_WITHIN_S)
        await until(lambda: client._engine.ready)
        await client.flush()
        return
    await until(lambda: client._engine.ready and not client.reconnecting)
    scene.tick()
    await client.flush()
    await client.flush()
    # A message may be lost with its connection, because the witness has no bookmark; none may come twice.
    numbers = [int(body) for body in scene.received]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == scene.sent - 1
    assert [route.id for route in client._engine.routes()] == [scene.witness]
    last_logon = max(at for at, frame in enumerate(peer.frames) if frame["c"] == "logon")
    entered, ended = subscriptions(peer.frames[last_logon:])
    assert entered - ended - {scene.witness} == set(), "the server still has a subscription"
    assert scene.witness in entered or last_logon == 0
    assert client._link.delivery.reading


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("name", HA_CALLS)
def test_a_call_survives_a_disturbance_at_each_of_its_waits(name: str, disturbance: str) -> None:
    async def matrix() -> None:
        waits = await play(HA_CALLS[name], 0, None)
        for at in range(1, waits + 1):
            await play(HA_CALLS[name], at, DISTURBANCES[disturbance])

    asyncio.run(matrix())
