"""What a configuration says about one message type (expressions.md §12.2), read and typed."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TypeSettings:
    """One message type. Elements that its module does not know keep their defaults.

    name: what transports and topics call it. module: which implementation. field_separator: byte between fields of
    fix and nvfix. early_termination: json's EarlyTerminationOptimization. parts: names of the types of a composite's
    parts. proto_paths: alias and directory. fields: declarations of a struct, `/path = specifier`.
    """

    name: str
    module: str
    field_separator: int = 1
    early_termination: bool = True
    parts: tuple[str, ...] = ()
    proto_paths: tuple[tuple[str, Path], ...] = ()
    proto_file: str | None = None
    proto_type: str | None = None
    fields: tuple[str, ...] = ()
