"""Archives in Parquet for tests of `amps pipeline archive`: the command, a log to archive, and the rows that readers
find.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from amps._core.values.value import publisher_id
from amps.cli.main import amps
from tests.support.handmade_logs import BEGIN_NS, SECOND_NS, messages, write_log
from tests.support.records import CLIENT, RecordParts, element

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_NS = 86_400 * SECOND_NS
LOG_TOPICS = (
    (b"red", b"json"), (b"a/b", b"fix"), (b"007", b"json"), (b"__HIVE_DEFAULT_PARTITION__", b"json"),
    (("ü/" * 120).encode(), b"json"), (b"2026-01-01", b"nvfix"),
)  # fmt: skip


def mixed_log(directory: Path) -> Path:
    """Records of every kind, with every optional field, over two full journals and one in use."""
    kinds = [
        RecordParts(
            b"\x00\xff" * kind,
            kind=kind,
            topic_id=kind % len(LOG_TOPICS),
            publisher_id=(0, publisher_id("known"), 7)[kind % 3],
            sequence=kind * (1 << 60),
            timestamp_ns=BEGIN_NS + kind * DAY_NS // 3,
            expiration_s=(0, 5, 0xFFFFFFFF)[kind % 3],
            flags=kind % 4,
            extension=element(CLIENT, 0x3837363534333231),
            correlation_id=b"abc",
        )
        for kind in range(1, 9)
    ]
    write_log(directory, LOG_TOPICS, [messages(100, 6) + kinds, kinds * 2, messages(50, 6, 100)])
    return directory


def archive(*arguments: object) -> Result:
    """Run the command within the session of the test."""
    return CliRunner().invoke(amps, ["pipeline", "archive", *map(str, arguments)])


def archived(journals: Path, parquet: Path, *arguments: object) -> Result:
    result = archive(journals, parquet, *arguments)
    assert result.exit_code == 0, result.output
    return result


def parquet_rows(spark: "SparkSession", parquet: Path) -> "DataFrame":
    """The rows that Spark's own reader finds, with topics as text."""
    schema = (
        "position bigint, timestamp timestamp, bookmark string, publisher string, sequence bigint, "
        "topic string, message_type string, kind string, expiration timestamp, payload binary, topic_key string, "
        "date date"
    )
    return spark.read.schema(schema).parquet(str(parquet))


def files_of(parquet: Path) -> dict[Path, int]:
    """The Parquet files that readers see, and the times of their last changes."""
    return {
        path: path.stat().st_mtime_ns
        for path in parquet.rglob("*.parquet")
        if "_amps" not in path.relative_to(parquet).parts
    }


def assert_rows_once(spark: "SparkSession", parquet: Path, count: int) -> None:
    rows = parquet_rows(spark, parquet)
    assert rows.count() == rows.select("position").distinct().count() == count


def flip_byte(path: Path) -> None:
    """Change one byte of a file; its size stays."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
