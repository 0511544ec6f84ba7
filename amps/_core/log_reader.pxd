# See log_reader.pyx.

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from amps._core.log_file cimport LogFile
from amps._core.record cimport KIND_TOPIC, RecordHeader, align8


@cython.final
cdef class LogCursor:
    """A place in a log, moving forward record by record."""

    cdef object directory          # LogDirectory
    cdef readonly LogFile file
    cdef readonly uint64_t position
    cdef readonly bint verify      # check every record's checksum
    # File offset: records that end there or before, and one header behind it, are in memory. Of a compressed file
    # only until somebody else reads one: see begin_reading.
    cdef uint64_t ready
    cdef uint64_t allowed          # file offset up to which it may look at the file, if that is not compressed
    cdef bint fetches              # beyond that it waits for the disk itself
    cdef uint64_t wanted           # of the record at `wanted_at`: how many bytes it may not look at yet, or has not
    cdef uint64_t wanted_at        # log position at which it stopped for them
    # A long record is checked in parts: of the one at this log position, so many bytes were, and this is their sum.
    cdef uint64_t checked_at
    cdef uint64_t checked_bytes
    cdef uint32_t checked_sum

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL
    cdef int use_file(self, uint64_t number) except -1
    cdef void set_ready(self) noexcept
    cdef const RecordHeader* stop_for(self, uint64_t length) noexcept
    cdef bint is_checked(self, const RecordHeader* record) except -1


# Before a run of `next_record`: other cursors may have read since the last one, and memory of compressed files may
# have been given back for them.
cdef inline void begin_reading(LogCursor cursor) noexcept:
    if cursor.file.frames is not None:
        cursor.ready = 0


# The record at a cursor, or NULL at the limit. Most of them are found without a call.
cdef inline const RecordHeader* next_record(LogCursor cursor, uint64_t limit) except? NULL:
    cdef const RecordHeader* record
    cdef LogFile file = cursor.file
    cdef uint64_t offset = cursor.position - file.start_position
    if cursor.position < limit and offset < cursor.ready and not cursor.verify:
        record = <const RecordHeader*>(file.data + offset)
        if (
            record.kind < KIND_TOPIC
            and record.position == cursor.position
            and record.length <= cursor.ready - offset
        ):
            return record
    return cursor.next(limit)


# Move past the record that was found.
cdef inline void skip_record(LogCursor cursor, const RecordHeader* record) noexcept:
    cursor.position += align8(record.length)
