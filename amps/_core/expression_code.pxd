# The operations of the expression machine. See expression_code.pyx.

from libc.stdint cimport uint32_t


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
    OPS_OUTSIDE                    # how many a compiler may use
    OP_COMPARE = OPS_OUTSIDE       # detail: which comparison
    OP_ARITHMETIC                  # detail: which operator
    OP_COMPARE_FIELD               # argument: field; second: constant
    OP_IN_SET                      # argument: set
    OP_TEXT_IS                     # from here on predicates, those of texts first; argument: field
    OP_TEXT_IN
    OP_NUMBER_IS
    OP_NUMBER_IN


# Whether the argument is a place in the code.
cdef inline bint is_jump(int op) noexcept:
    return op == OP_AND_JUMP or op == OP_OR_JUMP or op == OP_JUMP or op == OP_JUMP_UNLESS_TRUE


cdef uint32_t stack_needed(
    list source, uint32_t constants, uint32_t patterns, uint32_t fields, uint32_t functions
) except? 0
