"""Filters of queue subscriptions: the matches reported to the core, in any order of events (queues.md §9.2)."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps._core.expressions.machine import EvaluationContext, FilterSet
from amps._core.journal.reader import FrameCache, LogCursor, LogDamaged, LogDirectory, LogUnreadable
from amps._core.journal.search import read
from amps._core.messages.json import JsonExtractor
from amps._core.queues.sender import MessageReader, QueueFiltering, QueueSearch
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from amps.expressions.filters import compile_filter
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings
from tests.support.records import RecordParts
from tests.unit.core.test_queue_sender import forget

SECOND_NS = 10**9
SECTION = struct.Struct("<QII")
MATCH = struct.Struct("<QII")


class Stage:
    """A journal with messages `{"n": 1}` to `{"n": 30}`, two queues over them, and the evaluation of their filters."""

    def __init__(
        self, path: Path, entered: int | None = None, payload_bytes: int = 10, messages: int = 30
    ) -> None:
        feeder = Feeder(path, 1 << 20, publishers=1)
        for number in range(1, messages + 1):
            payload = b'{"n":%d,"x":"%s"}' % (number, b"x" * payload_bytes)
            parts = RecordParts(payload=payload, publisher_id=publisher_id("p0"))
            feeder.push(Feed(0, number, "T", parts))
            feeder.turn(1_700_000_000 * SECOND_NS + number * 1000, 0)
        self.end: int = feeder.journal.position
        records = read_all(LogCursor(directory_of(feeder.journal_storage), 0, 0, True), self.end)
        self.positions: list[int] = [record.position for record in records]
        self.numbers = {position: number for number, position in enumerate(self.positions, 1)}
        self.queues = SharedQueues(QueueSettings("Q"), QueueSettings("R"))
        self.queues.enter(0, *self.positions[:entered])
        self.queues.enter(1, *self.positions[:entered])
        self.asked: list[tuple[Any, int, int, Callable[..., object]]] = []
        self.damage: list[LogDamaged] = []
        self.turns = 0
        self.pushed: list[bytes] = []
        self.matches: dict[int, list[int]] = {}
        self.until: dict[int, int] = {}
        directory = LogDirectory(
            feeder.journal_storage.prefix, ".journal", lambda topic, kind: topic, (), FrameCache(1 << 30)
        )
        self.file = Path(directory.path(0))
        self.reader = MessageReader(directory, feeder.control)
        self.filtering = QueueFiltering(
            self.queues.memory,
            self.reader,
            lambda *asked: self.asked.append(asked),
            self.turn_wanted,
            self.damage.append,
            self.pushed.append,
        )
        self.evaluation = EvaluationContext(JsonExtractor(), FieldValues(), MessageContext())
        self.topics = TopicTable(lambda topic, kind: (True, False, None, None))

    def turn_wanted(self) -> None:
        self.turns += 1

    def begin(self, cursor: int, text: str, queue: int = 0) -> None:
        entry = self.topics.entry("QR"[queue], "json")
        self.filtering.begin(cursor, queue, compile_filter(text), self.evaluation, entry)

    def search(self, text: str, queue: int = 0) -> QueueSearch:
        filters = FilterSet(self.evaluation)
        filters.add(compile_filter(text), None)
        entry = self.topics.entry("QR"[queue], "json")
        return QueueSearch(self.queues.memory, self.reader, queue, entry, filters, self.end)

    def run(self, limit: int | None = None, bytes_max: int = 1 << 20) -> bool:
        """Run one turn, and read the pushed records as the core does."""
        more = self.filtering.run(self.end if limit is None else limit, bytes_max)
        for record in self.pushed:
            at = 0
            while at < len(record):
                until, cursor, count = SECTION.unpack_from(record, at)
                at += SECTION.size
                for _ in range(count):
                    position, _, _ = MATCH.unpack_from(record, at)
                    assert self.until.get(cursor, 0) <= position < until
                    self.matches.setdefault(cursor, []).append(self.numbers[position])
                    at += MATCH.size
                assert until >= self.until.get(cursor, 0)
                self.until[cursor] = until
        self.pushed.clear()
        return more


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_queue_filtering_reports_matches_in_order(stage: Stage) -> None:
    stage.begin(5, "/n > 27")
    stage.begin(6, "/n IN (3, 2, 29)")
    stage.begin(7, "/n = 1", queue=1)
    stage.begin(8, "/n = 0")
    assert not stage.run()
    assert stage.matches == {5: [28, 29, 30], 6: [2, 3, 29], 7: [1]}
    assert stage.until == dict.fromkeys((5, 6, 7, 8), stage.end)


def test_queue_filtering_goes_on_as_the_queue_grows(tmp_path: Path) -> None:
    stage = Stage(tmp_path, entered=10)
    stage.begin(1, "/n < 20")
    assert not stage.run(stage.positions[8])
    assert stage.matches[1] == list(range(1, 9))
    stage.begin(2, "/n > 5")
    assert not stage.run(stage.positions[10])
    assert (stage.matches[1], stage.matches[2]) == (list(range(1, 11)), list(range(6, 11)))
    stage.queues.enter(0, *stage.positions[10:])
    evaluations = stage.evaluation.unreadable
    assert not stage.run()
    assert (stage.matches[1], stage.matches[2]) == (list(range(1, 20)), list(range(6, 31)))
    assert stage.evaluation.unreadable == evaluations
    stage.matches.clear()
    stage.until.clear()
    assert not stage.run(stage.end + 8)
    assert stage.until == {}, "the queue has not grown"


def test_queue_filtering_skips_removed_messages_and_barriers(tmp_path: Path) -> None:
    """Neither is reported as a match (queues.md §12)."""
    stage = Stage(tmp_path, entered=5)
    stage.queues.leave(0, *stage.positions[1:3])
    stage.queues.enter(0, stage.positions[5], is_barrier=True)
    stage.queues.enter(0, stage.positions[6])
    stage.begin(1, "/n > 0")
    stage.run()
    assert stage.matches[1] == [1, 4, 5, 7]


def test_queue_filtering_shares_turns(stage: Stage) -> None:
    """The bytes read in a turn are bounded.

    The next turn continues in the right place, so no match is reported twice.
    """
    stage.begin(1, "/n > 0")
    stage.begin(2, "/n > 0", queue=1)
    turns = 1
    while stage.run(bytes_max=2000):
        turns += 1
    assert turns > 5
    assert stage.matches == {1: list(range(1, 31)), 2: list(range(1, 31))}


def test_queue_filtering_ends(stage: Stage) -> None:
    stage.begin(1, "/n = 1")
    stage.begin(2, "/n = 2")
    stage.run(stage.positions[0])
    stage.filtering.end(1)
    stage.filtering.end(1)
    assert len(stage.filtering) == 1
    stage.run()
    assert stage.matches == {2: [2]}
    stage.filtering.end(2)
    assert not stage.run(stage.end + 8)
    assert len(stage.filtering) == 0


def test_queue_filtering_of_many_matches_comes_in_sections(tmp_path: Path) -> None:
    """Each section says how far it goes, so that no match is reported twice or left out."""
    stage = Stage(tmp_path, messages=5000)
    stage.begin(1, "/n > 0")
    assert not stage.run(bytes_max=1 << 30)
    assert stage.matches[1] == list(range(1, 5001))
    assert stage.until[1] == stage.end


def test_queue_filtering_waits_for_the_disk(tmp_path: Path) -> None:
    """Pages that are not in memory are read by another thread."""
    stage = Stage(tmp_path, payload_bytes=20_000)
    path = stage.file
    stage.begin(1, "/n > 28")
    for _ in range(100):
        forget(path)
        while stage.run():
            pass
        if not stage.asked:
            break
        assert stage.until.get(1, 0) < stage.end
        file, offset, length, done = stage.asked.pop()
        assert not stage.asked
        read(file, offset, length)
        done()
    assert stage.turns > 0
    assert stage.matches[1] == [29, 30]


def test_queue_filtering_reports_unreadable_messages_and_goes_on(tmp_path: Path) -> None:
    """A message in pages that the disk cannot read matches no filter."""
    stage = Stage(tmp_path, payload_bytes=20_000)
    stage.begin(1, "/n < 4")
    forget(stage.file)
    problems = [LogUnreadable("x.journal", stage.positions[0] + 10, "it cannot be read")]
    while stage.run() or stage.asked:
        for file, offset, length, done in [*stage.asked]:
            stage.asked.clear()
            if problems:
                done(problems.pop())
            else:
                read(file, offset, length)
                done()
    if not problems:  # otherwise pages never leave memory here
        assert [damage.offset for damage in stage.damage] == [stage.positions[0] + 10]
        assert stage.matches[1] == [2, 3]


def test_queue_filtering_reports_damage_and_goes_on(stage: Stage) -> None:
    """A damaged message matches no filter."""
    with stage.file.open("r+b") as file:
        file.seek(stage.positions[3] + 90)
        file.write(b"?")
    stage.begin(1, "/n < 6")
    stage.run()
    assert stage.matches[1] == [1, 2, 3, 5]
    assert [damage.offset for damage in stage.damage] == [stage.positions[3]]


def test_queue_search_finds_active_messages(tmp_path: Path) -> None:
    """queues.md §8.1: available, leased and waiting messages, in one queue."""
    stage = Stage(tmp_path, entered=5)
    stage.queues.leave(0, stage.positions[0])
    stage.queues.enter(0, stage.positions[5], is_barrier=True)
    stage.queues.manager.subscribe(0, 1, 1, {0: None}, 1)
    stage.queues.manager.serve(2)
    states = dict(stage.queues.manager.states(0))
    assert [states[position] for position in stage.positions[1:6]] == [3, 2, 2, 2, 4]
    search = stage.search("/n NOT IN (3, 4)")
    assert search.run(1 << 20)
    assert search.compared == 5
    assert search.found.count == 3
    assert search.found.unknown == 0


def test_queue_search_goes_on_in_turns(stage: Stage) -> None:
    search = stage.search("/n > 0", queue=1)
    turns = 1
    while not search.run(2000):
        turns += 1
    assert turns > 3
    assert (search.compared, search.found.count) == (30, 30)


def test_queue_search_reports_damage(stage: Stage) -> None:
    """The search must not acknowledge fewer messages than it should without an error. Removed messages are not read."""
    with stage.file.open("r+b") as file:
        file.seek(stage.positions[3] + 90)
        file.write(b"?")
    with pytest.raises(LogDamaged):
        stage.search("/n > 0").run(1 << 20)
    stage.queues.leave(0, stage.positions[3])
    assert stage.search("/n > 0").run(1 << 20)


def test_queue_search_shows_messages_that_are_not_leased(tmp_path: Path) -> None:
    """queues.md §14.1, D-17; pages consist of matching messages."""
    stage = Stage(tmp_path, entered=6)
    stage.queues.manager.subscribe(0, 1, 1, {0: None}, 1)
    stage.queues.manager.serve(2)
    filters = FilterSet(stage.evaluation)
    filters.add(compile_filter("/n != 3"), None)
    entry = stage.topics.entry("Q", "json")
    search = QueueSearch(stage.queues.memory, stage.reader, 0, entry, filters, stage.end, shows=True)
    search.show(1, 2)
    assert search.run(1 << 20)
    assert (search.compared, search.matched, search.found.count) == (5, 4, 0)
    rows = search.take_rows()
    assert [payload[:7] for *_, payload in rows] == [b'{"n":4,', b'{"n":5,']
    assert [txid for txid, *_ in rows] == sorted({txid for txid, *_ in rows})
    assert search.take_rows() == []
    everything = QueueSearch(stage.queues.memory, stage.reader, 0, entry, None, stage.end, shows=True)
    assert everything.run(1 << 20)
    rows = everything.take_rows()
    assert len(rows) == 5
    keys = frozenset({rows[1][0], rows[3][0], 1 << 63})
    keyed = QueueSearch(stage.queues.memory, stage.reader, 0, entry, None, stage.end, True, keys)
    assert keyed.run(1 << 20)
    assert (keyed.take_rows(), keyed.compared, keyed.matched) == ([rows[1], rows[3]], 5, 2)
