"""Struct: consecutive fields of fixed size, as declared in the configuration (expressions.md §12.5).

Declarations are parsed here; the extractor receives offsets and kinds. Types are little-endian by default, and no
alignment is inserted.
"""

import re
from collections.abc import Mapping
from typing import Final

from amps._core.messages.struct import StructExtractor, StructField
from amps.messages.base import MessageType
from amps.messages.settings import TypeSettings

DECLARATION: Final = re.compile(r"\s*(/.*?\S)\s*=\s*([@=<>]?)(\d*)([a-zA-Z?])\s*")
SIZES_BYTES: Final = {
    **dict.fromkeys("bB?", 1),
    **dict.fromkeys("hH", 2),
    **dict.fromkeys("iIlLf", 4),
    **dict.fromkeys("qQnNd", 8),
}
COUNTED: Final = "xcsSp"
"""Types whose count is a size in bytes. Only `c` may have no count."""
MESSAGE_BYTES_MAX: Final = 1 << 31


class StructType(MessageType):
    """The module struct."""

    def __init__(self, settings: TypeSettings, known: Mapping[str, MessageType]) -> None:
        super().__init__(settings, known)
        if not settings.fields:
            raise ValueError(f"the struct {self.name} has no fields: declare each as `/path = specifier`")
        self._layout = layout(settings.fields)

    def extractor(self) -> StructExtractor:
        return StructExtractor(self._layout)


def layout(declarations: tuple[str, ...]) -> tuple[StructField, ...]:
    """The offset of each field. Padding takes space but is not a field."""
    fields: list[StructField] = []
    taken: set[tuple[bytes, ...]] = set()
    passed: set[tuple[bytes, ...]] = set()
    offset = 0
    for declaration in declarations:
        path, byte_order, kind, size = parsed(declaration)
        if kind != "x":
            above = {path[:steps] for steps in range(1, len(path))}
            if path in taken:
                raise ValueError(f"{declaration!r}: this field is declared twice; only padding may repeat")
            if path in passed or above & taken:
                raise ValueError(f"{declaration!r}: a field cannot have a value and other fields below it")
            taken.add(path)
            passed |= above
            fields.append(StructField(path, kind, byte_order == ">", offset, size))
        offset += size
        if offset > MESSAGE_BYTES_MAX:
            raise ValueError(f"{declaration!r}: no message is longer than {MESSAGE_BYTES_MAX} bytes")
    return tuple(fields)


def parsed(declaration: str) -> tuple[tuple[bytes, ...], str, str, int]:
    """Path, byte order, type and size in bytes."""
    form = DECLARATION.fullmatch(declaration)
    if form is None:
        raise ValueError(
            f"{declaration!r} is no field: write `/path = specifier`, e.g. `/px = d` or `/sym = 8S`"
        )
    path, byte_order, count, kind = form.groups()
    steps = tuple(step.encode() for step in path[1:].split("/"))
    if not all(steps):
        raise ValueError(f"{declaration!r}: a step of the path has no name")
    if kind not in SIZES_BYTES and kind not in COUNTED:
        raise ValueError(
            f"{declaration!r}: there is no type {kind!r}; there are {' '.join([*COUNTED, *SIZES_BYTES])}"
        )
    if kind in SIZES_BYTES:
        if count:
            raise ValueError(f"{declaration!r}: a number has no count; declare each field by itself")
        return steps, byte_order, kind, SIZES_BYTES[kind]
    if not count and kind != "c":
        raise ValueError(f"{declaration!r}: the type {kind!r} needs a count, its size in bytes, in front")
    if len(count) > 10 or int(count or 1) == 0:
        raise ValueError(f"{declaration!r}: {count} bytes is not a valid size of a field")
    return steps, byte_order, kind, int(count or 1)
