"""`MessageTypes`: the settings of declared message types (expressions.md §12.2), and their check.

Every declared type is created here once, so that its module checks its settings; the server creates
the types again for its own use. Standard types need no declaration. A declaration with the name of a standard type
changes its settings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from amps.config.findings import Severity
from amps.config.schema import Checker, Section
from amps.config.units import shown
from amps.messages import (
    MODULES,
    STANDARD_MESSAGE_TYPES,
    MessageType,
    TypeSettings,
    make_message_type,
    make_message_types,
    standard_settings,
)

_COMPOSITES: Final = ("composite-local", "composite-global")
_SEPARATED: Final = ("fix", "nvfix")

# The elements that apply to some modules only; the others apply to all.
_ELEMENTS: Final = {
    "FieldSeparator": _SEPARATED,
    "HeaderSeparator": _SEPARATED,
    "MessageSeparator": _SEPARATED,
    "EarlyTerminationOptimization": ("json",),
    "MessageType": _COMPOSITES,
    "ProtoPath": ("protobuf",),
    "ProtoFile": ("protobuf",),
    "Type": ("protobuf",),
    "Field": ("struct",),
}
_REQUIRED: Final = ("MessageType", "ProtoPath", "ProtoFile", "Type", "Field")


def check_message_type(section: Section, known: Mapping[str, TypeSettings], checker: Checker) -> None:
    """Refuse the MessageType of an element if there is no type of that name."""
    name = section.first("MessageType")
    if name is not None and name not in known:
        checker.error(
            section.where("MessageType"),
            f"unknown message type {shown(name)}; write one of {', '.join(known)}",
        )


def read_message_types(section: Section | None, checker: Checker) -> dict[str, TypeSettings]:
    """Return all message types of the instance, by name."""
    settings = standard_settings()
    made = make_message_types(settings.values())
    declared: dict[str, Section] = {}
    for declaration in section.all("MessageType") if section is not None else []:
        read = _settings(declaration, made, checker)
        if read is None:
            continue
        earlier = declared.setdefault(read.name, declaration)
        if earlier is not declaration:
            origin = earlier.node.origin
            checker.error(
                declaration.where("Name"),
                f"the message type {shown(read.name)} is declared twice, first at {origin.file}:{origin.line}; "
                "keep one of them",
            )
            continue
        settings[read.name] = read
        _make(read, declaration, made, checker)
    return settings


def _settings(section: Section, made: dict[str, MessageType], checker: Checker) -> TypeSettings | None:
    name = section.first("Name")
    if name is None:
        return None
    module = section.first("Module")
    if module is None and name not in MODULES:
        checker.error(section.node, f"Module is missing; write one of {', '.join(MODULES)}")
        return None
    module = module or name
    if module not in MODULES:
        checker.error(
            section.where("Module"),
            f"no message type module is called {shown(module)}; write one of {', '.join(MODULES)}",
        )
        return None
    if name in STANDARD_MESSAGE_TYPES and name != module:
        checker.note(
            section.where("Module"),
            Severity.WARNING,
            f"messages of the type {name} will be read as {module}; give the type another name",
        )
        if module in _COMPOSITES:
            # Standard types are created before all others, so the parts of a composite might not exist yet.
            checker.error(section.where("Name"), f"no composite can be called {name}; choose another name")
            return None
    _check_elements(section, module, checker)
    parts = tuple(section.all("MessageType"))
    for part, node in zip(parts, section.nodes.get("MessageType", ()), strict=False):
        if module in _COMPOSITES and part not in made:
            checker.error(
                node,
                f"no message type {shown(part)} is known here; write one of {', '.join(made)}, or declare it before",
            )
            return None
    return TypeSettings(
        name=name,
        module=module,
        field_separator=section.first("FieldSeparator"),
        early_termination=section.first("EarlyTerminationOptimization"),
        parts=parts,
        proto_paths=tuple(_proto_path(text) for text in section.all("ProtoPath")),
        proto_file=section.first("ProtoFile"),
        proto_type=section.first("Type"),
        fields=tuple(section.all("Field")),
    )


def _check_elements(section: Section, module: str, checker: Checker) -> None:
    for element, modules in _ELEMENTS.items():
        given = section.nodes.get(element)
        if given and module not in modules:
            checker.note(
                given[0],
                checker.lenient_severity,
                f"{element} has no meaning for the module {module}; remove it",
            )
        if not given and element in _REQUIRED and module in modules:
            checker.error(section.node, f"{element} is required for the module {module}; add it")


def _proto_path(text: str) -> tuple[str, Path]:
    """Read `alias;path`, or only a path."""
    alias, separator, path = text.partition(";")
    return (alias.strip(), Path(path.strip())) if separator else ("", Path(text))


def _make(settings: TypeSettings, section: Section, made: dict[str, MessageType], checker: Checker) -> None:
    """Create the type to check its settings. An error is reported at the only element that it can concern, if any."""
    if any(not section.has(name) and settings.module in _ELEMENTS[name] for name in _REQUIRED):
        return  # already reported
    try:
        made[settings.name] = make_message_type(settings, made)
    except ValueError as error:
        own = [
            node
            for name, modules in _ELEMENTS.items()
            if settings.module in modules
            for node in section.nodes.get(name, ())
        ]
        checker.error(own[0] if len(own) == 1 else section.node, str(error))
