# Transactions of workers in the core: an acknowledgement and publishes as one entry of the log.
# The rules are in queue_guarantees.md §4.
#
# A transport lays out the whole group as one record in its ring: the transaction record, then complete records, each at
# a multiple of 8. These are the bytes of the journal. The core checks the fence, makes sure that everything has room,
# assigns positions in place, and the run writes the group in one piece.
#
# Invariants
# - Everything that can refuse a transaction is checked before its first effect.
# - A group is in one file. Nothing is written between its records: topic and name records come before it.
# - A group is part of one run, and positions are published only at the ends of runs. So no watermark is inside a group.
# - A transaction takes the sequences of all its records, whether it has its effect or is refused. The refusal is a
#   record too. So a repeated transaction is recognised by its first sequence, and answered as it was before.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from amps._core.journal.queue_records cimport QueueAcknowledgementHeader
from amps._core.journal.record cimport (
    KIND_PUBLISH,
    KIND_TRANSACTION_REFUSED,
    NO_EXPIRATION,
    REFUSED_BYTES,
    TRANSACTION_BYTES,
    RefusedTransaction,
    TransactionGroup,
)
from amps._core.queues.slots cimport BLOCK_SLOTS

cdef enum:
    REFUSED_MAX = 10_000           # refused transactions that are remembered of a publisher

REFUSED_TRANSACTIONS_MAX = REFUSED_MAX
"""So many refused transactions of a publisher are remembered, the latest ones."""


cdef int take_transaction(Sequencer core, RecordHeader* transaction, TransportState state) except -1:
    """Accept, drop or refuse one transaction."""
    cdef uint32_t slot = <uint32_t>transaction.position
    cdef uint32_t serial = <uint32_t>(transaction.position >> 32)
    cdef Session* session = state.session(slot)
    cdef Publisher* publisher
    cdef RecordHeader* acknowledgement = <RecordHeader*>(<uint8_t*>transaction + TRANSACTION_BYTES)
    cdef const TransactionGroup* group
    cdef uint64_t first = transaction.sequence
    cdef uint32_t count
    cdef Topic queue
    cdef set owners
    cdef list awaited
    if session.serial != serial or session.state != SESSION_ACTIVE:
        core.fenced += 1
        return 0
    if core.journal is None:
        raise ValueError("a transport pushed a transaction, and there is no transaction log")
    publisher = &core.publishers[session.publisher]
    group = <const TransactionGroup*>(<uint8_t*>transaction + RECORD_HEADER_BYTES)
    if group.bytes == 0 and group.count:
        # The transport has refused and answered it. Without a queue no transaction can have an effect.
        if first <= publisher.last_sequence or core.adapter is None:
            return 0
        message_type, name = core.adapter.names[0]
        return refuse_transaction(core, session, slot, state, core._topic(name, message_type), first, first, False)
    if first <= publisher.last_sequence:
        core.duplicates += 1
        if first in core.refused.get(publisher.publisher_id, ()):
            core.replies.append((state.index, ("transaction_refused", slot, serial, first)))
        return 0
    count = checked_group(transaction, publisher.publisher_id)
    queue = <Topic>state.topics[acknowledgement.topic_id]
    if queue.queue < 0:
        raise ValueError("a transport pushed a transaction for a topic that is not a queue")
    if core.adapter.manager.output.removal_count:
        # As for an acknowledgement: what it refers to must be in the journal first.
        core._write_removals()
        if core.adapter.manager.output.removal_count:
            return core._refuse(session, slot, state)
    if not core.adapter.holds(
        acknowledgement, <uint32_t>queue.queue, client_key(state.index, slot, session.serial)
    ):
        owners = core.adapter.undecided_owners(acknowledgement, <uint32_t>queue.queue)
        if owners is not None:
            awaited = core.undecided.awaited(
                publisher.publisher_id, first, owners, core.adapter.deferred_ns(<uint32_t>queue.queue), core.now_ns
            )
            if awaited:
                return leave_undecided(core, session, slot, state, awaited)
        return refuse_transaction(core, session, slot, state, queue, first, first + count - 1, True)
    return accept_transaction(core, transaction, session, slot, state, queue, count)


cdef int leave_undecided(
    Sequencer core, Session* session, uint32_t slot, TransportState state, list awaited
) except -1:
    """End a session whose transaction another instance may have recorded: the client repeats it until that is known.
    awaited: the names of the instances of which more must be known; see `UndecidedTransactions.awaited`.
    """
    session.state = SESSION_FENCED
    core.fenced += 1
    core.replies.append((state.index, ("undecided", slot, session.serial, awaited)))
    return 0


cdef uint32_t checked_group(RecordHeader* transaction, uint64_t publisher_id) except 0:
    """The number of records in the group of a transaction from a ring. Raises ValueError if the group is malformed."""
    cdef uint32_t count = sound_group(transaction, publisher_id)
    if count == 0:
        raise ValueError("a transport pushed a transaction whose group is malformed or does not add up to its length")
    return count


cdef uint32_t sound_group(const RecordHeader* transaction, uint64_t publisher_id) noexcept nogil:
    """The number of records in the group of a transaction from a ring; 0: the group is malformed."""
    cdef const TransactionGroup* group = <const TransactionGroup*>(<const uint8_t*>transaction + RECORD_HEADER_BYTES)
    cdef const uint8_t* at = <const uint8_t*>transaction + TRANSACTION_BYTES
    cdef const uint8_t* end = at + group.bytes
    cdef const RecordHeader* record
    cdef uint32_t number = 0
    if (
        transaction.length != TRANSACTION_BYTES + group.bytes or group.count == 0
        or transaction.sequence > <uint64_t>-1 - (group.count - 1)
    ):
        return 0
    while at != end:
        record = <const RecordHeader*>at
        if (
            <uint64_t>(end - at) < RECORD_HEADER_BYTES or not record_parts_fit(record)
            or align8(record.length) > <uint64_t>(end - at) or not extension_fits(record)
            or record.kind != (<int>KIND_PUBLISH if number else <int>KIND_QUEUE_ACKNOWLEDGEMENT)
            or record.publisher_id != publisher_id or record.sequence != transaction.sequence + number
        ):
            return 0
        number += 1
        at += align8(record.length)
    return number if number == group.count else 0


cdef int accept_transaction(
    Sequencer core, RecordHeader* transaction, Session* session, uint32_t slot, TransportState state, Topic queue,
    uint32_t count,
) except -1:
    """Give a transaction, whose fence holds, its place in the log; or refuse it if the journal or a queue is full."""
    cdef LogWriter writer = core.journal
    cdef TransactionGroup* group = <TransactionGroup*>(<uint8_t*>transaction + RECORD_HEADER_BYTES)
    cdef RecordHeader* record = <RecordHeader*>(<uint8_t*>transaction + TRANSACTION_BYTES)
    cdef const QueueAcknowledgementHeader* named = <const QueueAcknowledgementHeader*>record_payload(record)
    cdef uint64_t length = TRANSACTION_BYTES + group.bytes
    cdef uint64_t entering = 0
    cdef uint64_t need
    cdef uint64_t last_sequence = transaction.sequence + count - 1
    cdef uint32_t entries = named.count
    cdef uint32_t token = 0
    cdef uint32_t matches = 0
    cdef uint32_t removed = 0
    cdef uint32_t number
    cdef bint new_name
    cdef bint unnamed = False
    cdef Topic topic
    cdef tuple feeds = None
    cdef set fed = None
    cdef list named_here = []
    if length >= core._refused_from_bytes:
        return core._refuse(session, slot, state)
    for number in range(count):
        topic = <Topic>state.topics[record.topic_id]
        unnamed = unnamed or is_unnamed(writer, topic)
        if number and not topic.logged:
            raise ValueError("a transport pushed a transaction for a topic that is not recorded")
        if topic.sow is not None and not topic.sow.state.table.ensure(count):
            return core._refuse(session, slot, state)
        if number and topic.feeds:
            entering += <uint64_t>PyTuple_GET_SIZE(topic.feeds)
            if feeds is None:
                feeds = topic.feeds
            elif feeds is not topic.feeds:
                fed = fed or set(feeds)
                fed.update(topic.feeds)
        record = <RecordHeader*>(<uint8_t*>record + align8(record.length))
    # Each queue needs at most one block more than its messages fill.
    if entering and not core.adapter.manager.arena.ensure(
        <uint32_t>(entering // BLOCK_SLOTS + <uint64_t>(PyTuple_GET_SIZE(feeds) if fed is None else len(fed)))
    ):
        return core._refuse(session, slot, state)
    if core.run_writer is not writer:
        core.flush_run()
    if unnamed:
        named_here = unnamed_topics(writer, topics_of(transaction, state, count))
    new_name = core._lacks_name(session.publisher)
    need = length + topics_bytes(named_here)
    if new_name:
        need += core._name_record_bytes(session.publisher)
    if not writer.has_room(core.run_length, need):
        core.flush_run()
        named_here = list(dict.fromkeys(topics_of(transaction, state, count)))
        need = length + topics_bytes(named_here) + core._name_record_bytes(session.publisher)
        if not writer.may_rotate(need):
            core._refused_from_bytes = length if writer.lacks_large else 0
            return core._refuse(session, slot, state)
        writer.rotate(need, core.next_txid, core.now_ns, core.durable)
        new_name = True
    # Nothing below can refuse it.
    core.publishers[session.publisher].last_sequence = last_sequence
    core.undecided.forget(core.publishers[session.publisher].publisher_id, transaction.sequence)
    core.acknowledged += entries
    record = <RecordHeader*>(<uint8_t*>transaction + TRANSACTION_BYTES)
    if core.adapter.acknowledge(
        record, <uint32_t>queue.queue, client_key(state.index, slot, session.serial), core.now_ns, &token, &matches,
        &removed,
    ) != entries:
        raise RuntimeError("a transaction's acknowledgement did not remove all its messages")
    core.adapter.count_transaction(<uint32_t>queue.queue, True)
    if named_here:
        core.flush_run()
        for topic in named_here:
            writer.name_topic(
                topic.number, topic.message_type, topic.name, topic.hash, core.next_txid, core.now_ns, core.durable
            )
    if new_name:
        core.flush_run()
        core._write_name(session.publisher)
    if core.run_length and core.run_data + core.run_length != <const uint8_t*>transaction:
        core.flush_run()
    if not core.run_length:
        core.run_writer = writer
        core.run_data = <const uint8_t*>transaction
    transaction.length = TRANSACTION_BYTES
    transaction.payload_length = sizeof(TransactionGroup)
    transaction.publisher_id = transaction.sequence = 0
    place_record(core, transaction, 0)
    for number in range(count):
        topic = <Topic>state.topics[record.topic_id]
        place_in_group(core, topic, record)
        if record.kind == KIND_PUBLISH and topic.feeds:
            core.adapter.enqueue(record, topic.name, topic.feeds, core.now_ns)
        record = <RecordHeader*>(<uint8_t*>record + align8(record.length))
    return 0


cdef int place_record(Sequencer core, RecordHeader* record, uint32_t topic_id) except -1:
    """Give a record the next place of the current run."""
    cdef LogWriter writer = core.run_writer
    record.position = writer.position + core.run_length
    record.txid = core.next_txid
    record.timestamp_ns = core.now_ns
    record.durable_position = core.durable
    record.topic_id = topic_id
    record.checksum = record_checksum(record)
    if writer.index is not None:
        writer.index.add(record, record.position - writer.start_position)
    core.run_length += align8(record.length)
    return 0


cdef int place_in_group(Sequencer core, Topic topic, RecordHeader* record) except -1:
    """Give a record of a transaction the next place of the current run; a message becomes the value of its key."""
    cdef RecordState* about = NULL
    if topic.sow is not None and is_value(record) and has_key(core, topic, record):
        about = record_state(record)
        about.previous = topic.sow.state.place_of(about.key)
    place_record(core, record, core.run_writer.places[topic.number].topic_id)
    core.next_txid += 1
    core.accepted += 1
    if about != NULL:
        keep_state(topic, record, True)
    return 0


cdef int refuse_transaction(
    Sequencer core, Session* session, uint32_t slot, TransportState state, Topic queue, uint64_t first, uint64_t last,
    bint answers
) except -1:
    """Record that a transaction is refused, under the topic of a queue. answers: tell the transport."""
    cdef LogWriter writer = core.journal
    cdef Publisher* publisher = &core.publishers[session.publisher]
    cdef uint64_t need = REFUSED_BYTES + topic_record_bytes(queue) + core._name_record_bytes(session.publisher)
    cdef bytearray memory = bytearray(REFUSED_BYTES)
    cdef RecordHeader* record = <RecordHeader*><char*>memory
    cdef RefusedTransaction* about = <RefusedTransaction*>(<uint8_t*>record + RECORD_HEADER_BYTES)
    cdef dict refused
    core.flush_run()
    if REFUSED_BYTES >= core._refused_from_bytes:
        return core._refuse(session, slot, state)
    if not writer.has_room(0, need):
        if not writer.may_rotate(need):
            core._refused_from_bytes = 0
            return core._refuse(session, slot, state)
        writer.rotate(need, core.next_txid, core.now_ns, core.durable)
    if unnamed_topics(writer, [queue]):
        writer.name_topic(
            queue.number, queue.message_type, queue.name, queue.hash, core.next_txid, core.now_ns, core.durable
        )
    if core._lacks_name(session.publisher):
        core._write_name(session.publisher)
    record.length = REFUSED_BYTES
    record.kind = KIND_TRANSACTION_REFUSED
    record.expiration_s = NO_EXPIRATION
    record.publisher_id = publisher.publisher_id
    record.sequence = last
    record.payload_length = sizeof(RefusedTransaction)
    about.previous = writer.last_refused_offset
    about.sequence = first
    core.run_writer = writer
    core.run_data = <const uint8_t*>record
    place_record(core, record, writer.places[queue.number].topic_id)
    core.next_txid += 1
    core.accepted += 1
    core.flush_run()
    writer.last_refused_offset = record.position - writer.start_position
    publisher.last_sequence = last
    core.undecided.forget(publisher.publisher_id, first)
    refused = core.refused.setdefault(publisher.publisher_id, {})
    refused[first] = None
    if len(refused) > REFUSED_MAX:
        del refused[next(iter(refused))]
    if answers:
        core.adapter.count_transaction(<uint32_t>queue.queue, False)
        core.replies.append((state.index, ("transaction_refused", slot, session.serial, first)))
    return 0


cdef inline bint is_unnamed(LogWriter writer, Topic topic):
    """Whether a topic has no topic record in the file in use."""
    return topic.number >= writer.place_capacity or writer.places[topic.number].file_plus_one != writer.number + 1


cdef list unnamed_topics(LogWriter writer, list topics):
    """Those of the topics, each once, that have no topic record in the file in use."""
    cdef Topic topic
    return [topic for topic in dict.fromkeys(topics) if is_unnamed(writer, topic)]


cdef list topics_of(const RecordHeader* transaction, TransportState state, uint32_t count):
    """The topics of the records of a group, in order."""
    cdef const RecordHeader* record = <const RecordHeader*>(<const uint8_t*>transaction + TRANSACTION_BYTES)
    cdef uint32_t number
    cdef list topics = []
    for number in range(count):
        topics.append(state.topics[record.topic_id])
        record = <const RecordHeader*>(<const uint8_t*>record + align8(record.length))
    return topics


cdef uint64_t topics_bytes(list topics) except? 0:
    """The length of the topic records of these topics."""
    cdef Topic topic
    cdef uint64_t length = 0
    for topic in topics:
        length += topic_record_bytes(topic)
    return length
