"""Places in the log are found in small steps, whichever journals are compressed or missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from amps._core.journal.reader import FRAME_BYTES, FrameCache, LogCursor, LogFile, Record
from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.names import compressed_path, index_path, journal_path
from amps.server.shared.journal_view import JournalView, PagesMissing, Steps, at_once
from amps.server.transport.bookmarks import BookmarkRange, MessagePoint, Points
from amps.server.transport.start_search import StartSearch
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.records import RecordParts

NAME = "journal"
FILE_BYTES = 4 << 20  # sixteen frames
PUBLISHER = publisher_id("p0")
TOPICS = 40
STEP_FRAMES_MAX = 4
Result = TypeVar("Result")


class Log:
    """Two full journals and one in use, with messages of 2,000 bytes and occasionally the first one of a topic."""

    def __init__(self, path: Path) -> None:
        feeder = Feeder(path, FILE_BYTES)
        number = 0
        while feeder.journal.number < 2:
            number += 1
            parts = RecordParts(payload=bytes(2000), publisher_id=PUBLISHER)
            feeder.push(Feed(0, number, f"topic-{number // 50 % TOPICS}", parts))
            feeder.turn(number * 1000, 0)
        storage = feeder.journal_storage
        self.path = path
        self.end = feeder.journal.position
        self.records: list[Record] = read_all(LogCursor(directory_of(storage), 0, 0, True), self.end)
        for each, data in storage.indexes.items():
            index_path(path, NAME, each).write_bytes(data)

    def compress(self) -> None:
        for each in (0, 1):
            source, target = journal_path(self.path, NAME, each), compressed_path(self.path, NAME, each)
            for _ in compress_journal(Disk(), source, target):
                pass

    def view(self, cache: FrameCache, damaged: list[str] | None = None) -> JournalView:
        runtime: Any = SimpleNamespace(
            control=SimpleNamespace(
                watermarks=lambda: (self.end, self.end, self.end, 2), first_journal_number=0
            ),
            # The journal in use has its index in shared memory; here it has no index.
            index_path=lambda number: self.path / "nowhere",
        )
        return JournalView(
            self.path,
            None,
            NAME,
            runtime,
            lambda topic, kind: (topic, kind),
            cache,
            _NobodyRemoves(),  # type: ignore[arg-type]
            lambda path, problem: None if damaged is None else damaged.append(f"{path.name}: {problem}"),
        )


class _NobodyRemoves:
    """A substitute for a JournalFloor."""

    def enter(self, number: int) -> None: ...
    def check(self, number: int) -> None: ...
    def release(self, number: int | None) -> None: ...


@pytest.fixture(params=["plain", "compressed", "plain without index", "compressed without index"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    made = Log(tmp_path)
    if "compressed" in request.param:
        made.compress()
    if "without" in request.param:
        for each in (0, 1):
            index_path(tmp_path, NAME, each).unlink()
    return made


def counted(steps: Steps[Result], cache: FrameCache) -> Result:
    """Do all steps, and assert that none decompresses more than a few frames."""
    before = cache.resident_bytes
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            assert cache.resident_bytes - before <= STEP_FRAMES_MAX * FRAME_BYTES
            before = cache.resident_bytes


def test_places_are_found_in_steps_of_a_few_frames(log: Log) -> None:
    """The places found are those of the records."""
    records = log.records
    for which in (0, 1, len(records) // 3, len(records) // 2, len(records) - 1):
        record = records[which]
        following = records[which + 1].position if which + 1 < len(records) else log.end
        cache = FrameCache(1 << 30)
        found = counted(log.view(cache).find(PUBLISHER, record.sequence, {}), cache)
        assert found is not None
        assert found[0] == record.position
        assert found[1] <= following
        cache = FrameCache(1 << 30)
        view = log.view(cache)
        cursor = counted(
            view.cursor_at(counted(view.position_at(record.timestamp_ns // 1000), cache), True), cache
        )
        step = cursor.step(log.end)
        assert step is not None
        assert step.position == record.position
        cache = FrameCache(1 << 30)
        before = counted(log.view(cache).last_position_before(record.position), cache)
        assert before == (records[which - 1].position if which else record.position)
        cache = FrameCache(1 << 30)
        bookmark = counted(log.view(cache).last_bookmark_before(record.position), cache)
        assert bookmark == ((PUBLISHER, records[which - 1].sequence) if which else (0, 0))
        cache = FrameCache(1 << 30)
        cursor = counted(log.view(cache).cursor_at(record.position, True), cache)
        step = cursor.step(log.end)
        assert step is not None
        assert (step.position, step.topic) == (record.position, record.topic)
    cache = FrameCache(1 << 30)
    view = log.view(cache)
    assert counted(view.find(PUBLISHER, len(records) + 1, {}), cache) is None
    assert counted(view.find(PUBLISHER + 1, 1, {}), cache) is None
    assert counted(view.position_at(1 << 50), cache) == log.end


def test_topics_of_a_journal_that_grows_are_learnt_on_top_of_those_before(tmp_path: Path) -> None:
    """Each time the index names more topics."""
    log = Log(tmp_path)
    view = log.view(FrameCache())
    index = view.index(1)
    assert index is not None
    chain = [index.last_topic_offset]
    another = LogFile(str(journal_path(tmp_path, NAME, 1)))
    while chain[-1]:
        chain.append(another.learn_topics_before(chain[-1], lambda topic, kind: topic, 1))
    assert len(chain) == TOPICS + 1
    start = another.start_position
    records = [record for record in log.records if start <= record.position < start + FILE_BYTES]
    for offset in (chain[30], chain[10], chain[0]):
        view.index = lambda number, offset=offset: SimpleNamespace(last_topic_offset=offset)  # type: ignore[assignment,misc]
        cursor = at_once(view.cursor_at(records[-1].position, True))
    assert cursor.file.number == 1
    for record in records:
        found = LogCursor(view.directory, 1, record.position, True).step(log.end)
        assert found is not None
        assert found.topic == record.topic


def test_a_search_continues_after_missing_pages_were_read(log: Log) -> None:
    """The search raises PagesMissing for each part before it reads it, and then does the step without raising again."""

    record = log.records[len(log.records) // 2]
    view = log.view(FrameCache(0))
    asked: list[PagesMissing] = []

    def missing(steps: Steps[Any]) -> Steps[Any]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            asked.append(PagesMissing(view.directory.file(0), 0, 4096))
            yield asked[-1]

    for name in ("find", "cursor_at", "last_bookmark_before"):
        steps = getattr(view, name)
        setattr(view, name, lambda *arguments, steps=steps: missing(steps(*arguments)))
    point = MessagePoint(PUBLISHER, record.sequence)
    running = StartSearch(view, BookmarkRange(Points(messages=(point,)), True), "now")
    raised = 0
    while True:
        try:
            if running.step():
                break
        except PagesMissing:
            raised += 1
    assert raised == len(asked) >= 2
    start = running.result()
    assert (start.cursor.position, start.bookmark) == (record.position, (PUBLISHER, record.sequence - 1))


def test_a_damaged_index_is_reported_once_and_used_again_when_it_is_replaced(tmp_path: Path) -> None:
    log = Log(tmp_path)
    path = index_path(tmp_path, NAME, 1)
    good, other = path.read_bytes(), index_path(tmp_path, NAME, 0).read_bytes()
    reports: list[str] = []
    view = log.view(FrameCache(64 << 20), reports)
    bad = good[:150] + bytes([good[150] ^ 0xFF]) + good[151:]
    for count, content in enumerate((bad, good[:200], b"", other), 1):
        path.write_bytes(content)
        for record in log.records[:: len(log.records) // 7]:
            found = at_once(view.find(PUBLISHER, record.sequence, {}))
            assert found is not None
            assert found[0] == record.position
        assert view.index(1) is None
        assert len(reports) == count
        assert reports[-1].startswith(path.name)
    path.write_bytes(good)
    assert view.index(1) is not None
    assert len(reports) == 4
