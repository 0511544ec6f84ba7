# See queue_book.pyx.

from libc.stdint cimport uint32_t, uint64_t

from amps._core.queue_contents cimport QueueShared
from amps._core.queue_machine cimport Queue
from amps._core.queue_members cimport Cursor, Membership, Subscriber
from amps._core.queue_output cimport QueueOutput
from amps._core.queue_records cimport QueueAcknowledgementHeader, QueueEntry, QueueMatchesHeader
from amps._core.queue_slots cimport QueueArena


cdef enum:
    TRANSPORT_SHIFT = 56           # of the number of a client


# What an acknowledgement of several messages did (queues.md D-10).
cdef struct AcknowledgedCounts:
    uint32_t matches               # found and permitted
    uint32_t removed               # have left the queue
    uint32_t kept                  # entries that the journal must know, moved to the front


cdef class QueueBook:
    cdef QueueArena arena
    cdef QueueShared shared
    cdef readonly QueueOutput output
    cdef dict subscribers                  # (transport, number) -> Subscriber
    cdef dict by_client                    # client -> {(transport, number): None}
    cdef dict cursors                      # by number: filters that a transport evaluates
    cdef uint64_t next_order
    cdef uint32_t next_cursor
    cdef list cursor_news                  # what `take_cursor_news` has to tell
    cdef bint was_frozen                   # in the last `serve`

    cdef int hear_section(self, const QueueMatchesHeader* section, uint64_t now_ns) except -1
    cdef bint may_defer(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, const QueueEntry* entries,
        object last_sequence
    ) except -1
    cdef int acknowledge_entries(
        self, Queue queue, uint64_t client, const QueueAcknowledgementHeader* header, QueueEntry* entries,
        object last_sequence, uint64_t now_ns, AcknowledgedCounts* counts
    ) except -1
