# The keys of a SOW topic: one slot of 64 bytes for each, in memory that other processes can read.
#
# The slots are found by *linear hashing*: `bucket_count` buckets, each a chain of slots. A new key splits one bucket,
# in turn, so the table grows with its keys and no step costs more than a chain. The memory is a sparse file of its
# maximum size in the runtime directory: a header page, the buckets (4 bytes each), the slots. Only used parts occupy
# memory.
#
# The core is the only writer. A reader copies a slot, and uses the copy only if `version` was even and stayed the same.
# A reader that searches a key repeats the search if the header's `version` changed: a chain may have been split.

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from amps._core.shm.platform cimport acquire_fence, load_acquire, release_fence, spin_pause, store_release
from amps._core.sow.slots cimport (
    KEY_FREE,
    KEY_LIVE,
    KEY_REMOVED,
    NO_KEY_SLOT,
    TABLE_HEADER_BYTES,
    KeySlot,
    TableHeader,
)

cdef enum:
    BUCKETS_MIN = 1024
    GROWTH_BYTES = 1 << 20         # memory that is requested at once

cdef uint64_t NEVER = 0xFFFFFFFFFFFFFFFF
cdef uint64_t KEYS_MAX = 1 << 28

KEYS_OF_TOPIC_MAX = KEYS_MAX
"""The most keys of a topic, removed ones included that readers may still need."""


def table_bytes():
    """Size in bytes of the sparse file of a key table."""
    return TABLE_HEADER_BYTES + KEYS_MAX * sizeof(uint32_t) + KEYS_MAX * sizeof(KeySlot)


cdef dict counters_of(const TableHeader* header):
    return {
        "valid_keys": header.live, "removed_keys": header.removed, "stored_bytes": header.value_bytes,
        "insert_count": header.insert_count, "update_count": header.update_count,
        "delete_count": header.delete_count, "last_txid": header.last_txid, "slots_used": header.slots_used,
    }


def table_counters(const unsigned char[::1] head not None):
    """{name: value} of the counters of a key table, from the first TABLE_HEAD_BYTES of its file.

    The core may change them meanwhile: each value is whole, but one may be older than another.
    """
    if head.shape[0] < TABLE_HEAD_BYTES:
        raise ValueError("the beginning of the key table is missing")
    return counters_of(<const TableHeader*>&head[0])


TABLE_HEAD_BYTES = sizeof(TableHeader)


class StateMemoryFull(MemoryError):
    """A SOW topic has no room for another key or value."""


cdef class KeyMemory:
    """A mapped key table: what core and readers have in common."""

    def __init__(self, memory, bint writable):
        """memory: a mapping of at least `table_bytes`; zeroed before the core uses it first."""
        cdef const unsigned char[::1] view = memory
        if <uint64_t>view.shape[0] < <uint64_t>table_bytes():
            raise ValueError("the memory is too small for a key table")
        self.memory = memory
        self.header = <TableHeader*>&view[0]
        self.buckets = <uint32_t*>(&view[0] + TABLE_HEADER_BYTES)
        self.slots = <KeySlot*>(&view[0] + TABLE_HEADER_BYTES + KEYS_MAX * sizeof(uint32_t))

    cdef uint64_t bucket_of(self, uint64_t key, uint64_t count) noexcept nogil:
        """The bucket of a key if there are `count` buckets."""
        cdef uint64_t span = BUCKETS_MIN
        cdef uint64_t bucket
        while span < count:
            span <<= 1
        bucket = key & (span - 1)
        return bucket if bucket < count else bucket & ((span >> 1) - 1)

    cdef bint copy(self, uint32_t number, KeySlot* copied) noexcept nogil:
        """Copy a slot. False: it is free."""
        cdef KeySlot* slot = &self.slots[number]
        cdef uint32_t version
        while True:
            version = slot.version
            acquire_fence()
            memcpy(copied, slot, sizeof(KeySlot))
            acquire_fence()
            if version & 1 == 0 and slot.version == version and copied.version == version:
                return copied.state != KEY_FREE
            spin_pause()

    cdef bint find_copy(self, uint64_t key, KeySlot* copied) noexcept nogil:
        """Copy the slot of a key. False: the key has none."""
        cdef uint64_t version
        cdef uint64_t steps
        cdef uint32_t next_
        cdef bint found
        while True:
            version = load_acquire(&self.header.version)
            if version & 1:
                spin_pause()
                continue
            found = False
            steps = 0
            next_ = self.buckets[self.bucket_of(key, self.header.bucket_count)]
            # A chain that changes meanwhile may end in itself.
            while next_ and steps <= self.header.slots_used:
                if self.copy(next_ - 1, copied) and copied.key == key:
                    found = True
                    break
                next_ = self.slots[next_ - 1].next
                steps += 1
            acquire_fence()
            if load_acquire(&self.header.version) == version:
                return found

    @property
    def live(self):
        """Number of keys with a value."""
        return self.header.live

    @property
    def slots_used(self):
        return self.header.slots_used

    @property
    def begin_txid(self):
        """The lowest transaction id of which snapshots can be read; None: only present ones, the topic is not in the
        log.
        """
        cdef uint64_t txid = load_acquire(&self.header.begin_txid)
        return None if txid == NEVER else txid

    def counters(self):
        """The counters; see `table_counters`."""
        return counters_of(self.header)


@cython.final
cdef class KeyTable(KeyMemory):
    """The key table in the core, which writes it."""

    def __cinit__(self):
        self.heap = NULL

    def __init__(self, memory, make_room=None):
        """make_room(offset, length): called before that part of the memory is written for the first time; may raise
        OSError.
        """
        KeyMemory.__init__(self, memory, True)
        self.make_room = make_room
        self.first_free = 0
        self.ready_slots = 0
        self.ready_buckets = 0
        self.heap_count = 0
        self.heap_capacity = 0
        self.obstacle = None
        memset(self.header, 0, sizeof(TableHeader))
        self._ask(0, TABLE_HEADER_BYTES)
        while self.ready_buckets < BUCKETS_MIN:
            self._more_buckets()
        memset(self.buckets, 0, BUCKETS_MIN * sizeof(uint32_t))
        self.header.bucket_count = BUCKETS_MIN

    def __dealloc__(self):
        free(self.heap)

    def _ask(self, uint64_t offset, uint64_t length):
        if self.make_room is not None:
            self.make_room(offset, length)

    def _more_buckets(self):
        self._ask(TABLE_HEADER_BYTES + self.ready_buckets * sizeof(uint32_t), GROWTH_BYTES)
        self.ready_buckets += GROWTH_BYTES // sizeof(uint32_t)

    cdef bint ensure(self, uint64_t count) except -1:
        """Whether that many keys can be added. If not, `obstacle` gives the reason."""
        cdef uint64_t used = self.header.slots_used
        if self.first_free == 0 or count > 1:
            if used + count > KEYS_MAX:
                self.obstacle = f"the topic holds {KEYS_MAX} keys, the most that a SOW topic can have"
                return False
            if used + count > self.ready_slots or self.header.bucket_count + count > self.ready_buckets:
                return self._grow(used + count)
        return True

    cdef bint _grow(self, uint64_t slots) except -1:
        cdef uint64_t start = TABLE_HEADER_BYTES + KEYS_MAX * sizeof(uint32_t)
        cdef uint64_t bytes_
        try:
            while self.ready_buckets < slots + BUCKETS_MIN:
                self._more_buckets()
            while self.ready_slots < slots:
                bytes_ = max(<uint64_t>GROWTH_BYTES, (slots - self.ready_slots) * sizeof(KeySlot))
                self._ask(start + self.ready_slots * sizeof(KeySlot), bytes_)
                self.ready_slots += bytes_ // sizeof(KeySlot)
        except OSError as problem:
            self.obstacle = str(problem)
            return False
        return True

    cdef uint32_t find(self, uint64_t key) noexcept nogil:
        """The slot of a key; NO_KEY_SLOT: it has none."""
        cdef uint32_t next_ = self.buckets[self.bucket_of(key, self.header.bucket_count)]
        while next_:
            if self.slots[next_ - 1].key == key:
                return next_ - 1
            next_ = self.slots[next_ - 1].next
        return NO_KEY_SLOT

    cdef void begin_change(self, KeySlot* slot) noexcept nogil:
        slot.version += 1
        release_fence()

    cdef void end_change(self, KeySlot* slot) noexcept nogil:
        release_fence()
        slot.version += 1

    cdef uint32_t add(self, uint64_t key) except? NO_KEY_SLOT:
        """Add a key that has no slot. The slot is in no state yet: set its fields with begin_change and end_change.
        Raises StateMemoryFull.
        """
        cdef uint32_t number
        cdef uint64_t bucket
        cdef KeySlot* slot
        if not self.ensure(1):
            raise StateMemoryFull(self.obstacle)
        if self.first_free:
            number = self.first_free - 1
            slot = &self.slots[number]
            self.first_free = slot.next
        else:
            number = <uint32_t>self.header.slots_used
            slot = &self.slots[number]
            slot.version = 0
            slot.state = KEY_FREE
        self.begin_change(slot)
        slot.key = key
        slot.base = 0
        slot.expires_ns = NEVER
        slot.heap_place = 0
        slot.topic = 0
        bucket = self.bucket_of(key, self.header.bucket_count)
        slot.next = self.buckets[bucket]
        self.end_change(slot)
        release_fence()
        self.buckets[bucket] = number + 1
        if number == self.header.slots_used:
            store_release(&self.header.slots_used, <uint64_t>number + 1)
            self.split()
        return number

    cdef void split(self) noexcept nogil:
        """Add a bucket, and move to it the keys of one bucket that belong there."""
        cdef uint64_t added = self.header.bucket_count
        cdef uint64_t span = BUCKETS_MIN
        cdef uint32_t* link
        cdef KeySlot* slot
        cdef uint32_t moved = 0
        cdef uint32_t number
        if added >= self.ready_buckets:
            return  # chains grow a little longer
        while span <= added:
            span <<= 1
        store_release(&self.header.version, self.header.version + 1)
        release_fence()
        link = &self.buckets[added & ((span >> 1) - 1)]
        while link[0]:
            number = link[0]
            slot = &self.slots[number - 1]
            if slot.key & (span - 1) == added:
                link[0] = slot.next
                slot.next = moved
                moved = number
            else:
                link = &slot.next
        self.buckets[added] = moved
        self.header.bucket_count = added + 1
        store_release(&self.header.version, self.header.version + 1)

    cdef void drop(self, uint32_t number) noexcept nogil:
        """Free the slot of a removed key."""
        cdef KeySlot* slot = &self.slots[number]
        cdef uint32_t* link = &self.buckets[self.bucket_of(slot.key, self.header.bucket_count)]
        store_release(&self.header.version, self.header.version + 1)
        release_fence()
        while link[0] != number + 1:
            link = &self.slots[link[0] - 1].next
        link[0] = slot.next
        self.begin_change(slot)
        slot.state = KEY_FREE
        slot.key = 0
        slot.place = 0
        slot.txid = 0
        self.end_change(slot)
        slot.next = self.first_free
        self.first_free = number + 1
        store_release(&self.header.version, self.header.version + 1)

    # --- expiries: a heap of slots by the time at which they expire ------------------------------------------

    cdef uint64_t next_expiry_ns(self) noexcept nogil:
        """UNIX time of the first expiry; NEVER: none."""
        return self.slots[self.heap[0]].expires_ns if self.heap_count else NEVER

    cdef int set_expiry(self, uint32_t number, uint64_t expires_ns, bint expires) except -1:
        """Set the time at which a slot expires. expires: it takes effect; otherwise it is only stored."""
        cdef KeySlot* slot = &self.slots[number]
        cdef uint32_t* grown
        slot.expires_ns = expires_ns
        if not expires or expires_ns == NEVER:
            if slot.heap_place:
                self.heap_remove(slot.heap_place - 1)
                slot.heap_place = 0
            return 0
        if slot.heap_place == 0:
            if self.heap_count == self.heap_capacity:
                self.heap_capacity = max(<uint64_t>1024, self.heap_capacity * 2)
                grown = <uint32_t*>realloc(self.heap, self.heap_capacity * sizeof(uint32_t))
                if grown == NULL:
                    raise MemoryError()
                self.heap = grown
            self.heap[self.heap_count] = number
            slot.heap_place = <uint32_t>self.heap_count + 1
            self.heap_count += 1
        self.heap_move(slot.heap_place - 1)
        return 0

    cdef void take_expiry(self, uint32_t number) noexcept nogil:
        """Take a slot out of the heap; its time stays."""
        cdef uint32_t place = self.slots[number].heap_place
        self.slots[number].heap_place = 0
        if place:
            self.heap_remove(place - 1)

    cdef int put_expiry_back(self, uint32_t number) except -1:
        return self.set_expiry(number, self.slots[number].expires_ns, True)

    cdef void heap_put(self, uint64_t at, uint32_t number) noexcept nogil:
        self.heap[at] = number
        self.slots[number].heap_place = <uint32_t>at + 1

    cdef void heap_remove(self, uint64_t at) noexcept nogil:
        self.heap_count -= 1
        if at < self.heap_count:
            self.heap_put(at, self.heap[self.heap_count])
            self.heap_move(at)

    cdef void heap_move(self, uint64_t at) noexcept nogil:
        """Move the entry at that place up or down to where it belongs."""
        cdef uint32_t number = self.heap[at]
        cdef uint64_t expires_ns = self.slots[number].expires_ns
        cdef uint64_t other
        while at and self.slots[self.heap[(at - 1) // 2]].expires_ns > expires_ns:
            self.heap_put(at, self.heap[(at - 1) // 2])
            at = (at - 1) // 2
        while True:
            other = 2 * at + 1
            if other >= self.heap_count:
                break
            if other + 1 < self.heap_count and (
                self.slots[self.heap[other + 1]].expires_ns < self.slots[self.heap[other]].expires_ns
            ):
                other += 1
            if self.slots[self.heap[other]].expires_ns >= expires_ns:
                break
            self.heap_put(at, self.heap[other])
            at = other
        self.heap_put(at, number)
