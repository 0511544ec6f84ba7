"""The link between a client and its server: the engine, its connection, timers, and the order of events.

A Link owns everything that waits: tickets, the room in the connection, timers. It calls the application's handlers
through `handlers`, in the order of the engine's events. Behind a full queue the events wait, and nothing more is
received, unless a task waits for an answer: the answer may be behind them.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from amps.client.aio.connection import Connection, open_connection, seconds_left
from amps.client.aio.handlers import HandlerTasks, deliver
from amps.client.aio.streams import MessageQueue
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.engine_types import (
    Close,
    Deliver,
    Event,
    Phase,
    RecoveryFailed,
    Retry,
    Route,
    StreamEnd,
    Ticket,
    TicketDone,
    TicketFailed,
)
from amps.client.protocol.message import Message
from amps.client.uri import ConnectionUri, parse_uri

RECEIVE_BYTES = 64 * 1024
"""So many received bytes are handled at once."""
SEND_AT_BYTES = 64 * 1024
"""A burst of publishes is sent when it is this long."""
CANCEL_S = 1.0
"""How long `close` waits for handlers that it has cancelled."""


class Link:
    """One client's engine and connection. `lost(error)` is called when a connection has ended; None: on request."""

    def __init__(
        self,
        settings: ClientSettings,
        handlers: EventHandlers,
        lost: Callable[[AMPSException | None], None],
    ) -> None:
        self.engine = settings.new_engine()
        self.outbox = self.engine.outbox
        self.connection: Connection | None = None
        self.uri: ConnectionUri | None = None
        self.bytes_in = 0
        self.closing = False
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._settings = settings
        self._handlers = handlers
        self._on_lost = lost
        self._bytes_out = 0
        self._connecting = False
        self._leaving = False
        self._finishing = False
        self.turn_due = False
        """Whether much was published in this step of the event loop: the next publish lets it read first."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._waiting_events: deque[Event] = deque()  # behind a full queue
        self._running_events = False
        self._reading = True
        self._awaiting = 0
        self.writable: list[asyncio.Future[None]] = []
        self.discarded: list[asyncio.Future[None]] = []
        self.changed: list[asyncio.Future[None]] = []
        """Waits that end with each change of the connection's state."""
        self.engine.watcher = lambda state: self.note_change()
        self._handler_tasks: set[HandlerTasks] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def bytes_out(self) -> int:
        """The bytes that the socket has accepted."""
        return self._bytes_out - (self.connection.unsent_bytes if self.connection is not None else 0)

    def check_loop(self) -> None:
        """Raise UsageException unless the caller runs on the event loop on which the client was opened."""
        if self.loop is not asyncio._get_running_loop():
            if self.loop is None:
                raise DisconnectedException(
                    "not connected; call open() first, or use the client in an `async with`"
                )
            raise UsageException(
                "this client belongs to another event loop: use loop.call_soon_threadsafe or"
                " asyncio.run_coroutine_threadsafe"
            )

    def check_usable(self) -> None:
        """Raise UsageException if the client is closed, or used on another event loop."""
        if self.closed:
            raise UsageException("this client is closed: make a new one")
        self.check_loop()

    # Connection

    def note_change(self) -> None:
        """End the waits for a change of the connection's state."""
        release(self.changed)

    def bind(self) -> None:
        """Use the running event loop. Raises UsageException if the client is closed, or connected on another loop."""
        if self.closing:
            raise UsageException("this client is closed: make a new one")
        loop = asyncio.get_running_loop()
        if self.loop is not loop:
            if self.engine.connected:
                self.check_loop()
            self._forget_loop()
        self.loop = loop

    async def connect(self, text: str, deadline: float | None) -> None:
        """Open a connection. Raises ConnectionException, TimedOutException."""
        self.bind()
        if self.engine.connected or self._connecting:
            raise AlreadyConnectedException(
                f"client {self._settings.name!r} is connected; disconnect first"
            )
        if self._finishing:
            raise AlreadyConnectedException(
                f"client {self._settings.name!r} is still closing its connection; await that first"
            )
        parsed = parse_uri(text)
        self._connecting = True
        try:
            connection = await open_connection(
                parsed,
                timeout_s=seconds_left(deadline),
                tls=self._settings.tls,
                http_headers=self._settings.http_headers,
            )
        finally:
            self._connecting = False
        if self.closing:
            connection.abort()
            raise UsageException("this client was closed while it connected")
        self.uri = parsed
        self.connection = connection
        self._leaving = False
        self.outbox.blocked = connection.blocked
        self._reading = True
        self.engine.connection_made(time.monotonic(), parsed)
        self.dispatch()
        connection.attach(self)

    def _forget_loop(self) -> None:
        """Drop what belongs to an event loop that is not used any more."""
        self._handler_tasks.clear()
        self._tasks.clear()
        self._waiting_events.clear()
        self._timer = None

    async def leave(self, deadline: float | None) -> None:
        """Send what waits and close the connection, until the deadline. From now on, calls are refused."""
        connection = self.connection
        self._leaving = True
        if connection is None:
            return
        self.engine.flush_acks()
        self.flush()
        if self.outbox.blocked and self.engine.phase is not Phase.REPLAYING:
            connection.write(self.engine.outgoing())  # little: calls wait while the connection is blocked
        self.connection = None
        self._finishing = True
        self._lost(None)
        try:
            await connection.finish(seconds_left(deadline))
        finally:
            self._finishing = False
            connection.abort()
        await asyncio.sleep(0)

    async def close(self, deadline: float | None) -> None:
        """End everything: running coroutine handlers may finish until the deadline, then they are cancelled."""
        self.closing = True
        try:
            if self.loop is not None:
                await self._end_handlers(deadline)  # they may still use the client, at least to acknowledge
                self.closed = True
                await self.leave(deadline)
        finally:
            self.closed = True
            self.abort()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks - {asyncio.current_task()}:
                task.cancel()

    async def _end_handlers(self, deadline: float | None) -> None:
        """Give no more messages to coroutine handlers, and let those that run finish."""
        tasks: set[asyncio.Task[None]] = set()
        for handlers in self._handler_tasks:
            handlers.queue.clear()
            handlers.queue.end()
            tasks |= handlers.tasks
        current = asyncio.current_task()
        tasks = {task for task in tasks if task is not current}
        if not tasks:
            return
        try:
            _, running = await asyncio.wait(tasks, timeout=seconds_left(deadline))
        finally:
            for task in tasks:
                task.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=CANCEL_S)
        if running:
            self._settings.logger.warning(
                "client %s: %d handlers go on although they were cancelled", self._settings.name, len(running)
            )

    def abort(self) -> None:
        """End the connection at once."""
        connection = self.connection
        if connection is not None:
            self._leaving = True
            connection.abort()
            self.connection_ended(connection, None)

    # Calls of the connection

    def bytes_received(self, connection: Connection, data: bytes) -> None:
        """Process received bytes."""
        if connection is not self.connection:
            return
        self.bytes_in += len(data)
        if self._handlers._transport_filter is not None:
            self._handlers._call(self._handlers._transport_filter, data, False)
        # In parts: the messages of one are delivered before those of the next are made.
        view, now = memoryview(data), time.monotonic()
        for at in range(0, len(data), RECEIVE_BYTES):
            self.engine.receive(view[at : at + RECEIVE_BYTES], now)
            self.dispatch()
        self.flush()
        self._schedule()

    def connection_ended(self, connection: Connection, error: Exception | None) -> None:
        """Handle the end of the connection."""
        if connection is not self.connection:
            return
        self.connection = None
        engine = self.engine
        failure: AMPSException | None = None
        if not self._leaving:
            failure = engine.dismissal
            if failure is None:
                text = f"the connection was lost: {error}" if error else "the server closed the connection"
                failure = DisconnectedException(text)
        self._lost(failure)

    def _lost(self, failure: AMPSException | None) -> None:
        """Tell the engine and the application that the connection is gone; None: the application closed it."""
        self.outbox.blocked = False
        self.engine.connection_lost(time.monotonic(), failure)
        self.dispatch()
        release(self.writable)
        release(self.discarded)
        release(self.changed)
        self._on_lost(failure)

    def writing_paused(self, connection: Connection, paused: bool) -> None:
        """Note whether the peer reads too slowly."""
        if connection is not self.connection:
            return
        self.outbox.blocked = paused
        if not paused:
            release(self.writable)
            self.flush()

    # Sending and timers

    def flush(self) -> None:
        """Write the engine's output, unless the peer does not read."""
        engine, connection, outbox = self.engine, self.connection, self.outbox
        while connection is not None and engine.has_outgoing and not outbox.blocked:
            chunks = engine.outgoing()
            if not chunks:
                break
            self._bytes_out += sum(map(len, chunks))
            if self._handlers._transport_filter is not None:
                self._handlers._call(self._handlers._transport_filter, b"".join(chunks), True)
            connection.write(chunks)
        if engine.has_events:
            self.dispatch()

    def send_burst(self) -> None:
        """Send what was published: much of it at once, else at the end of this step of the event loop."""
        outbox = self.outbox
        if outbox.pending_bytes > SEND_AT_BYTES:
            self.flush()
            self.turn_due = True
        elif not outbox.signalled:
            outbox.signalled = True
            assert self.loop is not None
            self.loop.call_soon(self._flush_burst)

    async def take_turn(self) -> None:
        """Let the event loop read, after much was published."""
        self.turn_due = False
        await asyncio.sleep(0)

    def _flush_burst(self) -> None:
        self.outbox.signalled = False
        self.flush()

    def after_call(self) -> None:
        self.flush()
        self.dispatch()
        self._schedule()

    def _schedule(self) -> None:
        """Set the timer for heartbeats, batches of acknowledgements and the silence of the server."""
        engine = self.engine
        moments = [when for when in (engine.deadline(), self._silence_deadline()) if when is not None]
        if not moments or self.loop is None:
            return
        when = min(moments)
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_later(max(0.0, when - time.monotonic()), self._on_timer)

    def _silence_deadline(self) -> float | None:
        return self.engine.silence_deadline() if self._reading and self.connection is not None else None

    def _on_timer(self) -> None:
        self._timer = None
        self.engine.tick(time.monotonic(), reading=self._reading)
        self.after_call()

    # Events

    def dispatch(self) -> None:
        """Handle the engine's events in order. Behind a full queue they wait, and nothing more is received."""
        waiting = self._waiting_events
        if self.engine.has_events:
            waiting.extend(self.engine.events())
        if self._running_events:
            return  # a handler has called the client: the events are handled when it returns
        self._running_events = True
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
                if self.engine.has_events:
                    waiting.extend(self.engine.events())
        finally:
            self._running_events = False
        self._keep_reading()

    def _keep_reading(self) -> None:
        """Receive unless events wait behind a full queue. While a task waits for an answer, there is room in queues."""
        reading = not self._waiting_events or self._leaving
        if reading == self._reading or self.connection is None:
            return
        self._reading = reading
        if reading:
            self.engine.reading_again(time.monotonic())
        self.connection.read(reading)
        self._schedule()

    def _offer(self, event: Deliver) -> int:
        """Deliver messages; return how many their queue has taken."""
        route = event.route
        queue = route.sink
        # A waiting task may need what is behind a full queue; without a connection, nothing more arrives.
        overfill = self._awaiting > 0 or self._leaving or self.connection is None
        if queue is None:
            deliver(self._handlers, route, event.messages)
            return len(event.messages)
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
                    if not sink.tasks:
                        self._handler_tasks.discard(sink)  # else `close` waits for the tasks
                elif sink is not None:
                    sink.end(error)
            case RecoveryFailed():
                pass  # the task that recovers asks the engine for it
            case Close(error):
                self._close_connection(error)
            case _:
                self._handlers._run_event(event)

    def _close_connection(self, error: AMPSException) -> None:
        connection = self.connection
        if connection is None:
            return
        connection.abort()
        self.connection = None
        self._lost(
            error if isinstance(error, ConnectionException) else DisconnectedException(str(error))
        )

    def keep_handlers(self, handlers: HandlerTasks) -> None:
        """Note the tasks of a coroutine handler: they end with the client."""
        over = {known for known in self._handler_tasks if known.queue.ended and not known.tasks}
        self._handler_tasks -= over
        self._handler_tasks.add(handlers)

    def note_room(self) -> None:
        """A queue that was full has room again."""
        if self._waiting_events and self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon(self.dispatch)

    def end_later(self, route: Route) -> None:
        """End the subscription or query of a stream that was dropped. Any thread may call this."""
        loop = self.loop
        if loop is None or route.closed:
            return
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(self._end_dropped, route)

    def _end_dropped(self, route: Route) -> None:
        route.sink.end()
        if not route.closed:
            self.engine.cancel(route)
        self.after_call()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        assert self.loop is not None
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Waiting

    async def answer(self, ticket: Ticket, deadline: float | None) -> Message | None:
        """Wait until a ticket is settled; return its ack, or raise the exception it failed with."""
        assert self.loop is not None
        if not ticket.awaited:
            self.after_call()
            return None
        waiter: asyncio.Future[None] = self.loop.create_future()
        ticket.waiter = waiter
        self._awaiting += 1
        timer = None
        try:
            self.after_call()
            if deadline is not None and not waiter.done():
                timer = self.loop.call_later(
                    max(0.0, deadline - time.monotonic()), release, [waiter]
                )
            await waiter
        except BaseException:
            self._abandon(ticket)
            raise
        finally:
            self._awaiting -= 1
            if timer is not None:
                timer.cancel()
        if not ticket.done and ticket.challenge is None:
            self._abandon(ticket)
            raise TimedOutException(f"no answer to {ticket.command} in time", command_id=ticket.command_id)
        if ticket.error is not None:
            raise ticket.error
        return ticket.ack

    def _abandon(self, ticket: Ticket) -> None:
        """Give up a command: the subscription or query that it has entered, or may enter, is ended."""
        if not ticket.done:
            self.engine.abandon(ticket, time.monotonic())
        elif ticket.route is not None and not ticket.replaces:
            self.engine.cancel(ticket.route)
        self.after_call()

    async def wait_in(self, waiters: "list[asyncio.Future[None]]", deadline: float | None) -> bool:
        """Wait until the futures in a list are released; False: the time is over."""
        assert self.loop is not None
        waiter: asyncio.Future[None] = self.loop.create_future()
        waiters.append(waiter)
        self._awaiting += 1
        self.dispatch()  # a task waits now: what is behind a full queue may be what it waits for
        try:
            async with asyncio.timeout(seconds_left(deadline)):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._awaiting -= 1
            if waiter in waiters:
                waiters.remove(waiter)
        return True

    async def make_room(self, what: str, deadline: float | None) -> None:
        """Wait until the server has read enough of what was sent before."""
        while self.outbox.blocked:
            if not await self.wait_in(self.writable, deadline):
                raise TimedOutException(
                    f"{what} was not sent in time: the server does not read what was sent before"
                )
            self.check_usable()


def release(waiters: "list[asyncio.Future[None]]") -> None:
    """Let all futures in a list end their wait."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
