# Walking through the records of one journal file, for tools. Python objects are made only for records that match.
#
# A `RecordWalker` reads a file through a moving window. So a file of any size, plain or from a decompressor, needs a
# few MiB of memory. A larger record needs more, but only as its bytes are actually read. The file is not mapped: a file
# that is truncated while it is read causes an error here, not a signal.
#
# The checksum of every record is verified. The walk ends at the first place without an intact record. `problem`
# describes the damage there, or is None if the rest of the file is zeros, as in a journal in use. Lengths in the file
# are used only after a check against the file's size, so a walk ends whatever the bytes are.
#
# Topic, name, transaction and end-of-file records are bookkeeping of the file. All others are *entries*, numbered from
# 0. The entries of a transaction's group know their place in it.

from cpython.buffer cimport PyBUF_WRITE
from cpython.exc cimport PyErr_CheckSignals
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from amps._core.journal.reader cimport name_of_record, name_record_fits
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_DELIVER_AT,
    EXTENSION_PATH,
    EXTENSION_SOURCE,
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_NOOP,
    KIND_TOPIC,
    KIND_TRANSACTION,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    TransactionGroup,
    RecordHeader,
    RecordState,
    align8,
    extension_word,
    record_client_id,
    record_correlation_id,
    record_expiry_ns,
    record_payload,
    record_plausible,
    record_sound,
    record_sow_key,
    record_state,
    record_user_id,
    transaction_group,
)

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t length, const void* needle, size_t needle_length)

cdef enum:
    WINDOW_BYTES = 1 << 21
    TOPIC_FLAG_WANTED = 1
    TOPIC_FLAG_HOLDS_TEXT = 2

TOPIC_WANTED = TOPIC_FLAG_WANTED
TOPIC_HOLDS_TEXT = TOPIC_FLAG_HOLDS_TEXT
NO_LIMIT = 0xFFFFFFFFFFFFFFFF
NOTHING = b""


cdef class RecordSearch:

    def __cinit__(self):
        self.publishers = NULL

    def __init__(self, publishers=(), bookmark=None, txid=None, texts=(), whole_record=False, text_bookmark=None,
                 topic_flags=None, first_number=0, end_number=NO_LIMIT, include_noops=False):
        """Conditions on an entry. A condition that is left out holds for every entry.

        publishers: ids; one of them is the publisher id or, if the server numbered the message, the name id of the
        client. bookmark: (publisher id, sequence). txid: the transaction id. texts: one of them is in the payload (with
        `whole_record`: in the bytes of correlation id, user id, SOW key and payload, in the client name or in the
        replication path), or `text_bookmark` is the bookmark. topic_flags(topic, message_type): the flags of a topic.
        TOPIC_WANTED: its entries can match. TOPIC_HOLDS_TEXT: its entries count as containing one of the texts.
        first_number, end_number: entry numbers, the latter excluded. include_noops: no-op records match too.
        """
        cdef uint64_t index
        self.publisher_count = len(publishers)
        self.publishers = <uint64_t*>malloc((self.publisher_count + 1) * sizeof(uint64_t))
        if self.publishers == NULL:
            raise MemoryError()
        for index in range(self.publisher_count):
            self.publishers[index] = publishers[index]
        self.has_bookmark = bookmark is not None
        if self.has_bookmark:
            self.bookmark_publisher, self.bookmark_sequence = bookmark
        self.has_txid = txid is not None
        if self.has_txid:
            self.txid = txid
        self.needles = [bytes(text) for text in texts]
        self.whole_record = whole_record
        self.has_text_bookmark = text_bookmark is not None
        if self.has_text_bookmark:
            self.text_publisher, self.text_sequence = text_bookmark
        self.topic_flags = topic_flags
        self.first_number = first_number
        self.end_number = end_number
        self.noops = include_noops

    def __dealloc__(self):
        free(self.publishers)

    cdef bint matches(self, const RecordHeader* record, uint64_t number, uint8_t topic_flags, dict names):
        if number < self.first_number or number >= self.end_number:
            return False
        if record.kind == KIND_NOOP and not self.noops:
            return False
        if not topic_flags & TOPIC_FLAG_WANTED:
            return False
        if self.has_txid and record.txid != self.txid:
            return False
        if self.has_bookmark and (
            record.sequence != self.bookmark_sequence or record.publisher_id != self.bookmark_publisher
        ):
            return False
        if self.publisher_count and not self.from_publisher(record):
            return False
        if (self.needles or self.has_text_bookmark) and not topic_flags & TOPIC_FLAG_HOLDS_TEXT:
            return self.holds_text(record, names)
        return True

    cdef bint from_publisher(self, const RecordHeader* record):
        cdef uint64_t client = record_client_id(record)
        cdef uint64_t index
        for index in range(self.publisher_count):
            if self.publishers[index] == record.publisher_id or self.publishers[index] == client:
                return True
        return False

    cdef bint holds_text(self, const RecordHeader* record, dict names):
        cdef const uint8_t* start = record_correlation_id(record) if self.whole_record else record_payload(record)
        cdef uint64_t length = <uint64_t>record.length - <uint64_t>(start - <const uint8_t*>record)
        cdef bytes needle
        if (
            self.has_text_bookmark and record.sequence == self.text_sequence
            and record.publisher_id == self.text_publisher
        ):
            return True
        for needle in self.needles:
            if memmem(start, length, <const char*>needle, len(needle)) != NULL:
                return True
        if self.whole_record:
            name = names.get(record_client_id(record), NOTHING)
            path = names.get(extension_word(record, EXTENSION_PATH, 0), NOTHING)
            for needle in self.needles:
                if needle in name or needle in path:
                    return True
        return False


cdef inline bint all_zero(const uint8_t* data, uint64_t length) noexcept nogil:
    cdef uint64_t index = 0
    while index + 8 <= length:
        if (<const uint64_t*>(data + index))[0]:
            return False
        index += 8
    while index < length:
        if data[index]:
            return False
        index += 1
    return True


cdef class RecordWalker:

    def __cinit__(self):
        self._window = NULL
        self._topic_flags = NULL

    def __init__(self, source, uint64_t file_size, uint64_t start_position, RecordSearch search):
        """source: has `readinto`, and is positioned behind the header. file_size, start_position: as in the header."""
        if file_size < FILE_HEADER_BYTES:
            raise ValueError("a journal file is longer than its header")
        self._source = source
        self._search = search
        self._file_size = file_size
        self._start_position = start_position
        self._capacity = WINDOW_BYTES
        self._window = <uint8_t*>malloc(self._capacity)
        if self._window == NULL:
            raise MemoryError()
        self._window_offset = FILE_HEADER_BYTES
        self.end_offset = FILE_HEADER_BYTES
        self.topics = []
        self.names = {}
        self.upstreams = {}
        self.problem = None

    def __dealloc__(self):
        free(self._window)
        free(self._topic_flags)

    cpdef bint next_match(self) except -1:
        """Move to the next entry that matches. Return False if there is none before the end or a problem."""
        cdef const RecordHeader* record
        cdef const TransactionGroup* group
        cdef uint8_t flags
        while True:
            record = self._step()
            if record == NULL:
                return False
            if record.kind == KIND_TOPIC:
                if not self._learn_topic(record):
                    return False
                continue
            if record.kind == KIND_NAME:
                if not name_record_fits(record):
                    return self._fail(self.offset, "malformed name record")
                _, name_id, text = name_of_record(record)
                self.names[name_id] = text
                continue
            if record.kind == KIND_TRANSACTION:
                group = transaction_group(record)
                if group == NULL:
                    return self._fail(self.offset, "malformed transaction record")
                self._group_offset = self.offset
                self._group_count = group.count
                self._group_place = 0
                continue
            if self._group_place < self._group_count:
                self._group_place += 1
            else:
                self._group_count = self._group_place = 0
            if record.kind == KIND_END_OF_FILE:
                self.finished = True
                self._done = True
                return False
            if record.topic_id >= <uint64_t>len(self.topics):
                return self._fail(self.offset, "the record's topic is not named before it")
            self.previous_txid = self._current_txid
            self.previous_byte_count = self._current_entry_bytes
            self._current_txid = record.txid
            self._current_entry_bytes = self._current_bytes
            self.entry_count += 1
            if self.entry_count == 1:
                self.first_txid = record.txid
                self.first_timestamp_ns = record.timestamp_ns
            self.last_txid = record.txid
            self.last_timestamp_ns = record.timestamp_ns
            if record.extension_length:
                self._note_upstream(record)
            if self.entry_count > self._search.end_number:
                self._done = True
                return False
            flags = self._topic_flags[record.topic_id]
            if self._search.matches(record, self.entry_count - 1, flags, self.names):
                return True

    cdef int _note_upstream(self, const RecordHeader* record) except -1:
        upstream = extension_word(record, EXTENSION_SOURCE, 0)
        if upstream:
            txid = extension_word(record, EXTENSION_SOURCE, 1)
            self.upstreams[upstream] = (self.upstreams.get(upstream, (txid,))[0], txid)
        return 0

    @property
    def offset(self):
        """File offset of the current record."""
        return self._window_offset + self._place

    def fields(self, bint with_payload):
        """The fields of the current entry, in the order of `amps.journal.entries.Entry`. Raises ValueError."""
        cdef const RecordHeader* record = self.current()
        cdef const RecordState* state
        if record == NULL:
            raise ValueError("there is no current entry")
        topic, message_type, topic_hash, _ = self.topics[record.topic_id]
        source_txid = extension_word(record, EXTENSION_SOURCE, 1)
        state = record_state(record)
        previous = state.previous if state != NULL else 0
        expiry_ns = record_expiry_ns(record)
        return (
            self.entry_count - 1, self.offset, self._current_bytes, record.checksum, record.kind, record.flags,
            record.txid, self.previous_txid,
            source_txid if source_txid else extension_word(record, EXTENSION_CLIENT, 0),
            extension_word(record, EXTENSION_SOURCE, 0), record.publisher_id, record.sequence, topic_hash,
            None if expiry_ns == 0 or expiry_ns == NO_LIMIT else expiry_ns, record.timestamp_ns,
            self.previous_byte_count, topic, message_type, record.payload_length,
            (<const char*>record_payload(record))[: record.payload_length] if with_payload else NOTHING,
            (<const char*>record_correlation_id(record))[: record.correlation_id_length],
            (<const char*>record_user_id(record))[: record.user_id_length],
            (<const char*>record_sow_key(record))[: record.sow_key_length],
            self.names.get(record_client_id(record), NOTHING),
            self.names.get(extension_word(record, EXTENSION_PATH, 0), NOTHING),
            previous if previous else None,
            record_client_id(record),
            extension_word(record, EXTENSION_DELIVER_AT, 0) or None,
            (self._group_place, self._group_count) if self._group_count else None,
            self.names.get(extension_word(record, EXTENSION_SOURCE, 0), NOTHING),
        )

    cdef const RecordHeader* current(self) noexcept:
        if self._done or not self._current_bytes:
            return NULL
        return <const RecordHeader*>(self._window + self._place)

    cdef bint _fail(self, uint64_t offset, str text):
        self.problem = (offset, text)
        self._done = True
        return False

    cdef const RecordHeader* _step(self) except? NULL:
        """The next record, checked; NULL behind the last intact record."""
        cdef const RecordHeader* record
        cdef uint64_t offset
        cdef uint64_t room
        if self._done:
            return NULL
        self._place += self._current_bytes
        self._current_bytes = 0
        offset = self._window_offset + self._place
        self.end_offset = offset
        room = self._file_size - offset
        if room < RECORD_HEADER_BYTES or not self._have(RECORD_HEADER_BYTES):
            self._read_tail()
            return NULL
        record = <const RecordHeader*>(self._window + self._place)
        if not record_plausible(record, self._start_position + offset, room):
            self._read_tail()
            return NULL
        if not self._have(align8(record.length)):
            self._fail(offset, "the file is cut off within a record")
            return NULL
        record = <const RecordHeader*>(self._window + self._place)
        if not record_sound(record):
            self._fail(offset, "the checksum of the record does not match")
            return NULL
        self._current_bytes = align8(record.length)
        return record

    cdef bint _have(self, uint64_t needed) except -1:
        """True if at least `needed` bytes follow; the window holds them then. The window may have moved."""
        while self._filled - self._place < needed:
            if self._source_ended:
                return False
            self._refill(needed)
        return True

    cdef int _refill(self, uint64_t needed) except -1:
        cdef uint8_t* grown
        cdef uint64_t wanted
        PyErr_CheckSignals()
        if self._place:
            memmove(self._window, self._window + self._place, self._filled - self._place)
            self._window_offset += self._place
            self._filled -= self._place
            self._place = 0
        if self._filled == self._capacity:
            grown = <uint8_t*>realloc(self._window, min(max(needed, WINDOW_BYTES), self._capacity * 2))
            if grown == NULL:
                raise MemoryError()
            self._window = grown
            self._capacity = min(max(needed, WINDOW_BYTES), self._capacity * 2)
        wanted = min(self._capacity - self._filled, self._file_size - self._window_offset - self._filled)
        count = 0
        if wanted:
            view = PyMemoryView_FromMemory(<char*>self._window + self._filled, <Py_ssize_t>wanted, PyBUF_WRITE)
            count = self._source.readinto(view)
        if count:
            self._filled += count
        else:
            self._source_ended = True
        return 0

    cdef int _read_tail(self) except -1:
        """Check that only zeros follow, up to the size in the header, where no record begins. Ends the walk."""
        cdef uint64_t offset = self._window_offset + self._place
        while True:
            if not all_zero(self._window + self._place, self._filled - self._place):
                self._fail(offset, "neither an intact record nor the end of the journal is here")
                return 0
            self._place = self._filled
            if self._source_ended:
                break
            self._refill(0)
        if self._window_offset + self._filled < self._file_size:
            self._fail(
                self._window_offset + self._filled, f"the file ends here, its header says {self._file_size} bytes"
            )
        self._done = True
        return 0

    cdef bint _learn_topic(self, const RecordHeader* record) except -1:
        cdef const uint8_t* payload = record_payload(record)
        cdef uint64_t type_length
        cdef uint64_t topic_length
        cdef uint8_t* grown
        if record.topic_id != <uint64_t>len(self.topics) or record.payload_length < TOPIC_PREFIX_BYTES:
            return self._fail(self.offset, "malformed topic record")
        type_length = (<const uint32_t*>(payload + 16))[0]
        topic_length = (<const uint32_t*>(payload + 20))[0]
        if record.payload_length != TOPIC_PREFIX_BYTES + type_length + topic_length:
            return self._fail(self.offset, "malformed topic record")
        message_type = (<const char*>payload + TOPIC_PREFIX_BYTES)[:type_length]
        topic = (<const char*>payload + TOPIC_PREFIX_BYTES + type_length)[:topic_length]
        if record.topic_id % 256 == 0:
            grown = <uint8_t*>realloc(self._topic_flags, record.topic_id + 256)
            if grown == NULL:
                raise MemoryError()
            self._topic_flags = grown
        flags = TOPIC_WANTED
        if self._search.topic_flags is not None:
            flags = self._search.topic_flags(topic, message_type)
        self._topic_flags[record.topic_id] = <uint8_t>flags
        self.topics.append((topic, message_type, (<const uint64_t*>(payload + 8))[0], self.offset))
        return True
