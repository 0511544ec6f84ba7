"""The loops of a client's receive thread and sending thread.

Both hold weak references to their runtime while they wait: a client that is dropped while open can
be collected, and its threads then end.
"""

import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal, Protocol

from amps.client.blocking.transport import SocketTransport
from amps.client.blocking.wire import Wire
from amps.client.errors import AMPSException, DisconnectedException, StreamException
from amps.client.protocol.engine_types import Route

SendQueue = SimpleQueue[Route | Literal["stop"] | None]
"""Requests to the sending thread: None to send, a route to end, `stop`."""


class Worked(Protocol):
    """The interface of the runtime that the threads use."""

    wire: Wire
    sender: "Sending"

    def begin_receiving(self) -> None:
        """Called when a receive thread has started."""

    def silence_left(self) -> float | None:
        """Return the seconds of further silence after which the server counts as lost; None = no limit."""

    def received(self, transport: SocketTransport, data: bytes | memoryview | None) -> bool:
        """Process received bytes (None: none arrived in time); return whether to continue receiving."""

    def lost(self, transport: SocketTransport, error: AMPSException | None) -> None:
        """Handle the loss of the connection."""

    def after_loss(self) -> Callable[[], None] | None:
        """Return work for the thread that has received on a lost connection; it must not hold the runtime."""

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream."""


class Sending(Protocol):
    """The interface of the part that sends."""

    def send_signalled(self) -> None:
        """Send the output that is ready."""


def receive_loop(reference: "weakref.ref[Worked]", transport: SocketTransport) -> None:
    """The receive thread of one connection."""
    runtime = reference()
    if runtime is not None:
        runtime.begin_receiving()
    going = True
    while going:
        runtime = reference()
        if runtime is None:
            break
        silence_s = runtime.silence_left()
        del runtime
        failure: AMPSException | None = None
        try:
            data = transport.receive(silence_s)
        except OSError as error:
            data, failure = b"", DisconnectedException(f"the connection was lost: {error}")
        runtime = reference()
        if runtime is None:
            break
        try:
            if data is not None and not len(data):
                runtime.lost(transport, None if runtime.wire.leaving else failure)
                going = False
            else:
                going = runtime.received(transport, data)
        except BaseException as error:  # also SystemExit of a handler: no reader is left
            runtime.wire.logger.exception("client %s: the receive thread failed", runtime.wire.name)
            runtime.lost(transport, StreamException(f"the receive thread failed: {error}"))
            going = False
        del runtime
    transport.shutdown()
    transport.close()
    runtime = reference()
    following = runtime.after_loss() if runtime is not None else None
    del runtime
    if following is not None:
        following()


def send_loop(reference: "weakref.ref[Worked]", queue: SendQueue) -> None:
    """The sending thread: it sends when signalled and ends dropped streams."""
    while (item := queue.get()) != "stop":
        runtime = reference()
        if runtime is None:
            return
        if item is None:
            runtime.sender.send_signalled()
        else:
            runtime.end_stream(item)
        del runtime
