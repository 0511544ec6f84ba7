# See frames.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef class FrameMap:
    cdef object __weakref__
    cdef readonly object path
    cdef readonly uint64_t size            # bytes of the content
    cdef uint8_t* data                     # the mapping: content where `present` says so
    cdef uint8_t* present                  # by frame: whether its content is in the mapping
    cdef uint64_t* offsets                 # by frame: where it begins in the file; one more for the end of the last
    cdef uint64_t count                    # frames
    cdef uint64_t serial                   # its number in the cache
    cdef int descriptor
    cdef object decompress
    cdef FrameCache cache

    cdef int read_table(self) except -1
    cdef uint64_t need(self, uint64_t offset, uint64_t length) except? 0
    cdef int load(self, uint64_t frame) except -1
    cdef int drop(self, uint64_t frame) except -1


cdef class FrameCache:
    cdef readonly uint64_t limit_bytes
    cdef object order                      # OrderedDict: (serial, frame) -> None, longest unused first
    cdef dict maps                         # serial -> weak reference to the FrameMap
    cdef uint64_t next_serial
