# The evaluation budget: a bound on the time for one message, which all filters share.
#
# Each single search has its own bound. But there may be thousands of filters on a topic, and a worker serves no other
# client while it evaluates them. So work that can take long checks here whether the time of the message has passed:
# searches of the pattern engine, comparisons of two arrays, and in a large message each step of a filter. If it has
# passed, the work is given up, as at its own bound. A filter in which any work was given up does not match, not even if
# it contains NOT.
#
# Time is processor time of the thread, so a process that was stopped or not scheduled loses none of it. Reading it is
# expensive, so the clock is read first, and only when a check needs it. Messages without such work pay nothing. A
# process evaluates one message at a time. Outside of a message (tests, tools) only the searches' own bounds apply.

from libc.stdint cimport uint64_t

from amps._core.shm.platform cimport monotonic_ns, thread_time_ns

cdef enum:
    WORK_BYTES = 262144            # bytes read repeatedly between two reads of the clock


budget.allowance_ns = 0
budget.deadline.clock_ns = 0
budget.deadline.work_ns = 0
budget.worked_bytes = 0
budget.given_up = 0


cdef Deadline deadline_after(uint64_t at_most_ns) noexcept nogil:
    """The deadline of a search that begins now: the end of the message's time, but at most `at_most_ns` from now."""
    cdef Deadline deadline
    deadline.clock_ns = monotonic_ns() + at_most_ns
    deadline.work_ns = thread_time_ns() + at_most_ns
    if budget.allowance_ns:
        is_over()  # sets the deadline of the message if it is not set yet
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
    """Whether the time of the current message has passed."""
    if budget.allowance_ns == 0:
        return False
    if budget.deadline.clock_ns == 0:
        budget.deadline.clock_ns = monotonic_ns() + budget.allowance_ns
        budget.deadline.work_ns = thread_time_ns() + budget.allowance_ns
        return False
    return has_passed(&budget.deadline)


cdef bint is_overworked(uint64_t bytes_) noexcept nogil:
    """Count `bytes_` that an extractor reads repeatedly. True: the time has passed and the extractor must stop."""
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
    """The number of searches in this process that were given up because they took too long."""
    return budget.given_up


def message(uint64_t length):
    """Begin a message of `length` bytes, for tests. `message(0)` ends it."""
    if length:
        begin_message(length)
    else:
        end_message()
