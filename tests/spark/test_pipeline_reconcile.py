"""`amps pipeline reconcile`: every difference between two logs is found, and no other."""

import json
import random
from collections import Counter, defaultdict
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from click.testing import CliRunner
from pyspark.errors import PySparkException

from amps._core.values.value import derived_publisher_id, publisher_id
from amps.cli.main import amps
from amps.cli.pipelines.common import failure_text
from amps.spark.pipelines import reconcile
from amps.spark.pipelines.job import PipelineError, Silent
from amps.spark.pipelines.reconcile import PublisherDifferences, ReconcileOptions, Reconciliation, compare
from amps.spark.pipelines.report_source import Journals
from tests.support.log_directories import Directory
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

COUNT = 200


@dataclass(frozen=True)
class Sent:
    """A message as a publisher sent it; a `sequence` of None means that it has none."""

    topic: str
    body: bytes
    sequence: int | None = None


def body(number: int, text: str = "as it was") -> bytes:
    return json.dumps({"n": number, "text": text}).encode()


def numbered(*left_out: int, changed: dict[int, Sent] | None = None, more: int = 0) -> list[Sent]:
    """Messages 1 to COUNT and some more, without some, and with some changed."""
    return [
        (changed or {}).get(number, Sent(f"T{number % 3}", body(number), number))
        for number in range(1, COUNT + more + 1)
        if number not in left_out
    ]


LOOSE = [Sent("T0", body(number // 2)) for number in range(40)]  # each of them twice
LOOSE_IN_B = [*LOOSE[:10], *LOOSE[11:20], LOOSE[30], *LOOSE[20:30], *LOOSE[31:], Sent("T1", body(7))]
SENT = {
    "A": {
        "alike": numbered(),
        "feed": numbered(),
        "loose": LOOSE,
        "only-in-a": numbered(*range(6, COUNT + 1)),
    },
    "B": {
        "alike": numbered(),
        "feed": numbered(
            17,
            18,
            changed={50: Sent("T2", body(50, "otherwise"), 50), 60: Sent("T9", body(60), 60)},
            more=3,
        ),
        "loose": LOOSE_IN_B,
    },
}


def send(server: ServerProcess, sent: dict[str, list[Sent]]) -> None:
    with Peers("unused") as peers:
        for name, messages in sent.items():
            client = peers.logged_on(server, name=name)
            for message in messages:
                fields = {} if message.sequence is None else {"s": message.sequence}
                client.publish(message.topic, message.body, **fields)
            client.flush("persisted")


@pytest.fixture(scope="module")
def servers(start_module_server: StartServer) -> dict[str, ServerProcess]:
    """Two running servers with almost the same messages. A has been stopped once, so that its log has names."""
    found = {name: start_module_server(name=name, log_topics=("^T",)) for name in SENT}
    for name, server in found.items():
        send(server, SENT[name])
    found["A"].restart()
    return found


@pytest.fixture(scope="module")
def journals(servers: dict[str, ServerProcess]) -> tuple[Journals, Journals]:
    a, b = (Journals(servers[name].journal_directory) for name in ("A", "B"))
    return a, b


def counts(**numbers: int) -> tuple[int, ...]:
    names = [name for name in PublisherDifferences.__slots__ if name != "publisher"]
    assert set(numbers) <= set(names)
    return tuple(numbers.get(name, 0) for name in names)


def by_publisher(found: Reconciliation) -> dict[str, tuple[int, ...]]:
    return {one.publisher: astuple(one)[1:] for one in found.publishers}


def test_all_differences_of_two_servers_are_found(
    spark: "SparkSession", journals: tuple[Journals, Journals], tmp_path: Path
) -> None:
    output = tmp_path / "differences.parquet"
    found = reconcile.run(spark, ReconcileOptions(*journals, output), Silent())
    assert not found.same
    assert by_publisher(found) == {
        "alike": counts(messages_a=COUNT, messages_b=COUNT),
        "feed": counts(messages_a=COUNT, messages_b=COUNT + 1, missing_in_a=3, missing_in_b=2, different=2),
        # One of two equal messages is missing, one came too early, and one more came at the end.
        "loose": counts(
            messages_a=40,
            messages_b=40,
            missing_in_a=1,
            missing_in_b=1,
            reordered=1,
            unnumbered_a=40,
            unnumbered_b=40,
        ),
        "only-in-a": counts(messages_a=5, missing_in_b=5),
    }
    assert found.publisher_count == 4
    assert astuple(found.total)[1:] == tuple(map(sum, zip(*by_publisher(found).values(), strict=True)))
    written = spark.read.parquet(str(output))
    assert written.count() == found.total.differences
    feed = {
        (row.difference, row.bookmark_a or row.bookmark_b)
        for row in written.where("publisher = 'feed'").collect()
    }
    number = publisher_id("feed")
    assert feed == {
        *(("missing_in_b", f"{number}|{n}|") for n in (17, 18)),
        *(("missing_in_a", f"{number}|{n}|") for n in (COUNT + 1, COUNT + 2, COUNT + 3)),
        *(("different", f"{number}|{n}|") for n in (50, 60)),
    }
    (moved,) = written.where("publisher = 'feed' and topic_a <> topic_b").collect()
    assert (moved.topic_a, moved.topic_b, moved.digest_a) == ("T0", "T9", moved.digest_b)
    reconcile.run(spark, ReconcileOptions(*journals, output), Silent())
    assert spark.read.parquet(str(output)).count() == found.total.differences


def test_the_command_says_whether_they_differ(
    spark: "SparkSession", journals: tuple[Journals, Journals], tmp_path: Path
) -> None:
    a, b = (str(log.directory) for log in journals)
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, "-output", str(tmp_path / "d.json")])
    assert ran.exit_code == 2, ran.output
    rows = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines() if line}
    assert rows["feed"][:6] == ["200", "201", "3", "2", "2", "0"]
    assert "alike" not in rows
    assert ran.stdout.splitlines()[-2:] == [
        "the logs differ: 15 differences",
        f"all of them are in {tmp_path / 'd.json'}",
    ]
    lines = [line for path in (tmp_path / "d.json").glob("part-*") for line in path.read_text().splitlines()]
    assert Counter(json.loads(line)["difference"] for line in lines) == {
        "missing_in_a": 4, "missing_in_b": 8, "different": 2, "reordered": 1,
    }  # fmt: skip
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, a])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[-1] == "the logs have the same messages, of 4 publishers"
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, "-topic", "T1", "--json"])
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["same"]) == (2, False)
    in_t1 = [message for messages in SENT["A"].values() for message in messages if message.topic == "T1"]
    assert told["total"]["messages_a"] == len(in_t1)


def test_a_range_is_compared(spark: "SparkSession", journals: tuple[Journals, Journals]) -> None:
    a, b = (str(log.directory) for log in journals)
    feed = publisher_id("feed")
    options = ["-from", f"{feed}|20|", "-to", f"{feed}|49|"]
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, *options])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[1].split()[:3] == ["all", "29", "29"]


def test_a_dry_run_reports_the_size_of_the_read(journals: tuple[Journals, Journals], tmp_path: Path) -> None:
    a, b = (str(log.directory) for log in journals)
    output = tmp_path / "d.parquet"
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, "-output", str(output), "--dry-run"])
    assert ran.exit_code == 0, ran.output
    assert [line.rsplit(", ", 1)[0] for line in ran.stdout.splitlines()] == [
        f"{a}: would read 1 journal of A",
        f"{b}: would read 1 journal of B",
    ]
    assert not output.exists()


def test_logs_without_messages(
    spark: "SparkSession", journals: tuple[Journals, Journals], tmp_path: Path
) -> None:
    Directory(tmp_path).fill(1, 0)
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", str(tmp_path), str(tmp_path)])
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (
        0,
        "the logs have the same messages, of 0 publishers",
    )
    found = reconcile.run(spark, ReconcileOptions(journals[0], Journals(tmp_path)), Silent())
    sent = sum(map(len, SENT["A"].values()))
    assert (found.total.messages_a, found.total.missing_in_b, found.total.differences) == (sent, sent, sent)


def test_a_full_disk_is_reported_with_the_path(
    spark: "SparkSession",
    journals: tuple[Journals, Journals],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = tmp_path / "d.parquet"

    def full(*arguments: object) -> None:
        raise PySparkException("Job aborted.\njava.io.IOException: No space left on device")

    monkeypatch.setattr("pyspark.sql.readwriter.DataFrameWriter.save", full)
    a, b = (str(log.directory) for log in journals)
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, "-output", str(output)])
    assert (ran.exit_code, ran.output.splitlines()[-1]) == (
        1,
        f"error: the output {output} cannot be written (No space left on device): make room there, or choose another "
        "place",
    )


def test_a_full_disk_of_sparks_own_files_is_reported_with_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/fast")
    error = PySparkException("Job aborted.\njava.io.IOException: No space left on device")
    assert failure_text(error) == (
        "Job aborted. (No space left on device): Spark's own files are in /fast; make room, or set SPARK_LOCAL_DIRS"
    )


def test_only_files_that_spark_has_written_are_replaced(
    spark: "SparkSession", journals: tuple[Journals, Journals], tmp_path: Path
) -> None:
    precious = tmp_path / "d.parquet"
    precious.mkdir()
    (precious / "letters.txt").write_text("dear")
    with pytest.raises(PipelineError, match=r"is no output of this command \(letters.txt\)"):
        reconcile.run(spark, ReconcileOptions(*journals, precious), Silent())
    assert (precious / "letters.txt").read_text() == "dear"
    a, b = (str(log.directory) for log in journals)
    ran = CliRunner().invoke(amps, ["pipeline", "reconcile", a, b, "-output", "d.txt"])
    assert ran.exit_code == 1
    assert "must end in one of .parquet, .json" in ran.output


# --- against plain Python ----------------------------------------------------------------------------------------

Row = tuple[int, datetime, str, str, str, str, bytes]
SCHEMA = (
    "position long, timestamp timestamp, bookmark string, publisher string, topic string, message_type string, "
    "payload binary"
)


def rows_of(sent: list[tuple[str, Sent]], instance: str, shows_names: bool) -> list[Row]:
    """The rows of a log as the data source returns them."""
    rows = []
    for place, (name, message) in enumerate(sent):
        if message.sequence is None:
            bookmark = f"{derived_publisher_id(name, instance)}|{1700000000000000000 + place}|"
        else:
            bookmark = f"{publisher_id(name)}|{message.sequence}|"
        shown = name if shows_names else str(publisher_id(name))
        time = datetime.fromtimestamp(1_700_000_000 + place, UTC)
        rows.append((4096 + 8 * place, time, bookmark, shown, message.topic, "json", message.body))
    return rows


def expected(a: list[tuple[str, Sent]], b: list[tuple[str, Sent]]) -> dict[str, Counter[str]]:
    """The same comparison, without Spark and without optimisations."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name in {name for name, _ in a + b}:
        keyed: list[dict[Any, tuple[int, Sent]]] = []
        count = found[str(publisher_id(name))]
        for side, log in (("a", a), ("b", b)):
            first: dict[Any, tuple[int, Sent]] = {}
            turns: Counter[Sent] = Counter()
            for place, (whose, message) in enumerate(log):
                if whose != name:
                    continue
                count[f"messages_{side}"] += 1
                key: Any = message.sequence
                if key is None:
                    count[f"unnumbered_{side}"] += 1
                    turns[message] += 1
                    key = message, turns[message]
                if key in first:
                    count[f"repeated_in_{side}"] += 1
                else:
                    first[key] = place, message
            keyed.append(first)
        in_a, in_b = keyed
        count["missing_in_a"] = len(in_b.keys() - in_a.keys())
        count["missing_in_b"] = len(in_a.keys() - in_b.keys())
        both = sorted(in_a.keys() & in_b.keys(), key=lambda key: in_a[key][0])
        count["different"] = sum(in_a[key][1] != in_b[key][1] for key in both)
        count["reordered"] = sum(
            any(in_b[before][0] > in_b[key][0] for before in both[:at]) for at, key in enumerate(both)
        )
    return found


def tampered(chance: random.Random, log: list[tuple[str, Sent]]) -> list[tuple[str, Sent]]:
    """The rows with some messages lost, changed, moved and repeated."""
    result = [entry for entry in log if chance.random() > 0.05]
    for at, (name, message) in enumerate(result):
        if chance.random() < 0.05:
            result[at] = name, Sent(message.topic, body(chance.randrange(9), "new"), message.sequence)
    for _ in range(len(result) // 15):
        result.insert(chance.randrange(len(result)), result.pop(chance.randrange(len(result))))
        result.insert(chance.randrange(len(result)), chance.choice(result))
    return result


@pytest.mark.parametrize("seed", [1, 2])
def test_random_logs_against_plain_python(spark: "SparkSession", seed: int) -> None:
    """One log has names where the other has ids; unnumbered messages have other bookmarks there."""
    chance = random.Random(seed)
    log: list[tuple[str, Sent]] = []
    for number in range(600):
        name = f"p{chance.randrange(5)}"
        sequence = None if chance.random() < 0.4 else number + 1
        log.append((name, Sent(f"T{chance.randrange(2)}", body(chance.randrange(30)), sequence)))
    a, b = tampered(chance, log), tampered(chance, log)
    frames = [
        spark.createDataFrame(rows_of(sent, instance, instance == "B"), SCHEMA)
        for instance, sent in (("A", a), ("B", b))
    ]
    found = compare(frames[0], frames[1], Silent())
    ids = {f"p{number}": str(publisher_id(f"p{number}")) for number in range(5)}
    names = [name for name in PublisherDifferences.__slots__ if name != "publisher"]
    assert {ids[one.publisher]: {name: getattr(one, name) for name in names} for one in found.publishers} == {
        publisher: {name: count[name] for name in names} for publisher, count in expected(a, b).items()
    }
    assert found.total.repeated_in_a
    assert found.total.reordered
    assert len(found.examples) == reconcile.EXAMPLES_MAX
