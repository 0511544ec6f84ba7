# The value file of a SOW topic: records that are in no journal, in slabs.
#
# A slab is a part of the file, of the configured size (SlabSize) and some room for headers. Records are appended to one
# open slab. A record that is no longer the newest of its key is *dead*. When more than half of the file is dead, the
# live records of the slab with the most dead ones are appended again, in small steps. An empty slab is used again, after
# the last reader that may follow a link into it has passed (`emptied_txid`).
#
# The file: a header page; slabs, each with a header of 64 bytes, then records as in a journal. A record is dead when its
# checksum is inverted. Behind the last record of a slab are 8 zero bytes. So after the death of the process, a scan finds
# all records with their state: the file lives in the page cache. After a crash of the machine, what was not synced yet
# may be missing; a scan takes what is sound.
#
# Readers map the file, too. They never meet a reused slab, as long as they publish the transaction id up to which they
# have read (ControlPage.state_floors).

from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import os

from amps._core.journal.record cimport RecordHeader, record_checksum, record_parts_fit
from amps._core.shm.platform cimport align8, crc32c

cdef extern from "sys/mman.h" nogil:
    const int MAP_SHARED
    const int PROT_READ
    const int PROT_WRITE
    void* MAP_FAILED
    void* mmap(void* address, size_t length, int protection, int flags, int descriptor, long offset)
    int munmap(void* address, size_t length)

cdef enum:
    FILE_HEADER_BYTES = 4096
    SLAB_HEADER_BYTES = 64
    SLAB_EXTRA_BYTES = 262144      # of a slab, for the headers of a record of the largest size
    EXTENT_BYTES = 1 << 28         # mapped at once, if a slab is not larger
    COMPACTION_BYTES = 65536       # least part of a compaction

cdef uint64_t PLACE_IN_FILE = <uint64_t>1 << 63
cdef uint64_t SLAB_MAGIC = 0x42414C53534D4150

VALUE_FILE_MAGIC = b"AMPSOSOW"
VALUE_FILE_VERSION = 1
VALUE_FILE_HEADER_BYTES = FILE_HEADER_BYTES


cdef packed struct SlabHeader:
    uint64_t magic
    uint64_t number                # of the slab
    uint64_t serial                # of its use: rises with every use of any slab
    uint64_t[4] unused
    uint32_t checksum              # CRC32C of the bytes before
    uint32_t unused_too


cdef enum SlabState:
    SLAB_FREE = 0
    SLAB_OPEN = 1
    SLAB_FULL = 2
    SLAB_EMPTIED = 3               # free as soon as the readers have passed


def slab_bytes(uint64_t slab_size):
    """Size in bytes of a slab in the file, for a configured SlabSize."""
    return (slab_size + SLAB_EXTRA_BYTES + 4095) // 4096 * 4096


@cython.final
cdef class ValueFile:

    def __cinit__(self):
        self.extents = NULL
        self.extent_count = 0
        self.slabs = NULL
        self.descriptor = -1

    def __init__(self, int descriptor, uint64_t slab_size, bint writable, allocate=None):
        """descriptor: of the open file; it is duplicated. writable: True in the core, which is the only writer.
        allocate(offset, length): reserves a part of the file before it is written; may raise OSError.
        """
        self.descriptor = os.dup(descriptor)
        self.writable = writable
        self.allocate = allocate
        self.slab_size = slab_size
        self.bytes_of_slab = slab_bytes(slab_size)
        self.slabs_of_extent = max(<uint64_t>1, EXTENT_BYTES // self.bytes_of_slab)
        self.slab_count = 0
        self.slab_capacity = 0
        self.open_slab = 0
        self.has_open = False
        self.serial = 0
        self.used_bytes = 0
        self.live_bytes = 0
        self.emptied = 0
        self.floor_txid = 0
        self.victim = 0
        self.victim_offset = 0
        self.obstacle = None

    def __dealloc__(self):
        cdef uint64_t number
        for number in range(self.extent_count):
            if self.extents[number] != NULL:
                munmap(self.extents[number], self.slabs_of_extent * self.bytes_of_slab)
        free(self.extents)
        free(self.slabs)
        if self.descriptor >= 0:
            os.close(self.descriptor)

    cdef uint8_t* slab_data(self, uint64_t slab) except NULL:
        """The memory of a slab, mapped when it is needed first."""
        cdef uint64_t extent = slab // self.slabs_of_extent
        cdef uint64_t count
        cdef uint8_t** grown
        cdef void* mapped
        if extent >= self.extent_count:
            count = max(<uint64_t>16, extent * 2)
            grown = <uint8_t**>realloc(self.extents, count * sizeof(uint8_t*))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.extent_count, 0, (count - self.extent_count) * sizeof(uint8_t*))
            self.extents = grown
            self.extent_count = count
        if self.extents[extent] == NULL:
            mapped = mmap(
                NULL, self.slabs_of_extent * self.bytes_of_slab, PROT_READ | PROT_WRITE if self.writable else PROT_READ,
                MAP_SHARED, self.descriptor,
                <long>(FILE_HEADER_BYTES + extent * self.slabs_of_extent * self.bytes_of_slab),
            )
            if mapped == MAP_FAILED:
                raise OSError(errno, "a value file of a SOW topic cannot be mapped: " + os.strerror(errno))
            self.extents[extent] = <uint8_t*>mapped
        return self.extents[extent] + slab % self.slabs_of_extent * self.bytes_of_slab

    cdef const RecordHeader* at(self, uint64_t place) except NULL:
        """The record at a place in the file."""
        cdef uint64_t offset = place & ~PLACE_IN_FILE
        cdef uint64_t slab = offset // self.bytes_of_slab
        return <const RecordHeader*>(self.slab_data(slab) + offset % self.bytes_of_slab)

    # --- writing, in the core ---------------------------------------------------------------------------------

    cdef int grow_slabs(self, uint64_t count) except -1:
        cdef Slab* grown
        if count > self.slab_capacity:
            self.slab_capacity = max(<uint64_t>16, max(count, self.slab_capacity * 2))
            grown = <Slab*>realloc(self.slabs, self.slab_capacity * sizeof(Slab))
            if grown == NULL:
                raise MemoryError()
            memset(grown + self.slab_count, 0, (self.slab_capacity - self.slab_count) * sizeof(Slab))
            self.slabs = grown
        return 0

    cdef bint fits(self, uint64_t length) noexcept nogil:
        """Whether the open slab has room for a record and the zeros behind it."""
        return self.has_open and self.slabs[self.open_slab].used + align8(length) + 8 <= self.bytes_of_slab

    cdef bint ensure(self, uint64_t length) except -1:
        """Whether a record of that length can be appended; opens a slab if needed. If not, `obstacle` has the reason."""
        cdef uint64_t slab
        if self.fits(length):
            return True
        if SLAB_HEADER_BYTES + align8(length) + 8 > self.bytes_of_slab:
            self.obstacle = f"a record of {length} bytes is larger than a slab: raise SlabSize"
            return False
        for slab in range(self.slab_count):
            if self.slabs[slab].state == SLAB_EMPTIED and self.slabs[slab].emptied_txid <= self.floor_txid:
                self.slabs[slab].state = SLAB_FREE
                self.emptied -= 1
            if self.slabs[slab].state == SLAB_FREE:
                self.begin_slab(slab)
                return True
        slab = self.slab_count
        try:
            if self.allocate is not None:
                self.allocate(FILE_HEADER_BYTES + slab * self.bytes_of_slab, self.bytes_of_slab)
            self.slab_data(slab)
        except OSError as problem:
            self.obstacle = str(problem)
            return False
        self.grow_slabs(slab + 1)
        self.slab_count = slab + 1
        self.begin_slab(slab)
        return True

    cdef int begin_slab(self, uint64_t slab) except -1:
        cdef uint8_t* data = self.slab_data(slab)
        cdef SlabHeader* header = <SlabHeader*>data
        if self.has_open:
            self.end_slab()
        self.serial += 1
        (<uint64_t*>(data + SLAB_HEADER_BYTES))[0] = 0
        memset(header, 0, SLAB_HEADER_BYTES)
        header.number = slab
        header.serial = self.serial
        header.magic = SLAB_MAGIC
        header.checksum = crc32c(data, SLAB_HEADER_BYTES - 8)
        self.slabs[slab].used = SLAB_HEADER_BYTES
        self.slabs[slab].live = 0
        self.slabs[slab].state = SLAB_OPEN
        self.open_slab = slab
        self.has_open = True
        return 0

    cdef int end_slab(self) except -1:
        """Let the open slab be full."""
        cdef Slab* slab = &self.slabs[self.open_slab]
        slab.state = SLAB_FULL
        self.used_bytes += slab.used
        self.has_open = False
        if slab.live == 0:
            self.empty_slab(self.open_slab)
        return 0

    cdef void empty_slab(self, uint64_t number) noexcept:
        cdef Slab* slab = &self.slabs[number]
        self.used_bytes -= slab.used
        slab.state = SLAB_EMPTIED
        self.emptied += 1
        slab.emptied_txid = self.next_txid
        if self.victim == number + 1:
            self.victim = 0

    cdef uint64_t append(self, const RecordHeader* record, uint32_t topic) except 0:
        """Append a copy of a record. `ensure` must have succeeded for its length. Returns its place. topic: number of the
        logical topic, which the copy has in place of a topic id.
        """
        cdef Slab* slab = &self.slabs[self.open_slab]
        cdef uint8_t* at = self.slab_data(self.open_slab) + slab.used
        cdef uint64_t length = align8(record.length)
        cdef RecordHeader* copy = <RecordHeader*>at
        cdef uint64_t place = PLACE_IN_FILE | (self.open_slab * self.bytes_of_slab + slab.used)
        (<uint64_t*>(at + length))[0] = 0
        (<uint64_t*>(at + length - 8))[0] = 0
        memcpy(at + 8, <const uint8_t*>record + 8, record.length - 8)
        copy.topic_id = topic
        copy.checksum = record_checksum_of(copy, record.length)
        # The length comes last: without it a scan ends here.
        copy.length = record.length
        slab.used += length
        slab.live += length
        self.live_bytes += length
        return place

    cdef int release(self, uint64_t place) except -1:
        """Let the record at a place be dead."""
        cdef RecordHeader* record = <RecordHeader*>self.at(place)
        cdef uint64_t number = (place & ~PLACE_IN_FILE) // self.bytes_of_slab
        cdef Slab* slab = &self.slabs[number]
        cdef uint64_t length = align8(record.length)
        record.checksum = ~record.checksum
        slab.live -= length
        self.live_bytes -= length
        if slab.live == 0 and slab.state == SLAB_FULL:
            self.empty_slab(number)
        return 0

    cdef bint wants_compaction(self) noexcept nogil:
        """Whether more than half of the full slabs is dead, and at least two slabs could be won."""
        return self.victim != 0 or (
            self.used_bytes > 2 * self.live_bytes + 2 * self.bytes_of_slab
        )

    cdef bint choose_victim(self) noexcept nogil:
        """Choose the full slab with the fewest live bytes for compaction."""
        cdef uint64_t number
        cdef uint64_t least = NEVER
        for number in range(self.slab_count):
            if self.slabs[number].state == SLAB_FULL and self.slabs[number].live < least:
                least = self.slabs[number].live
                self.victim = number + 1
                self.victim_offset = SLAB_HEADER_BYTES
        return least != NEVER

    # --- the state after the death of the core -----------------------------------------------------------------

    def count_slabs(self, uint64_t file_bytes):
        """Find the slabs of a file of that size: those with a sound header may have records."""
        cdef uint64_t count = 0
        cdef uint64_t number
        cdef SlabHeader* header
        if file_bytes > FILE_HEADER_BYTES:
            count = (file_bytes - FILE_HEADER_BYTES) // self.bytes_of_slab
        self.grow_slabs(count)
        self.slab_count = count
        for number in range(count):
            header = <SlabHeader*>self.slab_data(number)
            self.slabs[number].state = SLAB_FREE
            if (
                header.magic == SLAB_MAGIC and header.number == number
                and header.checksum == crc32c(header, SLAB_HEADER_BYTES - 8)
            ):
                self.slabs[number].state = SLAB_FULL
                self.slabs[number].used = SLAB_HEADER_BYTES
                self.slabs[number].live = 0
                self.serial = max(self.serial, header.serial)
        return count

    cdef RecordHeader* next_record(self, uint64_t number, bint* dead) except? NULL:
        """The record behind the known ones of a slab that is being scanned, dead or not; NULL: there is none."""
        cdef Slab* slab = &self.slabs[number]
        cdef uint8_t* data
        cdef RecordHeader* record
        cdef uint32_t checksum
        if slab.state != SLAB_FULL or slab.used + RECORD_HEADER_BYTES > self.bytes_of_slab:
            return NULL
        data = self.slab_data(number)
        record = <RecordHeader*>(data + slab.used)
        if not record_parts_fit(record) or align8(record.length) > self.bytes_of_slab - slab.used:
            return NULL
        checksum = record_checksum(record)
        dead[0] = checksum == ~record.checksum
        if not dead[0] and checksum != record.checksum:
            return NULL
        return record

    @property
    def bytes_used(self):
        """Bytes of the file in slabs with records."""
        return self.used_bytes + (self.slabs[self.open_slab].used if self.has_open else 0)


cdef inline uint32_t record_checksum_of(const RecordHeader* record, uint32_t length) noexcept nogil:
    return crc32c(<const uint8_t*>record + 8, length - 8)
