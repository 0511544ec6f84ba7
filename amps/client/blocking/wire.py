"""What the threads of one client share: the engine and its lock, the transport in use, and whether calls are allowed.

The engine lock guards the engine and is never held during a blocking operation. `Wire` knows no other part of the
client; all parts know it.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from amps.client.blocking.forking import RefusingLock, forked
from amps.client.blocking.transport import SocketTransport
from amps.client.errors import AMPSException, DisconnectedException, UsageException
from amps.client.frontend.handlers import EventHandlers
from amps.client.protocol.engine import Engine
from amps.client.uri import ConnectionUri


class LossPolicy(Protocol):
    """What a client does about the loss of its connection: call a handler, or make another connection."""

    def makes_connection(self) -> bool:
        """Whether the calling thread is the one that makes the client's next connection."""

    def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        """Wait until a call that was refused for want of a connection may be repeated, or raise the refusal."""

    def lost(self, error: AMPSException, *, watched: bool) -> None:
        """Handle a loss that the application did not request; runs on the receive thread.

        `watched`: subscriptions with handlers were entered.
        """

    def after_loss(self) -> Callable[[], None] | None:
        """Return work for the thread that has received on a lost connection; it must not hold the client."""

    def closed(self) -> None:
        """Release what the policy owns: the client is closed for good."""


class Wire:
    """The engine, its lock and its transport."""

    def __init__(self, engine: Engine, handlers: EventHandlers) -> None:
        self.engine = engine
        self.handlers = handlers
        self.name = handlers.name
        self.logger = handlers.logger
        self.lock: threading.Lock | RefusingLock = threading.Lock()
        self.transport: SocketTransport | None = None
        self.uri: ConnectionUri | None = None
        """The connection string of the last connection."""
        self.receiver: threading.Thread | None = None
        """The receive thread of the connection."""
        self.policy: weakref.ref[LossPolicy] | Callable[[], None] = lambda: None
        """The client's policy. The client owns it; a policy may own the other parts, so no part owns it."""
        self.asked: set[threading.Thread] = set()
        """The threads that call an authenticator or a server chooser: the client waits for them."""
        self.leaving = False
        """Whether the application has ended the connection."""
        self.closed = False
        self.disowned = False
        """Whether this process is a forked child of the one that made the client."""

    def check_usable(self) -> None:
        """Raise UsageException if the client is closed, or was made before a fork."""
        if self.disowned:
            raise forked()
        if self.closed:
            raise UsageException("this client is closed: make a new one")

    def check_may_wait(self, what: str) -> None:
        """Raise UsageException on the receive thread: a call that waits there would never read its answer."""
        self.check_usable()
        if self.must_not_wait():
            raise UsageException(
                f"{what} waits for the server and was called on the receive thread, which would never read"
                ' the answer: use another thread, or make the client with dispatch="thread"'
            )

    def must_not_wait(self) -> bool:
        """Whether the calling thread would wait for itself if it waited for the server."""
        current = threading.current_thread()
        if current is self.receiver or current in self.asked:
            return True
        policy = self.policy()
        return policy is not None and policy.makes_connection()

    def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        """Wait until a refused call may be repeated, if the client makes another connection; else raise the refusal."""
        self.check_usable()
        policy = self.policy()
        if policy is None:
            raise refused
        policy.await_server(refused, deadline)
