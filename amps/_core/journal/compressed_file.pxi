# Compressed files as memory: a mapping of the full size, whose frames are filled on demand.
#
# A compressed journal is a sequence of independent zstd frames, each with FRAME_BYTES of content except the last. A
# seek table in a skippable frame follows (the layout of zstd's seekable format). So `zstd -d` restores the journal, and
# a reader finds any offset without reading the frames before it.
#
# A `FrameMap` reserves address space of the content's size and decompresses a frame when a reader needs it. The frames
# of all files share a `FrameCache`. When the frames exceed its limit, it returns the memory of the least recently used
# frames to the kernel.
#
# Invariants: the bytes that `need` has provided stay in place until the next call of `need` on any file of the cache; a
# caller must not rely on them longer. zstd checks a frame's content (by a checksum in each frame) before any reader can
# access it. Damage raises LogDamaged with the offset of the frame in the file.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import os
import struct
import weakref
from collections import OrderedDict

import zstandard

cdef extern from "residency.h" nogil:
    const int MADV_POPULATE_WRITE

cdef extern from "sys/mman.h" nogil:
    void* map_memory "mmap"(void* address, size_t length, int protection, int flags, int descriptor, long offset)
    int munmap(void* address, size_t length)
    int madvise(void* address, size_t length, int advice)
    const int PROT_READ
    const int PROT_WRITE
    const int MAP_PRIVATE
    const int MAP_ANONYMOUS
    const int MAP_NORESERVE
    const int MADV_DONTNEED
    void* MAP_FAILED

cdef enum:
    FRAME_CONTENT_BYTES = 1 << 18
    # A generous bound on the stored size of a frame whose content cannot be compressed.
    FRAME_STORED_BYTES_MAX = FRAME_CONTENT_BYTES + (FRAME_CONTENT_BYTES >> 7) + 1024
    ENTRY_BYTES = 8
    FOOTER_BYTES = 9
    SKIPPABLE_HEADER_BYTES = 8

FRAME_BYTES = FRAME_CONTENT_BYTES
FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC = 0x184D2A5E
SEEKABLE_MAGIC = 0x8F92EAB1
DEFAULT_CACHE_BYTES = 16 << 20
_FOOTER = struct.Struct("<IBI")
_SKIPPABLE_HEADER = struct.Struct("<II")


class LogDamaged(Exception):
    """The content of a file of the log is not valid.

    path: the file. offset: the file offset of the damage. detail: its description. problem: offset and description as
    text for people.
    """

    def __init__(self, path, offset, detail, problem=None):
        self.problem = problem or f"damaged at offset {offset}: {detail}"
        super().__init__(f"{path}: {self.problem}")
        self.path = path
        self.offset = offset
        self.detail = detail


def seek_table(stored_sizes, content_size):
    """The skippable frame that ends a compressed file. stored_sizes: the compressed sizes of its frames, in order."""
    cdef uint64_t count = len(stored_sizes)
    cdef uint64_t last = content_size - (count - 1) * FRAME_CONTENT_BYTES
    entries = bytearray()
    for number, stored in enumerate(stored_sizes):
        entries += struct.pack("<II", stored, last if number == count - 1 else FRAME_CONTENT_BYTES)
    footer = _FOOTER.pack(count, 0, SEEKABLE_MAGIC)
    return _SKIPPABLE_HEADER.pack(SKIPPABLE_MAGIC, len(entries) + FOOTER_BYTES) + bytes(entries) + footer


cdef class FrameCache:
    """The limit on the bytes of decompressed frames in memory, over all files that share the cache.

    A record larger than the limit can still be read; its frames then exceed the limit.
    """

    def __init__(self, uint64_t limit_bytes=DEFAULT_CACHE_BYTES):
        self.limit_bytes = limit_bytes
        self.order = OrderedDict()
        self.maps = {}
        self.next_serial = 0

    @property
    def resident_bytes(self):
        """The bytes of frames in memory now; the last frame of a file counts as a full frame."""
        return len(self.order) * FRAME_CONTENT_BYTES

    def enter(self, FrameMap frames):
        """Add a file to the cache. Returns its serial number."""
        self.next_serial += 1
        self.maps[self.next_serial] = weakref.ref(frames)
        return self.next_serial

    def leave(self, FrameMap frames):
        """Remove a file and its frames from the cache, since its mapping ends."""
        cdef uint64_t frame
        self.maps.pop(frames.serial, None)
        for frame in range(frames.count):
            if frames.present[frame]:
                self.order.pop((frames.serial, frame), None)

    def used(self, uint64_t serial, uint64_t frame):
        """Note that a frame is used now."""
        self.order[serial, frame] = None
        self.order.move_to_end((serial, frame))

    def trim(self, uint64_t serial, uint64_t first, uint64_t end):
        """Drop the least recently used frames down to the limit, except the frames `first` to `end` - 1 of a file."""
        cdef FrameMap frames
        while self.order and len(self.order) * FRAME_CONTENT_BYTES > self.limit_bytes:
            oldest, frame = next(iter(self.order))
            if oldest == serial and first <= frame < end:
                return  # all older frames are dropped; the rest is needed together
            del self.order[oldest, frame]
            frames = self.maps[oldest]()
            if frames is not None:
                frames.drop(frame)


cdef class FrameMap:
    """A compressed file, mapped. Raises OSError, LogDamaged."""

    def __cinit__(self):
        self.data = NULL
        self.present = NULL
        self.offsets = NULL
        self.descriptor = -1
        self.size = 0

    def __init__(self, path, FrameCache cache=None):
        cdef void* address
        self.path = path
        self.cache = FrameCache() if cache is None else cache
        self.decompress = zstandard.ZstdDecompressor().decompress
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.read_table()
        self.present = <uint8_t*>calloc(self.count, 1)
        if self.present == NULL:
            raise MemoryError()
        address = map_memory(
            NULL, self.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
        )
        if address == MAP_FAILED:
            raise LogDamaged(path, 0, f"its seek table gives a size of {self.size} bytes, more than can be mapped")
        self.data = <uint8_t*>address
        self.serial = self.cache.enter(self)

    def __del__(self):
        if self.data != NULL:
            self.cache.leave(self)

    def __dealloc__(self):
        if self.data != NULL:
            munmap(self.data, self.size)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        free(self.present)
        free(self.offsets)

    cdef int read_table(self) except -1:
        """Read and check the seek table. Raises LogDamaged."""
        cdef uint64_t file_size = os.fstat(self.descriptor).st_size
        cdef uint64_t table_size
        cdef uint64_t number
        cdef uint64_t stored
        cdef uint64_t content
        cdef uint64_t offset = 0
        cdef const unsigned char[::1] table
        cdef const uint32_t* entry
        if file_size < SKIPPABLE_HEADER_BYTES + FOOTER_BYTES:
            raise LogDamaged(self.path, file_size, "shorter than a seek table")
        count, descriptor, magic = _FOOTER.unpack(os.pread(self.descriptor, FOOTER_BYTES, file_size - FOOTER_BYTES))
        if magic != SEEKABLE_MAGIC or descriptor != 0:
            raise LogDamaged(self.path, file_size - FOOTER_BYTES, "it does not end with a seek table")
        table_size = SKIPPABLE_HEADER_BYTES + <uint64_t>count * ENTRY_BYTES + FOOTER_BYTES
        if count == 0 or table_size > file_size:
            raise LogDamaged(self.path, file_size - FOOTER_BYTES, f"its seek table cannot have {count} frames")
        data = os.pread(self.descriptor, table_size - FOOTER_BYTES, file_size - table_size)
        if data[:SKIPPABLE_HEADER_BYTES] != _SKIPPABLE_HEADER.pack(
            SKIPPABLE_MAGIC, table_size - SKIPPABLE_HEADER_BYTES
        ):
            raise LogDamaged(self.path, file_size - table_size, "its seek table does not begin where it must")
        self.count = count
        self.offsets = <uint64_t*>malloc((self.count + 1) * sizeof(uint64_t))
        if self.offsets == NULL:
            raise MemoryError()
        table = data
        entry = <const uint32_t*>(&table[0] + SKIPPABLE_HEADER_BYTES)
        for number in range(self.count):
            stored = entry[2 * number]
            content = entry[2 * number + 1]
            if (
                stored == 0 or stored > FRAME_STORED_BYTES_MAX or content == 0 or content > FRAME_CONTENT_BYTES
                or (content != FRAME_CONTENT_BYTES and number != self.count - 1)
            ):
                raise LogDamaged(self.path, file_size - table_size, f"its seek table is wrong for frame {number}")
            self.offsets[number] = offset
            offset += stored
            self.size += content
        self.offsets[self.count] = offset
        if offset != file_size - table_size:
            raise LogDamaged(
                self.path, file_size - table_size, f"its frames have {offset} bytes by the seek table"
            )
        return 0

    def read(self, uint64_t offset, uint64_t length):
        """A copy of a part of the content. Raises LogDamaged."""
        self.need(offset, length)
        return (<const char*>self.data + offset)[:length]

    cdef uint64_t need(self, uint64_t offset, uint64_t length) except? 0:
        """Bring a range of the content into the mapping. Returns the offset at which the next gap begins."""
        cdef uint64_t first = offset // FRAME_CONTENT_BYTES
        cdef uint64_t end = (offset + max(length, 1) + FRAME_CONTENT_BYTES - 1) // FRAME_CONTENT_BYTES
        cdef uint64_t frame
        if offset >= self.size or length > self.size - offset:
            raise LogDamaged(self.path, offset, f"its content has only {self.size} bytes")
        for frame in range(first, end):
            if not self.present[frame]:
                self.load(frame)
            self.cache.used(self.serial, frame)
        self.cache.trim(self.serial, first, end)
        while end < self.count and self.present[end]:
            end += 1
        return min(end * FRAME_CONTENT_BYTES, self.size)

    cdef int load(self, uint64_t frame) except -1:
        """Decompress a frame into its place in the mapping. Raises LogDamaged."""
        cdef uint64_t begin = self.offsets[frame]
        cdef uint64_t stored = self.offsets[frame + 1] - begin
        cdef uint64_t content = min(<uint64_t>FRAME_CONTENT_BYTES, self.size - frame * FRAME_CONTENT_BYTES)
        cdef bytes plain
        cdef const char* source
        data = os.pread(self.descriptor, stored, begin)
        try:
            # The content size in the frame decides how much memory is allocated, so it is checked first.
            if <uint64_t>len(data) != stored or zstandard.frame_content_size(data) != content:
                raise LogDamaged(self.path, begin, f"compressed frame {frame} does not hold {content} bytes")
            plain = self.decompress(data)
        except zstandard.ZstdError as error:
            raise LogDamaged(self.path, begin, f"compressed frame {frame} cannot be decompressed ({error})") from None
        if <uint64_t>len(plain) != content:
            raise LogDamaged(self.path, begin, f"compressed frame {frame} does not hold {content} bytes")
        source = plain
        with nogil:
            # All pages at once: faulting them one by one takes longer than decompressing. A failure does no harm.
            madvise(self.data + frame * FRAME_CONTENT_BYTES, content, MADV_POPULATE_WRITE)
            memcpy(self.data + frame * FRAME_CONTENT_BYTES, source, content)
        self.present[frame] = 1
        return 0

    cdef int drop(self, uint64_t frame) except -1:
        """Return a frame's memory to the kernel."""
        cdef uint64_t begin = frame * FRAME_CONTENT_BYTES
        # The last frame may be short, and the memory behind the mapping belongs to other data.
        cdef uint64_t length = min(<uint64_t>FRAME_CONTENT_BYTES, self.size - begin)
        self.present[frame] = 0
        with nogil:
            madvise(self.data + begin, length, MADV_DONTNEED)
        return 0
