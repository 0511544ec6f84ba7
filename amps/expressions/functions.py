"""Which functions an instance has: those that are always there, those of the legacy module, and its own.

An instance's own functions are Python callables, which its configuration names (expressions.md §10.11). They come last:
no configuration can change what a shipped function means.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from amps._core.expressions.functions import FUNCTIONS, FunctionInfo
from amps._core.expressions.machine import UserFunction

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = frozenset(
    {"IF", "NOT", "NULL"}
)  # what may stand where the name of a function may, and means something else


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of an instance. `own` ones by name, in capitals."""

    legacy: bool = False
    own: Mapping[str, UserFunction] = field(default_factory=dict)

    def find(self, name: str) -> FunctionInfo | UserFunction | None:
        """The function with this name, in capitals."""
        shipped = FUNCTIONS.get(name)
        if shipped is not None and (self.legacy or not shipped.legacy):
            return shipped
        return self.own.get(name)

    def names(self) -> Iterator[str]:
        """The names of all there are."""
        yield from (name for name, function in FUNCTIONS.items() if self.legacy or not function.legacy)
        yield from self.own


SHIPPED: Final = Functions()
"""What an instance has whose configuration asks for nothing."""


def name_of_own(written: str, functions: Functions) -> str:
    """The name, in capitals, of a function to be added. ValueError: it cannot be called so."""
    name = written.upper()
    if not _NAME.fullmatch(written):
        raise ValueError(
            "a function's name consists of letters, digits and _, and begins with a letter; rename it"
        )
    if name in _WORDS or name in FUNCTIONS:
        raise ValueError(f"{name} is taken by what expressions have already; choose another name")
    if name in functions.own:
        raise ValueError(
            f"a function {name} is there already, and case makes no difference; choose another name"
        )
    return name
