# Conflation of an ordinary subscription (protocol.md §8.3): the newest message of each key in an interval is delivered.
#
# Messages are held as in a replay (delivery/conflation.pxi), with the same intervals and timestamps. But the time is
# always that of the clock. The frame of a held message is made from its copy when it is due.
#
# Invariants: A caller that calls `run` at `due_ns` at the latest sends every held message in time. When messages are
# held, `holds` has been called since the last moment at which none was held.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.journal.reader cimport LogCursor
from amps._core.delivery.output cimport OutputBuffer
from amps._core.journal.record cimport RecordHeader
from amps._core.wire.topics cimport TopicEntry

cdef enum:
    BEFORE_ALL = 0                 # a time at which only messages beyond the memory limit are due

cdef uint64_t AFTER_ALL = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class LiveConflation:

    def __init__(
        self, Conflation conflation, OutputBuffer output, bytes sub_id, uint32_t flags,
        uint32_t flags_if_recorded, holds
    ):
        """sub_id: as in TopicRoutes.add. flags, flags_if_recorded: see delivery/output.pyx; for messages of unrecorded
        and of recorded topics. holds: called with this object when a message is held and none was before.
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
        """UNIX time in ns at which the first held message is due; None if none is held."""
        return self.conflation.due_ns

    def run(self, uint64_t now_ns, bint behind):
        """Send the due messages. behind: the client does not take its output; an adaptive interval then grows."""
        self.conflation.adapt(behind)
        self.release(now_ns)

    def send_held(self):
        """Send all held messages, before the subscription changes."""
        self.release(AFTER_ALL)

    cdef int take(self, const RecordHeader* record, TopicEntry entry, LogCursor cursor) except -1:
        """Take a message for the subscription: hold it, or send it."""
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
