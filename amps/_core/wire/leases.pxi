# The leases of one connection: log position and slot of each queue message that was delivered to it.
#
# A client acknowledges a message by its bookmark. The core finds a message by its slot, and a record in the journal by
# its log position. Both are in the delivery, are noted here, and return to the core with the acknowledgement. So no
# bookmark has to be searched in the log, as long as a client acknowledges messages that were delivered to it.
#
# The table is a hint, not the authority. A lease that ends without an acknowledgement leaves its entry behind; entries
# above a bound are dropped, the oldest first. A message without an entry is searched in the journal, and the core
# notices if a slot has another message by now.
#
# Entries are in a ring in the order of delivery. A hash index with open addressing refers to them. Invariants: the
# index holds exactly the places of the leases that are not over, at most half of it is in use, and it refers to no
# entry before `first` or from `next` on.

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

cdef enum:
    CAPACITY_MIN = 16

cdef uint64_t COUNT_MAX = 1 << 28


cdef inline uint64_t hash_of(uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil:
    # Sequences are mostly consecutive, publisher ids are random.
    cdef uint64_t mixed = (sequence ^ (<uint64_t>queue << 48) ^ publisher_id) * <uint64_t>0x9E3779B97F4A7C15
    return mixed ^ (mixed >> 32)


@cython.final
cdef class LeaseTable:

    def __cinit__(self):
        self.leases = NULL
        self.index = NULL

    def __init__(self):
        self.capacity = 0
        self.first = 0
        self.next = 0
        self.count = 0
        self.count_max = CAPACITY_MIN
        self.resize(CAPACITY_MIN)

    def __dealloc__(self):
        free(self.leases)
        free(self.index)

    def set_bound(self, uint64_t count_max):
        """Set the largest number of entries, at least CAPACITY_MIN. Above it, the oldest entries are dropped."""
        self.count_max = min(max(count_max, <uint64_t>CAPACITY_MIN), COUNT_MAX)

    def add(self, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t slot, uint32_t queue):
        """Note a delivery. It replaces an earlier entry of the same message and queue."""
        self.note(publisher_id, sequence, position, slot, queue)

    def get(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue):
        """(log position, slot) of a message delivered from a queue; None if it has no entry (any more)."""
        cdef const Lease* found = self.find(publisher_id, sequence, queue)
        return None if found == NULL else (found.position, found.slot)

    def remove(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue):
        """Remove a lease that is over. Return False if it had no entry."""
        return self.drop(publisher_id, sequence, queue)

    cdef uint64_t place_of(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil:
        """The place in the index at which a lease is, or would be entered."""
        cdef uint64_t mask = 2 * self.capacity - 1
        cdef uint64_t place = hash_of(publisher_id, sequence, queue) & mask
        cdef const Lease* lease
        while self.index[place]:
            lease = &self.leases[self.index[place] - 1]
            if lease.sequence == sequence and lease.publisher_id == publisher_id and lease.queue == queue:
                break
            place = (place + 1) & mask
        return place

    cdef const Lease* find(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil:
        """The entry of a lease, valid until the next note or drop; NULL if there is none."""
        cdef uint32_t found = self.index[self.place_of(publisher_id, sequence, queue)]
        return &self.leases[found - 1] if found else NULL

    cdef int note(
        self, uint64_t publisher_id, uint64_t sequence, uint64_t position, uint32_t slot, uint32_t queue
    ) except -1:
        """Note a delivery, as `add` does."""
        cdef Lease* lease
        self.drop(publisher_id, sequence, queue)
        while self.count >= self.count_max or self.next - self.first == self.capacity:
            self.make_room()
        lease = &self.leases[self.next & (self.capacity - 1)]
        lease.publisher_id = publisher_id
        lease.sequence = sequence
        lease.position = position
        lease.slot = slot
        lease.queue = queue
        self.enter(self.next & (self.capacity - 1))
        self.next += 1
        self.count += 1
        return 0

    cdef bint drop(self, uint64_t publisher_id, uint64_t sequence, uint32_t queue) noexcept nogil:
        """Remove a lease that is over. Return False if it had no entry."""
        cdef uint64_t place = self.place_of(publisher_id, sequence, queue)
        cdef uint32_t found = self.index[place]
        if found == 0:
            return False
        self.leases[found - 1].queue = NO_ENTRY
        self.free_place(place)
        self.count -= 1
        while self.first != self.next and self.leases[self.first & (self.capacity - 1)].queue == NO_ENTRY:
            self.first += 1
        return True

    cdef void enter(self, uint64_t at) noexcept nogil:
        """Enter a place of the ring in the index."""
        cdef const Lease* lease = &self.leases[at]
        self.index[self.place_of(lease.publisher_id, lease.sequence, lease.queue)] = <uint32_t>(at + 1)

    cdef void free_place(self, uint64_t hole) noexcept nogil:
        """Free a place of the index, and move back the entries that were displaced behind it."""
        cdef uint64_t mask = 2 * self.capacity - 1
        cdef uint64_t place = hole
        cdef uint64_t home
        cdef const Lease* lease
        while True:
            place = (place + 1) & mask
            if self.index[place] == 0:
                break
            lease = &self.leases[self.index[place] - 1]
            home = hash_of(lease.publisher_id, lease.sequence, lease.queue) & mask
            if ((place - home) & mask) >= ((place - hole) & mask):
                self.index[hole] = self.index[place]
                hole = place
        self.index[hole] = 0

    cdef int make_room(self) except -1:
        """Make room for one more entry: drop the oldest one, remove the gaps, or grow."""
        cdef const Lease* oldest
        if self.count >= self.count_max:
            oldest = &self.leases[self.first & (self.capacity - 1)]
            self.drop(oldest.publisher_id, oldest.sequence, oldest.queue)
        elif self.count * 2 <= self.capacity:
            self.resize(self.capacity)
        else:
            self.resize(self.capacity * 2)
        return 0

    cdef int resize(self, uint64_t capacity) except -1:
        """Move all entries, without gaps, into a ring of that capacity."""
        cdef Lease* old = self.leases
        cdef uint64_t old_capacity = self.capacity
        cdef uint64_t at
        cdef Lease* leases = <Lease*>malloc(capacity * sizeof(Lease))
        cdef uint32_t* index = <uint32_t*>calloc(2 * capacity, sizeof(uint32_t))
        cdef uint64_t moved = 0
        if leases == NULL or index == NULL:
            free(leases)
            free(index)
            raise MemoryError()
        free(self.index)
        self.leases = leases
        self.index = index
        self.capacity = capacity
        for at in range(self.first, self.next):
            if old[at & (old_capacity - 1)].queue != NO_ENTRY:
                leases[moved] = old[at & (old_capacity - 1)]
                self.enter(moved)
                moved += 1
        free(old)
        self.first = 0
        self.next = moved
        return 0
