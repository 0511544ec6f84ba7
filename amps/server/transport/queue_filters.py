"""Filters of a worker's queue subscriptions: their numbers in the core, and their evaluation.

The core assigns messages of queues to subscriptions, but evaluates no filter. A worker announces a subscription that
has a filter with a number, which is the same for all subscriptions with the same filter. The core answers which filters
to evaluate on which queue, and receives the messages that match (`amps._core.queues.sender`). The objects needed for
this are made with the first filter.
"""

import time
import weakref
from collections.abc import Callable

from amps._core.expressions.machine import Filter, FilterSet
from amps._core.journal.reader import LogDamaged
from amps._core.queues.engine import BLOCKS_MAX
from amps._core.queues.manager import SlotMemory, map_read_only
from amps._core.queues.sender import MessageReader, QueueFiltering
from amps._core.values.fields import Extractor
from amps._core.wire.topics import TopicEntry, TopicTable
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.records import KIND_QUEUE_MATCHES, raw_control_record
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink
from amps.server.shared.queue_names import QueueNames
from amps.server.transport.feeds import Feeds

LOG_BYTES_PER_TURN = 1 << 20
IDS_END = 1 << 32


class QueueFilters:
    """The objects with which a worker reads queues and evaluates filters on their messages."""

    def __init__(
        self,
        runtime: Runtime,
        core: CoreLink,
        names: QueueNames,
        topics: TopicTable,
        feeds: Feeds,
        evaluations: EvaluationContexts,
        schedule: Callable[[], None],
    ) -> None:
        """`schedule` requests a turn of the worker."""
        self._runtime = runtime
        self._core = core
        self.names = names
        self._topics = topics
        self._feeds = feeds
        self._evaluations = evaluations
        self._schedule = schedule
        self._memory: SlotMemory | None = None
        self._filtering: QueueFiltering | None = None
        # Not a number of a worker that has died: the core may still refer to that.
        self._next_id = time.monotonic_ns() // 1000 % IDS_END
        self._ids: weakref.WeakKeyDictionary[Filter, int] = weakref.WeakKeyDictionary()
        self._by_id: weakref.WeakValueDictionary[int, Filter] = weakref.WeakValueDictionary()

    # --- for the core -----------------------------------------------------------------------------------------

    def id_of(self, filter_: Filter | None) -> int | None:
        """The number by which the core knows a filter, valid as long as a subscription has it."""
        if filter_ is None:
            return None
        known = self._ids.get(filter_)
        if known is None:
            while self._next_id in self._by_id:
                self._next_id = (self._next_id + 1) % IDS_END  # after 4 billion
            known = self._ids[filter_] = self._next_id
            self._by_id[known] = filter_
            self._next_id = (self._next_id + 1) % IDS_END
        return known

    def begin(self, cursor: int, queue: int, filter_id: int) -> None:
        """Handle the core's answer `queue_evaluate`."""
        filter_ = self._by_id.get(filter_id)
        if filter_ is None:
            return  # its subscriptions have ended: `queue_evaluated_enough` follows
        entry = self.subject(queue)
        self._evaluating().begin(cursor, queue, filter_, self._evaluations.of_type(entry.message_type), entry)

    def end(self, cursor: int) -> None:
        """Handle the core's answer `queue_evaluated_enough`."""
        if self._filtering is not None:
            self._filtering.end(cursor)

    def _evaluating(self) -> QueueFiltering:
        if self._filtering is None:
            self._filtering = QueueFiltering(
                self.memory(),
                self.reader(),
                self._feeds.read_ahead.ask,
                self._schedule,
                self._damaged,
                self._push,
            )
        return self._filtering

    def _push(self, payload: bytes) -> None:
        self._core.push_control(raw_control_record(payload, KIND_QUEUE_MATCHES))

    def _damaged(self, damage: LogDamaged) -> None:
        self._feeds.log_damage(damage)

    def run(self) -> bool:
        """Run one turn. True: there is more work to do at once."""
        if self._filtering is None or self._core.has_controls_waiting:
            return False
        return self._filtering.run(self._core.view.journal_written, LOG_BYTES_PER_TURN)

    def release_journals(self) -> None:
        """Release journals that are no longer read; to be called from time to time."""
        if self._filtering is not None:
            self._filtering.release()

    # --- for queries and deletions ----------------------------------------------------------------------------

    def filters_with(self, filter_: Filter, message_type: str) -> FilterSet:
        """A filter set with that filter alone."""
        alone = FilterSet(self._evaluations.of_type(message_type))
        alone.add(filter_, None)
        return alone

    def extractor(self, message_type: str) -> Extractor:
        """The object that finds fields in messages of a type."""
        return self._evaluations.of_type(message_type).extractor

    def entry(self, queue: int) -> TopicEntry:
        """The topic entry of a queue's name."""
        config = self.names.queues[queue]
        return self._topics.entry(config.name, config.message_type)

    def subject(self, queue: int) -> TopicEntry:
        """The topic that filters see for a queue's messages: the underlying topic (queues.md §5.4). If there are
        several, a record stores its topic as a number of its journal, and filters see the queue's name instead.
        """
        config = self.names.queues[queue]
        if config.underlying_is_regex:
            return self.entry(queue)
        return self._topics.entry(config.underlying_topic, config.message_type)

    def memory(self) -> SlotMemory:
        """The queues' state in shared memory."""
        if self._memory is None:
            self._memory = SlotMemory(
                map_read_only(self._runtime.queue_slots_path),
                map_read_only(self._runtime.queue_counters_path),
                BLOCKS_MAX,
            )
        return self._memory

    def reader(self) -> MessageReader:
        """Make a reader of queue messages; each user needs one of its own."""
        journal = self._feeds.journal
        assert journal is not None, "queues need a transaction log"
        return MessageReader(journal.directory, self._runtime.control)
