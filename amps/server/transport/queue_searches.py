"""Searching the messages of queues that match a filter, a few at a time (queues.md §8.1, §14.1)."""

from collections.abc import Sequence

from amps._core.expressions.machine import Filter
from amps._core.queues.sender import QueueSearch
from amps.server.shared.journal_view import PagesMissing
from amps.server.transport.queue_filters import QueueFilters

LOG_BYTES_PER_STEP = 1 << 19


class QueueSearches:
    """A search with one filter in several queues, one after the other. A Search of searches.py."""

    def __init__(
        self,
        filters: QueueFilters,
        queues: Sequence[int],
        filter_: Filter | None,
        *,
        shows: bool = False,
        keys: frozenset[int] | None = None,
        bytes_per_step: int = LOG_BYTES_PER_STEP,
    ) -> None:
        """`shows`: return messages, not acknowledge them. `keys`: transaction ids that may match; None: any."""
        self._shows = shows
        self._keys = keys
        self._bytes_per_step = bytes_per_step
        self._filters = filters
        self._queues = queues
        self._filter = filter_
        self._waiting: list[QueueSearch] = []
        self._begun = 0
        self.done: list[QueueSearch] = []
        """The finished searches, in the order of the queues."""

    def begin(self, limit: int) -> None:
        """Begin the search below a log position, up to which the journal is written."""
        for queue in self._queues:
            entry = self._filters.subject(queue)
            alone = None
            if self._filter is not None:
                alone = self._filters.filters_with(self._filter, entry.message_type)
            self._waiting.append(
                QueueSearch(
                    self._filters.memory(),
                    self._filters.reader(),
                    queue,
                    entry,
                    alone,
                    limit,
                    self._shows,
                    self._keys,
                )
            )
        self._waiting.reverse()

    def step(self) -> bool:
        """Continue for about a millisecond. True: the search is complete. Raises LogDamaged, or PagesMissing: then call
        it again.
        """
        if not self._waiting:
            return True
        search = self._waiting[-1]
        number = len(self.done)
        if number == self._begun:
            self._begun += 1
            self.prepare(search)
        found = search.run(self._bytes_per_step)
        self.went_on(self._queues[number], search, found is True)
        if found is None:
            raise PagesMissing(*search.missing)
        if found:
            self.done.append(self._waiting.pop())
        return not self._waiting

    def prepare(self, search: QueueSearch) -> None:
        """Called before the search of the next queue."""

    def went_on(self, queue: int, search: QueueSearch, ended: bool) -> None:
        """Called after a step."""

    @property
    def compared(self) -> int:
        """How many messages were compared with the filter."""
        return sum(search.compared for search in self.done)
