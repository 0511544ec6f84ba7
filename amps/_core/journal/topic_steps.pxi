# Stepping through a full journal from one wanted entry to the next, by its topic index.
#
# A replay that wants some topics of a journal need not look at the rest of it: the topic index says where the entries
# of each topic begin. TopicSteps is told which topics are wanted, merges their places into one rising row, and gives
# that out in batches, so that who reads can see to it first that the entries of a batch are in memory
# (journal/read_ahead.pxi).
#
# Topics are looked at one by one (`choose_topic`), because a journal may have many, and asking who wants one takes
# time. All of them are made known to the file on the way: the records that name them may be stepped over, and others
# may go on reading where this reader stands.
#
# Invariants: what is given out rises; no wanted entry at or after the place at which was chosen is left out; nothing
# is given out as the next entry unless everything wanted before it was. The index is a cache: who steps looks at each
# record that it comes to exactly as if everything had been read.

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RECORD_HEADER_BYTES

cdef enum:
    BATCH_BYTES = 1 << 20          # of log that the entries of a batch are expected to take


cdef inline void sift_down(Row* rows, uint64_t count, uint64_t at) noexcept nogil:
    """Restore the order of a heap in which one row may have become larger than what is below it."""
    cdef Row moved = rows[at]
    cdef uint64_t child = 2 * at + 1
    while child < count:
        if child + 1 < count and rows[child + 1].place < rows[child].place:
            child += 1
        if moved.place <= rows[child].place:
            break
        rows[at] = rows[child]
        at = child
        child = 2 * at + 1
    rows[at] = moved


@cython.final
cdef class TopicSteps:

    def __cinit__(self):
        self.rows = NULL
        self.capacity = 0

    def __init__(self, TopicIndexReader index, uint64_t limit_offset):
        self.index = index
        self.limit_offset = min(limit_offset, index.file_size)
        self.begin_choice(0)

    def __dealloc__(self):
        free(self.rows)

    cdef void begin_choice(self, uint64_t generation) noexcept:
        """Choose anew, for a group as it is now."""
        self.generation = generation
        self.prepared = False
        self.next_topic = 0
        self.wanted_count = 0
        self.left_count = 0
        self.row_count = 0
        self.batch_at = 0
        self.batch_count = 0
        self.looks = 0
        self.batch_there = 0

    cdef object learn_topic(self, LogFile file, object resolver):
        """What the file's readers make of the next topic."""
        cdef uint64_t topic_id = self.next_topic
        while <uint64_t>len(file.topics) <= topic_id:
            file.topics.append(None)
        if file.topics[topic_id] is None:
            topic, message_type = self.index.names(topic_id)
            file.topics[topic_id] = resolver(
                topic.decode("utf-8", "surrogatepass"), message_type.decode("utf-8", "surrogatepass")
            )
        return file.topics[topic_id]

    cdef uint64_t left_of_topic(self, uint64_t offset) noexcept nogil:
        """How many entries of the next topic begin at or after a file offset."""
        cdef uint64_t topic_id = self.next_topic
        return (
            self.index.rows[topic_id].first_offset + self.index.rows[topic_id].offset_count
            - self.index.first_from(topic_id, offset)
        )

    cdef int choose_topic(self, uint64_t offset) except -1:
        """The next topic is wanted from that offset on."""
        cdef Row* grown
        cdef uint64_t at = self.index.first_from(self.next_topic, offset)
        cdef uint64_t end = (
            self.index.rows[self.next_topic].first_offset + self.index.rows[self.next_topic].offset_count
        )
        if self.row_count == self.capacity:
            self.capacity = max(<uint64_t>16, 2 * self.capacity)
            grown = <Row*>realloc(self.rows, self.capacity * sizeof(Row))
            if grown == NULL:
                raise MemoryError()
            self.rows = grown
        self.rows[self.row_count] = Row(self.index.places[at], at, end)
        self.row_count += 1
        self.wanted_count += end - at
        return 0

    cdef void end_choice(self) noexcept:
        """All topics were looked at."""
        cdef uint64_t at = self.row_count // 2
        cdef uint64_t entry_bytes = self.entry_bytes()
        while at > 0:
            at -= 1
            sift_down(self.rows, self.row_count, at)
        self.batch_max = <uint32_t>min(<uint64_t>STEPS_BATCH, max(<uint64_t>1, BATCH_BYTES // entry_bytes))
        self.prepared = True

    cdef uint64_t entry_bytes(self) noexcept nogil:
        """What an entry of this journal takes, on average."""
        return max(<uint64_t>RECORD_HEADER_BYTES, self.index.file_size // max(<uint64_t>1, self.index.entry_count))

    cdef bint fill(self, uint64_t offset) noexcept nogil:
        """See that the batch holds the wanted entry at or after a file offset. False: there is none any more."""
        cdef uint64_t found
        while self.batch_at < self.batch_count and self.batch[self.batch_at] < offset:
            self.batch_at += 1
        if self.batch_at < self.batch_count:
            return True
        self.batch_at = 0
        self.batch_count = 0
        self.looks = 0
        while self.row_count and self.batch_count < self.batch_max:
            found = <uint64_t>self.rows[0].place * 8
            self.rows[0].at += 1
            if self.rows[0].at < self.rows[0].end:
                self.rows[0].place = self.index.places[self.rows[0].at]
            else:
                self.row_count -= 1
                self.rows[0] = self.rows[self.row_count]
            sift_down(self.rows, self.row_count, 0)
            if found >= offset:
                self.batch[self.batch_count] = found
                self.batch_count += 1
        self.batch_there = self.batch_count
        return self.batch_count > 0

    cdef bint next_from(self, uint64_t offset, uint64_t* found) noexcept nogil:
        """The wanted entry at or after a file offset; the file's size if there is none. False: the batch has to be
        filled first, or the rest of it to be brought into memory.
        """
        while self.batch_at < self.batch_there:
            if self.batch[self.batch_at] >= offset:
                found[0] = self.batch[self.batch_at]
                return True
            self.batch_at += 1
        if self.batch_at < self.batch_count:
            return False
        found[0] = self.index.file_size
        return self.row_count == 0
