# Writing messages with known fields, for projections, views and enrichment (expressions.md §11).
#
# A builder is created once for a list of destination paths, and then writes any number of messages: new ones (`write`),
# or an existing message with these fields changed (`write_merged`). Message types share the memory and the rules of
# this module; each type is a subclass. A value that is left out (NULL pointer) is not written, and is removed from the
# message that is merged into. A value that is NULL is written as the type writes NULL.
#
# Invariant: values are settled, and there is one per path. If one of two paths equals the other or leads through it,
# the later one applies: the constructor of a type drops the earlier one.

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from amps._core.values.value cimport VALUE_NULL, Arena, Value, from_python, settle

cdef enum:
    CAPACITY_MIN = 1024

OMIT = object()
"""Used in place of a value: the field is left out."""


cdef class ByteBuffer:

    def __cinit__(self):
        self.data = NULL
        self.length = 0
        self.capacity = 0

    def __dealloc__(self):
        free(self.data)

    cdef uint8_t* reserve(self, uint64_t length) except NULL:
        """Make room for `length` more bytes at the end. The caller adds the number of bytes it wrote to `length`."""
        cdef uint64_t capacity
        cdef uint8_t* grown
        if self.capacity - self.length < length:
            capacity = max(<uint64_t>CAPACITY_MIN, self.capacity * 2, self.length + length)
            grown = <uint8_t*>realloc(self.data, capacity)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            self.capacity = capacity
        return self.data + self.length

    cdef int append(self, const void* added, uint64_t length) except -1:
        if length:
            memcpy(self.reserve(length), added, length)
            self.length += length
        return 0

    cdef int append_byte(self, uint8_t added) except -1:
        self.reserve(1)[0] = added
        self.length += 1
        return 0


cdef class MessageBuilder:

    def __init__(self, paths):
        """paths: tuples of steps, which are names in bytes. ValueError: the type cannot hold such a field."""
        self.paths = tuple(paths)
        self.output = ByteBuffer()
        self.arena = Arena()

    cdef int write(self, Value** values, Arena arena) except -1:
        """Append a new message with these values: one per path, NULL for a field that is left out."""
        raise NotImplementedError

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        """Append the message with these fields changed.

        False: it cannot be parsed; the appended bytes are no message.
        """
        raise NotImplementedError

    def build(self, values):
        """A new message. values: one per path: None, bool, int, float, bytes, or OMIT."""
        return self._made(values, None)

    def merge(self, message, values):
        """The message with these fields changed. ValueError: it cannot be parsed."""
        return self._made(values, message)

    def project(self, FieldValues found):
        """A new message of the first value of each slot, in the order of the paths.

        Slots without a value are left out.
        """
        return self._made([None] * len(self.paths), None, found)

    def _made(self, values, message, FieldValues found=None):
        cdef uint64_t count = <uint64_t>len(self.paths)
        cdef uint64_t at
        cdef Value* given
        cdef Value** chosen
        cdef const uint8_t[::1] view
        cdef const uint8_t* data = NULL
        if <uint64_t>len(values) != count:
            raise ValueError(f"{len(values)} values for {count} fields")
        given = <Value*>PyMem_Calloc(count + 1, sizeof(Value))
        chosen = <Value**>PyMem_Calloc(count + 1, sizeof(Value*))
        self.arena.clear()
        self.output.length = 0
        try:
            if given == NULL or chosen == NULL:
                raise MemoryError()
            for at in range(count):
                given[at].kind = VALUE_NULL
                if found is not None:
                    if at < found.slot_count and found.slots[at].first >= 0:
                        given[at] = found.nodes[found.slots[at].first].value
                        settle(&given[at], found.arena)
                        chosen[at] = &given[at]
                elif values[at] is not OMIT:
                    from_python(values[at], &given[at], self.arena)
                    chosen[at] = &given[at]
            if message is None:
                self.write(chosen, self.arena)
            else:
                view = message
                if view.shape[0]:
                    data = &view[0]
                if not self.write_merged(data, <uint64_t>view.shape[0], chosen, self.arena):
                    raise ValueError("the message cannot be parsed")
            return (<const char*>self.output.data)[:self.output.length] if self.output.length else b""
        finally:
            PyMem_Free(given)
            PyMem_Free(chosen)
