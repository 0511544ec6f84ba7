"""Micro-batches in the order in which versions of Spark request them: they must not overlap or leave a message out."""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.spark.streaming_reader import LogStreamReader, Offset


class Log(LogStreamReader):
    """A log of numbers, of which micro-batches are ranges; `end` is their count."""

    def __init__(self, end: int, messages_max: int | None = None) -> None:
        super().__init__(messages_max)
        self.end = end

    def first_offset(self) -> Offset:
        return {"next": 0}

    def next_offset(self, start: Offset, messages_max: int | None) -> Offset | None:
        begin = start["next"]
        end = self.end if messages_max is None else min(self.end, begin + messages_max)
        return {"next": end, "begin": begin} if begin < end else None

    def passed_offset(self, start: Offset) -> Offset:
        return start

    def end_offset(self) -> Offset:
        return {"next": self.end}

    def set_target(self) -> None:
        raise AssertionError

    def plan(self, start: Offset, end: Offset) -> Sequence[Any]:
        return list(range(end.get("begin", start["next"]), end["next"]))

    def read(self, partition: Any) -> Any:
        raise AssertionError


def test_a_new_query_that_requests_its_end_first() -> None:
    """PySpark 4.0 and 4.1 do so. Later messages are limited."""
    log = Log(5, messages_max=2)
    first_end = log.latestOffset()
    start = log.initialOffset()
    seen = list(log.partitions(start, first_end))
    log.end = 9
    start = first_end
    while (end := log.latestOffset()) != start:
        log.commit(start)
        rows = log.partitions(start, end)
        assert 0 < len(rows) <= 2
        seen += rows
        start = end
    assert seen == list(range(9))


def test_a_query_that_continues_with_its_unfinished_micro_batch() -> None:
    log = Log(9)
    assert log.partitions({"next": 2}, {"next": 6, "begin": 2}) == [2, 3, 4, 5]
    log.commit({"next": 6, "begin": 2})
    end = log.latestOffset()
    assert log.partitions({"next": 6, "begin": 2}, end) == [6, 7, 8]


def test_a_query_that_gives_the_starts_of_its_micro_batches() -> None:
    """Later versions do so; the source's own memory does not matter then."""
    log = Log(9, messages_max=4)
    start, seen = log.initialOffset(), []
    while (end := log.latestOffset(start)) != start:
        seen += log.partitions(start, end)
        seen_again = log.partitions(start, end)
        assert seen[-len(seen_again) :] == seen_again
        start = end
    assert seen == list(range(9))
