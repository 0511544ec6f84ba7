"""Types of the table of functions; see expression_functions.pyx."""

from typing import NamedTuple

class FunctionInfo(NamedTuple):
    number: int
    minimum: int
    maximum: int | None
    deterministic: bool
    aggregate: bool
    legacy: bool

FUNCTIONS: dict[str, FunctionInfo]
PATTERN_FUNCTIONS: tuple[str, ...]
