"""Statistics of SOW topics that the core does not count: queries (sow.md §22).

Workers count what they answer, each in words of its own; the services process reports the sums.

Invariant: each word has one writer.
"""

import mmap


class SowStatistics:
    """Counts in memory that all processes of an instance share. `topics`: number of configured SOW topics."""

    def __init__(self, workers: int, topics: int) -> None:
        self._workers = workers
        self._topics = topics
        size = 8 * workers * topics
        self._memory = mmap.mmap(-1, size or 1)
        self._queries = memoryview(self._memory)[:size].cast("Q")

    def reset(self) -> None:
        """Begin to count from 0, with a new core."""
        self._memory[:] = bytes(len(self._memory))

    def count_query(self, worker: int, topic: int) -> None:
        """Count a query of a topic that a worker answers."""
        self._queries[worker * self._topics + topic] += 1

    def queries(self, topic: int) -> int:
        """How often a topic was queried."""
        return sum(self._queries[worker * self._topics + topic] for worker in range(self._workers))
