"""Looking for the messages of queues that match a filter, a few at a time (queues.md §8.1)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amps._core.filter_set import Filter
from amps._core.queue_search import QueueSearch
from amps.server.transport.journal_view import PagesMissing

if TYPE_CHECKING:
    from amps.server.transport.queue_filters import QueueFilters

LOG_BYTES_PER_STEP = 1 << 19


class QueueSearches:
    """One filter in several queues, one after the other. A Search of searches.py."""

    def __init__(self, filters: "QueueFilters", queues: Sequence[int], filter_: Filter) -> None:
        self._filters = filters
        self._queues = queues
        self._filter = filter_
        self._waiting: list[QueueSearch] = []
        self.done: list[QueueSearch] = []
        """In the order of the queues."""

    def begin(self, limit: int) -> None:
        """Look for what is below a log position, up to which the journal is written."""
        for queue in self._queues:
            entry = self._filters.entry(queue)
            alone = self._filters.filters_with(self._filter, entry.message_type)
            self._waiting.append(
                QueueSearch(self._filters.memory(), self._filters.reader(), queue, entry, alone, limit)
            )
        self._waiting.reverse()

    def step(self) -> bool:
        """Go on for about a millisecond. True: that was all. Raises LogDamaged; PagesMissing: call it again then."""
        if not self._waiting:
            return True
        search = self._waiting[-1]
        found = search.run(LOG_BYTES_PER_STEP)
        if found is None:
            raise PagesMissing(*search.missing)
        if found:
            self.done.append(self._waiting.pop())
        return not self._waiting

    @property
    def compared(self) -> int:
        """How many messages were looked at."""
        return sum(search.compared for search in self.done)
