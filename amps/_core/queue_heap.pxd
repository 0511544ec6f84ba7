# A heap of slots in the order in which they are to be delivered, or to expire: see queue_heap.pyx.

from libc.stdint cimport uint32_t, uint64_t


cdef struct HeapEntry:
    uint64_t rank                  # lower ones come first,
    uint64_t position              # then earlier ones
    uint32_t slot
    uint32_t last                  # 1: after all that have 0


cdef struct Heap:
    HeapEntry* entries
    uint64_t count
    uint64_t capacity


cdef inline bint comes_before(const HeapEntry* one, const HeapEntry* other) noexcept nogil:
    if one.last != other.last:
        return one.last < other.last
    if one.rank != other.rank:
        return one.rank < other.rank
    return one.position < other.position


cdef int heap_push(Heap* heap, uint64_t rank, uint64_t position, uint32_t slot, uint32_t last) except -1
cdef void heap_pop(Heap* heap) noexcept nogil
cdef void heap_free(Heap* heap) noexcept nogil
