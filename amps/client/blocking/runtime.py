"""The runtime of a blocking client: its threads, and the life of its connection.

Threads of a connected client:
- `amps-rx:<name>` receives bytes, passes them to the engine, calls handlers and listeners and fills stream buffers.
  It never makes a send that could block. Each connection starts a new one.
- `amps-tx:<name>` sends the rest of a burst of publishes, bytes that the socket did not accept at once, and the
  output of the receive thread (heartbeats, acknowledgement batches). It alone waits for a slow peer.
- `amps-timer`, one per process, only wakes the other threads.
- `amps-dispatch:<name>` runs the handlers instead of the receive thread if the client has dispatch="thread".
- `amps-work:<name>` are the threads of `consume` with a concurrency.

The parts: `wire` has what all share, `sender` writes, `delivery` gives events to the application, `waits` has the
threads that wait. A publish sends at once if the last one was a while ago. In a burst it leaves its bytes to the
sending thread until enough have accumulated.

Threads hold weak references to the runtime, and no part refers to it or to the client: a client that is dropped while
open is collected at once; it then issues a ResourceWarning and closes.
"""

import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Literal

from amps.client.blocking.consuming import Consumers
from amps.client.blocking.deadlines import deadline_of
from amps.client.blocking.delivery import Delivery
from amps.client.blocking.forking import RefusingLock, forked, watch
from amps.client.blocking.own_threads import ClientThread, ends_caller
from amps.client.blocking.sending import Sender
from amps.client.blocking.threads import receive_loop, send_loop
from amps.client.blocking.transport import SocketTransport
from amps.client.blocking.waits import Bounded, Waits
from amps.client.blocking.wire import Wire
from amps.client.enums import ConnectionState, Timeout
from amps.client.errors import AMPSException, DisconnectedException
from amps.client.frontend.calls import lost_by
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Close, Phase, Route, State

HANDLER_S = 5.0
"""The longest wait of a closing client for a handler that runs, in seconds."""
LOOK_S = 0.05
"""How often it looks whether one still runs."""


class Runtime:
    """The parts under a client's calls, its threads, and the connection from `attach` to its loss."""

    def __init__(
        self, engine: Engine, handlers: EventHandlers, dispatch: Literal["inline", "thread"], max_depth: int
    ) -> None:
        handlers.ends_program = ends_caller
        self.wire = Wire(engine, handlers)
        self.waits = Waits(self.wire)
        self.delivery = Delivery(self.wire, self.waits, dispatch, max_depth)
        self.sender = Sender(self.wire, self.waits, self.delivery)
        self.consumers = Consumers(self.wire.name, handlers, self.waits)
        self.bytes_in = 0
        self.delivering = False
        """Whether the receive thread is processing what it has received, or the loss of the connection."""
        self._sending: threading.Thread | None = None
        self._closing = False
        self._close_by: float | None = None
        """The deadline of the final close."""
        watch(self)

    def __del__(self) -> None:
        wire = getattr(self, "wire", None)
        if wire is None:  # the constructor has failed
            return
        if wire.transport is not None and not wire.disowned:
            warnings.warn(f"client {wire.name!r} was never closed", ResourceWarning, source=self, stacklevel=2)
            wire.transport.shutdown()
        if getattr(self, "_sending", None) is not None:
            self.sender.queue.put("stop")
            self.delivery.stop(0)

    def disown(self) -> None:
        """Make the client unusable in a forked child: the connection belongs to the parent."""
        wire = self.wire
        wire.disowned = True
        wire.lock = RefusingLock()
        wire.engine.phase = Phase.DISCONNECTED
        wire.engine.recovers = False
        if wire.transport is not None:
            wire.transport.close()  # closes the child's copy only: without a shutdown the connection stays open
            wire.transport = None
        for route in wire.engine.routes():
            route.closed = True
            if route.sink is not None:
                route.sink.disown(forked())

    # Connection

    def attach(self, transport: SocketTransport, made: Callable[[float], None]) -> None:
        """Take over a connected transport; `made` notifies the engine. If it raises, the transport is closed."""
        wire = self.wire
        self.delivery.start()
        outbox = transport.outbox = wire.engine.outbox
        try:
            with wire.lock:
                wire.check_usable()
                made(time.monotonic())
                wire.transport = transport
                outbox.blocked = transport.behind
                wire.leaving = False
                events = wire.engine.events()
        except BaseException:
            transport.shutdown()
            transport.close()
            raise
        try:
            self.delivery.deliver(events)
            if self._sending is None or not self._sending.is_alive():
                self._sending = ClientThread(
                    target=send_loop, args=(weakref.ref(self), self.sender.queue), name=f"amps-tx:{wire.name}",
                    daemon=True,
                )  # fmt: skip
                self._sending.start()
            receiver = ClientThread(
                target=receive_loop, args=(weakref.ref(self), transport), name=f"amps-rx:{wire.name}", daemon=True
            )
            with wire.lock:  # a thread that closes the client meanwhile joins no thread that has not begun
                wire.receiver = receiver
                receiver.start()
        except BaseException:  # an interrupt: perhaps nobody would receive
            wire.leaving = True
            transport.shutdown()
            receives = wire.receiver is not None and wire.receiver.is_alive()
            self.lost(transport, None)
            if not receives:
                transport.close()
            raise

    def leave(self, deadline: float | None, only: SocketTransport | None = None) -> None:
        """End the connection for the application; the receive thread does the rest.

        Until the deadline, accepted output is sent and a handler that runs may end. `only`: the connection whose making
        has failed; no effect on another one.
        """
        wire = self.wire
        with wire.lock:
            transport = wire.transport
            if only is not None and transport is not only:
                return
            wire.leaving = True
            if transport is not None:
                wire.engine.flush_acks()
        if transport is None:
            return
        self.sender.send(deadline)
        self.sender.settle(deadline)
        token = object()
        try:
            self.waits.begin(token)  # no thread may wait for room in a buffer now
            transport.shutdown()
            if not self.delivery.runs_handlers():
                self._await_end(transport, deadline if only is None else None)
        finally:
            self.waits.waiting.discard(token)

    def _await_end(self, transport: SocketTransport, deadline: float | None) -> None:
        """Wait until the receive thread has handled the end of the connection: at once, unless a handler runs."""
        wire = self.wire
        with wire.lock:
            receiver = wire.receiver if wire.transport in (transport, None) else None
        latest = time.monotonic() + HANDLER_S
        # What is not a handler is over soon, also if there is no time left.
        until = latest if deadline is None else max(min(deadline, latest), time.monotonic() + LOOK_S)
        while receiver is not None and receiver.is_alive():
            now = time.monotonic()
            if now >= (until if self.delivering else latest):
                wire.logger.warning("client %s: closed while a handler runs, which goes on", wire.name)
                return
            receiver.join(LOOK_S)

    def close(self, timeout: Timeout) -> None:
        """End everything; the client cannot be used again."""
        deadline = self._close_by = deadline_of(timeout)
        self.consumers.finish(deadline)
        self.wire.closed = True
        self._closing = True
        self.leave(deadline)
        if self.wire.transport is None:  # else a handler closes its client: the receive thread does the rest
            self._finish_close()

    def _finish_close(self) -> None:
        """Complete the final close, after the connection has ended."""
        with self.wire.lock:
            if not self._closing:
                return  # another thread has done it
            self._closing = False
        self.delivery.states.note(ConnectionState.SHUTDOWN)
        self.delivery.deliver([State(ConnectionState.SHUTDOWN)])
        self.sender.close()
        self.delivery.stop(HANDLER_S if self._close_by is None else min(HANDLER_S, self._close_by - time.monotonic()))
        policy = self.wire.policy()
        if policy is not None:
            policy.closed()

    # Calls of the threads

    def begin_receiving(self) -> None:
        """Called when a receive thread has started."""
        handlers = self.wire.handlers
        if handlers.receive_started is not None:
            self.delivering = True
            handlers.call(handlers.receive_started)
            self.delivering = False

    def silence_left(self) -> float | None:
        """Return the seconds of further silence after which the server counts as lost; None = no limit."""
        deadline = self.wire.engine.silence_deadline()
        return None if deadline is None else deadline - time.monotonic()

    def received(self, transport: SocketTransport, data: bytes | memoryview | None) -> bool:
        """Process received bytes (None: none arrived in time); return whether to continue receiving."""
        wire = self.wire
        engine, deliver_one = wire.engine, self.delivery.deliver_one
        now = time.monotonic()
        if data is not None:
            self.bytes_in += len(data)
            look = wire.handlers.transport_filter
            if look is not None:
                wire.handlers.call(look, bytes(data), False)
        with wire.lock:
            if wire.transport is not transport:
                return False
            self.delivering = True
            if data is None:
                engine.tick(now, reading=True)
            else:
                engine.receive(data, now)
            events = engine.events()
            signal = engine.has_outgoing
        if signal:
            self.sender.signal()
        closing: AMPSException | None = None
        for event in events:
            if type(event) is Close:
                closing = event.error
            else:
                deliver_one(event)
        self.delivering = False
        if data is not None:
            engine.reading_again(time.monotonic())
        self.sender.schedule()
        if closing is not None:
            transport.shutdown()
            self.lost(transport, closing)
            return False
        return True

    def lost(self, transport: SocketTransport, error: AMPSException | None) -> None:
        """Handle the loss of the connection; runs on the receive thread."""
        wire = self.wire
        if wire.disowned:
            return  # a handler has forked, and this is the child
        engine = wire.engine
        with wire.lock:
            if wire.transport is not transport:
                return
            wire.transport = None
            leaving = wire.leaving
            failure = lost_by(error)
            watched = any(route.handler is not None for route in engine.routes())
            if not leaving and engine.dismissal is not None:
                failure = engine.dismissal  # more specific than the error of the socket
            elif failure is None and not leaving:
                failure = DisconnectedException("the server closed the connection")
            engine.connection_lost(time.monotonic(), failure)
            events = engine.events()
        self.delivering = True
        self.delivery.deliver(events)
        self.delivering = False
        self.waits.notice_room()
        self.waits.notice_discard(0)
        wire.receiver = None  # no longer the receive thread: the disconnect handler may reconnect
        if self._closing:
            self._finish_close()
        elif not leaving and failure is not None:
            policy = wire.policy()
            if policy is not None:
                policy.lost(failure, watched=watched)

    def after_loss(self) -> Callable[[], None] | None:
        """Return work for the thread that has received on a lost connection; it must not hold the client."""
        policy = self.wire.policy()
        return policy.after_loss() if policy is not None else None

    # Calls of streams

    def wait_for_room(self, buffer: Bounded) -> None:
        """Stop receiving until the buffer has room, unless a thread of this client waits for an answer."""
        self.waits.wait_for_room(buffer)

    def notice_room(self) -> None:
        """Wake the receive thread: a buffer has room again."""
        self.waits.notice_room()

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream that is closed."""
        if route.closed:
            return
        with self.wire.lock:
            self.wire.engine.cancel(route)
        self.sender.after_call()

    def end_stream_later(self, route: Route) -> None:
        """End a stream that was dropped without close(). Runs in a finaliser, where no lock may be taken."""
        if not route.closed:
            self.sender.queue.put(route)
