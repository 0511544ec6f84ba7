"""The read window of a replay: how far ahead of the reader the log is read."""

from dataclasses import dataclass
from typing import Any

import pytest

from amps._core.journal.reader import LogUnreadable
from amps.server.transport import read_window
from amps.server.transport.read_window import AHEAD_NS, BYTES_FIRST, BYTES_MIN, TRUSTED_NS, ReadWindow

BYTES_MAX = 1 << 20
LIMIT = 1 << 40
PART_BYTES = 4 << 20
"""The number of bytes checked in one call."""


@dataclass
class File:
    start_position: int = 5000
    path: str = "a.journal"
    size: int = 1 << 40
    readable: int = 1 << 40
    compressed: bool = False

    def readable_bytes(self) -> int:
        return self.readable


class Cursor:
    """A cursor at file offset 4000."""

    def __init__(self) -> None:
        self.position = 9000
        self.file = File()
        self.needed = 80
        self.allowed = 0

    def allow(self, end: int) -> None:
        self.allowed = end


class Memory:
    """A substitute for `resident_range` that records the requests, with a settable number of bytes in memory."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.looked_from: list[int] = []
        self.resident = 0

    def look(self, file: File, offset: int, limit: int, window_bytes: int) -> tuple[int, int]:
        self.asked.append(window_bytes)
        self.looked_from.append(offset)
        wanted = min(window_bytes, limit - file.start_position - offset, PART_BYTES)
        return min(self.resident, wanted), wanted


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(read_window, "resident_range", memory.look)
    return memory


def test_missing_bytes_are_requested_once(memory: Memory) -> None:
    """The request begins behind the bytes in memory, at a file offset.

    Requested bytes are taken to be in memory for a while.
    """
    window, cursor = ReadWindow(), Cursor()
    memory.resident = 100
    seen: Any = cursor
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) == (4000 + 100, BYTES_FIRST - 100)
    assert window.resident_until == 9000 + BYTES_FIRST
    cursor.position += BYTES_FIRST // 2
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS - 1, BYTES_MAX) is None
    assert cursor.allowed == 4000 + BYTES_FIRST
    assert len(memory.asked) == 1


def test_nothing_is_missing_if_all_bytes_are_in_memory(memory: Memory) -> None:
    """In that case the replay does not wait."""
    window, cursor = ReadWindow(), Cursor()
    memory.resident = LIMIT
    seen: Any = cursor
    assert window.missing(seen, 9100, 10**9, BYTES_MAX) is None
    assert window.resident_until == 9100


def test_a_fast_reader_gets_a_large_window(memory: Memory) -> None:
    """The window is as large as the bytes read in a turn, and no larger."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    window.missing(seen, LIMIT, 10**9, BYTES_MAX)
    cursor.position += BYTES_FIRST
    window.missing(seen, LIMIT, 10**9 + 1_000_000, BYTES_MAX)
    assert memory.asked == [BYTES_FIRST, BYTES_MAX]


def test_a_slow_reader_gets_a_window_for_a_short_time(memory: Memory) -> None:
    """Two messages of 300 bytes a second give the smallest window; two of 100,000 bytes give one for AHEAD_NS."""
    for message_bytes, expected in ((300, BYTES_MIN), (100_000, 2 * 100_000 * AHEAD_NS // 10**9)):
        window, cursor = ReadWindow(), Cursor()
        seen: Any = cursor
        memory.asked.clear()
        for turn in range(4):
            window.missing(seen, LIMIT, 10**9 + turn * 500_000_000, BYTES_MAX)
            cursor.position += message_bytes
        assert memory.asked == [BYTES_FIRST] + [expected] * 3


def test_bytes_in_memory_are_checked_again_after_a_while(memory: Memory) -> None:
    """The kernel may have dropped them. A reader that did not wait keeps its window."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    memory.resident = LIMIT
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) is None
    memory.resident = 0
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS, BYTES_MAX) == (4000, BYTES_FIRST)


def test_a_record_that_reaches_over_the_end_is_requested_as_a_whole(memory: Memory) -> None:
    """This holds for any rest of the window, and although the bytes checked before are still trusted."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    memory.resident = LIMIT
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) is None
    assert cursor.allowed == 4000 + BYTES_FIRST
    cursor.position += BYTES_FIRST // 2
    cursor.needed = BYTES_MAX + 1000
    memory.resident = 100
    offset = 4000 + BYTES_FIRST // 2
    assert window.missing(seen, LIMIT, 10**9 + 1, BYTES_MAX) == (offset + 100, cursor.needed - 100)
    assert window.missing(seen, LIMIT, 10**9 + 2, BYTES_MAX) is None
    assert cursor.allowed == offset + cursor.needed


def test_a_record_larger_than_any_window_is_requested_in_parts(memory: Memory) -> None:
    """Parts that were read are not checked again while the rest is read, however long that takes."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    cursor.needed = 2 * PART_BYTES + 1000
    asked = []
    for turn in range(3):
        asked.append(window.missing(seen, LIMIT, 10**9 + turn * TRUSTED_NS // 3, BYTES_MAX))
    assert asked == [(4000, PART_BYTES), (4000 + PART_BYTES, PART_BYTES), (4000 + 2 * PART_BYTES, 1000)]
    assert cursor.allowed == 0
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS - 1, BYTES_MAX) is None
    assert cursor.allowed == 4000 + cursor.needed
    assert memory.looked_from == [offset for offset, _ in asked if offset is not None]


def test_bytes_behind_the_end_of_a_truncated_file_are_not_read(memory: Memory) -> None:
    """This holds at once, although all bytes were in memory. The rest of the file is read."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    memory.resident = LIMIT
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) is None
    cursor.file.readable = 5000
    assert window.missing(seen, LIMIT, 10**9 + 1, BYTES_MAX) is None
    assert cursor.allowed == 5000
    cursor.needed = 1001
    with pytest.raises(LogUnreadable, match="the file ends here") as raised:
        window.missing(seen, LIMIT, 10**9 + 2, BYTES_MAX)
    assert raised.value.offset == 5000


def test_bytes_before_an_unreadable_place_are_read(memory: Memory) -> None:
    """At the place itself a second read is tried.

    If that fails, LogUnreadable is raised, until a new window is made.
    """
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) == (4000, BYTES_FIRST)
    problem = LogUnreadable("a.journal", 12288, "it cannot be read (Input/output error)")
    window.was_unreadable(problem)
    memory.resident = 12288 - 4000
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) is None
    assert cursor.allowed == 12288
    cursor.position += 8000
    cursor.needed = 400
    memory.resident = 288
    assert window.missing(seen, LIMIT, 10**9 + 5, BYTES_MAX) == (12288, BYTES_MAX - 288)
    window.was_unreadable(problem)
    with pytest.raises(LogUnreadable):
        window.missing(seen, LIMIT, 10**9 + 6, BYTES_MAX)
    assert ReadWindow().missing(seen, LIMIT, 10**9 + 7, BYTES_MAX) is not None


def test_an_unreadable_file_does_not_affect_others(memory: Memory) -> None:
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    window.missing(seen, LIMIT, 10**9, BYTES_MAX)
    window.was_unreadable(LogUnreadable("a.journal", 4096, "it cannot be read"))
    cursor.file.path = "b.journal"
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS, BYTES_MAX) == (4000, BYTES_FIRST)
