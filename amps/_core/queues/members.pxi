# Consumers of queues: subscriptions, their memberships in queues, and the matches of each filter.
#
# The core does not evaluate filters of clients: an evaluation may take long, and the core would have to read the
# message. The transport that owns the subscriptions evaluates each filter on the messages of the queue, in the order of
# the log, and reports the matches (`evaluated_until`, `matches`). The core keeps them, one bit per message, because a
# message that returns to the queue must be offered to the same subscriptions again.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class Subscriber:

    def __init__(self, uint32_t transport, uint32_t number, uint64_t client, uint64_t order):
        self.transport = transport
        self.number = number
        self.client = client
        self.order = order
        self.limit = 0
        self.outstanding = 0
        self.shown = ("", "", "")
        self.memberships = []
        self.alive = []


cdef class Membership:

    def __init__(self, uint32_t number, Subscriber subscriber, uint32_t queue, Cursor cursor):
        self.number = number
        self.subscriber = subscriber
        subscriber.alive.append(self)
        self.queue = queue
        self.cursor = cursor
        self.current = True
        self.first = NO_SLOT
        self.last = NO_SLOT
        self.held = 0


cdef class Cursor:

    def __cinit__(self):
        self.heap.entries = NULL
        self.heap.count = 0
        self.heap.capacity = 0

    def __init__(self, QueueArena arena, key, uint32_t number):
        self.arena = arena
        self.key = key
        self.number = number
        self.takes_all = key is None
        self.members = 0
        self.ready = 0
        self.fresh = NO_SLOT
        self.evaluated_until = 0
        self.matches = {}
        self.top = NO_SLOT
        self.last_delivered_position = 0
        self.heard_ns = 0

    def __dealloc__(self):
        heap_free(&self.heap)

    cdef bint has_match(self, uint32_t slot):
        """Whether an evaluated message matches."""
        cdef object bits = self.matches.get(slot // BLOCK_SLOTS)
        cdef uint8_t* data
        cdef uint32_t at = slot % BLOCK_SLOTS
        if bits is None:
            return False
        data = <uint8_t*><char*>(<bytearray>bits)
        return data[at // 8] >> (at % 8) & 1

    cdef int note_match(self, uint32_t slot) except -1:
        cdef object bits = self.matches.get(slot // BLOCK_SLOTS)
        cdef uint8_t* data
        cdef uint32_t at = slot % BLOCK_SLOTS
        if bits is None:
            bits = self.matches[slot // BLOCK_SLOTS] = bytearray(BLOCK_SLOTS // 8)
        data = <uint8_t*><char*>(<bytearray>bits)
        data[at // 8] |= <uint8_t>(1 << (at % 8))
        return 0

    cdef int forget_block(self, uint32_t block) except -1:
        """Drop the matches of a block that the queue has given back."""
        self.matches.pop(block, None)
        return 0
