"""The Python of the processes that Spark starts: it must have this package, PySpark and pyarrow.

Spark's JVM starts these processes. It uses `PYSPARK_DRIVER_PYTHON`, else `PYSPARK_PYTHON`, of its own environment, else
the first `python3` on its PATH. If a virtual environment is not activated, this is the system's Python, which lacks
the packages. The JVM inherits the environment of the process that starts it: later changes have no effect.
"""

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

DRIVER_VARIABLE = "PYSPARK_DRIVER_PYTHON"
WORKER_VARIABLE = "PYSPARK_PYTHON"
SPARKS_DEFAULT = "python3"
_TIMEOUT_S = 60
_LOOK = (
    "import sys; from importlib.util import find_spec; "
    "print('%d.%d' % sys.version_info[:2], *(n for n in ('amps', 'pyspark', 'pyarrow') if find_spec(n) is None))"
)


class WrongPython(RuntimeError):
    """Spark's Python processes cannot run the data source; the text is one sentence with the variable to set."""


def use_this_python() -> None:
    """Make sessions that start their JVM from now on use this Python, unless the user has set another one."""
    if sys.executable:
        os.environ.setdefault(WORKER_VARIABLE, sys.executable)


def check_python(context: "SparkContext") -> None:
    """Raise WrongPython if the Python that this session's JVM starts lacks a package or has another version."""
    jvm: Any = context._jvm
    environment: dict[str, str] = dict(jvm.System.getenv())
    variable = next((name for name in (DRIVER_VARIABLE, WORKER_VARIABLE) if name in environment), None)
    command = environment[variable] if variable is not None else SPARKS_DEFAULT
    fault = _fault(command, environment)
    if fault is None:
        return
    if variable is None:
        chosen = f"for {WORKER_VARIABLE} was not set"
        remedy = f"import amps.spark before the session is made, or set {WORKER_VARIABLE}={sys.executable}"
    else:
        chosen = f"which {variable} names"
        remedy = f"set {variable}={sys.executable}, or remove it, before the process starts"
    raise WrongPython(f"this session of Spark runs {command}, {chosen}, and {fault}: {remedy}")


def _fault(command: str, environment: dict[str, str]) -> str | None:
    """Return the fault of this Python, as the end of a sentence; None if it can be used."""
    path = shutil.which(command, path=environment.get("PATH"))
    if path is None:
        return "there is no such command"
    # Links are not resolved: the Python of a virtual environment is a link to its base Python.
    if os.path.abspath(path) == os.path.abspath(sys.executable):
        return None
    try:
        told = subprocess.run(
            [path, "-P", "-c", _LOOK],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        return f"that cannot be run ({error})"
    version, *missing = told or [""]
    if missing:
        return f"that one lacks {' and '.join(missing)}"
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    return None if version == ours else f"that is Python {version}, not {ours} as the driver"
