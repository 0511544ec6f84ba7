# An operand on the stack of the expression machine.

from libc.stdint cimport int32_t

from amps._core.fields cimport FieldNode
from amps._core.value cimport Value


cdef enum:
    ITSELF = -2                    # in place of a node


# A value, or all the values of a field, which most operators take the first of.
cdef struct Operand:
    int32_t node                   # the field's first value; -1 = it has none; ITSELF = it is `value`
    Value value                    # NULL if the field has none


cdef inline Value* first_of(Operand* operand, FieldNode* nodes) noexcept nogil:
    return &nodes[operand.node].value if operand.node >= 0 else &operand.value


# The node behind one; -1 behind the last, and behind a value.
cdef inline int32_t next_of(int32_t node, FieldNode* nodes) noexcept nogil:
    return nodes[node].next if node >= 0 else -1
