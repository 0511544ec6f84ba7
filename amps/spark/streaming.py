"""`spark.readStream.format("amps")`: the log as a stream, from a live server or a journal directory.

    spark.readStream.format("amps").options(uri="tcp://localhost:9007/amps/json", topic="orders").load()
    spark.readStream.format("amps").option("topic", "orders").load("/var/lib/amps/journal")

Options, columns and costs are described in `streaming_options`. Guarantees:

- A micro-batch is a range of the log. Its offset contains its end and the ranges that its tasks read. So the same
  micro-batch has the same rows, in the same tasks, in the same order, also if it is repeated after a failure of
  the driver, of executors or of the server. Spark has the offset in its checkpoint before any task runs.
- No row is lost or repeated between two micro-batches. If the journals of a range were removed
  before it was read, the query fails with an error.
- Only durable records are read.

`streaming_server` and `streaming_journals` determine the next micro-batch and read it. Their common part
is in `streaming_reader`.
"""

from amps.spark.streaming_journals import JournalStreamReader
from amps.spark.streaming_options import JournalOptions, ServerOptions
from amps.spark.streaming_reader import LogStreamReader
from amps.spark.streaming_server import ServerStreamReader


def stream_reader(options: ServerOptions | JournalOptions, columns: tuple[str, ...]) -> LogStreamReader:
    """For `DataSource.streamReader`."""
    if isinstance(options, ServerOptions):
        return ServerStreamReader(options, columns)
    return JournalStreamReader(options, columns)
