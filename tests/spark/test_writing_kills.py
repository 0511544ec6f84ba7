"""Exactly once when Python workers, the driver or the server die. What dies runs in processes of its own."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Java is not installed", allow_module_level=True)

from amps.client import EPOCH, Client
from tests.support import spark_jobs
from tests.support.server import ServerProcess, StartServer
from tests.support.spark_jobs import SparkJob
from tests.support.spark_source import register
from tests.support.written_rows import check_rows, logged_rows

pytestmark = pytest.mark.timeout(600)

TOPIC = "L/rows"


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(log_topics=("^L/",))


def uri_of(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def options_for(server: ServerProcess, **changes: Any) -> dict[str, Any]:
    return {"uri": uri_of(server), "topic": TOPIC, "client_name": "job", "timeout_s": 30, **changes}


def wait_for_rows(server: ServerProcess, count: int, job: SparkJob) -> None:
    """Wait until that number of rows is in the log."""
    with Client(None, uri_of(server)) as client, client.bookmark_subscribe(TOPIC, EPOCH) as stream:
        seen = 0
        while seen < count:
            if stream.get(0.5) is not None:
                seen += 1
            elif not job.running:
                raise AssertionError(f"the job ended with {seen} rows\n{job.output()}")


def test_python_workers_that_die(server: ServerProcess, tmp_path: Path) -> None:
    """The first attempt of each of the four tasks is killed when it has published 1500 rows."""
    options = options_for(server, die_after_batches=3)
    with SparkJob(tmp_path, "batch", rows=20_000, partitions=4, options=options) as job:
        job.finish()
        assert "Python worker exited unexpectedly" in job.output() or "crashed" in job.output()
    logged = check_rows(uri_of(server), TOPIC, dict.fromkeys(range(4), 5000))
    assert len({row.publisher_id for row in logged}) == 4


def test_a_batch_whose_driver_is_killed(spark: Any, server: ServerProcess, tmp_path: Path) -> None:
    """Run again with the same run_id, by another driver (the session of the tests), the batch adds what is missing."""
    batch: dict[str, Any] = {"rows": 20_000, "partitions": 4}
    options = options_for(server, run_id="monday")
    with SparkJob(tmp_path, "batch", **batch, options={**options, "pause_s": 0.1}) as job:
        wait_for_rows(server, 4_000, job)
        job.kill()
    assert 4_000 <= len(logged_rows(uri_of(server), TOPIC)) < 20_000
    register(spark)
    spark_jobs.batch(spark, **batch, options=options)
    check_rows(uri_of(server), TOPIC, dict.fromkeys(range(4), 5000))


def make_files(directory: Path, count: int, rows: int) -> dict[int, int]:
    """Write files of rows, and return the rows that the log must hold."""
    directory.mkdir()
    for p in range(count):
        path = directory / f"{p}.json"
        path.write_text("".join(f"{json.dumps({'p': p, 'n': n})}\n" for n in range(rows)))
        os.utime(path, (p, p))  # oldest first
    return dict.fromkeys(range(count), rows)


@pytest.mark.long
def test_a_stream_whose_driver_is_killed(server: ServerProcess, tmp_path: Path) -> None:
    """Restarted from its checkpoint, the query continues with the micro-batch that was under way: three files in the
    first, two in the second. Partitions of both share publishers.
    """
    rows_of = make_files(tmp_path / "in", 5, 5000)
    stream: dict[str, Any] = {
        "source": str(tmp_path / "in"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "files_per_batch": 3,
    }
    options = options_for(server)
    for rows in (4_000, 18_000):
        with SparkJob(tmp_path, "stream", **stream, options={**options, "pause_s": 0.1}) as job:
            wait_for_rows(server, rows, job)
            job.kill()
        assert rows <= len(logged_rows(uri_of(server), TOPIC)) < 25_000
    with SparkJob(tmp_path, "stream", **stream, options=options) as job:
        job.finish()
    logged = check_rows(uri_of(server), TOPIC, rows_of)
    assert len({row.publisher_id for row in logged}) == 3


@pytest.mark.long
def test_a_stream_whose_server_is_killed(server: ServerProcess, tmp_path: Path) -> None:
    rows_of = make_files(tmp_path / "in", 4, 5000)
    options = options_for(server, pause_s=0.1)
    stream: dict[str, Any] = {
        "source": str(tmp_path / "in"),
        "checkpoint": str(tmp_path / "checkpoint"),
        "files_per_batch": 2,
    }
    with SparkJob(tmp_path, "stream", **stream, options=options) as job:
        for rows in (2_000, 12_000):
            wait_for_rows(server, rows, job)
            server.kill_all()
            time.sleep(0.5)  # connections are refused meanwhile
            server.start()
        job.finish()
    check_rows(uri_of(server), TOPIC, rows_of)
