"""One instance of a simulated group: the real core and the real replication, with a disk, a clock and clients of its
own.

The core runs as in `world`: the schedule calls its steps. The replication process is the real `Replication` on a
`SimulatedLoop`. Both use the same shared memory as in a server; a wake-up is an event descriptor that is polled here.

An instance ends in three ways: its replication process dies alone, the server dies, or the machine crashes. Nothing
of a dead process runs again. `retire` collects what is left of it, to be closed when the world ends.
"""

import contextlib
import dataclasses
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack

import amps.config
from amps._core.shm.memory import ControlPage, PendingTable, Ring
from amps._core.values.value import publisher_id
from amps._core.wire.persisted import Destinations
from amps.config import ServerConfig
from amps.server.clock import Clock
from amps.server.core.identity import keep_identity, read_identity
from amps.server.core.process import Core
from amps.server.replication.hello import Identity
from amps.server.replication.replication import Replication
from amps.server.replication_statistics import ReplicationStatistics
from amps.server.runtime import Runtime, WakeUp
from amps.server.transport.persisted_waits import make_destinations
from amps.server.transport.publisher_acks import PublisherAcks
from amps.server.write_statistics import WriteStatistics
from tests.simulation.checks import Entry, Log
from tests.simulation.clients import LOGGED_PATTERN, Client, Message, Wire
from tests.simulation.disk import Died, SimulatedDisk
from tests.simulation.group_loop import SimulatedLoop
from tests.simulation.group_model import SYNC
from tests.simulation.group_network import Network
from tests.simulation.group_topologies import Topology, Way
from tests.simulation.server import SimulatedLog, SimulatedRequests, SimulatedSupervisor, SimulatedWakeUp
from tests.simulation.transports import Session, Transport

WORKERS = 2
REPLICATION = WORKERS
"""Number of the replication process among those that publish to the core."""
FIRST_PORT = 20_000


def config_of(topology: Topology, name: str, journal_bytes: int) -> ServerConfig:
    """The configuration of an instance."""
    names = list(topology.groups)
    destinations = "".join(
        f"""<Destination><Name>{way.label}</Name>{_group_of(topology, way)}
<SyncType>{"sync" if way.mode == SYNC else "async"}</SyncType><PassThrough>{way.pass_through}</PassThrough>
<AckConflationInterval>10ms</AckConflationInterval>
<Topic><Name>{LOGGED_PATTERN}</Name><MessageType>json</MessageType><ExcludeValidation>replicate,cascade</ExcludeValidation>
</Topic><Transport><Type>amps-replication</Type>
{"".join(f"<InetAddr>127.0.0.1:{FIRST_PORT + names.index(there)}</InetAddr>" for there in way.candidates)}
<ReconnectTimeout>100ms,300ms</ReconnectTimeout></Transport></Destination>"""
        for way in topology.ways
        if way.source == name
    )
    text = f"""<AMPSConfig><Name>{name}</Name><Group>{topology.groups[name]}</Group>
<Transports><Transport><Name>t</Name><Type>tcp</Type><Protocol>amps</Protocol><MessageType>json</MessageType>
<InetAddr>127.0.0.1:9007</InetAddr></Transport>
<Transport><Name>amps-replication</Name><Type>amps-replication</Type>
<InetAddr>127.0.0.1:{FIRST_PORT + names.index(name)}</InetAddr></Transport></Transports>
<Replication>{destinations}</Replication>
<TransactionLog><JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
<Topic><Name>{LOGGED_PATTERN}</Name><MessageType>json</MessageType></Topic></TransactionLog>
<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging></AMPSConfig>"""
    config = amps.config.load(f"{name}.xml", {}, text=text).config
    log = config.transaction_log
    assert log is not None
    return dataclasses.replace(
        config, transaction_log=dataclasses.replace(log, journal_size_bytes=journal_bytes)
    )


def _group_of(topology: Topology, way: Way) -> str:
    """`Group` of a destination that several instances may serve. A destination for one partner has none (25.1)."""
    if len(way.candidates) == 1:
        return ""
    return f"<Group>{topology.groups[way.candidates[0]]}</Group>"


class ProcessEnded(SystemExit):
    """A process has ended itself. Event loops let this exception pass, as they do with a real exit."""


class GroupRuntime(Runtime):
    """The shared memory of one process tree, with a replication process."""

    def __init__(self, path: Path, ring_bytes: int, destinations: tuple[bool, ...], clock: Clock) -> None:
        path.mkdir()
        self.directory = SimpleNamespace(path=path)  # type: ignore[assignment]
        self.clock = clock
        self.control = ControlPage()
        self.write_statistics = WriteStatistics()
        self.replication_statistics = ReplicationStatistics(len(destinations))
        self.replication_index = REPLICATION
        self.pending_tables = [PendingTable(1024) for _ in destinations]
        self._destinations = destinations
        self._begin_destinations()
        self.core_wake_up = SimulatedWakeUp()  # type: ignore[assignment]
        self.replication_wake_up = WakeUp()
        self.transport_wake_ups = [
            *(SimulatedWakeUp() for _ in range(WORKERS)),  # type: ignore[list-item]
            self.replication_wake_up,
        ]
        self.workers = WORKERS
        self.transports = WORKERS + 1
        self.ingress = [Ring(ring_bytes) for _ in range(self.transports)]
        self.egress = [Ring(4096) for _ in range(self.transports)]
        self.requests = SimulatedRequests()
        self.core_requests = self.requests  # type: ignore[assignment]


class ReplicationLog(SimulatedLog):
    """The event log of a replication process. An unexpected failure there fails the seed."""

    def __init__(self, trace: Callable[[str], None], failures: list[str]) -> None:
        super().__init__(trace)
        self._failures = failures

    def enabled(self, level: str) -> bool:
        return False

    def log(self, event: str, **values: object) -> None:
        super().log(event, **values)
        if event == "01-0005":
            self._failures.append(str(values["data"]))


class GroupWire(Wire):
    """The client's end of a connection to one instance of a group."""

    persisted_sequence: Callable[[int], int] = staticmethod(lambda sequence: sequence)

    def logged_on(self, last_sequence: int) -> None:
        """Another instance may know less to be persisted than the client was told elsewhere."""
        self.ready = True
        self.client.promise(self.persisted_sequence(last_sequence))
        self.next_sequence = self.client.acked + 1

    def publish_some(self, chance: random.Random) -> None:
        """Send stored messages from this connection's next sequence on, then new ones."""
        client = self.client
        for _ in range(chance.randint(1, 12)):
            while self.next_sequence not in client.store:
                if self.next_sequence > client.last:
                    client.make_message(chance)
                else:
                    self.next_sequence += 1
            self.to_server += client.store[self.next_sequence].frame(False)
            self.next_sequence += 1


class GroupTransport(Transport):
    """A transport worker whose acknowledgements wait for destinations."""

    destinations: Destinations | None

    def connect(self, wire: Wire) -> bool:
        if not super().connect(wire):
            return False
        session = next(each for each in self.sessions.values() if each.wire is wire)
        publisher = publisher_id(wire.client.name)
        destinations = self.destinations
        session.acks = PublisherAcks(session.ingress, session, 0.0, publisher, destinations)
        assert isinstance(wire, GroupWire)
        if destinations is not None:
            found = destinations
            wire.persisted_sequence = lambda last: found.persisted_sequence(
                publisher, last, self._runtime.control.durable
            )
        return True

    def work(self) -> None:
        for session in self.sessions.values():
            self._follow(session)
        super().work()

    def _follow(self, session: Session) -> None:
        self._view.read()
        session.acks.resolve(self)
        if session.ready:
            session.acks.note_place()


class InstanceClock(Clock):
    """The clocks of one machine: the wall clock can be set, the other one cannot."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self.offset_ns = 0
        self.time_ns = lambda: now_ns() + self.offset_ns
        self.time_s = lambda: self.time_ns() / 1e9
        self.monotonic_ns = now_ns
        self.monotonic_s = lambda: now_ns() / 1e9


def _nothing(event: str, /, **values: Any) -> None:
    """Log nothing."""


class _Everybody:
    """Logons without passwords, and with all permissions."""

    async def first(self) -> dict[str, str]:
        return {"user": "simulation", "method": "password"}

    def answer(self, challenge: str) -> dict[str, str] | None:
        return None

    def authenticate(self, user: str, password: str) -> tuple[bool, str, str]:
        return True, user, ""

    def may_replicate(self, user: str) -> bool:
        return True

    def allows_topic(self, user: str, topic: str) -> bool:
        return True


class GroupInstance:
    """See the module. Faults and their times are decided in `group_world`."""

    def __init__(
        self,
        config: ServerConfig,
        port: int,
        directory: Path,
        chance: random.Random,
        network: Network,
        now_ns: Callable[[], int],
        trace: Callable[[str], None],
        ring_bytes: int,
    ) -> None:
        self.name = config.name
        self.port = port
        self.chance = chance
        self.network = network
        self.clock = InstanceClock(now_ns)
        self.trace = lambda text: trace(f"{self.name}: {text}")
        self._now_ns = now_ns
        self._ring_bytes = ring_bytes
        self._directory = directory
        directory.mkdir()
        (directory / "graves").mkdir()
        self.disk = SimulatedDisk(directory / "graves", chance)
        log = config.transaction_log
        assert log is not None
        self.journal = directory / "journal"
        self.config = dataclasses.replace(
            config,
            transaction_log=dataclasses.replace(
                log, journal_directory=self.journal, journal_archive_directory=directory / "archive"
            ),
        )
        self._runs = 0
        self.wipes = 0
        self.paused = False
        self.core: Core | None = None
        self.runtime: GroupRuntime
        self.log: Log
        self.supervisor: SimulatedSupervisor
        self.transports: list[GroupTransport | None] = [None] * WORKERS
        self.dead_processes: list[int] = []
        self.loop: SimulatedLoop | None = None
        self.replication: Replication | None = None
        self.retired: list[tuple[SimulatedLoop, Replication]] = []
        self._wake_ups: list[WakeUp] = []
        self._read_before: dict[int, Entry] = {}
        """Messages of journals that were to be removed, by log position."""
        self.failures: list[str] = []

    @property
    def alive(self) -> bool:
        return self.core is not None

    def epoch(self) -> str:
        """The epoch of its log."""
        return read_identity(self.journal, self.name).epoch

    # Life

    def open(self) -> None:
        """Start the core on what is on the disk. Raises what the core raises."""
        self._runs += 1
        modes = tuple(destination.is_sync for destination in self.config.destinations)
        self.runtime = GroupRuntime(
            self._directory / f"run-{self._runs}", self._ring_bytes, modes, self.clock
        )
        self._wake_ups.append(self.runtime.replication_wake_up)
        self.supervisor = SimulatedSupervisor()
        self.core = Core(
            self.config,
            self.runtime,
            SimulatedLog(self.trace),  # type: ignore[arg-type]
            self.supervisor,  # type: ignore[arg-type]
            disk=self.disk,
            now_ns=self.clock.time_ns,
            background=False,
            random_bytes=self.chance.randbytes,
        )
        self.core.open()
        self.log = Log(self.journal, self._directory / "archive", self.name, self.runtime)

    def begin(self) -> None:
        """The core has recovered: start the other processes."""
        for index in range(WORKERS):
            self.begin_transport(index)
        self.begin_replication()

    def begin_transport(self, index: int) -> None:
        made = GroupTransport(self.runtime, index, self.name, self.chance)
        made.destinations = make_destinations(self.config, self.runtime)
        self.transports[index] = made

    def begin_replication(self) -> None:
        loop = SimulatedLoop(lambda: self._now_ns() / 1e9, self._unexpected)
        found = read_identity(self.journal, self.name)
        identity = Identity(
            self.name, self.config.group, found.uuid, found.epoch, self.chance.randbytes(8).hex(), "1"
        )
        everybody = _Everybody()
        made = loop.call(
            lambda: Replication(
                self.config,
                self.runtime,
                ReplicationLog(self.trace, self.failures),  # type: ignore[arg-type]
                identity,
                connect=lambda host, port, tls, prefers_ipv6: self.network.connect(self.name, loop, port),
                credentials=lambda transport: everybody,
                gates=lambda transport: everybody,
                clock=self.clock,
                rng=random.Random(self.chance.random()),
                tell=lambda *message: None,
                failed=self._failed,
                new_epoch=self._new_epoch,
            )
        )
        self.loop, self.replication = loop, made
        starting = loop.create_task(made.start())
        loop.run_some(20)
        assert starting.done(), "start waits for something"
        starting.result()
        self.network.listeners[self.port] = self.name, loop, made.accept

    def _new_epoch(self) -> None:
        """As in the replication process: the next one uses the new epoch."""
        try:
            keep_identity(self.disk, self.journal, self.name, True, _nothing, self.chance.randbytes)
        except Died:
            raise ProcessEnded("with its disk") from None
        raise ProcessEnded

    def _failed(self, trace: str) -> None:
        self.failures.append(trace)

    def _unexpected(self, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if not isinstance(problem, OSError):
            self.failures.append(f"{context.get('message')}: {problem!r}")

    def kill_replication(self) -> None:
        """The replication process dies alone."""
        if self.replication is None:
            return
        self._retire_replication()
        self.dead_processes.append(REPLICATION)

    def _retire_replication(self) -> None:
        if self.replication is not None and self.loop is not None:
            self.retired.append((self.loop, self.replication))
        self.loop = self.replication = None
        self.network.instance_died(self.name)

    def kill_transport(self, index: int) -> None:
        transport = self.transports[index]
        if transport is not None:
            transport.die()
            self.transports[index] = None
            self.dead_processes.append(index)

    def end(self, machine: bool) -> None:
        """The server dies, or with `machine` the whole machine."""
        for transport in self.transports:
            if transport is not None:
                transport.die()
        self.transports = [None] * WORKERS
        self.dead_processes.clear()
        self._retire_replication()
        if self.core is not None:
            if self.core._journal_files is not None:
                self.core._journal_files.retention.abandon()
            if self.core._lock is not None:
                self.core._lock.release()
            shutil.rmtree(self.runtime.directory.path)
        self.core = None
        self.paused = False
        self.disk.process_ended()
        if machine:
            self.disk.machine_crashed()

    def wipe(self) -> None:
        """Replace the disk of a dead instance by an empty one."""
        assert self.core is None
        self._read_before.clear()
        self.disk.release()
        for part in ("journal", "archive"):
            shutil.rmtree(self._directory / part, ignore_errors=True)
        self.wipes += 1
        graves = self._directory / f"graves-{self.wipes}"
        graves.mkdir()
        self.disk = SimulatedDisk(graves, self.chance)

    def close(self) -> None:
        """The world ends: give back what dead processes have left."""
        self.end(False)
        self.disk.release()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never began
            for loop, replication in self.retired:
                with contextlib.suppress(Exception):
                    loop.call(replication.abort)
                loop.run_some(1000)
                loop.close()
        self.retired.clear()
        for wake_up in self._wake_ups:
            wake_up.close()
        self._wake_ups.clear()

    # The log

    def manage_journals(self, verb: str, chance: random.Random) -> None:
        """Request that journals are archived, compressed or removed, up to a number."""
        assert self.core is not None
        files = self.core._journal_files
        assert files is not None
        full = [row["number"] for row in files.retention.rows() if row["full"]]
        if not full:
            return
        number = chance.choice(full)
        self.trace(f"journals up to {number} are to be {verb}d")
        if verb == "remove":
            end = self.log.view.directory.start_position(number + 1)
            self._read_before |= {
                entry.position: entry for entry in self.log.read() if entry.position < end
            }
        self.runtime.requests.to_core.append(msgpack.packb([1, verb, {"up_to": number}]))

    @property
    def removes(self) -> bool:
        """Whether journals with messages were removed on purpose, or may still be."""
        return bool(self._read_before)

    @property
    def removed(self) -> list[Entry]:
        """Messages that readers no longer find, because they were removed on purpose."""
        first = self.log.view.directory.start_position(self.runtime.control.first_journal_number)
        return [entry for position, entry in sorted(self._read_before.items()) if position < first]

    def messages(self, limit: int | None = None) -> list[Entry]:
        """All messages there were in its log, up to the written watermark or a limit."""
        return [*self.removed, *self.log.read(limit=limit)]

    # Steps

    def turn(self) -> bool:
        """The core takes a turn. Return whether it did anything."""
        assert self.core is not None
        return self.core.turn()

    def flush(self) -> None:
        assert self.core is not None
        flusher = self.core._flusher
        assert flusher is not None
        flusher.step()

    def housekeeping(self, steps: int) -> None:
        assert self.core is not None
        files = self.core._journal_files
        assert files is not None
        for _ in range(steps):
            files.step()

    def look(self) -> None:
        """The core looks at its supervisor, which has reaped dead processes."""
        assert self.core is not None
        while self.dead_processes:
            index = self.dead_processes.pop()
            self.runtime.control.set_transport_alive(index, False)
            self.supervisor.to_core.append(msgpack.packb(["transport died", index]))
        self.core.look()
        for message in self.supervisor.from_core:
            if message[0] == "transport drained":
                number = message[1]
                assert isinstance(number, int)
                self.trace(f"process {number} starts again")
                if number == REPLICATION:
                    self.begin_replication()
                else:
                    self.begin_transport(number)
        self.supervisor.from_core.clear()

    def run_replication(self, rounds: int) -> None:
        """The replication process runs for a while, if there is something for it."""
        if self.loop is None or self.replication is None:
            return
        wake_up = self.runtime.replication_wake_up
        if self._was_woken(wake_up.fd):
            self.loop.call_soon(self.replication.wake)
        try:
            self.loop.run_some(rounds)
        except ProcessEnded:
            self.trace("the replication process ends itself")
            self.kill_replication()
            if self.disk.dead:
                raise Died from None
        assert not self.failures, f"{self.name}: " + "\n".join(self.failures)

    @staticmethod
    def _was_woken(descriptor: int) -> bool:
        try:
            os.eventfd_read(descriptor)
        except BlockingIOError:
            return False
        return True


@dataclasses.dataclass
class GroupClient(Client):
    """A publisher that remembers what it has sent, and tells when a message is promised."""

    sent: dict[int, Message] = dataclasses.field(default_factory=dict)
    """Every message, also those that an instance refused to store: another one may have it."""
    promised: Callable[[str, int], None] | None = None

    def make_message(self, chance: random.Random) -> None:
        super().make_message(chance)
        self.sent[self.last] = self.store[self.last]

    def promise(self, sequence: int) -> None:
        before = self.acked
        super().promise(sequence)
        for number in range(before + 1, self.acked + 1):
            if number in self.store and self.store[number].logged:
                assert self.promised is not None
                self.promised(self.name, number)
