# A binary heap in plain memory.
#
# An entry stays when its message leaves the queue. The user of the heap compares the entry at the top with the current
# position and state of its slot, and drops it if it is stale. A push in rising order, the usual order of messages,
# costs one comparison.

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc

cdef enum:
    HEAP_CAPACITY_FIRST = 16


cdef int heap_push(Heap* heap, uint64_t rank, uint64_t position, uint32_t slot, uint32_t last) except -1:
    cdef HeapEntry entry
    cdef HeapEntry* grown
    cdef uint64_t at
    cdef uint64_t above
    if heap.count == heap.capacity:
        grown = <HeapEntry*>realloc(
            heap.entries, max(<uint64_t>HEAP_CAPACITY_FIRST, 2 * heap.capacity) * sizeof(HeapEntry)
        )
        if grown == NULL:
            raise MemoryError()
        heap.entries = grown
        heap.capacity = max(<uint64_t>HEAP_CAPACITY_FIRST, 2 * heap.capacity)
    entry.rank = rank
    entry.position = position
    entry.slot = slot
    entry.last = last
    at = heap.count
    heap.count += 1
    while at:
        above = (at - 1) // 2
        if not comes_before(&entry, &heap.entries[above]):
            break
        heap.entries[at] = heap.entries[above]
        at = above
    heap.entries[at] = entry
    return 0


cdef void heap_pop(Heap* heap) noexcept nogil:
    """Remove the first entry; the heap must not be empty."""
    cdef HeapEntry entry
    cdef uint64_t at = 0
    cdef uint64_t below
    heap.count -= 1
    if heap.count == 0:
        if heap.capacity > 4096:
            heap_free(heap)
        return
    entry = heap.entries[heap.count]
    while True:
        below = 2 * at + 1
        if below >= heap.count:
            break
        if below + 1 < heap.count and comes_before(&heap.entries[below + 1], &heap.entries[below]):
            below += 1
        if not comes_before(&heap.entries[below], &entry):
            break
        heap.entries[at] = heap.entries[below]
        at = below
    heap.entries[at] = entry


cdef void heap_free(Heap* heap) noexcept nogil:
    """Empty the heap and free its memory."""
    free(heap.entries)
    heap.entries = NULL
    heap.count = 0
    heap.capacity = 0
