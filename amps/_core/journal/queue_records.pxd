# What transports and core tell each other about queues, besides msgpack control records (amps/server/records.py).
#
# An acknowledgement (KIND_QUEUE_ACKNOWLEDGEMENT) goes the way of a publish: a transport lays it out in its ring,
# with the publisher id and sequence of the client's command, under the topic of the queue's name; the core applies it,
# and writes it to the journal if it changed anything. What removes messages without a client's doing
# (KIND_QUEUE_EXPIRY, and acknowledgements by which messages leave an at-most-once queue, or do not even enter one
# because theirs had come before) the core lays out itself.
# The payload of both is a QueueAcknowledgementHeader, then `count` QueueEntry. In the journal an entry says instead of
# the slot how often the message was delivered under a lease since the core began; nothing but reports asks for that.
#
# Which messages match a filter a transport tells in records of KIND_QUEUE_MATCHES: one section after the other, each of
# a QueueMatchesHeader and `count` QueueMatch. A section is about one filter on one queue, which the core knows as a
# cursor, and about all messages of the queue from where the one before it ended, in their order.
#
# Deliveries go the other way: one record (KIND_QUEUE_DELIVERIES) per turn and transport, a QueueDeliveriesHeader,
# then `count` QueueDelivery. The transport sends them when the journal is durable up to `durable_needed`, so that
# nobody works on what a crash of the machine could take back.

from libc.stdint cimport uint32_t, uint64_t


# What an acknowledgement does with its messages (queues.md §8.2), in QueueAcknowledgementHeader.action.
cdef enum QueueAction:
    QUEUE_ACKNOWLEDGE = 0          # processed: removed
    QUEUE_CANCEL = 1               # back to the queue
    QUEUE_EXPIRE = 2               # removed as expired
    QUEUE_EXTEND_LEASE = 3         # the lease ends `extension_ns` from now on; in rings only
    QUEUE_DELIVERED = 4            # left an at-most-once queue when it was sent; written by the core
    QUEUE_ANSWERED = 5             # its acknowledgement had come before it; written by the core


# Why a message expired: bits, so that several hold (queues.md §15), in QueueEntry.reasons.
cdef enum QueueReason:
    REASON_TIME_LIMIT = 1
    REASON_FORCED_EXPIRE = 2
    REASON_MAX_CANCELS = 4
    REASON_MAX_DELIVERIES = 8
    REASON_BARRIER_SENT = 16       # no expiry: a barrier was released to all subscribers


cdef packed struct QueueAcknowledgementHeader:
    uint32_t action                # QueueAction
    uint32_t count                 # of entries
    uint64_t extension_ns          # of QUEUE_EXTEND_LEASE
    uint64_t searched_until        # the journal was searched up to here for entries without a position; later 0
    uint32_t token                 # not 0: the transport wants to hear the counts; 0 in the journal
    uint32_t unused


cdef packed struct QueueEntry:
    uint64_t publisher_id          # bookmark of the message
    uint64_t sequence
    uint64_t position              # its log position; 0 = not known
    uint32_t slot                  # where the core keeps it, a hint of a delivery; in the journal: how often delivered
    uint32_t reasons               # of an expiry; else 0


cdef packed struct QueueMatchesHeader:
    uint64_t evaluated_until       # log position before which all that matches has been told
    uint32_t cursor                # the core's number of it
    uint32_t count


cdef packed struct QueueMatch:
    uint64_t position              # log position of the message's record
    uint32_t slot                  # where the core keeps it: a hint
    uint32_t unused


cdef packed struct QueueDeliveriesHeader:
    uint64_t durable_needed        # log position up to which the journal must be durable before they are sent
    uint32_t count
    uint32_t unused


cdef packed struct QueueDelivery:
    uint64_t position              # log position of the message's record
    uint64_t lease_until_ns        # UNIX time at which the lease ends; 0 = never, or there is none
    uint32_t subscription          # the transport's number of it; of a barrier: NO_SUBSCRIPTION, it goes to all here
    uint32_t slot                  # to be given back with the acknowledgement
    uint32_t queue                 # number of the queue: its place in the configuration
    uint32_t flags                 # QueueDeliveryFlag


cdef enum QueueDeliveryFlag:
    DELIVERY_BARRIER = 1           # to all subscriptions of the queue here whose filters match; no lease, no backlog


cdef enum:
    NO_SUBSCRIPTION = 0xFFFFFFFF
