# Records that other instances sent here (replication.md §10, §11, §24.6, §24.7; the layout is in docs/replication.md).
#
# The replication process has a session for each flow that comes in. The session's publisher is the upstream: the
# instance that sends the flow. Its sequence is the transaction id there. A record of such a session is complete: it has
# publisher, sequence, source and path. The core drops repeats of the upstream and duplicates of the publisher, and
# gives each other record its place, time and transaction id.
#
# Nothing of a peer may stop the core or get unreadable bytes into its log. So each record is checked here once more. A
# record that is not well formed ends its session ("malformed"); a record for which there is no room does so too
# ("refused"). Neither changes the last transaction id of the upstream, so a new session begins with that record.
#
# Invariants
# - The last transaction id of an upstream rises over a record only when the record, or its original, is in the log. So
#   when the log is durable up to its present end, the upstream need not send anything up to that id again.
# - It is recovered from the records in the log. If the newest ones of an upstream were duplicates, it is lower then,
#   and the upstream repeats them: they are dropped again.
# - A name record precedes the first use of its id in a file, if the text is known. Texts of upstreams and paths are.

import msgpack
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from amps._core.journal.queue_records cimport QueueAcknowledgementHeader, QueueEntry
from amps._core.journal.record cimport (
    EXTENSION_PATH,
    EXTENSION_SOURCE,
    FLAG_DELTA,
    FLAG_DERIVED_PUBLISHER,
    KIND_DELTA_PUBLISH,
    KIND_OWNERSHIP_TRANSFER,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_TRANSACTION,
    KIND_TRANSACTION_REFUSED,
    NAME_BYTES_MAX,
    NAME_CLIENT,
    NAME_INSTANCE,
    NAME_PATH,
    NO_EXPIRATION,
    RECORD_BYTES_MAX,
    RefusedTransaction,
    TransactionGroup,
    extension_word,
    record_client_id,
    refused_transaction,
)
from amps._core.queues.slots cimport BLOCK_SLOTS
from amps._core.values.value import SERVER_NAMES as _SERVER_NAMES

cdef enum:
    FLOW_SLOTS_MAX = 1 << 16
    NAMES_OF_RECORD = 3            # the client, the upstream, the path
    VECTOR_PAIR_BYTES = 16


cdef class ReplicatedNames:
    """The names that the records of other instances use, and which of them the journal in use has.

    Most records have the names of the one before. So what was found out about these is kept.
    """

    cdef dict texts                # name id -> (class, text)
    cdef PublisherMap named_in     # name id -> number of the last journal known to have its name record, + 1
    cdef uint64_t publisher        # the last one that is valid, which no upstream is; 0: none is known
    cdef uint64_t path             # the last one that was declared; 0: none is known
    cdef uint64_t[NAMES_OF_RECORD] present  # names that need no name record in the journal `present_in`
    cdef uint64_t present_in       # number of a journal + 1; 0: none is known

    def __init__(self):
        self.texts = {}
        self.named_in = PublisherMap()
        self.publisher = self.path = self.present_in = 0

    cdef int declare(self, uint32_t name_class, uint64_t name_id, bytes text) except -1:
        if name_id == 0 or len(text) > NAME_BYTES_MAX or name_id in self.texts:
            return 0
        self.texts[name_id] = (name_class, text)
        self.present_in = 0
        if self.named_in.find(name_id) == NULL:
            self.named_in.insert(name_id)[0] = 0
        return 0

    cdef inline bint has(self, uint64_t name_id) noexcept nogil:
        return self.named_in.find(name_id) != NULL

    cdef bint lacks(self, LogWriter journal, uint64_t name_id) except -1:
        """Whether the journal in use needs a name record before that name is used."""
        cdef uint64_t* place = self.named_in.find(name_id) if name_id else NULL
        if place == NULL or place[0] == journal.number + 1:
            return False
        if name_id not in journal.name_ids:
            return True
        place[0] = journal.number + 1
        return False

    cdef uint64_t record_bytes(self, uint64_t name_id) except? 0:
        """The length of a name record, 0 without a text."""
        known = self.texts.get(name_id)
        return 0 if known is None else align8(RECORD_HEADER_BYTES + NAME_PREFIX_BYTES + len(known[1]))

    cdef int write(self, Sequencer core, uint64_t name_id) except -1:
        name_class, text = self.texts[name_id]
        core.journal.write_name(name_class, name_id, text, core.next_txid, core.now_ns, core.durable)
        self.named_in.find(name_id)[0] = core.journal.number + 1
        return 0


# === control records =================================================================================================


cdef int begin_flow(
    Sequencer core, int index, TransportState state, uint32_t slot, uint32_t serial, str name
) except -1:
    """Begin the session of a flow from an upstream, and answer with its last transaction id in this log."""
    cdef Session* session
    cdef Session* old
    cdef bytes text = name.encode("utf-8", "surrogatepass")
    if core.journal is None or slot >= FLOW_SLOTS_MAX or not name.startswith(_SERVER_NAMES):
        raise ValueError(f"the replication process pushed a flow of {name!r} in slot {slot} that cannot be")
    session = state.session(slot)
    session.serial = serial
    session.publisher = core._publisher(publisher_id_of(name))
    session.recent = session.publisher
    session.is_flow = True
    session.state = SESSION_ACTIVE
    owner = core.flows.get(name)
    if owner is not None and owner != (index, slot, serial):
        # An upstream has one flow. What an earlier one has left in the ring comes again in the new one.
        old = (<TransportState>core.transports[owner[0]]).session(owner[1])
        if old.serial == owner[2] and old.is_flow and owner[:2] != (index, slot):
            old.state = SESSION_FENCED
    core.flows[name] = (index, slot, serial)
    core.client_names.add(name)
    core.replicated_names.declare(NAME_INSTANCE, core.publishers[session.publisher].publisher_id, text)
    if core.upstreams.find(core.publishers[session.publisher].publisher_id) == NULL:
        core.upstreams.insert(core.publishers[session.publisher].publisher_id)
        core.replicated_names.publisher = 0
    core.replies.append((
        index,
        ("replication_flow", slot, serial, core.publishers[session.publisher].last_sequence, core.journal.position),
    ))
    return 0


cdef int declare_name(Sequencer core, bytes payload) except -1:
    """Learn the text of a name id. A text that cannot be is ignored; records that need it are malformed then."""
    name_class, name_id, text = msgpack.unpackb(payload)
    try:
        name = text.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return 0
    if publisher_id_of(name) != name_id or len(text) > NAME_BYTES_MAX:
        return 0
    core.replicated_names.declare(name_class, name_id, text)
    if name_class == NAME_CLIENT:
        core.client_names.add(name)
    elif name_class == NAME_PATH and core.adapter is not None:
        core.adapter.note_path(name_id, name)
    return 0


cdef int tell_vector(Sequencer core, int index, uint32_t slot, uint32_t serial, str path) except -1:
    """Write the highest sequence of each publisher into a file, as pairs of 8 bytes."""
    cdef bytearray pairs = bytearray(core.publisher_count * VECTOR_PAIR_BYTES)
    cdef uint64_t[2] pair
    cdef char* at = pairs
    cdef uint64_t count = 0
    cdef uint32_t number
    for number in range(core.publisher_count):
        if core.publishers[number].last_sequence:
            pair[0] = core.publishers[number].publisher_id
            pair[1] = core.publishers[number].last_sequence
            memcpy(at + count * VECTOR_PAIR_BYTES, &pair[0], VECTOR_PAIR_BYTES)
            count += 1
    del pairs[count * VECTOR_PAIR_BYTES:]
    if core.write_vector is None or not core.write_vector(path, pairs):
        core.replies.append((index, ("refused", slot, serial)))
        return 0
    core.replies.append((index, ("replication_vector", slot, serial, count, core.journal.position)))
    return 0


# === records =========================================================================================================


cdef int take_replicated(Sequencer core, RecordHeader* record, Session* session, TransportState state) except -1:
    """Accept, drop or refuse one record, or one transaction, of a flow."""
    cdef uint32_t slot = <uint32_t>record.position
    cdef uint64_t source_txid
    cdef uint64_t need
    cdef uint64_t[NAMES_OF_RECORD] names
    cdef uint32_t publisher
    cdef uint32_t lacking
    cdef LogWriter writer
    cdef Topic topic
    cdef bint of_queue
    cdef bint new_topic
    cdef bint enters
    cdef bint of_state
    if session.serial != <uint32_t>(record.position >> 32) or session.state != SESSION_ACTIVE:
        core.fenced += 1
        return 0
    if record.kind == KIND_TRANSACTION:
        return take_replicated_transaction(core, record, session, state)
    if not is_replicable(core, record, session, state) or record.kind > KIND_OWNERSHIP_TRANSFER and (
        record.kind != KIND_TRANSACTION_REFUSED
    ):
        return malformed(core, session, slot, state)
    topic = <Topic>state.topics[record.topic_id]
    of_queue = KIND_QUEUE_ACKNOWLEDGEMENT <= record.kind <= KIND_OWNERSHIP_TRANSFER
    if of_queue and not is_queue_record(core, record, topic):
        return malformed(core, session, slot, state)
    if record.kind == KIND_SOW_DELETE and not is_sound_removal(record):
        return malformed(core, session, slot, state)
    if record.kind == KIND_TRANSACTION_REFUSED and (
        refused_transaction(record) == NULL or refused_transaction(record).sequence > record.sequence
    ):
        return malformed(core, session, slot, state)
    source_txid = extension_word(record, EXTENSION_SOURCE, 1)
    if source_txid <= core.publishers[session.publisher].last_sequence:
        core.repeats += 1
        return 0
    publisher = publisher_of(core, session, record.publisher_id)
    if record.sequence <= core.publishers[publisher].last_sequence:
        core.duplicates += 1
        core.publishers[session.publisher].last_sequence = source_txid
        if topic.feeds and record.kind <= KIND_DELTA_PUBLISH:
            core.adapter.drop_duplicate(record, topic.feeds)
        return 0
    # What readers need to understand a queue's history is always in the journal.
    writer = core.journal if topic.logged or of_queue or record.kind == KIND_TRANSACTION_REFUSED else core.transient
    if record.length >= core._refused_from_bytes and writer is core.journal:
        return core._refuse(session, slot, state)
    if of_queue and topic.queue >= 0 and not settles_removals(core):
        return core._refuse(session, slot, state)
    of_state = topic.sow is not None and record.kind <= KIND_SOW_DELETE
    if of_state and record.kind == KIND_SOW_DELETE:
        if not enter_replicated_removal(topic.sow, record, writer is core.journal):
            return core._refuse(session, slot, state)
    elif of_state:
        of_state = has_key(core, topic, record)
        if of_state and enter_state(core, topic.sow, record, writer is core.journal, False) == NULL:
            return core._refuse(session, slot, state)
    enters = topic.feeds and writer is core.journal and record.kind <= KIND_DELTA_PUBLISH
    if enters and not core.adapter.manager.arena.ensure(<uint32_t>PyTuple_GET_SIZE(topic.feeds)):
        return core._refuse(session, slot, state)
    if core.run_writer is not writer:
        core.flush_run()
    new_topic = is_unnamed(writer, topic)
    need = align8(record.length)
    if new_topic:
        need += topic_record_bytes(topic)
    lacking = 0
    if writer is core.journal:
        names_of(record, &names[0])
        lacking = lacking_names(core, &names[0], &need)
    if not writer.has_room(core.run_length, need):
        core.flush_run()
        need = align8(record.length) + topic_record_bytes(topic)
        if writer is core.journal:
            need += all_names_bytes(core, &names[0])
        if not writer.may_rotate(need):
            core._refused_from_bytes = record.length if writer.lacks_large else 0
            return core._refuse(session, slot, state)
        writer.rotate(need, core.next_txid, core.now_ns, core.durable)
        new_topic = True
        if writer is core.journal:
            lacking = lacking_names(core, &names[0], &need)
    # Nothing below can refuse it.
    core.publishers[session.publisher].last_sequence = source_txid
    core.publishers[publisher].last_sequence = record.sequence
    if of_queue and topic.queue >= 0:
        core.acknowledged += record.payload_length // <uint32_t>sizeof(QueueEntry)
        core.adapter.apply_replicated(record, <uint32_t>topic.queue, core.now_ns)
    if new_topic:
        core.flush_run()
        writer.name_topic(
            topic.number, topic.message_type, topic.name, topic.hash, core.next_txid, core.now_ns, core.durable
        )
    if lacking:
        core.flush_run()
        write_names(core, &names[0])
    if record.kind == KIND_TRANSACTION_REFUSED:
        note_refused(core, record)
    extend_run(core, writer, record)
    place_record(core, record, writer.places[topic.number].topic_id)
    if writer is core.journal:
        extend_stretch(core, record, core.publishers[session.publisher].publisher_id)
    if record.kind == KIND_TRANSACTION_REFUSED:
        writer.last_refused_offset = record.position - writer.start_position
    core.next_txid += 1
    core.accepted += 1
    if of_state:
        keep_state(topic, record, writer is core.journal)
    if enters:
        core.adapter.enqueue(record, topic.name, topic.feeds, core.now_ns)
    return 0


cdef bint is_replicable(
    Sequencer core, const RecordHeader* record, const Session* session, TransportState state
) except -1:
    """Whether a record is complete, of this flow, and of a topic and a path that have been declared."""
    cdef ReplicatedNames names = core.replicated_names
    cdef uint64_t path
    if (
        not record_parts_fit(record) or not extension_fits(record) or record.kind == 0
        or record.flags & ~<uint32_t>(FLAG_DERIVED_PUBLISHER | FLAG_DELTA)
        or record.topic_id >= <uint32_t>len(state.topics) or state.topics[record.topic_id] is None
        or record.publisher_id == 0
        or extension_word(record, EXTENSION_SOURCE, 0) != core.publishers[session.publisher].publisher_id
    ):
        return False
    if record.publisher_id != names.publisher:
        if core.upstreams.find(record.publisher_id) != NULL:
            return False
        names.publisher = record.publisher_id
    path = extension_word(record, EXTENSION_PATH, 0)
    if path == 0:
        return False
    if path != names.path:
        if not names.has(path):
            return False
        names.path = path
    return True


cdef bint is_queue_record(Sequencer core, const RecordHeader* record, Topic topic) except -1:
    """Whether the entries of a queue's record are as many as it says."""
    cdef const QueueAcknowledgementHeader* header = <const QueueAcknowledgementHeader*>record_payload(record)
    if (
        record.payload_length < sizeof(QueueAcknowledgementHeader)
        or record.payload_length - sizeof(QueueAcknowledgementHeader) < <uint64_t>header.count * sizeof(QueueEntry)
    ):
        return False
    return topic.queue < 0 or core.adapter.is_sound(record)


cdef inline uint32_t publisher_of(Sequencer core, Session* session, uint64_t publisher_id) except? NO_PUBLISHER:
    """The number of a publisher; the one of the last record is found at once."""
    if core.publishers[session.recent].publisher_id != publisher_id:
        session.recent = core._publisher(publisher_id)
    return session.recent


cdef bint settles_removals(Sequencer core) except -1:
    """Record the removals first to which a queue's record may refer. False: the journal cannot take them."""
    if core.adapter.manager.output.removal_count:
        core._write_removals()
    return core.adapter.manager.output.removal_count == 0


cdef int malformed(Sequencer core, Session* session, uint32_t slot, TransportState state) except -1:
    """End a session whose record must not enter the log."""
    session.state = SESSION_FENCED
    core.fenced += 1
    core.replies.append((state.index, ("malformed", slot, session.serial)))
    return 0


cdef inline void names_of(const RecordHeader* record, uint64_t* names) noexcept nogil:
    names[0] = record_client_id(record)
    names[1] = extension_word(record, EXTENSION_SOURCE, 0)
    names[2] = extension_word(record, EXTENSION_PATH, 0)


cdef uint32_t lacking_names(Sequencer core, const uint64_t* names, uint64_t* need) except? 0xFFFFFFFF:
    """The number of name records that must precede a record; adds their bytes to need[0]."""
    cdef ReplicatedNames known = core.replicated_names
    cdef uint32_t at
    cdef uint32_t count = 0
    if known.present_in == core.journal.number + 1 and memcmp(&known.present[0], names, sizeof(known.present)) == 0:
        return 0
    for at in range(NAMES_OF_RECORD):
        if known.lacks(core.journal, names[at]):
            need[0] += known.record_bytes(names[at])
            count += 1
    if count == 0:
        memcpy(&known.present[0], names, sizeof(known.present))
        known.present_in = core.journal.number + 1
    return count


cdef uint64_t all_names_bytes(Sequencer core, const uint64_t* names) except? 0:
    cdef uint32_t at
    cdef uint64_t length = 0
    for at in range(NAMES_OF_RECORD):
        length += core.replicated_names.record_bytes(names[at])
    return length


cdef int write_names(Sequencer core, const uint64_t* names) except -1:
    cdef uint32_t at
    for at in range(NAMES_OF_RECORD):
        if core.replicated_names.lacks(core.journal, names[at]):
            core.replicated_names.write(core, names[at])
    return 0


cdef int extend_run(Sequencer core, LogWriter writer, const RecordHeader* record) except -1:
    """Let the current run go on with a record, or begin a run there."""
    if core.run_length and core.run_data + core.run_length != <const uint8_t*>record:
        core.flush_run()
    if not core.run_length:
        core.run_writer = writer
        core.run_data = <const uint8_t*>record
    return 0


cdef inline void extend_stretch(Sequencer core, const RecordHeader* record, uint64_t upstream_id) noexcept:
    """Let the stretch of an upstream go on with a record that was placed, or begin one there.

    Whatever else was written has moved the end of the log, so the stretch does not go on behind it.
    """
    if record.position != core.stretch.end or upstream_id != core.stretch.upstream_id:
        core.stretch.upstream_id = upstream_id
        core.stretch.begin = record.position
    core.stretch.end = record.position + align8(record.length)
    core.stretch.last_txid = record.txid
    core.stretch.last_time_ns = record.timestamp_ns


cdef int note_refused(Sequencer core, RecordHeader* record) except -1:
    """Remember a transaction that another instance has refused, and chain its record to those of this file."""
    cdef RefusedTransaction* about = <RefusedTransaction*>record_payload(record)
    cdef dict refused = core.refused.setdefault(record.publisher_id, {})
    about.previous = core.journal.last_refused_offset
    refused[about.sequence] = None
    if len(refused) > REFUSED_MAX:
        del refused[next(iter(refused))]
    return 0


cdef int take_replicated_transaction(
    Sequencer core, RecordHeader* transaction, Session* session, TransportState state
) except -1:
    """Accept, drop or refuse a transaction of a flow, with its group: all or nothing. Its first record tells whether it
    is a repeat or a duplicate.
    """
    cdef uint32_t slot = <uint32_t>transaction.position
    cdef TransactionGroup* group = <TransactionGroup*>(<uint8_t*>transaction + RECORD_HEADER_BYTES)
    cdef RecordHeader* first = <RecordHeader*>(<uint8_t*>transaction + TRANSACTION_BYTES)
    cdef RecordHeader* record = first
    cdef LogWriter writer = core.journal
    cdef uint64_t length = transaction.length
    cdef uint64_t last_txid = 0
    cdef uint64_t last_sequence = 0
    cdef uint64_t entering = 0
    cdef uint64_t need
    cdef uint64_t[NAMES_OF_RECORD] names
    cdef uint32_t publisher
    cdef uint32_t number
    cdef uint32_t count
    cdef Topic topic
    cdef Topic queue
    cdef list topics
    cdef list named_here
    cdef list named_names
    cdef set fed = set()
    if length < TRANSACTION_BYTES + RECORD_HEADER_BYTES or length > RECORD_BYTES_MAX:
        return malformed(core, session, slot, state)
    transaction.sequence = first.sequence
    count = sound_group(transaction, first.publisher_id)
    if not count:
        return malformed(core, session, slot, state)
    for number in range(count):
        if not is_replicable(core, record, session, state) or (
            extension_word(record, EXTENSION_SOURCE, 1) <= last_txid
        ):
            return malformed(core, session, slot, state)
        last_txid = extension_word(record, EXTENSION_SOURCE, 1)
        last_sequence = record.sequence
        topic = <Topic>state.topics[record.topic_id]
        if topic.sow is not None and not topic.sow.state.table.ensure(count):
            return core._refuse(session, slot, state)
        if number and topic.feeds:
            entering += <uint64_t>PyTuple_GET_SIZE(topic.feeds)
            fed.update(topic.feeds)
        record = <RecordHeader*>(<uint8_t*>record + align8(record.length))
    queue = <Topic>state.topics[first.topic_id]
    if not is_queue_record(core, first, queue):
        return malformed(core, session, slot, state)
    if extension_word(first, EXTENSION_SOURCE, 1) <= core.publishers[session.publisher].last_sequence:
        core.repeats += count
        return 0
    publisher = publisher_of(core, session, first.publisher_id)
    if first.sequence <= core.publishers[publisher].last_sequence:
        core.duplicates += count
        core.publishers[session.publisher].last_sequence = last_txid
        return 0
    if length >= core._refused_from_bytes or queue.queue >= 0 and not settles_removals(core):
        return core._refuse(session, slot, state)
    if entering and not core.adapter.manager.arena.ensure(<uint32_t>(entering // BLOCK_SLOTS + <uint64_t>len(fed))):
        return core._refuse(session, slot, state)
    if core.run_writer is not writer:
        core.flush_run()
    topics = topics_of(transaction, state, count)
    named_here = unnamed_topics(writer, topics)
    named_names = lacking_in_group(core, first, count, False)
    need = length + topics_bytes(named_here) + names_bytes(core, named_names)
    if not writer.has_room(core.run_length, need):
        core.flush_run()
        named_here = list(dict.fromkeys(topics))
        named_names = lacking_in_group(core, first, count, True)
        need = length + topics_bytes(named_here) + names_bytes(core, named_names)
        if not writer.may_rotate(need):
            core._refused_from_bytes = length if writer.lacks_large else 0
            return core._refuse(session, slot, state)
        writer.rotate(need, core.next_txid, core.now_ns, core.durable)
    # Nothing below can refuse it.
    core.publishers[session.publisher].last_sequence = last_txid
    core.publishers[publisher].last_sequence = last_sequence
    if queue.queue >= 0:
        core.acknowledged += first.payload_length // <uint32_t>sizeof(QueueEntry)
        core.adapter.apply_replicated(first, <uint32_t>queue.queue, core.now_ns)
    if named_here or named_names:
        core.flush_run()
        for topic in named_here:
            writer.name_topic(
                topic.number, topic.message_type, topic.name, topic.hash, core.next_txid, core.now_ns, core.durable
            )
        for name_id in named_names:
            core.replicated_names.write(core, name_id)
    extend_run(core, writer, transaction)
    memset(transaction, 0, RECORD_HEADER_BYTES)
    transaction.length = TRANSACTION_BYTES
    transaction.expiration_s = NO_EXPIRATION
    transaction.kind = KIND_TRANSACTION
    transaction.payload_length = sizeof(TransactionGroup)
    place_record(core, transaction, 0)
    record = first
    for number in range(count):
        topic = <Topic>state.topics[record.topic_id]
        place_in_group(core, topic, record)
        if number and topic.feeds:
            core.adapter.enqueue(record, topic.name, topic.feeds, core.now_ns)
        record = <RecordHeader*>(<uint8_t*>record + align8(record.length))
    return 0


cdef list lacking_in_group(Sequencer core, const RecordHeader* record, uint32_t count, bint in_new_file):
    """The name ids of a group's records, each once, that need a name record in the file in use, or in a new one."""
    cdef uint64_t[NAMES_OF_RECORD] names
    cdef uint32_t number
    cdef uint32_t at
    cdef dict found = {}
    for number in range(count):
        names_of(record, &names[0])
        for at in range(NAMES_OF_RECORD):
            if core.replicated_names.has(names[at]) if in_new_file else (
                core.replicated_names.lacks(core.journal, names[at])
            ):
                found[names[at]] = None
        record = <const RecordHeader*>(<const uint8_t*>record + align8(record.length))
    return list(found)


cdef uint64_t names_bytes(Sequencer core, list names) except? 0:
    cdef uint64_t length = 0
    for name_id in names:
        length += core.replicated_names.record_bytes(name_id)
    return length
