# See core_register.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.bookmark_index cimport PublisherMap
from amps._core.log_writer cimport LogWriter
from amps._core.queue_desk cimport QueueDesk
from amps._core.shared cimport Ring


cdef enum:
    NO_PUBLISHER = 0xFFFFFFFF


cdef struct Publisher:
    uint64_t publisher_id
    uint64_t last_sequence         # highest seen, logged or not


cdef struct Session:
    uint32_t serial                # of the connection in that slot
    uint32_t publisher             # number of its Publisher
    uint32_t state                 # SessionState


cdef enum SessionState:
    SESSION_NONE = 0
    SESSION_ACTIVE = 1
    SESSION_FENCED = 2             # its name was taken over: nothing more is accepted from it


cdef class Topic:
    cdef readonly uint32_t number
    cdef readonly bytes name
    cdef readonly bytes message_type
    cdef readonly uint64_t hash
    cdef readonly bint logged
    cdef tuple feeds               # queues that its messages enter
    cdef int64_t queue             # number of the queue with this name, -1 = there is none


cdef class TransportState:
    cdef int index
    cdef Ring ring
    cdef Session* sessions
    cdef uint32_t session_capacity
    cdef list topics               # by the transport's number: Topic
    cdef uint64_t taken            # bytes taken from the ring and not released yet

    cdef Session* session(self, uint32_t slot) except NULL


cdef class CoreRegister:
    cdef readonly LogWriter journal
    cdef object is_logged
    cdef readonly QueueDesk desk
    cdef object queue_topics
    cdef readonly uint64_t now_ns
    cdef list transports           # TransportState by number
    cdef dict topics_by_key
    cdef list topics
    cdef PublisherMap publisher_map
    cdef Publisher* publishers
    cdef uint32_t publisher_count
    cdef uint32_t publisher_capacity
    cdef dict owners               # client name -> (transport, slot, serial, user id)
    cdef readonly set client_names  # of all who ever logged on
    cdef readonly dict names       # (transport, slot) -> client name whose owner that session is
    cdef readonly list replies     # [(transport, msgpack-able tuple)], taken by the process

    cdef Topic _topic(self, bytes name, bytes message_type)
    cdef uint32_t _publisher(self, uint64_t publisher_id) except? NO_PUBLISHER
    cdef int _logon(
        self, int index, TransportState state, uint32_t slot, uint32_t serial, str name, str user_id
    ) except -1
    cdef int _disconnect(self, int index, TransportState state, uint32_t slot, uint32_t serial) except -1
    cdef int _give_up_name(self, tuple key) except -1
    cdef int _tell_cursors(self) except -1
