"""Message streams with times in milliseconds (client.md §5.1)."""

from collections.abc import Iterator
from typing import Self

from amps.client import MessageStream as _MessageStream
from amps.compat.messages import Message
from amps.compat.names import milliseconds, seconds, with_twins


@with_twins
class MessageStream(Iterator[Message | None]):
    """The messages of one command, with the markers of groups and the acknowledgements that the command requests.

    After `timeout(ms)` it yields None whenever no message arrives in that time. The end of the connection ends it with
    DisconnectedException, after the messages received before; no client resumes it.
    """

    def __init__(self, stream: _MessageStream) -> None:
        self._stream = stream
        self._timeout_s: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message | None:
        try:
            message = self._stream.get(self._timeout_s)
        except EOFError:
            raise StopIteration from None
        return None if message is None else Message(message)

    next = __next__
    """Return the next message, as the iterator does. Raises StopIteration at the end."""

    def timeout(self, timeout: float) -> Self:
        """Yield None when no message arrives for so many milliseconds; 0 = wait for ever."""
        self._timeout_s = seconds(timeout)
        return self

    set_timeout = timeout
    """The same as `timeout`."""

    def get_timeout(self) -> int:
        """The timeout in milliseconds; 0 = none."""
        return milliseconds(self._timeout_s)

    def conflate(self) -> Self:
        """Replace an unread message by a newer one with the same SOW key."""
        self._stream.conflate()
        return self

    def max_depth(self, depth: int) -> Self:
        """Bound the buffer: when it is full, the client stops reading. 0 = no bound."""
        self._stream.set_max_depth(depth)
        return self

    set_max_depth = max_depth
    """The same as `max_depth`."""

    def get_max_depth(self) -> int:
        """The bound of the buffer; 0 = none."""
        return self._stream.max_depth

    def get_depth(self) -> int:
        """The number of buffered messages."""
        return self._stream.depth

    def get_sub_id(self) -> str:
        """The subscription id."""
        return self._stream.sub_id or ""

    def get_query_id(self) -> str:
        """The query id."""
        return self._stream.query_id or ""

    def close(self) -> None:
        """End the subscription or query."""
        self._stream.close()
