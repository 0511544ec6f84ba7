"""Streams whose driver or workers are killed.

The same micro-batch has the same rows in the same tasks, and no other row comes twice or is missing. Every driver is
a process of its own.
"""

import json
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Java is not installed", allow_module_level=True)

from pyarrow import parquet

from tests.support.micro_batches import numbered, publish
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.spark_jobs import SparkJob
from tests.support.written_rows import check_rows, logged_rows

pytestmark = pytest.mark.timeout(900)

TOPIC = "L/rows"
WAIT_S = 240  # the work takes seconds on an idle machine
STARTS_MAX = 4
SLOW_START = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start. On a busy machine that causes one more death of the driver."""
Rows = list[tuple[int, int]]


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(log_topics=("^L/",))


def uri_of(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def source_of(server: ServerProcess, kind: str) -> dict[str, Any]:
    if kind == "server":
        return {"uri": uri_of(server), "topic": TOPIC}
    return {"path": str(server.journal_directory), "topic": TOPIC}


def finished(out: Path) -> list[Path]:
    """The attempts whose rows are all there."""
    return sorted(path for path in out.glob("*.*") if (path / "_SUCCESS").exists())


def attempts(out: Path) -> dict[int, list[Rows]]:
    """By micro-batch, the rows of each attempt as (task, n), sorted by task, in the order of its file."""
    found: dict[int, list[Rows]] = defaultdict(list)
    for path in finished(out):
        rows: Rows = []
        for file in sorted(path.glob("part-*")):
            table = parquet.read_table(file)
            rows += zip(table["task"].to_pylist(), table["n"].to_pylist(), strict=True)
        found[int(path.name.partition(".")[0])].append(sorted(rows, key=lambda row: row[0]))
    return found


def kill_when(condition: Callable[[], bool], directory: Path, job: str, **arguments: Any) -> None:
    """Run a driver, and kill it when the condition holds."""
    for _ in range(STARTS_MAX):
        with SparkJob(directory, job, **arguments) as driver:
            wait_until(lambda: _look(condition) or not driver.running, WAIT_S, driver.output)
            if driver.running:
                return
            assert SLOW_START in driver.output(), driver.output()
    raise AssertionError("Spark could not start its Python processes in time")


def _look(condition: Callable[[], bool]) -> bool:
    time.sleep(0.2)  # each check takes time from the driver
    return condition()


def run_to_the_end(directory: Path, job: str, **arguments: Any) -> str:
    """Run a driver until it has read everything. Return its output."""
    for left in reversed(range(STARTS_MAX)):
        with SparkJob(directory, job, **arguments) as driver:
            try:
                driver.finish()
            except AssertionError:
                if SLOW_START not in driver.output() or not left:
                    raise
            else:
                break
    return driver.output()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["server", "journals"])
def test_a_driver_that_is_killed(server: ServerProcess, tmp_path: Path, kind: str) -> None:
    """The driver is killed twice in the pause between reading a micro-batch and committing it. Meanwhile the log
    grows and the options change.
    """
    out = tmp_path / "out"
    job: dict[str, Any] = {"out": str(out), "checkpoint": str(tmp_path / "checkpoint")}
    published = 0
    for number, limit in enumerate((400, 700)):
        publish(uri_of(server), TOPIC, numbered(published, published + 1500), f"publisher-{number}")
        published += 1500
        options = {**source_of(server, kind), "max_messages_per_batch": limit, "partitions": 2 + number}
        before = len(finished(out))
        # One attempt more than the repeated one.
        wanted = before + 2
        kill_when(
            lambda: len(finished(out)) >= wanted,  # noqa: B023
            tmp_path,
            "follow",
            **job,
            pause_s=3,
            options=options,
        )
    options = {**source_of(server, kind), "max_messages_per_batch": 500}
    run_to_the_end(tmp_path, "follow", **job, pause_s=0, options=options)
    found = attempts(out)
    repeated = [rows for rows in found.values() if len(rows) > 1]
    assert repeated
    assert all(rows == batch[0] for batch in repeated for rows in batch)
    assert {task for task, _ in repeated[0][0]} == {0, 1}
    assert [n for number in sorted(found) for _, n in found[number][0]] == list(range(published))


def test_workers_that_die(server: ServerProcess, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(uri_of(server), TOPIC, numbered(0, 3000))
    output = run_to_the_end(
        tmp_path,
        "follow",
        out=str(out),
        checkpoint=str(tmp_path / "checkpoint"),
        pause_s=0,
        die=True,
        options={**source_of(server, "server"), "partitions": 2},
    )
    assert "Python worker exited unexpectedly" in output or "crashed" in output
    assert [n for rows in attempts(out).values() for _, n in rows[0]] == list(range(3000))


@pytest.mark.long
def test_a_server_that_is_killed(server: ServerProcess, tmp_path: Path) -> None:
    out = tmp_path / "out"
    publish(uri_of(server), TOPIC, numbered(0, 3000))
    with SparkJob(
        tmp_path,
        "follow",
        out=str(out),
        checkpoint=str(tmp_path / "checkpoint"),
        pause_s=0.2,
        options={**source_of(server, "server"), "partitions": 2, "max_messages_per_batch": 300},
    ) as driver:
        for count in (2, 5):
            wait_until(lambda: len(finished(out)) >= count or not driver.running, WAIT_S, driver.output)  # noqa: B023
            server.kill_all()
            time.sleep(0.5)  # connections are refused meanwhile
            server.start()
        driver.finish()
    found = attempts(out)
    assert [n for number in sorted(found) for _, n in found[number][0]] == list(range(3000))


@pytest.mark.long
def test_a_copy_whose_driver_is_killed(server: ServerProcess, tmp_path: Path) -> None:
    """From one topic to another, exactly once: the writer compares the rows of a repeated task with the log."""
    rows = [json.dumps({"p": 0, "n": n}).encode() for n in range(6000)]
    publish(uri_of(server), TOPIC, rows)
    copy: dict[str, Any] = {
        "checkpoint": str(tmp_path / "checkpoint"),
        "options": {**source_of(server, "server"), "max_messages_per_batch": 2000},
    }
    written = {"uri": uri_of(server), "topic": "L/copy", "client_name": "job", "timeout_s": 30}
    kill_when(
        lambda: len(logged_rows(uri_of(server), "L/copy")) >= 2500,
        tmp_path,
        "copy",
        **copy,
        written={**written, "pause_s": 0.3},
    )
    assert 2500 <= len(logged_rows(uri_of(server), "L/copy")) < 6000
    run_to_the_end(tmp_path, "copy", **copy, written=written)
    check_rows(uri_of(server), "L/copy", {0: 6000})
