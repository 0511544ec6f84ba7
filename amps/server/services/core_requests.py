"""Questions and orders to the core about journals and queues, and its answers.

One msgpack list per datagram: `[id, verb, …]` there, `[id, "ok", …]` or `[id, "error", text]` back; parts of a long
answer come before it as `[id, "more", part]`. The channel outlives both processes. So an answer may come that nobody
waits for any more; ids begin with the time, and what is not awaited is dropped.
"""

import asyncio
import socket
import time
from typing import Any

import msgpack

from amps._core.queue_details import SUBSCRIPTIONS_MAX

ANSWER_TIMEOUT_S = 15.0
ANSWER_PARTS_MAX = 100_000
_DATAGRAM_BYTES_MAX = 1 << 20
_RETRY_S = 0.01


class CoreRefused(Exception):
    """The core did not do it; the text says why."""


class CoreRequests:
    """The asking side. `begin` must be called in the event loop."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._next_id = time.monotonic_ns()
        self._waiting: dict[int, tuple[asyncio.Future[Any], list[Any]]] = {}
        self._listing: asyncio.Task[list[Any]] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for answers."""
        loop.add_reader(self._channel.fileno(), self._hear)

    async def journals(self) -> list[dict[str, Any]]:
        """What there is to know of each journal, oldest first. Raises CoreRefused.

        However many want to know at the same time, the core is asked once.
        """
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._ask("list"))
        found = await asyncio.shield(self._listing)
        return [journal for journal in found if isinstance(journal, dict)]

    async def mark(self, verb: str, which: dict[str, Any]) -> list[int]:
        """Have journals marked to be archived, compressed or removed; their numbers. Raises CoreRefused."""
        return [int(number) for number in await self._ask(verb, which)]

    async def queue(self, number: int) -> list[list[Any]]:
        """What the core says of a queue: rows of `amps._core.queue_details`. Raises CoreRefused."""
        return [row for row in await self._ask("queue", number) if isinstance(row, list)]

    async def queue_subscriptions(self) -> list[list[Any]]:
        """What the core says of all subscriptions to queues: rows of `amps._core.queue_details`, in the order in which
        they began. Asked for in several steps: one that begins or ends meanwhile may be there or not, but none is
        there twice. Raises CoreRefused.
        """
        found: dict[tuple[int, int], list[Any]] = {}
        skip = 0
        while True:
            rows = [row for row in await self._ask("queue subscriptions", skip) if isinstance(row, list)]
            found |= {(row[0], row[1]): row for row in rows}
            skip += len(rows)
            if len(rows) < SUBSCRIPTIONS_MAX:
                return list(found.values())

    async def _ask(self, *what: object) -> list[Any]:
        number = self._next_id
        self._next_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer, []
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._send(msgpack.packb([number, *what]))
                found: list[Any] = await answer
                return found
        except TimeoutError:
            raise CoreRefused(
                f"the core has not answered for {ANSWER_TIMEOUT_S:.0f} seconds; try again"
            ) from None
        except OSError as error:
            raise CoreRefused(f"the core cannot be asked: {error.strerror}") from None
        finally:
            del self._waiting[number]

    async def _send(self, datagram: bytes) -> None:
        while True:
            try:
                self._channel.send(datagram)
                return
            except BlockingIOError:  # the core has not taken earlier ones yet
                await asyncio.sleep(_RETRY_S)

    def _hear(self) -> None:
        while True:
            try:
                data = self._channel.recv(_DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            if not data:
                return
            number, kind, *rest = msgpack.unpackb(data)
            answer, parts = self._waiting.get(number, (None, []))
            if answer is None or answer.done():
                continue
            content = rest[0] if rest else []
            if kind == "error":
                answer.set_exception(CoreRefused(str(content)))
                continue
            if isinstance(content, list):
                parts += content
            else:
                parts.append(content)
            if len(parts) > ANSWER_PARTS_MAX:
                answer.set_exception(CoreRefused("the core's answer is too long"))
            elif kind == "ok":
                answer.set_result(parts)
