# The state of one SOW topic in the core: which record is the newest of each key, and when values expire.
#
# The sequencer asks for the place before (`place_of`), gives the record its position, and tells the result: `store` for
# a value, `remove` for the keys of a removal. A record that goes to the journal is found there; any other one is copied
# into the value file. After a start, the same changes are made from the records: `take_file`, then `take_record` for
# the records of the log.
#
# The slot of a removed key stays as long as a reader may need what was before: until all readers have passed, and, of a
# topic in the log, until the journal with the removal has gone.
#
# A topic in the log can be read as of any moment since `begin_txid`. Where a chain of links reaches what was before the
# log, it ends in the slot's *base*: the value at `begin_position`, in the value file. Before journals are removed,
# their values are carried over (`begin_carrying`, `note_base` for each record of these journals, `carry` for each slot,
# `end_carrying`).

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_PUBLISH,
    KIND_SOW_DELETE,
    KIND_SOW_EXPIRY,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
    RecordState,
    RemovedKey,
    record_checksum,
    record_expiry_ns,
    record_payload,
    record_state,
)

cdef enum:
    DROPPED_PER_CALL = 1024


cdef bint is_value(const RecordHeader* record) noexcept nogil:
    return record.kind == KIND_PUBLISH or record.kind == KIND_DELTA_PUBLISH


cdef bint is_removal(const RecordHeader* record) noexcept nogil:
    return record.kind == KIND_SOW_DELETE or record.kind == KIND_SOW_EXPIRY


cdef const RemovedKey* removed_keys(const RecordHeader* record, uint32_t* count) noexcept nogil:
    """The keys of a record of a removal, in a log or a value file."""
    count[0] = record.payload_length // <uint32_t>sizeof(RemovedKey)
    return <const RemovedKey*>record_payload(record)


cdef const RemovedKey* removed_key(const RecordHeader* record, uint64_t key) noexcept nogil:
    """The entry of a key in a removal; NULL: it has none."""
    cdef uint32_t count = 0
    cdef const RemovedKey* keys = removed_keys(record, &count)
    cdef uint32_t low = 0
    cdef uint32_t high = count
    cdef uint32_t middle
    while low < high:
        middle = (low + high) // 2
        if keys[middle].key < key:
            low = middle + 1
        else:
            high = middle
    return &keys[low] if low < count and keys[low].key == key else NULL


@cython.final
cdef class TopicState:

    def __cinit__(self):
        self.removed = NULL

    def __init__(self, KeyTable table, ValueFile values, bint expires, bint recorded=False):
        """expires: lifetimes take effect; otherwise they are only stored. recorded: the journal has its records."""
        self.table = table
        self.values = values
        self.expires = expires
        self.recorded = recorded
        table.header.begin_position = 0
        table.header.begin_txid = 0 if recorded else NEVER
        self.removed_first = 0
        self.removed_count = 0
        self.removed_capacity = 0

    def __dealloc__(self):
        free(self.removed)

    cdef uint64_t place_of(self, uint64_t key) noexcept nogil:
        """The place of the newest record of a key; 0: none."""
        cdef uint32_t number = self.table.find(key)
        return 0 if number == NO_KEY_SLOT else self.table.slots[number].place

    cdef uint64_t value_of(self, uint64_t key) noexcept nogil:
        """The place of the value of a key; 0: it has none."""
        cdef uint32_t number = self.table.find(key)
        if number == NO_KEY_SLOT or self.table.slots[number].state != KEY_LIVE:
            return 0
        return self.table.slots[number].place

    cdef bint ensure(self, uint64_t record_bytes, bint in_journal) except -1:
        """Whether a record of that length can be stored. If not, `obstacle` gives the reason."""
        return self.table.ensure(1) and (in_journal or self.values.ensure(max(record_bytes, <uint64_t>REMOVAL_BYTES)))

    @property
    def obstacle(self):
        """Why the last record could not be stored."""
        return self.table.obstacle or self.values.obstacle

    # --- changes ----------------------------------------------------------------------------------------------

    cdef int store(self, const RecordHeader* record, bint in_journal, uint32_t topic) except -1:
        """Let a record be the value of its key. Its place, or `ensure`, must have been asked for."""
        cdef const RecordState* state = record_state(record)
        cdef TableHeader* header = self.table.header
        cdef uint64_t place = record.position if in_journal else self.values.append(record, topic)
        cdef uint32_t number = self.table.find(state.key)
        cdef uint64_t before = 0
        cdef KeySlot* slot
        # This record links to the one that may be released.
        self.values.next_txid = record.txid + 1
        if number == NO_KEY_SLOT:
            number = self.table.add(state.key)
            self.table.slots[number].topic = topic
        slot = &self.table.slots[number]
        before = slot.place
        if slot.state == KEY_LIVE:
            header.update_count += 1
            header.value_bytes += record.length - slot.length
        else:
            if slot.state == KEY_REMOVED:
                header.removed -= 1
            header.live += 1
            header.insert_count += 1
            header.value_bytes += record.length
        self.set(number, place, record, KEY_LIVE, record_expiry_ns(record))
        return self.supersede(slot, before, in_journal)

    cdef int supersede(self, KeySlot* slot, uint64_t before, bint in_journal) except -1:
        """Give up the place of the record before the newest, or keep it as the base."""
        if before & PLACE_IN_FILE:
            if self.recorded and in_journal:
                return self.set_base(slot, before)
            self.values.release(before)
        return 0

    cdef int set_base(self, KeySlot* slot, uint64_t base) except -1:
        cdef uint64_t before = slot.base
        self.table.begin_change(slot)
        slot.base = base
        self.table.end_change(slot)
        if before & PLACE_IN_FILE:
            self.values.release(before)
        return 0

    cdef void set(
        self, uint32_t number, uint64_t place, const RecordHeader* record, uint16_t state, uint64_t expires_ns
    ) except *:
        cdef KeySlot* slot = &self.table.slots[number]
        self.table.begin_change(slot)
        slot.place = place
        slot.txid = record.txid
        slot.length = record.length
        slot.state = state
        self.table.set_expiry(number, expires_ns if expires_ns else NEVER, self.expires)
        self.table.end_change(slot)
        self.table.header.last_txid = max(self.table.header.last_txid, record.txid)

    cdef bint remove(self, uint64_t key, const RecordHeader* record, bint in_journal) except -1:
        """Remove a key by a record of a removal. False: it has no value."""
        cdef uint32_t number = self.table.find(key)
        cdef TableHeader* header = self.table.header
        cdef KeySlot* slot
        cdef uint64_t before
        cdef uint64_t place
        if number == NO_KEY_SLOT:
            return False
        slot = &self.table.slots[number]
        if slot.state != KEY_LIVE:
            return False
        before = slot.place
        self.values.next_txid = record.txid + 1
        place = record.position if in_journal else self.append_removal(slot, before, record)
        header.live -= 1
        header.removed += 1
        header.delete_count += 1
        header.value_bytes -= slot.length
        self.set(number, place, record, KEY_REMOVED, NEVER)
        self.supersede(slot, before, in_journal)
        self.note_removed(number, record.txid)
        return True

    cdef uint64_t append_removal(self, const KeySlot* slot, uint64_t before, const RecordHeader* record) except 0:
        """Append a record of one removed key to the value file."""
        cdef uint8_t[96] memory
        cdef RecordHeader* made = <RecordHeader*>&memory[0]
        cdef RemovedKey* entry = <RemovedKey*>(&memory[0] + RECORD_HEADER_BYTES)
        memset(&memory[0], 0, REMOVAL_BYTES)
        made.length = REMOVAL_BYTES
        made.position = record.position
        made.txid = record.txid
        made.timestamp_ns = record.timestamp_ns
        made.expiration_s = NO_EXPIRATION
        made.kind = record.kind
        made.payload_length = sizeof(RemovedKey)
        entry.key = slot.key
        entry.previous = before
        if not self.values.ensure(REMOVAL_BYTES):
            raise StateMemoryFull(self.values.obstacle)
        return self.values.append(made, slot.topic)

    cdef int note_removed(self, uint32_t number, uint64_t txid) except -1:
        cdef RemovedSlot* grown
        cdef uint64_t at
        cdef uint64_t capacity
        if self.removed_count == self.removed_capacity:
            capacity = max(<uint64_t>64, self.removed_capacity * 2)
            grown = <RemovedSlot*>malloc(capacity * sizeof(RemovedSlot))
            if grown == NULL:
                raise MemoryError()
            for at in range(self.removed_count):
                grown[at] = self.removed[(self.removed_first + at) & (self.removed_capacity - 1)]
            free(self.removed)
            self.removed = grown
            self.removed_first = 0
            self.removed_capacity = capacity
        at = (self.removed_first + self.removed_count) & (self.removed_capacity - 1)
        self.removed[at].txid = txid
        self.removed[at].number = number
        self.removed_count += 1
        return 0

    cdef bint drop_removed(self, uint64_t floor_txid, uint64_t log_txid) except -1:
        """Free slots of removed keys that no reader needs. floor_txid: readers need no removal before it. log_txid: the
        journals hold everything from it on. True: there is more to do.
        """
        cdef RemovedSlot* first
        cdef KeySlot* slot
        cdef uint32_t count = 0
        while self.removed_count and count < DROPPED_PER_CALL:
            first = &self.removed[self.removed_first]
            slot = &self.table.slots[first.number]
            if slot.state == KEY_REMOVED and slot.txid == first.txid:
                if first.txid >= floor_txid or (not slot.place & PLACE_IN_FILE and first.txid >= log_txid):
                    return False
                if slot.place & PLACE_IN_FILE:
                    self.values.release(slot.place)
                self.set_base(slot, 0)
                self.table.header.removed -= 1
                self.table.drop(<uint32_t>first.number)
            self.removed_first = (self.removed_first + 1) & (self.removed_capacity - 1)
            self.removed_count -= 1
            count += 1
        return self.removed_count > 0

    cdef bint compact(self, uint64_t bytes_max) except -1:
        """Append live records of a slab with many dead ones again, about `bytes_max` of them. True: there is more."""
        cdef ValueFile values = self.values
        cdef uint64_t done = 0
        cdef uint64_t moved
        cdef uint64_t place
        cdef uint64_t number
        cdef uint64_t key
        cdef uint64_t length
        cdef uint32_t found
        cdef RecordHeader* record
        cdef const RecordState* state
        cdef KeySlot* slot
        while values.wants_compaction() and done < bytes_max:
            if values.victim == 0 and not values.choose_victim():
                return False
            number = values.victim - 1
            if values.victim_offset >= values.slabs[number].used:
                # All are moved, and wait for a sync.
                values.victim = 0
                return False
            record = <RecordHeader*>(values.slab_data(number) + values.victim_offset)
            place = PLACE_IN_FILE | (number * values.bytes_of_slab + values.victim_offset)
            length = align8(record.length)
            key = key_of(record)
            found = self.table.find(key)
            values.victim_offset += length
            done += RECORD_HEADER_BYTES
            if found == NO_KEY_SLOT or (
                self.table.slots[found].place != place and self.table.slots[found].base != place
            ):
                continue
            if not values.ensure(record.length):
                values.victim_offset -= length
                return False
            slot = &self.table.slots[found]
            moved = values.append(record, record.topic_id)
            self.table.begin_change(slot)
            if slot.place == place:
                slot.place = moved
            else:
                slot.base = moved
            self.table.end_change(slot)
            values.note_moved(place)
            done += length
        return values.wants_compaction()

    # --- the removal of journals ------------------------------------------------------------------------------

    def begin_carrying(self, uint64_t txid):
        """Refuse snapshots before a transaction id from now on: that of the first record that will remain."""
        if self.recorded:
            store_release(&self.table.header.begin_txid, max(self.table.header.begin_txid, txid))

    def end_carrying(self, uint64_t position):
        """Let readers use the bases for what was before a log position: all slots have been carried over."""
        if self.recorded:
            store_release(&self.table.header.begin_position, max(self.table.header.begin_position, position))

    cdef int note_base(self, const RecordHeader* record, uint64_t key) except -1:
        """Take a record of a journal that will be removed, in the order of the log: its value may be the base. key: of
        a value.
        """
        cdef const RemovedKey* keys
        cdef uint32_t count = 0
        cdef uint32_t at
        if is_value(record):
            return self.base_of_key(key, record, record.position)
        keys = removed_keys(record, &count)
        for at in range(count):
            self.base_of_key(keys[at].key, record, 0)
        return 0

    cdef int base_of_key(self, uint64_t key, const RecordHeader* record, uint64_t base) except -1:
        cdef uint32_t number = self.table.find(key)
        cdef uint64_t known
        # Also of the newest record of a slot: it may be superseded before the slot is carried over.
        if number == NO_KEY_SLOT:
            return 0
        # The base may belong to a later journal, up to which an earlier core has begun to carry values over.
        known = self.table.slots[number].base
        if known & PLACE_IN_FILE:
            if self.values.at(known).txid > record.txid:
                return 0
        elif known > record.position:
            return 0
        return self.set_base(&self.table.slots[number], base)

    cdef int carry(self, JournalPlaces places, uint32_t number, uint64_t begin) except -1:
        """Carry the values of a slot over that are before a log position. Raises StateMemoryFull."""
        cdef KeySlot* slot = &self.table.slots[number]
        cdef uint64_t moved
        if slot.state == KEY_FREE:
            return 0
        if not slot.place & PLACE_IN_FILE and slot.place < begin:
            if slot.state == KEY_LIVE:
                moved = self.carried(places, slot.place, slot.topic)
                self.table.begin_change(slot)
                slot.place = moved
                self.table.end_change(slot)
            self.set_base(slot, 0)
        elif slot.base and not slot.base & PLACE_IN_FILE:
            self.set_base(slot, self.carried(places, slot.base, slot.topic))
        return 0

    cdef uint64_t carried(self, JournalPlaces places, uint64_t place, uint32_t topic) except? 0:
        """Copy a record of the journal into the value file."""
        cdef const RecordHeader* record = places.at(place)
        if not self.values.ensure(record.length):
            raise StateMemoryFull(self.values.obstacle)
        return self.values.append(record, topic)

    # --- after a start ----------------------------------------------------------------------------------------

    def take_file(self, uint64_t file_bytes):
        """Take the records of a value file that a core has left. Returns the number of keys with a value. Raises
        OSError, StateMemoryFull.
        """
        cdef ValueFile values = self.values
        cdef uint64_t count = values.count_slabs(file_bytes)
        cdef uint64_t number
        cdef uint64_t length
        cdef bint dead = False
        cdef RecordHeader* record
        for number in range(count):
            while True:
                record = values.next_record(number, &dead)
                if record == NULL:
                    break
                length = align8(record.length)
                if not dead:
                    values.slabs[number].live += length
                    values.live_bytes += length
                    values.highest_txid = max(values.highest_txid, record.txid)
                    values.highest_topic = max(values.highest_topic, <uint64_t>record.topic_id)
                    self._take(
                        record, key_of(record),
                        PLACE_IN_FILE | (number * values.bytes_of_slab + values.slabs[number].used), record.topic_id,
                    )
                values.slabs[number].used += length
        values.end_scan()
        return self.table.header.live

    cdef int _take(self, const RecordHeader* record, uint64_t key, uint64_t place, uint32_t topic) except -1:
        """Let a record at a place be the newest of its key, unless the key has a newer one."""
        cdef uint32_t number
        cdef uint64_t before
        cdef KeySlot* slot
        cdef TableHeader* header = self.table.header
        cdef bint removal = is_removal(record)
        if key == 0:
            return 0
        number = self.table.find(key)
        if number == NO_KEY_SLOT:
            number = self.table.add(key)
            self.table.slots[number].topic = topic
        slot = &self.table.slots[number]
        before = slot.place
        if slot.state != KEY_FREE and slot.txid >= record.txid:
            if place & PLACE_IN_FILE and place != before:
                self.values.release(place)
            return 0
        if slot.state == KEY_LIVE:
            header.live -= 1
            header.value_bytes -= slot.length
        elif slot.state == KEY_REMOVED:
            header.removed -= 1
        if removal:
            header.removed += 1
            self.set(number, place, record, KEY_REMOVED, NEVER)
            self.note_removed(number, record.txid)
        else:
            header.live += 1
            header.value_bytes += record.length
            self.set(number, place, record, KEY_LIVE, record_expiry_ns(record))
        self.supersede(slot, before, not place & PLACE_IN_FILE)
        if not removal and not place & PLACE_IN_FILE and record_state(record) != NULL:
            self.mend_link(slot, before, record_state(record).previous)
        return 0

    cdef int mend_link(self, KeySlot* slot, uint64_t before, uint64_t previous) except -1:
        """A record of the journal leads to a place in the value file, and was preceded by another one of the journal: a
        crash of the machine has lost the copy. Where that link is followed, the base is used.
        """
        if previous & PLACE_IN_FILE and before and not before & PLACE_IN_FILE and self.recorded:
            self.set_base(slot, before)
        return 0

    cdef int take_record(self, const RecordHeader* record, uint64_t key, uint32_t topic) except -1:
        """Take a record of the journal that a start reads: the value of a key, or the removal of keys."""
        cdef const RemovedKey* keys
        cdef uint32_t count = 0
        cdef uint32_t at
        cdef uint32_t number
        cdef uint64_t before
        cdef KeySlot* slot
        if is_value(record):
            return self._take(record, key, record.position, topic) if key else 0
        keys = removed_keys(record, &count)
        for at in range(count):
            number = self.table.find(keys[at].key)
            if number != NO_KEY_SLOT:
                slot = &self.table.slots[number]
                if slot.state == KEY_LIVE and slot.txid < record.txid:
                    before = slot.place
                    self.remove(keys[at].key, record, True)
                    self.mend_link(slot, before, keys[at].previous)
                    self.table.header.delete_count -= 1  # it is counted since the start
        return 0


cdef uint64_t key_of(const RecordHeader* record) noexcept nogil:
    """The key of a value, or of a removal of one key; 0: none."""
    cdef const RecordState* state
    cdef uint32_t count = 0
    cdef const RemovedKey* keys
    if is_removal(record):
        keys = removed_keys(record, &count)
        return keys[0].key if count else 0
    state = record_state(record)
    return state.key if state != NULL else 0
