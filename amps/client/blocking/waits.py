"""Threads of the application that wait: for an answer, or for the publish store.

While a thread waits for an answer, the receive thread does not wait for room in a stream's buffer: the answer may be
behind the messages that do not fit. Such a thread is in `waiting`:

    token = object()
    try:
        waits.begin(token)
        ...
    finally:
        waits.waiting.discard(token)  # a method of C: an interrupt cannot come before it
"""

import threading
from collections.abc import Callable
from typing import Protocol

from amps.client.blocking.changes import Changes
from amps.client.blocking.deadlines import left_until
from amps.client.blocking.transport import SocketTransport
from amps.client.blocking.wire import Wire


class Bounded(Protocol):
    """A buffer that the receive thread fills."""

    @property
    def has_room(self) -> bool:
        """Whether a paused receive thread may continue."""


class Waits:
    """The threads that wait, and the changes that they and the receive thread wait for."""

    def __init__(self, wire: Wire) -> None:
        self.waiting: set[object] = set()
        """A token of each thread that waits for an answer."""
        self.begun: Callable[[], None] = lambda: None
        """Called when a thread begins to wait."""
        self.discards = 0
        """Rises when the publish store has discarded messages, or the connection is lost."""
        self._wire = wire
        self._room = Changes()
        self._discarded = Changes()

    def begin(self, token: object) -> None:
        """Note that the calling thread waits for an answer."""
        self.waiting.add(token)
        self._room.notify()
        self.begun()

    def wait_for_room(self, buffer: Bounded) -> None:
        """Stop receiving until the buffer has room, unless a thread of this client waits for an answer."""
        self._room.wait_for(lambda: buffer.has_room or self.waiting or self._wire.leaving)

    def notice_room(self) -> None:
        """Wake the receive thread: a buffer has room again."""
        self._room.notify()

    def notice_discard(self, sequence: int) -> None:
        """Wake threads that wait for the store: it has discarded messages, or the connection is lost."""
        self.discards += 1
        self._discarded.notify()

    def until_discarded(self, condition: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until the condition holds, which is checked after each discard; return whether it does."""
        return self._discarded.wait_for(condition, left_until(deadline))

    def until_lost(self, transport: SocketTransport, deadline: float | None) -> bool:
        """Wait until the receive thread has handled the loss of the connection. False: it has not by the deadline."""
        if threading.current_thread() is self._wire.receiver:
            return False
        token = object()
        try:
            self.begin(token)  # the receive thread may not wait for room in a buffer now
            return self.until_discarded(lambda: self._wire.transport is not transport, deadline)
        finally:
            self.waiting.discard(token)
