# The keys of records. See sow/keys.pxi.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

from amps._core.values.fields cimport (
    ByteBuffer,
    Extractor,
    FieldSet,
    FieldValues,
)
from amps._core.values.value cimport Value


cdef enum:
    KEY_DELIMITER = 1              # between the domain and the texts; part of every stored key


cdef class KeyFields:
    """The key fields of a topic, and what reads them. All logical topics of a `Pattern` share it."""

    cdef Extractor extractor
    cdef FieldSet fields
    cdef FieldValues values
    cdef uint32_t* slots           # by key field, in configured order
    cdef uint32_t count
    cdef readonly tuple paths

    cdef bint read(self, const uint8_t* payload, uint64_t length) except -1
    cdef bint text_at(self, uint32_t at, Value* text) except -1


cdef class KeyMaker:
    """Makes the keys of one topic."""

    cdef readonly bytes domain
    cdef readonly KeyFields fields
    cdef readonly uint32_t definition      # CRC32 of generator, domain and fields as configured
    cdef readonly uint64_t missing         # key fields without a value, in all messages
    cdef readonly uint64_t unreadable      # messages without a key
    cdef bint only_texts                   # the fields of a message do not make its key
    cdef ByteBuffer identity

    cdef uint64_t key_of(self, const uint8_t* payload, uint64_t length) except? 0
    cdef uint64_t key_of_text(self, const uint8_t* text, uint64_t length) except? 0
    cdef int begin_identity(self) except -1


cdef bint is_publisher_key(const uint8_t* text, uint64_t length) noexcept nogil
