# What subscriptions to a SOW topic get besides the messages that match: out-of-focus messages, and deltas
# (sow.md §§13, 17).
#
# Both need the value that a record had before. Each record names its place, and it is read there only if a
# subscription needs it: if the filter of a member with `oof` does not match the new message, or if a member that
# wants deltas gets it.
#
# Focus is decided by states, not by what was delivered (D9). A record *leaves* a member if the value before matches its
# filter, and the new message does not, or the record is removed. The filters of the members with `oof` are a set of
# their own, which is evaluated once on the value before.
#
# A value before that cannot be read counts as none, and is reported like a message that cannot be read. Reading it may
# wait for the disk; it is in the page cache nearly always, because it was current until now.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport FilterEntry, FilterSet
from amps._core.journal.reader import LogDamaged, LogRemoved
from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport KIND_SOW_EXPIRY, RecordHeader, RecordState, RemovedKey, record_state
from amps._core.sow.table cimport StateReader, is_removal, removed_keys

cdef enum:
    OUT_OF_FOCUS = 32              # as in delivery/output.pyx
    DELTA = 64
    NO_EMPTIES = 128

cdef bytes REASON_MATCH = b"match"
cdef bytes REASON_DELETED = b"deleted"
cdef bytes REASON_EXPIRED = b"expired"


@cython.final
cdef class Focus:
    """What the routes of a SOW topic need for its members with `oof`, and for those that want deltas."""

    def __init__(self, StateReader reader not None, TopicEntry entry not None):
        self.reader = reader
        self.keys = entry.sow.keys.fields.fields
        self.whole = Bodies(entry.sow.documents)
        self.head = b'{"c":"oof","t":' + entry.json_name
        self.filters = None
        self.unfiltered = []
        self.filtered_count = 0
        self.closely_count = 0
        self.users = 0

    cdef int enter(self, Member member, EvaluationContext evaluation) except -1:
        if member.flags & (OUT_OF_FOCUS | DELTA) == 0:
            return 0
        self.users += 1
        if member.flags & DELTA:
            member.receiver.deltas += 1
        if member.flags & OUT_OF_FOCUS == 0:
            return 0
        if member.filter is None:
            self.unfiltered.append(member)
            return 0
        if self.filters is None:
            self.filters = FilterSet(evaluation)
        self.filters.add(member.filter, member)
        self.filtered_count += 1
        if member.flags & DELTA or member.receiver.conflation is not None:
            self.closely_count += 1
        return 0

    cdef int leave(self, Member member) except -1:
        if member.flags & (OUT_OF_FOCUS | DELTA) == 0:
            return 0
        self.users -= 1
        if member.flags & DELTA:
            member.receiver.deltas -= 1
        if member.flags & OUT_OF_FOCUS == 0:
            return 0
        if member.filter is None:
            self.unfiltered.remove(member)
            return 0
        self.filters.remove(member.filter, member)
        self.filtered_count -= 1
        if member.flags & DELTA or member.receiver.conflation is not None:
            self.closely_count -= 1
        if not self.filters.entries:
            self.filters = None
        return 0


cdef const RecordHeader* read_value(TopicRoutes self, uint64_t place) except? NULL:
    """The value at a place; NULL: there is none, or it cannot be read."""
    cdef const RecordHeader* found
    if place == 0:
        return NULL
    try:
        found = self.focus.reader.at(place)
    except (LogDamaged, LogRemoved):
        self.evaluation.unreadable += 1
        self.evaluation.last_unreadable = (self.entry.name, 0, 0)
        return NULL
    return NULL if is_removal(found) else found


cdef uint64_t deliver_change(
    TopicRoutes self, const RecordHeader* record, LogCursor cursor
) except? 0xFFFFFFFFFFFFFFFF:
    """Deliver a new value of a SOW topic whose filters were evaluated. Returns the cost of what was done besides."""
    cdef Focus focus = self.focus
    cdef const RecordState* state = record_state(record)
    cdef const RecordHeader* before = NULL
    cdef Member member
    cdef Receiver receiver
    cdef uint64_t cost = 0
    cdef uint64_t serial
    cdef uint32_t matched = 0
    cdef uint32_t at
    cdef bint needed = False
    cdef bint compared = False
    self.serial += 1
    serial = self.serial
    self.touched_count = 0
    if self.filters is not None:
        for at in range(self.filters.matched_count):
            for member in (<FilterEntry>self.filters.matched[at]).members:
                member.matched = serial
                matched += 1 if member.flags & OUT_OF_FOCUS else 0
                needed = needed or member.flags & DELTA
                self.touch(member)
    for receiver in self.every:
        needed = needed or receiver.deltas
        if receiver.serial != serial:
            self.touch_receiver(receiver)
    if state != NULL and (needed or matched < focus.filtered_count or focus.closely_count):
        before = read_value(self, state.previous)
    if before != NULL and focus.filters is not None and (matched < focus.filtered_count or focus.closely_count):
        compared = True
        cost = match(self, focus.filters, before, True)
        for at in range(focus.filters.matched_count):
            for member in (<FilterEntry>focus.filters.matched[at]).members:
                member.matched_before = serial
    for at in range(self.touched_count):
        send_change(self, <Receiver>self.touched[at], record, cursor, before, serial)
    if not compared:
        return 0
    self.serial += 1
    self.touched_count = 0
    for at in range(focus.filters.matched_count):
        for member in (<FilterEntry>focus.filters.matched[at]).members:
            if member.matched != serial:
                self.touch(member)
    for at in range(self.touched_count):
        send_leaving(
            self, <Receiver>self.touched[at], REASON_MATCH, state.key, record, before, record.timestamp_ns, cursor
        )
    return cost


cdef uint64_t deliver_removal(
    TopicRoutes self, const RecordHeader* record, LogCursor cursor
) except? 0xFFFFFFFFFFFFFFFF:
    """Send out-of-focus messages for keys that were removed. Returns the cost, in bytes of log."""
    cdef Focus focus = self.focus
    cdef const RecordHeader* before
    cdef const RemovedKey* keys
    cdef Member member
    cdef bytes reason = REASON_EXPIRED if record.kind == KIND_SOW_EXPIRY else REASON_DELETED
    cdef uint64_t cost = 0
    cdef uint32_t count = 0
    cdef uint32_t number
    cdef uint32_t at
    if focus.filters is None and not PyList_GET_SIZE(focus.unfiltered):
        return 0
    keys = removed_keys(record, &count)
    for number in range(count):
        before = read_value(self, keys[number].previous)
        if before == NULL:
            continue
        self.serial += 1
        self.touched_count = 0
        cost += before.length
        if focus.filters is not None:
            cost += match(self, focus.filters, before, True)
            for at in range(focus.filters.matched_count):
                for member in (<FilterEntry>focus.filters.matched[at]).members:
                    self.touch(member)
        for member in focus.unfiltered:
            self.touch(member)
        for at in range(self.touched_count):
            send_leaving(
                self, <Receiver>self.touched[at], reason, keys[number].key, before, before, record.timestamp_ns, cursor
            )
    return cost


cdef bint wants_whole(Member member, uint64_t serial) noexcept:
    """Whether a member that matches gets the whole message: it wants no delta, or the record comes into focus."""
    if member.flags & DELTA == 0:
        return True
    return member.flags & OUT_OF_FOCUS and member.filter is not None and member.matched_before != serial


cdef int send_change(
    TopicRoutes self, Receiver receiver, const RecordHeader* record, LogCursor cursor, const RecordHeader* before,
    uint64_t serial,
) except -1:
    """Send a new value to a receiver, to its members that match: whole, or what changed."""
    cdef Member member
    cdef Bodies bodies
    cdef list matched
    cdef list wanting
    cdef int found
    cdef bint whole = receiver.deltas == 0 or before == NULL
    cdef bint in_focus
    cdef uint32_t flags
    if receiver.conflation is not None:
        member = receiver.first if receiver.first is not None else <Member>receiver.always[0]
        receiver.first = None
        if member.flags & (OUT_OF_FOCUS | DELTA) == 0:
            return receiver.conflation.take(record, self.entry, cursor)
        in_focus = before != NULL and (member.filter is None or member.matched_before == serial)
        return receiver.conflation.take_change(record, self.entry, cursor, before, in_focus)
    if whole:
        return self.send_matched(receiver, record, cursor)
    matched = take_matched(receiver)
    for member in matched:
        if wants_whole(member, serial):
            whole = True
            break
    if not whole:
        bodies = receiver.bodies if receiver.bodies is not None else self.focus.whole
        found = bodies.compare(before, record, self.focus.keys)
        whole = found < 0
        if found == 0:
            wanting = [member for member in matched if not (<Member>member).flags & NO_EMPTIES]
            if not wanting:
                return 0
            matched = wanting
    if whole:
        return self.send_joined(receiver, matched, record, cursor)
    flags = join_prefix(self, self.head, matched)
    return receiver.output.publish_body(
        <const char*>self.joined.data, self.joined.length, flags, record, bodies.body, bodies.length, None
    )


cdef int send_leaving(
    TopicRoutes self, Receiver receiver, bytes reason, uint64_t key, const RecordHeader* record,
    const RecordHeader* before, uint64_t time_ns, LogCursor cursor,
) except -1:
    """Tell a receiver that a record left the members that were touched. record: the one whose body is sent."""
    cdef list members = take_touched(receiver)
    cdef Bodies bodies = receiver.bodies if receiver.bodies is not None else self.focus.whole
    cdef uint32_t flags
    if receiver.conflation is not None:
        return receiver.conflation.take_leaving(reason, key, self.entry, cursor, before, time_ns)
    flags = join_prefix(self, self.focus.head, members)
    bodies.make(record)
    return receiver.output.out_of_focus(
        <const char*>self.joined.data, self.joined.length, flags, reason, key, record,
        bodies.body, bodies.length,
    )


cdef list take_touched(Receiver receiver):
    """The members of a receiver that were touched."""
    cdef list members = [receiver.first] + (receiver.more or [])
    receiver.first = None
    receiver.more = None
    return members


cdef list take_matched(Receiver receiver):
    """The members of a receiver that match: those that were touched, and those without a filter."""
    cdef list members = receiver.always + ([] if receiver.first is None else [receiver.first]) + (receiver.more or [])
    receiver.first = None
    receiver.more = None
    return members


cdef uint32_t join_prefix(TopicRoutes self, bytes head, list members) except? 0xFFFFFFFF:
    """Begin the header of a frame in `joined`, with the ids of members. Returns their flags together."""
    cdef Member member
    cdef uint32_t flags = 0
    cdef bint begun = False
    if self.joined is None:
        self.joined = ByteBuffer()
    self.joined.length = 0
    self.joined.append(PyBytes_AS_STRING(head), <uint64_t>PyBytes_GET_SIZE(head))
    for member in members:
        flags |= member.flags
        if member.sub_id is None:
            continue
        if begun:
            self.joined.append_byte(c',')
        else:
            self.joined.append(b',"sids":"', 9)
            begun = True
        self.joined.append(PyBytes_AS_STRING(member.sub_id), <uint64_t>PyBytes_GET_SIZE(member.sub_id))
    if begun:
        self.joined.append_byte(c'"')
    return flags
