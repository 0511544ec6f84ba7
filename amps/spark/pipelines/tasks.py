"""Running plain functions as Spark tasks, and receiving their progress.

This is for jobs whose rows need not pass the JVM: a task gets an argument, does its work in Python with Arrow, and
returns a result; both are pickled. Tasks send their progress to the driver in datagrams, which may get lost: they are
for display only.
"""

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa

from amps.spark.pipelines.job import PipelineError, Progress, told_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

Address = tuple[str, int]
POLL_S = 0.5
TELL_S = 0.2
_MESSAGE_BYTES = 8


def run_tasks(
    spark: "SparkSession", work: Callable[[_Argument], _Result], arguments: Sequence[_Argument]
) -> list[_Result]:
    """Call `work` with each argument, each in a task; return the results in order. Raises PipelineError on failure.

    Tasks may be run more than once, or twice at a time.
    """
    if not arguments:
        return []
    count = len(arguments)
    pickled = [pickle.dumps(argument) for argument in arguments]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(work(pickle.loads(pickled[number])))
                yield pa.RecordBatch.from_pydict(
                    {"number": pa.array([number], pa.int64()), "result": pa.array([result], pa.binary())}
                )

    try:
        rows = (
            spark.range(0, count, 1, count).mapInArrow(task, "number bigint, result binary").collect()  # type: ignore[arg-type, unused-ignore]
        )
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise PipelineError(told_by_spark(error)) from error
    results: dict[int, _Result] = {row["number"]: pickle.loads(row["result"]) for row in rows}
    return [results[number] for number in range(count)]


def is_of_spark(error: Exception) -> bool:
    """Whether the exception was raised by Spark or the JVM."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j")


class TaskCounts:
    """On the driver: adds up the steps that tasks report, and passes them to `progress`; use `with`."""

    def __init__(self, spark: "SparkSession", progress: Progress) -> None:
        self._progress = progress
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host = str(spark.conf.get("spark.driver.host", "127.0.0.1"))
        try:
            self._socket.bind((host, 0))
        except OSError:  # a name of another machine: no progress is received
            self._socket.bind(("127.0.0.1", 0))
        self.address: Address = self._socket.getsockname()
        self._socket.settimeout(POLL_S)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="task-counts", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        with contextlib.suppress(OSError):  # then the thread ends after its wait
            self._socket.sendto(b"", self.address)
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):  # no datagram arrived
                data = self._socket.recv(_MESSAGE_BYTES)
                self._progress.advance(int.from_bytes(data, "little"))


class Teller:
    """In a task: reports steps to the driver, a few times per second at most."""

    def __init__(self, address: Address | None) -> None:
        self._address = address
        self._steps = 0
        self._next = 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._send()
        self._socket.close()

    def advance(self, steps: int = 1) -> None:
        """Note that `steps` more steps are done."""
        self._steps += steps
        now = time.monotonic()
        if now >= self._next:
            self._next = now + TELL_S
            self._send()

    def _send(self) -> None:
        if self._address is None or not self._steps:
            return
        with contextlib.suppress(OSError):
            self._socket.sendto(self._steps.to_bytes(_MESSAGE_BYTES, "little"), self._address)
        self._steps = 0
