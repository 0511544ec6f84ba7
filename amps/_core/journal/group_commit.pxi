# The flusher's loop: it decides when a sync of the journal is due, syncs, and publishes the durable watermark.
#
# Group commit: a sync covers all bytes written since the previous sync. amps/server/core/flusher.py describes the
# purpose of group commit and when a sync is due. It owns the only `GroupCommit` of a core, and the thread that runs it.
#
# The thread runs without the interpreter lock (GIL). Otherwise the core's thread would have to release the lock twice
# for each sync and wait to get it back. On busy processors that takes milliseconds, because the flusher must first get
# a processor, and meanwhile the core neither accepts nor delivers messages. Only two kinds of work take the interpreter
# lock: closing a file that is complete, and the callbacks `sync` and `promise`. Tests pass these callbacks to simulate
# a disk.
#
# Invariants
# - The watermark file is written before the durable watermark is raised, and the watermark is raised before any process
#   is woken.
# - `synced` only rises, and only to a position that was written, in files known here, before the sync began.
# - No thread waits for the interpreter lock while it holds `lock`, because the holder of the interpreter lock may wait
#   for `lock`.

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from posix.time cimport CLOCK_MONOTONIC, timespec
from posix.unistd cimport fdatasync, write

from amps._core.shm.held cimport HeldBuffer
from amps._core.shm.platform cimport (
    full_fence,
    load_acquire,
    load_relaxed,
    monotonic_ns,
    store_relaxed,
    store_release,
)
from amps._core.shm.memory cimport TRANSPORTS_MAX, ControlPage

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_condattr_init(pthread_condattr_t* attributes)
    int pthread_condattr_destroy(pthread_condattr_t* attributes)
    int pthread_condattr_setclock(pthread_condattr_t* attributes, int clock)
    int pthread_cond_init(pthread_cond_t* condition, const pthread_condattr_t* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until)

cdef enum:
    SECOND_NS = 1_000_000_000
    # Each writer wakes the flusher thread; the limit only guards against a lost wake-up.
    IDLE_NS = 50_000_000
    BUCKETS = 64
    DISTRIBUTION_WORDS = BUCKETS + 2
    STATISTICS_BYTES = 2 * DISTRIBUTION_WORDS * 8
    MARK_BYTES = 24
    ACTIVITY_BYTES = 16

cdef uint64_t MARK_MAGIC = 0x5255444F53504D41   # b"AMPSODUR"


def note_write(words, uint64_t latency_us, uint64_t size_bytes):
    """Count one write in the write statistics (amps/server/write_statistics.py documents their layout)."""
    cdef Py_buffer view
    PyObject_GetBuffer(words, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        if view.len != STATISTICS_BYTES:
            raise ValueError("not the words of write statistics")
        note_into(<uint64_t*>view.buf, latency_us, size_bytes)
    finally:
        PyBuffer_Release(&view)


cdef void note_into(uint64_t* words, uint64_t latency_us, uint64_t size_bytes) noexcept nogil:
    note_value(words, latency_us)
    note_value(words + DISTRIBUTION_WORDS, size_bytes)


cdef void note_value(uint64_t* words, uint64_t value) noexcept nogil:
    """Count a value in a distribution: counts by bit length, the minimum + 1 (0: no value yet), the maximum."""
    cdef int bucket = 0
    cdef uint64_t rest = value
    while rest:
        rest >>= 1
        bucket += 1
    bucket = min(bucket, BUCKETS - 1)
    store_relaxed(&words[bucket], words[bucket] + 1)
    if words[BUCKETS] == 0 or value + 1 < words[BUCKETS]:
        store_relaxed(&words[BUCKETS], value + 1)
    if value > words[BUCKETS + 1]:
        store_relaxed(&words[BUCKETS + 1], value)


cdef class _Memory:
    """A writable buffer, held so that its address stays valid."""

    cdef HeldBuffer buffer
    cdef bint held

    def __cinit__(self, owner, Py_ssize_t size):
        PyObject_GetBuffer(owner, &self.buffer.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.held = True
        if self.buffer.view.len < size:
            raise ValueError("the memory is too small")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer.view)


cdef class GroupCommit:

    cdef pthread_mutex_t lock
    cdef pthread_cond_t changed
    cdef ControlPage control
    cdef object sync
    cdef object promise
    cdef object close
    cdef PageRelease pages           # None: no pages are released
    cdef _Memory mark                # the mapped watermark file; None: `promise` writes it
    cdef _Memory activity            # the two words of `run`; None: not reported
    cdef _Memory statistics
    cdef int core_wake_up
    cdef int transports
    cdef int[TRANSPORTS_MAX] wake_ups
    cdef uint64_t interval_ns
    cdef uint64_t batch_bytes
    # The core's thread writes, the flusher reads.
    cdef uint64_t target            # log position up to which the journal is written
    cdef uint64_t wanted            # log position up to which a client waits for durability
    cdef uint64_t dirty_since_ns
    cdef uint64_t stopping
    cdef uint64_t urgent            # threads that wait for a sync
    # The flusher writes.
    cdef uint64_t synced
    cdef uint64_t idle              # 1: it waits and must be woken
    # Both write, under the lock: the files that may not be durable yet, oldest first; the last one is in use.
    cdef int* files
    cdef size_t file_count
    cdef size_t file_room

    def __cinit__(self):
        cdef pthread_condattr_t attributes
        pthread_mutex_init(&self.lock, NULL)
        pthread_condattr_init(&attributes)
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        pthread_cond_init(&self.changed, &attributes)
        pthread_condattr_destroy(&attributes)

    def __dealloc__(self):
        pthread_cond_destroy(&self.changed)
        pthread_mutex_destroy(&self.lock)
        free(self.files)

    def __init__(
        self, ControlPage control not None, int core_wake_up, wake_ups, statistics, uint64_t interval_ns,
        uint64_t batch_bytes, close, sync, promise, mark, PageRelease pages
    ):
        """Initialize the group commit of a core.

        core_wake_up, wake_ups: the descriptors that wake core and transports. statistics: the words of the write
        statistics. interval_ns: FlushInterval. batch_bytes: number of unsynced bytes from which a sync is due at once.
        close(descriptor): called for a file that is complete and durable. sync(descriptor), promise(position): called
        instead of fdatasync and instead of writing the watermark file. With None for both, `mark` is the mapped
        watermark file and the thread does not need the interpreter lock. pages: releases durable pages, or None.
        """
        if len(wake_ups) > TRANSPORTS_MAX:
            raise ValueError("too many transports")
        if (sync is None) != (promise is None) or (promise is None) != (mark is not None):
            raise ValueError("both sync and promise, or the mapped watermark file")
        self.control = control
        self.core_wake_up = core_wake_up
        self.transports = <int>len(wake_ups)
        for index, descriptor in enumerate(wake_ups):
            self.wake_ups[index] = descriptor
        self.statistics = _Memory(statistics, STATISTICS_BYTES)
        self.interval_ns = interval_ns
        self.batch_bytes = batch_bytes
        self.close = close
        self.sync = sync
        self.promise = promise
        self.mark = None if mark is None else _Memory(mark, MARK_BYTES)
        self.pages = pages

    # --- the core's thread ------------------------------------------------------------------------------------------

    def begin(self, uint64_t durable):
        """Begin with everything before the log position `durable` on the device, and publish that position."""
        store_release(&self.target, durable)
        store_release(&self.synced, durable)
        self._publish(durable)

    def use_file(self, int descriptor):
        """Add the file that takes the following writes. Earlier files are synced once more, then closed."""
        cdef size_t room
        cdef int* files = self.files
        pthread_mutex_lock(&self.lock)
        if self.file_count == self.file_room:
            room = 2 * self.file_room + 4
            files = <int*>realloc(self.files, room * sizeof(int))
            if files != NULL:
                self.files = files
                self.file_room = room
        if files != NULL:
            files[self.file_count] = descriptor
            self.file_count += 1
        pthread_mutex_unlock(&self.lock)
        if files == NULL:
            raise MemoryError

    def written(self, uint64_t position, uint64_t wanted):
        """Note that the journal is written up to `position`, and that clients wait for durability up to `wanted`."""
        cdef uint64_t synced = load_acquire(&self.synced)
        cdef bint changed
        if load_relaxed(&self.target) <= synced:
            store_relaxed(&self.dirty_since_ns, monotonic_ns())
            changed = True
        else:
            changed = wanted > load_relaxed(&self.wanted) or position - synced >= self.batch_bytes
        store_relaxed(&self.wanted, wanted)
        store_release(&self.target, position)
        full_fence()
        # If a sync has returned meanwhile, the thread may have found nothing to sync and gone idle.
        if changed or load_relaxed(&self.synced) != synced:
            self._wake_if_idle()

    def demand(self, uint64_t wanted):
        """Note that a client waits for durability up to the log position `wanted`."""
        if wanted > load_relaxed(&self.wanted):
            store_relaxed(&self.wanted, wanted)
            self._wake_if_idle()

    def extend(self, uint64_t position):
        """Note that the journal is written at least up to `position`. The flusher is not woken."""
        if position > load_relaxed(&self.target):
            store_release(&self.target, position)

    def wait_until_synced(self, uint64_t position):
        """Request a sync of everything written. Return when `position` is synced, or a sync has failed."""
        with nogil:
            pthread_mutex_lock(&self.lock)
            store_relaxed(&self.urgent, load_relaxed(&self.urgent) + 1)
            pthread_cond_broadcast(&self.changed)
            while load_acquire(&self.synced) < position and self._failed() == 0:
                # A failure does not signal `changed`, so the wait has a limit.
                self._wait(IDLE_NS)
            store_relaxed(&self.urgent, load_relaxed(&self.urgent) - 1)
            pthread_mutex_unlock(&self.lock)

    def stop(self):
        """Make `run` sync everything and return."""
        pthread_mutex_lock(&self.lock)
        store_relaxed(&self.stopping, 1)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)

    @property
    def synced_to(self):
        """The log position before which everything is on the device."""
        return load_acquire(&self.synced)

    cdef int _wake_if_idle(self) noexcept:
        full_fence()
        if load_relaxed(&self.idle):
            # The interpreter lock is kept: a thread that got it could hold it for milliseconds, and `lock` is never
            # held for long.
            pthread_mutex_lock(&self.lock)
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.lock)
        return 0

    # --- the flusher's thread ---------------------------------------------------------------------------------------

    def run(self, activity):
        """Sync whenever a sync is due, until everything is synced after `stop`, or a sync has failed.

        activity: two words for amps/server/health.py. The first is the time at which the current call of the disk
        began, 0 = none; the second is the time at which the last call returned. None: activity is not reported, or
        `sync` reports it.
        """
        cdef uint64_t began_ns, rest_ns, end_ns, now_ns
        self.activity = None if activity is None else _Memory(activity, ACTIVITY_BYTES)
        with nogil:
            while True:
                pthread_mutex_lock(&self.lock)
                store_relaxed(&self.idle, 1)
                full_fence()
                while load_relaxed(&self.stopping) == 0:
                    rest_ns = self._rest_ns()
                    if rest_ns == 0:
                        break
                    self._wait(rest_ns)
                    if self.pages is not None:
                        # Without the lock: the core's thread must never wait for this.
                        pthread_mutex_unlock(&self.lock)
                        self.pages.advance(load_relaxed(&self.synced))
                        pthread_mutex_lock(&self.lock)
                store_relaxed(&self.idle, 0)
                pthread_mutex_unlock(&self.lock)
                if load_acquire(&self.target) <= load_relaxed(&self.synced):
                    break
                began_ns = monotonic_ns()
                if self._step() == 0:
                    break
                now_ns = monotonic_ns()
                end_ns = now_ns + min(now_ns - began_ns, self.interval_ns)
                pthread_mutex_lock(&self.lock)
                while now_ns < end_ns and load_relaxed(&self.urgent) == 0 and load_relaxed(&self.stopping) == 0:
                    self._wait(end_ns - now_ns)
                    now_ns = monotonic_ns()
                pthread_mutex_unlock(&self.lock)

    def step(self):
        """Sync the bytes written since the last step. Return False if there were none, or if the sync failed."""
        return self._step() != 0

    cdef uint64_t _rest_ns(self) noexcept nogil:
        """The time in ns until the next sync is due; 0 = now."""
        cdef uint64_t target = load_acquire(&self.target)
        cdef uint64_t synced = load_relaxed(&self.synced)
        cdef uint64_t due_ns, now_ns
        if target <= synced:
            return IDLE_NS
        if (
            load_relaxed(&self.urgent)
            or load_relaxed(&self.wanted) > synced
            or target - synced >= self.batch_bytes
        ):
            return 0
        due_ns = load_relaxed(&self.dirty_since_ns) + self.interval_ns
        now_ns = monotonic_ns()
        return due_ns - now_ns if due_ns > now_ns else 0

    cdef int _step(self) except -1 nogil:
        """Return 1 after a sync, 0 if there was nothing to sync or the sync failed."""
        cdef uint64_t target, began_ns
        cdef size_t count, place
        cdef int descriptor
        cdef int error = 0
        if self._failed():
            return 0
        pthread_mutex_lock(&self.lock)
        # No file comes into use while the lock is held, so these files hold all bytes before `target`.
        count = self.file_count
        target = load_acquire(&self.target)
        pthread_mutex_unlock(&self.lock)
        if target <= load_relaxed(&self.synced):
            return 0
        began_ns = monotonic_ns()
        for place in range(count):
            pthread_mutex_lock(&self.lock)
            descriptor = self.files[place]
            pthread_mutex_unlock(&self.lock)
            error = self._sync(descriptor)
            if error:
                store_release(&self.control.data.flush.failed, error)
                send_wake_up(self.core_wake_up)
                return 0
        note_into(
            <uint64_t*>self.statistics.buffer.view.buf,
            (monotonic_ns() - began_ns) // 1000,
            target - load_relaxed(&self.synced),
        )
        # The file in use stays; the files before it are complete and durable.
        while count > 1:
            count -= 1
            pthread_mutex_lock(&self.lock)
            descriptor = self.files[0]
            self.file_count -= 1
            memmove(self.files, self.files + 1, self.file_count * sizeof(int))
            pthread_mutex_unlock(&self.lock)
            self._close(descriptor)
        self._publish(target)
        pthread_mutex_lock(&self.lock)
        store_release(&self.synced, target)
        pthread_cond_broadcast(&self.changed)
        pthread_mutex_unlock(&self.lock)
        if self.pages is not None:
            self.pages.advance(target)
        return 1

    cdef int _sync(self, int descriptor) except -1 nogil:
        """Sync a file. Return 0, or the errno of the failure."""
        cdef uint64_t* words = NULL
        cdef int error = 0
        if self.sync is not None:
            return self._sync_elsewhere(descriptor)
        if self.activity is not None:
            words = <uint64_t*>self.activity.buffer.view.buf
            store_relaxed(&words[0], monotonic_ns())
        while True:
            error = errno if fdatasync(descriptor) else 0
            if error != EINTR:
                break
        if words != NULL:
            store_relaxed(&words[1], monotonic_ns())
            store_relaxed(&words[0], 0)
        return error

    cdef int _publish(self, uint64_t position) except -1 nogil:
        """Write the watermark file, then raise the durable watermark, then wake the sleeping transports."""
        cdef uint64_t[3] mark
        cdef int index
        if self.promise is not None:
            self._promise_elsewhere(position)
        else:
            mark[0] = MARK_MAGIC
            mark[1] = position
            mark[2] = ~position
            memcpy(self.mark.buffer.view.buf, mark, MARK_BYTES)
        store_release(&self.control.data.flush.durable, position)
        full_fence()
        for index in range(self.transports):
            if load_relaxed(&self.control.data.transport[index].sleeping):
                send_wake_up(self.wake_ups[index])
        return 0

    # These functions take the interpreter lock by their declaration. A function with a `with gil` block inside would
    # take it on every call.

    cdef int _close(self, int descriptor) except -1 with gil:
        self.close(descriptor)
        return 0

    cdef int _sync_elsewhere(self, int descriptor) except -1 with gil:
        """Call `sync`. Return 0, or the errno of the failure."""
        try:
            self.sync(descriptor)
        except OSError as failure:
            return failure.errno or EIO
        return 0

    cdef int _promise_elsewhere(self, uint64_t position) except -1 with gil:
        self.promise(position)
        return 0

    cdef uint64_t _failed(self) noexcept nogil:
        return load_acquire(&self.control.data.flush.failed)

    cdef void _wait(self, uint64_t limit_ns) noexcept nogil:
        """Wait for `changed`, at most `limit_ns`. The caller holds the lock; the wait releases and retakes it."""
        cdef timespec until
        cdef uint64_t end_ns = monotonic_ns() + limit_ns
        until.tv_sec = end_ns // SECOND_NS
        until.tv_nsec = end_ns % SECOND_NS
        pthread_cond_timedwait(&self.changed, &self.lock, &until)


cdef void send_wake_up(int wake_up) noexcept nogil:
    """Send a wake-up. An error is ignored: a full descriptor already carries a wake-up."""
    cdef uint64_t one = 1
    write(wake_up, &one, sizeof(one))
