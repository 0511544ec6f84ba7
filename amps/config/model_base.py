"""The use of a module, which several parts of the configuration have."""

from collections.abc import Mapping
from dataclasses import dataclass, field

OptionValue = str | list[str]


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """One use of a module: a built-in implementation and its options.

    `module` is the name of the implementation (`amps-default-authentication-module`,
    `libamps_simple_access_entitlement`), already resolved through `Modules`. `name` is its name in the
    configuration, for log messages. `options` maps an option's element name to its text, or to the
    list of texts if the option was given more than once. Options at the use override those at the module.
    """

    module: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    name: str = ""
