"""The build: the modules built anew, the files a build leaves, and the time it shows (operations.md §1.7).

The tests build a small package with the project's own setup.py, since building the project takes minutes.
"""

import calendar
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from amps.server import host

REPOSITORY = Path(__file__).parents[3]
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
PROJECT = """
[build-system]
requires = ["setuptools", "cython"]
build-backend = "setuptools.build_meta"
[project]
name = "small"
version = "1"
[tool.setuptools.packages.find]
include = ["amps*"]
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The sources of a package that is built as the project is."""
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    directory = tmp_path / "sources"
    core = directory / "amps" / "_core"
    for layout in (
        "shm/memory", "journal/record", "journal/queue_records", "journal/index", "queues/slots", "sow/slots",
    ):  # fmt: skip
        path = core / f"{layout}.pxd"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shutil.copy(REPOSITORY / "setup.py", directory)
    (directory / "pyproject.toml").write_text(PROJECT)
    (directory / "amps" / "__init__.py").touch()
    (core / "__init__.py").touch()
    (core / "shm" / "__init__.py").touch()
    (core / "shm" / "one.pyx").write_text("cdef int one = 1\n")
    return directory


def setup(
    sources: Path, *command: str, epoch: str | None = None, kind: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("SOURCE_DATE_EPOCH", "AMPS_BUILD")
    }
    if kind is not None:
        environment["AMPS_BUILD"] = kind
    if epoch is not None:
        environment["SOURCE_DATE_EPOCH"] = epoch
    return subprocess.run(
        [sys.executable, "setup.py", "--quiet", *command],
        cwd=sources,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_operations_1_7_built_in_place(sources: Path) -> None:
    """operations.md §1.7: as for an editable installation; each build has a time, even if no module was built."""
    before = time.time() // 1
    built = setup(sources, "build_ext", "--inplace")
    assert built.returncode == 0, built.stderr
    core = sources / "amps" / "_core"
    (module,) = core.glob("shm/*.so")
    os.utime(module, (0, 0))
    shown = calendar.timegm(time.strptime(host.build_date(core), FORMAT))
    assert before <= shown <= time.time()
    assert setup(sources, "build_ext", "--inplace", epoch="86400").returncode == 0
    assert host.build_date(core) == "1970-01-02T00:00:00Z"


def test_operations_1_7_built_as_an_editable_wheel(sources: Path) -> None:
    """operations.md §1.7: the file is beside the modules, in the sources."""
    built = setup(sources, "editable_wheel", epoch="86400")
    assert built.returncode == 0, built.stderr
    core = sources / "amps" / "_core"
    assert list(core.glob("shm/*.so"))
    assert host.build_date(core) == "1970-01-02T00:00:00Z"


def test_operations_1_7_built_as_a_wheel(sources: Path, tmp_path: Path) -> None:
    """operations.md §1.7: this holds for any time of installation, and after any earlier build in the sources."""
    (sources / "amps" / "_core" / "build_time.txt").write_text("2001-01-01T00:00:00Z\n")
    built = setup(sources, "bdist_wheel", epoch="1700000000")
    assert built.returncode == 0, built.stderr
    (wheel,) = (sources / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    core = tmp_path / "installed" / "amps" / "_core"
    for path in core.iterdir():
        os.utime(path, (1_800_000_000, 1_800_000_000))
    assert list(core.glob("shm/*.so"))
    assert host.build_date(core) == "2023-11-14T22:13:20Z"


def test_only_changed_modules_are_built_and_all_of_them_for_another_kind_of_build(sources: Path) -> None:
    (sources / "amps" / "_core" / "shm" / "two.pyx").write_text('include "part.pxi"\n')
    part = sources / "amps" / "_core" / "shm" / "part.pxi"
    part.write_text("cdef int two = 2\n")

    def built(kind: str) -> set[str]:
        modules = {path.name.partition(".")[0]: path for path in (sources / "build").rglob("*.o")}
        before = {name: path.stat().st_mtime_ns for name, path in modules.items()}
        done = setup(sources, "build_ext", "--inplace", kind=kind)
        assert done.returncode == 0, done.stderr
        modules = {path.name.partition(".")[0]: path for path in (sources / "build").rglob("*.o")}
        return {name for name, path in modules.items() if path.stat().st_mtime_ns != before.get(name)} - {"_cython"}

    assert built("develop") == {"one", "two"}
    assert built("develop") == set()
    later = time.time() + 2  # newer than the C file, for any resolution of the file system's clock
    part.write_text("cdef int two = 3\n")
    os.utime(part, (later, later))
    assert built("develop") == {"two"}
    assert built("debug") == {"one", "two"}
    assert "AMPS_BUILD is 'fast'" in setup(sources, "build_ext", "--inplace", kind="fast").stderr


@pytest.mark.parametrize("epoch", ["tomorrow", "1.5", "9" * 30])
def test_an_invalid_time_is_refused(sources: Path, epoch: str) -> None:
    refused = setup(sources, "build_ext", "--inplace", epoch=epoch)
    assert refused.returncode != 0
    assert "SOURCE_DATE_EPOCH is" in refused.stderr
    assert "UNIX time in whole seconds" in refused.stderr


def test_modules_built_by_another_tool(tmp_path: Path) -> None:
    module = tmp_path / "one.so"
    module.touch()
    os.utime(module, (1_700_000_000, 1_700_000_000))
    assert host.build_date(tmp_path) == "2023-11-14T22:13:20Z"
