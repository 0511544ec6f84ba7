"""`amps pipeline stats`: its numbers match the published messages."""

import csv
import json
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from click.testing import CliRunner

from amps.cli.main import amps
from amps.client import EPOCH, AckType, Client, MemoryPublishStore
from amps.journal.names import unfinished_path
from amps.spark.pipelines import stats
from amps.spark.pipelines.job import PipelineError, Silent
from amps.spark.pipelines.report_output import write_output
from amps.spark.pipelines.report_source import Journals
from amps.spark.pipelines.stats import Figures, Stats, StatsOptions
from tests.support.feed import Feed, Feeder
from tests.support.log_directories import Directory
from tests.support.records import NO_EXPIRATION, RecordParts
from tests.support.server import StartServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

NAMES = ("feed-1", "feed-2")
US_PER_S = 1_000_000


class Logged:
    """One message as a plain client reads it back from the server."""

    def __init__(self, publisher: str, topic: str, size: int, us: int) -> None:
        self.publisher, self.topic, self.size, self.us = publisher, topic, size, us


@pytest.fixture(scope="module")
def log(start_module_server: StartServer) -> tuple[Path, list[Logged]]:
    """A log of two numbered publishers and one without numbers, and its messages."""
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
    server.stop()  # at the stop the names of publishers are written
    return server.journal_directory, found


def _us(timestamp: str) -> int:
    moment = datetime.strptime(timestamp, "%Y%m%dT%H%M%S.%f%z")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def check(figures: Figures, messages: list[Logged], over_us: int | None = None) -> None:
    """Check that Spark's counts equal those of plain Python."""
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


def test_journals_without_messages(spark: "SparkSession", tmp_path: Path) -> None:
    Directory(tmp_path).fill(1, 0)
    assert counted(spark, tmp_path, by="topic") == Stats(60 * US_PER_S, "topic", None, 0, (), ())
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(tmp_path)])
    assert (ran.exit_code, ran.stdout) == (0, "there are no messages in this part of the log\n")


def test_a_session_that_another_thread_began_is_left_running(spark: "SparkSession", tmp_path: Path) -> None:
    """PySpark gives each thread its own session in the JVM, which does not know of the other threads' sessions."""
    Directory(tmp_path).fill(1, 0)
    with ThreadPoolExecutor(1) as thread:
        ran = thread.submit(CliRunner().invoke, amps, ["pipeline", "stats", str(tmp_path)]).result()
    assert (ran.exit_code, ran.stdout) == (0, "there are no messages in this part of the log\n")
    assert spark.range(3).count() == 3


def fed(directory: Path, messages: Iterable[tuple[int, int]], expiration_s: int = NO_EXPIRATION) -> None:
    """Journals with messages of these times (ns) and sizes."""
    feeder = Feeder(directory, 8 << 20)
    for sequence, (time_ns, size) in enumerate(messages, 1):
        parts = RecordParts(payload=b"x" * size, publisher_id=7, expiration_s=expiration_s)
        feeder.push(Feed(0, sequence, "t", parts))
        feeder.turn(time_ns, 0)
    for path in directory.glob("transient.*"):
        path.unlink()


def test_percentiles_are_exact_however_many_messages_there_are(spark: "SparkSession", tmp_path: Path) -> None:
    """The nearest rank: of 40,000 messages the 39,600th is the p99, and the next one is larger."""
    sizes = [*[number % 40 for number in range(39_599)], 50, 51, *[60 + number % 20 for number in range(399)]]
    random.Random(5).shuffle(sizes)
    fed(tmp_path, enumerate(sizes, 10**18))
    found = counted(spark, tmp_path)
    assert found.total is not None
    assert (found.total.messages, found.total.p50_bytes, found.total.p99_bytes) == (
        len(sizes),
        sorted(sizes)[len(sizes) // 2 - 1],
        50,
    )


def test_a_message_at_an_edge_belongs_to_the_later_interval(spark: "SparkSession", tmp_path: Path) -> None:
    second = 1_000_000_000
    begin = 10**18
    times = [
        0,
        1,
        second - 1,
        second,
        second + 1,
        3 * second - 1,
        3 * second,
        60 * second - 1000,
        60 * second,
    ]
    fed(tmp_path, [(begin + time, 1) for time in times])
    found = counted(spark, tmp_path, interval_us=US_PER_S)
    expected = Counter((begin + time) // second * US_PER_S for time in times)
    assert {one.begin_us: one.figures.messages for one in found.intervals} == expected
    assert sorted(expected.values()) == [1, 1, 1, 1, 2, 3]
    minutes = counted(spark, tmp_path, interval_us=60 * US_PER_S)
    assert [one.begin_us % (60 * US_PER_S) for one in minutes.intervals] == [0] * len(minutes.intervals)
    assert sum(one.figures.messages for one in minutes.intervals) == len(times)


def test_messages_that_expired_count(spark: "SparkSession", tmp_path: Path) -> None:
    """They are in the log as long as its journals are there."""
    fed(tmp_path, [(10**18 + number, number) for number in range(5)], expiration_s=1)
    found = counted(spark, tmp_path)
    assert found.total is not None
    assert (found.total.messages, found.total.payload_bytes) == (5, 10)


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


def test_a_dry_run_reports_the_size_of_the_read(log: tuple[Path, list[Logged]]) -> None:
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(log[0]), "-dry-run"])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith(f"{log[0]}: would read 1 journal of Test, ")
    size = int(ran.stdout.split()[-2].replace(",", ""))
    assert sum(message.size for message in log[1]) < size < 10 << 20


@pytest.mark.parametrize("job", ["stats", "queue-report", "reconcile"])
@pytest.mark.parametrize("dry", [["-dry-run"], []])
def test_a_directory_without_journals_is_refused(
    log: tuple[Path, list[Logged]], tmp_path: Path, job: str, dry: list[str]
) -> None:
    directories = [str(log[0])] * (job == "reconcile") + [str(tmp_path)]
    ran = CliRunner().invoke(amps, ["pipeline", job, *directories, *dry])
    assert (ran.exit_code, ran.output) == (
        1,
        f"error: there are no journals in {tmp_path}: is it the JournalDirectory?\n",
    )
    names = ["-name-b", "Other"] if job == "reconcile" else ["-name", "Other"]
    ran = CliRunner().invoke(amps, ["pipeline", job, *[str(log[0])] * len(directories), *dry, *names])
    assert (ran.exit_code, ran.output) == (
        1,
        f"error: there are no journals of 'Other' in {log[0]}: is it the JournalDirectory?\n",
    )


@pytest.mark.parametrize("job", ["stats", "queue-report", "reconcile"])
@pytest.mark.parametrize("dry", [["-dry-run"], []])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, job: str, dry: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check comes even before the search for journals."""
    option, name = {
        "stats": ("-csv", "s.csv"), "queue-report": ("-output", "r.html"), "reconcile": ("-output", "d.parquet"),
    }[job]  # fmt: skip

    def told(output: Path) -> str:
        directories = [str(tmp_path)] * (2 if job == "reconcile" else 1)
        ran = CliRunner().invoke(amps, ["pipeline", job, *directories, *dry, option, str(output)])
        assert ran.exit_code == 1
        return ran.output.removeprefix(f"error: the output {output} cannot be written: ")

    missing = tmp_path / "no" / name
    assert told(missing) == f"there is no directory {missing.parent}: make it, or choose another place\n"
    (tmp_path / "file").touch()
    assert told(tmp_path / "file" / name).startswith(f"there is no directory {tmp_path / 'file'}: ")
    there = tmp_path / name
    denied = {tmp_path}
    # Root may write everywhere.
    monkeypatch.setattr("os.access", lambda path, mode: not (mode & os.W_OK and Path(path) in denied))
    assert told(there).startswith(f"you may not write to the directory {tmp_path}: ")
    there.touch()
    denied = {there}
    assert told(there) == "it is there and write-protected: choose another place\n"


def test_a_full_disk_is_reported_with_the_path(
    spark: "SparkSession", log: tuple[Path, list[Logged]], tmp_path: Path
) -> None:
    for job, option in (("stats", "-csv"), ("queue-report", "-output")):
        path = tmp_path / job
        path.write_text("as it was")
        unfinished_path(path).symlink_to("/dev/full")
        ran = CliRunner().invoke(amps, ["pipeline", job, str(log[0]), option, str(path)])
        assert ran.exit_code == 1
        assert ran.output.splitlines()[-1] == (
            f"error: the output {path} cannot be written (No space left on device): make room there, or choose another "
            "place"
        )
        assert path.read_text() == "as it was"
        assert not unfinished_path(path).is_symlink()


def test_an_output_that_is_no_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("before")
    link.symlink_to(target)
    write_output(link, "after")
    assert (link.is_symlink(), target.read_text()) == (True, "after")
    with pytest.raises(
        PipelineError, match=r"/dev/full cannot be written \(No space left on device\): make room"
    ):
        write_output(Path("/dev/full"), "x")


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
def test_mistakes_are_reported(
    log: tuple[Path, list[Logged]], options: list[str], status: int, said: str
) -> None:
    ran = CliRunner().invoke(amps, ["pipeline", "stats", str(log[0]), *options])
    assert ran.exit_code == status
    assert said in ran.output
