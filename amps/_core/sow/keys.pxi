# The keys of records (sow.md §3, D2 to D5).
#
# A key is `hash_bytes` over its *identity*: the domain, and behind it, for each key field, the byte 1 and the text of
# the field's value. The text is that of the message: a number as it is spelled, a string without quotes and escapes,
# `true` or `false`. So `1` and `"1"` are one key in JSON, and `1.0` is another. Of several values the first one counts.
# A missing field, NULL, an object and an empty text all count as the empty text, so that no live message is refused
# (D4). A key that a publisher provides is the only text of its identity.
#
# The work for one message is bounded (values/evaluation_budget.pxi), so keys are not made while another message is
# evaluated.
#
# The identity is put together in a buffer, because the hash is that of `values/identity.pxi`, in one piece. Keys are
# stored in journals and compared by other instances: a change of any of this would separate records from their keys.

from libc.stdlib cimport free, malloc
from libc.stdint cimport uint32_t, uint64_t, uint8_t

from zlib import crc32

from amps._core.values.fields cimport (
    ByteBuffer,
    Extractor,
    FieldSet,
    FieldValues,
    begin_message,
    end_message,
)
from amps._core.values.value cimport (
    VALUE_BOOLEAN,
    VALUE_CONTAINER,
    VALUE_HAS_TEXT,
    VALUE_NULL,
    VALUE_RAW_NUMBER,
    VALUE_RAW_TEXT,
    VALUE_STRING,
    Value,
    hash_bytes,
    to_text,
)


def _counted(parts):
    """Parts as one text, each behind its length, so that no two lists of parts have one text. Numbers become texts."""
    texts = [b"%d" % part if isinstance(part, int) else part for part in parts]
    return b"".join([b"%d:" % len(text) + text for text in texts])


cdef class KeyFields:

    def __cinit__(self):
        self.slots = NULL

    def __init__(self, paths, Extractor extractor):
        """paths: those of the fields, in configured order. extractor: None only if there are none."""
        cdef uint32_t at
        self.paths = tuple(paths)
        if self.paths and extractor is None:
            raise ValueError("the fields of a key need an extractor")
        self.extractor = extractor
        self.fields = FieldSet()
        self.values = FieldValues()
        self.count = <uint32_t>len(self.paths)
        self.slots = <uint32_t*>malloc((self.count + 1) * sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError()
        for at in range(self.count):
            self.slots[at] = self.fields.add(self.paths[at])

    def __dealloc__(self):
        free(self.slots)

    cdef bint read(self, const uint8_t* payload, uint64_t length) except -1:
        """Find the fields in a message. False: it cannot be parsed, or takes too much memory or time."""
        self.values.begin(self.fields)
        begin_message(length)
        try:
            return self.extractor.extract(payload, length, self.fields, 0, self.values)
        except MemoryError:
            return False
        finally:
            end_message()

    cdef bint text_at(self, uint32_t at, Value* text) except -1:
        """Set the text of a field of the message; valid until the next message. False: it has none."""
        cdef FieldValues values = self.values
        cdef int32_t node = values.slots[self.slots[at]].first
        cdef bint truth
        text.length = 0
        if node < 0:
            return False
        text[0] = values.nodes[node].value
        if text.kind == VALUE_NULL or text.kind == VALUE_CONTAINER:
            text.length = 0
            return False
        if text.kind == VALUE_BOOLEAN:
            truth = text.number.integer != 0
            text.text = <const uint8_t*>(b"true" if truth else b"false")
            text.length = 4 if truth else 5
        elif text.kind != VALUE_STRING and text.kind != VALUE_RAW_NUMBER and text.kind != VALUE_RAW_TEXT:
            to_text(text, values.arena)
            if text.kind == VALUE_NULL:
                text.length = 0
        return text.length > 0

    def texts(self, payload not None):
        """The texts of a message's fields, in order; empty for a field without a value. None: it cannot be read."""
        cdef const uint8_t[::1] view = payload
        cdef const uint8_t* data = NULL
        cdef Value text
        cdef uint32_t at
        if view.shape[0]:
            data = &view[0]
        if self.count == 0 or not self.read(data, <uint64_t>view.shape[0]):
            return None
        found = []
        try:
            for at in range(self.count):
                found.append(<bytes>(<const char*>text.text)[:text.length] if self.text_at(at, &text) else b"")
        except MemoryError:
            return None
        return tuple(found)


cdef class KeyMaker:

    def __init__(self, bytes domain not None, paths=(), Extractor extractor=None, str generator=""):
        """domain: `KeyDomain`, or the name of the topic. paths: the key fields; without them, only texts have keys.

        extractor: one of its own, of the topic's message type; None only without paths. generator: what makes keys of
        the texts of the fields, if it is not this class; only texts have keys then.
        """
        self.domain = domain
        self.fields = KeyFields(paths, extractor)
        self.only_texts = not self.fields.paths or generator != ""
        self.identity = ByteBuffer()
        self.definition = crc32(_counted([generator.encode(), domain, *map(_counted, self.fields.paths)]))

    def for_domain(self, bytes domain not None):
        """The keys of a logical topic: with another domain, but of the same definition, fields and extractor."""
        cdef KeyMaker made = KeyMaker.__new__(KeyMaker)
        made.domain = domain
        made.fields = self.fields
        made.only_texts = self.only_texts
        made.definition = self.definition
        made.identity = self.identity
        return made

    cdef uint64_t key_of(self, const uint8_t* payload, uint64_t length) except? 0:
        """The key of a message; 0: it cannot be read. Raises ValueError if its fields do not make the key."""
        cdef KeyFields fields = self.fields
        cdef ByteBuffer identity = self.identity
        cdef Value text
        cdef uint32_t at
        if self.only_texts:
            raise ValueError("the keys of this topic are made of texts, by publishers or a key generator")
        if not fields.read(payload, length):
            self.unreadable += 1
            return 0
        try:
            self.begin_identity()
            for at in range(fields.count):
                identity.append_byte(KEY_DELIMITER)
                if fields.text_at(at, &text):
                    identity.append(text.text, text.length)
                else:
                    self.missing += 1
        except MemoryError:
            self.unreadable += 1
            return 0
        return hash_bytes(identity.data, <Py_ssize_t>identity.length, 0)

    cdef uint64_t key_of_text(self, const uint8_t* text, uint64_t length) except? 0:
        """The key of a text: one that a publisher provides, or the identifier of a chain. Never 0."""
        self.begin_identity()
        self.identity.append_byte(KEY_DELIMITER)
        self.identity.append(text, length)
        return hash_bytes(self.identity.data, <Py_ssize_t>self.identity.length, 0)

    cdef int begin_identity(self) except -1:
        self.identity.length = 0
        return self.identity.append(<const uint8_t*><const char*>self.domain, <uint64_t>len(self.domain))

    def key(self, payload not None):
        """The key of a message; 0: it cannot be read."""
        cdef const uint8_t[::1] view = payload
        cdef const uint8_t* data = NULL
        if view.shape[0]:
            data = &view[0]
        return self.key_of(data, <uint64_t>view.shape[0])

    def text_key(self, bytes text not None):
        """The key of a text. Never 0."""
        return self.key_of_text(<const uint8_t*><const char*>text, <uint64_t>len(text))


cdef bint is_publisher_key(const uint8_t* text, uint64_t length) noexcept nogil:
    """Whether a text may be the header `sow_key` of a publish: characters of Base64, at least one (sow.md D5)."""
    cdef uint64_t at
    cdef uint8_t byte
    for at in range(length):
        byte = text[at]
        if not (
            c"a" <= byte <= c"z" or c"A" <= byte <= c"Z" or c"0" <= byte <= c"9"
            or byte == c"+" or byte == c"/" or byte == c"="
        ):
            return False
    return length > 0


def may_be_publisher_key(bytes text not None):
    """Whether a text may be the header `sow_key` of a publish (sow.md D5)."""
    return bool(is_publisher_key(<const uint8_t*><const char*>text, <uint64_t>len(text)))
