"""Data sources for tests, beside the project's own: one with tasks that die or wait, and one that reports on
planning.

Writing to `troubled`: the options `die_after_batches` and `pause_s` belong to the tests. The first attempt of each
task ends its process by SIGKILL after that number of Arrow batches, and every attempt waits before each batch. A read
of `planned` has one row: the number of simultaneous tasks that planning assumes.
"""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

import amps.spark
from amps.spark.task_sizes import PARALLELISM
from amps.spark.writing import BatchWriter, batch_writer, stream_writer
from amps.spark.writing_streams import StreamWriter
from amps.spark.writing_tasks import WrittenPartition

TROUBLES = ("die_after_batches", "pause_s")


class TroubledSource(DataSource):
    """Writes in tasks that die or wait."""

    @classmethod
    def name(cls) -> str:
        return "troubled"

    def _split(self) -> tuple[dict[str, str], dict[str, float]]:
        options = dict(self.options)
        troubles = {name: float(options.pop(name, 0)) for name in TROUBLES}
        return options, troubles

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options, troubles = self._split()
        writer = batch_writer(options, schema, overwrite)
        writer.__class__ = TroubledBatchWriter
        writer.troubles = troubles
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options, troubles = self._split()
        writer = stream_writer(options, schema, overwrite)
        writer.__class__ = TroubledStreamWriter
        writer.troubles = troubles
        return writer


class TroubledBatchWriter(BatchWriter):
    troubles: dict[str, float]

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        return super().write(troubled(iterator, **self.troubles))


class TroubledStreamWriter(StreamWriter):
    troubles: dict[str, float]

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        return super().write(troubled(iterator, **self.troubles))


class PlannedSource(DataSource):
    """Facts about the session that the planning process knows."""

    @classmethod
    def name(cls) -> str:
        return "planned"

    def schema(self) -> str:
        return "parallelism string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PlannedReader()


class PlannedReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(os.environ.get(PARALLELISM))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any]]:
        yield (partition.value,)


def troubled(iterator: Iterator[Any], die_after_batches: float, pause_s: float) -> Iterator[Any]:
    first_attempt = TaskContext.get().attemptNumber() == 0
    for number, batch in enumerate(iterator):
        if die_after_batches and number == die_after_batches and first_attempt:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(pause_s)
        yield batch


def register(spark: SparkSession) -> None:
    """Register the formats `amps` and `troubled`."""
    amps.spark.register(spark)
    spark.dataSource.register(TroubledSource)
