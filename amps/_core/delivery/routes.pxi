# Who gets the messages of one topic, from one tailer.
#
# A *member* is a subscription, with a filter or without; a *receiver* gets one frame per message, whatever number of
# its members take it: a connection with all its matching subscriptions, or, where each is served by itself, a
# subscription. Members come and go one by one, at a cost that does not grow with their number, so that thousands of
# clients can subscribe while messages flow.
#
# Filters are evaluated once per message, all of them together (expressions/filter_set.pxi); receivers without filters
# never wait for that, and pay nothing for it.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.expressions.machine cimport Filter, EvaluationContext, FilterEntry, FilterSet
from amps._core.journal.reader cimport LogCursor
from amps._core.values.fields cimport ByteBuffer
from amps._core.wire.topics cimport TopicEntry, tell_facts
from amps._core.delivery.output cimport OutputBuffer
from amps._core.shm.platform cimport monotonic_ns
from amps._core.journal.record cimport RecordHeader, record_client_id, record_payload

cdef enum:
    EVALUATION_BYTES = 256         # evaluating a filter costs about what reading so much log does
    NS_PER_BYTE = 2                # of reading log
    LARGE_BYTES = 65536            # of a message: evaluating any filter can take long


cdef class Member:
    pass


cdef class Receiver:

    def __init__(self, key, OutputBuffer output, LiveConflation conflation=None):
        self.key = key
        self.output = output
        self.conflation = conflation
        self.always = []
        self.prefix = None
        self.flags = 0
        self.members = 0
        self.place = -1
        self.serial = 0
        self.first = None
        self.more = None


cdef inline int publish(
    OutputBuffer output, bytes prefix, uint32_t flags, const RecordHeader* record, LogCursor cursor
) except -1:
    return output.publish(
        PyBytes_AS_STRING(prefix), <uint64_t>PyBytes_GET_SIZE(prefix), flags, record, cursor
    )


cdef inline int hand(
    TopicRoutes self, Receiver receiver, bytes prefix, uint32_t flags, const RecordHeader* record, LogCursor cursor
) except -1:
    """A frame for a receiver, now or when conflation lets it go."""
    if receiver.conflation is not None:
        return receiver.conflation.take(record, self.entry, cursor)
    return publish(receiver.output, prefix, flags, record, cursor)


@cython.final
cdef class TopicRoutes:

    def __init__(self, TopicEntry entry=None, EvaluationContext evaluation=None):
        """evaluation: of the topic's message type. Without an entry: nobody's, for topics that nobody wants."""
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
        LiveConflation conflation=None,
    ):
        """Let a subscription have the messages of this topic.

        receiver_key: members with the same one share their frames. sub_id: as it stands between the quotes of a
        header; None if the receiver does not want to be told. flags: of delivery/output.pyx. conflation: holds the
        messages back, for a receiver of its own.
        """
        cdef Member member = Member()
        cdef Receiver receiver = self.receivers.get(receiver_key)
        if key in self.members:
            raise ValueError("the subscription is a member already")
        if receiver is None:
            receiver = self.receivers[receiver_key] = Receiver(receiver_key, output, conflation)
        member.receiver = receiver
        member.filter = filter_
        member.sub_id = sub_id
        member.flags = flags
        receiver.members += 1
        self.members[key] = member
        if filter_ is None:
            receiver.always.append(member)
            self._always_changed(receiver)
            return
        member.prefix = self._prefix([member])
        if self.filters is None:
            self.filters = FilterSet(self.evaluation)
        self.filters.add(filter_, member)

    def remove(self, key):
        """A subscription leaves."""
        cdef Member member = self.members.pop(key)
        cdef Receiver receiver = member.receiver
        receiver.members -= 1
        if receiver.members == 0:
            del self.receivers[receiver.key]
            self.touched = []  # it may be there still
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
        """Hand a message to all who get it. What evaluating filters cost is returned, in bytes of log.

        live: the message has just been published, as opposed to replayed.
        """
        cdef uint64_t cost = 0
        if self.filters is not None:
            cost = match(self, self.filters, record, live)
        send(self, record, cursor)
        return cost

    cdef bint wants(self, const RecordHeader* record, uint64_t* cost) except -1:
        """Whether anybody gets a message that is replayed; who does, `send` knows until another one is looked at."""
        cost[0] = match(self, self.filters, record, False) if self.filters is not None else 0
        return PyList_GET_SIZE(self.every) > 0 or (self.filters is not None and self.filters.matched_count > 0)

    cdef int send_wanted(self, const RecordHeader* record, LogCursor cursor) except -1:
        """Hand the message to those who want it."""
        return send(self, record, cursor)

    cdef int send_to_all(self, const RecordHeader* record, LogCursor cursor) except -1:
        """Hand a message to every member, whatever its filter: it was found to match before."""
        cdef Member member
        cdef Receiver receiver
        for member in self.members.values():
            receiver = member.receiver
            publish(
                receiver.output,
                receiver.prefix if member.filter is None else member.prefix,
                receiver.flags | member.flags,
                record,
                cursor,
            )
        return 0

    cdef int send_to_matching(self, FilterSet filters, const RecordHeader* record, LogCursor cursor) except -1:
        """One frame for each receiver of which a filter matches."""
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
                # Who has no other member needs nothing put together. Frames keep the order of the first matches.
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
        """A filter of this member matches."""
        cdef Receiver receiver = member.receiver
        if receiver.serial == self.serial:
            if receiver.more is None:
                receiver.more = [member]
            else:
                receiver.more.append(member)
            return 0
        receiver.serial = self.serial
        receiver.first = member
        receiver.more = None
        # Written over and over again, like the list of matches.
        if self.touched_count < <uint32_t>PyList_GET_SIZE(self.touched):
            self.touched[self.touched_count] = receiver
        else:
            self.touched.append(receiver)
        self.touched_count += 1
        return 0

    cdef int send_matched(self, Receiver receiver, const RecordHeader* record, LogCursor cursor) except -1:
        """One frame for the members whose filters matched and those without one."""
        cdef Member member = receiver.first
        cdef uint32_t flags = receiver.flags | member.flags
        cdef list matched
        cdef bint begun = False
        receiver.first = None
        if receiver.more is None and not receiver.always:
            return hand(self, receiver, member.prefix, flags, record, cursor)
        matched = receiver.always + [member] + (receiver.more or [])
        receiver.more = None
        if self.joined is None:
            self.joined = ByteBuffer()
        self.joined.length = 0
        self.joined.append(PyBytes_AS_STRING(self.head), <uint64_t>PyBytes_GET_SIZE(self.head))
        for member in matched:
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
        receiver.output.publish(<const char*>self.joined.data, self.joined.length, flags, record, cursor)
        return 0


cdef inline int send(TopicRoutes self, const RecordHeader* record, LogCursor cursor) except -1:
    """Hand a message to all who get it, after filters were evaluated."""
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
    """Find the filters that match."""
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
