"""All filters of one topic: each distinct one evaluated at most once per message, and most of them not at all.

A message is read once, for the union of the fields that its filters need. Filters that demand an equality are filed
under its field and constant: what the message holds in that field is looked up, and only filters found so are tried;
if the equality is all of the filter, finding it is the match. Looking up is exact by the rules of `=` (expressions.md
§6.1 and §14.3), as for constants of IN: three tables, because what is equal depends on both sides.

Of several equalities a filter is filed under the one that the fewest others are filed under.

A message that cannot be read for all fields is read again for each filter by itself: whether a filter matches must not
depend on what other filters there are. A filter whose evaluation takes more memory or time than a message may does not
match; as all share that time, those that may take long come last.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from amps._core.constant_set cimport canonical, number_hash
from amps._core.effort cimport (
    begin_message,
    end_message,
    give_up,
    given_up_so_far,
    is_large_and_over,
    is_overworked,
)
from amps._core.expression_vm cimport BoundProgram, Program
from amps._core.fields cimport Extractor, FieldNode, FieldSet, FieldValues
from amps._core.identity cimport hash_bytes
from amps._core.message_context cimport MessageContext
from amps._core.value cimport (
    VALUE_CONTAINER,
    VALUE_INFERRED,
    VALUE_NULL,
    VALUE_STRING,
    Arena,
    Value,
    from_python,
    number_from_text,
    settle,
)

cdef enum:
    TABLE_CAPACITY_MIN = 16
    KEYS_MIN = 8
    LONG_PROGRAM = 100             # instructions
    GIVEN_BACK_MIN = 16            # fewer removed entries are not worth a rebuilding


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
        """equalities: pairs of a path and constants, of which one must be equal. exact: the one equality is all.

        asks_message: the program asks for facts about the message besides its fields. asks_publisher: and for those
        of its publisher.
        """
        if exact and len(equalities) != 1:
            raise ValueError("a filter that is an equality has one")
        self.program = program
        self.canonical = canonical_text
        self.equalities = equalities
        self.exact = exact
        self.asks_message = asks_message
        self.asks_publisher = asks_publisher
        self.deterministic = deterministic


def _tell_nothing(publisher):
    pass


cdef class FilterBench:

    def __init__(self, Extractor extractor, FieldValues values, MessageContext context, tell_publisher=None):
        """tell_publisher(hash of the client's name): puts what is known of that client into the context."""
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


cdef class FilterSet:

    def __cinit__(self):
        self.keys = NULL
        self.table = NULL
        self.filed_slots = NULL

    def __init__(self, FilterBench bench):
        self.bench = bench
        self.entries = {}
        self.serial = 0
        self.matched = []
        self.matched_count = 0
        self.evaluations = 0
        self._begin()

    def __dealloc__(self):
        free(self.keys)
        free(self.table)
        free(self.filed_slots)

    def _begin(self):
        """Nothing is filed, no field is wanted."""
        self.fields = FieldSet()
        self.scanned = []
        self.scanned_last = []
        self.apart = None
        self.filed = []
        self.texts = []
        self.key_count = 0
        self.filed_slot_count = 0
        self.given_back = 0
        self.asks_message = False
        self.asks_publisher = False
        self.may_take_long = False
        if self.table_capacity:
            memset(self.table, 0, self.table_capacity * sizeof(uint32_t))

    # --- who is there -----------------------------------------------------------------------------------------

    def add(self, Filter filter_, member):
        """Let a member have the messages that match."""
        cdef FilterEntry entry = self.entries.get(filter_)
        if entry is None:
            entry = FilterEntry(filter_, self.fields)
            self.entries[filter_] = entry
            self._file(entry)
        entry.members.append(member)

    def remove(self, Filter filter_, member):
        """A member that was added leaves."""
        cdef FilterEntry entry = self.entries[filter_]
        entry.members.remove(member)
        if entry.members:
            return
        self.matched = []  # it may be there still
        self.matched_count = 0
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
        """Forget the fields and constants that nobody needs any more."""
        cdef FilterEntry entry
        self._begin()
        for entry in self.entries.values():
            entry.program = entry.filter.program.bind(self.fields)
            self._file(entry)

    def _file(self, FilterEntry entry):
        """Under the rarest of its equalities, or among those that are tried on every message."""
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
        cdef Value number
        cdef Arena arena = Arena()
        found = {}
        for constant in constants:
            from_python(constant, &value, arena)
            if value.kind == VALUE_STRING:
                # What was made of a bytes object by from_python is a copy in the arena: the key needs its own.
                value.text = <const uint8_t*><const char*>(<bytes>constant)
                found[self.key_of(slot, KEY_TEXT, &value, constant)] = None
                number = value
                if number_from_text(value.text, value.length, &number) and canonical(&number):
                    found[self.key_of(slot, KEY_CONVERTED, &number, None)] = None
            elif value.kind != VALUE_NULL and canonical(&value):
                found[self.key_of(slot, KEY_NUMBER, &value, None)] = None
        return list(found)

    cdef uint32_t key_of(self, uint32_t slot, uint32_t table, const Value* value, object owner) except? 0xFFFFFFFF:
        """The number of a key, made if it is new."""
        cdef FilterKey* key
        cdef FilterKey* grown
        cdef uint32_t* grown_slots
        cdef uint64_t hash_ = key_hash(slot, table, value)
        cdef int32_t found = find_key(self.keys, self.table, self.table_capacity, slot, table, hash_, value)
        cdef uint32_t at
        if found >= 0:
            return <uint32_t>found
        if self.key_count == self.key_capacity:
            grown = <FilterKey*>realloc(self.keys, (self.key_capacity * 2 + KEYS_MIN) * sizeof(FilterKey))
            if grown == NULL:
                raise MemoryError()
            self.keys = grown
            grown_slots = <uint32_t*>realloc(
                self.filed_slots, (self.key_capacity * 2 + KEYS_MIN) * sizeof(uint32_t)
            )
            if grown_slots == NULL:
                raise MemoryError()
            self.filed_slots = grown_slots
            self.key_capacity = self.key_capacity * 2 + KEYS_MIN
        key = &self.keys[self.key_count]
        key.value = value[0]
        key.hash = hash_
        key.slot = slot
        key.table = table
        self.filed.append([])
        self.texts.append(owner)
        self.key_count += 1
        if self.key_count * 2 > self.table_capacity:
            self.grow_table()
        else:
            enter_key(self.table, self.table_capacity, hash_, self.key_count)
        for at in range(self.filed_slot_count):
            if self.filed_slots[at] == slot:
                break
        else:
            self.filed_slots[self.filed_slot_count] = slot
            self.filed_slot_count += 1
        return self.key_count - 1

    cdef int grow_table(self) except -1:
        cdef uint32_t capacity = max(<uint32_t>TABLE_CAPACITY_MIN, self.table_capacity * 2)
        cdef uint32_t* grown = <uint32_t*>realloc(self.table, capacity * sizeof(uint32_t))
        cdef uint32_t at
        if grown == NULL:
            raise MemoryError()
        self.table = grown
        self.table_capacity = capacity
        memset(grown, 0, capacity * sizeof(uint32_t))
        for at in range(self.key_count):
            enter_key(grown, capacity, self.keys[at].hash, at + 1)
        return 0

    # --- messages ---------------------------------------------------------------------------------------------

    cdef int match(self, const uint8_t* data, uint64_t length) except -1:
        """Find the entries that match a message, each once, into `matched`."""
        begin_message(length)
        try:
            self.find_matches(data, length)
        finally:
            end_message()
        return 0

    cdef int add_match(self, FilterEntry entry) except -1:
        """The list is written over and over again: making one for each message takes as long as evaluating a filter."""
        if self.matched_count < <uint32_t>len(self.matched):
            self.matched[self.matched_count] = entry
        else:
            self.matched.append(entry)
        self.matched_count += 1
        return 0

    cdef int find_matches(self, const uint8_t* data, uint64_t length) except -1:
        cdef FieldValues values = self.bench.values
        cdef FilterEntry entry
        cdef FieldNode* nodes
        cdef int32_t node
        cdef uint32_t at
        cdef bint readable
        cdef uint64_t given_up = given_up_so_far()
        self.serial += 1
        self.matched_count = 0
        values.begin(self.fields)
        try:
            readable = self.bench.extractor.extract(data, length, self.fields, 0, values)
        except MemoryError:
            self.bench.exhausted += 1
            readable = False
        if given_up_so_far() != given_up:
            return 0  # reading it took too long
        if not readable:
            self.bench.unreadable += 1
            self.match_apart(data, length)
            return 0
        for entry in self.scanned:
            self.consider(entry, False)
        for at in range(self.filed_slot_count):
            node = values.slots[self.filed_slots[at]].first
            while node >= 0:
                nodes = values.nodes
                self.look_up(&nodes[node].value, self.filed_slots[at])
                node = values.nodes[node].next
        for entry in self.scanned_last:
            self.consider(entry, False)
        return 0

    cdef int look_up(self, Value* value, uint32_t slot) except -1:
        """Consider what is filed under a constant that is equal to the value."""
        cdef Value number
        try:
            settle(value, self.bench.values.arena)
        except MemoryError:
            self.bench.exhausted += 1
            return 0
        if value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
            return 0
        number = value[0]
        if value.kind == VALUE_STRING:
            self.consider_filed(slot, KEY_TEXT, key_hash(slot, KEY_TEXT, value), value)
            if number_from_text(value.text, value.length, &number) and canonical(&number):
                self.consider_filed(slot, KEY_NUMBER, key_hash(slot, KEY_NUMBER, &number), &number)
            return 0
        if not canonical(&number):
            return 0
        self.consider_filed(slot, KEY_NUMBER, key_hash(slot, KEY_NUMBER, &number), &number)
        if value.flags & VALUE_INFERRED:
            self.consider_filed(slot, KEY_TEXT, key_hash(slot, KEY_TEXT, value), value)
        else:
            self.consider_filed(slot, KEY_CONVERTED, key_hash(slot, KEY_CONVERTED, &number), &number)
        return 0

    cdef int consider_filed(self, uint32_t slot, uint32_t table, uint64_t hash_, const Value* value) except -1:
        cdef int32_t key = find_key(self.keys, self.table, self.table_capacity, slot, table, hash_, value)
        cdef FilterEntry entry
        if key < 0:
            return 0
        for entry in <list>self.filed[key]:
            if entry.serial != self.serial:
                self.consider(entry, entry.filter.exact)
        return 0

    cdef int consider(self, FilterEntry entry, bint exact) except -1:
        entry.serial = self.serial
        if exact or self.is_match(entry.program):
            self.add_match(entry)
        return 0

    cdef bint is_match(self, BoundProgram program) except -1:
        """Whether a program matches. One that could not be evaluated to its end does not."""
        cdef bint matches
        cdef uint64_t given_up = given_up_so_far()
        if is_large_and_over():
            give_up()
            return False
        self.evaluations += 1
        try:
            matches = program.is_match(self.bench.values, self.bench.context)
            return matches and given_up_so_far() == given_up
        except MemoryError:
            self.bench.exhausted += 1
            return False

    cdef int match_apart(self, const uint8_t* data, uint64_t length) except -1:
        """Read the message for each filter by itself, once for those that need the same fields."""
        cdef FilterEntry entry
        cdef FieldSet fields
        cdef FieldValues values = self.bench.values
        cdef uint64_t given_up = given_up_so_far()
        if self.apart is None:
            self._set_apart()
        for fields, entries in self.apart:
            if is_overworked(length):
                return 0
            values.begin(fields)
            try:
                if not self.bench.extractor.extract(data, length, fields, 0, values):
                    if given_up_so_far() != given_up:
                        return 0
                    continue
            except MemoryError:
                continue
            for entry in <list>entries:
                if self.is_match(entry.apart_program):
                    self.add_match(entry)
        return 0

    def _set_apart(self):
        """Sort the filters by the fields that they need."""
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
        cdef FilterEntry entry
        if view.shape[0]:
            data = &view[0]
        self.match(data, <uint64_t>view.shape[0])
        return [member for entry in self.matched[: self.matched_count] for member in entry.members]


cdef inline uint64_t key_hash(uint32_t slot, uint32_t table, const Value* value) noexcept nogil:
    if table == KEY_TEXT:
        return hash_bytes(value.text, value.length, <uint64_t>slot << 2 | table)
    return number_hash(value) ^ (<uint64_t>slot << 2 | table) * 0x9E3779B97F4A7C15ULL


cdef int32_t find_key(
    const FilterKey* keys,
    const uint32_t* table,
    uint32_t capacity,
    uint32_t slot,
    uint32_t which,
    uint64_t hash_,
    const Value* value,
) noexcept nogil:
    """The number of a key; -1 if there is none."""
    cdef uint64_t at = hash_
    cdef uint32_t found
    cdef const FilterKey* key
    if capacity == 0:
        return -1
    while True:
        found = table[at & (capacity - 1)]
        if found == 0:
            return -1
        key = &keys[found - 1]
        if key.hash == hash_ and key.slot == slot and key.table == which:
            if which == KEY_TEXT:
                if key.value.length == value.length and memcmp(key.value.text, value.text, value.length) == 0:
                    return <int32_t>found - 1
            elif key.value.kind == value.kind and (
                key.value.number.unsigned_integer == value.number.unsigned_integer
            ):
                return <int32_t>found - 1
        at += 1


cdef void enter_key(uint32_t* table, uint32_t capacity, uint64_t hash_, uint32_t number_plus_one) noexcept nogil:
    cdef uint64_t at = hash_
    while table[at & (capacity - 1)]:
        at += 1
    table[at & (capacity - 1)] = number_plus_one
