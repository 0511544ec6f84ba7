# The wire format's C interface: what transports use on the publish path without making Python objects.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t


cdef enum:
    MAX_HEADER_FIELDS = 48


# One known header field each; the order is that of FIELD_NAMES in wire/headers.pxi.
cdef enum Field:
    FIELD_CMD = 0
    FIELD_CMD_ID
    FIELD_ACK_TYPE
    FIELD_TOPIC
    FIELD_FILTER
    FIELD_OPTS
    FIELD_SUB_ID
    FIELD_SIDS
    FIELD_QUERY_ID
    FIELD_BOOKMARK
    FIELD_BATCH_SIZE
    FIELD_TOP_N
    FIELD_ORDERBY
    FIELD_SOW_KEY
    FIELD_SOW_KEYS
    FIELD_EXPIRATION
    FIELD_SEQ
    FIELD_CORRELATION_ID
    FIELD_CLIENT_NAME
    FIELD_USER_ID
    FIELD_PASSWORD
    FIELD_MESSAGE_TYPE
    FIELD_VERSION
    FIELD_STATUS
    FIELD_REASON
    FIELD_TIMESTAMP
    FIELD_LEASEPERIOD
    FIELD_MSG_LEN
    FIELD_GSEQ
    FIELD_MATCHES
    FIELD_TOPIC_MATCHES
    FIELD_RECORDS_RETURNED
    FIELD_RECORDS_INSERTED
    FIELD_RECORDS_UPDATED
    FIELD_RECORDS_DELETED
    FIELD_DATA_ONLY
    FIELD_SEND_EMPTY
    FIELD_SEND_KEYS
    FIELD_SEND_OOF
    FIELD_SEND_MATCHING_IDS
    FIELD_HEARTBEAT
    FIELD_TIMEOUT_INTERVAL
    FIELD_MAX_MSGS
    FIELD_SRC
    FIELD_USE_NS
    FIELD_DETAIL
    FIELD_POSITION
    FIELD_COUNT


cdef struct Slice:
    const char* data            # first byte of the value, inside the quotes if it was quoted
    uint32_t length             # bytes


cdef struct HeaderView:
    Slice field[MAX_HEADER_FIELDS]
    uint64_t present            # bit per Field: the header has it
    uint64_t quoted             # bit per Field: the value was a JSON string
    uint64_t escaped            # bit per Field: the string holds a backslash escape


# Scans one header. Returns its length including both braces, or a negative number: no header there.
cdef int32_t scan_header(const char* data, uint32_t length, HeaderView* view) noexcept nogil

# Unsigned decimal of a field; returns -1 where the value is absent or not a number that fits.
cdef int field_u64(const HeaderView* view, Field field, uint64_t* value) noexcept nogil


# See wire/header_pattern.pxi.


cdef enum:
    PATTERN_BYTES = 256
    PATTERN_FIELDS = 8


cdef struct PatternField:
    uint8_t number              # Field
    bint behind                 # its value stands behind the sequence, and moves with the sequence's length
    uint32_t offset             # of the value, from the beginning or from behind the sequence
    uint32_t length


cdef struct HeaderPattern:
    uint32_t before             # bytes in front of the sequence; 0 = nothing is known
    uint32_t behind             # bytes behind it
    bint has_sequence           # without one `before` is the whole header
    int field_count
    uint8_t learned             # headers learned since one was followed
    uint64_t present
    uint64_t quoted
    uint64_t escaped
    PatternField field[PATTERN_FIELDS]
    char text[PATTERN_BYTES]    # what stands in front of the sequence, and then what stands behind it


# Remember a header that was scanned, for those to come. `sequence` 0: it has none.
cdef void learn_header(
    HeaderPattern* pattern, const char* data, uint32_t length, const HeaderView* view, uint64_t sequence
) noexcept nogil

# Whether the header at `data` is that of before, but for its sequence: its length, with `view` and `sequence` as
# scanning would give them; else -1, with both as they were.
cdef int32_t follow_header(
    HeaderPattern* pattern, const char* data, uint32_t length, HeaderView* view, uint64_t* sequence
) noexcept nogil
