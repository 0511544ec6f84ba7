# Shared memory between the processes of one instance: the control page and the rings.

from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t


cdef enum:
    CACHE_LINE_BYTES = 64
    TRANSPORTS_MAX = 64
    DESTINATIONS_MAX = 64
    CONTROL_PAGE_BYTES = 16384

cdef uint64_t NOTHING_REFUSED


# Each writer has its own cache lines, so that no two processes write the same line.
cdef struct CoreLine:
    uint64_t version               # seqlock of the next five fields: odd while the core changes them
    uint64_t journal_written       # log position up to which records may be read
    uint64_t transient_written      # the same for the transient log
    uint64_t next_txid             # all records below these two watermarks have lower transaction ids
    uint64_t journal_number        # number of the journal file in use
    uint64_t transient_number       # number of the transient segment in use
    uint64_t sleeping              # 1: the core needs a wake-up after a push
    uint64_t heartbeat_ns          # monotonic clock at the core's last turn


cdef struct FlushLine:
    uint64_t durable               # log position up to which all records are durable
    uint64_t failed                # errno of a failed sync; the core must stop
    uint64_t first_journal_number  # number of the oldest journal file
    uint64_t transient_first_number  # number of the oldest transient segment that a reader may need
    uint64_t state                 # CoreState
    uint64_t unused[3]


# A part of the journal in which each record came from the same upstream, and follows the one before. An instance that
# replicates back to that upstream need not read it (docs/replication.md, "How a source sends").
cdef struct Stretch:
    uint64_t upstream_id           # name id of the upstream; 0: there is no stretch yet
    uint64_t begin                 # log position of its first record
    uint64_t end                   # log position behind its last record
    uint64_t last_txid             # of its last record
    uint64_t last_time_ns


cdef struct StretchLine:
    uint64_t version               # seqlock: odd while the core changes the stretch
    Stretch newest
    uint64_t unused[2]


cdef struct TransportLine:
    uint64_t sleeping              # 1: this transport needs a wake-up when the shared state changes
    uint64_t transient_read         # position in the transient log up to which it has read
    uint64_t heartbeat_ns
    uint64_t alive                 # 0: the transport does not run; the core ignores transient_read
    uint64_t connections           # open client connections
    uint64_t durable_wanted        # log position up to which a client waits for durability
    uint64_t journal_floor         # number of the oldest journal it may read; NO_JOURNAL = none
    uint64_t pages_done            # log position before which nothing is mapped or will be read (page_release.pxi)
    uint64_t processor             # number of the processor where it ran last, plus 1; 0 = not known (placement.pxi)
    # Transaction id: it follows links to the records before of no record with a smaller one (sow/value_file.pxi); 0: of
    # no record.
    uint64_t state_floor
    uint64_t unused[6]


# How acknowledgements wait for a destination of replication (replication.md §7, §8).
cdef enum DestinationMode:
    DESTINATION_ASYNC = 0          # not waited for: configured so, or there is no such destination
    DESTINATION_SYNC = 1
    DESTINATION_DOWNGRADED = 2     # configured sync, not waited for until it is upgraded


# A destination of replication. Only the replication process writes it.
cdef struct DestinationLine:
    uint64_t mode                  # DestinationMode
    uint64_t acked                 # log position before which it has every record durably, or is not to get it
    uint64_t upgraded_at           # log position at the last upgrade; it is not waited for before it
    uint64_t replicated            # what acknowledgements wait for; the largest number: nothing waits for it
    uint64_t scanned               # log position up to which it is known which records it is to get
    uint64_t settled               # a counter: raised when the pending table says less, though no position moved
    uint64_t unused[2]


cdef struct ReplicationLine:
    uint64_t version               # changes with the mode of a destination, and with the line of one that is sync
    uint64_t destinations          # number of destinations in the configuration
    uint64_t unused[6]


cdef struct ControlData:
    uint64_t magic
    # Read on every publish and rarely written, so no frequently written field may share its cache line.
    uint64_t refused_from_bytes    # the journal refuses records of that many bytes or more; NOTHING_REFUSED = none
    uint64_t unused[6]
    CoreLine core
    FlushLine flush
    StretchLine stretch
    ReplicationLine replication
    DestinationLine destination[DESTINATIONS_MAX]
    TransportLine transport[TRANSPORTS_MAX]


cdef struct RingData:
    uint64_t head                  # bytes ever pushed: written by the producer
    uint64_t unused_head[7]
    uint64_t tail                  # bytes ever taken: written by the consumer
    uint64_t unused_tail[7]
    # the bytes of the ring follow


cdef enum:
    RING_PAD = 0x80000000          # flag in an entry's length: skip that many bytes, to the start of the ring


# Every entry of a ring begins with its length. Entries are records (journal/record.pxd).
cdef struct RingEntry:
    uint32_t length


cdef struct Watermarks:
    uint64_t journal_written
    uint64_t transient_written
    uint64_t next_txid
    uint64_t journal_number
    uint64_t transient_number


cdef class ControlPage:
    cdef object _memory            # the shared mapping
    cdef ControlData* data

    cdef void read_watermarks(self, Watermarks* out) noexcept nogil
    cdef void write_watermarks(self, const Watermarks* values) noexcept nogil
    cdef void write_stretch(self, const Stretch* values) noexcept nogil
    cdef uint64_t state_floor(self, uint64_t published_txid) noexcept nogil


cdef class Ring:
    cdef object _memory
    cdef RingData* data
    cdef uint8_t* bytes_
    cdef readonly uint64_t capacity
    cdef uint64_t pending_head     # producer: position behind the last pushed record
    cdef uint64_t known_tail       # producer: the consumer's tail when last read

    cdef uint8_t* reserve(self, uint32_t length) noexcept nogil
    cdef void commit(self, uint32_t length) noexcept nogil
    cdef void publish(self) noexcept nogil
    cdef RingEntry* peek(self, uint64_t* at, uint64_t limit) noexcept nogil
    cdef bint backlog_reaches(self, uint64_t limit) noexcept nogil


cdef class InstanceView:
    cdef ControlPage control
    cdef Ring ingress
    cdef Ring egress
    cdef TransportLine* line
    cdef bint asleep
    cdef readonly uint64_t consumed            # ring position up to which the core has taken records
    cdef readonly uint64_t journal_written
    cdef readonly uint64_t transient_written
    cdef readonly uint64_t next_txid
    cdef readonly uint64_t journal_number
    cdef readonly uint64_t transient_number
    cdef readonly uint64_t durable
    cdef readonly uint64_t replication_version  # of the destinations' watermarks

    cpdef bint moved(self)
    cpdef bint has_answers(self)
    cpdef wake(self)


# See shm/pending_table.pxi.


cdef struct PendingEntry:
    uint64_t publisher_id          # 0: free
    uint64_t first_position        # of the records that are not acknowledged
    uint64_t last_position
    uint64_t first_sequence        # of the record at `first_position`


cdef struct PendingHeader:
    uint64_t version               # odd while the writer moves entries
    uint64_t full                  # 1: some publishers have no entry
    uint64_t unused[6]


cdef class PendingTable:
    cdef object _memory
    cdef PendingHeader* header
    cdef PendingEntry* entries
    cdef readonly uint64_t capacity
    cdef uint64_t used             # writer: entries in use, outdated ones included

    cdef int note(self, uint64_t publisher_id, uint64_t position, uint64_t sequence, uint64_t replicated) except -1
    cdef int drop_outdated(self, uint64_t replicated) except -1
    cdef PendingEntry* find(self, uint64_t publisher_id) noexcept nogil
    cdef bint pending(
        self, uint64_t publisher_id, uint64_t before, uint64_t replicated, uint64_t* sequence, uint64_t* until
    ) noexcept nogil


# See shm/placement.pxi.


cdef class Placement:
    cdef ControlPage control
    cdef int transports
    cdef uint64_t next_move_ns
    cdef readonly uint64_t moves
