# Giving pages of the journal back to the system when nobody is about to read them.
#
# What is written to a journal stays in the page cache until the system needs the memory, whether anybody will read it
# or not: a log that takes 400 MB in a second has gone through all memory within a minute. From then on every page
# that is written to has to be taken from somebody else first; and on a virtual machine whose free memory goes back to
# its host, it has to be had from there, which costs more than ten times what writing it does. So, unless `O_DIRECT`
# is disabled (direct I/O, which it asks for, would leave nothing there either), pages go when
#
# - they are durable, and lie KEEP_BYTES behind what is: who comes back after a moment finds them in memory;
# - no transport is about to read them: each says up to where it has done with its tailers and replays, and has unmapped
#   what lies before (`pages_done` on the control page), since a page that somebody has mapped stays;
# - no queue holds messages there that it has not delivered yet (`needed_from`, told by the core).
#
# Every page is given back once. Who reads an older part brings it back, and the system decides how long it stays. A
# journal is held open until all of it was given back; but none that was compressed or removed, whose room on the disk
# somebody wants back, and of those that are waited for, no more than HELD_BYTES_MAX, and fewer than FILES_MAX.
#
# Nothing depends on any of this: a page that stays does no harm, and one that goes can be read again. So what cannot be
# done, for want of a descriptor, is left undone without a word.
#
# The core's thread says which journals there are and what queues need, the flusher's thread does the work after a sync
# and while it has nothing to do, without the interpreter (journal/group_commit.pxi).

from libc.stdint cimport uint64_t
from posix.fcntl cimport F_DUPFD_CLOEXEC, POSIX_FADV_DONTNEED, fcntl, posix_fadvise
from posix.unistd cimport close

from amps._core.shm.platform cimport load_acquire, load_relaxed, store_release

cdef enum:
    ALIGNMENT_BYTES = 65536        # whole pages, however large they are
    KEEP_BYTES = 64 << 20
    STEP_BYTES = 4 << 20           # less is not worth a call
    STEP_BYTES_MAX = 16 << 20      # a millisecond, in which nothing is synced
    OVERLAP_BYTES = 2 << 20        # pages may lie in memory as pieces of up to that size, which go as a whole
    # Written or passed before thousands of queues are asked again, which takes a while.
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

cdef uint64_t HELD_BYTES_MAX = 2 << 30  # of journals that are held open for their pages
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
        """transports: how many there may be."""
        self.control = control
        self.transports = transports
        self.needed_from = 0
        self.asked_at = 0
        self.asked_ns = 0
        self.given_back = 0

    def begin(self, uint64_t position):
        """The log ends there; nothing before is given back."""
        self.given_back = position

    def use_file(self, int descriptor, uint64_t start_position):
        """What is written from that log position on is in this file."""
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
        """Whether enough was written, up to `position`, or enough time has passed for `keep_from` to be told again."""
        return position >= self.asked_at + ASK_BYTES or now_ns >= self.asked_ns + ASK_NS

    def keep_from(self, uint64_t position, uint64_t now_ns, needed_from):
        """The log ends at `position`, and queues hold what they have not delivered from `needed_from` on; None: they
        hold nothing. now_ns: of the monotonic clock.
        """
        self.asked_at = position
        self.asked_ns = now_ns
        store_release(&self.needed_from, NEVER if needed_from is None else <uint64_t>needed_from)

    @property
    def given_back_until(self):
        """Log position up to which pages were given back, or were there before this began."""
        return load_acquire(&self.given_back)

    # --- the flusher's thread ---------------------------------------------------------------------------------------

    cdef void advance(self, uint64_t durable) noexcept nogil:
        """Everything before that log position is on the device: give back what can go, or a piece of it."""
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
        """Whether the oldest journal is not to be held open any longer."""
        cdef JournalInMemory* oldest = &self.journals[self.finished % FILES_MAX]
        if used - self.finished == FILES_MAX:
            return True
        if self.journals[(used - 1) % FILES_MAX].start_position - oldest.start_position > HELD_BYTES_MAX:
            return True
        return has_no_name(oldest.descriptor)

    cdef void finish_journal(self) noexcept nogil:
        """Nothing more of the oldest one is given back."""
        close(self.journals[self.finished % FILES_MAX].descriptor)
        store_release(&self.finished, self.finished + 1)

    cdef uint64_t bound(self, uint64_t durable) noexcept nogil:
        """Log position up to which nobody is about to read."""
        cdef uint64_t end = load_acquire(&self.needed_from)
        cdef int index
        if durable < KEEP_BYTES:
            return 0
        end = min(end, durable - KEEP_BYTES)
        for index in range(self.transports):
            if load_relaxed(&self.control.data.transport[index].alive):
                end = min(end, load_acquire(&self.control.data.transport[index].pages_done))
        return end // ALIGNMENT_BYTES * ALIGNMENT_BYTES
