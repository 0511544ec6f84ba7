# The messages of other owners that a walk through a queue has found, best ones first (replication.md 25.78).
#
# Without priorities these are the first ones of the log, and the walk may stop when there are enough. With priorities a
# later message may be better, so the walk goes on to its end, and only the best are kept. A message that is worse than
# the last of enough others costs a comparison.
#
# Invariant
# - At most twice as many as are wanted are kept.

from libc.stdint cimport uint32_t, uint64_t


cdef inline bint is_before(const QueueSlot* one, const QueueSlot* other, bint by_priority) noexcept nogil:
    """Whether one message is delivered before the other: without a priority it comes behind all that have one."""
    if by_priority:
        if (one.flags ^ other.flags) & SLOT_HAS_PRIORITY:
            return one.flags & SLOT_HAS_PRIORITY != 0
        if one.priority != other.priority:
            return one.priority > other.priority
    return one.position < other.position


cdef class Candidates:

    def __init__(self, bint by_priority, uint64_t count_max):
        self.by_priority = by_priority
        self.count_max = max(count_max, <uint64_t>1)
        self.entries = []              # (comes behind all with a priority, inverted priority, position, owner, slot)
        self.has_worst = False
        self.was_cut = False

    cdef bint stops_walk(self):
        """Whether no message behind those found can be better."""
        return not self.by_priority and <uint64_t>len(self.entries) >= self.count_max

    cdef int add(self, uint32_t owner, uint32_t slot, const QueueSlot* message) except -1:
        if self.has_worst and not is_before(message, &self.worst, self.by_priority):
            self.was_cut = True
            return 0
        if self.by_priority:
            self.entries.append((
                message.flags & SLOT_HAS_PRIORITY == 0, ~message.priority, message.position, owner, slot
            ))
        else:
            self.entries.append((False, 0, message.position, owner, slot))
        if self.by_priority and <uint64_t>len(self.entries) >= 2 * self.count_max:
            self._cut()
        return 0

    cdef int _cut(self) except -1:
        """Keep the best ones, in order."""
        self.entries.sort()
        if <uint64_t>len(self.entries) > self.count_max:
            self.was_cut = True
            del self.entries[self.count_max:]
        if <uint64_t>len(self.entries) == self.count_max:
            is_last, inverted, position, _, _ = self.entries[<Py_ssize_t>self.count_max - 1]
            self.worst.flags = 0 if is_last else <int>SLOT_HAS_PRIORITY
            self.worst.priority = ~<uint64_t>inverted
            self.worst.position = position
            self.has_worst = True
        return 0

    cdef list best(self):
        """[(owner, slot)] of the best ones, in the order of delivery."""
        self._cut()
        return [(owner, slot) for _, _, _, owner, slot in self.entries]
