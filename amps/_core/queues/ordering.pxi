# Order per key: of the messages with equal keys, one is available or held, and the others wait (queue_guarantees.md
# §3).
#
# A key is a 32-bit hash of a value, computed when the message enters (queues/ordering_hash.pxi); 0 is no key. The
# hashes of a queue's messages lie beside the arena, in an array for each of its blocks.
#
# The *head* of a key is the message that is held, or else the first of its key in the log. The others form a circular
# list in the order of the log, through `next` and `previous` of their slots, which only held messages use otherwise.
# So a message leaves the list at any place at the same cost. Its place in the list is found from both ends, or from
# *milestones* if messages are delayed (queues/milestones.pxi). A table has one entry per key: the slot of the last
# waiting message, or of the head if none waits. `holder` of the last waiting message is the slot of the head.
#
# The table is a directory of *segments*, selected by the leading bits of the hash. In a segment, an entry lies at the
# place that its hash gives, or behind it. A full segment grows, and beyond SEGMENT_CAPACITY_MAX it is split in two. So
# no step moves more entries than a segment has, except that the directory, 8 bytes per segment, is doubled now and
# then. Different keys have different hashes, and the hashes depend on a secret, so nobody can choose keys that fill one
# segment.
#
# Invariants
# - Each message with a key that is active has joined it once: it is the head, or in state WAITING in the list.
# - A head that is available, here or elsewhere, is before all messages of the list in the log.
# - At least a quarter of a segment's entries are free, and at most 7/12, unless it has the smallest capacity: 5.3 to
#   9.6 bytes per key. Segments are not joined again: of the memory for the most keys that the queue had, about 0.3
#   bytes per key stay.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

cdef enum:
    SEGMENT_CAPACITY_FIRST = 16
    SEGMENT_CAPACITY_MAX = 768     # a larger one is split
    DEPTH_MAX = 24                 # then segments are not split, and grow


cdef inline uint32_t place_of(uint32_t hash_, uint32_t capacity) noexcept nogil:
    """Index in a segment at which the search for a hash begins. All its bits count; the leading ones are the same."""
    return <uint32_t>(<uint64_t>(hash_ * <uint32_t>0x9E3779B1) * capacity >> 32)


cdef inline bint is_full(uint64_t count, uint64_t capacity) noexcept nogil:
    """Whether a segment has no room for another entry."""
    return 4 * (count + 1) > 3 * capacity


cdef inline uint32_t larger_capacity(uint32_t capacity) noexcept nogil:
    """The next capacity: 16, 24, 32, 48, 64, ..."""
    return capacity // 2 * 3 if capacity & (capacity - 1) == 0 else capacity // 3 * 4


cdef uint32_t capacity_for(uint64_t count) noexcept nogil:
    """The smallest capacity with room for another entry."""
    cdef uint32_t capacity = SEGMENT_CAPACITY_FIRST
    while is_full(count, capacity):
        capacity = larger_capacity(capacity)
    return capacity


cdef uint32_t* make_entries(uint32_t capacity) except NULL:
    cdef uint32_t* entries = <uint32_t*>malloc(capacity * sizeof(uint32_t))
    if entries == NULL:
        raise MemoryError()
    memset(entries, 0xFF, capacity * sizeof(uint32_t))  # NO_SLOT
    return entries


cdef inline bint is_held(int state) noexcept nogil:
    """Whether a head keeps its place when an earlier message of its key becomes active."""
    return state != SLOT_AVAILABLE and state != SLOT_ELSEWHERE


cdef class OrderingKeys:

    def __cinit__(self):
        self.directory = NULL

    def __init__(self, QueueArena arena not None):
        cdef KeySegment* segment
        self.arena = arena
        self.slots = arena.slots
        self.depth = 0
        self.count = 0
        self.milestones = None
        self.steps = 0
        if arena.key_hashes == NULL:
            arena.key_hashes = <uint32_t**>calloc(arena.block_capacity, sizeof(uint32_t*))
            if arena.key_hashes == NULL:
                raise MemoryError()
        self.hashes = arena.key_hashes
        self.directory = <KeySegment**>calloc(1, sizeof(KeySegment*))
        segment = <KeySegment*>calloc(1, sizeof(KeySegment))
        if self.directory == NULL or segment == NULL:
            free(segment)
            raise MemoryError()
        self.directory[0] = segment
        segment.entries = make_entries(SEGMENT_CAPACITY_FIRST)
        segment.capacity = SEGMENT_CAPACITY_FIRST

    def __dealloc__(self):
        cdef uint64_t at = 0
        cdef KeySegment* segment
        if self.directory == NULL:
            return
        while at < <uint64_t>1 << self.depth:
            segment = self.directory[at]
            if segment == NULL:
                break
            at += <uint64_t>1 << (self.depth - segment.depth)
            free(segment.entries)
            free(segment)
        free(self.directory)

    # --- hashes of messages ---------------------------------------------------------------------------

    cdef int take_block(self, uint32_t block) except -1:
        """Make room for the hashes of a block that the queue has taken."""
        self.hashes[block] = <uint32_t*>malloc(BLOCK_SLOTS * sizeof(uint32_t))
        if self.hashes[block] == NULL:
            raise MemoryError()
        return 0

    cdef void forget_block(self, uint32_t block) noexcept nogil:
        free(self.hashes[block])
        self.hashes[block] = NULL

    cdef uint32_t hash_of(self, uint32_t slot) noexcept nogil:
        return self.hashes[slot // BLOCK_SLOTS][slot % BLOCK_SLOTS]

    cdef void set_hash(self, uint32_t slot, uint32_t hash_) noexcept nogil:
        self.hashes[slot // BLOCK_SLOTS][slot % BLOCK_SLOTS] = hash_

    # --- messages join and leave ----------------------------------------------------------------------

    cdef int expect_delays(self) except -1:
        """Note that messages of the queue may join out of the order of the log from now on."""
        if self.milestones is None:
            self.milestones = Milestones(self.arena)
        return 0

    cdef uint32_t join(self, uint32_t slot) except? 0xFFFFFFFF:
        """Let a message that becomes active join its key, at its place in the order of the log.

        Returns the message that must wait now, in state WAITING: this one, or the head so far, which was available and
        is later in the log. NO_SLOT: none, for this message is the first of its key, or has no key.
        """
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint32_t* entry
        cdef uint32_t last
        cdef uint32_t head
        if hash_ == 0:
            return NO_SLOT
        entry = self.find(hash_)
        last = entry[0]
        if last == NO_SLOT:
            if is_full(self.segment_of(hash_).count, self.segment_of(hash_).capacity):
                self.make_room(hash_)
                entry = self.find(hash_)
            entry[0] = slot
            self.segment_of(hash_).count += 1
            self.count += 1
            return NO_SLOT
        head = self.head_of(last)
        if not is_held(self.slots[head].state) and self.slots[head].position > self.slots[slot].position:
            self.replace_head(entry, head, slot)
            return head
        self.wait_behind(entry, self.place_behind(last, slot), slot)
        return slot

    cdef uint32_t take_over(self, uint32_t slot) except? 0xFFFFFFFF:
        """Make a message that has not joined its key the head, in recovery, when no message is held. Returns as `join`.
        """
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint32_t* entry
        cdef uint32_t head
        if hash_ == 0:
            return NO_SLOT
        entry = self.find(hash_)
        if entry[0] == NO_SLOT:
            return self.join(slot)
        head = self.head_of(entry[0])
        self.replace_head(entry, head, slot)
        return head

    cdef uint32_t head_of(self, uint32_t last) noexcept nogil:
        """The head of a key; last: its entry in the table."""
        return self.slots[last].holder if self.slots[last].state == SLOT_WAITING else last

    cdef uint32_t first_waiting(self, uint32_t slot) noexcept nogil:
        """The first message that waits for a head; NO_SLOT: none."""
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint32_t last = NO_SLOT
        if hash_:
            last = self.find(hash_)[0]
        return NO_SLOT if last == NO_SLOT or last == slot else self.slots[last].next

    cdef void replace_head(self, uint32_t* entry, uint32_t head, uint32_t slot) noexcept nogil:
        """Make a message the head. The head so far is the first that waits."""
        cdef uint32_t last = entry[0]
        if last == head:
            self.slots[head].state = SLOT_WAITING
            self.slots[head].previous = head
            self.slots[head].next = head
            self.slots[head].holder = slot
        else:
            self.slots[last].holder = slot
            self.insert_behind(last, head)
        self.now_waits(head)

    cdef uint32_t place_behind(self, uint32_t last, uint32_t slot) noexcept nogil:
        """The waiting message behind which a message has its place; `last`: before the first, or none waits.

        The search begins at both ends: a message that becomes active is mostly the latest one, or, if it was delayed,
        earlier than most. It goes on between two milestones, about 32 messages apart.
        """
        cdef uint64_t position = self.slots[slot].position
        cdef uint32_t back = last
        cdef uint32_t front = last
        cdef uint32_t steps = 0
        if self.slots[last].state != SLOT_WAITING or self.slots[last].position < position:
            return last
        while self.slots[back].position > position:
            if self.slots[self.slots[front].next].position > position:
                back = front
                break
            back = self.slots[back].previous
            front = self.slots[front].next
            steps += 1
            if steps == STEPS_WITHOUT_MILESTONES and self.milestones is not None:
                self.milestones.around(slot, &front, &back)
        self.steps += steps
        return back

    cdef void wait_behind(self, uint32_t* entry, uint32_t before, uint32_t slot) noexcept nogil:
        """Let a message wait behind another one, or alone."""
        cdef uint32_t last = entry[0]
        cdef QueueSlot* message = &self.slots[slot]
        if self.slots[last].state != SLOT_WAITING:
            message.holder = last
            message.previous = slot
            message.next = slot
            message.state = SLOT_WAITING
            entry[0] = slot
        else:
            if before == last and message.position > self.slots[last].position:
                message.holder = self.slots[last].holder
                entry[0] = slot
            self.insert_behind(before, slot)
        self.now_waits(slot)

    cdef void insert_behind(self, uint32_t before, uint32_t slot) noexcept nogil:
        cdef QueueSlot* message = &self.slots[slot]
        message.state = SLOT_WAITING
        message.previous = before
        message.next = self.slots[before].next
        self.slots[message.next].previous = slot
        self.slots[before].next = slot

    cdef void now_waits(self, uint32_t slot) noexcept nogil:
        if self.milestones is not None:
            self.milestones.add(slot)

    cdef void waits_no_longer(self, uint32_t slot) noexcept nogil:
        if self.milestones is not None:
            self.milestones.remove(slot)

    cdef uint32_t leave(self, uint32_t slot) noexcept nogil:
        """Let a message that leaves the queue leave its key. Returns the waiting message that is the head now; NO_SLOT:
        the head has not changed, or there is none any more.
        """
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef QueueSlot* message = &self.slots[slot]
        cdef uint32_t* entry
        cdef uint32_t last
        cdef uint32_t first
        if hash_ == 0:
            return NO_SLOT
        entry = self.find(hash_)
        last = entry[0]
        debug_assert(last != NO_SLOT)
        if message.state == SLOT_WAITING:
            self.waits_no_longer(slot)
            if message.next == slot:
                entry[0] = message.holder
                return NO_SLOT
            self.slots[message.previous].next = message.next
            self.slots[message.next].previous = message.previous
            if last == slot:
                entry[0] = message.previous
                self.slots[message.previous].holder = message.holder
            return NO_SLOT
        if last == slot:
            self.erase(entry, self.segment_of(hash_))
            return NO_SLOT
        debug_assert(self.slots[last].state == SLOT_WAITING and self.slots[last].holder == slot)
        first = self.slots[last].next
        if first != last:
            self.slots[last].next = self.slots[first].next
            self.slots[self.slots[first].next].previous = last
            self.slots[last].holder = first
        self.waits_no_longer(first)
        return first

    # --- the table ------------------------------------------------------------------------------------

    cdef KeySegment* segment_of(self, uint32_t hash_) noexcept nogil:
        return self.directory[<uint64_t>hash_ >> (32 - self.depth)]

    cdef uint32_t* find(self, uint32_t hash_) noexcept nogil:
        """The entry of a key; without one, the free entry at which it would be."""
        cdef KeySegment* segment = self.segment_of(hash_)
        cdef uint32_t at = place_of(hash_, segment.capacity)
        while segment.entries[at] != NO_SLOT and self.hash_of(segment.entries[at]) != hash_:
            at += 1
            if at == segment.capacity:
                at = 0
        return &segment.entries[at]

    cdef void erase(self, uint32_t* entry, KeySegment* segment) noexcept nogil:
        """Remove an entry. Entries behind it move to the front where they are found from their places."""
        cdef uint32_t capacity = segment.capacity
        cdef uint32_t hole = <uint32_t>(entry - segment.entries)
        cdef uint32_t at = hole
        cdef uint32_t place
        while True:
            at += 1
            if at == capacity:
                at = 0
            if segment.entries[at] == NO_SLOT:
                break
            place = place_of(self.hash_of(segment.entries[at]), capacity)
            if (at + capacity - place) % capacity >= (at + capacity - hole) % capacity:
                segment.entries[hole] = segment.entries[at]
                hole = at
        segment.entries[hole] = NO_SLOT
        segment.count -= 1
        self.count -= 1
        if 12 * segment.count < 5 * capacity and capacity > SEGMENT_CAPACITY_FIRST:
            self.shrink(segment)

    cdef void put(self, uint32_t* entries, uint32_t capacity, uint32_t slot) noexcept nogil:
        """Put an entry into a segment that is being made."""
        cdef uint32_t at = place_of(self.hash_of(slot), capacity)
        while entries[at] != NO_SLOT:
            at += 1
            if at == capacity:
                at = 0
        entries[at] = slot

    cdef void move(self, KeySegment* segment, uint32_t* entries, uint32_t capacity) noexcept nogil:
        """Move all entries of a segment to other memory."""
        cdef uint32_t at
        for at in range(segment.capacity):
            if segment.entries[at] != NO_SLOT:
                self.put(entries, capacity, segment.entries[at])
        free(segment.entries)
        segment.entries = entries
        segment.capacity = capacity

    cdef void shrink(self, KeySegment* segment) noexcept nogil:
        """Give memory back, unless there is none for the smaller segment."""
        cdef uint32_t capacity = capacity_for(segment.count)
        cdef uint32_t* entries = <uint32_t*>malloc(capacity * sizeof(uint32_t))
        if entries != NULL:
            memset(entries, 0xFF, capacity * sizeof(uint32_t))  # NO_SLOT
            self.move(segment, entries, capacity)

    cdef int make_room(self, uint32_t hash_) except -1:
        """Make room for another entry in the segment of a hash. Raises MemoryError; nothing has changed then."""
        cdef KeySegment* segment = self.segment_of(hash_)
        cdef uint32_t capacity
        while is_full(segment.count, segment.capacity):
            if segment.capacity >= SEGMENT_CAPACITY_MAX and segment.depth < DEPTH_MAX:
                self.split(segment, hash_)
                segment = self.segment_of(hash_)
            else:
                capacity = larger_capacity(segment.capacity)
                self.move(segment, make_entries(capacity), capacity)
        return 0

    cdef int split(self, KeySegment* segment, uint32_t hash_) except -1:
        """Split the segment of a hash in two, by the next bit of the hashes in it."""
        cdef uint32_t bit = <uint32_t>1 << (31 - segment.depth)
        cdef uint64_t counts[2]
        cdef uint32_t capacities[2]
        cdef uint32_t* entries[2]
        cdef KeySegment* upper
        cdef uint64_t at
        cdef uint64_t first
        cdef uint64_t covered
        cdef uint32_t slot
        cdef int half
        if segment.depth == self.depth:
            self.double_directory()
        counts[0] = 0
        counts[1] = 0
        for at in range(segment.capacity):
            if segment.entries[at] != NO_SLOT:
                counts[self.hash_of(segment.entries[at]) & bit != 0] += 1
        upper = <KeySegment*>calloc(1, sizeof(KeySegment))
        for half in range(2):
            capacities[half] = capacity_for(counts[half])
            entries[half] = <uint32_t*>malloc(capacities[half] * sizeof(uint32_t))
        if upper == NULL or entries[0] == NULL or entries[1] == NULL:
            free(upper)
            free(entries[0])
            free(entries[1])
            raise MemoryError()
        for half in range(2):
            memset(entries[half], 0xFF, capacities[half] * sizeof(uint32_t))  # NO_SLOT
        for at in range(segment.capacity):
            slot = segment.entries[at]
            if slot != NO_SLOT:
                half = self.hash_of(slot) & bit != 0
                self.put(entries[half], capacities[half], slot)
        free(segment.entries)
        segment.entries = entries[0]
        segment.capacity = capacities[0]
        segment.count = <uint32_t>counts[0]
        segment.depth += 1
        upper.entries = entries[1]
        upper.capacity = capacities[1]
        upper.count = <uint32_t>counts[1]
        upper.depth = segment.depth
        covered = <uint64_t>1 << (self.depth - segment.depth)
        first = (<uint64_t>(hash_ | bit) >> (32 - segment.depth)) << (self.depth - segment.depth)
        for at in range(first, first + covered):
            self.directory[at] = upper
        return 0

    cdef int double_directory(self) except -1:
        cdef uint64_t count = <uint64_t>1 << self.depth
        cdef uint64_t at
        cdef KeySegment** doubled = <KeySegment**>malloc(2 * count * sizeof(KeySegment*))
        if doubled == NULL:
            raise MemoryError()
        for at in range(count):
            doubled[2 * at] = self.directory[at]
            doubled[2 * at + 1] = self.directory[at]
        free(self.directory)
        self.directory = doubled
        self.depth += 1
        return 0

    def waiting(self, uint32_t key_hash):
        """Log positions of the messages that wait for a key, in the order of their list, for tests."""
        cdef uint32_t last = self.find(key_hash)[0]
        cdef uint32_t slot = last
        found = []
        while last != NO_SLOT and self.slots[last].state == SLOT_WAITING:
            slot = self.slots[slot].next
            found.append(self.slots[slot].position)
            if slot == last:
                break
        return found

    @property
    def table_bytes(self):
        """Memory of the table."""
        cdef uint64_t total = sizeof(KeySegment*) << self.depth
        cdef uint64_t at = 0
        while at < <uint64_t>1 << self.depth:
            total += sizeof(KeySegment) + self.directory[at].capacity * sizeof(uint32_t)
            at += <uint64_t>1 << (self.depth - self.directory[at].depth)
        return total
