# Reading a log: a directory of its files, and cursors that go through their records.
#
# A log is a row of numbered files (journal/file.pxi). A log position counts bytes over all of them: a file's header
# says at which position it starts, a record's position is that plus its offset. The last record of a full file is an
# end-of-file record; the log then goes on in the file with the next number. The same cursor reads the journal and the
# transient log.
#
# Invariants: a cursor never reads at or beyond the limit it is given (a watermark), because bytes there may be half
# written. With `verify` a record is handed out only after its checksum was found right; damage raises LogDamaged
# naming file and offset and is never skipped.
#
# A page of a mapped file that is not in memory stops whoever looks at it, and one that cannot be read kills the
# process. So there are three kinds of cursors. One that is given a window (`allow`) never looks at anything outside
# it: it stops before a record that is not in there as a whole, and says how much of it is needed. One that fetches
# (`fetch`) sees to it itself, and waits. Any other one reads what has just been written, and is taken to be in
# memory.

cimport cython

from libc.stdint cimport uint8_t, uint64_t

import weakref

from amps._core.shm.platform cimport crc32c_more
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
    extension_fits,
    record_correlation_id,
    record_parts_fit,
    record_payload,
    record_sound,
    record_sow_key,
    record_user_id,
)

cdef enum:
    CHECK_BYTES = 4 << 20          # of a long record that are checked in one go: about half a millisecond

cdef uint64_t ALL = <uint64_t>-1


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

    def unmap_pages(self, begin, end):
        """Keep no pages mapped between two log positions, of any file that is open."""
        for file in list(self._files.values()):
            file.unmap_pages(begin, end)

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
        if not record_parts_fit(record) or (at_once and not record_sound(record)):
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
        if self.checked_sum != record.checksum or not extension_fits(record):
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
            if record.kind == KIND_NAME:
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
