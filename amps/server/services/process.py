"""The services process: its event loop, the supervisor's messages, and its end.

Order at the end: the supervisor requests the actions of the shutdown while all processes still run; after that no
schedule or signal begins a run. When the transports have ended it sends `drain`: the HTTP server stops, and unfinished
work is abandoned. Unfinished actions for messages of queues are done after the next start. If the supervisor dies, this
process ends at once: no client depends on it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
import traceback
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

import msgpack
import uvloop

from amps.config import LoadedConfig
from amps.config.queue_events import queue_events
from amps.config.schedules import Schedule
from amps.server.clock import ManualClock
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.services.actions.engine import SHUTDOWN, STARTUP, Busy, Engine
from amps.server.services.actions.schedules import Clocks, follow
from amps.server.services.actions.step import Environment
from amps.server.services.core_requests import CoreRequests
from amps.server.services.message_events import MessageEvents, has_message_events
from amps.server.services.publisher import Publisher
from amps.server.services.queue_clearing import QueueClearing
from amps.server.services.queue_events import QueueEvents
from amps.server.services.replication_requests import ReplicationRequests
from amps.server.services.transport_requests import TransportRequests
from amps.server.shared.journal_floor import JournalFloor, SharedFloor

if TYPE_CHECKING:
    from amps.server.admin.server import AdminServer

BEAT_S = 0.5
CLOCK_ACTIONS_S = 5.0
CLOCK_POLL_S = 0.002
LOOP_STEPS = 5
EXIT_FAILED = 70


class Services:
    """One services process. It is made in the child after the fork."""

    def __init__(
        self,
        loaded: LoadedConfig,
        runtime: Runtime,
        log: EventLog,
        supervisor: socket.socket,
        admin_sockets: list[socket.socket],
        began_s: float,
    ) -> None:
        """`began_s`: the instance's start, on its clock that never goes back."""
        self._loaded = loaded
        self._config = loaded.config
        self._runtime = runtime
        self._clock = runtime.clock
        self._log = log
        self._supervisor = supervisor
        self._admin_sockets = admin_sockets
        self._began_s = began_s
        self._core = CoreRequests(runtime.services_requests)
        self._replication = (
            ReplicationRequests(runtime.services_replication) if self._config.replicates else None
        )
        self._transports = TransportRequests([ours for _, ours in runtime.transport_requests])
        self._publisher = Publisher(self._config, runtime, log, self._failed)
        self._engine = Engine(self._config.actions, self._environment, self._clock.time_s)
        self._admin: AdminServer | None = None
        self._events: QueueEvents | None = None
        self._messages: MessageEvents | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._schedules: list[asyncio.Task[None]] = []
        self._stopped: asyncio.Future[None]

    def _environment(self, engine: Engine) -> Environment:
        self._shared = Environment(
            config=self._config,
            log=self._log,
            publisher=self._publisher,
            core=self._core,
            raise_event=engine.raise_event,
            ask_for_shutdown=lambda cause: self._tell("shutdown", cause),
            switch=lambda what, enabled: self._tell("switch", what, enabled),
            queues=QueueClearing(self._config, self._runtime, self._publisher)
            if self._config.queues
            else None,
            replication=self._replication,
            uptime_s=lambda: self._clock.monotonic_s() - self._began_s,
        )
        return self._shared

    def run(self) -> int:
        """Serve until the supervisor requests the drain. Return the exit code of the process."""
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._main())
        # Threads may be working on a large file. Closing the loop would wait for them, so the process exits without.
        return 0

    def _failed(self, trace: str) -> None:
        """End the process, because a part of its work has stopped for good. The supervisor starts another."""
        self._log.log("01-0005", place="services", data=trace)
        os._exit(EXIT_FAILED)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a failure that no code awaits, except OSErrors of connections (TLS handshakes), caused by clients."""
        problem = context.get("exception")
        if not isinstance(problem, OSError):
            trace = "".join(traceback.format_exception(problem)) if problem is not None else ""
            self._log.log("01-0005", place="services", data=f"{context.get('message')}\n{trace}")

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unexpected)
        self._stopped = loop.create_future()
        self._core.begin(loop)
        self._transports.begin(loop)
        self._publisher.begin(loop)
        if self._replication is not None:
            self._replication.begin(loop)
        loop.add_reader(self._supervisor.fileno(), self._listen)
        if self._config.admin is not None:
            # Imported here: only this process, and only if it is configured, needs an HTTP server.
            from amps.server.admin.queues import QueueView
            from amps.server.admin.replication import ReplicationView
            from amps.server.admin.server import AdminServer
            from amps.server.admin.sow_topics import SowView

            queues = QueueView(self._config, self._runtime, self._core) if self._config.queues else None
            replication = ReplicationView(self._config, self._runtime, self._replication)
            replication.begin(loop)
            states = SowView(self._config, self._runtime) if self._config.sow_topics else None
            if states is not None:
                states.begin(loop)
            self._admin = AdminServer(
                self._loaded,
                self._config.admin,
                self._core,
                self._transports,
                self._runtime.write_statistics,
                self._engine,
                self._log,
                queues,
                self._clock.time_s,
                replication,
                states,
            )
            await self._admin.start(self._admin_sockets)
        self._beat()
        for (_, which), source in self._engine.sources.items():
            if source.schedule is not None:
                self._schedules.append(asyncio.create_task(self._follow(source.schedule, which)))
        self._begin_message_events()
        self._tell("ready")
        await self._stopped
        self._end_commands()
        if self._messages is not None:
            await self._messages.stop()
        if self._events is not None:
            await self._events.stop()
        if self._admin is not None:
            await self._admin.stop()

    def _begin_message_events(self) -> None:
        """Begin to follow the logs for actions on messages."""
        config, runtime, log = self._config, self._runtime, self._log
        floor = SharedFloor(JournalFloor(runtime.control, runtime.services_index))
        if queue_events(config):
            self._events = QueueEvents(
                config, runtime, log, self._engine, self._publisher, floor, self._failed
            )
            self._events.begin()
        if has_message_events(config):
            publisher = self._publisher
            self._messages = MessageEvents(
                config, runtime, log, self._engine, publisher.evaluations, publisher.filters, floor, self._failed
            )
            self._messages.begin()

    def _beat(self) -> None:
        self._runtime.control.transport_beat(self._runtime.services_index, time.monotonic_ns())
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    # --- events ---------------------------------------------------------------------------------------------

    async def _follow(self, schedule: Schedule, which: str) -> None:
        try:
            clocks = Clocks(self._clock.time_s, self._clock.monotonic_s, self._clock.sleep)
            await follow(schedule, self._began_s, lambda: self._happened("schedule", which), clocks)
        except Exception:
            self._failed(traceback.format_exc())

    def _happened(
        self, kind: str, which: str = "", variables: Mapping[str, str] | None = None
    ) -> "asyncio.Future[str | None] | None":
        try:
            return self._engine.happened(kind, which, variables)
        except Busy:
            self._log.log("29-0006", event=f"{kind} {which}".strip())
            return None

    async def _run_startup(self) -> None:
        done = self._happened(STARTUP)
        if done is not None:
            await done
        self._tell("startup actions done")

    async def _run_shutdown(self) -> None:
        for task in self._schedules:
            task.cancel()
        self._happened(SHUTDOWN)
        await self._engine.idle()
        self._tell("shutdown actions done")

    async def _pass_clock(self, round_: int) -> None:
        """Report a round of amps/server/advancing.py when the actions that the new time has caused have run."""
        if isinstance(self._clock, ManualClock):
            self._clock.run_due()
        with contextlib.suppress(TimeoutError):  # commands of actions may run for long
            async with asyncio.timeout(CLOCK_ACTIONS_S):
                for _ in range(LOOP_STEPS):  # schedules that have been woken raise their events
                    await asyncio.sleep(0)
                while self._messages is not None and not self._messages.idle:
                    await asyncio.sleep(CLOCK_POLL_S)
                await self._engine.idle()
                while self._events is not None and not self._events.idle:
                    await asyncio.sleep(CLOCK_POLL_S)
        self._tell("clock passed", round_)

    # --- supervisor -----------------------------------------------------------------------------------------

    def _tell(self, *message: object) -> None:
        # `_listen` detects the end of the supervisor.
        with contextlib.suppress(OSError):
            self._supervisor.send(msgpack.packb(message))

    def _listen(self) -> None:
        while True:
            try:
                data = self._supervisor.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end_commands()
                os._exit(0)
            self._heard(*msgpack.unpackb(data))

    def _heard(self, what: str, *rest: Any) -> None:
        if what == "startup actions":
            self._begin(self._run_startup())
        elif what == "shutdown actions":
            self._begin(self._run_shutdown())
        elif what == "signal":
            self._happened("signal", rest[0])
        elif what == "replication event":
            # The kind is the name of the module without its beginning; the replication process sets the variables.
            self._happened(rest[0], variables=rest[1])
        elif what == "clock":
            self._begin(self._pass_clock(rest[0]))
        elif what == "switch":
            if self._admin is not None:
                self._admin.access.switch(*rest)
        elif what == "drain":
            self._shared.stopping.set()
            if not self._stopped.done():
                self._stopped.set_result(None)

    def _end_commands(self) -> None:
        """Kill commands of actions, which must not outlive the instance."""
        for group in self._shared.commands:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def run_services(
    loaded: LoadedConfig,
    runtime: Runtime,
    log: EventLog,
    supervisor: socket.socket,
    admin_sockets: list[socket.socket],
    began_s: float,
) -> int:
    """The body of the services process; returns its exit code."""
    # Caught, not ignored: commands of actions would inherit ignored signals.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN and number != signal.SIGPIPE:
            signal.signal(number, lambda number, frame: None)
    return Services(loaded, runtime, log, supervisor, admin_sockets, began_s).run()
