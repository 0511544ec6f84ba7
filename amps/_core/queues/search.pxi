# Searches a queue for messages that match a filter, to acknowledge or to return them (queues.md §8.1, §14.1).
#
# Only active messages match (available ones, waiting barriers, and leased ones), and delayed ones. Leased and delayed
# messages are acknowledged, but not returned. A message that enters or leaves during the search may be found or not.
# The core acknowledges the found messages that are still in the queue when it receives the result.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport FilterSet
from amps._core.journal.reader import LogDamaged
from amps._core.wire.ingress cimport AckList
from amps._core.queues.slots cimport (
    SLOT_AVAILABLE,
    SLOT_BARRIER,
    SLOT_DELAYED,
    SLOT_ELSEWHERE,
    SLOT_LEASED,
    SLOT_WAITING,
)
from amps._core.queues.manager cimport WALK_END, WALK_FOUND, QueueWalk, SlotMemory, WalkStep
from amps._core.journal.record cimport (
    EXTENSION_DELIVER_AT,
    RecordHeader,
    extension_word,
    record_correlation_id,
    record_payload,
)
from amps._core.wire.topics cimport TopicEntry


@cython.final
cdef class QueueSearch:

    def __init__(
        self, SlotMemory memory not None, MessageReader reader not None, uint32_t queue, TopicEntry entry not None,
        FilterSet filters, uint64_t limit, bint shows=False, frozenset keys=None
    ):
        """entry: the TopicEntry of the queue. filters: a set with one filter; None: every message matches. limit: log
        position up to which the journal is written. shows: True if matches are returned, in `rows`; else they are
        acknowledged, in `found`. keys: only messages with these transaction ids match; None: any.
        """
        self.walk = QueueWalk(memory, queue)
        self.reader = reader
        self.entry = entry
        self.filters = filters
        self.keys = keys
        self.limit = limit
        self.has_message = False
        self.found = AckList()
        self.compared = 0
        self.shows = shows
        self.matched = 0
        self.rows = []
        self.skip_count = 0
        self.row_limit = 0xFFFFFFFFFFFFFFFF

    @property
    def missing(self):
        """File, offset and length of the part to read from the disk after `run` has returned None, and the file offset
        up to which it is needed.
        """
        return (
            self.reader.missing_file, self.reader.missing_offset, self.reader.missing_bytes, self.reader.needed_until
        )

    def run(self, uint64_t bytes_max):
        """Continue the search, for about `bytes_max` bytes of log. True: it is complete. False: there is more. None:
        `missing` must be read first. Raises LogDamaged.
        """
        cdef WalkStep came
        cdef uint64_t used = 0
        cdef uint64_t cost
        self.reader.begin_turn()
        while used < bytes_max:
            if not self.has_message:
                came = self.walk.step(self.limit)
                if came == WALK_END:
                    return True
                if came != WALK_FOUND:
                    return False
                used += STEP_COST_BYTES
                if (
                    self.walk.state != SLOT_AVAILABLE and self.walk.state != SLOT_BARRIER
                    and self.walk.state != SLOT_WAITING and self.walk.state != SLOT_ELSEWHERE
                    and (self.shows or (self.walk.state != SLOT_LEASED and self.walk.state != SLOT_DELAYED))
                ):
                    continue
                self.has_message = True
            cost = self.look()
            if cost == 0:
                return None
            self.has_message = False
            used += cost
        return False

    cdef uint64_t look(self) except? 0:
        """Evaluate the filter on the found message. Returns the cost in bytes of log; 0: it is not in memory."""
        cdef const RecordHeader* record
        cdef uint64_t cost
        try:
            record = self.reader.read(self.walk.position)
        except LogDamaged:
            if self.walk.is_alive():
                raise
            return STEP_COST_BYTES  # it has left the queue, and its journal may have been removed
        if record == NULL:
            return 0
        cost = self.reader.cost(record)
        self.compared += 1
        if self.keys is not None and record.txid not in self.keys:
            return cost
        if self.filters is not None:
            cost += match_message(self.filters, record, self.entry)
            if self.filters.matched_count == 0:
                return cost
        self.matched += 1
        if not self.shows:
            self.found.put(record.publisher_id, record.sequence, self.walk.position, self.walk.slot)
        elif self.skip_count:
            self.skip_count -= 1
        elif self.row_limit:
            self.row_limit -= 1
            self.rows.append((
                record.txid,
                record.timestamp_ns,
                (<const char*>record_correlation_id(record))[:record.correlation_id_length],
                extension_word(record, EXTENSION_DELIVER_AT, 0),
                (<const char*>record_payload(record))[:record.payload_length],
            ))
        return cost

    def show(self, uint64_t skip_count, uint64_t row_limit):
        """Skip the first `skip_count` matches, and return at most `row_limit` of the following ones."""
        self.skip_count = skip_count
        self.row_limit = row_limit

    def take_rows(self):
        """[(transaction id, UNIX time in ns, correlation id, time in ns before which it was not delivered or 0,
        payload)] of the matches found since the last call.
        """
        rows = self.rows
        self.rows = []
        return rows
