"""Messages larger than any window: the whole message is in memory before the event loop reads it."""

import resource
from functools import partial
from pathlib import Path

import pytest

from amps._core.journal.reader import LogUnreadable
from amps._core.journal.search import read, read_parts, resident_range
from amps.server.transport.replay import Clocks, Replay
from tests.support.replays import Reader, Reading, Stored, StoredLog
from tests.unit.core.test_read_ahead import forget

FILE_BYTES = 48 << 20
MESSAGES = 12
TOPICS = ("large", "small")
NOW_NS = 10**9
CUT_OFF_AT = 3 << 20


def payload(number: int) -> bytes:
    return b'{"k":%d,"x":"%s"}' % (number, b"x" * (4_500_000 + number * 300_000))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    """Two full journals and one in use. Small messages of a topic without subscriptions lie between large ones."""
    messages = []
    for number in range(MESSAGES):
        large = Stored("large", 0, number + 1, 1000 + number, payload(number))
        small = [Stored("small", 1, 40 * number + n + 1, 1000 + number, b"{}" * 50) for n in range(40)]
        messages += [*small, large]
    log = StoredLog(tmp_path_factory.mktemp("log"), FILE_BYTES, messages)
    for number in log.full:
        log.make_topic_index(number)
    return log


def forget_all(log: StoredLog) -> None:
    for number in (*log.full, len(log.full)):
        forget(log.journal(number))


def faults() -> int:
    """The number of pages for which this thread had to wait so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


def run(replay: Replay, reader: Reader, log: StoredLog) -> tuple[int, int, int]:
    """Run the replay to its end.

    Returns the number of pages that its runs waited for, the bytes requested, and the largest request.
    """
    waited = asked = asked_max = 0
    for _ in range(10_000):
        if replay.tailer.position >= log.end:
            return waited, asked, asked_max
        before = faults()
        work = replay.work_ahead(log.end, NOW_NS)
        if work is None:
            replay.run(log.end, Clocks(NOW_NS, 1))
            reader.take(NOW_NS)
        waited += faults() - before
        if work is None:
            continue
        assert isinstance(work, partial)
        lengths = []
        if work.func is read:
            lengths = [work.args[2]]
        elif work.func is read_parts:
            lengths = [length for _, length in work.args[1]]
        asked += sum(lengths)
        asked_max = max([asked_max, *lengths])
        work()
    raise AssertionError("it does not come to its end")


@pytest.mark.parametrize("with_indexes", [False, True])
def test_the_event_loop_waits_for_no_page_of_a_large_message(stored: StoredLog, with_indexes: bool) -> None:
    """On a file system in memory nothing is requested, and nothing is waited for."""
    forget_all(stored)
    reading = Reading(stored, with_indexes=with_indexes)
    replay, reader = reading.replay([("large", None)])
    file = replay.tailer.cursor.file
    dropped = resident_range(file, 1 << 20, stored.end, 1 << 20)[0] == 0
    waited, asked, asked_max = run(replay, reader, stored)
    frames = b"".join(event for event in reader.events if isinstance(event, bytes))
    assert all(payload(number) in frames for number in range(MESSAGES))
    assert waited == 0
    if not dropped:
        pytest.skip("the file system does not give up its pages")
    wanted = sum(len(payload(number)) for number in range(MESSAGES))
    assert wanted * 0.9 < asked < wanted * 1.3
    assert asked_max > 1 << 20


def test_a_lookup_waits_for_no_page_of_a_large_message(stored: StoredLog) -> None:
    """Finding a message's place, and the last bookmark before a place, takes steps that request their pages."""
    view = Reading(stored, with_indexes=False).view
    file = view.directory.file(0)
    forget_all(stored)
    dropped = resident_range(file, 1 << 20, stored.end, 1 << 20)[0] == 0
    for steps in (view.last_bookmark_before(stored.end), view.position_at(1000 + MESSAGES - 1)):
        waited = 0
        while True:
            before = faults()
            try:
                missing = next(steps)
            except StopIteration:
                break
            finally:
                waited += faults() - before
            if missing is not None:
                read(missing.file, missing.offset, missing.length)
        assert waited == 0
        forget_all(stored)
    if not dropped:
        pytest.skip("the file system does not give up its pages")


def run_until_unreadable(replay: Replay, reader: Reader, log: StoredLog) -> None:
    """Run as a worker does. Raises LogUnreadable."""
    while replay.tailer.position < log.end:
        work = replay.work_ahead(log.end, NOW_NS)
        if work is None:
            replay.run(log.end, Clocks(NOW_NS, 1))
            reader.take(NOW_NS)
            continue
        try:
            work()
        except LogUnreadable as problem:
            replay.was_unreadable(problem)


def test_an_unreadable_place_ends_a_replay_there(tmp_path: Path) -> None:
    """Messages before that place are delivered."""
    log = StoredLog(
        tmp_path, 8 << 20, [Stored("t", 0, n + 1, 1000 + n, b"%07d" % n * 1000) for n in range(900)]
    )
    replay, reader = Reading(log, with_indexes=False).replay([("t", None)])
    with log.journal(0).open("r+b") as file:
        file.truncate(CUT_OFF_AT)
    with pytest.raises(LogUnreadable, match="the file ends here"):
        run_until_unreadable(replay, reader, log)
    frames = b"".join(event for event in reader.events if isinstance(event, bytes))
    left = sum(place <= CUT_OFF_AT for place in log.places[1:])
    assert frames.count(b'"l":') == left > 400
    assert b"%07d" % (left - 1) * 1000 in frames
