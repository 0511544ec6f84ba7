# The input of a connection: cutting frames out of the byte stream, and putting publishes into the ring without a Python
# object.
#
# There is one Ingress per client connection. The event loop receives bytes into it; `parse` then processes the frames.
# A plain publish is scanned, checked and laid out in the ring here, and so is a plain acknowledgement of queue messages
# that were delivered to this connection, and a plain transaction (wire/transactions.pxi). Any other frame (other
# commands, and the rarer forms of these) is returned to Python as a COMMAND. `parse` also returns when policy has to
# decide (a new topic, a permission, a full ring).
#
# While the journal takes no messages, or no large ones, publishes to recorded topics are refused here (NO_STORAGE). If
# the connection ends before the publisher receives the refusal, its next logon returns the last sequence in the log,
# and the publisher assumes that everything before it is recorded. So after a refusal the connection accepts no numbered
# publish any more. As soon as one could be accepted again, the connection must end (AFTER_REFUSAL).
#
# Invariants: a frame is consumed exactly when its effect is in the ring or Python has taken it. On RING_FULL,
# NEW_TOPIC, PERMISSION and SPILL nothing is consumed, and the same frame can be parsed again.

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.math cimport ceil
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from amps._core.expressions.functions cimport unix_seconds
from amps._core.expressions.machine cimport EvaluationContext, FilterSet
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_CLIENT_BYTES,
    EXTENSION_DELIVER_AT,
    EXTENSION_DELIVER_AT_BYTES,
    EXTENSION_EXPIRY,
    EXTENSION_EXPIRY_BYTES,
    EXTENSION_STATE,
    EXTENSION_STATE_BYTES,
    FLAG_DELTA,
    FLAG_DERIVED_PUBLISHER,
    FLAG_UNRECORDED,
    KIND_PUBLISH,
    KIND_SOW_DELETE,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
    RecordState,
    align8,
    put_extension,
)
from amps._core.shm.memory cimport ControlPage, Ring
from amps._core.shm.platform cimport debug_assert, load_relaxed
from amps._core.wire.framing cimport (
    FIELD_ACK_TYPE,
    FIELD_BOOKMARK,
    FIELD_CMD,
    FIELD_CORRELATION_ID,
    FIELD_DELAY,
    FIELD_EXPIRATION,
    FIELD_NOT_BEFORE,
    FIELD_SEQ,
    FIELD_SOW_KEY,
    FIELD_TOPIC,
    HeaderPattern,
    Slice,
    field_u64,
    follow_header,
    learn_header,
    scan_header,
)
from amps._core.sow.shaping cimport is_publisher_key
from amps._core.sow.slots cimport REMOVED_KEYS_MAX, RemovalRequest, RequestedKey
from amps._core.wire.topics cimport SowRules, TopicEntry, TopicTable, tell_facts
from amps._core.wire.framing import parse_header

cdef enum:
    SCRATCH_BYTES = 262144

cdef uint8_t* scratch = <uint8_t*>malloc(SCRATCH_BYTES)

# Results of `parse`.
NEED_MORE = 0          # no whole frame left
COMMAND = 1            # `header` and `body` hold a command for Python
RING_FULL = 2          # the core must first take records from the ring; parse again later
NEW_TOPIC = 3          # `topic_name` has no declared entry: make and declare it, parse again
PERMISSION = 4         # for `topic_entry`: check the entitlement, call `set_permission`, parse again
DENIED = 5             # a publish to `topic_entry` that is not allowed; consumed; `sequence` is its number
SPILL = 6              # a message too large for the ring: `write_spill`, then `finish_spill`
BAD_HEADER = 7         # the frame does not begin with a valid header: close the connection
TOO_LARGE = 8          # a frame over the limit: close the connection
NO_STORAGE = 9         # a publish that the journal cannot take now; consumed; `sequence` is its number
AFTER_REFUSAL = 10     # a numbered publish that could be taken, but follows a refused one: close the connection

cdef enum:
    BACKLOG_BYTES = 512 << 10
    DELAY_DAYS_MAX = 3653          # ten years

cdef uint64_t DELAY_FIELDS = (<uint64_t>1 << <int>FIELD_DELAY) | (<uint64_t>1 << <int>FIELD_NOT_BEFORE)
cdef uint64_t NS_PER_MS = 1_000_000
cdef uint64_t NS_PER_S = 1_000_000_000
cdef uint64_t DELAY_MS_MAX = <uint64_t>DELAY_DAYS_MAX * 86_400_000
cdef uint64_t NOT_BEFORE_MS_MAX = (<uint64_t>1 << 63) // NS_PER_MS

PUBLISH_BACKLOG_BYTES = BACKLOG_BYTES
"""Bytes in the ring from which no more publishes are put there. Acknowledgements of consumers use the same ring; they
must not wait long, and must find room."""

cdef AckList scratch_acks = AckList()      # of the current frame


@cython.final
cdef class Ingress:
    # Received bytes
    cdef uint64_t frame_bytes_max
    # Bytes received and not parsed: data[at:end], in scratch or in `kept`
    cdef uint8_t* data
    cdef uint64_t at
    cdef uint64_t end
    cdef uint8_t* kept
    cdef uint64_t kept_capacity
    cdef readonly uint64_t bytes_received
    # The connection
    cdef readonly uint32_t slot
    cdef readonly uint32_t serial
    # Identity, set at logon
    cdef bint numbered                     # publishes without a sequence are numbered by the server
    cdef uint64_t publisher_id
    cdef uint64_t derived_id
    cdef bytes user_id
    # The current frame
    cdef HeaderView view
    cdef uint32_t header_length
    cdef uint64_t given_sequence           # 0 = none, or not a number
    cdef const uint8_t* frame
    cdef uint32_t frame_length
    # The message of the current frame, as it is recorded
    cdef const uint8_t* payload
    cdef uint64_t payload_length
    cdef SowRules state                    # of its SOW topic; None: it is none
    cdef uint64_t state_key                # its key in a SOW topic; 0 = it is none of a SOW topic
    cdef uint64_t expiry_ns                # UNIX time, if it has a lifetime of no whole seconds; else 0
    # why a SOW topic does not take it, after DENIED; None: that is not the reason
    cdef readonly str refusal
    # Publishing
    cdef Ring ring
    cdef ControlPage control
    cdef TopicTable table
    cdef HeaderPattern plain               # of the last plain publish
    # Identity, set at logon
    cdef readonly bint ready               # logged on, and plain publishes are taken here
    cdef bint conflated                    # persisted acknowledgements are conflated
    cdef bint checked                      # publishes need a permission
    cdef uint32_t message_type_id
    # The current frame
    cdef readonly TopicEntry topic_entry
    cdef TopicEntry last_entry
    cdef bint has_refused                  # a numbered publish was refused for lack of storage
    cdef public uint64_t logged_sequence   # the last one in the log at the logon: what is not above it is a duplicate
    cdef bint wants_ack                    # the current publish takes part in conflated acknowledgements
    cdef uint8_t* permissions              # by topic number: 0 unknown, 1 allowed, 2 denied; plus 4: may read
    cdef LeaseTable leases                 # leases of the connection; None = no deliveries yet
    cdef uint32_t permission_count
    # Data for acknowledgements
    cdef readonly uint64_t sequence        # of the last numbered publish
    cdef readonly uint64_t ack_sequence    # the highest sequence for which `persisted` was requested
    cdef readonly uint64_t ack_position    # ring position after the last command with that request
    cdef readonly uint64_t ack_requests    # number of these requests
    cdef readonly uint64_t messages
    cdef readonly PendingTransactions transactions  # None = there have been none

    def __cinit__(self):
        self.permissions = NULL
        self.kept = NULL

    def __init__(
        self, uint32_t slot, uint32_t serial, Ring ring, ControlPage control not None, TopicTable table,
        uint64_t frame_bytes_max,
    ):
        """frame_bytes_max: the longest frame that is kept as a whole."""
        self.frame_bytes_max = frame_bytes_max
        self.data = scratch
        self.at = 0
        self.end = 0
        self.kept_capacity = 0
        self.bytes_received = 0
        self.slot = slot
        self.serial = serial
        self.user_id = b""
        self.ring = ring
        self.control = control
        self.table = table
        self.ready = False
        self.plain.before = 0
        self.plain.learned = 0
        self.permission_count = 0
        self.last_entry = None
        self.leases = None
        self.refusal = None
        self.state_key = 0
        self.expiry_ns = 0
        self.has_refused = False
        self.logged_sequence = 0
        self.sequence = 0
        self.ack_sequence = 0
        self.ack_position = 0
        self.ack_requests = 0
        self.messages = 0
        self.transactions = None

    def __dealloc__(self):
        free(self.permissions)
        free(self.kept)

    # === received bytes ==========================================================================================
    #
    # The event loop gets memory to receive into (`receive_buffer`), then passes the number of received bytes
    # (`received`). Parsing moves `at` forward. When it stops, `keep` must be called.
    #
    # Idle connections hold no memory. Bytes are received into a scratch buffer shared by all connections of the
    # process and parsed there. Only the beginning of an incomplete frame is kept, in memory of the connection. That
    # memory grows with the received bytes, never by the value of a length field, and is freed when the frame is done.
    #
    # Invariants: the unparsed bytes are data[at:end]. They are in the scratch buffer only between `receive_buffer` and
    # the `keep` that follows. Between these calls no other connection of the process receives.

    def receive_buffer(self):
        """Memory to receive into, valid until the next call."""
        cdef uint64_t wanted
        cdef uint64_t capacity
        cdef uint8_t* grown
        if self.data != self.kept or self.end == self.at:
            self.data = scratch
            self.at = self.end = 0
            return PyMemoryView_FromMemory(<char*>scratch, SCRATCH_BYTES, PyBUF_WRITE)
        if self.kept_capacity - self.end < 65536:
            # Grow with the received bytes, not by the length field.
            capacity = max(self.kept_capacity * 2, <uint64_t>131072)
            wanted = self.frame_bytes_max + 4 + 65536
            if capacity > wanted:
                capacity = wanted
            if capacity - self.end < 4096:
                capacity = self.end + 65536
            grown = <uint8_t*>realloc(self.kept, capacity)
            if grown == NULL:
                raise MemoryError()
            self.kept = grown
            self.kept_capacity = capacity
            self.data = grown
        return PyMemoryView_FromMemory(
            <char*>self.kept + self.end, <Py_ssize_t>(self.kept_capacity - self.end), PyBUF_WRITE
        )

    def received(self, uint64_t count):
        """Note that `count` bytes were received into the buffer."""
        self.end += count
        self.bytes_received += count

    def keep(self):
        """End parsing for now: move the unparsed bytes out of the scratch buffer, or to the front of their memory."""
        cdef uint64_t left = self.end - self.at
        cdef uint8_t* grown
        if left == 0:
            self.at = self.end = 0
            self.data = scratch
            free(self.kept)
            self.kept = NULL
            self.kept_capacity = 0
            return
        if self.data == self.kept:
            if self.at:
                memmove(self.kept, self.kept + self.at, left)
                self.at = 0
                self.end = left
            return
        if self.kept_capacity < left + 65536:
            grown = <uint8_t*>realloc(self.kept, left + 65536)
            if grown == NULL:
                raise MemoryError()
            self.kept = grown
            self.kept_capacity = left + 65536
        memcpy(self.kept, self.data + self.at, left)
        self.data = self.kept
        self.at = 0
        self.end = left

    def give_back_memory(self):
        """Free the received bytes, the current frame included, since the connection has ended."""
        free(self.kept)
        self.kept = NULL
        self.kept_capacity = 0
        self.data = scratch
        self.at = self.end = 0
        self.frame_length = self.header_length = 0

    @property
    def unparsed_bytes(self):
        """The number of bytes received and not parsed."""
        return self.end - self.at

    @property
    def first_bytes(self):
        """Up to 4 KiB of the unparsed bytes, to distinguish HTTP from frames."""
        return (<const char*>self.data + self.at)[: min(self.end - self.at, <uint64_t>4096)]

    def discard(self, uint64_t count):
        """Drop received bytes that were not frames."""
        self.at += min(count, self.end - self.at)

    # === the current frame and its record ========================================================================
    #
    # A publish is laid out exactly as in the journal (journal/record.pxd), except for position, transaction id, time
    # and checksum, which the core fills in. Until then `position` holds slot and serial number of the connection.
    # Python reads the parts of a frame when policy has to decide, and of every frame that is no plain publish.
    #
    # Invariants: the frame stays where it was received, so the data about it is valid until more bytes are received or
    # `keep` is called. `fill_record` writes exactly `record_length` bytes, plus padding.

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
        """The current frame's sequence as in its record, 0 = none."""
        return self.given_sequence

    @property
    def parts_fit(self):
        """True if correlation id and SOW key of the current frame are short enough for a record."""
        return (
            part_length(&self.view, <int>FIELD_CORRELATION_ID) <= PART_LIMIT
            and part_length(&self.view, <int>FIELD_SOW_KEY) <= PART_LIMIT
        )

    @property
    def delay_fits(self):
        """True if the current frame has no delay, or a valid one (docs/spec/queue_guarantees.md §1)."""
        return not self.view.present & DELAY_FIELDS or self.has_valid_delay()

    # --- its record -----------------------------------------------------------------------------------

    cdef bint has_valid_delay(self) noexcept nogil:
        """Whether the delay of a frame that has one is valid: one key, with a number in its range."""
        cdef uint64_t number
        if self.view.present & DELAY_FIELDS == DELAY_FIELDS:
            return False
        if field_u64(&self.view, FIELD_DELAY, &number) == 0:
            return number <= DELAY_MS_MAX
        return field_u64(&self.view, FIELD_NOT_BEFORE, &number) == 0 and number <= NOT_BEFORE_MS_MAX

    cdef uint64_t deliver_at_ns(self) noexcept nogil:
        """UNIX time until which the current frame, whose delay is valid, is delayed; whole milliseconds, rounded up."""
        cdef uint64_t number = 0
        if field_u64(&self.view, FIELD_DELAY, &number) == 0:
            number += <uint64_t>ceil(unix_seconds() * 1000.0)
        else:
            field_u64(&self.view, FIELD_NOT_BEFORE, &number)
        return number * NS_PER_MS

    cdef int take_message(self, SowRules rules) except -1:
        """Set the message of the current frame; rules: of its SOW topic, None if it has none. 0: `refusal` has the
        reason why the topic does not take it. Else 1.
        """
        cdef const Slice* given = &self.view.field[<int>FIELD_SOW_KEY]
        cdef bint has_lifetime
        self.payload = <const uint8_t*>self.frame + self.header_length
        self.payload_length = self.frame_length - self.header_length
        self.state_key = 0
        self.expiry_ns = 0
        self.refusal = None
        self.state = rules
        if rules is None:
            return 1
        if self.payload_length > rules.payload_max:
            self.refusal = "message too large"
            return 0
        if rules.preprocessing is not None:
            rules.text.length = 0
            if not rules.preprocessing.run(self.payload, self.payload_length, NULL, 0, rules.text):
                self.refusal = "parse error"
                return 0
            self.payload = rules.text.data
            self.payload_length = rules.text.length
            if self.payload_length > rules.payload_max:
                self.refusal = "message too large"
                return 0
        if rules.generated_keys:
            self.state_key = 1  # the core puts the key in its place
        elif rules.given_keys:
            if given.length == 0:
                self.refusal = "no sow key"
                return 0
            if not is_publisher_key(<const uint8_t*>given.data, given.length):
                self.refusal = "bad sow key"
                return 0
            self.state_key = rules.keys.key_of_text(<const uint8_t*>given.data, given.length)
        else:
            self.state_key = rules.keys.key_of(self.payload, self.payload_length)
            if self.state_key == 0:
                self.refusal = "parse error"
                return 0
        must_be_readable = self.is_delta() or rules.is_enriched or rules.generated_keys
        if must_be_readable and not rules.is_readable(self.payload, self.payload_length):
            self.refusal = "parse error"
            return 0
        has_lifetime = self.view.present & (<uint64_t>1 << <int>FIELD_EXPIRATION) != 0
        if rules.lifetime_ns % NS_PER_S and not has_lifetime:
            self.expiry_ns = <uint64_t>(unix_seconds() * 1e9) + rules.lifetime_ns
        return 1

    cdef inline bint is_delta(self) noexcept nogil:
        """Whether the current frame, a publish, is a delta_publish."""
        cdef const Slice* command = &self.view.field[<int>FIELD_CMD]
        return command.length == 13 or command.data[0] == c'd'

    cdef inline bint keeps_sow_key(self) noexcept:
        """Whether the header `sow_key` is recorded: a topic that makes its keys ignores it (sow.md D32)."""
        return self.state is None or self.state.given_keys

    cdef uint64_t record_length(self, uint64_t sequence) noexcept:
        """The length of the current frame's record in bytes; `sequence` 0 = the publish has none."""
        cdef uint64_t length = RECORD_HEADER_BYTES + len(self.user_id)
        length += part_length(&self.view, <int>FIELD_CORRELATION_ID)
        if self.keeps_sow_key():
            length += part_length(&self.view, <int>FIELD_SOW_KEY)
        length += self.payload_length
        if self.state_key:
            length += EXTENSION_STATE_BYTES
        if self.expiry_ns:
            length += EXTENSION_EXPIRY_BYTES
        if self.numbered and sequence == 0:
            length += EXTENSION_CLIENT_BYTES
        if self.view.present & DELAY_FIELDS:
            length += EXTENSION_DELIVER_AT_BYTES
        return length

    cdef int fill_record(
        self, RecordHeader* record, uint32_t length, TopicEntry entry, uint64_t sequence
    ) except -1:
        cdef uint8_t* at = <uint8_t*>record + RECORD_HEADER_BYTES
        cdef uint32_t part
        cdef uint64_t expiration
        cdef uint64_t deliver_at_ns
        cdef RecordState about
        memset(record, 0, RECORD_HEADER_BYTES)
        # The record is padded to a multiple of 8, and the padding goes to the log too.
        (<uint64_t*>(<uint8_t*>record + align8(length) - 8))[0] = 0
        record.length = length
        record.position = self.slot | (<uint64_t>self.serial << 32)
        record.topic_id = entry.number
        record.kind = KIND_PUBLISH
        record.expiration_s = NO_EXPIRATION
        if field_u64(&self.view, FIELD_EXPIRATION, &expiration) == 0:
            record.expiration_s = <uint32_t>expiration
        elif self.state is not None and self.state.lifetime_ns and not self.expiry_ns:
            record.expiration_s = <uint32_t>min(self.state.lifetime_ns // NS_PER_S, <uint64_t>NO_EXPIRATION - 1)
        if self.is_delta():
            record.flags |= FLAG_DELTA
        record.publisher_id = self.publisher_id
        record.sequence = sequence
        if sequence == 0 and self.numbered:
            record.flags |= FLAG_DERIVED_PUBLISHER
            record.publisher_id = self.derived_id
            record.extension_length = EXTENSION_CLIENT_BYTES
            at = put_extension(at, EXTENSION_CLIENT, &self.publisher_id)
        if self.view.present & DELAY_FIELDS:
            record.extension_length += EXTENSION_DELIVER_AT_BYTES
            deliver_at_ns = self.deliver_at_ns()
            at = put_extension(at, EXTENSION_DELIVER_AT, &deliver_at_ns)
        if self.state_key:
            record.extension_length += EXTENSION_STATE_BYTES
            about.key = self.state_key
            about.previous = 0
            about.definition = self.state.keys.definition
            about.unused = 0
            at = put_extension(at, EXTENSION_STATE, <const uint64_t*>&about)
        if self.expiry_ns:
            record.extension_length += EXTENSION_EXPIRY_BYTES
            at = put_extension(at, EXTENSION_EXPIRY, &self.expiry_ns)
        part = part_length(&self.view, <int>FIELD_CORRELATION_ID)
        record.correlation_id_length = part
        memcpy(at, self.view.field[<int>FIELD_CORRELATION_ID].data, part)
        at += part
        part = <uint32_t>len(self.user_id)
        record.user_id_length = part
        memcpy(at, <const char*>self.user_id, part)
        at += part
        part = part_length(&self.view, <int>FIELD_SOW_KEY) if self.keeps_sow_key() else 0
        record.sow_key_length = part
        memcpy(at, self.view.field[<int>FIELD_SOW_KEY].data, part)
        at += part
        part = <uint32_t>self.payload_length
        record.payload_length = part
        memcpy(at, self.payload, part)
        debug_assert(at + part == <uint8_t*>record + length)
        if entry.recorded_if is not None and not self.is_recorded(entry, record, at):
            record.flags |= FLAG_UNRECORDED
        return 0

    cdef bint is_recorded(self, TopicEntry entry, const RecordHeader* record, const uint8_t* payload) except -1:
        """True if the transaction log records the message, by the filters of its topic."""
        cdef FilterSet filters = entry.recorded_if
        cdef EvaluationContext evaluation = filters.evaluation
        cdef uint64_t unreadable = evaluation.unreadable
        if filters.asks_message:
            tell_facts(evaluation.context, record, entry.raw_name, False, True)
            if filters.asks_publisher:
                evaluation.tell_publisher(self.publisher_id)
        filters.match(payload, record.payload_length)
        if evaluation.unreadable != unreadable:
            evaluation.last_unreadable = (entry.name, record.publisher_id, record.sequence)
        return filters.matched_count > 0

    def log_on(self, str message_type, uint64_t publisher_id, uint64_t derived_id, bytes user_id, bint numbered,
               bint conflated, bint checked, bint plain):
        """Set the identity of the connection after a logon. user_id: as inside the quotes of a header.

        numbered: publishes without a sequence get one. conflated: persisted acknowledgements are conflated. checked:
        publishes need a permission. plain: plain publishes are taken here; else each one is a COMMAND for Python.
        """
        if len(user_id) > PART_LIMIT:
            raise ValueError("the user id is too long")
        self.message_type_id = self.table.message_type_id(message_type)
        self.publisher_id = publisher_id
        self.derived_id = derived_id
        self.user_id = user_id
        self.numbered = numbered
        self.conflated = conflated
        self.checked = checked
        self.ready = plain
        self.plain.before = 0

    # --- parsing --------------------------------------------------------------------------------------

    def parse(self):
        """Process the received frames. Returns when Python is needed or no whole frame is left."""
        cdef uint8_t* bytes_
        cdef uint64_t length
        cdef int32_t header_length
        cdef bint plain
        cdef int result
        while True:
            if self.end - self.at < 4:
                return NEED_MORE
            bytes_ = self.data + self.at
            length = (<uint64_t>bytes_[0] << 24) | (<uint64_t>bytes_[1] << 16) | (<uint64_t>bytes_[2] << 8) | bytes_[3]
            if length > self.frame_bytes_max:
                return TOO_LARGE
            if self.end - self.at < 4 + length:
                return NEED_MORE
            if length == 0:
                self.at += 4
                continue
            self.frame = bytes_ + 4
            self.frame_length = <uint32_t>length
            header_length = follow_header(
                &self.plain, <const char*>self.frame, self.frame_length, &self.view, &self.given_sequence
            )
            if header_length < 0:
                header_length = self.scan()
                if header_length < 0:
                    return BAD_HEADER
                plain = self.ready and self.is_plain_publish()
                if plain:
                    learn_header(
                        &self.plain, <const char*>self.frame, <uint32_t>header_length, &self.view, self.given_sequence
                    )
            else:
                plain = True
            self.header_length = <uint32_t>header_length
            if not plain:
                if self.leases is not None and self.ready:
                    result = self.put_acknowledgement()
                    if result == COMMAND:
                        result = put_transaction(self)
                    if result == RING_FULL:
                        return RING_FULL
                    if result == 0:
                        self.at += 4 + length
                        continue
                self.at += 4 + length
                return COMMAND
            result = self.put_publish()
            if result == 0:
                self.at += 4 + length
                continue
            if result == DENIED or result == NO_STORAGE or result == AFTER_REFUSAL:
                self.at += 4 + length
            return result

    cdef inline int32_t scan(self) noexcept nogil:
        """Scan the current frame's header into `view`. Returns its length; -1: no valid header, or no command in it."""
        cdef int32_t length = scan_header(<const char*>self.frame, self.frame_length, &self.view)
        if length < 0 or not self.view.present & (<uint64_t>1 << <int>FIELD_CMD):
            return -1
        self.given_sequence = 0
        field_u64(&self.view, FIELD_SEQ, &self.given_sequence)
        return length

    cdef inline bint is_plain_publish(self) noexcept nogil:
        """True if the current frame is a publish that can be laid out here and needs no acknowledgement of its own."""
        cdef const Slice* command = &self.view.field[<int>FIELD_CMD]
        cdef uint64_t number
        if not (
            (command.length == 1 and command.data[0] == c'p')
            or (command.length == 7 and memcmp(command.data, b"publish", 7) == 0)
            or (command.length == 13 and memcmp(command.data, b"delta_publish", 13) == 0)
        ):
            return False
        if self.view.escaped & ((<uint64_t>1 << <int>FIELD_TOPIC) | (<uint64_t>1 << <int>FIELD_CMD)):
            return False
        if (
            part_length(&self.view, <int>FIELD_CORRELATION_ID) > PART_LIMIT
            or part_length(&self.view, <int>FIELD_SOW_KEY) > PART_LIMIT
        ):
            return False
        if self.given_sequence == 0 and self.view.present & (<uint64_t>1 << <int>FIELD_SEQ):
            return False
        if self.view.present & (<uint64_t>1 << <int>FIELD_EXPIRATION):
            if field_u64(&self.view, FIELD_EXPIRATION, &number) < 0 or number >= NO_EXPIRATION:
                return False
        if self.view.present & DELAY_FIELDS and not self.has_valid_delay():
            return False
        return self.wants_plain_ack()

    cdef inline bint wants_plain_ack(self) noexcept nogil:
        """True if the frame requests no acknowledgement, `none`, or a conflated `persisted` with a sequence."""
        cdef const Slice* ack = &self.view.field[<int>FIELD_ACK_TYPE]
        if not self.view.present & (<uint64_t>1 << <int>FIELD_ACK_TYPE):
            return True
        if ack.length == 4 and memcmp(ack.data, b"none", 4) == 0:
            return True
        return (
            self.conflated
            and ack.length == 9
            and memcmp(ack.data, b"persisted", 9) == 0
            and self.view.present & (<uint64_t>1 << <int>FIELD_SEQ) != 0
        )

    cdef int put_publish(self) except -1:
        """Lay out the current publish in the ring. Returns 0 when done, else a result of `parse`."""
        cdef TopicEntry entry
        if part_length(&self.view, <int>FIELD_TOPIC) == 0:
            self.topic_entry = None
            if self.given_sequence:
                self.sequence = self.given_sequence
            return DENIED
        entry = self.find_entry()
        if entry is None:
            return NEW_TOPIC
        # A plain publish requests no acknowledgement, `none`, or `persisted`, whose name has 9 bytes.
        return self.put_publish_to(entry, part_length(&self.view, <int>FIELD_ACK_TYPE) == 9)

    cdef TopicEntry find_entry(self):
        """The entry of the current frame's topic; None if it is not declared to the core yet."""
        cdef const Slice* topic = &self.view.field[<int>FIELD_TOPIC]
        cdef TopicEntry entry = self.last_entry
        cdef uint64_t hash_
        if (
            entry is None
            or <uint32_t>len(entry.raw_name) != topic.length
            or memcmp(<const char*>entry.raw_name, topic.data, topic.length) != 0
        ):
            hash_ = self.table.hash_of(self.message_type_id, <const uint8_t*>topic.data, topic.length)
            entry = self.table.find(self.message_type_id, <const uint8_t*>topic.data, topic.length, hash_)
            if entry is None or not entry.declared:
                return None
            self.last_entry = entry
        return entry

    cdef int put_publish_to(self, TopicEntry entry, bint wants_ack) except -1:
        cdef uint64_t sequence = self.given_sequence
        cdef uint64_t length
        cdef uint8_t* room
        cdef uint32_t permission
        cdef int refusal
        self.topic_entry = entry
        self.wants_ack = wants_ack
        self.refusal = None
        if entry.refusal is not None:
            self.sequence = sequence
            return DENIED
        if self.checked:
            permission = self.permissions[entry.number] & 3 if entry.number < self.permission_count else 0
            if permission == 0:
                return PERMISSION
            if permission == 2:
                self.sequence = sequence
                return DENIED
        if entry.target is not None:
            # The permission is for the queue's name. The message is recorded under another topic (queues.md §4, §14.5).
            entry = entry.target
            self.topic_entry = entry
        if not self.take_message(entry.sow):
            self.sequence = sequence
            return DENIED
        if not entry.discarded:
            length = self.record_length(sequence)
            # For a topic that is recorded by content, this refuses all messages, since the filters run later.
            refusal = self.storage_refusal(length, sequence, entry.logged)
            if refusal:
                self.sequence = sequence
                return refusal
            if align8(length) > self.ring.capacity // 8:
                return SPILL
            if self.ring.backlog_reaches(BACKLOG_BYTES):
                return RING_FULL
            room = self.ring.reserve(<uint32_t>length)
            if room == NULL:
                return RING_FULL
            self.fill_record(<RecordHeader*>room, <uint32_t>length, entry, sequence)
            self.ring.commit(<uint32_t>length)
        self.note_publish(sequence)
        return 0

    cdef int storage_refusal(self, uint64_t length, uint64_t sequence, bint recorded) except -1:
        """NO_STORAGE or AFTER_REFUSAL if a record of that length and sequence cannot be taken; 0 = it can."""
        cdef uint64_t refused_from_bytes = load_relaxed(&self.control.data.refused_from_bytes)
        if 0 < sequence <= self.logged_sequence:
            # It is in the log, and needs no room; a failure would say that it is not.
            return 0
        if recorded and length >= refused_from_bytes:
            self.has_refused = self.has_refused or sequence != 0
            return NO_STORAGE
        if self.has_refused and sequence:
            return NO_STORAGE if refused_from_bytes == 0 else AFTER_REFUSAL
        return 0

    cdef int put_acknowledgement(self) except -1:
        """Lay out the current frame in the ring if it is a plain acknowledgement of messages leased to this connection.

        Returns 0 when done, RING_FULL if there is no room yet, COMMAND if Python must process the frame.
        """
        cdef const Slice* bookmarks = &self.view.field[<int>FIELD_BOOKMARK]
        cdef Acknowledging about
        cdef TopicEntry entry
        cdef uint64_t length
        cdef uint8_t* room
        if not read_plain(&self.view, &about) or self.frame_length > self.header_length or not self.wants_plain_ack():
            return COMMAND
        entry = self.find_entry()
        if entry is None or entry.queue < 0:
            return COMMAND
        if self.checked and not (
            entry.number < self.permission_count and self.permissions[entry.number] & 4
        ):
            return COMMAND
        if not scratch_acks.parse(
            <const uint8_t*>bookmarks.data, bookmarks.length, self.leases, <uint32_t>entry.queue
        ):
            return COMMAND
        if scratch_acks.unknown or scratch_acks.count > ENTRIES_PER_RECORD:
            return COMMAND
        about.slot = self.slot
        about.serial = self.serial
        about.topic = entry.number
        about.numbered = self.numbered
        about.publisher_id = self.publisher_id
        about.derived_id = self.derived_id
        length = acknowledgement_length(&about, scratch_acks.count)
        if length >= load_relaxed(&self.control.data.refused_from_bytes) or (self.has_refused and about.sequence):
            return COMMAND  # Python refuses it
        room = self.ring.reserve(<uint32_t>length)
        if room == NULL:
            return RING_FULL
        lay_out(<RecordHeader*>room, &about, scratch_acks.entries, scratch_acks.count)
        self.ring.commit(<uint32_t>length)
        scratch_acks.end_leases(self.leases, <uint32_t>entry.queue)
        self.wants_ack = part_length(&self.view, <int>FIELD_ACK_TYPE) == 9
        self.note_sequence(about.sequence)
        return 0

    cdef inline int note_publish(self, uint64_t sequence) noexcept:
        self.messages += 1
        return self.note_sequence(sequence)

    cdef inline int note_sequence(self, uint64_t sequence) noexcept:
        """Note that a command with that sequence (0: none) is in the ring."""
        if sequence:
            self.sequence = sequence
            if self.wants_ack:
                # A lower sequence is a duplicate: the acknowledgement of the highest one covers it.
                self.ack_sequence = max(self.ack_sequence, sequence)
                self.ack_position = self.ring.pending_head
                self.ack_requests += 1
        return 0

    # --- for Python -----------------------------------------------------------------------------------

    def publish_current(self, TopicEntry entry, bint wants_ack):
        """Put the current frame (a publish returned as COMMAND) into the ring under a declared topic.

        wants_ack: it takes part in conflated acknowledgements. Returns 0 when done, else a result of `parse`.
        """
        return self.put_publish_to(entry, wants_ack)

    def unread(self):
        """Move back to the current frame, so that it is parsed again."""
        self.at -= 4 + self.frame_length

    cdef int make_room_for_permission(self, uint32_t number) except -1:
        cdef uint8_t* grown
        cdef uint32_t count
        if number >= self.permission_count:
            count = max(64, number + 1, self.permission_count * 2)
            grown = <uint8_t*>realloc(self.permissions, count)
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.permission_count, 0, count - self.permission_count)
            self.permissions = grown
            self.permission_count = count
        return 0

    def set_permission(self, TopicEntry entry, bint allowed):
        """Store whether this connection may publish to a topic."""
        self.make_room_for_permission(entry.number)
        self.permissions[entry.number] = (self.permissions[entry.number] & 4) | (1 if allowed else 2)

    def allow_acknowledging(self, TopicEntry entry):
        """Store that this connection may read a queue, and so may acknowledge its messages."""
        self.make_room_for_permission(entry.number)
        self.permissions[entry.number] |= 4

    def set_leases(self, LeaseTable leases):
        """Set the table in which the deliveries to this connection are noted; None: there are none."""
        self.leases = leases

    def acknowledgement_records(
        self, AckList acks, TopicEntry entry, uint32_t action, uint64_t extension_ns, uint64_t searched_until,
        uint32_t token, uint64_t sequence,
    ):
        """Records, as bytes, for acknowledgements that Python has processed; NO_STORAGE or AFTER_REFUSAL if they cannot
        be taken.

        entry: of the queue's name. For the other arguments see `make_records`.
        """
        cdef list records = make_records(
            acks, self.slot, self.serial, entry.number, action, extension_ns, searched_until, token,
            self.publisher_id, self.derived_id, self.numbered, sequence,
        )
        cdef int refusal = self.storage_refusal(max(map(len, records), default=0), sequence, True)
        return refusal if refusal else records

    def removal_record(self, TopicEntry entry, const unsigned char[::1] keys, uint32_t token, uint64_t sequence):
        """The record (bytes) of a deletion of records of a SOW topic, for the ring; NO_STORAGE or AFTER_REFUSAL if it
        cannot be taken.

        keys: RequestedKeys, ascending, at most REMOVED_KEYS_MAX. token: of the answer; 0: none is wanted. sequence: 0 =
        none.
        """
        cdef bint derived = self.numbered and sequence == 0
        cdef uint64_t extension = EXTENSION_CLIENT_BYTES if derived else 0
        cdef uint64_t length = RECORD_HEADER_BYTES + extension + sizeof(RemovalRequest) + <uint64_t>keys.shape[0]
        cdef bytes made
        cdef RecordHeader* record
        cdef RemovalRequest request
        cdef uint8_t* at
        cdef int refusal = self.storage_refusal(length, sequence, entry.logged)
        if refusal:
            return refusal
        request.token = token
        request.count = <uint32_t>(keys.shape[0] // <Py_ssize_t>sizeof(RequestedKey))
        if request.count * sizeof(RequestedKey) != <uint64_t>keys.shape[0] or request.count > REMOVED_KEYS_MAX:
            raise ValueError("these are no keys of a deletion")
        made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>align8(length))
        record = <RecordHeader*>PyBytes_AS_STRING(made)
        memset(record, 0, align8(length))
        record.length = <uint32_t>length
        record.position = self.slot | (<uint64_t>self.serial << 32)
        record.topic_id = entry.number
        record.kind = KIND_SOW_DELETE
        record.expiration_s = NO_EXPIRATION
        record.publisher_id = self.publisher_id
        record.sequence = sequence
        at = <uint8_t*>record + RECORD_HEADER_BYTES
        if derived:
            record.flags = FLAG_DERIVED_PUBLISHER
            record.publisher_id = self.derived_id
            record.extension_length = EXTENSION_CLIENT_BYTES
            at = put_extension(at, EXTENSION_CLIENT, &self.publisher_id)
        record.payload_length = <uint32_t>(sizeof(RemovalRequest) + <uint64_t>keys.shape[0])
        memcpy(at, &request, sizeof(request))
        if keys.shape[0]:
            memcpy(at + sizeof(request), &keys[0], <size_t>keys.shape[0])
        return made[:length]

    def note_acknowledgement(self, uint64_t sequence, bint wants_ack):
        """Note that the last of these records is in the ring. wants_ack: as for `publish_current`."""
        self.wants_ack = wants_ack
        self.note_sequence(sequence)

    def transaction_record(self, AckList acks, TopicEntry queue):
        """The current frame, a transaction returned as COMMAND, as a record for the ring (a bytearray).

        acks: of distinct bookmarks; `fill_transaction_entries` completes it. queue: the declared entry of the queue's
        name. Otherwise (result of laying out, number of the publish concerned from 0, topic of that publish).
        """
        cdef uint64_t length = 0
        cdef uint64_t room
        cdef uint32_t publishes = 0
        cdef int result = LAYING_MALFORMED
        cdef bytearray memory
        topic = b""
        drop_repeated(acks)
        length = room_for_group(self, acks.count)
        if length > RECORD_BYTES_MAX:
            return LAYING_TOO_LONG, 0, topic
        if length:
            room = length
            memory = bytearray(room)
            result = lay_out_group(
                self, <uint8_t*><char*>memory, room, acks, queue, self.given_sequence, &length, &publishes
            )
            while result == LAYING_ROOM:
                # Preprocessing has made messages longer.
                room = min(room * 2, <uint64_t>RECORD_BYTES_MAX)
                memory = bytearray(room)
                result = lay_out_group(
                    self, <uint8_t*><char*>memory, room, acks, queue, self.given_sequence, &length, &publishes
                )
        if result == LAID_OUT:
            del memory[length:]
            return memory
        if result >= LAYING_FIELD and part_length(&self.view, <int>FIELD_TOPIC):
            topic = self.view.field[<int>FIELD_TOPIC].data[: self.view.field[<int>FIELD_TOPIC].length]
        return result, publishes, topic

    def empty_transaction_record(self):
        """The record of the current frame without its group, for a transaction that the core knows already."""
        cdef bytearray memory = bytearray(<Py_ssize_t>TRANSACTION_BYTES)
        fill_transaction(self, <RecordHeader*><char*>memory, 0, self.given_sequence, TRANSACTION_BYTES, 0)
        return memory

    def refusal_record(self):
        """The record of the current frame without its group, for a transaction that Python has refused and answered."""
        cdef bytearray memory = bytearray(<Py_ssize_t>TRANSACTION_BYTES)
        fill_transaction(self, <RecordHeader*><char*>memory, 0, self.given_sequence, TRANSACTION_BYTES, 1)
        return memory

    def storage_refuses(self, uint64_t length, uint64_t sequence):
        """NO_STORAGE or AFTER_REFUSAL if a record of that length for the journal cannot be taken; 0 = it can."""
        return self.storage_refusal(length, sequence, True)

    def note_transaction(self, uint64_t first, uint32_t publishes, bytes command_id=None):
        """Note that a transaction which Python has laid out is in the ring. command_id: None = Python answers it."""
        if command_id is None:
            note_transaction(self, NULL, 0, first, publishes)
        elif is_plain_id(command_id, len(command_id)):
            note_transaction(self, command_id, len(command_id), first, publishes)
        else:
            raise ValueError("only Python can answer this command id")

    @property
    def has_transactions(self):
        """Whether there are transactions which the core has not read, as far as is known."""
        return self.transactions is not None and self.transactions.added > self.transactions.decided

    def forget_permissions(self):
        """Forget all permissions, so that each is checked again."""
        if self.permission_count:
            memset(self.permissions, 0, self.permission_count)

    def spill_length(self):
        """The length of the current frame's record in bytes, padding included."""
        self.take_message(self.topic_entry.sow)
        return align8(self.record_length(self.given_sequence))

    def write_spill(self, memory):
        """Lay out the current frame's record in the memory of a spill file, of at least `spill_length` bytes."""
        cdef unsigned char[::1] view = memory
        cdef uint64_t sequence = self.given_sequence
        cdef uint64_t length = self.spill_length()
        if <uint64_t>view.shape[0] < align8(length):
            raise ValueError("the spill file is too small")
        length = self.record_length(sequence)
        self.fill_record(<RecordHeader*>&view[0], <uint32_t>length, self.topic_entry, sequence)

    def finish_spill(self):
        """Note that the control record of the spilled message is in the ring, so that the frame is done."""
        self.note_publish(self.given_sequence)

    def consume(self):
        """Move past the current frame, after a result of `parse` that does not consume it."""
        self.at += 4 + self.frame_length
