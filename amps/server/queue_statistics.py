"""Statistics of queues that the core does not count: queries (queues.md §18, D-39).

Workers count the queries of queues that they answer, each in words of its own; the services process reports their sum.

Invariant: each word has one writer.
"""

import mmap


class QueueStatistics:
    """Counts in memory that all processes of an instance share. `queues`: number of configured queues."""

    def __init__(self, workers: int, queues: int) -> None:
        self._workers = workers
        self._queues = queues
        self._memory = mmap.mmap(-1, 8 * workers * queues or 1)
        self._queries = memoryview(self._memory)[: 8 * workers * queues].cast("Q")

    def reset(self) -> None:
        """Begin to count from 0, with a new core."""
        self._memory[:] = bytes(len(self._memory))

    def count_query(self, worker: int, queue: int) -> None:
        """Count a query of a queue that a worker answers."""
        self._queries[worker * self._queues + queue] += 1

    def queries(self, queue: int) -> int:
        """How often a queue was queried."""
        return sum(self._queries[worker * self._queues + queue] for worker in range(self._workers))
