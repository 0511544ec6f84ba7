# Filter, BarrierExpression and Priority of a queue: what becomes of a new message (queues.md §2, §3, §9.3, §12).
#
# Each is evaluated once, by the core, where the message has just got its place in the log, and again when the queue is
# made of the log at a start. So the answer must be the same then: nothing is told that is known of a living publisher
# only, and the time of the last update is not known. What stands in the record is: the user, the bookmark, the topic.
#
# A message is read once for the fields of all three. If it cannot be read for all of them it is read again for each
# expression by itself, as filters of subscriptions do it: what one says must not depend on whether there is another. It
# counts as one that filters could not read. For an expression that it cannot be read for:
#
# - the filter does not match: the message does not enter;
# - it is no barrier, and waits in its turn like any other;
# - it has no priority, and comes behind all that have one.
#
# The same holds for an expression that takes more memory or time than one message may.

from libc.math cimport isnan
from libc.stdint cimport uint64_t

from amps._core.values.fields cimport (
    FieldSet,
    begin_message,
    end_message,
    give_up,
    given_up_so_far,
    is_large_and_over,
)
from amps._core.expressions.machine cimport BoundProgram, EvaluationContext, Program
from amps._core.wire.topics cimport tell_facts
from amps._core.queues.engine cimport NewMessage
from amps._core.journal.record cimport RECORD_HEADER_BYTES, RecordHeader, record_payload
from amps._core.values.value cimport VALUE_DOUBLE, VALUE_INTEGER, VALUE_UNSIGNED, Value, to_number

cdef double PRIORITIES = 18446744073709551616.0    # how many there are: 2^64
cdef uint64_t PRIORITY_MAX = 0xFFFFFFFFFFFFFFFF


cdef class Rule:

    def __init__(self, Program program, FieldSet all_fields):
        self.together = program.bind(all_fields)
        self.fields = FieldSet()
        self.apart = program.bind(self.fields)


cdef class QueueRules:

    def __init__(
        self, EvaluationContext evaluation not None, Program filter_, Program barrier, Program priority,
        bint asks_message
    ):
        """evaluation: of the queue's message type. Programs: None if there is no such expression.

        asks_message: one of them asks for facts about the message besides its fields.
        """
        self.evaluation = evaluation
        self.fields = FieldSet()
        self.filter = None if filter_ is None else Rule(filter_, self.fields)
        self.barrier = None if barrier is None else Rule(barrier, self.fields)
        self.priority = None if priority is None else Rule(priority, self.fields)
        self.asks_message = asks_message

    cdef bint judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1:
        """Whether a message of a topic enters the queue; if it does, whether it is a barrier, and its priority."""
        begin_message(record.payload_length)
        try:
            return self._judge(record, topic, message)
        finally:
            end_message()

    cdef bint _judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1:
        cdef EvaluationContext evaluation = self.evaluation
        cdef uint64_t given_up = given_up_so_far()
        cdef bint together
        message.is_barrier = False
        message.has_priority = False
        message.priority = 0
        if self.asks_message:
            tell_facts(evaluation.context, record, topic, True, True)
            evaluation.context.live = False  # the log is read again later: what is asked about it is what it says
        together = self._read(record, self.fields)
        if not together:
            if given_up_so_far() != given_up:
                return self.filter is None  # reading it took too long
            evaluation.unreadable += 1
            evaluation.last_unreadable = (topic.decode("utf-8", "surrogatepass"), record.publisher_id, record.sequence)
        if self.filter is not None and not self._holds(self.filter, record, together):
            return False
        if self.barrier is not None:
            message.is_barrier = self._holds(self.barrier, record, together)
        if self.priority is not None:
            message.has_priority = self._rank(self.priority, record, together, &message.priority)
        return True

    cdef bint _read(self, const RecordHeader* record, FieldSet fields) except -1:
        """Find fields. False: the message cannot be read for them."""
        cdef EvaluationContext evaluation = self.evaluation
        evaluation.values.begin(fields)
        try:
            return evaluation.extractor.extract(
                record_payload(record), record.payload_length, fields, 0, evaluation.values
            )
        except MemoryError:
            evaluation.exhausted += 1
            return False

    cdef BoundProgram _ready(self, Rule rule, const RecordHeader* record, bint together):
        """The program for the fields that are found now. None: they cannot be, or the message's time is over."""
        if is_large_and_over():
            give_up()
            return None
        if together:
            return rule.together
        return rule.apart if self._read(record, rule.fields) else None

    cdef bint _holds(self, Rule rule, const RecordHeader* record, bint together) except -1:
        """Whether a message matches. What could not be evaluated to its end does not, not even if it says NOT."""
        cdef uint64_t given_up = given_up_so_far()
        cdef BoundProgram program = self._ready(rule, record, together)
        cdef bint matches
        if program is None:
            return False
        try:
            matches = program.is_match(self.evaluation.values, self.evaluation.context)
        except MemoryError:
            self.evaluation.exhausted += 1
            return False
        return matches and given_up_so_far() == given_up

    cdef bint _rank(self, Rule rule, const RecordHeader* record, bint together, uint64_t* priority) except -1:
        """The priority of a message. False: it has none."""
        cdef uint64_t given_up = given_up_so_far()
        cdef BoundProgram program = self._ready(rule, record, together)
        cdef Value value
        if program is None:
            return False
        try:
            program.run(self.evaluation.values, self.evaluation.context, &value)
            to_number(&value, self.evaluation.values.arena)
        except MemoryError:
            self.evaluation.exhausted += 1
            return False
        return given_up_so_far() == given_up and priority_of(&value, priority)

    def judged(self, bytes record not None, bytes topic not None):
        """What becomes of a message, for tests. None: it does not enter; else whether it is a barrier, its priority.

        record: as it lies in the journal. ValueError: it is shorter than it says.
        """
        cdef const RecordHeader* header = <const RecordHeader*><const char*>record
        cdef NewMessage message
        if len(record) < RECORD_HEADER_BYTES or header.length > <uint64_t>len(record):
            raise ValueError(f"no record in {len(record)} bytes")
        if not self.judge(header, topic, &message):
            return None
        return message.is_barrier, message.priority if message.has_priority else None


cdef bint priority_of(const Value* number, uint64_t* priority) noexcept nogil:
    """A number as a priority: without its fraction, no less than 0, no more than 2^64 - 1 (queues.md §9.3, D-12).

    False: it is none. NULL and NaN are not, and nothing is written then.
    """
    cdef double double_
    if number.kind == VALUE_INTEGER:
        priority[0] = <uint64_t>number.number.integer if number.number.integer > 0 else 0
    elif number.kind == VALUE_UNSIGNED:
        priority[0] = number.number.unsigned_integer
    elif number.kind == VALUE_DOUBLE and not isnan(number.number.double_):
        double_ = number.number.double_
        if double_ >= PRIORITIES:
            priority[0] = PRIORITY_MAX
        else:
            priority[0] = <uint64_t>double_ if double_ > 0 else 0
    else:
        return False
    return True
