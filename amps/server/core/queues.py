"""The queues of the core process: their memory, their settings, and how they come back at a start.

What decides is in `amps._core.queue_book`; here is what it takes: a structured array that other processes can read, in
the runtime directory, the expressions of the configuration, compiled, and the log, of which the queues are made again
at every start.
"""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amps._core.expression_vm import Program
from amps._core.log_reader import LogCursor, LogDamaged, LogDirectory
from amps._core.queue_book import QueueBook
from amps._core.queue_desk import QueueDesk
from amps._core.queue_list import COUNTERS_BYTES
from amps._core.queue_rebuild import RecordedTopic, rebuild
from amps._core.queue_rules import QueueRules
from amps._core.queue_slots import BLOCKS_MAX, QueueArena, arena_bytes
from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.config.queue_topics import QueueTopics
from amps.expressions import Functions, Usage, compile_expression
from amps.expressions.filters import asks_message
from amps.journal.names import reading_places
from amps.messages import make_message_types
from amps.server.benches import Benches
from amps.server.core.older import RecoveryRefused
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime

STEP_BYTES = 64 << 20
PROGRESS_INTERVAL_S = 5.0
REPORT_INTERVAL_S = 1.0
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A queue as the engine wants it described; see _QueueSettings in queue_book.pyi."""

    at_least_once: bool
    strict_leasing: bool
    has_priority: bool
    fairness_model: str
    expiration_model: str
    lease_period_ns: int | None
    max_backlog: int | None
    max_per_subscription_backlog: int
    expiration_ns: int | None
    max_deliveries: int
    max_cancels: int
    target_queue_depth: int | None
    deferred_ack_expiration_ns: int


def engine_settings(queue: QueueConfig) -> EngineSettings:
    """What a configured queue means to the engine."""
    return EngineSettings(
        at_least_once=queue.semantics == "at-least-once",
        strict_leasing=queue.leasing == "strict",
        has_priority=queue.priority is not None,
        fairness_model=queue.fairness_model,
        expiration_model=queue.expiration_model,
        lease_period_ns=_ns(queue.lease_period_s),
        max_backlog=queue.max_backlog,
        max_per_subscription_backlog=queue.max_per_subscription_backlog,
        expiration_ns=_ns(queue.expiration_s),
        max_deliveries=queue.max_deliveries,
        max_cancels=queue.max_cancels,
        target_queue_depth=queue.target_queue_depth,
        deferred_ack_expiration_ns=round(queue.deferred_ack_expiration_s * NS_PER_S),
    )


def _ns(interval_s: float | None) -> int | None:
    return None if interval_s is None else max(1, round(interval_s * NS_PER_S))


def queue_rules(queue: QueueConfig, benches: Benches, functions: Functions) -> QueueRules | None:
    """What the expressions of a queue decide of its messages; None: it has none. They were checked with the
    configuration, by the same rules.
    """
    asks: list[bool] = []

    def program(text: str | None, usage: Usage) -> Program | None:
        if text is None:
            return None
        expression = compile_expression(text, usage | Usage.DETERMINISTIC, functions)
        asks.append(asks_message(expression.syntax))
        return expression.program

    filter_ = program(queue.filter, Usage.FILTER)
    barrier = program(queue.barrier_expression, Usage.FILTER)
    priority = program(queue.priority, Usage.FIELD)
    if not asks:
        return None
    return QueueRules(benches.bench(queue.message_type), filter_, barrier, priority, any(asks))


class CoreQueues:
    """All queues of the instance. Made once per core."""

    def __init__(self, config: ServerConfig, runtime: Runtime, log: EventLog) -> None:
        """Raises OSError if the memory cannot be had."""
        queues = config.queues
        self.topics = QueueTopics(config)
        memory = _SharedMemory(runtime.queue_slots_path, arena_bytes(BLOCKS_MAX))
        counters = _SharedMemory(runtime.queue_counters_path, COUNTERS_BYTES * len(queues))
        arena = QueueArena(memory.view, BLOCKS_MAX, memory.make_room)
        book = QueueBook(
            arena, counters.view, [engine_settings(queue) for queue in queues], runtime.transports
        )
        # Whoever published may be gone when the log is read again: nothing is asked about publishers.
        self._benches = Benches(
            make_message_types(config.message_types.values()),
            config.name,
            config.group,
            log,
            functions=config.functions,
        )
        self._next_report_s = 0.0
        self.desk = QueueDesk(
            book,
            [(queue.name, queue.message_type) for queue in queues],
            [queue_rules(queue, self._benches, config.functions) for queue in queues],
        )

    def recover(
        self,
        journal_directory: Path,
        archive: Path | None,
        instance_name: str,
        first_number: int,
        limit: int,
        report: Callable[[str, str], None],
    ) -> None:
        """Make the queues of the log from its first journal up to a position. Raises RecoveryRefused, OSError."""
        first, *more = reading_places(journal_directory, archive, instance_name)
        directory = LogDirectory(*first, self._resolve, more)
        began_s = told_s = time.monotonic()
        try:
            cursor = LogCursor(directory, first_number, 0, True)
            begin = cursor.position
            while not rebuild(cursor, self.desk, limit, STEP_BYTES):
                now_s = time.monotonic()
                if now_s - told_s >= PROGRESS_INTERVAL_S:
                    told_s = now_s
                    share = (cursor.position - begin) / max(1, limit - begin)
                    report(
                        "31-0002", f"queues are made of the log: {share:.0%} read, {self._depth():,} messages"
                    )
        except (LogDamaged, ValueError) as problem:
            raise RecoveryRefused(
                f"the queues cannot be made of the log: {problem}; run 'amps journal verify'"
            ) from problem
        except MemoryError as problem:
            raise OSError(f"the queues cannot be made of the log: {problem}") from problem
        self.desk.begin()
        self._benches.report()
        report("31-0001", f"{self._depth():,} messages in queues, {time.monotonic() - began_s:.1f} s")

    def look(self, now_s: float) -> None:
        """Tell, once in a while, of messages that expressions could not be evaluated for."""
        if now_s >= self._next_report_s:
            self._next_report_s = now_s + REPORT_INTERVAL_S
            self._benches.report()

    def _resolve(self, topic: str, message_type: str) -> RecordedTopic:
        numbers = self.topics.feeds(topic, message_type)
        number = self.topics.queue(topic, message_type)
        name = topic.encode("utf-8", "surrogatepass")
        return RecordedTopic(
            name, [self.desk.book.queues[n] for n in numbers], -1 if number is None else number
        )

    def _depth(self) -> int:
        return sum(queue.live for queue in self.desk.book.queues)


class _SharedMemory:
    """A file in memory, mapped; it takes room where it is written to."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, max(size, mmap.PAGESIZE))
        self.view = mmap.mmap(self._descriptor, max(size, mmap.PAGESIZE))

    def make_room(self, offset: int, length: int) -> None:
        """A page that cannot be had would end the process when it is written to. Raises OSError."""
        os.posix_fallocate(self._descriptor, offset, length)
