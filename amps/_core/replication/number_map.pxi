# A map from numbers to numbers: publishers to sequences, name ids to anything.
#
# Open addressing with linear probing, at most half full. The number 0 is no key. A stranger may choose keys, so their
# places are mixed with a number that is random for each process.

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

import secrets

cdef enum:
    MAP_CAPACITY_MIN = 64

cdef uint64_t map_salt = secrets.randbits(64) | 1


cdef struct MapEntry:
    uint64_t key                   # 0: free
    uint64_t value


cdef inline uint64_t map_place(uint64_t key, uint64_t capacity) noexcept nogil:
    cdef uint64_t mixed = (key ^ map_salt) * <uint64_t>0x9E3779B97F4A7C15
    return (mixed ^ mixed >> 29) * map_salt >> 17 & (capacity - 1)


@cython.final
cdef class NumberMap:
    """A map from numbers other than 0 to numbers."""

    cdef MapEntry* entries
    cdef uint64_t capacity
    cdef uint64_t count

    def __cinit__(self):
        self.entries = NULL
        self.capacity = 0
        self.count = 0

    def __dealloc__(self):
        free(self.entries)

    cdef void clear(self) noexcept:
        free(self.entries)
        self.entries = NULL
        self.capacity = 0
        self.count = 0

    cdef inline MapEntry* find(self, uint64_t key) noexcept nogil:
        """The entry of a key; NULL: there is none. It is valid until the next `put`."""
        cdef uint64_t place
        if self.count == 0:
            return NULL
        place = map_place(key, self.capacity)
        while self.entries[place].key:
            if self.entries[place].key == key:
                return &self.entries[place]
            place = (place + 1) & (self.capacity - 1)
        return NULL

    cdef int put(self, uint64_t key, uint64_t value) except -1:
        """Set the value of a key."""
        cdef MapEntry* found = self.find(key)
        if found != NULL:
            found.value = value
            return 0
        if self.count * 2 >= self.capacity:
            self.grow()
        self.place(key, value)
        self.count += 1
        return 0

    cdef void place(self, uint64_t key, uint64_t value) noexcept nogil:
        cdef uint64_t place = map_place(key, self.capacity)
        while self.entries[place].key:
            place = (place + 1) & (self.capacity - 1)
        self.entries[place].key = key
        self.entries[place].value = value

    cdef int grow(self) except -1:
        cdef MapEntry* old = self.entries
        cdef uint64_t old_capacity = self.capacity
        cdef uint64_t capacity = max(old_capacity * 2, <uint64_t>MAP_CAPACITY_MIN)
        cdef MapEntry* grown = <MapEntry*>calloc(capacity, sizeof(MapEntry))
        cdef uint64_t at
        if grown == NULL:
            raise MemoryError()
        self.entries = grown
        self.capacity = capacity
        for at in range(old_capacity):
            if old[at].key:
                self.place(old[at].key, old[at].value)
        free(old)
        return 0


cdef NumberMap map_of_pairs(const unsigned char[::1] pairs):
    """A map of pairs of two numbers of 8 bytes, such as a vector (replication.md §24.5). Raises StreamError."""
    cdef NumberMap found = NumberMap()
    cdef const uint64_t* words
    cdef Py_ssize_t at
    if pairs.shape[0] % 16:
        raise StreamError(f"a vector of {pairs.shape[0]} bytes is no list of pairs")
    if pairs.shape[0] == 0:
        return found
    words = <const uint64_t*>&pairs[0]
    for at in range(pairs.shape[0] // 16):
        if words[2 * at]:
            found.put(words[2 * at], words[2 * at + 1])
    return found
