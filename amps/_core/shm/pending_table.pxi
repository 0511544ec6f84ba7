# The pending table of a destination: which publishers have records that the destination has not acknowledged.
#
# A destination's watermark is one position. A publisher must not wait for the records of others that a stopped
# destination lacks. The table has, for each publisher, the first and the last position of such records. Only the
# replication process writes it, before it publishes that it has scanned the log up to there. Transports read it.
#
# The range of an entry only says too much, never too little: its first position is that of the oldest record when the
# entry was made or became current again, and records before the watermark do not count. An entry whose last position
# is below the watermark is outdated; it is used again, or dropped when the table is made smaller.
#
# Invariants
# - A reader that has read a `scanned` beyond a record of a publisher finds that record in the table.
# - While entries are moved, and if the table is full, a reader is told that records are pending.

import mmap

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from amps._core.shm.platform cimport (
    acquire_fence,
    load_acquire,
    load_relaxed,
    release_fence,
    store_relaxed,
    store_release,
)


cdef inline uint64_t place_of(uint64_t publisher_id, uint64_t capacity) noexcept nogil:
    # A publisher id is a hash already, but a stranger may choose the text behind it.
    return (publisher_id * <uint64_t>0x9E3779B97F4A7C15) >> 20 & (capacity - 1)


cdef class PendingTable:
    """The pending table of one destination, in shared memory.

    capacity: a power of two. More publishers than three quarters of it with pending records make the table full.
    """

    def __init__(self, uint64_t capacity=65536):
        if capacity < 8 or capacity & (capacity - 1):
            raise ValueError(f"the capacity of a pending table must be a power of two of at least 8, not {capacity}")
        self.capacity = capacity
        self._memory = mmap.mmap(-1, sizeof(PendingHeader) + capacity * sizeof(PendingEntry))
        cdef unsigned char[::1] view = self._memory
        self.header = <PendingHeader*>&view[0]
        self.entries = <PendingEntry*>(<char*>self.header + sizeof(PendingHeader))
        self.used = 0

    def begin(self):
        """Writer: forget all entries, before any position is scanned. Readers then wait for the watermark alone."""
        store_release(&self.header.version, self.header.version | 1)
        release_fence()
        memset(self.entries, 0, self.capacity * sizeof(PendingEntry))
        self.used = 0
        store_release(&self.header.full, 0)
        store_release(&self.header.version, self.header.version + 1)

    cdef PendingEntry* find(self, uint64_t publisher_id) noexcept nogil:
        """The entry of a publisher, or the free one where it would be. There always is a free one."""
        cdef uint64_t place = place_of(publisher_id, self.capacity)
        cdef uint64_t found
        while True:
            found = load_acquire(&self.entries[place].publisher_id)
            if found == publisher_id or found == 0:
                return &self.entries[place]
            place = (place + 1) & (self.capacity - 1)

    cdef int note(self, uint64_t publisher_id, uint64_t position, uint64_t sequence, uint64_t replicated) except -1:
        """Writer: the destination is to get a publisher's record. Positions rise. replicated: its watermark."""
        cdef PendingEntry* entry = self.find(publisher_id)
        if entry.publisher_id == 0:
            if self.used >= self.capacity - self.capacity // 4:
                self.drop_outdated(replicated)
                if self.used >= self.capacity - self.capacity // 4:
                    store_release(&self.header.full, 1)
                    return 0
                entry = self.find(publisher_id)
            store_relaxed(&entry.first_position, position)
            store_relaxed(&entry.last_position, position)
            store_relaxed(&entry.first_sequence, sequence)
            store_release(&entry.publisher_id, publisher_id)
            self.used += 1
            return 0
        if entry.last_position < replicated:
            # In this order a reader may see too large a range meanwhile, never too small a one.
            store_release(&entry.last_position, position)
            store_release(&entry.first_sequence, sequence)
            store_release(&entry.first_position, position)
        else:
            store_release(&entry.last_position, position)
        return 0

    cdef int drop_outdated(self, uint64_t replicated) except -1:
        """Writer: make room by dropping the entries of publishers without pending records."""
        cdef PendingEntry* kept = <PendingEntry*>malloc(self.used * sizeof(PendingEntry))
        cdef uint64_t count = 0
        cdef uint64_t at
        cdef PendingEntry* entry
        if kept == NULL:
            raise MemoryError()
        for at in range(self.capacity):
            if self.entries[at].publisher_id and self.entries[at].last_position >= replicated:
                kept[count] = self.entries[at]
                count += 1
        store_release(&self.header.version, self.header.version + 1)
        release_fence()
        memset(self.entries, 0, self.capacity * sizeof(PendingEntry))
        for at in range(count):
            entry = self.find(kept[at].publisher_id)
            entry[0] = kept[at]
        self.used = count
        free(kept)
        store_release(&self.header.version, self.header.version + 1)
        return 0

    cdef bint pending(
        self, uint64_t publisher_id, uint64_t before, uint64_t replicated, uint64_t* sequence, uint64_t* until
    ) noexcept nogil:
        """Reader, after it has read `scanned` and then `replicated`: whether a publisher has a pending record before a
        log position. sequence: that of the first one, or of an earlier record; 0 if it is not known. until: it has none
        any more when the watermark is there; 0 if the table must be read again after the next change.
        """
        cdef uint64_t version = load_acquire(&self.header.version)
        cdef PendingEntry* entry
        cdef uint64_t first
        cdef uint64_t last
        cdef uint64_t place
        cdef uint64_t found
        cdef uint64_t steps
        sequence[0] = 0
        until[0] = 0
        if version & 1:
            return True
        if load_acquire(&self.header.full):
            until[0] = before
            return True
        place = place_of(publisher_id, self.capacity)
        for steps in range(self.capacity):
            found = load_acquire(&self.entries[place].publisher_id)
            if found == publisher_id or found == 0:
                break
            place = (place + 1) & (self.capacity - 1)
        else:
            return True  # entries are being moved
        entry = &self.entries[place]
        first = load_acquire(&entry.first_position)
        last = load_acquire(&entry.last_position)
        sequence[0] = load_relaxed(&entry.first_sequence)
        acquire_fence()
        if load_relaxed(&self.header.version) != version:
            sequence[0] = 0
            return True
        if found == 0 or last < replicated or max(first, replicated) >= before:
            return False
        until[0] = min(before, last + 1)
        return True

    # --- Python interface: simulation and tests -------------------------------------------------------

    def note_record(self, uint64_t publisher_id, uint64_t position, uint64_t sequence, uint64_t replicated):
        """Writer: the destination is to get a publisher's record at a log position."""
        self.note(publisher_id, position, sequence, replicated)

    def is_pending(self, uint64_t publisher_id, uint64_t before, uint64_t replicated):
        """Whether a publisher has a pending record before a position, and the sequence of the first one or 0."""
        cdef uint64_t sequence = 0
        cdef uint64_t until = 0
        cdef bint found = self.pending(publisher_id, before, replicated, &sequence, &until)
        return found, sequence

    @property
    def full(self):
        """Whether some publishers have no entry: then transports wait for the watermark alone."""
        return load_acquire(&self.header.full) != 0
