# Finds the messages of one queue by bookmark, for what other instances say about them.
#
# Log positions mean nothing to another instance. So a queue that spans instances has a table from bookmarks to slots:
# 8 bytes per entry, at a load of at most 5/8. The bookmark itself is in the slot. The table is divided into parts,
# selected by the leading bits of a hash, and a part that is full is split in two. So no step moves more than one part,
# except that the directory, 8 bytes per part, is doubled now and then.
#
# What this costs are cache misses. So an entry has the hash, too: no step reads a slot but that of its own message. And
# the hash keeps neighbours together, because messages come and go in about the order of their sequences: all of
# `GROUP_SEQUENCES` are in the same part, and all of `RUN_SEQUENCES` in one cache line, if it has room for them.
#
# Sequences are chosen by clients, and publishers by their names. The hash has a secret seed, so nobody can choose
# bookmarks that fill one part.
#
# Invariant: each slot of the queue that is not gone has one entry.

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

import os

cdef extern from "stdlib.h" nogil:
    void* aligned_alloc(size_t alignment, size_t length)

cdef enum:
    CACHE_LINE = 64
    PART_CAPACITY_FIRST = 16       # a power of two
    PART_CAPACITY_MAX = 1024       # a larger one is split
    PLACE_BITS = 10                # of a hash: they select an entry of a part
    PART_DEPTH_MAX = 22            # the other bits; then parts are not split, and grow
    HASH_BITS = PLACE_BITS + PART_DEPTH_MAX
    GROUP_BITS = 7
    RUN_BITS = 3
    GROUP_SEQUENCES = 1 << GROUP_BITS
    RUN_SEQUENCES = 1 << RUN_BITS


@cython.final
cdef class BookmarkTable:

    def __cinit__(self):
        self.directory = NULL

    def __init__(self, QueueArena arena not None):
        self.slots = arena.slots
        self.depth = 0
        self.count = 0
        self.seed = int.from_bytes(os.urandom(8), "little")
        self.directory = <TablePart**>calloc(1, sizeof(TablePart*))
        if self.directory == NULL:
            raise MemoryError()
        self.directory[0] = make_part(PART_CAPACITY_FIRST, 0)

    def __dealloc__(self):
        cdef uint64_t at = 0
        cdef TablePart* part
        if self.directory == NULL:
            return
        while at < <uint64_t>1 << self.depth:
            part = self.directory[at]
            if part == NULL:
                break
            at += <uint64_t>1 << (self.depth - part.depth)
            free(part.entries)
            free(part)
        free(self.directory)

    cdef uint32_t hash_of(self, uint32_t publisher, uint64_t sequence) noexcept nogil:
        """publisher: the number of the publisher in slots."""
        cdef uint64_t group = mixed_bits(self.seed, publisher, sequence >> GROUP_BITS)
        cdef uint64_t run = mixed_bits(self.seed, publisher, sequence >> RUN_BITS)
        cdef uint32_t place = <uint32_t>(run >> (64 - PLACE_BITS)) ^ <uint32_t>(sequence & (RUN_SEQUENCES - 1))
        return <uint32_t>(group >> (64 - PART_DEPTH_MAX)) << PLACE_BITS | place

    cdef TablePart* part_of(self, uint32_t hash_) noexcept nogil:
        return self.directory[hash_ >> (HASH_BITS - self.depth) if self.depth else 0]

    cdef uint32_t find(self, uint32_t publisher, uint64_t sequence) noexcept nogil:
        """The slot of the message with a bookmark; NO_SLOT: it is not in the queue."""
        cdef uint32_t hash_ = self.hash_of(publisher, sequence)
        cdef TablePart* part = self.part_of(hash_)
        cdef uint32_t at = hash_ & (part.capacity - 1)
        cdef uint32_t slot
        while True:
            slot = part.entries[at].slot
            if slot == NO_SLOT:
                return NO_SLOT
            if (
                part.entries[at].hash_ == hash_
                and self.slots[slot].sequence == sequence and self.slots[slot].publisher == publisher
            ):
                return slot
            at = (at + 1) & (part.capacity - 1)

    cdef int add(self, uint32_t slot) except -1:
        """Add a slot, whose bookmark is set. Raises MemoryError; then nothing has changed."""
        cdef uint32_t hash_ = self.hash_of(self.slots[slot].publisher, self.slots[slot].sequence)
        cdef TablePart* part = self.part_of(hash_)
        while 8 * (part.count + 1) > 5 * part.capacity:
            if part.capacity < PART_CAPACITY_MAX or part.depth == PART_DEPTH_MAX:
                resize_part(part, 2 * part.capacity)
            else:
                self._split(part, hash_)
            part = self.part_of(hash_)
        put_entry(part, hash_, slot)
        self.count += 1
        return 0

    cdef int remove(self, uint32_t slot) except -1:
        """Remove a slot. Entries behind it move to the front where they are found from their places."""
        cdef uint32_t hash_ = self.hash_of(self.slots[slot].publisher, self.slots[slot].sequence)
        cdef TablePart* part = self.part_of(hash_)
        cdef uint32_t mask = part.capacity - 1
        cdef uint32_t hole = hash_ & mask
        cdef uint32_t at
        while part.entries[hole].slot != slot:
            if part.entries[hole].slot == NO_SLOT:
                raise AssertionError("a message of the queue is not in its table of bookmarks")
            hole = (hole + 1) & mask
        at = hole
        while True:
            at = (at + 1) & mask
            if part.entries[at].slot == NO_SLOT:
                break
            if ((at - part.entries[at].hash_) & mask) >= ((at - hole) & mask):
                part.entries[hole] = part.entries[at]
                hole = at
        part.entries[hole].slot = NO_SLOT
        part.count -= 1
        self.count -= 1
        if part.capacity > PART_CAPACITY_FIRST and 8 * part.count < part.capacity:
            resize_part(part, part.capacity // 2)
        return 0

    cdef int _split(self, TablePart* part, uint32_t hash_) except -1:
        """Divide a part by the next bit of the hashes; hash_: one that belongs to it."""
        cdef TablePart* other
        cdef TablePart** grown
        cdef uint32_t at
        cdef TableEntry* old
        cdef TableEntry* kept
        cdef uint64_t first
        cdef uint64_t half
        cdef uint64_t place
        if part.depth == self.depth:
            grown = <TablePart**>malloc((<uint64_t>2 << self.depth) * sizeof(TablePart*))
            if grown == NULL:
                raise MemoryError()
            for place in range(<uint64_t>1 << self.depth):
                grown[2 * place] = grown[2 * place + 1] = self.directory[place]
            free(self.directory)
            self.directory = grown
            self.depth += 1
        other = make_part(part.capacity, part.depth + 1)
        try:
            kept = make_part_entries(part.capacity)
        except MemoryError:
            free(other.entries)
            free(other)
            raise
        half = <uint64_t>1 << (self.depth - part.depth - 1)
        first = hash_ >> (HASH_BITS - self.depth) & ~(2 * half - 1)
        part.depth += 1
        for place in range(first + half, first + 2 * half):
            self.directory[place] = other
        old = part.entries
        part.entries = kept
        part.count = 0
        for at in range(part.capacity):
            if old[at].slot != NO_SLOT:
                put_entry(self.part_of(old[at].hash_), old[at].hash_, old[at].slot)
        free(old)
        return 0


cdef inline uint64_t mixed_bits(uint64_t seed, uint32_t publisher, uint64_t number) noexcept nogil:
    cdef uint64_t mixed = (number ^ seed) * <uint64_t>0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 32) ^ publisher) * <uint64_t>0xD6E8FEB86659FD93
    return (mixed ^ (mixed >> 32) ^ seed) * <uint64_t>0xD6E8FEB86659FD93


cdef void put_entry(TablePart* part, uint32_t hash_, uint32_t slot) noexcept nogil:
    cdef uint32_t at = hash_ & (part.capacity - 1)
    while part.entries[at].slot != NO_SLOT:
        at = (at + 1) & (part.capacity - 1)
    part.entries[at].hash_ = hash_
    part.entries[at].slot = slot
    part.count += 1


cdef int resize_part(TablePart* part, uint32_t capacity) except -1:
    """Give a part another capacity. Raises MemoryError; then nothing has changed."""
    cdef TableEntry* old = part.entries
    cdef uint32_t old_capacity = part.capacity
    cdef uint32_t at
    part.entries = make_part_entries(capacity)
    part.capacity = capacity
    part.count = 0
    for at in range(old_capacity):
        if old[at].slot != NO_SLOT:
            put_entry(part, old[at].hash_, old[at].slot)
    free(old)
    return 0


cdef TableEntry* make_part_entries(uint32_t capacity) except NULL:
    """Free entries. They begin a cache line, so that those of a run share one."""
    cdef TableEntry* entries = <TableEntry*>aligned_alloc(CACHE_LINE, capacity * sizeof(TableEntry))
    if entries == NULL:
        raise MemoryError()
    memset(entries, 0xFF, capacity * sizeof(TableEntry))  # NO_SLOT
    return entries


cdef TablePart* make_part(uint32_t capacity, uint32_t depth) except NULL:
    cdef TablePart* part = <TablePart*>malloc(sizeof(TablePart))
    if part == NULL:
        raise MemoryError()
    try:
        part.entries = make_part_entries(capacity)
    except MemoryError:
        free(part)
        raise
    part.capacity = capacity
    part.count = 0
    part.depth = depth
    part.unused = 0
    return part
