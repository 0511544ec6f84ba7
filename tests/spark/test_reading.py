"""Journals as DataFrames: `spark.read.format("amps")`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.log_directories import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 300
# The first test waits until Java has started.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Directory:
    """Full journals with indexes, and one in use."""
    path = tmp_path_factory.mktemp("log") / "journal"
    path.mkdir()
    return Directory(path).fill(5, COUNT)


def bytes_read(report: Path) -> int:
    """The bytes that all tasks have read since the last call."""
    total = 0
    for path in report.iterdir():
        total += json.loads(path.read_text())["bytes_read"]
        path.unlink()
    return total


def test_a_journal_is_a_data_frame(spark: "SparkSession", directory: Directory) -> None:
    frame = spark.read.format("amps").load(f"file://{directory.path}")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("position", "bigint"),
        ("timestamp", "timestamp"),
        ("bookmark", "string"),
        ("publisher", "string"),
        ("sequence", "bigint"),
        ("topic", "string"),
        ("message_type", "string"),
        ("kind", "string"),
        ("expiration", "timestamp"),
        ("payload", "binary"),
    ]
    rows = frame.collect()
    assert [(row.position, bytes(row.payload), row.topic, row.sequence) for row in rows] == [
        (record.position, record.payload, record.topic[0], record.sequence) for record in directory.records
    ]
    assert {(row.kind, row.message_type, row.expiration) for row in rows} == {("publish", "json", None)}
    some = spark.read.format("amps").schema("payload binary, topic string").load(str(directory.path))
    assert some.columns == ["payload", "topic"]
    assert some.where("topic = 'topic-2'").count() == sum(
        record.topic[0] == "topic-2" for record in directory.records
    )


def test_conditions_and_options_select_the_rows(
    spark: "SparkSession", directory: Directory, tmp_path: Path
) -> None:
    """A frame gives the same rows whatever was read from it before."""
    frame = spark.read.format("amps").option("report", str(tmp_path)).load(str(directory.path))
    middle = directory.records[COUNT // 2]
    found = frame.where(f"position >= {middle.position} and topic like 'topic-%' and kind = 'publish'")
    assert found.count() == COUNT - COUNT // 2
    assert frame.count() == COUNT
    bytes_read(tmp_path)
    assert frame.count() == COUNT
    whole = bytes_read(tmp_path)
    assert whole > 0
    bookmark = f"{middle.publisher_id}|{middle.sequence}|"
    ranged = spark.read.format("amps").options(**{"from": bookmark, "report": str(tmp_path)})
    assert ranged.load(str(directory.path)).count() == COUNT - COUNT // 2 - 1
    assert bytes_read(tmp_path) < whole * 0.8


def test_conditions_are_pushed_on_request(
    spark: "SparkSession", directory: Directory, tmp_path: Path
) -> None:
    from pyspark.sql.datasource import DataSourceReader

    if not hasattr(DataSourceReader, "pushFilters"):
        pytest.skip("this PySpark does not push filters (it is older than 4.1)")
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        middle = directory.records[COUNT // 2]
        counts = []
        reads = []
        for condition in ("true", f"position > {middle.position}"):
            options = {"pushdown": "true", "report": str(tmp_path)}
            frame = spark.read.format("amps").options(**options).load(str(directory.path))
            counts.append(frame.where(condition).count())
            reads.append(bytes_read(tmp_path))
    finally:
        spark.conf.set(setting, str(before))
    assert counts == [COUNT, COUNT - COUNT // 2 - 1]
    assert reads[1] < reads[0] * 0.8


def test_an_empty_directory_is_an_empty_frame(spark: "SparkSession", tmp_path: Path) -> None:
    assert spark.read.format("amps").load(str(tmp_path)).collect() == []


def test_planning_knows_how_many_tasks_run_at_a_time(spark: "SparkSession") -> None:
    from tests.support.spark_source import PlannedSource

    spark.dataSource.register(PlannedSource)
    assert [row.parallelism for row in spark.read.format("planned").load().collect()] == ["2"]


def test_mistakes_are_reported_in_a_sentence(spark: "SparkSession", tmp_path: Path) -> None:
    def message(**options: Any) -> str:
        with pytest.raises(Exception) as caught:  # noqa: PT011 -- Spark wraps it
            spark.read.format("amps").options(**options).load(str(tmp_path)).collect()
        return str(caught.value)

    assert "unknown option 'topics'" in message(topics="x")
    assert "the option 'kind' names 'nonsense'" in message(kind="nonsense")
