# Reading a log before somebody looks at it: which pages of a mapped file are missing, and getting them.
#
# Whoever looks at a page that is not in memory stands still until the disk has brought it, and an event loop with all
# its clients stands still with them. So a reader asks first, without reading anything, and lets another thread wait.
# What that cannot read raises LogUnreadable there: nobody has looked at it.
#
# Who steps through a file by its topic index looks at parts of it here and there: only those are asked for, and what
# lies between them is not read.
#
# Of compressed files nothing is missing here: their content is made on demand.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

import mmap

from amps._core.journal.reader cimport LogCursor, LogFile
from amps._core.journal.record cimport RECORD_HEADER_BYTES, RecordHeader

cdef extern from "residency.h" nogil:
    enum:
        RESIDENCY_PAGES_MAX
    uint64_t resident_pages(const uint8_t* address, uint64_t pages, uint64_t page_bytes)
    void begin_reading_pages(const uint8_t* address, uint64_t length)

cdef enum:
    PARTS_BYTES_MAX = 4 << 20      # of a batch whose records are longer than expected, in one go

cdef uint64_t PAGE_BYTES = mmap.PAGESIZE
WINDOW_BYTES_MAX = RESIDENCY_PAGES_MAX * mmap.PAGESIZE


def resident_bytes(LogCursor cursor, uint64_t limit, uint64_t window_bytes):
    """Of the log from a cursor on, within its file, up to a limit and `window_bytes` (at most WINDOW_BYTES_MAX): how
    much is in memory before the first page that is not, and how much there is.
    """
    return resident_range(cursor.file, cursor.position - cursor.file.start_position, limit, window_bytes)


def resident_range(LogFile file, uint64_t offset, uint64_t limit, uint64_t window_bytes):
    """The same from a file offset on."""
    cdef uint64_t end = file.size
    cdef uint64_t first = offset // PAGE_BYTES * PAGE_BYTES
    cdef uint64_t found
    if limit < file.start_position + end:
        end = max(limit, file.start_position) - file.start_position
    end = min(end, offset + min(window_bytes, <uint64_t>WINDOW_BYTES_MAX - PAGE_BYTES))
    if end <= offset:
        return 0, 0
    if file.frames is not None:
        return end - offset, end - offset
    found = first + PAGE_BYTES * resident_pages(
        file.data + first, (end - first + PAGE_BYTES - 1) // PAGE_BYTES, PAGE_BYTES
    )
    return (min(found, end) - offset if found > offset else 0), end - offset


def missing_parts(LogFile file, TopicSteps steps, uint64_t limit, uint64_t readable):
    """Of the records that are stepped to next, up to a limit: [(offset, length)] of what is not in memory.

    Their lengths stand in themselves. So what is asked for first goes by the average; when that is in memory, or was
    asked for, the rest of those that are longer is, of so many of them as make sense in one go; after that these are
    taken to be there. readable: file offset behind which nothing is looked at, or asked for.
    """
    if file.frames is not None or (steps.looks == 2 and steps.batch_at < steps.batch_there):
        return []
    if steps.looks == 0:
        steps.looks = 1
        parts = parts_of_batch(file, steps, limit, readable, False)
        if parts:
            return parts
    steps.looks = 2
    return parts_of_batch(file, steps, limit, readable, True)


def look_again(TopicSteps steps):
    """What was asked for could not be read: ask for what is left of the batch once more."""
    steps.looks = 0
    steps.batch_there = steps.batch_count


cdef list parts_of_batch(LogFile file, TopicSteps steps, uint64_t limit, uint64_t readable, bint exact):
    """Missing pages of the batch, by the lengths of its records, or by what they may be."""
    cdef list parts = []
    cdef uint64_t limit_offset = limit - file.start_position if limit > file.start_position else 0
    cdef uint64_t expected = steps.entry_bytes()
    cdef uint64_t bytes_left = PARTS_BYTES_MAX
    cdef uint64_t first = 0            # pages that belong together
    cdef uint64_t end = 0
    cdef uint64_t offset
    cdef uint64_t length
    cdef uint32_t at
    steps.batch_there = steps.batch_count
    for at in range(steps.batch_at, steps.batch_count):
        offset = steps.batch[at]
        if offset >= limit_offset or offset + RECORD_HEADER_BYTES > readable:
            break
        length = expected
        if exact:
            length = (<const RecordHeader*>(file.data + offset)).length
        length = min(length, readable - offset)
        if exact and length > bytes_left and at > steps.batch_at:
            steps.batch_there = at
            break
        bytes_left -= min(length, bytes_left)
        if end and offset // PAGE_BYTES <= end:
            end = max(end, (offset + length + PAGE_BYTES - 1) // PAGE_BYTES)
            continue
        add_missing(parts, file, first, end)
        first = offset // PAGE_BYTES
        end = (offset + length + PAGE_BYTES - 1) // PAGE_BYTES
    add_missing(parts, file, first, end)
    return parts


cdef int add_missing(list parts, LogFile file, uint64_t first, uint64_t end) except -1:
    """Note what of some pages is not in memory: all from the first one on that is not."""
    cdef uint64_t pages
    cdef uint64_t resident
    while first < end:
        pages = min(end - first, <uint64_t>RESIDENCY_PAGES_MAX)
        resident = resident_pages(file.data + first * PAGE_BYTES, pages, PAGE_BYTES)
        if resident < pages:
            first += resident
            parts.append((first * PAGE_BYTES, min(end * PAGE_BYTES, file.size) - first * PAGE_BYTES))
            break
        first += pages
    return 0


def read_parts(LogFile file, parts):
    """Bring such parts into memory, and nothing between them; to be called as `read` is. What comes before one that
    cannot be read is there then.
    """
    cdef const uint8_t* address
    cdef uint64_t length
    for begin, size in parts:
        address = file.data + <uint64_t>begin
        length = size
        with nogil:
            begin_reading_pages(address, length)
    for begin, size in parts:
        read(file, begin, size)


def read(LogFile file, uint64_t offset, uint64_t length):
    """Bring a part of a file into memory; to be called in a thread that may wait, and only others run meanwhile.

    Raises LogUnreadable.
    """
    if file.frames is None and offset <= file.size and length <= file.size - offset:
        file.need(offset, length)
