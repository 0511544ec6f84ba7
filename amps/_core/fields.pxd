# Which fields of a message are wanted, and what was found. See fields.pyx.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.value cimport VALUE_NULL, Arena, Value


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
