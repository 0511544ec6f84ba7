"""Queues in the files that the core shares, and the rest of an instance that a view of queues needs."""

import mmap
from pathlib import Path

from amps._core.queues.engine import BLOCKS_MAX, COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import QueueManager
from amps._core.shm.memory import ControlPage
from amps.server.queue_statistics import QueueStatistics
from tests.support.queue_engine import EngineSettings
from tests.support.queue_subject import QueueSettings

TRANSPORTS = 2


class QueueFiles:
    """Stands for the runtime of an instance (amps.server.runtime), and fills the core's files."""

    def __init__(self, directory: Path, *settings: QueueSettings, control: ControlPage | None = None) -> None:
        self.queue_slots_path = directory / "queue.slots"
        self.queue_counters_path = directory / "queue.counters"
        self.control = control or ControlPage()
        self.queue_statistics = QueueStatistics(TRANSPORTS, len(settings))
        self.began_ns = 0
        arena = QueueArena(_mapped(self.queue_slots_path, arena_bytes(BLOCKS_MAX)), BLOCKS_MAX)
        counters = _mapped(self.queue_counters_path, COUNTERS_BYTES * len(settings))
        self.manager = QueueManager(arena, counters, [EngineSettings(one) for one in settings], TRANSPORTS)

    def enter(self, queue: int, *positions: int, now_ns: int = 1) -> None:
        """Add messages; their sequences are their log positions."""
        for position in positions:
            self.manager.enqueue(queue, position, (1, position), now_ns, None, now_ns)

    def acknowledge(self, queue: int, *positions: int, client: int = 1, now_ns: int = 1) -> None:
        """Remove messages."""
        for position in positions:
            self.manager.acknowledge(queue, client, [(1, position, position, 0)], 0, 0, now_ns)


def _mapped(path: Path, size: int) -> mmap.mmap:
    """A sparse file: it takes room only where it is written to."""
    with path.open("w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)
