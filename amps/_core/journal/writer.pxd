# See journal/bookmark_index.pxi.

from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.journal.index cimport IndexBlock, IndexEntry, IndexHeader
from amps._core.journal.record cimport RECORD_HEADER_BYTES, RecordHeader


cdef struct MapSlot:
    uint64_t key                   # 0 = free
    uint64_t value


cdef class PublisherMap:
    """Open-addressing map from a publisher id to a number; grows, never shrinks."""

    cdef MapSlot* slots
    cdef uint64_t capacity
    cdef readonly uint64_t count

    cdef uint64_t* find(self, uint64_t key) noexcept nogil
    cdef uint64_t* insert(self, uint64_t key) except NULL


cdef struct BuilderPublisher:
    uint64_t publisher_id
    uint64_t first_sequence
    uint64_t last_sequence
    uint64_t last_timestamp_ns
    uint64_t block                 # block of `entry`; -1 = none yet
    uint64_t entry


cdef class IndexBuilder:
    cdef object _memory
    cdef IndexHeader* header
    cdef IndexBlock* blocks
    cdef IndexEntry* entries
    cdef PublisherMap _map
    cdef BuilderPublisher* publishers
    cdef uint64_t publisher_count
    cdef uint64_t publisher_capacity
    cdef uint64_t[2] cached_id     # of the last record: its publisher, its upstream
    cdef uint64_t[2] cached_index
    cdef uint64_t current_block
    cdef uint32_t entries_in_block
    cdef uint64_t group_end        # file offset of the end of the last transaction

    cdef int add(self, const RecordHeader* record, uint64_t offset) except -1
    cdef int _add_publisher(
        self, uint32_t role, uint64_t publisher_id, uint64_t sequence, uint64_t timestamp_ns
    ) except -1


# See journal/append.pxi.


cdef struct TopicPlace:
    uint64_t file_plus_one         # number of the file in which the topic has a record, + 1
    uint32_t topic_id              # id of the topic in that file


cdef class LogWriter:
    """Appends records to one log, with its files, topic and name records, and the index of the file in use."""

    cdef readonly object storage
    cdef readonly bint indexed
    cdef readonly IndexBuilder index
    cdef readonly uint64_t number
    cdef readonly uint64_t start_position
    cdef readonly uint64_t size
    cdef readonly uint64_t position        # log position after the last record written
    cdef TopicPlace* places                # by the core's topic number
    cdef uint32_t place_capacity
    cdef uint32_t next_topic_id
    cdef uint64_t last_topic_offset
    cdef uint64_t last_name_offset
    cdef uint64_t last_refused_offset      # of the last record of a refused transaction; 0 = none
    cdef set name_ids                      # name ids with a name record in the file in use
    cdef bint has_file
    cdef bint lacks_large                  # after `may_rotate`: only a file of the requested size is missing

    cdef inline bint has_room(self, uint64_t pending_bytes, uint64_t need_bytes) noexcept nogil:
        """Whether the file in use takes `need_bytes` behind `pending_bytes` that are not written yet, and then the
        end-of-file record. If not, it is full.
        """
        return (
            self.position - self.start_position + pending_bytes + need_bytes + RECORD_HEADER_BYTES <= self.size
        )

    cdef int _grow(self, uint32_t topic) except -1
    cdef int _use_file(
        self, uint64_t number, uint64_t start_position, uint64_t minimum_bytes, uint64_t first_txid
    ) except -1
    cdef bint may_rotate(self, uint64_t minimum_bytes) except -1
    cdef int rotate(self, uint64_t minimum_bytes, uint64_t txid, uint64_t now_ns, uint64_t durable) except -1
    cdef int write(self, const uint8_t* data, uint64_t length) except -1
    cdef int name_topic(self, uint32_t topic, bytes message_type, bytes name, uint64_t hash_, uint64_t txid,
                        uint64_t now_ns, uint64_t durable) except -1
    cdef int write_name(self, uint32_t name_class, uint64_t name_id, bytes text, uint64_t txid, uint64_t now_ns,
                        uint64_t durable) except -1
