"""`amps pipeline archive`: journals become Parquet, each row once, and are declared safe to remove only then."""

import functools
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

import pyarrow as pa
import pyarrow.parquet as pq

from amps._core.values.value import publisher_id
from amps.journal.compression import compress_journal
from amps.journal.disk import Disk
from amps.journal.listing import list_journals
from amps.spark.pipelines import archive as job
from amps.spark.pipelines import archive_manifest
from amps.spark.pipelines.archive_manifest import Archive
from amps.spark.pipelines.archive_plan import ArchiveOptions
from amps.spark.pipelines.archive_tasks import StagedPart
from amps.spark.pipelines.job import Silent
from tests.support.archives import (
    LOG_TOPICS,
    archive,
    archived,
    assert_rows_once,
    files_of,
    flip_byte,
    mixed_log,
    parquet_rows,
)
from tests.support.handmade_logs import INSTANCE, messages, write_log
from tests.support.peer import RawClient
from tests.support.peers import SOON
from tests.support.pipeline_runs import PipelineRun
from tests.support.server import ServerProcess, StartServer, numbered_bodies, package_path, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # a session takes long to start

TOPICS = ("L/orders", "L/größe €", "L/a=b%2F", "L/123")
NO_ARCHIVE_YET = "0 journals archived, 0 rows"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    """A running server with several full journals."""
    server = start_module_server(name="desk", log_topics=("^L/",))
    fill(server, "first", 3300)
    return server


def fill(server: ServerProcess, client_name: str, count: int) -> None:
    """Publish messages of about 10 KB, a thousand per journal of 10 MB."""
    with RawClient.tcp(server.port()) as client:
        client.logon(client_name, mt="json", o=SOON)
        for place, topic in enumerate(TOPICS):
            each = count // len(TOPICS)
            client.publish_persisted(topic, numbered_bodies(each, padding_bytes=10_000), 1 + place * each)


def journal_rows(spark: "SparkSession", journals: Path, **options: str) -> "DataFrame":
    return spark.read.format("amps").options(**options).load(str(journals))


def check_same(spark: "SparkSession", journals: Path, parquet: Path, before: int | None = None) -> int:
    """Check that the archive has exactly the rows of the journals, or of those before a position. Return how many."""
    ours = journal_rows(spark, journals)
    if before is not None:
        ours = ours.where(f"position < {before}")
    theirs = parquet_rows(spark, parquet)
    assert theirs.where("date <> to_date(timestamp)").count() == 0
    theirs = theirs.select(ours.columns)
    assert ours.exceptAll(theirs).count() == 0
    assert theirs.exceptAll(ours).count() == 0
    return theirs.count()


def end_of(entry: Any) -> int:
    return int(entry.start_position + entry.size_bytes)


def full_journals(server: ServerProcess) -> list[int]:
    entries = list_journals(server.journal_directory, None, "desk")
    return [entry.number for entry in entries if entry.full]


def test_full_journals_of_a_running_server(
    spark: "SparkSession", server: ServerProcess, tmp_path: Path
) -> None:
    parquet = tmp_path / "parquet"
    result = archived(server.journal_directory, parquet)
    full = full_journals(server)
    assert len(full) >= 3
    entries = Archive(parquet).journals()
    assert list(entries) == full
    assert all(entry.full for entry in entries.values())
    rows = check_same(spark, server.journal_directory, parquet, end_of(entries[full[-1]]))
    assert sum(entry.rows for entry in entries.values()) == rows
    topics = {row.topic for row in parquet_rows(spark, parquet).select("topic").distinct().collect()}
    assert topics == set(TOPICS[: len(topics)])
    assert f"{len(full)} journals archived" in result.output
    assert f"safe to remove: {len(full)} journals" in result.output
    for path in server.journals()[: len(full)]:
        assert str(path) in result.output
    assert f"desk.{full[-1]:010d}.journal/remove" in result.output
    first = next(iter(entries.values())).parts[0]
    assert first.first_bookmark == f"{publisher_id('first')}|1|"


def test_a_second_run_does_nothing(spark: "SparkSession", server: ServerProcess, tmp_path: Path) -> None:
    archived(server.journal_directory, tmp_path / "parquet")
    before = files_of(tmp_path / "parquet")
    result = archived(server.journal_directory, tmp_path / "parquet")
    assert NO_ARCHIVE_YET in result.output
    assert f"safe to remove: {len(full_journals(server))} journals" in result.output
    assert files_of(tmp_path / "parquet") == before
    result = archived(server.journal_directory, tmp_path / "parquet", "--dry-run")
    assert (
        f"to archive: 0 journals, 0 bytes; {len(full_journals(server))} are already archived" in result.output
    )


def test_only_new_journals_are_archived(
    spark: "SparkSession", start_server: StartServer, tmp_path: Path
) -> None:
    """Compressed and removed ones stay archived; a journal that was in use is continued from the last archived
    position.
    """
    server = start_server(name="desk", log_topics=("^L/",))
    journals, parquet = server.journal_directory, tmp_path / "parquet"
    fill(server, "first", 1500)
    result = archived(journals, parquet, "-current")
    assert "archived up to position" in result.output
    assert "safe to remove: 1 journal," in result.output
    check_same(spark, journals, parquet)
    before = files_of(parquet)
    assert NO_ARCHIVE_YET in archived(journals, parquet, "-current").output
    fill(server, "second", 40)
    archived(journals, parquet, "-current")
    check_same(spark, journals, parquet)
    fill(server, "third", 1200)
    archived(journals, parquet, "-current")
    count = check_same(spark, journals, parquet)
    assert count == 2740
    after = files_of(parquet)
    assert before.items() <= after.items()
    server.stop()
    first = server.journals()[0]
    for _ in compress_journal(Disk(), first, first.with_suffix(".journal.gz")):
        pass
    assert not first.exists()
    assert NO_ARCHIVE_YET in archived(journals, parquet, "-verify").output
    first.with_suffix(".journal.gz").unlink()
    result = archived(journals, parquet, "-verify")
    assert f"safe to remove: {len(full_journals(server))} journal" in result.output
    assert files_of(parquet) == after


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return mixed_log(tmp_path / "journal")


def test_every_kind_of_record_and_topic(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    parquet = tmp_path / "parquet"
    archived(log, parquet, "--current")
    ours = journal_rows(spark, log)
    theirs = parquet_rows(spark, parquet)
    assert ours.count() == theirs.count() == 100 + 24 + 50
    assert theirs.select("kind").distinct().count() == 8
    named = theirs.select(ours.columns)
    assert ours.exceptAll(named).count() == named.exceptAll(ours).count() == 0
    assert {row.topic for row in named.collect()} == {name.decode() for name, _ in LOG_TOPICS}
    # The key is the topic unless it is too long for the name of a directory.
    long = LOG_TOPICS[4][0].decode()
    keys = theirs.where(f"topic <> '{long}' and not topic_key <=> topic").count()
    assert keys == 0
    assert {file.topic for entry in Archive(parquet).journals().values() for file in entry.files} == {
        name.decode() for name, _ in LOG_TOPICS
    }
    assert NO_ARCHIVE_YET in archived(log, parquet, "--verify").output


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Write a file again with other rows."""
    table = pq.ParquetFile(path).read()
    pq.write_table(change(table), path, compression="zstd")


def change_column(name: str, value: Any, row: int = 3) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        values = table[name].to_pylist()
        values[row] = value
        place = table.schema.get_field_index(name)
        return table.set_column(
            place, table.schema.field(name), pa.array(values, table.schema.field(name).type)
        )

    return change


def without_row(table: Any) -> Any:
    return pa.concat_tables([table.slice(0, 3), table.slice(4)])


def with_row_twice(table: Any) -> Any:
    return pa.concat_tables([table.slice(0, 4), table.slice(3)])


TAMPERINGS: dict[str, tuple[Callable[[Path], None], str]] = {
    "payload": (
        functools.partial(edit, change=change_column("payload", b'{"n":-1}')),
        "column 'payload' differs",
    ),
    "null": (functools.partial(edit, change=change_column("bookmark", None)), "column 'bookmark' differs"),
    "empty": (
        functools.partial(edit, change=change_column("publisher", "")),
        "column 'publisher' differs",
    ),
    "topic": (
        functools.partial(edit, change=change_column("topic", "blue")),
        "column 'topic' differs",
    ),
    "sequence": (
        functools.partial(edit, change=change_column("sequence", 1)),
        "column 'sequence' differs",
    ),
    "missing": (functools.partial(edit, change=without_row), "the row is missing"),
    "twice": (functools.partial(edit, change=with_row_twice), "the row is there twice"),
    "other": (
        functools.partial(edit, change=change_column("position", 4097)),
        "there is no such row in the journal",
    ),
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_tampered_rows_are_found(spark: "SparkSession", log: Path, tmp_path: Path, how: str) -> None:
    """The error names journal and position, and the journal is not safe to remove; after archiving again it is."""
    parquet = tmp_path / "parquet"
    archived(log, parquet)
    red = next(parquet.glob("topic_key=red/date=2026-09-21/journal-made-0000000000-*.parquet"))
    position = pq.ParquetFile(red).read()["position"][3].as_py()
    change, said = TAMPERINGS[how]
    change(red)
    result = archive(log, parquet, "--verify")
    assert result.exit_code == 1
    where = 4097 if how == "other" else position
    assert f"error: journal 0 at position {where}: the Parquet files differ from it: {said}" in result.output
    assert "safe to remove: 1 journal," in result.output
    assert "none of them can be removed yet" in result.output
    archived(log, parquet, "--again", "0")
    assert "safe to remove: 2 journals" in archived(log, parquet, "--verify").output
    assert_rows_once(spark, parquet, 124)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(("change", "said"), [(truncate, "bytes instead of"), (remove, "is missing")])
def test_missing_and_short_files_are_found_without_reading(
    spark: "SparkSession", log: Path, tmp_path: Path, change: Callable[[Path], None], said: str
) -> None:
    archived(log, tmp_path / "parquet")
    change(next((tmp_path / "parquet").glob("topic_key=red/*/*0000000001*")))
    result = archive(log, tmp_path / "parquet")
    assert result.exit_code == 1
    assert re.search(rf"error: journal 1 at position \d+: .*{said}", result.output)
    assert "safe to remove: 1 journal," in result.output
    result = archive(log, tmp_path / "parquet", "--verify")
    assert re.search(r"error: journal 1 at position \d+: .* cannot be read", result.output)


NUMBERS = ("1", "01", "1.0", "2026-11-23", "x" * 300)


@pytest.mark.parametrize("count", [3, 5])
def test_topics_are_exact_despite_guessed_directory_types(
    spark: "SparkSession", tmp_path: Path, count: int
) -> None:
    """Spark guesses types from directory names. The topic column is text; filters on either skip files."""
    topics = NUMBERS[:count]
    named = [(topic.encode(), b"json") for topic in topics]
    write_log(tmp_path / "journal", named, [messages(100 * count, count), messages(1)])
    archived(tmp_path / "journal", tmp_path / "parquet")
    rows = spark.read.parquet(str(tmp_path / "parquet"))
    assert dict(rows.dtypes)["topic"] == "string"
    assert {row.topic: row["count"] for row in rows.groupBy("topic").count().collect()} == dict.fromkeys(
        topics, 100
    )
    for topic in topics:
        chosen = rows.where(rows.topic == topic)
        assert chosen.count() == 100
    keyed = parquet_rows(spark, tmp_path / "parquet").where("topic_key = '01'")
    assert keyed.count() == 100
    assert "PartitionFilters: [isnotnull(topic_key" in keyed._jdf.queryExecution().toString()
    for path in files_of(tmp_path / "parquet"):
        column = pq.ParquetFile(path).metadata.row_group(0).column(5)
        assert column.path_in_schema == "topic"
        assert column.statistics.min == column.statistics.max
        assert column.statistics.min in topics


def test_a_file_of_a_removed_journal_is_checked_by_its_checksum(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    archived(log, tmp_path / "parquet")
    (log / f"{INSTANCE}.0000000000.journal").unlink()
    archived(log, tmp_path / "parquet", "--verify")
    flip_byte(next((tmp_path / "parquet").glob("topic_key=red/date=2026-09-21/*0000000000*")))
    result = archive(log, tmp_path / "parquet", "--verify")
    assert result.exit_code == 1
    assert re.search(
        r"error: journal 0 at position \d+: the content of .* differs from its checksum", result.output
    )


def test_wrongly_written_rows_are_never_archived(
    spark: "SparkSession", log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No rows of a journal are visible before they were compared."""
    run_tasks = job.run_tasks

    def tampering(spark: Any, work: Any, arguments: Any) -> Any:
        results = run_tasks(spark, work, arguments)
        for result in results:
            if isinstance(result, StagedPart) and result.part.files[0].path.endswith("1-0000.parquet"):
                path = next(iter(result.staged.values()))
                edit(path, change_column("payload", b"x", 0))
        return results

    monkeypatch.setattr(job, "run_tasks", tampering)
    options = ArchiveOptions(log, tmp_path / "parquet", split_bytes=1 << 16)
    result = job.run(spark, options, Silent())
    assert [problem.number for problem in result.problems] == [1]
    assert "column 'payload' differs" in result.problems[0].text
    assert list(Archive(tmp_path / "parquet").journals()) == [0]
    assert not [path for path in files_of(tmp_path / "parquet") if "0000000001" in path.name]
    monkeypatch.undo()
    assert "safe to remove: 2 journals" in archived(log, tmp_path / "parquet").output


def test_a_damaged_journal_does_not_hold_up_others(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    damaged = log / f"{INSTANCE}.0000000000.journal"
    data = bytearray(damaged.read_bytes())
    data[6000] ^= 1
    damaged.write_bytes(data)
    result = archive(log, tmp_path / "parquet")
    assert result.exit_code == 1
    assert "error: journal 0: " in result.output
    assert str(damaged) in result.output
    assert list(Archive(tmp_path / "parquet").journals()) == [1]


def test_large_journals_are_cut_into_parts(
    spark: "SparkSession", server: ServerProcess, tmp_path: Path
) -> None:
    options = ArchiveOptions(server.journal_directory, tmp_path / "parquet", split_bytes=1 << 20)
    result = job.run(spark, options, Silent())
    assert result.problems == ()
    assert all(len(entry.parts) > 5 for entry in result.done)
    check_same(spark, server.journal_directory, tmp_path / "parquet", end_of(result.done[-1]))


def test_a_run_that_is_killed_leaves_nothing_to_see(
    spark: "SparkSession", server: ServerProcess, tmp_path: Path
) -> None:
    """Killed while it writes: all its files are staged. The next run does all of the work."""
    parquet = tmp_path / "parquet"
    staging = parquet / "_amps" / "staging"
    with PipelineRun(tmp_path, "archive", server.journal_directory, parquet, "--master", "local[1]") as run:
        wait_until(lambda: any(staging.rglob("*.parquet")) or not run.running, 120, "nothing is written")
        run.kill()
    assert any(staging.rglob("*.parquet"))
    assert Archive(parquet).journals() == {}
    assert files_of(parquet) == {}
    archived(server.journal_directory, parquet)
    assert not staging.exists()
    check_same(
        spark, server.journal_directory, parquet, end_of(list(Archive(parquet).journals().values())[-1])
    )


class Death(BaseException):
    """Stands for the end of the process: no code catches it."""


@pytest.mark.parametrize("moves", [0, 2])
def test_a_run_that_dies_while_files_get_their_places(
    spark: "SparkSession", log: Path, tmp_path: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run moves the remaining files into place, even if the journal is gone by then."""
    left = [moves]
    replace = os.replace

    def dying_replace(source: Path, target: Path) -> None:
        if not left[0]:
            raise Death
        left[0] -= 1
        replace(source, target)

    with monkeypatch.context() as dying:
        dying.setattr(archive_manifest.os, "replace", dying_replace)
        dying.setattr(archive_manifest.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Death):
            job.run(spark, ArchiveOptions(log, tmp_path / "parquet"), Silent())
    assert len(files_of(tmp_path / "parquet")) == moves
    (log / f"{INSTANCE}.0000000000.journal").unlink()
    archived(log, tmp_path / "parquet")
    assert_rows_once(spark, tmp_path / "parquet", 124)


def test_a_dry_run_needs_no_java_and_changes_nothing(log: Path, tmp_path: Path) -> None:
    environment = {"JAVA_HOME": "/nowhere"}
    with PipelineRun(tmp_path, "archive", log, tmp_path / "parquet", "--dry-run", **environment) as run:
        said = run.finish()
    assert said.splitlines() == [
        f"  0000000000        1,048,576 bytes  all  {log}/made.0000000000.journal",
        f"  0000000001        1,048,576 bytes  all  {log}/made.0000000001.journal",
        "to archive: 2 journals, 2,097,152 bytes; 0 are already archived",
    ]
    assert not (tmp_path / "parquet").exists()


def test_a_missing_java_is_one_sentence(log: Path, tmp_path: Path) -> None:
    with PipelineRun(tmp_path, "archive", log, tmp_path / "parquet", JAVA_HOME="/nowhere") as run:
        said = run.finish(1)
    assert re.fullmatch(
        r"error: Spark needs Java 17 or newer, and /nowhere/bin/java cannot be run .*: install a JDK .*\n",
        said,
    )
    assert not (tmp_path / "parquet").exists()


def test_the_command_by_itself(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    """In a process of its own it prints its results, and nothing else."""
    with PipelineRun(tmp_path, "archive", log, tmp_path / "parquet", "--master", "local[1]") as run:
        said = run.finish()
    first, second, *_ = said.splitlines()
    assert first.startswith("writing (")
    assert second.startswith("comparing (")
    assert "2 journals archived, 124 rows" in said
    assert_rows_once(spark, tmp_path / "parquet", 124)


HIDING = """
import importlib.util, sys
sys.modules["pyspark"] = None
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "pyspark" else real(name, package)
"""


def test_without_pyspark(log: Path, tmp_path: Path) -> None:
    """Help works; a command that needs PySpark says what to install."""
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    environment = {"PYTHONPATH": f"{tmp_path}:{package_path()}"}
    with PipelineRun(tmp_path, "archive", "--help", **environment) as run:
        said = " ".join(run.finish().split())
    for word in ("PARQUET", "-current", "-again", "-verify", "-master", "-dry-run", "Nothing is removed"):
        assert word in said
    with PipelineRun(tmp_path, "archive", log, tmp_path / "parquet", **environment) as run:
        said = run.finish(1)
    assert said == (
        "error: amps.spark needs pyspark, which is not installed: pip install 'amps-server[spark]'\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{journal}", "{journal}/parquet"), "lies in a directory of journals"),
        (("{empty}", "{parquet}"), "there are no journals in"),
        (("{journal}", "{parquet}", "-name", "other"), "there are no journals of instance 'other' in"),
        (("{journal}", "{parquet}", "-again", "2"), "journal 2 cannot be archived again"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(
    spark: "SparkSession", log: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    places = {name: tmp_path / name for name in ("journal", "empty", "parquet")}
    result = archive(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert said in result.output
    assert result.output.count("\n") == 1
    assert not (tmp_path / "parquet").exists()


def test_another_log_is_refused(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    archived(log, tmp_path / "parquet")
    shutil.rmtree(log)
    write_log(log, LOG_TOPICS, [[], messages(10), messages(10)], 1 << 21)
    result = archive(log, tmp_path / "parquet")
    assert result.exit_code == 1
    assert "journal 0 in" in result.output
    assert "is of another log" in result.output
