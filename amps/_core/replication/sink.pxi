# The sink flow of one upstream: from its frames to records in the ring to the core.
#
# A record is checked as a whole: lengths, checksum, kind, the order of transaction ids, and that its topic and path
# were named before (source_names.pxi). Then it is laid out in the ring, with its origin (sink_records.pxi).
#
# If the ring is full, the flow stops at that record. `go_on` continues there.
#
# Most records have the topic and the path of the one before. So what is known of these two is kept (`Known`), and a
# record that has them needs no lookup.
#
# Invariants
# - A record is pushed whole, and each transaction as one.
# - A frame is checked to its end before its first record is pushed. So a frame has its effect, or the link is closed.
# - Nothing is allocated by a length or number that was not compared with the bytes that are there.

from collections import deque
from cpython.dict cimport PyDict_Size
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from amps._core.journal.record cimport RECORD_BYTES_MAX
from amps._core.shm.memory cimport Ring
from amps._core.wire.topics cimport TopicTable

cdef enum:
    REJECTIONS_MAX = 1000          # are kept for the source

cdef uint64_t NO_ROOM = <uint64_t>-1


cdef struct Known:
    uint64_t topic                 # topic id at the source + 1; 0: nothing is known
    uint64_t path                  # path id at the source, 0: none
    uint32_t number                # of the topic here
    uint64_t path_here             # path id here
    uint64_t payload_max           # bytes of the largest message that the topic takes


cdef enum Permission:
    PERMISSION_UNKNOWN = 0
    PERMISSION_GIVEN = 1
    PERMISSION_DENIED = 2


@cython.final
cdef class SinkFlow:
    """The flow from one upstream.

    ring, slot, serial: where records are pushed, under which session. topics: the topics of this process. upstream_id:
    name id of the upstream. hop: the line of the source in a path, `instance TAB group TAB epoch`.

    declare_topic(entry), declare_name(class, name id, text): tell the core the number of a topic, and the text of a
    name id. spill(record): pass it a record that is too long for the ring. If they return False, there is no room now,
    and it is tried again. allowed(topic, message type): whether the source may replicate the topic. declared_names: the
    name ids that this process has declared to the core. last_txid: the last transaction id of the upstream in this log.
    """

    cdef Ring ring
    cdef uint32_t slot
    cdef uint32_t serial
    cdef uint64_t upstream_id
    cdef object declare_topic
    cdef object spill
    cdef object allowed
    cdef SourceNames names
    cdef NumberMap permissions     # number of the topic + 1 -> Permission
    # the current frame
    cdef object frame              # keeps the memory; None: no frame is unfinished
    cdef const uint8_t* data
    cdef uint64_t at               # offset of the next record
    cdef uint64_t end
    cdef readonly uint64_t taken_txid      # of the last record that is in the ring, or was passed over
    cdef readonly uint64_t taken_bytes     # bytes of records, with their padding, that were taken
    cdef readonly uint64_t messages_in
    cdef uint64_t checked_txid     # of the last record that was checked
    cdef uint64_t checked_topic    # topic id + 1 of a topic that was named
    cdef uint64_t checked_path     # path id of a path that was named; 0: none
    cdef Known known               # a topic that is permitted and declared, a path that is declared
    cdef SowRules known_rules      # of the known topic; None: it is no SOW topic
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
        self.upstream_id = upstream_id
        self.declare_topic = declare_topic
        self.spill = spill
        self.allowed = allowed
        self.names = SourceNames(topics, hop, declare_name, declared_names)
        self.permissions = NumberMap()
        self.frame = None
        self.data = NULL
        self.at = self.end = 0
        self.taken_txid = self.checked_txid = self.marked_txid = last_txid
        self.forget_known()
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
            self.forget_known()
            self.names.learn(&view[0] if length else NULL, length)
            return True
        if frame_type != FRAME_DATA or length < sizeof(DataHeader):
            raise StreamError(f"a frame of type {frame_type} and {length} bytes carries no records")
        memcpy(&header, &view[0], sizeof(DataHeader))
        if header.journal != self.names.journal:
            # No topic of another journal was named, so no record of it can be valid.
            raise StreamError("records of a journal whose topics were not named")
        self.check_records(&view[0], length, header.count)
        self.frame = payload
        self.data = &view[0]
        self.at = sizeof(DataHeader)
        self.end = length
        return self.go_on()

    def go_on(self):
        """Push the rest of the frame. True: all of it is in the ring.

        The owner publishes what was pushed: it also wakes the core.
        """
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
            self.mark()
        if pushed:
            self.frame = None
        return pushed

    cdef void forget_known(self) noexcept:
        """Topic ids may get other meanings, or names are to be declared."""
        self.checked_topic = self.checked_path = 0
        self.known.topic = 0

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
        if <uint64_t>record.topic_id + 1 != self.checked_topic:
            if self.names.topic_numbers.find(<uint64_t>record.topic_id + 1) == NULL:
                raise StreamError(f"the record with the transaction id {record.txid} has a topic that was not named")
            self.checked_topic = <uint64_t>record.topic_id + 1
        if record.extension_length:
            path = extension_word(record, EXTENSION_PATH, 0)
            if path and path != self.checked_path:
                if self.names.path_ids.find(path) == NULL:
                    raise StreamError(
                        f"the record with the transaction id {record.txid} has a path that was not named"
                    )
                self.checked_path = path
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
        cdef int pushed = self.push_known(record)
        if pushed >= 0:
            return pushed
        if record.kind == KIND_TRANSACTION:
            end += transaction_group(record).bytes
            count = transaction_group(record).count
            first = <const RecordHeader*>(<const uint8_t*>record + TRANSACTION_BYTES)
        need = self.prepare(record, first, end)
        if need == NO_ROOM:
            return False
        if need:
            if align8(need) > self.ring.capacity // 2:
                memory = bytearray(align8(need))
                if not self.spill(bytes(memory[:self.lay_out(record, first, end, <uint8_t*><char*>memory)])):
                    return False
            else:
                room = self.ring.reserve(<uint32_t>need)
                if room == NULL:
                    return False
                self.ring.commit(self.lay_out(record, first, end, room))
            self.messages_in += count
            if record == first:
                self.know(record)
        while first < <const RecordHeader*>end:
            self.taken_txid = first.txid
            first = <const RecordHeader*>(<const uint8_t*>first + align8(first.length))
        self.taken_bytes += <uint64_t>end - <uint64_t>(self.data + self.at)
        self.at = <uint64_t>end - <uint64_t>self.data
        return True

    cdef inline int push_known(self, const RecordHeader* record) except -2:
        """Push a record of which topic and path are known. Returns 1 if it was pushed, 0 if there is no room, -1 if
        it needs the long way.
        """
        cdef uint64_t path = 0
        cdef uint64_t need
        cdef uint8_t* room
        cdef RecordState state
        cdef bint keyed
        if (
            <uint64_t>record.topic_id + 1 != self.known.topic or record.kind == KIND_TRANSACTION
            or record.payload_length > self.known.payload_max or PyDict_Size(self.names.client_texts)
        ):
            return -1
        if record.extension_length:
            path = extension_word(record, EXTENSION_PATH, 0)
        need = <uint64_t>record.length - record.extension_length + extension_bytes_max(
            record, self.known_rules is not None
        )
        if path != self.known.path or align8(need) > self.ring.capacity // 2:
            return -1
        room = self.ring.reserve(<uint32_t>need)
        if room == NULL:
            return 0
        keyed = state_here(record, self.known_rules, &state)
        lay_out_record(
            record, room, <uint64_t>self.serial << 32 | self.slot, self.known.number, self.upstream_id,
            self.known.path_here, &state if keyed else NULL,
        )
        self.ring.commit((<RecordHeader*>room).length)
        self.messages_in += 1
        self.taken_txid = record.txid
        self.taken_bytes += align8(record.length)
        self.at += align8(record.length)
        return 1

    cdef int know(self, const RecordHeader* record) except -1:
        """Remember topic and path of a record that was pushed."""
        self.known.topic = <uint64_t>record.topic_id + 1
        self.known.number = <uint32_t>(self.names.topic_numbers.find(self.known.topic).value - 1)
        self.known.path = extension_word(record, EXTENSION_PATH, 0) if record.extension_length else 0
        self.known.path_here = self.names.path_of(record)
        self.known_rules = self.names.entry_of(record).sow
        self.known.payload_max = payload_max_of(self.names.entry_of(record))
        return 0

    cdef uint64_t prepare(
        self, const RecordHeader* record, const RecordHeader* first, const uint8_t* end
    ) except? 0:
        """The most bytes that a record or transaction needs in the ring, after its topics and names were declared.

        0: it is passed over. NO_ROOM: the ring has no room for a declaration.
        """
        cdef uint64_t need = TRANSACTION_BYTES if record != first else 0
        cdef const RecordHeader* at = first
        cdef TopicEntry entry
        # A transaction is passed over as a whole.
        while <const uint8_t*>at < end:
            entry = self.names.entry_of(at)
            if not self.permits(entry):
                self.reject(first, end, entry.refusal or f"not entitled to replicate the topic {entry.name!r}")
                return 0
            if at.payload_length > payload_max_of(entry):
                self.reject(
                    first, end, f"the SOW topic {entry.name!r} takes no message of this size: raise its SlabSize",
                )
                return 0
            at = <const RecordHeader*>(<const uint8_t*>at + align8(at.length))
        at = first
        while <const uint8_t*>at < end:
            entry = self.names.entry_of(at)
            if not entry.declared:
                if not self.declare_topic(entry):
                    return NO_ROOM
                entry.mark_declared()
            if not self.names.declare_all(at):
                return NO_ROOM
            need += at.length + extension_bytes_max(at, entry.sow is not None) - at.extension_length
            if record != first:
                need = align8(need)
            at = <const RecordHeader*>(<const uint8_t*>at + align8(at.length))
        return need

    cdef bint permits(self, TopicEntry entry) except -1:
        """Whether the source may replicate a topic."""
        cdef MapEntry* found = self.permissions.find(<uint64_t>entry.number + 1)
        if found == NULL:
            given = entry.refusal is None and not entry.discarded and self.allowed(entry.name, entry.message_type)
            self.permissions.put(<uint64_t>entry.number + 1, PERMISSION_GIVEN if given else PERMISSION_DENIED)
            return given
        return found.value == PERMISSION_GIVEN

    cdef int reject(self, const RecordHeader* record, const uint8_t* end, str reason) except -1:
        """Pass over records of which one must not be recorded here (decision 25.23)."""
        while <const uint8_t*>record < end:
            if len(self.rejections) < REJECTIONS_MAX:
                self.rejections.append((record.txid, reason))
            record = <const RecordHeader*>(<const uint8_t*>record + align8(record.length))
        return 0

    cdef uint32_t lay_out(
        self, const RecordHeader* record, const RecordHeader* first, const uint8_t* end, uint8_t* room
    ) except? 0:
        """Write a record, or a transaction with its group, as a ring has it. Returns its length."""
        cdef RecordHeader* transaction = <RecordHeader*>room
        cdef uint8_t* at = room
        if record == first:
            self.lay_out_one(record, room)
            return transaction.length
        memcpy(room, record, TRANSACTION_BYTES)
        transaction.position = <uint64_t>self.serial << 32 | self.slot
        transaction.publisher_id = first.publisher_id
        transaction.sequence = first.sequence
        at += TRANSACTION_BYTES
        while <const uint8_t*>first < end:
            at = self.lay_out_one(first, at)
            first = <const RecordHeader*>(<const uint8_t*>first + align8(first.length))
        transaction.length = <uint32_t>(at - room)
        (<TransactionGroup*>(room + RECORD_HEADER_BYTES)).bytes = transaction.length - TRANSACTION_BYTES
        return transaction.length

    cdef uint8_t* lay_out_one(self, const RecordHeader* record, uint8_t* room) except NULL:
        """Write one record. Returns the address behind its padding."""
        cdef TopicEntry entry = self.names.entry_of(record)
        cdef RecordState state
        cdef bint keyed = state_here(record, entry.sow, &state)
        return lay_out_record(
            record, room, <uint64_t>self.serial << 32 | self.slot, entry.number, self.upstream_id,
            self.names.path_of(record), &state if keyed else NULL,
        )


cdef inline uint64_t payload_max_of(TopicEntry entry) noexcept:
    """Bytes of the largest message that a topic takes."""
    return RECORD_BYTES_MAX if entry.sow is None else entry.sow.payload_max
