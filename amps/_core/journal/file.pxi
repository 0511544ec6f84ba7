# One file of a log: its header, its content in memory, and the topics of the topic ids in its records.
#
# A file begins with a header page, with its number and the log position at which it starts. The journal (on disk) and
# the transient log (in shared memory, for topics that are not recorded) have the same format.
#
# A file is mapped as a whole. A journal may be compressed (journal/compressed_file.pxi). Then only parts of it are in
# memory, and a reader must call `need` for a part before it accesses it. Otherwise it is read in the same way.
#
# A thread that accesses a missing page of a mapped file is blocked, and a page that cannot be read kills the process.
# So a reader of pages that may be missing calls `need` as well, which waits for the disk without blocking other
# threads. Pages that cannot be read raise LogUnreadable.
#
# Invariants: the mapping exists as long as the file's object, to which every view of the content refers. Only topic and
# name records of the chains are checked here; the reader of other records checks them.

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.string cimport memcpy

import mmap
import os

from amps._core.shm.platform cimport crc32c
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    FILE_IN_USE,
    FILE_SPARE,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    KIND_TRANSACTION_REFUSED,
    NAME_PREFIX_BYTES,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    FileHeader,
    RecordHeader,
    record_parts_fit,
    record_payload,
    record_sound,
    refused_transaction,
)

cdef extern from "sys/mman.h" nogil:
    const int MADV_DONTNEED
    const int MADV_RANDOM
    const int MAP_SHARED
    const int PROT_READ
    void* MAP_FAILED

cdef extern from "residency.h" nogil:
    const int READ_ENDED
    uint64_t file_bytes(int descriptor, uint64_t unknown)
    int read_pages(const uint8_t* address, uint64_t length, int descriptor, uint64_t offset, uint64_t* failed_at)

cdef uint64_t PAGE_BYTES = mmap.PAGESIZE
cdef uint64_t FAULT_AROUND_BYTES = 65536   # bytes of cached pages that the kernel maps at one fault, by default
cdef enum:
    LARGE_BYTES = 1 << 20
    FETCH_BYTES = 4 << 20          # bytes that a waiting reader reads from the disk at once
    VERSION_OFFSET = 8             # in the file header
    VERSIONS_MAX = 1 << 16         # no release writes a version from here on: such a number is damage

FILE_HEADER_SIZE = FILE_HEADER_BYTES
RECORD_HEADER_SIZE = RECORD_HEADER_BYTES
END_OF_FILE_KIND = KIND_END_OF_FILE
FORMAT_VERSION = 3             # of new files
VERSION_READ_MIN = 2           # without delays and transactions: files of this version are read, too
MAGIC = b"AMPSOJNL"


class LogOfOtherVersion(LogDamaged):
    """A journal was written by another release, in a format that this release cannot read. It may well be intact."""

    def __init__(self, path, version):
        age = "a newer" if version > FORMAT_VERSION else "an older"
        detail = (
            f"written by {age} server: a journal of format version {version}, and this program reads versions "
            f"{VERSION_READ_MIN} to {FORMAT_VERSION}; use the release of amps-server that wrote it"
        )
        super().__init__(path, VERSION_OFFSET, detail, detail)


class LogMissing(LogDamaged):
    """A file of the log is missing, though it was not removed on purpose, or it cannot be opened."""


class LogUnreadable(LogDamaged):
    """A part of a file cannot be read: the device fails, or the file was truncated.

    The requested bytes before `offset` are in memory.
    """


class LogRemoved(LookupError):
    """A file of the log was removed on purpose, or is about to be: the log begins later now."""


def build_file_header(file_number, file_size, start_position, first_txid, created_ns, instance_name_hash,
                      instance_name, in_use):
    """The 4096 bytes at the beginning of a file. `start_position` and `first_txid` are valid once it is in use.

    Raises ValueError for an instance name that is too long.
    """
    cdef bytes name = instance_name.encode()
    cdef bytearray page = bytearray(FILE_HEADER_BYTES)
    cdef FileHeader* header = <FileHeader*><char*>page
    if len(name) > sizeof(header.instance_name):
        raise ValueError(f"the instance name is longer than {sizeof(header.instance_name)} bytes")
    header.magic = MAGIC
    header.version = FORMAT_VERSION
    header.header_length = sizeof(FileHeader) - 16
    header.state = FILE_IN_USE if in_use else FILE_SPARE
    header.file_number = file_number
    header.file_size = file_size
    header.start_position = start_position
    header.first_txid = first_txid
    header.created_ns = created_ns
    header.instance_name_hash = instance_name_hash
    header.instance_name_length = <unsigned short>len(name)
    memcpy(&header.instance_name[0], <const char*>name, len(name))
    header.checksum = crc32c(<char*>page + 16, sizeof(FileHeader) - 16)
    return bytes(page)


def read_file_header(page, path):
    """Check and read a file header. Raises LogDamaged.

    Returns (file number, file size, start position, first txid, instance name, in use); None for a page of zeros
    (a spare journal whose preallocation was interrupted).
    """
    cdef const unsigned char[::1] view = page
    if view.shape[0] < FILE_HEADER_BYTES:
        raise LogDamaged(path, 0, "shorter than its header")
    cdef const FileHeader* header = <const FileHeader*>&view[0]
    if not any(bytes(page[: sizeof(FileHeader)])):
        return None
    if header.magic[:8] != MAGIC:
        raise LogDamaged(path, 0, "this is no journal file (magic number)")
    if not VERSION_READ_MIN <= header.version <= FORMAT_VERSION:
        if 0 < header.version < VERSIONS_MAX:
            raise LogOfOtherVersion(path, header.version)
        raise LogDamaged(path, VERSION_OFFSET, f"there is no format version {header.version}")
    if header.header_length != sizeof(FileHeader) - 16 or crc32c(&view[16], sizeof(FileHeader) - 16) != header.checksum:
        raise LogDamaged(path, 0, "checksum of the file header does not match")
    return (
        header.file_number, header.file_size, header.start_position, header.first_txid,
        (<const char*>header.instance_name)[: header.instance_name_length].decode(), header.state == FILE_IN_USE,
    )


def checksum(data):
    """CRC32C of some bytes, the checksum that all files of the log use."""
    cdef const unsigned char[::1] view = data
    return crc32c(&view[0], <size_t>view.shape[0]) if view.shape[0] else 0


cdef class MappedRange:
    """A part of a mapped file, exported as a buffer.

    When the buffer of a large part is released, its pages leave the process's resident memory. They stay in the page
    cache.
    """

    cdef LogFile file              # keeps the mapping
    cdef const uint8_t* data
    cdef uint64_t length

    def __init__(self, LogFile file, uint64_t offset, uint64_t length):
        if offset > file.size or length > file.size - offset:
            raise ValueError(f"{length} bytes at {offset} are not in {file.path}")
        self.file = file
        self.data = file.data + offset
        self.length = length

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void*>self.data, <Py_ssize_t>self.length, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        cdef uint64_t first
        cdef uint64_t end
        if self.length >= LARGE_BYTES:
            first = (<uint64_t>self.data + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES
            end = (<uint64_t>self.data + self.length) // PAGE_BYTES * PAGE_BYTES
            madvise(<void*>first, end - first, MADV_DONTNEED)


cdef class LogFile:

    def __cinit__(self):
        self.descriptor = -1
        self.data = NULL
        self.size = 0

    def __dealloc__(self):
        if self.descriptor >= 0:
            if self.data != NULL:
                munmap(<void*>self.data, self.size)
            os.close(self.descriptor)

    def __init__(self, path, number=None, FrameCache cache=None):
        """Open a file that is in use or full, compressed or not. Raises OSError, LogDamaged.

        number: the expected number in its header, or None. cache: for decompressed content; None: a cache of its own.
        """
        cdef uint64_t size
        cdef void* address
        self.path = path
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            compressed = os.pread(descriptor, 4, 0) == FRAME_MAGIC
            if size < FILE_HEADER_BYTES and not compressed:
                raise LogDamaged(path, 0, "shorter than its header")
            if not compressed:
                address = map_memory(NULL, size, PROT_READ, MAP_SHARED, descriptor, 0)
                if address == MAP_FAILED:
                    raise OSError(errno, os.strerror(errno), path)
                self.data = <const uint8_t*>address
                self.size = size
                self.descriptor = descriptor
        finally:
            if self.descriptor < 0:
                os.close(descriptor)
        if compressed:
            self.frames = FrameMap(path, cache)
            self.data = self.frames.data
            self.size = size = self.frames.size
        header = read_file_header(self.read(0, min(size, <uint64_t>FILE_HEADER_BYTES)), path)
        if header is None or not header[5]:
            raise LogDamaged(path, 0, "the file is not in use yet")
        if number is not None and header[0] != number:
            raise LogDamaged(path, 24, f"the header says file number {header[0]}")
        if header[1] != size:
            raise LogDamaged(path, 32, f"the file has {size} bytes, its header says {header[1]}")
        self.number = header[0]
        self.start_position = header[2]
        self.instance_name = header[4]
        self.topics = []

    @property
    def compressed(self):
        """True if the file is stored compressed. `size` is the size of the content in either case."""
        return self.frames is not None

    def expect_jumps(self):
        """Expect random access: a missing page is read without the pages around it.

        A device may be configured to read megabytes ahead for each page. A sequential reader requests its pages itself
        (journal/read_ahead.pxi).
        """
        if self.frames is None:
            madvise(<void*>self.data, self.size, MADV_RANDOM)

    def unmap_pages(self, uint64_t begin, uint64_t end):
        """Unmap the pages between two log positions. They stay in the page cache and are mapped again when accessed.

        Pages shortly before `begin` are unmapped as well, since an access behind it has mapped its neighbours again.
        """
        cdef uint64_t first, last
        if self.frames is None and end > self.start_position:
            first = max(begin, self.start_position) - self.start_position
            first = (first - min(first, FAULT_AROUND_BYTES)) // PAGE_BYTES * PAGE_BYTES
            last = min(end - self.start_position, self.size) // PAGE_BYTES * PAGE_BYTES
            if first < last:
                madvise(<void*>(self.data + first), last - first, MADV_DONTNEED)

    cpdef int need(self, uint64_t offset, uint64_t length) except -1:
        """Bring a part of the file into memory. Waits for the disk, while other threads run.

        The part of a compressed file stays until the next call for any compressed file of its cache. Raises LogDamaged,
        LogUnreadable.
        """
        cdef uint64_t first = offset // PAGE_BYTES * PAGE_BYTES
        cdef uint64_t failed_at = 0
        cdef int problem
        if offset > self.size or length > self.size - offset:
            raise LogDamaged(self.path, offset, "a record reaches beyond the end of the file")
        if self.frames is not None:
            self.frames.need(offset, length)
            return 0
        if length == 0:
            return 0
        with nogil:
            problem = read_pages(self.data + first, offset + length - first, self.descriptor, first, &failed_at)
        # The bytes behind the end of a truncated file in its last page are readable, but they are not its content.
        self.check_readable(offset, length, failed_at if problem == READ_ENDED else self.readable_bytes())
        if problem > 0:
            raise LogUnreadable(self.path, failed_at, f"it cannot be read ({os.strerror(problem)})")
        return 0

    cdef int check_readable(self, uint64_t offset, uint64_t length, uint64_t readable) except -1:
        """Raise LogUnreadable if the file was truncated before the end of the requested part."""
        if readable < self.size and length > readable - min(offset, readable):
            raise LogUnreadable(self.path, readable, f"the file ends here, its header says {self.size} bytes")
        return 0

    cpdef uint64_t readable_bytes(self) except? 0:
        """The current size of the file in bytes; less than `size` if the file was truncated."""
        if self.frames is not None:
            return self.size
        return min(self.size, file_bytes(self.descriptor, self.size))

    cdef const RecordHeader* record_at(self, uint64_t offset) except NULL:
        """The record at a file offset. The whole record is in memory, unless its length exceeds the file."""
        cdef const RecordHeader* record
        self.need(offset, RECORD_HEADER_BYTES)
        record = <const RecordHeader*>(self.data + offset)
        if record.length <= self.size - offset:
            self.need(offset, record.length)
        return record

    cdef uint64_t ready_at(self, uint64_t offset) except? 0:
        """Bring the record at a file offset into memory.

        Returns the file offset up to which content is in memory without a gap. Raises LogDamaged, LogUnreadable.
        """
        cdef const RecordHeader* record
        cdef uint64_t end
        if self.frames is None:
            end = min(self.size, offset + FETCH_BYTES)
            self.need(offset, end - offset)
            if self.size - offset >= RECORD_HEADER_BYTES:
                record = <const RecordHeader*>(self.data + offset)
                if end - offset < record.length <= self.size - offset:
                    self.need(end, offset + record.length - end)
                    end = offset + record.length
            return end
        record = self.record_at(offset)
        return self.frames.need(
            offset, record.length if record.length <= self.size - offset else <uint64_t>RECORD_HEADER_BYTES
        )

    def read(self, uint64_t offset, uint64_t length):
        """A copy of a part of the content. Raises LogDamaged."""
        self.need(offset, length)
        return (<const char*>self.data + offset)[:length]

    cdef int learn_topic(self, const RecordHeader* record, object resolver) except -1:
        """Resolve the topic of a topic record and note it under its topic id, unless that id is known already."""
        cdef uint32_t topic_id = record.topic_id
        while <uint32_t>len(self.topics) <= topic_id:
            self.topics.append(None)
        if self.topics[topic_id] is None:
            message_type, topic = topic_of_record(record)
            self.topics[topic_id] = resolver(topic, message_type)
        return 0

    def memory_view(self, uint64_t offset, uint64_t length):
        """A read-only view of a part of the content; the memory stays valid while the view exists."""
        if self.frames is not None:
            return memoryview(self.read(offset, length))
        return memoryview(MappedRange(self, offset, length))

    def learn_topics_before(self, uint64_t last_topic_offset, resolver, uint64_t count_max, uint64_t lowest=0):
        """Follow the chain of topic records backwards, so that reading may begin in the middle of the file.

        The call ends after `count_max` topic records, or before a topic record with an offset below `lowest`. Returns
        the offset of the topic record to continue with; 0: the chain was followed to its end.
        """
        cdef uint64_t offset = last_topic_offset
        cdef const RecordHeader* record
        while offset and offset >= lowest and count_max:
            count_max -= 1
            record = self.chained(offset, KIND_TOPIC)
            self.learn_topic(record, resolver)
            offset = (<const uint64_t*>record_payload(record))[0]
        return offset

    def names_before(self, uint64_t last_name_offset):
        """{name id: text as bytes} of the name records from a file offset back to the first one of the file.

        last_name_offset: the offset of a name record; 0 = none. Raises LogDamaged.
        """
        cdef uint64_t offset = last_name_offset
        cdef const RecordHeader* record
        found = {}
        while offset:
            record = self.chained(offset, KIND_NAME)
            _, name_id, text = name_of_record(record)
            found[name_id] = text
            offset = (<const uint64_t*>record_payload(record))[0]
        return found

    def refused_transactions(self, uint64_t end_offset):
        """[(publisher id, first sequence, last sequence)] of the refused transactions of a full file, oldest first.

        end_offset: the offset of its end-of-file record. Raises LogDamaged, LogUnreadable.
        """
        cdef const RecordHeader* record = self.record_at(end_offset)
        cdef uint64_t offset
        if (
            record.kind != KIND_END_OF_FILE or not record_parts_fit(record) or record.length > self.size - end_offset
            or not record_sound(record)
        ):
            raise LogDamaged(self.path, end_offset, "no end-of-file record where one must be")
        offset = record.sequence
        found = []
        while offset:
            if offset >= end_offset:
                raise LogDamaged(self.path, end_offset, "the chain of refused transactions leads beyond its file")
            record = self.chained(offset, KIND_TRANSACTION_REFUSED)
            found.append((record.publisher_id, refused_transaction(record).sequence, record.sequence))
            offset = refused_transaction(record).previous
        found.reverse()
        return found

    cdef const RecordHeader* chained(self, uint64_t offset, uint16_t kind) except NULL:
        """The checked record of a kind at an offset of its chain. A chain only leads backwards. Raises LogDamaged."""
        cdef const RecordHeader* record = self.record_at(offset)
        if (
            record.kind != kind or not record_parts_fit(record) or record.length > self.size - offset
            or not record_sound(record)
            or not fits_chain(record)
            or (<const uint64_t*>record_payload(record))[0] >= offset
        ):
            chain = {KIND_NAME: "name", KIND_TOPIC: "topic"}.get(kind, "refused transaction")
            raise LogDamaged(self.path, offset, f"{chain} chain meets a record that is no intact {chain} record")
        return record


cdef bint fits_chain(const RecordHeader* record) noexcept nogil:
    """True if the payload of a chained record adds up."""
    if record.kind == KIND_TRANSACTION_REFUSED:
        return refused_transaction(record) != NULL
    return name_record_fits(record) if record.kind == KIND_NAME else topic_record_fits(record)


cdef tuple topic_of_record(const RecordHeader* record):
    """(message type, topic) of a topic record. Raises ValueError."""
    cdef const uint8_t* payload = record_payload(record)
    cdef uint32_t type_length = (<const uint32_t*>(payload + 16))[0]
    cdef uint32_t topic_length = (<const uint32_t*>(payload + 20))[0]
    if not topic_record_fits(record):
        raise ValueError("malformed topic record")
    cdef const char* text = <const char*>payload + TOPIC_PREFIX_BYTES
    return text[:type_length].decode("utf-8", "surrogatepass"), (
        (text + type_length)[:topic_length].decode("utf-8", "surrogatepass")
    )


cdef tuple name_of_record(const RecordHeader* record):
    """(class, name id, text as bytes) of a name record for which `name_record_fits` is true."""
    cdef const uint8_t* payload = record_payload(record)
    return (
        (<const uint32_t*>(payload + 16))[0],
        (<const uint64_t*>(payload + 8))[0],
        (<const char*>payload + NAME_PREFIX_BYTES)[: record.payload_length - NAME_PREFIX_BYTES],
    )
