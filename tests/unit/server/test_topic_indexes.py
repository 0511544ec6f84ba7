"""Replays that step through journals by their topic indexes, against replays that read everything.

transaction_log.md §3, §20 item 32: apart from speed, a topic index has no visible effect.
"""

import copy
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps._core.delivery.delivery import REPLAY_ENDED, ReplayBounds
from amps._core.journal.reader import FRAME_BYTES, FrameCache, LogDamaged
from amps._core.journal.search import read_parts
from amps._core.values.value import publisher_id
from amps.journal.entries import JournalFile
from amps.journal.topic_index import open_topic_index
from amps.server.transport import topic_indexes
from amps.server.transport.options import Conflating, Options, Rate, RateKind
from amps.server.transport.replay import Clocks
from amps.server.transport.topic_indexes import Stepping, make_topic_indexes
from tests.support.replays import MANY, Reader, Reading, Stored, StoredLog, run_replay
from tests.unit.core.test_read_ahead import forget

START_US = 1_700_000_000_000_000
FILE_BYTES = 12 << 10
TOPICS = ["a", "b", "a/b", "c", "d", "e"]
WANTED = [
    ("a", None),
    ("b", None),
    ("^a", None),
    ("[cd]", "/k = 1"),
    ("e", "/k < 2"),
    ("none", None),
    (".*", None),
]
OPTIONS = [
    Options(bookmark=True),
    Options(bookmark=True, timestamp=True),
    Options(bookmark=True, rate=Rate(RateKind.MESSAGES, 3.0)),
    Options(bookmark=True, rate=Rate(RateKind.BYTES, 500.0)),
    Options(bookmark=True, rate=Rate(RateKind.SPEED, 0.5)),
    Options(bookmark=True, rate=Rate(RateKind.SPEED, 2.0, 0.001)),
]
CONFLATING = [Conflating(interval_s, ((b"k",),)) for interval_s in (1e-6, 4e-6, 1.0)]
BESIDE = ["index", "index", "index", "nothing", "damaged", "foreign", "later"]


@st.composite
def stored(draw: st.DrawFn) -> list[Stored]:
    """Messages for several journals, of which most have few topics, or all topics."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    count = draw(st.integers(0, 120))
    weights = draw(st.sampled_from([(1, 1, 1, 1, 1, 1), (1, 1, 1, 20, 20, 20), (30, 1, 1, 1, 1, 1)]))
    sizes = draw(st.sampled_from([[20], [20, 600], [20, 300, 5000]]))
    time_us = START_US
    last = [0] * 3
    messages = []
    for _ in range(count):
        time_us += chance.randrange(4)
        publisher = chance.randrange(3)
        last[publisher] += 1
        topic = chance.choices(TOPICS, weights)[0]
        payload = b'{"k":%d,"x":"%s"}' % (chance.randrange(3), b"x" * chance.choice(sizes))
        messages.append(Stored(topic, publisher, last[publisher], time_us, payload))
    return messages


def prepare(log: StoredLog, data: st.DataObject) -> list[int]:
    """Make indexes for some journals, and compress some. Returns the journals that get their index later."""
    later = []
    for number in log.full:
        beside = data.draw(st.sampled_from(BESIDE), label=f"beside journal {number}")
        if beside != "nothing":
            log.make_topic_index(number)
        index = log.topic_index(number)
        if beside == "damaged":
            content = bytearray(index.read_bytes())
            content[data.draw(st.integers(0, len(content) - 1))] ^= 0x55
            index.write_bytes(content)
        elif beside == "foreign" and number:
            log.make_topic_index(number - 1)
            index.write_bytes(log.topic_index(number - 1).read_bytes())
        elif beside == "later":
            index.unlink()
            later.append(number)
        if data.draw(st.booleans(), label=f"journal {number} is compressed"):
            log.compress(number)
    return later


def drawn_bounds(
    log: StoredLog, messages: Sequence[Stored], data: st.DataObject
) -> Callable[[], ReplayBounds] | None:
    """A range with a beginning in time and an end of any kind. The result makes the range anew for each replay."""
    if not data.draw(st.booleans(), label="range"):
        return None
    last_us = messages[-1].time_us if messages else START_US
    times = st.one_of(st.just(0), st.integers(START_US, last_us + 2))
    begin_us = data.draw(times, label="begin")
    position = data.draw(st.one_of(st.just(0), st.sampled_from(log.places)), label="end position")
    end_us = data.draw(times, label="end")
    awaited = []
    if messages and data.draw(st.integers(0, 4)) == 0:
        message = data.draw(st.sampled_from(messages))
        awaited.append((publisher_id(f"p{message.publisher}"), message.sequence))
    inclusive = data.draw(st.booleans())
    has_end = data.draw(st.booleans())
    return lambda: ReplayBounds(begin_us, (inclusive, position, end_us, awaited) if has_end else None)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(stored(), st.data())
def test_deliveries_are_those_of_reading_everything(messages: list[Stored], data: st.DataObject) -> None:
    """Equal are the bytes, times and ends, and the bookmarks wherever one is given."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_indexes, "LOOK_AGAIN_BYTES", data.draw(st.sampled_from([1, 3000])))
        log = StoredLog(Path(directory), FILE_BYTES, messages)
        later = prepare(log, data)
        bounds = drawn_bounds(log, messages, data)
        options = data.draw(st.sampled_from(OPTIONS))
        alone = bounds is not None or data.draw(st.booleans(), label="alone")
        wanted = data.draw(
            st.lists(st.sampled_from(WANTED), min_size=1, max_size=1 if alone else 3, unique=True)
        )
        messages_max = data.draw(st.one_of(st.none(), st.integers(1, 10))) if alone else None
        if alone and data.draw(st.booleans()):
            options = Options(bookmark=True, conflating=data.draw(st.sampled_from(CONFLATING)))
        begin = data.draw(st.one_of(st.just(0), st.sampled_from(log.places)), label="begin position")
        due = data.draw(
            st.one_of(st.none(), st.just(MANY), st.sampled_from(log.places)), label="completed at"
        )
        limits = sorted(data.draw(st.lists(st.sampled_from(log.places), max_size=3), label="limits"))
        limits = [limit for limit in limits if limit >= begin]
        leaves = data.draw(st.booleans(), label="one leaves") and len(wanted) > 1
        turn_bytes = data.draw(st.sampled_from([1, 700, 1 << 20]), label="bytes per turn")
        found = []
        for with_indexes in (False, True):
            reading = Reading(
                log, with_indexes=with_indexes, cache=FrameCache(data.draw(st.sampled_from([0, MANY])))
            )
            replay, reader = reading.replay(
                wanted,
                options,
                position=begin,
                bounds=None if bounds is None else bounds(),
                messages_max=messages_max,
                completed_at=due,
            )
            replay.OUTPUT_BYTES_PER_TURN = turn_bytes
            replay.LOG_BYTES_PER_TURN = replay.LOG_BYTES_MIN = turn_bytes
            # The clock is not behind the stored times, so some conflated messages may be held then.
            unix_ns = (messages[-1].time_us if messages else START_US) * 1000 + 2000
            later_now = later if with_indexes else []
            found.append(outcome(log, replay, reader, limits, later_now, unix_ns, leaves=leaves))
        assert found[1] == found[0]


def outcome(
    log: StoredLog,
    replay: Any,
    reader: Reader,
    limits: list[int],
    later: list[int],
    unix_ns: int,
    *,
    leaves: bool,
) -> tuple[object, ...]:
    """All visible results of a replay up to these limits and the end of the log."""
    now_ns = 10**9
    rest = []

    def between(turn: int) -> None:
        if turn % 3 == 0 and later:
            log.make_topic_index(later.pop())

    for limit in [*limits, log.end]:
        state, now_ns = run_replay(
            replay,
            reader,
            limit,
            now_ns=now_ns,
            unix_ns=unix_ns,
            settled=(1 << 60, log.end),
            between=between,
        )
        rest.append((state, now_ns, replay.tailer.position, replay.last_bookmark))
        if state == REPLAY_ENDED:
            break
        if leaves and len(replay.members) > 1:
            replay.leave(replay.members[0])
    place = replay.place()
    return reader.events, reader.came, rest, place.cursor.position, place.bookmark


def test_a_replay_continues_from_the_place_of_one_that_stepped_there(tmp_path: Path) -> None:
    """The second replay's topics were named in records that the first one skipped, as after a pause."""
    messages = [
        Stored("rare" if n % 9 == 0 else f"common/{n % 7}", 0, n + 1, START_US + n, b'"%d"' % n * 20)
        for n in range(200)
    ]
    log = StoredLog(tmp_path, FILE_BYTES, messages)
    for number in log.full:
        log.make_topic_index(number)
    for limit in log.places[::7]:
        for topic in (".*", "common/3", "rare"):
            went_on = []
            for with_indexes in (False, True):
                reading = Reading(log, with_indexes=with_indexes)
                first, reader = reading.replay([("rare", None)])
                run_replay(first, reader, limit)
                second, reader = reading.replay([(topic, None)], start=first.place())
                first.leave(first.members[0])
                run_replay(second, reader, log.end)
                went_on.append((reader.events, second.place().bookmark))
            assert went_on[1] == went_on[0]


# Records that are not read

RARE = 50
LARGE_FILE_BYTES = 3 << 20
RECORD_BYTES = 1080


def sparse(count: int = 9000, size: int = 1000) -> list[Stored]:
    """Messages of which every fiftieth has the topic `rare`, except those in the middle."""
    chance = random.Random(3)
    return [
        Stored(
            "rare" if n % RARE == 0 and not count // 3 < n < count // 2 else f"common/{n % 3}",
            0,
            n + 1,
            START_US + n,
            chance.randbytes(size // 2) + bytes(size - size // 2),
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    """Three full journals of 3 MiB with topic indexes. In a part of the second one, topic `rare` does not occur."""
    log = StoredLog(tmp_path_factory.mktemp("log"), LARGE_FILE_BYTES, sparse())
    assert len(log.full) == 3
    for number in log.full:
        log.make_topic_index(number)
    return log


class CountingCache(FrameCache):
    """A cache that records the decompressed frames, except for the first one of each file."""

    def __init__(self) -> None:
        super().__init__(MANY)
        self.frames: set[tuple[int, int]] = set()

    def used(self, serial: int, frame: int) -> None:
        super().used(serial, frame)
        if frame:
            self.frames.add((serial, frame))


def read(
    log: StoredLog, topic: str, *, with_indexes: bool = True, cache: FrameCache | None = None
) -> tuple[Reading, list[Any]]:
    reading = Reading(log, with_indexes=with_indexes, cache=cache)
    replay, reader = reading.replay([(topic, None)])
    run_replay(replay, reader, log.end)
    return reading, reader.events


def copy_of(log: StoredLog, directory: Path) -> Path:
    shutil.copytree(log.directory, directory)
    return directory


def test_records_of_other_topics_are_not_read(large: StoredLog, tmp_path: Path) -> None:
    """Damage in them is found only by readers of their topics."""
    log = copy.copy(large)
    log.directory = copy_of(large, tmp_path / "log")
    _, expected = read(large, "rare", with_indexes=False)
    for number in log.full:
        content = bytearray(log.journal(number).read_bytes())
        with JournalFile(log.journal(number)) as file:
            entries = [(entry.file_offset, entry.topic) for entry in file.entries()]
        for offset, name in entries[1:-1]:
            if name != b"rare":
                content[offset : offset + 8] = b"\xff" * 8
        log.journal(number).write_bytes(content)
    for topic in ("rare", "^ra"):
        assert read(log, topic)[1] == expected
    for topic, with_indexes in (("common/1", True), ("rare", False)):
        with pytest.raises(LogDamaged):
            read(log, topic, with_indexes=with_indexes)


def test_only_frames_with_wanted_records_are_decompressed(large: StoredLog, tmp_path: Path) -> None:
    """The first frame is an exception, since it contains the header."""
    log = copy.copy(large)
    log.directory = copy_of(large, tmp_path / "log")
    needed = set()
    for number in log.full:
        with JournalFile(log.journal(number)) as file:
            entries = [entry.file_offset for entry in file.entries() if entry.topic == b"rare"]
        needed |= {
            (number, place // FRAME_BYTES)
            for offset in entries
            for place in (offset, offset + RECORD_BYTES - 1)
        }
        log.compress(number)
    needed = {(number, frame) for number, frame in needed if frame}
    everything = len(log.full) * (LARGE_FILE_BYTES // FRAME_BYTES - 1)
    cache = CountingCache()
    _, expected = read(log, "rare", with_indexes=False, cache=cache)
    assert len(cache.frames) == everything
    cache = CountingCache()
    assert read(log, "rare", cache=cache)[1] == expected
    assert len(cache.frames) == len(needed) < everything - 3
    cache = CountingCache()
    assert read(log, "nobody's", cache=cache)[1] == []
    assert not cache.frames


def test_only_wanted_pages_are_read_from_the_disk(large: StoredLog) -> None:
    """Pages of wanted records are read, and no others. On a file system in memory all pages stay in memory."""
    path = large.journal(0)
    forget(path)
    reading = Reading(large, with_indexes=True)
    replay, reader = reading.replay([("rare", None)])
    file = replay.tailer.cursor.file
    with JournalFile(path) as journal:
        entries = [(entry.file_offset, entry.topic) for entry in journal.entries()]
    pages = {
        page
        for offset, topic in entries
        if topic == b"rare"
        for page in range(offset // 4096, (offset + RECORD_BYTES - 1) // 4096 + 1)
    }
    forget(path)
    asked: set[int] = set()
    while file is replay.tailer.cursor.file:
        work = replay.work_ahead(large.end, 10**9)
        if work is None:
            replay.run(large.end, Clocks(10**9, 1))
            reader.take(1)
            continue
        assert isinstance(work, partial)
        if work.func is read_parts:
            _, parts = work.args
            asked |= {
                page for begin, size in parts for page in range(begin // 4096, -(-(begin + size) // 4096))
            }
        else:
            assert work.func == reading.indexes.look  # type: ignore[union-attr]
        work()
    # Before the lengths are known, requests use the average, which includes the end of the file.
    assert {page for page in asked if page not in pages and page - 1 not in pages} == set()
    assert len(pages) < LARGE_FILE_BYTES // 4096 // 4


def test_if_most_records_are_wanted_everything_is_read(large: StoredLog) -> None:
    """Stepping from record to record would cost more."""
    for topic, steps in (("common/1", True), ("common/[01]", False), (".*", False), ("nobody's", True)):
        reading = Reading(large, with_indexes=True)
        replay, _ = reading.replay([(topic, None)])
        work = replay.work_ahead(large.end, 10**9)
        assert work is not None
        work()
        replay.work_ahead(large.end, 10**9)
        assert replay.tailer.chooses
        replay.run(large.end, Clocks(10**9, 1))
        assert not replay.tailer.chooses
        assert (replay.tailer.steps is not None) == steps
        if replay.tailer.steps is not None:
            assert replay.tailer.steps.left_count > 2500
            assert (replay.tailer.steps.wanted_count == 0) == (topic == "nobody's")


# Missing indexes


def test_missing_or_damaged_indexes_are_reported_once(tmp_path: Path) -> None:
    """There is one report for each journal, for any number of replays."""
    log = StoredLog(
        tmp_path, FILE_BYTES, [Stored("ab"[n % 5 == 0], 0, n + 1, START_US, bytes(1000)) for n in range(40)]
    )
    assert len(log.full) >= 3
    log.make_topic_index(0)
    log.make_topic_index(1)
    log.topic_index(1).write_bytes(log.topic_index(0).read_bytes())
    log.make_topic_index(2)
    log.topic_index(2).write_bytes(log.topic_index(2).read_bytes()[:-1])
    reading = Reading(log, with_indexes=True)
    for _ in range(3):
        replay, reader = reading.replay([("b", None)])
        run_replay(replay, reader, log.end)
    expected = [
        ("21-0005", f"{log.topic_index(1)}: it is that of another journal"),
        ("21-0005", f"{log.topic_index(2)}: its length differs from the length in its header"),
        *(("21-0004", f"{log.topic_index(number)} does not exist") for number in log.full[3:]),
    ]
    assert reading.reports == expected


def test_an_index_is_open_while_it_is_used(large: StoredLog) -> None:
    """It is opened once for all replays that step through a journal, and closed with the last of them."""
    reading = Reading(large, with_indexes=True)
    assert reading.indexes is not None
    replays = [reading.replay([("rare", None)])[0] for _ in range(2)]
    work = replays[0].work_ahead(large.end, 10**9)
    assert work is not None
    work()
    replays[0].work_ahead(large.end, 10**9)
    opened = reading.indexes.opened(0)
    assert opened is not None
    assert replays[1].work_ahead(large.end, 10**9) is None
    assert replays[1].tailer.steps is not None
    assert replays[1].tailer.steps.index is opened
    del opened, work
    for replay in replays:
        replay.leave(replay.members[0])
    del replay, replays
    assert reading.indexes.opened(0) is None


def test_topics_are_matched_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is bounded for any number of topics in a journal, so that other clients are served in between."""
    messages = [Stored(f"topic/{n % 700}", 0, n + 1, START_US, b"{}") for n in range(1000)]
    log = StoredLog(tmp_path, 128 << 10, messages)
    assert log.full == [0]
    log.make_topic_index(0)
    monkeypatch.setattr(Stepping, "CHOICE_BYTES_PER_TURN", 100_000)
    reading = Reading(log, with_indexes=True)
    replay, reader = reading.replay([("topic/[12]0$", None)])
    turns: list[int] = []
    run_replay(replay, reader, log.end, between=turns.append)
    assert len(turns) > 20
    assert reader.events == read(log, "topic/[12]0$", with_indexes=False)[1]


def test_the_index_of_another_journal_is_refused(large: StoredLog) -> None:
    reading = Reading(large, with_indexes=True)
    replay, _ = reading.replay([("rare", None)])
    with pytest.raises(ValueError, match="another journal"):
        replay.tailer.use_index(open_topic_index(large.topic_index(1)), LARGE_FILE_BYTES)


def test_indexes_are_unused_unless_enabled(tmp_path: Path) -> None:
    """transaction_log.md §20 item 32: off by default; without a transaction log there are none."""
    config: Any = SimpleNamespace(transaction_log=object(), tuning=SimpleNamespace(topic_index=False))
    anything: Any = object()
    assert make_topic_indexes(config, anything, anything, anything) is None
    config.tuning.topic_index = True
    assert make_topic_indexes(config, anything, None, anything) is None
