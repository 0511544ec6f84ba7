"""Making a connection and making it again after a loss, for HAClient: the waiting and the threads of failover.

A `Run` lasts from the first attempt until the client is connected and recovered, or gives up. There is at most one.
The first one is run by the thread that calls `connect_and_logon`, each later one by the thread that has received on the
lost connection; each attempt's connection gets a receive thread of its own. What is tried, and when, is decided in
`amps.client.servers.failover`; what is sent, in the engine.

`stop` ends a run at once: it wakes the waits and shuts down the socket that is being connected.
"""

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from amps.client.blocking.sending import left_until
from amps.client.blocking.states import StateQueue
from amps.client.enums import Timeout
from amps.client.errors import DisconnectedException, TimedOutException
from amps.client.frontend.servers import RefusedSubscription
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import RecoveryFailed
from amps.client.servers.failover import Attempt


class Run:
    """One sequence of attempts."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.stopped = False
        self.ended = False
        self.error: Exception | None = None
        """Why the run has ended without a connection."""
        self._socket: socket.socket | None = None
        self._guard = threading.Condition()

    def check(self) -> None:
        """Raise DisconnectedException if the run was stopped."""
        if self.stopped:
            raise DisconnectedException("the client was disconnected while it connected")

    def dialling(self, sock: socket.socket) -> None:
        """Note the socket that is being connected."""
        with self._guard:
            self.check()
            self._socket = sock

    def dialled(self) -> None:
        """Note that no socket is being connected."""
        with self._guard:
            self._socket = None

    def stop(self) -> None:
        """End the run at once."""
        with self._guard:
            self.stopped = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            self._guard.notify_all()

    def sleep(self, seconds: float) -> None:
        """Wait; return early if the run is stopped."""
        with self._guard:
            self._guard.wait_for(lambda: self.stopped, seconds)


class Reconnecting(Protocol):
    """The interface of the client that a run uses."""

    def _begin_attempt(self, run: Run) -> Attempt | None:
        """Return the next attempt; None if the run has ended."""

    def _make_attempt(self, run: Run, attempt: Attempt, deadline: float | None) -> bool:
        """Try a server; return whether the run has ended."""


def reconnect_loop(reference: "weakref.ref[Reconnecting]", run: Run) -> None:
    """Make attempts until one succeeds. While it waits, it does not keep the client alive."""
    ended = False
    while not ended:
        client = reference()
        attempt = client._begin_attempt(run) if client is not None else None
        del client
        if attempt is None:
            return
        run.sleep(attempt.wait_s)
        client = reference()
        if client is None:
            return
        ended = client._make_attempt(run, attempt, None)
        del client


def await_recovery(
    run: Run,
    engine: Engine,
    states: StateQueue,
    *,
    limit_s: Timeout,
    deadline: float | None,
    progress: Callable[[], object],
    accept: RefusedSubscription | None,
    leave_out: Callable[[RecoveryFailed], None],
) -> None:
    """Wait until the engine is ready. Raises the reason if the connection is lost or a subscription is refused.

    `limit_s` begins again whenever the recovery makes progress, which `progress` shows by returning another value.
    """

    def changed() -> bool:
        return engine.ready or not engine.logged_on or engine.refusal is not None or run.stopped

    while True:
        seen = (engine.recovery_progress, progress())
        limits = [limit for limit in (limit_s, left_until(deadline)) if limit is not None]
        settled = states.wait_for(changed, min(limits, default=None))
        run.check()
        refused = engine.refusal
        if engine.ready:
            return
        if not engine.logged_on:
            raise engine.lost_by or DisconnectedException("the connection was lost during its recovery")
        if refused is not None:
            if accept is None or not accept(refused.command, refused.error):
                raise refused.error
            leave_out(refused)
        elif not settled and (
            seen == (engine.recovery_progress, progress()) or left_until(deadline) == 0
        ):
            raise TimedOutException("the recovery of the connection did not end in time")
