# The core's turns: input and output around the sequencer, thousands of times a second.
#
# In a turn, the sequencer takes the pushed records of the transports and makes its decisions. Then the turn notifies
# the flusher, sends answers and deliveries to the transports, frees their rings, and wakes sleeping transports. Between
# turns the core waits here. No decisions are made here. Recovery, the supervisor connection and rare work are in
# amps/server/core/process.py.
#
# Invariants
# - A ring is released only when the answers to the records taken from it are in the egress ring of its transport.
#   `blocked` contains the transports with answers that have found no room yet.
# - Before the core waits, it sets its sleep flag and checks the rings once more, so that it misses no push.

from libc.errno cimport EINTR, errno
from libc.stdint cimport uint64_t
from posix.unistd cimport read, write

from amps._core.shm.platform cimport full_fence, load_relaxed, monotonic_ns, store_release
from amps._core.shm.memory cimport TRANSPORTS_MAX, ControlPage, Ring

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* entries, unsigned long count, int timeout)
    enum:
        POLLIN
        POLLOUT

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    WAKE_UP_PLACE = 0
    SUPERVISOR_PLACE = 1
    REQUESTS_PLACE = 2
    PLACES = 3

WOKEN_BY_SIGNAL = 1 << WAKE_UP_PLACE


cdef class CoreTurns:

    cdef ControlPage control
    cdef public object sequencer   # may be replaced by an observing wrapper
    cdef object journal
    cdef object may_take
    cdef object written
    cdef object after
    cdef object as_record
    cdef list egress               # Ring by transport
    cdef list waiting              # by transport: records for which its ring has no room
    cdef readonly object blocked   # transports with waiting records
    cdef readonly set replacing    # transports that died, with rings not empty yet; changed by the owner
    cdef int transports
    cdef int[TRANSPORTS_MAX] wake_ups
    cdef int wake_up
    cdef int supervisor
    cdef int requests
    cdef uint64_t bytes_max

    def __init__(
        self, ControlPage control not None, egress, wake_ups, int wake_up, int supervisor, int requests,
        uint64_t bytes_max, as_record
    ):
        """egress, wake_ups: the ring of each transport, and the descriptor that wakes it. wake_up, supervisor,
        requests: the descriptors for which the core waits. bytes_max: approximate limit of bytes taken from each ring
        in one turn. as_record(answer): makes the record that carries an answer to a transport.
        """
        if len(egress) > TRANSPORTS_MAX or len(egress) != len(wake_ups):
            raise ValueError("pass one ring and one wake-up descriptor for each transport")
        self.control = control
        self.egress = list(egress)
        self.waiting = [[] for _ in self.egress]
        self.transports = <int>len(self.egress)
        for index, descriptor in enumerate(wake_ups):
            self.wake_ups[index] = descriptor
        self.wake_up = wake_up
        self.supervisor = supervisor
        self.requests = requests
        self.bytes_max = bytes_max
        self.as_record = as_record
        self.blocked = frozenset()
        self.replacing = set()

    def begin(self, sequencer, may_take, written, after):
        """Set the sequencer and the callbacks of a turn, after the log was opened. may_take(): whether the transient
        log has room. written(position, wanted): called with the end of the journal, and the log position up to which
        durability is awaited; None without a journal. after(): called in each turn after the sequencer's turn.
        """
        self.sequencer = sequencer
        self.journal = sequencer.journal
        self.may_take = may_take
        self.written = written
        self.after = after

    def turn(self, uint64_t now_ns):
        """Take one batch from every transport. True: there was work. Raises the exceptions of the journal."""
        cdef bint worked = False
        if self.may_take():
            worked = self.sequencer.turn(self.control, now_ns, self.control.data.flush.durable, self.bytes_max)
            if worked and self.written is not None:
                # Deliveries always wait for durability, without a request of a transport.
                wanted = max(self.sequencer.durable_awaited, self.control.durable_wanted(self.transports))
                self.written(self.journal.position, wanted)
            self.after()
        if self.blocked or self.sequencer.has_replies:
            # A delayed answer may go to a sleeping transport from which no records were taken in this turn.
            worked = self._send_replies() or worked
        if self.sequencer.release(self.blocked):
            worked = True
        if worked:
            self._wake_transports()
        return worked

    cdef bint _send_replies(self) except -1:
        """Push answers into the egress rings. True: some were pushed."""
        cdef bint sent = False
        cdef int index
        cdef list waiting
        cdef Ring ring
        for index, reply in self.sequencer.take_replies():
            record = reply if type(reply) is bytes else self.as_record(reply)
            waiting = <list>self.waiting[index]
            if waiting or index in self.replacing or not (<Ring>self.egress[index]).push(record):
                waiting.append(record)
            else:
                sent = True
        blocked = None
        for index in range(self.transports):
            waiting = <list>self.waiting[index]
            if not waiting:
                continue
            if index in self.replacing:
                waiting.clear()
                continue
            ring = <Ring>self.egress[index]
            while waiting and ring.push(waiting[0]):
                del waiting[0]
                sent = True
            if waiting:
                if blocked is None:
                    blocked = set()
                blocked.add(index)
        self.blocked = frozenset() if blocked is None else blocked
        return sent

    cdef int _wake_transports(self) except -1:
        cdef int index
        cdef uint64_t one = 1
        full_fence()
        for index in range(self.transports):
            if load_relaxed(&self.control.data.transport[index].sleeping):
                # If the counter is full, a wake-up has been sent already.
                write(self.wake_ups[index], &one, sizeof(one))
        return 0

    def busy_poll(self, uint64_t limit_ns):
        """Poll for pushed records for at most `limit_ns`, yielding the processor to other threads.

        A push then needs no wake-up, whose cost for both sides is higher than that of polling.
        """
        cdef uint64_t end_ns = monotonic_ns() + limit_ns
        while not self.sequencer.pending() and monotonic_ns() <= end_ns:
            with nogil:
                sched_yield()

    def sleeps(self):
        """Set the sleep flag: the core needs a wake-up from now on."""
        store_release(&self.control.data.core.sleeping, 1)
        full_fence()

    def wakes(self):
        """Clear the sleep flag: no wake-up is needed."""
        store_release(&self.control.data.core.sleeping, 0)

    def wait(self, int timeout_ms, bint orphaned, bint answers_wait):
        """Wait for a wake-up, the supervisor or a request. Returns WOKEN_BY_SIGNAL if it was the wake-up alone.

        orphaned: there is no supervisor; wait for wake-ups only. answers_wait: wait for room for answers on the request
        connection instead of for requests, which would wake the core again and again.
        """
        cdef pollfd[PLACES] places
        cdef uint64_t rings
        cdef int ready
        cdef int woken = 0
        cdef int place
        cdef int count = 1 if orphaned else PLACES
        places[WAKE_UP_PLACE].fd = self.wake_up
        places[WAKE_UP_PLACE].events = POLLIN
        places[SUPERVISOR_PLACE].fd = self.supervisor
        places[SUPERVISOR_PLACE].events = POLLIN
        places[REQUESTS_PLACE].fd = self.requests
        places[REQUESTS_PLACE].events = POLLOUT if answers_wait else POLLIN
        with nogil:
            ready = poll(places, count, timeout_ms)
        if ready < 0:
            if errno != EINTR:
                raise OSError(errno, "poll")
            return 0
        for place in range(count):
            if places[place].revents:
                woken |= 1 << place
        if woken & 1 << WAKE_UP_PLACE:
            read(self.wake_up, &rings, sizeof(rings))
        return woken
