# See record_rows.pyx.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from amps._core.field_columns cimport FieldRows
from amps._core.record cimport RecordHeader

cdef enum:
    COLUMN_POSITION = 0
    COLUMN_TIMESTAMP = 1
    COLUMN_BOOKMARK = 2
    COLUMN_PUBLISHER = 3
    COLUMN_SEQUENCE = 4
    COLUMN_TOPIC = 5
    COLUMN_MESSAGE_TYPE = 6
    COLUMN_KIND = 7
    COLUMN_EXPIRATION = 8
    COLUMN_PAYLOAD = 9
    COLUMN_COUNT = 10
    KIND_COUNT = 32                # bits of a set of kinds


# A text that some other object keeps.
cdef struct Text:
    const char* start
    uint32_t length


# What is known of a topic id of the file that is read.
cdef struct TopicState:
    Text topic
    Text message_type
    uint8_t known                  # 0: no topic record was met
    uint8_t wanted
    uint8_t fields                 # which reader of payload fields reads its payloads: a number from 1 on, 0 = none


# A publisher that was met: its id as text, and the name it is shown by.
cdef struct PublisherText:
    uint64_t publisher_id          # 0 = free
    char decimal[20]
    uint32_t decimal_length
    Text name                      # length 0: its id as text


# Bytes of one column, one row's after the other's, and where each row's begin.
cdef struct TextColumn:
    uint8_t* data
    uint64_t used
    uint64_t capacity
    int* offsets                   # one more than rows


cdef class Memory:
    """Some bytes from malloc, handed to whoever wants a buffer."""

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
    cdef FieldRows* reader_rows[256]       # theirs, by number
    cdef list texts                        # keep the bytes that `names` point to
    cdef uint64_t* named_ids               # rising
    cdef Text* names
    cdef uint64_t name_count
    cdef PublisherText* publishers         # direct-mapped by the id's lowest bits
    cdef int64_t* positions
    cdef int64_t* timestamps
    cdef int64_t* sequences
    cdef int64_t* expirations
    cdef uint8_t* fields_of_rows
    cdef uint8_t* validity[COLUMN_COUNT]
    cdef uint64_t null_counts[COLUMN_COUNT]
    cdef TextColumn text_columns[COLUMN_COUNT]

    cdef int check(self) except -1
    cdef int set_names(self, names) except -1
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
