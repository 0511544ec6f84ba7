# The fields of a message that expressions need, and the values found.
#
# A FieldSet is the union of the paths of all live expressions, as a tree of steps. An extractor walks message and tree
# side by side and skips everything that the tree does not name. Values are stored in the *slot* of their path. Several
# values at one path are an array, for whatever reason there are several (expressions.md §9). All message types share
# this module; each has its own Extractor.
#
# Invariants: a slot keeps its number for the lifetime of the FieldSet. FieldValues are valid until the next `begin`.
# They point into the message, so no pointer may be kept.

from os import urandom

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from amps._core.values.value cimport Arena, Value, hash_bytes, to_python, to_text

cdef enum:
    TABLE_CAPACITY_MIN = 16
    NODES_MIN = 8
    LOOK_BITS = 64                 # of PathNode.names
    NODES_MAX = 1 << 23            # values of one message: 320 MiB
    STEPS_MAX = 1000


cdef uint64_t SEED = int.from_bytes(urandom(8), "little")  # random, so that no client can choose colliding names


cdef int32_t NO_PLACES[NAME_PLACES]  # of nodes without children
memset(NO_PLACES, 0xFF, sizeof(NO_PLACES))


cdef inline uint64_t name_hash(int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil:
    return hash_bytes(name, length, SEED ^ <uint64_t>parent * 0x9E3779B97F4A7C15ULL)


cdef inline uint64_t element_hash(int32_t parent, uint32_t index) noexcept nogil:
    cdef uint64_t head = (SEED ^ (<uint64_t>parent << 32 | index)) * 0x9E3779B97F4A7C15ULL
    head = (head ^ head >> 32) * 0xD6E8FEB86659FD93ULL
    return head >> 32 ^ head


cdef class FieldSet:

    def __cinit__(self):
        self.nodes = NULL
        self.table = NULL
        self.slot_nodes = NULL

    def __init__(self, paths=()):
        """paths: tuples of steps. A step is a name in bytes or the subscript of an array; the last one is a name."""
        self.node_count = 0
        self.node_capacity = 0
        self.slot_count = 0
        self.slots = {}
        self.names = []
        self.table_capacity = 0
        memset(&self.openings, 0, sizeof(NameOpenings))
        self._new_node(-1)
        for path in paths:
            self.add(path)

    def __dealloc__(self):
        cdef uint32_t node
        if self.nodes != NULL:
            for node in range(self.node_count):
                free(self.nodes[node].by_bit)
                if self.nodes[node].by_place != NO_PLACES:
                    free(self.nodes[node].by_place)
        free(self.nodes)
        free(self.table)
        free(self.slot_nodes)

    def add(self, path):
        """Return the slot of a path, which is added if it is new."""
        cdef int32_t node = 0
        cdef int32_t above
        cdef int32_t* grown
        known = self.slots.get(path)
        if known is not None:
            return known
        if not path or len(path) > STEPS_MAX or isinstance(path[len(path) - 1], int):
            raise ValueError(f"no path of a field: {path!r}")
        for step in path:
            node = self._element_node(node, step) if isinstance(step, int) else self._child_node(node, step)
        grown = <int32_t*>realloc(self.slot_nodes, (self.slot_count + 1) * sizeof(int32_t))
        if grown == NULL:
            raise MemoryError()
        self.slot_nodes = grown
        grown[self.slot_count] = node
        self.nodes[node].slot = <int32_t>self.slot_count
        above = node
        while above >= 0:
            self.nodes[above].wanted_below += 1
            above = self.nodes[above].parent
        self.slots[path] = self.slot_count
        self.slot_count += 1
        return self.slot_count - 1

    @property
    def paths(self):
        """All paths, by slot."""
        return tuple(self.slots)

    def _child_node(self, int32_t parent, bytes name):
        cdef int32_t node = self.child(parent, name, <uint32_t>len(name))
        if node >= 0:
            return node
        node = self._new_node(parent)
        name_openings_add(
            &self.openings, <const uint8_t*><const char*>name, <uint32_t>len(name), <uint32_t>len(self.names)
        )
        self.names.append(name)
        self.nodes[node].name = <const uint8_t*><const char*>name
        self.nodes[node].name_length = <uint32_t>len(name)
        self.nodes[parent].children += 1
        self._note_look(parent, node)
        self._note_place(parent, name, node)
        self._enter_new(node)
        return node

    def _note_look(self, int32_t parent, int32_t node):
        cdef PathNode* above = &self.nodes[parent]
        cdef uint32_t look = name_look(self.nodes[node].name, self.nodes[node].name_length)
        cdef uint32_t bit = name_bit(look)
        cdef int each
        if above.by_bit == NULL:
            above.by_bit = <int32_t*>malloc(LOOK_BITS * sizeof(int32_t))
            if above.by_bit == NULL:
                raise MemoryError()
            for each in range(LOOK_BITS):
                above.by_bit[each] = -1
        above.by_bit[bit] = node if above.by_bit[bit] == -1 else -2
        above.names |= <uint64_t>1 << bit
        above.other_names |= <uint64_t>1 << name_other_bit(look)

    def _note_place(self, int32_t parent, bytes name, int32_t node):
        cdef PathNode* above = &self.nodes[parent]
        cdef uint32_t place
        cdef bytes quoted
        if above.by_place == NO_PLACES:
            above.by_place = <int32_t*>malloc(NAME_PLACES * sizeof(int32_t))
            if above.by_place == NULL:
                above.by_place = NO_PLACES
                raise MemoryError()
            memset(above.by_place, 0xFF, NAME_PLACES * sizeof(int32_t))
        if not name:
            for place in range(NAME_PLACES):
                above.by_place[place] = -2  # any byte may follow the quote
            return
        quoted = name + b'"'
        place = name_place(quoted)
        if len(name) >= QUOTED_NAME_BYTES or b'"' in name or b"\\" in name or above.by_place[place] != -1:
            node = -2
        above.by_place[place] = node

    def _element_node(self, int32_t parent, uint32_t index):
        cdef int32_t node = self.element(parent, index)
        if node >= 0:
            return node
        node = self._new_node(parent)
        self.nodes[node].index = index
        self.nodes[node].next_element = self.nodes[parent].first_element
        self.nodes[parent].first_element = node
        self._enter_new(node)
        return node

    cdef int32_t _new_node(self, int32_t parent) except -1:
        cdef PathNode* grown
        cdef PathNode* node
        if self.node_count == self.node_capacity:
            grown = <PathNode*>realloc(self.nodes, (self.node_capacity * 2 + NODES_MIN) * sizeof(PathNode))
            if grown == NULL:
                raise MemoryError()
            self.nodes = grown
            self.node_capacity = self.node_capacity * 2 + NODES_MIN
        node = &self.nodes[self.node_count]
        node.name = NULL
        node.name_length = 0
        node.index = 0
        node.parent = parent
        node.slot = -1
        node.wanted_below = 0
        node.children = 0
        node.names = 0
        node.other_names = 0
        node.by_bit = NULL
        node.by_place = NO_PLACES
        node.first_element = -1
        node.next_element = -1
        self.node_count += 1
        return <int32_t>self.node_count - 1

    cdef int _grow_table(self) except -1:
        cdef uint32_t capacity = max(<uint32_t>TABLE_CAPACITY_MIN, self.table_capacity * 2)
        cdef int32_t* grown
        cdef uint32_t at
        while capacity < self.node_count * 2:
            capacity *= 2
        grown = <int32_t*>realloc(self.table, capacity * sizeof(int32_t))
        if grown == NULL:
            raise MemoryError()
        self.table = grown
        self.table_capacity = capacity
        for at in range(capacity):
            grown[at] = -1
        for at in range(1, self.node_count):
            self._enter(<int32_t>at)
        return 0

    cdef int _enter_new(self, int32_t node) except -1:
        if self.node_count * 2 > self.table_capacity:
            self._grow_table()
        else:
            self._enter(node)
        return 0

    cdef void _enter(self, int32_t node) noexcept:
        cdef PathNode* entered = &self.nodes[node]
        cdef uint64_t at
        if entered.name == NULL:
            at = element_hash(entered.parent, entered.index)
        else:
            at = name_hash(entered.parent, entered.name, entered.name_length)
        while self.table[at & (self.table_capacity - 1)] >= 0:
            at += 1
        self.table[at & (self.table_capacity - 1)] = node

    cdef int32_t child(self, int32_t parent, const uint8_t* name, uint32_t length) noexcept nogil:
        """The child of a node by its name; -1 if no path names it. `wanted_child` is faster."""
        cdef uint64_t at
        cdef int32_t found
        cdef PathNode* node
        if self.nodes[parent].children == 0:
            return -1
        at = name_hash(parent, name, length)
        while True:
            found = self.table[at & (self.table_capacity - 1)]
            if found < 0:
                return -1
            node = &self.nodes[found]
            if (
                node.name_length == length
                and node.parent == parent
                and node.name != NULL
                and texts_equal(node.name, name, length)
            ):
                return found
            at += 1

    cdef int32_t element(self, int32_t parent, uint32_t index) noexcept nogil:
        """The node for a subscript of an array; -1 if no path has it."""
        cdef uint64_t at
        cdef int32_t found
        cdef PathNode* node
        if self.nodes[parent].first_element < 0:
            return -1
        at = element_hash(parent, index)
        while True:
            found = self.table[at & (self.table_capacity - 1)]
            if found < 0:
                return -1
            node = &self.nodes[found]
            if node.name == NULL and node.parent == parent and node.index == index:
                return found
            at += 1


cdef class FieldValues:

    def __cinit__(self):
        self.slots = NULL
        self.nodes = NULL

    def __init__(self, arena_bytes_max=1 << 28, uint32_t nodes_max=NODES_MAX):
        """arena_bytes_max: limit of the text made for one message. nodes_max: limit of the values found in it."""
        self.nodes_max = nodes_max
        self.slot_capacity = 0
        self.slot_count = 0
        self.node_count = 0
        self.node_capacity = 0
        self.arena = Arena(arena_bytes_max)

    def __dealloc__(self):
        free(self.slots)
        free(self.nodes)

    cdef int begin(self, FieldSet fields) except -1:
        """Remove the values of the last message, and prepare for a message that is read for these fields."""
        cdef FieldSlot* grown
        cdef uint32_t slot
        if fields.slot_count > self.slot_capacity:
            grown = <FieldSlot*>realloc(self.slots, fields.slot_count * 2 * sizeof(FieldSlot))
            if grown == NULL:
                raise MemoryError()
            self.slots = grown
            self.slot_capacity = fields.slot_count * 2
        self.slot_count = fields.slot_count
        for slot in range(self.slot_count):
            self.slots[slot].first = -1
            self.slots[slot].count = 0
        self.node_count = 0
        self.arena.clear()
        return 0

    cdef int grow(self) except -1:
        """Make room for more values."""
        cdef FieldNode* grown
        cdef uint32_t capacity
        if self.node_count >= self.nodes_max:
            raise MemoryError(f"more than {self.nodes_max} values of fields in one message")
        capacity = min(self.node_capacity * 2 + NODES_MIN, self.nodes_max)
        grown = <FieldNode*>realloc(self.nodes, capacity * sizeof(FieldNode))
        if grown == NULL:
            raise MemoryError()
        self.nodes = grown
        self.node_capacity = capacity
        return 0

    cdef void cut(self, FieldSet fields, int32_t top, uint32_t node_count) noexcept:
        """Remove the values at a node and below it that were added after there were `node_count` values."""
        cdef uint32_t at = self.node_count
        cdef FieldNode* node
        cdef FieldSlot* shortened
        cdef int32_t above
        while at > node_count:
            at -= 1
            node = &self.nodes[at]
            if node.slot < 0:
                continue
            above = fields.slot_nodes[node.slot]
            while above > top:  # parents come before their children
                above = fields.nodes[above].parent
            if above != top:
                continue
            # It is the last one of its slot: values that were added later are already removed.
            shortened = &self.slots[node.slot]
            shortened.count -= 1
            shortened.last = node.previous
            if node.previous < 0:
                shortened.first = -1
            else:
                self.nodes[node.previous].next = -1
            node.slot = -1

    def values_of(self, uint32_t slot):
        """All values of a slot as Python objects, for tests and tools: None, bool, int, float, bytes; ... for a
        container.
        """
        cdef int32_t node
        found = []
        if slot >= self.slot_count:
            raise IndexError(slot)
        node = self.slots[slot].first
        while node >= 0:
            found.append(to_python(&self.nodes[node].value, self.arena))
            node = self.nodes[node].next
        return found

    def text_of(self, uint32_t slot):
        """The first value of a slot as text, a number in the spelling of the message. None if there is no value."""
        cdef Value value
        if slot >= self.slot_count:
            raise IndexError(slot)
        if self.slots[slot].first < 0:
            return None
        value = self.nodes[self.slots[slot].first].value
        to_text(&value, self.arena)
        return to_python(&value, self.arena)


cdef class Extractor:

    cdef bint extract(
        self, const uint8_t* data, uint64_t length, FieldSet fields, int32_t root, FieldValues values
    ) except -1:
        """Find the fields in a message. False: the message cannot be parsed as far as the fields require.

        `root` is the node at which the paths of the message begin: 0, or another node for a part of a composite
        message.
        """
        raise NotImplementedError

    def messages_cut_short(self):
        """The number of messages that could be read but ended before a needed field."""
        return self.cut_short

    def read(self, message, FieldSet fields, FieldValues values):
        """Find the fields in a message, from Python. The values keep the message, which must not change."""
        cdef const uint8_t[::1] view = message
        cdef const uint8_t* data = NULL
        if view.shape[0]:
            data = &view[0]
        values.begin(fields)
        values.message = message
        return self.extract(data, <uint64_t>view.shape[0], fields, 0, values)
