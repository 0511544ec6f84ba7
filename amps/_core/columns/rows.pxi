# Rows of columns, made from records: buffers in the layout of Apache Arrow, without a Python object per row.
#
# Columns are little-endian numbers, 32-bit offsets and bytes for texts, and one bit per row where values may be
# missing. `take` returns the buffers. Arrow arrays can be made from them without a copy, and this module does not need
# Arrow. Repeated texts (topic, message type, publisher, kind) are formatted once and copied.
#
# Fields of payloads are read into rows of their own while the record is in memory (columns/payload_fields.pxi). The
# payload is not copied if it is not requested as a column.
#
# Records are shown as follows. The kind of a publish that arrived as a delta is delta_publish. The publisher of a
# message that the server numbered is the client's own, not the derived one that is in the bookmark
# (transaction_log.md §4.3). Times are truncated to microseconds, the log's resolution (transaction_log.md §5.2).
#
# Invariant: a row has a value, or a missing one, in every requested column, or the row does not exist.

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from amps._core.journal.record cimport (
    RecordHeader,
    RecordState,
    record_client_id,
    record_correlation_id,
    record_expiry_ns,
    record_payload,
    record_sow_key,
    record_state,
)

cdef enum:
    PUBLISHER_SLOTS = 1024
    TEXT_BYTES_FIRST = 4096        # of a text column before it grows
    READER_COUNT_MAX = 255
    NUMBER_COLUMNS = (
        1 << RECORD_POSITION | 1 << RECORD_TIMESTAMP | 1 << RECORD_SEQUENCE | 1 << RECORD_EXPIRATION | 1 << RECORD_TXID
    )

cdef uint64_t SIGNED_MAX = 0x7FFFFFFFFFFFFFFF
# A record has at most 2**28 bytes, and offsets have 31 bits.
cdef uint64_t TEXT_BYTES_MAX = 1 << 30

COLUMNS = (
    "position", "timestamp", "bookmark", "publisher", "sequence", "topic", "message_type", "kind", "expiration",
    "payload",
)
STATE_COLUMNS = ("sow_key", "txid", "correlation_id")
KINDS = {
    1: "publish", 2: "delta_publish", 3: "sow_delete", 4: "queue_acknowledgement", 5: "queue_expiry",
    6: "ownership_transfer", 7: "checkpoint", 8: "noop", 9: "sow_expiry", 20: "transaction_refused",
}

# By kind; the first name is for kinds that this format does not define.
cdef list _kind_names = [
    (KINDS.get(kind, f"unknown ({kind})") if kind else "unknown").encode() for kind in range(KIND_COUNT)
]
cdef Text[KIND_COUNT] kind_texts


cdef Text text_of(bytes value) except *:
    """A Text that points into the object, which the caller must keep alive."""
    cdef Text text
    text.start = value
    text.length = <uint32_t>len(value)
    return text


cdef int _kind
for _kind in range(KIND_COUNT):
    kind_texts[_kind] = text_of(_kind_names[_kind])


cdef inline uint32_t write_decimal(char* target, uint64_t value) noexcept nogil:
    """Write a number. Return the number of characters, at most 20."""
    cdef char[20] digits
    cdef uint32_t at = 20
    cdef uint32_t length
    while value >= 10:
        at -= 1
        digits[at] = <char>(c"0" + value % 10)
        value //= 10
    at -= 1
    digits[at] = <char>(c"0" + value)
    length = 20 - at
    memcpy(target, &digits[at], length)
    return length


cdef inline bint reserve(TextColumn* column, uint64_t needed) noexcept nogil:
    """Make room for `needed` more bytes. False: out of memory."""
    cdef uint64_t capacity = column.capacity
    cdef uint8_t* grown
    if needed <= capacity - column.used:
        return True
    while capacity - column.used < needed:
        capacity *= 2
    grown = <uint8_t*>realloc(column.data, capacity)
    if grown == NULL:
        return False
    column.data = grown
    column.capacity = capacity
    return True


cdef inline bint put(TextColumn* column, uint64_t row, const void* data, uint64_t length) noexcept nogil:
    """Append the text of a row. False: out of memory."""
    if not reserve(column, length):
        return False
    if length:
        memcpy(column.data + column.used, data, length)
    column.used += length
    column.offsets[row + 1] = <int>column.used
    return True


cdef class Memory:

    def __cinit__(self):
        self.data = NULL
        self.length = 0

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.length, 1, flags)

    def __len__(self):
        return self.length


cdef Memory memory_of(void* data, uint64_t length):
    """A Memory that owns the given block."""
    cdef Memory memory = Memory.__new__(Memory)
    memory.data = data
    memory.length = <Py_ssize_t>length
    return memory


cdef class RecordRows:
    """Rows of records, one batch after the other. See the header of this file."""

    def __cinit__(self):
        self.names = NULL
        self.publishers = NULL
        self.positions = self.timestamps = self.sequences = self.expirations = self.txids = NULL
        self.fields_of_rows = NULL
        memset(self.validity, 0, sizeof(self.validity))
        memset(self.text_columns, 0, sizeof(self.text_columns))

    def __init__(self, columns=COLUMNS, uint64_t rows_max=16384, uint64_t bytes_max=8388608):
        """columns: names from COLUMNS and STATE_COLUMNS. A batch is full when it has rows_max rows, or bytes_max bytes
        of topics and payloads; the last row may exceed that.
        """
        self.columns = 0
        for name in columns:
            self.columns |= 1 << (COLUMNS + STATE_COLUMNS).index(name)
        self.rows_max = max(rows_max, <uint64_t>1)
        self.bytes_max = min(bytes_max, TEXT_BYTES_MAX)
        self.texts = []
        self.readers = []
        self.name_numbers = PublisherMap()
        self.name_capacity = 0
        self.publishers = <PublisherText*>calloc(PUBLISHER_SLOTS, sizeof(PublisherText))
        if self.publishers == NULL:
            raise MemoryError()
        self.allocate()

    cdef int learn_name(self, uint64_t publisher_id, bytes text) except -1:
        """Show publisher `publisher_id` by that name from now on. The first name of a publisher stays."""
        cdef uint64_t number = self.name_numbers.count
        cdef uint64_t capacity
        cdef Text* grown
        if publisher_id == 0 or self.name_numbers.find(publisher_id) != NULL:
            return 0
        if number == self.name_capacity:
            capacity = max(<uint64_t>64, 2 * self.name_capacity)
            grown = <Text*>realloc(self.names, capacity * sizeof(Text))
            if grown == NULL:
                raise MemoryError()
            self.names = grown
            self.name_capacity = capacity
        self.texts.append(text)
        self.names[number] = text_of(text)
        self.name_numbers.insert(publisher_id)[0] = number
        self.publishers[publisher_id % PUBLISHER_SLOTS].publisher_id = 0
        return 0

    def __dealloc__(self):
        self.release()
        free(self.names)
        free(self.publishers)

    cdef void release(self) noexcept:
        """Free the buffers of the batch."""
        cdef int column
        free(self.positions)
        free(self.timestamps)
        free(self.sequences)
        free(self.expirations)
        free(self.txids)
        free(self.fields_of_rows)
        self.positions = self.timestamps = self.sequences = self.expirations = self.txids = NULL
        self.fields_of_rows = NULL
        for column in range(RECORD_COUNT):
            free(self.validity[column])
            free(self.text_columns[column].data)
            free(self.text_columns[column].offsets)
            self.validity[column] = NULL
            self.text_columns[column].data = NULL
            self.text_columns[column].offsets = NULL

    cdef int allocate(self) except -1:
        """Allocate memory for an empty batch. Existing buffers are reused."""
        cdef int column
        cdef TextColumn* texts
        cdef bint complete = True
        self.rows = 0
        self.payload_bytes = 0
        if self.positions == NULL:
            self.positions = <int64_t*>malloc(self.rows_max * sizeof(int64_t))
        if self.timestamps == NULL:
            self.timestamps = <int64_t*>malloc(self.rows_max * sizeof(int64_t))
        if self.sequences == NULL:
            self.sequences = <int64_t*>malloc(self.rows_max * sizeof(int64_t))
        if self.expirations == NULL:
            self.expirations = <int64_t*>malloc(self.rows_max * sizeof(int64_t))
        if self.txids == NULL:
            self.txids = <int64_t*>malloc(self.rows_max * sizeof(int64_t))
        if self.fields_of_rows == NULL:
            self.fields_of_rows = <uint8_t*>malloc(self.rows_max)
        for column in range(RECORD_COUNT):
            texts = &self.text_columns[column]
            if self.validity[column] == NULL:
                self.validity[column] = <uint8_t*>malloc((self.rows_max + 7) // 8)
            if texts.data == NULL:
                texts.capacity = max(texts.capacity, <uint64_t>TEXT_BYTES_FIRST)
                texts.data = <uint8_t*>malloc(texts.capacity)
            if texts.offsets == NULL:
                texts.offsets = <int*>malloc((self.rows_max + 1) * sizeof(int))
            if self.validity[column] == NULL or texts.data == NULL or texts.offsets == NULL:
                complete = False
                continue
            memset(self.validity[column], 0xFF, (self.rows_max + 7) // 8)
            self.null_counts[column] = 0
            texts.offsets[0] = 0
            texts.used = 0
        if not complete or (
            self.positions == NULL or self.timestamps == NULL or self.sequences == NULL or self.expirations == NULL
            or self.txids == NULL or self.fields_of_rows == NULL
        ):
            raise MemoryError()
        return 0

    cdef PublisherText* publisher_text(self, uint64_t publisher_id) noexcept nogil:
        cdef PublisherText* found = &self.publishers[publisher_id % PUBLISHER_SLOTS]
        cdef uint64_t* number
        if found.publisher_id == publisher_id:
            return found
        found.name.length = 0
        number = self.name_numbers.find(publisher_id)
        if number != NULL:
            found.name = self.names[number[0]]
        found.decimal_length = write_decimal(found.decimal, publisher_id)
        found.publisher_id = publisher_id
        return found

    cdef bint is_full(self) noexcept nogil:
        """Whether the batch is full. Columns whose texts are always short are not counted."""
        return self.rows == self.rows_max or self.bytes_max <= (
            self.text_columns[RECORD_TOPIC].used + self.text_columns[RECORD_MESSAGE_TYPE].used
            + self.text_columns[RECORD_PUBLISHER].used + self.text_columns[RECORD_SOW_KEY].used
            + self.text_columns[RECORD_CORRELATION_ID].used + self.payload_bytes
        )

    cdef void set_null(self, int column) noexcept nogil:
        """Mark the value of the current row as missing."""
        self.validity[column][self.rows // 8] &= <uint8_t>~(1 << self.rows % 8)
        self.null_counts[column] += 1

    cdef bint put_bookmark(self, const RecordHeader* record) noexcept nogil:
        cdef char[44] bookmark
        cdef uint32_t length = 0
        cdef PublisherText* publisher
        if record.publisher_id == 0:
            self.set_null(RECORD_BOOKMARK)
        else:
            publisher = self.publisher_text(record.publisher_id)
            memcpy(bookmark, publisher.decimal, publisher.decimal_length)
            length = publisher.decimal_length
            bookmark[length] = c"|"
            length += 1 + write_decimal(&bookmark[length + 1], record.sequence)
            bookmark[length] = c"|"
            length += 1
        return put(&self.text_columns[RECORD_BOOKMARK], self.rows, bookmark, length)

    cdef bint put_publisher(self, const RecordHeader* record) noexcept nogil:
        cdef TextColumn* texts = &self.text_columns[RECORD_PUBLISHER]
        cdef uint64_t client_id = record_client_id(record)
        cdef PublisherText* publisher
        if client_id == 0:
            self.set_null(RECORD_PUBLISHER)
            return put(texts, self.rows, NULL, 0)
        publisher = self.publisher_text(client_id)
        if publisher.name.length:
            return put(texts, self.rows, publisher.name.start, publisher.name.length)
        return put(texts, self.rows, publisher.decimal, publisher.decimal_length)

    cdef bint put_topic(self, int column, const Text* text) noexcept nogil:
        """Append a topic or message type; NULL: it is not known."""
        if text == NULL:
            self.set_null(column)
            return put(&self.text_columns[column], self.rows, NULL, 0)
        return put(&self.text_columns[column], self.rows, text.start, text.length)

    cdef bint put_sow_key(self, const RecordHeader* record) noexcept nogil:
        """Append the key that the publisher gave, or the one that was made, as a number."""
        cdef char[20] decimal
        cdef const RecordState* state = record_state(record)
        cdef TextColumn* texts = &self.text_columns[RECORD_SOW_KEY]
        if record.sow_key_length:
            return put(texts, self.rows, record_sow_key(record), record.sow_key_length)
        if state == NULL:
            self.set_null(RECORD_SOW_KEY)
            return put(texts, self.rows, NULL, 0)
        return put(texts, self.rows, decimal, write_decimal(decimal, state.key))

    cdef bint put_correlation_id(self, const RecordHeader* record) noexcept nogil:
        if record.correlation_id_length == 0:
            self.set_null(RECORD_CORRELATION_ID)
        return put(
            &self.text_columns[RECORD_CORRELATION_ID], self.rows, record_correlation_id(record),
            record.correlation_id_length,
        )

    cdef void put_numbers(self, const RecordHeader* record) noexcept nogil:
        cdef uint64_t row = self.rows
        cdef uint64_t expiry_ns
        self.positions[row] = <int64_t>record.position
        self.timestamps[row] = <int64_t>(record.timestamp_ns // 1000)
        self.sequences[row] = <int64_t>record.sequence
        if record.sequence > SIGNED_MAX:
            self.set_null(RECORD_SEQUENCE)
        self.txids[row] = <int64_t>record.txid
        expiry_ns = record_expiry_ns(record)
        self.expirations[row] = <int64_t>(expiry_ns // 1000)
        if expiry_ns == 0 or expiry_ns > <uint64_t>SIGNED_MAX:
            self.set_null(RECORD_EXPIRATION)

    cdef bint append(self, const RecordHeader* record, uint16_t kind, const TopicState* topic) noexcept nogil:
        """Append a row for a record; the topic may be NULL. False: there is no room, and `check` raises the reason."""
        if not self.put_row(record, kind, topic):
            self.take_back()
            return False
        self.rows += 1
        return True

    cdef void take_back(self) noexcept nogil:
        """Remove the parts of a row for which there was no room, because it may be appended again."""
        cdef uint8_t bit = <uint8_t>(1 << self.rows % 8)
        cdef int column
        for column in range(RECORD_COUNT):
            if not self.columns >> column & 1:
                continue
            if not self.validity[column][self.rows // 8] & bit:
                self.validity[column][self.rows // 8] |= bit
                self.null_counts[column] -= 1
            if not NUMBER_COLUMNS >> column & 1:
                self.text_columns[column].used = <uint64_t>self.text_columns[column].offsets[self.rows]

    cdef bint put_row(self, const RecordHeader* record, uint16_t kind, const TopicState* topic) noexcept nogil:
        """Append all values of the current row. False: there was no room for some of them."""
        cdef uint64_t row = self.rows
        cdef uint8_t reader = topic.fields if topic != NULL else 0
        cdef const Text* shown = &kind_texts[kind if kind < KIND_COUNT else 0]
        self.fields_of_rows[row] = reader
        if self.columns & NUMBER_COLUMNS:
            self.put_numbers(record)
        if self.columns >> RECORD_BOOKMARK & 1 and not self.put_bookmark(record):
            return False
        if self.columns >> RECORD_PUBLISHER & 1 and not self.put_publisher(record):
            return False
        if self.columns >> RECORD_TOPIC & 1 and not self.put_topic(
            RECORD_TOPIC, &topic.topic if topic != NULL else NULL
        ):
            return False
        if self.columns >> RECORD_MESSAGE_TYPE & 1 and not self.put_topic(
            RECORD_MESSAGE_TYPE, &topic.message_type if topic != NULL else NULL
        ):
            return False
        if self.columns >> RECORD_KIND & 1 and not put(
            &self.text_columns[RECORD_KIND], row, shown.start, shown.length
        ):
            return False
        if self.columns >> RECORD_SOW_KEY & 1 and not self.put_sow_key(record):
            return False
        if self.columns >> RECORD_CORRELATION_ID & 1 and not self.put_correlation_id(record):
            return False
        if self.columns >> RECORD_PAYLOAD & 1 and not put(
            &self.text_columns[RECORD_PAYLOAD], row, record_payload(record), record.payload_length
        ):
            return False
        if reader and not add_message(self.reader_rows[reader], record_payload(record), record.payload_length):
            return False
        if reader or self.columns >> RECORD_PAYLOAD & 1:
            self.payload_bytes += record.payload_length
        return True

    def add_reader(self, FieldColumns reader not None):
        """Add a reader of payload fields. Return the number by which topics refer to it."""
        if len(self.readers) == READER_COUNT_MAX:
            raise ValueError(f"a batch has up to {READER_COUNT_MAX} readers of payload fields")
        self.readers.append(reader)
        self.reader_rows[len(self.readers)] = &reader.fields
        return len(self.readers)

    cdef int check(self) except -1:
        """Raise the error for which a row could not be appended."""
        cdef FieldColumns reader
        for reader in self.readers:
            reader.check()
        raise MemoryError()

    def places(self):
        """For each row of the batch, its index in the rows of all readers, where the rows of each reader follow those
        of the previous one (signed, 4 bytes each; -1: no reader). None if the index equals the row everywhere.
        """
        cdef uint64_t row
        cdef uint64_t number
        cdef uint64_t[READER_COUNT_MAX + 1] next_place
        cdef uint64_t taken = 0
        cdef int* places
        for number in range(1, <uint64_t>len(self.readers) + 1):
            next_place[number] = taken
            taken += self.reader_rows[number].root.length
        if taken == self.rows and len(self.readers) == 1:
            return None
        places = <int*>malloc((self.rows + 1) * sizeof(int))
        if places == NULL:
            raise MemoryError()
        memory = memory_of(places, self.rows * sizeof(int))
        for row in range(self.rows):
            number = self.fields_of_rows[row]
            places[row] = -1
            if number:
                places[row] = <int>next_place[number]
                next_place[number] += 1
        return memory

    def take(self):
        """Return the batch and begin an empty one: the number of rows, and by column the buffers of an Arrow array:
        bits of validity or None, offsets or None, values.
        """
        cdef uint64_t rows = self.rows
        cdef int column
        cdef TextColumn* texts
        numbers = {}
        if self.columns >> RECORD_POSITION & 1:
            numbers[RECORD_POSITION] = memory_of(self.positions, rows * sizeof(int64_t))
            self.positions = NULL
        if self.columns >> RECORD_TIMESTAMP & 1:
            numbers[RECORD_TIMESTAMP] = memory_of(self.timestamps, rows * sizeof(int64_t))
            self.timestamps = NULL
        if self.columns >> RECORD_SEQUENCE & 1:
            numbers[RECORD_SEQUENCE] = memory_of(self.sequences, rows * sizeof(int64_t))
            self.sequences = NULL
        if self.columns >> RECORD_EXPIRATION & 1:
            numbers[RECORD_EXPIRATION] = memory_of(self.expirations, rows * sizeof(int64_t))
            self.expirations = NULL
        if self.columns >> RECORD_TXID & 1:
            numbers[RECORD_TXID] = memory_of(self.txids, rows * sizeof(int64_t))
            self.txids = NULL
        buffers = {}
        for column in range(RECORD_COUNT):
            if not self.columns >> column & 1:
                continue
            validity = None
            if self.null_counts[column]:
                validity = memory_of(self.validity[column], (rows + 7) // 8)
                self.validity[column] = NULL
            if column in numbers:
                buffers[(COLUMNS + STATE_COLUMNS)[column]] = (validity, None, numbers[column])
                continue
            texts = &self.text_columns[column]
            buffers[(COLUMNS + STATE_COLUMNS)[column]] = (
                validity, memory_of(texts.offsets, (rows + 1) * sizeof(int)), memory_of(texts.data, texts.used)
            )
            texts.offsets = NULL
            texts.data = NULL
        self.allocate()
        return rows, buffers
