"""Measuring what a device does with the writes of a transaction log (transaction_log.md §16.4).

A `TestFile` is filled with zeros beforehand, as a journal is, so that writing into it needs no new blocks. It has no
name any more once it is open: whatever ends the process, nothing is left, and no file that was there is touched.

`run_workload` is the documented test: batches of messages one after the other through the whole file, each durable
before the next, with some reads in between. `measure_syncs` is what this server does: write, `fdatasync`, again.
"""

import contextlib
import errno
import math
import mmap
import os
import signal
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

BLOCK_BYTES = 4096
MIB = 1 << 20
LATENCIES_MAX = 1_000_000
PROGRESS_INTERVAL_NS = 100_000_000
SECOND_NS = 1_000_000_000

Progress = Callable[[int], object]
Latencies = Sequence[int]
"""Nanoseconds, one per write."""


def _nobody(done: int) -> None:
    pass


class TestFile:
    """The file that is written to. Use it in a `with` statement."""

    __test__ = False

    def __init__(self, path: Path, size_bytes: int, progress: Progress = _nobody) -> None:
        """`progress` is told how many bytes are there. Raises FileExistsError, OSError."""
        self.size_bytes = size_bytes
        self._descriptors: list[int] = []
        try:
            with _uninterrupted():
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self._descriptors.append(self._descriptor)
                path.unlink()
            os.posix_fallocate(self._descriptor, 0, size_bytes)
            zeros = bytes(MIB)
            for offset in range(0, size_bytes, MIB):
                _write_all(self._descriptor, memoryview(zeros)[: size_bytes - offset], offset)
                progress(offset)
            os.fsync(self._descriptor)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and error.filename is None:
                raise OSError(error.errno, error.strerror, str(path)) from error
            raise

    def descriptor(self, *, direct: bool, durable: bool) -> int | None:
        """To write with: past the page cache, or each write durable when it returns. None if that is refused."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_DIRECT if direct else 0) | (os.O_DSYNC if durable else 0)
        try:
            descriptor = os.open(f"/proc/self/fd/{self._descriptor}", flags)
            self._descriptors.append(descriptor)
            if direct:
                _write_all(descriptor, memoryview(mmap.mmap(-1, BLOCK_BYTES)), 0)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                return None
            raise
        return descriptor

    def close(self) -> None:
        """Let go of the file, which then is gone."""
        for descriptor in self._descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._descriptors.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals that end the process wait: between a file's creation and its removal they would leave it behind."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


def aligned_buffer(size_bytes: int) -> memoryview:
    """Memory as direct writes need it, with contents that no device can shorten."""
    buffer = memoryview(mmap.mmap(-1, size_bytes))
    buffer[:] = os.urandom(size_bytes)
    return buffer


@dataclass(slots=True)
class Workload:
    """What the documented test does. A batch that fills no whole blocks is written with what is missing."""

    batch_size: int
    message_size_bytes: int
    read_mix_percent: int = 0

    @property
    def submit_bytes(self) -> int:
        """Of the messages of a batch."""
        return self.batch_size * self.message_size_bytes

    @property
    def write_bytes(self) -> int:
        """What is written for a batch: whole blocks."""
        return -(-self.submit_bytes // BLOCK_BYTES) * BLOCK_BYTES


@dataclass(slots=True)
class WorkloadResult:
    """What it took."""

    elapsed_s: float = 0.0
    write_count: int = 0
    read_count: int = 0
    latencies_ns: Latencies = ()
    """Of every write, or of evenly chosen ones."""
    throughput: list[tuple[float, int]] = field(default_factory=list)
    """(seconds since the start, bytes written so far), about once per second and at the end."""

    @property
    def read_mix_percent(self) -> float:
        """Reads among all operations."""
        total = self.write_count + self.read_count
        return 100 * self.read_count / total if total else 0.0

    @property
    def mean_latency_us(self) -> float:
        """Of a write."""
        return mean_ns(self.latencies_ns) / 1000


def mean_ns(latencies: Latencies) -> float:
    """0 if there are none."""
    return sum(latencies) / len(latencies) if latencies else 0.0


def percentiles_ns(latencies: Latencies, percents: Sequence[float]) -> list[int]:
    """The smallest latency that so many percent of them do not exceed, for each; there must be some."""
    ordered = sorted(latencies)
    return [ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] for percent in percents]


def run_workload(
    workload: Workload, descriptor: int, file_bytes: int, progress: Progress = _nobody
) -> WorkloadResult:
    """Write once through the file. `progress` is told how many bytes are written. Raises OSError."""
    size = workload.write_bytes
    count = file_bytes // size
    every = max(1, -(-count // LATENCIES_MAX))
    latencies = array("Q", bytes(8 * -(-count // every)))
    data, target = aligned_buffer(size), aligned_buffer(size)
    result = WorkloadResult(latencies_ns=latencies)
    reads_due = workload.read_mix_percent / (100 - workload.read_mix_percent)
    clock = time.perf_counter_ns
    began = report_at = clock()
    sample_at = began + SECOND_NS
    for number in range(count):
        before = clock()
        written = os.pwrite(descriptor, data, number * size)
        after = clock()
        if written != size:
            raise OSError(errno.EIO, "a write was cut short")
        if number % every == 0:
            latencies[number // every] = after - before
        while result.read_count < (number + 1) * reads_due:
            # Somewhere in what is written: the steps of a multiplicative sequence are as good as chance.
            os.preadv(descriptor, [target], result.read_count * 2_654_435_761 % (number + 1) * size)
            result.read_count += 1
        if after >= report_at:
            report_at = after + PROGRESS_INTERVAL_NS
            progress((number + 1) * size)
        if after >= sample_at:
            sample_at += SECOND_NS
            result.throughput.append(((after - began) / 1e9, (number + 1) * size))
    result.elapsed_s = (clock() - began) / 1e9
    result.write_count = count
    result.throughput.append((result.elapsed_s, count * size))
    return result


def measure_syncs(descriptor: int, file_bytes: int, write_bytes: int, seconds: float) -> Latencies:
    """Write and `fdatasync`, over and over for some time; at least once. Raises OSError."""
    data = aligned_buffer(write_bytes)
    places = max(1, file_bytes // write_bytes)
    latencies = array("Q")
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    after = 0
    while after < end and len(latencies) < LATENCIES_MAX:
        before = clock()
        _write_all(descriptor, data, len(latencies) % places * write_bytes)
        os.fdatasync(descriptor)
        after = clock()
        latencies.append(after - before)
    return latencies
