"""Paginated subscriptions: to each, only the records on its page exist (sow.md §§11, 13, D19).

The matching records of a topic are kept in their order once for all subscriptions with the same filter and order
(sow/ranking.pyx). A `Window` is a range of ranks. It knows none of its records: a change of one record tells its ranks
before and after, and these tell which records the window loses and gains. At most one other record comes, and one goes.

The *rest* of a list is all its records but the changed one. A window shows a range of the rest, besides the changed
record if that is within the window. The range begins one earlier if the changed record is in front of it, and ends one
earlier if the changed record is in front of its end. The rest is the same before and after; so the difference of the
ranges before and after is what comes and goes.

Invariants
- What one record of the log does to a window is one step: out-of-focus messages first, then what comes, in the order of
  the page. A record that comes and goes within the step is not mentioned.
- A record that comes is sent whole. If others have moved it, it is no new message, and has no bookmark. A record that
  has stayed in the window is sent as an update, wherever it moves.
- Values are those at the place of the tailer. A record that others have moved may have a newer value: its value is read
  from its place in the log, or over the links from its slot.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.delivery cimport LiveConflation, StateFollower
from amps._core.delivery.output cimport OutputBuffer
from amps._core.delivery.results cimport matches_value
from amps._core.expressions.machine cimport EvaluationContext, Filter, FilterEntry, FilterSet
from amps._core.journal.reader import LogDamaged, LogRemoved
from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport KIND_SOW_EXPIRY, RecordHeader, RecordState, RemovedKey, record_state
from amps._core.sow.ranking cimport NO_RANK, RankedNode, Ranking
from amps._core.sow.slots cimport KeySlot
from amps._core.sow.table cimport StateReader, is_removal, removed_keys
from amps._core.values.documents cimport Selection
from amps._core.wire.topics cimport TopicEntry

include "../shm/layout.pxi"

cdef enum:
    BOOKMARK = 1                   # as in delivery/output.pyx
    OUT_OF_FOCUS = 32
    DELTA = 64
    NO_EMPTIES = 128
    EVALUATION_BYTES = 256         # cost of evaluating a filter, in bytes of log
    CHANGE_BYTES = 1024            # cost of changing a list

cdef tuple REASONS = (None, None, b"match", b"deleted", b"expired")


cdef int append(Shifts* shifts, uint64_t key, uint64_t kind, uint64_t place) except -1:
    cdef uint32_t capacity
    cdef Shift* grown
    if shifts.count == shifts.capacity:
        capacity = max(<uint32_t>4, shifts.capacity * 2)
        grown = <Shift*>realloc(shifts.items, capacity * sizeof(Shift))
        if grown == NULL:
            raise MemoryError()
        shifts.items = grown
        shifts.capacity = capacity
    shifts.items[shifts.count].key = key
    shifts.items[shifts.count].kind = kind
    shifts.items[shifts.count].place = place
    shifts.count += 1
    return 0


cdef Shift* find(Shifts* shifts, uint64_t key) noexcept:
    """The shift of a record; NULL: there is none."""
    cdef uint32_t at = shifts.count
    while at:
        at -= 1
        if shifts.items[at].key == key:
            return &shifts.items[at]
    return NULL


cdef void drop(Shifts* shifts, Shift* dropped) noexcept:
    shifts.count -= 1
    memmove(dropped, dropped + 1, (shifts.count - (dropped - shifts.items)) * sizeof(Shift))


cdef class Window:

    def __cinit__(self):
        memset(&self.left, 0, sizeof(Shifts))
        memset(&self.came, 0, sizeof(Shifts))

    def __init__(
        self, TopicEntry entry not None, OutputBuffer output not None, bytes sub_id, uint32_t flags,
        uint32_t flags_if_recorded, uint64_t skip, uint64_t top, LiveConflation conflation=None,
        Selection selection=None,
    ):
        """sub_id: as in a header, without quotes; None if frames need none. flags: see delivery/output.pyx. skip, top:
        at most 2^62.
        """
        sids = b"" if sub_id is None else b',"sids":"' + sub_id + b'"'
        self.output = output
        self.publish_prefix = b'{"c":"p","t":' + entry.json_name + sids
        self.oof_prefix = b'{"c":"oof","t":' + entry.json_name + sids
        self.flags = flags
        self.flags_if_recorded = flags_if_recorded
        self.bodies = Bodies(entry.sow.documents, selection)
        self.conflation = conflation
        self.skip = skip
        self.top = top

    def __dealloc__(self):
        free(self.left.items)
        free(self.came.items)

    cdef int shift(
        self, Ranking ranking, uint64_t key, uint64_t old_rank, uint64_t new_rank, uint64_t kind, uint64_t place
    ) except -1:
        """Note what a change of one record does to the window. kind: if the record leaves."""
        cdef uint64_t first = self.skip
        cdef uint64_t end = first + self.top
        cdef bint was = first <= old_rank < end
        cdef bint is_ = first <= new_rank < end
        # The shown ranges of the rest. NO_RANK is not in front of anything.
        cdef uint64_t old_first = first - (old_rank < first)
        cdef uint64_t new_first = first - (new_rank < first)
        cdef uint64_t old_end = end - (old_rank < end)
        cdef uint64_t new_end = end - (new_rank < end)
        if self.top == 0:
            return 0
        if old_first < new_first:
            self.leave(key_in_rest(ranking, old_first, new_rank), SHIFT_MATCH, 0)
        if was and not is_:
            self.leave(key, kind, place)
        elif kind != SHIFT_MATCH and find(&self.left, key) != NULL:
            # Another record of the step pushed it out before.
            self.leave(key, kind, place)
        if new_end < old_end:
            self.leave(key_in_rest(ranking, new_end, new_rank), SHIFT_MATCH, 0)
        if new_first < old_first:
            self.come(key_in_rest(ranking, new_first, new_rank), SHIFT_CAME)
        if is_:
            self.come(key, SHIFT_UPDATED if was else SHIFT_CAME)
        if old_end < new_end:
            self.come(key_in_rest(ranking, old_end, new_rank), SHIFT_CAME)
        return 0

    cdef int leave(self, uint64_t key, uint64_t kind, uint64_t place) except -1:
        """Note that a record has left the window. key: 0 = there is no such record."""
        cdef Shift* known
        if key == 0:
            return 0
        known = find(&self.came, key)
        if known != NULL:
            drop(&self.came, known)
            return 0
        known = find(&self.left, key)
        if known == NULL:
            return append(&self.left, key, kind, place)
        known.kind = kind
        known.place = place
        return 0

    cdef int come(self, uint64_t key, uint64_t kind) except -1:
        """Note that a record is in the window, and was not, or has a new value. key: 0 = there is no such record."""
        cdef Shift* known
        if key == 0:
            return 0
        known = find(&self.left, key)
        if known != NULL:
            drop(&self.left, known)
            return 0
        return append(&self.came, key, kind, 0)


cdef uint64_t key_in_rest(Ranking ranking, uint64_t index, uint64_t rank) noexcept:
    """The key with an index in the rest of a list, where the changed record has a rank; 0: there are not so many."""
    cdef RankedNode* node = ranking.records.at(index + (rank <= index))
    return 0 if node == NULL else node.key


cdef class PageList:

    def __init__(self, Ranking ranking not None, Filter filter_, too_large):
        """too_large: called once with this object when the list is too large. It must not change anything at once."""
        self.ranking = ranking
        self.filter = filter_
        self.too_large = too_large
        self.windows = []
        self.matched = 0
        self.stopped = False

    def __len__(self):
        return len(self.windows)

    def open(self, Window window not None):
        """Let a window follow the changes from now on. The list must be filled."""
        self.windows.append(window)

    def close(self, Window window not None):
        """Let a window follow no more."""
        self.windows.remove(window)


cdef class TopicPages(StateFollower):

    def __init__(self, TopicEntry entry not None, StateReader reader not None, EvaluationContext evaluation not None):
        """entry: of a SOW topic. reader: of its state."""
        self.reader = reader
        self.evaluation = evaluation
        self.keys = entry.sow.keys.fields.fields
        self.filters = None
        self.lists = []
        self.serial = 0
        self.entry = entry

    def __len__(self):
        return len(self.lists)

    def add(self, PageList pages not None):
        """Keep a list up to date from now on."""
        self.lists.append(pages)
        if pages.filter is not None:
            if self.filters is None:
                self.filters = FilterSet(self.evaluation)
            self.filters.add(pages.filter, pages)

    def remove(self, PageList pages not None):
        """Keep a list no more."""
        self.lists.remove(pages)
        if pages.filter is not None:
            self.filters.remove(pages.filter, pages)
            if not self.filters.entries:
                self.filters = None

    # --- changes ----------------------------------------------------------------------------------------------

    cdef uint64_t take_value(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF:
        cdef RecordState* state = record_state(record)
        cdef PageList pages
        cdef Window window
        cdef uint64_t key
        cdef uint64_t old_rank
        cdef uint64_t new_rank
        cdef uint64_t cost
        cdef uint64_t evaluations
        cdef uint32_t at
        if state == NULL:
            return 0
        key = state.key
        self.entry = entry
        self.record = record
        self.cursor = cursor
        self.before_is_known = False
        self.serial += 1
        cost = CHANGE_BYTES * <uint64_t>len(self.lists)
        if self.filters is not None:
            evaluations = self.filters.evaluations
            matches_value(self.filters, entry, record)
            cost += (self.filters.evaluations - evaluations) * EVALUATION_BYTES + record.payload_length
            for at in range(self.filters.matched_count):
                for pages in (<FilterEntry>self.filters.matched[at]).members:
                    pages.matched = self.serial
        for pages in self.lists:
            if pages.stopped:
                continue
            pages.ranking.change(
                key,
                record if pages.filter is None or pages.matched == self.serial else NULL,
                record.position if entry.logged else 0,
                &old_rank,
                &new_rank,
            )
            for window in pages.windows:
                window.shift(pages.ranking, key, old_rank, new_rank, SHIFT_MATCH, 0)
                self.send(pages, window)
            self.check_size(pages)
        return cost

    cdef uint64_t take_removal(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF:
        cdef const RemovedKey* keys
        cdef PageList pages
        cdef Window window
        cdef uint64_t kind = SHIFT_EXPIRED if record.kind == KIND_SOW_EXPIRY else SHIFT_DELETED
        cdef uint64_t old_rank
        cdef uint64_t new_rank
        cdef uint32_t count = 0
        cdef uint32_t at
        keys = removed_keys(record, &count)
        self.entry = entry
        self.record = record
        self.cursor = cursor
        self.before_is_known = False
        for pages in self.lists:
            if pages.stopped:
                continue
            for at in range(count):
                pages.ranking.change(keys[at].key, NULL, 0, &old_rank, &new_rank)
                if old_rank != NO_RANK:
                    for window in pages.windows:
                        window.shift(
                            pages.ranking, keys[at].key, old_rank, NO_RANK, kind, keys[at].previous
                        )
            for window in pages.windows:
                self.send(pages, window)
        return CHANGE_BYTES * <uint64_t>count * <uint64_t>len(self.lists)

    cdef int check_size(self, PageList pages) except -1:
        """Stop a list that has become too large."""
        if pages.ranking.is_too_large():
            pages.stopped = True
            pages.too_large(pages)
        return 0

    # --- values -----------------------------------------------------------------------------------------------

    cdef const RecordHeader* read(self, uint64_t place) except? NULL:
        """The value at a place; NULL: there is none, or it cannot be read."""
        cdef const RecordHeader* found
        if place == 0:
            return NULL
        try:
            found = self.reader.at(place)
        except (LogDamaged, LogRemoved):
            return NULL
        return NULL if is_removal(found) else found

    cdef const RecordHeader* value_before(self) except? NULL:
        """The value that the changed record had before; NULL: none, or it cannot be read."""
        if not self.before_is_known:
            self.before = self.read(record_state(self.record).previous)
            self.before_is_known = True
        return self.before

    cdef const RecordHeader* current(self, const RankedNode* node) except? NULL:
        """The value of a record at the place of the tailer; NULL: it cannot be read."""
        cdef const RecordHeader* found = NULL
        cdef KeySlot slot
        if node == NULL:
            return NULL
        if node.txid == self.record.txid:
            found = self.record
        elif node.place:
            found = self.read(node.place)
        if (found == NULL or found.txid != node.txid) and self.reader.table.find_copy(node.key, &slot):
            # It is in the value file: the topic is not recorded, or its journal was removed.
            if slot.txid == node.txid:
                found = self.read(slot.place)
            elif node.place:
                found = self.read(slot.base)
            else:
                found = self.reader.value(&slot, self.record.txid + 1, 0)
        if found == NULL or found.txid != node.txid:
            self.evaluation.unreadable += 1
            self.evaluation.last_unreadable = (self.entry.name, 0, 0)
            return NULL
        return found

    # --- messages ---------------------------------------------------------------------------------------------

    cdef int send(self, PageList pages, Window window) except -1:
        """Send what a step has done to a window."""
        cdef const RecordHeader* record
        cdef Shift* shift
        cdef uint32_t at
        if window.left.count == 0 and window.came.count == 0:
            return 0
        if window.flags & OUT_OF_FOCUS:
            for at in range(window.left.count):
                shift = &window.left.items[at]
                if shift.kind != SHIFT_MATCH:
                    record = self.read(shift.place)
                elif not is_removal(self.record) and shift.key == record_state(self.record).key:
                    record = self.record
                else:
                    record = self.current(pages.ranking.records.find(shift.key))
                if record != NULL:
                    self.send_left(window, record, <bytes>REASONS[shift.kind])
        for at in range(window.came.count):
            shift = &window.came.items[at]
            if shift.kind == SHIFT_UPDATED:
                self.send_updated(window)
            else:
                record = self.current(pages.ranking.records.find(shift.key))
                if record != NULL:
                    self.send_whole(window, record)
        window.left.count = window.came.count = 0
        return 0

    cdef int send_left(self, Window window, const RecordHeader* record, bytes reason) except -1:
        """Send an out-of-focus message."""
        cdef uint32_t flags = window.flags_if_recorded if self.entry.logged else window.flags
        cdef const RecordHeader* before = record
        if window.conflation is not None:
            if record == self.record and self.value_before() != NULL:
                before = self.before
            return window.conflation.take_leaving(
                reason, record_state(record).key, self.entry, self.cursor, before, self.record.timestamp_ns
            )
        window.bodies.make(record)
        return window.output.out_of_focus(
            PyBytes_AS_STRING(window.oof_prefix), <uint64_t>PyBytes_GET_SIZE(window.oof_prefix), flags, reason, 0,
            record, window.bodies.body, window.bodies.length,
        )

    cdef int send_whole(self, Window window, const RecordHeader* record) except -1:
        """Send a record that is in the window now."""
        cdef uint32_t flags = window.flags_if_recorded if self.entry.logged else window.flags
        cdef const char* prefix = PyBytes_AS_STRING(window.publish_prefix)
        cdef uint64_t length = <uint64_t>PyBytes_GET_SIZE(window.publish_prefix)
        if window.conflation is not None:
            return window.conflation.take_change(record, self.entry, self.cursor, NULL, False)
        if record == self.record and window.bodies.selection is None:
            return window.output.publish(prefix, length, flags, record, self.cursor)
        if record != self.record:
            flags &= ~<uint32_t>BOOKMARK
        window.bodies.make(record)
        return window.output.publish_body(
            prefix, length, flags, record, window.bodies.body, window.bodies.length, None
        )

    cdef int send_updated(self, Window window) except -1:
        """Send the changed record, which was in the window before: whole, or what has changed."""
        cdef Bodies bodies = window.bodies
        cdef const RecordHeader* before
        cdef uint32_t flags
        cdef int found
        if window.conflation is not None:
            before = self.value_before()
            return window.conflation.take_change(self.record, self.entry, self.cursor, before, before != NULL)
        if window.flags & DELTA == 0:
            return self.send_whole(window, self.record)
        before = self.value_before()
        found = -1 if before == NULL else bodies.compare(before, self.record, self.keys)
        if found < 0:
            return self.send_whole(window, self.record)
        if found == 0 and window.flags & NO_EMPTIES:
            return 0
        flags = window.flags_if_recorded if self.entry.logged else window.flags
        return window.output.publish_body(
            PyBytes_AS_STRING(window.publish_prefix), <uint64_t>PyBytes_GET_SIZE(window.publish_prefix), flags,
            self.record, bodies.body, bodies.length, None,
        )
