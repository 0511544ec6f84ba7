"""Costs that the processes which Spark starts for a query must not have."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from tests.support.server import package_path

HEAVY = (
    "amps.client",
    "amps.config",
    "amps.expressions",
    "amps.spark.streaming",
    "amps.spark.writing",
    "lxml",
)


def printed(program: str) -> str:
    environment = {"PYTHONPATH": package_path(), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_process_that_plans_or_reads_imports_nothing_of_streams_writing_and_servers() -> None:
    program = f"import sys, amps.spark.source; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert printed(program) == "[]"


def test_imported_objects_are_exempt_from_garbage_collection() -> None:
    """Spark's workers collect garbage after each task."""
    program = (
        "import contextlib, gc\n"
        "from amps.spark.reading import SplitReader\n"
        "def read():\n"
        "    with contextlib.suppress(AttributeError):\n"
        "        next(SplitReader.batches(SplitReader.__new__(SplitReader)))\n"  # without a split it only begins
        "before = gc.get_freeze_count()\n"
        "read()\n"
        "frozen = gc.get_freeze_count()\n"
        "kept = [[number] for number in range(1000)]\n"
        "read()\n"
        "print(before, frozen > 10_000, gc.get_freeze_count() == frozen)"
    )
    assert printed(program) == "0 True True"
