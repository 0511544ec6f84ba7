# The destination paths of a builder of nested messages, as a tree. See destinations.pyx.

from libc.stdint cimport int32_t, uint8_t, uint32_t

from amps._core.fields cimport FieldSet
from amps._core.value cimport Value


cdef struct Destination:
    const uint8_t* name
    uint32_t name_length
    int32_t value                  # which of the values is written here; -1 = it leads to others
    int32_t parent
    int32_t first_child
    int32_t next_sibling
    uint32_t written               # of the values at hand: children that are written; of a last step 1 or 0
    bint met                       # in the message that is merged into


cdef class Destinations:
    """Nodes are numbered as those of a FieldSet: 0 is the root."""

    cdef Destination* nodes
    cdef uint32_t node_count
    cdef FieldSet tree             # finds children by name

    cdef void choose(self, Value** values) noexcept
    cdef void begin(self, int32_t node) noexcept


# The destination of a name below another one; -1: that name is none.
cdef inline int32_t destination(Destinations self, int32_t node, const uint8_t* name, uint32_t length) noexcept:
    return self.tree.child(node, name, length)
