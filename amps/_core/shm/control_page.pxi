# Shared memory between the processes of one instance: the control page and the rings.
#
# The supervisor makes both before it forks, so that every process has them mapped, and a restarted worker finds them
# again. The control page holds the watermarks (written, durable), sleep flags and heartbeats. A ring carries records
# one way, from exactly one producer to one consumer.
#
# Invariants: Each word has one writer. A producer publishes by a release store of `head` after it has stored the bytes.
# A consumer frees by a release store of `tail` after its last access to them. A record never wraps around the end of
# the ring: a pad record fills the rest of the ring instead. Sleeping: A process sets its sleep flag, checks for work
# once more, and only then waits for a wake-up. The other side pushes, executes a full fence, and sends a wake-up if the
# sleep flag is set.

import mmap

from libc.string cimport memcpy, memset

from amps._core.shm.platform cimport (
    acquire_fence,
    align8,
    debug_assert,
    full_fence,
    load_acquire,
    load_relaxed,
    release_fence,
    store_relaxed,
    store_release,
)
from amps._core.shm.processors cimport processor_mark

cdef extern from "layout_mark.h":
    const unsigned long long AMPS_LAYOUT

cdef enum:
    CONTROL_MAGIC = 0x414D5053
    RING_ENTRY_BYTES_MIN = 8       # the length field, padded to the alignment

# CoreState: the states of the core, for which the supervisor waits.
CORE_STARTING = 0
CORE_RECOVERING = 1
CORE_RUNNING = 2
CORE_DRAINED = 3
CORE_FAILED = 4

# DestinationMode
MODE_ASYNC = DESTINATION_ASYNC
MODE_SYNC = DESTINATION_SYNC
MODE_DOWNGRADED = DESTINATION_DOWNGRADED

# `replicated` of a destination for which nothing waits.
NOTHING_WAITS = 0xFFFFFFFFFFFFFFFF

# A journal number that no journal has.
NO_JOURNAL = 0xFFFFFFFFFFFFFFFF

cdef uint64_t NOTHING_REFUSED = 0xFFFFFFFFFFFFFFFF


def require_layout(module, unsigned long long layout):
    """Check the layout of a module on its import. Raises ImportError if it was built from a different layout."""
    if layout != AMPS_LAYOUT:
        raise ImportError(
            f"{module} and {__name__} were built from different versions of amps (layouts {layout:016x} and "
            f"{<unsigned long long>AMPS_LAYOUT:016x} of shared memory); build or install the whole package again"
        )


cdef class ControlPage:
    """The instance's watermarks, sleep flags and heartbeats in one shared mapping."""

    def __init__(self):
        self._memory = mmap.mmap(-1, CONTROL_PAGE_BYTES)
        cdef unsigned char[::1] view = self._memory
        self.data = <ControlData*>&view[0]
        self.reset()

    def reset(self):
        """Reset the page before the processes are started anew. No other process may use it."""
        memset(self.data, 0, sizeof(ControlData))
        self.data.magic = CONTROL_MAGIC
        self.data.refused_from_bytes = NOTHING_REFUSED

    cdef void read_watermarks(self, Watermarks* out) noexcept nogil:
        cdef CoreLine* line = &self.data.core
        cdef uint64_t version
        while True:
            version = load_acquire(&line.version)
            if version & 1:
                continue
            out.journal_written = load_relaxed(&line.journal_written)
            out.transient_written = load_relaxed(&line.transient_written)
            out.next_txid = load_relaxed(&line.next_txid)
            out.journal_number = load_relaxed(&line.journal_number)
            out.transient_number = load_relaxed(&line.transient_number)
            acquire_fence()
            if load_relaxed(&line.version) == version:
                return

    cdef void write_watermarks(self, const Watermarks* values) noexcept nogil:
        cdef CoreLine* line = &self.data.core
        cdef uint64_t version = line.version
        store_relaxed(&line.version, version + 1)
        release_fence()
        store_relaxed(&line.journal_written, values.journal_written)
        store_relaxed(&line.transient_written, values.transient_written)
        store_relaxed(&line.next_txid, values.next_txid)
        store_relaxed(&line.journal_number, values.journal_number)
        store_relaxed(&line.transient_number, values.transient_number)
        store_release(&line.version, version + 2)

    cdef void write_stretch(self, const Stretch* values) noexcept nogil:
        """Core, before the watermarks that cover it: publish the newest stretch, if it has changed."""
        cdef StretchLine* line = &self.data.stretch
        cdef uint64_t version = line.version
        if values.end == line.newest.end:
            return
        store_relaxed(&line.version, version + 1)
        release_fence()
        store_relaxed(&line.newest.upstream_id, values.upstream_id)
        store_relaxed(&line.newest.begin, values.begin)
        store_relaxed(&line.newest.end, values.end)
        store_relaxed(&line.newest.last_txid, values.last_txid)
        store_relaxed(&line.newest.last_time_ns, values.last_time_ns)
        store_release(&line.version, version + 2)

    def newest_stretch(self):
        """Replication process: (upstream id, begin, end, last transaction id, its time in ns) of the newest stretch;
        all are 0 if there is none yet.
        """
        cdef StretchLine* line = &self.data.stretch
        cdef uint64_t version
        while True:
            version = load_acquire(&line.version)
            if version & 1:
                continue
            found = (
                load_relaxed(&line.newest.upstream_id), load_relaxed(&line.newest.begin),
                load_relaxed(&line.newest.end), load_relaxed(&line.newest.last_txid),
                load_relaxed(&line.newest.last_time_ns),
            )
            acquire_fence()
            if load_relaxed(&line.version) == version:
                return found

    def watermarks(self):
        """One consistent reading: (journal_written, transient_written, next_txid, journal_number, transient_number)."""
        cdef Watermarks values
        self.read_watermarks(&values)
        return (values.journal_written, values.transient_written, values.next_txid, values.journal_number,
                values.transient_number)

    def set_watermarks(self, journal_written, transient_written, next_txid, journal_number, transient_number):
        """Core: publish the watermarks up to which readers may read."""
        cdef Watermarks values
        values.journal_written = journal_written
        values.transient_written = transient_written
        values.next_txid = next_txid
        values.journal_number = journal_number
        values.transient_number = transient_number
        self.write_watermarks(&values)

    @property
    def durable(self):
        """Log position up to which all records are durable."""
        return load_acquire(&self.data.flush.durable)

    @durable.setter
    def durable(self, uint64_t position):
        store_release(&self.data.flush.durable, position)

    @property
    def flush_failed(self):
        """errno of a failed sync, 0 = none."""
        return load_acquire(&self.data.flush.failed)

    @flush_failed.setter
    def flush_failed(self, uint64_t value):
        store_release(&self.data.flush.failed, value)

    @property
    def refused_from_bytes(self):
        """The journal now refuses records of that many bytes or more; None: it refuses none. Written by the core."""
        cdef uint64_t value = load_acquire(&self.data.refused_from_bytes)
        return None if value == NOTHING_REFUSED else value

    @property
    def first_journal_number(self):
        return load_acquire(&self.data.flush.first_journal_number)

    @first_journal_number.setter
    def first_journal_number(self, uint64_t value):
        store_release(&self.data.flush.first_journal_number, value)
        full_fence()

    def set_journal_floor(self, int index, uint64_t number):
        """Transport: set the oldest journal that it may read. After lowering it, read `first_journal_number`."""
        store_release(&self.data.transport[index].journal_floor, number)
        full_fence()

    def lowest_journal_floor(self):
        """Core, after raising `first_journal_number`: the oldest journal that any living transport may read."""
        cdef uint64_t lowest = NO_JOURNAL
        cdef int index
        for index in range(TRANSPORTS_MAX):
            if load_acquire(&self.data.transport[index].alive):
                lowest = min(lowest, load_acquire(&self.data.transport[index].journal_floor))
        return lowest

    def set_pages_done(self, int index, uint64_t position):
        """Transport: set the log position before which it neither maps nor is about to read the journal."""
        store_release(&self.data.transport[index].pages_done, position)

    def pages_done(self, int index):
        return load_acquire(&self.data.transport[index].pages_done)

    @property
    def transient_first_number(self):
        return load_acquire(&self.data.flush.transient_first_number)

    @transient_first_number.setter
    def transient_first_number(self, uint64_t value):
        store_release(&self.data.flush.transient_first_number, value)

    @property
    def state(self):
        """CORE_STARTING … CORE_FAILED, written by the core."""
        return load_acquire(&self.data.flush.state)

    @state.setter
    def state(self, uint64_t value):
        store_release(&self.data.flush.state, value)

    # --- replication ----------------------------------------------------------------------------------

    @property
    def replication_version(self):
        """Changes with the mode of a destination, and with anything of one that is sync."""
        return load_acquire(&self.data.replication.version)

    @property
    def destinations(self):
        """Number of destinations of replication. Set by the supervisor before the fork."""
        return load_acquire(&self.data.replication.destinations)

    @destinations.setter
    def destinations(self, uint64_t count):
        if count > DESTINATIONS_MAX:
            raise ValueError(f"there can be at most {<int>DESTINATIONS_MAX} destinations")
        store_release(&self.data.replication.destinations, count)

    def destination(self, int index):
        """One destination: (mode, acked, upgraded_at, replicated, scanned, settled); see DestinationLine."""
        cdef DestinationLine* line = &self.data.destination[index]
        return (load_acquire(&line.mode), load_acquire(&line.acked), load_acquire(&line.upgraded_at),
                load_acquire(&line.replicated), load_acquire(&line.scanned), load_acquire(&line.settled))

    def set_destination(
        self, int index, uint64_t mode, uint64_t acked, uint64_t upgraded_at, uint64_t scanned, uint64_t settled=0
    ):
        """Replication process: set the state of a destination. Its entries of the pending table, up to `scanned`, must
        be there. `settled`: any number that differs from the last one if the pending table says less than before.
        Returns True if something changed for which a transport may wait; the caller then wakes the transports.
        """
        cdef DestinationLine* line = &self.data.destination[index]
        cdef bint awaited = mode == DESTINATION_SYNC or mode != line.mode
        cdef uint64_t replicated = max(acked, upgraded_at) if mode == DESTINATION_SYNC else NOTHING_WAITS
        if (
            line.mode == mode and line.acked == acked and line.upgraded_at == upgraded_at
            and line.replicated == replicated and line.scanned == scanned and line.settled == settled
        ):
            return False
        store_release(&line.mode, mode)
        store_release(&line.acked, acked)
        store_release(&line.upgraded_at, upgraded_at)
        store_release(&line.scanned, scanned)
        store_release(&line.replicated, replicated)
        store_release(&line.settled, settled)
        if awaited:
            store_release(&self.data.replication.version, self.data.replication.version + 1)
            full_fence()
        return awaited

    def begin_destination(self, int index, bint is_sync):
        """Supervisor, before the fork: a destination is waited for from the beginning, if it is sync."""
        cdef DestinationLine* line = &self.data.destination[index]
        line.mode = DESTINATION_SYNC if is_sync else DESTINATION_ASYNC
        line.acked = line.upgraded_at = line.scanned = line.settled = 0
        line.replicated = 0 if is_sync else NOTHING_WAITS

    def lowest_acked(self):
        """Core: log position from which on a destination may need the log; NOTHING_WAITS: there is no destination."""
        cdef uint64_t lowest = NOTHING_WAITS
        cdef uint64_t index
        for index in range(load_acquire(&self.data.replication.destinations)):
            lowest = min(lowest, load_acquire(&self.data.destination[index].acked))
        return lowest

    # --- sleep flags and heartbeats -------------------------------------------------------------------

    def set_core_sleeping(self, bint sleeping):
        store_release(&self.data.core.sleeping, sleeping)
        full_fence()

    def core_needs_wake_up(self):
        """Producer, after publishing: whether the core needs a wake-up."""
        full_fence()
        return load_relaxed(&self.data.core.sleeping) != 0

    def transport_sleeping(self, int index):
        """Core, after publishing watermarks: whether that transport needs a wake-up."""
        full_fence()
        return load_relaxed(&self.data.transport[index].sleeping) != 0

    def set_transport_sleeping(self, int index, bint sleeping):
        store_release(&self.data.transport[index].sleeping, sleeping)
        full_fence()

    def core_beat(self, uint64_t now_ns):
        store_release(&self.data.core.heartbeat_ns, now_ns)

    def transport_beat(self, int index, uint64_t now_ns):
        store_release(&self.data.transport[index].heartbeat_ns, now_ns)

    @property
    def core_heartbeat_ns(self):
        return load_acquire(&self.data.core.heartbeat_ns)

    def transport_heartbeat_ns(self, int index):
        return load_acquire(&self.data.transport[index].heartbeat_ns)

    def set_transport_alive(self, int index, bint alive):
        store_release(&self.data.transport[index].alive, alive)
        full_fence()

    def transport_alive(self, int index):
        return load_acquire(&self.data.transport[index].alive) != 0

    def set_state_floor(self, int index, uint64_t txid):
        """Tell from which transaction id on a process follows links of records (0: of none). Publish a floor first,
        then read the watermarks, and use only snapshots of these.
        """
        store_release(&self.data.transport[index].state_floor, txid)
        full_fence()

    cdef uint64_t state_floor(self, uint64_t published_txid) noexcept nogil:
        """The lowest transaction id from which on any process may follow links. published_txid: that of the watermarks
        that were published last.
        """
        cdef uint64_t lowest = published_txid
        cdef uint64_t floor
        cdef int index
        full_fence()
        for index in range(TRANSPORTS_MAX):
            if load_acquire(&self.data.transport[index].alive):
                floor = load_acquire(&self.data.transport[index].state_floor)
                if 0 < floor < lowest:
                    lowest = floor
        return lowest

    def set_transient_read(self, int index, uint64_t position):
        store_release(&self.data.transport[index].transient_read, position)

    def transient_read(self, int index):
        return load_acquire(&self.data.transport[index].transient_read)

    def durable_wanted(self, int transports):
        """Core: highest log position up to which one of the first `transports` waits for durability."""
        cdef uint64_t wanted = 0
        cdef int index
        for index in range(transports):
            wanted = max(wanted, load_acquire(&self.data.transport[index].durable_wanted))
        return wanted

    def set_connections(self, int index, uint64_t count):
        store_release(&self.data.transport[index].connections, count)

    def connections(self, int index):
        return load_acquire(&self.data.transport[index].connections)


cdef class Ring:
    """A byte ring of records for one producer and one consumer.

    `capacity` is a power of two. A record may have at most half of it (`record_limit`); larger ones go through a spill
    file. Positions count the bytes ever pushed; the offset in memory is the position modulo capacity.
    """

    def __init__(self, uint64_t capacity):
        if capacity < 4096 or capacity & (capacity - 1):
            raise ValueError(f"ring capacity must be a power of two of at least 4096, not {capacity}")
        self.capacity = capacity
        self._memory = mmap.mmap(-1, sizeof(RingData) + capacity)
        cdef unsigned char[::1] view = self._memory
        self.data = <RingData*>&view[0]
        self.bytes_ = <uint8_t*>&view[0] + sizeof(RingData)
        self.pending_head = 0
        self.known_tail = 0

    @property
    def record_limit(self):
        """Maximum size of a record in bytes."""
        return self.capacity // 2

    @property
    def head(self):
        """Bytes ever published by the producer."""
        return load_acquire(&self.data.head)

    @property
    def tail(self):
        """Bytes ever taken by the consumer."""
        return load_acquire(&self.data.tail)

    @property
    def pushed(self):
        """Producer: position after the last record pushed, published or not."""
        return self.pending_head

    def publish_pushed(self):
        """Producer: make all pushed records visible. True: there were any."""
        if self.pending_head == load_relaxed(&self.data.head):
            return False
        self.publish()
        return True

    def attach_producer(self):
        """Start producing at the published head; unpublished records of a dead producer are dropped."""
        self.pending_head = load_acquire(&self.data.head)
        self.known_tail = load_acquire(&self.data.tail)

    cdef uint8_t* reserve(self, uint32_t length) noexcept nogil:
        """Reserve room for a record of `length` bytes. NULL: the ring is too full, or the record is too large."""
        cdef uint64_t need = align8(length)
        cdef uint64_t offset = self.pending_head & (self.capacity - 1)
        cdef uint64_t pad = 0
        if need > self.capacity // 2:
            return NULL
        if offset + need > self.capacity:
            pad = self.capacity - offset
        if self.pending_head + pad + need - self.known_tail > self.capacity:
            self.known_tail = load_acquire(&self.data.tail)
            if self.pending_head + pad + need - self.known_tail > self.capacity:
                return NULL
        if pad:
            (<RingEntry*>(self.bytes_ + offset)).length = RING_PAD | <uint32_t>pad
            self.pending_head += pad
            offset = 0
        return self.bytes_ + offset

    cdef bint backlog_reaches(self, uint64_t limit) noexcept nogil:
        """Producer: whether at least `limit` bytes wait for the consumer."""
        if self.pending_head - self.known_tail < limit:
            return False
        self.known_tail = load_acquire(&self.data.tail)
        return self.pending_head - self.known_tail >= limit

    cdef void commit(self, uint32_t length) noexcept nogil:
        """Add the record in the reserved room to the ring; it is not visible yet."""
        self.pending_head += align8(length)

    cdef void publish(self) noexcept nogil:
        """Make all committed records visible to the consumer."""
        store_release(&self.data.head, self.pending_head)

    cdef RingEntry* peek(self, uint64_t* at, uint64_t limit) noexcept nogil:
        """The record at position at[0], or NULL at `limit`. Pads are skipped: at[0] moves behind them."""
        cdef RingEntry* entry
        while at[0] < limit:
            entry = <RingEntry*>(self.bytes_ + (at[0] & (self.capacity - 1)))
            if entry.length & RING_PAD:
                at[0] += entry.length & ~(<uint32_t>RING_PAD)
                continue
            debug_assert(entry.length >= RING_ENTRY_BYTES_MIN and entry.length <= limit - at[0])
            return entry
        return NULL

    # --- Python interface: control records, tests, simulation -----------------------------------------

    def push(self, record):
        """Push one whole record (bytes, including the header). False: there is no room."""
        cdef const unsigned char[::1] view = record
        cdef uint32_t length = <uint32_t>view.shape[0]
        if length < RING_ENTRY_BYTES_MIN or (<const RingEntry*>&view[0]).length != length:
            raise ValueError("a record's length field must state its size")
        if align8(length) > self.capacity // 2:
            raise ValueError(f"a record of {length} bytes is over the ring's limit of {self.capacity // 2}")
        cdef uint8_t* room = self.reserve(length)
        if room == NULL:
            return False
        memcpy(room, &view[0], length)
        self.commit(length)
        self.publish()
        return True

    def pop_all(self):
        """Take all published records as bytes, and free the ring: for control records and tests."""
        cdef uint64_t at = self.data.tail
        cdef uint64_t limit = load_acquire(&self.data.head)
        cdef RingEntry* record
        cdef list records = []
        while True:
            record = self.peek(&at, limit)
            if record == NULL:
                break
            records.append((<const char*>record)[:record.length])
            at += align8(record.length)
        store_release(&self.data.tail, at)
        return records


cdef class InstanceView:
    """One transport's reading of the shared state, and its sleep flag.

    `read` reads the consumed ring position before the watermarks, so all consumed records lie below them.
    """

    def __init__(self, ControlPage control, Ring ingress, Ring egress, int index):
        self.control = control
        self.ingress = ingress
        self.egress = egress
        self.line = &control.data.transport[index]
        self.asleep = False
        self.read()

    def read(self):
        """Take one reading."""
        cdef Watermarks now
        store_relaxed(&self.line.processor, processor_mark())
        # Before the watermarks of the destinations, which are read later, in the same turn.
        self.replication_version = load_acquire(&self.control.data.replication.version)
        cdef uint64_t consumed = load_acquire(&self.ingress.data.tail)
        if not self.has_answers():
            # The core sends answers before it frees the ring. While answers wait, the consumed position must not be
            # used: an answer may say that records were dropped because a client name was taken over.
            self.consumed = consumed
        self.control.read_watermarks(&now)
        self.journal_written = now.journal_written
        self.transient_written = now.transient_written
        self.next_txid = now.next_txid
        self.journal_number = now.journal_number
        self.transient_number = now.transient_number
        self.durable = load_acquire(&self.control.data.flush.durable)

    cpdef bint moved(self):
        """Whether the shared state has changed since the last reading."""
        cdef Watermarks now
        self.control.read_watermarks(&now)
        return (
            now.next_txid != self.next_txid
            or now.journal_written != self.journal_written
            or now.transient_written != self.transient_written
            or load_acquire(&self.ingress.data.tail) != self.consumed
            or load_acquire(&self.control.data.flush.durable) != self.durable
            or load_acquire(&self.control.data.replication.version) != self.replication_version
            or self.has_answers()
        )

    cpdef bint has_answers(self):
        """Whether answers or other records of the core wait in the egress ring."""
        return load_acquire(&self.egress.data.head) != load_relaxed(&self.egress.data.tail)

    def fall_asleep(self):
        """Set the sleep flag. False: the shared state has changed since the last reading, and the flag is cleared
        again.
        """
        if not self.asleep:
            self.asleep = True
            store_release(&self.line.sleeping, 1)
            full_fence()
        if self.moved():
            self.wake()
            return False
        return True

    cpdef wake(self):
        """Clear the sleep flag: no wake-up is needed."""
        if self.asleep:
            self.asleep = False
            store_release(&self.line.sleeping, 0)

    def want_durable(self, uint64_t position):
        """Request durability up to `position`, for which a client waits. True: the core needs a wake-up."""
        if position <= load_relaxed(&self.line.durable_wanted):
            return False
        store_release(&self.line.durable_wanted, position)
        return self.control.core_needs_wake_up()

    def set_transient_read(self, uint64_t position):
        """Publish the position up to which the transient log was read; it is mostly unchanged."""
        if load_relaxed(&self.line.transient_read) != position:
            store_release(&self.line.transient_read, position)
