"""Bytes that a connection has received and nobody has dealt with yet.

The event loop asks for memory to receive into (`receive_buffer`), then tells how much came (`received`). Whoever parses
moves `at` forward and says when it stops for now (`keep`).

Idle connections hold no memory. Bytes are received into a scratch buffer shared by all connections of the process and
parsed there; only the piece of a frame whose rest has not come is kept, in memory that grows as the bytes arrive, never
by what a length field promises, and is given back when the frame is done.

Invariants: what is not parsed is data[at:end]. It lies in the scratch buffer only between `receive_buffer` and the
`keep` that follows, during which no other connection of the process receives.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    SCRATCH_BYTES = 262144

cdef uint8_t* scratch = <uint8_t*>malloc(SCRATCH_BYTES)


cdef class ReceiveBuffer:

    def __cinit__(self):
        self.kept = NULL

    def __init__(self, uint64_t frame_bytes_max):
        """frame_bytes_max: the longest frame that is kept as a whole."""
        self.frame_bytes_max = frame_bytes_max
        self.data = scratch
        self.at = 0
        self.end = 0
        self.kept_capacity = 0
        self.bytes_received = 0

    def __dealloc__(self):
        free(self.kept)

    def receive_buffer(self):
        """Memory to receive into, until the next call."""
        cdef uint64_t wanted
        cdef uint64_t capacity
        cdef uint8_t* grown
        if self.data != self.kept or self.end == self.at:
            self.data = scratch
            self.at = self.end = 0
            return PyMemoryView_FromMemory(<char*>scratch, SCRATCH_BYTES, PyBUF_WRITE)
        if self.kept_capacity - self.end < 65536:
            # Grow by what has arrived, not by what the length field says.
            capacity = max(self.kept_capacity * 2, <uint64_t>131072)
            wanted = self.frame_bytes_max + 4 + 65536
            if capacity > wanted:
                capacity = wanted
            if capacity - self.end < 4096:
                capacity = self.end + 65536
            grown = <uint8_t*>realloc(self.kept, capacity)
            if grown == NULL:
                raise MemoryError()
            self.kept = grown
            self.kept_capacity = capacity
            self.data = grown
        return PyMemoryView_FromMemory(
            <char*>self.kept + self.end, <Py_ssize_t>(self.kept_capacity - self.end), PyBUF_WRITE
        )

    def received(self, uint64_t count):
        """That many bytes were received into the buffer."""
        self.end += count
        self.bytes_received += count

    def keep(self):
        """Parsing stops here for now: take unparsed bytes out of the scratch buffer, move them together."""
        cdef uint64_t left = self.end - self.at
        cdef uint8_t* grown
        if left == 0:
            self.at = self.end = 0
            self.data = scratch
            free(self.kept)
            self.kept = NULL
            self.kept_capacity = 0
            return
        if self.data == self.kept:
            if self.at:
                memmove(self.kept, self.kept + self.at, left)
                self.at = 0
                self.end = left
            return
        if self.kept_capacity < left + 65536:
            grown = <uint8_t*>realloc(self.kept, left + 65536)
            if grown == NULL:
                raise MemoryError()
            self.kept = grown
            self.kept_capacity = left + 65536
        memcpy(self.kept, self.data + self.at, left)
        self.data = self.kept
        self.at = 0
        self.end = left

    def give_back_memory(self):
        """The connection has ended: free what was received."""
        free(self.kept)
        self.kept = NULL
        self.kept_capacity = 0
        self.data = scratch
        self.at = self.end = 0

    @property
    def unparsed_bytes(self):
        """Bytes received and not parsed."""
        return self.end - self.at

    @property
    def first_bytes(self):
        """Up to 4 KiB of what was received and not parsed: to tell HTTP from frames."""
        return (<const char*>self.data + self.at)[: min(self.end - self.at, <uint64_t>4096)]

    def discard(self, uint64_t count):
        """Drop bytes that were something else than frames."""
        self.at += min(count, self.end - self.at)
