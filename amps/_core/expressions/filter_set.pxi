# All filters of one topic. Each distinct filter is evaluated at most once per message, and most are not evaluated.
#
# A message is read once, for the union of the fields that its filters need. A filter that requires an equality is
# filed under its field and constant. The filter set looks up the values of that field in the message and tries only
# the filters that it finds. If the filter consists only of the equality, the lookup is the match. The lookup is exact
# by the rules of `=` (expressions.md §6.1 and §14.3), as for constants of IN. It uses three tables, because equality
# depends on the types of both sides.
#
# A filter with several equalities is filed under the one that has the fewest other filters.
#
# A message that cannot be read for all fields is read again for each filter separately: whether a filter matches must
# not depend on the other filters of the set. A filter whose evaluation exceeds the memory or time of one message does
# not match. All filters share that time, so filters that may take long are evaluated last.

cimport cython
from cpython.exc cimport PyErr_Clear, PyErr_ExceptionMatches
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.values.value cimport (
    VALUE_CONTAINER,
    VALUE_INFERRED,
    VALUE_NULL,
    VALUE_STRING,
    Arena,
    Value,
    canonical,
    from_python,
    number_from_text,
    settle,
)
from amps._core.values.fields cimport (
    Extractor,
    FieldSet,
    FieldValues,
    MessageContext,
    begin_message,
    end_message,
    give_up,
    given_up_so_far,
    is_large_and_over,
    is_overworked,
)

cdef enum:
    MATCHED_MIN = 8
    LONG_PROGRAM = 100             # instructions
    GIVEN_BACK_MIN = 16            # a rebuild needs more removed entries than this


cdef class Filter:

    def __init__(
        self,
        Program program,
        str canonical_text,
        tuple equalities,
        bint exact,
        bint asks_message,
        bint asks_publisher,
        bint deterministic,
    ):
        """equalities: pairs of a path and constants, one of which must be equal. exact: the equality is the whole
        filter.

        asks_message: the program reads facts about the message besides its fields. asks_publisher: it also reads facts
        about the publisher.
        """
        if exact and len(equalities) != 1:
            raise ValueError("an exact filter must have exactly one equality")
        self.program = program
        self.canonical = canonical_text
        self.equalities = equalities
        self.exact = exact
        self.asks_message = asks_message
        self.asks_publisher = asks_publisher
        self.deterministic = deterministic


def _tell_nothing(publisher):
    pass


cdef class EvaluationContext:

    def __init__(self, Extractor extractor, FieldValues values, MessageContext context, tell_publisher=None):
        """tell_publisher(hash of the client's name): puts the facts about that client into the context."""
        self.extractor = extractor
        self.values = values
        self.context = context
        self.unreadable = 0
        self.exhausted = 0
        self.last_unreadable = None
        self.tell_publisher = tell_publisher or _tell_nothing


cdef class FilterEntry:

    def __init__(self, Filter filter_, FieldSet fields):
        self.filter = filter_
        self.members = []
        self.program = filter_.program.bind(fields)
        self.takes_long = (
            filter_.program.length > LONG_PROGRAM
            or len(filter_.program.patterns) > 0
            or len(filter_.program.functions) > 0
        )
        self.keys = None
        self.serial = 0


@cython.final
cdef class FilterSet:

    def __cinit__(self):
        self.matched = NULL

    def __init__(self, EvaluationContext evaluation):
        self.evaluation = evaluation
        self.entries = {}
        self.serial = 0
        self.matched_count = 0
        self.evaluations = 0
        self._begin()

    def __dealloc__(self):
        free(self.matched)

    def _begin(self):
        """Reset the set: no filter is filed and no field is needed."""
        self.fields = FieldSet()
        self.scanned = []
        self.scanned_last = []
        self.apart = None
        self.keys = FilterKeys()
        self.filed = []
        self.given_back = 0
        self.asks_message = False
        self.asks_publisher = False
        self.may_take_long = False

    # --- members ----------------------------------------------------------------------------------------------

    def add(self, Filter filter_, member):
        """Add a member that receives the messages that match the filter."""
        cdef FilterEntry entry = self.entries.get(filter_)
        if entry is None:
            entry = FilterEntry(filter_, self.fields)
            self.entries[filter_] = entry
            self._file(entry)
        entry.members.append(member)

    def remove(self, Filter filter_, member):
        """Remove a member that was added."""
        cdef FilterEntry entry = self.entries[filter_]
        entry.members.remove(member)
        if entry.members:
            return
        self.matched_count = 0  # the removed entry may still be in `matched`
        del self.entries[filter_]
        self.apart = None
        if entry.keys is None:
            (self.scanned_last if entry.takes_long else self.scanned).remove(entry)
        else:
            for key in entry.keys:
                (<list>self.filed[key]).remove(entry)
        self.given_back += 1
        if self.given_back > GIVEN_BACK_MIN and self.given_back > <uint32_t>len(self.entries):
            self._rebuild()

    def _rebuild(self):
        """Drop the fields and constants that no filter needs any more."""
        cdef FilterEntry entry
        self._begin()
        for entry in self.entries.values():
            entry.program = entry.filter.program.bind(self.fields)
            self._file(entry)

    def _file(self, FilterEntry entry):
        """File a filter under its rarest equality, or among the filters that are tried on every message."""
        cdef Filter filter_ = entry.filter
        self.asks_message = self.asks_message or filter_.asks_message
        self.asks_publisher = self.asks_publisher or filter_.asks_publisher
        self.may_take_long = self.may_take_long or entry.takes_long
        self.apart = None
        best = None
        fewest = 0
        for path, constants in filter_.equalities:
            keys = self._keys(self.fields.add(path), constants)
            crowd = sum([len(<list>self.filed[key]) for key in keys])
            if best is None or crowd < fewest:
                best, fewest = keys, crowd
        entry.keys = best
        if best is None:
            (self.scanned_last if entry.takes_long else self.scanned).append(entry)
            return
        for key in best:
            (<list>self.filed[key]).append(entry)

    def _keys(self, uint32_t slot, constants):
        """The numbers of the keys for a field and its constants, each once."""
        cdef Value value
        cdef Arena arena = Arena()
        cdef dict found = {}
        for constant in constants:
            from_python(constant, &value, arena)
            if value.kind == VALUE_STRING:
                # from_python copied the bytes object into the arena. The key refers to the text of the constant itself.
                value.text = <const uint8_t*><const char*>(<bytes>constant)
                self.file_under(found, text_key(self.keys, slot, &value), constant)
                self.keys.note_slot(slot, KEY_TEXT)
                if number_from_text(value.text, value.length, &value) and canonical(&value):
                    self.file_under(found, number_key(slot, KEY_CONVERTED, &value), None)
                    self.keys.note_slot(slot, KEY_CONVERTED)
            elif value.kind != VALUE_NULL and canonical(&value):
                self.file_under(found, number_key(slot, KEY_NUMBER, &value), None)
                self.keys.note_slot(slot, KEY_NUMBER)
        return list(found)

    cdef int file_under(self, dict found, FilterKey key, object owner) except -1:
        """File a filter under one more key."""
        cdef uint32_t number = self.keys.number_of(key, owner)
        if number == <uint32_t>len(self.filed):
            self.filed.append([])
        found[number] = None
        return 0

    # --- messages ---------------------------------------------------------------------------------------------

    cdef int match(self, const uint8_t* data, uint64_t length) except -1:
        """Find the entries that match a message, each once, into `matched`."""
        begin_message(length)
        try:
            find_matches(self, data, length)
        finally:
            end_message()
        return 0

    cdef int look_up_number(self, Value* value, FiledSlot filed) except -1:
        """Look up a value that is a number, or a string with the form of a number."""
        cdef Value number = value[0]
        cdef FilterKey key
        if value.kind == VALUE_STRING and not number_from_text(value.text, value.length, &number):
            return 0
        if not canonical(&number):
            return 0
        if filed.tables & 1 << KEY_NUMBER:
            key = number_key(filed.slot, KEY_NUMBER, &number)
            self.consider_filed(&key)
        if value.kind == VALUE_STRING:
            return 0
        if value.flags & VALUE_INFERRED:
            if filed.tables & 1 << KEY_TEXT:
                key = text_key(self.keys, filed.slot, value)
                self.consider_filed(&key)
        elif filed.tables & 1 << KEY_CONVERTED:
            key = number_key(filed.slot, KEY_CONVERTED, &number)
            self.consider_filed(&key)
        return 0

    cdef bint is_settled(self, Value* value) except -1:
        """Convert a value from the raw form of the scanner. False: it takes too much memory."""
        try:
            settle(value, self.evaluation.values.arena)
        except MemoryError:
            self.evaluation.exhausted += 1
            return False
        return True

    cdef int consider_filed(self, const FilterKey* key) except -1:
        cdef int32_t number = find_key(self.keys, key)
        cdef list entries
        cdef FilterEntry entry
        cdef Py_ssize_t at = 0
        if number < 0:
            return 0
        entries = <list>self.filed[number]
        while at < PyList_GET_SIZE(entries):
            entry = <FilterEntry>entries[at]
            if entry.serial != self.serial:
                entry.serial = self.serial
                if entry.filter.exact or is_match(self, entry.program):
                    add_match(self, entry)
            at += 1
        return 0

    cdef int consider_all(self, list entries) except -1:
        cdef FilterEntry entry
        for entry in entries:
            if is_match(self, entry.program):
                add_match(self, entry)
        return 0

    cdef int grow_matched(self) except -1:
        cdef uint32_t capacity = self.matched_capacity * 2 + MATCHED_MIN
        cdef void** grown = <void**>realloc(self.matched, capacity * sizeof(void*))
        if grown == NULL:
            raise MemoryError()
        self.matched = grown
        self.matched_capacity = capacity
        return 0

    cdef int note_exhausted(self) except -1:
        """Handle a raised error: count a MemoryError, and pass on any other error."""
        if not PyErr_ExceptionMatches(MemoryError):
            return -1
        PyErr_Clear()
        self.evaluation.exhausted += 1
        return 0

    cdef int match_apart(self, const uint8_t* data, uint64_t length) except -1:
        """Read the message for each filter separately, but once for all filters that need the same fields."""
        cdef FilterEntry entry
        cdef FieldSet fields
        cdef FieldValues values = self.evaluation.values
        cdef uint64_t given_up = given_up_so_far()
        if self.apart is None:
            self._set_apart()
        for fields, entries in self.apart:
            if is_overworked(length):
                return 0
            values.begin(fields)
            try:
                if not self.evaluation.extractor.extract(data, length, fields, 0, values):
                    if given_up_so_far() != given_up:
                        return 0
                    continue
            except MemoryError:
                continue
            for entry in <list>entries:
                if is_match(self, entry.apart_program):
                    add_match(self, entry)
        return 0

    def _set_apart(self):
        """Group the filters by the fields that they need."""
        cdef FilterEntry entry
        by_fields = {}
        for entry in self.entries.values():
            by_fields.setdefault(frozenset(entry.filter.program.fields), []).append(entry)
        self.apart = []
        for entries in by_fields.values():
            fields = FieldSet()
            for entry in entries:
                entry.apart_program = entry.filter.program.bind(fields)
            self.apart.append((fields, entries))

    def matching(self, message):
        """The members of the filters that match a message, for tests and tools."""
        cdef const uint8_t[::1] view = message
        cdef const uint8_t* data = NULL
        cdef uint32_t at
        if view.shape[0]:
            data = &view[0]
        self.match(data, <uint64_t>view.shape[0])
        members = []
        for at in range(self.matched_count):
            members += (<FilterEntry>self.matched[at]).members
        return members


# A `try` costs as much per message as the lookup of one field. The two calls that may raise MemoryError are therefore
# made through `noexcept` pointers, and the caller checks for the error.
ctypedef int (*Reading)(Extractor, const uint8_t*, uint64_t, FieldSet, FieldValues) noexcept
ctypedef int (*Evaluation)(BoundProgram, FieldValues, MessageContext) noexcept


cdef int read_message(
    Extractor extractor, const uint8_t* data, uint64_t length, FieldSet fields, FieldValues values
) except -1:
    return extractor.extract(data, length, fields, 0, values)


cdef int evaluate(BoundProgram program, FieldValues values, MessageContext context) except -1:
    return program.is_match(values, context)


cdef inline bint is_match(FilterSet self, BoundProgram program) except -1:
    """Whether a program matches. A program that was not evaluated to its end does not match."""
    cdef int matches
    cdef uint64_t given_up = given_up_so_far()
    if is_large_and_over():
        give_up()
        return False
    self.evaluations += 1
    matches = (<Evaluation>evaluate)(program, self.evaluation.values, self.evaluation.context)
    if matches < 0:
        self.note_exhausted()
        return False
    return matches and given_up_so_far() == given_up


cdef inline int add_match(FilterSet self, FilterEntry entry) except -1:
    if self.matched_count == self.matched_capacity:
        self.grow_matched()
    self.matched[self.matched_count] = <void*>entry
    self.matched_count += 1
    return 0


cdef inline int look_up(FilterSet self, Value* value, FiledSlot filed) except -1:
    """Try the filters that are filed under a constant equal to the value."""
    cdef FilterKey key
    if value.kind > VALUE_CONTAINER and not self.is_settled(value):
        return 0
    if value.kind == VALUE_STRING:
        if filed.tables & 1 << KEY_TEXT:
            key = text_key(self.keys, filed.slot, value)
            self.consider_filed(&key)
        if not filed.tables & 1 << KEY_NUMBER:
            return 0
    elif value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
        return 0
    return self.look_up_number(value, filed)


cdef inline int find_matches(FilterSet self, const uint8_t* data, uint64_t length) except -1:
    cdef EvaluationContext evaluation = self.evaluation
    cdef FieldValues values = evaluation.values
    cdef FilterKeys keys = self.keys
    cdef FiledSlot filed
    cdef int32_t node
    cdef uint32_t at
    cdef int readable
    cdef uint64_t given_up = given_up_so_far()
    self.serial += 1
    self.matched_count = 0
    values.begin(self.fields)
    readable = (<Reading>read_message)(evaluation.extractor, data, length, self.fields, values)
    if readable < 0:
        self.note_exhausted()
        readable = False
    if given_up_so_far() != given_up:
        return 0  # reading the message took too long
    if not readable:
        evaluation.unreadable += 1
        return self.match_apart(data, length)
    if PyList_GET_SIZE(self.scanned):
        self.consider_all(self.scanned)
    for at in range(keys.slot_count):
        filed = keys.slots[at]
        node = values.slots[filed.slot].first
        while node >= 0:
            look_up(self, &values.nodes[node].value, filed)
            node = values.nodes[node].next
    if PyList_GET_SIZE(self.scanned_last):
        self.consider_all(self.scanned_last)
    return 0
