# Milestones: some of the messages that wait for others of their key, in an order that a binary search can use
# (queues/ordering.pxi, queue_guarantees.md Q-28).
#
# A delayed message that becomes available has its place between two milestones, and a short walk from them finds it.
# Whether a message is a milestone, one in 32, follows from the hash of its key and its log position. So slots have no
# mark for it. Nobody knows the hash, which depends on a secret, so nobody can choose positions that are no milestones.
#
# The milestones of a queue lie in *pages*, sorted by the hashes of their keys, then by log position. A full page is
# split in two; a page joins the next one if half a page has room for both. A step moves at most one page, or the list
# of pages, 8 bytes for each page.
#
# Queues have milestones only when a message was delayed since the start (`OrderingKeys.expect_delays`). Messages before
# the first delayed one may wait without being milestones. No search passes them: a place that is searched is behind
# them.
#
# Invariants
# - Each milestone waits. Each message that waits, is chosen, and joined its key when the queue had milestones, is one,
#   unless there was no memory for it.
# - No page is empty, and two neighbours together are more than half a page, or nearly: 0.1 to 0.6 bytes per waiting
#   message when there are many.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    MILESTONE_BITS = 5             # one message in 32
    STEPS_WITHOUT_MILESTONES = 16  # of a search for a place, from each end of the waiting messages


cdef inline bint is_chosen(uint32_t hash_, uint64_t position) noexcept nogil:
    """Whether the message of a key at a log position is a milestone while it waits."""
    cdef uint64_t value = position ^ <uint64_t>hash_ << 32
    value ^= value >> 33
    value *= <uint64_t>0xFF51AFD7ED558CCD
    value ^= value >> 33
    value *= <uint64_t>0xC4CEB9FE1A85EC53
    return value >> (64 - MILESTONE_BITS) == 0


cdef class Milestones:

    def __cinit__(self):
        self.pages = NULL
        self.page_count = 0
        self.page_capacity = 0

    def __init__(self, QueueArena arena not None):
        self.slots = arena.slots
        self.hashes = arena.key_hashes

    def __dealloc__(self):
        cdef uint64_t at
        for at in range(self.page_count):
            free(self.pages[at])
        free(self.pages)

    cdef uint32_t hash_of(self, uint32_t slot) noexcept nogil:
        return self.hashes[slot // BLOCK_SLOTS][slot % BLOCK_SLOTS]

    cdef bint is_before(self, uint32_t slot, uint32_t hash_, uint64_t position) noexcept nogil:
        """Whether a milestone has its place before that of a message."""
        cdef uint32_t own = self.hash_of(slot)
        return own < hash_ or (own == hash_ and self.slots[slot].position < position)

    cdef uint64_t page_for(self, uint32_t hash_, uint64_t position) noexcept nogil:
        """Index of the page in which a message has its place: the last that begins before it, or the first."""
        cdef uint64_t low = 0
        cdef uint64_t high = self.page_count
        cdef uint64_t middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.is_before(self.pages[middle].slots[0], hash_, position):
                low = middle
            else:
                high = middle
        return low

    cdef uint32_t place_in(self, const MilestonePage* page, uint32_t hash_, uint64_t position) noexcept nogil:
        """The number of milestones in a page that are before a message."""
        cdef uint32_t low = 0
        cdef uint32_t high = page.count
        cdef uint32_t middle
        while low < high:
            middle = (low + high) // 2
            if self.is_before(page.slots[middle], hash_, position):
                low = middle + 1
            else:
                high = middle
        return low

    cdef void around(self, uint32_t slot, uint32_t* before, uint32_t* behind) noexcept nogil:
        """Set the milestones of its key between which a message has its place; without one, nothing is set."""
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint64_t position = self.slots[slot].position
        cdef uint64_t number
        cdef uint32_t at
        cdef uint32_t found
        if self.page_count == 0:
            return
        number = self.page_for(hash_, position)
        at = self.place_in(self.pages[number], hash_, position)
        if at:
            found = self.pages[number].slots[at - 1]
            if self.hash_of(found) == hash_:
                before[0] = found
        if at == self.pages[number].count:
            number += 1
            at = 0
        if number < self.page_count:
            found = self.pages[number].slots[at]
            if self.hash_of(found) == hash_:
                behind[0] = found

    cdef void add(self, uint32_t slot) noexcept nogil:
        """Make a message that waits now a milestone, if it is chosen and there is memory."""
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint64_t position = self.slots[slot].position
        cdef MilestonePage* page
        cdef uint64_t number = 0
        cdef uint32_t at
        if not is_chosen(hash_, position):
            return
        if self.page_count == 0:
            if not self.insert_page(0):
                return
        else:
            number = self.page_for(hash_, position)
        page = self.pages[number]
        at = self.place_in(page, hash_, position)
        if page.count == MILESTONES_PER_PAGE:
            if not self.split(number):
                return
            if at > page.count:
                at -= page.count
                page = self.pages[number + 1]
        memmove(&page.slots[at + 1], &page.slots[at], (page.count - at) * sizeof(uint32_t))
        page.slots[at] = slot
        page.count += 1

    cdef void remove(self, uint32_t slot) noexcept nogil:
        """Forget a message that waits no longer, if it is a milestone."""
        cdef uint32_t hash_ = self.hash_of(slot)
        cdef uint64_t position = self.slots[slot].position
        cdef MilestonePage* page
        cdef uint64_t number
        cdef uint32_t at
        if not is_chosen(hash_, position) or self.page_count == 0:
            return
        number = self.page_for(hash_, position + 1)
        page = self.pages[number]
        at = self.place_in(page, hash_, position)
        if at == page.count or page.slots[at] != slot:
            return
        page.count -= 1
        memmove(&page.slots[at], &page.slots[at + 1], (page.count - at) * sizeof(uint32_t))
        if page.count == 0:
            self.drop_page(number)
        elif page.count < MILESTONES_PER_PAGE // 4:
            if number + 1 < self.page_count:
                self.join(number)
            if number:
                self.join(number - 1)

    # --- pages ----------------------------------------------------------------------------------------

    cdef bint insert_page(self, uint64_t number) noexcept nogil:
        """Insert an empty page. False: there is no memory."""
        cdef MilestonePage* page = <MilestonePage*>malloc(sizeof(MilestonePage))
        cdef MilestonePage** grown
        cdef uint64_t capacity
        if page == NULL:
            return False
        page.count = 0
        if self.page_count == self.page_capacity:
            capacity = 2 * self.page_capacity if self.page_capacity else 4
            grown = <MilestonePage**>realloc(self.pages, capacity * sizeof(MilestonePage*))
            if grown == NULL:
                free(page)
                return False
            self.pages = grown
            self.page_capacity = capacity
        memmove(
            &self.pages[number + 1], &self.pages[number], (self.page_count - number) * sizeof(MilestonePage*)
        )
        self.pages[number] = page
        self.page_count += 1
        return True

    cdef void drop_page(self, uint64_t number) noexcept nogil:
        free(self.pages[number])
        self.page_count -= 1
        memmove(
            &self.pages[number], &self.pages[number + 1], (self.page_count - number) * sizeof(MilestonePage*)
        )

    cdef bint split(self, uint64_t number) noexcept nogil:
        """Move the second half of a page to a new one behind it. False: there is no memory."""
        cdef MilestonePage* page = self.pages[number]
        cdef MilestonePage* upper
        if not self.insert_page(number + 1):
            return False
        upper = self.pages[number + 1]
        upper.count = page.count // 2
        page.count -= upper.count
        memcpy(&upper.slots[0], &page.slots[page.count], upper.count * sizeof(uint32_t))
        return True

    cdef void join(self, uint64_t number) noexcept nogil:
        """Move the content of the next page into this one, if both together fill at most half a page."""
        cdef MilestonePage* page = self.pages[number]
        cdef MilestonePage* following = self.pages[number + 1]
        if page.count + following.count > MILESTONES_PER_PAGE // 2:
            return
        memcpy(&page.slots[page.count], &following.slots[0], following.count * sizeof(uint32_t))
        page.count += following.count
        self.drop_page(number + 1)

    # --- for tests ------------------------------------------------------------------------------------

    @property
    def entries(self):
        """[(hash of its key, log position)] of all milestones, in their order."""
        cdef uint64_t number
        cdef uint32_t at
        cdef uint32_t slot
        found = []
        for number in range(self.page_count):
            for at in range(self.pages[number].count):
                slot = self.pages[number].slots[at]
                found.append((self.hash_of(slot), self.slots[slot].position))
        return found

    @property
    def memory_bytes(self):
        """Memory of the pages and their list."""
        return self.page_count * sizeof(MilestonePage) + self.page_capacity * sizeof(MilestonePage*)

    @staticmethod
    def chooses(uint32_t key_hash, uint64_t position):
        """Whether the message of a key at a log position is a milestone while it waits."""
        return is_chosen(key_hash, position)
