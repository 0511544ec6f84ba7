"""Imports inside the client and the server form no circle, and none from outside leads into a transport's internals.

Every import counts, also inside functions and under TYPE_CHECKING, because a reader follows those as well.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import amps

ROOT = Path(amps.__file__).parent.parent

Graph = dict[str, set[str]]


def import_graph(package: str) -> Graph:
    """For each module of a package, the modules of the same package that it imports."""
    files = {}
    for path in (ROOT / package.replace(".", "/")).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {
        name: {target for target in imported_names(path.read_text()) if target in files} - {name}
        for name, path in files.items()
    }


def imported_names(source: str) -> Iterator[str]:
    """All names imported by a source that may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written with full names"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def in_circles(graph: Graph) -> Graph:
    """The modules left when every module is removed that imports none of the rest, or that none of the rest imports."""
    left = dict(graph)
    while True:
        imported = set().union(*left.values())
        kept = {
            name: targets & left.keys()
            for name, targets in left.items()
            if targets & left.keys() and name in imported
        }
        if len(kept) == len(left):
            return kept
        left = kept


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "e"}, "d": {"b"}, "e": set[str]()}
    assert set(in_circles(graph)) == {"b", "c", "d"}
    graph["d"] = {"e"}
    assert not in_circles(graph)


def test_imports_are_found_in_any_place() -> None:
    source = (
        "if TYPE_CHECKING:\n    from amps.a import B\ndef f():\n    import amps.c\n    from amps import d\n"
    )
    assert {"amps.a", "amps.c", "amps.d"} <= set(imported_names(source))


@pytest.mark.parametrize("package", ["amps.client", "amps.server"])
def test_no_module_imports_in_a_circle(package: str) -> None:
    graph = import_graph(package)
    assert len(graph) > 20
    assert in_circles(graph) == {}


@pytest.mark.parametrize("package", ["services", "admin", "core", "shared"])
def test_no_module_outside_the_transports_uses_their_internals(package: str) -> None:
    """Code shared by transports and other processes is in `shared`, which imports neither."""
    graph = import_graph("amps.server")
    users = {name: targets for name, targets in graph.items() if name.startswith(f"amps.server.{package}")}
    assert users
    others = ["transport"] if package != "shared" else ["transport", "services", "admin", "core"]
    barred = {f"amps.server.{other}" for other in others}
    for name, targets in users.items():
        assert not {".".join(target.split(".")[:3]) for target in targets} & barred, name
