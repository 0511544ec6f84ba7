"""`df.write.format("amps")` and `df.writeStream.format("amps")`: rows to topics, exactly once.

    df.write.format("amps").mode("append").options(uri="tcp://localhost:9007/amps/json", topic="orders").save()
    df.writeStream.format("amps").options(uri=…, topic="orders", checkpointLocation=…).start()

Options and columns are described in `writing_options`. What is promised:

- Every row is in the server's transaction log once, in the order of its partition, however often its task was run,
  and a task ends only when all of its rows are acknowledged as persisted. It may be run again after a failure, run
  twice at a time (speculation is safe, but of no use: the two take the publisher's name from one another), lose its
  executor, or find the server restarted.
- A streaming query that is started again from its checkpoint goes on where it was. A batch that is written again
  after the driver was lost needs a `run_id` or `run_number`, or it is another batch.
- Rows are published while tasks run, not when the job ends: a topic cannot be rolled back. A job that failed leaves
  the rows it has published, and repeating it adds the rest.

What that asks for:

- The rows of a partition must be the same in the same order when a task, or a micro-batch, is repeated. With
  Spark's sources they are, as long as what decides how rows are spread (the files, the cores of the master,
  `spark.sql.shuffle.partitions`) is as before. What is there is compared (option `verify`), so that a task fails
  where it would lose rows or publish them twice. Where fewer partitions than before have taken over rows of others,
  that is seen and told at the end only.
- Topics must be recorded in a transaction log: without one the server forgets what it had. Others are refused, on
  the driver if the topic is an option, by the task before its first message if it is a column.
- In a micro-batch a partition has at most 2**32 - 1 rows.

The schema and the options are checked, and the server is asked about the topic, when the write is planned on the
driver, before any task runs.
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
    """Writes one batch; made on the driver, run in the tasks."""

    def __init__(self, options: WriteOptions, columns: ColumnPlan) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WrittenPartition:
        """In a task: publish a partition."""
        numbering = self._options.batch_numbering(this_task().partitionId())
        return write_partition(iterator, self._options, self._columns, numbering)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: everything is persisted already. WriteError as `check_partitions` says."""
        check_partitions(self._options, messages)
        logger.info("written: %s", told(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver: what was published stays."""
        logger.warning("the write failed; %s stay published", told(messages))


def batch_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> BatchWriter:
    """For `DataSource.writer`: checks everything that can be checked before a task runs."""
    if overwrite:
        raise WriteOptionError("messages cannot be overwritten: use mode('append')")
    parsed, columns = plan_write(options, schema, streaming=False)
    check_server(parsed)
    return BatchWriter(parsed, columns)


def stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> DataSourceStreamWriter:
    """For `DataSource.streamWriter`. With output mode `complete` (overwrite) each batch publishes the whole result."""
    parsed, columns = plan_write(options, schema, streaming=True)
    check_server(parsed)
    return StreamWriter(parsed, columns, schema)
