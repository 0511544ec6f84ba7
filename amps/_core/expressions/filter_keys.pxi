# The keys that filters are filed under: pairs of a field and a constant. They are numbered, and looked up per message.
#
# A key has half the size of a cache line and contains everything that distinguishes it, except for long texts. A lookup
# takes a hash of its words and usually one comparison.

from os import urandom

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef enum:
    TABLE_CAPACITY_MIN = 16
    KEYS_MIN = 8


cdef uint64_t SEED = int.from_bytes(urandom(8), "little")  # random, so that no client can choose colliding constants


@cython.final
cdef class FilterKeys:

    def __cinit__(self):
        self.keys = NULL
        self.table = NULL
        self.slots = NULL
        self.texts = []
        self.seed = SEED

    def __dealloc__(self):
        free(self.keys)
        free(self.table)
        free(self.slots)

    cdef uint32_t number_of(self, FilterKey key, object owner) except? 0xFFFFFFFF:
        """Return the number of a key, which is added if it is new. Numbers begin at 0 and have no gaps."""
        cdef FilterKey* grown
        cdef int32_t found = find_key(self, &key)
        if found >= 0:
            return <uint32_t>found
        if self.count == self.capacity:
            grown = <FilterKey*>realloc(self.keys, (self.capacity * 2 + KEYS_MIN) * sizeof(FilterKey))
            if grown == NULL:
                raise MemoryError()
            self.keys = grown
            self.capacity = self.capacity * 2 + KEYS_MIN
        self.keys[self.count] = key
        self.texts.append(owner)
        self.count += 1
        if self.count * 2 > self.table_capacity:
            self.grow_table()
        else:
            self.enter(self.count - 1)
        return self.count - 1

    cdef int note_slot(self, uint32_t slot, uint32_t table) except -1:
        """Note that a slot has keys of this table."""
        cdef FiledSlot* grown
        cdef uint32_t at
        for at in range(self.slot_count):
            if self.slots[at].slot == slot:
                self.slots[at].tables |= 1 << table
                return 0
        grown = <FiledSlot*>realloc(self.slots, (self.slot_count + 1) * sizeof(FiledSlot))
        if grown == NULL:
            raise MemoryError()
        self.slots = grown
        grown[self.slot_count].slot = slot
        grown[self.slot_count].tables = 1 << table
        self.slot_count += 1
        return 0

    cdef void enter(self, uint32_t number) noexcept nogil:
        cdef const FilterKey* key = &self.keys[number]
        cdef uint64_t at = words_mixed(key.first ^ key.about, key.last, self.seed)
        while self.table[at & (self.table_capacity - 1)]:
            at += 1
        self.table[at & (self.table_capacity - 1)] = number + 1

    cdef int grow_table(self) except -1:
        cdef uint32_t capacity = max(<uint32_t>TABLE_CAPACITY_MIN, self.table_capacity * 2)
        cdef uint32_t* grown = <uint32_t*>realloc(self.table, capacity * sizeof(uint32_t))
        cdef uint32_t at
        if grown == NULL:
            raise MemoryError()
        self.table = grown
        self.table_capacity = capacity
        memset(grown, 0, capacity * sizeof(uint32_t))
        for at in range(self.count):
            self.enter(at)
        return 0
