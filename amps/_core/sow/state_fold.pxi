# The state of a SOW topic from files alone: journals and a value file. A server may write to them meanwhile.
#
# A `StateFold` takes records in any order and keeps the newest of each key: a value, or a removal. Nothing is copied.
# An entry has the place of its record, and `ValueReader` reads the record there.
#
# A value file has no order, and changes while it is read: a record dies when another one takes its place, which may
# lie in a part that was read already. So `read_values` first notes where each slab ends. Of the records before these
# ends it takes the live ones. It takes all records behind them, dead ones too, and reads once more what was appended
# meanwhile. A record that died before it was reached has a successor that was appended after the ends were noted. So no
# key is missed.
#
# What may not live here: names of files, the choice of topics, the check that the past is complete
# (amps/journal/sow_state.py).

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy

from amps._core.journal.reader import LogDamaged
from amps._core.journal.reader cimport LogCursor, LogFile, begin_reading, next_record, skip_record, topic_of
from amps._core.journal.record cimport (
    RECORD_HEADER_BYTES,
    RecordHeader,
    RecordState,
    RemovedKey,
    align8,
    extension_fits,
    record_checksum,
    record_correlation_id,
    record_expiry_ns,
    record_parts_fit,
    record_payload,
    record_sound,
    record_sow_key,
    record_state,
)
from amps._core.shm.platform cimport crc32c
from amps._core.sow.table cimport ValueFile, is_removal, is_value, key_of, removed_keys

cdef enum:
    VALUE_FILE_HEADER = 4096
    SLAB_HEADER = 64
    ENTRIES_FIRST = 1 << 12
    ROUNDS_MAX = 100

cdef uint64_t PLACE_BIT = <uint64_t>1 << 63
cdef uint64_t SLAB_MARK = 0x42414C53534D4150
cdef uint64_t NEVER_TIME = 0xFFFFFFFFFFFFFFFF

PLACE_IN_FILE = PLACE_BIT
NO_TIME_LIMIT = NEVER_TIME


# The header of a slab: SlabHeader in value_file.pxi.
cdef packed struct SlabStart:
    uint64_t magic
    uint64_t number
    uint64_t serial
    uint64_t[4] unused
    uint32_t checksum
    uint32_t unused_too


# What is known of a slab of the file.
cdef struct SlabEnd:
    uint64_t serial                # of the use whose records are known; 0 = none
    uint64_t end                   # offset in the slab behind these records
    uint64_t records
    uint64_t dead
    uint64_t bytes_stored          # of live records, with their padding
    uint64_t bytes_payload
    uint64_t bytes_dead


# 32 bytes. The newest record of a key.
cdef struct StateEntry:
    uint64_t key                   # 0 = unused
    uint64_t txid
    uint64_t place
    uint32_t topic
    uint16_t removed
    uint16_t dead                  # of a value file: the record was dead when it was read


@cython.final
cdef class StateFold:
    """The newest record of each key. See the header of this file."""

    cdef StateEntry* entries
    cdef uint64_t capacity         # a power of two
    cdef uint64_t count
    cdef readonly uint32_t definition      # of the keys; 0: that of the newest record
    cdef bint learns_definition
    cdef uint64_t first_time_ns
    cdef readonly uint64_t record_count    # of the topic in the log
    cdef readonly uint64_t foreign_count   # values whose key is not known
    cdef readonly uint64_t foreign_position  # log position of the last of them
    cdef readonly uint64_t first_txid      # of the log's records up to the limit, whatever their topic; 0 = none
    cdef readonly uint64_t last_txid
    cdef readonly uint64_t last_position   # behind the last of them
    cdef readonly bint stopped             # the message or the time that ends the state was reached

    def __cinit__(self):
        self.entries = NULL

    def __init__(self, uint32_t definition=0, uint64_t first_time_ns=0):
        """definition: that of the topic's keys (KeyMaker.definition); 0: it is learnt from the log. first_time_ns:
        records of the log before this UNIX time do not belong to the topic.
        """
        self.definition = definition
        self.first_time_ns = first_time_ns
        self.learns_definition = definition == 0
        self.capacity = ENTRIES_FIRST
        self.entries = <StateEntry*>PyMem_Calloc(self.capacity, sizeof(StateEntry))
        if self.entries == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.entries)

    cdef StateEntry* entry(self, uint64_t key) noexcept nogil:
        """The entry of a key, or the unused one where it belongs."""
        cdef uint64_t at = (key * <uint64_t>0x9E3779B97F4A7C15) >> 20 & (self.capacity - 1)
        while self.entries[at].key and self.entries[at].key != key:
            at = (at + 1) & (self.capacity - 1)
        return &self.entries[at]

    cdef int grow(self) except -1:
        cdef StateEntry* before = self.entries
        cdef uint64_t capacity = self.capacity
        cdef uint64_t at
        cdef StateEntry* grown = <StateEntry*>PyMem_Calloc(capacity * 2, sizeof(StateEntry))
        if grown == NULL:
            raise MemoryError()
        self.entries = grown
        self.capacity = capacity * 2
        for at in range(capacity):
            if before[at].key:
                self.entry(before[at].key)[0] = before[at]
        PyMem_Free(before)
        return 0

    cdef int take(
        self, uint64_t key, const RecordHeader* record, uint64_t place, uint32_t topic, bint removed, bint dead
    ) except -1:
        """Take a record of a key. Of two copies of the same record, a live one counts."""
        cdef StateEntry* entry = self.entry(key)
        if entry.key and (entry.txid > record.txid or (entry.txid == record.txid and (dead or not entry.dead))):
            return 0
        if entry.key == 0:
            if self.count * 4 >= self.capacity * 3:
                self.grow()
                entry = self.entry(key)
            self.count += 1
            entry.key = key
        entry.txid = record.txid
        entry.place = place
        entry.topic = topic
        entry.removed = removed
        entry.dead = dead
        return 0

    def read_log(
        self, LogCursor cursor not None, uint64_t limit, uint64_t bytes_max, uint64_t last_time_us=NEVER_TIME,
        uint64_t stop_publisher=0, uint64_t stop_sequence=0,
    ):
        """Take the records of a log up to `limit`, at most about `bytes_max` bytes of the log.

        The cursor's resolver returns the number of a wanted topic, else None. The state ends before the first record
        that is later than `last_time_us` (UNIX, microseconds), or behind the message with the bookmark stop_publisher,
        stop_sequence, if stop_publisher is not 0; then `stopped` is set. True: all is read. Raises LogDamaged.
        """
        cdef const RecordHeader* record
        cdef const RecordState* state
        cdef const RemovedKey* keys
        cdef uint32_t count = 0
        cdef uint32_t at
        cdef uint32_t topic
        cdef uint64_t begin = cursor.position
        begin_reading(cursor)
        while cursor.position - begin < bytes_max:
            record = next_record(cursor, limit)
            if record == NULL:
                self.last_position = max(self.last_position, cursor.position)
                return cursor.position >= limit
            if record.timestamp_ns // 1000 > last_time_us:
                self.stopped = True
                return True
            if self.first_txid == 0:
                self.first_txid = record.txid
            self.last_txid = max(self.last_txid, record.txid)
            self.last_position = cursor.position + align8(record.length)
            if (is_value(record) or is_removal(record)) and record.timestamp_ns >= self.first_time_ns:
                found = topic_of(cursor.file, record.topic_id)
                if found is not None:
                    topic = found
                    self.record_count += 1
                    if is_value(record):
                        state = record_state(record)
                        if state != NULL and self.learns_definition and state.definition != self.definition:
                            # All keys so far were made in another way.
                            self.definition = state.definition
                            if self.count:
                                self.foreign_count += self.count
                                self.foreign_position = record.position
                        if state == NULL or state.definition != self.definition or state.key == 0:
                            self.foreign_count += 1
                            self.foreign_position = record.position
                        else:
                            self.take(state.key, record, record.position, topic, False, False)
                    else:
                        keys = removed_keys(record, &count)
                        for at in range(count):
                            if keys[at].key:
                                self.take(keys[at].key, record, record.position, topic, True, False)
            if stop_publisher and record.publisher_id == stop_publisher and record.sequence == stop_sequence:
                self.stopped = True
                return True
            skip_record(cursor, record)
        return False

    def read_values(self, ValueReader values not None, numbers, uint64_t txid_end):
        """Take the records of a value file with transaction ids before txid_end.

        numbers: by the number of a logical topic in the file, the number of the wanted topic, or None.
        """
        cdef uint64_t slab
        cdef uint64_t rounds
        cdef bint reused = True
        cdef list wanted = list(numbers)
        values.find_slabs()
        values.note_ends()
        for slab in range(values.slab_count):
            values.reset(slab)
            self.read_slab(values, slab, wanted, txid_end)
        for rounds in range(ROUNDS_MAX):
            if not reused:
                return
            values.find_slabs()
            reused = False
            for slab in range(values.slab_count):
                reused = self.read_slab(values, slab, wanted, txid_end) or reused
        raise BlockingIOError("the value file changes faster than it can be read")

    cdef bint read_slab(self, ValueReader values, uint64_t number, list wanted, uint64_t txid_end) except -1:
        """Take the records of a slab behind those that were taken. True: the slab has come into another use."""
        cdef SlabEnd* known = &values.taken[number]
        cdef SlabEnd* noted = &values.noted[number]
        cdef uint64_t serial = values.serial_of(number)
        cdef bint reused = False
        cdef bint dead = False
        cdef const RecordHeader* record
        cdef uint64_t key
        cdef uint64_t length
        if serial == 0:
            return False
        if known.serial != serial:
            reused = known.serial != 0
            values.reset(number)
            known.serial = serial
        while True:
            record = values.record_in(number, known.end, &dead)
            if record == NULL:
                break
            length = align8(record.length)
            key = key_of(record)
            known.records += 1
            if dead:
                known.dead += 1
                known.bytes_dead += length
            else:
                known.bytes_stored += length
                known.bytes_payload += record.payload_length
            if (
                key and record.txid < txid_end and record.topic_id < <uint32_t>len(wanted)
                and (not dead or noted.serial != serial or known.end >= noted.end)
            ):
                found = wanted[record.topic_id]
                if found is not None:
                    self.take(
                        key, record, PLACE_BIT | (number * values.file.bytes_of_slab + known.end), found,
                        is_removal(record), dead,
                    )
            known.end += length
        # A slab that came into another use while it was read has been read in part only.
        return reused or values.serial_of(number) != serial

    def live(self):
        """The keys with a value, by ascending places: arrays of numpy with keys, transaction ids, places, topics."""
        cdef uint64_t count = 0
        cdef uint64_t at
        cdef uint64_t[::1] keys
        cdef uint64_t[::1] txids
        cdef uint64_t[::1] places
        cdef uint32_t[::1] topics
        cdef StateEntry* entry
        for at in range(self.capacity):
            count += self.entries[at].key != 0 and not self.entries[at].removed
        arrays = [numpy.empty(count, kind) for kind in ("<u8", "<u8", "<u8", "<u4")]
        keys, txids, places, topics = arrays
        count = 0
        for at in range(self.capacity):
            entry = &self.entries[at]
            if entry.key and not entry.removed:
                keys[count] = entry.key
                txids[count] = entry.txid
                places[count] = entry.place
                topics[count] = entry.topic
                count += 1
        order = numpy.argsort(arrays[2], kind="stable")
        return tuple([array[order] for array in arrays])


@cython.final
cdef class ValueReader:
    """A value file that this process only reads, as far as it is sound."""

    cdef ValueFile file
    cdef object size_of
    cdef readonly uint64_t slab_count
    cdef SlabEnd* noted
    cdef SlabEnd* taken

    def __cinit__(self):
        self.noted = NULL
        self.taken = NULL

    def __init__(self, int descriptor, uint64_t slab_size, size_of):
        """size_of() -> the present size of the file in bytes. slab_size: as its header has it."""
        self.file = ValueFile(descriptor, slab_size, False)
        self.size_of = size_of
        self.slab_count = 0

    def __dealloc__(self):
        free(self.noted)
        free(self.taken)

    @property
    def bytes_of_slab(self):
        """Bytes of a slab in the file."""
        return self.file.bytes_of_slab

    def look(self):
        """Find the slabs that the file has now. `StateFold.read_values` does it, too."""
        self.find_slabs()

    cdef int find_slabs(self) except -1:
        """Look how many slabs the file has now."""
        cdef uint64_t size = self.size_of()
        cdef uint64_t count = 0
        cdef uint64_t at
        cdef SlabEnd* grown
        if size > VALUE_FILE_HEADER:
            count = (size - VALUE_FILE_HEADER) // self.file.bytes_of_slab
        if count <= self.slab_count:
            return 0
        grown = <SlabEnd*>realloc(self.noted, count * sizeof(SlabEnd))
        if grown == NULL:
            raise MemoryError()
        self.noted = grown
        grown = <SlabEnd*>realloc(self.taken, count * sizeof(SlabEnd))
        if grown == NULL:
            raise MemoryError()
        self.taken = grown
        for at in range(self.slab_count, count):
            self.reset(at)
            self.noted[at] = self.taken[at]
        self.slab_count = count
        return 0

    cdef void reset(self, uint64_t number) noexcept:
        cdef SlabEnd none = SlabEnd(0, SLAB_HEADER, 0, 0, 0, 0, 0)
        self.taken[number] = none

    cdef uint64_t serial_of(self, uint64_t number) except? 0:
        """The serial of the present use of a slab; 0: its header is not sound, so it is in no use."""
        cdef SlabStart header
        memcpy(&header, self.file.slab_data(number), sizeof(header))
        if (
            header.magic != SLAB_MARK or header.number != number
            or header.checksum != crc32c(&header, SLAB_HEADER - 8)
        ):
            return 0
        return header.serial

    cdef const RecordHeader* record_in(self, uint64_t number, uint64_t offset, bint* dead) except? NULL:
        """The record at an offset of a slab; NULL: there is none that is sound."""
        cdef const RecordHeader* record
        cdef uint32_t sum_
        cdef uint32_t stored
        if offset + RECORD_HEADER_BYTES > self.file.bytes_of_slab:
            return NULL
        record = <const RecordHeader*>(self.file.slab_data(number) + offset)
        if not record_parts_fit(record) or align8(record.length) > self.file.bytes_of_slab - offset:
            return NULL
        stored = record.checksum
        sum_ = record_checksum(record)
        dead[0] = sum_ == ~stored
        if (not dead[0] and sum_ != stored) or not extension_fits(record):
            return NULL
        return record

    cdef int note_ends(self) except -1:
        """Note where the records of each slab end. Their content is not checked yet."""
        cdef uint64_t number
        cdef uint64_t offset
        cdef const RecordHeader* record
        for number in range(self.slab_count):
            self.noted[number].serial = self.serial_of(number)
            offset = SLAB_HEADER
            while self.noted[number].serial and offset + RECORD_HEADER_BYTES <= self.file.bytes_of_slab:
                record = <const RecordHeader*>(self.file.slab_data(number) + offset)
                if not record_parts_fit(record) or align8(record.length) > self.file.bytes_of_slab - offset:
                    break
                offset += align8(record.length)
            self.noted[number].end = offset
        return 0

    def record(self, uint64_t place, uint64_t txid):
        """A copy of the record at a place in the file, if it is still the one with that transaction id; else None."""
        cdef uint64_t offset = place & ~PLACE_BIT
        cdef uint64_t number = offset // self.file.bytes_of_slab
        cdef bint dead = False
        cdef const RecordHeader* record
        cdef RecordHeader* copy
        cdef bytearray made
        if number >= self.slab_count:
            return None
        record = self.record_in(number, offset % self.file.bytes_of_slab, &dead)
        if record == NULL or record.txid != txid:
            return None
        made = bytearray((<const char*>record)[: record.length])
        copy = <RecordHeader*><char*>made
        # The slab may have come into another use during the copy.
        if copy.txid != txid or record_checksum(copy) != (~copy.checksum if dead else copy.checksum):
            return None
        copy.checksum = record_checksum(copy)
        return bytes(made)

    def slabs(self):
        """Of each slab with records, as `read_values` found it: (number, records, dead ones, bytes of the live records,
        bytes of their payloads, bytes of the dead records).
        """
        cdef uint64_t number
        cdef SlabEnd* known
        found = []
        for number in range(self.slab_count):
            known = &self.taken[number]
            if known.serial:
                found.append((
                    number, known.records, known.dead, known.bytes_stored, known.bytes_payload, known.bytes_dead
                ))
        return found


def record_parts(source, uint64_t offset):
    """The parts of a record that holds a value: (checksum, flags, length, transaction id, UNIX ns, UNIX ns of its
    expiry, provided key, correlation id, payload, publisher id, sequence). The expiry is 0 if none was specified, and
    the largest number for never. source: a LogFile, or the bytes of a record. Raises LogDamaged.
    """
    cdef const RecordHeader* record
    cdef const unsigned char[::1] view
    cdef LogFile file
    if isinstance(source, LogFile):
        file = source
        file.need(offset, RECORD_HEADER_BYTES)
        record = <const RecordHeader*>(file.data + offset)
        if not record_parts_fit(record) or record.length > file.size - offset:
            raise LogDamaged(file.path, offset, "no record where one must be")
        file.need(offset, record.length)
        if not record_sound(record):
            raise LogDamaged(file.path, offset, "checksum of the record does not match")
    else:
        view = source
        record = <const RecordHeader*>&view[0]
    return (
        record.checksum, record.flags, record.length, record.txid, record.timestamp_ns, record_expiry_ns(record),
        (<const char*>record_sow_key(record))[: record.sow_key_length],
        (<const char*>record_correlation_id(record))[: record.correlation_id_length],
        (<const char*>record_payload(record))[: record.payload_length],
        record.publisher_id, record.sequence,
    )
