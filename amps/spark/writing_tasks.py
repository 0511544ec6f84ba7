"""What the tasks of batches and of streams have in common, and what the driver asks the server before any runs."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from amps.client import Client
from amps.spark.writing_connection import PASSING, check_recorded, log_on
from amps.spark.writing_errors import WriteError
from amps.spark.writing_numbers import Numbering, driver_client
from amps.spark.writing_options import ColumnPlan, WriteOptions
from amps.spark.writing_publisher import PartitionPublisher
from amps.spark.writing_rows import message_rows

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Local properties that Spark gives the tasks of a micro-batch."""

logger = logging.getLogger("amps.spark")


@dataclass
class WrittenPartition(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """What a task tells the driver."""

    numbering: Numbering
    rows: int
    found: int
    """Rows that an earlier attempt had published."""


def write_partition(
    batches: Iterator["pa.RecordBatch"], options: WriteOptions, columns: ColumnPlan, numbering: Numbering
) -> WrittenPartition:
    """Publish the rows of a partition that the server does not have."""
    with PartitionPublisher(options, numbering) as publisher:
        written = publisher.publish_all(message_rows(batches, columns, options.topic))
    return WrittenPartition(numbering, written.rows, written.found)


def stream_numbering(options: WriteOptions) -> Numbering:
    """Publisher and numbers of the micro-batch's task that runs here."""
    task = this_task()
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise WriteError("this is no task of a streaming query with micro-batches: others cannot be written")
    return options.stream_numbering(query_id, int(batch_id), task.partitionId())


def check_server(options: WriteOptions) -> None:
    """On the driver: the server can be reached, and keeps what is written. WriteError if not."""
    client = Client(driver_client(options.client_name), options.uri, timeout=options.timeout_s)
    try:
        log_on(client, options.timeout_s)
        if options.topic is not None and not options.allow_unrecorded:
            check_recorded(client, options.topic)
    except PASSING as error:
        raise WriteError(f"the server went away while it was asked about the topic: {error}") from error
    finally:
        client.close()


def check_partitions(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """On the driver, when all tasks are done: a run that was repeated must have had no more partitions before.

    Rows of a partition that there is no more now were written by another one, a second time. Only the driver can see
    that, and only at the end: no task knows how many there are. WriteError if it is so.
    """
    done = [message for message in messages if isinstance(message, WrittenPartition)]
    if not any(message.found for message in done):
        return
    one = done[0].numbering
    following = Numbering(f"{one.publisher.rpartition('/')[0]}/{len(messages)}", one.run)
    client = Client(following.publisher, options.uri, timeout=options.timeout_s)
    try:
        more = following.rows_present(log_on(client, options.timeout_s).sequence or 0)
    finally:
        client.close()
    if more:
        raise WriteError(
            f"run {one.run} was written before with more than {len(messages)} partitions, so that rows have now come"
            " twice: a run is repeated with the same partitions only. What decides their number (files, cores,"
            " spark.sql.shuffle.partitions) must be as before"
        )


def told(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The sums of what tasks told, in words."""
    done = [message for message in messages if isinstance(message, WrittenPartition)]
    rows, found = sum(message.rows for message in done), sum(message.found for message in done)
    return f"{rows} rows of {len(done)} of {len(messages)} partitions, {found} of them by earlier attempts"


def this_task() -> TaskContext:
    """The task that runs here."""
    task = TaskContext.get()
    if task is None:
        raise WriteError("rows are written in Spark's tasks only")
    return task
