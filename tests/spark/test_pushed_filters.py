"""Filters that Spark pushes down, without a Spark session: the data source skips only rows that they exclude."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from tests.support.log_directories import Directory
from tests.support.split_reads import Read, positions

COUNT = 400


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    """Full journals with indexes, and one in use."""
    path = tmp_path / "journal"
    path.mkdir()
    return Directory(path).fill(1, COUNT)


def test_pushed_filters_narrow_the_read(directory: Directory) -> None:
    """A filter that is fully supported is not returned to Spark. Any other one is returned, and narrows nothing."""
    filters = pytest.importorskip("pyspark.sql.datasource", reason="PySpark is not installed")
    if not hasattr(filters, "EqualTo"):
        pytest.skip("this PySpark does not push filters (it is older than 4.1)")
    first, last = positions(directory)[100], positions(directory)[200]
    pushed = [
        filters.GreaterThan(("position",), first),
        filters.LessThanOrEqual(("position",), last),
        filters.Not(filters.EqualTo(("topic",), "topic-1")),
        filters.StringStartsWith(("topic",), "topic-"),
        filters.In(("kind",), ("publish", "noop")),
        filters.IsNotNull(("position",)),
    ]
    left = [
        filters.IsNotNull(("topic",)),
        filters.EqualTo(("publisher",), "anna"),
        filters.EqualNullSafe(("topic",), None),
        filters.Not(filters.GreaterThan(("position",), last)),
        filters.EqualTo(("data", "topic"), "topic-1"),
    ]
    read = Read(directory.path, [*pushed, *left])
    assert read.left == left
    assert read.column("position") == [
        record.position for record in directory.records[101:201] if record.topic[0] != "topic-1"
    ]
    assert read.total("bytes_read") < Read(directory.path).total("bytes_read") * 0.6


def test_pushed_times_are_compared_in_microseconds(directory: Directory) -> None:
    import datetime

    filters = pytest.importorskip("pyspark.sql.datasource", reason="PySpark is not installed")
    if not hasattr(filters, "EqualTo"):
        pytest.skip("this PySpark does not push filters (it is older than 4.1)")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    time_us = directory.records[50].timestamp_ns // 1000
    moment = epoch + datetime.timedelta(microseconds=time_us)

    def times(*conditions: Any) -> list[int]:
        wanted = set(Read(directory.path, conditions).column("position"))
        return sorted(r.timestamp_ns // 1000 for r in directory.records if r.position in wanted)

    all_of = sorted(record.timestamp_ns // 1000 for record in directory.records)
    assert times(filters.EqualTo(("timestamp",), moment)) == [t for t in all_of if t == time_us]
    assert times(filters.GreaterThan(("timestamp",), moment)) == [t for t in all_of if t > time_us]
    assert times(filters.LessThan(("timestamp",), moment)) == [t for t in all_of if t < time_us]
    naive = [filters.GreaterThan(("timestamp",), moment.replace(tzinfo=None))]
    assert Read(directory.path, naive).left == naive


def test_the_end_of_a_range_belongs_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For times and for positions, where an index allows to skip the journals behind it."""
    import datetime

    filters = pytest.importorskip("pyspark.sql.datasource", reason="PySpark is not installed")
    if not hasattr(filters, "EqualTo"):
        pytest.skip("this PySpark does not push filters (it is older than 4.1)")
    monkeypatch.setattr("tests.support.log_directories.FILE_BYTES", 1 << 20)
    path = tmp_path / "journal"
    path.mkdir()
    large = Directory(path).fill(3, 3000)
    all_of = positions(large)
    to_position = [filters.LessThanOrEqual(("position",), all_of[1500])]
    assert Read(path, to_position).column("position") == all_of[:1501]
    whole = Read(path).total("bytes_read")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    for record in (large.records[1000], large.records[1500]):
        time_us = record.timestamp_ns // 1000
        moment = epoch + datetime.timedelta(microseconds=time_us)
        read = Read(path, [filters.LessThanOrEqual(("timestamp",), moment)])
        wanted = [r.position for r in large.records if r.timestamp_ns // 1000 <= time_us]
        assert read.column("position") == wanted
        assert len(wanted) == len(all_of) or read.total("bytes_read") < whole
