# Writing a log: the position of the next record, the change of files, topic records, the index of the file in use.
#
# The writer lays out the log. It does not decide about messages (sequencer/sequencer.pxi does) and does no I/O itself.
#
# The storage, for the journal and for the transient log alike, has these methods:
#     prepare_file(number, minimum_bytes) -> int | None
#         None if file `number` can be brought into use. Else the size of the smallest file that is not available:
#         0 = no file is, `minimum_bytes` = no file of that size is
#     next_file(number, start_position, minimum_bytes, first_txid) -> (size_bytes, index_memory | None)
#         bring file `number` into use; it is at least `minimum_bytes` long
#     write(offset, memoryview)
#         write bytes at an offset of the file in use; return when readers can see them
#     finish_file(number, index: IndexBuilder | None)
#         note that no more bytes are written to that file
#
# The records of refused transactions form a third chain. The end-of-file record has the offset of the last one in place
# of a sequence; it has no publisher.
#
# Invariant: a topic has a topic record in a file before the first message of the topic there, and a name has a name
# record before the first record that uses its id. The topic records of a file form a chain that readers follow
# backwards from the last one, whose offset is in the index. The name records form a chain of the same kind.

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    NAME_BYTES_MAX,
    NAME_PREFIX_BYTES,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    RecordHeader,
    align8,
    record_checksum,
)


cdef inline uint64_t file_bytes_for(uint64_t content_bytes) noexcept:
    """The smallest size of a file for records of `content_bytes`."""
    return content_bytes + FILE_HEADER_BYTES + 2 * RECORD_HEADER_BYTES


cdef class LogWriter:

    def __cinit__(self):
        self.places = NULL
        self.place_capacity = 0

    def __init__(self, storage, bint indexed):
        self.storage = storage
        self.indexed = indexed
        self.index = None
        self.has_file = False
        self.number = 0
        self.start_position = 0
        self.size = 0
        self.position = 0
        self.next_topic_id = 0
        self.last_topic_offset = 0
        self.last_name_offset = 0
        self.last_refused_offset = 0
        self.name_ids = set()

    def __dealloc__(self):
        free(self.places)

    def open_first(self, uint64_t number, uint64_t start_position, uint64_t first_txid):
        """Begin an empty log with file `number`."""
        self._use_file(number, start_position, 0, first_txid)

    def resume(self, uint64_t number, uint64_t start_position, uint64_t size, uint64_t position, IndexBuilder index,
               uint32_t topic_count, name_ids=(), uint64_t last_refused_offset=0):
        """Continue in a file that recovery has scanned and whose storage is open already.

        The file has topic records for `topic_count` topics and name records for `name_ids`. last_refused_offset: file
        offset of its last record of a refused transaction, 0 = none.
        """
        self.number = number
        self.start_position = start_position
        self.size = size
        self.position = position
        self.index = index
        self.next_topic_id = topic_count
        self.last_topic_offset = index.last_topic_offset if index is not None else 0
        self.last_name_offset = index.last_name_offset if index is not None else 0
        self.name_ids = set(name_ids)
        self.last_refused_offset = last_refused_offset
        self.has_file = True

    def note_topic(self, uint32_t topic, uint32_t topic_id):
        """Note the topic id that a topic of the core has in the resumed file."""
        self._grow(topic)
        self.places[topic].file_plus_one = self.number + 1
        self.places[topic].topic_id = topic_id

    cdef int _grow(self, uint32_t topic) except -1:
        cdef uint32_t capacity
        cdef TopicPlace* grown
        if topic >= self.place_capacity:
            capacity = max(64, max(topic + 1, self.place_capacity * 2))
            grown = <TopicPlace*>realloc(self.places, capacity * sizeof(TopicPlace))
            if grown == NULL:
                raise MemoryError()
            memset(&grown[self.place_capacity], 0, (capacity - self.place_capacity) * sizeof(TopicPlace))
            self.places = grown
            self.place_capacity = capacity
        return 0

    cdef int _use_file(
        self, uint64_t number, uint64_t start_position, uint64_t minimum_bytes, uint64_t first_txid
    ) except -1:
        size, index_memory = self.storage.next_file(
            number, start_position, file_bytes_for(minimum_bytes), first_txid
        )
        self.number = number
        self.start_position = start_position
        self.size = size
        self.position = start_position + FILE_HEADER_BYTES
        self.index = IndexBuilder(index_memory, number, start_position, size) if self.indexed else None
        self.next_topic_id = 0
        self.last_topic_offset = 0
        self.last_name_offset = 0
        self.last_refused_offset = 0
        self.name_ids = set()
        self.has_file = True
        return 0

    cdef bint may_rotate(self, uint64_t minimum_bytes) except -1:
        """True if the next file is available. If not, `lacks_large` is True if only a file of that size is missing."""
        lacking = self.storage.prepare_file(self.number + 1, file_bytes_for(minimum_bytes))
        self.lacks_large = bool(lacking)
        return lacking is None

    cdef int rotate(self, uint64_t minimum_bytes, uint64_t txid, uint64_t now_ns, uint64_t durable) except -1:
        """End the file with an end-of-file record and bring the next one into use. `may_rotate` must have succeeded."""
        cdef RecordHeader record
        memset(&record, 0, sizeof(record))
        record.length = RECORD_HEADER_BYTES
        record.position = self.position
        record.txid = txid
        record.timestamp_ns = now_ns
        record.sequence = self.last_refused_offset
        record.durable_position = durable
        record.expiration_s = NO_EXPIRATION
        record.kind = KIND_END_OF_FILE
        record.checksum = record_checksum(&record)
        self.write(<const uint8_t*>&record, RECORD_HEADER_BYTES)
        self.storage.finish_file(self.number, self.index)
        self._use_file(self.number + 1, self.start_position + self.size, minimum_bytes, txid)
        return 0

    cdef int write(self, const uint8_t* data, uint64_t length) except -1:
        """Write bytes at the position and advance it; `length` is a multiple of 8."""
        self.storage.write(
            self.position - self.start_position, PyMemoryView_FromMemory(<char*>data, <Py_ssize_t>length, PyBUF_READ)
        )
        self.position += length
        return 0

    cdef int name_topic(self, uint32_t topic, bytes message_type, bytes name, uint64_t hash_, uint64_t txid,
                        uint64_t now_ns, uint64_t durable) except -1:
        """Write the topic record that gives the topic an id in this file."""
        cdef uint32_t payload_length = <uint32_t>(TOPIC_PREFIX_BYTES + len(message_type) + len(name))
        cdef uint32_t length = RECORD_HEADER_BYTES + payload_length
        cdef bytearray buffer = bytearray(align8(length))
        cdef RecordHeader* record = <RecordHeader*><char*>buffer
        cdef uint8_t* payload = <uint8_t*>record + RECORD_HEADER_BYTES
        record.length = length
        record.position = self.position
        record.txid = txid
        record.timestamp_ns = now_ns
        record.durable_position = durable
        record.topic_id = self.next_topic_id
        record.expiration_s = NO_EXPIRATION
        record.kind = KIND_TOPIC
        record.payload_length = payload_length
        (<uint64_t*>payload)[0] = self.last_topic_offset
        (<uint64_t*>(payload + 8))[0] = hash_
        (<uint32_t*>(payload + 16))[0] = <uint32_t>len(message_type)
        (<uint32_t*>(payload + 20))[0] = <uint32_t>len(name)
        memcpy(payload + TOPIC_PREFIX_BYTES, <const char*>message_type, len(message_type))
        memcpy(payload + TOPIC_PREFIX_BYTES + len(message_type), <const char*>name, len(name))
        record.checksum = record_checksum(record)
        self.last_topic_offset = self.position - self.start_position
        self.write(<const uint8_t*>record, align8(length))
        if self.index is not None:
            # After the write: readers follow the chain of topic records from the offset in the index.
            self.index.add(record, self.last_topic_offset)
        self._grow(topic)
        self.places[topic].file_plus_one = self.number + 1
        self.places[topic].topic_id = self.next_topic_id
        self.next_topic_id += 1
        return 0

    cdef int write_name(self, uint32_t name_class, uint64_t name_id, bytes text, uint64_t txid, uint64_t now_ns,
                        uint64_t durable) except -1:
        """Write the name record that gives a name id its text in this file; text: at most NAME_BYTES_MAX bytes."""
        cdef uint32_t payload_length = <uint32_t>(NAME_PREFIX_BYTES + len(text))
        cdef uint32_t length = RECORD_HEADER_BYTES + payload_length
        cdef bytearray buffer = bytearray(align8(length))
        cdef RecordHeader* record = <RecordHeader*><char*>buffer
        cdef uint8_t* payload = <uint8_t*>record + RECORD_HEADER_BYTES
        if len(text) > NAME_BYTES_MAX:
            raise ValueError(f"a name of {len(text)} bytes is longer than {NAME_BYTES_MAX}")
        record.length = length
        record.position = self.position
        record.txid = txid
        record.timestamp_ns = now_ns
        record.durable_position = durable
        record.expiration_s = NO_EXPIRATION
        record.kind = KIND_NAME
        record.payload_length = payload_length
        (<uint64_t*>payload)[0] = self.last_name_offset
        (<uint64_t*>(payload + 8))[0] = name_id
        (<uint32_t*>(payload + 16))[0] = name_class
        (<uint32_t*>(payload + 20))[0] = <uint32_t>len(text)
        memcpy(payload + NAME_PREFIX_BYTES, <const char*>text, len(text))
        record.checksum = record_checksum(record)
        self.last_name_offset = self.position - self.start_position
        self.write(<const uint8_t*>record, align8(length))
        if self.index is not None:
            # After the write: readers follow the chain of name records from the offset in the index.
            self.index.add(record, self.last_name_offset)
        self.name_ids.add(name_id)
        return 0
