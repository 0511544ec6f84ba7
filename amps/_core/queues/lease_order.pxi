# The leases of one queue in the order in which they began. They give the age of the oldest lease at any time without a
# search.
#
# A subscription's list of held messages is in the order in which leases end. Extending a lease changes its place in
# that order, but not its age. So there is a second order, by beginning. Time does not go back, so a new lease is
# appended. The entry of a lease that has ended stays until it comes to the front, or until most entries are stale; then
# all stale entries are removed.
#
# The beginning of a lease is computed from its end in the message's slot. For an extended lease, which is rare, the
# beginning is stored in `extended`.
#
# Invariants: The first entry is that of a lease that has not ended, and `oldest_ns` is its beginning. Without entries,
# `oldest_ns` is NEVER.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc


cdef enum:
    LEASES_CAPACITY_FIRST = 16
    KEPT_CAPACITY = 4096           # a larger capacity is freed when nothing is leased


cdef class LeaseOrder:

    def __cinit__(self):
        self.given = NULL

    def __init__(self, QueueArena arena not None, uint64_t period_ns):
        """period_ns: duration of leases; 0 = they do not end."""
        self.slots = arena.slots
        self.oldest_ns = NEVER
        self.period_ns = period_ns
        self.first = 0
        self.count = 0
        self.capacity = 0
        self.extended = {}

    def __dealloc__(self):
        free(self.given)

    cdef uint64_t began_ns(self, uint32_t slot) except? 0:
        """UNIX time at which the lease of a leased message began."""
        if self.extended:
            known = self.extended.get(slot)
            if known is not None:
                return known
        if self.slots[slot].flags & SLOT_LEASE_ENDS:
            return self.slots[slot].lease_ns - self.period_ns
        return self.slots[slot].lease_ns

    cdef int give(self, uint32_t slot, uint64_t now_ns, uint64_t leased) except -1:
        """Add a lease that begins now. leased: number of the other leased messages."""
        if self.first + self.count == self.capacity:
            self.make_room(leased)
        self.given[self.first + self.count].began_ns = now_ns
        self.given[self.first + self.count].slot = slot
        self.count += 1
        if self.count == 1:
            self.oldest_ns = now_ns
        return 0

    cdef int extend(self, uint32_t slot) except -1:
        """Store the beginning of a lease that is about to be extended."""
        self.extended[slot] = self.began_ns(slot)
        return 0

    cdef int end(self, uint32_t slot) except -1:
        """Remove a lease that is about to end; its slot must not have changed yet."""
        cdef bint is_first = self.given[self.first].slot == slot
        if self.extended:
            self.extended.pop(slot, None)
        if not is_first:
            return 0
        # A stale entry may be equal to the one that ends, if both leases began at the same time.
        while self.count and (self.given[self.first].slot == slot or not self.lasts(&self.given[self.first])):
            self.first += 1
            self.count -= 1
        if self.count:
            self.oldest_ns = self.given[self.first].began_ns
            return 0
        self.oldest_ns = NEVER
        self.first = 0
        if self.capacity > KEPT_CAPACITY:
            free(self.given)
            self.given = NULL
            self.capacity = 0
        return 0

    cdef bint lasts(self, const GivenLease* lease) except -1:
        """Whether an entry is not stale. A slot reused for a message leased at the same time counts as not stale."""
        return self.slots[lease.slot].state == SLOT_LEASED and self.began_ns(lease.slot) == lease.began_ns

    cdef int make_room(self, uint64_t leased) except -1:
        """Make room for one more entry: remove stale entries if they are many, else allocate memory."""
        cdef GivenLease* grown
        cdef uint64_t capacity = max(<uint64_t>LEASES_CAPACITY_FIRST, 2 * self.capacity)
        cdef uint64_t kept = 0
        cdef uint64_t at
        if 2 * self.count < self.capacity or self.count > 2 * leased + LEASES_CAPACITY_FIRST:
            for at in range(self.first, self.first + self.count):
                if self.lasts(&self.given[at]):
                    self.given[kept] = self.given[at]
                    kept += 1
            self.first = 0
            self.count = kept
            if kept < self.capacity:
                return 0
        grown = <GivenLease*>realloc(self.given, capacity * sizeof(GivenLease))
        if grown == NULL:
            raise MemoryError()
        self.given = grown
        self.capacity = capacity
        return 0
