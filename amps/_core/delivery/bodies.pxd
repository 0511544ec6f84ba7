# The bodies of messages for receivers that want less than the whole. See delivery/bodies.pyx.

cimport cython
from libc.stdint cimport uint64_t, uint8_t

from amps._core.journal.record cimport RecordHeader
from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer, FieldSet


@cython.final
cdef class Bodies:
    cdef object __weakref__
    cdef Documents documents               # None: the message type has none
    cdef Selection selection               # None: whole messages
    cdef ByteBuffer selected
    cdef ByteBuffer older
    cdef ByteBuffer changes
    cdef uint64_t selected_txid            # of the message in `selected`
    cdef bint readable                     # whether that message could be parsed
    cdef uint64_t old_txid                 # of the messages whose difference is in `changes`
    cdef uint64_t new_txid
    cdef int found                         # result of that comparison
    # The body that was made last; valid until the next call.
    cdef const uint8_t* body
    cdef uint64_t length

    cdef bint make(self, const RecordHeader* record) except -1
    cdef int compare(self, const RecordHeader* old, const RecordHeader* new, FieldSet keys) except -2
