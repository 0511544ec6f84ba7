# See record_search.pyx.

from libc.stdint cimport uint8_t, uint64_t

from amps._core.record cimport RecordHeader


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

    cdef bint matches(self, const RecordHeader* record, uint64_t number, uint8_t topic_flags)
    cdef bint from_publisher(self, const RecordHeader* record)
    cdef bint holds_text(self, const RecordHeader* record)


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
