# The bound on the work for one message. See values/evaluation_budget.pxi.

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

from amps._core.values.value cimport VALUE_NULL, Arena, Value


cdef enum:
    MESSAGE_NS = 250_000_000       # thousands of searches in a message of ordinary size
    BYTE_NS = 10                   # per byte of the message: some ten times the time of a search in linear time
    LARGE_BYTES = 16384            # in larger messages, even work in linear time can take long


# The limit is on the thread's processor time. The clock is compared first: the limit cannot have passed before it.
cdef struct Deadline:
    uint64_t clock_ns              # of the monotonic clock
    uint64_t work_ns               # of the thread


cdef struct EvaluationBudget:
    uint64_t allowance_ns          # of the current message; 0 = no message
    Deadline deadline              # clock_ns 0 = not set yet
    uint64_t worked_bytes          # since the clock was read
    uint64_t given_up              # searches that were given up, in all messages


cdef EvaluationBudget budget                 # of the process


# The checks for every message, inline.
cdef inline void begin_message(uint64_t bytes_) noexcept nogil:
    budget.worked_bytes = 0
    budget.allowance_ns = MESSAGE_NS + bytes_ * BYTE_NS
    budget.deadline.clock_ns = 0


cdef inline void end_message() noexcept nogil:
    budget.allowance_ns = 0


# Whether the current message is so large that every step of an evaluation must check the budget.
cdef inline bint is_large() noexcept nogil:
    return budget.allowance_ns > <uint64_t>MESSAGE_NS + LARGE_BYTES * BYTE_NS


cdef inline bint is_large_and_over() noexcept nogil:
    return is_large() and is_over()


cdef inline uint64_t given_up_so_far() noexcept nogil:
    return budget.given_up


cdef Deadline deadline_after(uint64_t at_most_ns) noexcept nogil
cdef bint has_passed(Deadline* deadline) noexcept nogil
cdef bint is_over() noexcept nogil
cdef bint is_overworked(uint64_t bytes_) noexcept nogil
cdef void give_up() noexcept nogil


# The fields of a message that expressions need, and the values found. See values/fields.pxi.


# A step of a path. Node 0 is the root.
cdef struct PathNode:
    const uint8_t* name            # of the step to this node, attributes with their @; NULL for a subscript
    uint32_t name_length
    uint32_t index                 # of a subscript
    int32_t parent
    int32_t slot                   # slot of the values found at this node; -1 = no path ends here
    uint32_t wanted_below          # slots at this node and below it
    uint32_t children              # number of named nodes with this parent
    uint64_t names                 # bits by `name_bit` of the children's names; they exclude most other names
    uint64_t other_names           # the same by `name_other_bit`
    int32_t* by_bit                # child by `name_bit`: -1 = none, -2 = several; NULL = no children
    int32_t* by_place              # child by `name_place`: -1 = none, -2 = several, or compare in full
    int32_t first_element          # first node for a subscript of the array at this node; -1 = none
    int32_t next_element           # next such node with the same parent


cdef extern from "name_bits.h" nogil:
    enum:
        NAME_PLACES
    ctypedef struct NameOpenings:
        pass
    uint32_t name_look(const uint8_t* name, uint32_t length)
    uint32_t name_bit(uint32_t look)
    uint32_t name_place(const uint8_t* name)
    uint32_t name_other_bit(uint32_t look)
    void name_openings_add(NameOpenings* openings, const uint8_t* name, uint32_t length, uint32_t number)


cdef extern from "text_words.h" nogil:
    bint texts_equal(const uint8_t* left, const uint8_t* right, uint32_t length)


cdef class FieldSet:
    """The fields that expressions need, as a tree of steps. Slots are numbered from 0 and never change."""

    cdef PathNode* nodes
    cdef readonly uint32_t node_count
    cdef uint32_t node_capacity
    cdef readonly uint32_t slot_count
    cdef dict slots                # path -> slot
    cdef int32_t* slot_nodes       # by slot: its node
    cdef list names                # owners of PathNode.name
    cdef int32_t* table            # nodes by parent and name or subscript, open addressing; -1 = free
    cdef uint32_t table_capacity   # a power of two
    cdef NameOpenings openings     # of the names of all steps

    cdef int32_t _new_node(self, int32_t parent) except -1
    cdef int _grow_table(self) except -1
    cdef int _enter_new(self, int32_t node) except -1
    cdef void _enter(self, int32_t node) noexcept
    cdef int32_t child(self, int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil
    cdef int32_t element(self, int32_t parent, uint32_t index) noexcept nogil


# The child of a node by its name; -1 if no path names it, which is the most frequent case.
cdef inline int32_t wanted_child(FieldSet fields, int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil:
    cdef uint32_t look = name_look(name, length)
    cdef PathNode* node = &fields.nodes[parent]
    cdef int32_t found
    if not node.names >> name_bit(look) & node.other_names >> name_other_bit(look) & 1:
        return -1
    found = node.by_bit[name_bit(look)]
    if found < 0:
        return fields.child(parent, name, length)
    node = &fields.nodes[found]
    return found if node.name_length == length and texts_equal(node.name, name, length) else -1


# The same for a name that begins here and ends with a quote. It reads QUOTED_NAME_BYTES bytes. -2: the name needs a
# full comparison by `wanted_child`.
cdef enum:
    QUOTED_NAME_BYTES = 17

cdef inline int32_t wanted_quoted_child(FieldSet fields, int32_t parent, const uint8_t* name) noexcept nogil:
    cdef int32_t found = fields.nodes[parent].by_place[name_place(name)]
    cdef PathNode* node
    if found < 0:
        return found
    node = &fields.nodes[found]
    return found if name[node.name_length] == c'"' and texts_equal(node.name, name, node.name_length) else -1


cdef struct FieldNode:
    Value value
    int32_t next                   # next value of the same slot; -1 = none
    int32_t previous               # the one before; -1 = none
    int32_t slot                   # -1 = removed


cdef struct FieldSlot:
    int32_t first                  # -1 = no such field
    int32_t last
    uint32_t count
    uint32_t unused


@cython.final
cdef class FieldValues:
    """The values that an extractor found in one message: by slot, in the order of the message."""

    cdef FieldSlot* slots
    cdef uint32_t slot_capacity
    cdef uint32_t slot_count
    cdef FieldNode* nodes
    cdef uint32_t node_count
    cdef uint32_t node_capacity
    cdef uint32_t nodes_max
    cdef readonly Arena arena
    cdef object message            # of `read`: kept while the values point into it

    cdef int begin(self, FieldSet fields) except -1
    cdef int grow(self) except -1

    # Add a value of a slot. The caller fills it in. The pointer is valid until the next value is added.
    cdef inline Value* add(self, int32_t slot) except NULL:
        cdef FieldSlot* added = &self.slots[slot]
        cdef int32_t at = <int32_t>self.node_count
        cdef FieldNode* node
        if self.node_count == self.node_capacity:
            self.grow()
        node = &self.nodes[at]
        node.previous = -1
        if added.first < 0:
            added.first = at
        else:
            self.nodes[added.last].next = at
            node.previous = added.last
        added.last = at
        added.count += 1
        node.next = -1
        node.slot = slot
        node.value.kind = VALUE_NULL
        node.value.flags = 0
        self.node_count += 1
        return &node.value

    cdef void cut(self, FieldSet fields, int32_t top, uint32_t node_count) noexcept


cdef class Extractor:
    """Finds fields in messages of one type."""

    cdef uint64_t cut_short        # messages that ended before a needed field, for types with such messages

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1


# The plans that extractors derive from FieldSets before they read messages. See values/field_plans.pxi.


cdef enum:
    PLANS_MAX = 1024               # unreadable messages are read for each filter, with its own FieldSet


cdef class FieldPlan:
    """The way in which messages are read for a node of a FieldSet."""

    cdef FieldSet fields_wanted    # the FieldSet of the plan; None = the plan is not made yet
    cdef uint32_t slots_wanted
    cdef int32_t root_wanted

    cdef int make(self, FieldSet fields, int32_t root) except -1


# Whether a plan is made for a node of a FieldSet that has not grown since. Every new path adds a slot.
cdef inline bint is_made_for(FieldPlan self, FieldSet fields, int32_t root) noexcept:
    return (
        self.fields_wanted is fields and self.slots_wanted == fields.slot_count and self.root_wanted == root
    )


cdef class FieldPlans:
    """The plans of one extractor, up to PLANS_MAX."""

    cdef object new_plan
    cdef dict kept                 # by id of the FieldSet (kept alive by the plan) and node; oldest use first
    cdef readonly uint64_t made    # number of plans made so far

    cdef FieldPlan find(self, FieldSet fields, int32_t root)
    cdef int make_room(self) except -1


# An operand on the stack of the expression machine.


cdef enum:
    ITSELF = -2                    # in place of a node number


# A value, or all values of a field. Most operators use the first one.
cdef struct Operand:
    int32_t node                   # the field's first value; -1 = there is none; ITSELF = the operand is `value`
    Value value                    # NULL if the field has no value


cdef inline Value* first_of(Operand* operand, FieldNode* nodes) noexcept nogil:
    return &nodes[operand.node].value if operand.node >= 0 else &operand.value


# The node after a node; -1 after the last one, and for a value.
cdef inline int32_t next_of(int32_t node, FieldNode* nodes) noexcept nogil:
    return nodes[node].next if node >= 0 else -1


# The facts about a message that expressions can read besides its fields. See values/message_context.pxi.


cdef enum MessageFact:
    MESSAGE_SIZE = 0
    MESSAGE_CORRELATION_ID
    MESSAGE_LAST_UPDATED
    MESSAGE_BOOKMARK
    MESSAGE_TOPIC_NAME
    MESSAGE_SOW_KEY
    MESSAGE_LAST_READ
    MESSAGE_SOW_KEY_HASH
    MESSAGE_LEASE_COUNT
    MESSAGE_LAST_LEASED
    MESSAGE_CLIENT_NAME
    MESSAGE_CONNECTION_NAME
    MESSAGE_USER
    MESSAGE_CLIENT_VERSION
    MESSAGE_REMOTE_ADDRESS
    MESSAGE_FACTS                  # number of facts of a message; the following ones belong to the instance
    MESSAGE_INSTANCE_NAME = MESSAGE_FACTS
    MESSAGE_INSTANCE_GROUP
    MESSAGE_FACTS_ALL


cdef class MessageContext:
    """Facts about the current message. The caller that knows them writes to `facts`; their text must outlive them."""

    cdef Value facts[17]           # MESSAGE_FACTS_ALL
    cdef public bint live          # a delivery, not a query: the message is updated now
    cdef Arena arena               # of the message's facts
    cdef Arena instance_arena

    cdef void forget(self) noexcept


# The destination paths of a builder of nested messages, as a tree. See values/destinations.pxi.


cdef struct Destination:
    const uint8_t* name
    uint32_t name_length
    int32_t value                  # index of the value that is written here; -1 = an inner node
    int32_t parent
    int32_t first_child
    int32_t next_sibling
    uint32_t written               # for the current values: number of children that are written; for a leaf 1 or 0
    bint met                       # found in the message that is merged into


cdef class Destinations:
    """The tree of destinations. Nodes have the numbers of a FieldSet: 0 is the root."""

    cdef Destination* nodes
    cdef uint32_t node_count
    cdef FieldSet tree             # finds children by name

    cdef void choose(self, Value** values) noexcept
    cdef void begin(self, int32_t node) noexcept


# The child of a node by its name; -1 if it is not a destination.
cdef inline int32_t destination(Destinations self, int32_t node, const uint8_t* name, uint32_t length) noexcept:
    return self.tree.child(node, name, length)


# Writing messages with known fields. See values/builder.pxi.


cdef class ByteBuffer:
    """A growing byte buffer. Its memory is reused for the next message."""

    cdef uint8_t* data
    cdef uint64_t length
    cdef uint64_t capacity

    cdef uint8_t* reserve(self, uint64_t length) except NULL
    cdef int append(self, const void* added, uint64_t length) except -1
    cdef int append_byte(self, uint8_t added) except -1


cdef class MessageBuilder:
    """Writes messages of one type, with fields known in advance, into `output`."""

    cdef readonly tuple paths
    cdef ByteBuffer output
    cdef Arena arena

    cdef int write(self, Value** values, Arena arena) except -1
    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1


# The common part of the extractors of nested binary formats. See values/nested.pxi.


cdef enum:
    NESTED_DEPTH_MAX = 1000        # of needed values; skipped values may be nested deeper


cdef class NestedExtractor(Extractor):
    """Fields of messages that are maps of values, maps and arrays. Of a repeated key, the first value counts."""

    cdef FieldSet fields
    cdef FieldValues values
    cdef const uint8_t* end        # of the message
    cdef bint done                 # all needed values are found
    cdef uint32_t wanted           # number of needed fields
    cdef uint32_t resolved         # needed fields that later bytes cannot change
    cdef uint32_t arrays           # number of arrays around the current position
    cdef uint32_t map_serial
    cdef uint32_t* met             # by node of the FieldSet: the last map in which its key was found
    cdef uint32_t met_capacity
    cdef const uint8_t* leaf_from  # start of the last search for a scalar
    cdef const uint8_t* leaf_to    # position of the scalar it found, or the end of the searched bytes

    cdef int start(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1
    cdef uint32_t new_map(self) noexcept
    cdef const uint8_t* scan_member(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL
    cdef bint is_array(self, uint8_t tag) noexcept
    cdef const uint8_t* scan_value(
        self, const uint8_t* at, uint8_t tag, int32_t node, uint32_t depth
    ) except? NULL


# Whether a needed key is found for the first time in a map.
cdef inline bint first_time(NestedExtractor self, int32_t node, uint32_t map_serial) noexcept:
    if self.met[node] == map_serial:
        return False
    self.met[node] = map_serial
    return True
