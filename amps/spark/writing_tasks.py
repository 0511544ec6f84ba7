"""The common part of the tasks of batches and streams, and the driver's check of the server before any task runs."""

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
"""Local properties that Spark sets for the tasks of a micro-batch."""

logger = logging.getLogger("amps.spark")


@dataclass
class WrittenPartition(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """The result that a task sends to the driver."""

    numbering: Numbering
    rows: int
    found: int
    """The number of rows that an earlier attempt had published."""


def write_partition(
    batches: Iterator["pa.RecordBatch"], options: WriteOptions, columns: ColumnPlan, numbering: Numbering
) -> WrittenPartition:
    """Publish the rows of a partition that the server does not have."""
    with PartitionPublisher(options, numbering) as publisher:
        written = publisher.publish_all(message_rows(batches, columns, options.topic))
    return WrittenPartition(numbering, written.rows, written.found)


def stream_numbering(options: WriteOptions) -> Numbering:
    """Return publisher and sequence numbers of the current task of a micro-batch."""
    task = this_task()
    query_id, batch_id = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query_id is None or batch_id is None:
        raise WriteError("this is no task of a streaming query with micro-batches: only those can be written")
    return options.stream_numbering(query_id, int(batch_id), task.partitionId())


def check_server(options: WriteOptions) -> None:
    """On the driver: check that the server can be reached and records the topic. Raises WriteError if not."""
    client = Client(driver_client(options.client_name), options.uri, timeout=options.timeout_s)
    try:
        log_on(client, options.timeout_s)
        if options.topic is not None and not options.allow_unrecorded:
            check_recorded(client, options.topic)
    except PASSING as error:
        raise WriteError(f"the connection was lost during the check of the topic: {error}") from error
    finally:
        client.close()


def check_partitions(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """On the driver, after all tasks: check that a repeated run did not have more partitions before.

    Otherwise the rows of a partition that no longer exists were written a second time, by another partition. Only the
    driver can detect that, at the end: no task knows the number of partitions. Raises WriteError in this case.
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
            f"run {one.run} was written before with more than {len(messages)} partitions, so rows were published"
            " twice: a run must be repeated with the same partitions. The parameters of their number (files, cores,"
            " spark.sql.shuffle.partitions) must be as before"
        )


def told(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Return the sums of the tasks' results as a text."""
    done = [message for message in messages if isinstance(message, WrittenPartition)]
    rows, found = sum(message.rows for message in done), sum(message.found for message in done)
    return f"{rows} rows of {len(done)} of {len(messages)} partitions, {found} of them by earlier attempts"


def this_task() -> TaskContext:
    """Return the current task."""
    task = TaskContext.get()
    if task is None:
        raise WriteError("rows are written in Spark's tasks only")
    return task
