"""The messages of one run: two logs for each format, and the messages that match.

Both logs hold the same messages in the same order. In the first log all messages have one topic, `orders`. In the
second log the matching messages have a topic of their own, `matching`. A subscription to it without a filter gets
exactly the messages that match, so that the difference is the cost of the filter.
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
    """The result of `build`; measuring processes get it."""

    directory: Path
    matching: bytes
    """By message: 1 = it matches the filter."""
    symbols: tuple[int, ...]
    """The number of the symbol, by message."""
    ends: dict[str, int]
    """By log: the position behind its last message."""

    @property
    def count(self) -> int:
        return len(self.matching)

    def prefix(self, log: str) -> str:
        return f"{self.directory}/{log}."

    def positions(self, log: str) -> list[int]:
        """The position of each message of a log, and the end of the last one."""
        return [position for position, _ in self._read(log)] + [self.ends[log]]

    def messages(self, format_name: str, count: int | None = None) -> list[bytes]:
        return [message for _, message in itertools.islice(self._read(format_name), count)]

    def _read(self, log: str) -> Iterable[tuple[int, bytes]]:
        directory = LogDirectory(self.prefix(log), SUFFIX, lambda topic, message_type: topic)
        cursor = LogCursor(directory, 0, 0, True)
        while (record := cursor.step(self.ends[log])) is not None:
            yield record.position, record.payload


def split_log(format_name: str) -> str:
    """Name of the log with two topics. The name of the other log is the format's."""
    return f"{format_name}-split"


def build(directory: Path, format_names: Iterable[str], count: int) -> Corpus:
    """Make `count` messages in these formats."""
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
