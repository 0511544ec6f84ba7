# See processors.h.

from libc.stdint cimport uint64_t


cdef extern from "processors.h" nogil:
    ctypedef struct processors_t:
        pass
    uint64_t processor_mark()
    void no_processors(processors_t* processors)
    void add_processor(processors_t* processors, uint64_t mark)
    int leave_processors(const processors_t* busy)
