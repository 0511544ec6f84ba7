"""Spark's Python processes use the Python that imports the data source, also if its environment is not activated."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.documents import GUIDE_TO_SPARK, block
from tests.support.ports import release_port, reserve_port
from tests.support.server import wait_until
from tests.unit.cli.running import COMMAND, run

FINISH_TIMEOUT_S = 100


@pytest.fixture(autouse=True)
def needs_spark() -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (pip install 'amps-server[spark]')")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")
    import amps.spark

    try:
        amps.spark.check_java()
    except amps.spark.JavaMissing as error:
        pytest.skip(str(error))


def not_activated(directory: Path) -> dict[str, str]:
    """An environment whose `python3` has no packages, like the system's Python beside a virtual environment."""
    commands = directory / "bin"
    commands.mkdir()
    python = commands / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # -S: without site-packages
    python.chmod(0o755)
    java = shutil.which("java")
    (commands / "java").symlink_to(java or "/nowhere")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("HOME", "JAVA_HOME", "LANG", "SPARK_SUBMIT_OPTS")
    }
    return {**kept, "PATH": f"{commands}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}


def driver(directory: Path, program: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FINISH_TIMEOUT_S,
    )


def test_the_guides_spark_examples_run_in_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    port = reserve_port()
    server = subprocess.Popen(
        [*COMMAND, "serve", "-port", str(port)], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        where = ("-server", f"localhost:{port}", "-type", "json")
        wait_until(lambda: run("ping", *where).returncode == 0, 30, "no server answered")
        orders = b'{"id":1,"side":"buy"}\n{"id":2,"side":"sell"}\n{"id":3,"side":"buy"}\n'
        assert run("publish", *where, "-topic", "orders", stdin=orders).returncode == 0
        program = block(GUIDE_TO_SPARK, "import amps.spark").replace("localhost:9007", f"localhost:{port}")
        done = driver(tmp_path, program, not_activated(tmp_path))
        assert done.returncode == 0, done.stderr[-4000:]
        assert "|buy |    2|" in done.stdout.replace("| buy|", "|buy |"), done.stdout
        copies = run("subscribe", *where, "-topic", "copies", "-bookmark", "epoch", "-count", "3")
        assert sorted(copies.stdout.splitlines()) == sorted(orders.splitlines())
    finally:
        server.terminate()
        server.wait(30)
        release_port(port)


def test_a_python_that_the_user_has_set_stays(tmp_path: Path) -> None:
    environment = {**not_activated(tmp_path), "PYSPARK_PYTHON": "/somewhere/python"}
    program = (
        "import os, amps.spark; print(os.environ['PYSPARK_PYTHON'], 'PYSPARK_DRIVER_PYTHON' in os.environ)"
    )
    assert driver(tmp_path, program, environment).stdout == "/somewhere/python False\n"


SESSION_FIRST = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
import amps.spark
try:
    amps.spark.register(spark)
except amps.spark.WrongPython as error:
    print(error)
else:
    print("registered")
"""


def test_a_session_of_another_python_names_the_setting(tmp_path: Path) -> None:
    """The environment of the session's JVM counts, not that of the driver after the import."""
    done = driver(tmp_path, SESSION_FIRST, not_activated(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == (
        "this session of Spark runs python3, for PYSPARK_PYTHON was not set, and that one lacks amps and "
        "pyspark and pyarrow: import amps.spark before the session is made, or set "
        f"PYSPARK_PYTHON={sys.executable}"
    )


def session_with(**environment: str) -> Any:
    """A session's context whose JVM has this environment, as far as the check looks: no JVM is started."""
    return SimpleNamespace(_jvm=SimpleNamespace(System=SimpleNamespace(getenv=environment.items)))


@pytest.mark.parametrize("variable", ["PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"])
def test_the_variable_that_names_the_python_is_told(variable: str) -> None:
    from amps.spark.worker_python import WrongPython, check_python

    with pytest.raises(WrongPython) as raised:
        check_python(session_with(**{variable: "/somewhere/python"}))
    assert str(raised.value) == (
        f"this session of Spark runs /somewhere/python, which {variable} names, and there is no such "
        f"command: set {variable}={sys.executable}, or remove it, before the process starts"
    )
    check_python(session_with(**{variable: sys.executable}))
