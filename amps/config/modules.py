"""Security modules that exist, their options, and how a use of one is resolved.

A use names either a module that is always loaded or one declared under `Modules`. Declared modules name a
library of the documented distribution; those with a built-in equivalent work, the others are refused. The
names resolved here are the only ones that the server has to know.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from amps.config.document import Node
from amps.config.model import ModuleUse, OptionValue
from amps.config.readers import one_of, read_pattern
from amps.config.schema import Checker, Section
from amps.config.units import read_boolean, shown

SIMPLE_ACCESS = "libamps_simple_access_entitlement"

_OptionReaders = Mapping[str, Callable[[str], Any]]

AUTHENTICATION_MODULES: Mapping[str, _OptionReaders] = {
    "amps-default-authentication-module": {
        "AllowSpoofing": read_boolean,
        "RequireLogon": read_boolean,
        "RequireUsername": read_boolean,
    },
    "amps-implicit-authentication-module": {"AllowSpoofing": read_boolean},
    "amps-default-no-authentication-module": {},
}

ENTITLEMENT_MODULES: Mapping[str, _OptionReaders] = {
    "amps-default-entitlement-module": {},
    "amps-default-no-entitlement-module": {},
    SIMPLE_ACCESS: {
        "AllowedTopics": read_pattern,
        "DeniedTopics": read_pattern,
        "GrantedPermissions": one_of("read", "write"),
    },
}

LIBRARIES_LATER: Mapping[str, str] = {
    "libamps_http_entitlement": "RESTful authentication and entitlement",
    "libamps_multi_authentication": "Kerberos and LDAP authentication",
    "libamps_multi_authenticator": "Kerberos and LDAP authentication of outgoing connections",
    "libamps_exec_authenticator": "authenticators of outgoing connections",
    "libamps_oauth_authentication": "OAuth authentication",
    "libamps_transport_filter_correlation_id_timestamper": "transport filters",
    "libamps_id_chaining_key_generator": "SOW key generators",
    "libamps_udf_experimental": "user-defined functions",
    "libamps_udf_legacy_compatibility": "user-defined functions",
}


@dataclass(frozen=True, slots=True)
class DeclaredModule:
    """An entry under `Modules`."""

    name: str
    implementation: str
    options: Mapping[str, OptionValue]


def declared_modules(modules: Section | None, checker: Checker) -> dict[str, DeclaredModule]:
    """The modules under `Modules`, by their configured names."""
    declared: dict[str, DeclaredModule] = {}
    for section in modules.all("Module") if modules is not None else []:
        name, library = section.first("Name"), section.first("Library")
        if name is None or library is None:
            continue
        node = section.where("Name")
        if name in declared or name in AUTHENTICATION_MODULES or name in ENTITLEMENT_MODULES:
            checker.error(node, f"the module name {shown(name)} is taken; choose another name")
            continue
        implementation = PurePath(library).name.removesuffix(".so")
        if implementation in LIBRARIES_LATER:
            checker.not_yet(section.where("Library"), LIBRARIES_LATER[implementation])
        elif implementation not in ENTITLEMENT_MODULES:
            checker.error(
                section.where("Library"),
                f"no module is built in for the library {shown(library)}; {SIMPLE_ACCESS}.so is available",
            )
        declared[name] = DeclaredModule(name, implementation, read_options(_options_node(section), checker))
    return declared


def read_options(node: Node | None, checker: Checker) -> dict[str, OptionValue]:
    """The options of a use or a declaration: each child's name and text, repeated ones as a list."""
    options: dict[str, OptionValue] = {}
    for child in node.children if node is not None else []:
        if child.children:
            checker.error(child, "an option holds a text, not elements; write its value")
            continue
        earlier = options.get(child.name)
        if earlier is None:
            options[child.name] = child.text
        else:
            options[child.name] = [*([earlier] if isinstance(earlier, str) else earlier), child.text]
    return options


def resolve_use(
    use: Section | None,
    kind: str,
    available: Mapping[str, _OptionReaders],
    declared: Mapping[str, DeclaredModule],
    checker: Checker,
) -> ModuleUse | None:
    """The module of an `Authentication` or `Entitlement` element, with its options checked."""
    name = use.first("Module") if use is not None else None
    if use is None or name is None:
        return None
    node = use.where("Module")
    declaration = declared.get(name)
    implementation = declaration.implementation if declaration else name
    if implementation not in available:
        if declaration is None:
            checker.error(
                node,
                f"no {kind} module is called {shown(name)}; declare it in Modules, or write one of "
                + ", ".join(available),
            )
        elif implementation not in LIBRARIES_LATER:
            checker.error(node, f"the module {shown(name)} serves no {kind}; use it where it belongs")
        return None
    options_node = _options_node(use)
    options = dict(declaration.options) if declaration else {}
    options.update(read_options(options_node, checker))
    _check_options(options, available[implementation], options_node or node, checker)
    if implementation == SIMPLE_ACCESS and not {"AllowedTopics", "DeniedTopics"} & set(options):
        checker.error(node, "AllowedTopics or DeniedTopics is required; give at least one in Options")
    return ModuleUse(implementation, options, name)


def _options_node(section: Section) -> Node | None:
    nodes = section.all("Options")
    return nodes[0] if nodes else None


def _check_options(
    options: Mapping[str, OptionValue], readers: _OptionReaders, node: Node, checker: Checker
) -> None:
    places = {child.name: child for child in node.children}
    for name, value in options.items():
        place = places.get(name, node)
        if name not in readers:
            known = ", ".join(readers) or "none"
            checker.note(
                place, checker.lenient_severity, f"unknown option {name}; the module's options: {known}"
            )
            continue
        for text in [value] if isinstance(value, str) else value:
            try:
                readers[name](text)
            except ValueError as error:
                checker.error(place, f"{name}: {error}")
