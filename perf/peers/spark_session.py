"""Spark sessions, each in a process of its own: a process has at most one, and scenarios compare several.

A session of `n` cores has the master `local[n]` and is, with JVM and Python workers, confined to `n` processors. So its
rates are those of `n` processors, whether the JVM or Python does the work.
"""

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import psutil

from perf.imports import places_of_children
from perf.measurement import CpuTime
from perf.pump import PeerError

A = ParamSpec("A")
R = TypeVar("R")

MEMORY = "2g"
FAILURE_CHARACTERS_MAX = 2000
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": MEMORY,
    # The settings that docs/spark.md advises; they do not affect readers without Python.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true",
    "spark.sql.session.timeZone": "UTC",
}

_session: Any = None
"""The session of this process, if it has one."""


@dataclass(frozen=True)
class Query:
    """One read and its aggregates; all of it is measured."""

    format: str
    path: Path
    schema: str | None
    selection: str
    """The expressions of columns for the aggregates."""
    aggregates: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Answer:
    """The result of a query, and its cost."""

    row: tuple[Any, ...]
    elapsed_s: float
    cpu: CpuTime


class SparkProcess:
    """A process with a session; close it."""

    def __init__(self, cores: int, directory: Path) -> None:
        self._executor = ProcessPoolExecutor(1, get_context("spawn"), _start, (cores, str(directory)))

    def call(self, function: Callable[Concatenate[Any, A], R], *args: A.args, **kwargs: A.kwargs) -> R:
        """Call a function with the session as first argument; return its result. Raises PeerError."""
        return self._executor.submit(_called, function, *args, **kwargs).result()

    def close(self) -> None:
        """End the session and the process."""
        try:
            self._executor.submit(_stop).result()
        finally:
            self._executor.shutdown()


def _start(cores: int, directory: str) -> None:
    from pyspark.sql import SparkSession

    import amps.spark

    global _session
    # The JVM inherits this, and so do the workers that it starts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(places_of_children())
    builder = SparkSession.builder.master(f"local[{cores}]").appName("amps-perf")
    places = {"spark.sql.warehouse.dir": f"{directory}/warehouse", "spark.local.dir": f"{directory}/local"}
    for name, value in {**_SETTINGS, **places}.items():
        builder = builder.config(name, value)
    _session = builder.getOrCreate()
    _session.sparkContext.setLogLevel("ERROR")
    amps.spark.register(_session)


def _called(function: Callable[Concatenate[Any, A], R], *args: A.args, **kwargs: A.kwargs) -> R:
    try:
        return function(_session, *args, **kwargs)
    except Exception as error:
        # Exceptions of Spark cannot be pickled.
        raise PeerError(f"{type(error).__name__}: {str(error)[:FAILURE_CHARACTERS_MAX]}") from None


def _stop() -> None:
    _session.stop()


def ask(session: Any, query: Query) -> Answer:
    """Run a query, from making the reader to the row; return the answer."""
    before = _used_cpu()
    began_s = time.perf_counter()
    reader = session.read.format(query.format).options(**dict(query.options))
    if query.schema is not None:
        reader = reader.schema(query.schema)
    frame = reader.load(str(query.path)).select(query.selection)
    (row,) = frame.selectExpr(*query.aggregates).collect()
    elapsed_s = time.perf_counter() - began_s
    return Answer(tuple(row), elapsed_s, _used_cpu().since(before))


def _used_cpu() -> CpuTime:
    """Processor time of the JVM and of running Python processes. A worker that planned a read has already ended."""
    used = {"JVM": 0.0, "Python": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            used["JVM" if process.name() == "java" else "Python"] += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return CpuTime(used)
