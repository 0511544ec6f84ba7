# Fields of JSON messages (expressions.md §12).
#
# A message is read in one pass from the first byte, along the tree of needed fields. json_index.h finds braces,
# brackets and the names of possibly needed members, window by window, 64 bytes at a time. The scan goes from one of
# these positions, or tokens, to the next, and parses only needed values. Of all other text it checks only that strings
# and containers end. It stops when all needed fields are found. So errors behind the last field are not detected, and a
# message without one of the fields is read to its end. Strings and numbers keep their form in the message until a
# reader settles them.
#
# Of the values of a repeated key the first one counts. With `early_termination` off, every message is read to its end
# and the last one counts.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from amps._core.values.fields cimport (
    QUOTED_NAME_BYTES,
    Extractor,
    FieldSet,
    FieldValues,
    PathNode,
    is_overworked,
    wanted_child,
    wanted_quoted_child,
)
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_NULL,
    VALUE_RAW_NUMBER,
    VALUE_RAW_STRING,
    VALUE_STRING,
    Value,
    settle,
)


cdef extern from "json_text.h" nogil:
    const uint8_t* json_string_stop(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_structure(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_quote_before(const uint8_t* at, const uint8_t* begin)
    const uint8_t* json_skip_space(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_scalar_end(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_skip_string(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_skip_value(const uint8_t* at, const uint8_t* end)
    bint json_is_space(uint8_t byte)
    uint8_t json_byte_before(const uint8_t* at)
    const uint8_t* json_first_leaf(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_valid_value(const uint8_t* at, const uint8_t* end)
    const uint8_t* json_number_stop(const uint8_t* at, const uint8_t* end)
    bint json_is_number(const uint8_t* at, const uint8_t* end)
    bint json_escapes_are_valid(const uint8_t* at, const uint8_t* end)

cdef extern from "name_bits.h" nogil:
    ctypedef struct NameOpenings:
        pass

cdef extern from "json_index.h" nogil:
    enum:
        JSON_TAPE_ENTRIES
    ctypedef struct JsonIndex:
        const uint8_t* at
        const uint8_t* end
    void json_begin_index(JsonIndex* index, const uint8_t* at, const uint8_t* end)
    uint32_t json_index_window(
        JsonIndex* index, const uint8_t* base, uint32_t* tape, const NameOpenings* openings
    )
    uint32_t json_index_window_plain(
        JsonIndex* index, const uint8_t* base, uint32_t* tape, const NameOpenings* openings
    )


cdef enum:
    DEPTH_MAX = 1000               # of needed values; skipped values may be nested deeper
    SERIAL_MAX = 0x70000000        # the numbers above this are enough for the objects of one message


# A position among the tokens, to return to.
cdef struct TapePlace:
    JsonIndex window
    uint32_t at


cdef struct Occurrence:
    uint32_t object_serial         # the last object in which a needed key was found
    uint32_t node_count            # number of values before its value


@cython.final
cdef class JsonExtractor(Extractor):
    """Finds fields in JSON messages. early_termination: the element EarlyTerminationOptimization."""

    cdef bint last_counts
    cdef bint done                 # all needed values are found
    cdef const uint8_t* begin
    cdef const uint8_t* end
    cdef JsonIndex index
    cdef JsonIndex window          # `index` before the current window
    cdef uint32_t tape[JSON_TAPE_ENTRIES]  # tokens of the current window, as offsets from `begin`
    cdef uint32_t tape_at
    cdef uint32_t tape_count
    cdef FieldSet fields
    cdef FieldValues values
    cdef uint32_t wanted           # number of needed fields
    cdef uint32_t resolved         # needed fields that later text cannot change
    cdef uint32_t arrays           # number of arrays around the current position
    cdef uint32_t object_serial
    cdef const uint8_t* valid_end  # end of the last object that was needed itself, and validated
    cdef const uint8_t* leaf_from  # start of the last search for a leaf
    cdef const uint8_t* leaf       # the leaf that it found
    cdef Occurrence* met           # by node of the FieldSet
    cdef uint32_t met_capacity

    def __cinit__(self):
        self.met = NULL
        self.met_capacity = 0
        self.object_serial = 0

    def __init__(self, early_termination=True):
        self.last_counts = not early_termination

    def __dealloc__(self):
        free(self.met)

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        cdef const uint8_t* at = data
        cdef const uint8_t* behind
        if fields.nodes[root].wanted_below == 0 and not self.last_counts:
            return True
        self.fields = fields
        self.values = values
        self.begin = self.valid_end = self.leaf_from = self.leaf = data
        self.end = data + length
        self.done = False
        self.wanted = fields.nodes[root].wanted_below
        self.resolved = 0
        self.arrays = 0
        if fields.node_count > self.met_capacity or self.object_serial > SERIAL_MAX:
            self.forget_met()
        at = json_skip_space(at, self.end)
        if at == self.end:
            return True
        if self.last_counts:
            # The whole message is parsed, independently of the needed fields.
            behind = json_valid_value(at, self.end)
            if behind == NULL or json_skip_space(behind, self.end) != self.end:
                return False
        if at[0] == c'{':
            json_begin_index(&self.index, at + 1, self.end)
            self.tape_at = self.tape_count = 0
            at = self.scan_object(at + 1, root, 0)
        else:
            at = json_skip_value(at, self.end)
        return at != NULL and (self.done or json_skip_space(at, self.end) == self.end)

    cdef inline const uint8_t* next_token(self) noexcept nogil:
        """Return the position of the next token and advance; NULL at the end of the message, or at an error."""
        if self.tape_at == self.tape_count and not self.next_window():
            return NULL
        self.tape_at += 1
        return self.begin + self.tape[self.tape_at - 1]

    cdef inline const uint8_t* token_from(self, const uint8_t* at) noexcept nogil:
        """The next token that is not in front of `at`, skipping all others; NULL if there is none."""
        cdef const uint8_t* token = self.next_token()
        while token != NULL and token < at:
            token = self.next_token()
        return token

    cdef bint next_window(self) noexcept nogil:
        """Index the next windows until there is a token. False at the end of the message, or at an error."""
        self.tape_at = 0
        self.tape_count = 0
        while self.tape_count == 0:
            self.window = self.index
            if self.index.at >= self.index.end:
                return False
            self.tape_count = json_index_window(&self.index, self.begin, self.tape, &self.fields.openings)
        return True

    cdef TapePlace tape_place(self) noexcept nogil:
        cdef TapePlace place
        if self.tape_at == self.tape_count:
            self.next_window()
        place.window = self.window
        place.at = self.tape_at
        return place

    cdef void go_back(self, const TapePlace* place) noexcept nogil:
        # After an error in the first block of a window, the next window begins at the same position, and ends there.
        if place.window.at != self.window.at or place.window.end != self.window.end:
            self.window = self.index = place.window
            self.tape_count = json_index_window(&self.index, self.begin, self.tape, &self.fields.openings)
        self.tape_at = place.at

    cdef const uint8_t* skip_container(self) noexcept nogil:
        """Skip the object or array whose first token was read, at any depth. Return the position behind it."""
        cdef const uint8_t* token
        cdef uint64_t depth = 1
        while depth:
            token = self.next_token()
            if token == NULL:
                return NULL
            if token[0] | 0x20 == c'{':
                depth += 1
            elif token[0] | 0x20 == c'}':
                depth -= 1
        return token + 1

    cdef int forget_met(self) except -1:
        cdef uint32_t capacity = self.fields.node_count * 2
        cdef Occurrence* grown
        if capacity > self.met_capacity:
            grown = <Occurrence*>realloc(self.met, capacity * sizeof(Occurrence))
            if grown == NULL:
                raise MemoryError()
            self.met = grown
            self.met_capacity = capacity
        memset(self.met, 0, self.met_capacity * sizeof(Occurrence))
        self.object_serial = 0
        return 0

    cdef const uint8_t* scan_object(self, const uint8_t* at, int32_t node, uint32_t depth) except? NULL:
        """Read the members of an object whose content begins at `at`.

        Return the position behind it; NULL: malformed.
        """
        cdef const uint8_t* end = self.end
        cdef FieldSet fields = self.fields
        cdef const uint8_t* token
        cdef const uint8_t* quote
        cdef const uint8_t* leaf
        cdef int32_t child
        cdef uint32_t serial
        if depth > DEPTH_MAX:
            return NULL
        self.object_serial += 1
        serial = self.object_serial
        while True:
            token = self.next_token()
            if token == NULL:
                return NULL
            if token < at:
                continue  # inside text that was already read
            if token[0] == c'"':
                child = wanted_quoted_child(fields, node, token + 1) if end - token > QUOTED_NAME_BYTES else -2
                if child >= 0:
                    at = token + fields.nodes[child].name_length + 2
                elif child == -1:
                    continue
                else:
                    quote = json_string_stop(token + 1, end)
                    if quote == end:
                        return NULL
                    if quote[0] == c'\\':
                        continue  # the token of the backslash follows
                    child = wanted_child(fields, node, token + 1, <uint32_t>(quote - token - 1))
                    if child < 0:
                        continue
                    at = quote + 1
            elif token[0] == c'\\':
                token = json_quote_before(token, self.begin)  # of its string, in which it is the first one
                at = json_skip_string(token + 1, end) if token != NULL else NULL
                if at == NULL:
                    return NULL
                if json_byte_before(token) == c':':
                    continue
                child = self.escaped_child(node, token + 1, at - 1)
                if child < -1:
                    return NULL
            elif token[0] == c'}':
                return token + 1
            elif token[0] | 0x20 == c'{' and json_byte_before(token) == c':':
                at = self.skip_container()
                if at == NULL:
                    return NULL
                continue
            else:
                return NULL
            if at < end and at[0] != c':':
                at = json_skip_space(at, end)
            if at == end:
                return NULL
            if at[0] != c':':
                if json_byte_before(token) != c':':
                    return NULL
                continue  # a string value with the text of a needed name
            if child < 0 or (self.met[child].object_serial == serial and not self.counts_again(child)):
                continue
            if json_byte_before(token) != c',' and json_byte_before(token) != c'{':
                return NULL
            at += 1
            if at < end and at[0] <= c' ':
                at = json_skip_space(at, end)
            if at == end:
                return NULL
            leaf = self.take_leaf(at, child, serial)
            at = self.scan_member(at, child, depth, serial) if leaf == NULL else leaf
            if self.done or at == NULL:
                return at
            if at < end and at[0] != c',' and at[0] != c'}':
                at = json_skip_space(at, end)
            if at == end or (at[0] != c',' and at[0] != c'}'):
                return NULL

    cdef int32_t escaped_child(self, int32_t node, const uint8_t* name, const uint8_t* stop) except -3:
        """The node of a name with escapes; -1: it is not needed; -2: malformed."""
        cdef Value text
        if not json_escapes_are_valid(name, stop):
            return -2
        text.kind = VALUE_RAW_STRING
        text.flags = 0
        text.text = name
        text.length = <uint32_t>(stop - name)
        settle(&text, self.values.arena)
        return wanted_child(self.fields, node, text.text, text.length)

    cdef bint counts_again(self, int32_t child) except -1:
        """Whether a needed key counts that is repeated in its object.

        If so, the values of its last occurrence are removed.
        """
        if not self.last_counts:
            return False
        self.values.cut(self.fields, child, self.met[child].node_count)
        self.met[child].node_count = self.values.node_count
        return True

    cdef inline const uint8_t* take_leaf(self, const uint8_t* at, int32_t node, uint32_t serial) except? NULL:
        """Read the value of a member if it is a string without escapes or a number, at the end of a path: the fast path
        for most members. NULL: it is another value, and nothing was done.
        """
        cdef const PathNode* wanted = &self.fields.nodes[node]
        cdef const uint8_t* stop
        cdef const uint8_t* behind
        cdef Value* value
        cdef uint8_t kind
        if wanted.children or wanted.first_element >= 0 or self.last_counts:
            return NULL
        if at[0] == c'"':
            at += 1
            stop = json_string_stop(at, self.end)
            if stop == self.end or stop[0] != c'"':
                return NULL
            kind = VALUE_STRING if stop > at else VALUE_NULL
            behind = stop + 1
        else:
            behind = stop = json_number_stop(at, self.end)
            if stop == NULL or stop == self.end or (
                stop[0] != c',' and stop[0] != c'}' and not json_is_space(stop[0])
            ):
                return NULL
            kind = VALUE_RAW_NUMBER
        value = self.values.add(wanted.slot)
        value.kind = kind
        value.text = at
        value.length = <uint32_t>(stop - at)
        self.met[node].object_serial = serial
        if self.arrays == 0:
            self.resolved += 1
            self.done = self.resolved == self.wanted
        return behind

    cdef const uint8_t* scan_member(
        self, const uint8_t* at, int32_t node, uint32_t depth, uint32_t serial
    ) except? NULL:
        """Read the value of a needed member, and set `done` if it was the last one."""
        cdef int32_t first
        cdef uint32_t before = self.resolved
        if self.met[node].object_serial != serial:
            self.met[node].object_serial = serial
            self.met[node].node_count = self.values.node_count
        if self.fields.nodes[node].first_element >= 0 and at[0] != c'[':
            first = self.fields.element(node, 0)  # a single value is also its own first element
            if first >= 0 and not self.scan_twice(at, first, depth):
                return NULL
            if self.done:
                return at
        at = self.scan_value(at, node, depth)
        if self.done:
            return at
        if at != NULL and self.arrays == 0 and not self.last_counts:
            self.resolved = before + self.fields.nodes[node].wanted_below
            self.done = self.resolved == self.wanted
        return at

    cdef bint scan_twice(self, const uint8_t* at, int32_t node, uint32_t depth) except -1:
        """Read a value for one of two nodes that need it, and return to its beginning. False: malformed."""
        cdef TapePlace place = self.tape_place()
        cdef const uint8_t* behind = self.scan_value(at, node, depth)
        if behind == NULL or is_overworked(<uint64_t>(behind - at)):
            return False
        self.go_back(&place)
        return True

    cdef const uint8_t* scan_value(self, const uint8_t* at, int32_t node, uint32_t depth) except? NULL:
        """Read a needed value, or one that contains needed values.

        Return the position behind it, or NULL: malformed.
        """
        cdef int32_t slot = self.fields.nodes[node].slot
        cdef const uint8_t* begin = at
        cdef const uint8_t* stop
        cdef Value* value
        cdef uint32_t index = 0
        if at[0] | 0x20 == c'{' and self.token_from(at) != at:
            return NULL
        if at[0] == c'{':
            if slot >= 0 and at >= self.valid_end:
                self.valid_end = json_valid_value(at, self.end)
                if self.valid_end == NULL:
                    return NULL
            if self.fields.nodes[node].children == 0:
                stop = self.skip_container()
            else:
                stop = self.scan_object(at + 1, node, depth + 1)
            if slot >= 0 and stop != NULL and self.first_leaf(at) < stop:
                self.values.add(slot).kind = VALUE_CONTAINER
            return stop
        if at[0] == c'[':
            return self.scan_array(at + 1, node, depth + 1, &index)
        if at[0] == c'"':
            stop = json_string_stop(at + 1, self.end)
            if stop == self.end:
                return NULL
            if stop[0] == c'"':
                if slot >= 0:
                    value = self.values.add(slot)
                    value.text = begin + 1
                    value.length = <uint32_t>(stop - begin - 1)
                    value.kind = VALUE_STRING if value.length else VALUE_NULL
                return stop + 1
            stop = json_skip_string(stop, self.end)
            if stop == NULL or not json_escapes_are_valid(begin + 1, stop - 1):
                return NULL
            if slot >= 0:
                value = self.values.add(slot)
                value.kind = VALUE_RAW_STRING
                value.text = begin + 1
                value.length = <uint32_t>(stop - 1 - begin - 1)
            return stop
        stop = json_scalar_end(at, self.end)
        if stop == self.end:
            return NULL  # incomplete: more bytes of it may be missing
        if at[0] == c't' or at[0] == c'f' or at[0] == c'n':
            if stop - at == 4 and memcmp(at, b"true", 4) == 0:
                if slot >= 0:
                    value = self.values.add(slot)
                    value.kind = VALUE_BOOLEAN
                    value.number.integer = 1
            elif stop - at == 5 and memcmp(at, b"false", 5) == 0:
                if slot >= 0:
                    value = self.values.add(slot)
                    value.kind = VALUE_BOOLEAN
                    value.number.integer = 0
            elif stop - at == 4 and memcmp(at, b"null", 4) == 0:
                if slot >= 0:
                    self.values.add(slot)
            else:
                return NULL
            return stop
        if not json_is_number(at, stop):
            return NULL
        if slot >= 0:
            value = self.values.add(slot)
            value.kind = VALUE_RAW_NUMBER
            value.text = begin
            value.length = <uint32_t>(stop - begin)
        return stop

    cdef const uint8_t* first_leaf(self, const uint8_t* at) noexcept nogil:
        """The first leaf from a brace on. One search serves all nested objects."""
        if not self.leaf_from <= at <= self.leaf:
            self.leaf_from = at
            self.leaf = json_first_leaf(at, self.end)
        return self.leaf

    cdef const uint8_t* scan_array(
        self, const uint8_t* at, int32_t node, uint32_t depth, uint32_t* index
    ) except? NULL:
        """Read the elements of an array whose content begins at `at`, numbered from `index` on.

        Arrays in arrays count as flat, so their elements continue the numbering (§9).
        """
        cdef const uint8_t* end = self.end
        cdef int32_t element
        if depth > DEPTH_MAX:
            return NULL
        at = json_skip_space(at, end)
        if at < end and at[0] == c']':
            return at + 1 if self.token_from(at) == at else NULL
        self.arrays += 1
        while at < end:
            if at[0] == c'[':
                at = self.scan_array(at + 1, node, depth + 1, index) if self.token_from(at) == at else NULL
            else:
                if self.fields.nodes[node].first_element >= 0:
                    element = self.fields.element(node, index[0])
                    if element >= 0 and not self.scan_twice(at, element, depth):
                        return NULL
                index[0] += 1
                at = self.scan_value(at, node, depth)
            if at == NULL:
                return NULL
            at = json_skip_space(at, end)
            if at < end and at[0] == c']':
                self.arrays -= 1
                return at + 1 if self.token_from(at) == at else NULL
            if at == end or at[0] != c',':
                return NULL
            at = json_skip_space(at + 1, end)
        return NULL


def tokens_of(bytes text, FieldSet fields, bint plain):
    """The positions of all tokens behind an opening brace, for tests.

    plain: use the code for processors without wide registers.
    """
    cdef uint32_t tape[JSON_TAPE_ENTRIES]
    cdef const uint8_t* begin = <const uint8_t*><const char*>text
    cdef JsonIndex index
    cdef uint32_t count
    cdef uint32_t at
    json_begin_index(&index, begin + 1, begin + len(text))
    found = []
    while index.at < index.end:
        if plain:
            count = json_index_window_plain(&index, begin, tape, &fields.openings)
        else:
            count = json_index_window(&index, begin, tape, &fields.openings)
        for at in range(count):
            found.append(tape[at])
    return found
