"""Builds the extension modules of `amps._core`.

Everything else about the package is in pyproject.toml. Set `AMPS_DEBUG_BUILD=1` for a build with bounds
checks, wrap-around checks and C assertions: the same tests run against it.

Beside the modules a build leaves a file with its time, which `amps.server.host` shows: installers give the modules
themselves the time of the installation. `SOURCE_DATE_EPOCH` (UNIX time in seconds), if set, is taken for that time, so
that who builds the same sources again gets the same files.
"""

import os
import sys
import time
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DEBUG_BUILD = os.environ.get("AMPS_DEBUG_BUILD", "0") not in ("", "0")
CORE = Path("amps/_core")


def extension(source: Path) -> Extension:
    """One extension module from one .pyx file; C helpers are headers beside it."""
    compile_args = ["-std=c11", "-Wno-unused-function"]
    # Debugging information takes a quarter of the time of an optimized build, and most of the space of what it makes.
    compile_args += ["-O0", "-g", "-UNDEBUG"] if DEBUG_BUILD else ["-O3", "-g0", "-DNDEBUG"]
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=[str(CORE)],
        depends=[str(header) for header in sorted(CORE.glob("*.h"))],
        extra_compile_args=compile_args,
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


setup(
    cmdclass={"build_ext": BuildExtensions},
    ext_modules=cythonize(
        [extension(path) for path in sorted(CORE.glob("*.pyx"))],
        nthreads=0 if sys.platform == "win32" else os.cpu_count() or 1,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG_BUILD,
            "wraparound": False,
            "initializedcheck": DEBUG_BUILD,
            "cdivision": True,
            "embedsignature": True,
            "freethreading_compatible": False,
        },
        force=DEBUG_BUILD,
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
