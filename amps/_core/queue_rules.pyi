"""Types of the expressions of a queue; see queue_rules.pyx."""

from amps._core.expression_vm import Program
from amps._core.fields import FieldSet
from amps._core.filter_set import FilterBench

class Rule:
    def __init__(self, program: Program, all_fields: FieldSet) -> None: ...

class QueueRules:
    @property
    def bench(self) -> FilterBench: ...
    def __init__(
        self,
        bench: FilterBench,
        filter_: Program | None,
        barrier: Program | None,
        priority: Program | None,
        asks_message: bool,
    ) -> None: ...
    def judged(self, record: bytes, topic: bytes) -> tuple[bool, int | None] | None: ...
