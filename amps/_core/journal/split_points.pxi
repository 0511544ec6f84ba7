# Walking through a journal file by the headers of its records alone, to plan a parallel read.
#
# A file without an index does not tell where its records begin. The search finds split points, with the offsets of the
# last topic record and name record before them, which a reader that begins there needs. It also finds the message of a
# bookmark. The search checks only the checksum of a message found by its bookmark. The later reader of the records
# checks all checksums, and stops at the same place where a walk ends.

from libc.stdint cimport uint64_t

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport (
    FILE_HEADER_BYTES,
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    RECORD_HEADER_BYTES,
    RecordHeader,
    align8,
    record_plausible,
    record_sound,
)


# The reason why a search stopped.
cdef enum SplitStop:
    SPLIT_STEP                   # it reached `stop_at`
    SPLIT_OVER                   # there are no more records
    SPLIT_MISSING                # the next record header is not in memory
    SPLIT_MATCH                  # the next record has the bookmark


cdef struct SplitSearch:
    uint64_t offset                # file offset of the next record
    uint64_t ready                 # file offset up to which content is in memory
    uint64_t end                   # file offset at which the searched range ends
    uint64_t stop_at
    uint64_t last_topic_offset     # of the last topic record before `offset`, 0 = none
    uint64_t last_name_offset      # of the last name record before `offset`, 0 = none
    uint64_t publisher_id          # of the bookmark to find; 0 = none
    uint64_t sequence


cdef SplitStop find_split(SplitSearch* state, LogFile file) noexcept nogil:
    cdef const RecordHeader* record
    while state.offset < state.stop_at:
        if state.offset >= state.end or file.size - state.offset < RECORD_HEADER_BYTES:
            return SPLIT_OVER
        if state.ready < state.offset + RECORD_HEADER_BYTES:
            return SPLIT_MISSING
        record = <const RecordHeader*>(file.data + state.offset)
        if not record_plausible(record, file.start_position + state.offset, file.size - state.offset):
            return SPLIT_OVER
        if record.kind == KIND_TOPIC:
            state.last_topic_offset = state.offset
        if record.kind == KIND_NAME:
            state.last_name_offset = state.offset
        if record.kind == KIND_END_OF_FILE:
            return SPLIT_OVER
        if (
            state.publisher_id != 0 and record.publisher_id == state.publisher_id
            and record.sequence == state.sequence
        ):
            return SPLIT_MATCH
        state.offset += align8(record.length)
    return SPLIT_STEP


cdef SplitStop find_split_fetching(SplitSearch* state, LogFile file) except *:
    """Search as `find_split` does, reading missing content from the disk. Raises LogDamaged, LogUnreadable."""
    cdef SplitStop stopped = SPLIT_MISSING
    while True:
        with nogil:
            stopped = find_split(state, file)
        if stopped != SPLIT_MISSING:
            return stopped
        state.ready = file.ready_at(state.offset)


def places(LogFile file, uint64_t end, uint64_t step):
    """The split points of a file, as [(offset of a record, offset of the last topic record before it, offset of the
    last name record before it)].

    All are file offsets; 0 = no such record. The first split point is the end of the file header. The others follow
    about `step` bytes apart, before the file offset `end`, as far as there are records. Raises LogDamaged where a
    compressed file cannot be decompressed, LogUnreadable.
    """
    cdef SplitSearch state
    cdef SplitStop stopped = SPLIT_STEP
    state.offset = FILE_HEADER_BYTES
    state.ready = 0
    state.end = min(end, file.size)
    state.last_topic_offset = state.last_name_offset = state.publisher_id = state.sequence = 0
    found = []
    while stopped == SPLIT_STEP:
        found.append((state.offset, state.last_topic_offset, state.last_name_offset))
        state.stop_at = state.offset + max(step, <uint64_t>1)
        stopped = find_split_fetching(&state, file)
    return found


def last_name(LogFile file, uint64_t end):
    """File offset of the last name record before the file offset `end`, 0 = none. Raises the errors of `places`."""
    cdef SplitSearch state
    state.offset = FILE_HEADER_BYTES
    state.ready = 0
    state.end = state.stop_at = min(end, file.size)
    state.last_topic_offset = state.last_name_offset = state.publisher_id = state.sequence = 0
    find_split_fetching(&state, file)
    return state.last_name_offset


def find_message(LogFile file, uint64_t first, uint64_t end, uint64_t publisher_id, uint64_t sequence):
    """File offset of the record with that bookmark; None if there is none. Raises the exceptions of `places`.

    The search covers the records that begin at or after `first`, at which a record must begin, and before `end`.
    """
    cdef SplitSearch state
    cdef const RecordHeader* record
    state.offset = first
    state.ready = 0
    state.end = min(end, file.size)
    state.stop_at = file.size
    state.last_topic_offset = state.last_name_offset = 0
    state.publisher_id = publisher_id
    state.sequence = sequence
    while find_split_fetching(&state, file) == SPLIT_MATCH:
        record = file.record_at(state.offset)
        if record_sound(record):
            return state.offset
        state.offset += align8(record.length)
        state.ready = 0
    return None
