"""Build script of the extension modules of `amps._core`.

All other settings of the package are in pyproject.toml. A module is one .pyx file in a sub-package. It is rebuilt when
the file, an included .pxi file, a cimported .pxd file or a .h file of these changes.

`AMPS_BUILD` chooses the build:

    release   (default) optimized
    develop   not optimized: the fastest build, for development
    debug     not optimized, with bounds checks and C assertions; the same tests run against it

`AMPS_BUILD_JOBS` limits the number of modules built in parallel. The default is the number of processors.

A build writes its time to a file beside the modules, from which `amps.server.host` reads it; the modification times of
the modules are those of the installation. `SOURCE_DATE_EPOCH` (UNIX time in seconds), if set, is used as that time, so
that builds of the same sources give the same files.
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
    "release": ["-O1", "-g0", "-DNDEBUG"],
    "develop": ["-O0", "-g0", "-DNDEBUG"],
    "debug": ["-O0", "-g", "-UNDEBUG"],
}
BUILD = os.environ.get("AMPS_BUILD", "release")
if BUILD not in BUILDS:
    sys.exit(f"AMPS_BUILD is {BUILD!r}; set it to one of {', '.join(BUILDS)}, or unset it")
JOBS = int(os.environ.get("AMPS_BUILD_JOBS") or os.cpu_count() or 1)

# Modules whose loops gain by more than -O1, or whose gain is not measured (columns, client). The others run as fast
# with -O1 (perf: publish-persist, replay, filter-libraries) and compile in 60 % of the time.
HOT = {
    "client.traffic",
    "columns.columns",
    "delivery.delivery",
    "delivery.results",
    "messages.json",
    "queues.engine",
    "queues.sender",
    "sequencer.sequencer",
    "sow.ranking",
    "sow.table",
}

# The module with Cython's code for memory views, shared by all modules.
SHARED_UTILITY = "amps._core._cython"

# The declarations of shared memory and records. Modules built from different versions of them refuse to run together.
LAYOUTS = [
    "shm/memory.pxd",
    "journal/record.pxd",
    "journal/queue_records.pxd",
    "journal/index.pxd",
    "queues/slots.pxd",
    "sow/slots.pxd",
]
LAYOUT_MARK = CORE / "shm" / "layout_mark.h"

# The kind of the last build. All modules depend on this file, so that a build of another kind rebuilds them.
KIND = CORE / "build_kind.txt"


def write_if_other(path: Path, text: str) -> str:
    """Write a file on which modules depend, if its content differs. Returns the previous content."""
    before = path.read_text() if path.exists() else ""
    if before != text:
        path.write_text(text)
    return before


def write_layout_mark() -> None:
    """Write the C header with a hash of the declarations in LAYOUTS; a change rebuilds the modules that include it."""
    lines = []
    for path in LAYOUTS:
        text = re.sub(r"#.*", "", (CORE / path).read_text())
        lines += [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    mark = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    write_if_other(LAYOUT_MARK, f"#define AMPS_LAYOUT 0x{mark}ULL\n")


@cache
def included(header: Path) -> frozenset[Path]:
    """A C header and all headers of the package that it includes."""
    found = {header}
    for name in re.findall(r'^#include "([^"]+)"', header.read_text(), re.MULTILINE):
        for path in CORE.glob(f"*/{name}"):
            found |= included(path)
    return frozenset(found)


def headers_of(module: Path) -> list[str]:
    """The C headers that a module uses, directly or through its .pxi and .pxd files."""
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
    if BUILD == "release" and f"{source.parent.name}.{source.stem}" in HOT:
        flags[0] = "-O2"
    return Extension(
        name,
        [str(source)],
        include_dirs=[str(path) for path in sorted(CORE.iterdir()) if path.is_dir()],
        depends=headers_of(source),
        extra_compile_args=["-std=c11", "-Wno-unused-function", *flags],
        extra_link_args=["-pthread"],
    )


def build_time() -> str:
    """The time of this build, UTC, as an ISO date."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(said) if said else None))
    except (ValueError, OverflowError, OSError):
        sys.exit(f"SOURCE_DATE_EPOCH is {said!r}; set it to a UNIX time in whole seconds, or unset it")


def cythonized(modules: list[Extension], force: bool) -> dict[str, list[str]]:
    """Generate the C code of all modules. Returns the C files of each, by name."""
    made = cythonize(
        modules,
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
            # No object of the core is pickled; the code for it would be a quarter of the compilation.
            "auto_pickle": False,
        },
        force=force,
    )
    return {module.name: module.sources for module in made}


class BuildExtensions(build_ext):
    """Generates the C code, builds the modules, and writes the time of the build beside them.

    Cython runs here and not when this script is loaded: pip loads it several times, for a build's requirements and for
    metadata.
    """

    def run(self) -> None:
        """Build all changed modules."""
        said = build_time()
        write_layout_mark()
        before = write_if_other(KIND, BUILD)
        # Cython generates the checks, so the C code of a debug build differs.
        sources = cythonized(self.extensions, force=before != BUILD and "debug" in (before, BUILD))
        for module in self.extensions:
            module.sources = sources[module.name]
            module.depends = [str(KIND), *module.depends]
        super().run()
        path = Path(self.get_ext_fullpath("amps._core.any")).with_name("build_time.txt")
        unfinished = path.with_suffix(".new")
        unfinished.write_text(said + "\n")
        unfinished.replace(path)


def extensions() -> list[Extension]:
    """All extension modules in descending order of size, so that no large one is built alone at the end."""
    made = [extension(path) for path in sorted(CORE.glob("*/*.pyx"))]
    made.append(Extension(SHARED_UTILITY, [str(CORE / "_cython.c")], extra_compile_args=["-g0", "-O1"]))
    return sorted(made, key=size_bytes, reverse=True)


def size_bytes(module: Extension) -> int:
    """The size of a module's source with all that it includes; 0 if the source is generated."""
    sources, size = [Path(source) for source in module.sources], 0
    while sources:
        path = sources.pop()
        if path.exists():
            size += path.stat().st_size
            text = path.read_text()
            sources += [path.parent / name for name in re.findall(r'^include "([^"]+)"', text, re.MULTILINE)]
    return size


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=extensions(),
    options={"build_ext": {"parallel": JOBS}},
)
