# See journal/record_search.pxi.

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader


cdef class RecordSearch:
    """Which entries are wanted. All conditions that are given must hold."""

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
    """Goes through the entries of one journal file, from the first on."""

    cdef object _source
    cdef RecordSearch _search
    cdef uint64_t _file_size
    cdef uint64_t _start_position
    cdef uint8_t* _window
    cdef uint64_t _capacity
    cdef uint64_t _window_offset    # file offset of the window's first byte
    cdef uint64_t _place            # in the window: where the current record begins
    cdef uint64_t _filled           # bytes in the window
    cdef uint64_t _current_bytes    # of the current record with its padding; 0 = before the first
    cdef uint64_t _current_txid
    cdef uint64_t _current_entry_bytes
    cdef bint _source_ended
    cdef bint _done
    cdef uint8_t* _topic_flags
    cdef readonly list topics                   # (topic, message type, hash, file offset of its record) by topic id
    cdef readonly dict names                    # name id -> text as bytes, of the name records that were met
    cdef readonly uint64_t end_offset           # file offset after the last intact record
    cdef readonly uint64_t entry_count          # entries met
    cdef readonly uint64_t previous_txid        # of the entry before the current one, 0 = none
    cdef readonly uint64_t previous_byte_count
    cdef readonly uint64_t first_txid
    cdef readonly uint64_t last_txid
    cdef readonly uint64_t first_timestamp_ns
    cdef readonly uint64_t last_timestamp_ns
    cdef readonly bint finished                 # the file's end-of-file record was met
    cdef readonly object problem                # (file offset, text) once damage was met

    cpdef bint next_match(self) except -1
    cdef const RecordHeader* current(self) noexcept     # the record at which `next_match` stopped, else NULL
    cdef bint _fail(self, uint64_t offset, str text)
    cdef const RecordHeader* _step(self) except? NULL
    cdef bint _have(self, uint64_t needed) except -1
    cdef int _refill(self, uint64_t needed) except -1
    cdef int _read_tail(self) except -1
    cdef bint _learn_topic(self, const RecordHeader* record) except -1


# See journal/topic_index.pxi.


cdef packed struct TopicRow:
    uint64_t hash
    uint64_t first_offset              # of its entries: index into `places`
    uint64_t offset_count
    uint64_t first_text
    uint32_t type_bytes
    uint32_t topic_bytes


cdef class TopicIndexReader:
    cdef object __weakref__
    cdef object _memory
    cdef object _rows
    cdef const unsigned char[::1] _view
    cdef uint64_t _text_start
    cdef const TopicRow* rows          # by topic id
    cdef const uint32_t* places        # of the entries of all topics: file offsets in units of 8 bytes
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
    uint32_t place                 # of the topic's next entry: file offset in units of 8 bytes
    uint64_t at                    # of that entry: index into the places of the topic index
    uint64_t end                   # of the topic's entries there


@cython.final
cdef class TopicSteps:
    """The entries of some topics of one full journal, in the order of the file, found without reading it."""

    cdef readonly TopicIndexReader index
    cdef readonly uint64_t limit_offset    # file offset up to which entries may be stepped over
    # choosing
    cdef readonly uint64_t next_topic      # the first topic id that was not looked at
    cdef uint64_t generation               # of the group for which was chosen
    cdef readonly bint prepared
    cdef readonly uint64_t wanted_count    # entries of the chosen topics from the place on at which was chosen
    cdef readonly uint64_t left_count      # entries of all topics from there on
    # merging: a heap, the row with the lowest place first
    cdef Row* rows
    cdef uint64_t row_count
    cdef uint64_t capacity
    # what comes next
    cdef uint64_t batch[STEPS_BATCH]       # file offsets
    cdef uint32_t batch_at
    cdef uint32_t batch_count
    cdef uint32_t batch_max
    cdef uint32_t looks                    # how often was asked what of the batch is not in memory
    cdef uint32_t batch_there              # entries before that one are in memory; all, where nobody looks

    cdef void begin_choice(self, uint64_t generation) noexcept
    cdef object learn_topic(self, LogFile file, object resolver)
    cdef uint64_t left_of_topic(self, uint64_t offset) noexcept nogil
    cdef int choose_topic(self, uint64_t offset) except -1
    cdef void end_choice(self) noexcept
    cdef uint64_t entry_bytes(self) noexcept nogil
    cdef bint fill(self, uint64_t offset) noexcept nogil
    cdef bint next_from(self, uint64_t offset, uint64_t* found) noexcept nogil
