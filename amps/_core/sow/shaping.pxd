# The keys of records. See sow/keys.pxi.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t

from amps._core.values.fields cimport (
    ByteBuffer,
    Extractor,
    FieldSet,
    FieldValues,
    MessageBuilder,
    MessageContext,
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


# The fields that the server computes. See sow/stage.pxi.


# What a computed value does to a field that later constructors read, because its constructor has SET_CURRENT.
cdef enum EffectKind:
    EFFECT_SET                     # it is the field
    EFFECT_CLEAR                   # it is above the field, which is gone
    EFFECT_CONTAIN                 # it is below the field, which is a container


cdef struct Effect:
    uint32_t constructor
    uint32_t slot
    uint32_t kind


cdef class FieldStage:
    """Computes the fields of one stage, `Preprocessing` or `Enrichment`, and writes them into the message."""

    cdef readonly MessageContext context   # for functions that read facts about the message
    cdef readonly bint reads_previous      # a constructor reads the stored record
    cdef readonly uint64_t unreadable      # messages that could not be parsed
    cdef readonly uint64_t exhausted       # messages that took too much memory or time
    cdef list programs                     # of the constructors, in order
    cdef uint8_t* optional                 # by constructor: HINT OPTIONAL
    cdef uint32_t count
    cdef Effect* effects                   # in the order of the constructors
    cdef uint32_t effect_count
    cdef FieldSet fields
    cdef FieldValues values
    cdef Extractor extractor
    cdef Extractor previous_extractor
    cdef int32_t current_node              # where the fields of the message begin; -1 = none is read
    cdef int32_t previous_node
    cdef MessageBuilder builder
    cdef Value* results                    # by constructor
    cdef Value** written                   # NULL: the field is left out

    cdef bint run(
        self, const uint8_t* message, uint64_t length, const uint8_t* previous, uint64_t previous_length,
        ByteBuffer output
    ) except -1
    cdef bint compute(
        self, const uint8_t* message, uint64_t length, const uint8_t* previous, uint64_t previous_length
    ) except -1
    cdef int read_previous(self, const uint8_t* previous, uint64_t length) except -1
    cdef int apply_effects(self, uint32_t* next_effect, uint32_t constructor) except -1
