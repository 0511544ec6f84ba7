# The values of a group, sorted and counted: for MIN, MAX, COUNT_DISTINCT, UNIQUE, GROUP_CONCAT and ANY.
#
# Order and equality are those of `<` and `=` (expressions.md §6.1), made transitive: text with the form of a number
# counts as that number, also against other text. Other text is above every number, in the order of its bytes. Equal
# values may have different spellings (1, 1.0, '1'). The bag keeps all spellings, because any of them may be removed,
# and sorts them by a second order; the first one represents the value. So no result depends on the order of arrival.
#
# NaN has no place in the order. It counts as one more distinct value, in a separate counter. NULL is not in the bag.
#
# The bag is a treap: a search tree that random priorities keep balanced, so that each operation takes logarithmic time.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

import os

from amps._core.values.value cimport (
    COMPARE_LT,
    VALUE_BOOLEAN,
    VALUE_DOUBLE,
    VALUE_HAS_TEXT,
    VALUE_INTEGER,
    VALUE_NULL,
    VALUE_STRING,
    VALUE_UNSIGNED,
    Arena,
    Value,
    canonical,
    compare,
    number_from_text,
    to_text,
)

cdef enum:
    NUMBER_TEXT_BYTES_MAX = 32     # of a number that has no text stored with it

# Random, so that no publisher can predict the priorities and turn the tree into a list.
cdef uint64_t random_state = int.from_bytes(os.urandom(8), "little")


cdef uint64_t next_random() noexcept nogil:
    global random_state
    cdef uint64_t mixed
    random_state += <uint64_t>0x9E3779B97F4A7C15
    mixed = (random_state ^ random_state >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    mixed = (mixed ^ mixed >> 27) * <uint64_t>0x94D049BB133111EB
    return mixed ^ mixed >> 31


cdef void bag_key(const Value* value, Value* number) noexcept nogil:
    """Set `number` to the key under which a settled value other than NULL and NaN is sorted."""
    number[0] = value[0]
    if number.kind == VALUE_STRING and not number_from_text(value.text, value.length, number):
        return
    canonical(number)


cdef inline int sign_of(bint less, bint greater) noexcept nogil:
    return -1 if less else 1 if greater else 0


cdef int order_of_texts(const Value* left, const Value* right) noexcept nogil:
    cdef uint32_t length = min(left.length, right.length)
    cdef int found = memcmp(left.text, right.text, length) if length else 0
    return found if found else sign_of(left.length < right.length, left.length > right.length)


cdef int order_of_keys(Value* left, Value* right) except? -2:
    """Below 0, 0 or above 0. Numbers are canonical: numbers of different kinds are never equal."""
    if left.kind != right.kind:
        if left.kind == VALUE_STRING or right.kind == VALUE_STRING:
            return 1 if left.kind == VALUE_STRING else -1
        return -1 if compare(left, right, COMPARE_LT, None) else 1
    if left.kind == VALUE_STRING:
        return order_of_texts(left, right)
    if left.kind == VALUE_INTEGER:
        return sign_of(left.number.integer < right.number.integer, left.number.integer > right.number.integer)
    if left.kind == VALUE_UNSIGNED:
        return sign_of(
            left.number.unsigned_integer < right.number.unsigned_integer,
            left.number.unsigned_integer > right.number.unsigned_integer,
        )
    return sign_of(left.number.double_ < right.number.double_, left.number.double_ > right.number.double_)


cdef inline int rank_of(int kind) noexcept nogil:
    """The rank of a kind of value among the spellings of one number."""
    if kind == VALUE_BOOLEAN:
        return VALUE_STRING
    return VALUE_STRING + 1 if kind == VALUE_STRING else kind


cdef inline bint has_text(const Value* value) noexcept nogil:
    return value.kind == VALUE_STRING or value.flags & VALUE_HAS_TEXT


cdef int order_of_spellings(const Value* left, const Value* right) noexcept nogil:
    """The order of spellings of the same value."""
    if left.kind != right.kind:
        return rank_of(left.kind) - rank_of(right.kind)
    if left.flags != right.flags:
        return <int>left.flags - <int>right.flags
    if has_text(left):
        return order_of_texts(left, right)
    # Equal numbers with different bits: -0.0, which is the lower one as an integer because of its sign, and 0.0.
    return sign_of(left.number.integer < right.number.integer, left.number.integer > right.number.integer)


cdef int order_of(Value* number, const Value* value, BagNode* node) except? -2:
    cdef int found = order_of_keys(number, &node.number)
    return found if found else order_of_spellings(value, &node.value)


cdef BagNode* bag_find(const Bag* bag, const Value* value) except? NULL:
    """The node of a value with this spelling; NULL if there is none."""
    cdef BagNode* node = bag.root
    cdef Value number
    cdef int found
    bag_key(value, &number)
    while node != NULL:
        found = order_of(&number, value, node)
        if found == 0:
            return node
        node = node.left if found < 0 else node.right
    return NULL


cdef BagNode* first_like(const Bag* bag, Value* number, bint above) except? NULL:
    """The first node whose key is not below a number or text. above: the first whose key is above it."""
    cdef BagNode* node = bag.root
    cdef BagNode* best = NULL
    cdef int found
    while node != NULL:
        found = order_of_keys(&node.number, number)
        if found > 0 or (found == 0 and not above):
            best = node
            node = node.left
        else:
            node = node.right
    return best


cdef bint holds_like(const Bag* bag, Value* number) except -1:
    cdef BagNode* node = first_like(bag, number, False)
    return node != NULL and order_of_keys(&node.number, number) == 0


cdef uint64_t bag_node_bytes(const Value* value) noexcept nogil:
    """The bytes that a node for the value takes, including room for its text."""
    return sizeof(BagNode) + (value.length if has_text(value) else NUMBER_TEXT_BYTES_MAX)


cdef BagNode* bag_new_node(const Value* value) except NULL:
    """Create a node for a value that is not in a bag. Its text is copied."""
    cdef uint32_t length = value.length if has_text(value) else 0
    cdef BagNode* node = <BagNode*>malloc(sizeof(BagNode) + length)
    if node == NULL:
        raise MemoryError()
    node.left = NULL
    node.right = NULL
    node.priority = next_random()
    node.count = 1
    node.value = value[0]
    node.value.length = length
    node.value.text = <const uint8_t*>(node + 1)
    if length:
        memcpy(node + 1, value.text, length)
    bag_key(&node.value, &node.number)
    return node


cdef int bag_insert(Bag* bag, BagNode* node) except -1:
    """Insert a node whose value is not in the bag with this spelling."""
    cdef BagNode** place = &bag.root
    cdef BagNode** left = &node.left
    cdef BagNode** right = &node.right
    cdef BagNode* other
    if not holds_like(bag, &node.number):
        bag.distinct += 1
    while place[0] != NULL and place[0].priority >= node.priority:
        other = place[0]
        place = &other.left if order_of(&node.number, &node.value, other) < 0 else &other.right
    other = place[0]
    place[0] = node
    while other != NULL:
        if order_of(&node.number, &node.value, other) < 0:
            right[0] = other
            right = &other.left
            other = other.left
        else:
            left[0] = other
            left = &other.right
            other = other.right
    left[0] = NULL
    right[0] = NULL
    return 0


cdef uint64_t bag_take(Bag* bag, BagNode* node) except? 0:
    """Remove one occurrence of a value. Return the number of bytes freed."""
    cdef BagNode** place = &bag.root
    cdef BagNode* left = node.left
    cdef BagNode* right = node.right
    cdef uint64_t freed
    node.count -= 1
    if node.count:
        return 0
    while place[0] != node:
        place = &place[0].left if order_of(&node.number, &node.value, place[0]) < 0 else &place[0].right
    while left != NULL and right != NULL:
        if left.priority > right.priority:
            place[0] = left
            place = &left.right
            left = left.right
        else:
            place[0] = right
            place = &right.left
            right = right.left
    place[0] = right if left == NULL else left
    if not holds_like(bag, &node.number):
        bag.distinct -= 1
    freed = bag_node_bytes(&node.value)
    free(node)
    return freed


cdef void bag_free(Bag* bag) noexcept nogil:
    cdef BagNode* node = bag.root
    cdef BagNode* child
    while node != NULL:  # a left child is rotated above its parent, so that no stack is needed
        child = node.left
        if child == NULL:
            child = node.right
            free(node)
        else:
            node.left = child.right
            child.right = node
        node = child
    bag.root = NULL
    bag.distinct = 0
    bag.nans = 0


cdef BagNode* bag_lowest(const Bag* bag) noexcept nogil:
    """The first spelling of the lowest value; NULL if there is none."""
    cdef BagNode* node = bag.root
    while node != NULL and node.left != NULL:
        node = node.left
    return node


cdef BagNode* bag_highest(const Bag* bag) except? NULL:
    """The first spelling of the highest value; NULL if there is none."""
    cdef BagNode* node = bag.root
    while node != NULL and node.right != NULL:
        node = node.right
    return node if node == NULL else first_like(bag, &node.number, False)


cdef int bag_concat(const Bag* bag, bytes delimiter, Value* result, Arena arena) except -1:
    """The distinct values as text with the delimiter between them: the lowest first, NaN last."""
    cdef BagNode* node = bag_lowest(bag)
    cdef uint64_t gap = <uint64_t>len(delimiter)
    cdef uint64_t room = 0
    cdef uint8_t* start
    cdef uint8_t* at
    cdef Value text
    while node != NULL:
        room += gap + (node.value.length if has_text(&node.value) else NUMBER_TEXT_BYTES_MAX)
        node = first_like(bag, &node.number, True)
    start = arena.reserve(room + gap + NUMBER_TEXT_BYTES_MAX)
    at = start
    node = bag_lowest(bag)
    while node != NULL or (bag.nans and result.kind == VALUE_NULL):
        if at != start and gap:
            memcpy(at, <const char*>delimiter, gap)
            at += gap
        if node != NULL:
            text = node.value
        else:
            text.kind = VALUE_DOUBLE
            text.flags = 0
            text.number.double_ = float("nan")
            result.kind = VALUE_STRING
        to_text(&text, arena)
        memcpy(at, text.text, text.length)
        at += text.length
        if node != NULL:
            node = first_like(bag, &node.number, True)
    result.kind = VALUE_STRING
    result.flags = 0
    result.text = start
    result.length = <uint32_t>(at - start)
    return 0
