"""What is missing is told in one sentence with the fix."""

import subprocess
import sys
from pathlib import Path

import pytest

HIDING = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == {name!r} else real(name, package)
import amps.spark
"""


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named(name: str) -> None:
    if name == "pyarrow":
        pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    done = subprocess.run([sys.executable, "-c", HIDING.format(name=name)], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"ImportError: amps.spark needs {name}, which is not installed: pip install 'amps-server[spark]'"
    )


@pytest.mark.parametrize(
    ("version", "modules", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "java.base", "is Java 11: install a JDK 17"),
        ('java version "1.8.0_292"', "java.base", "is Java 8: install a JDK 17"),
        ('openjdk version "25.0.2"', "java.base@25", "module jdk.incubator.vector, which .* lacks: install"),
        ("nonsense", "", "does not say which version it is: install"),
        (None, "", "cannot be run"),
        ('openjdk version "17.0.9"', "jdk.incubator.vector@17", None),
    ],
)
def test_a_wrong_java_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, modules: str, message: str | None
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    from amps.spark import JavaMissing, check_java

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if version is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(
            f"#!/bin/sh\nif [ $1 = -version ]; then echo '{version}' >&2; else echo '{modules}'; fi\n"
        )
        java.chmod(0o755)
    if message is None:
        assert check_java() == 17
        return
    with pytest.raises(JavaMissing, match=message):
        check_java()


def test_no_java_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    from amps.spark import JavaMissing, check_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JavaMissing, match="there is none on the PATH: install a JDK 17"):
        check_java()
