"""Types of what extractors make of FieldSets; see field_plans.pyx."""

from collections.abc import Callable

class FieldPlan: ...

class FieldPlans:
    def __init__(self, new_plan: Callable[[], FieldPlan]) -> None: ...
    @property
    def made(self) -> int: ...
