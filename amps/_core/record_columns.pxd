# See record_columns.pyx.

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from amps._core.log_file cimport LogFile
from amps._core.record cimport RecordHeader
from amps._core.record_rows cimport RecordRows, TopicState


# Why a walk stopped; the first four are told to Python as STOPPED_….
cdef enum Stop:
    STOP_END = 0                   # the range is over
    STOP_FULL = 1                  # the batch is full
    STOP_FINISHED = 2              # the end-of-file record was met
    STOP_DAMAGE = 3                # no intact record at `offset`
    STOP_TOPIC = 4                 # a topic record at `offset`: the caller takes it
    STOP_MISSING = 5               # the record at `offset` is not in memory as a whole
    STOP_ROOM = 6                  # there is no room for more, as the batch knows


cdef class RecordColumns:
    cdef readonly RecordRows batch
    cdef readonly LogFile file
    cdef readonly uint64_t offset          # file offset of the next record
    cdef readonly uint64_t end             # file offset: records that begin before it belong to the range
    cdef readonly uint64_t bytes_read      # of records that were looked at, over all files
    cdef readonly uint64_t records_read
    cdef readonly uint64_t unnamed_records  # of topics that no intact topic record names
    cdef readonly uint64_t durable_position  # highest watermark that a record carried
    cdef uint64_t ready                    # file offset up to which content is in memory
    cdef uint32_t kinds                    # bits by kind
    cdef uint64_t first_position
    cdef uint64_t end_position
    cdef uint64_t first_time_us
    cdef uint64_t last_time_us
    cdef bint takes_unnamed
    cdef object topic_wanted
    cdef list texts                        # keep the bytes that `topics` point to
    cdef TopicState* topics                # by topic id
    cdef uint64_t topic_count

    cdef int learn(self, uint32_t topic_id, bytes topic, bytes message_type) except -1
    cdef bint take_topic(self, const RecordHeader* record) except -1
    cdef Stop walk(self) noexcept nogil
    cdef const TopicState* topic_of(self, const RecordHeader* record) noexcept nogil
    cdef bint is_wanted(self, const RecordHeader* record, uint16_t kind) noexcept nogil
    cdef Stop find_intact(self) noexcept nogil
