# The code of expressions: its operations, and the check that it can be run.
#
# Code consists of numbers: the operation in the low 8 bits, the argument in the 24 bits above. The machine (vm.pxi)
# relies on the check: all jumps go forward, the stack never overflows or underflows, and everything that an argument
# refers to exists.

from libc.stdint cimport uint32_t

from amps._core.expressions.functions cimport FunctionEntry, function_entry

OPCODES = {
    "END": OP_END,
    "CONST": OP_CONST,
    "FIELD": OP_FIELD,
    "ELEMENT": OP_ELEMENT,
    "ADD": OP_ADD,
    "SUB": OP_SUB,
    "MUL": OP_MUL,
    "DIV": OP_DIV,
    "MOD": OP_MOD,
    "NEG": OP_NEG,
    "POS": OP_POS,
    "EQ": OP_EQ,
    "NE": OP_NE,
    "LT": OP_LT,
    "LE": OP_LE,
    "GT": OP_GT,
    "GE": OP_GE,
    "BETWEEN": OP_BETWEEN,
    "IN": OP_IN,
    "LIKE": OP_LIKE,
    "BEGINS": OP_BEGINS,
    "ENDS": OP_ENDS,
    "IS_NULL": OP_IS_NULL,
    "IS_NAN": OP_IS_NAN,
    "NOT": OP_NOT,
    "TRUTH": OP_TRUTH,
    "AND_JUMP": OP_AND_JUMP,
    "OR_JUMP": OP_OR_JUMP,
    "JUMP": OP_JUMP,
    "JUMP_UNLESS_TRUE": OP_JUMP_UNLESS_TRUE,
    "CALL": OP_CALL,
    "CALL_USER": OP_CALL_USER,
    "REGEXP_MATCH": OP_REGEXP_MATCH,
    "REGEXP_REPLACE": OP_REGEXP_REPLACE,
}
"""Number of each operation: `op | argument << 8`. The argument of a call is `count of arguments << 12 | function`:
the number of the function, or its index among the user functions of the program."""

cdef uint32_t stack_needed(
    list source, uint32_t constants, uint32_t patterns, uint32_t fields, uint32_t functions
) except? 0:
    """The depth of the stack that code needs. Checks the code: every path must end with one operand.

    constants, patterns, fields, functions: the number of each. ValueError: the code cannot be run.
    """
    depths = [-1] * len(source)
    deepest = 0
    depth = 0
    if not source:
        raise ValueError("no code")
    for at, (op, argument) in enumerate(source):
        if depths[at] >= 0 and depth >= 0 and depths[at] != depth:
            raise ValueError(f"code whose stack differs by the way to instruction {at}")
        depth = max(depth, depths[at])
        if depth < 0:
            raise ValueError(f"code that never reaches instruction {at}")
        needed, made = _effect(at, op, argument, constants, patterns, fields, functions)
        if depth < needed:
            raise ValueError(f"code that takes more from the stack than there is, at instruction {at}")
        if is_jump(op):
            if not at < argument < len(source):
                raise ValueError(f"a jump out of the code or backwards, at instruction {at}")
            kept = depth - 1 if op == OP_JUMP_UNLESS_TRUE else depth
            if depths[argument] not in (-1, kept):
                raise ValueError(f"code whose stack differs by the way to instruction {argument}")
            depths[argument] = kept
        depth += made - needed
        deepest = max(deepest, depth)
        if op == OP_END and depth != 1:
            raise ValueError(f"code that ends with {depth} operands")
        if op == OP_END or op == OP_JUMP:
            depth = -1
    if depth >= 0:
        raise ValueError("code without an end")
    return deepest


def _effect(at, op, argument, constants, patterns, fields, functions):
    """The numbers of operands that an instruction takes and leaves."""
    cdef FunctionEntry* entry
    cdef uint32_t count
    if op in (OP_CONST, OP_FIELD):
        if argument >= (constants if op == OP_CONST else fields):
            raise ValueError(f"no such constant or field, at instruction {at}")
        return 0, 1
    if op in (OP_LIKE, OP_REGEXP_MATCH, OP_REGEXP_REPLACE):
        if argument >= patterns:
            raise ValueError(f"no such pattern, at instruction {at}")
        return (2 if op == OP_REGEXP_REPLACE else 1), 1
    if op == OP_CALL:
        entry = function_entry(argument & 0xFFF)
        count = argument >> 12
        if entry == NULL or not entry.arguments_min <= count <= entry.arguments_max:
            raise ValueError(f"no such function with {count} arguments, at instruction {at}")
        return count, 1
    if op == OP_CALL_USER:
        if argument & 0xFFF >= functions:
            raise ValueError(f"no such user function, at instruction {at}")
        return argument >> 12, 1
    if OP_ADD <= op <= OP_MOD or OP_EQ <= op <= OP_GE:
        return 2, 1
    if op == OP_BETWEEN:
        return 3, 1
    if op in (OP_IN, OP_BEGINS, OP_ENDS):
        return argument + 1, 1
    if op in (OP_AND_JUMP, OP_OR_JUMP, OP_JUMP_UNLESS_TRUE):
        return 1, 0
    if op == OP_JUMP:
        return 0, 0
    if op in (OP_ELEMENT, OP_NEG, OP_POS, OP_IS_NULL, OP_IS_NAN, OP_NOT, OP_TRUTH, OP_END):
        return 1, 1
    raise ValueError(f"no such operation: {op}, at instruction {at}")
