"""Sending the engine's output through the socket, and the time a call may wait for that.

A call of the application never blocks in the socket after the engine has accepted its command. It sends the bytes
that the socket accepts at once and leaves the rest to the sending thread. The wait comes before: while the connection
is *behind*, which means that the peer does not read and the socket accepted only a part, a call first waits for room,
within its time limit. After that it raises TimedOutException, and the engine has accepted nothing from it.

The transport keeps bytes that the socket did not accept and sends them first: no frame follows a part of another one.
Nobody knows how much an interrupted send has sent (Ctrl-C, on the main thread): its connection ends.

Locks: one thread at a time has the turn to send, so that order of the engine's output is order on the wire. The
engine lock is acquired in a turn, never the other way round. A thread that cannot get the turn at once relies on its
holder, which checks for more output afterwards.
"""

import time
from queue import SimpleQueue

from amps.client.blocking.deadlines import AT_ONCE
from amps.client.blocking.delivery import Delivery
from amps.client.blocking.threads import SendQueue
from amps.client.blocking.timers import process_timer
from amps.client.blocking.transport import SocketTransport
from amps.client.blocking.turns import Turn
from amps.client.blocking.waits import Waits
from amps.client.blocking.wire import Wire
from amps.client.errors import DisconnectedException, TimedOutException
from amps.client.protocol.engine_types import Event


class Sender:
    """Sends what the engine has for the connection."""

    def __init__(self, wire: Wire, waits: Waits, delivery: Delivery) -> None:
        self.queue: SendQueue = SimpleQueue()
        """Requests to the sending thread."""
        self._wire = wire
        self._waits = waits
        self._delivery = delivery
        self._outbox = wire.engine.outbox
        self._turn = Turn()
        self._interruptible: SocketTransport | None = None
        """The transport that the holder of the turn may be sending through."""
        self._bytes_out = 0

    @property
    def bytes_out(self) -> int:
        """The bytes that the socket has accepted."""
        transport = self._wire.transport
        return self._bytes_out - (transport.unsent_bytes if transport is not None else 0)

    @property
    def behind(self) -> bool:
        """Whether the peer reads too slowly: bytes wait in the transport."""
        transport = self._wire.transport
        return transport is not None and transport.behind

    def make_room(self, what: str, deadline: float | None) -> None:
        """Wait until the transport has sent all bytes it keeps. Raises TimedOutException, DisconnectedException."""
        over = False
        while (transport := self._wire.transport) is not None and transport.behind:
            if transport.broken:
                if self._waits.until_lost(transport, deadline):
                    return  # the engine knows the reason and refuses the call
                raise DisconnectedException(f"{what}: the connection was lost")
            if over:
                raise TimedOutException(
                    f"{what} was not sent in time: the server does not read what was sent before"
                )
            self.send_once(deadline)
            over = deadline is not None and time.monotonic() >= deadline
        if self._wire.engine.has_outgoing:
            self.signal()  # output of threads that could not get the turn

    def send(self, deadline: float | None = AT_ONCE, *, patient: bool = True) -> None:
        """Send the engine's output until the deadline (None: all of it); the sending thread sends the rest.

        Unless `patient`, return at once if another thread is sending.
        """
        while self._wire.engine.has_outgoing or self.behind:
            if not self.send_once(deadline, patient=patient):
                return

    def send_once(self, deadline: float | None = AT_ONCE, *, patient: bool = True) -> bool:
        """Send the output that is ready, of a replay one part. False: another thread sends, or the deadline passed."""
        wire, turn, claim = self._wire, self._turn, object()
        engine = wire.engine
        events: list[Event] | None = None
        try:
            if not turn.take(claim, deadline if patient else AT_ONCE):
                return False
            transport = wire.transport
            self._interruptible = transport
            # While the transport keeps bytes, no more are taken from the engine: the waiting bytes stay bounded.
            if transport is None or not transport.behind or self._write(transport, [], deadline):
                with wire.lock:
                    self._interruptible = transport = wire.transport
                    chunks = engine.outgoing()
                    if engine.has_events:
                        events = engine.events()
                if chunks and transport is not None:
                    self._write(transport, chunks, deadline)
            self._interruptible = None
        finally:
            if turn.holder is claim:
                interrupted = self._interruptible
                self._interruptible = None
                if interrupted is not None:
                    interrupted.broken = True  # no thread may write behind a part of a frame
                turn.holder = None
                if interrupted is not None and not wire.disowned:
                    interrupted.shutdown()
                turn.wake()
        if transport is not None and transport.behind and not transport.broken:
            self.signal()
        if events:
            self._delivery.deliver(events)
        return transport is None or not transport.behind

    def settle(self, deadline: float | None) -> None:
        """Wait until another thread has finished its send, perhaps of an acknowledgement."""
        turn, claim = self._turn, object()
        try:
            turn.take(claim, deadline)
        finally:
            if turn.holder is claim:
                turn.holder = None
                turn.wake()

    def _write(self, transport: SocketTransport, chunks: list[bytes], deadline: float | None) -> bool:
        if transport.broken:
            return False
        self._bytes_out += sum(map(len, chunks))
        look = self._wire.handlers.transport_filter
        if chunks and look is not None:
            self._wire.handlers.call(look, b"".join(chunks), True)
        try:
            return transport.send(chunks, deadline)
        except OSError:
            transport.shutdown()  # the receive thread notices it and handles the lost connection
            return False

    def signal(self) -> None:
        """Let the sending thread send."""
        if not self._outbox.signalled:
            self._outbox.signalled = True
            self.queue.put(None)

    def send_signalled(self) -> None:
        """Send after a signal to the sending thread; if another thread is sending, it does the work instead."""
        self._outbox.signalled = False
        self.send(None, patient=False)

    def send_publish(self) -> None:
        """Send after a publish: at once, or with more of the burst by the sending thread."""
        outbox = self._outbox
        if outbox.burst:
            self.signal()
        else:
            self.send()
            outbox.note_sent()

    def after_call(self) -> None:
        """After an engine call of the application: send output, deliver events, and set the timer."""
        self.send()
        engine = self._wire.engine
        with self._wire.lock:
            events = engine.events() if engine.has_events else None
        if events:
            self._delivery.deliver(events)
        self.schedule()

    # Timers

    def schedule(self) -> None:
        """Set the timer for the engine's timed work: heartbeats and batches of acknowledgements."""
        deadline = self._wire.engine.deadline()
        if deadline is not None:
            process_timer().schedule(self, deadline)

    def on_timer(self, now: float) -> float | None:
        """Do the timed work; runs on the timer thread, so it only signals."""
        engine = self._wire.engine
        with self._wire.lock:
            engine.tick(now)
            signal = engine.has_outgoing
            following = engine.deadline()
        if signal:
            self.signal()
        return following

    def close(self) -> None:
        """End the timer and the sending thread."""
        process_timer().forget(self)
        self.queue.put("stop")
