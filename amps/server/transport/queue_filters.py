"""Filters of the queue subscriptions of one worker: under which numbers the core knows them, and evaluating them.

The core gives messages of queues to subscriptions, and evaluates no filter. It is told a number with each subscription
that has one, the same for all with the same filter; it answers which filters it wants evaluated on which queue, and is
told which messages match (`amps._core.queues.sender`). What is needed for that is made with the first one.
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
    """What a worker needs to look into queues and to evaluate filters on what is there."""

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
        """`schedule`: has a turn of the worker soon."""
        self._runtime = runtime
        self._core = core
        self.names = names
        self._topics = topics
        self._feeds = feeds
        self._evaluations = evaluations
        self._schedule = schedule
        self._memory: SlotMemory | None = None
        self._filtering: QueueFiltering | None = None
        # Not what a worker has used that died: the core may still speak of that.
        self._next_id = time.monotonic_ns() // 1000 % IDS_END
        self._ids: weakref.WeakKeyDictionary[Filter, int] = weakref.WeakKeyDictionary()
        self._by_id: weakref.WeakValueDictionary[int, Filter] = weakref.WeakValueDictionary()

    # --- for the core -----------------------------------------------------------------------------------------

    def id_of(self, filter_: Filter | None) -> int | None:
        """By which the core knows a filter, for as long as a subscription has it."""
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
        """The core's answer `queue_evaluate`."""
        filter_ = self._by_id.get(filter_id)
        if filter_ is None:
            return  # who had it has gone: the core will say that it is enough
        entry = self.subject(queue)
        self._evaluating().begin(cursor, queue, filter_, self._evaluations.of_type(entry.message_type), entry)

    def end(self, cursor: int) -> None:
        """The core's answer `queue_evaluated_enough`."""
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
        """One turn. True: there is more to do at once."""
        if self._filtering is None or self._core.has_controls_waiting:
            return False
        return self._filtering.run(self._core.view.journal_written, LOG_BYTES_PER_TURN)

    def release_journals(self) -> None:
        """Let journals go that nothing is read of; to be called now and then."""
        if self._filtering is not None:
            self._filtering.release()

    # --- for whoever looks into queues ------------------------------------------------------------------------

    def filters_with(self, filter_: Filter, message_type: str) -> FilterSet:
        """A set of that filter alone."""
        alone = FilterSet(self._evaluations.of_type(message_type))
        alone.add(filter_, None)
        return alone

    def extractor(self, message_type: str) -> Extractor:
        """Finds fields in messages of a type."""
        return self._evaluations.of_type(message_type).extractor

    def entry(self, queue: int) -> TopicEntry:
        """The topic of a queue's name."""
        config = self.names.queues[queue]
        return self._topics.entry(config.name, config.message_type)

    def subject(self, queue: int) -> TopicEntry:
        """The topic that filters are told a queue's messages are of: the underlying one (queues.md §5.4). If several
        are, which one it was stands in each record under a number of its journal, and the queue's name is told.
        """
        config = self.names.queues[queue]
        if config.underlying_is_regex:
            return self.entry(queue)
        return self._topics.entry(config.underlying_topic, config.message_type)

    def memory(self) -> SlotMemory:
        """What the core shares of its queues."""
        if self._memory is None:
            self._memory = SlotMemory(
                map_read_only(self._runtime.queue_slots_path),
                map_read_only(self._runtime.queue_counters_path),
                BLOCKS_MAX,
            )
        return self._memory

    def reader(self) -> MessageReader:
        """Reads messages of queues; everybody wants one of his own."""
        journal = self._feeds.journal
        assert journal is not None, "queues need a transaction log"
        return MessageReader(journal.directory, self._runtime.control)
