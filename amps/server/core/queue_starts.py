"""The state each queue has after recovery, and the log position from which it must be read (queues.md §17).

- A queue that is not in `queues.ack`, or has another RecoveryPoint there, begins empty at its RecoveryPoint.
- A queue that is in `queue.cache` with its current configuration begins with the messages there. It needs the log from
  the begin of the copying on.
- Any other queue begins empty at its position in `queues.ack`: all its messages entered later. So does a queue whose
  definition has changed: by its new rules it then takes the messages that had not left it. It will begin there again as
  long as that is needed, so that messages that the new rules exclude are not lost with them.

`queues.ack` decides which queues are known; without it, the cache does. Without both, each queue begins at its
RecoveryPoint (D-37). A file that is unusable, or belongs to another log, is reported and ignored.
"""

from collections.abc import Sequence
from pathlib import Path

from amps._core.queues.manager import CopyDamaged, LogAdapter, restore_messages, restore_rest
from amps.config.model_queues import QueueConfig
from amps.journal.files import JournalHeader
from amps.journal.queue_cache import CachedQueue, Kind, QueueCacheDamaged, QueueCacheReader
from amps.journal.queues_ack import EarlyTransfer, QueuesAckDamaged, QueueStart, read_queues_ack
from amps.server.core.queue_checkpoints import entry_rules
from amps.server.core.recovery_points import RecoveryPoints, recovery_point_key
from amps.server.eventlog import Report

Key = tuple[str, str]
Deferred = tuple[tuple[int, int, int], ...]
Early = tuple[EarlyTransfer, ...]


class QueueStarts:
    """Where all queues begin. Call `restore` first, then `find_others`."""

    def __init__(
        self,
        queues: Sequence[QueueConfig],
        journals: Sequence[JournalHeader],
        limit: int,
        ack_path: Path,
        cache_path: Path,
        report: Report,
    ) -> None:
        """`journals`: oldest first; the log ends at `limit`."""
        self._queues = queues
        self._journals = journals
        self._limit = limit
        self._cache_path = cache_path
        self._report = report
        self._known = self._read_ack(ack_path)
        self._cache = self._read_cache()
        self._restored: set[int] = set()
        self.news = self._known is None or set(self._known) != {_key(queue) for queue in queues}
        """Whether `queues.ack` must be written again."""
        self.position = limit
        """Log position from which the log must be read."""
        self.kept: dict[int, int] = {}
        """By queue: a position at which it must begin regardless of its contents, because its definition has changed.
        """
        self.copied = 0, 0
        """Log position at which the copying of the restored contents began, and the size of that copy in bytes."""

    def _read_ack(self, path: Path) -> dict[Key, QueueStart] | None:
        try:
            mark, starts = read_queues_ack(path)
        except FileNotFoundError:
            return None
        except (QueuesAckDamaged, OSError) as problem:
            self._report(
                "31-0005",
                text=f"{path} cannot be used ({problem}); without it queues begin at their RecoveryPoint",
            )
            return None
        if not self._journals or not mark.fits(self._journals, self._limit):
            self._report("31-0005", text=f"{path} does not belong to these journals, and is not used")
            return None
        return {(start.name, start.message_type): start for start in starts}

    def _read_cache(self) -> QueueCacheReader | None:
        path = self._cache_path
        try:
            reader = QueueCacheReader(path)
        except FileNotFoundError:
            return None
        except (QueueCacheDamaged, OSError) as problem:
            self._report("31-0005", text=f"{path} cannot be used ({problem}); the log is read instead")
            return None
        if not self._journals or not reader.mark.fits(self._journals, self._limit):
            self._report("31-0005", text=f"{path} does not belong to these journals; the log is read instead")
            return None
        return reader

    # --- queues in the copy ---------------------------------------------------------------------------------

    def restore(self, adapter: LogAdapter) -> bool:
        """Restore the queues' contents from the cache. False: the cache is damaged, and the queues must be made again.
        Raises QueueMemoryFull.
        """
        if self._cache is None:
            return True
        numbers = {_key(queue): number for number, queue in enumerate(self._queues)}
        restored: dict[int, CachedQueue] = {}
        begin = self._journals[0].start_position
        number: int | None = None
        lacks_seed = False
        ownerships: dict[int, tuple[str, int, bool]] = {}
        try:
            for section in self._cache:
                if section.kind is Kind.QUEUE:
                    cached = section.queue()
                    number = numbers.get((cached.name, cached.message_type))
                    if number is None or not self._is_of(cached, self._queues[number]):
                        number = None
                        continue
                    queue = adapter.manager.queues[number]
                    restored[number] = cached
                    lacks_seed = self._queues[number].ordering_key is not None
                elif section.kind is Kind.ORDERING_SEED and number is not None:
                    adapter.use_ordering_seed(number, bytes(section.content))
                    lacks_seed = False
                elif section.kind is Kind.OWNERSHIPS:
                    ownerships = section.ownerships()
                elif section.kind is Kind.MESSAGES and number is not None:
                    if lacks_seed:
                        raise CopyDamaged("the keys of a queue have no seed")
                    restore_messages(
                        queue, section.content, section.width, self._cache.publishers, begin, ownerships
                    )
            for number, cached in restored.items():
                queue = adapter.manager.queues[number]
                restore_rest(queue, cached.until, cached.deferred, cached.early)
                queue.start_position = self._cache.mark.position
                if cached.kept:
                    self.kept[number] = cached.kept
        except (CopyDamaged, QueueCacheDamaged, ValueError, TypeError) as problem:
            self._report(
                "31-0005", text=f"{self._cache_path} cannot be used ({problem}); the log is read instead"
            )
            self._cache = None
            return False
        self._restored = set(restored)
        if self._restored:
            self.position = self._cache.mark.position
        self.copied = self._cache.mark.position, self._cache_path.stat().st_size
        return True

    def _is_of(self, cached: CachedQueue, queue: QueueConfig) -> bool:
        """Whether a copy is of the queue as it is configured and known now."""
        point = recovery_point_key(queue.recovery_point)
        known = None if self._known is None else self._known.get(_key(queue))
        return (
            cached.recovery_point == point
            and cached.definition == entry_rules(queue)
            and (self._known is None or (known is not None and known.recovery_point == point))
        )

    # --- the others -----------------------------------------------------------------------------------------

    def find_others(self, adapter: LogAdapter, points: RecoveryPoints) -> None:
        """Set the state of the other queues: empty, at the right position. Raises LogDamaged, OSError."""
        for number, config in enumerate(self._queues):
            if number in self._restored:
                continue
            position, deferred, early = self._start_of(number, config, points)
            if self._journals:
                position = max(position, self._journals[0].start_position)
            queue = adapter.manager.queues[number]
            restore_rest(queue, max(0, position - 1), deferred, early)
            queue.start_position = position
            self.position = min(self.position, position)

    def _start_of(
        self, number: int, queue: QueueConfig, points: RecoveryPoints
    ) -> tuple[int, Deferred, Early]:
        point = recovery_point_key(queue.recovery_point)
        known: QueueStart | CachedQueue | None
        known = (self._cached() if self._known is None else self._known).get(_key(queue))
        if known is not None and known.recovery_point == point:
            if known.definition != entry_rules(queue):
                self.news = True
                self.kept[number] = known.position
                self._report(
                    "31-0007",
                    text=f"{queue.name}: the rules for its messages were changed; it is made again from the log, from "
                    f"position {known.position} on, with the messages that had not left it",
                )
            elif known.kept:
                self.kept[number] = known.kept
            return known.position, known.deferred, known.early
        self.news = True
        position = points.position_of(queue.recovery_point)
        if position is None:
            self._report(
                "31-0006",
                text=f"{queue.name}: none of the bookmarks of RecoveryPoint {queue.recovery_point.text} is in the log; "
                "the queue begins with all of it",
            )
            position = 0
        return position, (), ()

    def _cached(self) -> dict[Key, CachedQueue]:
        found = [section.queue() for section in self._cache or () if section.kind is Kind.QUEUE]
        return {(cached.name, cached.message_type): cached for cached in found}


def _key(queue: QueueConfig) -> Key:
    return queue.name, queue.message_type
