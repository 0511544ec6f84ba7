# See journal/compressed_file.pxi.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.record cimport (
    KIND_TOPIC,
    NAME_BYTES_MAX,
    NAME_PREFIX_BYTES,
    TOPIC_PREFIX_BYTES,
    RecordHeader,
    align8,
    record_payload,
)


cdef class FrameMap:
    cdef object __weakref__
    cdef readonly object path
    cdef readonly uint64_t size            # bytes of the content
    cdef uint8_t* data                     # the mapping; valid where `present` is 1
    cdef uint8_t* present                  # by frame: 1 if its content is in the mapping
    cdef uint64_t* offsets                 # by frame: its file offset; one more for the end of the last frame
    cdef uint64_t count                    # frames
    cdef uint64_t serial                   # number of this file in the cache
    cdef int descriptor
    cdef object decompress
    cdef FrameCache cache

    cdef int read_table(self) except -1
    cdef uint64_t need(self, uint64_t offset, uint64_t length) except? 0
    cdef int load(self, uint64_t frame) except -1
    cdef int drop(self, uint64_t frame) except -1


cdef class FrameCache:
    cdef readonly uint64_t limit_bytes
    cdef object order                      # OrderedDict: (serial, frame) -> None, least recently used first
    cdef dict maps                         # serial -> weak reference to the FrameMap
    cdef uint64_t next_serial


# See journal/file.pxi.


cdef class LogFile:
    """One mapped file of a log, with the topics for the topic ids that its records use."""

    cdef object __weakref__
    cdef readonly object path
    cdef int descriptor            # -1 for a compressed file
    cdef readonly FrameMap frames  # None unless the file is compressed
    cdef const uint8_t* data
    cdef readonly uint64_t number
    cdef readonly uint64_t size
    cdef readonly uint64_t start_position
    cdef readonly object instance_name
    cdef list topics               # by topic id: the resolver's result for the topic record, or None

    cdef int learn_topic(self, const RecordHeader* record, object resolver) except -1
    cpdef int need(self, uint64_t offset, uint64_t length) except -1
    cdef int check_readable(self, uint64_t offset, uint64_t length, uint64_t readable) except -1
    cpdef uint64_t readable_bytes(self) except? 0
    cdef const RecordHeader* record_at(self, uint64_t offset) except NULL
    cdef const RecordHeader* chained(self, uint64_t offset, uint16_t kind) except NULL
    cdef uint64_t ready_at(self, uint64_t offset) except? 0


cdef inline object topic_of(LogFile file, uint32_t topic_id):
    return file.topics[topic_id] if topic_id < <uint32_t>PyList_GET_SIZE(file.topics) else None


# True if the parts of a topic record's payload add up to its length.
cdef inline bint topic_record_fits(const RecordHeader* record) noexcept nogil:
    cdef const uint8_t* payload = record_payload(record)
    return record.payload_length >= TOPIC_PREFIX_BYTES and record.payload_length == (
        <uint64_t>TOPIC_PREFIX_BYTES + (<const uint32_t*>(payload + 16))[0] + (<const uint32_t*>(payload + 20))[0]
    )


cdef tuple topic_of_record(const RecordHeader* record)


# True if the text of a name record fills the rest of its payload and is at most NAME_BYTES_MAX bytes long.
cdef inline bint name_record_fits(const RecordHeader* record) noexcept nogil:
    return (
        record.payload_length >= NAME_PREFIX_BYTES
        and record.payload_length - NAME_PREFIX_BYTES <= NAME_BYTES_MAX
        and record.payload_length - NAME_PREFIX_BYTES == (<const uint32_t*>(record_payload(record) + 20))[0]
    )


cdef tuple name_of_record(const RecordHeader* record)


# See journal/cursor.pxi.


@cython.final
cdef class LogCursor:
    """A position in a log that moves forward record by record."""

    cdef object directory          # LogDirectory
    cdef readonly LogFile file
    cdef readonly uint64_t position
    cdef readonly bint verify      # check every record's checksum
    cdef public object learns_names  # None, or a function that gets each name record: (class, name id, text in bytes)
    # File offset: records that end there or before, and one header behind it, are in memory. In a compressed file this
    # holds only until another cursor reads: see begin_reading.
    cdef uint64_t ready
    cdef uint64_t allowed          # file offset up to which it may access a file that is not compressed
    cdef bint fetches              # beyond `allowed` it reads from the disk and waits
    cdef bint shows_structure      # name and transaction records are returned, too
    cdef uint64_t wanted           # bytes of the record at `wanted_at` that must be accessible or checked to continue
    cdef uint64_t wanted_at        # log position at which it stopped for them
    # A long record is checked in parts.
    cdef uint64_t checked_at       # log position of the record that is being checked
    cdef uint64_t checked_bytes    # bytes of it that were passed so far
    cdef uint32_t checked_sum      # their CRC32C

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL
    cdef int use_file(self, uint64_t number) except -1
    cdef void set_ready(self) noexcept
    cdef const RecordHeader* stop_for(self, uint64_t length) noexcept
    cdef bint is_checked(self, const RecordHeader* record) except -1


# Call it before a run of `next_record`. Other cursors may have read since the last run, and the frame cache may have
# released frames of a compressed file for them.
cdef inline void begin_reading(LogCursor cursor) noexcept:
    if cursor.file.frames is not None:
        cursor.ready = 0


# The record at a cursor, or NULL at the limit. Most records are found without a call of `next`.
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


# Move past the record that `next_record` returned.
cdef inline void skip_record(LogCursor cursor, const RecordHeader* record) noexcept:
    cursor.position += align8(record.length)
