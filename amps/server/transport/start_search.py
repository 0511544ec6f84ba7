"""Finding where a bookmark subscription begins and ends in this instance's log (transaction_log.md §5.3, §7.2, §20).

A client may name thousands of bookmarks in one command. The parts of the log that contain them may have to be read from
the disk or decompressed. So a StartSearch runs in steps, one per turn of the worker.
"""

import time
from dataclasses import dataclass, replace

from amps._core.delivery.delivery import ReplayBounds
from amps._core.journal.reader import LogCursor
from amps._core.journal.writer import IndexReader
from amps.server.shared.journal_view import JournalView, Steps
from amps.server.transport.bookmarks import BookmarkRange, MessagePoint
from amps.server.transport.failures import CommandFailure


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a search: a cursor at the beginning of the subscription, the bookmark just before it, and the
    bounds that its reader must check (None: no bounds). `now`: the subscription begins at the end of the log.
    """

    cursor: LogCursor
    bookmark: tuple[int, int]
    bounds: ReplayBounds | None = None
    now: bool = False


class StartSearch:
    """Looks up the points of a bookmark, a few at a time."""

    LOOKUPS_PER_STEP = 50
    STEP_S = 0.001

    def __init__(self, journal: JournalView, bookmark: BookmarkRange, not_found: str) -> None:
        """`not_found`: the option `bookmark_not_found`, for the case that no bookmark is in the log."""
        self._journal = journal
        self._bookmark = bookmark
        self._not_found = not_found
        begin, end = bookmark.begin, bookmark.end
        # EPOCH begins before everything, so that no other point needs a lookup.
        points = [(point, True) for point in dict.fromkeys(() if begin.epoch else begin.messages)]
        points += [(point, False) for point in dict.fromkeys(() if end is None else end.messages)]
        self._points = points
        self._begin: tuple[int, MessagePoint] | None = None  # position, and the point before it or at it
        self._end_position = 0
        self._awaited: list[tuple[int, int]] = []
        self._indexes: dict[int, IndexReader | None] = {}
        self._lookups = 0
        self._steps = self._search()
        self._result: Start | CommandFailure | None = None

    def step(self) -> bool:
        """Continue for a millisecond. True: complete. Raises LogDamaged, or PagesMissing: then call it again."""
        self._indexes.clear()  # the index of a journal in use, or just become full, may have been replaced
        self._lookups = 0
        until_s = time.perf_counter() + self.STEP_S
        for missing in self._steps:
            if missing is not None:
                raise missing
            if self._lookups >= self.LOOKUPS_PER_STEP or time.perf_counter() >= until_s:
                return False
        return True

    def result(self) -> Start:
        """The result, after the last step. Raises CommandFailure."""
        if isinstance(self._result, CommandFailure):
            raise self._result
        assert self._result is not None
        return self._result

    def _search(self) -> Steps[None]:
        for point, begins in self._points:
            if self._lookups >= self.LOOKUPS_PER_STEP:
                yield None
            self._lookups += 1
            found = yield from self._journal.find(point.publisher_id, point.sequence, self._indexes)
            if begins and found is not None:
                position = found[0] if self._bookmark.begin_inclusive else found[1]
                if self._begin is None or position < self._begin[0]:
                    self._begin = position, point
            elif found is not None:
                position = found[1] if self._bookmark.end_inclusive else found[0]
                self._end_position = max(self._end_position, position)
            elif not begins:
                self._awaited.append((point.publisher_id, point.sequence))
        try:
            self._result = yield from self._start()
        except CommandFailure as failure:
            self._result = failure

    def _start(self) -> Steps[Start]:
        """Make the result of the lookups. Raises CommandFailure, LogDamaged."""
        end = self._end()
        begin = self._bookmark.begin
        inclusive = self._bookmark.begin_inclusive
        journal = self._journal
        if begin.epoch:
            return self._from_epoch(end)
        if begin.times_us:
            begin_us = min(begin.times_us) + (0 if inclusive else 1)
            position = yield from journal.position_at(begin_us)
            if self._begin is None or position < self._begin[0]:
                return (yield from self._from(position, ReplayBounds(begin_us, end)))
        bounds = None if end is None else ReplayBounds(0, end)
        if self._begin is not None:
            position, point = self._begin
            if inclusive:
                return (yield from self._from(position, bounds))
            cursor = yield from journal.cursor_at(position, True)
            return Start(cursor, (point.publisher_id, point.sequence), bounds)
        position = journal.end
        if not begin.now:
            if self._not_found == "fail":
                raise CommandFailure("invalid bookmark", "none of the bookmarks is in the log")
            if self._not_found == "epoch":
                return self._from_epoch(end)
        elif inclusive:
            position = yield from journal.last_position_before(position)
        return replace((yield from self._from(position, bounds)), now=True)

    def _from(self, position: int, bounds: ReplayBounds | None) -> Steps[Start]:
        cursor = yield from self._journal.cursor_at(position, True)
        return Start(cursor, (yield from self._journal.last_bookmark_before(position)), bounds)

    def _from_epoch(self, end: tuple[bool, int, int, list[tuple[int, int]]] | None) -> Start:
        bounds = None if end is None else ReplayBounds(0, end)
        return Start(self._journal.cursor_at_start(True), (0, 0), bounds)

    def _end(self) -> tuple[bool, int, int, list[tuple[int, int]]] | None:
        """The end, as an argument of ReplayBounds. Raises CommandFailure."""
        end, inclusive = self._bookmark.end, self._bookmark.end_inclusive
        if end is None:
            return None
        if self._awaited and self._not_found == "fail":
            raise CommandFailure("invalid bookmark", "an end of the interval is not in the log")
        position = max(self._end_position, self._journal.end if end.now else 0)
        end_us = max(end.times_us, default=0)
        # The end EPOCH alone selects no messages: any record is behind position 0 and time 0.
        return inclusive, position, max(0, end_us if inclusive else end_us - 1), self._awaited
