# The scan of a SOW topic: all records of a snapshot, or those of some keys, that match a filter.
#
# The slots are walked in their order, in windows: the slots of a window are copied first, and the memory of their
# values is requested, because values lie at random places. Then each value is compared with the filter.
#
# A slot that changed after the snapshot leads back to its value. If its newest record is not written yet, a copy of the
# slot is kept, and looked at when the log is written that far. Slots that come into use later are newer than the
# snapshot.

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

import numpy

from amps._core.expressions.machine cimport EvaluationContext, FilterSet
from amps._core.journal.reader import LogDamaged, LogRemoved
from amps._core.journal.record cimport (
    RecordHeader,
    record_client_id,
    record_correlation_id,
    record_parts_fit,
    record_payload,
    record_sow_key,
)
from amps._core.shm.platform cimport monotonic_ns
from amps._core.sow.ranking cimport Ranking
from amps._core.sow.slots cimport KEY_LIVE, KeySlot, RequestedKey
from amps._core.sow.table cimport NOT_REACHED, NOT_RESIDENT, NOT_WRITTEN, StateReader
from amps._core.values.fields cimport MESSAGE_LAST_UPDATED, MessageContext
from amps._core.values.value cimport VALUE_DOUBLE, Value
from amps._core.wire.topics cimport TopicEntry, tell_facts

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* address) nogil

# What `run` returns.
SCAN_DONE = 0
SCAN_MORE = 1
SCAN_FULL = 2                      # the client has to take output first
SCAN_WAITS = 3                     # for the log to be written further
SCAN_MISSING = 4                   # `missing` must be read first

cdef enum:
    DONE = 0
    MORE = 1
    FULL = 2
    WAITS = 3
    MISSING = 4
    LINE_BYTES = 64
    PREFETCHED_LINES = 6           # of a value; the processor goes on by itself
    OUTPUT_BYTES_MAX = 262144      # of one step
    LARGE_VALUE_BYTES = 65536
    LINKS_PER_STEP = 1024
    ATTEMPTS_MAX = 10
    SLOTS_PER_WINDOW = 4096        # that are looked at; most of them may be free


cdef bint matches_value(FilterSet filters, TopicEntry entry, const RecordHeader* record) except -1:
    """Evaluate filters on the value of a key. True: one of them matches."""
    cdef EvaluationContext evaluation = filters.evaluation
    cdef MessageContext context = evaluation.context
    cdef uint64_t unreadable = evaluation.unreadable
    cdef Value* fact
    if filters.asks_message:
        tell_facts(context, record, entry.raw_name, False, False)
        fact = &context.facts[<int>MESSAGE_LAST_UPDATED]
        fact.kind = VALUE_DOUBLE
        fact.flags = 0
        fact.number.double_ = record.timestamp_ns / 1e9
        if filters.asks_publisher:
            evaluation.tell_publisher(record_client_id(record))
    filters.match(record_payload(record), record.payload_length)
    if evaluation.unreadable != unreadable:
        evaluation.last_unreadable = (entry.name, record.publisher_id, record.sequence)
    return filters.matched_count > 0


@cython.final
cdef class StateScan:

    def __cinit__(self):
        self.unwritten = NULL

    def __init__(
        self, StateReader reader not None, TopicEntry entry not None, FilterSet filters, uint64_t txid, keys=None,
        ResultFrames frames=None, bint counts_all=True, bint collects_keys=False, FilterSet excluded=None,
        list logical=None, Ranking ranking=None,
    ):
        """entry: the TopicEntry of the topic. filters: a set with one filter; None: all records match. txid: of the
        snapshot. keys: the keys that are looked up; None: all. frames: takes the matching records; None: they are
        collected, as rows, or, with collects_keys, as the keys of a deletion. counts_all: compare records also when
        `frames` takes no more. excluded: a set with one filter, whose matches are counted but not taken.
        logical: of a topic with Pattern, by the number of the logical topic: its TopicEntry and the beginning of its
        frames; None, also for all numbers behind the end: the topic is left out. Without a Pattern: None. ranking:
        takes the records instead; the scan ends early if it is too large.
        """
        self.reader = reader
        self.entry = entry
        self.filters = filters
        self.excluded = excluded
        self.txid = txid
        self.frames = frames
        self.ranking = ranking
        self.counts_all = counts_all
        self.collects_keys = collects_keys
        self.collects_rows = frames is None and not collects_keys
        self.rows = []
        self.found_keys = {}
        self.logical = logical
        self.keys = None
        self.next = 0
        self.end = reader.table.header.slots_used
        if keys is not None:
            self.keys = numpy.array(sorted(set(keys)), dtype=numpy.uint64)
            self.end = self.keys.shape[0]
        self.window_count = 0
        self.window_at = 0
        self.unwritten_count = 0
        self.unwritten_capacity = 0
        self.unwritten_at = 0
        self.compared = 0
        self.matched = 0

    def __dealloc__(self):
        free(self.unwritten)

    @property
    def missing(self):
        """File, offset and length of the part to read after SCAN_MISSING; the file offset up to which it is needed."""
        return self.reader.places.missing

    def take_rows(self):
        """[(number of the logical topic, key, its text, UNIX time in ns, correlation id, payload)] of the matches
        since the last call.
        """
        rows = self.rows
        self.rows = []
        return rows

    def take_keys(self):
        """{number of the logical topic: the keys of the matches since the last call, and the transaction ids of their
        records, as RequestedKeys}
        """
        keys = self.found_keys
        self.found_keys = {}
        return keys

    def run(self, uint64_t written, uint64_t until_ns):
        """Go on until a time of `monotonic_ns`. written: the log is written up to this position. Raises LogDamaged."""
        cdef SlotFound* found
        cdef SlotFound later
        cdef int result
        cdef bint hurries = self.filters is not None and self.filters.may_take_long
        cdef uint32_t at
        for at in range(self.window_at, self.window_count):
            # Journals may have been closed since the last step.
            self.window[at].record = NULL
        while True:
            if self.frames is not None:
                if self.frames.output.pending_bytes >= OUTPUT_BYTES_MAX:
                    return FULL
                if self.frames.row_limit == 0 and not self.counts_all:
                    return DONE
            if self.ranking is not None and self.ranking.is_too_large():
                return DONE
            if self.window_at == self.window_count:
                if self.next == self.end:
                    break
                self.fill_window()
            while self.window_at < self.window_count:
                found = &self.window[self.window_at]
                result = self.look(found, written)
                if result == MISSING or result == MORE:
                    return result
                if result == WAITS:
                    self.keep_unwritten(&found.slot)
                self.window_at += 1
                if (hurries or found.slot.length > LARGE_VALUE_BYTES) and monotonic_ns() >= until_ns:
                    return MORE
            if monotonic_ns() >= until_ns:
                return MORE
        while self.unwritten_at < self.unwritten_count:
            later.slot = self.unwritten[self.unwritten_at]
            later.record = NULL
            result = self.look(&later, written)
            self.unwritten[self.unwritten_at] = later.slot
            if result != DONE:
                return result
            self.unwritten_at += 1
            if monotonic_ns() >= until_ns:
                return MORE
        return DONE

    cdef int keep_unwritten(self, const KeySlot* slot) except -1:
        cdef KeySlot* grown
        cdef uint64_t capacity
        if self.unwritten_count == self.unwritten_capacity:
            capacity = max(<uint64_t>64, self.unwritten_capacity * 2)
            grown = <KeySlot*>realloc(self.unwritten, capacity * sizeof(KeySlot))
            if grown == NULL:
                raise MemoryError()
            self.unwritten = grown
            self.unwritten_capacity = capacity
        self.unwritten[self.unwritten_count] = slot[0]
        self.unwritten_count += 1
        return 0

    cdef bint copy_next(self, KeySlot* slot) noexcept:
        """Copy the next slot. False: it has no record."""
        cdef uint64_t number = self.next
        self.next += 1
        if self.keys is not None:
            return self.reader.table.find_copy(self.keys[number], slot)
        return self.reader.table.copy(<uint32_t>number, slot)

    cdef int fill_window(self) except -1:
        """Copy the next slots, and request the memory of their values."""
        cdef SlotFound* found
        cdef const uint8_t* at
        cdef uint32_t line
        cdef uint64_t until = min(self.end, self.next + SLOTS_PER_WINDOW)
        self.window_count = self.window_at = 0
        while self.window_count < WINDOW_SLOTS and self.next < until:
            found = &self.window[self.window_count]
            if not self.copy_next(&found.slot):
                continue
            found.record = NULL
            if self.logical is not None and (
                found.slot.topic >= <uint32_t>PyList_GET_SIZE(self.logical) or self.logical[found.slot.topic] is None
            ):
                continue
            if found.slot.txid < self.txid:
                if found.slot.state != KEY_LIVE:
                    continue
                try:
                    found.record = self.reader.address(&found.slot)
                except LogRemoved:
                    # The core has copied the value, and moves the slot to the copy: `look` finds it.
                    found.record = NULL
                if found.record != NULL:
                    at = <const uint8_t*>found.record
                    for line in range(PREFETCHED_LINES):
                        prefetch(at + line * LINE_BYTES)
            self.window_count += 1
        return 0

    cdef int look(self, SlotFound* found, uint64_t written) except -1:
        """Compare the value of a slot. DONE; WAITS: its record is not written yet; MISSING: it is not in memory; MORE:
        it is not found yet.
        """
        cdef const RecordHeader* record = found.record
        cdef KeySlot* slot = &found.slot
        cdef int attempts = 0
        while True:
            try:
                if record == NULL:
                    record = self.reader.walk(slot, self.txid, written, LINKS_PER_STEP)
                elif not self.reader.is_resident(slot.place, slot.length):
                    return MISSING
                break
            except LogRemoved:
                # The core has copied what is still needed: the slot leads there now.
                attempts += 1
                if attempts == ATTEMPTS_MAX:
                    raise LogDamaged("journals", 0, f"the value of key {slot.key} is in a journal that was removed")
                if not self.reader.table.find_copy(slot.key, slot):
                    return DONE
                record = NULL
        if record == NULL:
            return DONE
        if record == NOT_WRITTEN:
            return WAITS
        if record == NOT_RESIDENT:
            return MISSING
        if record == NOT_REACHED:
            return MORE
        if not record_parts_fit(record) or (found.record != NULL and record.txid != slot.txid):
            raise LogDamaged("journals", 0, f"the value of key {slot.key} is not at its place")
        self.compared += 1
        if self.logical is not None:
            self.entry = <TopicEntry>(<tuple>self.logical[slot.topic])[0]
        if self.filters is None or matches_value(self.filters, self.entry, record):
            self.matched += 1
            if self.excluded is None or not matches_value(self.excluded, self.entry, record):
                self.take(slot, record)
        return DONE

    cdef int take(self, const KeySlot* slot, const RecordHeader* record) except -1:
        cdef RequestedKey wanted
        if self.ranking is not None:
            self.ranking.take(slot.key, record, record.position if self.entry.logged else 0)
            return 0
        if self.frames is not None:
            if self.logical is not None:
                self.frames.begin_topic((<tuple>self.logical[slot.topic])[1])
            return self.frames.put_record(slot.key, record)
        if self.collects_keys:
            wanted.key = slot.key
            wanted.seen_txid = record.txid
            keys = self.found_keys.get(slot.topic)
            if keys is None:
                keys = self.found_keys[slot.topic] = bytearray()
            keys += (<const char*>&wanted)[: sizeof(wanted)]
            return 0
        text = (<const char*>record_sow_key(record))[: record.sow_key_length]
        self.rows.append((
            slot.topic,
            slot.key,
            text,
            record.timestamp_ns,
            (<const char*>record_correlation_id(record))[: record.correlation_id_length],
            (<const char*>record_payload(record))[: record.payload_length],
        ))
        return 0
