# The core's state of topics and of each transport: its ring, its sessions by connection slot, its topic numbers.

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset


cdef class Topic:
    """A topic of one message type, in the core."""


cdef class TransportState:
    """The core's state of one transport: its ring, its sessions by connection slot, its topic numbers."""

    def __cinit__(self):
        self.sessions = NULL
        self.session_capacity = 0

    def __dealloc__(self):
        free(self.sessions)

    cdef Session* session(self, uint32_t slot) except NULL:
        cdef uint32_t capacity
        cdef Session* grown
        if slot >= self.session_capacity:
            capacity = max(64, max(slot + 1, self.session_capacity * 2))
            grown = <Session*>realloc(self.sessions, capacity * sizeof(Session))
            if grown == NULL:
                raise MemoryError()
            memset(&grown[self.session_capacity], 0, (capacity - self.session_capacity) * sizeof(Session))
            self.sessions = grown
            self.session_capacity = capacity
        return &self.sessions[slot]
