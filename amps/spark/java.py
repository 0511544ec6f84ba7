"""A check for a Java that Spark can use. It runs before a session is created: Spark's own error takes pages."""

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MAJOR_MIN = 17
NEEDED_MODULE = "jdk.incubator.vector"
"""Spark requires this module at its start; a reduced Java may lack it."""
_NEEDED = f"Spark needs Java {JAVA_MAJOR_MIN} or newer"
_FIX = f"install a JDK {JAVA_MAJOR_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless) and set JAVA_HOME"
_TIMEOUT_S = 60
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class JavaMissing(RuntimeError):
    """There is no Java that Spark can use; the text is one sentence with the remedy."""


def check_java() -> int:
    """Return the major version of the Java that Spark will use: the one of JAVA_HOME, else the first on the PATH.

    Raises JavaMissing.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise JavaMissing(f"{_NEEDED}, and there is none on the PATH: {_FIX}")
    found = _VERSION.search(_run(java, "-version"))
    if found is None:
        raise JavaMissing(f"{_NEEDED}, and {java} does not say which version it is: {_FIX}")
    major = int(found[1])
    if major < JAVA_MAJOR_MIN:
        raise JavaMissing(f"{_NEEDED}, and {java} is Java {major}: {_FIX}")
    if NEEDED_MODULE not in _run(java, "--list-modules"):
        raise JavaMissing(f"Spark needs the Java module {NEEDED_MODULE}, which {java} lacks: {_FIX}")
    return major


def _run(java: str, argument: str) -> str:
    """Run Java with one argument and return its output. Raises JavaMissing."""
    try:
        done = subprocess.run(
            [java, argument], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{_NEEDED}, and {java} cannot be run ({error}): {_FIX}") from None
    return done.stdout + done.stderr
