# See delivery/pace.pxi.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from amps._core.delivery.output cimport OutputBuffer
from amps._core.expressions.machine cimport Filter, EvaluationContext, FilterSet
from amps._core.journal.reader cimport LogCursor
from amps._core.journal.record cimport RecordHeader
from amps._core.journal.search cimport TopicSteps
from amps._core.values.fields cimport ByteBuffer, FieldSet
from amps._core.wire.topics cimport TopicEntry


@cython.final
cdef class Pace:
    cdef readonly int kind
    cdef readonly double rate
    cdef readonly uint64_t gap_max_ns      # of waiting between two messages; 0 = any
    cdef readonly uint64_t due_ns          # when what was refused will be allowed (monotonic)
    cdef uint64_t now_ns                   # of this turn (monotonic)
    cdef double allowance                  # messages or bytes that may go; negative after a large message
    cdef double burst
    cdef uint64_t filled_ns                # when the allowance was worked out
    cdef uint64_t last_due_ns              # of the last message, at multiples of the original speed
    cdef uint64_t last_timestamp_ns        # of the last message in the log; 0 = none yet

    cdef bint allows(self, const RecordHeader* record) noexcept
    cdef void took(self, const RecordHeader* record) noexcept


# See delivery/replay_bounds.pxi.


cdef enum Verdict:
    VERDICT_BEFORE                 # the range has not begun
    VERDICT_WITHIN
    VERDICT_BEHIND                 # the range has ended before this record


cdef struct Bookmark:
    uint64_t publisher_id
    uint64_t sequence


@cython.final
cdef class ReplayBounds:
    cdef uint64_t begin_us         # records of an earlier time are not in the range; 0 = it has begun
    cdef readonly bint has_end
    cdef bint end_inclusive
    cdef readonly uint64_t end_position
    cdef readonly uint64_t end_us
    cdef Bookmark* awaited         # ends that are not in the log yet, sorted
    cdef readonly uint64_t awaited_count

    cdef Verdict judge(self, const RecordHeader* record) noexcept nogil
    cdef bint meet(self, const RecordHeader* record) noexcept nogil


# See delivery/conflation.pxi.


@cython.final
cdef class Held:
    """The newest message of a key, with bookmark and time of the first one that is held for it."""

    cdef RecordHeader* record      # a copy of our own
    cdef TopicEntry entry
    cdef bytes key
    cdef uint64_t due_ns           # UNIX time
    cdef uint64_t before_publisher_id   # bookmark of the record before the first one
    cdef uint64_t before_sequence
    cdef uint64_t stepped_at       # log position of the first one, if that is the bookmark of an earlier record; else 0

    cdef int keep(self, const RecordHeader* record) except -1


@cython.final
cdef class Conflation:
    cdef EvaluationContext evaluation
    cdef FieldSet fields
    cdef ByteBuffer buffer
    cdef readonly uint64_t interval_ns
    cdef readonly bint adapts
    cdef dict by_key
    cdef object in_order           # deque of Held; the first one is due first
    cdef readonly uint64_t held_bytes
    cdef uint64_t held_bytes_max

    cdef bytes key_of(self, const RecordHeader* record, TopicEntry entry)
    cdef bint hold(
        self, const RecordHeader* record, TopicEntry entry, uint64_t before_publisher_id, uint64_t before_sequence,
        bint stepped
    ) except -1
    cdef Held first(self)
    cdef bint is_due(self, Held held, uint64_t now_ns)
    cdef int release(self, Held held) except -1


# See delivery/live_conflation.pxi.


@cython.final
cdef class LiveConflation:
    cdef Conflation conflation
    cdef OutputBuffer output
    cdef bytes sub_id                      # as it stands between the quotes of a header; None = not told
    cdef uint32_t flags
    cdef uint32_t flags_if_recorded
    cdef object holds                      # called when it begins to hold something
    cdef LogCursor cursor                  # of the newest message

    cdef int take(self, const RecordHeader* record, TopicEntry entry, LogCursor cursor) except -1
    cdef int send(self, const RecordHeader* record, TopicEntry entry) except -1
    cdef int release(self, uint64_t until_ns) except -1


# Who gets the messages of one topic. See delivery/routes.pxi.


cdef class Member:
    """One subscription of a topic."""

    cdef Receiver receiver
    cdef Filter filter                     # None: every message
    cdef bytes sub_id                      # as it stands between the quotes of a header; None = not told
    cdef bytes prefix                      # of a frame for this subscription alone
    cdef uint32_t flags


cdef class Receiver:
    """Who gets one frame: a connection, or a subscription that is served by itself."""

    cdef object key
    cdef OutputBuffer output
    cdef LiveConflation conflation         # holds the messages of its only member back; None for most
    cdef list always                       # members without a filter
    cdef bytes prefix                      # of a frame for these
    cdef uint32_t flags
    cdef uint32_t members                  # with a filter and without
    cdef int64_t place                     # among those who get every message; -1 = not among them
    # of the current message
    cdef uint64_t serial
    cdef Member first                      # a member whose filter matched
    cdef list more                         # the others, or None


@cython.final
cdef class TopicRoutes:
    cdef readonly TopicEntry entry
    cdef EvaluationContext evaluation
    cdef FilterSet filters                 # None: nobody has one
    cdef bytes head                        # every frame begins with this
    cdef dict members                      # by key
    cdef dict receivers                    # by key
    cdef list every                        # receivers of every message
    cdef list touched                      # receivers whose filters matched the current message; then others
    cdef uint32_t touched_count
    cdef uint64_t serial
    cdef ByteBuffer joined                 # a header's beginning with several ids

    cdef uint64_t deliver(self, const RecordHeader* record, LogCursor cursor, bint live) except? 0xFFFFFFFFFFFFFFFF
    cdef bint wants(self, const RecordHeader* record, uint64_t* cost) except -1
    cdef int send_wanted(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_all(self, const RecordHeader* record, LogCursor cursor) except -1
    cdef int send_to_matching(self, FilterSet filters, const RecordHeader* record, LogCursor cursor) except -1
    cdef int touch(self, Member member) except -1
    cdef int send_matched(self, Receiver receiver, const RecordHeader* record, LogCursor cursor) except -1


# See delivery/delivery.pxi.


@cython.final
cdef class Group:
    """The subscriptions of one tailer, as routes per topic.

    find_routes(entry: TopicEntry, since: int, current: TopicRoutes | None) -> TopicRoutes is asked when a topic's
    routes are needed and something has changed: `since` is the generation in which it was asked last (0: never),
    `current` what it said then, None if that no longer holds. It may say the same again, changed or not.
    """

    cdef object find_routes
    cdef list routes               # by topic number: TopicRoutes, or None
    cdef bint live                 # messages are delivered when they are published, not replayed
    cdef uint64_t* asked           # by topic number: generation of the last question
    cdef uint64_t capacity
    cdef readonly uint64_t generation
    cdef uint64_t work             # what was asked so far, in bytes of log: it counts against a tailer's turn

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
    cdef readonly bint stops_at_files          # a run ends where it has come to another file
    cdef readonly TopicSteps steps             # for the file at the cursor; None: everything is read
    cdef readonly bint stepped                 # records behind the last one evaluated were stepped over
    cdef uint64_t stepped_bytes                # so far

    cdef bint may_step(self) noexcept
    cdef bint begin_steps(self) except -1
    cdef bint step_over(self, uint64_t limit) noexcept
    cdef bint enter_file(self) noexcept
