"""The threads of `consume` with a concurrency: several handlers of one subscription at once (client.md §19.6).

The receive thread puts messages into a queue, threads named `amps-work:<client>` take them and call the handler.
Messages are begun in order and may end in any. A message is acknowledged after its handler has returned, and given back
(`cancel`) if it raised. If the queue is full, the client stops reading, unless a thread waits for an answer.

Threads that wait for a message hold only the queue: they keep no client alive, and end with it.
"""

import threading
import weakref
from collections import deque
from typing import Protocol

from amps.client.blocking.changes import Changes
from amps.client.blocking.deadlines import left_until
from amps.client.blocking.own_threads import ClientThread
from amps.client.errors import AMPSException
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine_types import Route
from amps.client.protocol.message import Message


class RoomOwner(Protocol):
    """The interface of the client that a queue uses."""

    def wait_for_room(self, buffer: "WorkQueue") -> None:
        """Called on the receive thread: stop reading until the queue has room or must grow."""

    def notice_room(self) -> None:
        """A queue that was full has room again."""


class WorkQueue:
    """Messages for which no handler has begun, and the number of handlers that run."""

    def __init__(self, max_depth: int) -> None:
        self.running = 0
        self._max_depth = max_depth
        self._messages: deque[Message] = deque()
        self._changed = threading.Condition()  # only the handlers' threads wait in it
        self._handled = Changes()
        self._ended = False

    @property
    def has_room(self) -> bool:
        """Whether a paused receive thread may continue."""
        return self._ended or not self._max_depth or len(self._messages) <= self._max_depth // 2

    @property
    def ended(self) -> bool:
        """Whether no more messages arrive."""
        return self._ended

    def fits(self, messages: list[Message]) -> bool:
        """Whether there is room for messages. An empty queue takes any number."""
        return not self._max_depth or not self._messages or len(self._messages) + len(messages) <= self._max_depth

    def put(self, messages: list[Message]) -> None:
        """Add messages."""
        with self._changed:
            if not self._ended:
                self._messages.extend(messages)
                self._changed.notify(len(messages))

    def take(self) -> Message | None:
        """Return the next message for a handler, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._ended)
            if not self._messages:
                return None
            self.running += 1
            return self._messages.popleft()

    def handled(self) -> None:
        """Note that the handler of a message has ended."""
        with self._changed:
            self.running -= 1
        self._handled.notify()

    def end(self, *, drop: bool = False) -> None:
        """Take no more messages. Those in the queue are still handled, or (drop) are not."""
        with self._changed:
            self._ended = True
            if drop:
                self._messages.clear()
            self._changed.notify_all()

    def until_idle(self, but: int, deadline: float | None) -> bool:
        """Wait until at most `but` handlers run; return whether that is so."""
        return self._handled.wait_for(lambda: self.running <= but, left_until(deadline))

    def disown(self) -> None:
        """End in a forked child, where there are no threads; another thread may have held the lock."""
        self._changed = threading.Condition()
        self._messages.clear()
        self._ended = True


class HandlerThreads:
    """The threads that run the handler of one route. Its `sink`."""

    def __init__(
        self, name: str, route: Route, handlers: EventHandlers, owner: RoomOwner, max_depth: int, concurrency: int
    ) -> None:
        self.queue = WorkQueue(max_depth)
        self.threads: set[threading.Thread] = set()
        self._name = name
        self._route = route
        self._handlers = handlers
        self._owner = owner
        self._concurrency = concurrency

    def __del__(self) -> None:
        queue = getattr(self, "queue", None)
        if queue is not None:
            queue.end(drop=True)

    def put(self, messages: list[Message]) -> None:
        """Let the threads handle messages; the first ones start them."""
        if not self.threads and not self.queue.ended:
            for _ in range(self._concurrency):
                thread = ClientThread(
                    target=_work, args=(weakref.ref(self), self.queue), name=f"amps-work:{self._name}", daemon=True
                )
                self.threads.add(thread)
                thread.start()
        if not self.queue.fits(messages):
            self._owner.wait_for_room(self.queue)
        self.queue.put(messages)

    def end(self, error: AMPSException | None, *, drop: bool = False) -> None:
        """Note that the subscription has ended: what has arrived is still handled, or (drop) is not."""
        self.queue.end(drop=drop)
        self._owner.notice_room()

    def disown(self, error: AMPSException) -> None:
        """End in a forked child."""
        self.queue.disown()

    def handle(self, message: Message) -> None:
        """Handle a message."""
        if self.queue.has_room:
            self._owner.notice_room()
        self._handlers.deliver(self._route, [message])


def _work(reference: "weakref.ref[HandlerThreads]", queue: WorkQueue) -> None:
    while (message := queue.take()) is not None:
        try:
            threads = reference()
            if threads is not None:
                threads.handle(message)
            del threads, message
        finally:
            queue.handled()


class Consumers:
    """All handler threads of a client."""

    def __init__(self, name: str, handlers: EventHandlers, owner: RoomOwner) -> None:
        self._name = name
        self._handlers = handlers
        self._owner = owner
        self._all: weakref.WeakSet[HandlerThreads] = weakref.WeakSet()

    def add(self, route: Route, concurrency: int, max_depth: int) -> None:
        """Let so many threads run the handler of a route."""
        route.sink = HandlerThreads(self._name, route, self._handlers, self._owner, max_depth, concurrency)
        self._all.add(route.sink)

    def finish(self, deadline: float | None) -> None:
        """Begin no more handlers, and wait until those that run have ended. Their messages can be acknowledged until
        the connection ends; all others go back to the queue.
        """
        consumers = list(self._all)
        for consumer in consumers:
            consumer.end(None, drop=True)
        for consumer in consumers:
            own = threading.current_thread() in consumer.threads  # a handler closes its client
            if not consumer.queue.until_idle(int(own), deadline):
                self._handlers.logger.warning(
                    "client %s: %d handlers go on after the end of their client", self._name, consumer.queue.running
                )
