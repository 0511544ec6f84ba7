# Records of a journal by their log position.
#
# Values of a topic lie at random places. Whether a place is in memory is asked for windows of WINDOW_BYTES, and known
# for a *period*, about a second: one question for each record would cost more than the record. A page that is evicted
# within the period costs a read from the disk.

from libc.stdint cimport uint64_t, uint8_t
from libc.stdlib cimport calloc, free

from mmap import PAGESIZE

from amps._core.journal.reader import LogDamaged, LogRemoved
from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader

cdef extern from "residency.h" nogil:
    uint64_t resident_pages(const uint8_t* address, uint64_t pages, uint64_t page_bytes)

cdef enum:
    WINDOW_BYTES = 262144
    PERIODS = 255
    BYTES_ASKED_MAX = 4194304      # of one question to the system

cdef uint64_t PAGE_BYTES = PAGESIZE


@cython.final
cdef class PlaceFile:
    """One open journal."""

    def __cinit__(self):
        self.windows = NULL

    def __init__(self, LogFile file not None):
        self.file = file
        self.begin = file.start_position
        self.end = file.start_position + file.size
        self.window_count = (file.size + WINDOW_BYTES - 1) // WINDOW_BYTES
        self.windows = <uint8_t*>calloc(self.window_count, 1)
        if self.windows == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.windows)

    cdef bint window_is_resident(self, uint64_t window, uint8_t period) noexcept nogil:
        """Whether a whole window is in memory, or was in this period."""
        cdef uint64_t offset = window * WINDOW_BYTES
        cdef uint64_t pages
        if self.windows[window] == period:
            return True
        pages = (min(<uint64_t>WINDOW_BYTES, self.file.size - offset) + PAGE_BYTES - 1) // PAGE_BYTES
        if resident_pages(self.file.data + offset, pages, PAGE_BYTES) < pages:
            return False
        self.windows[window] = period
        return True


@cython.final
cdef class JournalPlaces:
    """Reads single records at log positions. The files stay open until `forget`."""

    def __init__(self, directory, numbers):
        """directory: a LogDirectory. numbers(): (number of the first journal, number of the journal in use)."""
        self.directory = directory
        self.numbers = numbers
        self.files = []
        self.file = None
        self.period = 1

    cdef const RecordHeader* at(self, uint64_t position) except NULL:
        """The record at a log position; waits for the disk if it must. Raises LogDamaged, LogRemoved."""
        cdef PlaceFile place = self.file
        cdef LogFile file
        cdef const RecordHeader* record
        cdef uint64_t offset
        if place is None or not place.begin <= position < place.end:
            place = self.file = self.file_at(position)
        file = place.file
        offset = position - place.begin
        if file.frames is not None:
            file.need(offset, min(<uint64_t>RECORD_HEADER_BYTES, file.size - offset))
            record = <const RecordHeader*>(file.data + offset)
            file.need(offset, min(<uint64_t>record.length, file.size - offset))
        record = <const RecordHeader*>(file.data + offset)
        if record.position != position or record.length > file.size - offset or not record_parts_fit(record):
            raise LogDamaged(file.path, offset, "no record where the state of a SOW topic expects one")
        return record

    cdef const RecordHeader* address(self, uint64_t position) except? NULL:
        """Where the record at a log position lies, to have it fetched from memory; it is neither read nor checked.
        NULL: in a compressed file. Raises LogDamaged, LogRemoved.
        """
        cdef PlaceFile place = self.file
        if place is None or not place.begin <= position < place.end:
            place = self.file = self.file_at(position)
        if place.file.frames is not None:
            return NULL
        return <const RecordHeader*>(place.file.data + (position - place.begin))

    cdef bint is_resident(self, uint64_t position, uint64_t length) except -1:
        """Whether so many bytes from a log position on are in memory. If not, `missing_file` and the numbers behind it
        name the part to read. Raises LogDamaged, LogRemoved.
        """
        cdef PlaceFile place = self.file
        cdef uint64_t offset
        cdef uint64_t end
        cdef uint64_t at
        cdef uint64_t asked
        cdef uint64_t pages
        cdef uint64_t found
        if place is None or not place.begin <= position < place.end:
            place = self.file = self.file_at(position)
        if place.file.frames is not None:
            return True
        offset = position - place.begin
        end = min(offset + length, place.file.size)
        at = offset // WINDOW_BYTES
        while at * WINDOW_BYTES < end and place.window_is_resident(at, self.period):
            at += 1
        if at * WINDOW_BYTES >= end:
            return True
        at = max(at * WINDOW_BYTES, offset // PAGE_BYTES * PAGE_BYTES)
        while at < end:
            asked = min(end - at, <uint64_t>BYTES_ASKED_MAX)
            pages = (asked + PAGE_BYTES - 1) // PAGE_BYTES
            found = resident_pages(place.file.data + at, pages, PAGE_BYTES)
            at += found * PAGE_BYTES
            if found < pages:
                break
        if at >= end:
            return True
        self.missing_file = place.file
        self.missing_offset = at
        self.missing_bytes = min(max(end, at + WINDOW_BYTES), place.file.size) - at
        self.needed_until = end
        return False

    cdef PlaceFile file_at(self, uint64_t position):
        cdef PlaceFile place
        cdef LogFile file
        for place in self.files:
            if place.begin <= position < place.end:
                return place
        first, last = self.numbers()
        file = self.directory.file(self.directory.number_at(position, first, last))
        place = PlaceFile(file)
        if not place.begin <= position < place.end:
            raise LogRemoved(f"log position {position} is in no journal")
        self.files.append(place)
        return place

    def begin_period(self):
        """Ask the system again which parts are in memory. Called about once per second."""
        cdef PlaceFile place
        self.period = self.period % PERIODS + 1
        if self.period == 1:
            for place in self.files:
                memset(place.windows, 0, place.window_count)

    @property
    def missing(self):
        """File, offset and length of the part to read, and the file offset up to which it is needed."""
        return self.missing_file, self.missing_offset, self.missing_bytes, self.needed_until

    def read_missing(self):
        """Read the missing part from the disk, waiting for it. Raises LogUnreadable."""
        self.missing_file.need(self.missing_offset, self.missing_bytes)

    def forget(self, before_number):
        """Close the journals with smaller numbers."""
        cdef PlaceFile place
        kept = []
        for place in self.files:
            if place.file.number >= before_number:
                kept.append(place)
        self.files = kept
        self.missing_file = None
        if self.file is not None and self.file.file.number < before_number:
            self.file = None
