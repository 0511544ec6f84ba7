"""The thread that runs handlers instead of the receive thread, for clients made with dispatch="thread".

Handlers may then issue commands that wait, and the client reads acknowledgements and heartbeats while a slow
handler runs. One queue and one thread keep the order of messages.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection

from amps.client.blocking.own_threads import ClientThread
from amps.client.protocol.engine_types import Deliver, Event


class Dispatcher:
    """A bounded queue of events and the thread that processes it. While there is a token in `waiting`, it may grow."""

    def __init__(
        self, name: str, run: Callable[[Event], None], max_messages: int, waiting: Collection[object]
    ) -> None:
        self._run = run
        self._max_messages = max_messages
        self._waiting = waiting
        self._events: deque[Event] = deque()
        self._messages = 0
        self._condition = threading.Condition()
        self._stopped = False
        self.thread = ClientThread(target=self._work, name=f"amps-dispatch:{name}", daemon=True)
        self.thread.start()

    def put(self, event: Event, *, wait: bool) -> None:
        """Queue an event. With `wait`, block until the queue has room or a thread of the client waits for an answer."""
        size = len(event.messages) if isinstance(event, Deliver) else 1
        with self._condition:
            if wait:
                self._condition.wait_for(
                    lambda: self._messages < self._max_messages or self._waiting or self._stopped
                )
            self._events.append(event)
            self._messages += size
            self._condition.notify_all()

    def wake(self) -> None:
        """Note that a thread of the client begins to wait for an answer."""
        with self._condition:
            self._condition.notify_all()

    def stop(self, wait_s: float) -> bool:
        """Process the queued events, then end the thread. Unless called on it, wait for its end; False: it goes on."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        if wait_s <= 0 or threading.current_thread() is self.thread:
            return True
        self.thread.join(wait_s)
        return not self.thread.is_alive()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._events or self._stopped)
                if not self._events:
                    return
                event = self._events.popleft()
            self._run(event)
            with self._condition:
                self._messages -= len(event.messages) if isinstance(event, Deliver) else 1
                self._condition.notify_all()
            del event  # it may keep the client alive
