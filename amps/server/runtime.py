"""The objects that the processes of one instance share from before the fork: memory, wake-ups, the runtime directory.

The supervisor makes one Runtime and forks; every process then uses its own side of it. Nothing here survives the
instance: persistent state is in the journal directory.

The runtime directory contains memory-backed files: the transient log (topics that are not recorded), the index of
the journal in use, spill files of large messages. It is on tmpfs (`/dev/shm`, or `AMPS_RUNTIME_DIRECTORY`) and is
removed at shutdown. The next start removes the directory of a killed instance, which it recognises by the lock that
no process holds any more.
"""

import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from amps._core.shm.memory import ControlPage, PendingTable, Ring
from amps.server.action_progress import ActionProgress
from amps.server.clock import SYSTEM, Clock
from amps.server.health import DiskActivity
from amps.server.memory_use import MemoryUse
from amps.server.queue_statistics import QueueStatistics
from amps.server.replication_statistics import ReplicationStatistics
from amps.server.sow_statistics import SowStatistics
from amps.server.write_statistics import WriteStatistics

RING_BYTES = 8 << 20
EGRESS_RING_BYTES = 1 << 20
PREFIX = "amps-run-"


class RuntimeDirectory:
    """A private directory in memory, which is removed by a later start if its owner dies."""

    def __init__(self) -> None:
        """Make the directory. Raises OSError, whose text has the path and the remedy."""
        base = runtime_base()
        remove_stale(base)
        self.path = base / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self.path.mkdir(mode=0o700)
            # Children inherit the descriptor, and with it the lock: the directory is stale when all have ended.
            # The lock is taken before the file gets its name. So another start that searches meanwhile sees either no
            # lock, and leaves the directory alone, or a lock that is held.
            unnamed = self.path / "lock.new"
            self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self.path / "lock")
        except OSError as error:
            raise OSError(
                error.errno or 0,
                f"the runtime directory {self.path} cannot be made: {error.strerror}; let AMPS_RUNTIME_DIRECTORY "
                "name a directory in memory that this user may write to",
            ) from error

    def clear(self) -> None:
        """Remove the files of a stopped tree, before the tree is started again."""
        for entry in self.path.iterdir():
            if entry.name != "lock":
                entry.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the directory; the instance has ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def runtime_base() -> Path:
    """The directory in which runtime directories are made."""
    configured = os.environ.get("AMPS_RUNTIME_DIRECTORY")
    if configured:
        return Path(configured)
    shared_memory = Path("/dev/shm")
    if shared_memory.is_dir() and os.access(shared_memory, os.W_OK | os.X_OK):
        return shared_memory
    return Path(tempfile.gettempdir())


def remove_stale(base: Path) -> None:
    """Remove the runtime directories of instances that have ended."""
    for path in base.glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


class WakeUp:
    """An event descriptor: `send` wakes the process that waits for `fd` to become readable."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def send(self) -> None:
        """Wake the process. Several calls before it runs count as one."""
        try:
            os.eventfd_write(self.fd, 1)
        except BlockingIOError:
            return

    def clear(self) -> None:
        """Clear all wake-ups sent so far."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptor. No process may use it any more."""
        os.close(self.fd)


def discard_waiting(channel: socket.socket) -> None:
    """Read and discard the contents of a channel, whose receiver has ended."""
    with contextlib.suppress(OSError):
        while channel.recv(1 << 16):
            pass


class Runtime:
    """All shared objects.

    `workers` is the number of transport workers. `transports` is the number of processes that publish to the core, each
    with a place on the control page and two rings of its own: the workers, then, if there is one, the services process,
    then the replication process. `queues` is the number of queues, `pools` that of memory pools for slow clients.
    `destinations`: of each destination of replication, whether it is sync. `clock` is the time of the instance.
    `sow_topics` is the number of SOW topics.
    """

    clock: Clock = SYSTEM

    def __init__(
        self,
        workers: int,
        services: bool = False,
        queues: int = 0,
        pools: int = 1,
        clock: Clock = SYSTEM,
        replication: bool = False,
        destinations: Sequence[bool] = (),
        sow_topics: int = 0,
    ) -> None:
        transports = workers + services + replication
        self.replication_index = workers + services if replication else None
        self.pending_tables = [PendingTable() for _ in destinations]
        self._destinations = tuple(destinations)
        self.clock = clock
        self.directory = RuntimeDirectory()
        self.control = ControlPage()
        self._begin_destinations()
        self.disk_activity = DiskActivity()
        self.write_statistics = WriteStatistics()
        self.queue_statistics = QueueStatistics(workers, queues)
        self.sow_statistics = SowStatistics(workers, sow_topics)
        self.replication_statistics = ReplicationStatistics(len(self._destinations))
        self.memory_use = MemoryUse(workers, pools)
        self.began_ns = clock.time_ns()
        """UNIX time at which this tree of processes was started."""
        self.action_progress = ActionProgress()
        self.core_wake_up = WakeUp()
        self.transport_wake_ups = [WakeUp() for _ in range(transports)]
        self.ingress = [Ring(RING_BYTES) for _ in range(transports)]
        self.egress = [Ring(EGRESS_RING_BYTES) for _ in range(transports)]
        self.workers = workers
        self.transports = transports
        # The services process sends requests, the core answers: one msgpack list per datagram. Both sockets outlive any
        # process.
        self.core_requests, self.services_requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # For requests of the services process to the replication process: the end that answers, then the one that asks.
        self.replication_requests, self.services_replication = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET
        )
        # For requests to each transport: the transport's end, then that of the services process.
        self.transport_requests = [
            socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for _ in range(workers if services else 0)
        ]
        for end in self._request_ends():
            end.setblocking(False)

    def reset(self) -> None:
        """Reset the memory for a new tree of processes; no process of the old tree may be left."""
        self.control.reset()
        self._begin_destinations()
        self.disk_activity.reset()
        self.write_statistics.reset()
        self.queue_statistics.reset()
        self.sow_statistics.reset()
        self.replication_statistics.reset()
        self.memory_use.reset()
        self.began_ns = self.clock.time_ns()
        self.action_progress.reset()
        self.ingress = [Ring(RING_BYTES) for _ in range(self.transports)]
        self.egress = [Ring(EGRESS_RING_BYTES) for _ in range(self.transports)]
        self.core_wake_up.clear()
        for wake_up in self.transport_wake_ups:
            wake_up.clear()
        for end in self._request_ends():
            discard_waiting(end)
        self.directory.clear()

    def _begin_destinations(self) -> None:
        self.control.destinations = len(self._destinations)
        for index, is_sync in enumerate(self._destinations):
            self.control.begin_destination(index, is_sync)
            self.pending_tables[index].begin()

    def _request_ends(self) -> list[socket.socket]:
        return [
            self.core_requests,
            self.services_requests,
            self.replication_requests,
            self.services_replication,
            *itertools.chain(*self.transport_requests),
        ]

    @property
    def services_index(self) -> int:
        """The index of the services process among the processes that publish."""
        return self.workers

    # Paths inside the runtime directory, in one place because several processes must agree on them.

    @property
    def transient_prefix(self) -> str:
        """Prefix of the transient log's files."""
        return f"{self.directory.path}/transient."

    def index_path(self, number: int) -> Path:
        """Index of the journal file in use."""
        return self.directory.path / f"index.{number:010d}"

    def publishers_path(self, transport: int) -> Path:
        """The clients that have logged on at a transport worker (transport/publishers.py)."""
        return self.directory.path / f"publishers.{transport}"

    @property
    def deciding_path(self) -> Path:
        """The lock of the worker that decides which slow client to disconnect."""
        return self.directory.path / "slow-clients.lock"

    @property
    def queue_slots_path(self) -> Path:
        """The state of the messages in queues (`amps._core.queues.engine`)."""
        return self.directory.path / "queue.slots"

    @property
    def queue_counters_path(self) -> Path:
        """The queues' counters, a row of `amps._core.queues.engine` each."""
        return self.directory.path / "queue.counters"

    def sow_keys_path(self, number: int) -> Path:
        """The key table of a SOW topic (`amps._core.sow.table`)."""
        return self.directory.path / f"sow.{number}.keys"

    def sow_values_path(self, number: int) -> Path:
        """The value file of a SOW topic that is transient."""
        return self.directory.path / f"sow.{number}.values"

    def spill_path(self, token: str) -> Path:
        """The file of a large message on its way from a transport to the core."""
        return self.directory.path / f"spill.{token}"
