# The expressions of one queue. See queue_rules.pyx.

from libc.stdint cimport uint64_t

from amps._core.expression_vm cimport BoundProgram, Program
from amps._core.fields cimport FieldSet
from amps._core.filter_set cimport FilterBench
from amps._core.queue_contents cimport NewMessage
from amps._core.record cimport RecordHeader
from amps._core.value cimport Value


cdef class Rule:
    """One expression, for messages that can be read for all that the queue asks, and for others."""

    cdef BoundProgram together
    cdef FieldSet fields           # that this expression asks for
    cdef BoundProgram apart


cdef class QueueRules:
    cdef readonly FilterBench bench
    cdef FieldSet fields           # that the expressions ask for, all together
    cdef Rule filter               # each is None if the queue has no such expression
    cdef Rule barrier
    cdef Rule priority
    cdef bint asks_message         # facts besides the fields

    cdef bint judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1
    cdef bint _judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1
    cdef bint _read(self, const RecordHeader* record, FieldSet fields) except -1
    cdef BoundProgram _ready(self, Rule rule, const RecordHeader* record, bint together)
    cdef bint _holds(self, Rule rule, const RecordHeader* record, bint together) except -1
    cdef bint _rank(self, Rule rule, const RecordHeader* record, bint together, uint64_t* priority) except -1


cdef bint priority_of(const Value* number, uint64_t* priority) noexcept nogil
