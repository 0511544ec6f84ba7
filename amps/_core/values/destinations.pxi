# The destination paths of a builder of nested messages, as a tree.
#
# A builder writes maps along this tree, with children in the order of their first path. A merge walks message and tree
# side by side. If one of two paths equals the other or leads through it, the later one applies, and the earlier one is
# never written. Types whose fields can have both a value and fields below them (`leaves_only` off) keep both paths;
# there, only an equal path replaces another.

from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport calloc, free

from amps._core.values.value cimport Value


def lasting(paths, leaves_only):
    """The indexes of the paths whose values are written, in order."""
    ends = set()
    passed = set()
    kept = []
    for index in range(len(paths) - 1, -1, -1):
        path = paths[index]
        above = [path[:steps] for steps in range(1, len(path))]
        if path not in ends and not (leaves_only and (path in passed or not ends.isdisjoint(above))):
            kept.append(index)
        ends.add(path)
        passed.update(above)
    return kept[::-1]


cdef class Destinations:

    def __cinit__(self):
        self.nodes = NULL

    def __init__(self, paths, leaves_only=True):
        cdef int32_t* last
        cdef int32_t node
        cdef int32_t parent
        paths = tuple(paths)
        kept = lasting(paths, leaves_only)
        for path in paths:
            if not path or not all(isinstance(step, bytes) for step in path):
                raise ValueError(f"not a path to write a field to (it must consist of names only): {path!r}")
        self.tree = FieldSet([paths[index] for index in kept])
        self.node_count = self.tree.node_count
        self.nodes = <Destination*>calloc(self.node_count, sizeof(Destination))
        last = <int32_t*>calloc(self.node_count, sizeof(int32_t))
        try:
            if self.nodes == NULL or last == NULL:
                raise MemoryError()
            for node in range(<int32_t>self.node_count):
                parent = self.tree.nodes[node].parent
                self.nodes[node].name = self.tree.nodes[node].name
                self.nodes[node].name_length = self.tree.nodes[node].name_length
                self.nodes[node].parent = parent
                self.nodes[node].first_child = -1
                self.nodes[node].next_sibling = -1
                self.nodes[node].value = -1
                if self.tree.nodes[node].slot >= 0:
                    self.nodes[node].value = kept[self.tree.nodes[node].slot]
                if parent >= 0:
                    if last[parent]:
                        self.nodes[last[parent]].next_sibling = node
                    else:
                        self.nodes[parent].first_child = node
                    last[parent] = node
        finally:
            free(last)

    def __dealloc__(self):
        free(self.nodes)

    cdef void choose(self, Value** values) noexcept:
        """Mark the nodes that are written with these values: those that lead to a value that is not left out."""
        cdef uint32_t at
        cdef int32_t node
        for at in range(self.node_count):
            self.nodes[at].written = 0
        for at in range(self.node_count):
            if self.nodes[at].value < 0 or values[self.nodes[at].value] == NULL:
                continue
            node = <int32_t>at
            self.nodes[node].written = 1
            while self.nodes[node].parent >= 0:
                node = self.nodes[node].parent
                self.nodes[node].written += 1
                if self.nodes[node].written > 1:
                    break

    cdef void begin(self, int32_t node) noexcept:
        """Begin a map of the message that is merged into, for this node: none of its children is found yet."""
        cdef int32_t child = self.nodes[node].first_child
        while child >= 0:
            self.nodes[child].met = False
            child = self.nodes[child].next_sibling
