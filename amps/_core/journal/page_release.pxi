# Releases pages of the journal from the page cache when no process is about to read them.
#
# Written pages of a journal stay in the page cache until the system needs the memory. A log that grows by 400 MB per
# second fills all memory within a minute. From then on the system must evict another page for every page written. On a
# virtual machine that returns free memory to its host, the page must come from the host, which costs more than ten
# times as much as writing it. So, unless `O_DIRECT` is disabled (direct I/O would not leave pages in the cache either),
# pages are released when all of these hold:
#
# - They are durable, and lie at least KEEP_BYTES before the durable watermark. So a client that reconnects soon finds
#   its messages in memory.
# - No transport is about to read them. Each transport publishes the log position up to which its tailers and replays
#   have read, and has unmapped the pages before it (`pages_done` on the control page). A mapped page would stay.
# - No queue holds undelivered messages in them (`needed_from`, set by the core).
#
# Every page is released once. A reader of an older part of the log reads its pages into the cache again, and the system
# decides how long they stay. A journal is held open until all its pages were released, with two exceptions. A journal
# that was compressed or removed is closed, so that its disk space becomes free. The oldest journal is closed when the
# journals held open have more than HELD_BYTES_MAX bytes, or when there are FILES_MAX of them.
#
# The release is an optimization: a page that stays is correct, and a released page can be read again. So a journal for
# which there is no descriptor is skipped without an error.
#
# The core's thread passes the journals (`use_file`) and the position from which queues need messages (`keep_from`). The
# flusher's thread releases pages after each sync and while it is idle, without the interpreter lock (`advance`, called
# by journal/group_commit.pxi).

from libc.stdint cimport uint64_t
from posix.fcntl cimport F_DUPFD_CLOEXEC, POSIX_FADV_DONTNEED, fcntl, posix_fadvise
from posix.unistd cimport close

from amps._core.shm.platform cimport load_acquire, load_relaxed, store_release

cdef enum:
    ALIGNMENT_BYTES = 65536        # a multiple of every page size
    KEEP_BYTES = 64 << 20
    STEP_BYTES = 4 << 20           # a smaller range is not worth a call
    STEP_BYTES_MAX = 16 << 20      # takes about a millisecond, in which nothing is synced
    OVERLAP_BYTES = 2 << 20        # pages may lie in memory in units of up to that size, which are released as a whole
    # Bytes written, or time passed, before the core computes `needed_from` again. With thousands of queues that takes a
    # while.
    ASK_BYTES = 16 << 20
    ASK_NS = 1_000_000_000

cdef extern from *:
    """
    #include <sys/stat.h>
    static inline int has_no_name(int descriptor)
    {
        struct stat status;
        return fstat(descriptor, &status) == 0 && status.st_nlink == 0;
    }
    """
    bint has_no_name(int descriptor) noexcept nogil

cdef uint64_t HELD_BYTES_MAX = 2 << 30  # bytes of journals held open for their pages
cdef uint64_t NEVER = <uint64_t>-1

PAGES_KEPT_BYTES = KEEP_BYTES


cdef class PageRelease:

    def __cinit__(self):
        self.used = self.finished = 0

    def __dealloc__(self):
        while self.finished < self.used:
            close(self.journals[self.finished % FILES_MAX].descriptor)
            self.finished += 1

    def __init__(self, ControlPage control not None, int transports):
        """transports: the largest number of transports."""
        self.control = control
        self.transports = transports
        self.needed_from = 0
        self.asked_at = 0
        self.asked_ns = 0
        self.given_back = 0

    def begin(self, uint64_t position):
        """Begin at the end of the log; no pages before `position` are released."""
        self.given_back = position

    def use_file(self, int descriptor, uint64_t start_position):
        """Add a file that holds the log from `start_position` on. It is ignored without a free entry or descriptor."""
        cdef JournalInMemory* journal = &self.journals[self.used % FILES_MAX]
        cdef int own
        if self.used - load_acquire(&self.finished) == FILES_MAX:
            return
        own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        if own < 0:
            return
        journal.descriptor = own
        journal.start_position = start_position
        store_release(&self.used, self.used + 1)

    def wants_to_know(self, uint64_t position, uint64_t now_ns):
        """True if `keep_from` must be called again: ASK_BYTES were written since the last call, or ASK_NS have passed.

        position: the end of the log. now_ns: time of the monotonic clock.
        """
        return position >= self.asked_at + ASK_BYTES or now_ns >= self.asked_ns + ASK_NS

    def keep_from(self, uint64_t position, uint64_t now_ns, needed_from):
        """Set the log position from which queues hold undelivered messages; `needed_from` is None if they hold none.

        position: the end of the log. now_ns: time of the monotonic clock.
        """
        self.asked_at = position
        self.asked_ns = now_ns
        store_release(&self.needed_from, NEVER if needed_from is None else <uint64_t>needed_from)

    @property
    def given_back_until(self):
        """Log position before which no pages are left to release."""
        return load_acquire(&self.given_back)

    # --- the flusher's thread ---------------------------------------------------------------------------------------

    cdef void advance(self, uint64_t durable) noexcept nogil:
        """Release the next pages, at most STEP_BYTES_MAX, as far as they may go. durable: the durable watermark."""
        cdef uint64_t end = self.bound(durable)
        cdef uint64_t begin = self.given_back
        cdef uint64_t start, journal_end, first
        cdef uint64_t used = load_acquire(&self.used)
        cdef JournalInMemory* journal
        while used - self.finished > 1 and self.is_too_much(used):
            self.finish_journal()
        if self.finished < used:
            begin = max(begin, self.journals[self.finished % FILES_MAX].start_position)
        store_release(&self.given_back, begin)
        if end < begin + STEP_BYTES:
            return
        end = min(end, begin + STEP_BYTES_MAX)
        while self.finished < used:
            journal = &self.journals[self.finished % FILES_MAX]
            start = journal.start_position
            journal_end = NEVER
            if self.finished + 1 < used:
                journal_end = self.journals[(self.finished + 1) % FILES_MAX].start_position
            first = max(begin - min(begin, <uint64_t>OVERLAP_BYTES), start)
            if min(end, journal_end) > first:
                posix_fadvise(
                    journal.descriptor, <long>(first - start), <long>(min(end, journal_end) - first),
                    POSIX_FADV_DONTNEED,
                )
            if end < journal_end:
                break
            self.finish_journal()
        store_release(&self.given_back, end)

    cdef bint is_too_much(self, uint64_t used) noexcept nogil:
        """True if the oldest journal must not be held open any longer."""
        cdef JournalInMemory* oldest = &self.journals[self.finished % FILES_MAX]
        if used - self.finished == FILES_MAX:
            return True
        if self.journals[(used - 1) % FILES_MAX].start_position - oldest.start_position > HELD_BYTES_MAX:
            return True
        return has_no_name(oldest.descriptor)

    cdef void finish_journal(self) noexcept nogil:
        """Close the oldest journal; no more of its pages are released."""
        close(self.journals[self.finished % FILES_MAX].descriptor)
        store_release(&self.finished, self.finished + 1)

    cdef uint64_t bound(self, uint64_t durable) noexcept nogil:
        """Log position before which pages may be released: no process is about to read them, and they are durable."""
        cdef uint64_t end = load_acquire(&self.needed_from)
        cdef int index
        if durable < KEEP_BYTES:
            return 0
        end = min(end, durable - KEEP_BYTES)
        for index in range(self.transports):
            if load_relaxed(&self.control.data.transport[index].alive):
                end = min(end, load_acquire(&self.control.data.transport[index].pages_done))
        return end // ALIGNMENT_BYTES * ALIGNMENT_BYTES
