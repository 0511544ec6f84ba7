# The topic index of a full journal: the offsets of the entries of each topic, so that a reader can skip other entries.
#
# It is made by one walk through its journal, whenever there is time for it. It is a cache: without it a reader reads
# the whole journal. Layout, all numbers little-endian: a header of 64 bytes; one row of 40 bytes per topic, by topic
# id; the file offsets of the entries of each topic, ascending, in units of 8 bytes (4 bytes each); zeros up to a
# multiple of 8; message type and topic of each row in UTF-8.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

import numpy

from amps._core.shm.platform cimport crc32c
from amps._core.journal.record cimport RecordHeader

from amps._core.journal.writer import IndexDamaged

cdef enum:
    HEADER_BYTES = 64
    ROW_BYTES = 40
    CHECKED_FROM = 16

MAGIC = b"AMPSOTIX"
VERSION = 1
FILE_BYTES_MAX = 1 << 35
HEADER_DTYPE = numpy.dtype([
    ("magic", "S8"), ("version", "<u4"), ("checksum", "<u4"), ("file_number", "<u8"), ("start_position", "<u8"),
    ("file_size", "<u8"), ("topic_count", "<u8"), ("offset_count", "<u8"), ("text_bytes", "<u8"),
])
ROW_DTYPE = numpy.dtype([
    ("hash", "<u8"), ("first_offset", "<u8"), ("offset_count", "<u8"), ("first_text", "<u8"), ("type_bytes", "<u4"),
    ("topic_bytes", "<u4"),
])


cdef struct TopicOffsets:
    uint32_t* offsets                  # in units of 8 bytes
    uint64_t count
    uint64_t capacity


cdef class TopicIndexBuilder:
    """Makes the topic index of a journal from a walker whose search matches every entry, no-op records included."""

    cdef TopicOffsets* topics
    cdef uint64_t topic_count
    cdef RecordWalker _walker

    def __cinit__(self):
        self.topics = NULL
        self.topic_count = 0

    def __init__(self, RecordWalker walker):
        self._walker = walker

    def __dealloc__(self):
        cdef uint64_t index
        for index in range(self.topic_count):
            free(self.topics[index].offsets)
        free(self.topics)

    cdef int _add(self, uint32_t topic_id, uint64_t offset) except -1:
        cdef TopicOffsets* topics
        cdef TopicOffsets* topic
        cdef uint32_t* offsets
        cdef uint64_t capacity
        if topic_id >= self.topic_count:
            topics = <TopicOffsets*>realloc(self.topics, (<uint64_t>topic_id + 1) * sizeof(TopicOffsets))
            if topics == NULL:
                raise MemoryError()
            self.topics = topics
            while self.topic_count <= topic_id:
                topics[self.topic_count] = TopicOffsets(NULL, 0, 0)
                self.topic_count += 1
        topic = &self.topics[topic_id]
        if topic.count == topic.capacity:
            capacity = max(<uint64_t>16, topic.capacity + topic.capacity // 2)
            offsets = <uint32_t*>realloc(topic.offsets, capacity * sizeof(uint32_t))
            if offsets == NULL:
                raise MemoryError()
            topic.offsets = offsets
            topic.capacity = capacity
        topic.offsets[topic.count] = <uint32_t>(offset // 8)
        topic.count += 1
        return 0

    cdef bytes _offsets_of(self, uint64_t topic_id):
        if topic_id >= self.topic_count or not self.topics[topic_id].count:
            return b""
        return (<const char*>self.topics[topic_id].offsets)[: self.topics[topic_id].count * sizeof(uint32_t)]

    def advance(self, uint64_t byte_count):
        """Walk through about `byte_count` more bytes of the journal. False: the walk is over, at the end or at damage.

        Raises ValueError if the journal is too long for a topic index.
        """
        cdef RecordWalker walker = self._walker
        cdef const RecordHeader* record
        cdef uint64_t end = walker.end_offset + byte_count
        cdef uint64_t offset
        while walker.next_match():
            record = walker.current()
            offset = walker._window_offset + walker._place
            if offset > FILE_BYTES_MAX:
                raise ValueError(f"a journal of more than {FILE_BYTES_MAX} bytes cannot have a topic index")
            self._add(record.topic_id, offset)
            if offset >= end:
                return True
        return False

    def to_bytes(self, uint64_t file_number, uint64_t start_position, uint64_t file_size):
        """The index of the entries walked through. The caller checks that the walk covered all of a full journal."""
        topics = self._walker.topics
        rows = numpy.zeros(len(topics), ROW_DTYPE)
        texts = []
        offsets = []
        first_offset = first_text = 0
        for topic_id, (topic, message_type, topic_hash, _) in enumerate(topics):
            part = self._offsets_of(topic_id)
            count = len(part) // sizeof(uint32_t)
            rows[topic_id] = (topic_hash, first_offset, count, first_text, len(message_type), len(topic))
            first_offset += count
            first_text += len(message_type) + len(topic)
            offsets.append(part)
            texts += (message_type, topic)
        if first_offset % 2:
            offsets.append(bytes(4))
        header = numpy.zeros((), HEADER_DTYPE)
        header[()] = (MAGIC, VERSION, 0, file_number, start_position, file_size, len(rows), first_offset, first_text)
        cdef bytes body = b"".join((header.tobytes()[CHECKED_FROM:], rows.tobytes(), *offsets, *texts))
        header["checksum"] = crc32c(<const char*>body, len(body))
        return header.tobytes()[:CHECKED_FROM] + body


cdef class TopicIndexReader:
    """Reads a topic index. Topic ids are those of its journal."""

    def __init__(self, memory):
        """Check and open an index. memory: the content of the file. Raises IndexDamaged."""
        cdef const unsigned char[::1] view
        cdef const unsigned char* checked
        cdef uint32_t found
        cdef uint64_t size = <uint64_t>len(memory)
        if size < HEADER_BYTES:
            raise IndexDamaged("shorter than its header")
        view = memory
        header = numpy.frombuffer(memory, HEADER_DTYPE, 1)[0]
        if header["magic"] != MAGIC or header["version"] != VERSION:
            raise IndexDamaged("no topic index of a known version")
        topic_count, offset_count, text_bytes = (
            int(header[name]) for name in ("topic_count", "offset_count", "text_bytes")
        )
        rows_end = HEADER_BYTES + topic_count * ROW_BYTES
        text_start = rows_end + (offset_count + 1) // 2 * 8
        if text_start + text_bytes != size:
            raise IndexDamaged("its length differs from the length in its header")
        checked = &view[CHECKED_FROM]
        with nogil:
            found = crc32c(checked, size - CHECKED_FROM)
        if found != <uint32_t>header["checksum"]:
            raise IndexDamaged("checksum does not match")
        rows = numpy.frombuffer(memory, ROW_DTYPE, topic_count, HEADER_BYTES)
        lengths = rows["type_bytes"].astype("<u8") + rows["topic_bytes"]
        if (
            (rows["first_offset"] > offset_count).any() or (rows["offset_count"] > offset_count).any()
            or (rows["first_offset"] + rows["offset_count"] > offset_count).any()
            or (rows["first_text"] > text_bytes).any() or (lengths > text_bytes).any()
            or (rows["first_text"] + lengths > text_bytes).any()
        ):
            raise IndexDamaged("the entries of a topic are outside the file")
        self._memory = memory
        self._rows = rows
        self._texts = <const char*>&view[0] + <uint64_t>text_start
        self.rows = <const TopicRow*>(&view[0] + HEADER_BYTES)
        self.places = <const uint32_t*>(&view[0] + <uint64_t>rows_end)
        self.topic_count = topic_count
        self.entry_count = offset_count
        self.file_number = header["file_number"]
        self.start_position = header["start_position"]
        self.file_size = header["file_size"]

    def topics(self):
        """[(topic, message type, hash)] by topic id; names as bytes."""
        return [(*self.names(topic_id), self.rows[topic_id].hash) for topic_id in range(self.topic_count)]

    cdef tuple names(self, uint64_t topic_id):
        """(topic, message type) as bytes."""
        cdef const TopicRow* row = &self.rows[topic_id]
        cdef const char* text = self._texts + row.first_text
        return (text + row.type_bytes)[: row.topic_bytes], text[: row.type_bytes]

    def offsets(self, uint64_t topic_id):
        """File offsets of the entries of a topic, ascending, as a numpy array. Raises IndexError."""
        row = self._rows[topic_id]
        rows_end = HEADER_BYTES + self.topic_count * ROW_BYTES
        first = rows_end + int(row["first_offset"]) * 4
        return numpy.frombuffer(self._memory, "<u4", int(row["offset_count"]), first).astype("<u8") * 8

    def blocks(self, uint64_t topic_id, uint64_t block_bytes):
        """File offsets of the blocks of that size in which entries of a topic begin, ascending. Raises IndexError."""
        return numpy.unique(self.offsets(topic_id) // block_bytes) * block_bytes

    cdef uint64_t first_from(self, uint64_t topic_id, uint64_t offset) noexcept nogil:
        """Index into `places` of the first entry of a topic at or after a file offset."""
        cdef const TopicRow* row = &self.rows[topic_id]
        cdef uint64_t wanted = (offset + 7) // 8
        cdef uint64_t low = row.first_offset
        cdef uint64_t high = row.first_offset + row.offset_count
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.places[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        return low
