# The expressions of one queue. See queues/rules.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport BoundProgram, EvaluationContext, Program
from amps._core.journal.queue_records cimport QueueAcknowledgementHeader, QueueEntry, QueueMatchesHeader
from amps._core.journal.record cimport RecordHeader
from amps._core.queues.engine cimport (
    Cursor,
    Membership,
    NewMessage,
    Ownerships,
    Queue,
    QueueArena,
    QueueOutput,
    QueueShared,
    Removal,
    Subscriber,
)
from amps._core.queues.slots cimport QueueBlock, QueueCounters, QueueSlot
from amps._core.values.fields cimport FieldSet
from amps._core.values.value cimport Value


cdef class Rule:
    """One expression, bound to the fields of all the queue's expressions (`together`), and to its own (`apart`)."""

    cdef BoundProgram together
    cdef FieldSet fields           # fields that this expression uses
    cdef BoundProgram apart


cdef class QueueRules:
    cdef readonly EvaluationContext evaluation
    cdef FieldSet fields           # fields that all the expressions use
    cdef Rule filter               # each is None if the queue has no such expression
    cdef Rule barrier
    cdef Rule priority
    cdef Rule ordering_key
    cdef readonly bytes ordering_seed      # None without an OrderingKey
    cdef uint64_t[2] ordering_seed_words   # the same
    cdef bint asks_message         # an expression uses facts about the message besides its fields

    cdef bint judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1
    cdef bint _judge(self, const RecordHeader* record, bytes topic, NewMessage* message) except -1
    cdef bint _read(self, const RecordHeader* record, FieldSet fields) except -1
    cdef BoundProgram _ready(self, Rule rule, const RecordHeader* record, bint together)
    cdef bint _holds(self, Rule rule, const RecordHeader* record, bint together) except -1
    cdef bint _rank(self, Rule rule, const RecordHeader* record, bint together, uint64_t* priority) except -1
    cdef int _key(self, Rule rule, const RecordHeader* record, bint together, uint32_t* key_hash) except -1
    cdef bint _judge_bytes(self, bytes record, bytes topic, NewMessage* message) except -1


cdef bint priority_of(const Value* number, uint64_t* priority) noexcept nogil


# See queues/queue_manager.pxi.


cdef enum:
    TRANSPORT_SHIFT = 56           # position of the transport in a client key


# The effect of an acknowledgement of several messages (queues.md D-10).
cdef struct AcknowledgedCounts:
    uint32_t matches               # found and permitted
    uint32_t removed               # removed from the queue
    uint32_t kept                  # entries that the journal must record, moved to the front


cdef class QueueManager:
    cdef QueueArena arena
    cdef QueueShared shared
    cdef readonly QueueOutput output
    cdef dict subscribers                  # (transport, number) -> Subscriber
    cdef dict by_client                    # client -> {(transport, number): None}
    cdef dict cursors                      # by number: (Queue, Cursor) of each filter that a transport evaluates
    cdef uint64_t next_order
    cdef uint32_t next_cursor
    cdef list cursor_news                  # changes of cursors for `take_cursor_news`
    cdef list requests                     # of other instances: (queue number, name, bookmarks, how many are wanted)
    cdef bint was_frozen                   # `output.frozen` in the last `serve`

    cdef int hear_section(self, const QueueMatchesHeader* section, uint64_t now_ns) except -1
    cdef bint may_defer(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, const QueueEntry* entries,
        object last_sequence
    ) except -1
    cdef int acknowledge_entries(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, QueueEntry* entries,
        object last_sequence, uint64_t now_ns, AcknowledgedCounts* counts
    ) except -1


# The messages of queues, as other processes than the core see them. See queues/walk.pxi.


cdef class SlotMemory:
    """The shared memory of the core's queues, read-only."""

    cdef object slots_memory
    cdef object counters_memory
    cdef const QueueBlock* blocks
    cdef const QueueSlot* slots
    cdef const QueueCounters* counters
    cdef readonly uint32_t queue_count


# The result of a step of a walk.
cdef enum WalkStep:
    WALK_FOUND = 0
    WALK_END = 1                   # there is no further message below the limit
    WALK_LOST = 2                  # the list of blocks changes too often: continue in another turn


@cython.final
cdef class QueueWalk:
    """A place in a queue, moving forward from message to message."""

    cdef SlotMemory memory
    cdef readonly uint32_t queue
    cdef readonly uint64_t passed          # log position of the last passed message, gone or not
    cdef uint32_t block                    # the current block; NO_BLOCK = to be found by `passed`
    cdef uint64_t first                    # log position of the block's first message; identifies this use of the block
    cdef uint32_t at                       # the next slot in the block
    # of the found message
    cdef uint64_t position
    cdef uint32_t slot
    cdef int state                         # SlotState

    cdef WalkStep step(self, uint64_t limit) noexcept nogil
    cdef bint is_alive(self) noexcept nogil
    cdef WalkStep enter(self) noexcept nogil
    cdef WalkStep hop(self) noexcept nogil
    cdef bint is_there(self, uint32_t block, uint64_t first) noexcept nogil


# See queues/spanning.pxi.


cdef class Origins:
    cdef Ownerships ownerships
    cdef dict by_path                      # name id of a path -> number of the instance
    cdef uint64_t recent_path              # the path that was looked up last; 0 = none
    cdef uint32_t recent                   # its instance

    cdef uint32_t of_record(self, const RecordHeader* record) except? 0xFFFFFFFF


# See queues/log_adapter.pxi.


cdef class LogAdapter:
    cdef readonly QueueManager manager
    cdef readonly list names               # by queue: (message type, name), both as bytes
    cdef tuple rules                       # by queue: QueueRules, None without expressions; None = no queue has any
    cdef public object last_sequence       # publisher id -> the highest sequence in the log
    cdef readonly uint64_t durable_awaited  # log position up to which the journal must be durable for deliveries
    cdef Origins origins
    cdef public uint64_t publisher_id      # of the decisions of this instance's queues that others must know; 0 = none

    cdef int enqueue(self, const RecordHeader* record, bytes topic, tuple queues, uint64_t now_ns) except -1
    cdef int drop_duplicate(self, const RecordHeader* record, tuple queues) except -1
    cdef bint may_acknowledge(self, const RecordHeader* record, uint32_t queue, uint64_t client) except -1
    cdef bint holds(self, const RecordHeader* record, uint32_t queue, uint64_t client) except -1
    cdef set undecided_owners(self, const RecordHeader* record, uint32_t queue)
    cdef uint64_t deferred_ns(self, uint32_t queue) except? 0xFFFFFFFFFFFFFFFF
    cdef int count_transaction(self, uint32_t queue, bint held) except -1
    cdef uint32_t acknowledge(
        self, RecordHeader* record, uint32_t queue, uint64_t client, uint64_t now_ns, uint32_t* token,
        uint32_t* matches, uint32_t* removed
    ) except? 0xFFFFFFFF
    cdef uint32_t domain_of(self, uint32_t queue) except? 0xFFFFFFFF
    cdef bint waits_for_others(self, const RecordHeader* record, uint32_t queue) except -1
    cdef bint is_sound(self, const RecordHeader* record) except -1
    cdef int apply_replicated(self, RecordHeader* record, uint32_t queue, uint64_t now_ns) except -1
    cdef bint is_shared(self, const Removal* removal) except -1
    cdef bytes names_of(self, uint64_t owners)
    cdef uint32_t token_of(self, const RecordHeader* record) noexcept
    cdef int hear(self, const RecordHeader* record, uint64_t now_ns) except -1
    cdef int apply_recorded(self, const RecordHeader* record, uint32_t queue) except -1
    cdef bytearray removal_record(self, uint32_t* queue, uint64_t* count)
    cdef int removals_written(self, uint64_t count) except -1
