# The payloads of the frames DATA and NAMES (docs/replication.md), as a source makes them.
#
# A DATA frame carries records of one journal as that journal stores them. A NAMES frame gives the texts of topic ids
# and name ids. It comes before the first DATA frame that uses them.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memset

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader
from amps._core.shm.platform cimport align8
from amps._core.values.fields cimport ByteBuffer

FRAME_DATA = 0x10
FRAME_ACK = 0x11
FRAME_NAMES = 0x1A
WINDOW_BYTES = 16 << 20
"""Bytes of records that a source may send before the sink grants more."""
BATCH_BYTES = 1 << 19
"""A source ends a DATA frame when its records have that many bytes. One record, or one transaction, may be longer."""

cdef enum:
    BATCH = 1 << 19
    VIEWED_FROM = 4096             # shorter runs of records are copied
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
    """The frames that a source is making.

    A payload has parts that follow each other. Neighbours in a journal are sent as one part, a view of the mapped file:
    nobody copies them but the system. Short runs are copied, and so is what a compressed journal has in memory only for
    a moment.
    """

    cdef list frames               # [(type, [part])]
    cdef list parts                # of the DATA frame, without its header
    cdef ByteBuffer records        # copied, behind the parts
    cdef ByteBuffer entries        # of the NAMES frame
    cdef DataHeader header
    cdef LogFile file              # of the run that goes on; None: there is none
    cdef uint64_t run_begin        # file offsets
    cdef uint64_t run_end
    cdef uint64_t length           # bytes of records in the DATA frame

    def __init__(self):
        self.frames = []
        self.parts = []
        self.records = ByteBuffer()
        self.entries = ByteBuffer()
        self.file = None
        self.run_begin = self.run_end = self.length = 0
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

    cdef inline int add_record(self, LogFile file, const RecordHeader* record) except -1:
        """Add a record of a file, which pads it with zeros."""
        cdef uint64_t offset = <uint64_t>(<const uint8_t*>record - file.data)
        cdef uint64_t length = align8(record.length)
        self.length += length
        self.header.count += 1
        if file.frames is not None:
            self.end_run()
            return self.records.append(record, length)
        if file is not self.file or offset != self.run_end:
            self.end_run()
            self.file = file
            self.run_begin = offset
        self.run_end = offset + length
        return 0

    cdef int end_run(self) except -1:
        """Make a part of the neighbours that were added last."""
        cdef LogFile file = self.file
        cdef uint64_t length = self.run_end - self.run_begin
        if file is None:
            return 0
        self.file = None
        if length < VIEWED_FROM:
            self.records.append(file.data + self.run_begin, length)
        else:
            self.end_copies()
            self.parts.append(file.memory_view(self.run_begin, length))
        return 0

    cdef int end_copies(self) except -1:
        if self.records.length:
            self.parts.append(PyBytes_FromStringAndSize(<char*>self.records.data, <Py_ssize_t>self.records.length))
            self.records.length = 0
        return 0

    cdef int flush(self) except -1:
        """End the current frames."""
        self.end_run()
        if self.entries.length:
            self.frames.append((FRAME_NAMES, [
                PyBytes_FromStringAndSize(<char*>&self.header.journal, 8),
                PyBytes_FromStringAndSize(<char*>self.entries.data, <Py_ssize_t>self.entries.length),
            ]))
            self.entries.length = 0
        if self.header.count:
            self.end_copies()
            self.parts.insert(0, PyBytes_FromStringAndSize(<char*>&self.header, sizeof(DataHeader)))
            self.frames.append((FRAME_DATA, self.parts))
            self.parts = []
            self.header.count = 0
            self.length = 0
        return 0

    cdef list take(self):
        """End the current frames, and return all."""
        self.flush()
        frames = self.frames
        self.frames = []
        return frames
