"""Sending the engine's output through the socket, and the time a call may wait for that.

A call of the application never blocks in the socket after the engine has accepted its command. It sends the bytes
that the socket accepts at once and leaves the rest to the sending thread. The wait comes before: while the connection
is *behind*, which means that the peer does not read and the socket accepted only a part, a call first waits for room,
within its time limit. After that it raises TimedOutException, and the engine has accepted nothing from it.

The transport keeps bytes that the socket did not accept and sends them first: no frame follows a part of another one.

Locks: the send lock is held while bytes are written, so that order of the engine's output is order on the wire. The
engine lock is acquired while the send lock is held, never the other way round. A thread that cannot get the send lock
at once relies on its holder, which checks for more output after releasing it.
"""

import threading
import time
from queue import SimpleQueue

from amps.client.blocking.forking import RefusingLock
from amps.client.blocking.threads import SendQueue
from amps.client.blocking.timers import process_timer
from amps.client.blocking.transport import SocketTransport
from amps.client.enums import Timeout
from amps.client.errors import DisconnectedException, TimedOutException
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.command import check_timeout
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Event

AT_ONCE = 0.0
"""A deadline in the past: send only the bytes that the socket accepts at once."""


class Sending(EventHandlers):
    """The sending side of a client's runtime. The client's constructor sets the attributes below."""

    _engine: Engine
    _lock: "threading.Lock | RefusingLock"
    _transport: SocketTransport | None

    def _begin_sending(self) -> None:
        self._send_lock = threading.Lock()
        self._tx_queue: SendQueue = SimpleQueue()
        self._outbox = self._engine.outbox
        self._bytes_out = 0

    @property
    def _behind(self) -> bool:
        """Whether the peer reads too slowly: bytes wait in the transport."""
        transport = self._transport
        return transport is not None and transport.behind

    def _make_room(self, what: str, deadline: float | None) -> None:
        """Wait until the transport has sent all bytes it keeps. Raises TimedOutException, DisconnectedException."""
        over = False
        while (transport := self._transport) is not None and transport.behind:
            if transport.broken:
                if self._await_loss(transport, deadline):
                    return  # the engine knows the reason and refuses the call
                raise DisconnectedException(f"{what}: the connection was lost")
            if over:
                raise TimedOutException(
                    f"{what} was not sent in time: the server does not read what was sent before"
                )
            self._send_outgoing_once(deadline)
            over = deadline is not None and time.monotonic() >= deadline
        if self._engine.has_outgoing:
            self._signal_tx()  # output of threads that could not get the send lock

    def _send_outgoing(self, deadline: float | None = AT_ONCE, *, patient: bool = True) -> None:
        """Send the engine's output until the deadline (None: all of it); the sending thread sends the rest.

        Unless `patient`, return at once if another thread is sending.
        """
        while self._engine.has_outgoing or self._behind:
            if not self._send_outgoing_once(deadline, patient=patient):
                return

    def _send_outgoing_once(self, deadline: float | None = AT_ONCE, *, patient: bool = True) -> bool:
        """Send the output that is ready, of a replay one part. False: another thread sends, or the deadline passed."""
        at_once = deadline == AT_ONCE or not patient
        if not (self._send_lock.acquire(False) if at_once else acquire_until(self._send_lock, deadline)):
            return False
        engine = self._engine
        transport = self._transport
        events: list[Event] | None = None
        try:
            # While the transport keeps bytes, no more are taken from the engine: the waiting bytes stay bounded.
            if transport is None or not transport.behind or self._write(transport, [], deadline):
                with self._lock:
                    transport = self._transport
                    chunks = engine.outgoing()
                    if engine.has_events:
                        events = engine.events()
                if chunks and transport is not None:
                    self._write(transport, chunks, deadline)
        finally:
            self._send_lock.release()
            if transport is not None and transport.behind and not transport.broken:
                self._signal_tx()
        if events:
            self._dispatch(events)
        return transport is None or not transport.behind

    def _write(self, transport: SocketTransport, chunks: list[bytes], deadline: float | None) -> bool:
        if transport.broken:
            return False
        self._bytes_out += sum(map(len, chunks))
        if chunks and self._transport_filter is not None:
            self._call(self._transport_filter, b"".join(chunks), True)
        try:
            return transport.send(chunks, deadline)
        except OSError:
            transport.shutdown()  # the receive thread notices it and handles the lost connection
            return False

    def _signal_tx(self) -> None:
        if not self._outbox.signalled:
            self._outbox.signalled = True
            self._tx_queue.put(None)

    def _send_signalled(self) -> None:
        """Send after a signal to the sending thread; if another thread is sending, it does the work instead."""
        self._outbox.signalled = False
        self._send_outgoing(None, patient=False)

    def _send_publish(self) -> None:
        """Send after a publish: at once, or with more of the burst by the sending thread."""
        outbox = self._outbox
        if outbox.burst:
            self._signal_tx()
        else:
            self._send_outgoing()
            outbox.note_sent()

    def _after_call(self) -> None:
        """After an engine call of the application: send output, dispatch events, and set the timer."""
        self._send_outgoing()
        with self._lock:
            events = self._engine.events() if self._engine.has_events else None
        if events:
            self._dispatch(events)
        self._schedule()

    def _schedule(self) -> None:
        deadline = self._engine.deadline()
        if deadline is not None:
            process_timer().schedule(self, deadline)

    def on_timer(self, now: float) -> float | None:
        """Heartbeats and timed acknowledgement batches; runs on the timer thread, so it only signals."""
        with self._lock:
            self._engine.tick(now)
            signal = self._engine.has_outgoing
            following = self._engine.deadline()
        if signal:
            self._signal_tx()
        return following

    def _dispatch(self, events: list[Event]) -> None:
        raise NotImplementedError

    def _await_loss(self, transport: SocketTransport, deadline: float | None) -> bool:
        """Wait until the receive thread has handled the loss of the connection. False: it has not by the deadline."""
        raise NotImplementedError


def deadline_of(timeout: Timeout) -> float | None:
    """Return the deadline of a time limit that starts now."""
    seconds = check_timeout(timeout)
    return None if seconds is None else time.monotonic() + seconds


def acquire_until(lock: threading.Lock, deadline: float | None) -> bool:
    """Acquire a lock, waiting until the deadline (None: for ever). False: another thread still holds it."""
    if deadline is None:
        return lock.acquire()
    return lock.acquire(timeout=min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))


def left_until(deadline: float | None) -> float | None:
    """Return the seconds left, never negative; None for no deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
