# Reading a log ahead of its reader: finding the missing pages of a mapped file, and bringing them into memory.
#
# A thread that accesses a page that is not in memory is blocked until the disk has delivered the page. If the thread
# runs an event loop, all clients of that loop wait too. So the thread first finds the missing pages without reading
# them (`resident_bytes`, `missing_parts`), and another thread reads them (`read`, `read_parts`). If a page cannot be
# read, that other thread gets LogUnreadable, before the reader accesses the page.
#
# A reader that steps through a file by its topic index accesses scattered parts of it. Only these parts are checked,
# and the bytes between them are not read.
#
# Compressed files never have missing pages here: their content is decompressed on demand.

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
    PARTS_BYTES_MAX = 4 << 20      # bytes of a batch that one exact check covers

cdef uint64_t PAGE_BYTES = mmap.PAGESIZE
WINDOW_BYTES_MAX = RESIDENCY_PAGES_MAX * mmap.PAGESIZE


def resident_bytes(LogCursor cursor, uint64_t limit, uint64_t window_bytes):
    """(bytes in memory before the first missing page, all bytes) of a range of the log that begins at a cursor.

    The range ends at the end of the cursor's file, at the log position `limit`, or after `window_bytes` (at most
    WINDOW_BYTES_MAX), whichever comes first.
    """
    return resident_range(cursor.file, cursor.position - cursor.file.start_position, limit, window_bytes)


def resident_range(LogFile file, uint64_t offset, uint64_t limit, uint64_t window_bytes):
    """The same as `resident_bytes`, for a range that begins at a file offset."""
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
    """[(offset, length)] of the missing parts of the records in the current batch, up to a limit.

    The length of a record is in its header, which may be missing too. So the first check uses the average length of an
    entry. When those parts are in memory, or were returned by the first call, a second check uses the real lengths,
    for at most PARTS_BYTES_MAX of records. The records that it covers then count as being in memory. readable: file
    offset behind which nothing is accessed or returned.
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
    """Check the rest of the batch once more, after a part could not be read."""
    steps.looks = 0
    steps.batch_there = steps.batch_count


cdef list parts_of_batch(LogFile file, TopicSteps steps, uint64_t limit, uint64_t readable, bint exact):
    """Missing parts of the batch, by the lengths of its records (`exact`) or by their expected length."""
    cdef list parts = []
    cdef uint64_t limit_offset = limit - file.start_position if limit > file.start_position else 0
    cdef uint64_t expected = steps.entry_bytes()
    cdef uint64_t bytes_left = PARTS_BYTES_MAX
    cdef uint64_t first = 0            # `first` to `end`: a run of pages to check together
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
    """Append the missing part of a run of pages: everything from its first missing page on."""
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
    """Bring parts into memory, and nothing between them. Call it under the conditions of `read`.

    Raises LogUnreadable for the first part that cannot be read; the parts before it are in memory then.
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
    """Bring a part of a file into memory. Call it in a thread that may block; other threads run meanwhile.

    Raises LogUnreadable. Of a compressed file, or beyond the end of the file, nothing is read.
    """
    if file.frames is None and offset <= file.size and length <= file.size - offset:
        file.need(offset, length)
