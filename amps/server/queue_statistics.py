"""What there is to know of queues that the core does not count: queries, and a switch (queues.md §16.4, §18, D-39).

Workers count the queries of queues that they answer, each in words of its own; the services process shows their sum.
The switch for proxied transfers belongs to the instance: it stays as somebody set it when processes die, also the core.

Invariant: each word has one writer. The switches have one, too: the services process.
"""

import mmap


class QueueStatistics:
    """In memory that all processes of an instance share. `queues` of the configuration, by number."""

    def __init__(self, workers: int, queues: int) -> None:
        self._workers = workers
        self._queues = queues
        self._queries_bytes = 8 * workers * queues
        self._memory = mmap.mmap(-1, self._queries_bytes + queues + 1)
        self._queries = memoryview(self._memory)[: self._queries_bytes].cast("Q")
        self._proxied = memoryview(self._memory)[self._queries_bytes :]

    def reset(self) -> None:
        """Begin to count anew, with a new core. Switches stay as they are."""
        self._memory[: self._queries_bytes] = bytes(self._queries_bytes)

    def count_query(self, worker: int, queue: int) -> None:
        """A worker answers a query of a queue."""
        self._queries[worker * self._queues + queue] += 1

    def queries(self, queue: int) -> int:
        """How often a queue was queried."""
        return sum(self._queries[worker * self._queues + queue] for worker in range(self._workers))

    def set_proxied_transfer(self, queue: int, enabled: bool) -> None:
        """The services process: whether messages may be taken over whose owner is out of reach."""
        self._proxied[queue] = enabled

    def proxied_transfer(self, queue: int) -> bool:
        """What was set last."""
        return bool(self._proxied[queue])
