# The machine that evaluates expressions. See expression_vm.pyx.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.fields cimport FieldValues
from amps._core.message_context cimport MessageContext
from amps._core.operand cimport Operand
from amps._core.predicates cimport ExpectedRoom, Predicate
from amps._core.value cimport Arena, Value


cdef struct Instruction:
    uint8_t op
    uint8_t detail                 # comparison, or operator of arithmetic
    uint32_t argument
    uint32_t second                # constant of a fused comparison; function of a call
    Predicate predicate            # if it is one


cdef class Program:
    """What a compiled expression does, for whatever set of fields."""

    cdef Instruction* code
    cdef uint32_t length
    cdef Value* constants
    cdef Arena arena
    cdef readonly tuple patterns
    cdef readonly tuple fields
    cdef readonly tuple functions  # of the user
    cdef list sets                 # of constants, for IN
    cdef ExpectedRoom expected     # what predicates compare with
    cdef readonly uint32_t stack_depth

    cdef int assemble(self, list source, list targets, list constants) except -1


cdef class BoundProgram:
    """A program whose fields are slots of one set of fields."""

    cdef readonly Program program
    cdef uint32_t* slots           # by number of the program's field
    cdef uint32_t slots_needed
    cdef Operand* stack

    cdef int run(self, FieldValues values, MessageContext message, Value* result) except -1
    cdef int step_through(self, FieldValues values, MessageContext message) except -1
    cdef bint is_match(self, FieldValues values, MessageContext message) except -1
