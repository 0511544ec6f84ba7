# Writing composite-local messages: each part with the builder of its own type.
#
# Parts without fields to write are empty in new messages, and unchanged in merged ones. A merge also keeps the unparsed
# payload behind the parts; new messages have none.

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.values.fields cimport ByteBuffer, MessageBuilder
from amps._core.values.value cimport Arena, Value

cdef enum:
    PART_BYTES_MAX = 0xFFFFFFFF


cdef class CompositeBuilder(MessageBuilder):

    cdef tuple builders            # by part; None: no path belongs to it
    cdef tuple places              # by part: indexes of its paths, in the order of its builder
    cdef Value** chosen            # values for one builder

    def __cinit__(self):
        self.chosen = NULL

    def __init__(self, paths, builders, places):
        super().__init__(paths)
        self.builders = tuple([<MessageBuilder?>one if one is not None else None for one in builders])
        self.places = tuple(tuple(of_part) for of_part in places)
        if len(self.places) != len(self.builders) or sorted(sum(self.places, ())) != list(range(len(self.paths))):
            raise ValueError("each path belongs to one part")
        self.chosen = <Value**>PyMem_Calloc(len(self.paths) + 1, sizeof(Value*))
        if self.chosen == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.chosen)

    cdef int write(self, Value** values, Arena arena) except -1:
        cdef uint32_t number
        for number in range(<uint32_t>len(self.builders)):
            self.write_part(number, NULL, values, arena)
        return 0

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* at = message
        cdef const uint8_t* end = message + length
        cdef Part part
        cdef uint32_t number
        for number in range(<uint32_t>len(self.builders)):
            if not next_part(&at, end, &part) or not self.write_part(number, &part, values, arena):
                return False
        self.output.append(at, <uint64_t>(end - at))
        return True

    cdef bint write_part(self, uint32_t number, Part* part, Value** values, Arena arena) except -1:
        """Write one part, of a merged message or (NULL) a new one. False: it cannot be parsed."""
        cdef MessageBuilder builder = self.builders[number]
        cdef uint32_t given = 0
        cdef uint32_t at = 0
        if builder is None:
            if part == NULL:
                append_part(self.output, NULL, 0)
            else:
                append_part(self.output, part.data, part.length)
            return True
        for place in <tuple>self.places[number]:
            self.chosen[at] = values[<uint32_t>place]
            given += self.chosen[at] != NULL
            at += 1
        builder.output.length = 0
        if part != NULL and part.length:
            if not builder.write_merged(part.data, part.length, self.chosen, arena):
                return False
        elif given:
            builder.write(self.chosen, arena)
        append_part(self.output, builder.output.data, builder.output.length)
        return True


cdef int append_part(ByteBuffer output, const uint8_t* data, uint64_t length) except -1:
    cdef uint8_t* prefix
    cdef int at
    if length > PART_BYTES_MAX:
        raise ValueError(f"a part of {length} bytes; the maximum is {PART_BYTES_MAX}")
    prefix = output.reserve(PART_PREFIX_BYTES)
    for at in range(PART_PREFIX_BYTES):
        prefix[at] = <uint8_t>(length >> (8 * (PART_PREFIX_BYTES - 1 - at)) & 0xFF)
    output.length += PART_PREFIX_BYTES
    return output.append(data, length)
