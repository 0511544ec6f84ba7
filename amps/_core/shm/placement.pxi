# Keeps the core from running on the processor of a transport that is awake.
#
# Core and transports wake each other thousands of times a second, and yield the processor to each other while they have
# no work. With few processors, the kernel may then let two of them share one processor while another is idle. A woken
# thread returns to its last processor, a yielding thread stays on its processor, and a processor that is never idle for
# long does not pull threads from others. A measurement had two processors, and publishers and consumers of a queue
# beside the server. One processor was idle for a third of the time although a thread waited for the other. So the core
# checks from time to time where the transports run. If a transport that is awake runs on the core's processor and a
# processor without any is available, the core moves. After that, the kernel decides again where it runs.
#
# Only the core moves, so that no two threads evade each other. A move takes about 30 us, so it happens at most once in
# MOVE_INTERVAL_NS. The administrator decides which processors may be used (taskset, cgroups); with one, the core never
# moves.

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
        """Move the calling thread if it shares a processor with a transport that is awake. True: it has moved.

        now_ns: time of the monotonic clock.
        """
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
