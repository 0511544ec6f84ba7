"""The functions of an instance: built-in ones, those of the legacy module, and the instance's own.

An instance's own functions are Python callables, which its configuration names (expressions.md §10.11). They are
searched last, so no configuration can change the meaning of a built-in function.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from amps._core.expressions.functions import FUNCTIONS, FunctionInfo
from amps._core.expressions.machine import UserFunction

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = frozenset({"IF", "NOT", "NULL"})  # words with another meaning where a function name is allowed


@dataclass(frozen=True, slots=True)
class Functions:
    """The functions of an instance. own: its own functions by name, in upper case."""

    legacy: bool = False
    own: Mapping[str, UserFunction] = field(default_factory=dict)

    def find(self, name: str) -> FunctionInfo | UserFunction | None:
        """The function with this name in upper case, or None."""
        shipped = FUNCTIONS.get(name)
        if shipped is not None and (self.legacy or not shipped.legacy):
            return shipped
        return self.own.get(name)

    def names(self) -> Iterator[str]:
        """The names of all functions."""
        yield from (name for name, function in FUNCTIONS.items() if self.legacy or not function.legacy)
        yield from self.own


SHIPPED: Final = Functions()
"""The functions of an instance whose configuration adds none."""


def name_of_own(written: str, functions: Functions) -> str:
    """The name, in upper case, of a function to be added. ValueError: the name is not allowed."""
    name = written.upper()
    if not _NAME.fullmatch(written):
        raise ValueError(
            "a function's name consists of letters, digits and _, and begins with a letter; rename it"
        )
    if name in _WORDS or name in FUNCTIONS:
        raise ValueError(f"{name} is a built-in function or a word of expressions; choose another name")
    if name in functions.own:
        raise ValueError(f"a function {name} exists already (case makes no difference); choose another name")
    return name
