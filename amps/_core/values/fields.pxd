# How much may be done for one message. See values/evaluation_budget.pxi.

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

from amps._core.values.value cimport VALUE_NULL, Arena, Value


cdef enum:
    MESSAGE_NS = 250_000_000       # thousands of searches in a message of ordinary size
    BYTE_NS = 10                   # of the message: some ten times what a search in linear time takes
    LARGE_BYTES = 16384            # here what takes linear time can take long, too


# What counts is the thread's processor time; before the clock says so it cannot be over.
cdef struct Deadline:
    uint64_t clock_ns              # of the monotonic clock
    uint64_t work_ns               # of the thread


cdef struct EvaluationBudget:
    uint64_t allowance_ns          # of the current message; 0 = there is none
    Deadline deadline              # clock_ns 0 = nobody has asked yet
    uint64_t worked_bytes          # since the clock was read
    uint64_t given_up              # searches, in all messages


cdef EvaluationBudget budget                 # of the process


# What every message asks, without a call.
cdef inline void begin_message(uint64_t bytes_) noexcept nogil:
    budget.worked_bytes = 0
    budget.allowance_ns = MESSAGE_NS + bytes_ * BYTE_NS
    budget.deadline.clock_ns = 0


cdef inline void end_message() noexcept nogil:
    budget.allowance_ns = 0


# Whether the current message is so large that every step must ask.
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


# Which fields of a message are wanted, and what was found. See values/fields.pxi.


# A step of a path. Node 0 is the root.
cdef struct PathNode:
    const uint8_t* name            # of the step that leads here, attributes with their @; NULL for a subscript
    uint32_t name_length
    uint32_t index                 # of a subscript
    int32_t parent
    int32_t slot                   # where values found here go; -1 = nobody wants this very node
    uint32_t wanted_below          # slots at this node and below it
    uint32_t children              # nodes whose parent it is and which have a name
    uint64_t names                 # bits by `name_bit` of these names: most others are told apart by it
    uint64_t other_names           # the same by `name_other_bit`
    int32_t* by_bit                # by `name_bit`: the one node with it, -1 = none, -2 = several; NULL = no children
    int32_t* by_place              # by `name_place`: -2 also for names that take a closer look
    int32_t first_element          # a node for a subscript of the array found here; -1 = none
    int32_t next_element           # the next one of the same parent


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
    """The fields that somebody wants, as a tree of steps. Slots are numbered from 0 and never change."""

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


# The node of a named step below another one; -1 if nobody wants it, which is what happens most of the time.
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


# The same for a name that begins here and ends with a quote; -2: who knows its length must ask. So many bytes are read.
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
    int32_t slot                   # -1 = forgotten


cdef struct FieldSlot:
    int32_t first                  # -1 = no such field
    int32_t last
    uint32_t count
    uint32_t unused


@cython.final
cdef class FieldValues:
    """What an extractor found in one message: values by slot, in the order of the message."""

    cdef FieldSlot* slots
    cdef uint32_t slot_capacity
    cdef uint32_t slot_count
    cdef FieldNode* nodes
    cdef uint32_t node_count
    cdef uint32_t node_capacity
    cdef uint32_t nodes_max
    cdef readonly Arena arena
    cdef object message            # of `read`: kept for as long as the values point into it

    cdef int begin(self, FieldSet fields) except -1
    cdef int grow(self) except -1

    # Room for one more value of a slot. It holds nothing yet, and moves when the next one is added.
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

    cdef uint64_t cut_short        # messages that ended before a field that was wanted, if the type has such messages

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1


# What extractors make of FieldSets before they read. See values/field_plans.pxi.


cdef enum:
    PLANS_MAX = 1024               # a message that cannot be read is tried for each filter by itself


cdef class FieldPlan:
    """How messages are read for a node of a FieldSet."""

    cdef FieldSet fields_wanted    # what the plan is made for, as it was; None: for nothing yet
    cdef uint32_t slots_wanted
    cdef int32_t root_wanted

    cdef int make(self, FieldSet fields, int32_t root) except -1


# Whether a plan is made for a node of a FieldSet, and that has not grown since: every new path is a new slot.
cdef inline bint is_made_for(FieldPlan self, FieldSet fields, int32_t root) noexcept:
    return (
        self.fields_wanted is fields and self.slots_wanted == fields.slot_count and self.root_wanted == root
    )


cdef class FieldPlans:
    """The plans of one extractor, as many as there is use for."""

    cdef object new_plan
    cdef dict kept                 # by FieldSet and node, which a plan holds; in the order in which they were asked for
    cdef readonly uint64_t made    # how many so far

    cdef FieldPlan find(self, FieldSet fields, int32_t root)
    cdef int make_room(self) except -1


# An operand on the stack of the expression machine.


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


# What expressions can ask about a message besides its fields. See values/message_context.pxi.


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
    MESSAGE_FACTS                  # how many a message has; the rest are the instance's
    MESSAGE_INSTANCE_NAME = MESSAGE_FACTS
    MESSAGE_INSTANCE_GROUP
    MESSAGE_FACTS_ALL


cdef class MessageContext:
    """Facts about the current message. Who has them at hand writes to `facts`; text must live as long as it stands."""

    cdef Value facts[17]           # MESSAGE_FACTS_ALL
    cdef public bint live          # a delivery, not a query: it is updated now
    cdef Arena arena               # of the message's facts
    cdef Arena instance_arena

    cdef void forget(self) noexcept


# The destination paths of a builder of nested messages, as a tree. See values/destinations.pxi.


cdef struct Destination:
    const uint8_t* name
    uint32_t name_length
    int32_t value                  # which of the values is written here; -1 = it leads to others
    int32_t parent
    int32_t first_child
    int32_t next_sibling
    uint32_t written               # of the values at hand: children that are written; of a last step 1 or 0
    bint met                       # in the message that is merged into


cdef class Destinations:
    """Nodes are numbered as those of a FieldSet: 0 is the root."""

    cdef Destination* nodes
    cdef uint32_t node_count
    cdef FieldSet tree             # finds children by name

    cdef void choose(self, Value** values) noexcept
    cdef void begin(self, int32_t node) noexcept


# The destination of a name below another one; -1: that name is none.
cdef inline int32_t destination(Destinations self, int32_t node, const uint8_t* name, uint32_t length) noexcept:
    return self.tree.child(node, name, length)


# Writing messages with known fields. See values/builder.pxi.


cdef class ByteBuffer:
    """Bytes that grow; the memory is used again for the next message."""

    cdef uint8_t* data
    cdef uint64_t length
    cdef uint64_t capacity

    cdef uint8_t* reserve(self, uint64_t length) except NULL
    cdef int append(self, const void* added, uint64_t length) except -1
    cdef int append_byte(self, uint8_t added) except -1


cdef class MessageBuilder:
    """Writes messages of one type whose fields are known beforehand, into `output`."""

    cdef readonly tuple paths
    cdef ByteBuffer output
    cdef Arena arena

    cdef int write(self, Value** values, Arena arena) except -1
    cdef bint write_merged(
        self, const uint8_t* message, uint64_t length, Value** values, Arena arena
    ) except -1


# What the extractors of nested binary formats share. See values/nested.pxi.


cdef enum:
    NESTED_DEPTH_MAX = 1000        # of what is wanted; what is stepped over may be deeper


cdef class NestedExtractor(Extractor):
    """Fields of messages that are maps of values, maps and arrays, where the first value of a repeated key counts."""

    cdef FieldSet fields
    cdef FieldValues values
    cdef const uint8_t* end        # of the message
    cdef bint done                 # everything wanted is found
    cdef uint32_t wanted           # how many fields
    cdef uint32_t resolved         # wanted fields that later bytes cannot change any more
    cdef uint32_t arrays           # how many arrays surround the current place
    cdef uint32_t map_serial
    cdef uint32_t* met             # by node of the FieldSet: the map in which its key was met last
    cdef uint32_t met_capacity
    cdef const uint8_t* leaf_from  # where the last search for a scalar began
    cdef const uint8_t* leaf_to    # and where it found one; without one, the end of what was searched

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


# Whether this is the first time that a wanted key is met in a map.
cdef inline bint first_time(NestedExtractor self, int32_t node, uint32_t map_serial) noexcept:
    if self.met[node] == map_serial:
        return False
    self.met[node] = map_serial
    return True
