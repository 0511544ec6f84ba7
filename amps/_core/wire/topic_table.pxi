# The table of the topics that one transport knows, with a look-up by name that makes no Python object.
#
# Publishing looks up a topic by its bytes in the receive buffer; delivery gets the entry from the log's topic records.
# Numbers are dense and never reused, so other modules keep per-topic state in arrays.
#
# A queue's name is a topic too. A message published to it is recorded under the queue's publish target. The entry of
# the name refers to the entry of the target, so that a publish needs no second look-up (queues.md §4).

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

import json

from amps._core.values.value cimport hash_bytes


cdef class TopicEntry:

    def __repr__(self):
        return f"TopicEntry({self.name!r}, {self.message_type!r}, number={self.number})"

    def mark_declared(self):
        """Note that the number has been declared to the core."""
        self.declared = True


cdef class TopicTable:
    """All topics that the transport has used so far.

    classify(topic, message_type) -> (logged, discarded, refusal | None, FilterSet | None), called once per topic.
    queues: the names of the queues (amps.config.queue_topics.QueueTopics), None if there are none. sow_rules(topic,
    message_type) -> SowRules | None: of a SOW topic; None: there are none.
    """

    def __cinit__(self):
        self.capacity = 256
        self.slots = <TableSlot*>calloc(self.capacity, sizeof(TableSlot))
        if self.slots == NULL:
            raise MemoryError()

    def __init__(self, classify, queues=None, sow_rules=None):
        self.entries = []
        self.classify = classify
        self.queues = queues
        self.sow_rules = sow_rules
        self._message_types = {}

    def __dealloc__(self):
        free(self.slots)

    def message_type_id(self, str message_type):
        """The number of a message type in this table, assigned at its first use."""
        return self._message_types.setdefault(message_type, len(self._message_types))

    cdef uint64_t hash_of(self, uint32_t message_type_id, const uint8_t* name, uint32_t length) noexcept nogil:
        return hash_bytes(name, length, message_type_id)

    cdef TopicEntry find(self, uint32_t message_type_id, const uint8_t* name, uint32_t length, uint64_t hash_):
        """The entry of a topic, or None if it is not in the table."""
        cdef uint64_t at = hash_ & (self.capacity - 1)
        cdef TopicEntry entry
        while self.slots[at].number_plus_one:
            if self.slots[at].hash == hash_:
                entry = <TopicEntry>self.entries[self.slots[at].number_plus_one - 1]
                if (
                    entry.message_type_id == message_type_id
                    and <uint32_t>len(entry.raw_name) == length
                    and memcmp(<const char*>entry.raw_name, name, length) == 0
                ):
                    return entry
            at = (at + 1) & (self.capacity - 1)
        return None

    def known(self, str name, str message_type):
        """The entry of a topic, or None if it is not in the table."""
        cdef bytes raw = name.encode("utf-8", "surrogatepass")
        cdef uint32_t type_id = self.message_type_id(message_type)
        cdef uint64_t hash_ = self.hash_of(type_id, <const uint8_t*><const char*>raw, <uint32_t>len(raw))
        return self.find(type_id, <const uint8_t*><const char*>raw, <uint32_t>len(raw), hash_)

    def entry(self, str name, str message_type):
        """The entry of a topic; it is made if it is not in the table."""
        cdef TopicEntry entry = self.known(name, message_type)
        cdef bytes raw
        cdef uint32_t type_id
        if entry is not None:
            return entry
        raw = name.encode("utf-8", "surrogatepass")
        type_id = self.message_type_id(message_type)
        entry = self._new_entry(name, raw, message_type, type_id)
        entry.logged, entry.discarded, entry.refusal, entry.recorded_if = self.classify(name, message_type)
        if self.sow_rules is not None and not entry.discarded and entry.refusal is None:
            entry.sow = self.sow_rules(name, message_type)
        if entry.recorded_if is not None:
            entry.unrecorded = self._new_entry(name, raw, message_type, type_id)
            entry.unrecorded.sow = entry.sow
        self._insert(
            self.hash_of(type_id, <const uint8_t*><const char*>raw, <uint32_t>len(raw)), entry.number
        )
        if self.queues is not None:
            self._find_queue(entry)
        return entry

    def _find_queue(self, TopicEntry entry):
        """Set the queue of that name, if there is one, and the topic under which publishes to it are recorded."""
        number = self.queues.queue(entry.name, entry.message_type)
        if number is None:
            return
        entry.queue = number
        entry.is_own_topic = self.queues.is_own_topic(number)
        if entry.is_own_topic:
            if entry.unrecorded is not None:
                entry.unrecorded.queue = entry.queue
                entry.unrecorded.is_own_topic = True
            return
        target = self.queues.publish_target(entry.name, entry.message_type)
        if target != entry.name:
            entry.target = self.entry(target, entry.message_type)

    def unrecorded_entry(self, str name, str message_type):
        """The entry of a topic for messages in the transient log: `unrecorded` if the topic is recorded by content."""
        cdef TopicEntry entry = self.entry(name, message_type)
        return entry if entry.unrecorded is None else entry.unrecorded

    cdef TopicEntry _new_entry(self, str name, bytes raw, str message_type, uint32_t type_id):
        cdef TopicEntry entry = TopicEntry()
        entry.number = <uint32_t>len(self.entries)
        entry.name = name
        entry.raw_name = raw
        entry.message_type = message_type
        entry.message_type_id = type_id
        entry.json_name = json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
        entry.declared = False
        entry.queue = -1
        entry.is_own_topic = False
        self.entries.append(entry)
        return entry

    cdef int _insert(self, uint64_t hash_, uint32_t number) except -1:
        cdef TableSlot* old = self.slots
        cdef uint64_t old_capacity = self.capacity
        cdef uint64_t index
        cdef TableSlot* grown
        if <uint64_t>len(self.entries) * 2 > self.capacity:
            grown = <TableSlot*>calloc(old_capacity * 2, sizeof(TableSlot))
            if grown == NULL:
                raise MemoryError()
            self.slots = grown
            self.capacity = old_capacity * 2
            for index in range(old_capacity):
                if old[index].number_plus_one:
                    self._place(old[index].hash, old[index].number_plus_one)
            free(old)
        self._place(hash_, number + 1)
        return 0

    cdef void _place(self, uint64_t hash_, uint32_t number_plus_one) noexcept nogil:
        cdef uint64_t at = hash_ & (self.capacity - 1)
        while self.slots[at].number_plus_one:
            at = (at + 1) & (self.capacity - 1)
        self.slots[at].hash = hash_
        self.slots[at].number_plus_one = number_plus_one
