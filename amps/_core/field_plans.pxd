# What extractors make of FieldSets before they read. See field_plans.pyx.

from libc.stdint cimport int32_t, uint32_t, uint64_t

from amps._core.fields cimport FieldSet


cdef enum:
    PLANS_MAX = 1024               # a message that cannot be read is tried for each filter by itself


cdef class FieldPlan:
    """How messages are read for a node of a FieldSet."""

    cdef FieldSet fields_wanted    # what the plan is made for, as it was; None: for nothing yet
    cdef uint32_t slots_wanted
    cdef int32_t root_wanted

    cdef int make(self, FieldSet fields, int32_t root) except -1


# Whether a plan is made for a node of a FieldSet, and that has not grown since: every new path is a new slot.
cdef inline bint is_made_for(FieldPlan self, FieldSet fields, int32_t root) noexcept:
    return (
        self.fields_wanted is fields and self.slots_wanted == fields.slot_count and self.root_wanted == root
    )


cdef class FieldPlans:
    """The plans of one extractor, as many as there is use for."""

    cdef object new_plan
    cdef dict kept                 # by FieldSet and node, which a plan holds; in the order in which they were asked for
    cdef readonly uint64_t made    # how many so far

    cdef FieldPlan find(self, FieldSet fields, int32_t root)
    cdef int make_room(self) except -1
