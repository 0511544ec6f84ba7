"""How far ahead a replay has its log read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amps.server.transport import read_window
from amps.server.transport.read_window import AHEAD_NS, BYTES_FIRST, BYTES_MIN, TRUSTED_NS, ReadWindow

BYTES_MAX = 1 << 20
LIMIT = 1 << 40


@dataclass
class File:
    start_position: int = 5000
    path: Path = Path("a.journal")


class Cursor:
    def __init__(self) -> None:
        self.position = 9000
        self.file = File()


class Memory:
    """What the window asks for, and how much of it is there."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.resident = 0

    def look(self, cursor: Cursor, limit: int, window_bytes: int) -> tuple[int, int]:
        self.asked.append(window_bytes)
        wanted = min(window_bytes, limit - cursor.position)
        return min(self.resident, wanted), wanted


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(read_window, "resident_bytes", memory.look)
    return memory


def test_what_is_missing_is_asked_for_once(memory: Memory) -> None:
    """Behind what is there, as a place in the file; what was asked for is taken to be there for a while."""
    window, cursor = ReadWindow(), Cursor()
    memory.resident = 100
    seen: Any = cursor
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) == (4000 + 100, BYTES_FIRST - 100)
    assert window.resident_until == 9000 + BYTES_FIRST
    cursor.position += BYTES_FIRST // 2
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS - 1, BYTES_MAX) is None
    assert len(memory.asked) == 1


def test_nothing_is_missing_where_all_is_there(memory: Memory) -> None:
    """Then nobody waits."""
    window, cursor = ReadWindow(), Cursor()
    memory.resident = LIMIT
    seen: Any = cursor
    assert window.missing(seen, 9100, 10**9, BYTES_MAX) is None
    assert window.resident_until == 9100


def test_who_reads_fast_gets_a_large_window(memory: Memory) -> None:
    """As large as what is looked at in a turn, no larger."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    window.missing(seen, LIMIT, 10**9, BYTES_MAX)
    cursor.position += BYTES_FIRST
    window.missing(seen, LIMIT, 10**9 + 1_000_000, BYTES_MAX)
    assert memory.asked == [BYTES_FIRST, BYTES_MAX]


def test_who_reads_slowly_gets_what_lasts_for_a_moment(memory: Memory) -> None:
    """Two messages of 300 bytes a second: the smallest window; two of 100,000 bytes: so many that they last."""
    for message_bytes, expected in ((300, BYTES_MIN), (100_000, 2 * 100_000 * AHEAD_NS // 10**9)):
        window, cursor = ReadWindow(), Cursor()
        seen: Any = cursor
        memory.asked.clear()
        for turn in range(4):
            window.missing(seen, LIMIT, 10**9 + turn * 500_000_000, BYTES_MAX)
            cursor.position += message_bytes
        assert memory.asked == [BYTES_FIRST] + [expected] * 3


def test_what_was_there_is_looked_at_again_after_a_while(memory: Memory) -> None:
    """The kernel may have dropped it; who waits for nothing keeps the window."""
    window, cursor = ReadWindow(), Cursor()
    seen: Any = cursor
    memory.resident = LIMIT
    assert window.missing(seen, LIMIT, 10**9, BYTES_MAX) is None
    memory.resident = 0
    assert window.missing(seen, LIMIT, 10**9 + TRUSTED_NS, BYTES_MAX) == (4000, BYTES_FIRST)
