# The `sow` frames of a query (sow.md §8; protocol.md §9.2).
#
# A frame has up to `batch_size` records of one topic. Each record has a small header of its own. The header of the
# frame says how many records it has and how long they are, so it is written last, into room that was left in front of
# them. A frame ends early when it is large: the memory that it takes, and that a client needs for it, stays bounded.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from amps._core.delivery.output cimport OutputBuffer, write_timestamp
from amps._core.journal.record cimport (
    RecordHeader,
    record_correlation_id,
    record_payload,
    record_sow_key,
)
from amps._core.values.decimal_digits cimport decimal_digits_write
from amps._core.values.fields cimport ByteBuffer

cdef enum:
    HEADER_EXTRA_BYTES = 160       # room for the length prefix and the numbers of a frame's header
    RECORD_EXTRA_BYTES = 160       # room for the numbers and names of a record's header
    FRAME_BYTES_MAX = 1048576      # a frame ends with the record that makes it longer

cdef uint64_t ALL_ROWS = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class ResultFrames:
    """Puts records into frames, and these into the output of a connection."""

    def __init__(
        self, OutputBuffer output not None, uint32_t batch_size, bint with_key=True, bint with_timestamp=False,
        Documents documents=None, Selection selection=None, uint64_t skip_count=0, uint64_t row_limit=ALL_ROWS,
        bint apart=False,
    ):
        """documents, selection: reduce the messages; None: they stay whole. skip_count: records that are left out
        first. row_limit: the most records behind them. apart: each record becomes a message of its own (`oof`).
        """
        self.output = output
        self.beginning = b""
        self.frame = ByteBuffer()
        self.head_room = 0
        self.batch_size = batch_size
        self.count = 0
        self.first_ns = 0
        self.with_timestamp = with_timestamp
        self.with_key = with_key
        self.apart = apart
        self.documents = documents
        self.selection = selection
        self.selected = ByteBuffer()
        self.skip_count = skip_count
        self.row_limit = row_limit
        self.returned = 0
        self.frames = 0

    def begin_topic(self, bytes beginning not None):
        """Begin the records of another topic. beginning: of the header of their frames, up to the query id."""
        if beginning != self.beginning:
            self.finish_frame()
            self.beginning = beginning
            self.head_room = PyBytes_GET_SIZE(beginning) + HEADER_EXTRA_BYTES

    @property
    def is_full(self):
        """Whether all records that may be returned have been."""
        return self.row_limit == 0

    @property
    def waiting(self):
        """Records that are in no frame yet."""
        return self.count

    def flush(self):
        """Send the records of an incomplete frame."""
        self.finish_frame()

    def add(
        self, const unsigned char[::1] key, const unsigned char[::1] correlation, uint64_t timestamp_ns,
        uint64_t deliver_at_ns, const unsigned char[::1] payload
    ):
        """Add a record that was collected before. deliver_at_ns: UNIX time before which a queue does not deliver it."""
        self.put(
            &key[0] if key.shape[0] else NULL, key.shape[0],
            &correlation[0] if correlation.shape[0] else NULL, correlation.shape[0],
            timestamp_ns, deliver_at_ns, &payload[0] if payload.shape[0] else NULL, payload.shape[0],
        )

    cdef int put_record(self, uint64_t key, const RecordHeader* record) except -1:
        """Add a record of a SOW topic."""
        cdef uint8_t[24] digits
        cdef const uint8_t* text = record_sow_key(record)
        cdef uint64_t length = record.sow_key_length
        if self.skip_count:
            self.skip_count -= 1
            return 0
        if self.row_limit == 0:
            return 0
        if length == 0:
            text = &digits[0]
            length = decimal_digits_write(&digits[0], key)
        return self.put(
            text, length, record_correlation_id(record), record.correlation_id_length, record.timestamp_ns, 0,
            record_payload(record), record.payload_length,
        )

    cdef int put(
        self, const uint8_t* key, uint64_t key_length, const uint8_t* correlation, uint64_t correlation_length,
        uint64_t timestamp_ns, uint64_t deliver_at_ns, const uint8_t* payload, uint64_t length
    ) except -1:
        cdef ByteBuffer frame = self.frame
        cdef uint8_t* begin
        cdef uint8_t* at
        if self.skip_count:
            self.skip_count -= 1
            return 0
        if self.row_limit == 0:
            return 0
        self.row_limit -= 1
        if self.selection is not None:
            self.selected.length = 0
            # A message that cannot be read has no fields that a list could select: it stays out.
            if not self.documents.select(payload, length, self.selection, self.selected):
                self.selected.length = 0
            payload = self.selected.data
            length = self.selected.length
        if self.apart:
            return self.put_apart(key, key_length, correlation, correlation_length, timestamp_ns, payload, length)
        if self.count == 0:
            frame.length = 0
            frame.reserve(self.head_room)
            frame.length = self.head_room
            self.first_ns = timestamp_ns
        begin = at = frame.reserve(key_length + correlation_length + RECORD_EXTRA_BYTES + length)
        at[0] = c'{'
        at += 1
        at = self.write_facts(at, key, key_length, correlation, correlation_length, timestamp_ns)
        memcpy(at, b'"l":', 4)
        at += 4
        at += decimal_digits_write(at, length)
        if deliver_at_ns:
            memcpy(at, b',"not_before":', 14)
            at += 14
            at += decimal_digits_write(at, deliver_at_ns // 1_000_000)
        at[0] = c'}'
        at += 1
        if length:
            memcpy(at, payload, length)
        frame.length += <uint64_t>(at - begin) + length
        self.count += 1
        self.returned += 1
        if self.count == self.batch_size or frame.length - self.head_room >= FRAME_BYTES_MAX:
            self.finish_frame()
        return 0

    cdef uint8_t* write_facts(
        self, uint8_t* at, const uint8_t* key, uint64_t key_length, const uint8_t* correlation,
        uint64_t correlation_length, uint64_t timestamp_ns
    ) noexcept nogil:
        """Write the fields of a record's header, each with a comma behind it. Returns the place behind them."""
        if self.with_key:
            memcpy(at, b'"k":"', 5)
            at += 5
            memcpy(at, key, key_length)
            at += key_length
            memcpy(at, b'",', 2)
            at += 2
        if correlation_length:
            memcpy(at, b'"x":"', 5)
            at += 5
            memcpy(at, correlation, correlation_length)
            at += correlation_length
            memcpy(at, b'",', 2)
            at += 2
        if self.with_timestamp:
            memcpy(at, b'"ts":"', 6)
            at += 6
            at += write_timestamp(at, timestamp_ns)
            memcpy(at, b'",', 2)
            at += 2
        return at

    cdef int put_apart(
        self, const uint8_t* key, uint64_t key_length, const uint8_t* correlation, uint64_t correlation_length,
        uint64_t timestamp_ns, const uint8_t* payload, uint64_t length
    ) except -1:
        """Send a message of one record. Its header begins with `beginning`."""
        cdef ByteBuffer frame = self.frame
        cdef uint64_t prefix = PyBytes_GET_SIZE(self.beginning)
        cdef uint8_t* begin
        cdef uint8_t* at
        cdef uint64_t total
        frame.length = 0
        begin = frame.reserve(4 + prefix + key_length + correlation_length + RECORD_EXTRA_BYTES + length)
        at = begin + 4
        memcpy(at, PyBytes_AS_STRING(self.beginning), prefix)
        at += prefix
        at[0] = c','
        at = self.write_facts(at + 1, key, key_length, correlation, correlation_length, timestamp_ns)
        memcpy(at, b'"l":', 4)
        at += 4
        at += decimal_digits_write(at, length)
        at[0] = c'}'
        at += 1
        if length:
            memcpy(at, payload, length)
        total = <uint64_t>(at - begin) - 4 + length
        begin[0] = <uint8_t>(total >> 24)
        begin[1] = <uint8_t>(total >> 16)
        begin[2] = <uint8_t>(total >> 8)
        begin[3] = <uint8_t>total
        self.returned += 1
        return self.output.add(begin, total + 4)

    cdef int finish_frame(self) except -1:
        """Write the header of the frame, and send it."""
        cdef ByteBuffer frame = self.frame
        cdef uint64_t prefix = PyBytes_GET_SIZE(self.beginning)
        cdef uint8_t[160] numbers          # HEADER_EXTRA_BYTES
        cdef uint8_t* at = &numbers[0]
        cdef uint8_t* start
        cdef uint64_t length
        if self.count == 0:
            return 0
        self.frames += 1
        if self.with_timestamp:
            memcpy(at, b',"ts":"', 7)
            at += 7
            at += write_timestamp(at, self.first_ns)
            at[0] = c'"'
            at += 1
        memcpy(at, b',"bs":', 6)
        at += 6
        at += decimal_digits_write(at, self.count)
        memcpy(at, b',"gseq":', 8)
        at += 8
        at += decimal_digits_write(at, self.frames)
        at[0] = c'}'
        at += 1
        start = frame.data + self.head_room - (at - &numbers[0])
        memcpy(start, &numbers[0], at - &numbers[0])
        start -= prefix
        memcpy(start, PyBytes_AS_STRING(self.beginning), prefix)
        length = <uint64_t>(frame.data + frame.length - start)
        start -= 4
        start[0] = <uint8_t>(length >> 24)
        start[1] = <uint8_t>(length >> 16)
        start[2] = <uint8_t>(length >> 8)
        start[3] = <uint8_t>length
        self.output.add(start, length + 4)
        self.count = 0
        frame.length = 0
        return 0
