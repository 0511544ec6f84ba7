"""Every public name has a docstring, where the API reference finds it.

The reference is made from the sources, and leaves out what has no docstring. So a name counts as documented only if the
first class that defines it, among a class and its bases, has a docstring there. An attribute has one in the line
after its assignment.
"""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import amps
from tests.support.documents import CHECKOUT

MODULES = ("amps.client", "amps.aio", "amps.compat", "amps.testing")
PACKAGE = Path(amps.__path__[0])


def public_names() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            yield module, name


def classes() -> list[type]:
    found = {getattr(importlib.import_module(module), name) for module, name in public_names()}
    return sorted((each for each in found if inspect.isclass(each)), key=lambda cls: (cls.__module__, cls.__name__))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def assigned(body: list[ast.stmt], owner: str = "") -> dict[str, bool]:
    """The names, or attributes of an owner, that statements assign, and whether a docstring follows."""
    found: dict[str, bool] = {}
    for at, statement in enumerate(body):
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        following = body[at + 1] if at + 1 < len(body) else None
        described = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        for target in targets:
            if isinstance(target, ast.Name) and not owner:
                found[target.id] = described
            elif owner and isinstance(target, ast.Attribute) and ast.unparse(target.value) == owner:
                found[target.attr] = described
    return found


def members(cls: type) -> dict[str, bool]:
    """The public members that the sources of one class define, and whether each has a docstring."""
    path = inspect.getsourcefile(cls)
    assert path is not None
    (node,) = (n for n in tree(Path(path)).body if isinstance(n, ast.ClassDef) and n.name == cls.__name__)
    found = assigned(node.body)
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator) for decorator in statement.decorator_list}
            if statement.name == "__init__":
                found = {**assigned(statement.body, "self"), **found}
            elif "overload" not in decorators and f"{statement.name}.setter" not in decorators:
                found[statement.name] = ast.get_docstring(statement) is not None
    return {name: described for name, described in found.items() if not name.startswith("_")}


def left_out(document: str) -> re.Pattern[str]:
    """The names that a page of the reference leaves out: the library itself calls them."""
    text = (CHECKOUT / document).read_text()
    found = re.search(r'"!(\^\(.+?)"', text)
    return re.compile(found[1] if found is not None else r"(?!)")


LEFT_OUT = [left_out(f"docs/api/{page}.md") for page in ("client", "aio")]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: f"{cls.__module__}.{cls.__name__}")
def test_a_public_class_and_its_members_have_docstrings(cls: type) -> None:
    assert cls.__dict__.get("__doc__"), f"{cls.__name__} has no docstring"
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("amps.") or base.__module__.startswith("amps._core."):
            continue
        for name, described in members(base).items():
            if name not in seen and not any(pattern.match(name) for pattern in LEFT_OUT):
                assert described, f"{base.__module__}.{base.__name__}.{name} has no docstring"
            seen.add(name)


def test_members_of_compiled_classes_have_docstrings() -> None:
    """The reference shows the equivalent class in Python."""
    from amps.client.protocol.traffic import ReceivedMessage
    from amps.client.protocol.traffic_python import ReceivedMessage as InPython

    shown = members(InPython)
    assert all(shown.values())
    assert {name for name in vars(ReceivedMessage) if not name.startswith("_")} == set(shown)


def test_public_constants_and_functions_have_docstrings() -> None:
    described: dict[str, bool] = {}
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("client", "compat", "testing"):
            for name, has in assigned(tree(path).body).items():
                described[name] = described.get(name, False) or has
    for module, name in public_names():
        value: Any = getattr(importlib.import_module(module), name)
        if inspect.isfunction(value):
            assert value.__doc__, name
        elif not inspect.isclass(value):
            assert described.get(name) or getattr(value, "__doc__", None), f"{module}.{name} has no docstring"


def test_times_have_a_unit() -> None:
    """Each class whose calls take a time says its unit, in its docstring or in that of the call."""
    for cls in classes():
        for name, function in inspect.getmembers(cls, inspect.isfunction):
            if not function.__module__.startswith("amps.") or (name.startswith("_") and name != "__init__"):
                continue
            times = set(inspect.signature(function).parameters) & {
                "timeout", "interval", "delay", "initial_delay", "maximum_delay", "sync_interval", "ack_timeout",
            }  # fmt: skip
            if times and "Not for this client" not in (function.__doc__ or ""):
                texts = [function.__doc__ or "", *(base.__doc__ or "" for base in cls.__mro__ if base is not object)]
                told = any(re.search(r"\b(milli)?seconds\b", text, re.IGNORECASE) for text in texts)
                assert told, f"{cls.__name__}.{name}: the unit of {', '.join(sorted(times))}"


def test_the_reference_has_a_page_of_each_module() -> None:
    for module in MODULES:
        page = (CHECKOUT / f"docs/api/{module.partition('.')[2]}.md").read_text()
        assert f"::: {module}\n" in page
