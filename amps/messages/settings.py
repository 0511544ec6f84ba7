"""The settings of one message type in a configuration (expressions.md §12.2), as typed values."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TypeSettings:
    """The settings of one message type. Elements that its module does not use keep their defaults.

    name: as used by transports and topics. module: the implementation. field_separator: byte between fields of fix and
    nvfix. early_termination: json's EarlyTerminationOptimization. parts: names of the types of a composite's parts.
    proto_paths: alias and directory. fields: declarations of a struct, `/path = specifier`.
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
