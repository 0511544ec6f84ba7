"""The frame that a connection is being asked about: what it says, and the record that is made of it.

A publish is laid out exactly as it will stand in the journal (record.pxd), but for what only the core knows: position,
transaction id, time and checksum. Until then `position` says from which connection it comes. Python sees the parts of
the frame when policy has to decide, and of every frame that is no plain publish.

Invariants: the frame lies where it was received, so what is known of it holds until more is received or `keep` is
called. `fill_record` writes exactly `record_length` bytes, padding besides.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from amps._core.filter_set cimport FilterBench, FilterSet
from amps._core.message_facts cimport tell_facts
from amps._core.platform cimport debug_assert
from amps._core.receive_buffer cimport ReceiveBuffer
from amps._core.record cimport (
    FLAG_DELTA,
    FLAG_DERIVED_PUBLISHER,
    FLAG_UNRECORDED,
    KIND_PUBLISH,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
)
from amps._core.topic_table cimport TopicEntry
from amps._core.wire cimport (
    FIELD_CMD,
    FIELD_CORRELATION_ID,
    FIELD_EXPIRATION,
    FIELD_SOW_KEY,
    field_u64,
)
from amps._core.wire import parse_header

cdef enum:
    ORIGIN_BYTES = 16


cdef class InboundFrame(ReceiveBuffer):

    def __init__(self, uint32_t slot, uint32_t serial, uint64_t frame_bytes_max):
        ReceiveBuffer.__init__(self, frame_bytes_max)
        self.slot = slot
        self.serial = serial
        self.user_id = b""

    def give_back_memory(self):
        """The connection has ended: free what was received. The current frame is gone too."""
        ReceiveBuffer.give_back_memory(self)
        self.frame_length = self.header_length = 0

    # --- for Python -----------------------------------------------------------------------------------

    @property
    def header(self):
        """The current frame's header as a dictionary of long names. Raises HeaderError."""
        return parse_header((<const char*>self.frame)[: self.header_length])[0]

    @property
    def raw_header(self):
        """The current frame's header as bytes."""
        return (<const char*>self.frame)[: self.header_length]

    @property
    def body(self):
        """The current frame's body as bytes."""
        return (<const char*>self.frame + self.header_length)[: self.frame_length - self.header_length]

    @property
    def body_length(self):
        return self.frame_length - self.header_length

    @property
    def topic_name(self):
        """The current frame's topic. Raises UnicodeDecodeError."""
        return self.header.get("topic", "")

    @property
    def frame_sequence(self):
        """The current frame's sequence as the record will have it, 0 = none."""
        return self.given_sequence

    @property
    def parts_fit(self):
        """Whether correlation id and SOW key of the current frame are short enough for a record."""
        return (
            part_length(&self.view, <int>FIELD_CORRELATION_ID) <= PART_LIMIT
            and part_length(&self.view, <int>FIELD_SOW_KEY) <= PART_LIMIT
        )

    # --- its record -----------------------------------------------------------------------------------

    cdef uint64_t record_length(self, uint64_t sequence) noexcept:
        """Bytes of the current frame's record; `sequence` 0 = the publisher gave none."""
        cdef uint64_t length = RECORD_HEADER_BYTES + len(self.user_id)
        length += part_length(&self.view, <int>FIELD_CORRELATION_ID)
        length += part_length(&self.view, <int>FIELD_SOW_KEY)
        length += self.frame_length - self.header_length
        if self.numbered and sequence == 0:
            length += ORIGIN_BYTES
        return length

    cdef int fill_record(
        self, RecordHeader* record, uint32_t length, TopicEntry entry, uint64_t sequence
    ) except -1:
        cdef uint8_t* at = <uint8_t*>record + RECORD_HEADER_BYTES
        cdef uint32_t part
        cdef uint64_t expiration
        memset(record, 0, RECORD_HEADER_BYTES)
        # The record is padded to a multiple of 8; what follows its last byte goes to the log too.
        (<uint64_t*>(<uint8_t*>record + align8(length) - 8))[0] = 0
        record.length = length
        record.position = self.slot | (<uint64_t>self.serial << 32)
        record.topic_id = entry.number
        record.kind = KIND_PUBLISH
        record.expiration_s = NO_EXPIRATION
        if field_u64(&self.view, FIELD_EXPIRATION, &expiration) == 0:
            record.expiration_s = <uint32_t>expiration
        if self.view.field[<int>FIELD_CMD].length == 13 or self.view.field[<int>FIELD_CMD].data[0] == c'd':
            record.flags |= FLAG_DELTA
        record.publisher_id = self.publisher_id
        record.sequence = sequence
        if sequence == 0 and self.numbered:
            record.flags |= FLAG_DERIVED_PUBLISHER
            record.publisher_id = self.derived_id
            record.origin_length = ORIGIN_BYTES
            (<uint64_t*>at)[0] = self.publisher_id
            (<uint64_t*>(at + 8))[0] = 0
            at += ORIGIN_BYTES
        part = part_length(&self.view, <int>FIELD_CORRELATION_ID)
        record.correlation_id_length = part
        memcpy(at, self.view.field[<int>FIELD_CORRELATION_ID].data, part)
        at += part
        part = <uint32_t>len(self.user_id)
        record.user_id_length = part
        memcpy(at, <const char*>self.user_id, part)
        at += part
        part = part_length(&self.view, <int>FIELD_SOW_KEY)
        record.sow_key_length = part
        memcpy(at, self.view.field[<int>FIELD_SOW_KEY].data, part)
        at += part
        part = self.frame_length - self.header_length
        record.payload_length = part
        memcpy(at, self.frame + self.header_length, part)
        debug_assert(at + part == <uint8_t*>record + length)
        if entry.recorded_if is not None and not self.is_recorded(entry, record, at):
            record.flags |= FLAG_UNRECORDED
        return 0

    cdef bint is_recorded(self, TopicEntry entry, const RecordHeader* record, const uint8_t* payload) except -1:
        """Whether a message's content is one of those that the transaction log takes of its topic."""
        cdef FilterSet filters = entry.recorded_if
        cdef FilterBench bench = filters.bench
        cdef uint64_t unreadable = bench.unreadable
        if filters.asks_message:
            tell_facts(bench.context, record, entry.raw_name, False, True)
            if filters.asks_publisher:
                bench.tell_publisher(self.publisher_id)
        filters.match(payload, record.payload_length)
        if bench.unreadable != unreadable:
            bench.last_unreadable = (entry.name, record.publisher_id, record.sequence)
        return filters.matched_count > 0
