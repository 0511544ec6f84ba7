# Select lists: which fields of a message are passed on (sow.md §18).
#
# The most specific directive decides: the one with the longest path that leads to a field. Of two directives for one
# path the first counts. A field without a directive is included. A path leads through arrays, as in filters: the
# directives for a field of an object in an array are applied to each object in it.

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc

from amps._core.values.fields cimport FieldSet


@cython.final
cdef class Selection:

    def __cinit__(self):
        self.included = NULL

    def __init__(self, directives):
        """directives: pairs of a bool, whether the field is included, and its path: a tuple of names in bytes, which is
        empty for the whole message.
        """
        self.directives = tuple(directives)
        chosen = {}
        for included, path in self.directives:
            if not all(isinstance(step, bytes) for step in path):
                raise ValueError(f"a select list names fields, not elements of arrays: {path!r}")
            chosen.setdefault(tuple(path), included)
        self.rest = chosen.pop((), True)
        self.tree = FieldSet(chosen)
        self.included = <uint8_t*>malloc(len(chosen) + 1)
        if self.included == NULL:
            raise MemoryError()
        for slot, included in enumerate(chosen.values()):
            self.included[slot] = 1 if included else 0

    def __dealloc__(self):
        free(self.included)

    cdef bint includes(self, int32_t node, bint above) noexcept nogil:
        """Whether a field is included. node: its node; -1: it has no directive. above: the same for what holds it."""
        if node < 0 or self.tree.nodes[node].slot < 0:
            return above
        return self.included[self.tree.nodes[node].slot]
