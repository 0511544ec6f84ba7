# Conflation of an ordinary subscription (protocol.md §8.3): the newest message of each key in an interval is delivered.
#
# Messages are held as in a replay (delivery/conflation.pxi), with the same intervals and timestamps. But the time is
# always that of the clock. The frame of a held message is made from its copy when it is due.
#
# A subscription with `oof` or deltas also holds the value before the interval, its *base* (D13). It is what the
# client has received, if it was in focus. So at the end of the interval, a record that has left gives an out-of-focus
# message with the base as the body, or nothing if the base was not in focus. A delta is the difference between the
# base and the newest value. It also has the fields that changed in between and have their old value again.
#
# Invariants: A caller that calls `run` at `due_ns` at the latest sends every held message in time. When messages are
# held, `holds` has been called since the last moment at which none was held.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free

from amps._core.journal.reader cimport LogCursor
from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.output cimport OutputBuffer
from amps._core.journal.record cimport RecordHeader
from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer, FieldSet
from amps._core.wire.topics cimport TopicEntry

cdef enum:
    BEFORE_ALL = 0                 # a time at which only messages beyond the memory limit are due

cdef uint64_t AFTER_ALL = 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class LiveConflation:

    def __init__(
        self, Conflation conflation, OutputBuffer output, bytes sub_id, uint32_t flags,
        uint32_t flags_if_recorded, holds, Documents documents=None, Selection selection=None,
    ):
        """sub_id: as in TopicRoutes.add. flags, flags_if_recorded: see delivery/output.pyx; for messages of unrecorded
        and of recorded topics. holds: called with this object when a message is held and none was before. documents,
        selection: as in TopicRoutes.add; documents are needed for deltas, too.
        """
        self.conflation = conflation
        self.output = output
        self.sub_id = sub_id
        self.flags = flags
        self.flags_if_recorded = flags_if_recorded
        self.holds = holds
        self.cursor = None
        self.bodies = Bodies(documents, selection)
        self.buffer = ByteBuffer()

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
        return self.begun(held_nothing)

    cdef int begun(self, bint held_nothing) except -1:
        """Note that something is held. held_nothing: nothing was held before."""
        self.release(BEFORE_ALL)
        if held_nothing and self.conflation.first() is not None:
            self.holds(self)
        return 0

    cdef int take_change(
        self, const RecordHeader* record, TopicEntry entry, LogCursor cursor, const RecordHeader* before, bint in_focus
    ) except -1:
        """Take a new value of a SOW topic that matches. before: the value before; NULL: there was none. in_focus:
        whether that one matched.
        """
        cdef bint held_nothing = self.conflation.first() is None
        cdef bytes key = self.conflation.key_of(record, entry)
        cdef Held held
        self.cursor = cursor
        if key is None:
            return self.send(record, entry)
        held = <Held>self.conflation.by_key.get(key)
        if held is None:
            held = self.conflation.begin(key, record, entry, record.timestamp_ns)
            if before != NULL:
                held.keep_base(before)
                held.base_in_focus = in_focus
        else:
            if held.reason is not None:
                # The first message to be published gives bookmark and timestamp.
                held.reason = None
                free(held.record)
                held.record = NULL
            held.keep(record)
        if self.flags & DELTA and before != NULL:
            self.note_changes(held, record, before, entry.sow.keys.fields.fields)
        self.conflation.count(held)
        return self.begun(held_nothing)

    cdef int take_leaving(
        self, bytes reason, uint64_t sow_key, TopicEntry entry, LogCursor cursor, const RecordHeader* before,
        uint64_t time_ns,
    ) except -1:
        """Take the news that a record has left the subscription. before: the last value that matched."""
        cdef bint held_nothing = self.conflation.first() is None
        cdef bytes key = self.conflation.key_of(before, entry, sow_key)
        cdef Held held
        self.cursor = cursor
        if key is None:
            return 0
        held = <Held>self.conflation.by_key.get(key)
        if held is None:
            held = self.conflation.begin(key, before, entry, time_ns)
            held.keep_base(before)
            held.base_in_focus = True
            self.conflation.count(held)
        held.reason = reason
        held.sow_key = sow_key
        return self.begun(held_nothing)

    cdef int note_changes(
        self, Held held, const RecordHeader* record, const RecordHeader* before, FieldSet keys
    ) except -1:
        """Add what a new value changes to the fields that changed in the interval."""
        cdef Bodies bodies = self.bodies
        cdef ByteBuffer merged
        cdef int found
        if held.whole or held.base == NULL:
            return 0
        found = bodies.compare(before, record, keys)
        if found == 0:
            return 0
        merged = ByteBuffer()
        if found > 0 and held.changes is None:
            merged.append(bodies.body, bodies.length)
        elif found < 0 or not bodies.documents.merge(
            held.changes.data, held.changes.length, bodies.body, bodies.length, merged
        ):
            held.whole = True
        held.changes = merged
        return 0

    cdef int release(self, uint64_t until_ns) except -1:
        cdef Held held
        while True:
            held = self.conflation.first()
            if held is None or not self.conflation.is_due(held, until_ns):
                return 0
            self.conflation.release(held)
            self.finish(held)

    cdef int finish(self, Held held) except -1:
        """Send what an interval has left."""
        cdef uint32_t flags = self.flags_if_recorded if held.entry.logged else self.flags
        cdef bytes prefix
        if held.reason is not None:
            if held.base != NULL and held.base_in_focus:
                prefix = self.prefix_of(b'{"c":"oof","t":', held.entry)
                self.bodies.make(held.base)
                self.output.out_of_focus(
                    PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, held.reason, held.sow_key,
                    held.base, self.bodies.body, self.bodies.length,
                )
            return 0
        if (
            flags & DELTA and held.base != NULL and not held.whole
            and (held.base_in_focus or not flags & OUT_OF_FOCUS)
        ):
            return self.send_changes(held, flags)
        return self.send(held.record, held.entry)

    cdef int send_changes(self, Held held, uint32_t flags) except -1:
        """Send the difference between the base and the newest value, with the fields that changed in between."""
        cdef FieldSet keys = held.entry.sow.keys.fields.fields
        cdef Bodies bodies = self.bodies
        cdef Documents documents = bodies.documents
        cdef bytes prefix = self.prefix_of(b'{"c":"p","t":', held.entry)
        cdef int found = bodies.compare(held.base, held.record, keys)
        cdef const uint8_t* body = bodies.body
        cdef uint64_t length = bodies.length
        cdef ByteBuffer final_ = ByteBuffer()
        if found < 0:
            return self.send(held.record, held.entry)
        if found == 0 and held.changes is None and flags & NO_EMPTIES:
            return 0
        if held.changes is not None:
            # A field that was removed after it had changed has a value there that is not the last one. A delta without
            # the fields that have their old value again is right, too.
            bodies.make(held.record)
            self.buffer.length = 0
            if (
                documents.merge(bodies.body, bodies.length, held.changes.data, held.changes.length, final_)
                and documents.difference(
                    bodies.body, bodies.length, final_.data, final_.length, keys, self.buffer
                ) == 0
            ):
                self.buffer.length = 0
                if documents.merge(body, length, held.changes.data, held.changes.length, self.buffer):
                    body = self.buffer.data
                    length = self.buffer.length
        return self.output.publish_body(
            PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, held.record, body, length, None
        )

    cdef bytes prefix_of(self, bytes head, TopicEntry entry):
        """The beginning of a frame's header, up to and including `sids`."""
        if self.sub_id is None:
            return head + entry.json_name
        return head + entry.json_name + b',"sids":"' + self.sub_id + b'"'

    cdef int send(self, const RecordHeader* record, TopicEntry entry) except -1:
        cdef bytes prefix = self.prefix_of(b'{"c":"p","t":', entry)
        cdef uint32_t flags = self.flags_if_recorded if entry.logged else self.flags
        if self.bodies.selection is None:
            return self.output.publish(
                PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, record, self.cursor
            )
        self.bodies.make(record)
        return self.output.publish_body(
            PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, record,
            self.bodies.body, self.bodies.length, None,
        )
