# What expressions can ask about a message besides its fields. See message_context.pyx.

from amps._core.value cimport Arena, Value


cdef enum MessageFact:
    MESSAGE_SIZE = 0
    MESSAGE_CORRELATION_ID
    MESSAGE_LAST_UPDATED
    MESSAGE_BOOKMARK
    MESSAGE_TOPIC_NAME
    MESSAGE_SOW_KEY
    MESSAGE_LAST_READ
    MESSAGE_SOW_KEY_HASH
    MESSAGE_LEASE_COUNT
    MESSAGE_LAST_LEASED
    MESSAGE_CLIENT_NAME
    MESSAGE_CONNECTION_NAME
    MESSAGE_USER
    MESSAGE_CLIENT_VERSION
    MESSAGE_REMOTE_ADDRESS
    MESSAGE_FACTS                  # how many a message has; the rest are the instance's
    MESSAGE_INSTANCE_NAME = MESSAGE_FACTS
    MESSAGE_INSTANCE_GROUP
    MESSAGE_FACTS_ALL


cdef class MessageContext:
    """Facts about the current message. Who has them at hand writes to `facts`; text must live as long as it stands."""

    cdef Value facts[17]           # MESSAGE_FACTS_ALL
    cdef public bint live          # a delivery, not a query: it is updated now
    cdef Arena arena               # of the message's facts
    cdef Arena instance_arena

    cdef void forget(self) noexcept
