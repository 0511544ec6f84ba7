# Conflation of an ordinary subscription (protocol.md §8.3): of the messages of an interval, the newest
# one of each key.
#
# What is held, how long, and under which time, is as on a replay (delivery/conflation.pxi); but the clock is always
# the time, and nothing reads on at a held message: its frame is made when it is due, of the copy.
#
# Invariants: who calls `run` at `due_ns` at the latest forgets nothing; `holds` was called since nothing was held.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.reader cimport LogCursor
from amps._core.delivery.output cimport OutputBuffer
from amps._core.journal.record cimport RecordHeader
from amps._core.wire.topics cimport TopicEntry

cdef enum:
    BEFORE_ALL = 0                 # a time at which only what there is no room for is due

cdef uint64_t AFTER_ALL = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class LiveConflation:

    def __init__(
        self, Conflation conflation, OutputBuffer output, bytes sub_id, uint32_t flags,
        uint32_t flags_if_recorded, holds
    ):
        """sub_id: as in TopicRoutes.add. flags: of delivery/output.pyx, for messages of a topic that is not recorded,
        and of one that is. holds: called when something is held, and nothing was before.
        """
        self.conflation = conflation
        self.output = output
        self.sub_id = sub_id
        self.flags = flags
        self.flags_if_recorded = flags_if_recorded
        self.holds = holds
        self.cursor = None

    @property
    def due_ns(self):
        """When the first of what is held is due (UNIX time); None if nothing is held."""
        return self.conflation.due_ns

    def run(self, uint64_t now_ns, bint behind):
        """Send what is due. behind: the client does not take its output; an interval that adapts grows by that."""
        self.conflation.adapt(behind)
        self.release(now_ns)

    def send_held(self):
        """Send everything that is held: the subscription is about to become another one."""
        self.release(AFTER_ALL)

    cdef int take(self, const RecordHeader* record, TopicEntry entry, LogCursor cursor) except -1:
        """A message for the subscription."""
        cdef bint held_nothing = self.conflation.first() is None
        self.cursor = cursor
        if not self.conflation.hold(record, entry, 0, 0, False):
            return self.send(record, entry)
        self.release(BEFORE_ALL)
        if held_nothing and self.conflation.first() is not None:
            self.holds(self)
        return 0

    cdef int release(self, uint64_t until_ns) except -1:
        cdef Held held
        while True:
            held = self.conflation.first()
            if held is None or not self.conflation.is_due(held, until_ns):
                return 0
            self.conflation.release(held)
            self.send(held.record, held.entry)

    cdef int send(self, const RecordHeader* record, TopicEntry entry) except -1:
        cdef bytes prefix = b'{"c":"p","t":' + entry.json_name
        if self.sub_id is not None:
            prefix += b',"sids":"' + self.sub_id + b'"'
        return self.output.publish(
            PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix),
            self.flags_if_recorded if entry.logged else self.flags, record, self.cursor
        )
