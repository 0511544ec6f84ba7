"""Topic indexes for replays: which journals have one, and letting a replay step through its journal by it.

A replay that comes to a full journal has its topic index opened, by a thread, because all of it is read and checked.
Then it finds out which of the journal's topics it wants (`JournalTailer.choose`), and looks at their records only.
Without an index, or with one that cannot be used, it reads everything, and looks again now and then: indexes are made
some time after their journals are full.

Only where the configuration asks for topic indexes: without that nobody looks for any.
"""

import contextlib
import errno
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from amps._core.delivery.delivery import JournalTailer, ReplayBounds, ReplayTailer
from amps._core.journal.reader import LogDamaged, LogFile, LogUnreadable
from amps._core.journal.search import TopicIndexReader, look_again, missing_parts, read_parts
from amps._core.journal.writer import IndexDamaged
from amps.config import ServerConfig
from amps.journal.names import topic_index_places
from amps.journal.topic_index import open_topic_index
from amps.server.eventlog import EventLog
from amps.server.runtime import Runtime
from amps.server.shared.journal_view import JournalView, at_once
from amps.server.transport.read_window import Unreadable

LOOK_AGAIN_BYTES = 16 << 20
NEVER = 1 << 63


class TopicIndexes:
    """The topic indexes that the replays of one worker use now."""

    def __init__(
        self,
        places: Callable[[int], list[Path]],
        journal: JournalView,
        is_full: Callable[[int], bool],
        log: EventLog,
    ) -> None:
        """`places`: where the topic index of a journal may lie; files move from earlier places to later ones."""
        self.journal = journal
        self.is_full = is_full
        self._places = places
        self._log = log
        # Whoever steps holds it. What is in use for long would keep the place on the disk of one that was removed.
        self._open: weakref.WeakValueDictionary[int, TopicIndexReader] = weakref.WeakValueDictionary()
        self._reported: set[int] = set()

    def opened(self, number: int) -> TopicIndexReader | None:
        """The topic index of a journal, if somebody uses it now."""
        return self._open.get(number)

    def look(self, file: LogFile, answer: "Answer") -> None:
        """Open the topic index of a journal; to be called in a thread that may wait."""
        try:
            answer.index = self._open_first(file)
        except FileNotFoundError as missing:
            answer.problem = "21-0004", f"{missing.filename} does not exist"
        except (OSError, IndexDamaged) as error:
            answer.problem = "21-0005", str(error)
        answer.given = True

    def _open_first(self, file: LogFile) -> TopicIndexReader:
        """Raises OSError, IndexDamaged."""
        places = self._places(file.number)
        for path in places * 2:
            with contextlib.suppress(FileNotFoundError):
                try:
                    index = open_topic_index(path)
                except IndexDamaged as damage:
                    raise IndexDamaged(f"{path}: {damage}") from None
                place = index.file_number, index.start_position, index.file_size
                if place != (file.number, file.start_position, file.size):
                    raise IndexDamaged(f"{path}: it is that of another journal")
                return index
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(places[0]))

    def take(self, answer: "Answer") -> TopicIndexReader | None:
        """What a thread has found. Why there is nothing is said once of each journal."""
        number = answer.file_number
        if answer.index is not None:
            self._open[number] = answer.index
        elif number not in self._reported:
            self._reported.add(number)
            record_id, reason = answer.problem
            self._log.log(record_id, reason=reason)
        return answer.index

    def limit_offset(self, file: LogFile, bounds: ReplayBounds | None) -> int:
        """File offset up to which a replay may step over records: what its range ends before is looked at, so that it
        ends there.
        """
        if bounds is None or not bounds.has_end:
            return file.size
        behind_ns = (bounds.end_us + 1) * 1000
        by_time = 0
        if bounds.end_us:
            index = self.journal.index(file.number)
            if index is not None and index.last_timestamp_ns < behind_ns:
                return file.size
            by_time = 0 if index is None else index.block_before(behind_ns) or 0
        return max(by_time, min(max(bounds.end_position - file.start_position, 0), file.size))


@dataclass(slots=True, eq=False)
class Answer:
    """What a thread has found; before it is `given`: what it has been asked for."""

    file_number: int
    given: bool = False
    index: TopicIndexReader | None = None
    problem: tuple[str, str] = "", ""  # id of a log record, and its reason


class Stepping:
    """One replay's use of topic indexes."""

    CHOICE_BYTES_PER_TURN = 1 << 20

    def __init__(self, tailer: JournalTailer, bounds: ReplayBounds | None, indexes: TopicIndexes) -> None:
        tailer.stop_at_files()
        self._tailer = tailer
        self._bounds = bounds
        self._indexes = indexes
        self._answer: Answer | None = None  # that is waited for
        self._number = -1  # of the journal for which was looked
        self._looks_at = 0  # log position from which on is looked again
        self._unreadable = Unreadable()

    def work_ahead(self, limit: int) -> Callable[[], None] | None:
        """What a thread has to do before the next run; None: nothing, as far as stepping goes. Raises
        LogUnreadable.
        """
        tailer = self._tailer
        file = tailer.cursor.file
        if self._answer is not None and self._answer.given:
            answer, self._answer = self._answer, None
            index = self._indexes.take(answer)
            if index is not None and answer.file_number == file.number:
                self._use(index, file)
        if tailer.steps is None and (file.number != self._number or tailer.position >= self._looks_at):
            self._number = file.number
            self._looks_at = tailer.position + LOOK_AGAIN_BYTES
            index = self._indexes.opened(file.number)
            if index is not None:
                self._use(index, file)
            elif self._answer is None and self._indexes.is_full(file.number):
                self._answer = Answer(file.number)
                return partial(self._indexes.look, file, self._answer)
        if tailer.steps is not None and tailer.steps_ahead:
            was_unreadable = self._unreadable.is_known
            readable_until = self._unreadable.readable_until(tailer.cursor)
            if was_unreadable and not self._unreadable.is_known:
                look_again(tailer.steps)
            parts = missing_parts(file, tailer.steps, limit, readable_until)
            if parts:
                return partial(read_parts, file, parts)
            tailer.cursor.allow(readable_until)
        return None

    def was_unreadable(self, problem: LogUnreadable) -> None:
        """What a thread has been asked for could not be read."""
        self._unreadable.note(problem, self._tailer.position)

    def _use(self, index: TopicIndexReader, file: LogFile) -> None:
        self._tailer.use_index(index, self._indexes.limit_offset(file, self._bounds))

    def choose(self) -> bool:
        """Make a part of the choice that the tailer has to make before it runs. False: there is nothing to choose."""
        if not self._tailer.chooses:
            return False
        if self._tailer.choose(self.CHOICE_BYTES_PER_TURN) and self._tailer.steps is None:
            self._looks_at = NEVER  # most of it is wanted
        return True

    def settle(self) -> None:
        """Have the tailer, and what is held, know the bookmarks of records that were stepped over, before they are told
        to anybody.
        """
        tailer = self._tailer
        if tailer.stepped:
            bookmark = self._bookmark_before(tailer.position)
            if bookmark is not None:
                tailer.settle(*bookmark)
        conflation = tailer.conflation if isinstance(tailer, ReplayTailer) else None
        if conflation is not None and conflation.stepped_at:
            bookmark = self._bookmark_before(conflation.stepped_at)
            if bookmark is not None:
                conflation.settle(*bookmark)

    def _bookmark_before(self, position: int) -> tuple[int, int] | None:
        """None: what was stepped over is damaged, or gone; an earlier bookmark loses nothing either."""
        with contextlib.suppress(LogDamaged):
            bookmark = at_once(self._indexes.journal.last_bookmark_before(position))
            if bookmark[0]:
                return bookmark
        return None


def make_topic_indexes(
    config: ServerConfig, runtime: Runtime, journal: JournalView | None, log: EventLog
) -> TopicIndexes | None:
    """None where there are none by the configuration."""
    settings = config.transaction_log
    if journal is None or settings is None or not config.tuning.topic_index:
        return None
    directory, archive = settings.journal_directory, settings.journal_archive_directory
    return TopicIndexes(
        lambda number: topic_index_places(directory, archive, config.name, number),
        journal,
        # The journal with the highest number is the one in use.
        lambda number: number < runtime.control.watermarks()[3],
        log,
    )
