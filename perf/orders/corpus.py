"""The messages of one run: each format's in two logs, and which of them match.

Both logs hold the same messages in the same order. In the one all have one topic, `orders`. In the other those that the
filter takes have a topic of their own, `matching`: a subscription to it without a filter is delivered exactly what the
filter lets through, so that the difference is what the filter costs.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from amps._core.journal.reader import LogCursor, LogDirectory
from perf.orders.formats import FORMATS
from perf.orders.journal import SUFFIX, Journal
from perf.orders.records import orders

TOPIC = "orders"
MATCHING_TOPIC, OTHER_TOPIC = "matching", "others"
RECORD_BYTES_MAX = 4096
EXTRA_BYTES = 1 << 20


@dataclass(frozen=True)
class Corpus:
    """What `build` made; processes that measure get it."""

    directory: Path
    matching: bytes
    """By message: 1 = the filter takes it."""
    symbols: tuple[int, ...]
    """By message."""
    ends: dict[str, int]
    """By log: the position behind its last message."""

    @property
    def count(self) -> int:
        return len(self.matching)

    def prefix(self, log: str) -> str:
        return f"{self.directory}/{log}."

    def positions(self, log: str) -> list[int]:
        """Where each message of a log begins, and where the last one ends."""
        return [position for position, _ in self._read(log)] + [self.ends[log]]

    def messages(self, format_name: str, count: int | None = None) -> list[bytes]:
        return [message for _, message in itertools.islice(self._read(format_name), count)]

    def _read(self, log: str) -> Iterable[tuple[int, bytes]]:
        directory = LogDirectory(self.prefix(log), SUFFIX, lambda topic, message_type: topic)
        cursor = LogCursor(directory, 0, 0, True)
        while (record := cursor.step(self.ends[log])) is not None:
            yield record.position, record.payload


def split_log(format_name: str) -> str:
    """Name of the log with two topics. The other one is called as its format."""
    return f"{format_name}-split"


def build(directory: Path, format_names: Iterable[str], count: int) -> Corpus:
    """Make so many messages in these formats."""
    formats = {name: FORMATS[name]() for name in format_names}
    for made in formats.values():
        for name, text in made.files().items():
            (directory / name).write_text(text)
    size_bytes = (count * RECORD_BYTES_MAX + EXTRA_BYTES) // 4096 * 4096
    corpus = Corpus(directory, b"", (), {})
    logs = {
        log: Journal(corpus.prefix(log), size_bytes) for name in formats for log in (name, split_log(name))
    }
    matching = bytearray()
    symbols = []
    for order in orders(count):
        matching.append(order.matches)
        symbols.append(order.symbol_number)
        for name, made in formats.items():
            message = made.encode(order.fields)
            logs[name].add(TOPIC, name, message)
            logs[split_log(name)].add(MATCHING_TOPIC if order.matches else OTHER_TOPIC, name, message)
    ends = {log: journal.finish() for log, journal in logs.items()}
    return Corpus(directory, bytes(matching), tuple(symbols), ends)
