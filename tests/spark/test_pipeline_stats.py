"""`amps pipeline stats`: its numbers are those of the messages that were published."""

import csv
import json
import math
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from click.testing import CliRunner

from amps.cli.main import amps
from amps.client import EPOCH, AckType, Client, MemoryPublishStore
from amps.spark.pipelines import stats
from amps.spark.pipelines.job import PipelineError, Silent
from amps.spark.pipelines.report_source import Journals
from amps.spark.pipelines.stats import Figures, Stats, StatsOptions
from tests.support.server import StartServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes its time to start

NAMES = ("feed-1", "feed-2")
US_PER_S = 1_000_000


class Logged:
    """One message as a plain client reads it back from the server."""

    def __init__(self, publisher: str, topic: str, size: int, us: int) -> None:
        self.publisher, self.topic, self.size, self.us = publisher, topic, size, us


@pytest.fixture(scope="module")
def log(start_module_server: StartServer) -> tuple[Path, list[Logged]]:
    """A log of two numbered publishers and one without numbers, and what is in it."""
    server = start_module_server(log_topics=("^T/",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    sizes: dict[tuple[str, int], tuple[str, int]] = {}
    for number, name in enumerate(NAMES):
        with Client(name, uri, publish_store=MemoryPublishStore()) as client:
            for place in range(400 + 150 * number):
                body = json.dumps({"n": place, "text": "x" * (place * (number + 1) % 257)})
                topic = f"T/{place % 3}"
                client.publish(topic, body)
                sizes[name, place] = topic, len(body)
            client.publish_flush()
    with Client("loose", uri) as client:
        for place in range(40):
            client.publish("T/loose", "y" * place)
            sizes["loose", place] = "T/loose", place
        client.publish_flush()
    found: list[Logged] = []
    places: dict[str, int] = defaultdict(int)
    order = [*[NAMES[0]] * 400, *[NAMES[1]] * 550, *["loose"] * 40]
    with (
        Client(None, uri) as client,
        client.bookmark_subscribe(
            "^T/", EPOCH, options="timestamp", ack_type=AckType.COMPLETED, control=True
        ) as stream,
    ):
        while (message := stream.get(20)) is not None and message.command != "ack":
            name = order[len(found)]
            topic, size = sizes[name, places[name]]
            places[name] += 1
            assert (message.topic, len(message.data)) == (topic, size)
            found.append(Logged(name, topic, size, _us(message.timestamp or "")))
    assert len(found) == len(sizes)
    server.stop()  # in the end the names of publishers are written down
    return server.journal_directory, found


def _us(timestamp: str) -> int:
    moment = datetime.strptime(timestamp, "%Y%m%dT%H%M%S.%f%z")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check(figures: Figures, messages: list[Logged], over_us: int | None = None) -> None:
    """What Spark has counted is what plain Python counts."""
    sizes = sorted(message.size for message in messages)
    times = [message.us for message in messages]
    seconds: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        seconds[message.us // US_PER_S].append(message.size)
    over_s = (over_us or (max(seconds) - min(seconds) + 1) * US_PER_S) / US_PER_S
    assert figures.messages == len(messages)
    assert figures.payload_bytes == sum(sizes)
    assert figures.publishers == len({message.publisher for message in messages})
    assert (figures.first_us, figures.last_us) == (min(times), max(times))
    assert figures.mean_bytes == pytest.approx(sum(sizes) / len(sizes))
    assert figures.p50_bytes == sizes[math.ceil(len(sizes) * 0.5) - 1]
    assert figures.p99_bytes == sizes[math.ceil(len(sizes) * 0.99) - 1]
    assert figures.max_bytes == sizes[-1]
    assert figures.messages_per_s == pytest.approx(len(messages) / over_s)
    assert figures.bytes_per_s == pytest.approx(sum(sizes) / over_s)
    if over_us is None or over_us >= US_PER_S:
        assert figures.peak_messages_per_s == max(map(len, seconds.values()))
        assert figures.peak_bytes_per_s == max(map(sum, seconds.values()))


def counted(spark: "SparkSession", directory: Path, **options: Any) -> Stats:
    topic = options.pop("topic", None)
    return stats.run(spark, StatsOptions(Journals(directory, topic=topic), **options), Silent())


@pytest.mark.parametrize("by", ["topic", "publisher"])
def test_each_key_and_all_together(spark: "SparkSession", log: tuple[Path, list[Logged]], by: Any) -> None:
    directory, messages = log
    found = counted(spark, directory, by=by, interval_us=60 * US_PER_S)
    assert found.total is not None
    check(found.total, messages)
    groups: dict[str, list[Logged]] = defaultdict(list)
    for message in messages:
        groups[getattr(message, by)].append(message)
    assert found.key_count == len(groups)
    assert [key.key for key in found.keys] == sorted(groups, key=lambda key: (-len(groups[key]), key))
    for key in found.keys:
        check(key.figures, groups[key.key or ""])


def test_intervals(spark: "SparkSession", log: tuple[Path, list[Logged]]) -> None:
    directory, messages = log
    for interval_us in (US_PER_S, 20_000):
        found = counted(spark, directory, interval_us=interval_us)
        groups: dict[int, list[Logged]] = defaultdict(list)
        for message in messages:
            groups[message.us // interval_us * interval_us].append(message)
        assert [interval.begin_us for interval in found.intervals] == sorted(groups)
        for interval in found.intervals:
            check(interval.figures, groups[interval.begin_us], interval_us)
            if interval_us < US_PER_S:
                assert interval.figures.peak_messages_per_s == interval.figures.messages_per_s


def test_one_topic(spark: "SparkSession", log: tuple[Path, list[Logged]]) -> None:
    directory, messages = log
    found = counted(spark, directory, topic="T/1")
    assert found.total is not None
    check(found.total, [message for message in messages if message.topic == "T/1"])


def test_too_many_rows_are_refused(
    spark: "SparkSession", log: tuple[Path, list[Logged]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "ROWS_MAX", 2)
    with pytest.raises(PipelineError, match="make more than 2 rows: take longer ones"):
        counted(spark, log[0], interval_us=1000, by="topic")


def test_an_empty_directory_has_no_messages(spark: "SparkSession", tmp_path: Path) -> None:
    assert counted(spark, tmp_path, by="topic") == Stats(60 * US_PER_S, "topic", None, 0, (), ())
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(tmp_path)])
    assert (ran.exit_code, ran.stdout) == (0, "there are no messages in this part of the log\n")


def test_the_command_shows_a_table_json_and_csv(
    spark: "SparkSession", log: tuple[Path, list[Logged]], tmp_path: Path
) -> None:
    directory, messages = log
    path = tmp_path / "stats.csv"
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(directory), "-by", "topic", "--csv", str(path)])
    assert ran.exit_code == 0, ran.output
    (line,) = [line.split() for line in ran.stdout.splitlines() if line.startswith("all ")]
    assert line[1:4] == [str(len(messages)), f"{sum(m.size for m in messages):,}", "3"]
    (loose,) = [line.split() for line in ran.stdout.splitlines() if line.startswith("T/loose ")]
    assert loose[1:4] == ["40", str(sum(range(40))), "1"]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["messages"]) for row in rows) == len(messages)
    assert {row["topic"] for row in rows} == {"T/0", "T/1", "T/2", "T/loose"}
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(directory), "--interval=1s", "--json"])
    told = json.loads(ran.stdout)
    assert (
        told["total"]["messages"]
        == sum(row["figures"]["messages"] for row in told["intervals"])
        == len(messages)
    )


def test_kinds_are_all_records(spark: "SparkSession", log: tuple[Path, list[Logged]]) -> None:
    found = counted(spark, log[0], by="kind")
    assert [(key.key, key.figures.messages) for key in found.keys] == [("publish", len(log[1]))]


def test_a_dry_run_says_what_would_be_read(log: tuple[Path, list[Logged]]) -> None:
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(log[0]), "-dry-run"])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith(f"{log[0]}: would read 1 journal of Test, ")
    size = int(ran.stdout.split()[-2].replace(",", ""))
    assert sum(message.size for message in log[1]) < size < 10 << 20


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["-interval", "soon"], 2, "is not an interval"),
        (["-interval", "10us"], 2, "is shorter than 1ms"),
        (["-by", "colour"], 2, "colour"),
        (["-from", "yesterday"], 1, "error: the option 'from' is 'yesterday'"),
        (["-from", "1|1|"], 1, "is not in the journals"),
        (["-topic", "("], 1, "error: the option 'topic' is no valid expression"),
    ],
)
def test_mistakes_are_told(
    log: tuple[Path, list[Logged]], options: list[str], status: int, said: str
) -> None:
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(log[0]), *options])
    assert ran.exit_code == status
    assert said in ran.output
