"""The publisher name of a task, and the sequence number of each of its rows.

The server drops a message whose sequence number is not above the highest it has of that publisher
(transaction_log.md §4.2). Exactly once therefore needs two things that do not depend on how often, where or when a
task runs: the name of its publisher, and the number of each row.

- Each partition publishes under a name of its own, so that its rows are in one order and tasks do not wait for one
  another. The name contains the job, the query or run, and the partition: `orders/query=<id>/3`.
- A *run* is one unit of writing: one micro-batch of a stream, or one batch write. Run `r` of a partition owns
  the numbers above `r * 2**32` and below `(r + 1) * 2**32`; row `i`, counted from 0, has the number
  `r * 2**32 + i + 1`. Numbers between runs stay unused: gaps are allowed.

| write | publisher | run |
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
        """The number before the first row's; no row ever has it."""
        return self.run * (ROWS_PER_RUN + 1)

    def number(self, row: int) -> int:
        """Return the sequence number of a row, counted from 0."""
        if not 0 <= row < ROWS_PER_RUN:
            raise WriteError(f"a partition has at most {ROWS_PER_RUN} rows in one run")
        return self.floor + row + 1

    def rows_present(self, last_sequence: int) -> int:
        """Return the number of rows of this run that the server has, from its last number of the publisher.

        Raises WriteError if the server has rows of a later run: this run was completed before. The caller is then an
        obsolete attempt, or a run repeated from a checkpoint that is older than the last write.
        """
        if last_sequence > self.floor + ROWS_PER_RUN:
            later = last_sequence // (ROWS_PER_RUN + 1)
            raise WriteError(
                f"run {self.run} of publisher {self.publisher!r} cannot be written: the server has run {later} of it"
                " already. The numbers of runs must rise; a checkpoint older than the last run has the same effect"
            )
        return max(0, last_sequence - self.floor)


def stream_publisher(client_name: str, query_id: str, partition: int) -> str:
    """Return the publisher of a partition of a streaming query; it is the same for all of its micro-batches."""
    return f"{client_name}/query={query_id}/{partition}"


def run_publisher(client_name: str, run_id: str, partition: int) -> str:
    """Return the publisher of a partition of one batch write."""
    return f"{client_name}/run={run_id}/{partition}"


def driver_client(client_name: str) -> str:
    """Return the client name of the driver, which checks the server before the write; it publishes nothing."""
    return f"{client_name}/driver"


def numbered_publisher(client_name: str, partition: int) -> str:
    """Return the publisher of a partition of all batch writes that differ in `run_number`."""
    return f"{client_name}/number/{partition}"
