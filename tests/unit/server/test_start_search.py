"""Where a list of bookmarks begins: the earliest one found, looked up a few at a time."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from amps.server.transport.bookmarks import MessagePoint, StartPoint
from amps.server.transport.failures import CommandFailure
from amps.server.transport.journal_view import StartSearch

PUBLISHER = 7
START, END = (0, (0, 0)), (1000, (PUBLISHER, 500))


@dataclass
class FakeCursor:
    """A place in the log."""

    position: int


@dataclass
class FakeJournal:
    """A log with messages 1 to 500 of one publisher, message n at position 2n."""

    lookups: int = 0
    opened: list[dict[Any, Any]] = field(default_factory=list)

    def find(self, publisher: int, sequence: int, indexes: dict[Any, Any]) -> FakeCursor | None:
        self.lookups += 1
        indexes[0] = None
        self.opened.append(indexes)
        return FakeCursor(2 * sequence) if publisher == PUBLISHER and 1 <= sequence <= 500 else None

    def cursor_at_start(self, verify: bool) -> FakeCursor:
        assert verify
        return FakeCursor(0)

    def cursor_at_end(self) -> tuple[FakeCursor, tuple[int, int]]:
        return FakeCursor(1000), (PUBLISHER, 500)


def search(journal: FakeJournal, *sequences: int, not_found: str = "now", **point: bool) -> StartSearch:
    view: Any = journal
    messages = tuple(MessagePoint(PUBLISHER, sequence) for sequence in sequences)
    return StartSearch(view, StartPoint(messages=messages, **point), not_found)


def found(finished: StartSearch) -> tuple[int, tuple[int, int]]:
    cursor, bookmark = finished.result()
    return cursor.position, bookmark


def test_search_thousands_of_bookmarks_are_looked_up_in_steps() -> None:
    """One command with 10,000 bookmarks once stopped a worker for a second."""
    journal = FakeJournal()
    running = search(journal, *range(10_000, 100, -1))
    steps = 1
    before = 0
    while not running.step():
        steps += 1
        assert 0 < journal.lookups - before <= StartSearch.LOOKUPS_PER_STEP
        before = journal.lookups
    assert steps == 9900 // StartSearch.LOOKUPS_PER_STEP
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
def test_search_what_is_not_found_begins_as_the_option_says(
    not_found: str, place: tuple[int, tuple[int, int]]
) -> None:
    """protocol.md §21 57"""
    running = search(FakeJournal(), 501, not_found=not_found)
    assert running.step()
    assert found(running) == place


def test_search_what_is_not_found_may_be_a_failure() -> None:
    """protocol.md §21 57"""
    running = search(FakeJournal(), 501, not_found="fail")
    assert running.step()
    with pytest.raises(CommandFailure, match="invalid bookmark"):
        running.result()
    assert found(search(FakeJournal(), not_found="fail", now=True)) == END
