"""Making a connection and making it again after a loss, for HAClient (client.md §9, §19.5).

A `Run` lasts from the first attempt until the client is connected and recovered, or gives up. There is at most one.
The first one is run by the thread that calls `connect_and_logon`, each later one by the thread that has received on the
lost connection; each attempt's connection gets a receive thread of its own. What is tried, and when, is decided in
`amps.client.servers.failover`; what is sent, in the engine.

`stop` ends a run at once: it wakes the waits and shuts down the socket that is being connected. While a run waits for
its next attempt, it does not keep the client alive.
"""

import contextlib
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from functools import partial

from amps.client.blocking.asking import ask
from amps.client.blocking.changes import Changes
from amps.client.blocking.connecting import Connector
from amps.client.blocking.deadlines import AT_ONCE, deadline_of, left_until
from amps.client.blocking.runtime import Runtime
from amps.client.blocking.states import StateQueue
from amps.client.enums import Timeout
from amps.client.errors import (
    AlreadyConnectedException,
    AMPSException,
    ConnectionException,
    DisconnectedException,
    TimedOutException,
)
from amps.client.frontend.servers import RefusedSubscription
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import RecoveryFailed
from amps.client.protocol.store_interfaces import BookmarkStore, PublishStore
from amps.client.servers.failover import Ask, Attempt, Failover
from amps.client.uri import without_password

REPORT_S = 1.0
"""How long a report to the application's chooser may take at least, in seconds."""


class Run:
    """One sequence of attempts."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.stopped = False
        self.ended = False
        self.error: Exception | None = None
        """Why the run has ended without a connection."""
        self._socket: socket.socket | None = None
        self._guard = threading.Lock()
        self._stops = Changes()

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
        self._stops.notify()

    def sleep(self, seconds: float) -> None:
        """Wait; return early if the run is stopped."""
        self._stops.wait_for(lambda: self.stopped, seconds)


class Reconnector:
    """The policy of a client that chooses its server and reconnects by itself."""

    def __init__(
        self,
        runtime: Runtime,
        connector: Connector,
        failover: Failover,
        attempt_timeout: Timeout,
        accepts_refusal: RefusedSubscription | None,
    ) -> None:
        self.attempt_timeout = attempt_timeout
        self.failover = failover
        self.run: Run | None = None
        """The run that is under way."""
        self.own_stores: list[PublishStore | BookmarkStore] = []
        """The stores that are closed with the client."""
        self._runtime = runtime
        self._wire = runtime.wire
        self._engine = runtime.wire.engine
        self._states = runtime.delivery.states
        self._handlers = runtime.wire.handlers
        self._logger = runtime.wire.logger
        self._connector = connector
        self._accepts_refusal = accepts_refusal

    def __del__(self) -> None:
        run = getattr(self, "run", None)
        if run is not None and not self._wire.disowned:
            warnings.warn(
                f"client {self._wire.name!r} was never closed", ResourceWarning, source=self, stacklevel=2
            )
            run.stop()

    def connect(self, timeout: Timeout) -> None:
        """Connect, log on and recover, or wait until another thread has done so."""
        self._wire.check_may_wait("connect_and_logon")
        deadline = deadline_of(timeout)
        mine: Run | None = None
        try:
            with self._wire.lock:
                run = self.run
                if run is None:
                    if self._engine.connected:
                        raise AlreadyConnectedException(f"client {self._wire.name!r} is connected; disconnect first")
                    mine = run = self.run = Run(threading.current_thread())
                    self._engine.recovers = True
            if mine is not None:
                self._connect_first(mine, deadline)
            elif not self._states.wait_for(lambda: run.ended, left_until(deadline)):
                raise self._not_in_time()
        except BaseException as error:
            if mine is not None:
                self.end_run(mine, error)
            raise
        if run.error is not None:
            raise run.error

    def _connect_first(self, run: Run, deadline: float | None) -> None:
        ended = False
        while not ended:
            attempt = self.begin_attempt(run, deadline)
            if attempt is None:
                return
            left_s = left_until(deadline)
            run.sleep(attempt.wait_s if left_s is None else min(attempt.wait_s, left_s))
            ended = left_until(deadline) != 0 and self.make_attempt(run, attempt, deadline)
            if not ended and left_until(deadline) == 0:
                raise self._not_in_time()

    def _not_in_time(self) -> TimedOutException:
        last = self.failover.info.last_error
        return TimedOutException(f"no connection in time{f': {last}' if last is not None else ''}")

    def stop(self, error: DisconnectedException) -> None:
        """End reconnecting; what waits for a connection fails, and routes end when the connection does."""
        with self._wire.lock:
            run, self.run = self.run, None
            unsent = self._engine.unsent_count
            self._engine.give_up(None)
        self._handlers.warn_of_unsent(unsent)
        self._handlers.call(self.failover.left)
        if run is not None:
            run.error, run.ended = error, True
            run.stop()
        self._states.note(None)
        self._runtime.waits.notice_discard(0)
        self._runtime.sender.after_call()

    # Attempts

    def _ask(self, deadline: float | None) -> Ask:
        """How the application's chooser and strategy are called."""
        return partial(ask, self._wire, what="the server chooser", deadline=deadline)

    def _report_by(self, deadline: float | None) -> Ask:
        """How reports are made to them, also at the end of the time."""
        return self._ask(None if deadline is None else max(deadline, time.monotonic() + REPORT_S))

    def begin_attempt(self, run: Run, deadline: float | None) -> Attempt | None:
        """Ask for the next attempt; None if the run has ended."""
        if run.stopped or self._wire.disowned:
            return None
        try:
            return self.failover.next_attempt(self._ask(deadline))
        except Exception as error:
            self.end_run(run, error)
            return None

    def make_attempt(self, run: Run, attempt: Attempt, deadline: float | None) -> bool:
        """Try a server; return whether the run has ended: the client is ready, or no further attempt is made."""
        try:
            return self._attempt_ends(run, attempt, deadline)
        except Exception as error:  # of the application's chooser
            self.end_run(run, error)
            return True

    def _attempt_ends(self, run: Run, attempt: Attempt, deadline: float | None) -> bool:
        if run.stopped:
            return True
        try:
            self._try_server(run, attempt, deadline)
        except Exception as error:
            return run.stopped or self._failed(attempt, error, deadline)
        self._logger.info("client %s: connected to %s", self._wire.name, without_password(attempt.uri))
        self._handlers.call(self.failover.succeeded, self._engine.server_version, self._report_by(deadline))
        with self._wire.lock:
            if self.run is not run:
                return True
            ready, lost_by = self._engine.ready, self._engine.lost_by
            if ready:
                self.run = None
        if not ready:
            lost_by = lost_by or DisconnectedException("the connection was lost at once")
            return self._failed(attempt, lost_by, deadline)
        run.ended = True
        self._states.note(None)
        return True

    def _try_server(self, run: Run, attempt: Attempt, deadline: float | None) -> None:
        limit = deadline_of(self.attempt_timeout)
        limits = [moment for moment in (limit, deadline) if moment is not None]
        until = min(limits, default=None)

        def check() -> None:
            if self.run is not run:
                raise DisconnectedException("the client was disconnected while it connected")

        try:
            self._connector.connect(attempt.uri, until, opened=run.dialling, check=check)
        finally:
            run.dialled()
        with self._wire.lock:
            run.check()
            transport = self._wire.transport
        if transport is None:
            raise self._engine.lost_by or DisconnectedException("the connection was lost at once")
        try:
            self._connector.log_on(transport, attempt.authenticator, None, left_until(until))
            self._recover(run, deadline)
        except BaseException:
            self._runtime.leave(AT_ONCE, transport)  # what survives a loss is kept for the next attempt
            raise

    def _recover(self, run: Run, deadline: float | None) -> None:
        runtime = self._runtime
        with self._wire.lock:
            run.check()
            self._engine.recover(time.monotonic())
        runtime.sender.after_call()
        token = object()
        try:
            runtime.waits.begin(token)  # the acknowledgements may follow messages that fill a stream's buffer
            await_recovery(
                run,
                self._engine,
                self._states,
                limit_s=self.attempt_timeout,
                deadline=deadline,
                progress=lambda: time.monotonic() if runtime.delivering else runtime.bytes_in,
                accept=self._accepts_refusal,
                leave_out=self._leave_out,
            )
        finally:
            runtime.waits.waiting.discard(token)

    def _leave_out(self, refused: RecoveryFailed) -> None:
        self._logger.warning(
            "client %s: the subscription %s is not entered again: %s",
            self._wire.name, refused.command.sub_id, refused.error,
        )  # fmt: skip
        with self._wire.lock:
            self._engine.leave_out(refused)
        self._runtime.sender.after_call()

    def _failed(self, attempt: Attempt, error: Exception, deadline: float | None) -> bool:
        """Note that an attempt has failed; return False, since the run goes on."""
        self._logger.warning(
            "client %s: no connection to %s: %s",
            self._wire.name, without_password(attempt.uri), str(error) or type(error).__name__,
        )  # fmt: skip
        _strip(error)
        if not isinstance(error, AlreadyConnectedException):  # a handler delays the end of the last connection
            self.failover.failed(error, self._report_by(deadline))
        return False

    def end_run(self, run: Run, error: BaseException) -> None:
        """Give up: no server can be reached, or the application's chooser has failed."""
        reason = error if isinstance(error, AMPSException) else ConnectionException(repr(error))
        with self._wire.lock:
            if self.run is not run:
                return
            self.run = None
            unsent = self._engine.unsent_count
            self._engine.give_up(reason)
        self._handlers.warn_of_unsent(unsent)
        self._handlers.call(self.failover.left)
        run.error, run.ended = error if isinstance(error, Exception) else reason, True
        self._states.note(None)
        self._runtime.waits.notice_discard(0)
        self._runtime.sender.after_call()

    # The policy

    def makes_connection(self) -> bool:
        run = self.run
        return run is not None and run.thread is threading.current_thread()

    def await_server(self, refused: DisconnectedException, deadline: float | None) -> None:
        engine, waits, token = self._engine, self._runtime.waits, object()
        if not engine.recovers or not engine.config.retry or self._wire.must_not_wait():
            raise refused
        try:
            waits.begin(token)
            self._states.wait_for(lambda: engine.ready or not engine.recovers, left_until(deadline))
        finally:
            waits.waiting.discard(token)
        self._wire.check_usable()
        if not engine.ready:
            raise refused

    def lost(self, error: AMPSException, *, watched: bool) -> None:
        server = without_password(self._connector.uri or "")
        self._handlers.connection_lost(error, server, handled=self._engine.recovers, watched=watched)
        with self._wire.lock:
            if self.run is not None or not self._engine.recovers:
                return
            self.run = Run(threading.current_thread())
        self._logger.warning("client %s: lost the connection to %s: %s", self._wire.name, server, error)
        self.failover.lost(error)

    def after_loss(self) -> Callable[[], None] | None:
        run = self.run
        if run is None or run.thread is not threading.current_thread():
            return None
        reference = weakref.ref(self)

        def reconnect() -> None:
            try:
                _reconnect(reference, run)
            except BaseException as error:  # also SystemExit of a chooser: nobody would reconnect
                reconnector = reference()
                if reconnector is not None:
                    reconnector.end_run(run, error)
            reconnector = reference()
            if reconnector is not None and run.error is not None and not run.stopped:
                reconnector.report(run.error)

        return reconnect

    def report(self, error: Exception) -> None:
        """Tell the application that reconnecting has ended."""
        if self._handlers.exception_listener is not None:
            self._handlers.call(self._handlers.exception_listener, error)
        else:
            self._logger.error("client %s: reconnecting has ended: %s", self._wire.name, error)

    def closed(self) -> None:
        stores, self.own_stores = self.own_stores, []
        for store in stores:
            store.close()


def _reconnect(reference: "weakref.ref[Reconnector]", run: Run) -> None:
    """Make attempts until one succeeds."""
    ended = False
    while not ended:
        reconnector = reference()
        attempt = reconnector.begin_attempt(run, None) if reconnector is not None else None
        del reconnector
        if attempt is None:
            return
        run.sleep(attempt.wait_s)
        reconnector = reference()
        if reconnector is None:
            return
        ended = reconnector.make_attempt(run, attempt, None)
        del reconnector


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


def _strip(error: BaseException | None) -> None:
    """Remove the tracebacks of an error that is kept: their frames would keep the client alive."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
