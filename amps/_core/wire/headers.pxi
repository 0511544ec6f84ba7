# The wire format: frames and headers, shared by server, client and tests.
#
# A frame is a 4-byte big-endian length and that many bytes of payload. A payload is a header followed directly by a
# body (protocol.md §2, D1). A header is a flat subset of JSON with abbreviated keys (protocol.md §3, D2). This module
# implements that syntax; it does not interpret commands.
#
# There are two interfaces. The C interface (wire/framing.pxd) scans a header into slices of the receive buffer and
# makes no Python object; the publish path uses it. The Python interface (parse_header, build_header, FrameDecoder)
# returns dictionaries with the long field names; all other code uses it. Both use the same scanner.
#
# Invariants: the scanner never reads past `length`. A header is at most MAX_HEADER_BYTES long. A frame longer than the
# decoder's limit is refused before memory is allocated for it.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp

import json

MAX_MESSAGE_BYTES = 200 * 2**20
MAX_HEADER_BYTES = 4 << 20     # a filter of the longest text, even if half of it is escaped
LENGTH_BYTES = 4

cdef uint32_t HEADER_LIMIT = 4 << 20
cdef enum:
    LONG_STRING_BYTES = 32     # bytes of a value after which memchr finds its end: a list of bookmarks, a filter

# (long name, abbreviation written, other spellings read, kind of value), in the order of `Field` in wire/framing.pxd. A
# new key of a publish also needs a place in the record and in deliveries: CONTRIBUTING.md lists the places.
_FIELDS = (
    ("cmd", "c", (), "string"),
    ("cmd_id", "cid", (), "string"),
    ("ack_type", "a", (), "string"),
    ("topic", "t", (), "string"),
    ("filter", "f", (), "string"),
    ("opts", "o", (), "string"),
    ("sub_id", "sub_id", (), "string"),
    ("sids", "sids", (), "string"),
    ("query_id", "query_id", (), "string"),
    ("bookmark", "bm", (), "string"),
    ("batch_size", "bs", (), "integer"),
    ("top_n", "top_n", (), "integer"),
    ("orderby", "orderby", ("order_by",), "string"),
    ("sow_key", "k", (), "string"),
    ("sow_keys", "sow_keys", (), "string"),
    ("expiration", "e", (), "integer"),
    ("seq", "s", (), "integer"),
    ("correlation_id", "x", (), "string"),
    ("client_name", "client_name", (), "string"),
    ("user_id", "user_id", (), "string"),
    ("password", "pw", (), "string"),
    ("message_type", "mt", (), "string"),
    ("version", "version", ("v",), "string"),
    ("status", "status", (), "string"),
    ("reason", "reason", (), "string"),
    ("timestamp", "ts", (), "string"),
    ("leaseperiod", "lp", (), "string"),
    ("msg_len", "l", (), "integer"),
    ("gseq", "gseq", (), "integer"),
    ("matches", "matches", (), "integer"),
    ("topic_matches", "topic_matches", (), "integer"),
    ("records_returned", "records_returned", (), "integer"),
    ("records_inserted", "records_inserted", (), "integer"),
    ("records_updated", "records_updated", (), "integer"),
    ("records_deleted", "records_deleted", (), "integer"),
    ("data_only", "data_only", (), "boolean"),
    ("send_empty", "send_empty", (), "boolean"),
    ("send_keys", "send_keys", (), "boolean"),
    ("send_oof", "send_oof", (), "boolean"),
    ("send_matching_ids", "send_matching_ids", (), "boolean"),
    ("heartbeat", "heartbeat", (), "string"),
    ("timeout_interval", "timeout_interval", (), "integer"),
    ("max_msgs", "max_msgs", (), "integer"),
    ("src", "src", (), "string"),
    ("use_ns", "use_ns", (), "string"),
    # Additions of this project, in failure acknowledgements (docs/messages.md). Readers ignore keys they do not know.
    ("detail", "detail", (), "string"),
    ("position", "position", (), "integer"),
    # Additions of this project for delayed delivery (docs/spec/queue_guarantees.md §1), in milliseconds.
    ("delay", "delay", (), "integer"),
    ("not_before", "not_before", (), "integer"),
)
FIELD_NAMES = tuple(entry[0] for entry in _FIELDS)
if len(_FIELDS) != FIELD_COUNT or FIELD_COUNT > 64:
    raise ImportError(f"wire/framing.pxd numbers {FIELD_COUNT} header fields, wire/headers.pxi has {len(_FIELDS)}")

cdef tuple _long_names = FIELD_NAMES
cdef dict _abbreviations = {entry[0]: entry[1] for entry in _FIELDS}
cdef dict _spellings = {}
for _number, _entry in enumerate(_FIELDS):
    for _spelling in (_entry[0], _entry[1], *_entry[2]):
        _spellings[_spelling] = _number
cdef list _kinds = [{"string": 0, "integer": 1, "boolean": 2}[entry[3]] for entry in _FIELDS]


# One-letter keys are looked up directly, longer keys by length and then by comparison.
cdef signed char one_letter[256]

cdef struct KnownKey:
    const char* text
    uint32_t length
    int field

cdef KnownKey known_keys[128]
cdef int known_key_count = 0
cdef int first_of_length[32]
cdef list _key_owner = []          # keeps alive the bytes objects to which known_keys points


cdef void _fill_key_tables():
    global known_key_count
    cdef int index
    for index in range(256):
        one_letter[index] = -1
    keys = sorted(_spellings, key=len)
    for index in range(32):
        first_of_length[index] = -1
    for key in keys:
        raw = key.encode()
        if len(raw) == 1:
            one_letter[<unsigned char>raw[0]] = _spellings[key]
            continue
        _key_owner.append(raw)
        if first_of_length[len(raw)] < 0:
            first_of_length[len(raw)] = known_key_count
        known_keys[known_key_count].text = PyBytes_AS_STRING(raw)
        known_keys[known_key_count].length = <uint32_t>len(raw)
        known_keys[known_key_count].field = _spellings[key]
        known_key_count += 1


_fill_key_tables()


class HeaderError(ValueError):
    """The bytes at the start of a payload are not a header (protocol.md §3)."""


class FrameTooLarge(ValueError):
    """A frame's length is over the limit; no memory was allocated for it (protocol.md §2)."""


cdef inline int field_of_key(const char* key, uint32_t length) noexcept nogil:
    cdef int index
    if length == 1:
        return one_letter[<unsigned char>key[0]]
    if length >= 32 or length == 0:
        return -1
    index = first_of_length[length]
    if index < 0:
        return -1
    while index < known_key_count and known_keys[index].length == length:
        if memcmp(known_keys[index].text, key, length) == 0:
            return known_keys[index].field
        index += 1
    return -1


cdef inline bint is_space(char byte) noexcept nogil:
    return byte == c' ' or byte == c'\t' or byte == c'\r' or byte == c'\n'


cdef int32_t scan_header(const char* data, uint32_t length, HeaderView* view) noexcept nogil:
    cdef uint32_t at = 1
    cdef uint32_t start
    cdef const char* key
    cdef uint32_t key_length
    cdef int field
    cdef bint escaped
    cdef const char* quote
    cdef uint64_t bit
    cdef char byte
    view.present = 0
    view.quoted = 0
    view.escaped = 0
    if length > HEADER_LIMIT:
        length = HEADER_LIMIT
    if length < 2 or data[0] != c'{':
        return -1
    while at < length and is_space(data[at]):
        at += 1
    if at < length and data[at] == c'}':
        return <int32_t>(at + 1)
    while True:
        # key
        while at < length and is_space(data[at]):
            at += 1
        if at >= length or data[at] != c'"':
            return -1
        at += 1
        start = at
        while at < length and data[at] != c'"':
            if data[at] == c'\\':
                at += 1
            at += 1
        if at >= length:
            return -1
        key = data + start
        key_length = at - start
        at += 1
        while at < length and is_space(data[at]):
            at += 1
        if at >= length or data[at] != c':':
            return -1
        at += 1
        while at < length and is_space(data[at]):
            at += 1
        if at >= length:
            return -1
        field = field_of_key(key, key_length)
        # value
        if data[at] == c'"':
            at += 1
            start = at
            escaped = False
            while at < length and data[at] != c'"':
                if data[at] == c'\\':
                    escaped = True
                    at += 1
                at += 1
                if at - start == LONG_STRING_BYTES and at < length:
                    quote = <const char*>memchr(data + at, c'"', length - at)
                    if quote == NULL:
                        return -1
                    if memchr(data + at, c'\\', quote - (data + at)) == NULL:
                        at = <uint32_t>(quote - data)
                        break
            if at >= length:
                return -1
            if field >= 0:
                bit = <uint64_t>1 << field
                view.field[field].data = data + start
                view.field[field].length = at - start
                view.present |= bit
                view.quoted |= bit
                if escaped:
                    view.escaped |= bit
                else:
                    view.escaped &= ~bit
            at += 1
        else:
            start = at
            while at < length:
                byte = data[at]
                if byte == c',' or byte == c'}' or is_space(byte):
                    break
                if not (c'0' <= byte <= c'9' or c'a' <= byte <= c'z' or byte == c'-'):
                    return -1
                at += 1
            if at >= length or not is_bare_value(data + start, at - start):
                return -1
            if field >= 0:
                bit = <uint64_t>1 << field
                view.field[field].data = data + start
                view.field[field].length = at - start
                view.present |= bit
                view.quoted &= ~bit
                view.escaped &= ~bit
        while at < length and is_space(data[at]):
            at += 1
        if at >= length:
            return -1
        if data[at] == c'}':
            return <int32_t>(at + 1)
        if data[at] != c',':
            return -1
        at += 1


cdef inline bint is_bare_value(const char* text, uint32_t length) noexcept nogil:
    """True if an unquoted value is an integer, true or false."""
    cdef uint32_t at = 0
    if length == 4 and memcmp(text, b"true", 4) == 0:
        return True
    if length == 5 and memcmp(text, b"false", 5) == 0:
        return True
    if length and text[0] == c'-':
        at = 1
    if at >= length:
        return False
    while at < length:
        if text[at] < c'0' or text[at] > c'9':
            return False
        at += 1
    return True


cdef int field_u64(const HeaderView* view, Field field, uint64_t* value) noexcept nogil:
    cdef uint64_t result = 0
    cdef uint64_t digit
    cdef uint32_t at
    cdef const char* text
    cdef uint32_t length
    if not view.present & (<uint64_t>1 << <int>field):
        return -1
    text = view.field[<int>field].data
    length = view.field[<int>field].length
    if length == 0 or length > 20:
        return -1
    for at in range(length):
        if text[at] < c'0' or text[at] > c'9':
            return -1
        digit = <uint64_t>(text[at] - c'0')
        # Only the last of 20 digits can cause an overflow.
        if at == 19 and result > (<uint64_t>0xFFFFFFFFFFFFFFFF - digit) // 10:
            return -1
        result = result * 10 + digit
    value[0] = result
    return 0


cdef object decode_string(const char* data, uint32_t length, bint escaped):
    if not escaped:
        return PyUnicode_DecodeUTF8(data, length, NULL)
    # Decoded first: json.loads would guess another encoding for bytes that contain a NUL.
    return json.loads('"' + PyUnicode_DecodeUTF8(data, length, NULL) + '"', strict=False)


cdef object field_value(const HeaderView* view, int field):
    cdef uint64_t bit = <uint64_t>1 << field
    cdef const Slice* slice_ = &view.field[field]
    cdef object text = decode_string(slice_.data, slice_.length, (view.escaped & bit) != 0)
    cdef int kind = _kinds[field]
    if kind == 1 and slice_.length <= 20 and text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    if kind == 2:
        if text == "true":
            return True
        if text == "false":
            return False
    return text


def parse_header(payload):
    """Parse the header at the start of a payload.

    Returns a dictionary of long field names (protocol.md §3.1) and the offset of the body. The value of a numeric field
    is an int if its text is a number, the value of a Boolean field a bool if its text is true or false. Unknown keys
    are omitted; of a repeated key, the last value counts. Raises HeaderError.
    """
    cdef const unsigned char[::1] view
    cdef HeaderView header
    cdef int32_t end
    cdef int field
    cdef dict fields = {}
    view = payload
    if view.shape[0] == 0:
        raise HeaderError("empty payload where a header is expected")
    end = scan_header(<const char*>&view[0], <uint32_t>min(view.shape[0], 0xFFFFFFFF), &header)
    if end < 0:
        raise HeaderError("malformed header: " + repr(bytes(view[:80])))
    try:
        for field in range(FIELD_COUNT):
            if header.present & (<uint64_t>1 << field):
                fields[_long_names[field]] = field_value(&header, field)
    except ValueError as error:
        raise HeaderError(f"malformed header text: {error}") from None
    return fields, end


cdef str _quote(value):
    cdef str text = value
    if text.isascii() and '"' not in text and "\\" not in text and text.isprintable():
        return '"' + text + '"'
    return json.dumps(text, ensure_ascii=False)


def build_header(fields):
    """Build a header from long field names. `cmd` is first; integers and Booleans are bare, other values quoted (D2).

    None values are omitted. Raises KeyError for a name that is no header field.
    """
    cdef list parts = []
    command = fields.get("cmd")
    if command is not None:
        parts.append('"c":' + _quote(command))
    for name, value in fields.items():
        if value is None or name == "cmd":
            continue
        key = _abbreviations[name]
        if value is True:
            parts.append(f'"{key}":true')
        elif value is False:
            parts.append(f'"{key}":false')
        elif isinstance(value, int):
            parts.append(f'"{key}":{value}')
        else:
            parts.append(f'"{key}":{_quote(value)}')
    return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogatepass")


def encode_frame(fields, body=b""):
    """One whole frame: length, header from long field names, body (bytes-like)."""
    header = build_header(fields)
    return (len(header) + len(body)).to_bytes(4, "big") + header + bytes(body)


cdef class FrameDecoder:
    """Cuts a byte stream into payloads. Bytes may arrive split or joined in any way.

    `feed` takes received bytes; `next_frame` returns the payload of the next whole frame as bytes, or None.
    Frames of length 0 are skipped. FrameTooLarge is raised as soon as an oversize length is read.
    """

    cdef bytes _buffer
    cdef Py_ssize_t _at
    cdef list _waiting               # chunks of an incomplete frame
    cdef Py_ssize_t _waiting_bytes
    cdef Py_ssize_t _wanted_bytes
    cdef readonly unsigned long long max_frame_bytes

    def __init__(self, max_frame_bytes=MAX_MESSAGE_BYTES):
        self._buffer = b""
        self._at = 0
        self._waiting = []
        self._waiting_bytes = 0
        self._wanted_bytes = 0
        self.max_frame_bytes = max_frame_bytes

    def feed(self, data):
        """Take received bytes (copied unless `data` is a bytes object)."""
        chunk = data if type(data) is bytes else bytes(data)
        if not chunk:
            return
        if self._waiting_bytes:
            self._waiting.append(chunk)
            self._waiting_bytes += len(chunk)
            if self._waiting_bytes < self._wanted_bytes:
                return
            chunk = b"".join(self._waiting)
            self._waiting = []
            self._waiting_bytes = 0
        elif self._at < PyBytes_GET_SIZE(self._buffer):
            chunk = self._buffer[self._at:] + chunk
        self._buffer = chunk
        self._at = 0

    @property
    def buffered_bytes(self):
        """The number of bytes taken and not yet returned in a frame."""
        return self._waiting_bytes + PyBytes_GET_SIZE(self._buffer) - self._at

    def next_frame(self):
        """The payload of the next whole frame, or None while the frame is incomplete. Raises FrameTooLarge."""
        cdef Py_ssize_t left
        cdef const unsigned char* data
        cdef Py_ssize_t length
        while True:
            left = PyBytes_GET_SIZE(self._buffer) - self._at
            if left < 4:
                return None
            data = <const unsigned char*>PyBytes_AS_STRING(self._buffer) + self._at
            length = (<Py_ssize_t>data[0] << 24) | (data[1] << 16) | (data[2] << 8) | data[3]
            if <unsigned long long>length > self.max_frame_bytes:
                raise FrameTooLarge(f"frame of {length} bytes is over the limit of {self.max_frame_bytes}")
            if left < 4 + length:
                # Collect the rest in a list, so that a large frame is joined once, not at each chunk.
                self._waiting = [self._buffer[self._at:]]
                self._waiting_bytes = left
                self._wanted_bytes = 4 + length
                self._buffer = b""
                self._at = 0
                return None
            self._at += 4 + length
            if length:
                return PyBytes_FromStringAndSize(<const char*>data + 4, length)
