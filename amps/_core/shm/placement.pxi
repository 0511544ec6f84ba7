# Keeps the core off the processor of a transport that is awake.
#
# Core and transports wake each other thousands of times a second, and leave the processor to each other while they
# have nothing to do. With few processors the kernel then lets two of them share one while another is idle: who is
# woken comes back to where it was, who only yields stays there, and a processor that is never idle for long does not
# look for work elsewhere. On two processors, with publishers and consumers of a queue beside the server, one was idle
# for a third of the time although somebody waited for the other. So the core looks now and then where the transports
# are, and moves if one of them that is awake is on its own processor and there is one without any. Where it runs from
# then on is up to the kernel again.
#
# Nobody but the core moves, so that no two evade each other. Moving takes about 30 us, therefore not more than once in
# MOVE_INTERVAL_NS. Which processors there are is up to the administrator (taskset, cgroups): with one, nothing happens.

from libc.stdint cimport uint64_t

from amps._core.shm.platform cimport load_acquire, load_relaxed
from amps._core.shm.processors cimport (
    add_processor,
    leave_processors,
    no_processors,
    processor_mark,
    processors_t,
)

MOVE_INTERVAL_NS = 1_000_000
cdef uint64_t INTERVAL_NS = MOVE_INTERVAL_NS


cdef class Placement:

    def __init__(self, ControlPage control not None, int transports):
        self.control = control
        self.transports = transports
        self.next_move_ns = 0
        self.moves = 0

    def keep_apart(self, uint64_t now_ns):
        """Move this thread if need be. now_ns: by the monotonic clock. True: it has moved."""
        cdef processors_t busy
        cdef const TransportLine* line
        cdef uint64_t mine
        cdef uint64_t mark
        cdef bint shared = False
        cdef int index
        cdef int moved
        if now_ns < self.next_move_ns:
            return False
        mine = processor_mark()
        no_processors(&busy)
        for index in range(self.transports):
            line = &self.control.data.transport[index]
            if load_relaxed(&line.sleeping) or not load_acquire(&line.alive):
                continue
            mark = load_relaxed(&line.processor)
            add_processor(&busy, mark)
            shared |= mark != 0 and mark == mine
        if not shared:
            return False
        self.next_move_ns = now_ns + INTERVAL_NS
        with nogil:
            moved = leave_processors(&busy)
        self.moves += moved
        return moved != 0
