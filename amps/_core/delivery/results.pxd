# The results of queries of SOW topics. See delivery/result_frames.pxi.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.delivery.output cimport OutputBuffer
from amps._core.expressions.machine cimport FilterSet
from amps._core.journal.record cimport RecordHeader
from amps._core.sow.ranking cimport Ranking
from amps._core.sow.slots cimport KeySlot
from amps._core.sow.table cimport StateReader
from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer
from amps._core.wire.topics cimport TopicEntry


@cython.final
cdef class ResultFrames:
    cdef OutputBuffer output
    cdef bytes beginning           # of a frame's header, up to the query id
    cdef ByteBuffer frame          # room for the header, then the records of the frame
    cdef uint64_t head_room
    cdef uint32_t batch_size
    cdef uint32_t count            # records in `frame`
    cdef uint64_t first_ns         # time of the first of them
    cdef bint with_timestamp
    cdef bint with_key
    cdef bint apart                # each record is a message of its own, not part of a batch
    cdef Documents documents
    cdef Selection selection       # None: whole messages
    cdef ByteBuffer selected
    cdef uint64_t skip_count       # records that are still to be skipped
    cdef uint64_t row_limit        # records that may still be returned
    cdef readonly uint64_t returned
    cdef readonly uint64_t frames

    cdef int put(
        self, const uint8_t* key, uint64_t key_length, const uint8_t* correlation, uint64_t correlation_length,
        uint64_t timestamp_ns, uint64_t deliver_at_ns, const uint8_t* payload, uint64_t length
    ) except -1
    cdef int put_record(self, uint64_t key, const RecordHeader* record) except -1
    cdef int finish_frame(self) except -1
    cdef int put_apart(
        self, const uint8_t* key, uint64_t key_length, const uint8_t* correlation, uint64_t correlation_length,
        uint64_t timestamp_ns, const uint8_t* payload, uint64_t length
    ) except -1
    cdef uint8_t* write_facts(
        self, uint8_t* at, const uint8_t* key, uint64_t key_length, const uint8_t* correlation,
        uint64_t correlation_length, uint64_t timestamp_ns
    ) noexcept nogil


# See delivery/state_scan.pxi.


cdef enum:
    WINDOW_SLOTS = 32


# A slot that is about to be looked at.
cdef struct SlotFound:
    KeySlot slot
    const RecordHeader* record     # its value at the snapshot, if that is known without reading; else NULL


@cython.final
cdef class StateScan:
    cdef StateReader reader
    cdef TopicEntry entry          # of the record that is looked at
    cdef list logical              # of a topic with Pattern: by number (TopicEntry, beginning of its frames); or None
    cdef FilterSet filters         # a set with one filter; None: every record matches
    cdef FilterSet excluded        # records that match its filter are counted, but not taken; None: none are excluded
    cdef ResultFrames frames       # None: records are collected
    cdef Ranking ranking           # takes the records instead; None
    cdef bint counts_all           # go on when the limit of `frames` is reached
    cdef bint collects_rows
    cdef list rows
    cdef dict found_keys           # by number of the logical topic: RequestedKeys, in a bytearray
    cdef bint collects_keys
    cdef uint64_t[:] keys          # the keys to look up; None: all
    cdef uint64_t next             # slot, or index in `keys`
    cdef uint64_t end
    cdef SlotFound[32] window      # WINDOW_SLOTS
    cdef uint32_t window_count
    cdef uint32_t window_at
    cdef KeySlot* unwritten        # copies of slots whose records are not written yet
    cdef uint64_t unwritten_count
    cdef uint64_t unwritten_capacity
    cdef uint64_t unwritten_at
    cdef readonly uint64_t txid
    cdef readonly uint64_t compared
    cdef readonly uint64_t matched

    cdef int fill_window(self) except -1
    cdef bint copy_next(self, KeySlot* slot) noexcept
    cdef int look(self, SlotFound* found, uint64_t written) except -1
    cdef int take(self, const KeySlot* slot, const RecordHeader* record) except -1
    cdef int keep_unwritten(self, const KeySlot* slot) except -1


cdef bint matches_value(FilterSet filters, TopicEntry entry, const RecordHeader* record) except -1
