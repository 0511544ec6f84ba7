"""The writer of a streaming query: one run of each partition per micro-batch.

PySpark 4.0 passes Rows to the tasks of a stream; later versions pass Arrow batches to writers that request them. Rows
are converted to Arrow batches, so that the other modules handle only these.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from amps.spark.writing_options import ColumnPlan, WriteOptions
from amps.spark.writing_tasks import (
    WrittenPartition,
    check_partitions,
    logger,
    stream_numbering,
    told,
    write_partition,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _Base

    TAKES_ARROW = True
except ImportError:
    from pyspark.sql.datasource import DataSourceStreamWriter as _Base  # type: ignore[assignment, unused-ignore]

    TAKES_ARROW = False

ROWS_PER_BATCH = 1000


class StreamWriter(_Base):  # type: ignore[misc, unused-ignore]
    """Writes the micro-batches of a query; created on the driver, used in the tasks."""

    def __init__(self, options: WriteOptions, columns: ColumnPlan, schema: "StructType") -> None:
        self._options = options
        self._columns = columns
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WrittenPartition:
        """In a task: publish a partition of a micro-batch."""
        batches = iterator if TAKES_ARROW else batches_of(iterator, self._schema)
        return write_partition(batches, self._options, self._columns, stream_numbering(self._options))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: all rows are already persisted. Raises WriteError like `check_partitions`."""
        check_partitions(self._options, messages)
        logger.info("micro-batch %d written: %s", batchId, told(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: log the failure; published rows stay, and are found when the micro-batch is repeated."""
        logger.warning("micro-batch %d failed; %s stay published", batchId, told(messages))


def batches_of(rows: Iterator["Row"], schema: "StructType") -> Iterator["pa.RecordBatch"]:
    """Yield the rows as Arrow batches."""
    from pyspark.sql.conversion import LocalDataToArrowConversion

    while chunk := list(islice(rows, ROWS_PER_BATCH)):
        yield from LocalDataToArrowConversion.convert(chunk, schema, False).to_batches()
