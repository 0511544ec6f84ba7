# The sparse index of one journal file, for finding a bookmark, a time or the topics without reading the file.
#
# For each 64 KiB of journal, the index has one block: offset, transaction id and time of its first record. For each
# publisher with records in the block, it has an entry with the range of the publisher's sequences. An upstream of
# replication is indexed as one more publisher, whose sequence is the transaction id there. Sequences of a publisher
# only rise in a log, so a bookmark can only be in the block whose entry encloses it. Topic records form a chain that
# leads backwards from `last_topic_offset`.
#
# A block that does not begin within a transaction is an *entrance*: a reader that must have transactions whole may
# begin there.
#
# The core builds the index of the file in use in shared memory, where transports read it. It fills an entry, then
# publishes the counts by release stores. When a file is full, the index is written beside it with a summary per
# publisher and a checksum. An index is a cache: it can always be rebuilt by scanning its journal.

from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

import mmap

import numpy

from amps._core.shm.platform cimport crc32c, load_acquire, store_relaxed, store_release
from amps._core.journal.record cimport (
    EXTENSION_SOURCE,
    KIND_NAME,
    KIND_TOPIC,
    KIND_TRANSACTION,
    TRANSACTION_BYTES,
    RecordHeader,
    TransactionGroup,
    extension_word,
    transaction_group,
)
from amps._core.journal.index cimport (
    INDEX_BLOCK_BYTES,
    INDEX_BLOCK_ENTRANCE,
    INDEX_BLOCK_OVERFLOW,
    INDEX_ENTRIES_PER_BLOCK_MAX,
    INDEX_HEADER_BYTES,
    INDEX_VERSION,
    IndexBlock,
    IndexEntry,
    IndexHeader,
    PublisherSummary,
)

BLOCK_DTYPE = numpy.dtype(
    [("offset", "<u8"), ("txid", "<u8"), ("timestamp_ns", "<u8"), ("first_entry", "<u4"), ("flags", "<u4")]
)
ENTRY_DTYPE = numpy.dtype(
    [("publisher_id", "<u8"), ("first_sequence", "<u8"), ("last_sequence", "<u8"), ("block", "<u4"), ("unused", "<u4")]
)
SUMMARY_DTYPE = numpy.dtype(
    [("publisher_id", "<u8"), ("first_sequence", "<u8"), ("last_sequence", "<u8"), ("last_timestamp_ns", "<u8")]
)
BLOCK_BYTES = INDEX_BLOCK_BYTES

cdef enum IndexRole:
    PUBLISHER = 0
    UPSTREAM = 1


class IndexDamaged(ValueError):
    """An index file cannot be used; its journal must be scanned."""


cdef class PublisherMap:

    def __cinit__(self):
        self.capacity = 64
        self.count = 0
        self.slots = <MapSlot*>calloc(self.capacity, sizeof(MapSlot))
        if self.slots == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.slots)

    cdef uint64_t* find(self, uint64_t key) noexcept nogil:
        cdef uint64_t at = (key ^ (key >> 29)) & (self.capacity - 1)
        while self.slots[at].key != 0:
            if self.slots[at].key == key:
                return &self.slots[at].value
            at = (at + 1) & (self.capacity - 1)
        return NULL

    cdef uint64_t* insert(self, uint64_t key) except NULL:
        """Insert a key that is not in the map yet. Returns the address of its value."""
        cdef MapSlot* old = self.slots
        cdef uint64_t old_capacity = self.capacity
        cdef uint64_t index
        cdef uint64_t at
        cdef MapSlot* grown
        if (self.count + 1) * 2 > self.capacity:
            grown = <MapSlot*>calloc(old_capacity * 2, sizeof(MapSlot))
            if grown == NULL:
                raise MemoryError()
            self.slots = grown
            self.capacity = old_capacity * 2
            for index in range(old_capacity):
                if old[index].key != 0:
                    at = (old[index].key ^ (old[index].key >> 29)) & (self.capacity - 1)
                    while self.slots[at].key != 0:
                        at = (at + 1) & (self.capacity - 1)
                    self.slots[at] = old[index]
            free(old)
        at = (key ^ (key >> 29)) & (self.capacity - 1)
        while self.slots[at].key != 0:
            at = (at + 1) & (self.capacity - 1)
        self.slots[at].key = key
        self.count += 1
        return &self.slots[at].value


def index_bytes(file_size_bytes):
    """The number of bytes of memory that the index of a journal file of that size needs while it is built."""
    blocks = file_size_bytes // INDEX_BLOCK_BYTES + 2
    return (
        INDEX_HEADER_BYTES
        + blocks * sizeof(IndexBlock)
        + blocks * INDEX_ENTRIES_PER_BLOCK_MAX * sizeof(IndexEntry)
    )


cdef class IndexBuilder:
    """Builds the index of one journal file in a writable buffer (shared memory for the file in use)."""

    def __cinit__(self):
        self.publishers = NULL

    def __init__(self, memory, uint64_t file_number, uint64_t start_position, uint64_t file_size_bytes):
        cdef unsigned char[::1] view
        cdef uint64_t blocks = file_size_bytes // INDEX_BLOCK_BYTES + 2
        if memory is None:
            memory = mmap.mmap(-1, index_bytes(file_size_bytes))
        view = memory
        if <uint64_t>view.shape[0] < index_bytes(file_size_bytes):
            raise ValueError("the index memory is too small for the journal file")
        self._memory = memory
        memset(&view[0], 0, INDEX_HEADER_BYTES)
        self.header = <IndexHeader*>&view[0]
        self.blocks = <IndexBlock*>(&view[0] + INDEX_HEADER_BYTES)
        self.entries = <IndexEntry*>(&view[0] + INDEX_HEADER_BYTES + blocks * sizeof(IndexBlock))
        memcpy(self.header.magic, b"AMPSOIDX", 8)
        self.header.version = INDEX_VERSION
        self.header.file_number = file_number
        self.header.start_position = start_position
        self.header.block_capacity = blocks
        self.header.entry_capacity = blocks * INDEX_ENTRIES_PER_BLOCK_MAX
        self._map = PublisherMap()
        self.publisher_count = 0
        self.publisher_capacity = 0
        self.cached_id[0] = self.cached_id[1] = 0
        self.cached_index[0] = self.cached_index[1] = 0
        self.current_block = <uint64_t>-1
        self.entries_in_block = 0
        self.group_end = 0

    def __dealloc__(self):
        free(self.publishers)

    cdef int add(self, const RecordHeader* record, uint64_t offset) except -1:
        """Index one record that starts at that file offset; offsets must rise."""
        cdef uint64_t block = offset // INDEX_BLOCK_BYTES
        cdef uint64_t number
        cdef uint64_t upstream
        cdef const TransactionGroup* group
        cdef IndexHeader* header = self.header
        if block != self.current_block:
            number = header.block_count
            if number >= header.block_capacity:
                raise ValueError("more index blocks than the journal file can have")
            self.blocks[number].offset = offset
            self.blocks[number].txid = record.txid
            self.blocks[number].timestamp_ns = record.timestamp_ns
            self.blocks[number].first_entry = <uint32_t>header.entry_count
            self.blocks[number].flags = INDEX_BLOCK_ENTRANCE if offset >= self.group_end else 0
            store_release(&header.block_count, number + 1)
            self.current_block = block
            self.entries_in_block = 0
        if record.kind == KIND_TOPIC:
            store_release(&header.last_topic_offset, offset)
        elif record.kind == KIND_NAME:
            store_release(&header.last_name_offset, offset)
        elif record.kind == KIND_TRANSACTION:
            group = transaction_group(record)
            if group != NULL:
                self.group_end = offset + TRANSACTION_BYTES + group.bytes
        if header.first_txid == 0:
            header.first_txid = record.txid
            header.first_timestamp_ns = record.timestamp_ns
        store_relaxed(&header.last_txid, record.txid)
        store_relaxed(&header.last_timestamp_ns, record.timestamp_ns)
        store_release(&header.end_offset, offset + ((record.length + 7) & ~<uint64_t>7))
        if record.publisher_id:
            self._add_publisher(PUBLISHER, record.publisher_id, record.sequence, record.timestamp_ns)
        if record.extension_length:
            upstream = extension_word(record, EXTENSION_SOURCE, 0)
            if upstream:
                self._add_publisher(
                    UPSTREAM, upstream, extension_word(record, EXTENSION_SOURCE, 1), record.timestamp_ns
                )
        return 0

    cdef int _add_publisher(
        self, uint32_t role, uint64_t publisher_id, uint64_t sequence, uint64_t timestamp_ns
    ) except -1:
        """Index the sequence of a publisher in the current block; of an upstream, its transaction id."""
        cdef uint64_t number = self.header.block_count - 1
        cdef uint64_t* place
        cdef BuilderPublisher* publisher
        cdef BuilderPublisher* grown
        cdef IndexEntry* entry
        cdef IndexHeader* header = self.header
        if publisher_id != self.cached_id[role]:
            place = self._map.find(publisher_id)
            if place == NULL:
                place = self._map.insert(publisher_id)
                place[0] = self.publisher_count
                if self.publisher_count == self.publisher_capacity:
                    self.publisher_capacity = max(64, self.publisher_capacity * 2)
                    grown = <BuilderPublisher*>realloc(
                        self.publishers, self.publisher_capacity * sizeof(BuilderPublisher)
                    )
                    if grown == NULL:
                        raise MemoryError()
                    self.publishers = grown
                self.publishers[self.publisher_count] = BuilderPublisher(
                    publisher_id, sequence, sequence, 0, <uint64_t>-1, 0
                )
                self.publisher_count += 1
            self.cached_id[role] = publisher_id
            self.cached_index[role] = place[0]
        publisher = &self.publishers[self.cached_index[role]]
        if sequence < publisher.last_sequence:
            publisher.first_sequence = 0
        publisher.last_sequence = sequence
        publisher.last_timestamp_ns = timestamp_ns
        if publisher.block == number:
            entry = &self.entries[publisher.entry]
            if sequence > entry.last_sequence:
                store_release(&entry.last_sequence, sequence)
            elif sequence < entry.first_sequence:
                store_release(&entry.first_sequence, sequence)
            return 0
        if self.entries_in_block == INDEX_ENTRIES_PER_BLOCK_MAX:
            self.blocks[number].flags |= INDEX_BLOCK_OVERFLOW
            return 0
        entry = &self.entries[header.entry_count]
        entry.publisher_id = publisher_id
        entry.first_sequence = sequence
        entry.last_sequence = sequence
        entry.block = <uint32_t>number
        entry.unused = 0
        publisher.block = number
        publisher.entry = header.entry_count
        self.entries_in_block += 1
        store_release(&header.entry_count, header.entry_count + 1)
        return 0

    def publishers_seen(self):
        """{publisher id: (first sequence, last sequence, time of the last in ns)} of this file."""
        cdef uint64_t index
        cdef BuilderPublisher* publisher
        result = {}
        for index in range(self.publisher_count):
            publisher = &self.publishers[index]
            result[publisher.publisher_id] = (
                publisher.first_sequence, publisher.last_sequence, publisher.last_timestamp_ns
            )
        return result

    @property
    def last_topic_offset(self):
        return self.header.last_topic_offset

    @property
    def last_name_offset(self):
        return self.header.last_name_offset

    @property
    def last_txid(self):
        return self.header.last_txid

    @property
    def last_timestamp_ns(self):
        """Time of the last record indexed; 0 = none."""
        return self.header.last_timestamp_ns

    @property
    def end_offset(self):
        """File offset after the last record indexed; 0 = none."""
        return self.header.end_offset

    def to_bytes(self):
        """The index as it is written beside a full journal: compact, with publisher summary and checksum."""
        summary = numpy.zeros(self.publisher_count, SUMMARY_DTYPE)
        for row, (publisher, values) in enumerate(sorted(self.publishers_seen().items())):
            summary[row] = (publisher, *values)
        cdef bytes blocks = (<const char*>self.blocks)[: self.header.block_count * sizeof(IndexBlock)]
        cdef bytes entries = (<const char*>self.entries)[: self.header.entry_count * sizeof(IndexEntry)]
        cdef bytes rest = blocks + entries + summary.tobytes()
        cdef bytearray head = bytearray((<const char*>self.header)[:INDEX_HEADER_BYTES])
        cdef IndexHeader* header = <IndexHeader*><char*>head
        header.block_capacity = header.block_count
        header.entry_capacity = header.entry_count
        header.publisher_count = self.publisher_count
        header.checksum = 0
        cdef bytes body = bytes(head)[16:] + rest
        header.checksum = crc32c(<const char*>body, len(body))
        return bytes(head) + rest


cdef class IndexReader:
    """Reads an index of a closed file, or of the file in use, whose index grows meanwhile."""

    cdef object _memory
    cdef const IndexHeader* header
    cdef const IndexBlock* blocks
    cdef const IndexEntry* entries
    cdef readonly bint closed

    def __init__(self, memory, bint closed):
        """memory: with `closed` the content of an index file, which is checked here; else the shared memory of the file
        in use. Raises IndexDamaged.
        """
        cdef const unsigned char[::1] view = memory
        if view.shape[0] < INDEX_HEADER_BYTES:
            raise IndexDamaged("shorter than its header")
        self._memory = memory
        self.closed = closed
        self.header = <const IndexHeader*>&view[0]
        if self.header.magic[:8] != b"AMPSOIDX" or self.header.version != INDEX_VERSION:
            raise IndexDamaged("no index file of a known version")
        cdef uint64_t size = INDEX_HEADER_BYTES
        size += self.header.block_capacity * sizeof(IndexBlock) + self.header.entry_capacity * sizeof(IndexEntry)
        if closed:
            size += self.header.publisher_count * sizeof(PublisherSummary)
        if (
            self.header.block_capacity > 1 << 32 or self.header.entry_capacity > 1 << 37
            or self.header.publisher_count > 1 << 37 or <uint64_t>view.shape[0] < size
        ):
            raise IndexDamaged("shorter than its contents")
        if closed and crc32c(&view[16], size - 16) != self.header.checksum:
            # The checksum covers the bytes from 16 on; its own field is before them.
            raise IndexDamaged("checksum does not match")
        self.blocks = <const IndexBlock*>(&view[0] + INDEX_HEADER_BYTES)
        self.entries = <const IndexEntry*>(
            &view[0] + INDEX_HEADER_BYTES + self.header.block_capacity * sizeof(IndexBlock)
        )

    @property
    def file_number(self):
        return self.header.file_number

    @property
    def start_position(self):
        return self.header.start_position

    @property
    def end_offset(self):
        return load_acquire(<uint64_t*>&self.header.end_offset)

    @property
    def last_topic_offset(self):
        return load_acquire(<uint64_t*>&self.header.last_topic_offset)

    @property
    def last_name_offset(self):
        """File offset of the newest name record indexed, 0 = none."""
        return load_acquire(<uint64_t*>&self.header.last_name_offset)

    @property
    def first_txid(self):
        return self.header.first_txid

    @property
    def last_txid(self):
        return load_acquire(<uint64_t*>&self.header.last_txid)

    @property
    def first_timestamp_ns(self):
        return self.header.first_timestamp_ns

    @property
    def last_timestamp_ns(self):
        return load_acquire(<uint64_t*>&self.header.last_timestamp_ns)

    def publishers(self):
        """The summary of a closed file, as a numpy array of SUMMARY_DTYPE, sorted by publisher id."""
        offset = (
            INDEX_HEADER_BYTES + self.header.block_count * sizeof(IndexBlock)
            + self.header.entry_count * sizeof(IndexEntry)
        )
        return numpy.frombuffer(self._memory, SUMMARY_DTYPE, self.header.publisher_count, offset)

    def may_hold(self, uint64_t publisher_id, uint64_t sequence):
        """False if the message is certainly not in the file. Always True for the file in use."""
        if not self.closed:
            return True
        publishers = self.publishers()
        row = int(numpy.searchsorted(publishers["publisher_id"], publisher_id))
        if row == len(publishers) or int(publishers["publisher_id"][row]) != publisher_id:
            return False
        first = int(publishers["first_sequence"][row])
        return first == 0 or first <= sequence <= int(publishers["last_sequence"][row])

    def candidate_blocks(self, uint64_t publisher_id, uint64_t sequence):
        """File offsets of the blocks in which the message may be, newest first.

        Usually at most one block has a matching entry; all blocks with overflow are added.
        """
        cdef uint64_t block_count = load_acquire(<uint64_t*>&self.header.block_count)
        cdef uint64_t entry_count = load_acquire(<uint64_t*>&self.header.entry_count)
        cdef uint64_t index = entry_count
        cdef list found = []
        while index > 0:
            index -= 1
            if self.entries[index].publisher_id == publisher_id:
                if (
                    load_acquire(<uint64_t*>&self.entries[index].first_sequence) <= sequence
                    and sequence <= load_acquire(<uint64_t*>&self.entries[index].last_sequence)
                ):
                    found.append(self.blocks[self.entries[index].block].offset)
        index = block_count
        while index > 0:
            index -= 1
            if self.blocks[index].flags & INDEX_BLOCK_OVERFLOW and self.blocks[index].offset not in found:
                found.append(self.blocks[index].offset)
        return found

    def block_before(self, uint64_t timestamp_ns):
        """File offset of the last block that begins before that time (UNIX, in ns); None if there is none."""
        cdef uint64_t low = 0
        cdef uint64_t high = load_acquire(<uint64_t*>&self.header.block_count)
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.blocks[middle].timestamp_ns < timestamp_ns:
                low = middle + 1
            else:
                high = middle
        return self.blocks[low - 1].offset if low else None

    def entrance_before(self, uint64_t offset):
        """File offset of the last entrance at or before a file offset; None if there is none."""
        cdef uint64_t low = 0
        cdef uint64_t high = load_acquire(<uint64_t*>&self.header.block_count)
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.blocks[middle].offset <= offset:
                low = middle + 1
            else:
                high = middle
        return self.last_entrance(low)

    def entrance_of_txid(self, uint64_t txid):
        """File offset of the last entrance before which all records have lower transaction ids than the given one.

        None if there is none.
        """
        cdef uint64_t low = 0
        cdef uint64_t high = load_acquire(<uint64_t*>&self.header.block_count)
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.blocks[middle].txid <= txid:
                low = middle + 1
            else:
                high = middle
        return self.last_entrance(low)

    cdef object last_entrance(self, uint64_t count):
        """File offset of the last entrance among the first `count` blocks; None if there is none."""
        while count:
            count -= 1
            if self.blocks[count].flags & INDEX_BLOCK_ENTRANCE:
                return self.blocks[count].offset
        return None

    def block_range(self, uint64_t offset):
        """(first, end) file offsets of the block that begins at `offset`; end = 0: it is the last block."""
        cdef uint64_t count = load_acquire(<uint64_t*>&self.header.block_count)
        cdef uint64_t low = 0
        cdef uint64_t high = count
        cdef uint64_t middle
        while low < high:
            middle = (low + high) // 2
            if self.blocks[middle].offset <= offset:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            return offset, 0
        return self.blocks[low - 1].offset, (self.blocks[low].offset if low < count else 0)
