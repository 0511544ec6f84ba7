# The operators of expressions, for operands of one or many values (expressions.md §§5, 6, 9).
#
# Comparisons, IN, LIKE, BEGINS and ENDS are true if any element makes them true. All other operators use the first
# element. Comparisons and similar operators are TRUE or FALSE, never NULL: with NULL or NaN they are FALSE (§14.1).
# This rule is implemented here, in `compare` and `text_of`, and nowhere else.
#
# Two arrays are compared pair by pair. A message with two long arrays could take very long, so after PAIRS_MAX pairs
# the search is given up. It then counts as without a match, and is counted as given up.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport isnan
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcmp

from amps._core.values.value cimport (
    COMPARE_EQ,
    COMPARE_NE,
    VALUE_DOUBLE,
    VALUE_INTEGER,
    VALUE_NULL,
    VALUE_STRING,
    Arena,
    ConstantSet,
    Value,
    compare,
    from_python,
    settle,
    to_text,
)
from amps._core.values.fields cimport ITSELF, FieldNode, Operand, first_of, give_up, is_over, next_of

cdef enum:
    PAIRS_MAX = 1 << 26            # about a second; no comparison with a single value has so many elements
    PAIRS_UNASKED = 4096           # up to this number, the clock is not read


cdef bint is_too_much(uint64_t pairs) noexcept nogil:
    if pairs <= PAIRS_UNASKED or (pairs <= PAIRS_MAX and not is_over()):
        return False
    give_up()
    return True


cdef bint any_pair(Operand* left, Operand* right, int comparison, FieldNode* nodes, Arena arena) except -1:
    """Whether any element of the left operand and any element of the right one satisfy a comparison."""
    cdef int32_t outer = left.node
    cdef int32_t inner
    cdef uint64_t pairs = 0
    cdef Value* element = first_of(left, nodes)
    while True:
        inner = right.node
        pairs += 1
        if compare(element, first_of(right, nodes), comparison, arena):
            return True
        inner = next_of(inner, nodes)
        while inner >= 0:
            if compare(element, &nodes[inner].value, comparison, arena):
                return True
            inner = nodes[inner].next
            pairs += 1
        outer = next_of(outer, nodes)
        if outer < 0 or is_too_much(pairs):
            return False
        element = &nodes[outer].value


cdef bint is_field_match(int32_t node, Value* constant, int comparison, FieldNode* nodes, Arena arena) except -1:
    """Whether any value of a field satisfies a comparison with a constant."""
    cdef Value* value
    while node >= 0:
        value = &nodes[node].value
        if value.kind == VALUE_STRING and constant.kind == VALUE_STRING and comparison <= COMPARE_NE:
            if (
                value.length == constant.length and memcmp(value.text, constant.text, value.length) == 0
            ) == (comparison == COMPARE_EQ):
                return True
        elif compare(value, constant, comparison, arena):
            return True
        node = nodes[node].next
    return False


cdef bint text_of(Value* value, Value* text, Arena arena) except -1:
    """Copy a value as text. False: there is no text, for NULL and NaN."""
    settle(value, arena)
    if value.kind == VALUE_NULL or (value.kind == VALUE_DOUBLE and isnan(value.number.double_)):
        return False
    text[0] = value[0]
    to_text(text, arena)
    return text.kind == VALUE_STRING


cdef bint any_like(Operand* operand, Pattern pattern, FieldNode* nodes, Arena arena) except -1:
    cdef Value text
    cdef int32_t node = operand.node
    cdef Value* element = first_of(operand, nodes)
    while True:
        if text_of(element, &text, arena) and pattern.search(text.text, text.length):
            return True
        node = next_of(node, nodes)
        if node < 0:
            return False
        element = &nodes[node].value


cdef bint any_text(Operand* left, Operand* right, bint ends, FieldNode* nodes, Arena arena) except -1:
    """Whether any element of the left operand begins (or ends) with any element of the right one."""
    cdef Value text
    cdef Value part
    cdef int32_t outer = left.node
    cdef int32_t inner
    cdef uint64_t pairs = 0
    cdef Value* element = first_of(left, nodes)
    cdef Value* member
    while True:
        if text_of(element, &text, arena):
            inner = right.node
            member = first_of(right, nodes)
            while True:
                if text_of(member, &part, arena) and part.length <= text.length and memcmp(
                    text.text + (text.length - part.length if ends else 0), part.text, part.length
                ) == 0:
                    return True
                inner = next_of(inner, nodes)
                pairs += 1
                if inner < 0:
                    break
                member = &nodes[inner].value
        outer = next_of(outer, nodes)
        if outer < 0 or is_too_much(pairs):
            return False
        element = &nodes[outer].value


cdef bint any_member(Operand* operand, ConstantSet members, FieldNode* nodes, Arena arena) except -1:
    cdef int32_t node = operand.node
    cdef Value* element = first_of(operand, nodes)
    while True:
        if members.holds(element, arena):
            return True
        node = next_of(node, nodes)
        if node < 0:
            return False
        element = &nodes[node].value


cdef bint is_null(Operand* operand, FieldNode* nodes, Arena arena) except -1:
    """Whether the operand has no value, or only NULLs."""
    cdef int32_t node = operand.node
    cdef Value* element = first_of(operand, nodes)
    while True:
        settle(element, arena)
        if element.kind != VALUE_NULL:
            return False
        node = next_of(node, nodes)
        if node < 0:
            return True
        element = &nodes[node].value


cdef void take_first(Operand* operand, FieldNode* nodes) noexcept nogil:
    """Replace the operand by a copy of its first value."""
    if operand.node >= 0:
        operand.value = nodes[operand.node].value
    operand.node = ITSELF


cdef int take_element(Operand* operand, uint32_t index, FieldNode* nodes) except -1:
    cdef int32_t node = operand.node
    if node == ITSELF:
        if index:
            operand.value.kind = VALUE_NULL
        return 0
    while index and node >= 0:
        node = nodes[node].next
        index -= 1
    if node >= 0:
        operand.value = nodes[node].value
    else:
        operand.value.kind = VALUE_NULL
    operand.node = ITSELF
    return 0


cdef int match_pattern(Pattern pattern, Operand* operand, FieldNode* nodes, Arena arena) except -1:
    """REGEXP_MATCH: the first text that matches."""
    cdef Value* text = &operand.value
    take_first(operand, nodes)
    to_text(text, arena)
    if text.kind == VALUE_NULL:
        return 0
    match = pattern.first_match(PyBytes_FromStringAndSize(<const char*>text.text, text.length))
    if match is None:
        text.kind = VALUE_NULL
        return 0
    start, end = match.span()
    set_text(text, text.text + <uint32_t>start, <uint32_t>(end - start))
    return 0


cdef int replace_pattern(Pattern pattern, Operand* operands, FieldNode* nodes, Arena arena) except -1:
    """REGEXP_REPLACE: operands[0] is the text, operands[1] the replacement."""
    cdef Value* text = &operands[0].value
    cdef Value* replacement = &operands[1].value
    take_first(operands, nodes)
    take_first(operands + 1, nodes)
    to_text(text, arena)
    to_text(replacement, arena)
    if text.kind == VALUE_NULL:
        return 0
    made = pattern.replaced(
        PyBytes_FromStringAndSize(<const char*>text.text, text.length),
        PyBytes_FromStringAndSize(<const char*>replacement.text, replacement.length)
        if replacement.kind == VALUE_STRING
        else b"",
        arena.limit_bytes - arena.used_bytes,
    )
    from_python(made, text, arena)
    return 0


cdef void negate(Value* number) noexcept nogil:
    cdef Value zero
    if number.kind == VALUE_DOUBLE:
        number.number.double_ = -number.number.double_
    elif number.kind != VALUE_NULL:
        zero.kind = VALUE_INTEGER
        zero.number.integer = 0
        arithmetic(c"-", &zero, number, number)
