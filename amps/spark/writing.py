"""`df.write.format("amps")` and `df.writeStream.format("amps")`: rows to topics, exactly once.

    df.write.format("amps").mode("append").options(uri="tcp://localhost:9007/amps/json", topic="orders").save()
    df.writeStream.format("amps").options(uri=…, topic="orders", checkpointLocation=…).start()

Options and columns are described in `writing_options`. Guarantees:

- Every row is in the server's transaction log once, in the order of its partition, however often its task was run.
  A task ends only when all of its rows are acknowledged as persisted. It may be repeated after a failure, lose its
  executor, or reconnect to a restarted server. Two attempts may run at the same time; speculation is safe, but useless:
  the two take the publisher's name from each other.
- A streaming query that is started again from its checkpoint continues where it was. A batch that is written again
  after the driver was lost needs a `run_id` or `run_number`; otherwise it is another batch.
- Rows are published while tasks run, not when the job ends: a topic cannot be rolled back. A failed job leaves
  the rows it has published; repeating it adds the rest.

Requirements:

- The rows of a partition must be the same in the same order when a task, or a micro-batch, is repeated. With
  Spark's sources they are, as long as the parameters of partitioning (the files, the cores of the master,
  `spark.sql.shuffle.partitions`) do not change. Rows are compared with the server's log (option `verify`), so a task
  fails before it loses rows or publishes them twice. A repetition with fewer partitions, which then have rows of other
  partitions, is detected only at the end.
- Topics must be recorded in a transaction log: without one the server does not keep messages. Other topics are refused,
  on the driver if the topic is an option, by the task before its first message if it is a column.
- In a micro-batch a partition has at most 2**32 - 1 rows.

When the write is planned on the driver, before any task runs, the schema and the options are checked, and the server
must confirm that the topic is recorded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from amps.spark.writing_errors import WriteOptionError
from amps.spark.writing_options import ColumnPlan, WriteOptions, plan_write
from amps.spark.writing_streams import StreamWriter
from amps.spark.writing_tasks import (
    WrittenPartition,
    check_partitions,
    check_server,
    logger,
    this_task,
    told,
    write_partition,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Writes one batch; created on the driver, used in the tasks."""

    def __init__(self, options: WriteOptions, columns: ColumnPlan) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WrittenPartition:
        """In a task: publish a partition."""
        numbering = self._options.batch_numbering(this_task().partitionId())
        return write_partition(iterator, self._options, self._columns, numbering)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: all rows are already persisted. Raises WriteError like `check_partitions`."""
        check_partitions(self._options, messages)
        logger.info("written: %s", told(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: log the failure; published rows stay."""
        logger.warning("the write failed; %s stay published", told(messages))


def batch_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> BatchWriter:
    """Return the writer for `DataSource.writer`, after all checks that are possible before a task runs."""
    if overwrite:
        raise WriteOptionError("messages cannot be overwritten: use mode('append')")
    parsed, columns = plan_write(options, schema, streaming=False)
    check_server(parsed)
    return BatchWriter(parsed, columns)


def stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> DataSourceStreamWriter:
    """Return the writer for `DataSource.streamWriter`. With output mode `complete` each batch publishes all rows."""
    parsed, columns = plan_write(options, schema, streaming=True)
    check_server(parsed)
    return StreamWriter(parsed, columns, schema)
