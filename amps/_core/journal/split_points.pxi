# Going through a journal file by the headers of its records alone: what planning a parallel read takes.
#
# A file without an index does not say where in it records begin. The search finds such places, with what a reader that
# begins there must know, and finds the message of a bookmark. Checksums are not looked at, but of a message that is
# found: whoever reads the records afterwards does that, and meets the same place where a walk ends.

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


# What stopped a search.
cdef enum SplitStop:
    SPLIT_STEP                   # at a record at `stop_at` or behind it
    SPLIT_OVER                   # at the end of what are records
    SPLIT_MISSING                # at what is not in memory
    SPLIT_MATCH                  # at a record with the bookmark


cdef struct SplitSearch:
    uint64_t offset                # file offset of the next record
    uint64_t ready                 # up to where content is in memory
    uint64_t end                   # of what is to be searched
    uint64_t stop_at
    uint64_t last_topic_offset     # of the last topic record before `offset`, 0 = none
    uint64_t last_name_offset      # of the last name record before `offset`, 0 = none
    uint64_t publisher_id          # of the bookmark that is looked for; 0 = none
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
    """The same, waiting for the disk where need be. Raises LogDamaged, LogUnreadable."""
    cdef SplitStop stopped = SPLIT_MISSING
    while True:
        with nogil:
            stopped = find_split(state, file)
        if stopped != SPLIT_MISSING:
            return stopped
        state.ready = file.ready_at(state.offset)


def places(LogFile file, uint64_t end, uint64_t step):
    """[(file offset of a record, that of the last topic record before it, that of the last name record before it)], 0
    for none, the first one at the beginning of the file, about `step` bytes apart, before the file offset `end` and as
    far as there are records.

    Raises LogDamaged where a compressed file cannot be decompressed, LogUnreadable.
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


def find_message(LogFile file, uint64_t first, uint64_t end, uint64_t publisher_id, uint64_t sequence):
    """File offset of the record with that bookmark, among those that begin from `first`, where one must begin, up to
    `end`; None if none has it. Raises what `places` does.
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
