# The hash of a message's key: of the value of OrderingKey (queue_guarantees.md §3).
#
# Values that are equal by `=` must have one hash, or messages of one key would be delivered in parallel. A number
# equals a text with the form of that number, so such a text is hashed as the number. Two such texts ("7" and "7.0")
# then share a key, which costs parallelism only. A text longer than an exact number can be is hashed as text: otherwise
# long texts of digits, as some identifiers are, would share a key when they begin alike.
#
# The hash is SipHash-1-3 with a secret seed, cut to 32 bits. Without the seed nobody can choose values with equal
# hashes, or hashes that make the table of keys slow.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.values.value cimport (
    VALUE_CONTAINER,
    VALUE_DOUBLE,
    VALUE_NULL,
    VALUE_STRING,
    Arena,
    Value,
    canonical,
    number_from_text,
    settle,
)

cdef enum:
    FRACTION_TEXT_MAX = 17         # bytes of text of a number that is not whole: up to 15 digits are exact


cdef struct SipState:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return value << bits | value >> (64 - bits)


cdef inline void sip_round(SipState* state) noexcept nogil:
    state.v0 += state.v1
    state.v1 = rotated(state.v1, 13) ^ state.v0
    state.v0 = rotated(state.v0, 32)
    state.v2 += state.v3
    state.v3 = rotated(state.v3, 16) ^ state.v2
    state.v0 += state.v3
    state.v3 = rotated(state.v3, 21) ^ state.v0
    state.v2 += state.v1
    state.v1 = rotated(state.v1, 17) ^ state.v2
    state.v2 = rotated(state.v2, 32)


cdef uint64_t sip_hash(const uint64_t* seed, const uint8_t* data, uint64_t length) noexcept nogil:
    """SipHash-1-3 of bytes, on a little-endian machine."""
    cdef SipState state
    cdef uint64_t word
    cdef uint64_t at = 0
    cdef int turn
    state.v0 = seed[0] ^ <uint64_t>0x736F6D6570736575
    state.v1 = seed[1] ^ <uint64_t>0x646F72616E646F6D
    state.v2 = seed[0] ^ <uint64_t>0x6C7967656E657261
    state.v3 = seed[1] ^ <uint64_t>0x7465646279746573
    while length - at >= 8:
        memcpy(&word, data + at, 8)
        state.v3 ^= word
        sip_round(&state)
        state.v0 ^= word
        at += 8
    word = length << 56
    for turn in range(<int>(length - at)):
        word |= <uint64_t>data[at + turn] << (8 * turn)
    state.v3 ^= word
    sip_round(&state)
    state.v0 ^= word
    state.v2 ^= 0xFF
    for turn in range(3):
        sip_round(&state)
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3


cdef int hash_of_key(Value* value, Arena arena, const uint64_t* seed, uint32_t* hash_) except -1:
    """Set the hash of a value; 0 = it is no key: NULL, NaN, or a container."""
    cdef Value number
    cdef uint8_t written[9]
    cdef uint64_t of_value
    hash_[0] = 0
    settle(value, arena)
    if value.kind == VALUE_NULL or value.kind == VALUE_CONTAINER:
        return 0
    number = value[0]
    if value.kind == VALUE_STRING and not number_in_text(value, &number):
        of_value = sip_hash(seed, value.text, value.length)
    else:
        if not canonical(&number):
            return 0
        written[0] = number.kind  # 9 bytes with a byte below 32: hardly a text
        memcpy(&written[1], &number.number, 8)
        of_value = sip_hash(seed, written, 9)
    hash_[0] = <uint32_t>(of_value ^ of_value >> 32)
    if hash_[0] == 0:
        hash_[0] = 1
    return 0


cdef bint number_in_text(const Value* text, Value* number) noexcept nogil:
    """Whether a text counts as a number: a whole number of 64 bits, or a short one. Sets its kind and number."""
    if not number_from_text(text.text, text.length, number):
        return False
    return number.kind != VALUE_DOUBLE or text.length <= FRACTION_TEXT_MAX
