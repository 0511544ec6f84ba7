"""The asyncio client in tests: tests as coroutine functions, clients of a scripted server, waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from amps.aio import AsyncClient
from tests.unit.client.aio_peer import AsyncPeer

WAIT_S = 10.0


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """A test that is a coroutine function, on a loop of its own; nothing may be left running on it."""

    async def whole(**arguments: Any) -> None:
        async with asyncio.timeout(60):
            await test(**arguments)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.sleep(0.05)
        left = {task for task in left if not task.done()}
        assert not left, left

    def call(**arguments: Any) -> None:
        asyncio.run(whole(**arguments))

    call.__name__, call.__doc__ = test.__name__, test.__doc__
    call.__signature__ = __import__("inspect").signature(test)  # type: ignore[attr-defined]
    call.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
    return call


@asynccontextmanager
async def logged_on(**options: Any) -> AsyncIterator[tuple[AsyncClient, AsyncPeer]]:
    async with AsyncPeer() as peer, AsyncClient("me", peer.uri, **options) as client:
        yield client, peer


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def endless(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Repeat a call until it raises."""
    while True:
        await call()


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % at for at in range(first, last)]
