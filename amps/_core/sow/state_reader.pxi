# The state of a SOW topic as other processes than the core read it.
#
# A *snapshot* at a transaction id is the state by all records with smaller transaction ids. A slot whose record is
# newer leads back to it over the links of the records. The record of a slot may be beyond the watermark up to which
# the log is written: `walk` then returns NOT_WRITTEN, and the caller tries again after the next watermark.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.record cimport RecordHeader, RecordState, RemovedKey, record_state


cdef enum:
    LINK_BYTES = 512               # of a record, which contain its link

cdef RecordHeader not_written
cdef RecordHeader not_resident
cdef RecordHeader not_reached
cdef const RecordHeader* NOT_WRITTEN = &not_written
cdef const RecordHeader* NOT_RESIDENT = &not_resident
cdef const RecordHeader* NOT_REACHED = &not_reached


@cython.final
cdef class StateReader:

    def __init__(self, KeyMemory table, ValueFile values, JournalPlaces places):
        """places: of the journal; None: the instance has none."""
        self.table = table
        self.values = values
        self.places = places

    cdef const RecordHeader* at(self, uint64_t place) except NULL:
        """The record at a place. Raises LogDamaged, LogRemoved."""
        if place & PLACE_IN_FILE:
            return self.values.at(place)
        return self.places.at(place)

    cdef const RecordHeader* address(self, const KeySlot* slot) except? NULL:
        """Where the newest record of a slot lies, to have it fetched from memory; it is neither read nor checked.
        NULL: it is not known without reading. Raises LogDamaged, LogRemoved.
        """
        if slot.place & PLACE_IN_FILE:
            return self.values.at(slot.place)
        return self.places.address(slot.place)

    cdef bint is_resident(self, uint64_t place, uint64_t length) except -1:
        """Whether so many bytes at a place are in memory; see JournalPlaces. Value files always count as in memory: the
        core reads them at a start, and writes them through memory. Raises LogDamaged, LogRemoved.
        """
        return place & PLACE_IN_FILE != 0 or self.places.is_resident(place, length)

    cdef const RecordHeader* walk(self, KeySlot* slot, uint64_t txid, uint64_t written, uint32_t steps) except? NULL:
        """The value of a copied slot at a transaction id; NULL: none. written: the log is written up to this position.
        Does not wait for the disk, and follows at most so many links. Raises LogDamaged, LogRemoved.

        NOT_WRITTEN: try again when the log is written further. NOT_RESIDENT: when the part that `places` names as
        missing was read. NOT_REACHED: there are more links. The slot then keeps the place that was reached.
        """
        cdef const RecordHeader* record
        cdef const RecordState* state
        cdef const RemovedKey* removed
        cdef uint64_t place = slot.place
        cdef uint64_t begin
        cdef KeySlot now
        if slot.txid < txid:
            if slot.state != KEY_LIVE:
                return NULL
            return self.at(place) if self.is_resident(place, slot.length) else NOT_RESIDENT
        if not place & PLACE_IN_FILE and place >= written:
            return NOT_WRITTEN
        # The base that belongs to this beginning of the log may be newer than the copied slot.
        begin = load_acquire(&self.table.header.begin_position)
        if not self.table.find_copy(slot.key, &now):
            return NULL
        while True:
            slot.place = place
            slot.txid = txid
            if steps == 0:
                return NOT_REACHED
            steps -= 1
            if not self.is_resident(place, LINK_BYTES):
                return NOT_RESIDENT
            record = self.at(place)
            if record.txid < txid or is_removal(record):
                if not self.is_resident(place, record.length):
                    return NOT_RESIDENT
                if record.txid < txid:
                    return NULL if is_removal(record) else record
                removed = removed_key(record, slot.key)
                place = removed.previous if removed != NULL else 0
            else:
                state = record_state(record)
                place = state.previous if state != NULL else 0
            # A topic in the log: what was before the log is the base. The record of any other link is still there.
            if self.table.header.begin_txid != NEVER and (place & PLACE_IN_FILE or place < begin):
                return self.at(now.base) if now.base else NULL
            if place == 0:
                return NULL

    cdef const RecordHeader* value(self, const KeySlot* slot, uint64_t txid, uint64_t written) except? NULL:
        """As `walk`, but waits for the disk, and follows all links. Returns NOT_WRITTEN if the log is not written far
        enough.
        """
        cdef KeySlot at = slot[0]
        cdef const RecordHeader* record
        while True:
            record = self.walk(&at, txid, written, 0xFFFFFFFF)
            if record == NOT_RESIDENT:
                self.places.read_missing()
            elif record != NOT_REACHED:
                return record

    def values_at(self, uint64_t txid, uint64_t written):
        """{key: (transaction id, payload)} of a snapshot, for tools and tests."""
        cdef KeySlot slot
        cdef const RecordHeader* record
        cdef uint64_t number
        found = {}
        for number in range(self.table.header.slots_used):
            if not self.table.copy(<uint32_t>number, &slot):
                continue
            record = self.value(&slot, txid, written)
            if record == NOT_WRITTEN:
                raise BlockingIOError("the log is not written so far yet")
            if record != NULL:
                found[slot.key] = (record.txid, (<const char*>record_payload(record))[: record.payload_length])
        return found
