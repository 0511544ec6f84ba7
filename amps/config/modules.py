"""The available modules, the options of the security modules, and the resolution of uses.

A use names either a module that is always loaded or one declared under `Modules`. A declared module names a
library of the documented distribution (a file `*.so`): libraries with a built-in equivalent work, the others are
refused. Or it names Python code, for functions of expressions: a file `*.py`, or else a module that can be
imported. The code is loaded here, once. The server uses only the names resolved here.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from amps.config.document import Node
from amps.config.findings import Findings, Severity
from amps.config.model_base import ModuleUse, OptionValue
from amps.config.readers import one_of, read_pattern, read_text
from amps.config.schema import Checker, Section
from amps.config.units import read_boolean, read_size, shown

SIMPLE_ACCESS = "libamps_simple_access_entitlement"
LEGACY_FUNCTIONS = "libamps_udf_legacy_compatibility"
DEFAULT_AUTHENTICATOR = "amps-default-authenticator-module"
MULTI_AUTHENTICATOR = "libamps_multi_authenticator"
EXEC_AUTHENTICATOR = "libamps_exec_authenticator"
CHAINING = "libamps_id_chaining_key_generator"
TOKEN_BYTES = 1024
"""How much of the output of a command is taken as a password, unless `MaxLength` says otherwise."""
TOKEN_BYTES_MAX = 2**20

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


def _read_token_bytes(text: str) -> int:
    length_bytes = read_size(text)
    if not 1 <= length_bytes <= TOKEN_BYTES_MAX:
        raise ValueError(
            f"{shown(text)} is no length of a password; write a number of bytes from 1 to {TOKEN_BYTES_MAX}"
        )
    return length_bytes


AUTHENTICATOR_MODULES: Mapping[str, _OptionReaders] = {
    DEFAULT_AUTHENTICATOR: dict.fromkeys(
        ("User", "Password", "PasswordFileName", "PasswordEnvironmentVariable"), read_text
    ),
    MULTI_AUTHENTICATOR: dict.fromkeys(
        ("Kerberos.Keytab", "Kerberos.SPN", "LDAP.Username", "LDAP.PasswordFile"), read_text
    ),
    EXEC_AUTHENTICATOR: {"Command": read_text, "UserName": read_text, "MaxLength": _read_token_bytes},
}
"""Modules with the credentials of outgoing connections (replication.md §15)."""

KEY_GENERATOR_MODULES: Mapping[str, _OptionReaders] = {
    CHAINING: {
        **dict.fromkeys(("Key", "Primary", "Secondary", "FileName"), read_text),
        "Validation": read_boolean,
    },
}
"""Modules that make the keys of SOW topics (sow.md §3.1)."""

LIBRARIES_LATER: Mapping[str, str] = {
    "libamps_http_entitlement": "RESTful authentication and entitlement",
    "libamps_multi_authentication": "Kerberos and LDAP authentication",
    "libamps_oauth_authentication": "OAuth authentication",
    "libamps_transport_filter_correlation_id_timestamper": "transport filters",
    "libamps_udf_experimental": "VALUE_LOOKUP, which needs SOW topics",
}


_MODULES = (AUTHENTICATION_MODULES, ENTITLEMENT_MODULES, AUTHENTICATOR_MODULES)


@dataclass(frozen=True, slots=True)
class DeclaredModule:
    """An entry under `Modules`."""

    name: str
    implementation: str
    options: Mapping[str, OptionValue]
    code: ModuleType | None = None
    """The module of a Python library, if it could be loaded."""

    @property
    def is_built_in(self) -> bool:
        """Whether the module is built in, that is, not a Python library."""
        return _is_built_in(self.implementation)


def _is_built_in(implementation: str) -> bool:
    return (
        implementation in ENTITLEMENT_MODULES
        or implementation in AUTHENTICATOR_MODULES
        or implementation in KEY_GENERATOR_MODULES
        or implementation == LEGACY_FUNCTIONS
    )


def declared_modules(modules: Section | None, checker: Checker) -> dict[str, DeclaredModule]:
    """Return the modules under `Modules`, by their configured names."""
    declared: dict[str, DeclaredModule] = {}
    for section in modules.all("Module") if modules is not None else []:
        name, library = section.first("Name"), section.first("Library")
        if name is None or library is None:
            continue
        node = section.where("Name")
        if name in declared or any(name in modules for modules in _MODULES):
            checker.error(node, f"the module name {shown(name)} is taken; choose another name")
            continue
        implementation = PurePath(library).name.removesuffix(".so")
        code = None
        if implementation in LIBRARIES_LATER:
            checker.not_yet(section.where("Library"), LIBRARIES_LATER[implementation])
        elif _is_built_in(implementation):
            pass
        elif library.endswith(".so"):
            checker.error(
                section.where("Library"),
                f"no module is built in for the library {shown(library)}; available: {SIMPLE_ACCESS}.so, "
                f"{MULTI_AUTHENTICATOR}.so, {EXEC_AUTHENTICATOR}.so, {CHAINING}.so, {LEGACY_FUNCTIONS}.so, and "
                "functions in Python, from a .py file or a module that can be imported",
            )
        else:
            try:
                code = load_code(library)
            except ValueError as error:
                checker.error(section.where("Library"), str(error))
        options = read_options(_options_node(section), checker)
        declared[name] = DeclaredModule(name, implementation, options, code)
    return declared


def load_code(library: str) -> ModuleType:
    """Return the Python module in a file `*.py`, or of that name. Raises ValueError if it cannot be loaded."""
    path = Path(library)
    if path.suffix == ".py" and not path.is_file():
        raise ValueError(f"the file {shown(library)} does not exist; correct the path")
    name = f"amps_library_{path.stem}"
    while name in sys.modules:  # a file of the same name in another directory
        name += "_"
    try:
        if path.suffix != ".py":
            return import_module(library)
        specification = spec_from_file_location(name, path)
        assert specification is not None  # files of this suffix have a loader
        assert specification.loader is not None
        code = module_from_spec(specification)
        sys.modules[name] = code  # like an import: objects defined in it may look up their module
        specification.loader.exec_module(code)
    except (Exception, SystemExit) as error:  # the code may raise anything
        sys.modules.pop(name, None)
        raise ValueError(
            f"the Python module {shown(library)} cannot be loaded: {type(error).__name__}: {error}; "
            "write the path of a .py file or the name of a module that can be imported"
        ) from None
    return code


def read_options(node: Node | None, checker: Checker) -> dict[str, OptionValue]:
    """Return the options of a use or a declaration: each child's name and text, repeated ones as a list."""
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
    """Return the module of an element that uses one, such as `Entitlement`, with its options checked.

    `kind`: what such modules do, for errors. `available`: the modules that do it, with their options.
    """
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


def resolve_key_generator(
    use: Section | None, declared: Mapping[str, DeclaredModule], checker: Checker
) -> ModuleUse | None:
    """Return the module of a `KeyGenerator` element, with its options checked one by one."""
    return resolve_use(use, "key generator", KEY_GENERATOR_MODULES, declared, checker)


def resolve_authenticator(
    use: Section | None, declared: Mapping[str, DeclaredModule], checker: Checker
) -> ModuleUse | None:
    """Return the module of an `Authenticator` element, with the rules between its options checked (replication.md §15).

    Options of the modules for Kerberos, LDAP and commands count only at the use; those at the module are ignored.
    """
    module = resolve_use(use, "authenticator", AUTHENTICATOR_MODULES, declared, checker)
    if use is None or module is None:
        return None
    node = _options_node(use) or use.where("Module")
    own = read_options(_options_node(use), Checker(Findings(), checker.strict))
    ignored = [name for name in module.options if name not in own]
    if module.module != DEFAULT_AUTHENTICATOR and ignored:
        checker.note(
            use.where("Module"),
            Severity.WARNING,
            f"{', '.join(ignored)} of the entry in Modules has no effect; write it into Options of the Authenticator",
        )
        module = ModuleUse(module.module, {name: module.options[name] for name in own}, module.name)
    for name, value in module.options.items():
        if not isinstance(value, str):
            checker.error(node, f"{name} is given more than once; keep one of them")
            return None
    _check_credentials(module, node, checker)
    return module


def _check_credentials(module: ModuleUse, node: Node, checker: Checker) -> None:
    given = set(module.options)
    if module.module == DEFAULT_AUTHENTICATOR:
        passwords = [
            name for name in AUTHENTICATOR_MODULES[DEFAULT_AUTHENTICATOR] if name != "User" and name in given
        ]
        if len(passwords) > 1:
            checker.error(node, f"{' and '.join(passwords)} both give the password; keep one of them")
    elif module.module == EXEC_AUTHENTICATOR:
        for name in ("Command", "UserName"):
            if not module.options.get(name):
                checker.error(node, f"{name} is required by the module {module.name}; add it to Options")
    else:
        pairs = (("Kerberos.Keytab", "Kerberos.SPN"), ("LDAP.Username", "LDAP.PasswordFile"))
        for one, other in (*pairs, *(pair[::-1] for pair in pairs)):
            if one in given and other not in given:
                checker.error(node, f"{one} needs {other}; add it to Options")
        if given & set(pairs[0]):
            checker.not_yet(
                node,
                "Kerberos authentication of outgoing connections; give LDAP.Username and LDAP.PasswordFile, or use "
                f"{EXEC_AUTHENTICATOR}.so with a command that prints the token",
            )
        elif not given & set(pairs[1]):
            checker.error(
                node,
                f"the module {module.name} needs a method; add LDAP.Username and LDAP.PasswordFile to Options",
            )


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
