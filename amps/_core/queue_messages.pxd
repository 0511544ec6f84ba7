# Messages of queues, read from the log. See queue_messages.pyx.

cimport cython
from libc.stdint cimport uint64_t

from amps._core.filter_set cimport FilterSet
from amps._core.log_file cimport LogFile
from amps._core.log_reader cimport LogCursor
from amps._core.record cimport RecordHeader
from amps._core.shared cimport ControlPage
from amps._core.topic_table cimport TopicEntry


@cython.final
cdef class MessageReader:
    cdef object directory          # LogDirectory
    cdef ControlPage control
    cdef list cursors              # in files that were read last, the last one first
    cdef LogCursor cursor          # in the file of the message that was read last
    cdef LogFile looked_at         # of which a part is known to be in memory, in this turn
    cdef uint64_t resident_from
    cdef uint64_t resident_until
    cdef LogFile missing_file      # of the record that was not in memory
    cdef uint64_t missing_offset
    cdef uint64_t missing_bytes
    cdef uint64_t needed_until     # file offset: what lies behind is asked for with it, because it may be wanted next
    cdef bint idle                 # nothing was read since `release` was called last

    cdef void begin_turn(self) noexcept
    cdef const RecordHeader* read(self, uint64_t position) except? NULL
    cdef uint64_t cost(self, const RecordHeader* record) noexcept
    cdef LogCursor cursor_for(self, uint64_t position)
    cdef bint is_resident(self, LogFile file, uint64_t offset) except -1
    cdef bint look(self, LogFile file, uint64_t offset, uint64_t length) noexcept


cdef uint64_t match_message(
    FilterSet filters, const RecordHeader* record, TopicEntry entry
) except? 0xFFFFFFFFFFFFFFFF
