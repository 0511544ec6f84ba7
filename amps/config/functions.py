"""`UserDefinedFunctions`: functions in Python that expressions of this instance may call (expressions.md §10.11).

A function is an attribute of a module that `Modules` declares and loads. This module looks it up, and
compares its parameters with the declared number, so that a difference is found at the start, not with the first
message. Without `ParameterCount` the function may be called with every number of arguments that it accepts.
"""

import inspect
from collections.abc import Callable, Mapping

from amps._core.expressions.machine import UserFunction
from amps.config.modules import LEGACY_FUNCTIONS, DeclaredModule
from amps.config.schema import Checker, Section
from amps.config.units import shown
from amps.expressions import Functions, name_of_own


def read_functions(
    section: Section | None, declared: Mapping[str, DeclaredModule], checker: Checker
) -> Functions:
    """Return the functions of the instance."""
    own: dict[str, UserFunction] = {}
    functions = Functions(
        legacy=any(module.implementation == LEGACY_FUNCTIONS for module in declared.values()), own=own
    )
    for function in section.all("Function") if section is not None else []:
        made = _function(function, functions, declared, checker)
        if made is not None:
            own[made.name] = made
    return functions


def _function(
    section: Section, functions: Functions, declared: Mapping[str, DeclaredModule], checker: Checker
) -> UserFunction | None:
    written, module, symbol = section.first("Name"), section.first("Module"), section.first("Symbol")
    if written is None or module is None or symbol is None:
        return None
    try:
        name = name_of_own(written, functions)
    except ValueError as error:
        checker.error(section.where("Name"), str(error))
        return None
    declaration = declared.get(module)
    if declaration is None:
        checker.error(
            section.where("Module"), f"no module {shown(module)} is declared; declare it in Modules"
        )
        return None
    if declaration.code is None:
        if declaration.is_built_in:  # else it could not be loaded, which is already reported
            checker.error(
                section.where("Module"),
                f"the module {shown(module)} is no Python code; name one whose Library is a .py file or a module",
            )
        return None
    implementation = getattr(declaration.code, symbol, None)
    if not callable(implementation):
        checker.error(
            section.where("Symbol"),
            f"{shown(symbol)} is no function of the module {shown(module)}; correct the name, or define it there",
        )
        return None
    count = section.first("ParameterCount")
    try:
        minimum, maximum = _takes(implementation, count)
    except ValueError:
        checker.error(
            section.where("ParameterCount"),
            f"the function {shown(symbol)} cannot be called with {count or 0} arguments; correct one of the two",
        )
        return None
    return UserFunction(name, implementation, minimum, maximum)


def _takes(implementation: Callable[..., object], count: int | None) -> tuple[int, int | None]:
    """Return the least and the greatest number of arguments; without a count, from the signature.

    Raises ValueError if the function cannot be called with `count` arguments.
    """
    try:
        parameters = inspect.signature(implementation).parameters.values()
    except (ValueError, TypeError):  # a function written in C may have no signature
        return (0, None) if count is None else (count, count)
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        raise ValueError
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    minimum = sum(one.default is one.empty for one in by_place)
    maximum = None if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(by_place)
    if count is None:
        return minimum, maximum
    if count < minimum or (maximum is not None and count > maximum):
        raise ValueError
    return count, count
