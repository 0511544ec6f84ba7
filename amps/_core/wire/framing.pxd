# The C interface of the wire format, which transports use on the publish path without making Python objects.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t


# The known header fields, in the order of _FIELDS in wire/headers.pxi, which compares the number of them. At most 64:
# each has a bit in HeaderView.
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
    FIELD_DELAY
    FIELD_NOT_BEFORE
    FIELD_COUNT


cdef struct Slice:
    const char* data            # first byte of the value, inside the quotes if it was quoted
    uint32_t length             # bytes


cdef struct HeaderView:
    Slice field[FIELD_COUNT]
    uint64_t present            # bit per Field: the header has the field
    uint64_t quoted             # bit per Field: the value was a JSON string
    uint64_t escaped            # bit per Field: the string contains a backslash escape


# Scan one header. Returns its length including both braces; negative: the bytes are not a header.
cdef int32_t scan_header(const char* data, uint32_t length, HeaderView* view) noexcept nogil

# Read the unsigned decimal number of a field. Returns 0, or -1 if the field is absent or not a number of 64 bits.
cdef int field_u64(const HeaderView* view, Field field, uint64_t* value) noexcept nogil


# See wire/header_pattern.pxi.


cdef enum:
    PATTERN_BYTES = 256
    PATTERN_FIELDS = 8


cdef struct PatternField:
    uint8_t number              # Field
    bint behind                 # the value is behind the sequence, so its place depends on the sequence's length
    uint32_t offset             # of the value, from the beginning of the header or from the end of the sequence
    uint32_t length


cdef struct HeaderPattern:
    uint32_t before             # bytes in front of the sequence; 0 = no header is stored
    uint32_t behind             # bytes behind the sequence
    bint has_sequence           # False: `before` is the whole header
    int field_count
    uint8_t learned             # headers passed to `learn_header` since the last match, modulo 256
    uint64_t present
    uint64_t quoted
    uint64_t escaped
    PatternField field[PATTERN_FIELDS]
    char text[PATTERN_BYTES]    # the bytes in front of the sequence, then the bytes behind it


# Store a scanned header as the pattern for the following headers. `sequence` 0: it has none.
cdef void learn_header(
    HeaderPattern* pattern, const char* data, uint32_t length, const HeaderView* view, uint64_t sequence
) noexcept nogil

# Compare the header at `data` with the pattern. If only the sequence differs, returns the length of the header and sets
# `view` and `sequence` as a scan would. Otherwise returns -1 and leaves both unchanged.
cdef int32_t follow_header(
    HeaderPattern* pattern, const char* data, uint32_t length, HeaderView* view, uint64_t* sequence
) noexcept nogil
