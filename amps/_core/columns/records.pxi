# Walk through the records of journal files, to read them as columns: a DataFrame over a journal.
#
# A `RecordColumns` walks the records of a mapped file (plain or compressed, see journal/file.pxi) that begin in a range
# of file offsets. It skips records that are not selected and makes rows of the others in `batch` (columns/rows.pxi).
# `topic_wanted` is called once per topic and file. The walk runs without the GIL.
#
# Invariants: a row is made only after the checksum of its record was verified. The walk stops at a position without an
# intact record, and the caller decides whether that is the end of the log, an error, or a gap. `search` finds the next
# intact record behind it. Only bytes that have been brought to memory are read.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.journal.reader import FRAME_BYTES as _FRAME_BYTES, LogDamaged, LogUnreadable
from amps._core.journal.reader cimport LogFile, name_of_record, name_record_fits, topic_record_fits
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    FLAG_DELTA,
    KIND_DELTA_PUBLISH,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_NONE,
    KIND_PUBLISH,
    KIND_TOPIC,
    KIND_TRANSACTION,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    RecordHeader,
    align8,
    record_payload,
    record_plausible,
    record_sound,
)

cdef enum:
    # A file has fewer topic records than its size divided by this.
    TOPIC_RECORD_BYTES_MIN = RECORD_HEADER_BYTES + TOPIC_PREFIX_BYTES

cdef uint64_t FRAME_CONTENT_BYTES = _FRAME_BYTES

STOPPED_AT_END = STOP_END
STOPPED_FULL = STOP_FULL
STOPPED_FINISHED = STOP_FINISHED
STOPPED_AT_DAMAGE = STOP_DAMAGE
NO_LIMIT = 0xFFFFFFFFFFFFFFFF
ALL_KINDS = 0xFFFFFFFF


def _both_names(topic, message_type):
    """Both names as the bytes in the file."""
    return topic.encode("utf-8", "surrogatepass"), message_type.encode("utf-8", "surrogatepass")


def _shown_name(text):
    """A name as valid UTF-8, whatever the file holds."""
    try:
        return text.decode("utf-8", "surrogatepass").encode("utf-8", "replace")
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()


cdef inline uint16_t shown_kind(const RecordHeader* record) noexcept nogil:
    if record.kind == KIND_PUBLISH and record.flags & FLAG_DELTA:
        return KIND_DELTA_PUBLISH
    return record.kind


cdef class RecordColumns:
    """Makes rows of one file after the other. See the header of this file."""

    def __cinit__(self):
        self.topics = NULL

    def __init__(self, RecordRows batch, topic_wanted, uint64_t kinds=0xFFFFFFFF, uint64_t first_position=0,
                 uint64_t end_position=0xFFFFFFFFFFFFFFFF, uint64_t first_time_us=0,
                 uint64_t last_time_us=0xFFFFFFFFFFFFFFFF, bint takes_unnamed=False):
        """Select the records that become rows of the batch.

        topic_wanted(topic, message_type), both bytes: returns None if records of the topic are left out, otherwise the
        number of the reader of their payload fields (`RecordRows.add_reader`), or 0 for no reader. kinds: a bit for
        each selected kind. first_position (included), end_position (not included): log positions. first_time_us,
        last_time_us: UNIX microseconds, both included. takes_unnamed: records whose topic no topic record names become
        rows without a topic; otherwise they are left out.
        """
        self.batch = batch
        self.topic_wanted = topic_wanted
        self.kinds = kinds & 0xFFFFFFFF
        self.first_position = first_position
        self.end_position = end_position
        self.first_time_us = first_time_us
        self.last_time_us = last_time_us
        self.takes_unnamed = takes_unnamed
        self.texts = []
        self.topic_count = 0

    def __dealloc__(self):
        free(self.topics)

    def open(self, LogFile file, topics=(), uint64_t last_topic_offset=0, uint64_t last_name_offset=0):
        """Continue with another file.

        topics: (id, topic, message type) of topics named before the range that is read, texts as bytes.
        last_topic_offset, last_name_offset: file offsets from which the chains of topic records and of name records
        are followed backwards; 0: they are not followed. LogDamaged: a record of a chain is not intact; topics and
        names found before it are known.
        """
        cdef uint32_t topic_id
        self.file = file
        self.ready = 0
        self.offset = self.end = FILE_HEADER_BYTES
        self.topic_count = 0
        free(self.topics)
        self.topics = NULL
        for topic_id, topic, message_type in topics:
            self.learn(topic_id, topic, message_type)
        if last_topic_offset:
            try:
                file.learn_topics_before(last_topic_offset, _both_names, 0xFFFFFFFFFFFFFFFF)
            finally:
                for topic_id in range(<uint32_t>len(file.topics)):
                    if file.topics[topic_id] is not None:
                        topic, message_type = file.topics[topic_id]
                        self.learn(topic_id, topic, message_type)
        for name_id, text in file.names_before(last_name_offset).items():
            self.batch.learn_name(name_id, _shown_name(text))

    def seek(self, uint64_t offset, uint64_t end):
        """Continue with the records of the file that begin from `offset` to `end`. A record must begin at `offset`."""
        self.offset = offset
        self.end = min(end, self.file.size)
        self.ready = 0

    cdef int learn(self, uint32_t topic_id, bytes topic, bytes message_type) except -1:
        cdef TopicState* grown
        cdef TopicState* state
        cdef uint64_t count
        if topic_id >= self.topic_count:
            count = max(<uint64_t>topic_id + 1, 2 * self.topic_count)
            grown = <TopicState*>realloc(self.topics, count * sizeof(TopicState))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.topic_count, 0, (count - self.topic_count) * sizeof(TopicState))
            self.topics = grown
            self.topic_count = count
        if self.topics[topic_id].known:
            return 0
        wanted = self.topic_wanted(topic, message_type)
        if wanted is not None and wanted > len(self.batch.readers):
            raise ValueError(f"there is no reader {wanted} of payload fields")
        # The table must not move while it is written, so no Python code may run below this line.
        self.texts.append((topic, message_type))
        state = &self.topics[topic_id]
        state.topic = text_of(topic)
        state.message_type = text_of(message_type)
        state.wanted = wanted is not None
        state.fields = 0 if wanted is None else wanted
        state.known = 1
        return 0

    cdef bint take_topic(self, const RecordHeader* record) except -1:
        """Learn the topic of a topic record. False: the record is not valid."""
        cdef const uint8_t* payload = record_payload(record)
        cdef uint32_t type_length
        cdef uint32_t topic_length
        if not topic_record_fits(record) or record.topic_id > self.file.size // TOPIC_RECORD_BYTES_MIN:
            return False
        type_length = (<const uint32_t*>(payload + 16))[0]
        topic_length = (<const uint32_t*>(payload + 20))[0]
        text = <const char*>payload + TOPIC_PREFIX_BYTES
        self.learn(record.topic_id, (text + type_length)[:topic_length], text[:type_length])
        return True

    cdef bint take_name(self, const RecordHeader* record) except -1:
        """Learn the name of a name record. False: the record is malformed."""
        if not name_record_fits(record):
            return False
        if self.batch.columns >> RECORD_PUBLISHER & 1:
            _, name_id, text = name_of_record(record)
            self.batch.learn_name(name_id, _shown_name(text))
        return True

    def advance(self):
        """Continue until the batch is full or the range ends. Return one of STOPPED_….

        STOPPED_AT_DAMAGE: there is no intact record at `offset`, which does not move. LogDamaged: a compressed file
        cannot be decompressed. LogUnreadable: the file cannot be read.
        """
        cdef Stop stop
        cdef const RecordHeader* record
        while True:
            with nogil:
                stop = self.walk()
            if stop == STOP_MISSING:
                self.ready = self.file.ready_at(self.offset)
            elif stop == STOP_TOPIC:
                record = <const RecordHeader*>(self.file.data + self.offset)
                if not (self.take_name(record) if record.kind == KIND_NAME else self.take_topic(record)):
                    return STOPPED_AT_DAMAGE
                self.bytes_read += align8(record.length)
                self.offset += align8(record.length)
            elif stop == STOP_ROOM:
                self.batch.check()
            else:
                return <int>stop

    cdef Stop walk(self) noexcept nogil:
        cdef const uint8_t* data = self.file.data
        cdef uint64_t size = self.file.size
        cdef uint64_t start_position = self.file.start_position
        cdef const RecordHeader* record
        cdef uint16_t kind
        cdef bint wanted
        while self.offset < self.end:
            if size - self.offset < RECORD_HEADER_BYTES:
                return STOP_DAMAGE
            if self.ready < self.offset + RECORD_HEADER_BYTES:
                return STOP_MISSING
            record = <const RecordHeader*>(data + self.offset)
            if not record_plausible(record, start_position + self.offset, size - self.offset):
                return STOP_DAMAGE
            if self.ready < self.offset + record.length:
                return STOP_MISSING
            if not record_sound(record):
                return STOP_DAMAGE
            self.durable_position = max(self.durable_position, record.durable_position)
            if record.kind == KIND_TOPIC or record.kind == KIND_NAME:
                return STOP_TOPIC
            self.bytes_read += align8(record.length)
            if record.kind == KIND_END_OF_FILE:
                self.offset += align8(record.length)
                return STOP_FINISHED
            if record.kind == KIND_TRANSACTION:
                self.offset += align8(record.length)
                continue
            self.records_read += 1
            kind = shown_kind(record)
            wanted = self.is_wanted(record, kind)
            if wanted and not self.batch.append(record, kind, self.topic_of(record)):
                return STOP_ROOM
            self.offset += align8(record.length)
            if wanted and self.batch.is_full():
                return STOP_FULL
        return STOP_END

    cdef const TopicState* topic_of(self, const RecordHeader* record) noexcept nogil:
        """The topic of a record; NULL: no topic record names it."""
        if record.topic_id >= self.topic_count or not self.topics[record.topic_id].known:
            return NULL
        return &self.topics[record.topic_id]

    cdef bint is_wanted(self, const RecordHeader* record, uint16_t kind) noexcept nogil:
        cdef uint64_t time_us = record.timestamp_ns // 1000
        cdef const TopicState* topic = self.topic_of(record)
        if topic == NULL:
            self.unnamed_records += 1
            if not self.takes_unnamed:
                return False
        elif not topic.wanted:
            return False
        return (
            self.kinds >> (kind if kind < KIND_COUNT else <uint16_t>KIND_NONE) & 1
            and self.first_position <= record.position < self.end_position
            and self.first_time_us <= time_us <= self.last_time_us
        )

    def search(self):
        """Move from damage to the next intact record of the file, or to its end. True: there is an intact record."""
        cdef Stop stop
        self.offset = align8(self.offset + 1)
        while True:
            with nogil:
                stop = self.find_intact()
            if stop != STOP_MISSING:
                return stop == STOP_END
            try:
                self.ready = self.file.ready_at(self.offset)
            except LogUnreadable:
                raise
            except LogDamaged:
                # The frame cannot be decompressed. A record that begins before it and continues in it is lost too.
                self.offset = (self.offset // FRAME_CONTENT_BYTES + 1) * FRAME_CONTENT_BYTES
                self.ready = 0

    cdef Stop find_intact(self) noexcept nogil:
        """STOP_END: there is an intact record at `offset`; STOP_DAMAGE: there is none up to the end of the file."""
        cdef const RecordHeader* record
        cdef uint64_t size = self.file.size
        while self.offset < size and size - self.offset >= RECORD_HEADER_BYTES:
            if self.ready < self.offset + RECORD_HEADER_BYTES:
                return STOP_MISSING
            record = <const RecordHeader*>(self.file.data + self.offset)
            if record_plausible(record, self.file.start_position + self.offset, size - self.offset):
                if self.ready < self.offset + record.length:
                    return STOP_MISSING
                if record_sound(record):
                    self.durable_position = max(self.durable_position, record.durable_position)
                    return STOP_END
            self.offset += 8
        self.offset = size
        return STOP_DAMAGE
