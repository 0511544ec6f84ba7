"""Types of the machine that evaluates expressions; see expression_vm.pyx."""

from collections.abc import Sequence

from amps._core.fields import FieldSet, FieldValues
from amps._core.message_context import MessageContext
from amps._core.patterns import Pattern
from amps._core.user_function import UserFunction
from amps._core.value import Scalar

class Program:
    def __init__(
        self,
        code: list[int],
        constants: list[Scalar],
        patterns: Sequence[Pattern | tuple[bytes, bool]],
        fields: Sequence[tuple[bytes | int, ...]],
        stack_depth: int,
        functions: Sequence[UserFunction] = (),
    ) -> None: ...
    @property
    def patterns(self) -> tuple[Pattern, ...]: ...
    @property
    def fields(self) -> tuple[tuple[bytes | int, ...], ...]: ...
    @property
    def functions(self) -> tuple[UserFunction, ...]: ...
    @property
    def stack_depth(self) -> int: ...
    @property
    def given_up(self) -> int: ...
    def bind(self, fields: FieldSet) -> BoundProgram: ...

class BoundProgram:
    def __init__(self, program: Program, fields: FieldSet) -> None: ...
    @property
    def program(self) -> Program: ...
    def evaluate(self, values: FieldValues, message: MessageContext | None = None) -> Scalar: ...
    def matches(self, values: FieldValues, message: MessageContext | None = None) -> bool: ...
