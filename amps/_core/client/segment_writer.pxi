# The records of a publish store in files, written to the mapped segment without a call of Python code.

cdef extern from "crc32.h":
    void amps_crc32_begin() noexcept
    uint32_t amps_crc32(const char* data, size_t length, uint32_t crc) noexcept
    void amps_in_order() noexcept

cdef enum:
    RECORD_BYTES = 16                # u32 length, u32 CRC, u64 number, little-endian
    PERSISTED_WORD = 0               # of `numbers`; the word between them is the store's
    LAST_WORD = 2
    WORDS_BYTES = 24

amps_crc32_begin()


cdef inline void write_little(char* place, uint64_t number, int count) noexcept:
    cdef int at
    for at in range(count):
        place[at] = <char>(number >> (8 * at))


cdef class SegmentWriter(NumberedFrames):
    """Frames by consecutive numbers, written as records behind each other into a mapped segment.

    `amps.client.stores.segments` describes the files and makes the segments. A record is added in this order: frame,
    header, the number in `numbers`. A process that dies in between leaves a record that its CRC refuses, or one that
    is whole. A writer that is not open, or has no segment, refuses all frames. `max_bytes`: the limit for the
    records that are not discarded, which one may exceed; 0 = none.
    """

    cdef HeldBuffer segment, numbers
    cdef bint maps, is_open          # whether `segment`, `numbers` are held
    cdef object add_offset
    cdef readonly uint64_t end       # of the last record in the segment
    cdef readonly uint64_t limit     # no record may reach beyond it
    cdef readonly uint64_t total     # the bytes of all records of all segments
    cdef readonly uint64_t persisted  # the highest number that is discarded
    cdef uint64_t kept_from          # what `total` was before the first record kept
    cdef public uint64_t max_bytes

    def __init__(self):
        self.next_number = 1

    def __dealloc__(self):
        if self.maps:
            PyBuffer_Release(&self.segment.view)
        if self.is_open:
            PyBuffer_Release(&self.numbers.view)

    @property
    def kept_bytes(self):
        """The bytes of the records that are not discarded."""
        return self.total - self.kept_from

    def open(self, numbers, uint64_t next_number, uint64_t persisted, uint64_t total, uint64_t kept_from):
        """Continue with a recovered state. `numbers`: the three words of the file of this name, mapped."""
        self.close()
        PyObject_GetBuffer(numbers, &self.numbers.view, PyBUF_WRITABLE)
        self.is_open = True
        if self.numbers.view.len != WORDS_BYTES:
            self.close()
            raise ValueError("numbers must be three words")
        self.next_number = next_number
        self.persisted = persisted
        self.total = total
        self.kept_from = kept_from
        (<uint64_t*>self.numbers.view.buf)[<int>LAST_WORD] = next_number - 1

    def close(self):
        """Release the maps; nothing is kept any more."""
        self.detach()
        if self.is_open:
            PyBuffer_Release(&self.numbers.view)
            self.is_open = False
        self.next_number = self.persisted + 1
        self.total = self.kept_from = 0

    def begin(self, segment, offsets, uint64_t end):
        """Write to this mapped segment from `end` on, and append to `offsets`, an array, where each record starts."""
        self.detach()
        if not self.is_open:
            raise ValueError("the writer is not open")
        PyObject_GetBuffer(segment, &self.segment.view, PyBUF_WRITABLE)
        self.maps = True
        self.add_offset = offsets.append
        self.end = end
        self.limit = <uint64_t>self.segment.view.len

    def seal(self):
        """Refuse all frames, until `begin` or `resume`."""
        self.limit = 0

    def resume(self):
        """Take frames again, if there still is a segment."""
        if self.maps:
            self.limit = <uint64_t>self.segment.view.len

    def detach(self):
        """Seal and release the segment. `end` remains."""
        self.limit = 0
        if self.maps:
            self.maps = False
            PyBuffer_Release(&self.segment.view)

    cdef bint takes(self, Py_ssize_t length) noexcept:
        return (
            self.end + RECORD_BYTES + <uint64_t>length <= self.limit
            and not (self.max_bytes and self.total - self.kept_from >= self.max_bytes)
        )

    def has_room(self, Py_ssize_t length):
        """Whether the segment has room for a frame of this length."""
        return self.end + RECORD_BYTES + <uint64_t>length <= self.limit

    cdef char* place(self, Py_ssize_t length) except NULL:
        self.add_offset(self.end)
        return <char*>self.segment.view.buf + self.end + RECORD_BYTES

    cdef void added(self, Py_ssize_t length) noexcept:
        cdef char* record = <char*>self.segment.view.buf + self.end
        cdef uint32_t crc = amps_crc32(record + RECORD_BYTES, length, <uint32_t>self.next_number)
        amps_in_order()
        write_little(record, <uint64_t>length | <uint64_t>crc << 32, 8)
        write_little(record + 8, self.next_number, 8)
        amps_in_order()
        (<uint64_t*>self.numbers.view.buf)[<int>LAST_WORD] = self.next_number
        self.end += RECORD_BYTES + <uint64_t>length
        self.total += RECORD_BYTES + <uint64_t>length
        self.next_number += 1

    def add(self, bytes frame not None):
        """Keep a frame that has the next number already; return whether it was taken."""
        cdef Py_ssize_t length = PyBytes_GET_SIZE(frame)
        if not self.takes(length):
            return False
        memcpy(self.place(length), PyBytes_AS_STRING(frame), length)
        self.added(length)
        return True

    def discard(self, uint64_t number, uint64_t kept_from):
        """Discard the records up to a number. `kept_from`: what `total` was before the next one.

        If the number is above all known ones, numbering continues above it; the segment is sealed.
        """
        if number <= self.persisted or not self.is_open:
            return
        (<uint64_t*>self.numbers.view.buf)[<int>PERSISTED_WORD] = number
        self.persisted = number
        self.kept_from = kept_from
        if number >= self.next_number:
            self.limit = 0
            self.next_number = number + 1
            self.kept_from = self.total
