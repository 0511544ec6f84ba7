# Reads single messages of queues at any log position, and evaluates filters on them.
#
# A queue knows its messages by log positions. The messages lie in mapped files of the journal, the newest ones most
# likely in memory. A thread that serves clients must not wait for the disk, so a message that is not in memory is not
# read. `missing_file`, `missing_offset` and `missing_bytes` then name the part that another thread has to read first.
#
# The caller must call `begin_turn` at the start of each turn: pages that were in memory before may have been evicted.

cimport cython
from libc.stdint cimport uint8_t, uint64_t

import mmap

from amps._core.expressions.machine cimport EvaluationContext, FilterSet
from amps._core.journal.reader import LogCursor as _LogCursor, LogDamaged, LogRemoved
from amps._core.journal.reader cimport LogCursor, LogFile, begin_reading
from amps._core.wire.topics cimport TopicEntry, tell_facts
from amps._core.shm.platform cimport monotonic_ns
from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_PUBLISH,
    RECORD_HEADER_BYTES,
    RecordHeader,
    record_client_id,
    record_payload,
)
from amps._core.shm.memory cimport ControlPage

cdef extern from "residency.h" nogil:
    enum:
        RESIDENCY_PAGES_MAX
    uint64_t resident_pages(const uint8_t* address, uint64_t pages, uint64_t page_bytes)

cdef uint64_t PAGE_BYTES = mmap.PAGESIZE
cdef enum:
    CURSORS_MAX = 4
    WINDOW_PAGES = 64              # checked at once: neighbouring pages are likely to be needed next
    MESSAGE_COST_BYTES = 256       # cost of any message, in bytes of log read
    COMPRESSED_COST_BYTES = 65536  # cost of a message for which a frame may have to be decompressed
    EVALUATION_BYTES = 256         # cost of evaluating a filter, as reading that many bytes of log
    LARGE_BYTES = 65536            # size of a message on which evaluating any filter can take long
    NS_PER_BYTE = 2                # to convert the measured time of filters to bytes of log


@cython.final
cdef class MessageReader:

    def __init__(self, directory, ControlPage control not None):
        """directory: the journal's LogDirectory."""
        self.directory = directory
        self.control = control
        self.cursors = []
        self.looked_at = None
        self.idle = True

    cdef void begin_turn(self) noexcept:
        self.looked_at = None

    cdef const RecordHeader* read(self, uint64_t position) except? NULL:
        """The message at a log position, in the mapped file of `cursor`; valid until the next read. NULL: it is not in
        memory. Raises LogDamaged.
        """
        cdef const RecordHeader* record
        cdef LogCursor cursor = self.cursor_for(position)
        cdef LogFile file = cursor.file
        if not self.is_resident(file, position - file.start_position):
            self.missing_file = file
            return NULL
        cursor.position = position
        begin_reading(cursor)
        record = cursor.next(position + 1)
        if record == NULL or (record.kind != KIND_PUBLISH and record.kind != KIND_DELTA_PUBLISH):
            raise LogDamaged(file.path, position - file.start_position, "no message where a queue expects one")
        self.cursor = cursor
        return record

    cdef uint64_t cost(self, const RecordHeader* record) noexcept:
        """The cost of reading the message, in bytes of log read sequentially."""
        return MESSAGE_COST_BYTES + record.length + (
            <uint64_t>COMPRESSED_COST_BYTES if self.cursor.file.frames is not None else 0
        )

    cdef LogCursor cursor_for(self, uint64_t position):
        """A cursor in the file that holds a log position. Raises LogDamaged."""
        cdef LogCursor cursor
        cdef Py_ssize_t at
        self.idle = False
        for at in range(len(self.cursors)):
            cursor = self.cursors[at]
            if cursor.file.start_position <= position < cursor.file.start_position + cursor.file.size:
                if at:
                    self.cursors.insert(0, self.cursors.pop(at))
                return cursor
        number = self.control.first_journal_number
        try:
            number = self.directory.number_at(position, number, self.control.watermarks()[3])
            cursor = _LogCursor(self.directory, number, position, True)
        except LogRemoved:
            raise LogDamaged(self.directory.path(number), 0, "it was removed although a queue needs it") from None
        if cursor.position != position or position >= cursor.file.start_position + cursor.file.size:
            raise LogDamaged(cursor.file.path, 0, f"log position {position} is not in it")
        self.cursors.insert(0, cursor)
        del self.cursors[CURSORS_MAX:]
        return cursor

    def release(self):
        """Close the journals if nothing was read since the last call. Called from time to time."""
        if self.idle:
            self.cursors.clear()
            self.cursor = None
            self.missing_file = None
            self.looked_at = None
        self.idle = True

    cdef bint is_resident(self, LogFile file, uint64_t offset) except -1:
        """Whether the record at a file offset is in memory. If not, `missing_offset` and `missing_bytes` name the part
        to read, and `needed_until` the file offset up to which it is needed. If the length of the record is not known
        yet, that part is an estimate.
        """
        cdef uint64_t length
        if file.frames is not None:
            return True
        if file is not self.looked_at or not self.resident_from <= offset < self.resident_until:
            self.looked_at = file
            self.resident_from = self.resident_until = offset
        if offset + RECORD_HEADER_BYTES > file.size:
            return True  # there is no record: the read fails with LogDamaged
        if offset + RECORD_HEADER_BYTES > self.resident_until:
            if not self.look(file, offset, RECORD_HEADER_BYTES):
                return False
        length = min(<uint64_t>(<const RecordHeader*>(file.data + offset)).length, file.size - offset)
        return offset + length <= self.resident_until or self.look(file, offset, length)

    cdef bint look(self, LogFile file, uint64_t offset, uint64_t length) noexcept:
        """Check whether that range is in memory, and advance `resident_until`."""
        cdef uint64_t page = self.resident_until // PAGE_BYTES
        cdef uint64_t end = (file.size + PAGE_BYTES - 1) // PAGE_BYTES
        cdef uint64_t pages
        cdef uint64_t found
        while self.resident_until < offset + length:
            pages = (offset + length + PAGE_BYTES - 1) // PAGE_BYTES - page
            pages = min(max(pages, <uint64_t>WINDOW_PAGES), end - page, <uint64_t>RESIDENCY_PAGES_MAX)
            found = resident_pages(file.data + page * PAGE_BYTES, pages, PAGE_BYTES)
            page += found
            self.resident_until = max(self.resident_until, min(page * PAGE_BYTES, file.size))
            if found < pages:
                break
        if self.resident_until >= offset + length:
            return True
        self.missing_offset = page * PAGE_BYTES
        self.needed_until = offset + length
        self.missing_bytes = min(
            max(offset + length, self.missing_offset + WINDOW_PAGES * PAGE_BYTES), file.size
        ) - self.missing_offset
        return False


cdef uint64_t match_message(
    FilterSet filters, const RecordHeader* record, TopicEntry entry
) except? 0xFFFFFFFFFFFFFFFF:
    """Find the filters that match a message of a queue. Returns the cost, in bytes of log.

    entry: the TopicEntry of the queue; subscribers know the message under its name.
    """
    cdef EvaluationContext evaluation = filters.evaluation
    cdef uint64_t evaluations = filters.evaluations
    cdef uint64_t unreadable = evaluation.unreadable
    cdef uint64_t begin = 0
    if filters.may_take_long or record.payload_length > LARGE_BYTES:
        begin = monotonic_ns()
    if filters.asks_message:
        tell_facts(evaluation.context, record, entry.raw_name, True, True)
        if filters.asks_publisher:
            evaluation.tell_publisher(record_client_id(record))
    filters.match(record_payload(record), record.payload_length)
    if evaluation.unreadable != unreadable:
        evaluation.last_unreadable = (entry.name, record.publisher_id, record.sequence)
    if begin:
        return (monotonic_ns() - begin) // NS_PER_BYTE
    return (filters.evaluations - evaluations) * EVALUATION_BYTES + record.payload_length
