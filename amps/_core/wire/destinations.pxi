# Which destinations of replication a message still waits for (replication.md §7, §8).
#
# The replication process writes a line per destination on the control page, and its pending table
# (shm/pending_table.pxi). A message of a publisher at a log position is satisfied by a destination if the destination
# is not sync now, if its watermark `replicated` is beyond the position, or if it has scanned the log beyond the
# position, and the publisher has no pending record at or before it. Durability is not looked at here.
#
# Invariants
# - `scanned` is read before `replicated`, and both before the table. So a record that is to be replicated is found.
# - An answer "satisfied" stays true, unless the destination is upgraded: then it counts for later messages only.

cimport cython
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from amps._core.shm.memory cimport DESTINATION_SYNC, ControlPage, DestinationLine, PendingTable
from amps._core.shm.platform cimport load_acquire
from amps._core.wire.topics cimport TopicEntry

cdef uint64_t NEVER = <uint64_t>-1

ALL_DESTINATIONS = NEVER
"""All destinations, as `carriers`: bit i stands for destination i."""


@cython.final
cdef class Destinations:
    """The destinations of replication as a transport sees them."""

    def __cinit__(self):
        self.carriers = NULL
        self.carriers_known = NULL

    def __init__(self, ControlPage control not None, tables, find_carriers=None):
        """tables: the pending table of each destination. find_carriers(topic, message type) returns the destinations
        that may get messages of a topic, as bits; None: any destination may get any message.
        """
        self.control = control
        self.tables = list(tables)
        for table in self.tables:
            if not isinstance(table, PendingTable):
                raise TypeError("a pending table is needed for each destination")
        self.count = <uint32_t>len(self.tables)
        self.find_carriers = find_carriers
        self.topics = 0

    def __dealloc__(self):
        free(self.carriers)
        free(self.carriers_known)

    @property
    def any_sync(self):
        """Whether messages wait for a destination now."""
        cdef uint32_t index
        for index in range(self.count):
            if load_acquire(&self.control.data.destination[index].mode) == DESTINATION_SYNC:
                return True
        return False

    @property
    def replicated(self):
        """Log position before which all sync destinations have every record; NOTHING_WAITS: none is sync."""
        cdef uint64_t lowest = NEVER
        cdef uint32_t index
        for index in range(self.count):
            lowest = min(lowest, load_acquire(&self.control.data.destination[index].replicated))
        return lowest

    def are_persisted(self, uint64_t publisher_id, uint64_t before):
        """Whether no sync destination is waited for by the messages of a publisher before a log position."""
        cdef Messages messages
        messages.publisher_id = publisher_id
        messages.derived_id = 0
        messages.before = before
        messages.carriers = NEVER
        messages.known_only = 0
        return self.find(&messages).kind == WAIT_NONE

    def persisted_sequence(self, uint64_t publisher_id, uint64_t last_sequence, uint64_t before):
        """The sequence up to which all messages of a publisher are acknowledged by the sync destinations.

        last_sequence: of its last message in the log, which is before the log position. The result is that or a lower
        one; it may be lower than the highest possible, and 0 means that nothing is known to be acknowledged.
        """
        cdef uint64_t persisted = last_sequence
        cdef uint64_t sequence
        cdef uint64_t until
        cdef uint64_t scanned
        cdef uint64_t replicated
        cdef DestinationLine* line
        cdef PendingTable table
        cdef uint32_t index
        for index in range(self.count):
            line = &self.control.data.destination[index]
            scanned = load_acquire(&line.scanned)
            replicated = load_acquire(&line.replicated)
            if replicated >= before:
                continue
            if scanned < before:
                return 0
            table = <PendingTable>self.tables[index]
            if table.pending(publisher_id, before, replicated, &sequence, &until):
                persisted = min(persisted, sequence - 1 if sequence else 0)
        return persisted

    def may_carry(self, TopicEntry entry not None):
        """The destinations that may get messages of a topic, as bits."""
        return self.carriers_of(entry)

    cdef uint64_t carriers_of(self, TopicEntry entry) except? 0xFFFFFFFFFFFFFFFF:
        cdef uint32_t number = entry.number
        cdef uint32_t topics
        cdef uint64_t* carriers
        cdef uint8_t* known
        if self.find_carriers is None:
            return NEVER
        if number >= self.topics:
            topics = max(<uint32_t>64, number + 1, self.topics * 2)
            carriers = <uint64_t*>realloc(self.carriers, topics * sizeof(uint64_t))
            if carriers == NULL:
                raise MemoryError()
            self.carriers = carriers
            known = <uint8_t*>realloc(self.carriers_known, topics)
            if known == NULL:
                raise MemoryError()
            self.carriers_known = known
            memset(known + self.topics, 0, topics - self.topics)
            self.topics = topics
        if not self.carriers_known[number]:
            self.carriers[number] = self.find_carriers(entry.name, entry.message_type)
            self.carriers_known[number] = 1
        return self.carriers[number]

    cdef Wait find(self, const Messages* messages) noexcept:
        """The first destination that these messages wait for."""
        cdef Wait wait
        cdef uint32_t index
        cdef DestinationLine* line
        wait.destination = 0
        wait.kind = WAIT_NONE
        wait.position = 0
        for index in range(self.count):
            if not messages.carriers >> index & 1:
                continue
            if messages.known_only:
                line = &self.control.data.destination[index]
                if load_acquire(&line.scanned) < messages.before and load_acquire(&line.replicated) < messages.before:
                    wait.destination = index
                    wait.kind = WAIT_SCANNED
                    wait.position = messages.before
                    return wait
                continue
            wait = self.find_of(index, messages.publisher_id, messages.before)
            if wait.kind == WAIT_NONE and messages.derived_id:
                wait = self.find_of(index, messages.derived_id, messages.before)
            if wait.kind != WAIT_NONE:
                return wait
        return wait

    cdef Wait find_of(self, uint32_t index, uint64_t publisher_id, uint64_t before) noexcept:
        """What messages of one publisher wait for at a destination."""
        cdef DestinationLine* line = &self.control.data.destination[index]
        cdef uint64_t scanned = load_acquire(&line.scanned)
        cdef uint64_t replicated = load_acquire(&line.replicated)
        cdef uint64_t sequence
        cdef uint64_t until
        cdef Wait wait
        wait.destination = index
        wait.kind = WAIT_NONE
        wait.position = 0
        if replicated >= before:
            return wait
        if scanned < before:
            wait.kind = WAIT_SCANNED
            wait.position = before
        elif (<PendingTable>self.tables[index]).pending(publisher_id, before, replicated, &sequence, &until):
            wait.kind = WAIT_REPLICATED if until else WAIT_CHANGE
            wait.position = until
        return wait
