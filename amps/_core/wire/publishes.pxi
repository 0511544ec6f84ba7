# What a connection sends: frames cut out of the byte stream, publishes put into the ring without a Python object.
#
# One Ingress per client connection. The event loop lets it receive; `parse` then works through the frames. A plain
# publish is scanned, checked and laid out in the ring right here (wire/publishes.pxi), and so is a plain
# acknowledgement of queue messages that this connection was given. Anything else (other commands, and the rarer forms
# of these two) is returned to Python as a COMMAND, and so are the moments where policy has to decide (a new topic, a
# permission, a full ring).
#
# While the journal takes no messages, or no large ones, publishes to recorded topics are refused here (NO_STORAGE). A
# publisher that is never told, because its connection ends first, learns at its next logon the last sequence in the
# log, and takes everything before for recorded. So after a refused one no numbered publish of the connection is taken
# any more; when it could be, the connection must end (AFTER_REFUSAL).
#
# Invariants: a frame is consumed exactly when its effect is in the ring or Python has taken it; on RING_FULL,
# NEW_TOPIC, PERMISSION and SPILL nothing is consumed and parsing the same frame again is safe.

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from amps._core.expressions.machine cimport EvaluationContext, FilterSet
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_CLIENT_BYTES,
    FLAG_DELTA,
    FLAG_DERIVED_PUBLISHER,
    FLAG_UNRECORDED,
    KIND_PUBLISH,
    NO_EXPIRATION,
    RECORD_HEADER_BYTES,
    RecordHeader,
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
    FIELD_EXPIRATION,
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
from amps._core.wire.topics cimport TopicEntry, TopicTable, tell_facts
from amps._core.wire.framing import parse_header

cdef enum:
    SCRATCH_BYTES = 262144

cdef uint8_t* scratch = <uint8_t*>malloc(SCRATCH_BYTES)

# Results of `parse`.
NEED_MORE = 0          # no whole frame left
COMMAND = 1            # `header` and `body` hold a command for Python
RING_FULL = 2          # the core must take something first; parse again later
NEW_TOPIC = 3          # `topic_name` was never published to: make its entry, parse again
PERMISSION = 4         # `topic_entry`: ask the entitlement, `set_permission`, parse again
DENIED = 5             # a publish to `topic_entry` that is not allowed; consumed; `sequence` is its number
SPILL = 6              # a message too large for the ring: `write_spill`, then `finish_spill`
BAD_HEADER = 7         # no header where one must be: close the connection
TOO_LARGE = 8          # a frame over the limit: close the connection
NO_STORAGE = 9         # a publish that the journal cannot take now; consumed; `sequence` is its number
AFTER_REFUSAL = 10     # one that could be taken, but has a number and comes after a refused one: close the connection

cdef enum:
    BACKLOG_BYTES = 512 << 10

PUBLISH_BACKLOG_BYTES = BACKLOG_BYTES
"""With so much in the ring no publish is put there: acknowledgements of consumers come behind it, and are not to wait
long, nor to find no room."""

cdef AckList scratch_acks = AckList()      # of the current frame


@cython.final
cdef class Ingress:
    # what was received
    cdef uint64_t frame_bytes_max
    # bytes received and not parsed: data[at:end], in scratch or in `kept`
    cdef uint8_t* data
    cdef uint64_t at
    cdef uint64_t end
    cdef uint8_t* kept
    cdef uint64_t kept_capacity
    cdef readonly uint64_t bytes_received
    # the current frame, and who sends it
    cdef readonly uint32_t slot
    cdef readonly uint32_t serial
    # identity, set at logon
    cdef bint numbered                     # publishes without a sequence are numbered by the server
    cdef uint64_t publisher_id
    cdef uint64_t derived_id
    cdef bytes user_id
    # the current frame
    cdef HeaderView view
    cdef uint32_t header_length
    cdef uint64_t given_sequence           # 0 = none, or none that is a number
    cdef const uint8_t* frame
    cdef uint32_t frame_length
    # publishing
    cdef Ring ring
    cdef ControlPage control
    cdef TopicTable table
    cdef HeaderPattern plain               # of the last plain publish
    # identity, set at logon
    cdef readonly bint ready               # logged on: plain publishes are taken here
    cdef bint conflated                    # persisted acknowledgements are conflated
    cdef bint checked                      # publishes need a permission
    cdef uint32_t message_type_id
    # the current frame
    cdef readonly TopicEntry topic_entry
    cdef TopicEntry last_entry
    cdef bint has_refused                  # a publish with a number was refused for want of storage
    cdef bint wants_ack                    # the current publish takes part in conflated acknowledgements
    cdef uint8_t* permissions              # by topic number: 0 unknown, 1 allowed, 2 denied; 4: may be read
    cdef LeaseTable leases                 # what the connection was given of queues; None = nothing yet
    cdef uint32_t permission_count
    # what acknowledgements are made of
    cdef readonly uint64_t sequence        # of the last publish with a number
    cdef readonly uint64_t ack_sequence    # of the last one that asked for `persisted`
    cdef readonly uint64_t ack_position    # ring position after it
    cdef readonly uint64_t ack_requests    # how many asked for it
    cdef readonly uint64_t messages

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
        self.has_refused = False
        self.sequence = 0
        self.ack_sequence = 0
        self.ack_position = 0
        self.ack_requests = 0
        self.messages = 0

    def __dealloc__(self):
        free(self.permissions)
        free(self.kept)

    # === bytes that were received ================================================================================
    #
    # The event loop asks for memory to receive into (`receive_buffer`), then tells how much came (`received`).
    # Whoever parses moves `at` forward and says when it stops for now (`keep`).
    #
    # Idle connections hold no memory. Bytes are received into a scratch buffer shared by all connections of the
    # process and parsed there; only the piece of a frame whose rest has not come is kept, in memory that grows as the
    # bytes arrive, never by what a length field promises, and is given back when the frame is done.
    #
    # Invariants: what is not parsed is data[at:end]. It lies in the scratch buffer only between `receive_buffer` and
    # the `keep` that follows, during which no other connection of the process receives.

    def receive_buffer(self):
        """Memory to receive into, until the next call."""
        cdef uint64_t wanted
        cdef uint64_t capacity
        cdef uint8_t* grown
        if self.data != self.kept or self.end == self.at:
            self.data = scratch
            self.at = self.end = 0
            return PyMemoryView_FromMemory(<char*>scratch, SCRATCH_BYTES, PyBUF_WRITE)
        if self.kept_capacity - self.end < 65536:
            # Grow by what has arrived, not by what the length field says.
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
        """That many bytes were received into the buffer."""
        self.end += count
        self.bytes_received += count

    def keep(self):
        """Parsing stops here for now: take unparsed bytes out of the scratch buffer, move them together."""
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
        """The connection has ended: free what was received. The current frame is gone too."""
        free(self.kept)
        self.kept = NULL
        self.kept_capacity = 0
        self.data = scratch
        self.at = self.end = 0
        self.frame_length = self.header_length = 0

    @property
    def unparsed_bytes(self):
        """Bytes received and not parsed."""
        return self.end - self.at

    @property
    def first_bytes(self):
        """Up to 4 KiB of what was received and not parsed: to tell HTTP from frames."""
        return (<const char*>self.data + self.at)[: min(self.end - self.at, <uint64_t>4096)]

    def discard(self, uint64_t count):
        """Drop bytes that were something else than frames."""
        self.at += min(count, self.end - self.at)

    # === the current frame and its record ========================================================================
    #
    # A publish is laid out exactly as it will stand in the journal (journal/record.pxd), but for what only the core
    # knows: position, transaction id, time and checksum. Until then `position` says from which connection it comes.
    # Python sees the parts of the frame when policy has to decide, and of every frame that is no plain publish.
    #
    # Invariants: the frame lies where it was received, so what is known of it holds until more is received or `keep` is
    # called. `fill_record` writes exactly `record_length` bytes, padding besides.

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
            length += EXTENSION_CLIENT_BYTES
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
            record.extension_length = EXTENSION_CLIENT_BYTES
            at = put_extension(at, EXTENSION_CLIENT, &self.publisher_id)
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
        """The connection is logged on. `user_id` as it stands inside the quotes of a header.

        numbered: publishes without a sequence get one. conflated: persisted acknowledgements are. checked: publishes
        need a permission. plain: plain publishes are taken here; else Python sees every one.
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
        """Work through the frames received; returns when Python is needed or nothing whole is left."""
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
        """Length of the current frame's header, its parts in `view`; -1: it is none, or has no command."""
        cdef int32_t length = scan_header(<const char*>self.frame, self.frame_length, &self.view)
        if length < 0 or not self.view.present & (<uint64_t>1 << <int>FIELD_CMD):
            return -1
        self.given_sequence = 0
        field_u64(&self.view, FIELD_SEQ, &self.given_sequence)
        return length

    cdef inline bint is_plain_publish(self) noexcept nogil:
        """A publish that needs no acknowledgement of its own."""
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
        return self.wants_plain_ack()

    cdef inline bint wants_plain_ack(self) noexcept nogil:
        """Nothing, `none`, or `persisted` for a command with a sequence."""
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
        """Lay the current frame out in the ring. 0 = done; else what `parse` returns."""
        cdef TopicEntry entry
        if part_length(&self.view, <int>FIELD_TOPIC) == 0:
            self.topic_entry = None
            if self.given_sequence:
                self.sequence = self.given_sequence
            return DENIED
        entry = self.find_entry()
        if entry is None:
            return NEW_TOPIC
        # A plain publish asks for nothing, for `none`, or for `persisted`.
        return self.put_publish_to(entry, part_length(&self.view, <int>FIELD_ACK_TYPE) == 9)

    cdef TopicEntry find_entry(self):
        """The entry of the current frame's topic; None if it is new to the core."""
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
            # A queue's name, for which the permission was: recorded under another one (queues.md §4, §14.5).
            entry = entry.target
            self.topic_entry = entry
        if not entry.discarded:
            length = self.record_length(sequence)
            # Of a topic that is recorded by content all messages: what would not be recorded is known too late.
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
        """Whether a record of that length, with that number, cannot be taken: NO_STORAGE, AFTER_REFUSAL; 0 = it can."""
        cdef uint64_t refused_from_bytes = load_relaxed(&self.control.data.refused_from_bytes)
        if recorded and length >= refused_from_bytes:
            self.has_refused = self.has_refused or sequence != 0
            return NO_STORAGE
        if self.has_refused and sequence:
            return NO_STORAGE if refused_from_bytes == 0 else AFTER_REFUSAL
        return 0

    cdef int put_acknowledgement(self) except -1:
        """Lay the current frame out in the ring if it is a plain acknowledgement of messages that are held here.

        0 = done, RING_FULL = later, COMMAND = it is something else, or needs more than this.
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
            return COMMAND  # to be refused there
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
        """A command with that number (0: none) is in the ring."""
        if sequence:
            self.sequence = sequence
            if self.wants_ack:
                # A repeated, lower number is a duplicate: the highest one covers it.
                self.ack_sequence = max(self.ack_sequence, sequence)
                self.ack_position = self.ring.pending_head
                self.ack_requests += 1
        return 0

    # --- for Python -----------------------------------------------------------------------------------

    def publish_current(self, TopicEntry entry, bint wants_ack):
        """Put the current frame (a publish returned as COMMAND) into the ring under a declared topic.

        `wants_ack`: it takes part in conflated acknowledgements. 0 = done, else as `parse`.
        """
        return self.put_publish_to(entry, wants_ack)

    def unread(self):
        """Make the current frame the next one again."""
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
        """Remember whether this connection may publish to a topic."""
        self.make_room_for_permission(entry.number)
        self.permissions[entry.number] = (self.permissions[entry.number] & 4) | (1 if allowed else 2)

    def allow_acknowledging(self, TopicEntry entry):
        """Remember that this connection may read a queue: then it may acknowledge its messages."""
        self.make_room_for_permission(entry.number)
        self.permissions[entry.number] |= 4

    def set_leases(self, LeaseTable leases):
        """What the connection is given of queues is noted there from now on."""
        self.leases = leases

    def acknowledgement_records(
        self, AckList acks, TopicEntry entry, uint32_t action, uint64_t extension_ns, uint64_t searched_until,
        uint32_t token, uint64_t sequence,
    ):
        """Records, as bytes, for acknowledgements that Python has dealt with; an int says why they cannot be taken:
        NO_STORAGE, AFTER_REFUSAL.

        entry: of the queue's name. The rest: see queue_acks.make_records.
        """
        cdef list records = make_records(
            acks, self.slot, self.serial, entry.number, action, extension_ns, searched_until, token,
            self.publisher_id, self.derived_id, self.numbered, sequence,
        )
        cdef int refusal = self.storage_refusal(max(map(len, records), default=0), sequence, True)
        return refusal if refusal else records

    def note_acknowledgement(self, uint64_t sequence, bint wants_ack):
        """The last of these records is in the ring. `wants_ack`: as for `publish_current`."""
        self.wants_ack = wants_ack
        self.note_sequence(sequence)

    def forget_permissions(self):
        """Ask for every permission anew."""
        if self.permission_count:
            memset(self.permissions, 0, self.permission_count)

    def spill_length(self):
        """Bytes of the current frame's record, padding included."""
        return align8(self.record_length(self.given_sequence))

    def write_spill(self, memory):
        """Lay the current frame's record out in a file's memory of `spill_length` bytes."""
        cdef unsigned char[::1] view = memory
        cdef uint64_t sequence = self.given_sequence
        cdef uint64_t length = self.record_length(sequence)
        if <uint64_t>view.shape[0] < align8(length):
            raise ValueError("the spill file is too small")
        self.fill_record(<RecordHeader*>&view[0], <uint32_t>length, self.topic_entry, sequence)

    def finish_spill(self):
        """The spilled message's control record is in the ring: the frame is done."""
        self.note_publish(self.given_sequence)

    def consume(self):
        """Move past the current frame, for results of `parse` that do not."""
        self.at += 4 + self.frame_length
