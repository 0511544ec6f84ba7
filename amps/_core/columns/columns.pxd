# Fields of messages as columns of a batch. See columns/payload_fields.pxi.

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader
from amps._core.journal.writer cimport PublisherMap


cdef extern from "column_store.h" nogil:
    ctypedef struct column:
        uint8_t kind
        uint8_t precision
        uint8_t scale
        uint32_t length
        uint32_t child_count
        uint8_t* validity
        uint8_t* values
        int32_t* offsets
        uint8_t* data
        uint64_t data_length
        column* children
    ctypedef struct column_store:
        int failure
        uint8_t* scratch


# The part of a FieldColumns that is used without the GIL.
cdef struct FieldRows:
    column_store store                 # `failure`: why the last message could not be added; 0 = it was added
    column root
    int format
    uint8_t separator
    uint64_t malformed                 # messages that could not be parsed, over all batches


cdef bint add_message(FieldRows* fields, const uint8_t* payload, uint32_t length) noexcept nogil


cdef class FieldColumns:
    """Rows of the requested fields, one row for each message."""

    cdef FieldRows fields
    cdef readonly object arrow_type    # type of the result of `finish`

    cdef int check(self) except -1
    cdef int begin(self, column* made, object of, uint32_t depth) except -1
    cdef object take(self, column* taken, object arrow_type, bint is_root)


# Rows of records. See columns/rows.pxi.


cdef enum:
    RECORD_POSITION = 0
    RECORD_TIMESTAMP = 1
    RECORD_BOOKMARK = 2
    RECORD_PUBLISHER = 3
    RECORD_SEQUENCE = 4
    RECORD_TOPIC = 5
    RECORD_MESSAGE_TYPE = 6
    RECORD_KIND = 7
    RECORD_EXPIRATION = 8
    RECORD_PAYLOAD = 9
    # Of the state of a SOW topic.
    RECORD_SOW_KEY = 10
    RECORD_TXID = 11
    RECORD_CORRELATION_ID = 12
    RECORD_COUNT = 13
    KIND_COUNT = 32                # number of bits in a set of kinds


# A text that another object keeps alive.
cdef struct Text:
    const char* start
    uint32_t length


# The state of a topic id of the current file.
cdef struct TopicState:
    Text topic
    Text message_type
    uint8_t known                  # 0: no topic record was found
    uint8_t wanted
    uint8_t fields                 # number of the reader of payload fields, from 1 on; 0 = none


# A publisher that was found: its id as text, and its name.
cdef struct PublisherText:
    uint64_t publisher_id          # 0 = unused entry
    char decimal[20]
    uint32_t decimal_length
    Text name                      # length 0: its id as text


# The bytes of one column, row after row, and the offset of each row.
cdef struct TextColumn:
    uint8_t* data
    uint64_t used
    uint64_t capacity
    int* offsets                   # one more than rows


cdef class Memory:
    """A block of memory from malloc, with the buffer protocol."""

    cdef void* data
    cdef Py_ssize_t length


cdef Text text_of(bytes value) except *


cdef class RecordRows:
    cdef readonly uint64_t rows            # in the batch
    cdef uint32_t columns                  # bits by number of the column
    cdef uint64_t rows_max
    cdef uint64_t bytes_max
    cdef uint64_t payload_bytes            # of the batch, copied or read
    cdef list readers                      # FieldColumns
    cdef FieldRows* reader_rows[256]       # rows of the readers, by number
    cdef list texts                        # keeps the bytes that `names` point to
    cdef PublisherMap name_numbers         # by publisher id
    cdef Text* names                       # by number
    cdef uint64_t name_capacity
    cdef PublisherText* publishers         # direct-mapped by the id's lowest bits
    cdef int64_t* positions
    cdef int64_t* timestamps
    cdef int64_t* sequences
    cdef int64_t* expirations
    cdef int64_t* txids
    cdef uint8_t* fields_of_rows
    cdef uint8_t* validity[RECORD_COUNT]
    cdef uint64_t null_counts[RECORD_COUNT]
    cdef TextColumn text_columns[RECORD_COUNT]

    cdef int check(self) except -1
    cdef int learn_name(self, uint64_t publisher_id, bytes text) except -1
    cdef int allocate(self) except -1
    cdef void release(self) noexcept
    cdef bint is_full(self) noexcept nogil
    cdef bint append(self, const RecordHeader* record, uint16_t kind, const TopicState* topic) noexcept nogil
    cdef void take_back(self) noexcept nogil
    cdef bint put_row(self, const RecordHeader* record, uint16_t kind, const TopicState* topic) noexcept nogil
    cdef PublisherText* publisher_text(self, uint64_t publisher_id) noexcept nogil
    cdef void set_null(self, int column) noexcept nogil
    cdef void put_numbers(self, const RecordHeader* record) noexcept nogil
    cdef bint put_bookmark(self, const RecordHeader* record) noexcept nogil
    cdef bint put_publisher(self, const RecordHeader* record) noexcept nogil
    cdef bint put_topic(self, int column, const Text* text) noexcept nogil
    cdef bint put_sow_key(self, const RecordHeader* record) noexcept nogil
    cdef bint put_correlation_id(self, const RecordHeader* record) noexcept nogil


# The walk through a journal file. See columns/records.pxi.


# Why a walk stopped. The first four are the constants STOPPED_… of Python.
cdef enum Stop:
    STOP_END = 0                   # the end of the range
    STOP_FULL = 1                  # the batch is full
    STOP_FINISHED = 2              # the end-of-file record was found
    STOP_DAMAGE = 3                # no intact record at `offset`
    STOP_TOPIC = 4                 # a topic or name record at `offset`, which the caller processes
    STOP_MISSING = 5               # the record at `offset` is not completely in memory
    STOP_ROOM = 6                  # no room for more; `batch` has the reason


cdef class RecordColumns:
    cdef readonly RecordRows batch
    cdef readonly LogFile file
    cdef readonly uint64_t offset          # file offset of the next record
    cdef readonly uint64_t end             # file offset: only records that begin before it are read
    cdef readonly uint64_t bytes_read      # of records that were examined, over all files
    cdef readonly uint64_t records_read
    cdef readonly uint64_t unnamed_records  # records of topics without an intact topic record
    cdef readonly uint64_t durable_position  # highest watermark in a record
    cdef uint64_t ready                    # file offset up to which content is in memory
    cdef uint32_t kinds                    # bits by kind
    cdef uint64_t first_position
    cdef uint64_t end_position
    cdef uint64_t first_time_us
    cdef uint64_t last_time_us
    cdef bint takes_unnamed
    cdef object topic_wanted
    cdef list texts                        # keeps the bytes that `topics` point to
    cdef TopicState* topics                # by topic id
    cdef uint64_t topic_count

    cdef int learn(self, uint32_t topic_id, bytes topic, bytes message_type) except -1
    cdef bint take_topic(self, const RecordHeader* record) except -1
    cdef bint take_name(self, const RecordHeader* record) except -1
    cdef Stop walk(self) noexcept nogil
    cdef const TopicState* topic_of(self, const RecordHeader* record) noexcept nogil
    cdef bint is_wanted(self, const RecordHeader* record, uint16_t kind) noexcept nogil
    cdef Stop find_intact(self) noexcept nogil


# Records at known places. See columns/placed.pxi.


cdef class PlacedRecords:
    cdef readonly RecordRows batch
    cdef list texts                        # keeps the bytes that `topics` point to
    cdef TopicState* topics
    cdef uint64_t topic_count

    cdef int put(self, const RecordHeader* record, uint32_t topic) except -1
