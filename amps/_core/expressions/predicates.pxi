# Predicates: a field against constants, which is what most filters are made of, without the stack of the machine.
#
# `/status IN ('new', 'open')`, `/price < 900.5`, `/quantity BETWEEN 500 AND 9500`, `/currency != 'JPY'`: in front of
# the code of such a thing stands one instruction more. It knows the answer for a field that is missing or has one
# value of the expected kind, and where the machine goes on then, for what AND, OR, NOT and IF make of an answer is
# worked out beforehand. Of anything else (arrays, escaped strings, numbers against strings, integers that no double
# is) it knows nothing, and the machine goes on with the code behind it, which is what it would be without predicates.
#
# All comparisons of numbers are ranges: below a double is at most the next one below it.

from libc.math cimport INFINITY, isfinite, nextafter
from libc.stdint cimport uint32_t

from amps._core.values.value cimport VALUE_DOUBLE, VALUE_INTEGER, VALUE_STRING, Value

cdef enum:
    STEPS_MAX = 64                 # from a predicate on: more are left to the machine


cdef bint put_texts(list source, uint32_t at, uint32_t count, const Value* constants, ShortText* texts):
    """Look at the strings that are loaded from an instruction on. False: not all are short ones."""
    cdef const Value* constant
    cdef uint32_t index
    for index in range(count):
        constant = &constants[<uint32_t>source[at + index][1]]
        if constant.kind != VALUE_STRING or constant.length > <uint32_t>TEXT_WORDS_BYTES:
            return False
        texts[index].words = short_text_words(constant.text, constant.length)
        texts[index].length = constant.length
    return True


cdef bint put_ranges(
    list source, uint32_t at, uint32_t count, int op, const Value* constants, NumberRange* ranges
):
    """What an operator is true for, with the numbers loaded from an instruction on. False: no such numbers."""
    cdef const Value* constant
    cdef double number
    cdef uint32_t index
    for index in range(count):
        constant = &constants[<uint32_t>source[at + index][1]]
        if constant.kind == VALUE_DOUBLE and isfinite(constant.number.double_):
            number = constant.number.double_
        elif constant.kind == VALUE_INTEGER and -EXACT_MAX <= constant.number.integer <= EXACT_MAX:
            number = <double>constant.number.integer
        else:
            return False
        if op == OP_BETWEEN and index == 1:
            ranges.high = number
            continue
        ranges[index].low = -INFINITY if op == OP_LT or op == OP_LE else number
        ranges[index].high = INFINITY if op == OP_GT or op == OP_GE else number
        if op == OP_LT:
            ranges.high = nextafter(number, -INFINITY)
        elif op == OP_GT:
            ranges.low = nextafter(number, INFINITY)
    return True


cdef int follow(list source, uint32_t at, bint truth, Predicate* predicate) except -1:
    """Where the machine comes to from an instruction on, with the answer of a predicate on the stack."""
    cdef bint answer = truth
    for _ in range(STEPS_MAX):
        op, argument = source[at]
        if op == OP_NOT:
            truth = not truth
            at += 1
        elif op == OP_TRUTH:
            at += 1
        elif op == OP_JUMP or (op == OP_AND_JUMP and not truth) or (op == OP_OR_JUMP and truth):
            at = argument
        elif op == OP_AND_JUMP or op == OP_OR_JUMP or op == OP_JUMP_UNLESS_TRUE:
            predicate.places[answer] = argument if op == OP_JUMP_UNLESS_TRUE and not truth else at + 1
            predicate.outcomes[answer] = GOES_ON
            return 0
        else:
            break
    predicate.places[answer] = at
    predicate.outcomes[answer] = truth
    return 0


cdef int find_predicate(
    list source, uint32_t at, const Value* constants, ExpectedRoom* room, Predicate* predicate
) except -1:
    """Make the predicate that may stand in front of an instruction; its places are those of the source.

    The operation it is; 0 if there is none. room: for what it compares with, of which it takes some.
    """
    cdef uint32_t behind = at + 1
    cdef uint32_t count
    cdef int op
    cdef int made
    if source[at][0] != OP_FIELD:
        return 0
    while source[behind][0] == OP_CONST:
        behind += 1
    count = behind - at - 1
    op, argument = source[behind]
    if OP_EQ <= op <= OP_GE:
        if count != 1:
            return 0
    elif op == OP_BETWEEN:
        if count != 2:
            return 0
    elif op != OP_IN or count != argument or not 1 <= count <= EXPECTED_MAX:
        return 0
    predicate.count = 1 if op == OP_BETWEEN else count
    predicate.negated = op == OP_NE
    if (op == OP_EQ or op == OP_NE or op == OP_IN) and put_texts(source, at + 1, count, constants, room.texts):
        made = OP_TEXT_IS if count == 1 else OP_TEXT_IN
        predicate.expected.texts = room.texts
        room.texts += predicate.count
    elif put_ranges(source, at + 1, count, op, constants, room.ranges):
        made = OP_NUMBER_IS if predicate.count == 1 else OP_NUMBER_IN
        predicate.expected.ranges = room.ranges
        room.ranges += predicate.count
    else:
        return 0
    follow(source, behind + 1, False, predicate)
    follow(source, behind + 1, True, predicate)
    return made
