"""Message streams: reading messages in the calling thread, through a bounded buffer.

The receive thread puts messages into a StreamBuffer; one consumer thread takes them out of it through a
MessageStream. The buffer belongs to the route, the stream to the application. The client holds no reference to the
stream, so its finaliser runs when it is dropped without being closed. The usual case takes no
lock on either side: deque operations are atomic, and the condition is only for an empty or a full buffer.
"""

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self

from amps.client.blocking.changes import Changes
from amps.client.enums import Timeout
from amps.client.errors import AMPSException, StreamException
from amps.client.payloads.tables import Headers, arrow_maker, pandas_maker, read
from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Message
from amps.client.protocol.options import OnFull, check_buffer

if TYPE_CHECKING:
    import pandas
    import pyarrow


class StreamOwner(Protocol):
    """The interface of the runtime that a stream uses."""

    def wait_for_room(self, buffer: "StreamBuffer") -> None:
        """Called on the receive thread: stop reading until the buffer has room or must grow."""

    def notice_room(self) -> None:
        """Called by consumers: a buffer that was full has room again."""

    def end_stream(self, route: Route) -> None:
        """End the subscription or query behind a stream."""

    def end_stream_later(self, route: Route) -> None:
        """Like end_stream, for a finaliser: takes no lock."""


class StreamBuffer:
    """The messages received for a stream and not yet read."""

    def __init__(
        self, owner: StreamOwner, route: Route, max_depth: int, on_full: OnFull, control: bool
    ) -> None:
        self.max_depth = max_depth
        self.on_full: OnFull = on_full
        self.control = control
        self.dropped = 0
        self.error: AMPSException | None = None
        self.ended = False
        self.stream: weakref.ref[MessageStream] | None = None
        self._owner = owner
        self._route = route
        self._messages: deque[Message] = deque()
        self._latest: OrderedDict[object, Message] | None = None  # instead of _messages when conflating
        self._lock = threading.Lock()  # for `_latest` and the end
        self._arrived = Changes()
        self.producer_waits = False
        """Whether the receive thread waits for room."""

    def __len__(self) -> int:
        return len(self._messages) + (0 if self._latest is None else len(self._latest))

    @property
    def conflating(self) -> bool:
        """Whether a newer message replaces an unread one."""
        return self._latest is not None

    def note_room(self) -> None:
        """Let the receive thread continue if the buffer has room again."""
        if self.has_room:
            self._owner.notice_room()

    @property
    def next_unread(self) -> Callable[[], Message]:
        """A function that removes and returns the next message; IndexError if there is none.

        Not while `conflating`. After it, call `note_room` if `producer_waits`: in this order, no wake-up is lost.
        """
        return self._messages.popleft

    @property
    def has_room(self) -> bool:
        """Whether a paused receive thread may continue: when the buffer is half empty, not after each message."""
        return self.ended or not self.max_depth or len(self) <= self.max_depth // 2

    # Receive thread

    def put(self, messages: list[Message]) -> None:
        """Add messages; `on_full` determines what happens if the buffer is full."""
        if not self.control:
            # The usual case without a call per message.
            messages = [
                message for message in messages if message._command == "publish" or message.is_content
            ]
        if self._latest is not None:
            self._conflate(messages)
            return
        if self.max_depth and len(self._messages) + len(messages) > self.max_depth:
            self._put_bounded(messages)
        elif not self.ended:
            self._messages.extend(messages)
            self._wake_consumer()

    def _put_bounded(self, messages: list[Message]) -> None:
        at = 0
        while at < len(messages) and not self.ended:
            room = max(0, self.max_depth - len(self)) if self.max_depth else len(messages)
            if room == 0 and self.on_full == "pause":
                self._wait_for_room()
                # If there is still no room, a thread waits for an answer that follows these messages.
                room = max(1, self.max_depth - len(self))
            elif room == 0 and self.on_full == "raise":
                error = StreamException(f"the stream's buffer of {self.max_depth} messages is full")
                self.end(error)
                self._owner.end_stream(self._route)
                return
            elif room == 0:
                self._drop_oldest()
                room = 1
            part = messages[at : at + room]
            at += len(part)
            if self._latest is None:
                self._messages.extend(part)
            else:
                self._conflate(part)
            self._wake_consumer()

    def _wait_for_room(self) -> None:
        self.producer_waits = True
        try:
            self._owner.wait_for_room(self)
        finally:
            self.producer_waits = False

    def _drop_oldest(self) -> None:
        try:
            self._messages.popleft()
        except IndexError:
            return  # the consumer was faster
        self.dropped += 1

    def _conflate(self, messages: list[Message]) -> None:
        with self._lock:
            latest = self._latest
            if self.ended or latest is None:
                return
            self._absorb(latest)
            for message in messages:
                latest[self._key(message)] = message
        self._arrived.notify()
        while self.max_depth and len(self) > self.max_depth and self.on_full == "pause" and not self.ended:
            before = len(self)
            self._wait_for_room()
            if len(self) >= before:
                return  # the buffer had to grow

    def _absorb(self, latest: OrderedDict[object, Message]) -> None:
        """Move the messages that arrived before conflation was switched on."""
        while self._messages:
            message = self._messages.popleft()
            latest[self._key(message)] = message

    def _key(self, message: Message) -> object:
        return object() if message.sow_key is None else (message.topic, message.sow_key)

    def _wake_consumer(self) -> None:
        self._arrived.notify()

    def end(self, error: AMPSException | None = None) -> None:
        """Mark the end: no more messages arrive; buffered messages can still be read."""
        with self._lock:
            if not self.ended:
                self.error = error
                self.ended = True
        self._arrived.notify()
        self._owner.notice_room()

    def disown(self, error: AMPSException) -> None:
        """End the buffer in a forked child, where no messages arrive; another thread may have held the lock."""
        self._lock = threading.Lock()
        self._messages.clear()
        self._latest = None
        self.error = error
        self.ended = True

    # Consumer thread

    def conflate(self) -> None:
        """From now on, replace an unread message by a newer one with the same topic and SOW key."""
        with self._lock:
            if self._latest is None:
                self._latest = OrderedDict()

    def take(self, timeout: Timeout) -> Message | None:
        """Return the next message, None if none arrives in time. Raises EOFError (or the error) at the end."""
        message = self._pop()
        if message is not None:
            return message
        self._arrived.wait_for(lambda: len(self) or self.ended, timeout)
        message = self._pop()
        if message is None and self.ended:
            message = self._pop()  # the last message may have arrived with the end
            if message is None:
                if self.error is not None:
                    raise self.error
                raise EOFError("the stream has ended")
        return message

    def _pop(self) -> Message | None:
        try:
            if self._latest is None:
                message = self._messages.popleft()
            else:
                with self._lock:
                    self._absorb(self._latest)
                    message = self._latest.popitem(last=False)[1]
        except (IndexError, KeyError):
            return None
        if self.producer_waits:
            self.note_room()
        return message


class MessageStream(Iterator[Message]):
    """The messages of one command: iterate, or call `get`; use `with`, or call `close`. For one consumer thread."""

    def __init__(self, owner: StreamOwner, command: Command, route: Route, buffer: StreamBuffer) -> None:
        self.command = command
        """The command that the stream belongs to, as it was sent."""
        self.closed = False
        """Whether `close` was called."""
        self._owner = owner
        self._route = route
        self._buffer = buffer
        self._timeout: Timeout = None
        self._unacknowledged: Message | None = None
        self._pop_next = buffer.next_unread
        buffer.stream = weakref.ref(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ended" if self._buffer.ended else f"{self.depth} buffered"
        return f"<MessageStream {self.command.command} {self.command.topic!r} {self._route.id}: {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            self._owner.end_stream_later(self._route)

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
        return len(self._buffer)

    @property
    def max_depth(self) -> int:
        """The bound of the buffer; 0 = none."""
        return self._buffer.max_depth

    @property
    def max_backlog(self) -> int | None:
        """The effective backlog of a queue subscription, as the server reported it."""
        return self._route.max_backlog

    @property
    def dropped(self) -> int:
        """The number of messages that `on_full="drop_oldest"` has discarded."""
        return self._buffer.dropped

    @property
    def error(self) -> AMPSException | None:
        """The error that ended the stream, None if its end was expected."""
        return self._buffer.error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        buffer = self._buffer
        if not self._route.auto_ack and not buffer.conflating:
            try:
                message = self._pop_next()
            except IndexError:
                pass  # none has arrived: wait
            else:
                if buffer.producer_waits:
                    buffer.note_room()
                return message
        # With set_timeout the iterator yields None too; the annotation is for loops without set_timeout.
        try:
            return self._next(self._timeout)  # type: ignore[return-value]
        except EOFError:
            raise StopIteration from None

    def _next(self, timeout: Timeout) -> Message | None:
        unacknowledged = self._unacknowledged
        if unacknowledged is not None:
            self._unacknowledged = None
            unacknowledged.ack()
        message = self._buffer.take(timeout)
        if self._route.auto_ack:
            self._unacknowledged = message
        return message

    def get(self, timeout: Timeout = None) -> Message | None:
        """Return the next message; None if none arrives within `timeout` seconds (None = no limit).

        Raises EOFError at the end, or the error that ended the stream.
        """
        return self._next(timeout)

    def drain(self) -> list[Message]:
        """Return all buffered messages, without waiting."""
        messages = []
        while len(self._buffer):
            message = self._next(0)
            if message is not None:
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
        check_buffer(n, self._buffer.on_full)
        self._buffer.max_depth = n
        self._owner.notice_room()
        return self

    def conflate(self) -> Self:
        """Keep only the newest unread message of each SOW key, at the place of the first."""
        self._buffer.conflate()
        return self

    def to_list(self) -> list[Message]:
        """Return all messages up to the end of the stream."""
        return list(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return all messages up to the end of the stream, as dictionaries."""
        return [message.to_dict() for message in self]

    def to_pandas(
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
        return make(read(self, max_messages, timeout))

    def to_arrow(
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
        return make(read(self, max_messages, timeout))

    def close(self) -> None:
        """End the subscription or query; safe to call again."""
        if not self.closed:
            self.closed = True
            self._buffer.end()
            self._owner.end_stream(self._route)
