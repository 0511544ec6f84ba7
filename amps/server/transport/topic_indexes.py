"""Topic indexes for replays: finding the index of a journal, and stepping through the journal with it.

When a replay comes to a full journal, a thread opens the journal's topic index, because all of it is read and checked.
Then the replay determines which of the journal's topics it needs (`JournalTailer.choose`), and reads their records
only. Without an index, or with an unusable one, it reads everything, and searches for the index again from time to
time: indexes are made some time after their journals are full.

This is done only if the configuration enables topic indexes.
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
    """The topic indexes that the replays of one worker currently use."""

    def __init__(
        self,
        places: Callable[[int], list[Path]],
        journal: JournalView,
        is_full: Callable[[int], bool],
        log: EventLog,
    ) -> None:
        """`places`: possible paths of a journal's topic index; files move from earlier places to later ones."""
        self.journal = journal
        self.is_full = is_full
        self._places = places
        self._log = log
        # The replays hold the indexes. A cache would keep the disk space of removed files in use.
        self._open: weakref.WeakValueDictionary[int, TopicIndexReader] = weakref.WeakValueDictionary()
        self._reported: set[int] = set()

    def opened(self, number: int) -> TopicIndexReader | None:
        """The topic index of a journal, if a replay uses it now."""
        return self._open.get(number)

    def look(self, file: LogFile, answer: "Answer") -> None:
        """Open the topic index of a journal; to be called in a thread that may block."""
        try:
            answer.index = self._open_first(file)
        except FileNotFoundError as missing:
            answer.problem = "21-0004", f"{missing.filename} does not exist"
        except (OSError, IndexDamaged) as error:
            answer.problem = "21-0005", str(error)
        answer.given = True

    def _open_first(self, file: LogFile) -> TopicIndexReader:
        """Open the index at the first place where there is one. Raises OSError, IndexDamaged."""
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
        """Take over the result of a thread. A missing index is logged once for each journal."""
        number = answer.file_number
        if answer.index is not None:
            self._open[number] = answer.index
        elif number not in self._reported:
            self._reported.add(number)
            record_id, reason = answer.problem
            self._log.log(record_id, reason=reason)
        return answer.index

    def limit_offset(self, file: LogFile, bounds: ReplayBounds | None) -> int:
        """File offset up to which a replay may skip records. Beyond it every record is read, so that the replay ends at
        the end of its range.
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
    """The result of a thread that opens an index. Until `given` is True, it is only the request."""

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
        self._answer: Answer | None = None  # the pending request
        self._number = -1  # of the journal whose index was last requested
        self._looks_at = 0  # log position from which the index is requested again
        self._unreadable = Unreadable()

    def work_ahead(self, limit: int) -> Callable[[], None] | None:
        """Work for a thread, to be done before the next run. None: none as far as stepping is concerned. Raises
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
        """Note that a read by a thread failed."""
        self._unreadable.note(problem, self._tailer.position)

    def _use(self, index: TopicIndexReader, file: LogFile) -> None:
        self._tailer.use_index(index, self._indexes.limit_offset(file, self._bounds))

    def choose(self) -> bool:
        """Make a part of the choice that the tailer needs before it runs. False: there is no choice to make."""
        if not self._tailer.chooses:
            return False
        if self._tailer.choose(self.CHOICE_BYTES_PER_TURN) and self._tailer.steps is None:
            self._looks_at = NEVER  # the replay needs most of the journal
        return True

    def settle(self) -> None:
        """Determine the bookmarks of skipped records for the tailer, and for messages that conflation holds, before
        they are sent.
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
        """None: the skipped records are damaged or removed. An earlier bookmark then loses no message either."""
        with contextlib.suppress(LogDamaged):
            bookmark = at_once(self._indexes.journal.last_bookmark_before(position))
            if bookmark[0]:
                return bookmark
        return None


def make_topic_indexes(
    config: ServerConfig, runtime: Runtime, journal: JournalView | None, log: EventLog
) -> TopicIndexes | None:
    """Make the topic indexes of a worker. None: the configuration disables them."""
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
