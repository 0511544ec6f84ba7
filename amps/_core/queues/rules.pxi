# Filter, BarrierExpression, Priority and OrderingKey of a queue, evaluated on each new message (queues.md §2, §3, §9.3,
# §12).
#
# The core evaluates each expression once, when the message has got its log position, and again when it rebuilds the
# queue from the log at a start. Both evaluations must give the same result. So the expressions see only facts that are
# in the record: the user, the bookmark, the topic. Facts about a connected publisher and the time of the last update
# are not available.
#
# The fields of all these expressions are extracted in one pass. If that fails, the message is read again for each
# expression separately, as for filters of subscriptions, so that no expression affects the result of another one. The
# message is counted as unreadable. If it cannot be read for an expression:
#
# - the filter does not match: the message does not enter;
# - the message is not a barrier, and is delivered in its normal order;
# - the message has no priority, and comes behind all messages that have one;
# - the message has no key, and is delivered in parallel with others (queue_guarantees.md §3).
#
# The same holds for an expression that exceeds the memory or time allowed for one message.

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

cdef double PRIORITIES = 18446744073709551616.0    # number of priorities: 2^64
cdef uint64_t PRIORITY_MAX = 0xFFFFFFFFFFFFFFFF
ORDERING_SEED_BYTES = 16


cdef class Rule:

    def __init__(self, Program program, FieldSet all_fields):
        self.together = program.bind(all_fields)
        self.fields = FieldSet()
        self.apart = program.bind(self.fields)


cdef class QueueRules:

    def __init__(
        self, EvaluationContext evaluation not None, Program filter_, Program barrier, Program priority,
        bint asks_message, Program ordering_key=None, bytes ordering_seed=None
    ):
        """evaluation: that of the queue's message type. A program is None if the queue has no such expression.

        asks_message: True if an expression uses facts about the message besides its fields. ordering_seed: the secret
        of the hashes of keys, ORDERING_SEED_BYTES long; required with an ordering_key.
        """
        self.evaluation = evaluation
        self.fields = FieldSet()
        self.filter = None if filter_ is None else Rule(filter_, self.fields)
        self.barrier = None if barrier is None else Rule(barrier, self.fields)
        self.priority = None if priority is None else Rule(priority, self.fields)
        self.ordering_key = None if ordering_key is None else Rule(ordering_key, self.fields)
        self.asks_message = asks_message
        self.ordering_seed = ordering_seed
        if ordering_key is not None:
            self.use_ordering_seed(ordering_seed)

    def use_ordering_seed(self, bytes seed not None):
        """Replace the seed: that of the messages which are in the queue already. Raises ValueError."""
        if len(seed) != ORDERING_SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes")
        self.ordering_seed = seed
        memcpy(self.ordering_seed_words, <const char*>seed, sizeof(self.ordering_seed_words))

    cdef bint judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1:
        """Whether a message of a topic enters the queue. If so, set its barrier flag and its priority."""
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
        message.key_hash = 0
        if self.asks_message:
            tell_facts(evaluation.context, record, topic, True, True)
            evaluation.context.live = False  # a rebuild must give the same result: use the record only
        together = self._read(record, self.fields)
        if not together:
            if given_up_so_far() != given_up:
                return self.filter is None  # reading it exceeded the evaluation budget
            evaluation.unreadable += 1
            evaluation.last_unreadable = (topic.decode("utf-8", "surrogatepass"), record.publisher_id, record.sequence)
        if self.filter is not None and not self._holds(self.filter, record, together):
            return False
        if self.barrier is not None:
            message.is_barrier = self._holds(self.barrier, record, together)
        if self.priority is not None:
            message.has_priority = self._rank(self.priority, record, together, &message.priority)
        if self.ordering_key is not None:
            self._key(self.ordering_key, record, together, &message.key_hash)
        return True

    cdef bint _read(self, const RecordHeader* record, FieldSet fields) except -1:
        """Extract fields. False: the message cannot be read for them."""
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
        """The program bound to the extracted fields. None: extraction failed, or the evaluation budget is used up."""
        if is_large_and_over():
            give_up()
            return None
        if together:
            return rule.together
        return rule.apart if self._read(record, rule.fields) else None

    cdef bint _holds(self, Rule rule, const RecordHeader* record, bint together) except -1:
        """Whether a message matches. An incomplete evaluation does not match, even if the expression negates it."""
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
        """Determine the priority of a message. False: it has none."""
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

    cdef int _key(self, Rule rule, const RecordHeader* record, bint together, uint32_t* key_hash) except -1:
        """Determine the hash of a message's key. It stays as it is if the evaluation is incomplete."""
        cdef uint64_t given_up = given_up_so_far()
        cdef BoundProgram program = self._ready(rule, record, together)
        cdef Value value
        cdef uint32_t found = 0
        if program is None:
            return 0
        try:
            program.run(self.evaluation.values, self.evaluation.context, &value)
            hash_of_key(&value, self.evaluation.values.arena, self.ordering_seed_words, &found)
        except MemoryError:
            self.evaluation.exhausted += 1
            return 0
        if given_up_so_far() == given_up:
            key_hash[0] = found
        return 0

    def key_hash_of(self, bytes record not None, bytes topic not None):
        """The hash of a message's key, for tests; 0: it has none. See `judged`."""
        cdef NewMessage message
        self._judge_bytes(record, topic, &message)
        return message.key_hash

    cdef bint _judge_bytes(self, bytes record, bytes topic, NewMessage* message) except -1:
        cdef const RecordHeader* header = <const RecordHeader*><const char*>record
        if len(record) < RECORD_HEADER_BYTES or header.length > <uint64_t>len(record):
            raise ValueError(f"no record in {len(record)} bytes")
        return self.judge(header, topic, message)

    def judged(self, bytes record not None, bytes topic not None):
        """The result for a message, for tests: (whether it is a barrier, its priority). None: it does not enter.

        record: in the form of the journal. Raises ValueError if it is shorter than its header states.
        """
        cdef NewMessage message
        if not self._judge_bytes(record, topic, &message):
            return None
        return message.is_barrier, message.priority if message.has_priority else None


cdef bint priority_of(const Value* number, uint64_t* priority) noexcept nogil:
    """Convert a number to a priority: truncated, at least 0, at most 2^64 - 1 (queues.md §9.3, D-12).

    False: the value is not a number, as NULL and NaN. `priority` is then unchanged.
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
