"""`amps pipeline replay`: publishes the messages of an archive or a log to topics again, in order, each once."""

import json
import re
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.cli.main import amps
from amps.client import EPOCH, Client
from amps.spark.pipelines import archive as archiving
from amps.spark.pipelines import replay_tasks
from amps.spark.pipelines.archive_plan import ArchiveOptions
from amps.spark.pipelines.job import Silent
from tests.support.handmade_logs import BEGIN_NS, SECOND_NS, messages, write_log
from tests.support.peer import RawClient
from tests.support.peers import SOON
from tests.support.pipeline_runs import PipelineRun
from tests.support.server import ServerProcess, StartServer, numbered_bodies
from tests.support.written_rows import LoggedRow, logged_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

TOPICS = ((b"red", b"json"), (b"blue/1", b"json"), (b"blue/2", b"json"), (b"green", b"fix"))
COUNT = 900
MILLISECOND_NS = 1_000_000


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",))


@pytest.fixture
def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


@pytest.fixture
def prefix(unique: str) -> str:
    """The common prefix of a test's topics."""
    return f"L/{unique}/"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three journals with messages of three topics in turns, 100 ms apart."""
    path = tmp_path_factory.mktemp("log") / "journal"
    parts = messages(COUNT, 3, step_ns=100 * MILLISECOND_NS)
    write_log(path, TOPICS, [parts[:300], parts[300:600], parts[600:]])
    return path


@pytest.fixture(scope="module")
def parquet(spark: "SparkSession", log: Path) -> Path:
    """The archive of the log."""
    path = log.parent / "parquet"
    options = ArchiveOptions(log, path, current=True, split_bytes=1 << 16)
    assert archiving.run(spark, options, Silent()).rows == COUNT
    return path


def replay(source: Path, uri: str, *arguments: object, pace: str = "max") -> Result:
    """Run the command within the session of the test."""
    command = ["pipeline", "replay", str(source), "--uri", uri, "--pace", pace, *map(str, arguments)]
    return CliRunner().invoke(amps, command)


def replayed(source: Path, uri: str, *arguments: object, pace: str = "max") -> str:
    result = replay(source, uri, *arguments, pace=pace)
    assert result.exit_code == 0, result.output
    return result.output


def numbers(rows: list[LoggedRow]) -> list[int]:
    return [json.loads(row.data)["n"] for row in rows]


def topics_of(rows: list[LoggedRow], prefix: str) -> list[str]:
    return [row.topic.removeprefix(prefix) for row in rows]


@pytest.mark.parametrize("kind", ["log", "parquet"])
def test_the_whole_log_in_its_order(
    spark: "SparkSession", request: pytest.FixtureRequest, uri: str, prefix: str, kind: str
) -> None:
    """All topics in one order, each message once."""
    said = replayed(request.getfixturevalue(kind), uri, "--to-prefix", prefix)
    assert f"published: {COUNT} messages\n" in said
    rows = logged_rows(uri, f"^{re.escape(prefix)}")
    assert numbers(rows) == list(range(COUNT))
    assert topics_of(rows, prefix) == [("red", "blue/1", "blue/2")[n % 3] for n in range(COUNT)]
    assert len({row.publisher_id for row in rows}) == 1


def time_of(n: int) -> str:
    seconds, rest = divmod(BEGIN_NS + n * 100 * MILLISECOND_NS, SECOND_NS)
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds)) + f".{rest // MILLISECOND_NS:03d}"


@pytest.mark.parametrize("kind", ["log", "parquet"])
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--topic", "blue/1"), range(1, COUNT, 3)),
        (("--topic", "^blue"), [n for n in range(COUNT) if n % 3]),
        (("--from", "5|300|"), range(300, COUNT)),
        (("--from", "[5|300|", "--to", "5|700|"), range(299, 700)),
        (("--from", time_of(100), "--to", time_of(650)), range(101, 651)),
        (("--topic", "red", "--from", "5|10|", "--to", time_of(29)), range(12, 30, 3)),
        (("--topic", "nothing"), []),
    ],
)
def test_parts_of_a_log(
    spark: "SparkSession",
    request: pytest.FixtureRequest,
    uri: str,
    prefix: str,
    kind: str,
    options: tuple[str, ...],
    wanted: Any,
) -> None:
    replayed(request.getfixturevalue(kind), uri, "--to-topic", f"{prefix}all", *options)
    assert numbers(logged_rows(uri, f"{prefix}all")) == list(wanted)


@pytest.mark.parametrize("kind", ["log", "parquet"])
def test_streams_keep_the_order_of_each_topic(
    spark: "SparkSession", request: pytest.FixtureRequest, uri: str, prefix: str, kind: str
) -> None:
    replayed(request.getfixturevalue(kind), uri, "--to-prefix", prefix, "--streams", 4)
    rows = logged_rows(uri, f"^{re.escape(prefix)}")
    found: dict[str, list[int]] = defaultdict(list)
    for row, topic, number in zip(rows, topics_of(rows, prefix), numbers(rows), strict=True):
        found[topic].append(number)
        assert json.loads(row.data) == {"n": number}
    assert found == {
        topic: list(range(place, COUNT, 3)) for place, topic in enumerate(("red", "blue/1", "blue/2"))
    }
    assert len({row.publisher_id for row in rows}) == len({
        replay_tasks.stream_of(topic, 4) for topic in found
    })  # fmt: skip


def test_the_same_run_adds_nothing_and_does_not_wait(
    spark: "SparkSession", tmp_path: Path, uri: str, prefix: str
) -> None:
    """Rows already in the log are skipped without their pauses: this log spans a year."""
    parts = messages(20, step_ns=86_400 * 18 * SECOND_NS)
    write_log(tmp_path / "year", TOPICS, [parts])
    options = ("--to-prefix", prefix, "--run-id", "monday", "--client-name", prefix.replace("/", "_"))
    assert "published: 20 messages\n" in replayed(tmp_path / "year", uri, *options)
    said = replayed(tmp_path / "year", uri, *options, pace="original")
    assert "published: 20 messages, 20 of them by an earlier run\n" in said
    assert numbers(logged_rows(uri, f"{prefix}red")) == list(range(20))


def test_another_source_under_the_same_run_is_refused(
    spark: "SparkSession", log: Path, uri: str, prefix: str
) -> None:
    options = ("--to-prefix", prefix, "--run-id", "monday", "--client-name", prefix.replace("/", "_"))
    replayed(log, uri, *options, "--topic", "red")
    result = replay(log, uri, *options, "--topic", "^blue")
    assert result.exit_code == 1
    assert "with other rows: row 0 differs from the server's row in its place" in result.output
    assert len(logged_rows(uri, f"^{re.escape(prefix)}")) == COUNT / 3


def test_journals_that_have_grown_are_replayed_on(
    spark: "SparkSession", tmp_path: Path, uri: str, prefix: str
) -> None:
    options = ("--to-prefix", prefix, "--run-id", "monday", "--client-name", prefix.replace("/", "_"))
    for count in (30, 70):
        write_log(tmp_path / "log", TOPICS, [messages(count, 3)])
        replayed(tmp_path / "log", uri, *options)
    rows = logged_rows(uri, f"^{re.escape(prefix)}")
    assert numbers(rows) == list(range(70))


def test_omitted_messages_are_reported(spark: "SparkSession", tmp_path: Path, uri: str, prefix: str) -> None:
    """Only messages of the connection's type are published; a log holds deltas as whole messages."""
    parts = messages(9, 3)
    parts += [replace(parts[0], kind=kind, topic_id=0, sequence=20 + kind) for kind in (3, 4, 5, 5)]
    parts += [replace(parts[0], topic_id=3, sequence=30), replace(parts[8], sequence=31, flags=2)]
    write_log(tmp_path / "log", TOPICS, [parts])
    said = replayed(tmp_path / "log", uri, "--to-prefix", prefix)
    assert "published: 10 messages\n" in said
    assert re.findall(r"left out: (.*)\n", said) == [
        "1 publish of message type fix",
        "1 queue_acknowledgement",
        "2 queue_expiry",
        "1 sow_delete",
    ]
    assert numbers(logged_rows(uri, f"^{re.escape(prefix)}")) == [*range(9), 8]


@pytest.mark.parametrize("archived", [False, True])
def test_deltas_stay_deltas(
    spark: "SparkSession", tmp_path: Path, start_server: StartServer, archived: bool
) -> None:
    """The journal of the second server shows it."""
    server = start_server(log_topics=("^L/",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    parts = [replace(part, flags=flags) for part, flags in zip(messages(4), (0, 2, 2, 0), strict=True)]
    source = tmp_path / "log"
    write_log(source, TOPICS, [parts])
    if archived:
        options = ArchiveOptions(source, tmp_path / "parquet", current=True)
        assert archiving.run(spark, options, Silent()).rows == 4
        source = tmp_path / "parquet"
    for _ in range(2):
        replayed(source, uri, "--to-topic", "L/x", "--run-id", "one")
    rows = spark.read.format("amps").load(str(server.journal_directory)).orderBy("position").collect()
    assert [row.kind for row in rows] == ["publish", "delta_publish", "delta_publish", "publish"]
    assert [bytes(row.payload) for row in rows] == [part.payload for part in parts]


def test_expirations_are_as_long_as_they_were(
    spark: "SparkSession", tmp_path: Path, start_server: StartServer
) -> None:
    """The messages are replayed again from the journal of the second server."""
    server = start_server(log_topics=("^L/",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    parts = [replace(part, expiration_s=expiration) for part, expiration in
             zip(messages(3), (0, 3600, 0xFFFFFFFF), strict=True)]  # fmt: skip
    write_log(tmp_path / "log", TOPICS, [parts])
    replayed(tmp_path / "log", uri, "--to-topic", "L/x")
    rows = spark.read.format("amps").load(str(server.journal_directory)).orderBy("position").collect()
    lives = [row.expiration and (row.expiration - row.timestamp).total_seconds() for row in rows]
    assert lives == [None, 3600, None]


class Clock:
    """A clock that advances only in `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds


def test_a_pacer_keeps_to_the_times_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first message sets the clock. A late message is published at once, and does not shift the later ones."""
    clock = Clock()
    monkeypatch.setattr(replay_tasks, "time", clock)
    pacer = replay_tasks.Pacer(2.0)
    for time_us, busy_s in ((5_000_000, 0), (7_000_000, 0), (7_000_000, 3), (9_000_000, 0), (15_000_000, 0)):
        pacer.time_us = time_us
        pacer.wait()
        clock.now += busy_s
    assert clock.slept == [1.0, 1.0]
    fast = replay_tasks.Pacer(None)
    fast.time_us = 1 << 60
    fast.wait()
    assert len(clock.slept) == 2


def slow_log(path: Path, count: int = 400) -> Path:
    """A log whose replay at its own pace takes a while."""
    write_log(path, TOPICS, [messages(count, 3, step_ns=50 * MILLISECOND_NS)])
    return path


def count_logged(uri: str, prefix: str) -> int:
    return len(logged_rows(uri, f"^{re.escape(prefix)}"))


def wait_for_messages(uri: str, prefix: str, count: int, run: PipelineRun) -> None:
    """Wait until that number of messages is in the log."""
    expression = f"^{re.escape(prefix)}"
    with Client(None, uri) as client, client.bookmark_subscribe(expression, EPOCH) as stream:
        seen = 0
        while seen < count:
            if stream.get(0.5) is not None:
                seen += 1
            else:
                assert run.running, run.output()


def test_a_replay_that_is_killed_and_repeated(
    spark: "SparkSession", tmp_path: Path, uri: str, prefix: str
) -> None:
    """The second run is in the session of the tests, which is as new to the log as any other process."""
    source = slow_log(tmp_path / "log")
    options = ("--to-prefix", prefix, "--run-id", "one", "--client-name", prefix.replace("/", "_"))
    with PipelineRun(tmp_path, "replay", source, "--uri", uri, *options, "--master", "local[1]") as run:
        wait_for_messages(uri, prefix, 20, run)
        assert run.running, run.output()
        run.kill()
    assert 20 <= count_logged(uri, prefix) < 400
    said = replayed(source, uri, *options)
    assert re.search(r"published: 400 messages, \d+ of them by an earlier run\n", said)
    assert numbers(logged_rows(uri, f"^{re.escape(prefix)}")) == list(range(400))


def test_a_replay_that_is_interrupted_ends_in_order(tmp_path: Path, uri: str, prefix: str) -> None:
    source = slow_log(tmp_path / "log", 4000)
    options = (source, "--uri", uri, "--to-prefix", prefix, "--master", "local[1]")
    with PipelineRun(tmp_path, "replay", *options) as run:
        wait_for_messages(uri, prefix, 10, run)
        children = run.children()
        run.interrupt()
        said = run.finish(130)
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said
    assert psutil.wait_procs(children, 20)[1] == []


def test_a_dry_run_publishes_nothing(parquet: Path, tmp_path: Path) -> None:
    """It needs neither Java nor a server."""
    options = ("--uri", "tcp://127.0.0.1:1/amps/json", "--dry-run", "--topic", "red", "--pace", "10")
    with PipelineRun(tmp_path, "replay", parquet, *options, JAVA_HOME="/nowhere") as run:
        said = run.finish()
    assert "to replay: at most 300 rows, about" in said
    assert "from 2026-09-21T14:13:20Z to 2026-09-21T14:14:49Z" in said
    assert "takes about 0:00:09 at this pace" in said
    assert "1 stream: keeps the order of the log" in said


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("log", ("--streams", "2", "--pace", "original"), "a paced replay has one stream"),
        ("log", ("--to-topic", "L/x", "--to-prefix", "y"), "not both"),
        ("log", ("--to-topic", "unrecorded"), "must be recorded in the server's transaction log"),
        ("log", ("--from", "5|1000|"), "is not in the journals of"),
        ("parquet", ("--from", "5|1000|"), "is not in the archive"),
        ("parquet", ("--name", "other"), "is an archive of instance 'made'"),
        ("log", ("--run-id", "a/b"), "option run_id must be printable text"),
        ("nothing", (), "there are neither journals nor an archive of them in"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(
    spark: "SparkSession",
    request: pytest.FixtureRequest,
    tmp_path: Path,
    uri: str,
    source: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    place = tmp_path if source == "nothing" else request.getfixturevalue(source)
    result = replay(place, uri, *arguments)
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert said in result.output
    assert result.output.count("\n") == 1


def test_a_uri_must_name_the_message_type(spark: "SparkSession", log: Path, uri: str) -> None:
    result = replay(log, uri.removesuffix("/json"))
    assert result.exit_code == 1
    assert "names no message type" in result.output


@pytest.mark.parametrize("pace", ["0", "-1", "fast", "nan", "inf", "1e999"])
def test_a_pace_is_checked(log: Path, uri: str, pace: str) -> None:
    result = replay(log, uri, pace=pace)
    assert result.exit_code == 2
    assert f"{pace!r} is neither original nor max nor a positive number" in result.output


def test_a_running_server_replays_into_itself(
    spark: "SparkSession", server: ServerProcess, uri: str, prefix: str
) -> None:
    """Messages that were there when the replay began are published once more, and no others."""
    with RawClient.tcp(server.port()) as client:
        client.logon(f"{prefix}writer", mt="json", o=SOON)
        client.publish_persisted(f"{prefix}a", numbered_bodies(500), 1)
    replayed(server.journal_directory, uri, "--topic", f"{prefix}a")
    assert numbers(logged_rows(uri, f"{prefix}a")) == [*range(1, 501)] * 2
