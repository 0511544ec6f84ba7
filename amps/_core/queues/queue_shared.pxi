# The state that all queues of an instance share: publishers by number, memberships, timers, and the counts of deferred
# acknowledgements.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.journal.writer cimport PublisherMap


cdef class QueueShared:

    def __cinit__(self):
        self.timers.entries = NULL
        self.timers.count = 0
        self.timers.capacity = 0
        self.publisher_ids = NULL

    def __init__(self, QueueOutput output not None, Ownerships ownerships not None):
        self.output = output
        self.ownerships = ownerships
        self.wishes = []
        self.queues = []
        self.memberships = []
        self.free_memberships = []
        self.dirty = []
        self.publisher_numbers = PublisherMap()
        self.publisher_count = 0
        self.publisher_capacity = 0
        self.deferred = 0
        self.deferred_by_client = {}
        self.deferred_max = NEVER
        self.deferred_per_client_max = NEVER

    def __dealloc__(self):
        heap_free(&self.timers)
        free(self.publisher_ids)

    cdef uint32_t publisher(self, uint64_t publisher_id) except? 0xFFFFFFFF:
        """The number of a publisher in slots; a new publisher gets the next one."""
        cdef uint64_t* place = self.publisher_numbers.find(publisher_id)
        cdef uint64_t* grown
        if place != NULL:
            return <uint32_t>place[0]
        if self.publisher_count == self.publisher_capacity:
            self.publisher_capacity = max(64, 2 * self.publisher_capacity)
            grown = <uint64_t*>realloc(self.publisher_ids, self.publisher_capacity * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            self.publisher_ids = grown
        self.publisher_ids[self.publisher_count] = publisher_id
        place = self.publisher_numbers.insert(publisher_id)
        place[0] = self.publisher_count
        self.publisher_count += 1
        return self.publisher_count - 1

    cdef uint32_t known_publisher(self, uint64_t publisher_id) noexcept:
        """The number of a publisher that has one already; else NO_PUBLISHER."""
        cdef uint64_t* place = self.publisher_numbers.find(publisher_id)
        return <uint32_t>place[0] if place != NULL else NO_PUBLISHER

    cdef uint64_t publisher_id(self, uint32_t number) noexcept nogil:
        return self.publisher_ids[number]

    cdef int expects(self, Queue queue, uint64_t due_ns) except -1:
        """Set the timer of a queue to that time, unless it is due earlier."""
        if due_ns < queue.expected_ns:
            queue.expected_ns = due_ns
            heap_push(&self.timers, due_ns, queue.number, queue.number, 0)
        return 0

    cdef int forget_membership(self, Membership member) except -1:
        """Release the number of a membership; nothing refers to it any more."""
        self.memberships[member.number] = None
        member.subscriber.alive.remove(member)
        self.free_memberships.append(member.number)
        return 0

    # client: None for an acknowledgement read from the log
    cdef int note_deferred(self, client) except -1:
        self.deferred += 1
        if client is not None:
            self.deferred_by_client[client] = self.deferred_by_client.get(client, 0) + 1
        return 0

    cdef int note_undeferred(self, client) except -1:
        self.deferred -= 1
        count = self.deferred_by_client.get(client)
        if count is not None:
            if count > 1:
                self.deferred_by_client[client] = count - 1
            else:
                del self.deferred_by_client[client]
        return 0

    cdef int forget_deferring(self, client) except -1:
        """Drop the count of a client that has disconnected. Its deferred acknowledgements stay."""
        self.deferred_by_client.pop(client, None)
        return 0

    cdef bint may_defer(self, client, uint64_t count) except -1:
        """Whether a client may defer that many more acknowledgements."""
        cdef uint64_t of_client = self.deferred_by_client.get(client, 0)
        return self.deferred + count <= self.deferred_max and of_client + count <= self.deferred_per_client_max
