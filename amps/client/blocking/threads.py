"""The loops of a client's receive thread and sending thread.

Both hold weak references to their client while they wait: a client that is dropped while open can
be collected, and its threads then end.
"""

import logging
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Literal, Protocol

from amps.client.blocking.transport import SocketTransport
from amps.client.errors import AMPSException, DisconnectedException, StreamException
from amps.client.protocol.engine_types import Route

SendQueue = SimpleQueue[Route | Literal["stop"] | None]
"""Requests to the sending thread: None to send, a route to end, `stop`."""


class Worked(Protocol):
    """The interface of the client that the threads use."""

    _name: str
    _logger: logging.Logger
    _leaving: bool

    def _begin_receiving(self) -> None:
        """Called when a receive thread has started."""

    def _silence_left(self) -> float | None:
        """Return the seconds of further silence after which the server counts as lost; None = no limit."""

    def _received(self, transport: SocketTransport, data: bytes | memoryview | None) -> bool:
        """Process received bytes (None: none arrived in time); return whether to continue receiving."""

    def _lost(self, transport: SocketTransport, error: AMPSException | None) -> None:
        """Handle the loss of the connection."""

    def _after_loss(self) -> Callable[[], None] | None:
        """Return work for the thread that has received on a lost connection; it must not hold the client."""

    def _send_signalled(self) -> None:
        """Send the output that is ready."""

    def end_stream(self, route: Route) -> None:
        """End the subscription or query of a stream."""


def receive_loop(reference: "weakref.ref[Worked]", transport: SocketTransport) -> None:
    """The receive thread of one connection."""
    client = reference()
    if client is not None:
        client._begin_receiving()
    going = True
    while going:
        client = reference()
        if client is None:
            break
        silence_s = client._silence_left()
        del client
        failure: AMPSException | None = None
        try:
            data = transport.receive(silence_s)
        except OSError as error:
            data, failure = b"", DisconnectedException(f"the connection was lost: {error}")
        client = reference()
        if client is None:
            break
        try:
            if data is not None and not len(data):
                client._lost(transport, None if client._leaving else failure)
                going = False
            else:
                going = client._received(transport, data)
        except BaseException as error:  # also SystemExit of a handler: no reader is left
            client._logger.exception("client %s: the receive thread failed", client._name)
            client._lost(transport, StreamException(f"the receive thread failed: {error}"))
            going = False
        del client
    transport.shutdown()
    transport.close()
    client = reference()
    following = client._after_loss() if client is not None else None
    del client
    if following is not None:
        following()


def send_loop(reference: "weakref.ref[Worked]", queue: SendQueue) -> None:
    """The sending thread: it sends when signalled and ends dropped streams."""
    while (item := queue.get()) != "stop":
        client = reference()
        if client is None:
            return
        if item is None:
            client._send_signalled()
        else:
            client.end_stream(item)
        del client
