"""Requests to other processes of the instance, and their answers.

One msgpack list per datagram. A request is `[id, verb, …]`, an answer `[id, "ok", …]` or `[id, "error", text]`. Parts
of a long answer precede it as `[id, "more", part]`. The channel outlives both processes, so an answer to an earlier
process may arrive. Therefore ids begin with the time, and answers to unknown ids are dropped.
"""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgpack

ANSWER_TIMEOUT_S = 15.0
"""Longest time without any part of an answer."""
ANSWER_PARTS_MAX = 1_000_000
"""Maximum number of rows of an answer."""
_DATAGRAM_BYTES_MAX = 1 << 20
_RETRY_S = 0.01


class RequestRefused(Exception):
    """A request was refused or not answered; the text has the reason."""

    answered = False
    """Whether the other process has refused it, so that the same request will be refused again."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A pending request, and the parts of its answer so far."""

    answer: "asyncio.Future[list[Any]]"
    timeout: asyncio.Timeout
    parts: list[Any] = field(default_factory=list)


class Requests:
    """The requesting side of one channel. `begin` must be called in the event loop."""

    refusal: ClassVar[type[RequestRefused]] = RequestRefused

    def __init__(self, channel: socket.socket, whom: str) -> None:
        """`whom`: the name of the other process in errors."""
        self._channel = channel
        self._whom = whom
        self._next_id = time.monotonic_ns()
        self._waiting: dict[int, _Waiting] = {}

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive answers from now on."""
        loop.add_reader(self._channel.fileno(), self._hear)

    async def ask(self, *what: object) -> list[Any]:
        """Send a request, and return the rows of its answer. Raises `refusal`."""
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
            except BlockingIOError:  # earlier datagrams have not been read yet
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
                refusal = self.refusal(str(content))
                refusal.answered = True
                waiting.answer.set_exception(refusal)
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
