"""The supervisor: forks the processes of one instance, monitors and restarts them, stops all of them in order.

It owns the listening sockets, the shared memory and the signals, and processes no message. It has no threads, because
it forks. All waiting is in one place (`_wait`), and all reactions follow from the events there.

Start: log process, listening sockets, core. When the core reports readiness, the transports and, if configured, the
services (actions, administration interface) and replication. When all of them are ready, the actions of the startup;
then the ready line 00-0015 and the service manager's notification.

Deaths:
    a transport   the core is notified, processes the records of the dead transport and answers; a new one is forked
    the services  the same; also replication
    the core      the transports cannot work without it: all are killed, and the tree is started again from the journal
    its storage   the same, but with pauses, until the log can be opened again (outage.py)
    the log       is forked again; records wait in the socket meanwhile
    stuck         a process without progress for a minute is killed, unless it waits for its disk (health.py)
    too often     a process that dies five times within a minute ends the instance; services and replication, without
                  which messages are still processed, are not started for a minute
Stop (SIGTERM, SIGINT, SIGHUP without an action, or an action): the actions of the shutdown; then the transports drain,
then replication, then the services, then the core, then the log. A second signal has no effect. For failures meanwhile
see stopping.py.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import time
from collections.abc import Callable

import msgpack
from setproctitle import setproctitle

from amps.config import LoadedConfig
from amps.expressions.filters import load_compiler
from amps.journal.disk import Identity
from amps.server import console, remedies
from amps.server.advancing import Advancing
from amps.server.children import (
    EXIT_NEW_EPOCH,
    RESTART_WINDOW_S,
    RESTARTS_MAX,
    Child,
    GiveUp,
    RestartCounter,
)
from amps.server.clock import SYSTEM, Clock, ManualClock
from amps.server.core.process import EXIT_REFUSED, run_core
from amps.server.eventlog import EventLog, minimum_level, open_log_channel, run_log_process, shared_counters
from amps.server.health import Pulse
from amps.server.instance_listeners import Listeners
from amps.server.memory_use import pool_limits
from amps.server.outage import Outage, turn_away
from amps.server.runtime import Runtime
from amps.server.service_manager import Watchdog, notify
from amps.server.shared.listeners import ListenFailure
from amps.server.signals import SWITCH_SIGNALS, Signals
from amps.server.startup import log_startup
from amps.server.stopping import EXIT_FAILED, EXIT_STORAGE, StopFailures

SHUTDOWN_ACTIONS_S = 10.0
TRANSPORT_DRAIN_S = 8.0
REPLICATION_DRAIN_S = 5.0
SERVICES_DRAIN_S = 3.0
CORE_DRAIN_S = 60.0
START_ABANDON_S = 5.0
HELPER_PAUSE_S = 60.0
WORKERS_MAX_DEFAULT = 8

SERVICES = "services"
REPLICATION = "replication"


def default_workers() -> int:
    """Transport workers without configuration: half of the CPUs, at least one."""
    return max(1, min(WORKERS_MAX_DEFAULT, (os.cpu_count() or 1) // 2))


def load_transport() -> None:
    """Import what a transport runs. A start does this after the core was forked: both work at the same time."""
    import amps.server.transport.worker  # noqa: F401


def load_services() -> None:
    """Import what the services process runs, which few instances have."""
    import amps.server.services.process  # noqa: F401


def load_replication() -> None:
    """Import what the replication process runs."""
    import amps.server.replication.process  # noqa: F401


class Supervisor:
    """The supervisor of one instance."""

    def __init__(self, loaded: LoadedConfig, clock: Clock = SYSTEM) -> None:
        self._loaded = loaded
        self._config = loaded.config
        self._began_s = clock.monotonic_s()
        workers = self._config.tuning.transport_workers or default_workers()
        self._runtime = Runtime(
            workers,
            self._config.has_services,
            len(self._config.queues),
            len(pool_limits(self._config)),
            clock,
            self._config.replicates,
            [destination.is_sync for destination in self._config.destinations],
            len(self._config.sow_topics),
        )
        self._log_sender, self._log_receiver = open_log_channel()
        self._minimum_level = minimum_level(self._config.logging)
        self._log_counters = shared_counters(len(self._config.logging))
        self.log = EventLog(self._log_sender, 1, self._minimum_level, clock.time_ns)
        self._listeners = Listeners()
        self._core: Child | None = None
        self._log_process: Child | None = None
        self._services: Child | None = None
        self._replication: Child | None = None
        self._transports: list[Child | None] = [None] * workers
        # Of services and replication, by index: when they may start again if they died too often, and whether the core
        # has processed the records of the dead process.
        self._helpers_wait_until_s: dict[int, float] = {}
        self._helpers_may_start: set[int] = set()
        self._signals = Signals(self._config)
        self._disabled: frozenset[str] = frozenset()  # of authentication and entitlement: those switched off
        self._startup_actions_asked = False
        self._shutdown_actions_done = False
        self._outage: Outage | None = None
        self._outage_reason: str | None = None  # the reason that the core sent before ending
        self._directories: dict[str, Identity] | None = None  # of the log; None: no core has been ready yet
        self._deaths: dict[str, RestartCounter] = {}
        self._stopping_for: str | None = None
        self._failures = StopFailures(self.log)
        self._ready = False
        self._watchdog = Watchdog()
        self.on_ready: Callable[[], None] = lambda: None
        self._advancing: Advancing | None = None
        if isinstance(clock, ManualClock):
            clock.requests.setblocking(False)
            self._advancing = Advancing(
                clock,
                self._runtime,
                [
                    lambda: [self._core],
                    lambda: self._transports,
                    lambda: [self._replication] if self._config.replicates else [],
                    lambda: [self._services] if self._config.has_services else [],
                ],
                self._tell,
            )

    # --- running ------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Start, monitor until a signal or a failure ends the instance, stop. Return the exit code."""
        setproctitle(self._config.process_name or f"amps: supervisor {self._config.name}")
        self._signals.catch(self._stop_for, lambda: self._ready)
        code = 0
        try:
            # Loaded objects stay to the end: no process of the tree should collect them, least of all as it ends.
            gc.freeze()
            self._log_process = self._fork_log()
            log_startup(self.log, self._loaded)
            self._listeners.open(self._config, self.log)
            self._start_core()
            # While the core reads its log: the transports, forked when it is ready, share the objects made here.
            load_compiler()
            load_transport()
            if self._config.has_services:
                load_services()
            if self._config.replicates:
                load_replication()
            gc.freeze()
            while self._stopping_for is None:
                self._wait(0.5)
                self._heed_signals()
                self._check_health()
                if self._outage is not None and self._outage.retry_is_due():
                    self._start_core()
                self._start_helpers_if_due()
        except ListenFailure as problem:
            code = self._give_up(f"{problem.strerror}; {remedies.for_addresses(problem.errno)}")
        except GiveUp as problem:
            code = self._give_up(str(problem))
        except OSError as problem:
            advice = remedies.for_system(problem.errno)
            code = self._give_up(f"a call of the system failed: {problem}" + (advice and f"; {advice}"))
        finally:
            self._stop()
            self._signals.ignore_stops()
        return code or self._failures.status

    def _give_up(self, reason: str) -> int:
        """Report why the instance ends, or did not start. Return the exit code."""
        self.log.log("01-0006" if self._ready else "00-0009", reason=reason)
        console.complain(f"Error: {reason}")
        return EXIT_FAILED

    def _stop_for(self, cause: str) -> None:
        self._stopping_for = self._stopping_for or cause

    def _heed_signals(self) -> None:
        """Pass signals that have actions to the services process, and carry out the others.

        Until the instance is ready, and while the services process cannot receive them, signals wait.
        """
        if not self._ready or (self._signals.with_actions and not (self._services and self._services.ready)):
            return
        for name in self._signals.take():
            if name in self._signals.with_actions:
                self._tell(self._services, "signal", name)
            else:
                for what in ("authentication", "entitlement"):
                    self._switch(what, SWITCH_SIGNALS[name])

    def _switch(self, what: str, enabled: bool) -> None:
        """Switch authentication or entitlement on or off, for the whole instance (operations.md §8.3)."""
        self._disabled = self._disabled - {what} if enabled else self._disabled | {what}
        for child in (*self._transports, self._services, self._replication):
            self._tell(child, "switch", what, enabled)
        self.log.log(
            "25-0003" if what == "authentication" else "25-0004", state="enabled" if enabled else "disabled"
        )

    # --- forking ------------------------------------------------------------------------------------------

    def _fork(self, title: str, body: Callable[[socket.socket], int]) -> Child:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        console.flush()  # otherwise a child would write the buffers again
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                self._become_child(title)
                ours.close()
                code = body(theirs)
            except BaseException:
                import traceback

                self.log.log("01-0005", place=title, data=traceback.format_exc())
                traceback.print_exc()
            finally:
                console.flush()
                os._exit(code)
        theirs.close()
        self.log.log("01-0001", process=title, pid=pid)
        return Child(title, pid, ours, Pulse(pid))

    def _become_child(self, title: str) -> None:
        setproctitle(f"amps: {title}")
        self._signals.release_in_child()
        # A child must see the end of its own channel when the supervisor dies, so no other child may hold it open.
        for child in (self._core, self._services, self._replication, *self._transports):
            if child is not None and child.ours is not None:
                child.ours.close()
        if self._advancing is not None:
            self._advancing.close()
        if not title.startswith("transport"):
            self._listeners.close_transports()
        if title != REPLICATION:
            self._listeners.close_replication()
        if title != SERVICES:
            self._listeners.close_admin()

    def _child_log(self, thread_number: int) -> EventLog:
        return self.log.with_thread(thread_number)

    def _fork_log(self) -> Child:
        def body(channel: socket.socket) -> int:
            channel.close()
            self._log_sender.close()
            run_log_process(
                self._config.logging,
                self._config.name,
                self._log_receiver,
                self._log_counters,
                self._runtime.clock.time_ns,
            )
            return 0

        child = self._fork("log", body)
        child.ready = True
        return child

    def _start_core(self) -> None:
        def body(channel: socket.socket) -> int:
            self._log_receiver.close()
            return run_core(self._config, self._runtime, self._child_log(2), channel, self._directories)

        self._core = self._fork("core", body)

    def _start_transport(self, index: int) -> None:
        def body(channel: socket.socket) -> int:
            self._log_receiver.close()
            from amps.server.transport.worker import run_transport

            log = self._child_log(3 + index)
            return run_transport(self._config, self._runtime, index, log, channel, self._listeners.transports)

        # So that its predecessor's last heartbeat does not count.
        self._runtime.control.transport_beat(index, time.monotonic_ns())
        self._transports[index] = self._fork(f"transport {index}", body)

    def _start_services(self) -> None:
        runtime = self._runtime
        index = runtime.services_index

        def body(channel: socket.socket) -> int:
            self._log_receiver.close()
            from amps.server.services.process import run_services

            log = self._child_log(3 + index)
            return run_services(self._loaded, runtime, log, channel, self._listeners.admin, self._began_s)

        runtime.control.transport_beat(index, time.monotonic_ns())
        self._services = self._fork(SERVICES, body)

    def _start_replication(self) -> None:
        index = self._runtime.replication_index
        assert index is not None

        def body(channel: socket.socket) -> int:
            self._log_receiver.close()
            from amps.server.replication.process import run_replication

            log = self._child_log(3 + index)
            return run_replication(self._config, self._runtime, log, channel, self._listeners.replication)

        self._runtime.control.transport_beat(index, time.monotonic_ns())
        self._replication = self._fork(REPLICATION, body)

    # --- waiting ------------------------------------------------------------------------------------------

    def _children(self) -> list[Child]:
        everyone = (self._log_process, self._core, self._services, self._replication, *self._transports)
        return [c for c in everyone if c is not None]

    def _wait(self, timeout_s: float) -> None:
        """Wait for a signal, a message of a child or a child's death, and react."""
        channels = {c.ours.fileno(): c for c in self._children() if c.ours is not None}
        poller = select.poll()
        poller.register(self._signals.wake_fd, select.POLLIN)
        for descriptor in channels:
            poller.register(descriptor, select.POLLIN)
        listeners = self._listeners.all() if self._outage is not None and self._stopping_for is None else []
        for listener in listeners:
            poller.register(listener, select.POLLIN)
        advancing = self._advancing
        if advancing is not None and advancing.open and not advancing.busy:
            poller.register(advancing.requests, select.POLLIN)
        for descriptor, _ in poller.poll(timeout_s * 1000):
            if descriptor == self._signals.wake_fd:
                self._signals.clear()
            elif descriptor in channels:
                self._hear(channels[descriptor])
        if advancing is not None and advancing.open:
            advancing.receive()
            advancing.step()
        turn_away(listeners)
        self._reap()

    def _hear(self, child: Child) -> None:
        assert child.ours is not None
        while True:
            try:
                data = child.ours.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                child.ours.close()
                child.ours = None
                return
            message = msgpack.unpackb(data)
            if message[0] == "ready":
                child.ready = True
                for what in self._disabled if child is not self._core else ():
                    self._tell(child, "switch", what, False)
                if child is self._core:
                    self._directories = {
                        path: (device, inode) for path, (device, inode) in message[2].items()
                    }
                    self._end_outage()
                if child is self._core and self._stopping_for is None:
                    for index in range(self._runtime.transports):
                        self._start_publisher(index)
                self._announce_if_ready()
            elif message[0] == "transport drained":
                self._clear_spills(message[1])
                if self._stopping_for is None:
                    self._start_publisher(message[1])
            elif message[0] == "startup actions done":
                self._announce()
            elif message[0] == "shutdown actions done":
                self._shutdown_actions_done = True
            elif message[0] == "switch":
                self._switch(message[1], message[2])
            elif message[0] == "clock passed":
                if self._advancing is not None:
                    self._advancing.passed(child, message[1])
            elif message[0] == "event":
                self._tell(self._services, "replication event", *message[1:])
            elif message[0] == "shutdown":
                self._stop_for(message[1])
            elif message[0] == "refused" and not (self._ready and message[2]) and self._stopping_for is None:
                raise GiveUp(message[1])
            elif message[0] in ("refused", "failed"):
                self._outage_reason = message[1]

    def _start_publisher(self, index: int) -> None:
        """Start a process that publishes to the core: a transport, the services, or replication."""
        if index < self._runtime.workers:
            self._start_transport(index)
        else:
            self._helpers_may_start.add(index)
            self._start_helpers_if_due()

    def _start_helpers_if_due(self) -> None:
        for index in sorted(self._helpers_may_start):
            if time.monotonic() >= self._helpers_wait_until_s.get(index, 0.0):
                self._helpers_may_start.discard(index)
                if index == self._runtime.replication_index:
                    self._start_replication()
                else:
                    self._start_services()

    def _announce_if_ready(self) -> None:
        needed = [self._core, *self._transports]
        if self._config.has_services:
            needed.append(self._services)
        if self._config.replicates:
            needed.append(self._replication)
        if self._ready or not all(child is not None and child.ready for child in needed):
            return
        if not self._config.has_services:
            self._announce()
        elif not self._startup_actions_asked:
            # The last step before the ready line (operations.md §9.2).
            self._startup_actions_asked = True
            self._tell(self._services, "startup actions")

    def _announce(self) -> None:
        if self._ready:
            return
        self._ready = True
        self.log.log("00-0015", seconds=f"{self._runtime.clock.monotonic_s() - self._began_s:.3f}")
        notify(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=serving\n")
        self.on_ready()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            for child in self._children():
                if child.pid == pid:
                    self._ended(child, code)

    def _ended(self, child: Child, code: int) -> None:
        """Handle the end of a reaped child. Its state is cleared before its last messages can end the instance."""
        reason: GiveUp | None = None
        if child.ours is not None:
            try:
                self._hear_last(child)
            except GiveUp as problem:
                reason = problem
        try:
            self._died(child, code)
        except GiveUp as problem:
            reason = reason or problem
        if reason is not None:
            raise reason

    def _hear_last(self, child: Child) -> None:
        """Read the last messages of a dead child, such as the reason if it ended on purpose."""
        self._hear(child)
        if child.ours is not None:
            child.ours.close()
            child.ours = None

    def _died(self, child: Child, code: int) -> None:
        status = f"signal {signal.strsignal(-code) or -code}" if code < 0 else f"exit code {code}"
        if self._stopping_for is not None and code != 0:
            self._failed_to_stop(child, status)
        if child is self._log_process:
            self._log_process = None
            if self._stopping_for is None:
                self._log_process = self._fork_log()
                self.log.log("01-0002", process=child.title, pid=child.pid, status=status)
                self._give_up_if_too_often(child, status)
        elif child is self._core:
            self._core = None
            if self._stopping_for is None:
                self._core_died(child, code, status)
        elif child is self._services:
            self._services = None
            # If it died during the startup actions, these are begun again; a later process has no part in the start.
            self._startup_actions_asked = False
            self._runtime.control.set_transport_alive(self._runtime.services_index, False)
            self._publisher_died(child, self._runtime.services_index, status)
        elif child is self._replication:
            self._replication = None
            assert self._runtime.replication_index is not None
            why = "01-0010" if code == EXIT_NEW_EPOCH else "01-0002"
            self._publisher_died(child, self._runtime.replication_index, status, why)
        else:
            index = self._transports.index(child)
            self._transports[index] = None
            self._runtime.control.set_transport_alive(index, False)
            self._runtime.memory_use.clear(index)
            self._publisher_died(child, index, status)

    def _failed_to_stop(self, child: Child, status: str) -> None:
        """Note that a child ended during the stop, but not as it should."""
        if child is not self._core or (self._config.transaction_log is None and self._outage_reason is None):
            self._failures.process_died(child.title, child.pid, status)
        elif child.ready or self._ready:
            self._failures.log_not_durable(self._outage_reason or f"the core ended too early ({status})")
        else:
            reason = self._outage_reason or f"the core ended ({status})"
            self._failures.status = self._give_up(reason)

    def _publisher_died(self, child: Child, index: int, status: str, why: str = "01-0002") -> None:
        """Start another process, unless the instance stops. `why`: the log record that tells of the end."""
        if self._stopping_for is None:
            self.log.log(why, process=child.title, pid=child.pid, status=status)
            if index < self._runtime.workers or not self._ready:
                self._give_up_if_too_often(child, status)
            elif self._died_too_often(child):
                self.log.log("01-0009", process=child.title, status=status, seconds=int(HELPER_PAUSE_S))
                self._helpers_wait_until_s[index] = time.monotonic() + HELPER_PAUSE_S
            self._tell(self._core, "transport died", index)

    def _died_too_often(self, child: Child) -> bool:
        return self._deaths.setdefault(child.title, RestartCounter()).too_often()

    def _give_up_if_too_often(self, child: Child, status: str) -> None:
        if self._died_too_often(child):
            self.log.log("01-0003", process=child.title, status=status)
            raise GiveUp(
                f"process {child.title!r} died {RESTARTS_MAX} times within {RESTART_WINDOW_S:.0f} s ({status}); "
                "check what it logged before, fix the cause, and start the server again"
            )

    def _core_died(self, child: Child, code: int, status: str) -> None:
        outage_reason, self._outage_reason = self._outage_reason, None
        if code in (EXIT_REFUSED, EXIT_STORAGE) and outage_reason is None:
            raise GiveUp(f"the core ended ({status}); check what it logged before")
        if outage_reason is None:
            self.log.log("01-0004", status=status)
        for publisher in (*self._transports, self._services, self._replication):
            if publisher is not None:
                self._kill(publisher)
        self._transports = [None] * len(self._transports)
        self._services = self._replication = None
        self._helpers_may_start.clear()
        self._startup_actions_asked = False
        if outage_reason is None:
            self._give_up_if_too_often(child, status)
        self._runtime.reset()
        if outage_reason is None and self._outage is None:
            self._start_core()
        else:
            self._wait_for_storage(outage_reason or f"the core ended unexpectedly ({status})")

    def _wait_for_storage(self, reason: str) -> None:
        """Try again later: the log cannot be opened, or not be written."""
        self._outage = self._outage or Outage()
        delay_s = self._outage.failed(reason)
        self.log.log("01-0007", reason=reason, seconds=int(delay_s))
        notify(f"STATUS=waiting for its storage: {reason.splitlines()[0]}\n")

    def _end_outage(self) -> None:
        if self._outage is not None:
            self.log.log("01-0008", seconds=int(self._outage.age_s))
            self._outage = None
            notify("STATUS=serving\n")

    def _kill(self, child: Child) -> None:
        """End a child at once and reap it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, 0)
        if child.ours is not None:
            child.ours.close()
            child.ours = None

    def _clear_spills(self, index: int) -> None:
        """Remove large messages that a dead transport had not passed on: they were never acknowledged."""
        for path in self._runtime.directory.path.glob(f"spill.{index}.*"):
            path.unlink(missing_ok=True)

    def _tell(self, child: Child | None, *message: object) -> None:
        if child is not None and child.ours is not None:
            with contextlib.suppress(OSError):
                child.ours.send(msgpack.packb(message))

    # --- health -------------------------------------------------------------------------------------------

    def _check_health(self) -> None:
        """Check all processes but the log. A stuck process is killed, and then restarted like any dead one."""
        control = self._runtime.control
        all_well = True
        if self._core is not None:
            all_well &= self._core.gets_on(control.core_heartbeat_ns, self._runtime.disk_activity, self.log)
        publishers = [*enumerate(self._transports), (self._runtime.services_index, self._services)]
        if self._runtime.replication_index is not None:
            publishers.append((self._runtime.replication_index, self._replication))
        for index, child in publishers:
            if child is not None:
                all_well &= child.gets_on(control.transport_heartbeat_ns(index), None, self.log)
        if all_well and self._ready:
            self._watchdog.pat()

    # --- stopping -----------------------------------------------------------------------------------------

    def _stop(self) -> None:
        cause = self._stopping_for
        self._stopping_for = cause or "failure"
        notify("STOPPING=1")
        self.log.log("FF-0001", cause=cause)
        if cause is not None:
            self._run_shutdown_actions()
        self._listeners.remove_socket_files()
        self._listeners.close_transports()
        for child in self._transports:
            self._tell(child, "drain")
        self._wait_for_end(lambda: [c for c in self._transports if c is not None], TRANSPORT_DRAIN_S)
        self._listeners.close_replication()
        self._tell(self._replication, "drain")
        self._wait_for_end(lambda: [c for c in (self._replication,) if c is not None], REPLICATION_DRAIN_S)
        self._listeners.close_admin()
        self._tell(self._services, "drain")
        self._wait_for_end(lambda: [c for c in (self._services,) if c is not None], SERVICES_DRAIN_S)
        self.log.log("FF-0002")
        self._tell(self._core, "drain")
        self._runtime.core_wake_up.send()
        # A core that recovers has acknowledged nothing yet, and its next start recovers again.
        drain_s = CORE_DRAIN_S if self._core is not None and self._core.ready else START_ABANDON_S
        self._wait_for_end(lambda: [c for c in (self._core,) if c is not None], drain_s)
        if self._outage is not None:
            self._failures.log_not_durable(self._outage.reason)
        self.log.log("FF-0003")
        self.log.finish()
        self._log_sender.close()
        self._wait_for_end(lambda: [c for c in (self._log_process,) if c is not None], 10.0)
        self._runtime.directory.remove()

    def _run_shutdown_actions(self) -> None:
        """Run the first step of an orderly stop (operations.md §9.2), while all processes still run."""
        if self._services is None or not self._services.ready or not self._ready:
            return
        self._tell(self._services, "shutdown actions")
        deadline_s = time.monotonic() + SHUTDOWN_ACTIONS_S
        while not self._shutdown_actions_done and self._services is not None:
            if time.monotonic() >= deadline_s:
                self.log.log("FF-0005", seconds=int(SHUTDOWN_ACTIONS_S))
                return
            with contextlib.suppress(GiveUp):
                self._wait(0.1)

    def _wait_for_end(self, left: Callable[[], list[Child]], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while left() and time.monotonic() < deadline_s:
            with contextlib.suppress(GiveUp):
                self._wait(0.1)
        for child in left():
            self.log.log("FF-0004", process=child.title)
            self._kill(child)
            if child is self._core:
                self._core = None
                if child.ready and self._config.transaction_log is not None:
                    self._failures.log_not_durable(f"the core did not end within {timeout_s:.0f} s")
            elif child is self._log_process:
                self._log_process = None
            elif child is self._services:
                self._services = None
            elif child is self._replication:
                self._replication = None
            else:
                self._transports[self._transports.index(child)] = None


def run(loaded: LoadedConfig, *, ready_fd: int | None = None, clock: Clock = SYSTEM) -> int:
    """Run an instance until its shutdown. Returns the exit code.

    ready_fd: a descriptor to which one line is written when the instance is ready, then closed.
    clock: the time of the instance.
    """
    try:
        supervisor = Supervisor(loaded, clock)
    except OSError as error:
        reason = error.strerror if error.strerror and not error.filename else str(error)
        console.complain(f"Error: the server cannot start: {reason}")
        return 1
    if ready_fd is not None:

        def announce() -> None:
            os.write(ready_fd, b"ready\n")
            os.close(ready_fd)

        supervisor.on_ready = announce
    return supervisor.run()
