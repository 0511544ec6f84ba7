# The core's logic: order and duplicates. No I/O, no clock.
#
# The sequencer takes the records that transports pushed into their rings, in ring order. It fills in position,
# transaction id and time of each accepted message in place, and writes whole runs of records to the log at once. The
# caller passes the storage (journal/append.pxi) and the time. So the same code runs in the server and in the
# simulation, which passes a simulated storage and clock.
#
# Invariants
# - A publisher's sequences only rise in the log. A message whose sequence is not above the highest seen is dropped.
# - Records in a ring from a session that has lost its client name are dropped.
# - Transaction ids rise over both logs together: merging the logs by transaction id gives the order of the instance.
# - If the journal cannot take a message (no further file can be made), the message is refused, and its session is
#   fenced. A later message of the publisher must not enter the log before it, or the refused message would be a
#   duplicate when it is sent again.
# - The watermarks are published after the bytes are written, and the ring's tail after the watermarks. So a transport
#   that sees its record consumed and then reads the watermarks gets an upper bound of the record's position.

cimport cython
import msgpack
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.journal.queue_records cimport QueueEntry
from amps._core.journal.record cimport (
    FLAG_DERIVED_PUBLISHER,
    FLAG_UNRECORDED,
    KIND_DECLARE_NAME,
    KIND_DECLARE_TOPIC,
    KIND_DELTA_PUBLISH,
    KIND_DISCONNECT,
    KIND_FIRST_CONTROL,
    KIND_LOGON,
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_QUEUE_MATCHES,
    KIND_QUEUE_SUBSCRIBE,
    KIND_QUEUE_UNSUBSCRIBE,
    KIND_LOG_COMPLETE,
    KIND_REACHABLE,
    KIND_REPLICATION_FLOW,
    KIND_REPLICATION_VECTOR,
    KIND_SOW_DELETE,
    KIND_SPILLED_PUBLISH,
    KIND_TRANSACTION,
    KIND_TRANSFER_REQUEST,
    NAME_CLIENT,
    NAME_PREFIX_BYTES,
    RECORD_HEADER_BYTES,
    TOPIC_PREFIX_BYTES,
    RecordHeader,
    align8,
    extension_fits,
    record_checksum,
    record_parts_fit,
    record_payload,
)
from amps._core.journal.writer cimport LogWriter
from amps._core.shm.memory cimport NOTHING_REFUSED, ControlPage, Ring, Stretch, Watermarks
from amps._core.shm.platform cimport load_acquire, store_release
from amps._core.queues.manager import client_key
from amps._core.sow.slots cimport KEY_LIVE, NO_KEY_SLOT, REMOVED_KEYS_MAX, RemovalRequest, RequestedKey
from amps._core.sow.table cimport REMOVAL_BYTES, JournalPlaces, TopicState, is_removal, is_value
from amps._core.values.value import publisher_id as publisher_id_of, topic_hash

cdef enum:
    # About so many acknowledged queue messages are processed per ring and turn; further acknowledgements wait for the
    # next turn. So the clients of the first ones get new messages while the others are processed.
    ACKNOWLEDGED_PER_TURN = 256


@cython.final
cdef class Sequencer:
    """The sequencer. There is one in each core; it is not thread-safe.

    journal: LogWriter of the journal; None without a transaction log. transient: LogWriter for topics that are not
    recorded. is_logged(topic, message_type): whether the journal records the topic. open_spill(token): maps the file of
    a message that was too large for its ring. next_txid: the first transaction id to assign. publishers: {publisher id:
    highest sequence} from recovery. refused: {publisher id: first sequences of its refused transactions}, from there
    too. queues: a tuple of a LogAdapter and an object with `feeds` and `queue` of
    amps.config.queue_topics; None: no queues. write_vector(path, pairs): writes the sequences of all publishers into a
    file for the replication process, and returns whether it could; None: there is no such process. sow:
    (find_sow(topic, message_type), which returns (SowTopic, number of the topic in it, KeyMaker), or None;
    all SowTopics; JournalPlaces, or None without a journal); None: no SOW topics.
    """

    # sessions, client names, topics, publishers
    cdef readonly LogWriter journal
    cdef object is_logged
    cdef readonly LogAdapter adapter
    cdef object queue_topics
    cdef readonly uint64_t now_ns
    cdef list transports           # TransportState by number
    cdef dict topics_by_key
    cdef list topics
    cdef PublisherMap publisher_map
    cdef Publisher* publishers
    cdef uint32_t publisher_count
    cdef uint32_t publisher_capacity
    cdef list publisher_names      # by publisher: its client name in UTF-8; None: it has not logged on to this core
    cdef dict owners               # client name -> (transport, slot, serial, user id)
    cdef readonly set client_names  # of all clients that ever logged on
    cdef readonly dict names       # (transport, slot) -> client name that the session owns
    cdef readonly list replies     # [(transport, msgpack-able tuple or record)]; see `take_replies`
    # order
    cdef readonly LogWriter transient
    cdef object open_spill
    cdef readonly uint64_t next_txid
    cdef readonly uint64_t durable
    cdef readonly uint64_t accepted
    cdef readonly uint64_t duplicates
    cdef readonly uint64_t repeats  # records that an upstream of replication has sent before
    cdef readonly uint64_t fenced
    # replication
    cdef bint replicates
    cdef object write_vector
    cdef ReplicatedNames replicated_names
    cdef Stretch stretch           # the newest one of records from one upstream
    cdef PublisherMap upstreams    # the publisher ids of upstreams that had flows
    cdef dict flows                # name of an upstream -> (transport, slot, serial) of its flow
    cdef dict refused              # publisher id -> {first sequence: None} of its refused transactions
    cdef UndecidedTransactions undecided
    cdef uint64_t _refused_from_bytes  # the journal refuses records of that length or more
    cdef uint64_t acknowledged     # queue messages acknowledged in this turn, in the current ring
    cdef bint removals_recorded    # since the last deliveries were taken
    cdef public object replication_index  # of the ring owner that replicates; None: there is none
    # SOW topics
    cdef object find_sow
    cdef list sow_topics           # SowTopic
    cdef tuple deletion_answer     # for `replies`, when the deletion has its place; None: nobody waits for one
    cdef JournalPlaces places      # None: there is no journal
    cdef MergedRecords merged
    cdef str refusal               # why the last message for a SOW topic is refused
    cdef uint64_t published_txid   # of the last watermarks
    cdef public uint64_t log_txid  # transaction id of the first record in the journals
    # the current run: records contiguous in memory, not written yet
    cdef LogWriter run_writer
    cdef const uint8_t* run_data
    cdef uint64_t run_length

    def __cinit__(self):
        self.publishers = NULL

    def __init__(
        self, journal, transient, is_logged, open_spill, uint64_t next_txid, publishers, uint64_t now_ns, queues=None,
        refused=None, write_vector=None, sow=None,
    ):
        self.find_sow, self.sow_topics, self.places = sow or (None, [], None)
        self.merged = MergedRecords()
        self.published_txid = 0
        self.log_txid = 0
        self.transient = transient
        self.open_spill = open_spill
        self.next_txid = next_txid
        self.durable = 0
        self.accepted = 0
        self.duplicates = 0
        self.repeats = 0
        self.fenced = 0
        self.replicates = write_vector is not None
        self.write_vector = write_vector
        self.replicated_names = ReplicatedNames()
        memset(&self.stretch, 0, sizeof(Stretch))
        self.upstreams = PublisherMap()
        self.flows = {}
        self.refused = {}
        for publisher, sequences in (refused or {}).items():
            self.refused[publisher] = dict.fromkeys(sequences)
        self.undecided = UndecidedTransactions()
        self._refused_from_bytes = NOTHING_REFUSED
        self.acknowledged = 0
        self.removals_recorded = False
        self.replication_index = None
        self.run_writer = None
        self.run_data = NULL
        self.run_length = 0
        self.journal = journal
        self.is_logged = is_logged
        self.adapter, self.queue_topics = queues or (None, None)
        if self.adapter is not None:
            self.adapter.last_sequence = self.last_sequence
        self.now_ns = now_ns
        self.transports = []
        self.topics_by_key = {}
        self.topics = []
        self.publisher_map = PublisherMap()
        self.publisher_count = 0
        self.publisher_capacity = 0
        self.publisher_names = []
        self.owners = {}
        self.names = {}
        self.client_names = set()
        self.replies = []
        for publisher, sequence in publishers.items():
            self.publishers[self._publisher(publisher)].last_sequence = sequence

    def __dealloc__(self):
        free(self.publishers)

    # === sessions, client names, topics, publishers ==============================================================
    #
    # A session is a connection that has logged on. It has a slot of its transport, which is reused later, and a serial
    # number, which is not reused.
    #
    # Invariants
    # - A client name belongs to one session. When another session takes it over, records of the old session that are
    #   still in its ring are dropped: they were not acknowledged, and the new session may already use their
    #   sequences.
    # - Topics and publishers have numbers as long as the core lives. A publisher's highest sequence only rises.

    def attach_transport(self, int index, Ring ring):
        """Start or restart transport `index` with that ring; the sessions of its predecessor end."""
        cdef TransportState state = TransportState()
        while len(self.transports) <= index:
            self.transports.append(None)
        state.index = index
        state.ring = ring
        state.topics = []
        state.taken = 0
        self.transports[index] = state
        for key in [key for key in self.names if key[0] == index]:
            self._give_up_name(key)
        if self.adapter is not None:
            self.adapter.manager.end_transport(index, self.now_ns)
            self.adapter.manager.take_cursor_news()  # the transport that evaluated these filters is gone

    def topic_number(self, str topic, str message_type):
        """The core's number of a topic; assigned on the first call."""
        return self._topic(topic.encode("utf-8", "surrogatepass"), message_type.encode()).number

    cdef Topic _topic(self, bytes name, bytes message_type):
        cdef Topic topic
        key = (name, message_type)
        topic = self.topics_by_key.get(key)
        if topic is None:
            topic = Topic()
            topic.number = <uint32_t>len(self.topics)
            topic.name = name
            topic.message_type = message_type
            text = name.decode("utf-8", "surrogatepass")
            type_text = message_type.decode()
            topic.hash = topic_hash(text, type_text)
            topic.logged = self.journal is not None and self.is_logged(text, type_text)
            topic.feeds = ()
            topic.queue = -1
            if self.find_sow is not None:
                found = self.find_sow(text, type_text)
                if found is not None:
                    topic.sow, topic.sow_number, topic.keys = found
                    topic.sow.recorded = topic.logged
                    while <uint32_t>len(topic.sow.topics) <= topic.sow_number:
                        topic.sow.topics.append(None)
                    topic.sow.topics[topic.sow_number] = topic
            if self.adapter is not None:
                if topic.logged:
                    topic.feeds = tuple([
                        self.adapter.manager.queues[number] for number in self.queue_topics.feeds(text, type_text)
                    ])
                number = self.queue_topics.queue(text, type_text)
                topic.queue = -1 if number is None else number
            self.topics.append(topic)
            self.topics_by_key[key] = topic
        return topic

    cdef uint32_t _publisher(self, uint64_t publisher_id) except? NO_PUBLISHER:
        cdef uint64_t* place = self.publisher_map.find(publisher_id)
        cdef Publisher* grown
        if place != NULL:
            return <uint32_t>place[0]
        if self.publisher_count == self.publisher_capacity:
            self.publisher_capacity = max(64, self.publisher_capacity * 2)
            grown = <Publisher*>realloc(self.publishers, self.publisher_capacity * sizeof(Publisher))
            if grown == NULL:
                raise MemoryError()
            self.publishers = grown
        self.publishers[self.publisher_count].publisher_id = publisher_id
        self.publishers[self.publisher_count].last_sequence = 0
        self.publishers[self.publisher_count].named_in = 0
        self.publisher_names.append(None)
        place = self.publisher_map.insert(publisher_id)
        place[0] = self.publisher_count
        self.publisher_count += 1
        return self.publisher_count - 1

    def last_sequence(self, uint64_t publisher_id):
        """Highest sequence seen of a publisher, 0 = none."""
        cdef uint64_t* place = self.publisher_map.find(publisher_id)
        return self.publishers[place[0]].last_sequence if place != NULL else 0

    def refused_transactions(self):
        """{publisher id: [first sequence]} of the refused transactions, for any thread."""
        return {publisher: list(sequences) for publisher, sequences in list(self.refused.items())}

    # --- sessions -------------------------------------------------------------------------------------

    cdef int _logon(
        self, int index, TransportState state, uint32_t slot, uint32_t serial, str name, str user_id
    ) except -1:
        cdef Session* session = state.session(slot)
        cdef Session* old
        cdef uint64_t publisher_id = publisher_id_of(name)
        cdef uint64_t last_sequence = 0
        if self.journal is not None:
            owner = self.owners.get(name)
            if owner is not None:
                if owner[3] != user_id:
                    self.replies.append((index, ("logon", slot, serial, False, 0, 0)))
                    return 0
                old = (<TransportState>self.transports[owner[0]]).session(owner[1])
                if old.serial == owner[2]:
                    old.state = SESSION_FENCED
                self.names.pop(owner[:2], None)
                self.replies.append((owner[0], ("kick", owner[1], owner[2], name, user_id)))
            self.client_names.add(name)
            self.owners[name] = (index, slot, serial, user_id)
            self.names[index, slot] = name
        session.serial = serial
        session.is_flow = False
        session.publisher = session.recent = self._publisher(publisher_id)
        if self.publisher_names[session.publisher] is None:
            self.publisher_names[session.publisher] = name.encode("utf-8", "surrogatepass")
        session.state = SESSION_ACTIVE
        if self.journal is not None:
            last_sequence = self.publishers[session.publisher].last_sequence
        self.replies.append(
            (index, ("logon", slot, serial, True, last_sequence,
                     self.journal.position if self.journal is not None else 0))
        )
        return 0

    cdef int _disconnect(self, int index, TransportState state, uint32_t slot, uint32_t serial) except -1:
        cdef Session* session = state.session(slot)
        if session.serial == serial:
            session.state = SESSION_NONE
            self._give_up_name((index, slot))
        if self.adapter is not None:
            self.adapter.manager.end_client(client_key(index, slot, serial), self.now_ns)
            self._tell_cursors()
        return 0

    cdef int _give_up_name(self, tuple key) except -1:
        """Free the client name of the session that ended in that slot, if it still owns the name."""
        name = self.names.pop(key, None)
        if name is not None:
            del self.owners[name]
        return 0

    cdef int _tell_cursors(self) except -1:
        """Send transports the changes of the filters that they must evaluate."""
        for transport, cursor, queue, key in self.adapter.manager.take_cursor_news():
            if queue is None:
                self.replies.append((transport, ("queue_evaluated_enough", 0, 0, cursor)))
            else:
                self.replies.append((transport, ("queue_evaluate", 0, 0, cursor, queue, key)))
        return 0

    # --- the turn -------------------------------------------------------------------------------------

    def turn(self, ControlPage control, uint64_t now_ns, uint64_t durable, uint64_t bytes_max):
        """Take at most about `bytes_max` bytes from each ring, and publish the watermarks. True: there was work.

        The taken records are not released yet: a transport may see its records as consumed only when the answers to
        them are in its egress ring. A ring that is not released yet is skipped.
        """
        cdef bint worked = False
        cdef TransportState state
        cdef int index
        if now_ns > self.now_ns:
            self.now_ns = now_ns
        self.durable = durable
        if self.adapter is not None:
            self.adapter.manager.pass_time(self.now_ns)
        for index in range(len(self.transports)):
            state = <TransportState>self.transports[index]
            if state.taken == 0:
                state.taken = self._process(index, state, bytes_max)
                worked = worked or state.taken > 0
        if self.adapter is not None and self._serve_queues():
            worked = True
        if self.sow_topics and serve_states(self, control):
            worked = True
        if worked:
            self.publish_watermarks(control)
        return worked

    def release(self, blocked):
        """Free the taken records, except those of `blocked` transports, whose answers still wait. True: some were."""
        cdef bint released = False
        cdef TransportState state
        cdef int index
        for index in range(len(self.transports)):
            state = <TransportState>self.transports[index]
            if state.taken and index not in blocked:
                store_release(&state.ring.data.tail, state.ring.data.tail + state.taken)
                state.taken = 0
                released = True
        return released

    def pending(self):
        """Whether any ring holds records that the next turn would take."""
        cdef TransportState state
        for state in self.transports:
            if state.taken == 0 and load_acquire(&state.ring.data.head) != state.ring.data.tail:
                return True
        return False

    def ring_is_empty(self, int index):
        """Whether all published records of a transport are taken and released."""
        cdef TransportState state = self.transports[index]
        return state.taken == 0 and load_acquire(&state.ring.data.head) == state.ring.data.tail

    cdef uint64_t _process(self, int index, TransportState state, uint64_t bytes_max) except? 0xFFFFFFFFFFFFFFFF:
        cdef Ring ring = state.ring
        cdef uint64_t start = ring.data.tail
        cdef uint64_t at = start
        cdef uint64_t limit = load_acquire(&ring.data.head)
        cdef uint64_t head = limit
        cdef RecordHeader* record
        cdef uint64_t length
        if limit == start:
            return 0
        if limit - start > bytes_max:
            limit = start + bytes_max
        self.acknowledged = 0
        while at < limit and self.acknowledged < ACKNOWLEDGED_PER_TURN:
            # Records are published whole, so the record at `at` may be read to its end, also beyond the limit.
            record = <RecordHeader*>ring.peek(&at, head)
            if record == NULL:
                break
            length = align8(record.length)  # applying an acknowledgement shortens its record
            if record.kind < KIND_FIRST_CONTROL:
                self.take(record, state)
            else:
                self.flush_run()
                self.control(record, index, state)
            at += length
        self.flush_run()
        return at - start

    def publish_watermarks(self, ControlPage control):
        """Publish the positions up to which readers may read."""
        cdef Watermarks values
        values.journal_written = self.journal.position if self.journal is not None else 0
        values.journal_number = self.journal.number if self.journal is not None else 0
        values.transient_written = self.transient.position
        values.transient_number = self.transient.number
        values.next_txid = self.next_txid
        self.published_txid = self.next_txid
        if control.data.refused_from_bytes != self._refused_from_bytes:
            store_release(&control.data.refused_from_bytes, self._refused_from_bytes)
        control.write_stretch(&self.stretch)
        control.write_watermarks(&values)

    cdef int flush_run(self) except -1:
        if self.run_length:
            self.run_writer.write(self.run_data, self.run_length)
            self.run_length = 0
            self.run_writer = None
        return 0

    cdef int take(self, RecordHeader* record, TransportState state) except -1:
        """Accept, drop or refuse one message, acknowledgement or transaction."""
        cdef uint32_t slot = <uint32_t>record.position
        cdef uint32_t serial = <uint32_t>(record.position >> 32)
        cdef Session* session = state.session(slot)
        cdef Topic topic
        cdef LogWriter writer
        cdef Publisher* publisher = NULL
        cdef uint64_t need
        cdef bint new_topic
        cdef bint new_name
        cdef bint enters
        cdef bint in_journal
        cdef RecordHeader* kept
        if session.is_flow:
            return take_replicated(self, record, session, state)
        if record.kind == KIND_TRANSACTION:
            return take_transaction(self, record, state)
        topic = <Topic>state.topics[record.topic_id]
        if not record_parts_fit(record) or not extension_fits(record):
            # Every reader would take it for damage. A stopped core is better than an unreadable log.
            raise ValueError("a transport pushed a record whose parts do not add up to its length")
        if session.serial != serial or session.state != SESSION_ACTIVE:
            self.fenced += 1
            return 0
        if self.journal is not None and not record.flags & FLAG_DERIVED_PUBLISHER:
            publisher = &self.publishers[session.publisher]
            if record.sequence <= publisher.last_sequence:
                self.duplicates += 1
                # If the acknowledgement requests an answer, the answer is that it had no effect.
                return self._answer_acknowledgement(record, state.index, False)
        if record.kind == KIND_QUEUE_ACKNOWLEDGEMENT:
            if topic.queue < 0:
                raise ValueError("a transport pushed an acknowledgement for a topic that is not a queue")
            writer = self.journal
            if self.adapter.manager.output.removal_count:
                # It may refer to removed messages; the journal must record their removal before the client is answered.
                self._write_removals()
                if self.adapter.manager.output.removal_count:
                    return self._refuse(session, slot, state)
            client = client_key(state.index, slot, session.serial)
            if not self.adapter.may_acknowledge(record, <uint32_t>topic.queue, client):
                return self._answer_acknowledgement(record, state.index, True)
        else:
            writer = self.journal if topic.logged and not record.flags & FLAG_UNRECORDED else self.transient
        in_journal = writer is self.journal
        if record.length >= self._refused_from_bytes and in_journal:
            return self._refuse(session, slot, state)
        if topic.sow is not None and record.kind != KIND_QUEUE_ACKNOWLEDGEMENT:
            if record.kind == KIND_SOW_DELETE:
                if not enter_removal(self, topic.sow, record, in_journal, state.index):
                    return self._refuse(session, slot, state)
                if record.payload_length == 0 and (publisher == NULL or not in_journal):
                    # It has removed nothing, and need not be recorded, unless for its sequence.
                    if publisher != NULL:
                        publisher.last_sequence = record.sequence
                    self._answer_deletion()
                    return 0
            else:
                kept = enter_state(self, topic.sow, record, in_journal, True)
                if kept == NULL and self.refusal is None:
                    return self._refuse(session, slot, state)
                if kept == NULL:
                    if publisher != NULL:
                        publisher.last_sequence = record.sequence
                    self.replies.append((
                        state.index, ("publish_refused", slot, serial, record.sequence, self.refusal),
                    ))
                    return 0
                record = kept
        elif record.kind == KIND_SOW_DELETE:
            raise ValueError("a transport pushed a deletion for a topic that is no SOW topic")
        enters = topic.feeds and in_journal and record.kind <= KIND_DELTA_PUBLISH
        if enters and not self.adapter.manager.arena.ensure(<uint32_t>PyTuple_GET_SIZE(topic.feeds)):
            return self._refuse(session, slot, state)
        if self.run_writer is not writer:
            self.flush_run()
        new_topic = (
            topic.number >= writer.place_capacity
            or writer.places[topic.number].file_plus_one != writer.number + 1
        )
        new_name = writer is self.journal and self._lacks_name(session.publisher)
        need = align8(record.length)
        if new_topic:
            need += topic_record_bytes(topic)
        if new_name:
            need += self._name_record_bytes(session.publisher)
        if not writer.has_room(self.run_length, need):
            self.flush_run()
            need = align8(record.length) + topic_record_bytes(topic) + self._name_record_bytes(session.publisher)
            if not writer.may_rotate(need):
                # There may be no room for a file for a large message, although there is for an ordinary one.
                self._refused_from_bytes = record.length if writer.lacks_large else 0
                return self._refuse(session, slot, state)
            writer.rotate(need, self.next_txid, self.now_ns, self.durable)
            new_topic = True
            new_name = writer is self.journal
        if publisher != NULL:
            publisher.last_sequence = record.sequence
        if record.kind == KIND_QUEUE_ACKNOWLEDGEMENT and not self._acknowledge(record, topic, state.index):
            return 0
        if new_topic:
            self.flush_run()
            writer.name_topic(
                topic.number, topic.message_type, topic.name, topic.hash, self.next_txid, self.now_ns, self.durable
            )
        if new_name:
            self.flush_run()
            self._write_name(session.publisher)
        if self.run_length and self.run_data + self.run_length != <const uint8_t*>record:
            self.flush_run()
        if not self.run_length:
            self.run_writer = writer
            self.run_data = <const uint8_t*>record
        record.position = writer.position + self.run_length
        record.txid = self.next_txid
        record.timestamp_ns = self.now_ns
        record.durable_position = self.durable
        record.topic_id = writer.places[topic.number].topic_id
        if record.flags & FLAG_DERIVED_PUBLISHER:
            record.sequence = record.txid
            if self.replicates and writer is self.journal:
                # Records of this publisher may come back from another instance after this log was lost.
                self.publishers[publisher_of(self, session, record.publisher_id)].last_sequence = record.sequence
        record.checksum = record_checksum(record)
        self.next_txid += 1
        self.accepted += 1
        if writer.index is not None:
            writer.index.add(record, record.position - writer.start_position)
        self.run_length += align8(record.length)
        if topic.sow is not None and record.kind != KIND_QUEUE_ACKNOWLEDGEMENT:
            keep_state(topic, record, in_journal)
            if record.kind == KIND_SOW_DELETE:
                self._answer_deletion()
        if enters:
            self.adapter.enqueue(record, topic.name, topic.feeds, self.now_ns)
        return 0

    cdef inline bint _lacks_name(self, uint32_t number) except -1:
        """Whether the journal in use has no name record of a publisher yet."""
        cdef Publisher* publisher = &self.publishers[number]
        if publisher.named_in == self.journal.number + 1:
            return False
        if publisher.publisher_id not in self.journal.name_ids:
            return True
        publisher.named_in = self.journal.number + 1
        return False

    cdef uint64_t _name_record_bytes(self, uint32_t publisher) except? 0:
        return align8(RECORD_HEADER_BYTES + NAME_PREFIX_BYTES + len(self.publisher_names[publisher]))

    cdef int _write_name(self, uint32_t publisher) except -1:
        self.journal.write_name(
            NAME_CLIENT, self.publishers[publisher].publisher_id, self.publisher_names[publisher], self.next_txid,
            self.now_ns, self.durable,
        )
        self.publishers[publisher].named_in = self.journal.number + 1
        return 0

    # --- queues ---------------------------------------------------------------------------------------

    cdef bint _acknowledge(self, RecordHeader* record, Topic topic, int index) except -1:
        """Apply an acknowledgement. False: it must not be recorded in the journal.

        One that finds its messages gone is recorded without entries if the queue spans instances. Another client's
        acknowledgement may not be on the other instances yet, and this client must wait for it, too.
        """
        cdef uint32_t slot = <uint32_t>record.position
        cdef uint32_t serial = <uint32_t>(record.position >> 32)
        cdef uint32_t token = 0
        cdef uint32_t matches = 0
        cdef uint32_t removed = 0
        self.acknowledged += record.payload_length // <uint32_t>sizeof(QueueEntry)
        cdef uint32_t kept = self.adapter.acknowledge(
            record, <uint32_t>topic.queue, client_key(index, slot, serial), self.now_ns, &token, &matches, &removed
        )
        if token:
            self.replies.append((index, ("queue_acknowledged", slot, serial, token, matches, removed, False)))
        return kept > 0 or (self.replicates and self.adapter.waits_for_others(record, <uint32_t>topic.queue))

    cdef int _answer_acknowledgement(self, RecordHeader* record, int index, bint refused) except -1:
        """Answer an acknowledgement or deletion without effect: a duplicate, or an acknowledgement refused by the
        limits on deferred ones.
        """
        if record.kind == KIND_QUEUE_ACKNOWLEDGEMENT:
            token = self.adapter.token_of(record)
            if token:
                slot, serial = <uint32_t>record.position, record.position >> 32
                self.replies.append((index, ("queue_acknowledged", slot, serial, token, 0, 0, refused)))
        elif record.kind == KIND_SOW_DELETE:
            token = removal_token(record)
            if token:
                slot, serial = <uint32_t>record.position, record.position >> 32
                self.replies.append((index, ("sow_deleted", slot, serial, token, 0, [])))
        return 0

    cdef bint _serve_queues(self) except -1:
        """Decide on deliveries, record removals in the journal, and take the deliveries. True: there was work."""
        cdef bint worked = self._write_removals()  # removals by expiry and by clients
        if self.adapter.manager.output.has_unwritten_deliveries:
            # Deliveries decided now could not be sent, but their leases would run.
            return worked
        self.adapter.manager.output.frozen = self.refuses or self.adapter.manager.output.removal_count > 0
        self.adapter.manager.serve(self.now_ns)
        worked = self._write_removals() or worked
        if self.adapter.manager.output.has_unwritten_deliveries:
            return worked
        for transport, record in self.adapter.take_deliveries(self.journal.position if self.removals_recorded else 0):
            self.replies.append((transport, record))
            worked = True
        self.removals_recorded = False
        for wish in self.adapter.manager.take_wishes():
            self.replies.append((self.replication_index, ("transfer_wanted", 0, 0, *wish)))
            worked = True
        return worked

    cdef bint _write_removals(self) except -1:
        """Record removals that no client requested in the journal. True: some were recorded."""
        cdef bytearray memory
        cdef uint32_t queue = 0
        cdef uint64_t count = 0
        cdef bint written = False
        while self.adapter.manager.output.removal_count:
            memory = self.adapter.removal_record(&queue, &count)
            message_type, name = self.adapter.names[queue]
            if not self._append(<RecordHeader*><char*>memory, self._topic(name, message_type), self.journal):
                break
            self.adapter.removals_written(count)
            self.removals_recorded = written = True
        return written

    cdef bint _append(self, RecordHeader* record, Topic topic, LogWriter writer) except -1:
        """Write a record made by the core to a log, under a topic. False: the log cannot take it."""
        cdef uint64_t need = align8(record.length) + topic_record_bytes(topic)
        cdef uint32_t publisher = NO_PUBLISHER
        self.flush_run()
        if self.refuses and writer is self.journal:
            return False
        if record.publisher_id:
            publisher = self._publisher(record.publisher_id)
            need += self._name_record_bytes(publisher)
        if not writer.has_room(0, need):
            if not writer.may_rotate(need):
                if writer is self.journal:
                    self._refused_from_bytes = 0
                return False
            writer.rotate(need, self.next_txid, self.now_ns, self.durable)
        if (
            topic.number >= writer.place_capacity
            or writer.places[topic.number].file_plus_one != writer.number + 1
        ):
            writer.name_topic(
                topic.number, topic.message_type, topic.name, topic.hash, self.next_txid, self.now_ns, self.durable
            )
        if publisher != NO_PUBLISHER:
            if self._lacks_name(publisher):
                self._write_name(publisher)
            record.sequence = self.next_txid
            self.publishers[publisher].last_sequence = record.sequence
        record.position = writer.position
        record.txid = self.next_txid
        record.timestamp_ns = self.now_ns
        record.durable_position = self.durable
        record.topic_id = writer.places[topic.number].topic_id
        record.checksum = record_checksum(record)
        self.next_txid += 1
        if writer.index is not None:
            writer.index.add(record, record.position - writer.start_position)
        writer.write(<const uint8_t*>record, align8(record.length))
        return True

    def publish_decisions_as(self, str name not None):
        """Record the decisions of queues that other instances must know under the publisher of that name, with the
        transaction id as sequence.
        """
        cdef uint64_t publisher_id = publisher_id_of(name)
        self.publisher_names[self._publisher(publisher_id)] = name.encode("utf-8", "surrogatepass")
        self.adapter.publisher_id = publisher_id

    cdef int _subscribe(self, int index, TransportState state, uint32_t slot, uint32_t serial, tuple wanted) except -1:
        """Add or replace a subscription to queues; ignored if its connection has ended."""
        cdef Session* session = state.session(slot)
        number, queues, max_backlog, filter_key, *shown = wanted
        if session.serial == serial and session.state == SESSION_ACTIVE:
            backlog = self.adapter.manager.subscribe(
                index, number, client_key(index, slot, serial), dict.fromkeys(queues, filter_key), max_backlog,
                *shown,
            )
            self.replies.append((index, ("queue_entered", slot, serial, number, backlog)))
            self._tell_cursors()
        return 0

    cdef int _answer_deletion(self) except -1:
        """Answer a deletion that has its place in the log, or needs none."""
        if self.deletion_answer is not None:
            self.replies.append(self.deletion_answer)
            self.deletion_answer = None
        return 0

    cdef int _refuse(self, Session* session, uint32_t slot, TransportState state) except -1:
        """Refuse a message that the journal cannot take, and fence its session."""
        session.state = SESSION_FENCED
        self.fenced += 1
        self.replies.append((state.index, ("refused", slot, session.serial)))
        return 0

    @property
    def refuses(self):
        """Whether the journal refuses all messages or large ones."""
        return self._refused_from_bytes != NOTHING_REFUSED

    def try_next_journal(self):
        """Accept messages again if the next journal can be made. False: it cannot; all messages are refused."""
        self._refused_from_bytes = NOTHING_REFUSED if self.journal.may_rotate(0) else 0
        return not self.refuses

    def change_journal(self):
        """Continue in the next journal although the current one is not full. False: it cannot be made."""
        if self.try_next_journal():
            self.journal.rotate(0, self.next_txid, self.now_ns, self.durable)
        return not self.refuses

    # --- control records ------------------------------------------------------------------------------

    cdef int control(self, RecordHeader* record, int index, TransportState state) except -1:
        cdef uint32_t slot = <uint32_t>record.position
        cdef uint32_t serial = <uint32_t>(record.position >> 32)
        cdef bytes payload
        cdef Session* session
        if record.kind == KIND_QUEUE_MATCHES:
            return self.adapter.hear(record, self.now_ns)
        payload = (<const char*>record_payload(record))[: record.payload_length]
        if record.kind == KIND_DECLARE_TOPIC:
            name, message_type = msgpack.unpackb(payload)
            number = record.topic_id
            while <uint32_t>len(state.topics) <= number:
                state.topics.append(None)
            state.topics[number] = self._topic(name, message_type)
        elif record.kind == KIND_LOGON:
            name, user_id = msgpack.unpackb(payload)
            self._logon(index, state, slot, serial, name, user_id)
        elif record.kind == KIND_DISCONNECT:
            self._disconnect(index, state, slot, serial)
        elif record.kind == KIND_SPILLED_PUBLISH:
            self._take_spill(payload, state)
        elif record.kind == KIND_REPLICATION_FLOW:
            (name,) = msgpack.unpackb(payload)
            begin_flow(self, index, state, slot, serial, name)
        elif record.kind == KIND_DECLARE_NAME:
            declare_name(self, payload)
        elif record.kind == KIND_REPLICATION_VECTOR:
            (path,) = msgpack.unpackb(payload)
            tell_vector(self, index, slot, serial, path)
        elif record.kind == KIND_QUEUE_SUBSCRIBE:
            self._subscribe(index, state, slot, serial, tuple(msgpack.unpackb(payload)))
        elif record.kind == KIND_QUEUE_UNSUBSCRIBE:
            (number,) = msgpack.unpackb(payload)
            self.adapter.manager.unsubscribe(index, number, self.now_ns)
            self.replies.append((index, ("queue_ended", slot, serial, number)))
            self._tell_cursors()
        elif record.kind == KIND_TRANSFER_REQUEST:
            if self.adapter is not None:
                self.adapter.manager.request(*msgpack.unpackb(payload, unicode_errors="surrogatepass"))
        elif record.kind == KIND_REACHABLE:
            (names,) = msgpack.unpackb(payload, unicode_errors="surrogatepass")
            if self.adapter is not None:
                self.adapter.manager.set_reachable(names)
        elif record.kind == KIND_LOG_COMPLETE:
            session = state.session(slot)
            # A record of the flow that was not taken is missing here, whatever the source has sent.
            if session.serial == serial and session.state == SESSION_ACTIVE:
                name, age_ns, partners = msgpack.unpackb(payload, unicode_errors="surrogatepass")
                self.undecided.hear(name, age_ns, partners, self.now_ns)
        else:
            raise ValueError(f"transport {index} pushed a record of unknown kind {record.kind}")
        return 0

    cdef int _take_spill(self, bytes token, TransportState state) except -1:
        """Take a message too large for the ring from its spill file, which `open_spill` maps and then removes."""
        cdef unsigned char[::1] view
        memory = self.open_spill(token)
        view = memory
        try:
            self.take(<RecordHeader*>&view[0], state)
            self.flush_run()
        finally:
            view = None
            memory.close()
        return 0

    @property
    def durable_awaited(self):
        """Log position up to which the journal must be durable for the deliveries taken so far; 0: there were none."""
        return 0 if self.adapter is None else self.adapter.durable_awaited

    @property
    def queues_due_ns(self):
        """UNIX time in ns of the next timer of a queue; None: there are no queues."""
        return None if self.adapter is None else self.adapter.manager.due_ns

    @property
    def states_due_ns(self):
        """UNIX time in ns at which the next value of a SOW topic expires; None: none does."""
        cdef SowTopic sow
        cdef uint64_t due_ns = NEVER_NS
        for sow in self.sow_topics:
            due_ns = min(due_ns, sow.state.table.next_expiry_ns())
        return None if due_ns == NEVER_NS else due_ns

    @property
    def undelivered_from(self):
        """Log position before which no queue holds an undelivered message; None: no queue holds any."""
        return None if self.adapter is None else self.adapter.manager.undelivered_from

    @property
    def has_replies(self):
        """Whether `take_replies` has any reply."""
        return len(self.replies) > 0

    def take_replies(self):
        """[(transport, tuple or whole record)] since the last call: answers, connections to close, deliveries."""
        replies = self.replies
        self.replies = []
        return replies


cdef inline uint64_t topic_record_bytes(Topic topic):
    return align8(RECORD_HEADER_BYTES + TOPIC_PREFIX_BYTES + len(topic.message_type) + len(topic.name))
