# SOW topics in the sequencer: a record gets its link to the record before, and becomes the newest of its key.
#
# A record of a SOW topic takes two steps. `enter_state` is called before the record gets its place in the run: it
# merges a delta into the stored message, sets the link to the key's record before, and makes sure that the record can
# be kept. `keep_state` is called when the record has its place: nothing can refuse it any more.
#
# A merged message is a record of its own, in memory of the core (`MergedRecords`). Merged messages that follow each
# other lie one behind the other there, so they make up one run, as records in a ring do.
#
# Values expire by records that the core makes (`serve_states`), as deletions do: whoever reads the log knows the state.

from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy, memset

from amps._core.journal.reader cimport LogCursor, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.record cimport (
    KIND_DELTA_PUBLISH,
    KIND_SOW_EXPIRY,
    NO_EXPIRATION,
    RECORD_BYTES_MAX,
    RecordState,
    RemovedKey,
    record_correlation_id,
    record_sow_key,
    record_state,
    record_user_id,
)
from amps._core.sow.shaping cimport FieldStage, KeyMaker
from amps._core.values.documents cimport Documents
from amps._core.values.fields cimport ByteBuffer

cdef enum:
    MERGED_BYTES = 1 << 20
    COMPACTED_PER_TURN = 1 << 18
    EXPIRED_PER_TURN = 64          # records of expiries

cdef uint64_t NEVER_NS = 0xFFFFFFFFFFFFFFFF
cdef uint64_t FILE_BIT = <uint64_t>1 << 63


@cython.final
cdef class SowTopic:
    """A SOW topic of the configuration, in the core."""

    def __init__(
        self, TopicState state not None, bint given_keys, Documents documents=None, FieldStage enrichment=None,
        generator=None, uint64_t payload_max=RECORD_BYTES_MAX,
    ):
        """given_keys: publishers provide the keys. documents: merges deltas; None: the message type has none, and a
        delta replaces the message. enrichment: computes fields of messages. generator(message, transaction id) -> key,
        0 = the message is refused; None: transports make the keys. payload_max: bytes of the largest message that is
        stored.
        """
        self.state = state
        self.given_keys = given_keys
        self.documents = documents
        self.enrichment = enrichment
        self.generator = generator
        self.payload_max = payload_max
        self.topics = []
        self.replay_from_ns = 0

    cdef uint64_t make_key(self, KeyMaker keys, const RecordHeader* record) except? 0:
        """The key of a message of the log, made from its content; 0: it has none."""
        if self.generator is not None:
            return self.generator((<const char*>record_payload(record))[: record.payload_length], record.txid)
        if not self.given_keys:
            return keys.key_of(record_payload(record), record.payload_length)
        if record.sow_key_length == 0:
            return 0
        return keys.key_of_text(record_sow_key(record), record.sow_key_length)


@cython.final
cdef class MergedRecords:
    """Memory of the core for records that it makes from records of a ring, one behind the other."""

    def __cinit__(self):
        self.data = NULL

    def __init__(self):
        self.capacity = 0
        self.used = 0
        self.enriched = ByteBuffer()
        self.text = ByteBuffer()

    def __dealloc__(self):
        free(self.data)


cdef RecordHeader* reserve_merged(Sequencer core, uint64_t length) except NULL:
    """Memory for a record, behind the last one if that is possible. The current run may end for it."""
    cdef MergedRecords merged = core.merged
    cdef uint64_t wanted = align8(length)
    cdef uint8_t* grown
    cdef RecordHeader* record
    if merged.used + wanted > merged.capacity:
        core.flush_run()
    if core.run_length == 0:
        merged.used = 0
    if wanted > merged.capacity:
        grown = <uint8_t*>realloc(merged.data, max(wanted, <uint64_t>MERGED_BYTES))
        if grown == NULL:
            raise MemoryError()
        merged.data = grown
        merged.capacity = max(wanted, <uint64_t>MERGED_BYTES)
    record = <RecordHeader*>(merged.data + merged.used)
    (<uint64_t*>(merged.data + merged.used + wanted - 8))[0] = 0
    merged.used += wanted
    return record


cdef const RecordHeader* stored_record(Sequencer core, TopicState state, uint64_t place) except NULL:
    """The record at a place; it may be in the current run."""
    if place & FILE_BIT:
        return state.values.at(place)
    if core.run_length and core.run_writer is core.journal and place >= core.journal.position:
        return <const RecordHeader*>(core.run_data + (place - core.journal.position))
    return core.places.at(place)


cdef RecordHeader* enter_state(
    Sequencer core, SowTopic sow, RecordHeader* record, bint in_journal, bint published
) except? NULL:
    """Complete a message for a SOW topic. Returns the record to be placed, which may be another one; NULL: it is
    refused, for the reason `core.refusal`, or, without a reason, because there is no room for it. published: here, by
    a client.
    """
    cdef TopicState state = sow.state
    cdef RecordState* about = record_state(record)
    cdef uint64_t before
    cdef bint is_delta
    core.refusal = None
    if about == NULL:
        raise ValueError("a message for a SOW topic has no key")
    if published:
        if sow.generator is not None:
            payload = (<const char*>record_payload(record))[: record.payload_length]
            about.key = sow.generator(payload, core.next_txid)
            if about.key == 0:
                core.refusal = "two chains"
                return NULL
        is_delta = record.flags & FLAG_DELTA and sow.documents is not None
        if is_delta or sow.enrichment is not None:
            # Other messages need no value before, and reading it may wait for the disk.
            before = state.value_of(about.key)
            record = shaped_record(
                core, sow, record, stored_record(core, state, before) if before else NULL, is_delta
            )
            if record == NULL:
                core.refusal = "message too large"
                return NULL
        if is_delta:
            record.kind = KIND_DELTA_PUBLISH
        about = record_state(record)
    if not state.ensure(record.length, in_journal):
        return NULL
    about.previous = state.place_of(about.key)
    return record


cdef RecordHeader* shaped_record(
    Sequencer core, SowTopic sow, RecordHeader* record, const RecordHeader* stored, bint is_delta
) except? NULL:
    """The record of a message with its computed fields, and, if it is a delta, merged into the stored message. It is
    the record itself if there is nothing to do, or a message cannot be read. NULL: the message is too large to be
    stored.
    """
    cdef MergedRecords merged = core.merged
    cdef const uint8_t* payload = record_payload(record)
    cdef uint64_t payload_length = record.payload_length
    cdef const uint8_t* correlation = record_correlation_id(record)
    cdef uint32_t correlation_length = record.correlation_id_length
    cdef uint64_t head = RECORD_HEADER_BYTES + <uint64_t>record.extension_length
    cdef uint64_t length
    cdef uint8_t* at
    cdef RecordHeader* made
    if sow.enrichment is not None:
        merged.enriched.length = 0
        if sow.enrichment.run(
            payload, payload_length, NULL if stored == NULL else record_payload(stored),
            0 if stored == NULL else stored.payload_length, merged.enriched,
        ):
            payload = merged.enriched.data
            payload_length = merged.enriched.length
    if is_delta and stored != NULL:
        merged.text.length = 0
        if sow.documents.merge(record_payload(stored), stored.payload_length, payload, payload_length, merged.text):
            payload = merged.text.data
            payload_length = merged.text.length
            if correlation_length == 0:
                correlation = record_correlation_id(stored)
                correlation_length = stored.correlation_id_length
    if payload == record_payload(record):
        return record
    length = head + correlation_length + record.user_id_length + record.sow_key_length + payload_length
    if payload_length > sow.payload_max or length > RECORD_BYTES_MAX:
        return NULL
    # The stored record may be in the run that `reserve_merged` writes.
    merged.correlation = (<const char*>correlation)[:correlation_length]
    made = reserve_merged(core, length)
    memcpy(made, record, head)
    at = <uint8_t*>made + head
    memcpy(at, <const char*>merged.correlation, correlation_length)
    at += correlation_length
    memcpy(at, record_user_id(record), record.user_id_length)
    at += record.user_id_length
    memcpy(at, record_sow_key(record), record.sow_key_length)
    at += record.sow_key_length
    memcpy(at, payload, payload_length)
    made.length = <uint32_t>length
    made.correlation_id_length = <uint16_t>correlation_length
    made.payload_length = <uint32_t>payload_length
    return made


cdef int keep_state(Topic topic, const RecordHeader* record, bint in_journal) except -1:
    """Let a record that has its place be the newest of its key, or of its keys."""
    cdef const RemovedKey* removed
    cdef uint32_t at
    if is_value(record):
        return topic.sow.state.store(record, in_journal, topic.sow_number)
    removed = <const RemovedKey*>record_payload(record)
    for at in range(record.payload_length // <uint32_t>sizeof(RemovedKey)):
        topic.sow.state.remove(removed[at].key, record, in_journal)
    return 0


cdef int shorten(RecordHeader* record, uint32_t payload_length) except -1:
    """Cut the end of a record's payload off."""
    cdef uint64_t length = record.length - record.payload_length + payload_length
    memset(<uint8_t*>record + length, 0, align8(length) - length)
    record.payload_length = payload_length
    record.length = <uint32_t>length
    return 0


cdef uint32_t removal_token(const RecordHeader* record) noexcept nogil:
    """The token of a request to delete keys; 0: it wants no answer."""
    cdef RemovalRequest request
    if record.payload_length < sizeof(request):
        return 0
    memcpy(&request, record_payload(record), sizeof(request))
    return request.token


cdef bint enter_removal(Sequencer core, SowTopic sow, RecordHeader* record, bint in_journal, int index) except -1:
    """Turn the request of a client to delete keys into a removal of those that have a value, and prepare the answer.
    The answer is sent when the removal has its place in the log. False: there is no room for the removal.
    """
    cdef TopicState state = sow.state
    cdef uint8_t* payload = <uint8_t*>record_payload(record)
    cdef RemovalRequest request
    cdef RequestedKey wanted
    cdef RemovedKey removed
    cdef uint32_t slot
    cdef uint32_t kept = 0
    cdef uint32_t at
    cdef list changed = []
    memcpy(&request, payload, sizeof(request))
    if record.payload_length != sizeof(request) + request.count * sizeof(RequestedKey):
        raise ValueError("a transport pushed a malformed deletion")
    if not in_journal and not state.values.ensure(<uint64_t>request.count * REMOVAL_BYTES):
        return False
    for at in range(request.count):
        memcpy(&wanted, payload + sizeof(request) + at * sizeof(wanted), sizeof(wanted))
        slot = state.table.find(wanted.key)
        if slot == NO_KEY_SLOT or state.table.slots[slot].state != KEY_LIVE:
            continue
        if wanted.seen_txid and state.table.slots[slot].txid != wanted.seen_txid:
            changed.append(wanted.key)
            continue
        removed.key = wanted.key
        removed.previous = state.table.slots[slot].place
        # The entries move down by the header of the request, so none is overwritten before it is read.
        memcpy(payload + kept * sizeof(removed), &removed, sizeof(removed))
        kept += 1
    shorten(record, kept * <uint32_t>sizeof(removed))
    core.deletion_answer = None
    if request.token:
        core.deletion_answer = (
            index,
            ("sow_deleted", <uint32_t>record.position, record.position >> 32, request.token, kept, changed),
        )
    return True


cdef bint has_key(Sequencer core, Topic topic, RecordHeader* record) except -1:
    """Whether a complete message is a value of its SOW topic. It has its key from the process that pushed it, unless a
    key generator makes the keys.
    """
    cdef RecordState* about = record_state(record)
    if about == NULL or about.definition != topic.keys.definition:
        return False
    if topic.sow.generator is not None:
        about.key = topic.sow.generator(
            (<const char*>record_payload(record))[: record.payload_length], core.next_txid
        )
    return about.key != 0


cdef bint is_sound_removal(const RecordHeader* record) noexcept nogil:
    """Whether the entries of a removal of another instance are well-formed."""
    cdef const RemovedKey* keys = <const RemovedKey*>record_payload(record)
    cdef uint32_t count = record.payload_length // <uint32_t>sizeof(RemovedKey)
    cdef uint32_t at
    if record.payload_length % <uint32_t>sizeof(RemovedKey) or count > REMOVED_KEYS_MAX:
        return False
    for at in range(1, count):
        if keys[at].key <= keys[at - 1].key:
            return False
    return True


cdef bint enter_replicated_removal(SowTopic sow, RecordHeader* record, bint in_journal) except -1:
    """Set the links of a sound removal on another instance. False: there is no room for it.

    It keeps keys that have no value here: the instances to which it goes on may have one.
    """
    cdef TopicState state = sow.state
    cdef RemovedKey* keys = <RemovedKey*>record_payload(record)
    cdef uint32_t count = record.payload_length // <uint32_t>sizeof(RemovedKey)
    cdef uint32_t at
    if not in_journal and not state.values.ensure(<uint64_t>count * REMOVAL_BYTES):
        return False
    for at in range(count):
        keys[at].previous = state.value_of(keys[at].key)
    return True


# === the time, and memory ============================================================================================


cdef bint serve_states(Sequencer core, ControlPage control) except -1:
    """Let values expire, and tidy memory up. True: there was work."""
    cdef SowTopic sow
    cdef bint worked = False
    cdef uint64_t floor = 0
    for sow in core.sow_topics:
        if sow.state.table.next_expiry_ns() <= core.now_ns:
            worked = expire(core, sow) or worked
        if sow.state.values.moved_count:
            sow.state.values.release_moved()
        if sow.state.removed_count or sow.state.values.wants_compaction() or sow.state.values.emptied:
            if floor == 0:
                floor = control.state_floor(core.published_txid)
            sow.state.values.floor_txid = floor
            sow.state.values.next_txid = core.next_txid
            if sow.state.removed_count:
                worked = sow.state.drop_removed(floor, core.log_txid) or worked
            if sow.state.values.wants_compaction():
                worked = sow.state.compact(COMPACTED_PER_TURN) or worked
    return worked


cdef int ascending(const void* left, const void* right) noexcept nogil:
    cdef uint64_t one = (<const RemovedKey*>left).key
    cdef uint64_t other = (<const RemovedKey*>right).key
    return (one > other) - (one < other)


cdef bint expire(Sequencer core, SowTopic sow) except -1:
    """Record the expiry of values whose time has come, at most about EXPIRED_PER_TURN records. True: some were."""
    cdef TopicState state = sow.state
    cdef bint in_journal = sow.recorded
    cdef LogWriter writer = core.journal if in_journal else core.transient
    cdef uint64_t room = RECORD_HEADER_BYTES + REMOVED_KEYS_MAX * sizeof(RemovedKey)
    cdef RecordHeader* record
    cdef RemovedKey* keys
    cdef Topic topic
    cdef bint worked = False
    cdef uint32_t number
    cdef uint32_t count
    cdef uint32_t at
    cdef uint32_t slot
    cdef int records = 0
    cdef bytearray memory
    while records < EXPIRED_PER_TURN and state.table.next_expiry_ns() <= core.now_ns:
        if not in_journal and not state.values.ensure(<uint64_t>REMOVED_KEYS_MAX * REMOVAL_BYTES):
            return worked
        memory = bytearray(room)
        record = <RecordHeader*><char*>memory
        keys = <RemovedKey*>(<uint8_t*>record + RECORD_HEADER_BYTES)
        count = 0
        number = state.table.slots[state.table.heap[0]].topic
        while count < REMOVED_KEYS_MAX and state.table.next_expiry_ns() <= core.now_ns:
            slot = state.table.heap[0]
            if state.table.slots[slot].topic != number:
                break  # they are of another logical topic, and need another record
            keys[count].key = state.table.slots[slot].key
            keys[count].previous = state.table.slots[slot].place
            state.table.take_expiry(slot)
            count += 1
        qsort(keys, count, sizeof(RemovedKey), ascending)
        record.kind = KIND_SOW_EXPIRY
        record.expiration_s = NO_EXPIRATION
        record.payload_length = count * <uint32_t>sizeof(RemovedKey)
        record.length = RECORD_HEADER_BYTES + record.payload_length
        topic = <Topic>sow.topics[number]
        if not core._append(record, topic, writer):
            # The log is full: they expire when it takes records again.
            for at in range(count):
                state.table.put_expiry_back(state.table.find(keys[at].key))
            return worked
        keep_state(topic, record, in_journal)
        worked = True
        records += 1
    return worked


cdef uint64_t key_of_record(SowTopic sow, KeyMaker keys, const RecordHeader* record) except? 0:
    """The key of a record in the log, by the current definition; 0: it has none, or is a removal."""
    cdef const RecordState* about = record_state(record)
    if is_removal(record):
        return 0
    if about != NULL and about.definition == keys.definition and sow.generator is None:
        return about.key
    return sow.make_key(keys, record)


def replay_states(LogCursor cursor, uint64_t limit, uint64_t bytes_max):
    """Give SOW topics the records of a log at a start, up to `limit`, at most about `bytes_max` bytes of the log. The
    cursor's resolver returns (SowTopic, number of the topic in it, KeyMaker), or None. True: the limit is reached.
    Raises LogDamaged, StateMemoryFull.
    """
    cdef const RecordHeader* record
    cdef SowTopic sow
    cdef KeyMaker keys
    cdef uint32_t number
    cdef uint64_t begin = cursor.position
    begin_reading(cursor)
    while cursor.position - begin < bytes_max:
        record = next_record(cursor, limit)
        if record == NULL:
            return cursor.position >= limit
        if is_value(record) or is_removal(record):
            found = topic_of(cursor.file, record.topic_id)
            if found is not None:
                sow, number, keys = <tuple?>found
                if record.timestamp_ns >= sow.replay_from_ns:
                    sow.state.take_record(record, key_of_record(sow, keys, record), number)
        skip_record(cursor, record)
    return cursor.position >= limit


@cython.final
cdef class CarryOver:
    """Carries the values of SOW topics over that are in journals which will be removed, in small steps.

    First the records of these journals are read, oldest first, to find the value of each key at the position where the
    log will begin. Then the values of all slots that are there are copied. It begins when no reader is before that
    position any more.

    Nothing is compacted meanwhile. It ends only when no moved record waits for a sync: a record that is found alive
    after a start must not belong to a key whose removal was in these journals.
    """

    cdef Sequencer core
    cdef LogCursor cursor
    cdef readonly uint64_t limit   # log position at which the log will begin
    cdef readonly uint64_t txid    # of the first record there
    cdef list all_topics
    cdef list topics               # those that are not done
    cdef uint32_t slot             # next one of the first topic
    cdef bint reading
    cdef bint begun

    def __init__(self, Sequencer core not None, LogCursor cursor not None, uint64_t limit, uint64_t txid):
        """cursor: at the beginning of the log; its resolver is that of `replay_states`."""
        cdef SowTopic sow
        self.core = core
        self.cursor = cursor
        self.limit = limit
        self.txid = txid
        self.all_topics = [sow for sow in core.sow_topics if sow.state.recorded]
        self.topics = list(self.all_topics)
        self.slot = 0
        self.reading = True
        self.begun = False
        for sow in self.topics:
            sow.state.values.held = True
            sow.state.begin_carrying(txid)

    def end(self):
        """Let files be compacted again: it is done, or given up."""
        cdef SowTopic sow
        for sow in self.all_topics:
            sow.state.values.held = False

    def step(self, ControlPage control not None, uint64_t bytes_max, uint32_t slots_max):
        """Go on. True: all is copied. Raises StateMemoryFull, LogDamaged."""
        cdef const RecordHeader* record
        cdef SowTopic sow
        cdef KeyMaker keys
        cdef uint64_t begin = self.cursor.position
        cdef uint32_t end
        if not self.begun:
            if control.state_floor(self.core.published_txid) < self.txid:
                return False
            self.begun = True
        if self.reading:
            begin_reading(self.cursor)
            while self.cursor.position - begin < bytes_max:
                record = next_record(self.cursor, self.limit)
                if record == NULL:
                    self.reading = False
                    return False
                if is_value(record) or is_removal(record):
                    found = topic_of(self.cursor.file, record.topic_id)
                    if found is not None:
                        sow, _, keys = <tuple?>found
                        sow.state.note_base(record, key_of_record(sow, keys, record))
                skip_record(self.cursor, record)
            return False
        if not self.topics:
            for sow in self.all_topics:
                sow.state.values.release_moved()
                if sow.state.values.moved_count:
                    return False
            return True
        sow = <SowTopic>self.topics[0]
        end = <uint32_t>min(sow.state.table.header.slots_used, <uint64_t>self.slot + slots_max)
        while self.slot < end:
            sow.state.carry(self.core.places, self.slot, self.limit)
            self.slot += 1
        if self.slot >= sow.state.table.header.slots_used:
            sow.state.end_carrying(self.limit)
            del self.topics[0]
            self.slot = 0
        return False
