"""The messages that a worker holds: leased from the queue, and neither acknowledged nor given back.

The receive thread adds messages, handlers take them. The bound is the subscription's backlog, which the server keeps.
A message that arrives again while it is held (its lease has ended, or the connection was lost) is not handled twice
at a time: the new copy replaces the old. Nor is one that was settled before, as long as that is remembered. When the
connection is lost, the server has taken all messages back, so those that no handler has begun are dropped.
`generation` counts the connections; a message of an earlier one is not leased.
"""

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass

from amps.client.protocol.message import Message

Key = tuple[str | None, str | None]

MAX_SETTLED = 10_000
"""The number of settled messages that are remembered; the oldest are forgotten first."""


@dataclass(slots=True, eq=False)
class Held:
    """A message that is held."""

    message: Message
    key: Key
    generation: int


class Backlog:
    """The held messages. All methods may be called by any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._held: dict[Key, Held] = {}
        self._waiting: deque[Held] = deque()
        self._settled: OrderedDict[Key, None] = OrderedDict()
        self._running = 0
        self._generation = 0
        self._stopped = False

    @property
    def waiting(self) -> int:
        """The number of messages for which no handler has begun."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """The number of handlers that run."""
        return self._running

    def put(self, message: Message) -> bool:
        """Add a message that has arrived; False: it is settled, only its acknowledgement did not arrive in time."""
        if message.command != "publish":
            return True
        key = (message.topic, message.bookmark)
        with self._condition:
            if key in self._settled:
                return False
            held = self._held.get(key)
            if held is not None:
                held.message, held.generation = message, self._generation
                return True
            held = self._held[key] = Held(message, key, self._generation)
            self._waiting.append(held)
            self._condition.notify()
        return True

    def drop_waiting(self) -> None:
        """Note that the connection was lost."""
        with self._condition:
            self._generation += 1
            for held in self._waiting:
                del self._held[held.key]
            self._waiting.clear()

    def take(self) -> Held | None:
        """Return the next message for a handler, once there is one; None when the worker drains."""
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._stopped)
            if self._stopped:
                return None
            self._running += 1
            return self._waiting.popleft()

    def handled(self) -> None:
        """Note that the handler of a message taken has ended, and its outcome is settled."""
        with self._condition:
            self._running -= 1

    def release(self, held: Held, *, settled: bool) -> bool:
        """Stop holding a message; return whether the server still leases it to this connection, as far as is known.

        `settled`: it is not to be handled again.
        """
        with self._condition:
            self._held.pop(held.key, None)
            if settled:
                self._settled[held.key] = None
                if len(self._settled) > MAX_SETTLED:
                    self._settled.popitem(last=False)
            return held.generation == self._generation

    def stop(self) -> None:
        """Let no handler begin any more."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
