"""Statistics of queues that the core does not count: queries (queues.md §18, D-39), and transactions that a worker
refuses (queue_guarantees.md Q-60).

Workers count what they answer, each in words of its own; the services process reports the sums.

Invariant: each word has one writer.
"""

import mmap


class QueueStatistics:
    """Counts in memory that all processes of an instance share. `queues`: number of configured queues."""

    def __init__(self, workers: int, queues: int) -> None:
        self._workers = workers
        self._queues = queues
        size = 8 * workers * queues
        self._memory = mmap.mmap(-1, 2 * size or 1)
        self._queries = memoryview(self._memory)[:size].cast("Q")
        self._refused_transactions = memoryview(self._memory)[size : 2 * size].cast("Q")

    def reset(self) -> None:
        """Begin to count from 0, with a new core."""
        self._memory[:] = bytes(len(self._memory))

    def count_query(self, worker: int, queue: int) -> None:
        """Count a query of a queue that a worker answers."""
        self._queries[worker * self._queues + queue] += 1

    def queries(self, queue: int) -> int:
        """How often a queue was queried."""
        return sum(self._queries[worker * self._queues + queue] for worker in range(self._workers))

    def count_refused_transaction(self, worker: int, queue: int) -> None:
        """Count a transaction of a queue's messages in which a worker has found a failure."""
        self._refused_transactions[worker * self._queues + queue] += 1

    def refused_transactions(self, queue: int) -> int:
        """How many transactions the workers have refused; those that the fence refused are not among them."""
        return sum(
            self._refused_transactions[worker * self._queues + queue] for worker in range(self._workers)
        )
