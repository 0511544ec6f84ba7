# Stepping through a full journal from one wanted entry to the next, by its topic index.
#
# A replay of some topics of a journal need not read the rest of it, since the topic index has the offsets of the
# entries of each topic. The caller of TopicSteps chooses the topics. TopicSteps merges the offsets of their entries in
# ascending order and returns them in batches, so that the reader can first bring the entries of a batch into memory
# (journal/read_ahead.pxi).
#
# The caller decides topics one by one (`choose_topic`), because a journal may have many, and finding the subscriptions
# that match a topic takes time. Every topic is entered into the file's list of topics on the way. The reader may skip
# topic records, and other readers may continue at its position.
#
# Invariants: the offsets returned rise. No wanted entry at or after the offset of the choice is omitted. An entry is
# returned only after all wanted entries before it. The index is a cache: the reader treats each record that it reaches
# exactly as if it had read everything before.

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from amps._core.journal.reader cimport LogFile
from amps._core.journal.record cimport RECORD_HEADER_BYTES

cdef enum:
    BATCH_BYTES = 1 << 20          # expected size of the entries of a batch


cdef inline void sift_down(Row* rows, uint64_t count, uint64_t at) noexcept nogil:
    """Restore the order of a heap in which the row at `at` may have become larger than the rows below it."""
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
        """Start a new choice of topics, for the given generation of a group."""
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
        """The resolver's result for the next topic; it is entered into the file's topics."""
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
        """The number of entries of the next topic that begin at or after a file offset."""
        cdef uint64_t topic_id = self.next_topic
        return (
            self.index.rows[topic_id].first_offset + self.index.rows[topic_id].offset_count
            - self.index.first_from(topic_id, offset)
        )

    cdef int choose_topic(self, uint64_t offset) except -1:
        """Choose the next topic, with its entries from a file offset on."""
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
        """End the choice, after all topics were decided, and build the heap."""
        cdef uint64_t at = self.row_count // 2
        cdef uint64_t entry_bytes = self.entry_bytes()
        while at > 0:
            at -= 1
            sift_down(self.rows, self.row_count, at)
        self.batch_max = <uint32_t>min(<uint64_t>STEPS_BATCH, max(<uint64_t>1, BATCH_BYTES // entry_bytes))
        self.prepared = True

    cdef uint64_t entry_bytes(self) noexcept nogil:
        """The average size of an entry of this journal, in bytes."""
        return max(<uint64_t>RECORD_HEADER_BYTES, self.index.file_size // max(<uint64_t>1, self.index.entry_count))

    cdef bint fill(self, uint64_t offset) noexcept nogil:
        """Fill the batch so that it holds the next wanted entry at or after a file offset. False: there is none."""
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
        """Set `found` to the offset of the next wanted entry at or after a file offset, or to the file's size if there
        is none. Return False if the caller must first fill the batch, or bring the rest of it into memory.
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
