"""Whom and what the core knows: transports with their sessions and topics, publishers, and who owns which client name.

Sequencing (sequencer.pyx) rests on it. A session is a connection that has logged on; it has a slot of its transport,
which is used again, and a serial number, which is not.

Invariants
- A client name belongs to one session. When another one takes it over, what the old session still has in its ring is
  dropped: it was not acknowledged, and the number may already be promised to the new session.
- Topics and publishers have numbers as long as the core lives. A publisher's highest sequence only rises.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.identity import publisher_id as publisher_id_of
from amps._core.identity import topic_hash
from amps._core.queue_desk import client_key


cdef class Topic:
    """A topic of one message type, as the core knows it."""


cdef class TransportState:
    """What the core keeps per transport: its ring, its sessions by connection slot, its topic numbers."""

    def __cinit__(self):
        self.sessions = NULL
        self.session_capacity = 0

    def __dealloc__(self):
        free(self.sessions)

    cdef Session* session(self, uint32_t slot) except NULL:
        cdef uint32_t capacity
        cdef Session* grown
        if slot >= self.session_capacity:
            capacity = max(64, max(slot + 1, self.session_capacity * 2))
            grown = <Session*>realloc(self.sessions, capacity * sizeof(Session))
            if grown == NULL:
                raise MemoryError()
            memset(&grown[self.session_capacity], 0, (capacity - self.session_capacity) * sizeof(Session))
            self.sessions = grown
            self.session_capacity = capacity
        return &self.sessions[slot]


cdef class CoreRegister:
    """One per core; not thread-safe.

    journal: LogWriter of the journal, None without a transaction log. is_logged(topic, message_type) tells which topics
    the journal takes. publishers: {publisher id: highest sequence} from recovery. queues: a QueueDesk, and `feeds` and
    `queue` of amps.config.queue_topics; None: no queues.
    """

    def __cinit__(self):
        self.publishers = NULL

    def __init__(self, LogWriter journal, is_logged, publishers, uint64_t now_ns, queues):
        self.journal = journal
        self.is_logged = is_logged
        self.desk, self.queue_topics = queues or (None, None)
        if self.desk is not None:
            self.desk.last_sequence = self.last_sequence
        self.now_ns = now_ns
        self.transports = []
        self.topics_by_key = {}
        self.topics = []
        self.publisher_map = PublisherMap()
        self.publisher_count = 0
        self.publisher_capacity = 0
        self.owners = {}
        self.names = {}
        self.client_names = set()
        self.replies = []
        for publisher, sequence in publishers.items():
            self.publishers[self._publisher(publisher)].last_sequence = sequence

    def __dealloc__(self):
        free(self.publishers)

    def attach_transport(self, int index, Ring ring):
        """(Re)start transport `index` with that ring; sessions of its predecessor end here."""
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
        if self.desk is not None:
            self.desk.book.end_transport(index, self.now_ns)
            self.desk.book.take_cursor_news()  # who would evaluate these filters is gone

    def topic_number(self, str topic, str message_type):
        """The core's number of a topic; made when first asked for."""
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
            if self.desk is not None:
                if topic.logged:
                    topic.feeds = tuple([
                        self.desk.book.queues[number] for number in self.queue_topics.feeds(text, type_text)
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
        place = self.publisher_map.insert(publisher_id)
        place[0] = self.publisher_count
        self.publisher_count += 1
        return self.publisher_count - 1

    def last_sequence(self, uint64_t publisher_id):
        """Highest sequence seen of a publisher, 0 = none."""
        cdef uint64_t* place = self.publisher_map.find(publisher_id)
        return self.publishers[place[0]].last_sequence if place != NULL else 0

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
        session.publisher = self._publisher(publisher_id)
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
        if self.desk is not None:
            self.desk.book.end_client(client_key(index, slot, serial), self.now_ns)
            self._tell_cursors()
        return 0

    cdef int _give_up_name(self, tuple key) except -1:
        """The session in that slot ended; its client name, if it still is its owner, is free."""
        name = self.names.pop(key, None)
        if name is not None:
            del self.owners[name]
        return 0

    cdef int _tell_cursors(self) except -1:
        """Tell transports which filters they have to evaluate from now on, and which not any more."""
        for transport, cursor, queue, key in self.desk.book.take_cursor_news():
            if queue is None:
                self.replies.append((transport, ("queue_evaluated_enough", 0, 0, cursor)))
            else:
                self.replies.append((transport, ("queue_evaluate", 0, 0, cursor, queue, key)))
        return 0
