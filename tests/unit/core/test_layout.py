"""The sub-packages of amps/_core: imports point one way, and all modules agree on the layouts of shared memory."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import amps._core
from amps._core.shm.memory import require_layout

CORE = Path(amps._core.__path__[0])
ORDER = (
    "shm", "values", "expressions", "messages", "journal", "sow",
    "wire", "client", "delivery", "replication", "queues", "sequencer", "columns",
)  # fmt: skip
"""Each sub-package imports only those before it."""
HEADERS_ONLY = {"columns": {"messages"}}
"""Sub-packages of which others use only C headers."""
LAYOUTS = {
    "shm/memory.pxd",
    "journal/record.pxd",
    "journal/queue_records.pxd",
    "journal/index.pxd",
    "queues/slots.pxd",
    "sow/slots.pxd",
}
IMPORT = re.compile(r"^ *from amps\._core\.(\w+)\.(\w+) (cimport|import) ", re.MULTILINE)
MODULES = sorted(path.relative_to(CORE).as_posix() for path in CORE.glob("*/*.pyx"))


def sources(package: str) -> list[Path]:
    return [path for path in (CORE / package).iterdir() if path.suffix in (".pyx", ".pxi", ".pxd", ".py", ".pyi")]


def taken_in(module: Path) -> set[Path]:
    """The texts of a module, its includes, and the declarations that it is compiled from."""
    found: set[Path] = set()
    left = [module, module.with_suffix(".pxd")]
    while left:
        path = left.pop().resolve()
        if path in found or not path.exists():
            continue
        found.add(path)
        text = path.read_text()
        left += [path.parent / name for name in re.findall(r'^include "([^"]+)"', text, re.MULTILINE)]
        left += [CORE / room / f"{name}.pxd" for room, name, verb in IMPORT.findall(text) if verb == "cimport"]
    return found


def test_every_sub_package_is_known() -> None:
    assert {path.parent.name for path in CORE.glob("*/__init__.py")} == set(ORDER)
    assert not list(CORE.glob("*.pyx"))


@pytest.mark.parametrize("package", ORDER)
def test_imports_between_sub_packages_point_one_way(package: str) -> None:
    may = set(ORDER[: ORDER.index(package) + 1])
    imported = {
        (path.name, room) for path in sources(package) for room, _name, _verb in IMPORT.findall(path.read_text())
    }
    assert {one for one in imported if one[1] not in may} == set()


@pytest.mark.parametrize("package", ORDER)
def test_a_sub_package_states_its_contents(package: str) -> None:
    text = (CORE / package / "__init__.py").read_text()
    for heading in ("How it works.", "What lives here", "What may not live here", "Invariants"):
        assert heading in text
    # The last paragraph names exactly the things that the others import.
    said = text[text.rindex("\nImports ") :].partition(".")[0].partition(";")[0]
    imported = {room for path in sources(package) for room, _name, _verb in IMPORT.findall(path.read_text())}
    named = {room for room in ORDER if f"`{room}`" in said}
    assert named - HEADERS_ONLY.get(package, set()) == imported - {package}


@pytest.mark.parametrize("module", MODULES)
def test_modules_that_rely_on_a_layout_declare_it(module: str) -> None:
    relies = {path.relative_to(CORE.resolve()).as_posix() for path in taken_in(CORE / module)} & LAYOUTS
    says = 'include "../shm/layout.pxi"' in (CORE / module).read_text()
    assert says == bool(relies) or module == "shm/memory.pyx"


def test_a_module_of_another_layout_is_refused() -> None:
    with pytest.raises(ImportError, match=r"amps\._core\.other and amps\._core\.shm\.memory were built from different"):
        require_layout("amps._core.other", 1)


def test_every_declaring_module_is_checked_when_it_is_imported() -> None:
    """This runs in a separate process, with a check that records its callers."""
    says = [name for name in MODULES if 'include "../shm/layout.pxi"' in (CORE / name).read_text()]
    names = [f"amps._core.{name.removesuffix('.pyx').replace('/', '.')}" for name in says]
    program = f"""
import importlib, json
import amps._core.shm.memory as memory
really, called = memory.require_layout, []
def note(module, layout):
    really(module, layout)
    called.append(module)
memory.require_layout = note
for name in {names!r}:
    importlib.import_module(name)
print(json.dumps(called))
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert len(names) > 10
    assert sorted(json.loads(done.stdout)) == sorted(names)
