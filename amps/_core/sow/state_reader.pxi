# The state of a SOW topic as other processes than the core read it.
#
# A *snapshot* at a transaction id is the state by all records with smaller transaction ids. A slot whose record is newer
# leads back to it over the links of the records. The record of a slot may be beyond the watermark up to which the log
# is written: `value` then returns NOT_WRITTEN, and the caller tries again after the next watermark.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.record cimport RecordHeader, RecordState, RemovedKey, record_state


cdef RecordHeader not_written
cdef const RecordHeader* NOT_WRITTEN = &not_written


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
        """Where the newest record of a slot lies, to have it fetched from memory; it is neither read nor checked. NULL: it
        is not known without reading. Raises LogDamaged, LogRemoved.
        """
        if slot.place & PLACE_IN_FILE:
            return self.values.at(slot.place)
        return self.places.address(slot.place)

    cdef bint is_resident(self, uint64_t place, uint64_t length) except -1:
        """Whether so many bytes at a place are in memory; see JournalPlaces. Value files always count as in memory: the
        core reads them at a start, and writes them through memory. Raises LogDamaged, LogRemoved.
        """
        return place & PLACE_IN_FILE != 0 or self.places.is_resident(place, length)

    cdef const RecordHeader* value(self, const KeySlot* slot, uint64_t txid, uint64_t written) except? NULL:
        """The value of a copied slot at a transaction id; NULL: none. written: the log is written up to this position.
        Returns NOT_WRITTEN if that does not suffice. Raises LogDamaged, LogRemoved.
        """
        cdef const RecordHeader* record
        cdef const RecordState* state
        cdef const RemovedKey* removed
        cdef uint64_t place = slot.place
        cdef uint64_t begin
        cdef KeySlot now
        if slot.txid < txid:
            return self.at(place) if slot.state == KEY_LIVE else NULL
        if not place & PLACE_IN_FILE and place >= written:
            return NOT_WRITTEN
        # The base that belongs to this beginning of the log may be newer than the copied slot.
        begin = load_acquire(&self.table.header.begin_position)
        if not self.table.find_copy(slot.key, &now):
            return NULL
        record = self.at(place)
        while record.txid >= txid:
            if is_removal(record):
                removed = removed_key(record, slot.key)
                place = removed.previous if removed != NULL else 0
            else:
                state = record_state(record)
                place = state.previous if state != NULL else 0
            if place == 0:
                return NULL
            # A topic in the log: what was before the log is the base. The record of any other link is still there.
            if self.table.header.begin_txid != NEVER and (place & PLACE_IN_FILE or place < begin):
                place = now.base
                if place == 0:
                    return NULL
                record = self.at(place)
                break
            record = self.at(place)
        return NULL if is_removal(record) else record

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
