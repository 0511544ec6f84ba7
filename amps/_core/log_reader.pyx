"""Reading a log: mapped files, and cursors that go through their records.

A log is a row of numbered files. A log position counts bytes over all of them: a file's header says at which
position it starts, a record's position is that plus its offset. The last record of a full file is an end-of-file
record; the log then goes on in the file with the next number. The journal (on disk) and the transient log (in
shared memory, for topics that are not recorded) have the same format, so that the same cursor reads both.

A file of the journal may be compressed (frames.pyx): then only parts of it are in memory, and whatever reads it says
first which part it needs. It is read in the same way otherwise.

Invariants: a cursor never reads at or beyond the limit it is given (a watermark), because bytes there may be half
written. With `verify` a record is handed out only after its checksum was found right; damage raises LogDamaged
naming file and offset and is never skipped.

A page of a mapped file that is not in memory stops whoever looks at it, and one that cannot be read kills the process.
So there are three kinds of cursors. One that is given a window (`allow`) never looks at anything outside it: it stops
before a record that is not in there as a whole, and says how much of it is needed. One that fetches (`fetch`) sees to
it itself, and waits. Any other one reads what has just been written, and is taken to be in memory.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.string cimport memcpy

import mmap
import os
import weakref

from amps._core.frames cimport FrameCache, FrameMap
from amps._core.frames import FRAME_MAGIC as _FRAME_MAGIC
from amps._core.frames import LogDamaged
from amps._core.platform cimport crc32c, crc32c_more
from amps._core.record cimport (
    FILE_HEADER_BYTES,
    FILE_IN_USE,
    FILE_SPARE,
    KIND_END_OF_FILE,
    KIND_TOPIC,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    FileHeader,
    align8,
    record_checksum,
    record_correlation_id,
    record_parts_fit,
    record_payload,
    record_sow_key,
    record_user_id,
)

cdef extern from "sys/mman.h" nogil:
    void* map_memory "mmap"(void* address, size_t length, int protection, int flags, int descriptor, long offset)
    int munmap(void* address, size_t length)
    int madvise(void* address, size_t length, int advice)
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
cdef enum:
    LARGE_BYTES = 1 << 20
    FETCH_BYTES = 4 << 20          # what is read from the disk in one go by who waits for it
    CHECK_BYTES = 4 << 20          # of a long record that are checked in one go: about half a millisecond

cdef uint64_t ALL = <uint64_t>-1

FILE_HEADER_SIZE = FILE_HEADER_BYTES
RECORD_HEADER_SIZE = RECORD_HEADER_BYTES
END_OF_FILE_KIND = KIND_END_OF_FILE
FORMAT_VERSION = 1
MAGIC = b"AMPSOJNL"
EMPTY = b""


class LogMissing(LogDamaged):
    """A file of the log is not where it should be, and was not removed on purpose; or it cannot be opened."""


class LogUnreadable(LogDamaged):
    """A part of a file cannot be read: the device fails, or the file was cut off. What was asked for before `offset` is
    in memory.
    """


class LogRemoved(LookupError):
    """That file of the log was removed on purpose, or is about to be: the log begins later now."""


def build_file_header(file_number, file_size, start_position, first_txid, created_ns, instance_name_hash,
                      instance_name, in_use):
    """The 4096 bytes a file begins with; `start_position` and `first_txid` count once it is in use."""
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
    (a spare whose preallocation was cut off).
    """
    cdef const unsigned char[::1] view = page
    if view.shape[0] < FILE_HEADER_BYTES:
        raise LogDamaged(path, 0, "shorter than its header")
    cdef const FileHeader* header = <const FileHeader*>&view[0]
    if not any(bytes(page[: sizeof(FileHeader)])):
        return None
    if header.magic[:8] != MAGIC:
        raise LogDamaged(path, 0, "this is no journal file (magic number)")
    if header.version != FORMAT_VERSION:
        raise LogDamaged(path, 8, f"file format version {header.version}; this program reads version {FORMAT_VERSION}")
    if header.header_length != sizeof(FileHeader) - 16 or crc32c(&view[16], sizeof(FileHeader) - 16) != header.checksum:
        raise LogDamaged(path, 0, "checksum of the file header does not match")
    return (
        header.file_number, header.file_size, header.start_position, header.first_txid,
        (<const char*>header.instance_name)[: header.instance_name_length].decode(), header.state == FILE_IN_USE,
    )


def checksum(data):
    """CRC32C of some bytes: the sum that all files of the log use."""
    cdef const unsigned char[::1] view = data
    return crc32c(&view[0], <size_t>view.shape[0]) if view.shape[0] else 0


cdef class MappedRange:
    """A part of a mapped file that somebody reads. When they have done, the pages of a large one leave the process's
    resident memory; they stay in the page cache.
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

        number: what its header must say, if known. cache: where decompressed content is kept; else it is its own.
        """
        cdef uint64_t size
        cdef void* address
        self.path = path
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            compressed = os.pread(descriptor, 4, 0) == _FRAME_MAGIC
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
        """Whether it is stored compressed; `size` is that of the content all the same."""
        return self.frames is not None

    def expect_jumps(self):
        """It will be read here and there: a page that is missing is read without what lies around it.

        Devices may be set to bring megabytes for each. Who reads on from a place asks for that (read_ahead.pyx).
        """
        if self.frames is None:
            madvise(<void*>self.data, self.size, MADV_RANDOM)

    cpdef int need(self, uint64_t offset, uint64_t length) except -1:
        """Have a part of the file in memory, until a part of any compressed file is needed; waits for the disk, while
        others run. Raises LogDamaged, LogUnreadable.
        """
        cdef uint64_t first = offset // PAGE_BYTES * PAGE_BYTES
        cdef uint64_t failed_at = 0
        cdef int problem
        if offset > self.size or length > self.size - offset:
            raise LogDamaged(self.path, offset, "a record leaves the file")
        if self.frames is not None:
            self.frames.need(offset, length)
            return 0
        if length == 0:
            return 0
        with nogil:
            problem = read_pages(self.data + first, offset + length - first, self.descriptor, first, &failed_at)
        # What lies behind the end of the file in its last page is there, and not what it should be.
        self.check_readable(offset, length, failed_at if problem == READ_ENDED else self.readable_bytes())
        if problem > 0:
            raise LogUnreadable(self.path, failed_at, f"it cannot be read ({os.strerror(problem)})")
        return 0

    cdef int check_readable(self, uint64_t offset, uint64_t length, uint64_t readable) except -1:
        """Raises LogUnreadable if there is less of the file than is needed."""
        if readable < self.size and length > readable - min(offset, readable):
            raise LogUnreadable(self.path, readable, f"the file ends here, its header says {self.size} bytes")
        return 0

    cpdef uint64_t readable_bytes(self) except? 0:
        """How much there is of the file now: less than `size` if somebody has cut it off."""
        if self.frames is not None:
            return self.size
        return min(self.size, file_bytes(self.descriptor, self.size))

    cdef const RecordHeader* record_at(self, uint64_t offset) except NULL:
        """The record at a file offset, in memory as a whole if its length can be true."""
        cdef const RecordHeader* record
        self.need(offset, RECORD_HEADER_BYTES)
        record = <const RecordHeader*>(self.data + offset)
        if record.length <= self.size - offset:
            self.need(offset, record.length)
        return record

    cdef uint64_t ready_at(self, uint64_t offset) except? 0:
        """Have the record at that offset in memory. Returns up to where the content is there without a gap."""
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
        """Note what a topic record says; a second time it is ignored."""
        cdef uint32_t topic_id = record.topic_id
        while <uint32_t>len(self.topics) <= topic_id:
            self.topics.append(None)
        if self.topics[topic_id] is None:
            message_type, topic = topic_of_record(record)
            self.topics[topic_id] = resolver(topic, message_type)
        return 0

    def memory_view(self, uint64_t offset, uint64_t length):
        """A read-only view of the content; it stays valid while the view lives."""
        if self.frames is not None:
            return memoryview(self.read(offset, length))
        return memoryview(MappedRange(self, offset, length))

    def learn_topics_before(self, uint64_t last_topic_offset, resolver, uint64_t count_max, uint64_t lowest=0):
        """Follow the chain of topic records backwards, so that reading may begin in mid-file.

        Returns the file offset to go on from after `count_max` of them, or where one lies before the file offset
        `lowest`; 0: that was the first one of the file.
        """
        cdef uint64_t offset = last_topic_offset
        cdef const RecordHeader* record
        while offset and offset >= lowest and count_max:
            count_max -= 1
            record = self.record_at(offset)
            if (
                record.kind != KIND_TOPIC or not record_parts_fit(record) or record.length > self.size - offset
                or record.checksum != record_checksum(record)
            ):
                raise LogDamaged(self.path, offset, "topic chain meets a record that is no intact topic record")
            self.learn_topic(record, resolver)
            offset = (<const uint64_t*>record_payload(record))[0]
        return offset


cdef tuple topic_of_record(const RecordHeader* record):
    """(message type, topic) of a topic record."""
    cdef const uint8_t* payload = record_payload(record)
    cdef uint32_t type_length = (<const uint32_t*>(payload + 16))[0]
    cdef uint32_t topic_length = (<const uint32_t*>(payload + 20))[0]
    if not topic_record_fits(record):
        raise ValueError("malformed topic record")
    cdef const char* text = <const char*>payload + TOPIC_PREFIX_BYTES
    return text[:type_length].decode("utf-8", "surrogatepass"), (
        (text + type_length)[:topic_length].decode("utf-8", "surrogatepass")
    )


class LogDirectory:
    """The files of one log by number, mapped when needed and shared by all cursors of the process.

    prefix, suffix: a file's path is prefix + ten digits + suffix. resolver(topic, message_type) makes what
    cursors hand out for a topic id. more_places: further pairs of prefix and suffix. Files move only from earlier
    places to later ones, and are there before they are gone from where they were; so looking at the places in their
    order finds a file that moves meanwhile. cache: for the content of compressed files. guard: keeps files from
    being removed while they are read; guard.enter(number) is called before a file is opened and raises LogRemoved if
    it is too late for that, guard.release(number) says which is the lowest still in use, None if none is.
    """

    def __init__(self, prefix, suffix, resolver, more_places=(), cache=None, guard=None):
        self.resolver = resolver
        self._places = ((prefix, suffix), *more_places)
        self._cache = cache
        self._guard = guard
        self._files = weakref.WeakValueDictionary()
        self._starts = {}

    def path(self, number):
        """Where the file with that number lies as long as it has not been moved."""
        prefix, suffix = self._places[0]
        return f"{prefix}{number:010d}{suffix}"

    def file(self, number):
        """The mapped file. Raises LogRemoved, LogMissing, LogDamaged."""
        found = self._files.get(number)
        if found is None:
            if self._guard is not None:
                self._guard.enter(number)
            found = self._open(number)
            self._files[number] = found
            self._starts[number] = found.start_position
        return found

    def _open(self, number):
        for prefix, suffix in self._places * 2:
            try:
                file = LogFile(f"{prefix}{number:010d}{suffix}", number, self._cache)
                file.expect_jumps()
                return file
            except FileNotFoundError:
                pass
            except OSError as error:
                path = f"{prefix}{number:010d}{suffix}"
                raise LogMissing(path, 0, f"it cannot be opened: {error.strerror}") from error
        raise LogMissing(self.path(number), 0, "the file is not there; put it back")

    def release_unused(self):
        """Tell the guard which files are in use now. What holds a file is a cursor, or a view of its content.

        Returns the lowest number of them, None if there is none.
        """
        lowest = min(self._files.keys(), default=None)
        self._guard.release(lowest)
        return lowest

    def start_position(self, number):
        """Log position at which that file starts. Raises LogRemoved, LogMissing, LogDamaged."""
        start = self._starts.get(number)
        if start is None:
            try:
                start = self._open(number).start_position
            except LogMissing:
                if self._guard is not None:
                    self._guard.check(number)
                raise
            self._starts[number] = start
        return start

    def number_at(self, position, first_number, last_number):
        """Number of the file that holds a log position; the first file for positions before it."""
        low, high = first_number, last_number
        while low < high:
            middle = (low + high + 1) // 2
            if self.start_position(middle) <= position:
                low = middle
            else:
                high = middle - 1
        return low


@cython.final
cdef class LogCursor:

    def __init__(self, directory, uint64_t number, uint64_t position, bint verify):
        """Start at a log position inside file `number`. The file's topics before it must be learnt by the caller."""
        self.directory = directory
        self.verify = verify
        self.allowed = ALL
        self.fetches = False
        self.wanted_at = ALL
        self.checked_at = ALL
        self.use_file(number)
        self.position = max(position, self.position)

    cdef int use_file(self, uint64_t number) except -1:
        """Go to the beginning of a file."""
        self.file = self.directory.file(number)
        self.position = self.file.start_position + FILE_HEADER_BYTES
        if self.allowed != ALL:
            self.allowed = 0
        self.set_ready()
        return 0

    cdef void set_ready(self) noexcept:
        cdef uint64_t end = min(self.allowed, self.file.size)
        self.ready = 0 if self.file.frames is not None or end < RECORD_HEADER_BYTES else end - RECORD_HEADER_BYTES

    def allow(self, uint64_t end):
        """From now on look at the file at the cursor up to that file offset only, which others have brought into
        memory, and at the next file not at all; if it is compressed, that makes no difference.
        """
        self.allowed = min(end, self.file.size)
        self.fetches = False
        self.wanted_at = ALL
        self.set_ready()

    def fetch(self):
        """From now on wait for the disk where need be, and raise LogUnreadable for what cannot be read."""
        self.allowed = 0
        self.fetches = True
        self.set_ready()

    @property
    def waits(self):
        """Whether it has stopped because the record at it is not allowed as a whole, or is checked in parts."""
        return self.wanted_at == self.position

    @property
    def needed(self):
        """How many bytes from its position on it needs to go on, as far as that is known."""
        return self.wanted if self.wanted_at == self.position else <uint64_t>RECORD_HEADER_BYTES

    cdef const RecordHeader* stop_for(self, uint64_t length) noexcept:
        """Go no further, for so many bytes of the record at the cursor."""
        self.wanted = length
        self.wanted_at = self.position
        return NULL

    cdef bint is_checked(self, const RecordHeader* record) except -1:
        """Check the record at the cursor, or a part of a long one. False: there is more of it. Raises LogDamaged."""
        cdef uint64_t part
        cdef bint at_once = record.length <= CHECK_BYTES or self.allowed == ALL or self.file.frames is not None
        if not record_parts_fit(record) or (at_once and record.checksum != record_checksum(record)):
            raise LogDamaged(
                self.file.path, self.position - self.file.start_position, "checksum of the record does not match"
            )
        if at_once:
            return True
        if self.checked_at != self.position:
            self.checked_at = self.position
            self.checked_bytes = 8
            self.checked_sum = 0
        part = min(record.length - self.checked_bytes, <uint64_t>CHECK_BYTES)
        self.checked_sum = crc32c_more(self.checked_sum, <const uint8_t*>record + self.checked_bytes, part)
        self.checked_bytes += part
        if self.checked_bytes < record.length:
            return False
        if self.checked_sum != record.checksum:
            raise LogDamaged(
                self.file.path, self.position - self.file.start_position, "checksum of the record does not match"
            )
        return True

    def directory_of(self):
        """The LogDirectory it reads."""
        return self.directory

    def place(self):
        """(file number, log position): where another cursor would have to start."""
        return self.file.number, self.position

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL:
        """The record at the cursor, or NULL at the limit or where the cursor `waits`. Topic and end-of-file records are
        dealt with here.
        """
        cdef const RecordHeader* record
        cdef uint64_t offset
        while self.position < limit:
            offset = self.position - self.file.start_position
            if offset >= self.file.size:
                self.use_file(self.file.number + 1)
                continue
            record = <const RecordHeader*>(self.file.data + offset)
            if offset >= self.ready or record.length > self.ready - offset:
                if self.file.size - offset < RECORD_HEADER_BYTES:
                    raise LogDamaged(self.file.path, offset, "no record where one must be")
                if self.file.frames is not None:
                    self.ready = self.file.ready_at(offset) - RECORD_HEADER_BYTES
                elif self.allowed < offset + RECORD_HEADER_BYTES or (
                    record.position == self.position
                    and self.allowed - offset < record.length <= self.file.size - offset
                ):
                    if not self.fetches:
                        return self.stop_for(
                            RECORD_HEADER_BYTES if self.allowed < offset + RECORD_HEADER_BYTES else record.length
                        )
                    self.allowed = self.file.ready_at(offset)
                    self.set_ready()
            if record.position != self.position or record.length > self.file.size - offset:
                raise LogDamaged(self.file.path, offset, "no record where one must be")
            if self.verify:
                if self.fetches:
                    while not self.is_checked(record):
                        pass
                elif not self.is_checked(record):
                    return self.stop_for(record.length)
            if record.kind == KIND_TOPIC:
                self.file.learn_topic(record, self.directory.resolver)
                self.position += align8(record.length)
                continue
            if record.kind == KIND_END_OF_FILE:
                self.position = self.file.start_position + self.file.size
                continue
            return record
        return NULL

    def step(self, uint64_t limit):
        """The next record as a Record, moving past it; None at the limit. For tools and tests."""
        cdef const RecordHeader* record
        begin_reading(self)
        record = self.next(limit)
        if record == NULL:
            return None
        result = make_record(record, topic_of(self.file, record.topic_id))
        skip_record(self, record)
        return result

    def skip_to(self, uint64_t position):
        """Move to a log position, learning the topics on the way. Returns the last bookmark passed, or None."""
        cdef const RecordHeader* record
        cdef uint64_t publisher = 0
        cdef uint64_t sequence = 0
        begin_reading(self)
        while True:
            record = self.next(position)
            if record == NULL:
                return (publisher, sequence) if publisher else None
            if record.publisher_id:
                publisher = record.publisher_id
                sequence = record.sequence
            skip_record(self, record)

    def find(self, uint64_t publisher_id, uint64_t sequence, uint64_t limit):
        """Move to just after the record with that bookmark. Its position; None if there is none before the limit."""
        cdef const RecordHeader* record
        begin_reading(self)
        while True:
            record = self.next(limit)
            if record == NULL:
                return None
            skip_record(self, record)
            if record.publisher_id == publisher_id and record.sequence == sequence:
                return record.position

    def skip_before(self, uint64_t time_us, uint64_t limit):
        """Move to the first record of that time (UNIX, in microseconds) or a later one, at most to the limit. Whether
        there were others before it.
        """
        cdef const RecordHeader* record
        cdef bint moved = False
        begin_reading(self)
        while True:
            record = self.next(limit)
            if record == NULL or record.timestamp_ns // 1000 >= time_us:
                return moved
            skip_record(self, record)
            moved = True

    def last_record(self, uint64_t limit):
        """Position of the last record before the limit; None if there is none. The cursor moves to the limit."""
        cdef const RecordHeader* record
        found = None
        begin_reading(self)
        while True:
            record = self.next(limit)
            if record == NULL:
                return found
            found = record.position
            skip_record(self, record)


class Record:
    """A record as Python values, for tools and tests; never made on the message path."""

    __slots__ = (
        "correlation_id", "durable_position", "expiration_s", "flags", "kind", "length", "payload", "position",
        "publisher_id", "sequence", "sow_key", "timestamp_ns", "topic", "txid", "user_id",
    )

    def __repr__(self):
        return f"Record({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


cdef object make_record(const RecordHeader* record, object topic):
    result = Record()
    result.position = record.position
    result.length = record.length
    result.txid = record.txid
    result.timestamp_ns = record.timestamp_ns
    result.publisher_id = record.publisher_id
    result.sequence = record.sequence
    result.durable_position = record.durable_position
    result.kind = record.kind
    result.flags = record.flags
    result.expiration_s = None if record.expiration_s == 0xFFFFFFFF else record.expiration_s
    result.correlation_id = (<const char*>record_correlation_id(record))[: record.correlation_id_length]
    result.user_id = (<const char*>record_user_id(record))[: record.user_id_length]
    result.sow_key = (<const char*>record_sow_key(record))[: record.sow_key_length]
    result.payload = (<const char*>record_payload(record))[: record.payload_length]
    result.topic = topic
    return result
