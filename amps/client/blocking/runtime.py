"""The runtime of a blocking client: its threads, its locks, and the delivery of events to the application.

Threads of a connected client:
- `amps-rx:<name>` receives bytes, passes them to the engine, calls handlers and listeners and fills stream buffers.
  It never makes a send that could block. Each connection starts a new one.
- `amps-tx:<name>` sends the rest of a burst of publishes, bytes that the socket did not accept at once, and the
  output of the receive thread (heartbeats, acknowledgement batches). It alone waits for a slow peer.
- `amps-timer`, one per process, only wakes the other threads.
- `amps-dispatch:<name>` runs the handlers instead of the receive thread if the client has dispatch="thread".

Locks: the engine lock guards the engine and is never held during a blocking operation. How bytes are sent, and how
long a call may wait for that, is in `sending`. A publish sends at once if the last one was a while ago. In a
burst it leaves its bytes to the sending thread until enough have accumulated. Threads hold weak references to the
client: a client that is dropped while open is collected; it then issues a ResourceWarning and closes.
"""

import logging
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Literal

from amps.client.blocking.dispatcher import Dispatcher
from amps.client.blocking.forking import RefusingLock, forked, watch
from amps.client.blocking.sending import Sending, acquire_until, deadline_of, left_until
from amps.client.blocking.states import StateQueue
from amps.client.blocking.streams import StreamBuffer
from amps.client.blocking.threads import receive_loop, send_loop
from amps.client.blocking.timers import process_timer
from amps.client.blocking.transport import SocketTransport
from amps.client.enums import ConnectionState, Timeout
from amps.client.errors import (
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import (
    Close,
    Deliver,
    Event,
    Phase,
    RecoveryFailed,
    Retry,
    Route,
    State,
    StreamEnd,
    Ticket,
    TicketDone,
    TicketFailed,
)
from amps.client.protocol.message import Handler, Message

JOIN_S = 5.0


class ClientRuntime(Sending):
    """Threads, waiting and dispatch under a Client."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        dispatch: Literal["inline", "thread"],
        max_depth: int,
        logger: logging.Logger,
    ) -> None:
        super().__init__(name, logger)
        self._engine = engine
        self._lock: threading.Lock | RefusingLock = threading.Lock()
        self._begin_sending()
        self._connect_lock = threading.Lock()
        self._room = threading.Condition()
        self._waiting_commands = 0
        self._discarded = threading.Condition()
        self._discards = 0
        self._states = StateQueue()
        engine.watcher = self._states.note
        self._transport: SocketTransport | None = None
        self._rx: threading.Thread | None = None
        self._tx: threading.Thread | None = None
        self._leaving = False
        self._closing = False
        self._closed = False
        self._disowned = False
        self._bytes_in = 0
        self._delivering = False  # the receive thread is processing what it has received
        self._dispatch_settings = (dispatch, max_depth)
        self._dispatcher: Dispatcher | None = None
        watch(self)

    def __del__(self) -> None:
        transport = getattr(self, "_transport", None)
        if transport is not None and not self._disowned:
            warnings.warn(
                f"client {self._name!r} was never closed", ResourceWarning, source=self, stacklevel=2
            )
            transport.shutdown()
        if getattr(self, "_tx", None) is not None:
            self._tx_queue.put("stop")

    # Connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection, logged on or not."""
        return self._engine.connected

    def disown(self) -> None:
        """Make the client unusable in a forked child: the connection belongs to the parent."""
        self._disowned = True
        self._lock = RefusingLock()
        # Threads that do not exist in the child may have held these locks.
        self._room = threading.Condition()
        self._discarded = threading.Condition()
        self._engine.phase = Phase.DISCONNECTED
        self._engine.recovers = False
        if self._transport is not None:
            self._transport.close()  # closes the child's copy only: without a shutdown the connection stays open
            self._transport = None
        for route in self._engine.routes():
            route.closed = True
            if route.sink is not None:
                route.sink.disown(forked())

    def _check_usable(self) -> None:
        if self._disowned:
            raise forked()
        if self._closed:
            raise UsageException("this client is closed: make a new one")

    def _check_may_wait(self, what: str) -> None:
        """Raise UsageException on the receive thread: a call that waits there would never read its answer."""
        self._check_usable()
        if self._must_not_wait():
            raise UsageException(
                f"{what} waits for the server and was called on the receive thread, which would never read"
                ' the answer: use another thread, or make the client with dispatch="thread"'
            )

    def _must_not_wait(self) -> bool:
        """Whether the calling thread would wait for itself if it waited for the server."""
        return threading.current_thread() is self._rx

    def _await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        """Wait until a call that the engine has refused for want of a connection may be repeated, or raise the refusal.

        This client does not reconnect, so it raises.
        """
        raise refused

    def _attach(self, transport: SocketTransport, made: Callable[[float], None]) -> None:
        """Take over a connected transport; `made` notifies the engine. If it raises, the transport is closed."""
        if self._dispatch_settings[0] == "thread" and self._dispatcher is None:
            reference = weakref.ref(self)

            def run(event: Event) -> None:
                client = reference()
                if client is not None:
                    client._run_state_or_event(event)

            self._dispatcher = Dispatcher(self._name, run, self._dispatch_settings[1])
        transport.outbox = self._outbox
        try:
            with self._lock:
                self._check_usable()
                made(time.monotonic())
                self._transport = transport
                self._outbox.blocked = transport.behind
                self._leaving = False
                events = self._engine.events()
        except BaseException:
            transport.shutdown()
            transport.close()
            raise
        self._dispatch(events)
        self._rx = threading.Thread(
            target=receive_loop,
            args=(weakref.ref(self), transport),
            name=f"amps-rx:{self._name}",
            daemon=True,
        )
        self._rx.start()
        if self._tx is None:
            self._tx = threading.Thread(
                target=send_loop,
                args=(weakref.ref(self), self._tx_queue),
                name=f"amps-tx:{self._name}",
                daemon=True,
            )
            self._tx.start()

    def _leave(self, timeout: Timeout, only: SocketTransport | None = None) -> None:
        """End the connection for the application; the receive thread does the rest.

        Accepted output is sent first, for at most `timeout` seconds. `only`: no effect on another connection.
        """
        deadline = deadline_of(timeout)
        with self._lock:
            transport = self._transport
            if only is not None and transport is not only:
                return
            self._leaving = True
            if transport is not None:
                self._engine.flush_acks()
        if transport is None:
            return
        self._send_outgoing(deadline)
        if acquire_until(self._send_lock, deadline):
            self._send_lock.release()  # another thread has finished its send, perhaps of an acknowledgement
        self._begin_wait()  # no thread may wait for room in a buffer now
        try:
            transport.shutdown()
            rx = self._rx
            if rx is not None and not self._runs_handlers():
                rx.join(JOIN_S)
                if rx.is_alive():
                    self._logger.warning("client %s: a handler has been running for %g s", self._name, JOIN_S)
        finally:
            self._end_wait()

    def _runs_handlers(self) -> bool:
        """Whether the calling thread runs handlers."""
        current = threading.current_thread()
        return current is self._rx or (self._dispatcher is not None and current is self._dispatcher.thread)

    def _lost(self, transport: SocketTransport, error: AMPSException | None) -> None:
        """Handle the loss of the connection; runs on the receive thread."""
        if self._disowned:
            return  # a handler has forked, and this is the child
        with self._lock:
            if self._transport is not transport:
                return
            self._transport = None
            leaving = self._leaving
            failure = error
            if not leaving and self._engine.dismissal is not None:
                failure = self._engine.dismissal  # more specific than the error of the socket
            elif failure is None and not leaving:
                failure = DisconnectedException("the server closed the connection")
            self._engine.connection_lost(time.monotonic(), failure)
            events = self._engine.events()
        self._dispatch(events)
        self.notice_room()
        self._notice_discard(0)
        self._rx = None  # no longer the receive thread: the disconnect handler may reconnect
        if self._closing:
            self._finish_close()
        elif not leaving and failure is not None:
            self._on_disconnect(failure)

    def _await_loss(self, transport: SocketTransport, deadline: float | None) -> bool:
        if threading.current_thread() is self._rx:
            return False
        self._begin_wait()  # the receive thread may not wait for room in a buffer now
        try:
            with self._discarded:
                return self._discarded.wait_for(
                    lambda: self._transport is not transport, left_until(deadline)
                )
        finally:
            self._end_wait()

    def _on_disconnect(self, error: AMPSException) -> None:
        """Handle a loss of the connection that the application did not request."""

    def _after_loss(self) -> Callable[[], None] | None:
        """Return work for the thread that has received on a lost connection; it must not hold the client."""
        return None

    def _finish_close(self) -> None:
        """Complete the final close, after the connection has ended."""
        with self._lock:
            if not self._closing:
                return  # another thread has done it
            self._closing = False
        self._states.note(ConnectionState.SHUTDOWN)
        self._dispatch([State(ConnectionState.SHUTDOWN)])
        process_timer().forget(self)
        self._tx_queue.put("stop")
        if self._dispatcher is not None:
            self._dispatcher.stop()

    def _begin_receiving(self) -> None:
        """Called when a receive thread has started."""
        if self._receive_started is not None:
            self._call(self._receive_started)

    def _received(self, transport: SocketTransport, data: bytes | memoryview | None) -> bool:
        """Process received bytes (None: none arrived in time); return whether to continue receiving."""
        engine = self._engine
        now = time.monotonic()
        if data is not None:
            self._bytes_in += len(data)
            if self._transport_filter is not None:
                self._call(self._transport_filter, bytes(data), False)
        with self._lock:
            if self._transport is not transport:
                return False
            self._delivering = True
            if data is None:
                engine.tick(now, reading=True)
            else:
                engine.receive(data, now)
            events = engine.events()
            signal = engine.has_outgoing
        if signal:
            self._signal_tx()
        closing: AMPSException | None = None
        for event in events:
            if type(event) is Close:
                closing = event.error
            else:
                self._dispatch_one(event)
        self._delivering = False
        if data is not None:
            engine.reading_again(time.monotonic())
        self._schedule()
        if closing is not None:
            if not isinstance(closing, ConnectionException):
                closing = DisconnectedException(str(closing))
            transport.shutdown()
            self._lost(transport, closing)
            return False
        return True

    def _silence_left(self) -> float | None:
        deadline = self._engine.silence_deadline()
        return None if deadline is None else deadline - time.monotonic()

    def set_global_handler(self, command: str, fn: Handler | None) -> None:
        """Set a handler for all messages of one type (`ack`, `publish` …), called before normal routing."""
        if fn is None:
            self._global_handlers.pop(command, None)
        else:
            self._global_handlers[command] = fn
        with self._lock:
            self._engine.set_global(command, fn is not None)

    # Waiting

    def _await(self, ticket: Ticket, timeout: Timeout) -> Message | None:
        """Wait until a ticket is settled; return its ack, or raise the exception it failed with."""
        if not ticket.awaited:
            return None
        waiter: threading.Event = ticket.waiter
        self._begin_wait()
        try:
            settled = waiter.wait(timeout)
        except BaseException:
            self._abandon(ticket)
            raise
        finally:
            self._end_wait()
        if not settled:
            self._abandon(ticket)
        if ticket.error is not None:
            raise ticket.error
        if not settled and ticket.ack is None and ticket.challenge is None:
            raise TimedOutException(f"no answer to {ticket.command} in time", command_id=ticket.command_id)
        return ticket.ack

    def _abandon(self, ticket: Ticket) -> None:
        with self._lock:
            self._engine.abandon(ticket, time.monotonic())
        self._after_call()

    def _begin_wait(self) -> None:
        with self._room:
            self._waiting_commands += 1
            self._room.notify_all()
        if self._dispatcher is not None:
            self._dispatcher.overfill(True)

    def _end_wait(self) -> None:
        with self._room:
            self._waiting_commands -= 1
        if self._dispatcher is not None:
            self._dispatcher.overfill(False)

    def _notice_discard(self, sequence: int) -> None:
        """Wake threads that wait for the store: it has discarded messages, or the connection is lost.

        Runs with the engine lock held, so no thread may acquire that lock while it holds the condition.
        """
        with self._discarded:
            self._discards += 1
            self._discarded.notify_all()

    # Calls of streams

    def wait_for_room(self, buffer: StreamBuffer) -> None:
        """Stop receiving until the buffer has room, unless a thread of this client waits for an answer."""
        with self._room:
            self._room.wait_for(lambda: buffer.has_room or self._waiting_commands or self._leaving)

    def notice_room(self) -> None:
        """Wake the receive thread: a buffer has room again."""
        with self._room:
            self._room.notify_all()

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream that is closed."""
        if route.closed:
            return
        with self._lock:
            self._engine.cancel(route)
        self._after_call()

    def end_stream_later(self, route: Route) -> None:
        """End a stream that was dropped without close(). Runs in a finaliser, where no lock may be taken."""
        if not route.closed:
            self._tx_queue.put(route)

    # Events

    def _dispatch(self, events: list[Event]) -> None:
        for event in events:
            self._dispatch_one(event)

    def _dispatch_one(self, event: Event) -> None:
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
            self._dispatcher.put(event, wait=threading.current_thread() is self._rx)
        else:
            self._run_state_or_event(event)

    def _run_state_or_event(self, event: Event) -> None:
        if type(event) is State:
            self._states.tell(lambda state: self._run_event(State(state)))
        else:
            self._run_event(event)
