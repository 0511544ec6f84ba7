# Writing FIX and NVFIX messages and changing fields of them (expressions.md §11, §12.4).
#
# A new message has its fields in the order of the paths, with a separator after each. NULL is written as an empty
# value, NaN and numbers too large for a double as 0, booleans as 1 and 0. A number that was read as text keeps that
# text. A separator within a value cannot be written and is replaced by a blank, so that no value can add fields.
#
# A merge keeps all other fields. If a tag is repeated, the first field is changed and the others are removed. New
# fields are written after the last one.

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr

from amps._core.values.fields cimport Destinations, MessageBuilder, destination
from amps._core.values.value cimport VALUE_DOUBLE, VALUE_HAS_TEXT, VALUE_NULL, Arena, Value, to_text


@cython.final
cdef class FixBuilder(MessageBuilder):
    """Writes FIX and NVFIX messages. The arguments are those of FixExtractor."""

    cdef uint8_t separator
    cdef uint8_t stand_in          # replaces a separator within a value
    cdef Destinations destinations

    def __init__(self, paths, uint8_t field_separator=1, numeric_tags=True):
        super().__init__(paths)
        self.separator = field_separator
        self.stand_in = c"_" if field_separator == c" " else c" "
        for path in self.paths:
            written = b"".join(b"/%b" % step if isinstance(step, bytes) else b"[%d]" % step for step in path)
            written = written.decode(errors="replace")
            if len(path) != 1 or not isinstance(path[0], bytes):
                raise ValueError(f"{written} has several steps: messages of this type are flat, give one tag")
            if numeric_tags and not path[0].isdigit():
                raise ValueError(f"{written} is not a tag of FIX: give a number")
            if not path[0] or b"=" in path[0] or self.separator in path[0]:
                raise ValueError(f"{written} is empty or holds an equals sign or the field separator: no tag can")
        self.destinations = Destinations(self.paths)

    cdef int write(self, Value** values, Arena arena) except -1:
        self.destinations.begin(0)
        return self.write_missing(values, arena, self.output.length)

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* at = message
        cdef const uint8_t* end = message + length
        cdef const uint8_t* kept = message  # unchanged bytes begin here
        cdef const uint8_t* tag
        cdef const uint8_t* text
        cdef fix_cursor cursor
        cdef int32_t node
        cdef uint64_t begin = self.output.length
        self.destinations.begin(0)
        fix_begin(&cursor, message, end, self.separator)
        while at < end:
            tag = at
            at = fix_stop(&cursor, at, True)
            if at == end or at == tag or at[0] != c"=":
                return False
            node = destination(self.destinations, 0, tag, <uint32_t>(at - tag))
            text = at + 1
            at = fix_stop(&cursor, text, False)
            if node >= 0:
                if self.destinations.nodes[node].met or values[self.value_at(node)] == NULL:
                    self.output.append(kept, <uint64_t>(tag - kept))
                    kept = at + 1 if at < end else end
                else:
                    self.output.append(kept, <uint64_t>(text - kept))
                    self.write_text(values[self.value_at(node)], arena)
                    kept = at
                self.destinations.nodes[node].met = True
            if at < end:
                at += 1
        self.output.append(kept, <uint64_t>(end - kept))
        self.write_missing(values, arena, begin)
        return True

    cdef int32_t value_at(self, int32_t node) noexcept:
        return self.destinations.nodes[node].value

    cdef int write_missing(self, Value** values, Arena arena, uint64_t begin) except -1:
        """Write the fields that the message does not contain, after the output that begins at `begin`."""
        cdef uint64_t length
        cdef int32_t node
        cdef Value* value
        for node in range(1, <int32_t>self.destinations.node_count):
            value = values[self.value_at(node)]
            if value != NULL and not self.destinations.nodes[node].met:
                length = self.output.length
                if length > begin and self.output.data[length - 1] != self.separator:
                    self.output.append_byte(self.separator)
                self.output.append(
                    self.destinations.nodes[node].name, self.destinations.nodes[node].name_length
                )
                self.output.append_byte(c"=")
                self.write_text(value, arena)
                self.output.append_byte(self.separator)
        return 0

    cdef int write_text(self, const Value* given, Arena arena) except -1:
        cdef Value value = given[0]
        cdef const uint8_t* end
        cdef const uint8_t* stop
        if value.kind == VALUE_DOUBLE and not value.flags & VALUE_HAS_TEXT and not isfinite(value.number.double_):
            return self.output.append_byte(c"0")
        to_text(&value, arena)
        if value.kind == VALUE_NULL:
            return 0
        end = value.text + value.length
        while True:
            stop = <const uint8_t*>memchr(value.text, self.separator, <size_t>(end - value.text))
            if stop == NULL:
                return self.output.append(value.text, <uint64_t>(end - value.text))
            self.output.append(value.text, <uint64_t>(stop - value.text))
            self.output.append_byte(self.stand_in)
            value.text = stop + 1
