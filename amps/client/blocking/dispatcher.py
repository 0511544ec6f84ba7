"""The thread that runs handlers instead of the receive thread, for clients made with dispatch="thread".

Handlers may then issue commands that wait, and the client reads acknowledgements and heartbeats while a slow
handler runs. One queue and one thread keep the order of messages.
"""

import threading
from collections import deque
from collections.abc import Callable

from amps.client.protocol.engine_types import Deliver, Event


class Dispatcher:
    """A bounded queue of events and the thread that processes it."""

    def __init__(self, name: str, run: Callable[[Event], None], max_messages: int) -> None:
        self._run = run
        self._max_messages = max_messages
        self._events: deque[Event] = deque()
        self._messages = 0
        self._condition = threading.Condition()
        self._stopped = False
        self._overfill = 0
        self.thread = threading.Thread(target=self._work, name=f"amps-dispatch:{name}", daemon=True)
        self.thread.start()

    def put(self, event: Event, *, wait: bool) -> None:
        """Queue an event. With `wait`, block until the queue has room or a thread of the client waits for an answer."""
        size = len(event.messages) if isinstance(event, Deliver) else 1
        with self._condition:
            if wait:
                self._condition.wait_for(
                    lambda: self._messages < self._max_messages or self._overfill or self._stopped
                )
            self._events.append(event)
            self._messages += size
            self._condition.notify_all()

    def overfill(self, start: bool) -> None:
        """Note that a command starts (or stops) waiting for its answer. The queue may grow while one waits."""
        with self._condition:
            self._overfill += 1 if start else -1
            self._condition.notify_all()

    def stop(self) -> None:
        """Process the queued events, then end the thread. Wait for its end unless called on the thread itself."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        if threading.current_thread() is not self.thread:
            self.thread.join(5.0)

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
