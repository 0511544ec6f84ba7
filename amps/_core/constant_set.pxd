# A set of constants for IN. See constant_set.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.value cimport Arena, Value


cdef struct SetSlot:
    uint64_t hash
    uint32_t member_plus_one       # 0 = free
    uint32_t unused


cdef class ConstantSet:
    """Answers whether a value is equal to one of the members, as `=` would."""

    cdef Arena arena
    cdef Value* members
    cdef uint32_t member_count
    cdef SetSlot* texts            # members that are strings
    cdef SetSlot* numbers          # members that are numbers
    cdef SetSlot* converted        # members that are strings with the form of a number, by their number
    cdef uint32_t capacity         # of each, a power of two

    cdef void enter(self, SetSlot* table, uint64_t hash_, uint32_t member) noexcept
    cdef bint has_text(self, const Value* value) noexcept nogil
    cdef bint has_number(self, SetSlot* table, const Value* number) noexcept nogil
    cdef int holds(self, Value* value, Arena arena) except -1


cdef bint canonical(Value* number) noexcept nogil
cdef uint64_t number_hash(const Value* number) noexcept nogil
