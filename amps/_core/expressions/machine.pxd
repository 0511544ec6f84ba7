# The operations of the expression machine. See expressions/code.pxi.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp

from amps._core.values.fields cimport Extractor, FieldSet, FieldValues, MessageContext, Operand
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_RAW_TEXT,
    VALUE_STRING,
    Arena,
    Value,
    settle,
    settle_short_number,
)


cdef enum Operation:
    OP_END = 0
    OP_CONST
    OP_FIELD
    OP_ELEMENT
    OP_ADD
    OP_SUB
    OP_MUL
    OP_DIV
    OP_MOD
    OP_NEG
    OP_POS
    OP_EQ
    OP_NE
    OP_LT
    OP_LE
    OP_GT
    OP_GE
    OP_BETWEEN
    OP_IN
    OP_LIKE
    OP_BEGINS
    OP_ENDS
    OP_IS_NULL
    OP_IS_NAN
    OP_NOT
    OP_TRUTH
    OP_AND_JUMP
    OP_OR_JUMP
    OP_JUMP
    OP_JUMP_UNLESS_TRUE
    OP_CALL
    OP_CALL_USER
    OP_REGEXP_MATCH
    OP_REGEXP_REPLACE
    OPS_OUTSIDE                    # number of operations that a compiler may use
    OP_COMPARE = OPS_OUTSIDE       # detail: which comparison
    OP_ARITHMETIC                  # detail: which operator
    OP_COMPARE_FIELD               # argument: field; second: constant
    OP_IN_SET                      # argument: set
    OP_TEXT_IS                     # the first of the predicates; those of texts come first; argument: field
    OP_TEXT_IN
    OP_NUMBER_IS
    OP_NUMBER_IN


# Whether the argument is a position in the code.
cdef inline bint is_jump(int op) noexcept:
    return op == OP_AND_JUMP or op == OP_OR_JUMP or op == OP_JUMP or op == OP_JUMP_UNLESS_TRUE


cdef uint32_t stack_needed(
    list source, uint32_t constants, uint32_t patterns, uint32_t fields, uint32_t functions
) except? 0


# Functions written by users. See expressions/user_function.pxi.


cdef class UserFunction:
    cdef readonly str name
    cdef readonly object implementation
    cdef readonly uint32_t minimum
    cdef readonly object maximum   # None: any number of arguments
    cdef readonly bint deterministic
    cdef readonly bint aggregate
    cdef readonly uint64_t failures
    cdef readonly str last_failure

    cdef int call(self, Operand* arguments, uint32_t count, FieldValues values, Value* result) except -1


# Predicates: comparisons of a field that has one value with constants. See expressions/predicates.pxi.


cdef extern from "text_words.h" nogil:
    const int TEXT_WORDS_BYTES
    ctypedef struct TextWords:
        uint64_t first
        uint64_t last
    TextWords short_text_words(const uint8_t* text, uint32_t length)
    bint words_equal(TextWords left, TextWords right)
    uint64_t words_mixed(uint64_t first, uint64_t last, uint64_t seed)
    TextWords text_words(const uint8_t* text, uint32_t length, uint64_t seed)


cdef struct ShortText:
    TextWords words
    uint32_t length


cdef struct NumberRange:           # both ends are included
    double low
    double high


# The constants that a predicate compares with, by its kind.
cdef union Expected:
    ShortText* texts
    NumberRange* ranges


# Memory for the constants of predicates.
cdef struct ExpectedRoom:
    ShortText* texts
    NumberRange* ranges


cdef extern from *:
    """
    /* Up to this magnitude, every integer is exactly a double. */
    static const int64_t EXACT_MAX = (int64_t)1 << 53;
    """
    const int64_t EXACT_MAX


cdef enum:
    EXPECTED_MAX = 7               # constants of IN; an IN with more uses a set
    UNDECIDED = 2
    GOES_ON = 2                    # in place of a truth value on the stack


cdef struct Predicate:
    uint8_t negated                # `!=`
    uint8_t outcomes[2]            # the truth left on the stack if the predicate is false, true; GOES_ON = none
    uint32_t places[2]             # where the machine continues if it is false, true
    uint32_t count                 # of texts or ranges
    Expected expected


cdef int find_predicate(
    list source, uint32_t at, const Value* constants, ExpectedRoom* room, Predicate* predicate
) except -1


cdef inline bint holds_for_text(
    int op, const Predicate* predicate, const uint8_t* text, uint32_t length
) noexcept nogil:
    cdef TextWords words
    cdef const ShortText* texts = predicate.expected.texts
    cdef bint found = False
    cdef uint32_t at
    if length > <uint32_t>TEXT_WORDS_BYTES:
        return predicate.negated
    words = short_text_words(text, length)
    if op == OP_TEXT_IS:
        return (words_equal(words, texts.words) & (length == texts.length)) ^ predicate.negated
    for at in range(predicate.count):
        found |= words_equal(words, texts[at].words) & (length == texts[at].length)
    return found


# NaN satisfies no comparison, not even `!=`.
cdef inline bint holds_for_number(int op, const Predicate* predicate, double number) noexcept nogil:
    cdef NumberRange* ranges = predicate.expected.ranges
    cdef bint found = False
    cdef uint32_t at
    if op == OP_NUMBER_IS:
        return ((number >= ranges.low) & (number <= ranges.high) ^ predicate.negated) & (number == number)
    for at in range(predicate.count):
        found |= (number >= ranges[at].low) & (number <= ranges[at].high)
    return found


# Whether a field's only value satisfies the predicate. UNDECIDED: the full comparison must be evaluated.
cdef inline int decide(int op, const Predicate* predicate, Value* value, Arena arena) except -1:
    if op <= OP_TEXT_IN:
        # In a format without types, the text is compared with a string, even if it has the form of a number.
        if value.kind != VALUE_STRING and (value.kind != VALUE_RAW_TEXT or value.length == 0):
            return UNDECIDED
        return holds_for_text(op, predicate, value.text, value.length)
    if value.kind > VALUE_CONTAINER:
        settle_short_number(value)
        if value.kind > VALUE_CONTAINER:
            settle(value, arena)
    if value.kind == VALUE_DOUBLE:
        return holds_for_number(op, predicate, value.number.double_)
    if (value.kind == VALUE_INTEGER or value.kind == VALUE_BOOLEAN) and (
        -EXACT_MAX <= value.number.integer <= EXACT_MAX
    ):
        return holds_for_number(op, predicate, <double>value.number.integer)
    return UNDECIDED


# The machine that evaluates expressions. See expressions/vm.pxi.


cdef struct Instruction:
    uint8_t op
    uint8_t detail                 # comparison, or operator of arithmetic
    uint32_t argument
    uint32_t second                # constant of a fused comparison; function of a call
    Predicate predicate            # for predicate operations only


cdef class Program:
    """The instructions of a compiled expression, not bound to a set of fields."""

    cdef Instruction* code
    cdef uint32_t length
    cdef Value* constants
    cdef Arena arena
    cdef readonly tuple patterns
    cdef readonly tuple fields
    cdef readonly tuple functions  # user functions
    cdef list sets                 # of constants, for IN
    cdef ExpectedRoom expected     # constants of the predicates
    cdef readonly uint32_t stack_depth

    cdef int assemble(self, list source, list targets, list constants) except -1


cdef class BoundProgram:
    """A program whose fields are slots of one set of fields."""

    cdef readonly Program program
    cdef uint32_t* slots           # by the program's field number
    cdef uint32_t slots_needed
    cdef Operand* stack

    cdef int run(self, FieldValues values, MessageContext message, Value* result) except -1
    cdef int step_through(self, FieldValues values, MessageContext message) except -1
    cdef bint is_match(self, FieldValues values, MessageContext message) except -1


# The keys that filters are filed under. See expressions/filter_keys.pxi.


# The table of a key, which depends on how its constant compares.
cdef enum KeyTable:
    KEY_TEXT = 0                   # a string
    KEY_NUMBER = 1                 # a number
    KEY_CONVERTED = 2              # a string with the form of a number, filed under the number


# Keys with equal words and equal `about` are equal, except for texts longer than TEXT_WORDS_BYTES.
cdef struct FilterKey:
    uint64_t first                 # of a text: from `text_words`; of a number: its bits
    uint64_t last                  # of a text: from `text_words`; of a number: its kind
    uint64_t about                 # table, slot and the length of the text
    const uint8_t* text            # NULL for a number


cdef enum:
    SLOT_SHIFT = 2                 # of FilterKey.about
    LENGTH_SHIFT = 32


# A slot that has keys.
cdef struct FiledSlot:
    uint32_t slot
    uint32_t tables                # bits by KeyTable


@cython.final
cdef class FilterKeys:
    """The keys of filters, and a hash table from keys to their numbers."""

    cdef FilterKey* keys
    cdef uint32_t count
    cdef uint32_t capacity
    cdef list texts                # owners of the keys' texts
    cdef uint32_t* table           # key numbers plus one by hash, open addressing; 0 = free
    cdef uint32_t table_capacity   # a power of two
    cdef FiledSlot* slots
    cdef uint32_t slot_count
    cdef uint64_t seed

    cdef uint32_t number_of(self, FilterKey key, object owner) except? 0xFFFFFFFF
    cdef int note_slot(self, uint32_t slot, uint32_t table) except -1
    cdef void enter(self, uint32_t number) noexcept nogil
    cdef int grow_table(self) except -1


cdef inline FilterKey text_key(FilterKeys keys, uint32_t slot, const Value* value) noexcept nogil:
    cdef FilterKey key
    cdef TextWords words = text_words(value.text, value.length, keys.seed)
    key.first = words.first
    key.last = words.last
    key.about = <uint64_t>value.length << LENGTH_SHIFT | <uint64_t>slot << SLOT_SHIFT | KEY_TEXT
    key.text = value.text
    return key


# The key of a number in canonical form.
cdef inline FilterKey number_key(uint32_t slot, uint32_t table, const Value* number) noexcept nogil:
    cdef FilterKey key
    key.first = number.number.unsigned_integer
    key.last = number.kind
    key.about = <uint64_t>slot << SLOT_SHIFT | table
    key.text = NULL
    return key


# The number of a key, or -1 if it is not known.
cdef inline int32_t find_key(FilterKeys keys, const FilterKey* key) noexcept nogil:
    cdef uint32_t found
    cdef const FilterKey* known
    cdef uint64_t at = words_mixed(key.first ^ key.about, key.last, keys.seed)
    if keys.table_capacity == 0:
        return -1
    while True:
        found = keys.table[at & (keys.table_capacity - 1)]
        if found == 0:
            return -1
        known = &keys.keys[found - 1]
        if (known.first ^ key.first) | (known.last ^ key.last) | (known.about ^ key.about) == 0 and (
            key.about >> LENGTH_SHIFT <= <uint64_t>TEXT_WORDS_BYTES
            or memcmp(known.text, key.text, key.about >> LENGTH_SHIFT) == 0
        ):
            return <int32_t>found - 1
        at += 1


# All filters of one topic. See expressions/filter_set.pxi.


cdef class Filter:
    """A compiled filter. All subscriptions with an equal filter share it."""

    cdef readonly Program program
    cdef readonly str canonical
    cdef readonly tuple equalities         # (path, constants): each must hold for a match
    cdef readonly bint exact               # the filter consists only of the one equality
    cdef readonly bint asks_message        # reads facts of the message besides its fields
    cdef readonly bint asks_publisher      # reads facts about the publisher
    cdef readonly bint deterministic
    cdef object __weakref__


cdef class FilterEntry:
    """A filter in a set, and its members."""

    cdef readonly Filter filter
    cdef readonly list members             # objects of the set's owner, in the order in which they were added
    cdef BoundProgram program
    cdef BoundProgram apart_program        # for messages that cannot be read for all fields
    cdef list keys                         # numbers of the keys it is filed under; None = tried on every message
    cdef bint takes_long                   # the evaluation may take long
    cdef uint64_t serial                   # of the last message that the entry was considered for


cdef class EvaluationContext:
    """The objects of an evaluation. All sets of one message type in a process share them, one message at a time."""

    cdef readonly Extractor extractor
    cdef readonly FieldValues values
    cdef readonly MessageContext context
    cdef readonly uint64_t unreadable      # messages that could not be read for all the fields that filters need
    cdef readonly uint64_t exhausted       # messages and filters that exceeded the memory of one message
    cdef public object last_unreadable     # set by users of the context: description and place of the last such message
    cdef readonly object tell_publisher    # puts the facts about a publisher into the context


@cython.final
cdef class FilterSet:
    """The distinct filters of one topic, and those that match the current message."""

    cdef readonly EvaluationContext evaluation
    cdef FieldSet fields
    cdef readonly dict entries             # Filter -> FilterEntry
    cdef list scanned                      # entries that are tried on every message
    cdef list scanned_last                 # entries that may take long, tried after `scanned`
    cdef list apart                        # pairs of a FieldSet and the entries that need it; None = not made yet
    cdef FilterKeys keys
    cdef list filed                        # by key: list of FilterEntry
    cdef uint32_t given_back               # entries removed since the last rebuild
    cdef readonly bint asks_message
    cdef readonly bint asks_publisher
    cdef readonly bint may_take_long       # patterns, user functions, long programs
    cdef uint64_t serial
    cdef void** matched                    # FilterEntry pointers: the matching entries, which `entries` keeps alive
    cdef uint32_t matched_count
    cdef uint32_t matched_capacity
    cdef readonly uint64_t evaluations     # programs run, for all messages

    cdef int match(self, const uint8_t* data, uint64_t length) except -1
    cdef int look_up_number(self, Value* value, FiledSlot filed) except -1
    cdef bint is_settled(self, Value* value) except -1
    cdef int consider_filed(self, const FilterKey* key) except -1
    cdef int consider_all(self, list entries) except -1
    cdef int match_apart(self, const uint8_t* data, uint64_t length) except -1
    cdef int note_exhausted(self) except -1
    cdef int grow_matched(self) except -1
    cdef int file_under(self, dict found, FilterKey key, object owner) except -1
