# See sow/key_table.pxi.

cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RecordHeader, RecordState, RemovedKey
from amps._core.sow.slots cimport NO_KEY_SLOT, KeySlot, TableHeader


cdef class KeyMemory:
    cdef object memory             # keeps the mapping
    cdef TableHeader* header
    cdef uint32_t* buckets         # by bucket: number of the first slot of its chain, plus 1; 0 = empty
    cdef KeySlot* slots

    cdef uint64_t bucket_of(self, uint64_t key, uint64_t count) noexcept nogil
    cdef bint copy(self, uint32_t number, KeySlot* copied) noexcept nogil
    cdef bint find_copy(self, uint64_t key, KeySlot* copied) noexcept nogil


@cython.final
cdef class KeyTable(KeyMemory):
    cdef object make_room
    cdef uint64_t ready_slots      # slots for which there is memory
    cdef uint64_t ready_buckets
    cdef uint32_t first_free       # number of the first free slot, plus 1; 0 = none
    cdef uint32_t* heap            # slots by the time at which they expire
    cdef uint64_t heap_count
    cdef uint64_t heap_capacity
    cdef readonly object obstacle

    cdef bint ensure(self, uint64_t count) except -1
    cdef bint _grow(self, uint64_t slots) except -1
    cdef uint32_t find(self, uint64_t key) noexcept nogil
    cdef void begin_change(self, KeySlot* slot) noexcept nogil
    cdef void end_change(self, KeySlot* slot) noexcept nogil
    cdef uint32_t add(self, uint64_t key) except? NO_KEY_SLOT
    cdef void split(self) noexcept nogil
    cdef void drop(self, uint32_t number) noexcept nogil
    cdef uint64_t next_expiry_ns(self) noexcept nogil
    cdef int set_expiry(self, uint32_t number, uint64_t expires_ns, bint expires) except -1
    cdef void take_expiry(self, uint32_t number) noexcept nogil
    cdef int put_expiry_back(self, uint32_t number) except -1
    cdef void heap_put(self, uint64_t at, uint32_t number) noexcept nogil
    cdef void heap_remove(self, uint64_t at) noexcept nogil
    cdef void heap_move(self, uint64_t at) noexcept nogil


# See sow/value_file.pxi.


cdef struct Slab:
    uint64_t used                  # bytes up to the end of the last record, header included
    uint64_t live                  # bytes of the live records
    uint64_t emptied_txid          # in SLAB_EMPTIED: every removal of its records has a smaller transaction id
    uint64_t emptied_change        # in SLAB_EMPTIED: number of this change
    uint32_t state                 # SlabState
    uint32_t unused


cdef struct MovedRecord:
    uint64_t place                 # where it was before
    uint64_t change                # number of the move


@cython.final
cdef class ValueFile:
    cdef int descriptor
    cdef bint writable
    cdef readonly bint ordered             # what is needed no more goes only after a sync of what replaces it
    cdef object allocate
    cdef readonly uint64_t slab_size       # as configured
    cdef readonly uint64_t bytes_of_slab   # in the file
    cdef uint64_t slabs_of_extent
    cdef uint8_t** extents                 # mapped parts of the file; NULL = not mapped
    cdef uint64_t extent_count
    cdef Slab* slabs
    cdef readonly uint64_t slab_count
    cdef uint64_t slab_capacity
    cdef uint64_t open_slab
    cdef bint has_open
    cdef uint64_t serial                   # of the last slab that came into use
    cdef uint64_t used_bytes               # of the full slabs
    cdef readonly uint64_t live_bytes
    cdef uint64_t emptied                  # slabs in SLAB_EMPTIED
    cdef uint64_t floor_txid               # readers follow no link of a record before this transaction id
    cdef uint64_t next_txid                # of the sequencer
    cdef uint64_t victim                   # slab that is being compacted, plus 1; 0 = none
    cdef uint64_t victim_offset
    cdef public bint held                  # no compaction meanwhile
    cdef readonly uint64_t changes         # moves of records, and emptied slabs
    cdef uint64_t synced                   # the changes up to this number are on the disk
    cdef MovedRecord* moved                # records that compaction has copied, and that are not released yet
    cdef uint64_t moved_first
    cdef uint64_t moved_count              # from moved_first on
    cdef uint64_t moved_capacity
    cdef readonly uint64_t highest_txid    # of the records that a scan has found
    cdef readonly uint64_t highest_topic   # number of a logical topic that a scan has found
    cdef uint64_t damage_count
    cdef uint64_t damage_offset            # in the file, of the first damage
    cdef readonly object obstacle

    cdef uint8_t* slab_data(self, uint64_t slab) except NULL
    cdef const RecordHeader* at(self, uint64_t place) except NULL
    cdef int grow_slabs(self, uint64_t count) except -1
    cdef bint fits(self, uint64_t length) noexcept nogil
    cdef bint ensure(self, uint64_t length) except -1
    cdef int begin_slab(self, uint64_t slab) except -1
    cdef int put_slab_header(self, uint64_t slab) except -1
    cdef int end_slab(self) except -1
    cdef void empty_slab(self, uint64_t number) noexcept
    cdef uint64_t append(self, const RecordHeader* record, uint32_t topic) except 0
    cdef int release(self, uint64_t place) except -1
    cdef int note_moved(self, uint64_t place) except -1
    cdef int release_moved(self) except -1
    cdef bint wants_compaction(self) noexcept nogil
    cdef bint choose_victim(self) noexcept nogil
    cdef bint slab_begun(self, uint64_t number) except -1
    cdef bint slab_header_sound(self, uint64_t number) except -1
    cdef RecordHeader* next_record(self, uint64_t number, bint* dead) except? NULL
    cdef void note_damage(self, uint64_t number, uint64_t offset) noexcept
    cdef int end_scan(self) except -1


# See sow/places.pxi.


@cython.final
cdef class JournalPlaces:
    cdef object directory          # LogDirectory
    cdef object numbers
    cdef list files                # PlaceFiles in use
    cdef PlaceFile file            # of the last record
    cdef uint8_t period            # in which windows were found in memory
    cdef readonly LogFile missing_file     # of a record that is not in memory
    cdef readonly uint64_t missing_offset
    cdef readonly uint64_t missing_bytes
    cdef readonly uint64_t needed_until    # file offset

    cdef const RecordHeader* at(self, uint64_t position) except NULL
    cdef const RecordHeader* address(self, uint64_t position) except? NULL
    cdef bint is_resident(self, uint64_t position, uint64_t length) except -1
    cdef PlaceFile file_at(self, uint64_t position)


@cython.final
cdef class PlaceFile:
    cdef LogFile file
    cdef uint64_t begin            # log positions
    cdef uint64_t end
    cdef uint8_t* windows          # by window: the period in which it was found in memory; 0 = never
    cdef uint64_t window_count

    cdef bint window_is_resident(self, uint64_t window, uint8_t period) noexcept nogil


# See sow/topic_state.pxi.


cdef enum:
    REMOVAL_BYTES = 96             # a record of one removed key in the value file


cdef struct RemovedSlot:
    uint64_t txid
    uint64_t number


@cython.final
cdef class TopicState:
    cdef readonly KeyTable table
    cdef readonly ValueFile values
    cdef readonly bint expires
    cdef readonly bint recorded    # its records go to the journal
    cdef RemovedSlot* removed      # slots of removed keys, in the order of removal: a ring
    cdef uint64_t removed_first
    cdef uint64_t removed_count
    cdef uint64_t removed_capacity  # a power of two

    cdef uint64_t place_of(self, uint64_t key) noexcept nogil
    cdef uint64_t value_of(self, uint64_t key) noexcept nogil
    cdef bint ensure(self, uint64_t record_bytes, bint in_journal) except -1
    cdef int store(self, const RecordHeader* record, bint in_journal, uint32_t topic) except -1
    cdef void set(
        self, uint32_t number, uint64_t place, const RecordHeader* record, uint16_t state, uint64_t expires_ns
    ) except *
    cdef bint remove(self, uint64_t key, const RecordHeader* record, bint in_journal) except -1
    cdef int supersede(self, KeySlot* slot, uint64_t before, bint in_journal) except -1
    cdef int set_base(self, KeySlot* slot, uint64_t base) except -1
    cdef int note_base(self, const RecordHeader* record, uint64_t key) except -1
    cdef int base_of_key(self, uint64_t key, const RecordHeader* record, uint64_t base) except -1
    cdef int carry(self, JournalPlaces places, uint32_t number, uint64_t begin) except -1
    cdef uint64_t carried(self, JournalPlaces places, uint64_t place, uint32_t topic) except? 0
    cdef uint64_t append_removal(self, const KeySlot* slot, uint64_t before, const RecordHeader* record) except 0
    cdef int note_removed(self, uint32_t number, uint64_t txid) except -1
    cdef bint drop_removed(self, uint64_t floor_txid, uint64_t log_txid) except -1
    cdef bint compact(self, uint64_t bytes_max) except -1
    cdef int _take(self, const RecordHeader* record, uint64_t key, uint64_t place, uint32_t topic) except -1
    cdef int mend_link(self, KeySlot* slot, uint64_t before, uint64_t previous) except -1
    cdef int take_record(self, const RecordHeader* record, uint64_t key, uint32_t topic) except -1


cdef bint is_value(const RecordHeader* record) noexcept nogil
cdef bint is_removal(const RecordHeader* record) noexcept nogil
cdef const RemovedKey* removed_keys(const RecordHeader* record, uint32_t* count) noexcept nogil
cdef const RemovedKey* removed_key(const RecordHeader* record, uint64_t key) noexcept nogil
cdef uint64_t key_of(const RecordHeader* record) noexcept nogil


# See sow/state_reader.pxi.

# Returned in place of a record: see StateReader.walk.
cdef const RecordHeader* NOT_WRITTEN
cdef const RecordHeader* NOT_RESIDENT
cdef const RecordHeader* NOT_REACHED


@cython.final
cdef class StateReader:
    cdef readonly KeyMemory table
    cdef readonly ValueFile values
    cdef readonly JournalPlaces places

    cdef const RecordHeader* at(self, uint64_t place) except NULL
    cdef const RecordHeader* address(self, const KeySlot* slot) except? NULL
    cdef bint is_resident(self, uint64_t place, uint64_t length) except -1
    cdef const RecordHeader* walk(self, KeySlot* slot, uint64_t txid, uint64_t written, uint32_t steps) except? NULL
    cdef const RecordHeader* value(self, const KeySlot* slot, uint64_t txid, uint64_t written) except? NULL
