"""Who a task publishes as, and the sequence number of each of its rows.

The server drops a message whose sequence number is not above the highest it has of that publisher
(transaction_log.md §4.2). Exactly once therefore needs two things that do not depend on how often, where or when a
task runs: the name of its publisher, and the number of each row.

- Each partition publishes under a name of its own, so that its rows are in one order and tasks do not wait for one
  another. The name tells the job, what is written, and the partition: `orders/query=<id>/3`.
- A *run* is what is written as a whole: one micro-batch of a stream, or one batch write. Run `r` of a partition owns
  the numbers above `r * 2**32` and below `(r + 1) * 2**32`; row `i`, counted from 0, has the number
  `r * 2**32 + i + 1`. Numbers between runs stay unused: gaps are allowed.

| what is written | publisher | run |
| --- | --- | --- |
| a stream | `<client_name>/query=<query id>/<partition>` | the micro-batch's id |
| a batch with `run_number` | `<client_name>/number/<partition>` | that number |
| any other batch | `<client_name>/run=<run_id>/<partition>` | 0 |

So a stream, and batches with `run_number`, have as many publishers as partitions, however often they run.
"""

from dataclasses import dataclass

from amps.spark.writing_errors import WriteError

ROWS_PER_RUN = 2**32 - 1
MAX_RUN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Numbering:
    """The publisher of one partition in one run, and its numbers."""

    publisher: str
    run: int

    def __post_init__(self) -> None:
        if not 0 <= self.run <= MAX_RUN:
            raise WriteError(f"runs and micro-batches are numbered from 0 to {MAX_RUN}: {self.run}")

    @property
    def floor(self) -> int:
        """The number below that of the first row; no row ever has it."""
        return self.run * (ROWS_PER_RUN + 1)

    def number(self, row: int) -> int:
        """The sequence number of a row, counted from 0."""
        if not 0 <= row < ROWS_PER_RUN:
            raise WriteError(f"a partition has at most {ROWS_PER_RUN} rows in one run")
        return self.floor + row + 1

    def rows_present(self, last_sequence: int) -> int:
        """How many rows of this run the server has, if this is the last number it has of the publisher.

        WriteError if it has rows of a later run: this one was done then, and what is written now is either an attempt
        that nobody waits for any more, or a run repeated from a checkpoint that is older than what was written.
        """
        if last_sequence > self.floor + ROWS_PER_RUN:
            later = last_sequence // (ROWS_PER_RUN + 1)
            raise WriteError(
                f"run {self.run} of publisher {self.publisher!r} cannot be written: the server has run {later} of it"
                " already. Runs are numbered upwards; a checkpoint older than the last one leads here too"
            )
        return max(0, last_sequence - self.floor)


def stream_publisher(client_name: str, query_id: str, partition: int) -> str:
    """The publisher of a partition of a streaming query; the same for all of its micro-batches."""
    return f"{client_name}/query={query_id}/{partition}"


def run_publisher(client_name: str, run_id: str, partition: int) -> str:
    """The publisher of a partition of one batch write."""
    return f"{client_name}/run={run_id}/{partition}"


def driver_client(client_name: str) -> str:
    """The name under which the driver asks the server before anything is written; it publishes nothing."""
    return f"{client_name}/driver"


def numbered_publisher(client_name: str, partition: int) -> str:
    """The publisher of a partition of all batch writes that are told apart by `run_number`."""
    return f"{client_name}/number/{partition}"
