"""The delivery of the engine's events: to waiting threads, to the buffers of streams, to handlers and listeners.

Messages of a stream, and answers, are delivered at once by the thread that has taken them from the engine. Handlers
run on that thread, too, or with dispatch="thread" on a thread of their own.
"""

import threading
from typing import Literal

from amps.client.blocking.dispatcher import Dispatcher
from amps.client.blocking.states import StateQueue
from amps.client.blocking.waits import Waits
from amps.client.blocking.wire import Wire
from amps.client.protocol.engine_types import (
    Deliver,
    Event,
    RecoveryFailed,
    Retry,
    State,
    StreamEnd,
    TicketDone,
    TicketFailed,
)


class Delivery:
    """Delivers events, in their order."""

    def __init__(self, wire: Wire, waits: Waits, dispatch: Literal["inline", "thread"], max_depth: int) -> None:
        self.states = StateQueue()
        wire.engine.watcher = self.states.note
        self._wire = wire
        self._waits = waits
        self._handlers = wire.handlers
        self._threaded = dispatch == "thread"
        self._max_depth = max_depth
        self._dispatcher: Dispatcher | None = None

    def start(self) -> None:
        """Start the thread for handlers, if there is to be one."""
        if self._threaded and self._dispatcher is None:
            self._dispatcher = Dispatcher(self._wire.name, self._run, self._max_depth, self._waits.waiting)
            self._waits.begun = self._dispatcher.wake

    def stop(self, wait_s: float) -> None:
        """Process what is queued, then end the thread for handlers; wait for that, but no longer than this."""
        if self._dispatcher is not None and not self._dispatcher.stop(wait_s):
            self._wire.logger.warning("client %s: closed while a handler runs, which goes on", self._wire.name)

    def runs_handlers(self) -> bool:
        """Whether the calling thread runs handlers."""
        current = threading.current_thread()
        return current is self._wire.receiver or (
            self._dispatcher is not None and current is self._dispatcher.thread
        )

    def deliver(self, events: list[Event]) -> None:
        """Deliver events."""
        for event in events:
            self.deliver_one(event)

    def deliver_one(self, event: Event) -> None:
        """Deliver an event."""
        kind = type(event)
        if kind is Deliver:
            sink = event.route.sink  # type: ignore[union-attr]
            if sink is not None:
                sink.put(event.messages)  # type: ignore[union-attr]
                return
        elif kind is TicketDone or kind is TicketFailed or kind is Retry:
            waiter = event.ticket.waiter  # type: ignore[union-attr]
            if waiter is not None:
                waiter.set()
            return
        elif kind is RecoveryFailed:
            return  # the thread that reconnects decides
        elif kind is StreamEnd:
            sink = event.route.sink  # type: ignore[union-attr]
            if sink is not None:
                sink.end(event.error)  # type: ignore[union-attr]
            return
        if self._dispatcher is not None:
            # Slow handlers delay only the receive thread.
            self._dispatcher.put(event, wait=threading.current_thread() is self._wire.receiver)
        else:
            self._run(event)

    def _run(self, event: Event) -> None:
        if type(event) is State:
            self.states.tell(lambda state: self._handlers.run_event(State(state)))
        else:
            self._handlers.run_event(event)
