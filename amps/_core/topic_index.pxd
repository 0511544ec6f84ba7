# See topic_index.pyx.

from libc.stdint cimport uint32_t, uint64_t


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
