# See log_writer.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.bookmark_index cimport IndexBuilder


cdef struct TopicPlace:
    uint64_t file_plus_one         # file in which the topic has a record, + 1
    uint32_t topic_id              # its number in that file


cdef class LogWriter:
    """Appends records to one log: where the next one goes, files, topic records, the index of the file in use."""

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
    cdef bint has_file
    cdef bint lacks_large                  # after `may_rotate`: an ordinary file may be there, the large one is not

    cdef int _grow(self, uint32_t topic) except -1
    cdef int _use_file(
        self, uint64_t number, uint64_t start_position, uint64_t minimum_bytes, uint64_t first_txid
    ) except -1
    cdef bint may_rotate(self, uint64_t minimum_bytes) except -1
    cdef int rotate(self, uint64_t minimum_bytes, uint64_t txid, uint64_t now_ns, uint64_t durable) except -1
    cdef int write(self, const uint8_t* data, uint64_t length) except -1
    cdef int name_topic(self, uint32_t topic, bytes message_type, bytes name, uint64_t hash_, uint64_t txid,
                        uint64_t now_ns, uint64_t durable) except -1
