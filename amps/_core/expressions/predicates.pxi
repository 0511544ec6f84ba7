# Predicates: comparisons of a field with constants, evaluated without the stack of the machine. Most filters consist
# of them.
#
# Examples are `/status IN ('new', 'open')`, `/price < 900.5`, `/quantity BETWEEN 500 AND 9500`, `/currency != 'JPY'`.
# The assembler places one additional instruction in front of the code of such a comparison. The instruction decides it
# for a field that is missing or has one value of the expected kind. It also holds the position where the machine then
# continues: the effect of AND, OR, NOT and IF on the result is calculated in advance. In all other cases (arrays,
# escaped strings, numbers against strings, integers that no double represents) the machine continues with the code
# behind the instruction, which is the same as without predicates.
#
# All comparisons of numbers are ranges: `< x` means at most the next double below x.

from libc.math cimport INFINITY, isfinite, nextafter
from libc.stdint cimport uint32_t

from amps._core.values.value cimport VALUE_DOUBLE, VALUE_INTEGER, VALUE_STRING, Value

cdef enum:
    STEPS_MAX = 64                 # instructions followed from a predicate on; the machine executes the rest


cdef bint put_texts(list source, uint32_t at, uint32_t count, const Value* constants, ShortText* texts):
    """Convert the strings loaded by `count` instructions from `at` on. False: not all of them are short strings."""
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
    """Set the ranges for which an operator is true, from the numbers loaded from `at` on. False: no such numbers."""
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
    """Find the position that the machine reaches from an instruction on, with the predicate's result on the stack."""
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
    """Create the predicate for an instruction, if there is one. Its places are positions in the source.

    Return its operation, or 0 if there is none. room: memory for the constants, of which the predicate takes a part.
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
