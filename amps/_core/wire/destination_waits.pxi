# Waiting for the destinations of replication, at a cost that follows the changes and not the number of waiters.
#
# A waiter waits for the messages of a publisher before a log position, and at any time for one watermark of one
# destination. It is in the heap of that watermark. When a watermark moves, only the waiters that it passes are looked
# at again; a waiter may then go on to wait for another destination. A waiter whose wait is not known (WAIT_CHANGE) is
# first in the heap, and is looked at after any change of its destination.
#
# Acknowledgements with exceptions take publishers out of a pending table although no watermark moves. Then the counter
# `settled` has changed, and all who wait for that destination are looked at. So they are if `scanned` goes back, as it
# does when the replication process starts anew.
#
# Tokens are small numbers, and are used again. A token that was returned by `passed` or removed is free.

from libc.stdlib cimport calloc, malloc

cdef enum:
    NO_TOKEN = 0xFFFFFFFF
    WAITERS_FIRST = 64


@cython.final
cdef class DestinationWaits:
    """Those who wait for destinations, in one transport."""

    def __cinit__(self):
        self.waiters = NULL
        self.heaps = NULL
        self.seen = NULL

    def __init__(self, Destinations destinations not None):
        self.destinations = destinations
        self.capacity = 0
        self.first_free = NO_TOKEN
        self.count = 0
        self.version = 0
        self.looks = 0
        self.heaps = <Heap*>calloc(2 * destinations.count + 1, sizeof(Heap))
        self.seen = <Seen*>calloc(destinations.count + 1, sizeof(Seen))
        if self.heaps == NULL or self.seen == NULL:
            raise MemoryError()

    def __dealloc__(self):
        cdef uint32_t number
        if self.heaps != NULL and self.destinations is not None:
            for number in range(2 * self.destinations.count):
                free(self.heaps[number].tokens)
        free(self.heaps)
        free(self.seen)
        free(self.waiters)

    def add(
        self, uint64_t publisher_id, uint64_t before, uint64_t derived_id=0, uint64_t carriers=ALL_DESTINATIONS,
        bint known_only=False,
    ):
        """Begin to wait for the messages of a publisher before a log position. Returns a token; None if nothing is
        waited for.

        derived_id: another publisher whose messages are waited for. carriers: the destinations that count, as bits.
        known_only: wait only until it is known which records the destinations are to get.
        """
        cdef Messages messages
        cdef Wait wait
        cdef uint32_t token
        messages.publisher_id = publisher_id
        messages.derived_id = derived_id
        messages.before = before
        messages.carriers = carriers
        messages.known_only = known_only
        wait = self.destinations.find(&messages)
        if wait.kind == WAIT_NONE:
            return None
        if self.first_free == NO_TOKEN:
            self.make_room()
        token = self.first_free
        self.enter(token, wait)
        self.first_free = self.waiters[token].next_free
        self.waiters[token].messages = messages
        self.count += 1
        return token

    def remove(self, uint32_t token):
        """End a wait that has not passed. Raises KeyError."""
        if token >= self.capacity or self.waiters[token].wait.kind == WAIT_NONE:
            raise KeyError(token)
        self.leave(token)
        self.release(token)

    def passed(self):
        """The tokens whose messages wait for nothing any more. Costs next to nothing if no destination has changed."""
        cdef ControlPage control = self.destinations.control
        cdef uint64_t version = load_acquire(&control.data.replication.version)
        cdef uint32_t index
        cdef uint32_t found
        cdef uint32_t at
        cdef uint32_t token
        cdef uint32_t* tokens
        cdef Seen now
        cdef Seen* before
        cdef DestinationLine* line
        cdef bint all_
        cdef Wait wait
        cdef list done = []
        if version == self.version:
            return done
        # What changes while this runs changes the version, too, so it is looked at in the next call.
        self.version = version
        if self.count == 0:
            return done
        tokens = <uint32_t*>malloc(self.count * sizeof(uint32_t))
        if tokens == NULL:
            self.version = version - 1
            raise MemoryError()
        try:
            for index in range(self.destinations.count):
                line = &control.data.destination[index]
                before = &self.seen[index]
                now.scanned = load_acquire(&line.scanned)
                now.replicated = load_acquire(&line.replicated)
                now.settled = load_acquire(&line.settled)
                all_ = now.settled != before.settled or now.scanned < before.scanned
                found = self.take(
                    &self.heaps[2 * index], NEVER if all_ else max(now.scanned, now.replicated), tokens
                )
                found += self.take(&self.heaps[2 * index + 1], NEVER if all_ else now.replicated, tokens + found)
                before[0] = now
                for at in range(found):
                    token = tokens[at]
                    self.looks += 1
                    wait = self.destinations.find(&self.waiters[token].messages)
                    if wait.kind == WAIT_NONE:
                        self.release(token)
                        done.append(token)
                    else:
                        self.enter(token, wait)
        finally:
            free(tokens)
        return done

    # --- the heaps ------------------------------------------------------------------------------------

    cdef int make_room(self) except -1:
        """Make free tokens, when there is none."""
        cdef uint32_t capacity = max(<uint32_t>WAITERS_FIRST, self.capacity * 2)
        cdef uint32_t token
        cdef Waiter* grown = <Waiter*>realloc(self.waiters, capacity * sizeof(Waiter))
        if grown == NULL:
            raise MemoryError()
        self.waiters = grown
        for token in range(self.capacity, capacity):
            grown[token].wait.kind = WAIT_NONE
            grown[token].next_free = token + 1 if token + 1 < capacity else <uint32_t>NO_TOKEN
        self.first_free = self.capacity
        self.capacity = capacity
        return 0

    cdef void release(self, uint32_t token) noexcept nogil:
        """Make the token of a waiter that is in no heap free."""
        self.waiters[token].wait.kind = WAIT_NONE
        self.waiters[token].next_free = self.first_free
        self.first_free = token
        self.count -= 1

    cdef int enter(self, uint32_t token, Wait wait) except -1:
        """Put a waiter into the heap of what it waits for."""
        cdef Heap* heap = &self.heaps[2 * wait.destination + (wait.kind == WAIT_REPLICATED)]
        cdef uint32_t* grown
        cdef uint32_t capacity
        if heap.count == heap.capacity:
            capacity = max(<uint32_t>16, heap.capacity * 2)
            grown = <uint32_t*>realloc(heap.tokens, capacity * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError()
            heap.tokens = grown
            heap.capacity = capacity
        self.waiters[token].wait = wait
        heap.tokens[heap.count] = token
        self.waiters[token].heap_place = heap.count
        heap.count += 1
        self.rise(heap, heap.count - 1)
        return 0

    cdef void leave(self, uint32_t token) noexcept nogil:
        """Take a waiter out of its heap."""
        cdef Waiter* waiter = &self.waiters[token]
        cdef Heap* heap = &self.heaps[2 * waiter.wait.destination + (waiter.wait.kind == WAIT_REPLICATED)]
        cdef uint32_t place = waiter.heap_place
        cdef uint32_t moved
        heap.count -= 1
        if place == heap.count:
            return
        moved = heap.tokens[heap.count]
        heap.tokens[place] = moved
        self.waiters[moved].heap_place = place
        self.rise(heap, place)
        self.sink(heap, self.waiters[moved].heap_place)

    cdef void rise(self, Heap* heap, uint32_t place) noexcept nogil:
        cdef uint32_t token = heap.tokens[place]
        cdef uint64_t position = self.waiters[token].wait.position
        cdef uint32_t above
        while place:
            above = (place - 1) >> 1
            if self.waiters[heap.tokens[above]].wait.position <= position:
                break
            heap.tokens[place] = heap.tokens[above]
            self.waiters[heap.tokens[place]].heap_place = place
            place = above
        heap.tokens[place] = token
        self.waiters[token].heap_place = place

    cdef void sink(self, Heap* heap, uint32_t place) noexcept nogil:
        cdef uint32_t token = heap.tokens[place]
        cdef uint64_t position = self.waiters[token].wait.position
        cdef uint32_t below
        while True:
            below = 2 * place + 1
            if below >= heap.count:
                break
            if (
                below + 1 < heap.count
                and self.waiters[heap.tokens[below + 1]].wait.position < self.waiters[heap.tokens[below]].wait.position
            ):
                below += 1
            if self.waiters[heap.tokens[below]].wait.position >= position:
                break
            heap.tokens[place] = heap.tokens[below]
            self.waiters[heap.tokens[place]].heap_place = place
            place = below
        heap.tokens[place] = token
        self.waiters[token].heap_place = place

    cdef uint32_t take(self, Heap* heap, uint64_t reached, uint32_t* out) noexcept nogil:
        """Take the waiters out of a heap whose positions are reached. Returns their number."""
        cdef uint32_t found = 0
        while heap.count and self.waiters[heap.tokens[0]].wait.position <= reached:
            out[found] = heap.tokens[0]
            self.leave(heap.tokens[0])
            found += 1
        return found
