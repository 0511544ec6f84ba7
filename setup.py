"""Builds the extension modules of `amps._core`.

Everything else about the package is in pyproject.toml. A module is one .pyx file in a sub-package; the .pxi files
that it includes, the .pxd files that it cimports and the .h files beside them decide when it is built anew.

`AMPS_BUILD` chooses the build:

    release   (default) optimized
    develop   not optimized: the fastest to build, for editing
    debug     not optimized, with bounds checks and C assertions: the same tests run against it

`AMPS_BUILD_JOBS` limits how many modules are built at once; without it, one for each processor.

Beside the modules a build leaves a file with its time, which `amps.server.host` shows: installers give the modules
themselves the time of the installation. `SOURCE_DATE_EPOCH` (UNIX time in seconds), if set, is taken for that time, so
that who builds the same sources again gets the same files.
"""

import hashlib
import os
import re
import sys
import time
from functools import cache
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CORE = Path("amps/_core")
BUILDS = {
    "release": ["-O2", "-g0", "-DNDEBUG"],
    "develop": ["-O0", "-g0", "-DNDEBUG"],
    "debug": ["-O0", "-g", "-UNDEBUG"],
}
BUILD = os.environ.get("AMPS_BUILD", "release")
if BUILD not in BUILDS:
    sys.exit(f"AMPS_BUILD is {BUILD!r}; set it to one of {', '.join(BUILDS)}, or not at all")
JOBS = int(os.environ.get("AMPS_BUILD_JOBS") or os.cpu_count() or 1)

# Modules that no message passes through are optimized for the time of their compilation.
NOT_HOT = {"expressions.aggregates", "journal.search", "queues.manager"}

# Cython's code for memory views, once for all modules.
SHARED_UTILITY = "amps._core._cython"

# What processes share memory by: modules that were built from other versions of these refuse to run together.
LAYOUTS = ["shm/memory.pxd", "journal/record.pxd", "journal/queue_records.pxd", "journal/index.pxd", "queues/slots.pxd"]
LAYOUT_MARK = CORE / "shm" / "layout_mark.h"

# The kind of the last build: all modules depend on it, so that those of another kind are built anew.
KIND = CORE / "build_kind.txt"


def write_if_other(path: Path, text: str) -> str:
    """Write a file that modules depend on, unless it says so already. What it said before."""
    before = path.read_text() if path.exists() else ""
    if before != text:
        path.write_text(text)
    return before


def write_layout_mark() -> None:
    """Write the C header with a hash of everything that lies in shared memory; modules that include it follow it."""
    lines = []
    for path in LAYOUTS:
        text = re.sub(r"#.*", "", (CORE / path).read_text())
        lines += [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    mark = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    write_if_other(LAYOUT_MARK, f"#define AMPS_LAYOUT 0x{mark}ULL\n")


@cache
def included(header: Path) -> frozenset[Path]:
    """A C header and all that it includes from beside it."""
    found = {header}
    for name in re.findall(r'^#include "([^"]+)"', header.read_text(), re.MULTILINE):
        for path in CORE.glob(f"*/{name}"):
            found |= included(path)
    return frozenset(found)


def headers_of(module: Path) -> list[str]:
    """The C headers that a module is compiled from, by way of the .pxi and .pxd files that it takes in."""
    sources, seen, headers = [module, module.with_suffix(".pxd")], set(), set()
    while sources:
        path = sources.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        text = path.read_text()
        sources += [path.parent / name for name in re.findall(r'^\s*include "([^"]+)"', text, re.MULTILINE)]
        for package, name in re.findall(r"^from amps\._core\.(\w+)\.(\w+) cimport", text, re.MULTILINE):
            sources.append(CORE / package / f"{name}.pxd")
        for name in re.findall(r'^cdef extern from "(\w+\.h)"', text, re.MULTILINE):
            for header in CORE.glob(f"*/{name}"):
                headers |= included(header)
    return sorted(str(header) for header in headers)


def extension(source: Path) -> Extension:
    """One extension module from one .pyx file."""
    flags = list(BUILDS[BUILD])
    name = ".".join(source.with_suffix("").parts)
    if BUILD == "release" and name.removeprefix("amps._core.") in NOT_HOT:
        flags[0] = "-O1"
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(path) for path in sorted(CORE.iterdir()) if path.is_dir()],
        depends=[str(KIND), *headers_of(source)],
        extra_compile_args=["-std=c11", "-Wno-unused-function", *flags],
        extra_link_args=["-pthread"],
    )


def build_time() -> str:
    """The time of this build, UTC, as an ISO date."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(said) if said else None))
    except (ValueError, OverflowError, OSError):
        sys.exit(f"SOURCE_DATE_EPOCH is {said!r}; set it to a UNIX time in whole seconds, or not at all")


class BuildExtensions(build_ext):
    """Builds the modules, wherever they are to lie, and leaves the time of the build beside them."""

    def run(self) -> None:
        """Build everything that has changed."""
        said = build_time()
        super().run()
        path = Path(self.get_ext_fullpath("amps._core.any")).with_name("build_time.txt")
        unfinished = path.with_suffix(".new")
        unfinished.write_text(said + "\n")
        unfinished.replace(path)


def largest_first(modules: list[Extension]) -> list[Extension]:
    """Ordered so that no processor is left with a large module at the end."""
    return sorted(modules, key=lambda module: -sum(Path(source).stat().st_size for source in module.sources))


def extensions() -> list[Extension]:
    """All extension modules, as C."""
    write_layout_mark()
    before = write_if_other(KIND, BUILD)
    made = [extension(path) for path in sorted(CORE.glob("*/*.pyx"))]
    made.append(Extension(SHARED_UTILITY, [str(CORE / "_cython.c")], extra_compile_args=["-g0", "-O1"]))
    return largest_first(
        cythonize(
            made,
            nthreads=JOBS,
            shared_utility_qualified_name=SHARED_UTILITY,
            compiler_directives={
                "language_level": 3,
                "boundscheck": BUILD == "debug",
                "wraparound": False,
                "initializedcheck": BUILD == "debug",
                "cdivision": True,
                "embedsignature": True,
                "freethreading_compatible": False,
            },
            # Checks are made by Cython: the C code of a debug build is another one.
            force=before != BUILD and "debug" in (before, BUILD),
        )
    )


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=extensions(),
    options={"build_ext": {"parallel": JOBS}},
)
