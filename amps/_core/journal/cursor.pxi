# Reading a log: the directory of its files, and cursors that move through their records.
#
# A log is a sequence of numbered files (journal/file.pxi). A log position counts bytes over all of them. The header of
# a file has the position at which the file starts; a record's position is that position plus its offset. The last
# record of a full file is an end-of-file record. The log then continues in the file with the next number. The same
# cursor class reads the journal and the transient log.
#
# Invariants: a cursor never reads at or beyond the limit (a watermark) that the caller passes, because bytes there may
# be half written. With `verify`, a record is returned only after its checksum was verified. Damage raises LogDamaged
# with file and offset and is never skipped.
#
# A thread that accesses a missing page of a mapped file is blocked, and a page that cannot be read kills the process.
# So there are three modes of a cursor. With a window (`allow`), the cursor accesses nothing outside the window. It
# stops before a record that is not in the window as a whole, and `needed` returns the number of bytes needed. With
# `fetch`, the cursor brings the records into memory itself, and waits. Otherwise it reads recently written records,
# which are assumed to be in memory.

cimport cython

from libc.stdint cimport uint8_t, uint64_t

import weakref

from amps._core.shm.platform cimport crc32c_more
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    KIND_TRANSACTION,
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
    CHECK_BYTES = 4 << 20          # bytes of a long record checked in one call: about half a millisecond

cdef uint64_t ALL = <uint64_t>-1


class LogDirectory:
    """The files of one log by number, mapped when needed and shared by all cursors of the process.

    prefix, suffix: a file's path is prefix + ten digits + suffix. resolver(topic, message_type): makes the object that
    cursors return for a topic id. more_places: further pairs of prefix and suffix. Files move only from earlier places
    to later ones, and are in the new place before they leave the old one. So a search of the places in their order
    finds a file that moves meanwhile. cache: for the content of compressed files. guard: prevents the removal of files
    that are being read. guard.enter(number) is called before a file is opened and raises LogRemoved if the file is
    removed or about to be. guard.check(number) does the same without entering. guard.release(number) reports the lowest
    file still in use, None if there is none.
    """

    def __init__(self, prefix, suffix, resolver, more_places=(), cache=None, guard=None):
        self.resolver = resolver
        self._places = ((prefix, suffix), *more_places)
        self._cache = cache
        self._guard = guard
        self._files = weakref.WeakValueDictionary()
        self._starts = {}

    def path(self, number):
        """The path of the file with that number as long as it has not been moved."""
        prefix, suffix = self._places[0]
        return f"{prefix}{number:010d}{suffix}"

    def file(self, number):
        """The mapped file with that number. Raises LogRemoved, LogMissing, LogDamaged."""
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
        """Report the lowest number of the files in use to the guard, and return it; None if no file is in use.

        A file is in use while a cursor or a view of its content refers to it.
        """
        lowest = min(self._files.keys(), default=None)
        self._guard.release(lowest)
        return lowest

    def unmap_pages(self, begin, end):
        """Unmap the pages of all open files between two log positions."""
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
        """Start at a log position inside file `number`. The caller must have learnt the file's topics before it."""
        self.directory = directory
        self.verify = verify
        self.allowed = ALL
        self.fetches = False
        self.shows_structure = False
        self.wanted_at = ALL
        self.checked_at = ALL
        self.use_file(number)
        self.position = max(position, self.position)

    cdef int use_file(self, uint64_t number) except -1:
        """Move to the first record of a file."""
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
        """Restrict the cursor to its file up to the file offset `end`; the caller has brought that part into memory.

        The next file is not accessed at all. The restriction does not apply to a compressed file.
        """
        self.allowed = min(end, self.file.size)
        self.fetches = False
        self.wanted_at = ALL
        self.set_ready()

    def fetch(self):
        """From now on read missing pages from the disk and wait; raise LogUnreadable for pages that cannot be read."""
        self.allowed = 0
        self.fetches = True
        self.set_ready()

    @property
    def waits(self):
        """True if the cursor stopped because its record is not allowed as a whole, or is being checked in parts."""
        return self.wanted_at == self.position

    @property
    def needed(self):
        """The number of bytes, from its position on, that the cursor needs to continue, as far as that is known."""
        return self.wanted if self.wanted_at == self.position else <uint64_t>RECORD_HEADER_BYTES

    cdef const RecordHeader* stop_for(self, uint64_t length) noexcept:
        """Stop at the current record, of which `length` bytes are needed. Returns NULL."""
        self.wanted = length
        self.wanted_at = self.position
        return NULL

    cdef bint is_checked(self, const RecordHeader* record) except -1:
        """Check the record at the cursor, or the next part of a long one. Returns False if parts are left.

        Raises LogDamaged.
        """
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
        """The LogDirectory that the cursor reads."""
        return self.directory

    def place(self):
        """(file number, log position), the arguments for another cursor that starts here."""
        return self.file.number, self.position

    cdef const RecordHeader* next(self, uint64_t limit) except? NULL:
        """The record at the cursor, or NULL at the limit or where the cursor `waits`.

        Topic and end-of-file records are processed here and not returned; neither are name and transaction records,
        unless `shows_structure` is set.
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
            if record.kind == KIND_NAME or record.kind == KIND_TRANSACTION:
                if self.learns_names is not None and record.kind == KIND_NAME and name_record_fits(record):
                    self.learns_names(*name_of_record(record))
                if self.shows_structure:
                    return record
                self.position += align8(record.length)
                continue
            if record.kind == KIND_END_OF_FILE:
                self.position = self.file.start_position + self.file.size
                continue
            return record
        return NULL

    def step(self, uint64_t limit):
        """Return the next record as a Record and move past it; None at the limit. For tools and tests."""
        cdef const RecordHeader* record
        begin_reading(self)
        record = self.next(limit)
        if record == NULL:
            return None
        result = make_record(record, topic_of(self.file, record.topic_id))
        skip_record(self, record)
        return result

    def skip_to(self, uint64_t position):
        """Move to a log position and learn the topics on the way. Returns the last bookmark passed, or None."""
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
        """Move behind the record with that bookmark. Returns its position; None if there is none before the limit."""
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
        """Move to the first record at or after that time (UNIX, in microseconds), at most to the limit.

        Returns True if records were skipped.
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

    def next_txid(self, uint64_t limit):
        """The transaction id of the next record before a limit; None if there is none."""
        cdef const RecordHeader* record
        begin_reading(self)
        record = self.next(limit)
        return None if record == NULL else record.txid

    def next_time_us(self, uint64_t limit):
        """The time of the next record before a limit (UNIX, in microseconds); None if there is none."""
        cdef const RecordHeader* record
        begin_reading(self)
        record = self.next(limit)
        return None if record == NULL else record.timestamp_ns // 1000

    def last_record(self, uint64_t limit):
        """Move to the limit. Returns the position of the last record before it; None if there is none."""
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
