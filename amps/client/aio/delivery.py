"""The delivery of the engine's events, in their order: to handlers, queues of messages, and tasks that wait.

Behind a full queue the events wait, and nothing more is received, unless a task waits for an answer: the answer may be
behind them.
"""

import asyncio
from collections import deque
from typing import Protocol

from amps.client.aio.handlers import AllHandlerTasks, HandlerTasks, deliver
from amps.client.aio.streams import MessageQueue
from amps.client.aio.waits import Waits
from amps.client.errors import AMPSException
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import (
    Close,
    Deliver,
    Event,
    RecoveryFailed,
    Retry,
    StreamEnd,
    TicketDone,
    TicketFailed,
)


class Source(Protocol):
    """The interface of the link that delivery uses."""

    @property
    def receives(self) -> bool:
        """Whether more messages may arrive, for which a full queue has to keep room."""

    def read(self, going: bool) -> None:
        """Stop or continue receiving."""

    def close_connection(self, error: AMPSException) -> None:
        """End a connection that is unusable."""


class Delivery:
    """Delivers events."""

    def __init__(
        self, engine: Engine, handlers: EventHandlers, waits: Waits, tasks: AllHandlerTasks, source: Source
    ) -> None:
        self.waiting: deque[Event] = deque()
        """Events behind a full queue."""
        self.reading = True
        """Whether the connection receives."""
        self._engine = engine
        self._handlers = handlers
        self._waits = waits
        self._tasks = tasks
        self._source = source
        self._running = False
        waits.begun = self.dispatch  # what is behind a full queue may be what a task waits for

    def dispatch(self) -> None:
        """Handle the engine's events in order."""
        waiting = self.waiting
        if self._engine.has_events:
            waiting.extend(self._engine.events())
        if self._running:
            return  # a handler has called the client: the events are handled when it returns
        self._running = True
        try:
            while waiting:
                event = waiting[0]
                if type(event) is Deliver:
                    taken = self._offer(event)
                    if taken < len(event.messages):
                        del event.messages[:taken]
                        break
                    if waiting and waiting[0] is event:
                        waiting.popleft()
                else:
                    waiting.popleft()
                    self._handle(event)
                if self._engine.has_events:
                    waiting.extend(self._engine.events())
        finally:
            self._running = False
        going = not waiting or not self._source.receives
        if going != self.reading:
            self._source.read(going)

    def note_room(self, loop: asyncio.AbstractEventLoop) -> None:
        """A queue that was full has room again."""
        if self.waiting:
            loop.call_soon(self.dispatch)

    def _offer(self, event: Deliver) -> int:
        """Deliver messages; return how many their queue has taken."""
        route = event.route
        queue = route.sink
        if queue is None:
            deliver(self._handlers, route, event.messages)
            return len(event.messages)
        # A waiting task may need what is behind a full queue; without a connection, nothing more arrives.
        overfill = self._waits.count > 0 or not self._source.receives
        if isinstance(queue, HandlerTasks):
            taken = queue.queue.put(event.messages, overfill=overfill)
            queue.start()
            return taken
        assert isinstance(queue, MessageQueue)
        return queue.put(event.messages, overfill=overfill)

    def _handle(self, event: Event) -> None:
        match event:
            case TicketDone(ticket) | TicketFailed(ticket) | Retry(ticket):
                waiter = ticket.waiter
                if waiter is not None and not waiter.done():
                    waiter.set_result(None)
            case StreamEnd(route, error):
                sink = route.sink
                if isinstance(sink, HandlerTasks):
                    sink.queue.end(error)
                    self._tasks.discard(sink)
                elif sink is not None:
                    sink.end(error)
            case RecoveryFailed():
                pass  # the task that recovers asks the engine for it
            case Close(error):
                self._source.close_connection(error)
            case _:
                self._handlers.run_event(event)
