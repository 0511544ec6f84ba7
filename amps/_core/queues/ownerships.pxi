# Who owns the messages of queues that span instances (replication.md §24.8).
#
# An *ownership* is an owner, an epoch, and whether the owner took the message as a proxy. A slot names its ownership by
# a number of 16 bits. The table has each ownership once, with the number of slots that refer to it. So a message needs
# no memory besides its slot, however often it moves.
#
# Owners have numbers, too: 0 is this instance. Names of instances are never forgotten; there are few.
#
# Invariants
# - Ownership 0 is that of this instance at epoch 0, which is not counted: slots of other queues have it all.
# - An ownership to which no slot refers is free, and its number is used again.

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef enum:
    OWNERSHIPS_MAX = 65536
    OWNERS_MAX = 65536             # instances whose names are kept; further ones count as one without a name


cdef class Ownerships:

    def __cinit__(self):
        self.table = NULL

    def __init__(self, str instance not None):
        """instance: the name of this instance."""
        self.capacity = 0
        self.count = 0
        self.numbers = {}
        self.unused = []
        self.recent = 0
        self.names = [instance]
        self.owners = {instance: 0}
        self.reachable = bytearray(1)
        self._append(0, 0, False)

    def __dealloc__(self):
        free(self.table)

    cdef uint32_t owner(self, str name) except? 0xFFFFFFFF:
        """The number of an instance; a new one gets the next number."""
        number = self.owners.get(name)
        if number is None:
            if len(self.names) == OWNERS_MAX - 1 and name:
                return self.owner("")
            number = self.owners[name] = len(self.names)
            self.names.append(name)
            self.reachable.append(0)
        return number

    cdef bint is_reachable(self, uint32_t owner) except -1:
        return self.reachable[owner] != 0

    def set_reachable(self, names):
        """The instances to which a path of connected links is known; no others are."""
        for number in range(len(self.reachable)):
            self.reachable[number] = 0
        for name in names:
            self.reachable[self.owner(name)] = 1

    cdef uint16_t _append(self, uint32_t owner, uint32_t epoch, bint is_proxied) except? 0xFFFF:
        cdef Ownership* grown
        cdef uint32_t number
        if self.unused:
            number = self.unused.pop()
        else:
            if self.count == OWNERSHIPS_MAX:
                raise QueueMemoryFull("messages of queues have too many different owners and ownership epochs")
            if self.count == self.capacity:
                grown = <Ownership*>realloc(self.table, max(<uint32_t>64, 2 * self.capacity) * sizeof(Ownership))
                if grown == NULL:
                    raise MemoryError()
                self.table = grown
                self.capacity = max(<uint32_t>64, 2 * self.capacity)
            number = self.count
            self.count += 1
        self.table[number].owner = owner
        self.table[number].epoch = epoch
        self.table[number].is_proxied = is_proxied
        self.table[number].references = 0
        self.numbers[owner, epoch, is_proxied] = number
        return <uint16_t>number

    cdef uint16_t take(self, uint32_t owner, uint32_t epoch, bint is_proxied) except? 0xFFFF:
        """The number of an ownership, for one more slot. Raises QueueMemoryFull."""
        cdef uint32_t number
        if owner == 0 and epoch == 0:
            return 0
        if not self._is_recent(owner, epoch, is_proxied):
            known = self.numbers.get((owner, epoch, is_proxied))
            self.recent = self._append(owner, epoch, is_proxied) if known is None else <uint32_t>known
        number = self.recent
        self.table[number].references += 1
        return <uint16_t>number

    cdef bint _is_recent(self, uint32_t owner, uint32_t epoch, bint is_proxied) noexcept nogil:
        """Whether the number that was taken last is that of an ownership. One without references may be free."""
        cdef Ownership* entry = &self.table[self.recent]
        return entry.references and entry.owner == owner and entry.epoch == epoch and entry.is_proxied == is_proxied

    cdef int give_back(self, uint16_t number) except -1:
        """One slot no longer refers to an ownership."""
        cdef Ownership* entry = &self.table[number]
        if number == 0:
            return 0
        entry.references -= 1
        if entry.references == 0:
            del self.numbers[entry.owner, entry.epoch, entry.is_proxied != 0]
            self.unused.append(number)
        return 0

    cdef bint supersedes(self, uint32_t owner, uint32_t epoch, bint is_proxied, uint16_t number) except -1:
        """Whether a transfer replaces the ownership of that number: the higher epoch does; of the same epoch, one that
        is not by proxy; else the owner whose name comes first.
        """
        cdef Ownership* entry = &self.table[number]
        if epoch != entry.epoch:
            return epoch > entry.epoch
        if is_proxied != entry.is_proxied:
            return not is_proxied
        return self.names[owner] < self.names[entry.owner]

    @property
    def in_use(self):
        """Number of ownerships to which slots refer."""
        return len(self.numbers) - 1
