# How much may be done for one message: a bound on time that all filters share.
#
# Every single search has a bound of its own, but there may be thousands of filters on a topic, and a worker serves
# nobody else while it evaluates them. So what can take long, searches of the pattern engine and through the pairs of
# two arrays, and in a large message every step of a filter, asks here whether the message's time is over. Then it is
# given up, as it is at a bound of its own, and a filter in which anything was given up does not match: not even if it
# says NOT.
#
# Time is what the thread has had of a processor: a process that was stopped, or others kept from running, has done no
# more for a message. As that is dear to ask for, the clock is asked first, and not before something wants to know;
# messages that need none of it pay nothing. One message is worked on at a time in a process; outside of one (tests,
# tools) there is no bound but the searches' own.

from libc.stdint cimport uint64_t

from amps._core.shm.platform cimport monotonic_ns, thread_time_ns

cdef enum:
    WORK_BYTES = 262144            # read more than once, before the clock is read


budget.allowance_ns = 0
budget.deadline.clock_ns = 0
budget.deadline.work_ns = 0
budget.worked_bytes = 0
budget.given_up = 0


cdef Deadline deadline_after(uint64_t at_most_ns) noexcept nogil:
    """When a search that begins now must end: with the time of the message, and at the latest after so long."""
    cdef Deadline deadline
    deadline.clock_ns = monotonic_ns() + at_most_ns
    deadline.work_ns = thread_time_ns() + at_most_ns
    if budget.allowance_ns:
        is_over()  # its time begins, if nobody has asked before
        deadline.clock_ns = min(deadline.clock_ns, budget.deadline.clock_ns)
        deadline.work_ns = min(deadline.work_ns, budget.deadline.work_ns)
    return deadline


cdef bint has_passed(Deadline* deadline) noexcept nogil:
    cdef uint64_t now_ns = monotonic_ns()
    cdef uint64_t worked_ns
    if now_ns < deadline.clock_ns:
        return False
    worked_ns = thread_time_ns()
    if worked_ns >= deadline.work_ns:
        return True
    deadline.clock_ns = now_ns + (deadline.work_ns - worked_ns)
    return False


cdef bint is_over() noexcept nogil:
    """Whether the time of the current message is over."""
    if budget.allowance_ns == 0:
        return False
    if budget.deadline.clock_ns == 0:
        budget.deadline.clock_ns = monotonic_ns() + budget.allowance_ns
        budget.deadline.work_ns = thread_time_ns() + budget.allowance_ns
        return False
    return has_passed(&budget.deadline)


cdef bint is_overworked(uint64_t bytes_) noexcept nogil:
    """Told by extractors that read a part of the message, of so many bytes, once more: True: they have to give up."""
    budget.worked_bytes += bytes_
    if budget.worked_bytes < WORK_BYTES:
        return False
    budget.worked_bytes = 0
    if not is_over():
        return False
    give_up()
    return True


cdef void give_up() noexcept nogil:
    budget.given_up += 1


def searches_given_up():
    """How many searches were given up in this process because they took too long."""
    return budget.given_up


def message(uint64_t length):
    """From here on a message of so many bytes is worked on, for tests. None again: `message(0)` ends it."""
    if length:
        begin_message(length)
    else:
        end_message()
