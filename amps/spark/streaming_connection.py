"""Reading the log of a live server by ranges, over connections that may be lost.

After a loss of the connection, a read continues after its last message. So a restarted server, or a connection without
answers (heartbeats detect it), costs time and no message. A read ends with an error on a
permanent answer of the server (a range that is no longer in the log, a filter that does not parse), or after
`timeout_s` without any progress. Progress is a message, or an acknowledgement with the position that the server has
read up to (`persisted`, transaction_log.md §20, 18). So a filter without matches causes no timeout.

Ranges end at the durable position: the server reads its log no further for any client (§10), and sends `completed`
there.
"""

import random
import time
from collections.abc import Iterator

from amps.client import (
    AckType,
    AMPSException,
    Client,
    CommandException,
    DisconnectedException,
    InvalidBookmarkException,
    InvalidTopicException,
    Message,
    MessageStream,
    TimedOutException,
)
from amps.client.protocol.options import BookmarkSubscribeArgs
from amps.client.servers.rivals import Rivals
from amps.spark.streaming_errors import StreamReadError
from amps.spark.streaming_options import EPOCH, NOW, ServerOptions
from amps.spark.streaming_ranges import LogRange
from amps.spark.writing_connection import PASSING, log_on
from amps.spark.writing_errors import WriteError

LONGEST_HEARTBEAT_S = 10.0
DEPTH_MAX = 1000
"""The number of messages that are received ahead."""


class LogReader:
    """Reads over one connection, one after the other; call `close` at the end. The first read connects."""

    def __init__(self, options: ServerOptions, name: str) -> None:
        """`name`: the client name; another connection with this name ends this one (transaction_log.md §6)."""
        self._options = options
        self._name = name
        self._client: Client | None = None
        self._progress_at = 0.0
        self._rivals = Rivals()
        self.reached: str | None = None
        """After `read`: the position that the server has read up to; None if `messages_max` ended the read."""

    def close(self) -> None:
        """End the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def now(self) -> str:
        """Return the bookmark of the log's last durable message; EPOCH if there is none. Raises StreamReadError."""
        self._progress_at = time.monotonic()
        while True:
            try:
                with self._subscribe(NOW, None) as stream:
                    while True:
                        message = self._next(stream)
                        if message.command == "ack" and message.ack_type & AckType.COMPLETED:
                            return message.bookmark or EPOCH
            except (EOFError, *PASSING) as error:
                self._lost(error)
            except AMPSException as error:
                raise self._refused(None, error) from error

    def read(self, wanted: LogRange, messages_max: int | None = None) -> Iterator[list[Message]]:
        """Yield the matching messages of a range, in the order of the log, in chunks; at most `messages_max`.

        Raises StreamReadError.
        """
        self._progress_at = time.monotonic()
        self.reached = None
        left = messages_max
        while True:
            try:
                with self._subscribe(str(wanted), left) as stream:
                    while True:
                        chunk = [self._next(stream), *stream.drain()]
                        messages = [message for message in chunk if message.is_content]
                        wanted = _rest(wanted, chunk, bool(messages))
                        if messages:
                            yield messages
                        self._progress_at = time.monotonic()
                        if left is not None:
                            left -= len(messages)
                            if left <= 0:
                                return
                        if _is_end(chunk[-1]):
                            self.reached = chunk[-1].bookmark
                            return
            except EOFError:
                self._lost(DisconnectedException("the subscription ended before its range"))
            except PASSING as error:
                self._lost(error)
            except AMPSException as error:
                raise self._refused(wanted, error) from error

    def _subscribe(self, bookmark: str, messages_max: int | None) -> MessageStream:
        options = self._options
        terms: BookmarkSubscribeArgs = {
            "bookmark_not_found": "fail",
            "timestamp": True,
            "ack_type": AckType.COMPLETED | AckType.PERSISTED,
            "control": True,
            "max_depth": DEPTH_MAX,
            "resubscribe": False,
        }
        if messages_max is not None:
            terms["top_n"] = messages_max
        return self._connected().bookmark_subscribe(options.topic, bookmark, options.filter, **terms)

    def _connected(self) -> Client:
        if self._client is None:
            timeout_s = self._options.timeout_s
            client = Client(
                self._name,
                self._options.uri,
                timeout=timeout_s,
                heartbeat=min(LONGEST_HEARTBEAT_S, timeout_s),
            )
            try:
                log_on(client, timeout_s)
            except WriteError as error:
                client.close()
                raise StreamReadError(f"{self._options.address}: {error}") from error
            self._client = client
        return self._client

    def _next(self, stream: MessageStream) -> Message:
        message = stream.get(self._options.timeout_s)
        if message is None:
            raise TimedOutException(f"no message arrived from the log for {self._options.timeout_s:g} s")
        return message

    def _lost(self, error: Exception) -> None:
        """Drop the connection, to try again. Raises StreamReadError after `timeout_s` without progress."""
        self.close()
        if time.monotonic() - self._progress_at > self._options.timeout_s:
            raise StreamReadError(
                f"{self._options.address}: reading has made no progress for {self._options.timeout_s:g} s (option"
                f" timeout_s): {error}"
            ) from error
        wait_s = self._rivals.wait_s(error if isinstance(error, AMPSException) else None)
        time.sleep(wait_s or random.uniform(0.05, 0.2))

    def _refused(self, wanted: LogRange | None, error: AMPSException) -> StreamReadError:
        options = self._options
        if wanted is not None and isinstance(error, InvalidBookmarkException):
            return StreamReadError(
                f"{options.address} does not have the range {wanted} in its log (any more): journals of it were"
                " removed, or this is another log. Nothing is skipped silently: restore the journals, or start a new"
                " query with a checkpoint of its own where the log begins now"
            )
        if isinstance(error, InvalidTopicException):
            return StreamReadError(
                f"topic {options.topic!r} cannot be read as a stream: no transaction log of {options.address} records"
                f" it ({error.reason or error})"
            )
        if isinstance(error, CommandException):
            condition = "" if options.filter is None else f" with filter {options.filter!r}"
            return StreamReadError(
                f"{options.address} refuses to read topic {options.topic!r}{condition}: {error.reason or error}"
            )
        return StreamReadError(f"{options.address}: {error}")


def _rest(wanted: LogRange, chunk: list[Message], has_messages: bool) -> LogRange:
    """Return the rest of a range after a chunk of messages."""
    place = next((message.bookmark for message in reversed(chunk) if message.bookmark), None)
    # Before the first message of a range that includes its start, an acknowledgement has a position before the range.
    if place is None or place == EPOCH or (wanted.inclusive and not has_messages):
        return wanted
    return LogRange(place, wanted.end)


def _is_end(message: Message) -> bool:
    return message.command == "ack" and bool(message.ack_type & AckType.COMPLETED)
