"""The position up to which a worker no longer needs the pages of the journal."""

from types import SimpleNamespace
from typing import Any

from amps._core.shm.memory import ControlPage
from amps.server.shared.journal_pages import STEP_BYTES, JournalPages
from amps.server.transport.feeds import Feeds
from amps.server.transport.shared_feeds import DurableFeed, LiveFeed

INDEX = 3


class Worker:
    """A worker that publishes its position."""

    def __init__(self) -> None:
        self.control = ControlPage()
        self.unmapped: list[tuple[int, int]] = []
        directory = SimpleNamespace(unmap_pages=self._unmap)
        journal: Any = SimpleNamespace(directory=directory)
        self.pages = JournalPages(journal, self.control, INDEX)

    def _unmap(self, begin: int, end: int) -> None:
        assert self.control.pages_done(INDEX) == begin, "it is said before it is done"
        self.unmapped.append((begin, end))

    def look(self, durable: int, *positions: int) -> int:
        self.control.durable = durable
        self.pages.look(iter(positions))
        return int(self.control.pages_done(INDEX))


def test_without_readers_all_durable_pages_are_done() -> None:
    worker = Worker()
    assert worker.look(STEP_BYTES - 1) == 0
    assert worker.look(STEP_BYTES) == STEP_BYTES
    assert worker.look(2 * STEP_BYTES - 1) == STEP_BYTES
    assert worker.look(3 * STEP_BYTES) == 3 * STEP_BYTES
    assert worker.unmapped == [(0, STEP_BYTES), (STEP_BYTES, 3 * STEP_BYTES)]


def test_pages_are_done_up_to_the_first_reader() -> None:
    worker = Worker()
    assert (
        worker.look(9 * STEP_BYTES, 8 * STEP_BYTES, 2 * STEP_BYTES + 5, 4 * STEP_BYTES) == 2 * STEP_BYTES + 5
    )
    assert worker.look(9 * STEP_BYTES, 8 * STEP_BYTES, 3 * STEP_BYTES) == 2 * STEP_BYTES + 5
    assert worker.look(9 * STEP_BYTES, 20 * STEP_BYTES) == 9 * STEP_BYTES


def test_readers_of_older_parts_do_not_count() -> None:
    """Their pages were released before. A subscriber that needs an hour to catch up does not delay the release."""
    worker = Worker()
    assert worker.look(4 * STEP_BYTES) == 4 * STEP_BYTES
    assert worker.look(9 * STEP_BYTES, STEP_BYTES, 4 * STEP_BYTES - 1) == 9 * STEP_BYTES
    assert worker.look(20 * STEP_BYTES, 9 * STEP_BYTES) == 9 * STEP_BYTES


def test_both_tailers_and_the_running_replays_are_readers() -> None:
    """A tailer assumes that the pages it reads are in memory."""
    nobody: Any = None
    live = LiveFeed(nobody, nobody, nobody, nobody)
    durable = DurableFeed(nobody, nobody, nobody, nobody)
    replay = SimpleNamespace(members=[None], tailer=SimpleNamespace(position=9))
    ended = SimpleNamespace(members=[])  # its last member has left, and its tailer was dropped
    feeds: Any = SimpleNamespace(_live=live, _durable=durable, _replays=[(replay, 1), (ended, 1)])
    assert list(Feeds._reading(feeds)) == [9]
    tailers: Any = (
        SimpleNamespace(journal=SimpleNamespace(position=5)),
        SimpleNamespace(cursor=SimpleNamespace(position=7)),
    )
    live.tailer, durable.tailer = tailers
    assert list(Feeds._reading(feeds)) == [5, 7, 9]
    tailers[0].journal = None  # an instance without a journal
    assert list(Feeds._reading(feeds)) == [7, 9]
