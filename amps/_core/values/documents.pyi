from collections.abc import Iterable
from typing import Final

from _typeshed import ReadableBuffer

from amps._core.values.fields import FieldSet

Directive = tuple[bool, tuple[bytes, ...]]

class TooManyMembers(Exception): ...

class Selection:
    directives: Final[tuple[Directive, ...]]
    rest: Final[bool]
    def __init__(self, directives: Iterable[Directive]) -> None: ...

class MemberTree: ...

class Documents:
    def merged(self, stored: ReadableBuffer, delta: ReadableBuffer) -> bytes: ...
    def compared(self, old: ReadableBuffer, new: ReadableBuffer, keys: FieldSet) -> tuple[bytes, bool]: ...
    def selected(self, message: ReadableBuffer, selection: Selection) -> bytes: ...
