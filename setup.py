"""Builds the extension modules of `amps._core`.

Everything else about the package is in pyproject.toml. Set `AMPS_DEBUG_BUILD=1` for a build with bounds
checks, wrap-around checks and C assertions: the same tests run against it.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

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


setup(
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
