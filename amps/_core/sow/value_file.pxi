# The value file of a SOW topic: records that are in no journal, in slabs.
#
# A slab is a part of the file, of the configured size (SlabSize) and some room for headers. Records are appended to one
# open slab. A record that is no longer the newest of its key is *dead*. When more than half of the file is dead, the
# live records of the slab with the most dead ones are appended again, in small steps. An empty slab is used again,
# after the last reader that may follow a link into it has passed (`emptied_txid`).
#
# The file: a header page; slabs, each with a header of 64 bytes, then records as in a journal. A record is dead when
# its checksum is inverted. Behind the last record of a slab are 8 zero bytes. So after the death of the process, a scan
# finds all records with their state: the file lives in the page cache. After a crash of the machine, each page is as
# it was at the last sync, or at any later moment; a scan takes what is sound.
#
# In an *ordered* file no order of such pages loses a value that was synced once: compaction keeps the old place of a
# record until the new one is synced (`note_moved`, `release_moved`), and an emptied slab is not used again before a
# sync.
#
# A scan skips damaged records. The length of a record follows from the lengths of its parts, too, so a scan goes on
# behind it although one of them is damaged. It never searches bytes for something that looks like a record: publishers
# choose the bytes.
#
# Readers map the file, too. They never meet a reused slab, as long as they publish the transaction id up to which they
# have read (ControlPage.state_floors).

from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

import os

from amps._core.journal.record cimport RecordHeader, record_checksum, record_parts_fit
from amps._core.shm.platform cimport align8, crc32c, release_fence

cdef extern from *:
    """
    /* Writes a word of shared memory with its own value. No change that another thread makes meanwhile is lost. */
    static inline void write_again(uint64_t *word)
    {
        uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
        __atomic_compare_exchange_n(word, &value, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    """
    void write_again(uint64_t* word) nogil

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
    SLAB_SCANNED = 4               # was in use by an earlier core; nothing empties it before `end_scan`


def slab_bytes(uint64_t slab_size):
    """Size in bytes of a slab in the file, for a configured SlabSize."""
    return (slab_size + SLAB_EXTRA_BYTES + 4095) // 4096 * 4096


@cython.final
cdef class ValueFile:

    def __cinit__(self):
        self.extents = NULL
        self.extent_count = 0
        self.slabs = NULL
        self.moved = NULL
        self.descriptor = -1

    def __init__(self, int descriptor, uint64_t slab_size, bint writable, allocate=None, bint ordered=False):
        """descriptor: of the open file; it is duplicated. writable: True in the core, which is the only writer.
        allocate(offset, length): reserves a part of the file before it is written; may raise OSError. ordered: a crash
        of the machine may lose no value that was synced; the file must then be synced whenever `changes` has risen
        (`note_synced`).
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
        self.ordered = ordered
        self.held = False
        self.changes = 0
        self.synced = 0
        self.moved_first = 0
        self.moved_count = 0
        self.moved_capacity = 0
        self.highest_txid = 0
        self.highest_topic = 0
        self.damage_count = 0
        self.damage_offset = 0
        self.obstacle = None

    def __dealloc__(self):
        cdef uint64_t number
        for number in range(self.extent_count):
            if self.extents[number] != NULL:
                munmap(self.extents[number], self.slabs_of_extent * self.bytes_of_slab)
        free(self.extents)
        free(self.slabs)
        free(self.moved)
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
        """Whether a record of that length can be appended; opens a slab if needed. If not, `obstacle` has the
        reason.
        """
        cdef uint64_t slab
        if self.fits(length):
            return True
        if SLAB_HEADER_BYTES + align8(length) + 8 > self.bytes_of_slab:
            self.obstacle = f"a record of {length} bytes is larger than a slab: raise SlabSize"
            return False
        for slab in range(self.slab_count):
            if (
                self.slabs[slab].state == SLAB_EMPTIED and self.slabs[slab].emptied_txid <= self.floor_txid
                and (not self.ordered or self.slabs[slab].emptied_change <= self.synced)
            ):
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
        if self.has_open:
            self.end_slab()
        (<uint64_t*>(data + SLAB_HEADER_BYTES))[0] = 0
        release_fence()
        self.put_slab_header(slab)
        self.slabs[slab].used = SLAB_HEADER_BYTES
        self.slabs[slab].live = 0
        self.slabs[slab].state = SLAB_OPEN
        self.open_slab = slab
        self.has_open = True
        return 0

    cdef int put_slab_header(self, uint64_t slab) except -1:
        cdef uint8_t* data = self.slab_data(slab)
        cdef SlabHeader* header = <SlabHeader*>data
        self.serial += 1
        memset(header, 0, SLAB_HEADER_BYTES)
        header.number = slab
        header.serial = self.serial
        header.magic = SLAB_MAGIC
        header.checksum = crc32c(data, SLAB_HEADER_BYTES - 8)
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
        self.changes += 1
        slab.emptied_change = self.changes
        slab.emptied_txid = self.next_txid
        if self.victim == number + 1:
            self.victim = 0

    cdef uint64_t append(self, const RecordHeader* record, uint32_t topic) except 0:
        """Append a copy of a record. `ensure` must have succeeded for its length. Returns its place. topic: number of
        the logical topic, which the copy has in place of a topic id.
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
        release_fence()
        copy.checksum = record_checksum_of(copy, record.length)
        # The first 8 bytes come last: without them a scan ends here.
        release_fence()
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

    cdef int note_moved(self, uint64_t place) except -1:
        """Compaction has copied the record at a place to another one: it is dead, in an ordered file after a sync."""
        cdef MovedRecord* grown
        if not self.ordered:
            return self.release(place)
        if self.moved_first + self.moved_count == self.moved_capacity:
            self.moved_capacity = max(<uint64_t>64, self.moved_capacity * 2)
            grown = <MovedRecord*>realloc(self.moved, self.moved_capacity * sizeof(MovedRecord))
            if grown == NULL:
                raise MemoryError()
            self.moved = grown
        self.changes += 1
        self.moved[self.moved_first + self.moved_count].place = place
        self.moved[self.moved_first + self.moved_count].change = self.changes
        self.moved_count += 1
        return 0

    cdef int release_moved(self) except -1:
        """Release the moved records whose new places are synced."""
        cdef uint64_t synced = self.synced
        while self.moved_count and self.moved[self.moved_first].change <= synced:
            self.release(self.moved[self.moved_first].place)
            self.moved_first += 1
            self.moved_count -= 1
        if self.moved_count == 0:
            self.moved_first = 0
        return 0

    def note_synced(self, uint64_t changes):
        """The file was synced after the change with that number. Any thread may call it."""
        self.synced = changes

    def write_pages_again(self):
        """Let the next sync write all pages: one has failed, and the system takes the pages for written. Any thread may
        call it.
        """
        cdef uint64_t number
        cdef uint64_t offset
        cdef uint8_t* data
        for number in range(self.slab_count):
            data = self.slab_data(number)
            for offset in range(0, self.bytes_of_slab, FILE_HEADER_BYTES):
                write_again(<uint64_t*>(data + offset))

    @property
    def wants_sync(self):
        """Whether changes wait for a sync."""
        return self.ordered and self.changes != self.synced

    cdef bint wants_compaction(self) noexcept nogil:
        """Whether more than half of the full slabs is dead, and at least two slabs could be won."""
        if self.held or (self.victim == 0 and self.moved_count):
            return False
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
        """Find the slabs of a file of that size. Those that were in use are to be scanned. Raises OSError."""
        cdef uint64_t count = 0
        cdef uint64_t number
        cdef uint64_t rest = 0
        if file_bytes > FILE_HEADER_BYTES:
            count = (file_bytes - FILE_HEADER_BYTES) // self.bytes_of_slab
            rest = (file_bytes - FILE_HEADER_BYTES) % self.bytes_of_slab
        if rest:
            # The file was cut, or a slab is allocated in part.
            self.allocate(FILE_HEADER_BYTES + count * self.bytes_of_slab, self.bytes_of_slab)
            count += 1
        self.grow_slabs(count)
        self.slab_count = count
        if rest and self.slab_begun(count - 1):
            self.note_damage(count - 1, rest)
        for number in range(count):
            self.slabs[number].state = SLAB_FREE
            if self.slab_begun(number):
                self.slabs[number].state = SLAB_SCANNED
                self.slabs[number].used = SLAB_HEADER_BYTES
                self.slabs[number].live = 0
                if self.slab_header_sound(number):
                    self.serial = max(self.serial, (<SlabHeader*>self.slab_data(number)).serial)
        return count

    cdef bint slab_begun(self, uint64_t number) except -1:
        """Whether a slab was ever in use: its header has other bytes than zeros."""
        cdef const uint64_t* words = <const uint64_t*>self.slab_data(number)
        cdef uint64_t found = 0
        cdef uint64_t at
        for at in range(SLAB_HEADER_BYTES // 8):
            found |= words[at]
        return found != 0

    cdef bint slab_header_sound(self, uint64_t number) except -1:
        cdef const SlabHeader* header = <const SlabHeader*>self.slab_data(number)
        return (
            header.magic == SLAB_MAGIC and header.number == number
            and header.checksum == crc32c(header, SLAB_HEADER_BYTES - 8)
        )

    cdef void note_damage(self, uint64_t number, uint64_t offset) noexcept:
        if self.damage_count == 0:
            self.damage_offset = FILE_HEADER_BYTES + number * self.bytes_of_slab + offset
        self.damage_count += 1

    @property
    def damage(self):
        """How many damaged places a scan has found, and the file offset of the first one; None: none."""
        return (self.damage_count, self.damage_offset) if self.damage_count else None

    cdef RecordHeader* next_record(self, uint64_t number, bint* dead) except? NULL:
        """The record behind the known ones of a slab that is being scanned, dead or not; NULL: there is none. `used` of
        the slab is then its offset. Damaged records are skipped.
        """
        cdef Slab* slab = &self.slabs[number]
        cdef uint8_t* data = self.slab_data(number)
        cdef RecordHeader* record
        cdef uint64_t length
        if slab.state != SLAB_SCANNED:
            return NULL
        while slab.used + RECORD_HEADER_BYTES <= self.bytes_of_slab:
            record = <RecordHeader*>(data + slab.used)
            if (<uint64_t*>record)[0] == 0:
                return NULL
            length = sound_length(record, self.bytes_of_slab - slab.used)
            if length:
                # The death of the core, or damage, may have left another length.
                record.length = <uint32_t>length
                dead[0] = record.checksum != record_checksum(record)
                return record
            self.note_damage(number, slab.used)
            if goes_on(data, slab.used, record.length, self.bytes_of_slab):
                slab.used += align8(record.length)
            elif goes_on(data, slab.used, length_of_parts(record), self.bytes_of_slab):
                slab.used += align8(length_of_parts(record))
            else:
                slab.used = self.bytes_of_slab  # the rest is lost; nothing is appended here
        return NULL

    cdef int end_scan(self) except -1:
        """All records of all slabs are known: go on with appending."""
        cdef uint64_t number
        cdef uint64_t newest = 0
        cdef uint64_t newest_serial = 0
        cdef Slab* slab
        for number in range(self.slab_count):
            slab = &self.slabs[number]
            if slab.state != SLAB_SCANNED:
                continue
            if not self.slab_header_sound(number):
                if slab.used == SLAB_HEADER_BYTES:
                    slab.state = SLAB_FREE
                    continue
                self.note_damage(number, 0)
                self.put_slab_header(number)
            slab.state = SLAB_FULL
            self.used_bytes += slab.used
            if slab.live == 0:
                self.empty_slab(number)
            elif slab.used + 8 <= self.bytes_of_slab and (
                (<SlabHeader*>self.slab_data(number)).serial > newest_serial
            ):
                newest_serial = (<SlabHeader*>self.slab_data(number)).serial
                newest = number + 1
        if newest:
            self.open_slab = newest - 1
            self.has_open = True
            self.slabs[self.open_slab].state = SLAB_OPEN
            self.used_bytes -= self.slabs[self.open_slab].used
            (<uint64_t*>(self.slab_data(self.open_slab) + self.slabs[self.open_slab].used))[0] = 0
        return 0

    @property
    def bytes_used(self):
        """Bytes of the file in slabs with records."""
        return self.used_bytes + (self.slabs[self.open_slab].used if self.has_open else 0)


cdef inline uint32_t record_checksum_of(const RecordHeader* record, uint32_t length) noexcept nogil:
    return crc32c(<const uint8_t*>record + 8, length - 8)


cdef uint64_t length_of_parts(const RecordHeader* record) noexcept nogil:
    """The length of a record by the lengths of its parts."""
    return (
        <uint64_t>RECORD_HEADER_BYTES + record.extension_length + record.correlation_id_length
        + record.user_id_length + record.sow_key_length + record.payload_length
    )


cdef uint64_t sound_length(const RecordHeader* record, uint64_t room) noexcept nogil:
    """The length of the record in so many bytes, if its checksum is right, or inverted; otherwise 0."""
    cdef uint64_t length = length_of_parts(record)
    cdef uint32_t checksum
    if align8(length) > room:
        return 0
    checksum = crc32c(<const uint8_t*>record + 8, length - 8)
    return length if checksum == record.checksum or checksum == ~record.checksum else 0


cdef bint goes_on(const uint8_t* data, uint64_t offset, uint64_t length, uint64_t slab_end) noexcept nogil:
    """Whether a slab goes on behind a damaged record of that length: with a sound record, or with its end."""
    cdef uint64_t next_ = offset + align8(length)
    if length < RECORD_HEADER_BYTES or next_ > slab_end:
        return False
    if next_ + RECORD_HEADER_BYTES > slab_end or (<const uint64_t*>(data + next_))[0] == 0:
        return True
    return sound_length(<const RecordHeader*>(data + next_), slab_end - next_) != 0
