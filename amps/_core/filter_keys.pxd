# What filters are filed under. See filter_keys.pyx.

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from amps._core.value cimport Value


cdef extern from "text_words.h" nogil:
    const int TEXT_WORDS_BYTES
    ctypedef struct TextWords:
        uint64_t first
        uint64_t last
    uint64_t words_mixed(uint64_t first, uint64_t last, uint64_t seed)
    TextWords text_words(const uint8_t* text, uint32_t length, uint64_t seed)


# Which table tells how the constant compares.
cdef enum KeyTable:
    KEY_TEXT = 0                   # a string
    KEY_NUMBER = 1                 # a number
    KEY_CONVERTED = 2              # a string with the form of a number, by its number


# Two with the same words and `about` are the same, but for texts of more than TEXT_WORDS_BYTES.
cdef struct FilterKey:
    uint64_t first                 # of a text by `text_words`; a number
    uint64_t last                  # of a text; a number's kind
    uint64_t about                 # table, slot and a text's length
    const uint8_t* text            # NULL for a number


cdef enum:
    SLOT_SHIFT = 2                 # of FilterKey.about
    LENGTH_SHIFT = 32


# A slot that has keys.
cdef struct FiledSlot:
    uint32_t slot
    uint32_t tables                # bits by KeyTable


@cython.final
cdef class FilterKeys:
    """Keys by number, and their numbers by key."""

    cdef FilterKey* keys
    cdef uint32_t count
    cdef uint32_t capacity
    cdef list texts                # owners of the keys' texts
    cdef uint32_t* table           # key numbers plus one by hash, open addressing; 0 = free
    cdef uint32_t table_capacity   # a power of two
    cdef FiledSlot* slots
    cdef uint32_t slot_count
    cdef uint64_t seed

    cdef uint32_t number_of(self, FilterKey key, object owner) except? 0xFFFFFFFF
    cdef int note_slot(self, uint32_t slot, uint32_t table) except -1
    cdef void enter(self, uint32_t number) noexcept nogil
    cdef int grow_table(self) except -1


cdef inline FilterKey text_key(FilterKeys keys, uint32_t slot, const Value* value) noexcept nogil:
    cdef FilterKey key
    cdef TextWords words = text_words(value.text, value.length, keys.seed)
    key.first = words.first
    key.last = words.last
    key.about = <uint64_t>value.length << LENGTH_SHIFT | <uint64_t>slot << SLOT_SHIFT | KEY_TEXT
    key.text = value.text
    return key


# Of a number in its canonical form.
cdef inline FilterKey number_key(uint32_t slot, uint32_t table, const Value* number) noexcept nogil:
    cdef FilterKey key
    key.first = number.number.unsigned_integer
    key.last = number.kind
    key.about = <uint64_t>slot << SLOT_SHIFT | table
    key.text = NULL
    return key


# The number of a key; -1 if there is none.
cdef inline int32_t find_key(FilterKeys keys, const FilterKey* key) noexcept nogil:
    cdef uint32_t found
    cdef const FilterKey* known
    cdef uint64_t at = words_mixed(key.first ^ key.about, key.last, keys.seed)
    if keys.table_capacity == 0:
        return -1
    while True:
        found = keys.table[at & (keys.table_capacity - 1)]
        if found == 0:
            return -1
        known = &keys.keys[found - 1]
        if (known.first ^ key.first) | (known.last ^ key.last) | (known.about ^ key.about) == 0 and (
            key.about >> LENGTH_SHIFT <= <uint64_t>TEXT_WORDS_BYTES
            or memcmp(known.text, key.text, key.about >> LENGTH_SHIFT) == 0
        ):
            return <int32_t>found - 1
        at += 1
