"""Requests to other processes of the instance, and their answers.

One msgpack list per datagram: `[id, verb, …]` there, `[id, "ok", …]` or `[id, "error", text]` back; parts of a long
answer come before it as `[id, "more", part]`. The channel outlives both processes. So an answer may come that nobody
waits for any more; ids begin with the time, and what is not awaited is dropped.
"""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgpack

ANSWER_TIMEOUT_S = 15.0
"""So long nothing may come of an answer."""
ANSWER_PARTS_MAX = 1_000_000
"""An answer has so many rows at most."""
_DATAGRAM_BYTES_MAX = 1 << 20
_RETRY_S = 0.01


class RequestRefused(Exception):
    """It was not done, or not answered; the text says why."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """What is awaited, and what has come of it."""

    answer: "asyncio.Future[list[Any]]"
    timeout: asyncio.Timeout
    parts: list[Any] = field(default_factory=list)


class Requests:
    """The asking side of one channel. `begin` must be called in the event loop."""

    refusal: ClassVar[type[RequestRefused]] = RequestRefused

    def __init__(self, channel: socket.socket, whom: str) -> None:
        """`whom`: who is asked, as errors call it."""
        self._channel = channel
        self._whom = whom
        self._next_id = time.monotonic_ns()
        self._waiting: dict[int, _Waiting] = {}

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for answers."""
        loop.add_reader(self._channel.fileno(), self._hear)

    async def ask(self, *what: object) -> list[Any]:
        """Send a request; the rows of its answer. Raises `refusal`."""
        number = self._next_id
        self._next_id += 1
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S) as timeout:
                waiting = _Waiting(asyncio.get_running_loop().create_future(), timeout)
                self._waiting[number] = waiting
                await self._send(msgpack.packb([number, *what]))
                return await waiting.answer
        except TimeoutError:
            raise self.refusal(
                f"{self._whom} has not answered for {ANSWER_TIMEOUT_S:.0f} seconds; try again"
            ) from None
        except OSError as error:
            raise self.refusal(f"{self._whom} cannot be asked: {error.strerror}") from None
        finally:
            del self._waiting[number]

    async def _send(self, datagram: bytes) -> None:
        while True:
            try:
                self._channel.send(datagram)
                return
            except BlockingIOError:  # earlier ones have not been taken yet
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
            waiting = self._waiting.get(number)
            if waiting is None or waiting.answer.done():
                continue
            content = rest[0] if rest else []
            if kind == "error":
                waiting.answer.set_exception(self.refusal(str(content)))
                continue
            if isinstance(content, list):
                waiting.parts += content
            else:
                waiting.parts.append(content)
            if len(waiting.parts) > ANSWER_PARTS_MAX:
                waiting.answer.set_exception(self.refusal(f"the answer of {self._whom} is too long"))
            elif kind == "ok":
                waiting.answer.set_result(waiting.parts)
            elif not waiting.timeout.expired():
                waiting.timeout.reschedule(asyncio.get_running_loop().time() + ANSWER_TIMEOUT_S)
