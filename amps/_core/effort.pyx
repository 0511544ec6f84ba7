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
    MESSAGE_NS = 250_000_000       # thousands of searches in a message of ordinary size
    BYTE_NS = 10                   # of the message: some ten times what a search in linear time takes
    LARGE_BYTES = 16384            # here what takes linear time can take long, too
    WORK_BYTES = 262144            # read more than once, before the clock is read

cdef uint64_t allowance_ns = 0     # of the current message; 0 = there is none
cdef uint64_t message_deadline_ns = 0  # 0 = nobody has asked yet
cdef uint64_t given_up = 0
cdef uint64_t worked_bytes = 0     # since the clock was read


cdef void begin_message(uint64_t bytes_) noexcept nogil:
    global allowance_ns, message_deadline_ns, worked_bytes
    worked_bytes = 0
    allowance_ns = MESSAGE_NS + bytes_ * BYTE_NS
    message_deadline_ns = 0


cdef void end_message() noexcept nogil:
    global allowance_ns
    allowance_ns = 0


cdef uint64_t deadline_ns(uint64_t at_most_ns) noexcept nogil:
    """When a search that begins now must end, by the monotonic clock: at the latest after so long."""
    global message_deadline_ns
    cdef uint64_t now_ns = monotonic_ns()
    if allowance_ns == 0:
        return now_ns + at_most_ns
    if message_deadline_ns == 0:
        message_deadline_ns = now_ns + allowance_ns
    return min(message_deadline_ns, now_ns + at_most_ns)


cdef bint is_over() noexcept nogil:
    """Whether the time of the current message is over."""
    return allowance_ns != 0 and monotonic_ns() >= deadline_ns(allowance_ns)


cdef bint is_large() noexcept nogil:
    """Whether the current message is so large that every step must ask."""
    return allowance_ns > MESSAGE_NS + LARGE_BYTES * BYTE_NS


cdef bint is_large_and_over() noexcept nogil:
    return is_large() and is_over()


cdef bint is_overworked(uint64_t bytes_) noexcept nogil:
    """Told by extractors that read a part of the message, of so many bytes, once more: True: they have to give up."""
    global worked_bytes
    worked_bytes += bytes_
    if worked_bytes < WORK_BYTES:
        return False
    worked_bytes = 0
    if not is_over():
        return False
    give_up()
    return True


cdef void give_up() noexcept nogil:
    global given_up
    given_up += 1


cdef uint64_t given_up_so_far() noexcept nogil:
    return given_up


def searches_given_up():
    """How many searches were given up in this process because they took too long."""
    return given_up


def message(uint64_t length):
    """From here on a message of so many bytes is worked on, for tests. None again: `message(0)` ends it."""
    if length:
        begin_message(length)
    else:
        end_message()
