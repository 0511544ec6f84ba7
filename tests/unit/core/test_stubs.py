"""The stubs of the compiled modules match them: same names, same parameters, same C types.

A compiled module has no annotations for a type checker to read; the `.pyi` beside it has. Only this test keeps the two
together. The parameters of an extension class are in the signature that the compiler puts first into every docstring.
"""

import ast
import importlib
import importlib.machinery
import re
import types
from pathlib import Path

import pytest

import amps._core

DIRECTORY = Path(amps._core.__path__[0])
MODULES = sorted({f"{path.parent.name}.{path.name.partition('.')[0]}" for path in DIRECTORY.glob("*/*.so")})
INTEGER_TYPES = {"int", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "unsigned long long", "Py_ssize_t"}
# Py_TPFLAGS_HEAPTYPE: set for classes made at run time, which have a dictionary; not for extension classes.
HEAP_TYPE = 1 << 9
# (type, name) of each parameter; the name of an optional one ends in `=`.
Parameters = list[tuple[str, str]]


def stub_of(name: str) -> ast.Module:
    return ast.parse((DIRECTORY / f"{name.replace('.', '/')}.pyi").read_text())


def is_public(name: str) -> bool:
    return not name.startswith("_")


def members_of_module(module: types.ModuleType) -> dict[str, object]:
    """The public names that the module defines itself, without imported ones."""
    return {
        name: value
        for name, value in vars(module).items()
        if is_public(name)
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", module.__name__) in (module.__name__, None, "numpy.dtypes")
    }


def defined_names(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Public definitions of a module or class by name; several for overloads and for property setters."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            name = statement.name
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        else:
            continue
        if is_public(name) or name == "__init__":
            found.setdefault(name, []).append(statement)
    return found


def is_property(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and any(
        isinstance(decorator, ast.Name) and decorator.id == "property"
        for decorator in statement.decorator_list
    )


def embedded_parameters(documented: object) -> Parameters | None:
    """Parameters with C types (empty for objects) from an embedded signature, or None if there is none."""
    first = (getattr(documented, "__doc__", None) or "").partition("\n")[0]
    name = getattr(documented, "__name__", "")
    match = re.fullmatch(rf"(?:\w+\.)?{re.escape(name)}\((.*)\)(?: -> .*)?", first)
    if match is None:
        return None
    parameters = []
    for part in filter(None, (part.strip() for part in match[1].split(","))):
        c_type, _, parameter = part.partition("=")[0].strip().rpartition(" ")
        parameters.append((c_type, parameter + ("=" if "=" in part else "")))
    return [entry for entry in parameters if entry[1] != "self"]


def stub_parameters(function: ast.FunctionDef) -> Parameters:
    """Parameters with their annotations in a stub."""
    arguments = function.args.args
    required = len(arguments) - len(function.args.defaults)
    return [
        (
            "" if a.annotation is None else ast.unparse(a.annotation),
            a.arg + ("=" if number >= required else ""),
        )
        for number, a in enumerate(arguments)
        if a.arg != "self"
    ]


def fits(c_type: str, annotation: str) -> bool:
    """True if the compiled type matches the stub's annotation. An object may have any annotation, even None."""
    if not c_type:
        return bool(annotation)
    if c_type in INTEGER_TYPES:
        return annotation == "int"
    if c_type == "double":
        return annotation == "float"
    if c_type == "const unsigned char[::1]":
        return annotation == "ReadableBuffer"
    return annotation.removesuffix(" | None").partition("[")[0] == c_type


def check_parameters(place: str, documented: object, definitions: list[ast.stmt]) -> None:
    embedded = embedded_parameters(documented)
    if embedded is None:
        # The class has no constructor of its own.
        assert isinstance(documented, type), place
        embedded = []
    for definition in definitions:
        assert isinstance(definition, ast.FunctionDef), place
        written = stub_parameters(definition)
        assert [name for _, name in written] == [name for _, name in embedded], place
        for (c_type, name), (annotation, _) in zip(embedded, written, strict=True):
            if annotation.startswith("Literal[") and c_type == "bool":
                continue
            assert fits(c_type, annotation), (
                f"{place}: {name} is {c_type or 'an object'}, the stub says {annotation}"
            )


def test_every_compiled_module_is_checked() -> None:
    assert MODULES
    assert {f"{path.parent.name}.{path.stem}" for path in DIRECTORY.glob("*/*.pyx")} == set(MODULES)
    assert {f"{path.parent.name}.{path.stem}" for path in DIRECTORY.glob("*/*.pyi")} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_the_names_of_its_module(name: str) -> None:
    module = importlib.import_module(f"amps._core.{name}")
    assert module.__file__ is not None
    assert module.__file__.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    there = members_of_module(module)
    written = defined_names(stub_of(name).body)
    assert set(written) == set(there)
    for member, value in there.items():
        kinds = {type(definition) for definition in written[member]}
        assert kinds == {
            ast.ClassDef if isinstance(value, type) else ast.FunctionDef if callable(value) else ast.AnnAssign
        }, member


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_has_the_names_of_its_module_s_classes(name: str) -> None:
    module = importlib.import_module(f"amps._core.{name}")
    for class_name, definitions in defined_names(stub_of(name).body).items():
        definition = definitions[0]
        if not isinstance(definition, ast.ClassDef):
            continue
        compiled = getattr(module, class_name)
        there = {member for member in vars(compiled) if is_public(member)}
        written = defined_names(definition.body)
        hidden = {member for member in written if member not in there} - {"__init__"}
        # Attributes that a Python class sets in its constructor are not visible on the class.
        assigned = {m for m in hidden if all(isinstance(s, ast.AnnAssign) for s in written[m])}
        if compiled.__flags__ & HEAP_TYPE:
            hidden -= assigned
        assert not hidden, f"{class_name}: not in the module"
        assert there <= set(written), f"{class_name}: not in the stub"
        for member in there:
            value = vars(compiled)[member]
            as_method = any(isinstance(s, ast.FunctionDef) and not is_property(s) for s in written[member])
            assert as_method == callable(value), f"{class_name}.{member}"


@pytest.mark.parametrize("name", MODULES)
def test_a_stub_gives_the_parameters_of_its_module(name: str) -> None:
    module = importlib.import_module(f"amps._core.{name}")
    for member, definitions in defined_names(stub_of(name).body).items():
        value = getattr(module, member)
        if isinstance(definitions[0], ast.FunctionDef):
            check_parameters(f"{name}.{member}", value, definitions)
        elif isinstance(definitions[0], ast.ClassDef):
            methods = defined_names(definitions[0].body)
            # An extension class has the constructor's signature in its own docstring.
            written_in_python = embedded_parameters(vars(value).get("__init__")) is not None
            constructor = vars(value)["__init__"] if written_in_python else value
            if "__init__" not in methods:
                assert not embedded_parameters(constructor), f"{name}.{member}: the stub has no constructor"
            for method, statements in methods.items():
                place = f"{name}.{member}.{method}"
                if method == "__init__":
                    check_parameters(place, constructor, statements)
                elif isinstance(statements[0], ast.FunctionDef) and not is_property(statements[0]):
                    check_parameters(place, vars(value)[method], statements)
