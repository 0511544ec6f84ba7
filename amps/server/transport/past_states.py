"""Which snapshot a query of the past is about: from the bookmark of a `sow` to a transaction id (sow.md §9, D23).

A bookmark is a moment, or stands for the message with that bookmark; the state includes what was recorded then. `0` is
the empty state before the log, `0|1|` the present one. The state is that of the log, so it can be had as far back as
the log goes. Topics that are not recorded have no past: for them a bookmark is ignored.
"""

import time

from amps._core.journal.writer import IndexReader
from amps.server.shared.journal_view import JournalView, Steps
from amps.server.transport.bookmarks import BookmarkRange, parse_bookmark
from amps.server.transport.failures import CommandFailure

STEP_S = 0.001


def parse_moment(text: str) -> BookmarkRange | None:
    """Parse the `bm` header of a query. None: it stands for the present. Raises CommandFailure."""
    bookmark = parse_bookmark(text)
    begin = bookmark.begin
    points = len(begin.messages) + len(begin.times_us) + begin.epoch + begin.now
    if bookmark.end is not None or points != 1:
        raise CommandFailure("invalid bookmark", f"{text[:100]!r}: a query takes one moment or one message")
    return None if bookmark.is_now else bookmark


class MomentSearch:
    """Finds the transaction id of a moment, in steps. A Search of searches.py."""

    def __init__(self, journal: JournalView, moment: BookmarkRange) -> None:
        self._journal = journal
        self._point = moment.begin
        self._steps = self._search()
        self._found: int | CommandFailure | None = None
        self.is_lost = False
        """Whether the moment is before the log, whose beginning was removed."""

    def step(self) -> bool:
        """Continue for a millisecond. True: complete. Raises LogDamaged, or PagesMissing: then call it again."""
        until_s = time.perf_counter() + STEP_S
        for missing in self._steps:
            if missing is not None:
                raise missing
            if time.perf_counter() >= until_s:
                return False
        return True

    def result(self) -> int | None:
        """The state is that before this transaction id; None: it is the present one. Raises CommandFailure."""
        if isinstance(self._found, CommandFailure):
            raise self._found
        return self._found

    def _search(self) -> Steps[None]:
        journal, point = self._journal, self._point
        if point.epoch:
            self._found = 0
            return
        if point.messages:
            (message,) = point.messages
            indexes: dict[int, IndexReader | None] = {}
            found = yield from journal.find(message.publisher_id, message.sequence, indexes)
            if found is None:
                self._found = CommandFailure("invalid bookmark", "the log has no message with this bookmark")
                return
            position = found[1]
        else:
            (time_us,) = point.times_us
            first_us = yield from journal.first_time_us()
            self.is_lost = first_us is not None and time_us < first_us and not journal.is_whole
            position = yield from journal.position_at(time_us + 1)
        self._found = yield from journal.txid_at(position)
