"""What there is to know of queues that the core does not count: queries (queues.md §18, D-39).

Workers count the queries of queues that they answer, each in words of its own; the services process shows their sum.

Invariant: each word has one writer.
"""

import mmap


class QueueStatistics:
    """In memory that all processes of an instance share. `queues` of the configuration, by number."""

    def __init__(self, workers: int, queues: int) -> None:
        self._workers = workers
        self._queues = queues
        self._memory = mmap.mmap(-1, 8 * workers * queues or 1)
        self._queries = memoryview(self._memory)[: 8 * workers * queues].cast("Q")

    def reset(self) -> None:
        """Begin to count anew, with a new core."""
        self._memory[:] = bytes(len(self._memory))

    def count_query(self, worker: int, queue: int) -> None:
        """A worker answers a query of a queue."""
        self._queries[worker * self._queues + queue] += 1

    def queries(self, queue: int) -> int:
        """How often a queue was queried."""
        return sum(self._queries[worker * self._queues + queue] for worker in range(self._workers))
