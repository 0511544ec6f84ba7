"""The queues of the core process: their memory, their settings, and their recovery at a start.

All decisions are made in `amps._core.queues.manager`. This module provides what the manager needs. That is a structured
array in the runtime directory that other processes can read, the compiled expressions of the configuration, and the
log. At every start the queues are made again from the log, beginning with their stored state (queue_starts.py,
queue_checkpoints.py).
"""

import mmap
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from amps._core.expressions.machine import Program
from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory
from amps._core.queues.engine import BLOCKS_MAX, COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import (
    ORDERING_SEED_BYTES,
    TIME_NEVER,
    LogAdapter,
    QueueManager,
    QueueRules,
    RecordedTopic,
    forget_answered,
    oldest_needed,
    rebuild,
)
from amps._core.shm.memory import NO_JOURNAL
from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.config.queue_topics import QueueTopics
from amps.expressions import Functions, Usage, compile_expression
from amps.expressions.filters import asks_message
from amps.journal.disk import Disk
from amps.journal.files import JournalHeader
from amps.journal.names import queue_cache_path, queues_ack_path, reading_places
from amps.journal.queues_ack import LogMark
from amps.messages import make_message_types
from amps.server.core.older import RecoveryRefused
from amps.server.core.queue_checkpoints import QueueCheckpoints
from amps.server.core.queue_starts import QueueStarts
from amps.server.core.recovery_points import RecoveryPoints, index_paths_of
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime

STEP_BYTES = 64 << 20
PROGRESS_INTERVAL_S = 5.0
REPORT_INTERVAL_S = 1.0
REFUSALS_INTERVAL_S = 60.0
NAME_PATH = 3
"""The class of the names of paths, as in _core/journal/record.pxd."""
NS_PER_S = 1_000_000_000
DEFERRED_ACKS_MAX = 1_000_000
"""Number of acknowledgements that may wait for unknown messages, in all queues: 270 MB of memory."""
DEFERRED_ACKS_PER_CLIENT_MAX = 250_000
"""Number of these for one connection."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of a queue in the form that the engine takes; see _QueueSettings in manager.pyi."""

    at_least_once: bool
    strict_leasing: bool
    has_priority: bool
    has_ordering_key: bool
    fairness_model: str
    expiration_model: str
    lease_period_ns: int | None
    max_backlog: int | None
    max_per_subscription_backlog: int
    expiration_ns: int | None
    max_deliveries: int
    max_cancels: int
    cancel_delay_ns: int
    cancel_delay_factor: float
    cancel_delay_max_ns: int
    target_queue_depth: int | None
    deferred_ack_expiration_ns: int
    spans: bool
    initial_owner: str | None
    domain: int


def engine_settings(queue: QueueConfig, replicates: bool = False, group: str = "") -> EngineSettings:
    """The engine's settings for a configured queue of an instance, which may replicate, and of its group."""
    is_group_local = queue.kind == "GroupLocalQueue"
    return EngineSettings(
        at_least_once=queue.semantics == "at-least-once",
        strict_leasing=queue.leasing == "strict",
        has_priority=queue.priority is not None,
        has_ordering_key=queue.ordering_key is not None,
        fairness_model=queue.fairness_model,
        expiration_model=queue.expiration_model,
        lease_period_ns=_ns(queue.lease_period_s),
        max_backlog=queue.max_backlog,
        max_per_subscription_backlog=queue.max_per_subscription_backlog,
        expiration_ns=_ns(queue.expiration_s),
        max_deliveries=queue.max_deliveries,
        max_cancels=queue.max_cancels,
        cancel_delay_ns=_ns(queue.cancel_delay_s) or 0,
        cancel_delay_factor=queue.cancel_delay_factor,
        cancel_delay_max_ns=round(queue.cancel_delay_max_s * NS_PER_S),
        target_queue_depth=queue.target_queue_depth,
        deferred_ack_expiration_ns=round(queue.deferred_ack_expiration_s * NS_PER_S),
        spans=replicates and queue.kind != "LocalQueue",
        initial_owner=queue.initial_owner if is_group_local else None,
        domain=queue_domain(queue.domain or group) if is_group_local else 0,
    )


def queue_domain(domain: str) -> int:
    """The number that identifies a group local queue, among those of its name, in records of all instances (not 0)."""
    return zlib.crc32(domain.encode("utf-8", "surrogatepass")) or 1


def _ns(interval_s: float | None) -> int | None:
    return None if interval_s is None else max(1, round(interval_s * NS_PER_S))


def queue_rules(
    queue: QueueConfig, evaluations: EvaluationContexts, functions: Functions
) -> QueueRules | None:
    """The compiled expressions of a queue, which decide about its messages; None: it has none. They were checked with
    the configuration, by the same rules.
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
    ordering_key = program(queue.ordering_key, Usage.FIELD)
    if not asks:
        return None
    return QueueRules(
        evaluations.of_type(queue.message_type),
        filter_,
        barrier,
        priority,
        any(asks),
        ordering_key,
        None if ordering_key is None else os.urandom(ORDERING_SEED_BYTES),
    )


class CoreQueues:
    """All queues of the instance. It is made once per core."""

    def __init__(self, config: ServerConfig, runtime: Runtime, log: EventLog, disk: Disk) -> None:
        """Raises OSError if the memory cannot be allocated."""
        settings = config.transaction_log
        assert settings is not None
        self._config = config
        self._runtime = runtime
        self._log = log
        self.topics = QueueTopics(config)
        # Expressions cannot refer to publishers, which may be gone when the log is read again.
        self._evaluations = EvaluationContexts(
            make_message_types(config.message_types.values()),
            config.name,
            config.group,
            log,
            functions=config.functions,
        )
        self._next_report_s = 0.0
        self._refusals = 0
        self.adapter = self._make()
        directory, name = settings.journal_directory, config.name
        self._paths = queues_ack_path(directory, name), queue_cache_path(directory, name)
        self.checkpoints = QueueCheckpoints(
            config.queues, self.adapter, self._paths, runtime.control, disk, self._log.log
        )

    def _make(self) -> LogAdapter:
        """Make the queues, without messages. Raises OSError."""
        config, runtime = self._config, self._runtime
        memory = _SharedMemory(runtime.queue_slots_path, arena_bytes(BLOCKS_MAX))
        counters = _SharedMemory(runtime.queue_counters_path, COUNTERS_BYTES * len(config.queues))
        self._arena = QueueArena(memory.view, BLOCKS_MAX, memory.make_room)
        manager = QueueManager(
            self._arena,
            counters.view,
            [engine_settings(queue, config.replicates, config.group) for queue in config.queues],
            runtime.transports,
            config.name,
        )
        manager.limit_deferred(DEFERRED_ACKS_MAX, DEFERRED_ACKS_PER_CLIENT_MAX)
        return LogAdapter(
            manager,
            [(queue.name, queue.message_type) for queue in config.queues],
            [queue_rules(queue, self._evaluations, config.functions) for queue in config.queues],
        )

    # --- the start ----------------------------------------------------------------------------------------

    def recover(
        self,
        journals: Sequence[JournalHeader],
        limit: int,
        mark: LogMark,
        last_sequence: Callable[[int], int],
    ) -> None:
        """Make the queues of a log: from their stored state, and from the log behind it, up to `limit`.

        `journals`: oldest first, the last one may be in use. `mark` describes the end of the log, for the next start.
        `last_sequence(publisher id)`: the highest sequence in the log. Raises RecoveryRefused, OSError.
        """
        began_s = time.monotonic()
        settings = self._config.transaction_log
        assert settings is not None
        archive = settings.journal_archive_directory
        first, *more = reading_places(settings.journal_directory, archive, self._config.name)
        directory = LogDirectory(*first, self._resolve, more)
        points = RecoveryPoints(
            directory,
            journals,
            limit,
            index_paths_of(settings.journal_directory, archive, self._config.name),
        )
        try:
            starts = QueueStarts(self._config.queues, journals, limit, *self._paths, self._log.log)
            if not starts.restore(self.adapter):
                self.adapter = self._make()
                self.checkpoints.use(self.adapter)
            starts.find_others(self.adapter, points)
            if journals:
                self._read(directory, journals, starts.position, limit)
        except (LogDamaged, ValueError) as problem:
            raise RecoveryRefused(
                f"the queues cannot be rebuilt from the log: {problem}; run 'amps journal verify'"
            ) from problem
        except MemoryError as problem:
            raise OSError(
                f"the queues cannot be rebuilt from the log: {problem}; more memory is needed in "
                f"{self._runtime.directory.path.parent}, see AMPS_RUNTIME_DIRECTORY"
            ) from problem
        for queue in self.adapter.manager.queues:
            forget_answered(queue, last_sequence)
        self.adapter.begin()
        self._evaluations.report()
        self.checkpoints.begin_with(*starts.copied, starts.kept)
        if starts.news:
            try:
                self.checkpoints.remember(mark)
            except OSError as problem:
                reason = problem.strerror or str(problem)
                self._log.log("31-0004", text=f"{self._paths[0]} cannot be written: {reason}")
        self._log.log(
            "31-0001", text=f"{self._depth():,} messages in queues, {time.monotonic() - began_s:.1f} s"
        )

    def _read(
        self, directory: LogDirectory, journals: Sequence[JournalHeader], position: int, limit: int
    ) -> None:
        """Read the log from a position on. Raises LogDamaged, ValueError, QueueMemoryFull."""
        number = max(
            (info.number for info in journals if info.start_position <= position), default=journals[0].number
        )
        cursor = LogCursor(directory, number, 0, True)
        cursor.learns_names = self._learn_name
        cursor.fetch()
        cursor.skip_to(position)  # this also reads the numbers of the topics, and the names
        begin = cursor.position
        told_s = time.monotonic()
        while not rebuild(cursor, self.adapter, limit, STEP_BYTES):
            now_s = time.monotonic()
            if now_s - told_s >= PROGRESS_INTERVAL_S:
                told_s = now_s
                share = (cursor.position - begin) / max(1, limit - begin)
                self._log.log(
                    "31-0002",
                    text=f"queues are rebuilt from the log: {share:.0%} read, {self._depth():,} messages",
                )

    def _resolve(self, topic: str, message_type: str) -> RecordedTopic:
        numbers = self.topics.feeds(topic, message_type)
        number = self.topics.queue(topic, message_type)
        name = topic.encode("utf-8", "surrogatepass")
        return RecordedTopic(
            name, [self.adapter.manager.queues[n] for n in numbers], -1 if number is None else number
        )

    def _learn_name(self, class_: int, name_id: int, text: bytes) -> None:
        if class_ == NAME_PATH:
            self.adapter.note_path(name_id, text.decode("utf-8", "surrogatepass"))

    def _depth(self) -> int:
        return sum(queue.live for queue in self.adapter.manager.queues)

    # --- while the core runs --------------------------------------------------------------------------------

    def look(self, now_s: float, mark: Callable[[], LogMark], position: int) -> None:
        """Begin a checkpoint if it is time, and log problems at intervals. The log ends at `position`, which `mark`
        describes in full.
        """
        self.checkpoints.look(mark, position)
        if now_s < self._next_report_s:
            return
        self._next_report_s = now_s + REPORT_INTERVAL_S
        self._evaluations.report()
        if self._arena.refusals != self._refusals:
            self._refusals = self._arena.refusals
            self._next_report_s = now_s + REFUSALS_INTERVAL_S
            self._log.log(
                "31-0003",
                text=f"messages for queues are refused: {self._arena.obstacle}; acknowledge or expire messages, or "
                f"give {self._runtime.directory.path.parent} more room",
            )

    def oldest_position(self, number: int) -> int:
        """Log position of a queue's oldest message; larger than any if it is empty."""
        return self.adapter.manager.queues[number].begins_at(TIME_NEVER)

    @property
    def all_written(self) -> bool:
        """Whether the journal has a record of every removal from the queues."""
        return self.adapter.manager.output.removal_count == 0

    def oldest_journal(self, number_at: Callable[[int], int]) -> int:
        """Number of the oldest journal that contains a message of a queue (queues.md §14.6); NO_JOURNAL: there is none.

        It may be called by other threads than the core's: the positions are read while the core stands still.
        """
        needed = [oldest_needed(queue) for queue in self.adapter.manager.queues]
        oldest = min((position for position in needed if position is not None), default=None)
        return NO_JOURNAL if oldest is None else number_at(oldest)


class _SharedMemory:
    """A mapped file in memory; it takes memory only where it is written to."""

    def __init__(self, path: Path, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, max(size, mmap.PAGESIZE))
        self.view = mmap.mmap(self._descriptor, max(size, mmap.PAGESIZE))

    def make_room(self, offset: int, length: int) -> None:
        """Allocate the pages: a write to a page without memory would end the process. Raises OSError."""
        os.posix_fallocate(self._descriptor, offset, length)
