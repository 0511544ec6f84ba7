# A set of constants for IN: exactly the result of comparing with each by `=`, in one or two lookups.
#
# It has three tables, because equality depends on both sides (expressions.md §6.1, §14.3): a string equals a string by
# its bytes, but a number by its number. Equal numbers are stored in one form: whole numbers as integers, whatever their
# type was.

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport isnan, trunc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp


cdef bint canonical(Value* number) noexcept nogil:
    """Convert equal numbers to one form. False: it is not a number."""
    cdef double real
    if number.kind == VALUE_BOOLEAN:
        number.kind = VALUE_INTEGER
    elif number.kind == VALUE_DOUBLE:
        real = number.number.double_
        if isnan(real):
            return False
        if real == trunc(real):
            if -9223372036854775808.0 <= real < 9223372036854775808.0:
                number.kind = VALUE_INTEGER
                number.number.integer = <int64_t>real
            elif 0 < real < 18446744073709551616.0:
                number.kind = VALUE_UNSIGNED
                number.number.unsigned_integer = <uint64_t>real
    return True


cdef uint64_t number_hash(const Value* number) noexcept nogil:
    return hash_bytes(<const uint8_t*>&number.number, 8, number.kind)


cdef class ConstantSet:

    def __cinit__(self):
        self.members = NULL
        self.texts = NULL
        self.numbers = NULL
        self.converted = NULL

    def __init__(self, constants):
        """constants: None, bools, ints, floats, bytes. None and NaN are equal to no value."""
        cdef uint32_t at
        cdef Value* member
        cdef Value* number
        self.arena = Arena(1 << 31)
        self.capacity = 16
        while self.capacity < 2 * len(constants):
            self.capacity *= 2
        # Members, followed by the numbers of the members that are strings.
        self.members = <Value*>PyMem_Calloc(2 * len(constants) + 1, sizeof(Value))
        self.texts = <SetSlot*>PyMem_Calloc(self.capacity, sizeof(SetSlot))
        self.numbers = <SetSlot*>PyMem_Calloc(self.capacity, sizeof(SetSlot))
        self.converted = <SetSlot*>PyMem_Calloc(self.capacity, sizeof(SetSlot))
        if self.members == NULL or self.texts == NULL or self.numbers == NULL or self.converted == NULL:
            raise MemoryError()
        self.member_count = <uint32_t>len(constants)
        for at in range(self.member_count):
            member = &self.members[at]
            from_python(constants[at], member, self.arena)
            if member.kind == VALUE_STRING:
                if not self.has_text(member):
                    self.enter(self.texts, hash_bytes(member.text, member.length, 0), at)
                number = &self.members[self.member_count + at]
                if number_from_text(member.text, member.length, number):
                    canonical(number)
                    if not self.has_number(self.converted, number):
                        self.enter(self.converted, number_hash(number), self.member_count + at)
            elif member.kind != VALUE_NULL and canonical(member) and not self.has_number(self.numbers, member):
                self.enter(self.numbers, number_hash(member), at)

    def __dealloc__(self):
        PyMem_Free(self.members)
        PyMem_Free(self.texts)
        PyMem_Free(self.numbers)
        PyMem_Free(self.converted)

    cdef void enter(self, SetSlot* table, uint64_t hash_, uint32_t member) noexcept:
        """Enter a member that has no equal in the table: equal members would form a long chain."""
        cdef uint64_t at = hash_
        while table[at & (self.capacity - 1)].member_plus_one:
            at += 1
        table[at & (self.capacity - 1)].hash = hash_
        table[at & (self.capacity - 1)].member_plus_one = member + 1

    cdef bint has_text(self, const Value* value) noexcept nogil:
        cdef uint64_t hash_ = hash_bytes(value.text, value.length, 0)
        cdef uint64_t at = hash_
        cdef SetSlot* slot
        cdef Value* member
        while True:
            slot = &self.texts[at & (self.capacity - 1)]
            if slot.member_plus_one == 0:
                return False
            member = &self.members[slot.member_plus_one - 1]
            if slot.hash == hash_ and member.length == value.length and (
                memcmp(member.text, value.text, value.length) == 0
            ):
                return True
            at += 1

    cdef bint has_number(self, SetSlot* table, const Value* number) noexcept nogil:
        cdef uint64_t hash_ = number_hash(number)
        cdef uint64_t at = hash_
        cdef SetSlot* slot
        cdef Value* member
        while True:
            slot = &table[at & (self.capacity - 1)]
            if slot.member_plus_one == 0:
                return False
            member = &self.members[slot.member_plus_one - 1]
            if slot.hash == hash_ and member.kind == number.kind and (
                member.number.unsigned_integer == number.number.unsigned_integer
            ):
                return True
            at += 1

    cdef int holds(self, Value* value, Arena arena) except -1:
        """Whether the value is equal to a member."""
        cdef Value number
        settle(value, arena)
        if value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
            return False
        number = value[0]
        if value.kind == VALUE_STRING:
            if self.has_text(value):
                return True
            return (
                number_from_text(value.text, value.length, &number)
                and canonical(&number)
                and self.has_number(self.numbers, &number)
            )
        if not canonical(&number):
            return False
        if self.has_number(self.numbers, &number):
            return True
        if value.flags & VALUE_INFERRED:
            return self.has_text(value)
        return self.has_number(self.converted, &number)

    def contains(self, value, bint untyped=False):
        """Whether a Python value is equal to a member, for tests. untyped: bytes from a format without types."""
        cdef Arena arena = Arena()
        cdef Value made
        from_python(value, &made, arena)
        if untyped:
            made.kind = VALUE_RAW_TEXT
        return bool(self.holds(&made, arena))
