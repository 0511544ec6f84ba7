"""A missing requirement is reported in one sentence with the remedy."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from amps.cli.main import amps
from amps.cli.pipelines.common import MASTER
from tests.support.server import package_path

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
        (
            'openjdk version "11.0.2" 2019-01-15',
            "java.base",
            "^Spark needs Java 17 or newer, and .*/bin/java is Java 11: install a JDK 17 or newer ",
        ),
        ('java version "1.8.0_292"', "java.base", "is Java 8: install a JDK 17"),
        ('openjdk version "25.0.2"', "java.base@25", "module jdk.incubator.vector, which .* lacks: install"),
        ("nonsense", "", "^Spark needs Java 17 or newer, and .* does not say which version it is: install"),
        (None, "", "^Spark needs Java 17 or newer, and .* cannot be run"),
        ('openjdk version "17.0.9"', "jdk.incubator.vector@17", None),
    ],
)
def test_a_wrong_java_is_reported(
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


def test_a_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    from amps.spark import JavaMissing, check_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JavaMissing, match=r"^Spark needs Java 17 or newer, and there is none on the PATH: "):
        check_java()


def test_the_package_itself_needs_no_java() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    done = subprocess.run(
        [
            sys.executable,
            "-P",  # not the checkout, which has no compiled modules when the installed package is tested
            "-c",
            "import amps.spark\n"
            "try: amps.spark.check_java()\n"
            "except amps.spark.JavaMissing as error: print(error)",
        ],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": package_path(), "PATH": "/nowhere"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "Spark needs Java 17 or newer, and there is none on the PATH: install a JDK"
    )


@pytest.mark.parametrize("job", ["stats", "queue-report", "replay"])
@pytest.mark.parametrize(
    "master",
    [
        "local[x]",
        "local[0]",
        "local[",
        "local[*",
        "local[2,0]",
        "bogus",
        "",
        "spark://host",
        "spark:/h:1",
        "k8s://",
    ],
)
def test_an_invalid_master_is_reported_first(tmp_path: Path, job: str, master: str) -> None:
    more = ["-uri", "tcp://localhost:1/amps/json"] if job == "replay" else []
    ran = CliRunner().invoke(amps, ["pipeline", job, str(tmp_path), "-dry-run", "-master", master, *more])
    assert ran.exit_code == 2
    assert ran.output.splitlines()[-1].endswith(
        f": {master!r} is no master of Spark: those are local[*] and local[4] (threads here), "
        "spark://host:7077, yarn and k8s://https://host:443"
    )


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "local[*,3]", "local[2, 3]", "local-cluster[2,1,1024]", "yarn",
     "spark://host:7077", "spark://a:7077,b:7077", "spark://[::1]:7077", "k8s://https://host:443"],
)  # fmt: skip
def test_masters_that_spark_takes(master: str) -> None:
    assert MASTER.convert(master, None, None) == master
