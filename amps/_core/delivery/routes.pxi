# The routes of one topic for one tailer: the receivers of each message.
#
# A *member* is a subscription, with a filter or without. A *receiver* gets one frame per message, regardless of how
# many of its members match. It is a connection with all its matching subscriptions, or a single subscription that gets
# its own frames. The cost of adding or removing a member does not grow with their number, so that thousands of clients
# can subscribe while messages are delivered.
#
# Receivers with a select list get other bodies (delivery/bodies.pyx). Members that want out-of-focus messages or deltas
# make each new value of a SOW topic a matter of its state (delivery/focus.pxi): one frame per receiver, too.
#
# All filters are evaluated together, once per message (expressions/filter_set.pxi). Topics without filters have no such
# cost.

from weakref import WeakValueDictionary

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport Filter, EvaluationContext, FilterEntry, FilterSet
from amps._core.journal.reader cimport LogCursor
from amps._core.values.fields cimport ByteBuffer
from amps._core.wire.topics cimport TopicEntry, tell_facts
from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.output cimport OutputBuffer
from amps._core.shm.platform cimport monotonic_ns
from amps._core.sow.table cimport StateReader
from amps._core.values.documents cimport Documents, Selection
from amps._core.journal.record cimport RecordHeader, record_client_id, record_payload

cdef enum:
    EVALUATION_BYTES = 256         # cost of evaluating a filter, as reading that many bytes of log
    NS_PER_BYTE = 2                # to convert the measured time of filters to bytes of log
    LARGE_BYTES = 65536            # size of a message on which evaluating any filter can take long


cdef class Member:
    pass


cdef class Receiver:

    def __init__(self, key, OutputBuffer output, LiveConflation conflation=None, Bodies bodies=None):
        self.key = key
        self.output = output
        self.conflation = conflation
        self.bodies = bodies
        self.deltas = 0
        self.always = []
        self.prefix = None
        self.flags = 0
        self.members = 0
        self.place = -1
        self.serial = 0
        self.first = None
        self.more = None


cdef inline int put(
    Receiver receiver, const char* prefix, uint64_t prefix_length, uint32_t flags, const RecordHeader* record,
    LogCursor cursor,
) except -1:
    """Send a frame with the body that the receiver wants."""
    if receiver.bodies is None:
        return receiver.output.publish(prefix, prefix_length, flags, record, cursor)
    receiver.bodies.make(record)
    return receiver.output.publish_body(
        prefix, prefix_length, flags, record, receiver.bodies.body, receiver.bodies.length, None
    )


cdef inline int publish(
    Receiver receiver, bytes prefix, uint32_t flags, const RecordHeader* record, LogCursor cursor
) except -1:
    return put(
        receiver, PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, record, cursor
    )


cdef inline int hand(
    TopicRoutes self, Receiver receiver, bytes prefix, uint32_t flags, const RecordHeader* record, LogCursor cursor
) except -1:
    """Send a frame to a receiver, or pass the message to its conflation."""
    if receiver.conflation is not None:
        return receiver.conflation.take(record, self.entry, cursor)
    return publish(receiver, prefix, flags, record, cursor)


@cython.final
cdef class TopicRoutes:

    def __init__(self, TopicEntry entry=None, EvaluationContext evaluation=None):
        """evaluation: that of the topic's message type. entry: None for the routes of topics without subscriptions."""
        self.entry = entry
        self.evaluation = evaluation
        self.filters = None
        self.head = b"" if entry is None else b'{"c":"p","t":' + entry.json_name
        self.members = {}
        self.receivers = {}
        self.every = []
        self.touched = []
        self.touched_count = 0
        self.serial = 0
        self.joined = None
        self.bodies = WeakValueDictionary()
        self.focus = None

    def __len__(self):
        return len(self.members)

    def __contains__(self, key):
        return key in self.members

    @property
    def keys(self):
        """The keys of all members."""
        return self.members.keys()

    def add(
        self, key, receiver_key, OutputBuffer output, bytes sub_id, uint32_t flags, Filter filter_=None,
        LiveConflation conflation=None, Selection selection=None, Documents documents=None,
    ):
        """Add a subscription to the topic. Raises ValueError if it is a member already, or has flags for SOW topics
        without `follow`.

        receiver_key: members with the same key share their frames. sub_id: as in a header, without quotes; None if
        frames need no subscription id. flags: see delivery/output.pyx. conflation: the conflation of a receiver with
        this single member. selection, documents: of a receiver that gets selected fields; None: whole messages.
        """
        cdef Member member = Member()
        cdef Receiver receiver = self.receivers.get(receiver_key)
        if key in self.members:
            raise ValueError("the subscription is a member already")
        if flags & (OUT_OF_FOCUS | DELTA) and self.focus is None:
            raise ValueError("the routes do not follow the state of a SOW topic")
        if receiver is None:
            receiver = Receiver(receiver_key, output, conflation, self._bodies(documents, selection))
            self.receivers[receiver_key] = receiver
        member.receiver = receiver
        member.filter = filter_
        member.sub_id = sub_id
        member.flags = flags
        receiver.members += 1
        self.members[key] = member
        if self.focus is not None:
            self.focus.enter(member, self.evaluation)
        if filter_ is None:
            receiver.always.append(member)
            self._always_changed(receiver)
            return
        member.prefix = self._prefix([member])
        if self.filters is None:
            self.filters = FilterSet(self.evaluation)
        self.filters.add(filter_, member)

    def follow(self, StateReader reader):
        """Let members get out-of-focus messages and deltas. reader: of the topic's state, which must be a SOW topic."""
        if self.focus is None:
            self.focus = Focus(reader, self.entry)

    def _bodies(self, Documents documents, Selection selection):
        """The bodies for receivers with a select list; they share one object."""
        if selection is None:
            return None
        found = self.bodies.get(selection.directives)
        if found is None:
            found = self.bodies[selection.directives] = Bodies(documents, selection)
        return found

    def remove(self, key):
        """Remove a subscription."""
        cdef Member member = self.members.pop(key)
        cdef Receiver receiver = member.receiver
        receiver.members -= 1
        if self.focus is not None:
            self.focus.leave(member)
            if self.focus.users == 0:
                self.focus = None
        if receiver.members == 0:
            del self.receivers[receiver.key]
            self.touched = []  # it may still contain the receiver
            self.touched_count = 0
        if member.filter is not None:
            self.filters.remove(member.filter, member)
            if not self.filters.entries:
                self.filters = None
            return
        receiver.always.remove(member)
        self._always_changed(receiver)

    def _always_changed(self, Receiver receiver):
        cdef Member member
        cdef Receiver last
        receiver.flags = 0
        for member in receiver.always:
            receiver.flags |= member.flags
        receiver.prefix = self._prefix(receiver.always)
        if receiver.always and receiver.place < 0:
            receiver.place = len(self.every)
            self.every.append(receiver)
        elif not receiver.always and receiver.place >= 0:
            last = self.every.pop()
            if last is not receiver:
                self.every[receiver.place] = last
                last.place = receiver.place
            receiver.place = -1

    def _prefix(self, members):
        """A frame's header from `{` to the end of `sids`, without the closing brace."""
        cdef Member member
        ids = [member.sub_id for member in members if member.sub_id is not None]
        return self.head + b',"sids":"' + b",".join(ids) + b'"' if ids else self.head

    cdef uint64_t deliver(self, const RecordHeader* record, LogCursor cursor, bint live) except? 0xFFFFFFFFFFFFFFFF:
        """Send a message to all matching receivers. Returns the cost of evaluating filters, in bytes of log.

        live: True if the message has just been published; False if it is replayed.
        """
        cdef uint64_t cost = 0
        if self.filters is not None:
            cost = match(self, self.filters, record, live)
        if self.focus is not None:
            return cost + deliver_change(self, record, cursor)
        send(self, record, cursor)
        return cost

    cdef bint wants(self, const RecordHeader* record, uint64_t* cost) except -1:
        """Whether any receiver matches a replayed message. The matches are kept for `send` until the next call."""
        cost[0] = match(self, self.filters, record, False) if self.filters is not None else 0
        return PyList_GET_SIZE(self.every) > 0 or (self.filters is not None and self.filters.matched_count > 0)

    cdef int send_wanted(self, const RecordHeader* record, LogCursor cursor) except -1:
        """Send the message that `wants` has evaluated to the matching receivers."""
        return send(self, record, cursor)

    cdef int send_to_all(self, const RecordHeader* record, LogCursor cursor) except -1:
        """Send a message to every member without evaluating filters: it has been found to match before."""
        cdef Member member
        cdef Receiver receiver
        for member in self.members.values():
            receiver = member.receiver
            publish(
                receiver,
                receiver.prefix if member.filter is None else member.prefix,
                receiver.flags | member.flags,
                record,
                cursor,
            )
        return 0

    cdef int send_to_matching(self, FilterSet filters, const RecordHeader* record, LogCursor cursor) except -1:
        """Send one frame to each receiver with a matching filter."""
        cdef list members
        cdef Member member
        cdef Receiver receiver
        cdef Py_ssize_t place
        cdef uint32_t at = 0
        self.touched_count = 0
        while at < filters.matched_count:
            members = (<FilterEntry>filters.matched[at]).members
            place = 0
            while place < PyList_GET_SIZE(members):
                member = <Member>members[place]
                receiver = member.receiver
                # A receiver with a single member needs no joined prefix. Frames keep the order of the first matches.
                if receiver.members == 1 and self.touched_count == 0:
                    hand(self, receiver, member.prefix, member.flags, record, cursor)
                else:
                    self.touch(member)
                place += 1
            at += 1
        for at in range(self.touched_count):
            self.send_matched(<Receiver>self.touched[at], record, cursor)
        return 0

    cdef int touch(self, Member member) except -1:
        """Note that the filter of a member matches."""
        cdef Receiver receiver = member.receiver
        if receiver.serial == self.serial:
            if receiver.more is None:
                receiver.more = [member]
            else:
                receiver.more.append(member)
            return 0
        self.touch_receiver(receiver)
        receiver.first = member
        return 0

    cdef int touch_receiver(self, Receiver receiver) except -1:
        """Note that a receiver gets the message."""
        receiver.serial = self.serial
        receiver.first = None
        receiver.more = None
        # Entries of the list are overwritten for each message, like the list of matches.
        if self.touched_count < <uint32_t>PyList_GET_SIZE(self.touched):
            self.touched[self.touched_count] = receiver
        else:
            self.touched.append(receiver)
        self.touched_count += 1
        return 0

    cdef int send_matched(self, Receiver receiver, const RecordHeader* record, LogCursor cursor) except -1:
        """Send one frame for a receiver's members whose filters matched, and its members without a filter."""
        cdef Member member = receiver.first
        if member is not None and receiver.more is None and not receiver.always:
            receiver.first = None
            return hand(self, receiver, member.prefix, member.flags, record, cursor)
        if member is None:
            return hand(self, receiver, receiver.prefix, receiver.flags, record, cursor)
        return self.send_joined(receiver, take_matched(receiver), record, cursor)

    cdef int send_joined(
        self, Receiver receiver, list members, const RecordHeader* record, LogCursor cursor
    ) except -1:
        """Send one frame for several members of a receiver."""
        cdef uint32_t flags = join_prefix(self, self.head, members)
        return put(receiver, <const char*>self.joined.data, self.joined.length, flags, record, cursor)


cdef inline int send(TopicRoutes self, const RecordHeader* record, LogCursor cursor) except -1:
    """Send a message to all matching receivers, after the filters were evaluated."""
    cdef Receiver receiver
    if self.filters is not None:
        self.serial += 1
        if self.filters.matched_count:
            self.send_to_matching(self.filters, record, cursor)
    if PyList_GET_SIZE(self.every):
        for receiver in self.every:
            if receiver.serial != self.serial or self.filters is None:
                hand(self, receiver, receiver.prefix, receiver.flags, record, cursor)
    return 0


cdef inline uint64_t match(
    TopicRoutes self, FilterSet filters, const RecordHeader* record, bint live
) except? 0xFFFFFFFFFFFFFFFF:
    """Evaluate the filters on a message. Returns the cost, in bytes of log."""
    cdef EvaluationContext evaluation = filters.evaluation
    cdef uint64_t evaluations = filters.evaluations
    cdef uint64_t unreadable = evaluation.unreadable
    cdef uint64_t begin = 0
    if filters.may_take_long or record.payload_length > LARGE_BYTES:
        begin = monotonic_ns()
    if filters.asks_message:
        tell_facts(evaluation.context, record, self.entry.raw_name, self.entry.logged, live)
        if live and filters.asks_publisher:
            evaluation.tell_publisher(record_client_id(record))
    filters.match(record_payload(record), record.payload_length)
    if evaluation.unreadable != unreadable:
        evaluation.last_unreadable = (self.entry.name, record.publisher_id, record.sequence)
    if begin:
        return (monotonic_ns() - begin) // NS_PER_BYTE
    return (filters.evaluations - evaluations) * EVALUATION_BYTES + record.payload_length
