"""Says which subscriptions a worker has, to whoever looks at the instance (operations.md §5.7).

The services process asks `[id, "subscriptions"]`; the rows of `subscription_row` come in as many datagrams as they need
(`amps.server.request_answers`). There may be very many subscriptions: after each part the event loop serves clients
again, and while nobody takes the parts nothing is made. Of what begins and ends meanwhile some may be there; what is
there all the time is there once.
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
        """`connections`: all that there are."""
        self._channel = channel
        self._connections = connections
        self._loop: asyncio.AbstractEventLoop
        self._waiting: deque[bytes] = deque()
        self._listed: tuple[object, Iterator[Subscription]] | None = None
        """Who asked, and what is still to be said."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Listen for requests."""
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
        # One answer after the other.
        self._loop.remove_reader(self._channel.fileno())
        self._say()

    def _say(self) -> None:
        """Send one step's datagrams; what finds no room is sent when there is."""
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
        except OSError:  # nobody is there any more
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
    """Number, number by which the core knows it or None, client name, subscription id, topic, message type, filter,
    bookmark, options. Texts are as clients sent them, cut when they are long.
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
    """The subscriptions of these connections, as far as they are still there when it is their turn."""
    for connection in connections:
        if connection.phase is Phase.CLOSED:
            continue
        for known in list(connection.subscriptions.values()):
            # Who was replaced may be another object by now, of the same number; a closed session has none.
            now = connection.subscriptions.get(known.sub_id)
            if now is not None and now.number == known.number:
                yield now
