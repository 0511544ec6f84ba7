"""Lists the subscriptions of a worker for the administration interface (operations.md §5.7).

The services process sends the request `[id, "subscriptions"]`. The rows of `subscription_row` are sent in as many
datagrams as they need (`amps.server.request_answers`). There may be very many subscriptions: after each part the event
loop serves clients again, and no further part is made until the last one is read. A subscription that begins or ends
meanwhile may be listed or not; all others are listed exactly once.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgpack

from amps.server.request_answers import packed_rows
from amps.server.transport.session import Phase, Session, Subscription
from amps.server.transport.subscriptions import shown_text

SUBSCRIPTIONS = "subscriptions"
REQUEST_BYTES_MAX = 65_536
ROWS_PER_STEP = 500


class SubscriptionList:
    """A worker's end of its channel with the services process."""

    def __init__(self, channel: socket.socket, connections: Callable[[], Iterable[Session]]) -> None:
        """`connections`: returns all connections of the worker."""
        self._channel = channel
        self._connections = connections
        self._loop: asyncio.AbstractEventLoop
        self._waiting: deque[bytes] = deque()
        self._listed: tuple[object, Iterator[Subscription]] | None = None
        """Id of the request, and the subscriptions still to be listed."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read requests from now on."""
        self._loop = loop
        loop.add_reader(self._channel.fileno(), self._hear)

    def _hear(self) -> None:
        try:
            request = self._channel.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            request = b""
        if not request:
            self._loop.remove_reader(self._channel.fileno())
            return
        identity, verb, *_ = msgpack.unpackb(request)
        if verb == SUBSCRIPTIONS:
            self._listed = identity, _living(list(self._connections()))
        else:
            self._waiting.append(msgpack.packb([identity, "error", f"a transport does not know {verb!r}"]))
        # Answers are sent one after the other.
        self._loop.remove_reader(self._channel.fileno())
        self._say()

    def _say(self) -> None:
        """Send the datagrams of one step. Datagrams without room in the channel are sent when there is room."""
        if not self._waiting and self._listed is not None:
            identity, rest = self._listed
            rows = [subscription_row(subscription) for subscription in islice(rest, ROWS_PER_STEP)]
            more = len(rows) == ROWS_PER_STEP
            self._waiting.extend(packed_rows(identity, rows, more))
            if not more:
                self._listed = None
        try:
            while self._waiting:
                self._channel.send(self._waiting[0])
                self._waiting.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._channel.fileno(), self._say_on)
        except OSError:  # the services process has ended
            self._waiting.clear()
            self._listed = None
        else:
            if self._listed is not None:
                self._loop.call_soon(self._say)
            else:
                self._loop.add_reader(self._channel.fileno(), self._hear)

    def _say_on(self) -> None:
        self._loop.remove_writer(self._channel.fileno())
        self._say()


def subscription_row(subscription: Subscription) -> tuple[Any, ...]:
    """The columns: number, number in the core or None, client name, subscription id, topic, message type, filter,
    bookmark, options. Texts are as clients sent them, shortened if they are long.
    """
    connection = subscription.connection
    filter_text = "" if subscription.filter is None else subscription.filter.canonical
    options = subscription.options_text
    if subscription.paused:
        options = f"{options},pause" if options else "pause"
    texts = (
        connection.client_name,
        subscription.sub_id,
        subscription.topic,
        connection.message_type,
        filter_text,
        subscription.bookmark or "",
        options,
    )
    return subscription.number, subscription.queue_number, *(shown_text(text) for text in texts)


def _living(connections: Iterable[Session]) -> Iterator[Subscription]:
    """The subscriptions of these connections that still exist when the iterator comes to them."""
    for connection in connections:
        if connection.phase is Phase.CLOSED:
            continue
        for known in list(connection.subscriptions.values()):
            # A subscription may have been replaced by another object with the same number. A closed session has none.
            now = connection.subscriptions.get(known.sub_id)
            if now is not None and now.number == known.number:
                yield now
