# Writing JSON messages and changing fields of them (expressions.md §11, §12.4).
#
# A new message is an object without blanks, with its members in the order of the paths. NULL, NaN and numbers too large
# for a double are written as `null`. A number that was read as text keeps that text if it is valid in JSON. Text is
# written byte for byte, except for quotes, backslashes and control characters: text that is not UTF-8 stays so.
#
# A merge keeps everything else in the message, including blanks. If several members have the same name, and the name is
# on a destination path, the member that counts for readers is changed and the others are removed. So no message can
# make the builder write a value repeatedly. If a path leads through an array, the first object in it gets the field and
# the other objects lose it: the field then has this one value. If a path leads through another value that is not an
# object, an object replaces that value.
#
# Skipped text is checked as by the extractor (messages/json_scan.pxi), but always to the end. The depth of recursion
# depends on the paths, never on the message.

cimport cython
from libc.math cimport isfinite
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from amps._core.values.fields cimport Destination, Destinations, MessageBuilder, destination
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_HAS_TEXT,
    VALUE_NULL,
    VALUE_RAW_STRING,
    VALUE_STRING,
    Arena,
    Value,
    settle,
    to_text,
)


cdef extern from "json_write.h" nogil:
    const uint8_t* json_plain_end(const uint8_t* at, const uint8_t* end)
    uint32_t json_escape(uint8_t byte, uint8_t* out)


cdef bint holds_object(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Whether there is an object in an array whose content begins at `at`, or in arrays within it."""
    cdef uint64_t depth = 1
    while depth:
        at = json_structure(at, end)
        if at == end or at[0] == c'}':
            return False
        if at[0] == c'"':
            at = json_skip_string(at + 1, end)
            if at == NULL:
                return False
            continue
        if at[0] == c'{':
            return True
        depth = depth + 1 if at[0] == c'[' else depth - 1
        at += 1
    return False


@cython.final
cdef class JsonBuilder(MessageBuilder):
    """Writes JSON messages.

    early_termination: the element EarlyTerminationOptimization; without it the last of several equal members counts.
    """

    cdef Destinations destinations
    cdef Value** values            # of the current message
    cdef Arena texts
    cdef const uint8_t* end        # of the message that is merged into
    cdef bint last_counts          # of members with one name
    cdef const uint8_t** counting  # by node: position of the value of the member that counts

    def __cinit__(self):
        self.counting = NULL

    def __init__(self, paths, early_termination=True):
        super().__init__(paths)
        self.destinations = Destinations(self.paths)
        self.last_counts = not early_termination
        self.counting = <const uint8_t**>calloc(self.destinations.node_count, sizeof(uint8_t*))
        if self.counting == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.counting)

    cdef int write(self, Value** values, Arena arena) except -1:
        self.values = values
        self.texts = arena
        self.destinations.choose(values)
        return self.write_below(0)

    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1:
        cdef const uint8_t* at
        cdef const uint8_t* behind
        self.end = message + length
        at = json_skip_space(message, self.end)
        if at == self.end:
            self.write(values, arena)
            return True
        if at[0] != c'{':
            return False
        self.values = values
        self.texts = arena
        self.destinations.choose(values)
        self.output.append(message, <uint64_t>(at - message))
        behind = self.merge_object(at + 1, 0, False)
        if behind == NULL or json_skip_space(behind, self.end) != self.end:
            return False
        self.output.append(behind, <uint64_t>(self.end - behind))
        return True

    cdef int write_below(self, int32_t top) except -1:
        """Write an object with everything below a node that is to be written."""
        cdef Destination* nodes = self.destinations.nodes
        cdef int32_t node = nodes[top].first_child
        cdef bint first = True
        self.output.append_byte(c'{')
        while True:
            if node < 0:
                self.output.append_byte(c'}')
                return 0
            if nodes[node].written:
                self.write_name(node, first)
                first = False
                if nodes[node].value < 0:
                    self.output.append_byte(c'{')
                    node = nodes[node].first_child
                    first = True
                    continue
                self.write_value(self.values[nodes[node].value])
            while nodes[node].next_sibling < 0:
                node = nodes[node].parent
                if node == top:
                    break
                self.output.append_byte(c'}')
                first = False
            node = -1 if node == top else nodes[node].next_sibling

    cdef int write_name(self, int32_t node, bint first) except -1:
        if not first:
            self.output.append_byte(c',')
        self.write_text(self.destinations.nodes[node].name, self.destinations.nodes[node].name_length)
        return self.output.append_byte(c':')

    cdef int write_text(self, const uint8_t* text, uint64_t length) except -1:
        cdef const uint8_t* end = text + length
        cdef const uint8_t* stop
        self.output.append_byte(c'"')
        while True:
            stop = json_plain_end(text, end)
            self.output.append(text, <uint64_t>(stop - text))
            if stop == end:
                return self.output.append_byte(c'"')
            self.output.length += json_escape(stop[0], self.output.reserve(6))
            text = stop + 1

    cdef int write_value(self, const Value* given) except -1:
        cdef Value value = given[0]
        if value.kind == VALUE_STRING:
            return self.write_text(value.text, value.length)
        if value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
            return self.output.append(b"null", 4)
        if value.kind == VALUE_BOOLEAN:
            if value.number.integer:
                return self.output.append(b"true", 4)
            return self.output.append(b"false", 5)
        if not value.flags & VALUE_HAS_TEXT or not json_is_number(value.text, value.text + value.length):
            if value.kind == VALUE_DOUBLE and not isfinite(value.number.double_):
                return self.output.append(b"null", 4)
            value.flags = 0
            to_text(&value, self.texts)
        return self.output.append(value.text, value.length)

    cdef const uint8_t* merge_object(self, const uint8_t* at, int32_t node, bint removing) except? NULL:
        """Merge the members of an object whose content begins at `at`. Return the position behind it; NULL: malformed.

        removing: the destinations are removed instead of written.
        """
        cdef const uint8_t* end = self.end
        cdef const uint8_t* begin      # of the member, with the blanks before it
        cdef const uint8_t* value
        cdef const uint8_t* blanks = at
        cdef int32_t child = -1
        cdef bint first = True
        cdef bint removed
        cdef Destination* named
        self.destinations.begin(node)
        if self.last_counts and not self.find_counting(at, node):
            return NULL
        self.output.append_byte(c'{')
        value = json_skip_space(at, end)
        if value < end and value[0] == c'}':
            at = value
        else:
            while True:
                begin = at
                value = self.member(json_skip_space(at, end), node, &child)
                if value == NULL:
                    return NULL
                at = json_skip_value(value, end)
                if at == NULL:
                    return NULL
                removed = False
                if child >= 0:
                    named = &self.destinations.nodes[child]
                    removed = self.counting[child] != value if self.last_counts else named.met
                    named.met = True
                    if named.value >= 0 and (removing or self.values[named.value] == NULL):
                        removed = True
                if not removed:
                    if not first:
                        # The blanks before this comma belong to the previous member.
                        self.output.append_byte(c',')
                    first = False
                    self.output.append(begin, <uint64_t>(value - begin))
                    if child < 0:
                        self.output.append(value, <uint64_t>(at - value))
                    elif not self.merge_value(value, at, child, removing):
                        return NULL
                blanks = at
                at = json_skip_space(at, end)
                if at >= end:
                    return NULL
                if at[0] == c'}':
                    break
                if at[0] != c',':
                    return NULL
                if not removed:
                    self.output.append(blanks, <uint64_t>(at - blanks))
                at += 1
        if not removing:
            child = self.destinations.nodes[node].first_child
            while child >= 0:
                if self.destinations.nodes[child].written and not self.destinations.nodes[child].met:
                    self.write_name(child, first)
                    first = False
                    self.write_at(child)
                child = self.destinations.nodes[child].next_sibling
        self.output.append(blanks, <uint64_t>(at - blanks))
        self.output.append_byte(c'}')
        return at + 1

    cdef bint find_counting(self, const uint8_t* at, int32_t node) except -1:
        """Find the members of an object that count, the last ones. False: malformed."""
        cdef int32_t child = -1
        at = json_skip_space(at, self.end)
        while at < self.end and at[0] != c'}':
            at = self.member(at, node, &child)
            if at == NULL:
                return False
            if child >= 0:
                self.counting[child] = at
            at = json_skip_value(at, self.end)
            if at == NULL:
                return False
            at = json_skip_space(at, self.end)
            if at < self.end and at[0] == c',':
                at = json_skip_space(at + 1, self.end)
        return True

    cdef const uint8_t* member(self, const uint8_t* at, int32_t node, int32_t* child) except? NULL:
        """Read the name of a member at `at`.

        Return the position of its value, and its node in `child`; NULL: malformed.
        """
        cdef const uint8_t* end = self.end
        cdef const uint8_t* name
        cdef Value text
        if at >= end or at[0] != c'"':
            return NULL
        name = at + 1
        at = json_string_stop(name, end)
        if at == end:
            return NULL
        text.text = name
        if at[0] == c'"':
            text.length = <uint32_t>(at - name)
            at += 1
        else:
            at = json_skip_string(at, end)
            if at == NULL or not json_escapes_are_valid(name, at - 1):
                return NULL
            text.kind = VALUE_RAW_STRING
            text.flags = 0
            text.length = <uint32_t>(at - 1 - name)
            settle(&text, self.texts)
        child[0] = destination(self.destinations, node, text.text, text.length)
        at = json_skip_space(at, end)
        if at >= end or at[0] != c':':
            return NULL
        at = json_skip_space(at + 1, end)
        return at if at < end else NULL

    cdef int write_at(self, int32_t node) except -1:
        """Write the value or object of a node."""
        if self.destinations.nodes[node].value >= 0:
            return self.write_value(self.values[self.destinations.nodes[node].value])
        return self.write_below(node)

    cdef bint merge_value(self, const uint8_t* at, const uint8_t* stop, int32_t node, bint removing) except -1:
        """Merge a member that is a destination, or leads to one, and stays. False: malformed."""
        if self.destinations.nodes[node].value < 0:
            if at[0] == c'{':
                return self.merge_object(at + 1, node, removing) != NULL
            if at[0] == c'[' and holds_object(at + 1, stop):
                return self.merge_array(at, node, removing) != NULL
            if removing or self.destinations.nodes[node].written == 0:
                self.output.append(at, <uint64_t>(stop - at))
                return True
        self.write_at(node)
        return True

    cdef const uint8_t* merge_array(self, const uint8_t* at, int32_t node, bint removing) except? NULL:
        """Merge an array at `at` that contains objects, at any depth.

        Return the position behind it, or NULL: malformed.
        """
        cdef const uint8_t* begin = at
        cdef uint64_t depth = 1
        at += 1
        while depth:
            at = json_structure(at, self.end)
            if at == self.end or at[0] == c'}':
                return NULL
            if at[0] == c'"':
                at = json_skip_string(at + 1, self.end)
                if at == NULL:
                    return NULL
            elif at[0] == c'{':
                self.output.append(begin, <uint64_t>(at - begin))
                at = self.merge_object(at + 1, node, removing)
                if at == NULL:
                    return NULL
                begin = at
                removing = True
            else:
                depth = depth + 1 if at[0] == c'[' else depth - 1
                at += 1
        self.output.append(begin, <uint64_t>(at - begin))
        return at
