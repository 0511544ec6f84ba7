# What a record tells about its message. See message_facts.pyx.

from libc.stdint cimport uint64_t

from amps._core.message_context cimport MessageContext
from amps._core.record cimport RecordHeader


cdef int tell_facts(
    MessageContext context, const RecordHeader* record, bytes topic, bint recorded, bint live
) except -1
cdef uint64_t publisher_hash(const RecordHeader* record) noexcept nogil
