# See delivery/pace.pxi.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from amps._core.delivery.bodies cimport Bodies
from amps._core.delivery.output cimport OutputBuffer
from amps._core.expressions.machine cimport Filter, EvaluationContext, FilterSet
from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport RecordHeader
from amps._core.journal.search cimport TopicSteps
from amps._core.sow.table cimport StateReader
from amps._core.values.documents cimport Documents, Selection
from amps._core.values.fields cimport ByteBuffer, FieldSet
from amps._core.wire.topics cimport TopicEntry


@cython.final
cdef class Pace:
    cdef readonly int kind
    cdef readonly double rate
    cdef readonly uint64_t gap_max_ns      # longest wait between two messages; 0 = no limit
    cdef readonly uint64_t due_ns          # monotonic time at which the refused message will be allowed
    cdef uint64_t now_ns                   # monotonic time of this turn
    cdef double allowance                  # messages or bytes that may be sent; negative after a large message
    cdef double burst
    cdef uint64_t filled_ns                # when the allowance was computed
    cdef uint64_t last_due_ns              # due time of the last message, for multiples of the original speed
    cdef uint64_t last_timestamp_ns        # timestamp of the last message; 0 = none yet

    cdef bint allows(self, const RecordHeader* record) noexcept
    cdef void took(self, const RecordHeader* record) noexcept


# See delivery/replay_bounds.pxi.


cdef enum Verdict:
    VERDICT_BEFORE                 # the range has not begun
    VERDICT_WITHIN
    VERDICT_BEHIND                 # the range ended before this record


cdef struct Bookmark:
    uint64_t publisher_id
    uint64_t sequence


@cython.final
cdef class ReplayBounds:
    cdef uint64_t begin_us         # records of an earlier time are before the range; 0 = it has begun
    cdef readonly bint has_end
    cdef bint end_inclusive
    cdef readonly uint64_t end_position
    cdef readonly uint64_t end_us
    cdef Bookmark* awaited         # bookmarks of ends that are not in the log yet, sorted
    cdef readonly uint64_t awaited_count

    cdef Verdict judge(self, const RecordHeader* record) noexcept nogil
    cdef bint meet(self, const RecordHeader* record) noexcept nogil


# See delivery/conflation.pxi.


@cython.final
cdef class Held:
    """The newest message of a key, with the bookmark and timestamp of the first message held for the key."""

    cdef RecordHeader* record      # a copy, owned by this object
    cdef TopicEntry entry
    cdef bytes key
    cdef uint64_t due_ns           # UNIX time
    cdef uint64_t before_publisher_id   # bookmark of the record before the first one
    cdef uint64_t before_sequence
    cdef uint64_t stepped_at       # log position of the first one if before_* is of an earlier record; else 0
    # of a subscription that follows the state of a SOW topic: see delivery/live_conflation.pxi
    cdef RecordHeader* base        # a copy of the value before the interval; NULL = there was none
    cdef bint base_in_focus
    cdef bytes reason              # of an out-of-focus message; None: the record is to be published
    cdef uint64_t sow_key          # of that record
    cdef ByteBuffer changes        # the fields that changed in the interval; None: none did
    cdef bint whole                # there is no difference to send
    cdef uint64_t bytes            # its memory

    cdef int keep(self, const RecordHeader* record) except -1
    cdef int keep_base(self, const RecordHeader* record) except -1
    cdef uint64_t memory(self) noexcept


@cython.final
cdef class Conflation:
    cdef EvaluationContext evaluation
    cdef FieldSet fields                   # None: the key is that of the SOW topic
    cdef ByteBuffer buffer
    cdef readonly uint64_t interval_ns
    cdef readonly bint adapts
    cdef dict by_key
    cdef object in_order           # deque of Held, in the order of due times
    cdef readonly uint64_t held_bytes
    cdef uint64_t held_bytes_max

    cdef bytes key_of(self, const RecordHeader* record, TopicEntry entry, uint64_t sow_key=*)
    cdef bint hold(
        self, const RecordHeader* record, TopicEntry entry, uint64_t before_publisher_id, uint64_t before_sequence,
        bint stepped
    ) except -1
    cdef Held begin(self, bytes key, const RecordHeader* record, TopicEntry entry, uint64_t time_ns)
    cdef int count(self, Held held) except -1
    cdef Held first(self)
    cdef bint is_due(self, Held held, uint64_t now_ns)
    cdef int release(self, Held held) except -1


# See delivery/live_conflation.pxi.


@cython.final
cdef class LiveConflation:
    cdef Conflation conflation
    cdef OutputBuffer output
    cdef bytes sub_id                      # as in a header, without quotes; None = not sent
    cdef uint32_t flags
    cdef uint32_t flags_if_recorded
    cdef object holds                      # called when it begins to hold messages
    cdef LogCursor cursor                  # cursor of the newest message
    cdef Bodies bodies                     # None: whole messages, and no deltas
    cdef ByteBuffer buffer

    cdef int take(self, const RecordHeader* record, TopicEntry entry, LogCursor cursor) except -1
    cdef int take_change(
        self, const RecordHeader* record, TopicEntry entry, LogCursor cursor, const RecordHeader* before, bint in_focus
    ) except -1
    cdef int take_leaving(
        self, bytes reason, uint64_t sow_key, TopicEntry entry, LogCursor cursor, const RecordHeader* before,
        uint64_t time_ns,
    ) except -1
    cdef int note_changes(
        self, Held held, const RecordHeader* record, const RecordHeader* before, FieldSet keys
    ) except -1
    cdef int begun(self, bint held_nothing) except -1
    cdef int finish(self, Held held) except -1
    cdef int send_changes(self, Held held, uint32_t flags) except -1
    cdef bytes prefix_of(self, bytes head, TopicEntry entry)
    cdef int send(self, const RecordHeader* record, TopicEntry entry) except -1
    cdef int release(self, uint64_t until_ns) except -1


# The receivers of the messages of one topic. See delivery/routes.pxi.


cdef class Member:
    """One subscription of a topic."""

    cdef Receiver receiver
    cdef Filter filter                     # None: every message
    cdef bytes sub_id                      # as in a header, without quotes; None = not sent
    cdef bytes prefix                      # prefix of a frame for this subscription alone
    cdef uint32_t flags
    # of the current change of a SOW topic: `serial` of the routes, if its filter matches
    cdef uint64_t matched                  # the new message
    cdef uint64_t matched_before           # the value before


cdef class Receiver:
    """The destination of one frame per message: a connection, or a subscription that gets its own frames."""

    cdef object key
    cdef OutputBuffer output
    cdef LiveConflation conflation         # conflation of its only member; None for most
    cdef Bodies bodies                     # of its select list; None: whole messages
    cdef uint32_t deltas                   # number of members that want deltas
    cdef list always                       # members without a filter
    cdef bytes prefix                      # prefix of a frame for these
    cdef uint32_t flags
    cdef uint32_t members                  # number of members with and without a filter
    cdef int64_t place                     # index in `every` of its TopicRoutes; -1 = not in it
    # of the current message
    cdef uint64_t serial
    cdef Member first                      # the first member whose filter matched
    cdef list more                         # the other members that matched, or None


# See delivery/focus.pxi.


@cython.final
cdef class Focus:
    cdef StateReader reader
    cdef FieldSet keys                     # fields of the topic's key
    cdef Bodies whole                      # of receivers without a select list
    cdef bytes head                        # beginning of the header of an out-of-focus message
    cdef FilterSet filters                 # of the members with `oof` and a filter; None: there are none
    cdef list unfiltered                   # members with `oof` and without a filter
    cdef uint32_t filtered_count           # members in `filters`
    cdef uint32_t closely_count            # of these, those that need to know whether the value before matched
    cdef uint32_t users                    # members with `oof` or deltas

    cdef int enter(self, Member member, EvaluationContext evaluation) except -1
    cdef int leave(self, Member member) except -1


# See delivery/routes.pxi.


@cython.final
cdef class TopicRoutes:
    cdef readonly TopicEntry entry
    cdef EvaluationContext evaluation
    cdef FilterSet filters                 # None: no member has a filter
    cdef bytes head                        # beginning of every frame's header
    cdef dict members                      # by key
    cdef dict receivers                    # by key
    cdef list every                        # receivers with a member without a filter
    cdef list touched                      # first `touched_count`: receivers whose filters matched the message
    cdef uint32_t touched_count
    cdef uint64_t serial
    cdef ByteBuffer joined                 # buffer for a prefix with several subscription ids
    cdef object bodies                     # by the directives of a select list: Bodies, while a receiver uses it
    cdef Focus focus                       # None: no member needs the state of the SOW topic

    cdef uint64_t deliver(self, const RecordHeader* record, LogCursor cursor, bint live) except? 0xFFFFFFFFFFFFFFFF
    cdef bint wants(self, const RecordHeader* record, uint64_t* cost) except -1
    cdef int send_wanted(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_all(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_matching(self, FilterSet filters, const RecordHeader* record, LogCursor cursor) except -1
    cdef int touch(self, Member member) except -1
    cdef int touch_receiver(self, Receiver receiver) except -1
    cdef int send_matched(self, Receiver receiver, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_joined(
        self, Receiver receiver, list members, const RecordHeader* record, LogCursor cursor
    ) except -1


# See delivery/delivery.pxi.


cdef class StateFollower:
    """Gets every change of one SOW topic, besides the routes."""

    cdef uint64_t take_value(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF
    cdef uint64_t take_removal(
        self, TopicEntry entry, const RecordHeader* record, LogCursor cursor
    ) except? 0xFFFFFFFFFFFFFFFF


@cython.final
cdef class Group:
    """The subscriptions of one tailer, as routes per topic.

    find_routes(entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes is called when a topic's
    routes are needed and subscriptions have changed. `since` is the generation of the last call for the topic (0:
    none). `current` is the result of that call, or None if it is no longer valid. The function may return `current`
    again, modified or not.
    """

    cdef object find_routes
    cdef list routes               # by topic number: TopicRoutes, or None
    cdef dict followers            # by topic number: StateFollower; None: there are none
    cdef bint live                 # True: messages as they are published; False: from the log
    cdef uint64_t* asked           # by topic number: generation of the last call of find_routes
    cdef uint64_t capacity
    cdef readonly uint64_t generation
    cdef uint64_t work             # cost of routing so far, in bytes of log; it counts against a tailer's turn

    cdef int grow(self, uint32_t number) except -1
    cdef TopicRoutes ask(self, TopicEntry entry)


cdef inline TopicRoutes routes_of(Group group, TopicEntry entry):
    cdef uint32_t number = entry.number
    if (
        number < <uint32_t>PyList_GET_SIZE(group.routes)
        and group.asked[number] == group.generation
        and group.routes[number] is not None
    ):
        return <TopicRoutes>group.routes[number]
    return group.ask(entry)


cdef class JournalTailer:
    """Reads the journal for one group: the durable tailer, or a replay."""

    cdef readonly LogCursor cursor
    cdef readonly Group group
    cdef readonly uint64_t last_publisher_id   # bookmark of the last record evaluated; 0 = none yet
    cdef readonly uint64_t last_sequence
    cdef readonly bint stops_at_files          # a run ends when the cursor enters another file
    cdef readonly TopicSteps steps             # for the file at the cursor; None: every record is read
    cdef readonly bint stepped                 # records behind the last evaluated one were stepped over
    cdef uint64_t stepped_bytes                # total number of bytes stepped over

    cdef bint may_step(self) noexcept
    cdef bint begin_steps(self) except -1
    cdef bint step_over(self, uint64_t limit) noexcept
    cdef bint enter_file(self) noexcept
