"""Message streams of the asyncio client, and the bounded queues behind streams and coroutine handlers.

The client puts messages into a MessageQueue and stops reading when it is full. A consumer takes a message in the same
step in which it returns, so a cancelled wait loses none. Several tasks may read one stream: each message goes to one of
them.
"""

import asyncio
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol, Self

from amps.client.enums import Timeout
from amps.client.errors import AMPSException, StreamException
from amps.client.payloads.tables import Headers, arrow_maker, pandas_maker, read_async
from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Message
from amps.client.protocol.options import OnFull, check_buffer

if TYPE_CHECKING:
    import pandas
    import pyarrow


class QueueOwner(Protocol):
    """The interface of the link that queues and streams use."""

    def note_room(self) -> None:
        """A queue that was full has room again."""

    def end_stream(self, route: Route) -> None:
        """End the subscription or query behind a stream."""

    def end_stream_later(self, route: Route) -> None:
        """Like end_stream, for a finaliser, which may run in any thread."""

    def check_loop(self) -> None:
        """Raise UsageException unless the caller runs on the client's event loop."""


class MessageQueue:
    """The messages of one route that have not been read."""

    def __init__(self, owner: QueueOwner, route: Route, max_depth: int, on_full: OnFull) -> None:
        self.max_depth = max_depth
        self.on_full: OnFull = on_full
        self.control = True
        self.dropped = 0
        self.error: AMPSException | None = None
        self.ended = False
        self.was_full = False
        """Whether the client has stopped reading because of this queue."""
        self.stream: weakref.ref[AsyncMessageStream] | None = None
        self._owner = owner
        self._route = route
        self._messages: deque[Message] = deque()
        self._latest: OrderedDict[object, Message] | None = None  # instead of _messages when conflating
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._messages) if self._latest is None else len(self._latest)

    # Producer

    def put(self, messages: list[Message], *, overfill: bool) -> int:
        """Add messages; return how many were taken. Less than all: the queue is full and reading has to stop.

        `overfill`: take all of them, because a task waits for an answer behind them.
        """
        if self.ended:
            return len(messages)
        taken = len(messages)
        if self.max_depth and self.on_full == "pause" and not overfill:
            taken = min(taken, max(0, self.max_depth - len(self)))
            self.was_full = self.was_full or taken < len(messages)
        accepted = messages if taken == len(messages) else messages[:taken]
        if not self.control:
            accepted = [message for message in accepted if message._command == "publish" or message.is_content]
        if self._latest is None:
            self._messages.extend(accepted)
        else:
            for message in accepted:
                self._latest[self._key(message)] = message
        if self.max_depth and self.on_full != "pause" and len(self) > self.max_depth:
            self._shrink()
        self._wake()
        return taken

    def _shrink(self) -> None:
        if self.on_full == "raise":
            self.end(StreamException(f"the stream's buffer of {self.max_depth} messages is full"))
            self._owner.end_stream(self._route)
            return
        while len(self) > self.max_depth:
            self._pop()
            self.dropped += 1

    def _key(self, message: Message) -> object:
        return object() if message.sow_key is None else (message.topic, message.sow_key)

    def end(self, error: AMPSException | None = None) -> None:
        """Mark the end: no more messages arrive; those in the queue can still be read."""
        if not self.ended:
            self.ended = True
            self.error = error
        while self._waiters:
            self._release(self._waiters.popleft())
        self._owner.note_room()

    def conflate(self) -> None:
        """From now on, replace an unread message by a newer one with the same topic and SOW key."""
        if self._latest is None:
            self._latest = OrderedDict((self._key(message), message) for message in self._messages)
            self._messages.clear()

    def clear(self) -> None:
        """Drop all unread messages."""
        self._messages.clear()
        if self._latest is not None:
            self._latest.clear()

    def _wake(self) -> None:
        # The future of a cancelled or timed-out consumer may still be here: skip it, so that another one wakes.
        wanted = len(self)
        while wanted and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                wanted -= 1

    @staticmethod
    def _release(waiter: "asyncio.Future[None]") -> None:
        if not waiter.done():
            waiter.set_result(None)

    # Consumer

    def take(self) -> Message | None:
        """Remove and return the next message; None if there is none now. Raises EOFError or `error` at the end."""
        if len(self):
            message = self._pop()
            if self.was_full and len(self) <= self.max_depth // 2:
                self.was_full = False
                self._owner.note_room()
            return message
        if self.ended:
            raise self.error if self.error is not None else EOFError("the stream has ended")
        return None

    def _pop(self) -> Message:
        if self._latest is None:
            return self._messages.popleft()
        return self._latest.popitem(last=False)[1]

    def give_back(self, messages: list[Message]) -> None:
        """Put messages that were taken in front of the others, in their order; newer ones of a key replace them."""
        if self._latest is None:
            self._messages.extendleft(reversed(messages))
        else:
            self._latest = OrderedDict([(self._key(m), m) for m in messages] + list(self._latest.items()))
        self._wake()

    async def wait(self, timeout: Timeout = None) -> None:
        """Wait until there may be a message, the queue ends, or the time is over."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        timer = None if timeout is None else loop.call_later(timeout, self._release, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake()  # another consumer gets the message that this one was woken for
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)


class AsyncMessageStream(AsyncIterator[Message]):
    """The messages of one command: `async for`, or `get`; use `async with`, or `close`.

    Cancelling a read does not end the stream and loses no message.
    """

    def __init__(self, owner: QueueOwner, command: Command, route: Route, queue: MessageQueue) -> None:
        self.command = command
        """The command that the stream belongs to, as it was sent."""
        self.closed = False
        """Whether `close` was called."""
        self._owner = owner
        self._route = route
        self._queue = queue
        self._timeout: Timeout = None
        self._unacknowledged: Message | None = None
        queue.stream = weakref.ref(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ended" if self._queue.ended else f"{self.depth} buffered"
        return f"<AsyncMessageStream {self.command.command} {self.command.topic!r} {self._route.id}: {state}>"

    def __del__(self) -> None:
        if not self.closed and not self._queue.ended:
            self._owner.end_stream_later(self._route)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    @property
    def sub_id(self) -> str | None:
        """The subscription id, for unsubscribe and replace."""
        return self._route.sub_id

    @property
    def query_id(self) -> str | None:
        """The query id."""
        return self._route.query_id

    @property
    def depth(self) -> int:
        """The number of buffered messages."""
        return len(self._queue)

    @property
    def max_depth(self) -> int:
        """The bound of the buffer; 0 = none."""
        return self._queue.max_depth

    @property
    def max_backlog(self) -> int | None:
        """The effective backlog of a queue subscription, as the server reported it."""
        return self._route.max_backlog

    @property
    def dropped(self) -> int:
        """The number of messages that `on_full="drop_oldest"` has discarded."""
        return self._queue.dropped

    @property
    def error(self) -> AMPSException | None:
        """The error that ended the stream, None if its end was expected."""
        return self._queue.error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        queue = self._queue
        messages = queue._messages
        if messages and not queue.was_full and not self._route.auto_ack:  # as `take` does then
            return messages.popleft()
        # With set_timeout the iterator yields None too; the annotation is for loops without set_timeout.
        try:
            return await self._next(self._timeout)  # type: ignore[return-value]
        except EOFError:
            raise StopAsyncIteration from None

    async def _next(self, timeout: Timeout) -> Message | None:
        self._owner.check_loop()
        self._acknowledge_last()
        message = self._queue.take()
        if message is None and (timeout is None or timeout > 0):
            deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
            while message is None:
                left = None if deadline is None else deadline - asyncio.get_running_loop().time()
                if left is not None and left <= 0:
                    break
                await self._queue.wait(left)
                message = self._queue.take()
        if self._route.auto_ack:
            self._unacknowledged = message
        return message

    def _acknowledge_last(self) -> None:
        last = self._unacknowledged
        if last is not None:
            self._unacknowledged = None
            last.ack()

    async def get(self, timeout: Timeout = None) -> Message | None:
        """Return the next message; None if none arrives within `timeout` seconds (None = no limit).

        Raises EOFError at the end, or the error that ended the stream.
        """
        return await self._next(timeout)

    def drain(self) -> list[Message]:
        """Return all buffered messages, without waiting."""
        messages = []
        while len(self._queue):
            self._acknowledge_last()
            message = self._queue.take()
            assert message is not None
            if self._route.auto_ack:
                self._unacknowledged = message
            messages.append(message)
        return messages

    def set_timeout(self, seconds: float) -> Self:
        """Make iteration yield None when no message arrives for `seconds`; 0 = wait for ever."""
        if seconds < 0:
            raise ValueError(f"a stream's timeout cannot be negative: {seconds}")
        self._timeout = seconds or None
        return self

    def set_max_depth(self, n: int) -> Self:
        """Bound the buffer; 0 = no bound."""
        check_buffer(n, self._queue.on_full)
        self._queue.max_depth = n
        self._owner.note_room()
        return self

    def conflate(self) -> Self:
        """Keep only the newest unread message of each SOW key, at the place of the first."""
        self._queue.conflate()
        return self

    async def to_list(self) -> list[Message]:
        """Return all messages up to the end of the stream."""
        return [message async for message in self]

    async def to_dicts(self) -> list[dict[str, Any]]:
        """Return all messages up to the end of the stream, as dictionaries."""
        return [message.to_dict() async for message in self]

    async def to_pandas(
        self,
        *,
        headers: Headers = (),
        separator: str | None = ".",
        max_messages: int | None = None,
        timeout: Timeout = None,
    ) -> "pandas.DataFrame":
        """Return messages up to the end of the stream as a pandas.DataFrame; of a live stream, a batch of them.

        `max_messages` and `timeout`, in seconds, limit a batch; the next call continues. With a limit, an error of the
        stream ends the batch, and the next call raises it. For the rest see `amps.client.to_pandas`.
        """
        make = pandas_maker(headers, separator)
        return make(await read_async(self, self._queue.give_back, max_messages, timeout))

    async def to_arrow(
        self,
        *,
        headers: Headers = (),
        separator: str | None = ".",
        schema: "pyarrow.Schema | None" = None,
        max_messages: int | None = None,
        timeout: Timeout = None,
    ) -> "pyarrow.Table":
        """Return messages up to the end of the stream as a pyarrow.Table; of a live stream, a batch of them.

        `max_messages` and `timeout`, in seconds, are as for `to_pandas`. For the rest see `amps.client.to_arrow`.
        """
        make = arrow_maker(headers, separator, schema)
        return make(await read_async(self, self._queue.give_back, max_messages, timeout))

    async def close(self) -> None:
        """End the subscription or query; safe to call again."""
        if not self.closed:
            self._owner.check_loop()
            self.closed = True
            self._queue.end()
            self._owner.end_stream(self._route)


class StreamRequest:
    """A call that will return a stream. `await` it, use it in `async with`, or iterate over it with `async for`.

    `async with` and `async for` close the stream at their end; after `await` the caller does.
    """

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, AsyncMessageStream]]) -> None:
        self._begin = begin
        self._stream: AsyncMessageStream | None = None
        self._used = False

    def __del__(self) -> None:
        if not self._used:
            warnings.warn(
                "a call that returns a stream was neither awaited nor used in `async with` or `async for`:"
                " nothing was sent",
                RuntimeWarning,
                source=self,
                stacklevel=2,
            )

    def __await__(self) -> Generator[Any, None, AsyncMessageStream]:
        self._used = True
        return self._begin().__await__()

    async def __aenter__(self) -> AsyncMessageStream:
        self._used = True
        self._stream = await self._begin()
        return self._stream

    async def __aexit__(self, *exception: object) -> None:
        if self._stream is not None:
            await self._stream.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        self._used = True
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        stream = await self._begin()
        try:
            async for message in stream:
                yield message
        finally:
            await stream.close()
