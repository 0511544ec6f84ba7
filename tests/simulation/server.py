"""The server of a simulation: the real `Core`, with shared memory, wake-ups, log and channel that need no process.

Faults and their times are not decided here but in `world`. The configuration's journal is far smaller than a real one
may be, so that a few messages fill several.
"""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import msgpack

import amps.config
from amps._core.shm.memory import ControlPage, Ring
from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.server.core.journal_retention import JournalRetention
from amps.server.core.process import Core
from amps.server.runtime import Runtime
from amps.server.write_statistics import WriteStatistics
from tests.simulation.checks import Log
from tests.simulation.clients import LOGGED_PATTERN
from tests.simulation.disk import SimulatedDisk

NAME = "sim"
TRANSPORTS = 2
EGRESS_BYTES = 4096
CONFIG = f"""<AMPSConfig><Name>{NAME}</Name>
<Transports><Transport><Name>t</Name><Type>tcp</Type><Protocol>amps</Protocol><MessageType>json</MessageType>
<InetAddr>127.0.0.1:9007</InetAddr></Transport></Transports>
<TransactionLog><JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
<Topic><Name>{LOGGED_PATTERN}</Name><MessageType>json</MessageType></Topic></TransactionLog>
<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging></AMPSConfig>"""

_loaded = amps.config.load("sim.xml", {}, text=CONFIG).config


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that all servers of one seed share."""

    config: ServerConfig
    ring_bytes: int
    now_ns: Callable[[], int]
    trace: Callable[[str], None]
    egress_bytes: int = EGRESS_BYTES


def configured(journal_bytes: int, preallocated: int, queues: tuple[QueueConfig, ...] = ()) -> ServerConfig:
    """A configuration with journals of that size, and with these queues."""
    log = _loaded.transaction_log
    assert log is not None
    return dataclasses.replace(
        _loaded,
        queues=queues,
        transaction_log=dataclasses.replace(
            log, journal_size_bytes=journal_bytes, preallocated_journal_files=preallocated
        ),
    )


class SimulatedWakeUp:
    """A wake-up for which no process waits."""

    fd = -1

    def send(self) -> None:
        """Do nothing: no process sleeps."""

    def clear(self) -> None:
        """Do nothing: there is no flag to clear."""


class SimulatedRequests:
    """The core's end of the channel on which the services process asks for the management of journals."""

    def __init__(self) -> None:
        self.to_core: list[bytes] = []
        self.from_core: list[list[object]] = []

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes) -> None:
        self.from_core.append(msgpack.unpackb(data))

    def recv(self, size: int) -> bytes:
        if not self.to_core:
            raise BlockingIOError
        return self.to_core.pop(0)


class SimulatedRuntime(Runtime):
    """The shared memory of one process tree, with rings so small that they are often full."""

    def __init__(self, path: Path, ring_bytes: int, egress_bytes: int = EGRESS_BYTES) -> None:
        path.mkdir()
        self._path = path
        self.control = ControlPage()
        self.write_statistics = WriteStatistics()
        self.core_wake_up = SimulatedWakeUp()  # type: ignore[assignment]
        self.transport_wake_ups = [SimulatedWakeUp() for _ in range(TRANSPORTS)]  # type: ignore[misc]
        self.ingress = [Ring(ring_bytes) for _ in range(TRANSPORTS)]
        self.egress = [Ring(egress_bytes) for _ in range(TRANSPORTS)]
        self.workers = TRANSPORTS
        self.transports = TRANSPORTS
        self.replication_index = None
        self.requests = SimulatedRequests()
        self.core_requests = self.requests  # type: ignore[assignment]

    @property
    def transient_prefix(self) -> str:
        return f"{self._path}/transient."

    @property
    def queue_slots_path(self) -> Path:
        return self._path / "queue.slots"

    @property
    def queue_counters_path(self) -> Path:
        return self._path / "queue.counters"

    def sow_keys_path(self, number: int) -> Path:
        return self._path / f"sow.{number}.keys"

    def sow_values_path(self, number: int) -> Path:
        return self._path / f"sow.{number}.values"

    def index_path(self, number: int) -> Path:
        return self._path / f"index.{number:010d}"

    def spill_path(self, token: str) -> Path:
        return self._path / f"spill.{token}"


class SimulatedLog:
    """The event log: it keeps the core's records."""

    def __init__(self, trace: Callable[[str], None]) -> None:
        self._trace = trace

    def log(self, event: str, **values: object) -> None:
        self._trace(f"log {event} {values}")


class SimulatedSupervisor:
    """The core's end of the channel."""

    def __init__(self) -> None:
        self.to_core: list[bytes] = []
        self.from_core: list[list[object]] = []

    def fileno(self) -> int:
        return -1

    def send(self, data: bytes) -> None:
        self.from_core.append(msgpack.unpackb(data))

    def recv(self, size: int, flags: int) -> bytes:
        if not self.to_core:
            raise BlockingIOError
        return self.to_core.pop(0)


class Server:
    """One process tree, from recovery to its end."""

    def __init__(
        self, settings: Settings, directory: Path, archive: Path, disk: SimulatedDisk, scratch: Path
    ) -> None:
        """Start on the journals in `directory` and `archive`; `scratch` takes the place of shared memory."""
        self.runtime = SimulatedRuntime(scratch, settings.ring_bytes, settings.egress_bytes)
        self.supervisor = SimulatedSupervisor()
        log = settings.config.transaction_log
        assert log is not None
        config = dataclasses.replace(
            settings.config,
            transaction_log=dataclasses.replace(
                log, journal_directory=directory, journal_archive_directory=archive
            ),
        )
        self.core = Core(
            config,
            self.runtime,
            SimulatedLog(settings.trace),  # type: ignore[arg-type]
            self.supervisor,  # type: ignore[arg-type]
            disk=disk,
            now_ns=settings.now_ns,
            background=False,
        )
        self.log = Log(directory, archive, NAME, self.runtime)

    @property
    def retention(self) -> JournalRetention:
        """The journal retention of its core."""
        assert self.core._journal_files is not None
        return self.core._journal_files.retention

    def first_position(self) -> int:
        """The position at which the log begins for readers."""
        return self.log.view.directory.start_position(self.runtime.control.first_journal_number)

    def end(self) -> None:
        """Release what the kernel releases when a process ends."""
        if self.core._journal_files is not None:
            self.core._journal_files.retention.abandon()
        if self.core._lock is not None:
            self.core._lock.release()
        shutil.rmtree(self.runtime._path)
