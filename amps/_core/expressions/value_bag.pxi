# The values of a group, in order and counted: for MIN, MAX, COUNT_DISTINCT, UNIQUE, GROUP_CONCAT and ANY.
#
# Order and equality here are those of `<` and `=` (expressions.md §6.1), made transitive: text with the form of a
# number counts as that number, against other text too; text without it is above every number, in the order of its
# bytes. Values that are equal may be written differently (1, 1.0, '1'). All spellings are kept, for when one of them
# is removed, in an order of their own; the first stands for all of them. So no answer depends on the order in which
# values came.
#
# NaN is in no order; it is one more distinct value, and counted aside. NULL is none.
#
# The bag is a treap: a search tree which random priorities keep flat, so that every step takes logarithmic time.

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
    NUMBER_TEXT_BYTES_MAX = 32     # of a number that has no text of its own

# Nobody who sends values can know the priorities, and with them make the tree a list.
cdef uint64_t random_state = int.from_bytes(os.urandom(8), "little")


cdef uint64_t next_random() noexcept nogil:
    global random_state
    cdef uint64_t mixed
    random_state += <uint64_t>0x9E3779B97F4A7C15
    mixed = (random_state ^ random_state >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    mixed = (mixed ^ mixed >> 27) * <uint64_t>0x94D049BB133111EB
    return mixed ^ mixed >> 31


cdef void bag_key(const Value* value, Value* number) noexcept nogil:
    """What a settled value other than NULL and NaN counts as."""
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
    """Below 0, 0 or above 0. Numbers are canonical: of two kinds they are never equal."""
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
    """Which of the ways to write a number comes first."""
    if kind == VALUE_BOOLEAN:
        return VALUE_STRING
    return VALUE_STRING + 1 if kind == VALUE_STRING else kind


cdef inline bint has_text(const Value* value) noexcept nogil:
    return value.kind == VALUE_STRING or value.flags & VALUE_HAS_TEXT


cdef int order_of_spellings(const Value* left, const Value* right) noexcept nogil:
    """The order of values that count as the same."""
    if left.kind != right.kind:
        return rank_of(left.kind) - rank_of(right.kind)
    if left.flags != right.flags:
        return <int>left.flags - <int>right.flags
    if has_text(left):
        return order_of_texts(left, right)
    # Equal numbers that look different: -0.0, whose sign makes it the lower of two integers, and 0.0.
    return sign_of(left.number.integer < right.number.integer, left.number.integer > right.number.integer)


cdef int order_of(Value* number, const Value* value, BagNode* node) except? -2:
    cdef int found = order_of_keys(number, &node.number)
    return found if found else order_of_spellings(value, &node.value)


cdef BagNode* bag_find(const Bag* bag, const Value* value) except? NULL:
    """The node of a value that is there, written like this."""
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
    """The first node that counts as no less than a number or text; above: as more than it."""
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
    """What a node for the value takes, and no less than its text does."""
    return sizeof(BagNode) + (value.length if has_text(value) else NUMBER_TEXT_BYTES_MAX)


cdef BagNode* bag_new_node(const Value* value) except NULL:
    """A node for one value, which no bag knows yet; its text is copied."""
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
    """Take in a node of a value that is not there, written like this."""
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
    """Take a value away. How many bytes that has freed."""
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
    while node != NULL:  # what is on the left is hung up on the right, so that no stack is needed
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
    """The distinct values as text, the lowest first, NaN last, with the delimiter between them."""
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
