"""`spark.readStream.format("amps")` in Structured Streaming: checkpoints, triggers, sinks."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.spark.streaming_reader import ReadMaxRows
from tests.support.log_directories import Directory
from tests.support.micro_batches import numbered, publish
from tests.support.server import ServerProcess, StartServer
from tests.support.written_rows import logged_rows

pytestmark = pytest.mark.timeout(600)  # a session takes long to start
limits = pytest.mark.skipif(
    ReadMaxRows is None, reason="this PySpark asks no source for a limit (it is older than 4.2)"
)


@pytest.fixture(scope="module")
def shared(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",))


@pytest.fixture
def uri(shared: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{shared.port()}/amps/json"


@pytest.fixture
def topic(unique: str) -> str:
    return f"L/{unique}"


def run(
    spark: Any, directory: Path, options: dict[str, Any], columns: str = "data.n as n"
) -> list[list[int]]:
    """Read all messages, each micro-batch to a directory of its own. Return the rows of each micro-batch."""

    def keep(frame: Any, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(directory / "out" / f"{number:04d}"))

    frame = spark.readStream.format("amps").options(**options).load().selectExpr(columns)
    query = (
        frame.writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [
        [row.n for row in spark.read.parquet(str(path)).collect()]
        for path in sorted((directory / "out").iterdir())
    ]


@limits
def test_a_stream_from_a_server(spark: Any, uri: str, topic: str, tmp_path: Path) -> None:
    """Restarted from its checkpoint it continues, and limits apply."""
    options = {"uri": uri, "topic": topic, "schema": "n int", "max_messages_per_batch": 40, "partitions": 2}
    publish(uri, topic, numbered(0, 100), topic)
    found = [batch for batch in run(spark, tmp_path, options) if batch]
    assert [sorted(batch) for batch in found] == [list(range(40)), list(range(40, 80)), list(range(80, 100))]
    publish(uri, topic, numbered(100, 130), topic)
    found = [batch for batch in run(spark, tmp_path, options) if batch]
    assert sorted(number for batch in found for number in batch) == list(range(130))
    assert len(found) == 4


@limits
def test_a_stream_from_journals(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.mkdir()
    log = Directory(path).fill(3, 300)
    log.promise(log.records[200].position)
    options = {"path": str(path), "partitions": 3, "max_messages_per_batch": 150}
    wanted = [record.position for record in log.records]
    assert [sorted(b) for b in run(spark, tmp_path, options, "position as n")] == [
        wanted[:150],
        wanted[150:200],
    ]
    log.promise(log.end)
    found = [sorted(batch) for batch in run(spark, tmp_path, options, "position as n")]
    assert [batch for batch in found if batch] == [wanted[:150], wanted[150:200], wanted[200:]]


def test_schema_and_mistakes(spark: Any, uri: str, topic: str) -> None:
    frame = spark.readStream.format("amps").options(uri=uri, topic=topic, schema="n int").load()
    assert frame.isStreaming
    assert frame.columns[:3] == ["position", "timestamp", "bookmark"]
    assert frame.schema["data"].dataType.simpleString() == "struct<n:int>"
    with pytest.raises(Exception, match="the option 'topic' is missing"):
        spark.readStream.format("amps").options(uri=uri).load()


def test_the_processing_time_trigger(spark: Any, uri: str, topic: str, tmp_path: Path) -> None:
    """Messages published while the query runs come, too."""
    frame = spark.readStream.format("amps").options(uri=uri, topic=topic, schema="n int", partitions=2).load()
    query = (
        frame.selectExpr("data.n as n")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for first in range(0, 30, 10):
            publish(uri, topic, numbered(first, first + 10), topic)
            query.processAllAvailable()
            assert sorted(row.n for row in spark.table("seen").collect()) == list(range(first + 10))
    finally:
        query.stop()


@limits
def test_from_a_stream_to_a_topic(spark: Any, uri: str, topic: str, tmp_path: Path) -> None:
    """Read from one topic, written to another: each row once and in its order, over restarts."""
    for first in (0, 700):
        publish(uri, topic, numbered(first, first + 700), topic)
        frame = spark.readStream.format("amps").options(
            uri=uri, topic=topic, schema="n int", max_messages_per_batch=300, partitions=2
        )
        query = (
            frame.load()
            .selectExpr("data.n as n")
            .writeStream.format("amps")
            .options(uri=uri, topic=f"{topic}/copy", client_name=topic.replace("/", "-"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    copies = [row.data for row in logged_rows(uri, f"{topic}/copy")]
    assert sorted(copies) == sorted(b'{"n":%d}' % n for n in range(1400))


def test_an_unknown_option_is_reported_with_those_of_streams(spark: Any, tmp_path: Path) -> None:
    """Spark asks for the columns before it reports that the read is a stream."""
    with pytest.raises(Exception, match="unknown option 'topics'") as caught:
        spark.readStream.format("amps").options(path=str(tmp_path), topics="x").load()
    assert "the options of a stream from a journal directory are archive, instance, kind, max_bytes" in str(
        caught.value
    )


def test_a_refused_subscription_ends_the_query(spark: Any, uri: str, topic: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"refuses to read topic .* with filter '/a =': bad filter"):
        run(spark, tmp_path, {"uri": uri, "topic": topic, "filter": "/a ="}, "payload")
