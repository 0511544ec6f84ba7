# Plans: the positions in a message that hold the needed fields, which extractors derive from a FieldSet in advance.
#
# Types whose messages contain no field names translate the paths of a FieldSet to numbers or offsets. That costs a
# hundred times as much as reading a message, so it is done once per FieldSet, and again when the FieldSet has grown.
# One extractor reads the messages of many topics in turn, each with its own FieldSet. It keeps the plans of all of
# them, up to PLANS_MAX.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* held)


cdef class FieldPlan:

    cdef int make(self, FieldSet fields, int32_t root) except -1:
        """Make the plan for a node of a FieldSet. It replaces an earlier plan, if there was one."""
        raise NotImplementedError


cdef class FieldPlans:

    def __init__(self, new_plan):
        """new_plan(): returns a FieldPlan that is not made yet."""
        self.new_plan = new_plan
        self.kept = {}
        self.made = 0

    cdef FieldPlan find(self, FieldSet fields, int32_t root):
        """The plan for a node of a FieldSet in its current state."""
        key = (id(fields), root)
        cdef FieldPlan plan = self.kept.pop(key, None)
        if plan is None:
            self.make_room()
            plan = self.new_plan()
        if not is_made_for(plan, fields, root):
            plan.make(fields, root)
            plan.fields_wanted = fields
            plan.slots_wanted = fields.slot_count
            plan.root_wanted = root
            self.made += 1
        self.kept[key] = plan
        return plan

    cdef int make_room(self) except -1:
        """Remove the plans whose FieldSets have no other owner, and if that is not enough the least recently used plan.
        """
        cdef FieldPlan plan
        for key, plan in list(self.kept.items()):
            if Py_REFCNT(<PyObject*>plan.fields_wanted) == 1:
                del self.kept[key]
        if len(self.kept) >= PLANS_MAX:
            del self.kept[next(iter(self.kept))]
        return 0
