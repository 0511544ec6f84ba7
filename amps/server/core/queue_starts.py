"""With what each queue begins at a start of the instance, and from where on it needs the log (queues.md §17).

- A queue that `queues.ack` does not know, or by another RecoveryPoint, begins at its RecoveryPoint with nothing.
- One that is in `queue.cache` as it is configured now begins with what is there, and needs the log since it was copied.
- Any other begins where `queues.ack` says, with nothing: all that was in it came later. So does one whose definition
  has changed, which so gets by its new rules what had not left it. It will begin there again when that is needed, so
  that what the new rules exclude is not lost with them.

`queues.ack` decides what is known. Without it, the cache does; without both, each queue begins at its RecoveryPoint
(D-37). What cannot be used, or is about another log, is reported and is as if it were not there.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from amps._core.queues.manager import CopyDamaged, LogAdapter, restore_messages, restore_rest
from amps.config.model_queues import QueueConfig
from amps.journal.files import JournalHeader
from amps.journal.queue_cache import CachedQueue, Kind, QueueCacheDamaged, QueueCacheReader
from amps.journal.queues_ack import QueuesAckDamaged, QueueStart, read_queues_ack
from amps.server.core.queue_checkpoints import entry_rules
from amps.server.core.recovery_points import RecoveryPoints, recovery_point_key

Key = tuple[str, str]
Deferred = tuple[tuple[int, int, int], ...]


class QueueStarts:
    """Where all queues begin. `restore` comes first, then `find_others`."""

    def __init__(
        self,
        queues: Sequence[QueueConfig],
        journals: Sequence[JournalHeader],
        limit: int,
        ack_path: Path,
        cache_path: Path,
        report: Callable[[str, str], None],
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
        """Whether `queues.ack` does not say what it should."""
        self.position = limit
        """From where on the log has to be read."""
        self.kept: dict[int, int] = {}
        """By queue: where it begins whatever is in it, because its definition has changed."""
        self.copied = 0, 0
        """Where the copying of what was restored began in the log, and the size of that copy in bytes."""

    def _read_ack(self, path: Path) -> dict[Key, QueueStart] | None:
        try:
            mark, starts = read_queues_ack(path)
        except FileNotFoundError:
            return None
        except (QueuesAckDamaged, OSError) as problem:
            self._report(
                "31-0005",
                f"{path} cannot be used ({problem}); without it queues begin at their RecoveryPoint",
            )
            return None
        if not self._journals or not mark.fits(self._journals, self._limit):
            self._report("31-0005", f"{path} is not about these journals, and not used")
            return None
        return {(start.name, start.message_type): start for start in starts}

    def _read_cache(self) -> QueueCacheReader | None:
        path = self._cache_path
        try:
            reader = QueueCacheReader(path)
        except FileNotFoundError:
            return None
        except (QueueCacheDamaged, OSError) as problem:
            self._report("31-0005", f"{path} cannot be used ({problem}); the log is read instead")
            return None
        if not self._journals or not reader.mark.fits(self._journals, self._limit):
            self._report("31-0005", f"{path} is not about these journals; the log is read instead")
            return None
        return reader

    # --- what was copied ------------------------------------------------------------------------------------

    def restore(self, adapter: LogAdapter) -> bool:
        """Put into the queues what the cache has of them. False: it was damaged after all, and the queues are of no
        use now. Raises QueueMemoryFull.
        """
        if self._cache is None:
            return True
        numbers = {_key(queue): number for number, queue in enumerate(self._queues)}
        restored: dict[int, CachedQueue] = {}
        begin = self._journals[0].start_position
        number: int | None = None
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
                elif section.kind is Kind.MESSAGES and number is not None:
                    restore_messages(queue, section.content, section.wide, self._cache.publishers, begin)
            for number, cached in restored.items():
                queue = adapter.manager.queues[number]
                restore_rest(queue, cached.until, cached.deferred)
                queue.start_position = self._cache.mark.position
                if cached.kept:
                    self.kept[number] = cached.kept
        except (CopyDamaged, QueueCacheDamaged, ValueError, TypeError) as problem:
            self._report("31-0005", f"{self._cache_path} cannot be used ({problem}); the log is read instead")
            self._cache = None
            return False
        self._restored = set(restored)
        if self._restored:
            self.position = self._cache.mark.position
        self.copied = self._cache.mark.position, self._cache_path.stat().st_size
        return True

    def _is_of(self, cached: CachedQueue, queue: QueueConfig) -> bool:
        """Whether it is a copy of the queue as it is configured and known now."""
        point = recovery_point_key(queue.recovery_point)
        known = None if self._known is None else self._known.get(_key(queue))
        return (
            cached.recovery_point == point
            and cached.definition == entry_rules(queue)
            and (self._known is None or (known is not None and known.recovery_point == point))
        )

    # --- the others -----------------------------------------------------------------------------------------

    def find_others(self, adapter: LogAdapter, points: RecoveryPoints) -> None:
        """Let the other queues begin with nothing, at the right place. Raises LogDamaged, OSError."""
        for number, config in enumerate(self._queues):
            if number in self._restored:
                continue
            position, deferred = self._start_of(number, config, points)
            if self._journals:
                position = max(position, self._journals[0].start_position)
            queue = adapter.manager.queues[number]
            restore_rest(queue, max(0, position - 1), deferred)
            queue.start_position = position
            self.position = min(self.position, position)

    def _start_of(self, number: int, queue: QueueConfig, points: RecoveryPoints) -> tuple[int, Deferred]:
        point = recovery_point_key(queue.recovery_point)
        known: QueueStart | CachedQueue | None
        known = (self._cached() if self._known is None else self._known).get(_key(queue))
        if known is not None and known.recovery_point == point:
            if known.definition != entry_rules(queue):
                self.news = True
                self.kept[number] = known.position
                self._report(
                    "31-0007",
                    f"{queue.name}: what enters it was changed; it is made again, of the log from position "
                    f"{known.position} on, of what had not left it",
                )
            elif known.kept:
                self.kept[number] = known.kept
            return known.position, known.deferred
        self.news = True
        position = points.position_of(queue.recovery_point)
        if position is None:
            self._report(
                "31-0006",
                f"{queue.name}: none of the bookmarks of RecoveryPoint {queue.recovery_point.text} is in the log; the "
                "queue begins with all of it",
            )
            position = 0
        return position, ()

    def _cached(self) -> dict[Key, CachedQueue]:
        found = [section.queue() for section in self._cache or () if section.kind is Kind.QUEUE]
        return {(cached.name, cached.message_type): cached for cached in found}


def _key(queue: QueueConfig) -> Key:
    return queue.name, queue.message_type
