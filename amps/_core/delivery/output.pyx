"""The output buffer of a connection: frames, collected in large chunks, which the event loop sends without changes.

A large payload is not copied: the buffer passes on a view of the mapped log file. The buffer also stores the place in
its byte stream at which the last *paced* message ends. A paced message is read only because the connection took its
output. The bytes behind that place came regardless of the client's pace, and count against the limits for slow clients.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.journal.reader cimport LogCursor, LogFile
from amps._core.journal.record cimport (
    EXTENSION_DELIVER_AT,
    RecordHeader,
    RecordState,
    extension_word,
    record_correlation_id,
    record_payload,
    record_sow_key,
    record_state,
    record_user_id,
)
from amps._core.values.decimal_digits cimport decimal_digits_write

include "../shm/layout.pxi"

cdef enum:
    CHUNK_BYTES = 131072
    COPY_BYTES_MAX = 32768         # larger payloads are passed as views of the log file
    FRAME_EXTRA_BYTES = 320        # room for the numbers and keys of a frame's header

# Flags of a message for one receiver.
WANT_BOOKMARK = 1
WANT_TIMESTAMP = 2
PACED = 4                          # delivered at the client's own pace: replays, and subscriptions that have caught up
WANT_LEASE = 8                     # a queue message to acknowledge; `lease_until_ns` is the end of its lease
WANT_SOW_KEY = 16                  # the key of a record of a SOW topic
# Of subscriptions to SOW topics; the output does not use them: delivery/focus.pxi.
WANT_OUT_OF_FOCUS = 32             # tell of records that the subscription matches no more
WANT_DELTA = 64                    # only what has changed
WANT_NO_EMPTIES = 128              # with WANT_DELTA: nothing if nothing has changed

cdef enum:
    BOOKMARK = 1
    TIMESTAMP = 2
    IS_PACED = 4
    LEASE = 8
    SOW_KEY = 16


cdef inline void write_digits(uint8_t* at, uint32_t value, uint32_t count) noexcept nogil:
    while count:
        count -= 1
        at[count] = <uint8_t>(c'0' + value % 10)
        value //= 10


cdef uint64_t cached_second = 0
cdef uint8_t cached_text[16]


cdef uint32_t write_timestamp(uint8_t* at, uint64_t timestamp_ns) noexcept nogil:
    """Write a time as `YYYYmmddTHHMMSS.ffffffZ`, UTC; returns its length, 23."""
    cdef uint64_t second = timestamp_ns // 1000000000
    cdef int64_t days
    cdef int64_t era
    cdef int64_t day_of_era
    cdef int64_t year_of_era
    cdef int64_t day_of_year
    cdef int64_t month
    cdef int64_t year
    global cached_second
    if second != cached_second:
        # Civil date from days since 1970-01-01, with years that begin in March.
        days = <int64_t>(second // 86400) + 719468
        era = days // 146097
        day_of_era = days - era * 146097
        year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
        year = year_of_era + era * 400
        day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        month = (5 * day_of_year + 2) // 153
        write_digits(&cached_text[6], <uint32_t>(day_of_year - (153 * month + 2) // 5 + 1), 2)
        month = month + 3 if month < 10 else month - 9
        if month <= 2:
            year += 1
        write_digits(&cached_text[0], <uint32_t>year, 4)
        write_digits(&cached_text[4], <uint32_t>month, 2)
        cached_text[8] = c'T'
        write_digits(&cached_text[9], <uint32_t>(second % 86400 // 3600), 2)
        write_digits(&cached_text[11], <uint32_t>(second % 3600 // 60), 2)
        write_digits(&cached_text[13], <uint32_t>(second % 60), 2)
        cached_second = second
    memcpy(at, cached_text, 15)
    at[15] = c'.'
    write_digits(at + 16, <uint32_t>(timestamp_ns % 1000000000 // 1000), 6)
    at[22] = c'Z'
    return 23


@cython.final
cdef class OutputBuffer:
    """Frames on their way to one connection.

    `take` returns the collected output, as a list of bytes-like objects. `on_first` is called when the first bytes
    arrive after a `take`, to notify the owner that there is output to send.
    """

    def __init__(self, on_first):
        self.chunk = None
        self.used = 0
        self.capacity = 0
        self.sealed = []
        self.pending_bytes = 0
        self.taken_bytes = 0
        self.paced_until = 0
        self.lease_until_ns = 0
        self.on_first = on_first
        self.closed = False
        self.begin_bookmarks(0)

    cdef int tell(self) except -1:
        """Notify the owner that the first bytes are about to arrive."""
        self.on_first()
        return 0

    cdef int begin_chunk(self, uint64_t length) except -1:
        """Begin a new chunk with room for at least `length` bytes."""
        self.seal()
        self.capacity = max(<uint64_t>CHUNK_BYTES, length)
        self.chunk = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self.capacity)
        self.start = <uint8_t*>PyBytes_AS_STRING(self.chunk)
        return 0

    cdef int seal(self) except -1:
        """End the chunk, and append it to the sealed output."""
        cdef object chunk
        if self.used:
            chunk = self.chunk
            self.chunk = None
            if self.used * 2 < self.capacity:
                # Copy a small rest, so that a small frame does not keep a large chunk in memory.
                chunk = PyBytes_FromStringAndSize(<char*>self.start, <Py_ssize_t>self.used)
            elif self.used < self.capacity:
                chunk = memoryview(chunk)[:self.used]
            self.sealed.append(chunk)
        self.chunk = None
        self.start = NULL
        self.used = 0
        self.capacity = 0
        return 0

    def append(self, data):
        """Add bytes as they are: acknowledgements, heartbeats."""
        cdef const unsigned char[::1] view = data
        cdef uint64_t length = <uint64_t>view.shape[0]
        if self.closed or length == 0:
            return
        memcpy(reserve(self, length), &view[0], length)
        self.used += length
        self.pending_bytes += length

    cdef int add(self, const uint8_t* data, uint64_t length) except -1:
        """Add bytes as they are."""
        if self.closed or length == 0:
            return 0
        memcpy(reserve(self, length), data, length)
        self.used += length
        self.pending_bytes += length
        return 0

    def note_paced(self):
        """Let everything that was taken count as paced: a result that the client's pace set has gone out behind it."""
        self.paced_until = max(self.paced_until, self.taken_bytes)

    @property
    def unpaced_bytes(self):
        """Number of bytes after the last paced message, including bytes that were taken."""
        return self.taken_bytes + self.pending_bytes - self.paced_until

    def take(self):
        """Take out the collected output, in order; the buffer is empty afterwards."""
        cdef list result
        self.seal()
        result = self.sealed
        self.sealed = []
        self.taken_bytes += self.pending_bytes
        self.pending_bytes = 0
        return result

    def close(self):
        """Drop the output, accept no more, and release the reference to the owner, which routes may outlive."""
        self.closed = True
        self.on_first = None
        self.take()

    cdef void begin_bookmarks(self, uint64_t publisher_id) noexcept:
        cdef uint8_t* at = self.bookmark_start
        memcpy(at, b',"bm":"', 7)
        at += 7
        at += decimal_digits_write(at, publisher_id)
        at[0] = c'|'
        at += 1
        self.bookmark_start_length = <uint32_t>(at - self.bookmark_start)
        self.publisher_id = publisher_id

    cdef int publish(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record, LogCursor cursor
    ) except -1:
        """Append one message as a `publish` frame. `prefix` is its header up to and including `sids`."""
        # A record outside the mapped file may be freed after this call.
        cdef bint by_reference = record.payload_length > COPY_BYTES_MAX and is_in_file(record, cursor.file)
        return self.publish_body(
            prefix, prefix_length, flags, record, record_payload(record), record.payload_length,
            cursor.file if by_reference else None,
        )

    cdef int publish_body(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record,
        const uint8_t* payload, uint64_t payload_length, LogFile file,
    ) except -1:
        """Append a message with another body than that of its record. file: where the body is, if it may be passed as a
        view of it; None: it is copied.
        """
        cdef bint by_reference = file is not None
        cdef uint64_t header_room = (
            prefix_length + FRAME_EXTRA_BYTES + record.correlation_id_length + record.user_id_length
            + record.sow_key_length
        )
        cdef uint8_t* start
        cdef uint8_t* at
        cdef uint64_t deliver_at_ns
        if self.closed:
            return 0
        start = reserve(self, header_room + (0 if by_reference else payload_length))
        at = start + 4
        memcpy(at, prefix, prefix_length)
        at += prefix_length
        if flags & SOW_KEY:
            at = write_sow_key(at, record, 0)
        if flags & BOOKMARK:
            if record.publisher_id != self.publisher_id:
                self.begin_bookmarks(record.publisher_id)
            memcpy(at, self.bookmark_start, sizeof(self.bookmark_start))
            at += self.bookmark_start_length
            at += decimal_digits_write(at, record.sequence)
            memcpy(at, b'|"', 2)
            at += 2
        if flags & LEASE:
            memcpy(at, b',"lp":"', 7)
            at += 7
            if self.lease_until_ns:
                at += write_timestamp(at, self.lease_until_ns)
            else:
                at[0] = c'0'
                at += 1
            at[0] = c'"'
            at += 1
        if flags & TIMESTAMP:
            memcpy(at, b',"ts":"', 7)
            at += 7
            at += write_timestamp(at, record.timestamp_ns)
            at[0] = c'"'
            at += 1
        at = write_correlation_id(at, record)
        if record.user_id_length:
            memcpy(at, b',"user_id":"', 12)
            at += 12
            memcpy(at, record_user_id(record), record.user_id_length)
            at += record.user_id_length
            at[0] = c'"'
            at += 1
        memcpy(at, b',"l":', 5)
        at += 5
        at += decimal_digits_write(at, payload_length)
        if record.extension_length:
            deliver_at_ns = extension_word(record, EXTENSION_DELIVER_AT, 0)
            if deliver_at_ns:
                memcpy(at, b',"not_before":', 14)
                at += 14
                at += decimal_digits_write(at, deliver_at_ns // 1_000_000)
        at[0] = c'}'
        at += 1
        finish_header(start, at, payload_length)
        if by_reference:
            self.used += at - start
            self.seal()
            self.sealed.append(file.memory_view(payload - file.data, payload_length))
        else:
            memcpy(at, payload, payload_length)
            self.used += (at - start) + payload_length
        self.pending_bytes += (at - start) + payload_length
        if flags & IS_PACED:
            self.paced_until = self.taken_bytes + self.pending_bytes
        return 0

    cdef int out_of_focus(
        self, const char* prefix, uint64_t prefix_length, uint32_t flags, bytes reason, uint64_t key,
        const RecordHeader* record, const uint8_t* payload, uint64_t payload_length,
    ) except -1:
        """Append an `oof` frame about a record of a SOW topic (sow.md §13). prefix: as of `publish`. key: of the record
        now; an old value may have one by an earlier definition.
        """
        cdef uint64_t room = (
            prefix_length + FRAME_EXTRA_BYTES + record.correlation_id_length + record.sow_key_length + payload_length
        )
        cdef uint8_t* start
        cdef uint8_t* at
        if self.closed:
            return 0
        start = reserve(self, room)
        at = start + 4
        memcpy(at, prefix, prefix_length)
        at += prefix_length
        if flags & SOW_KEY:
            at = write_sow_key(at, record, key)
        memcpy(at, b',"reason":"', 11)
        at += 11
        memcpy(at, PyBytes_AS_STRING(reason), <size_t>PyBytes_GET_SIZE(reason))
        at += PyBytes_GET_SIZE(reason)
        at[0] = c'"'
        at = write_correlation_id(at + 1, record)
        memcpy(at, b',"l":', 5)
        at += 5
        at += decimal_digits_write(at, payload_length)
        at[0] = c'}'
        at += 1
        finish_header(start, at, payload_length)
        memcpy(at, payload, payload_length)
        self.used += (at - start) + payload_length
        self.pending_bytes += (at - start) + payload_length
        return 0


cdef inline void finish_header(uint8_t* start, const uint8_t* end, uint64_t payload_length) noexcept:
    """Write the length of a frame in front of its header."""
    cdef uint32_t length = <uint32_t>((end - start - 4) + payload_length)
    start[0] = <uint8_t>(length >> 24)
    start[1] = <uint8_t>(length >> 16)
    start[2] = <uint8_t>(length >> 8)
    start[3] = <uint8_t>length


cdef inline uint8_t* write_correlation_id(uint8_t* at, const RecordHeader* record) noexcept:
    if record.correlation_id_length == 0:
        return at
    memcpy(at, b',"x":"', 6)
    at += 6
    memcpy(at, record_correlation_id(record), record.correlation_id_length)
    at += record.correlation_id_length
    at[0] = c'"'
    return at + 1


cdef inline uint8_t* write_sow_key(uint8_t* at, const RecordHeader* record, uint64_t key) noexcept:
    """Write the key of a record: what its publisher provided, or the number (sow.md §3). key: 0 = that of the record,
    if it has one.
    """
    cdef const RecordState* state
    if key == 0:
        state = record_state(record)
        if state == NULL or state.key == 0:
            return at
        key = state.key
    memcpy(at, b',"k":"', 6)
    at += 6
    if record.sow_key_length:
        memcpy(at, record_sow_key(record), record.sow_key_length)
        at += record.sow_key_length
    else:
        at += decimal_digits_write(at, key)
    at[0] = c'"'
    return at + 1


cdef inline bint is_in_file(const RecordHeader* record, LogFile file) noexcept:
    return file.data <= <const uint8_t*>record < file.data + file.size


cdef inline uint8_t* reserve(OutputBuffer output, uint64_t length) except NULL:
    """Make room for `length` more bytes, and return its address."""
    if output.pending_bytes == 0:
        output.tell()
    if output.capacity - output.used < length:
        output.begin_chunk(length)
    return output.start + output.used
