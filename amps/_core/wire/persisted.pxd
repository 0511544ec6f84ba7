# See wire/destinations.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.shm.memory cimport ControlPage
from amps._core.wire.topics cimport TopicEntry


# What a message waits for.
cdef enum WaitKind:
    WAIT_NONE                      # nothing: it is persisted
    WAIT_SCANNED                   # it is not known yet whether the destination is to get it
    WAIT_REPLICATED                # the destination has not acknowledged it
    WAIT_CHANGE                    # not known: look again after the next change


cdef struct Wait:
    uint32_t destination
    uint32_t kind                  # WaitKind
    uint64_t position              # the log position that the watermark must reach


# The messages whose persistence matters: those of two publishers before a log position.
cdef struct Messages:
    uint64_t publisher_id
    uint64_t derived_id            # a second publisher: messages without a sequence; 0 = none
    uint64_t before                # log position
    uint64_t carriers              # bit per destination: those that may get such messages
    uint64_t known_only            # 1: it suffices to know which records the destinations are to get


@cython.final
cdef class Destinations:
    cdef ControlPage control
    cdef list tables               # PendingTable by destination
    cdef readonly uint32_t count
    cdef object find_carriers
    cdef uint64_t* carriers        # by topic number
    cdef uint8_t* carriers_known   # by topic number
    cdef uint32_t topics           # length of these two

    cdef Wait find(self, const Messages* messages) noexcept
    cdef Wait find_of(self, uint32_t index, uint64_t publisher_id, uint64_t before) noexcept
    cdef uint64_t carriers_of(self, TopicEntry entry) except? 0xFFFFFFFFFFFFFFFF


# See wire/destination_waits.pxi.


cdef struct Waiter:
    Messages messages
    Wait wait                      # kind WAIT_NONE: a free place
    uint32_t heap_place
    uint32_t next_free


cdef struct Heap:
    uint32_t* tokens               # by the positions of their waits
    uint32_t count
    uint32_t capacity


# The watermarks of a destination as last looked at.
cdef struct Seen:
    uint64_t replicated
    uint64_t scanned
    uint64_t settled


@cython.final
cdef class DestinationWaits:
    cdef readonly Destinations destinations
    cdef Waiter* waiters           # by token
    cdef uint32_t capacity
    cdef uint32_t first_free
    cdef readonly uint32_t count
    cdef uint64_t version
    cdef Heap* heaps               # two per destination: those that wait for `scanned`, and for `replicated`
    cdef Seen* seen                # by destination
    cdef readonly uint64_t looks   # how often a waiter was looked at

    cdef int make_room(self) except -1
    cdef int enter(self, uint32_t token, Wait wait) except -1
    cdef void leave(self, uint32_t token) noexcept nogil
    cdef void rise(self, Heap* heap, uint32_t place) noexcept nogil
    cdef void sink(self, Heap* heap, uint32_t place) noexcept nogil
    cdef uint32_t take(self, Heap* heap, uint64_t reached, uint32_t* out) noexcept nogil
    cdef void release(self, uint32_t token) noexcept nogil


# See wire/ack_checkpoints.pxi.


cdef enum:
    CHECKPOINTS_MAX = 16


cdef struct Checkpoint:
    uint64_t ring_position
    uint64_t log_position          # 0: not known yet
    uint64_t sequence
    uint64_t requests


@cython.final
cdef class AckCheckpoints:
    cdef Checkpoint entries[CHECKPOINTS_MAX]
    cdef uint32_t count

    cdef void drop_one(self, uint64_t next_position) noexcept
