"""The start of a list of bookmarks: the earliest one found, with a few lookups at a time."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from amps.server.shared.journal_view import Steps
from amps.server.transport.bookmarks import BookmarkRange, MessagePoint, Points
from amps.server.transport.failures import CommandFailure
from amps.server.transport.start_search import StartSearch

PUBLISHER = 7
START, END = (0, (0, 0)), (1000, (PUBLISHER, 500))


@dataclass
class FakeCursor:
    """A place in the log."""

    position: int


@dataclass
class FakeJournal:
    """A log with messages 1 to 500 of one publisher, message n before position 2n."""

    lookups: int = 0
    opened: list[dict[Any, Any]] = field(default_factory=list)

    def find(self, publisher: int, sequence: int, indexes: dict[Any, Any]) -> Steps[tuple[int, int] | None]:
        self.lookups += 1
        indexes[0] = None
        self.opened.append(indexes)
        found = publisher == PUBLISHER and 1 <= sequence <= 500
        return (2 * sequence - 1, 2 * sequence) if found else None
        yield

    def cursor_at_start(self, verify: bool) -> FakeCursor:
        assert verify
        return FakeCursor(0)

    def cursor_at(self, position: int, verify: bool) -> Steps[FakeCursor]:
        assert verify
        return FakeCursor(position)
        yield

    def last_bookmark_before(self, position: int) -> Steps[tuple[int, int]]:
        return (PUBLISHER, position // 2) if position > 1 else (0, 0)
        yield

    def last_position_before(self, position: int) -> Steps[int]:
        return position - 1
        yield

    def position_at(self, time_us: int) -> Steps[int]:
        """Message n has the time of microsecond 10n."""
        return 2 * min(max((time_us + 9) // 10, 1), 501) - 1 if time_us <= 5000 else 1000
        yield

    end = 1000


def search(journal: FakeJournal, *sequences: int, not_found: str = "now", **point: bool) -> StartSearch:
    view: Any = journal
    return StartSearch(view, BookmarkRange(points(*sequences, **point)), not_found)


def points(*sequences: int, times_us: tuple[int, ...] = (), **point: bool) -> Points:
    return Points(
        messages=tuple(MessagePoint(PUBLISHER, sequence) for sequence in sequences),
        times_us=times_us,
        **point,
    )


def found(running: StartSearch) -> tuple[int, tuple[int, int]]:
    while not running.step():
        pass
    start = running.result()
    return start.cursor.position, start.bookmark


def test_search_thousands_of_bookmarks_are_looked_up_in_steps() -> None:
    """Looking up 10,000 bookmarks of one command once blocked a worker for a second."""
    journal = FakeJournal()
    running = search(journal, *range(10_000, 100, -1))
    steps = 1
    before = 0
    while not running.step():
        steps += 1
        assert 0 < journal.lookups - before <= StartSearch.LOOKUPS_PER_STEP
        before = journal.lookups
    assert steps >= 9900 // StartSearch.LOOKUPS_PER_STEP
    assert found(running) == (202, (PUBLISHER, 101))
    assert len({id(indexes) for indexes in journal.opened}) <= steps


def test_search_a_bookmark_named_twice_is_looked_up_once() -> None:
    journal = FakeJournal()
    running = search(journal, *(9, 8) * 10_000)
    assert running.step()
    assert journal.lookups == 2
    assert found(running) == (16, (PUBLISHER, 8))


def test_search_the_epoch_needs_no_lookup() -> None:
    journal = FakeJournal()
    running = search(journal, *range(1, 10_000), epoch=True)
    assert running.step()
    assert journal.lookups == 0
    assert found(running) == START


@pytest.mark.parametrize(("not_found", "place"), [("now", END), ("epoch", START)])
def test_search_a_bookmark_not_found_begins_as_the_option_requires(
    not_found: str, place: tuple[int, tuple[int, int]]
) -> None:
    """protocol.md §21 57"""
    running = search(FakeJournal(), 501, not_found=not_found)
    assert running.step()
    assert found(running) == place


def test_search_a_bookmark_not_found_may_be_a_failure() -> None:
    """protocol.md §21 57"""
    running = search(FakeJournal(), 501, not_found="fail")
    assert running.step()
    with pytest.raises(CommandFailure, match="invalid bookmark"):
        running.result()
    assert found(search(FakeJournal(), not_found="fail", now=True)) == END


@pytest.mark.parametrize(
    ("begin", "inclusive", "place", "begin_counts"),
    [
        (points(7, 3), False, (6, 3), False),
        (points(7, 3), True, (5, 2), False),
        (points(7, times_us=(100,)), False, (14, 7), False),
        (points(20, times_us=(100,)), False, (21, 10), True),
        (points(20, times_us=(100,)), True, (19, 9), True),
        (points(10, times_us=(91,)), True, (19, 9), False),
        (points(times_us=(400, 90)), True, (17, 8), True),
        (points(times_us=(1 << 50,)), False, (1000, 500), True),
        (points(now=True), True, (999, 499), False),
        (points(now=True), False, (1000, 500), False),
        (points(9, now=True), False, (18, 9), False),
    ],
)
def test_search_the_earliest_point_begins(
    begin: Points, inclusive: bool, place: tuple[int, int], begin_counts: bool
) -> None:
    """transaction_log.md §5.3, §20 8 and 9; the reader compares times only for a moment."""
    view: Any = FakeJournal()
    running = StartSearch(view, BookmarkRange(begin, inclusive), "now")
    while not running.step():
        pass
    start = running.result()
    assert (start.cursor.position, start.bookmark[1]) == place
    assert (start.bounds is not None and not start.bounds.begun) == begin_counts


@pytest.mark.parametrize(
    ("end", "inclusive", "position", "end_us", "awaited"),
    [
        (points(7, 3), False, 13, 0, 0),
        (points(7, 3), True, 14, 0, 0),
        (points(7, times_us=(100, 50)), True, 14, 100, 0),
        (points(7, times_us=(100, 50)), False, 13, 99, 0),
        (points(7, 501, 502), True, 14, 0, 2),
        (points(now=True), False, 1000, 0, 0),
        (points(7, now=True, epoch=True), False, 1000, 0, 0),
        (points(epoch=True), True, 0, 0, 0),
    ],
)
def test_search_the_latest_point_ends(
    end: Points, inclusive: bool, position: int, end_us: int, awaited: int
) -> None:
    """transaction_log.md §5.3, §20 12 and 13"""
    view: Any = FakeJournal()
    running = StartSearch(view, BookmarkRange(points(epoch=True), False, end, inclusive), "now")
    while not running.step():
        pass
    bounds = running.result().bounds
    assert bounds is not None
    assert bounds.has_end
    assert (bounds.end_position, bounds.end_us, bounds.awaited_count) == (position, end_us, awaited)
    if awaited:
        failing = StartSearch(view, BookmarkRange(points(epoch=True), False, end, inclusive), "fail")
        assert failing.step()
        with pytest.raises(CommandFailure, match="invalid bookmark"):
            failing.result()
