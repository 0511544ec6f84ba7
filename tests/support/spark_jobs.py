"""Spark drivers in processes of their own, which tests can kill: `python -m tests.support.spark_jobs <job> <json>`.

`batch` and `stream` write the rows `{"p": partition or file, "n": place there}`, so that a test can see whether each
partition's rows are there once and in order. `follow` writes the rows that a stream reads to files, `copy` writes
them to a topic.
"""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Self

import psutil

ARROW_ROWS = 500


class SparkJob:
    """A driver and all processes that it has started; use `with`."""

    def __init__(self, directory: Path, job: str, **arguments: Any) -> None:
        self._output = directory / f"{job}.log"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.support.spark_jobs", job, json.dumps(arguments)],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL the driver, its JVM and its Python workers."""
        try:
            processes = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            processes = []
        self._process.kill()
        for process in processes:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self._process.wait(10)
        psutil.wait_procs(processes, 10)

    def finish(self, timeout_s: float = 300) -> None:
        """Wait for its end, which must be a success."""
        assert self._process.wait(timeout_s) == 0, self.output()

    def output(self) -> str:
        return self._output.read_text(errors="replace")[-8000:]


def main(job: str, arguments: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from tests.support.spark_source import register

    spark = (
        SparkSession.builder.master(arguments.pop("master", "local[2,4]"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", ARROW_ROWS)
        .config("spark.sql.files.openCostInBytes", "128MB")  # each file is a partition of its own
        .getOrCreate()
    )
    register(spark)
    try:
        JOBS[job](spark, **arguments)
    finally:
        spark.stop()


def batch(spark: Any, rows: int, partitions: int, options: dict[str, Any]) -> None:
    """`rows` rows in the given number of partitions."""
    each = rows // partitions
    frame = spark.range(0, rows, 1, partitions).selectExpr(f"id div {each} as p", f"id % {each} as n")
    frame.write.format("troubled").mode("append").options(**options).save()


def stream(spark: Any, source: str, checkpoint: str, files_per_batch: int, options: dict[str, Any]) -> None:
    """All rows in the files of a directory, some files per micro-batch."""
    frame = (
        spark.readStream.schema("p long, n long").option("maxFilesPerTrigger", files_per_batch).json(source)
    )
    query = (
        frame.writeStream.format("troubled")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def follow(
    spark: Any, out: str, checkpoint: str, pause_s: float, options: dict[str, Any], die: bool = False
) -> None:
    """Write the rows of a stream: each attempt of a micro-batch to a directory of its own, `<id>.<random>`, and then
    a pause.

    The rows are `n` and `task`, the task that read it. `die`: the first attempt of each task ends its process.
    """
    from pyspark.sql.functions import spark_partition_id

    from tests.support.spark_source import troubled

    def keep(frame: Any, number: int) -> None:
        rows = frame.withColumn("task", spark_partition_id())
        if die:
            rows = rows.mapInArrow(lambda batches: troubled(batches, 1, 0), rows.schema)
        rows.write.parquet(f"{out}/{number:06d}.{uuid.uuid4().hex}")
        time.sleep(pause_s)

    frame = spark.readStream.format("amps").options(schema="n int", **options).load()
    query = (
        frame.selectExpr("data.n as n")
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def copy(spark: Any, checkpoint: str, options: dict[str, Any], written: dict[str, Any]) -> None:
    """Write a stream to a topic."""
    frame = spark.readStream.format("amps").options(schema="p int, n int", **options).load()
    query = (
        frame.selectExpr("data.p as p", "data.n as n")
        .writeStream.format("troubled")
        .options(**written)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


JOBS = {"batch": batch, "stream": stream, "follow": follow, "copy": copy}

if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
