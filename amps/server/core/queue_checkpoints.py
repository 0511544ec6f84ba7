"""Copying the contents of the queues beside the running core: `queue.cache`, and `queues.ack` with it.

The core thread copies a few thousand messages in each turn. The housekeeping thread writes them, and completes the file
when the journal is durable up to the end of the copying: so the copy contains no acknowledgement that a crash of the
machine could undo. A copy begins when the log has grown enough since the last one, and at an orderly stop. A copy is
optional: if it cannot be written, the next start reads more of the log.

`queues.ack` is also written when the core opens with queues, or recovery points, that are not in the file: where a
queue begins must be stored before it takes its first message.
"""

import contextlib
import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from amps._core.queues.manager import (
    LogAdapter,
    copy_messages,
    deferred_acknowledgements,
    early_transfers,
    publisher_table,
    seen_until,
)
from amps._core.shm.memory import ControlPage
from amps.config.model_queues import QueueConfig
from amps.journal.disk import Disk
from amps.journal.queue_cache import (
    CachedQueue,
    Kind,
    QueueCacheWriter,
    header_bytes,
    ownerships_bytes,
    queue_bytes,
    section_bytes,
)
from amps.journal.queues_ack import LogMark, QueueStart, write_queues_ack
from amps.server.core.recovery_points import recovery_point_key
from amps.server.eventlog import Report

QUEUES_PER_STEP = 256
PIECES_WAITING_MAX = 4


class _Phase(enum.Enum):
    IDLE = enum.auto()
    COPYING = enum.auto()  # the core thread copies, the housekeeping thread writes
    COPIED = enum.auto()  # waits for writing and for the journal; the housekeeping thread ends this phase


def entry_rules(queue: QueueConfig) -> tuple[object, ...]:
    """The settings that decide which messages enter a queue, and with which values. Others make a copy useless."""
    ordering = () if queue.ordering_key is None else (queue.ordering_key,)
    owner = ("owner", queue.initial_owner) if queue.kind == "GroupLocalQueue" else ()
    return (
        queue.underlying_topic,
        queue.underlying_is_regex,
        queue.filter,
        queue.priority,
        queue.barrier_expression,
        queue.expiration_s,
        queue.expiration_model,
        *ordering,
        *owner,
    )


class QueueCheckpoints:
    """The checkpoints of all queues of the instance. Comments mark which thread may call a method."""

    slots_per_step = 16384
    piece_bytes = 1 << 18
    log_bytes_min = 256 << 20
    """The log must grow by so much, or by twice the size of the copy if that is more, before the next copy."""

    def __init__(
        self,
        queues: Sequence[QueueConfig],
        adapter: LogAdapter,
        paths: tuple[Path, Path],
        control: ControlPage,
        disk: Disk,
        report: Report,
    ) -> None:
        """`paths`: of queues.ack, and of queue.cache."""
        self._queues = queues
        self._adapter = adapter
        self._ack_path, self._cache_path = paths
        self._control = control
        self._disk = disk
        self._report = report
        self.wake: Callable[[], None] = lambda: None
        """Called when `step` has new work."""
        self._last_position = 0  # log position at which the last copy, or attempt, began
        self._size_bytes = 0  # of the last copy
        self._kept: dict[int, int] = {}
        self._phase = _Phase.IDLE
        # The core thread's, while copying
        self._mark = LogMark(0, 0, 0, 0)
        self._number = 0  # of the queue being copied
        self._after = self._until = 0
        self._in_queue = False
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0
        self._starts: list[QueueStart] = []
        # Passed between the threads
        self._pieces: deque[bytes] = deque()
        self._complete_at = 0
        self._broken = (
            False  # set by the housekeeping thread: it could not be written; cleared by the core thread
        )
        # The housekeeping thread's
        self._writer: QueueCacheWriter | None = None

    # --- core thread --------------------------------------------------------------------------------------

    def use(self, adapter: LogAdapter) -> None:
        """Replace the adapter: the queues were made again."""
        self._adapter = adapter

    def begin_with(self, last_position: int, size_bytes: int, kept: Mapping[int, int]) -> None:
        """Set the size and begin of an existing copy; 0, 0: there is none. `kept`: see QueueStart."""
        self._last_position, self._size_bytes = last_position, size_bytes
        self._kept = dict(kept)

    def look(self, mark: Callable[[], LogMark], position: int) -> None:
        """Begin a copy if it is time. The log ends at `position`, which `mark` describes in full."""
        if self._broken:
            self._forget()
        if self._phase is _Phase.IDLE and position - self._last_position >= max(
            self.log_bytes_min, 2 * self._size_bytes
        ):
            self._begin(mark())
        self.turn(position)

    def turn(self, position: int) -> None:
        """Continue copying; the log ends at `position`."""
        if self._phase is _Phase.COPYING and not self._broken and len(self._pieces) < PIECES_WAITING_MAX:
            self._copy(position)

    def _begin(self, mark: LogMark) -> None:
        # Removals that are in no journal yet would be missing from both the copy and the log behind it.
        if self._adapter.manager.output.removal_count:
            return
        self._mark = mark
        self._last_position = mark.position
        self._number = 0
        self._in_queue = False
        self._starts = []
        self._buffer = [header_bytes(mark)]
        self._buffered_bytes = 0
        self._phase = _Phase.COPYING

    def _copy(self, position: int) -> None:
        slots, queues = self.slots_per_step, QUEUES_PER_STEP
        while slots > 0 and queues > 0 and self._number < len(self._queues):
            queue = self._adapter.manager.queues[self._number]
            if not self._in_queue:
                self._in_queue = True
                self._after, self._until = 0, seen_until(queue)
                self._starts.append(self._start_of(self._number))
                self._put(queue_bytes(self._cached(self._starts[-1], self._number)))
                seed = self._adapter.ordering_seed(self._number)
                if seed is not None:
                    self._put(section_bytes(Kind.ORDERING_SEED, seed))
            copy, width, looked_at, self._after, ownerships = copy_messages(
                queue, self._after, self._until, slots
            )
            slots -= looked_at
            if ownerships:
                self._put(ownerships_bytes(ownerships))
            if copy:
                self._put(section_bytes(Kind.MESSAGES, copy, width))
            if self._after == self._until:
                self._in_queue = False
                self._number += 1
                queues -= 1
        if self._number == len(self._queues) and not self._adapter.manager.output.removal_count:
            self._put(section_bytes(Kind.PUBLISHERS, publisher_table(self._adapter.manager)))
            self._put(section_bytes(Kind.END))
            self._hand_over()
            self._complete_at = position
            self._phase = _Phase.COPIED
        elif self._buffered_bytes >= self.piece_bytes:
            self._hand_over()

    def _cached(self, start: QueueStart, number: int) -> CachedQueue:
        return CachedQueue(
            start.name,
            start.message_type,
            start.recovery_point,
            entry_rules(self._queues[number]),
            self._until,
            start.position,
            start.deferred,
            start.kept,
            start.early,
        )

    def _start_of(self, number: int) -> QueueStart:
        config, queue = self._queues[number], self._adapter.manager.queues[number]
        kept = self._kept.get(number, 0)
        position = queue.begins_at(self._mark.position)
        return QueueStart(
            config.name,
            config.message_type,
            recovery_point_key(config.recovery_point),
            min(position, kept or position),
            tuple(deferred_acknowledgements(queue)),
            entry_rules(config),
            kept,
            tuple(early_transfers(queue)),
        )

    def _put(self, data: bytes) -> None:
        self._buffer.append(data)
        self._buffered_bytes += len(data)

    def _hand_over(self) -> None:
        self._pieces.append(b"".join(self._buffer))
        self._buffer, self._buffered_bytes = [], 0
        self.wake()

    def _forget(self) -> None:
        self._pieces.clear()
        self._buffer = []
        self._phase = _Phase.IDLE
        self._broken = False

    def remember(self, mark: LogMark) -> None:
        """Write to queues.ack where each queue begins. Raises OSError."""
        self._mark = mark
        write_queues_ack(
            self._disk, self._ack_path, mark, [self._start_of(number) for number in range(len(self._queues))]
        )

    def write_now(self, mark: LogMark) -> None:
        """Write a copy at an orderly stop, after the end of the housekeeping thread: all is durable and unchanging."""
        self._abandon()
        self._forget()
        self._begin(mark)
        try:
            while self._phase is _Phase.COPYING:
                self._copy(mark.position)
                while self._pieces:
                    self._write(self._pieces.popleft())
            if self._phase is _Phase.COPIED:
                self._finish()
        except OSError as problem:
            self._failed(problem)

    # --- housekeeping thread --------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether `step` has work now."""
        return not self._broken and (bool(self._pieces) or self._is_complete())

    def _is_complete(self) -> bool:
        return self._phase is _Phase.COPIED and self._control.durable >= self._complete_at

    def step(self) -> bool:
        """Do one part of the work. False: there was nothing to do now."""
        if self._broken:
            return False
        complete = self._is_complete()  # read before the pieces: when it is True, no more are added
        try:
            if self._pieces:
                self._write(self._pieces.popleft())
                return True
            if complete:
                self._finish()
                return True
        except OSError as problem:
            self._failed(problem)
            self._broken = True
        return False

    def _write(self, data: bytes) -> None:
        if self._writer is None:
            self._writer = QueueCacheWriter(self._disk, self._cache_path)
        self._writer.write(data)

    def _finish(self) -> None:
        writer, self._writer = self._writer, None
        assert writer is not None
        try:
            writer.finish()
        except OSError:
            self._writer = writer
            raise
        self._size_bytes = writer.size_bytes
        write_queues_ack(self._disk, self._ack_path, self._mark, self._starts)
        self._phase = _Phase.IDLE

    def _failed(self, problem: OSError) -> None:
        self._abandon()
        reason = problem.strerror or str(problem)
        self._report(
            "31-0004",
            text=f"{self._cache_path} cannot be written: {reason}; the next start reads more of the log",
        )

    def _abandon(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.abandon()
