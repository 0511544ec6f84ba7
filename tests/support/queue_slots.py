"""Queues in memory, as the core has them, and a view of them, as other processes have it."""

import numpy

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import QueueManager, SlotMemory
from tests.support.queue_engine import EngineSettings
from tests.support.queue_subject import QueueSettings

BLOCKS = 64


class SharedQueues:
    """Some queues; messages are known by log positions."""

    def __init__(self, *settings: QueueSettings, blocks: int = BLOCKS) -> None:
        self.slots = slots = numpy.zeros(arena_bytes(blocks), "u1")
        self.counters = counters = numpy.zeros(len(settings) * COUNTERS_BYTES, "u1")
        engine = [EngineSettings(one) for one in settings]
        self.manager = QueueManager(QueueArena(slots, blocks), counters.data, engine, 1)
        self.memory = SlotMemory(slots.data, counters.data, blocks)

    def counter(self, queue: int, name: str) -> int:
        row = self.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
        return int(row[COUNTER_NAMES.index(name)])

    def enter(self, queue: int, *positions: int, is_barrier: bool = False) -> None:
        """Add messages."""
        for position in positions:
            self.manager.enqueue(queue, position, (1, position), 1, None, 1, None, is_barrier)

    def leave(self, queue: int, *positions: int) -> None:
        """Acknowledge messages."""
        for position in positions:
            _, removed, _ = self.manager.acknowledge(queue, 0, [(1, position, position, 0)], 0, 0, 1)
            assert removed == 1
