# The leases of one queue in the order in which they began: how old the oldest one is, at any time, at no cost.
#
# What a subscription holds is kept in the order in which leases end, and extending one changes that order, not its age.
# So there is a second order, by beginning. Time does not go back, so a new lease comes last. A lease that is over stays
# where it is until it comes to the front, or until most of what is kept is stale; then all that is gets thrown away.
#
# When a lease began follows from its message's slot: from its end, unless it was extended. Those few are written down.
#
# Invariants: the first entry is that of a lease that lasts, and `oldest_ns` is its beginning; without any, NEVER.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc


cdef enum:
    LEASES_CAPACITY_FIRST = 16
    KEPT_CAPACITY = 4096           # is given back when nothing is leased


cdef class LeaseOrder:

    def __cinit__(self):
        self.given = NULL

    def __init__(self, QueueArena arena not None, uint64_t period_ns):
        """period_ns: how long leases last; 0 = they do not end."""
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
        """UNIX time at which the lease of a message began, which is leased."""
        if self.extended:
            known = self.extended.get(slot)
            if known is not None:
                return known
        if self.slots[slot].flags & SLOT_LEASE_ENDS:
            return self.slots[slot].lease_ns - self.period_ns
        return self.slots[slot].lease_ns

    cdef int give(self, uint32_t slot, uint64_t now_ns, uint64_t leased) except -1:
        """A lease begins. leased: how many messages are leased besides."""
        if self.first + self.count == self.capacity:
            self.make_room(leased)
        self.given[self.first + self.count].began_ns = now_ns
        self.given[self.first + self.count].slot = slot
        self.count += 1
        if self.count == 1:
            self.oldest_ns = now_ns
        return 0

    cdef int extend(self, uint32_t slot) except -1:
        """A lease is about to be extended; it stays as old as it is."""
        self.extended[slot] = self.began_ns(slot)
        return 0

    cdef int end(self, uint32_t slot) except -1:
        """A lease is about to end; its slot is as it was."""
        cdef bint is_first = self.given[self.first].slot == slot
        if self.extended:
            self.extended.pop(slot, None)
        if not is_first:
            return 0
        # One that is over may look as the one that ends: if both began at the same time.
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
        """Whether it is not stale. A slot that has another message by now, leased at the same time, tells the same."""
        return self.slots[lease.slot].state == SLOT_LEASED and self.began_ns(lease.slot) == lease.began_ns

    cdef int make_room(self, uint64_t leased) except -1:
        """For one more: where stale ones were if there are many, else in more memory."""
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
