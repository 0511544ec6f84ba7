# A list of records in order, in which a record is found by its rank as well as by its key.
#
# It is a tree of three levels: branches, their leaves, and the records of these. Each level knows how many records are
# below it, so that the way to a record tells its rank. A search compares numbers that lie side by side, the beginnings
# of the sort keys; it looks at a record only if these are equal. Full leaves and branches are split, those that have
# become small are joined with a neighbour. A hash table leads from the key to the record.
#
# Insertion, removal, rank and access by rank take a few microseconds, with a million records as well as with ten
# millions; the list of branches grows with the number of records, by one for some 30,000 of them.
#
# Records with equal sort keys are in the order of their keys. A record is one block of memory: node, sort key.
#
# Invariants: no leaf and no branch is empty, and each is counted and has its first record where it is entered.

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

import os

cdef enum:
    CAPACITY_MIN = 64
    BRANCHES_MIN = 16
    PREFIX_BYTES = 8
    ALLOCATION_BYTES = 16          # of the allocator, for each block
    LEAF_SMALL = 64                # a leaf with fewer records is joined with a neighbour, if both fill less than
    LEAF_JOINED = 192              # so much of one
    BRANCH_SMALL = 64
    BRANCH_JOINED = 192


cdef inline const uint8_t* sort_key_of(const RankedNode* node) noexcept nogil:
    return <const uint8_t*>(node + 1)


cdef uint64_t prefix_of(const uint8_t* order, uint32_t length) noexcept nogil:
    cdef uint64_t prefix = 0
    cdef uint32_t at
    for at in range(PREFIX_BYTES):
        prefix = prefix << 8 | (order[at] if at < length else 0)
    return prefix


cdef bint is_before(const RankedEntry* left, const RankedEntry* right) noexcept nogil:
    """Whether a record is in front of another."""
    cdef const RankedNode* one = left.node
    cdef const RankedNode* other = right.node
    cdef int found
    if left.prefix != right.prefix:
        return left.prefix < right.prefix
    if one == other:
        return False
    found = memcmp(sort_key_of(one), sort_key_of(other), min(one.sort_length, other.sort_length))
    if found != 0:
        return found < 0
    if one.sort_length != other.sort_length:
        return one.sort_length < other.sort_length
    return one.key < other.key


cdef uint64_t count_before(const RankedEntry* entries, uint64_t count, const RankedEntry* wanted) noexcept nogil:
    """How many of the entries, which are sorted, are in front of a record."""
    cdef uint64_t begin = 0
    cdef uint64_t end = count
    cdef uint64_t middle
    while begin < end:
        middle = (begin + end) >> 1
        if is_before(&entries[middle], wanted):
            begin = middle + 1
        else:
            end = middle
    return begin


@cython.final
cdef class RankedList:

    def __cinit__(self):
        self.branches = NULL
        self.firsts = NULL
        self.branch_count = 0
        self.branch_capacity = 0
        self.leaf_count = 0
        self.count = 0
        self.node_bytes = 0
        self.capacity = CAPACITY_MIN
        self.table = <RankedNode**>calloc(self.capacity, sizeof(RankedNode*))
        if self.table == NULL:
            raise MemoryError()
        self.multiplier = int.from_bytes(os.urandom(8), "little") | 1

    def __dealloc__(self):
        cdef RankedBranch* branch
        cdef RankedLeaf* leaf
        cdef uint64_t number
        cdef uint32_t of_branch
        cdef uint32_t of_leaf
        for number in range(self.branch_count):
            branch = self.branches[number]
            for of_branch in range(branch.count):
                leaf = branch.leaves[of_branch]
                for of_leaf in range(leaf.count):
                    free(leaf.entries[of_leaf].node)
                free(leaf)
            free(branch)
        free(self.branches)
        free(self.firsts)
        free(self.table)

    def __len__(self):
        return self.count

    @property
    def memory_bytes(self):
        """The memory that it takes."""
        return self.memory()

    def keys(self, uint64_t begin, uint64_t count):
        """The keys from a rank on, in order, at most so many."""
        cdef RankedSpot spot
        cdef RankedLeaf* leaf
        found = []
        while len(found) < count and self.seek(begin + len(found), &spot):
            leaf = self.branches[spot.branch].leaves[spot.leaf]
            while spot.at < leaf.count and len(found) < count:
                found.append(leaf.entries[spot.at].node.key)
                spot.at += 1
        return found

    def put(self, uint64_t key, bytes order not None):
        """Insert a record, or move it. Returns its rank. For tests and measurements."""
        cdef RankedNode* node = self.find(key)
        cdef uint64_t rank = 0
        if node != NULL:
            self.remove(node)
        self.insert(key, order, <uint32_t>len(order), &rank)
        return rank

    def discard(self, uint64_t key):
        """Remove a record. Returns its rank; None: there is none. For tests and measurements."""
        cdef RankedNode* node = self.find(key)
        return None if node == NULL else self.remove(node)

    def rank(self, uint64_t key):
        """The rank of a record; None: there is none."""
        cdef RankedNode* node = self.find(key)
        return None if node == NULL else self.rank_of(node)

    cdef uint64_t memory(self) noexcept nogil:
        return (
            self.node_bytes
            + self.capacity * sizeof(RankedNode*)
            + self.leaf_count * sizeof(RankedLeaf)
            + self.branch_count * sizeof(RankedBranch)
            + self.branch_capacity * (sizeof(RankedEntry) + sizeof(RankedBranch*))
        )

    # --- by key -----------------------------------------------------------------------------------------------

    cdef uint64_t home(self, uint64_t key) noexcept nogil:
        cdef uint64_t mixed = key * self.multiplier
        return (mixed ^ mixed >> 32) & self.capacity - 1

    cdef void enter(self, RankedNode* node) noexcept nogil:
        cdef uint64_t at = self.home(node.key)
        while self.table[at] != NULL:
            at = at + 1 & self.capacity - 1
        self.table[at] = node

    cdef RankedNode* find(self, uint64_t key) noexcept nogil:
        """The record of a key; NULL: there is none."""
        cdef uint64_t at = self.home(key)
        while self.table[at] != NULL:
            if self.table[at].key == key:
                return self.table[at]
            at = at + 1 & self.capacity - 1
        return NULL

    cdef void forget(self, uint64_t key) noexcept nogil:
        """Remove a key, and move those behind it that would not be found any more."""
        cdef uint64_t mask = self.capacity - 1
        cdef uint64_t gap = self.home(key)
        cdef uint64_t at
        cdef uint64_t wanted
        while self.table[gap].key != key:
            gap = gap + 1 & mask
        at = gap
        while True:
            at = at + 1 & mask
            if self.table[at] == NULL:
                break
            wanted = self.home(self.table[at].key)
            if at - wanted & mask >= at - gap & mask:
                self.table[gap] = self.table[at]
                gap = at
        self.table[gap] = NULL

    cdef int make_room(self) except -1:
        """Let the table have room for one more key."""
        cdef RankedNode** before = self.table
        cdef RankedNode** grown
        cdef uint64_t capacity = self.capacity
        cdef uint64_t at
        if (self.count + 1) * 4 <= capacity * 3:
            return 0
        grown = <RankedNode**>calloc(capacity * 2, sizeof(RankedNode*))
        if grown == NULL:
            raise MemoryError()
        self.table = grown
        self.capacity = capacity * 2
        for at in range(capacity):
            if before[at] != NULL:
                self.enter(before[at])
        free(before)
        return 0

    # --- by order ---------------------------------------------------------------------------------------------

    cdef void locate(self, RankedSpot* spot, RankedEntry* wanted) noexcept nogil:
        """Find the place of a record, or the place where it belongs: in the leaf before, if it is between two leaves.
        """
        cdef RankedBranch* branch
        cdef uint64_t number
        cdef uint32_t leaf
        spot.rank = 0
        spot.branch = count_before(self.firsts, self.branch_count, wanted)
        # The record itself may be the first of a branch or a leaf.
        if spot.branch < self.branch_count and self.firsts[spot.branch].node == wanted.node:
            spot.branch += 1
        spot.branch -= spot.branch > 0
        for number in range(spot.branch):
            spot.rank += self.branches[number].records
        branch = self.branches[spot.branch]
        spot.leaf = <uint32_t>count_before(&branch.firsts[0], branch.count, wanted)
        if spot.leaf < branch.count and branch.firsts[spot.leaf].node == wanted.node:
            spot.leaf += 1
        spot.leaf -= spot.leaf > 0
        for leaf in range(spot.leaf):
            spot.rank += branch.counts[leaf]
        spot.at = <uint32_t>count_before(
            &branch.leaves[spot.leaf].entries[0], branch.leaves[spot.leaf].count, wanted
        )
        spot.rank += spot.at

    cdef void first_changed(self, uint64_t number, uint32_t leaf) noexcept nogil:
        """Note the first record of a leaf where it is entered."""
        cdef RankedBranch* branch = self.branches[number]
        branch.firsts[leaf] = branch.leaves[leaf].entries[0]
        if leaf == 0:
            self.firsts[number] = branch.firsts[0]

    cdef int add_branch(self, uint64_t number) except -1:
        """Make an empty branch with that number."""
        cdef uint64_t capacity
        cdef RankedBranch** branches
        cdef RankedEntry* firsts
        cdef RankedBranch* made
        if self.branch_count == self.branch_capacity:
            capacity = max(<uint64_t>BRANCHES_MIN, self.branch_capacity * 2)
            branches = <RankedBranch**>realloc(self.branches, capacity * sizeof(RankedBranch*))
            if branches == NULL:
                raise MemoryError()
            self.branches = branches
            firsts = <RankedEntry*>realloc(self.firsts, capacity * sizeof(RankedEntry))
            if firsts == NULL:
                raise MemoryError()
            self.firsts = firsts
            self.branch_capacity = capacity
        made = <RankedBranch*>calloc(1, sizeof(RankedBranch))
        if made == NULL:
            raise MemoryError()
        memmove(
            &self.branches[number + 1], &self.branches[number], (self.branch_count - number) * sizeof(RankedBranch*)
        )
        memmove(&self.firsts[number + 1], &self.firsts[number], (self.branch_count - number) * sizeof(RankedEntry))
        self.branches[number] = made
        self.branch_count += 1
        return 0

    cdef int split(self, RankedSpot* spot) except -1:
        """Make room for a record at a place: split its leaf, and before that its branch, if they are full. The place is
        moved along.
        """
        cdef RankedBranch* branch
        cdef RankedBranch* right
        cdef RankedLeaf* leaf
        cdef RankedLeaf* made
        cdef uint32_t half
        cdef uint32_t at
        if self.branch_count == 0:
            made = <RankedLeaf*>calloc(1, sizeof(RankedLeaf))
            if made == NULL:
                raise MemoryError()
            try:
                self.add_branch(0)
            except MemoryError:
                free(made)
                raise
            self.branches[0].leaves[0] = made
            self.branches[0].count = 1
            self.leaf_count = 1
            return 0
        branch = self.branches[spot.branch]
        if branch.leaves[spot.leaf].count < LEAF_RECORDS:
            return 0
        if branch.count == BRANCH_LEAVES:
            self.add_branch(spot.branch + 1)
            right = self.branches[spot.branch + 1]
            half = BRANCH_LEAVES // 2
            right.count = branch.count - half
            branch.count = half
            memcpy(&right.leaves[0], &branch.leaves[half], right.count * sizeof(RankedLeaf*))
            memcpy(&right.counts[0], &branch.counts[half], right.count * sizeof(uint32_t))
            memcpy(&right.firsts[0], &branch.firsts[half], right.count * sizeof(RankedEntry))
            for at in range(right.count):
                right.records += right.counts[at]
            branch.records -= right.records
            self.firsts[spot.branch + 1] = right.firsts[0]
            if spot.leaf >= half:
                spot.leaf -= half
                spot.branch += 1
                branch = right
        made = <RankedLeaf*>malloc(sizeof(RankedLeaf))
        if made == NULL:
            raise MemoryError()
        self.leaf_count += 1
        leaf = branch.leaves[spot.leaf]
        half = LEAF_RECORDS // 2
        made.count = leaf.count - half
        leaf.count = half
        memcpy(&made.entries[0], &leaf.entries[half], made.count * sizeof(RankedEntry))
        at = spot.leaf + 1
        memmove(&branch.leaves[at + 1], &branch.leaves[at], (branch.count - at) * sizeof(RankedLeaf*))
        memmove(&branch.counts[at + 1], &branch.counts[at], (branch.count - at) * sizeof(uint32_t))
        memmove(&branch.firsts[at + 1], &branch.firsts[at], (branch.count - at) * sizeof(RankedEntry))
        branch.leaves[at] = made
        branch.counts[at] = made.count
        branch.counts[at - 1] = leaf.count
        branch.count += 1
        self.first_changed(spot.branch, at)
        if spot.at > half:
            spot.leaf += 1
            spot.at -= half
        return 0

    cdef RankedNode* insert(
        self, uint64_t key, const uint8_t* order, uint32_t length, uint64_t* rank
    ) except NULL:
        """Insert a record whose key is not in the list, and set its rank. Raises MemoryError: the list is as before."""
        cdef RankedNode* node
        cdef RankedEntry entry
        cdef RankedSpot spot
        cdef RankedBranch* branch
        cdef RankedLeaf* leaf
        self.make_room()
        node = <RankedNode*>malloc(sizeof(RankedNode) + length)
        if node == NULL:
            raise MemoryError()
        node.key = key
        node.txid = 0
        node.place = 0
        node.sort_length = length
        node.unused = 0
        memcpy(<void*>sort_key_of(node), order, length)
        entry.prefix = prefix_of(order, length)
        entry.node = node
        spot.branch = spot.rank = 0
        spot.leaf = spot.at = 0
        if self.branch_count:
            self.locate(&spot, &entry)
        try:
            self.split(&spot)
        except MemoryError:
            free(node)
            raise
        branch = self.branches[spot.branch]
        leaf = branch.leaves[spot.leaf]
        memmove(
            &leaf.entries[spot.at + 1], &leaf.entries[spot.at], (leaf.count - spot.at) * sizeof(RankedEntry)
        )
        leaf.entries[spot.at] = entry
        leaf.count += 1
        branch.counts[spot.leaf] = leaf.count
        branch.records += 1
        if spot.at == 0:
            self.first_changed(spot.branch, spot.leaf)
        self.enter(node)
        self.count += 1
        self.node_bytes += sizeof(RankedNode) + length + ALLOCATION_BYTES
        rank[0] = spot.rank
        return node

    cdef void drop_branch(self, uint64_t number) noexcept nogil:
        """Remove a branch that has no leaves any more."""
        cdef uint64_t behind = self.branch_count - number - 1
        free(self.branches[number])
        memmove(&self.branches[number], &self.branches[number + 1], behind * sizeof(RankedBranch*))
        memmove(&self.firsts[number], &self.firsts[number + 1], behind * sizeof(RankedEntry))
        self.branch_count -= 1

    cdef void drop_leaf(self, uint64_t number, uint32_t leaf) noexcept nogil:
        """Remove a leaf that has no records any more."""
        cdef RankedBranch* branch = self.branches[number]
        cdef uint32_t behind = branch.count - leaf - 1
        free(branch.leaves[leaf])
        self.leaf_count -= 1
        memmove(&branch.leaves[leaf], &branch.leaves[leaf + 1], behind * sizeof(RankedLeaf*))
        memmove(&branch.counts[leaf], &branch.counts[leaf + 1], behind * sizeof(uint32_t))
        memmove(&branch.firsts[leaf], &branch.firsts[leaf + 1], behind * sizeof(RankedEntry))
        branch.count -= 1
        if branch.count == 0:
            self.drop_branch(number)
            return
        if leaf == 0:
            self.firsts[number] = branch.firsts[0]
        if branch.count < BRANCH_SMALL:
            if number + 1 < self.branch_count:
                self.join_branches(number)
            elif number:
                self.join_branches(number - 1)

    cdef void join_branches(self, uint64_t number) noexcept nogil:
        """Move the leaves of the next branch to a branch, if they fit well."""
        cdef RankedBranch* branch = self.branches[number]
        cdef RankedBranch* right = self.branches[number + 1]
        if branch.count + right.count > BRANCH_JOINED:
            return
        memcpy(&branch.leaves[branch.count], &right.leaves[0], right.count * sizeof(RankedLeaf*))
        memcpy(&branch.counts[branch.count], &right.counts[0], right.count * sizeof(uint32_t))
        memcpy(&branch.firsts[branch.count], &right.firsts[0], right.count * sizeof(RankedEntry))
        branch.count += right.count
        branch.records += right.records
        self.drop_branch(number + 1)

    cdef void join(self, uint64_t number, uint32_t leaf) noexcept nogil:
        """Move the records of the next leaf to a leaf, if they fit well."""
        cdef RankedBranch* branch = self.branches[number]
        cdef RankedLeaf* left = branch.leaves[leaf]
        cdef RankedLeaf* right = branch.leaves[leaf + 1]
        if left.count + right.count > LEAF_JOINED:
            return
        memcpy(&left.entries[left.count], &right.entries[0], right.count * sizeof(RankedEntry))
        left.count += right.count
        branch.counts[leaf] = left.count
        self.drop_leaf(number, leaf + 1)

    cdef uint64_t remove(self, RankedNode* node) noexcept nogil:
        """Remove a record. Returns its rank."""
        cdef RankedEntry entry
        cdef RankedSpot spot
        cdef RankedBranch* branch
        cdef RankedLeaf* leaf
        entry.prefix = prefix_of(sort_key_of(node), node.sort_length)
        entry.node = node
        self.locate(&spot, &entry)
        branch = self.branches[spot.branch]
        leaf = branch.leaves[spot.leaf]
        leaf.count -= 1
        memmove(
            &leaf.entries[spot.at], &leaf.entries[spot.at + 1], (leaf.count - spot.at) * sizeof(RankedEntry)
        )
        branch.counts[spot.leaf] = leaf.count
        branch.records -= 1
        self.count -= 1
        if leaf.count == 0:
            self.drop_leaf(spot.branch, spot.leaf)
        else:
            if spot.at == 0:
                self.first_changed(spot.branch, spot.leaf)
            if leaf.count < LEAF_SMALL:
                if spot.leaf + 1 < branch.count:
                    self.join(spot.branch, spot.leaf)
                elif spot.leaf:
                    self.join(spot.branch, spot.leaf - 1)
        self.forget(node.key)
        self.node_bytes -= sizeof(RankedNode) + node.sort_length + ALLOCATION_BYTES
        free(node)
        return spot.rank

    cdef uint64_t rank_of(self, RankedNode* node) noexcept nogil:
        """How many records are in front of a record."""
        cdef RankedEntry entry
        cdef RankedSpot spot
        entry.prefix = prefix_of(sort_key_of(node), node.sort_length)
        entry.node = node
        self.locate(&spot, &entry)
        return spot.rank

    cdef bint seek(self, uint64_t rank, RankedSpot* spot) noexcept nogil:
        """Find the place with a rank. False: there are not so many records."""
        cdef RankedBranch* branch
        cdef uint64_t left = rank
        if rank >= self.count:
            return False
        spot.rank = rank
        spot.branch = 0
        while left >= self.branches[spot.branch].records:
            left -= self.branches[spot.branch].records
            spot.branch += 1
        branch = self.branches[spot.branch]
        spot.leaf = 0
        while left >= branch.counts[spot.leaf]:
            left -= branch.counts[spot.leaf]
            spot.leaf += 1
        spot.at = <uint32_t>left
        return True

    cdef RankedNode* at(self, uint64_t rank) noexcept nogil:
        """The record with a rank; NULL: there are not so many."""
        cdef RankedSpot spot
        if not self.seek(rank, &spot):
            return NULL
        return self.branches[spot.branch].leaves[spot.leaf].entries[spot.at].node
