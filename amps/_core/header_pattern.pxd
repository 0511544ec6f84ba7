# See header_pattern.pyx.

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from amps._core.wire cimport HeaderView


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
