"""Types of sets of constants; see constant_set.pyx."""

from collections.abc import Sequence

from amps._core.value import Scalar

class ConstantSet:
    def __init__(self, constants: Sequence[Scalar]) -> None: ...
    def contains(self, value: Scalar, untyped: bool = False) -> bool: ...
