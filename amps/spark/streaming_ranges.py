"""Ranges of a log by bookmarks, and cutting a sequence of messages into several ranges.

A micro-batch is a list of ranges, one per task, in its offset (`amps.spark.streaming_server`). Ranges have the
form of bookmark subscriptions (transaction_log.md §5.3): `[a:b]` from the message a to the message b, `(a:b]` without
a.
"""

from dataclasses import dataclass
from itertools import pairwise

MARKS_MAX = 4096


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range from one point of the log to another one, which is included."""

    begin: str
    end: str
    inclusive: bool = False
    """Whether `begin` is included."""

    def __str__(self) -> str:
        return f"{'[' if self.inclusive else '('}{self.begin}:{self.end}]"

    @classmethod
    def parse(cls, text: str) -> "LogRange":
        """Parse the result of `str`. Raises ValueError."""
        begin, colon, end = text[1:-1].partition(":")
        if text[:1] not in ("[", "(") or text[-1:] != "]" or not colon or not begin or not end:
            raise ValueError(f"{text[:100]!r} is no range of a log")
        return cls(begin, end, text[0] == "[")


class Cutter:
    """Counts messages, and stores the bookmarks of some, evenly spread, at which the sequence can be cut.

    The memory is bounded: the last one of each `_stride` messages is a mark; if there are too many marks, every other
    one is removed.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: str | None = None
        self.last: str | None = None
        self._stride = 1
        self._marks: list[str] = []

    def add(self, bookmark: str) -> None:
        """Add the next message of the log."""
        self.count += 1
        self.last = bookmark
        if self.first is None:
            self.first = bookmark
        if self.count % self._stride == 0:
            self._marks.append(bookmark)
            if len(self._marks) >= MARKS_MAX:
                self._marks = self._marks[1::2]
                self._stride *= 2

    def ranges(self, parts_max: int) -> list[LogRange]:
        """Return ranges that cover all added messages, with about the same number of messages each."""
        if self.first is None or self.last is None:
            return []
        parts = min(parts_max, self.count)
        ends: list[str] = []
        for part in range(1, parts):
            mark = self.count * part // parts // self._stride - 1
            if mark >= 0 and self._marks[mark] not in (self.last, *ends[-1:]):
                ends.append(self._marks[mark])
        ends.append(self.last)
        found = [LogRange(self.first, ends[0], True)]
        found += [LogRange(begin, end) for begin, end in pairwise(ends)]
        return found
