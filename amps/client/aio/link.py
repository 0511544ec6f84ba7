"""The link between a client and its server: the engine, its connection, and timers.

A Link owns what is on the way: the connection, the engine's output, the events that `delivery` gives to the application
in their order, and the waits of `waits`. It calls its policy when a connection is lost.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from amps.client.aio.connection import Connection, open_connection, seconds_left
from amps.client.aio.delivery import Delivery
from amps.client.aio.handlers import AllHandlerTasks, HandlerTasks
from amps.client.aio.waits import Waits, release
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.frontend.calls import lost_by
from amps.client.frontend.handlers import EventHandlers
from amps.client.frontend.settings import ClientSettings
from amps.client.protocol.engine_types import Phase, Route
from amps.client.uri import ConnectionUri, parse_uri

RECEIVE_BYTES = 64 * 1024
"""So many received bytes are handled at once."""
SEND_AT_BYTES = 64 * 1024
"""A burst of publishes is sent when it is this long."""


class LossPolicy(Protocol):
    """What a client does about the loss of its connection: call a handler, or make another connection."""

    async def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        """Wait until a call that was refused for want of a connection may be repeated, or raise the refusal."""

    def lost(self, failure: AMPSException | None, *, watched: bool) -> None:
        """Handle the end of a connection; None: the application has requested it.

        `watched`: subscriptions with handlers were entered.
        """


class Link:
    """One client's engine and connection."""

    def __init__(self, settings: ClientSettings, handlers: EventHandlers) -> None:
        self.engine = settings.new_engine()
        self.outbox = self.engine.outbox
        self.waits = Waits()
        self.handler_tasks = AllHandlerTasks(handlers)
        self.delivery = Delivery(self.engine, handlers, self.waits, self.handler_tasks, self)
        self.policy: LossPolicy
        self.connection: Connection | None = None
        self.uri: ConnectionUri | None = None
        self.bytes_in = 0
        self.closing = False
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._settings = settings
        self._handlers = handlers
        self._bytes_out = 0
        self._connecting = False
        self._leaving = False
        self._finishing = False
        self.turn_due = False
        """Whether much was published in this step of the event loop: the next publish lets it read first."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.engine.watcher = lambda state: self.waits.note_change()
        handlers.ends_program = self._end_program
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
        self.delivery.reading = True
        self.engine.connection_made(time.monotonic(), parsed)
        self.delivery.dispatch()
        connection.attach(self)

    def _forget_loop(self) -> None:
        """Drop what belongs to an event loop that is not used any more."""
        self.handler_tasks.clear()
        self._tasks.clear()
        self.delivery.waiting.clear()
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
                await self.handler_tasks.finish(deadline)  # they may still use the client, at least to acknowledge
                self.closed = True
                await self.leave(deadline)
        finally:
            self.closed = True
            self.abort()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks - {asyncio.current_task()}:
                task.cancel()

    def abort(self) -> None:
        """End the connection at once."""
        connection = self.connection
        if connection is not None:
            self._leaving = True
            connection.abort()
            self.connection_ended(connection, None)

    def _end_program(self, error: BaseException) -> bool:
        """Let SystemExit or KeyboardInterrupt of a handler end the event loop, in a step of its own.

        Raised where it occurred, it would cut off the delivery of messages that are received already.
        """
        if self.loop is not None:
            self.loop.call_soon(_raise, error)
        return self.loop is not None

    # Calls of the connection

    def bytes_received(self, connection: Connection, data: bytes) -> None:
        """Process received bytes."""
        if connection is not self.connection:
            return
        self.bytes_in += len(data)
        if self._handlers.transport_filter is not None:
            self._handlers.call(self._handlers.transport_filter, data, False)
        # In parts: the messages of one are delivered before those of the next are made.
        view, now = memoryview(data), time.monotonic()
        for at in range(0, len(data), RECEIVE_BYTES):
            self.engine.receive(view[at : at + RECEIVE_BYTES], now)
            self.delivery.dispatch()
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
        watched = any(r.handler is not None or isinstance(r.sink, HandlerTasks) for r in self.engine.routes())
        self.engine.connection_lost(time.monotonic(), failure)
        self.delivery.dispatch()
        self.waits.note_loss()
        self.policy.lost(failure, watched=watched)

    def writing_paused(self, connection: Connection, paused: bool) -> None:
        """Note whether the peer reads too slowly."""
        if connection is not self.connection:
            return
        self.outbox.blocked = paused
        if not paused:
            release(self.waits.writable)
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
            if self._handlers.transport_filter is not None:
                self._handlers.call(self._handlers.transport_filter, b"".join(chunks), True)
            connection.write(chunks)
        if engine.has_events:
            self.delivery.dispatch()

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
        """After an engine call of the application: send output, deliver events, and set the timer."""
        self.flush()
        self.delivery.dispatch()
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
        return self.engine.silence_deadline() if self.delivery.reading and self.connection is not None else None

    def _on_timer(self) -> None:
        self._timer = None
        self.engine.tick(time.monotonic(), reading=self.delivery.reading)
        self.after_call()

    # Calls of `delivery`

    @property
    def receives(self) -> bool:
        """Whether more messages may arrive."""
        return self.connection is not None and not self._leaving

    def read(self, going: bool) -> None:
        """Stop or continue receiving."""
        if self.connection is None:
            return
        self.delivery.reading = going
        if going:
            self.engine.reading_again(time.monotonic())
        self.connection.read(going)
        self._schedule()

    def close_connection(self, error: AMPSException) -> None:
        """End a connection that is unusable."""
        connection = self.connection
        if connection is None:
            return
        connection.abort()
        self.connection = None
        self._lost(lost_by(error))

    # Calls of queues and streams

    def note_room(self) -> None:
        """A queue that was full has room again."""
        if self.loop is not None and not self.loop.is_closed():
            self.delivery.note_room(self.loop)

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream that is closed."""
        if not route.closed:
            self.engine.cancel(route)
            self.after_call()

    def end_stream_later(self, route: Route) -> None:
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

    # Tasks

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run work of the client in a task, which ends with the client."""
        assert self.loop is not None
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def make_room(self, what: str, deadline: float | None) -> None:
        """Wait until the server has read enough of what was sent before."""
        while self.outbox.blocked:
            if not await self.waits.wait_in(self.waits.writable, deadline):
                raise TimedOutException(
                    f"{what} was not sent in time: the server does not read what was sent before"
                )
            self.check_usable()


def _raise(error: BaseException) -> None:
    raise error
