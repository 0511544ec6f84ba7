# The sink flow of one upstream: from its frames to records in the ring to the core.
#
# A record is checked as a whole: lengths, checksum, kind, the order of transaction ids, and that its topic and path were
# named before. Then it is laid out in the ring with the topic number of this process. Its extension area is made anew:
# client, expiry and delay of the original, and where it came from (docs/replication.md). The rest stays as it is.
#
# If the ring is full, the flow stops at that record. `go_on` continues there.
#
# Invariants
# - A record is pushed whole, and each transaction as one.
# - Frames are checked to their end before the first record of the frame is pushed. So a frame has its effect, or the
#   link is closed.
# - Nothing is allocated by a length or number that was not compared with the bytes that are there.

from collections import deque
from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from amps._core.journal.queue_records cimport QueueAcknowledgementHeader, QueueEntry
from amps._core.journal.record cimport (
    EXTENSION_CLIENT,
    EXTENSION_DELIVER_AT,
    EXTENSION_ELEMENT_BYTES,
    EXTENSION_EXPIRY,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_EXPIRY,
    NAME_BYTES_MAX,
    NO_EXPIRATION,
    RECORD_BYTES_MAX,
    REFUSED_BYTES,
    extension_fits,
    extension_value,
    put_extension,
)
from amps._core.shm.memory cimport Ring
from amps._core.values.value cimport hash_bytes
from amps._core.wire.topics cimport TopicTable

cdef enum:
    EXTENSION_BYTES_MAX = 3 * 12 + 20 + 12     # client, expiry, deliver at; source; path
    PATHS_MAX = 65536              # of one connection
    SOURCE_WORDS = 2

cdef enum Permission:
    PERMISSION_UNKNOWN = 0
    PERMISSION_GIVEN = 1
    PERMISSION_DENIED = 2


@cython.final
cdef class SinkFlow:
    """The flow from one upstream.

    ring, slot, serial: where records are pushed, under which session. topics: the topics of this process. upstream_id:
    name id of the upstream. hop: the line of the source in a path, `instance TAB group TAB epoch`. declare_topic(entry),
    declare_name(class, name id, text), spill(record): tell the core the number of a topic and the text of a name id, and
    pass a record that is too long for the ring; False: there is no room now, and it is tried again. allowed(topic,
    message type): whether the source may replicate the topic. declared_names: the name ids that this process has
    declared to the core. last_txid: the last transaction id of the upstream in this log.
    """

    cdef Ring ring
    cdef uint32_t slot
    cdef uint32_t serial
    cdef TopicTable topics
    cdef uint64_t upstream_id
    cdef bytes hop
    cdef object declare_topic
    cdef object declare_name
    cdef object spill
    cdef object allowed
    cdef set declared_names
    # what the source has named
    cdef uint64_t journal
    cdef NumberMap topic_numbers   # topic id of the source + 1 -> number of the topic here
    cdef NumberMap permissions     # number of the topic + 1 -> Permission
    cdef NumberMap path_ids        # path id at the source -> path id here
    cdef dict path_texts           # path id here -> text
    cdef dict client_texts         # name id of a client that is not declared yet -> text
    cdef uint64_t direct_path      # path id of records that were published at the source
    # the current frame
    cdef object frame              # keeps the memory; None: no frame is unfinished
    cdef const uint8_t* data
    cdef uint64_t at               # offset of the next record
    cdef uint64_t end
    cdef readonly uint64_t taken_txid      # of the last record that is in the ring, or was passed over
    cdef readonly uint64_t taken_bytes     # bytes of records, with their padding, that were taken
    cdef readonly uint64_t messages_in
    cdef uint64_t checked_txid     # of the last record that was checked
    cdef object marks              # deque of (ring position, transaction id): taken up to there
    cdef uint64_t marked_position  # the last mark
    cdef uint64_t marked_txid
    cdef list rejections           # [(transaction id, reason)]

    def __init__(
        self, Ring ring not None, uint32_t slot, uint32_t serial, TopicTable topics not None, uint64_t upstream_id,
        bytes hop not None, declare_topic, declare_name, spill, allowed, set declared_names not None,
        uint64_t last_txid=0,
    ):
        self.ring = ring
        self.slot = slot
        self.serial = serial
        self.topics = topics
        self.upstream_id = upstream_id
        self.hop = hop
        self.declare_topic = declare_topic
        self.declare_name = declare_name
        self.spill = spill
        self.allowed = allowed
        self.declared_names = declared_names
        self.journal = 0
        self.topic_numbers = NumberMap()
        self.permissions = NumberMap()
        self.path_ids = NumberMap()
        self.path_texts = {}
        self.client_texts = {}
        self.direct_path = self.note_path(hop)
        self.frame = None
        self.data = NULL
        self.at = self.end = 0
        self.taken_txid = self.checked_txid = self.marked_txid = last_txid
        self.marked_position = 0
        self.taken_bytes = self.messages_in = 0
        self.marks = deque()
        self.rejections = []

    @property
    def unfinished(self):
        """Whether records of the last frame wait for room in the ring."""
        return self.frame is not None

    def take(self, uint32_t frame_type, payload):
        """Take the payload of a NAMES or DATA frame. False: the ring is full; call `go_on` before the next frame.

        Raises StreamError if the frame is malformed; then nothing of it was taken.
        """
        cdef const unsigned char[::1] view = payload
        cdef DataHeader header
        cdef uint64_t length = <uint64_t>view.shape[0]
        if self.frame is not None:
            raise ValueError("the last frame is not finished")
        if frame_type == FRAME_NAMES:
            self.learn_names(&view[0] if length else NULL, length)
            return True
        if frame_type != FRAME_DATA or length < sizeof(DataHeader):
            raise StreamError(f"a frame of type {frame_type} and {length} bytes carries no records")
        memcpy(&header, &view[0], sizeof(DataHeader))
        if header.journal != self.journal:
            # No topic of another journal was named, so no record of it can be valid.
            raise StreamError("records of a journal whose topics were not named")
        self.check_records(&view[0], length, header.count)
        self.frame = payload
        self.data = &view[0]
        self.at = sizeof(DataHeader)
        self.end = length
        return self.go_on()

    def go_on(self):
        """Push the rest of the frame. True: all of it is in the ring."""
        cdef const unsigned char[::1] view
        cdef bint pushed = True
        if self.frame is None:
            return True
        view = self.frame
        self.data = &view[0]
        try:
            while self.at < self.end and pushed:
                pushed = self.push_next()
        finally:
            if self.ring.pending_head != load_relaxed(&self.ring.data.head):
                self.ring.publish()
            self.mark()
        if pushed:
            self.frame = None
        return pushed

    cdef int mark(self) except -1:
        """Note up to which ring position the records up to `taken_txid` are."""
        if self.taken_txid != self.marked_txid:
            if self.marks and self.marked_position == self.ring.pending_head:
                self.marks.pop()
            self.marked_txid = self.taken_txid
            self.marked_position = self.ring.pending_head
            self.marks.append((self.marked_position, self.marked_txid))
        return 0

    def consumed(self, uint64_t ring_position):
        """The last transaction id of which the core has taken everything, at a ring position; 0: none is new.

        Everything up to it is in the log before the written watermark that is read afterwards, or was dropped.
        """
        cdef uint64_t txid = 0
        while self.marks and self.marks[0][0] <= ring_position:
            txid = self.marks.popleft()[1]
        return txid

    def take_rejections(self):
        """[(transaction id, reason)] of the records that were passed over since the last call, at most 1000 of them."""
        rejections = self.rejections
        self.rejections = []
        return rejections

    # --- names ----------------------------------------------------------------------------------------

    cdef int learn_names(self, const uint8_t* data, uint64_t length) except -1:
        """Take a NAMES frame. Raises StreamError."""
        cdef NameEntry entry
        cdef uint64_t at = 8
        cdef uint64_t journal
        cdef bytes text
        if length < 8:
            raise StreamError(f"a frame of names has {length} bytes")
        memcpy(&journal, data, 8)
        if journal != self.journal:
            self.journal = journal
            self.topic_numbers.clear()
        while at < length:
            if length - at < sizeof(NameEntry):
                raise StreamError("a frame of names ends within an entry")
            memcpy(&entry, data + at, sizeof(NameEntry))
            at += sizeof(NameEntry)
            if entry.length > NAME_BYTES_MAX or align8(entry.length) > length - at:
                raise StreamError(f"a name says it has {entry.length} bytes")
            text = (<const char*>data + at)[:entry.length]
            at += align8(entry.length)
            if entry.kind == NAME_TOPIC:
                self.learn_topic(entry.id, text)
            elif entry.id != hash_bytes(<const uint8_t*><const char*>text, entry.length, 0):
                raise StreamError("a name id is not the hash of its text")
            elif entry.kind == NAME_CLIENT:
                if text.startswith(UPSTREAM_NAMES):
                    raise StreamError("a publisher has the name of an upstream")
                if entry.id not in self.declared_names:
                    self.client_texts[entry.id] = text
            elif entry.kind == NAME_PATH:
                if self.path_ids.count >= PATHS_MAX:
                    raise StreamError(f"more than {PATHS_MAX} paths")
                self.path_ids.put(entry.id, self.note_path(text + b"\n" + self.hop))
            else:
                raise StreamError(f"a name of class {entry.kind}")
        return 0

    cdef int learn_topic(self, uint64_t topic_id, bytes text) except -1:
        message_type, tab, name = text.partition(b"\t")
        if not tab or topic_id >= <uint64_t>1 << 32:
            raise StreamError("a topic without its message type")
        try:
            entry = self.topics.entry(name.decode("utf-8", "surrogatepass"), message_type.decode())
        except UnicodeDecodeError:
            raise StreamError("a topic that is not UTF-8") from None
        self.topic_numbers.put(topic_id + 1, <uint64_t>(<TopicEntry>entry).number + 1)
        return 0

    cdef uint64_t note_path(self, bytes text) except 0:
        """The id here of a path."""
        cdef uint64_t path = hash_bytes(<const uint8_t*><const char*>text, PyBytes_GET_SIZE(text), 0)
        if path not in self.declared_names:
            self.path_texts[path] = text
        return path

    cdef bint declare(self, uint32_t name_class, uint64_t name_id, dict texts) except -1:
        """Declare a name to the core before the first record that uses it. False: there is no room."""
        text = texts.get(name_id)
        if text is None:
            return True
        if name_id not in self.declared_names:
            if not self.declare_name(name_class, name_id, text):
                return False
            self.declared_names.add(name_id)
        del texts[name_id]
        return True

    # --- checks ---------------------------------------------------------------------------------------

    cdef int check_records(self, const uint8_t* data, uint64_t length, uint32_t count) except -1:
        """Check all records of a DATA frame. Raises StreamError."""
        cdef uint64_t at = sizeof(DataHeader)
        cdef uint64_t group_end = 0
        cdef uint64_t txid = self.checked_txid
        cdef uint32_t counted = 0
        cdef uint32_t group_left = 0
        cdef const RecordHeader* record
        cdef const RecordHeader* previous = NULL       # in the group
        cdef const TransactionGroup* group
        if <uint64_t>data & 7:
            raise ValueError("the memory of a frame must begin at a multiple of 8")
        while at < length:
            if length - at < RECORD_HEADER_BYTES:
                raise StreamError("a frame ends within the header of a record")
            record = <const RecordHeader*>(data + at)
            if not record_parts_fit(record) or align8(record.length) > length - at:
                raise StreamError(f"a record says it has {record.length} bytes")
            if not record_sound(record):
                raise StreamError(f"the record with the transaction id {record.txid} is damaged")
            at += align8(record.length)
            counted += 1
            if record.kind == KIND_TRANSACTION:
                group = transaction_group(record)
                if group == NULL or group_left or group.count == 0 or group.bytes > length - at:
                    raise StreamError("a transaction is not whole")
                if TRANSACTION_BYTES + group.bytes + <uint64_t>group.count * EXTENSION_BYTES_MAX > RECORD_BYTES_MAX:
                    raise StreamError(f"a transaction of {group.bytes} bytes")
                previous = NULL
                group_left = group.count
                group_end = at + group.bytes
                continue
            self.check_record(record, txid)
            txid = record.txid
            if group_left:
                check_member(record, previous)
                previous = record
                group_left -= 1
                if at > group_end or (group_left == 0) != (at == group_end):
                    raise StreamError("the records of a transaction do not add up to its length")
        if group_left or counted != count:
            raise StreamError(f"a frame says {count} records and has {counted}")
        self.checked_txid = txid
        return 0

    cdef int check_record(self, const RecordHeader* record, uint64_t before) except -1:
        cdef uint64_t path
        if not is_replicated_kind(record.kind):
            raise StreamError(f"a record of kind {record.kind} is not replicated")
        if record.txid <= before:
            raise StreamError(f"the transaction id {record.txid} follows {before}")
        if record.publisher_id == 0 or record.publisher_id == self.upstream_id:
            raise StreamError(f"the record with the transaction id {record.txid} has no valid publisher")
        if <uint64_t>record.length + EXTENSION_BYTES_MAX > RECORD_BYTES_MAX:
            raise StreamError(f"a record of {record.length} bytes")
        if self.topic_numbers.find(<uint64_t>record.topic_id + 1) == NULL:
            raise StreamError(f"the record with the transaction id {record.txid} has a topic that was not named")
        if record.extension_length:
            path = extension_word(record, EXTENSION_PATH, 0)
            if path and self.path_ids.find(path) == NULL:
                raise StreamError(f"the record with the transaction id {record.txid} has a path that was not named")
        if not payload_fits(record):
            raise StreamError(f"the payload of the record with the transaction id {record.txid} is malformed")
        return 0

    # --- pushing --------------------------------------------------------------------------------------

    cdef bint push_next(self) except -1:
        """Push the next record, or the next transaction, of the frame. False: there is no room."""
        cdef const RecordHeader* record = <const RecordHeader*>(self.data + self.at)
        cdef const uint8_t* end = self.data + self.at + align8(record.length)
        cdef const RecordHeader* first = record
        cdef uint64_t need
        cdef uint32_t count = 1
        cdef uint8_t* room
        cdef bytearray memory
        if record.kind == KIND_TRANSACTION:
            end += transaction_group(record).bytes
            count = transaction_group(record).count
            first = <const RecordHeader*>(<const uint8_t*>record + TRANSACTION_BYTES)
        need = self.prepare(record, first, end)
        if need == NO_ROOM:
            return False
        if need:
            if align8(need) > self.ring.capacity // 2:
                memory = bytearray(need)
                self.lay_out(record, first, end, <uint8_t*><char*>memory)
                if not self.spill(bytes(memory)):
                    return False
            else:
                room = self.ring.reserve(<uint32_t>need)
                if room == NULL:
                    return False
                self.lay_out(record, first, end, room)
                self.ring.commit(<uint32_t>need)
            self.messages_in += count
        while first < <const RecordHeader*>end:
            self.taken_txid = first.txid
            first = <const RecordHeader*>(<const uint8_t*>first + align8(first.length))
        self.taken_bytes += <uint64_t>end - <uint64_t>(self.data + self.at)
        self.at = <uint64_t>end - <uint64_t>self.data
        return True

    cdef uint64_t prepare(
        self, const RecordHeader* record, const RecordHeader* first, const uint8_t* end
    ) except? 0:
        """The bytes that a record or transaction needs in the ring, after its topics and names were declared.

        0: it is passed over. NO_ROOM: the ring has no room for a declaration.
        """
        cdef uint64_t need = TRANSACTION_BYTES if record != first else 0
        cdef const RecordHeader* at = first
        cdef TopicEntry entry
        # A transaction is passed over as a whole.
        while <const uint8_t*>at < end:
            entry = self.entry_of(at)
            if not self.permits(entry):
                self.reject(first, end, entry)
                return 0
            at = <const RecordHeader*>(<const uint8_t*>at + align8(at.length))
        at = first
        while <const uint8_t*>at < end:
            entry = self.entry_of(at)
            if not entry.declared:
                if not self.declare_topic(entry):
                    return NO_ROOM
                entry.mark_declared()
            if self.client_texts and not self.declare(NAME_CLIENT, record_client_id(at), self.client_texts):
                return NO_ROOM
            if self.path_texts and not self.declare(NAME_PATH, self.path_of(at), self.path_texts):
                return NO_ROOM
            need += at.length + extension_bytes(at) - at.extension_length
            if record != first:
                need = align8(need)
            at = <const RecordHeader*>(<const uint8_t*>at + align8(at.length))
        return need

    cdef inline TopicEntry entry_of(self, const RecordHeader* record):
        return <TopicEntry>self.topics.entries[self.topic_numbers.find(<uint64_t>record.topic_id + 1).value - 1]

    cdef inline uint64_t path_of(self, const RecordHeader* record) noexcept:
        """The path id here of a record."""
        cdef uint64_t path = extension_word(record, EXTENSION_PATH, 0) if record.extension_length else 0
        return self.path_ids.find(path).value if path else self.direct_path

    cdef bint permits(self, TopicEntry entry) except -1:
        """Whether the source may replicate a topic."""
        cdef MapEntry* found = self.permissions.find(<uint64_t>entry.number + 1)
        if found == NULL:
            given = entry.refusal is None and not entry.discarded and self.allowed(entry.name, entry.message_type)
            self.permissions.put(<uint64_t>entry.number + 1, PERMISSION_GIVEN if given else PERMISSION_DENIED)
            return given
        return found.value == PERMISSION_GIVEN

    cdef int reject(self, const RecordHeader* record, const uint8_t* end, TopicEntry entry) except -1:
        """Pass over records of which one has a topic that the source may not replicate (decision 25.23)."""
        while <const uint8_t*>record < end:
            if len(self.rejections) < REJECTIONS_MAX:
                self.rejections.append(
                    (record.txid, entry.refusal or f"not entitled to replicate the topic {entry.name!r}")
                )
            record = <const RecordHeader*>(<const uint8_t*>record + align8(record.length))
        return 0

    cdef int lay_out(
        self, const RecordHeader* record, const RecordHeader* first, const uint8_t* end, uint8_t* room
    ) except -1:
        """Write a record, or a transaction with its group, as a ring has it."""
        cdef RecordHeader* transaction = <RecordHeader*>room
        cdef uint8_t* at = room
        if record == first:
            self.lay_out_record(record, room)
            return 0
        memcpy(room, record, TRANSACTION_BYTES)
        transaction.position = <uint64_t>self.serial << 32 | self.slot
        transaction.publisher_id = first.publisher_id
        transaction.sequence = first.sequence
        at += TRANSACTION_BYTES
        while <const uint8_t*>first < end:
            at = self.lay_out_record(first, at)
            first = <const RecordHeader*>(<const uint8_t*>first + align8(first.length))
        transaction.length = <uint32_t>(at - room)
        (<TransactionGroup*>(room + RECORD_HEADER_BYTES)).bytes = transaction.length - TRANSACTION_BYTES
        return 0

    cdef uint8_t* lay_out_record(self, const RecordHeader* record, uint8_t* room) noexcept:
        """Write one record with its new extension area. Returns the address behind its padding."""
        cdef RecordHeader* made = <RecordHeader*>room
        cdef uint8_t* at = room + RECORD_HEADER_BYTES
        cdef uint64_t[SOURCE_WORDS] words
        cdef uint64_t rest = record.length - RECORD_HEADER_BYTES - record.extension_length
        memcpy(room, record, RECORD_HEADER_BYTES)
        at = keep_extension(record, EXTENSION_CLIENT, at)
        words[0] = expiry_of(record)
        if words[0]:
            at = put_extension(at, EXTENSION_EXPIRY, &words[0])
        words[0] = self.upstream_id
        words[1] = record.txid
        at = put_extension(at, EXTENSION_SOURCE, &words[0])
        words[0] = self.path_of(record)
        at = put_extension(at, EXTENSION_PATH, &words[0])
        at = keep_extension(record, EXTENSION_DELIVER_AT, at)
        made.extension_length = <uint16_t>(at - room - RECORD_HEADER_BYTES)
        made.length = <uint32_t>(RECORD_HEADER_BYTES + made.extension_length + rest)
        made.position = <uint64_t>self.serial << 32 | self.slot
        made.topic_id = <uint32_t>(self.topic_numbers.find(<uint64_t>record.topic_id + 1).value - 1)
        memcpy(at, <const uint8_t*>record + RECORD_HEADER_BYTES + record.extension_length, rest)
        at += rest
        rest = align8(made.length) - made.length
        memset(at, 0, rest)
        return at + rest


UPSTREAM_NAMES = b"amps-server: from "
"""How the name of an upstream begins; name class 2."""

cdef uint64_t NO_ROOM = <uint64_t>-1
cdef enum:
    REJECTIONS_MAX = 1000          # are kept for the source


cdef inline uint64_t expiry_of(const RecordHeader* record) noexcept nogil:
    """The UNIX time in ns at which a record expires at every instance; 0: none was specified, or it never does."""
    cdef uint64_t expiry_ns = extension_word(record, EXTENSION_EXPIRY, 0) if record.extension_length else 0
    if expiry_ns == 0 and record.expiration_s != NO_EXPIRATION and record.expiration_s != 0:
        expiry_ns = record.timestamp_ns + <uint64_t>record.expiration_s * 1_000_000_000
    return expiry_ns


cdef inline uint64_t extension_bytes(const RecordHeader* record) noexcept nogil:
    """Bytes of the extension area that a record has here."""
    cdef uint64_t length = 20 + 12
    if record.extension_length:
        if extension_value(record, EXTENSION_CLIENT) != NULL:
            length += 12
        if extension_value(record, EXTENSION_DELIVER_AT) != NULL:
            length += 12
    return length + (12 if expiry_of(record) else 0)


cdef inline uint8_t* keep_extension(const RecordHeader* record, uint32_t tag, uint8_t* at) noexcept nogil:
    """Write the element of a tag as a record has it, if it has one. Returns the address behind it."""
    cdef const uint8_t* value = extension_value(record, tag) if record.extension_length else NULL
    cdef uint64_t word
    if value == NULL:
        return at
    memcpy(&word, value, 8)
    return put_extension(at, <uint16_t>tag, &word)


cdef int check_member(const RecordHeader* record, const RecordHeader* previous) except -1:
    """Check a record of a transaction: an acknowledgement, then publishes, of one publisher. Raises StreamError."""
    if record.kind != (<int>KIND_QUEUE_ACKNOWLEDGEMENT if previous == NULL else <int>KIND_PUBLISH) or (
        previous != NULL
        and (record.publisher_id != previous.publisher_id or record.sequence != previous.sequence + 1)
    ):
        raise StreamError(f"the record with the transaction id {record.txid} cannot be in a transaction")
    return 0


cdef bint payload_fits(const RecordHeader* record) noexcept nogil:
    """Whether the payload has the lengths that the core relies on."""
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    if record.kind == KIND_QUEUE_ACKNOWLEDGEMENT or record.kind == KIND_QUEUE_EXPIRY:
        return record.payload_length >= sizeof(QueueAcknowledgementHeader) and record.payload_length == (
            sizeof(QueueAcknowledgementHeader) + <uint64_t>header.count * sizeof(QueueEntry)
        )
    if record.kind == KIND_TRANSACTION_REFUSED:
        return record.payload_length == REFUSED_BYTES - RECORD_HEADER_BYTES
    return True
