# The payloads of the frames DATA and NAMES (docs/replication.md), as a source makes them.
#
# A DATA frame carries records of one journal as that journal stores them. A NAMES frame gives the texts of topic ids
# and name ids. It comes before the first DATA frame that uses them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from amps._core.journal.record cimport RecordHeader
from amps._core.shm.platform cimport align8
from amps._core.values.fields cimport ByteBuffer

FRAME_DATA = 0x10
FRAME_ACK = 0x11
FRAME_NAMES = 0x1A
WINDOW_BYTES = 16 << 20
"""Bytes of records that a source may send before the sink grants more."""
BATCH_BYTES = 1 << 20
"""A source ends a DATA frame when its records have that many bytes. One record, or one transaction, may be longer."""

cdef enum:
    BATCH = 1 << 20
    NAME_TOPIC = 0                 # kind of an entry in a NAMES frame; others are a NameClass


cdef packed struct DataHeader:
    uint64_t journal               # number of the journal whose topic ids the records have
    uint32_t count                 # of records; a transaction record counts as well as those of its group
    uint32_t unused


cdef packed struct NameEntry:
    uint32_t kind
    uint32_t length                # of the text
    uint64_t id                    # topic id, or name id
    # then: the text, padded with zeros to a multiple of 8


@cython.final
cdef class Outgoing:
    """The frames that a source is making."""

    cdef list frames               # [(type, payload)]
    cdef ByteBuffer records
    cdef ByteBuffer entries        # of the NAMES frame
    cdef DataHeader header

    def __init__(self):
        self.frames = []
        self.records = ByteBuffer()
        self.entries = ByteBuffer()
        memset(&self.header, 0, sizeof(DataHeader))

    cdef int use_journal(self, uint64_t number) except -1:
        """The next records are of that journal."""
        self.flush()
        self.header.journal = number
        return 0

    cdef int add_name(self, uint32_t kind, uint64_t id_, bytes text) except -1:
        cdef NameEntry entry
        cdef uint64_t zeros = 0
        cdef uint64_t length = <uint64_t>PyBytes_GET_SIZE(text)
        entry.kind = kind
        entry.length = <uint32_t>length
        entry.id = id_
        self.entries.append(&entry, sizeof(NameEntry))
        self.entries.append(PyBytes_AS_STRING(text), length)
        self.entries.append(&zeros, align8(length) - length)
        return 0

    cdef inline int add_record(self, const RecordHeader* record) except -1:
        cdef uint64_t zeros = 0
        self.records.append(record, record.length)
        if record.length & 7:
            self.records.append(&zeros, 8 - (record.length & 7))
        self.header.count += 1
        return 0

    cdef int flush(self) except -1:
        """End the current frames."""
        cdef bytes payload
        cdef char* at
        if self.entries.length:
            payload = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 + self.entries.length))
            at = PyBytes_AS_STRING(payload)
            memcpy(at, &self.header.journal, 8)
            memcpy(at + 8, self.entries.data, self.entries.length)
            self.frames.append((FRAME_NAMES, payload))
            self.entries.length = 0
        if self.header.count:
            payload = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(sizeof(DataHeader) + self.records.length))
            at = PyBytes_AS_STRING(payload)
            memcpy(at, &self.header, sizeof(DataHeader))
            memcpy(at + sizeof(DataHeader), self.records.data, self.records.length)
            self.frames.append((FRAME_DATA, payload))
            self.records.length = 0
            self.header.count = 0
        return 0

    cdef list take(self):
        """End the current frames, and return all."""
        self.flush()
        frames = self.frames
        self.frames = []
        return frames
