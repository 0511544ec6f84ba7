"""Reading a log before somebody looks at it: which pages of a mapped file are missing, and getting them.

Whoever looks at a page that is not in memory stands still until the disk has brought it, and an event loop with all its
clients stands still with them. So a reader asks first, without reading anything, and lets another thread wait.

Of compressed files nothing is missing here: their content is made on demand.
"""

from libc.stdint cimport uint8_t, uint64_t

import mmap

from amps._core.log_reader cimport LogCursor, LogFile

cdef extern from "residency.h" nogil:
    enum:
        RESIDENCY_PAGES_MAX
    uint64_t resident_pages(const uint8_t* address, uint64_t pages, uint64_t page_bytes)
    void read_pages(const uint8_t* address, uint64_t length, uint64_t page_bytes)

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


def read(LogFile file, uint64_t offset, uint64_t length):
    """Bring a part of a file into memory; to be called in a thread that may wait, and only others run meanwhile."""
    cdef uint64_t first = offset // PAGE_BYTES * PAGE_BYTES
    cdef const uint8_t* address
    if file.frames is not None or offset > file.size or length > file.size - offset:
        return
    address = file.data + first
    length += offset - first
    with nogil:
        read_pages(address, length, PAGE_BYTES)
