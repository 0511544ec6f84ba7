# Operators of expressions. See expression_operators.pyx.

from libc.stdint cimport int32_t, uint32_t

from amps._core.constant_set cimport ConstantSet
from amps._core.fields cimport FieldNode
from amps._core.operand cimport Operand
from amps._core.patterns cimport Pattern
from amps._core.value cimport Arena, Value

cdef bint any_pair(Operand* left, Operand* right, int comparison, FieldNode* nodes, Arena arena) except -1
cdef bint is_field_match(int32_t node, Value* constant, int comparison, FieldNode* nodes, Arena arena) except -1
cdef bint any_like(Operand* operand, Pattern pattern, FieldNode* nodes, Arena arena) except -1
cdef bint any_text(Operand* left, Operand* right, bint ends, FieldNode* nodes, Arena arena) except -1
cdef bint any_member(Operand* operand, ConstantSet members, FieldNode* nodes, Arena arena) except -1
cdef bint is_null(Operand* operand, FieldNode* nodes, Arena arena) except -1
cdef void take_first(Operand* operand, FieldNode* nodes) noexcept nogil
cdef int take_element(Operand* operand, uint32_t index, FieldNode* nodes) except -1
cdef int match_pattern(Pattern pattern, Operand* operand, FieldNode* nodes, Arena arena) except -1
cdef int replace_pattern(Pattern pattern, Operand* operands, FieldNode* nodes, Arena arena) except -1
cdef void negate(Value* number) noexcept nogil
