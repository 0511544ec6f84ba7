# See journal/record_search.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader


cdef class RecordSearch:
    """The conditions of a search for entries. An entry matches if all given conditions hold."""

    cdef uint64_t* publishers
    cdef uint64_t publisher_count
    cdef bint has_bookmark
    cdef uint64_t bookmark_publisher
    cdef uint64_t bookmark_sequence
    cdef bint has_txid
    cdef uint64_t txid
    cdef list needles
    cdef bint whole_record
    cdef bint has_text_bookmark
    cdef uint64_t text_publisher
    cdef uint64_t text_sequence
    cdef uint64_t first_number
    cdef uint64_t end_number
    cdef bint noops
    cdef object topic_flags

    cdef bint matches(self, const RecordHeader* record, uint64_t number, uint8_t topic_flags, dict names)
    cdef bint from_publisher(self, const RecordHeader* record)
    cdef bint holds_text(self, const RecordHeader* record, dict names)


cdef class RecordWalker:
    """Iterates over the entries of one journal file, from the first on."""

    cdef object _source
    cdef RecordSearch _search
    cdef uint64_t _file_size
    cdef uint64_t _start_position
    cdef uint8_t* _window
    cdef uint64_t _capacity
    cdef uint64_t _window_offset    # file offset of the window's first byte
    cdef uint64_t _place            # offset of the current record in the window
    cdef uint64_t _filled           # bytes in the window
    cdef uint64_t _current_bytes    # length of the current record with its padding; 0 = before the first record
    cdef uint64_t _current_txid
    cdef uint64_t _current_entry_bytes
    cdef uint64_t _group_offset     # file offset of the last transaction record
    cdef uint32_t _group_count      # records of its group; 0 = the current record is in no group
    cdef uint32_t _group_place      # place of the current record in the group, from 1
    cdef bint _source_ended
    cdef bint _done
    cdef uint8_t* _topic_flags
    cdef readonly list topics                   # (topic, message type, hash, file offset of its record) by topic id
    cdef readonly dict names                    # name id -> text as bytes, of the name records read so far
    cdef readonly dict upstreams   # name id of an upstream -> its first and its last transaction id
    cdef readonly uint64_t end_offset           # file offset after the last intact record
    cdef readonly uint64_t entry_count          # entries read so far
    cdef readonly uint64_t previous_txid        # of the entry before the current one; 0 = none
    cdef readonly uint64_t previous_byte_count
    cdef readonly uint64_t first_txid
    cdef readonly uint64_t last_txid
    cdef readonly uint64_t first_timestamp_ns
    cdef readonly uint64_t last_timestamp_ns
    cdef readonly bint finished                 # the end-of-file record was read
    cdef readonly object problem                # (file offset, text) once damage was found; else None

    cpdef bint next_match(self) except -1
    cdef const RecordHeader* current(self) noexcept     # the record at which `next_match` stopped, or NULL
    cdef int _note_upstream(self, const RecordHeader* record) except -1
    cdef bint _fail(self, uint64_t offset, str text)
    cdef const RecordHeader* _step(self) except? NULL
    cdef bint _have(self, uint64_t needed) except -1
    cdef int _refill(self, uint64_t needed) except -1
    cdef int _read_tail(self) except -1
    cdef bint _learn_topic(self, const RecordHeader* record) except -1


# See journal/topic_index.pxi.


cdef packed struct TopicRow:
    uint64_t hash
    uint64_t first_offset              # index into `places` of its first entry
    uint64_t offset_count
    uint64_t first_text
    uint32_t type_bytes
    uint32_t topic_bytes


cdef class TopicIndexReader:
    cdef object __weakref__
    cdef object _memory
    cdef object _rows
    cdef const char* _texts            # in `_memory`, which `_rows` holds
    cdef const TopicRow* rows          # by topic id
    cdef const uint32_t* places        # file offsets of the entries of all topics, in units of 8 bytes
    cdef readonly uint64_t topic_count
    cdef readonly uint64_t entry_count
    cdef readonly uint64_t file_number
    cdef readonly uint64_t start_position
    cdef readonly uint64_t file_size

    cdef uint64_t first_from(self, uint64_t topic_id, uint64_t offset) noexcept nogil
    cdef tuple names(self, uint64_t topic_id)


# See journal/topic_steps.pxi.


cdef enum:
    STEPS_BATCH = 1024


cdef struct Row:
    uint32_t place                 # file offset of the topic's next entry, in units of 8 bytes
    uint64_t at                    # index of that entry in `places` of the topic index
    uint64_t end                   # index behind the topic's last entry


@cython.final
cdef class TopicSteps:
    """The entries of some topics of one full journal, in file order, found without reading the journal."""

    cdef readonly TopicIndexReader index
    cdef readonly uint64_t limit_offset    # file offset up to which entries may be skipped
    # Choice of topics
    cdef readonly uint64_t next_topic      # the first topic id that has not been decided
    cdef uint64_t generation               # generation of the group for which the topics are chosen
    cdef readonly bint prepared            # the choice is complete
    cdef readonly uint64_t wanted_count    # entries of the chosen topics, from the offset of the choice on
    cdef readonly uint64_t left_count      # entries of all topics from that offset on
    # Merge: a heap with the lowest place first
    cdef Row* rows
    cdef uint64_t row_count
    cdef uint64_t capacity
    # The next entries
    cdef uint64_t batch[STEPS_BATCH]       # file offsets
    cdef uint32_t batch_at                 # index of the next entry
    cdef uint32_t batch_count
    cdef uint32_t batch_max
    cdef uint32_t looks                    # last check of the batch for missing pages: 0 none, 1 estimated, 2 exact
    cdef uint32_t batch_there              # entries before this index are in memory; `batch_count` without checks

    cdef void begin_choice(self, uint64_t generation) noexcept
    cdef object learn_topic(self, LogFile file, object resolver)
    cdef uint64_t left_of_topic(self, uint64_t offset) noexcept nogil
    cdef int choose_topic(self, uint64_t offset) except -1
    cdef void end_choice(self) noexcept
    cdef uint64_t entry_bytes(self) noexcept nogil
    cdef bint fill(self, uint64_t offset) noexcept nogil
    cdef bint next_from(self, uint64_t offset, uint64_t* found) noexcept nogil
