# What extractors make of FieldSets before they read: which places of a message hold what is wanted.
#
# Types whose messages name no fields translate the paths of a FieldSet to numbers or offsets. That costs a hundred
# times what reading a message does, so it is done once for a FieldSet, and again when that has grown. One extractor
# reads the messages of many topics in turn, each with a FieldSet of its own; plans are kept for all of them, within
# bounds.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t


cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject* held)


cdef class FieldPlan:

    cdef int make(self, FieldSet fields, int32_t root) except -1:
        """Make the plan for a node of a FieldSet; there may have been another one before."""
        raise NotImplementedError


cdef class FieldPlans:

    def __init__(self, new_plan):
        """new_plan(): a FieldPlan, not made yet."""
        self.new_plan = new_plan
        self.kept = {}
        self.made = 0

    cdef FieldPlan find(self, FieldSet fields, int32_t root):
        """The plan for a node of a FieldSet, as that is now."""
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
        """Forget the plans whose FieldSets only they still hold, or that which was not asked for the longest."""
        cdef FieldPlan plan
        for key, plan in list(self.kept.items()):
            if Py_REFCNT(<PyObject*>plan.fields_wanted) == 1:
                del self.kept[key]
        if len(self.kept) >= PLANS_MAX:
            del self.kept[next(iter(self.kept))]
        return 0
