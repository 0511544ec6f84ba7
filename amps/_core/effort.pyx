"""How much may be done for one message: a bound on time that all filters share.

Every single search has a bound of its own, but there may be thousands of filters on a topic, and a worker serves
nobody else while it evaluates them. So what can take long, searches of the pattern engine and through the pairs of two
arrays, and in a large message every step of a filter, asks here whether the message's time is over. Then it is given
up, as it is at a bound of its own, and a filter in which anything was given up does not match: not even if it says NOT.

The clock is read when the first of them asks; messages that need none of it pay nothing. One message is worked on at a
time in a process; outside of one (tests, tools) there is no bound but the searches' own.
"""

from libc.stdint cimport uint64_t

from amps._core.platform cimport monotonic_ns

cdef enum:
    WORK_BYTES = 262144            # read more than once, before the clock is read


effort.allowance_ns = 0
effort.deadline_ns = 0
effort.worked_bytes = 0
effort.given_up = 0


cdef uint64_t deadline_ns(uint64_t at_most_ns) noexcept nogil:
    """When a search that begins now must end, by the monotonic clock: at the latest after so long."""
    cdef uint64_t now_ns = monotonic_ns()
    if effort.allowance_ns == 0:
        return now_ns + at_most_ns
    if effort.deadline_ns == 0:
        effort.deadline_ns = now_ns + effort.allowance_ns
    return min(effort.deadline_ns, now_ns + at_most_ns)


cdef bint is_over() noexcept nogil:
    """Whether the time of the current message is over."""
    return effort.allowance_ns != 0 and monotonic_ns() >= deadline_ns(effort.allowance_ns)


cdef bint is_overworked(uint64_t bytes_) noexcept nogil:
    """Told by extractors that read a part of the message, of so many bytes, once more: True: they have to give up."""
    effort.worked_bytes += bytes_
    if effort.worked_bytes < WORK_BYTES:
        return False
    effort.worked_bytes = 0
    if not is_over():
        return False
    give_up()
    return True


cdef void give_up() noexcept nogil:
    effort.given_up += 1


def searches_given_up():
    """How many searches were given up in this process because they took too long."""
    return effort.given_up


def message(uint64_t length):
    """From here on a message of so many bytes is worked on, for tests. None again: `message(0)` ends it."""
    if length:
        begin_message(length)
    else:
        end_message()
