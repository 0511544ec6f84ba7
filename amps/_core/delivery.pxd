# See delivery.pyx.

cimport cython
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from amps._core.log_reader cimport LogCursor
from amps._core.routes cimport TopicRoutes
from amps._core.topic_steps cimport TopicSteps
from amps._core.topic_table cimport TopicEntry


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
