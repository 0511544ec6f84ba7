# The binary records that transports and core exchange about queues, besides msgpack control records
# (amps/server/records.py).
#
# An acknowledgement (KIND_QUEUE_ACKNOWLEDGEMENT) takes the path of a publish. A transport lays it out in its ring, with
# the publisher id and sequence of the client's command, under the topic of the queue's name. The core applies it, and
# writes it to the journal if it changed a queue.
#
# The core itself lays out the records of removals that no client requested: KIND_QUEUE_EXPIRY, and acknowledgements of
# messages that leave an at-most-once queue, or that do not enter a queue because their acknowledgements came earlier.
#
# A message that is cancelled with a delay stays in its queue. The core records until when (QUEUE_DELAYED).
#
# The payload of both kinds is a QueueAcknowledgementHeader, then `count` QueueEntry. In the journal, an entry has no
# slot, but the number of deliveries of the message under a lease since the core began. Only reports use that number.
#
# A transfer of ownership (KIND_OWNERSHIP_TRANSFER, replication.md §24.8) has the same payload with QUEUE_TRANSFER, and
# behind the entries the text "from TAB to": the names of both instances. Records of queues that span instances are
# replicated. Their log positions are those of the instance that stores them: the core sets them when they come.
#
# A transport reports the messages that match a filter in records of KIND_QUEUE_MATCHES. Such a record is a sequence of
# sections, each a QueueMatchesHeader and `count` QueueMatch. A section belongs to one filter on one queue, which the
# core knows as a cursor. It covers the messages of the queue from the end of the previous section on, in their order.
#
# Deliveries go from the core to a transport: one record (KIND_QUEUE_DELIVERIES) per turn and transport, a
# QueueDeliveriesHeader, then `count` QueueDelivery. The transport sends them when the journal is durable up to
# `durable_needed`, so that a client never processes a message that a crash of the machine could still undo.

from libc.stdint cimport uint32_t, uint64_t


# The action of an acknowledgement on its messages (queues.md §8.2), in QueueAcknowledgementHeader.action.
cdef enum QueueAction:
    QUEUE_ACKNOWLEDGE = 0          # processed: removed
    QUEUE_CANCEL = 1               # returned to the queue
    QUEUE_EXPIRE = 2               # removed as expired
    QUEUE_EXTEND_LEASE = 3         # the lease ends `extension_ns` from now on; in rings only
    QUEUE_DELIVERED = 4            # left an at-most-once queue when it was sent; written by the core
    QUEUE_ANSWERED = 5             # removed by an acknowledgement that came before the message; written by the core
    QUEUE_DELAYED = 6              # returned to the queue, available at a time; written by the core
    QUEUE_TRANSFER = 7             # another instance owns it now, in KIND_OWNERSHIP_TRANSFER; written by the core


# The reasons why a message expired, as bits, since several can apply (queues.md §15). In QueueEntry.reasons.
cdef enum QueueReason:
    REASON_TIME_LIMIT = 1
    REASON_FORCED_EXPIRE = 2
    REASON_MAX_CANCELS = 4
    REASON_MAX_DELIVERIES = 8
    REASON_BARRIER_SENT = 16       # not an expiry: a barrier was released to all subscribers
    REASON_ELSEWHERE = 32          # another instance owned it: no action runs here


cdef enum TransferFlag:
    TRANSFER_PROXIED = 1           # decided for an owner that could not be reached


# Instead of the log position of a message: it was not in the queue of this instance any more.
cdef inline uint64_t position_gone() noexcept nogil:
    return 0xFFFFFFFFFFFFFFFF


cdef packed struct QueueAcknowledgementHeader:
    uint32_t action                # QueueAction
    uint32_t count                 # of entries
    # QUEUE_EXTEND_LEASE: of the lease. QUEUE_CANCEL: the delay, 0 = that of the queue. QUEUE_DELAYED: UNIX time at
    # which the messages become available.
    uint64_t extension_ns
    uint64_t searched_until        # the journal was searched up to here for entries without a position; later 0
    uint32_t token                 # not 0: the core answers the transport with the counts; 0 in the journal
    uint32_t domain                # identifies a group local queue among those of its name; 0 = any other queue


cdef packed struct QueueEntry:
    uint64_t publisher_id          # bookmark of the message
    uint64_t sequence
    uint64_t position              # log position of the message; 0 = it has not come yet, position_gone() = it has left
    # Slot of the message, a hint from its delivery. In the journal: number of deliveries; of a transfer: the epoch.
    uint32_t slot
    uint32_t reasons               # of an expiry: QueueReason; of a transfer: TransferFlag; else 0


cdef packed struct QueueMatchesHeader:
    uint64_t evaluated_until       # log position before which all matches have been reported
    uint32_t cursor                # number of the cursor in the core
    uint32_t count


cdef packed struct QueueMatch:
    uint64_t position              # log position of the message's record
    uint32_t slot                  # slot of the message: a hint
    uint32_t unused


cdef packed struct QueueDeliveriesHeader:
    uint64_t durable_needed        # log position up to which the journal must be durable before they are sent
    uint32_t count
    uint32_t unused


cdef packed struct QueueDelivery:
    uint64_t position              # log position of the message's record
    uint64_t lease_until_ns        # UNIX time at which the lease ends; 0 = it does not end, or there is no lease
    uint32_t subscription          # number in the transport; NO_SUBSCRIPTION for a barrier, to all subscriptions there
    uint32_t slot                  # the acknowledgement must return it
    uint32_t queue                 # number of the queue: its index in the configuration
    uint32_t flags                 # QueueDeliveryFlag


cdef enum QueueDeliveryFlag:
    DELIVERY_BARRIER = 1           # to all subscriptions of the queue whose filters match; without lease and backlog


cdef enum:
    NO_SUBSCRIPTION = 0xFFFFFFFF
