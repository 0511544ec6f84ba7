"""`spark.readStream.format("amps")`: the log as a stream, from a live server or a journal directory.

    spark.readStream.format("amps").options(uri="tcp://localhost:9007/amps/json", topic="orders").load()
    spark.readStream.format("amps").option("topic", "orders").load("/var/lib/amps/journal")

Options, columns and costs are described in `streaming_options`. What is promised:

- A micro-batch is a range of the log. Its offset holds where it ends, and the ranges that its tasks read, so the same
  micro-batch has the same rows, in the same tasks, in the same order, however often it is run, and whatever dies:
  the driver, executors, the server. Spark has the offset in its checkpoint before any task runs.
- Nothing is left out and nothing comes twice between two micro-batches. If the journals of a range were removed
  before it was read, the query fails and says so.
- Only what is durable is read.

`streaming_server` and `streaming_journals` find out what the next micro-batch is, and read it. What they have in common
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
