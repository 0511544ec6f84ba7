"""Measuring the performance of a device with the writes of a transaction log (transaction_log.md §16.4).

A `TestFile` is filled with zeros before use, as a journal is, so that writing into it needs no new blocks. Its name is
removed as soon as it is open. So nothing is left however the process ends, and no existing file is changed.

`run_workload` is the documented test: it writes batches of messages in sequence through the whole file, each durable
before the next, with some reads in between. `measure_syncs` does what this server does: it repeats write and
`fdatasync`.
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
"""Latencies in nanoseconds, one per write."""


def _nobody(done: int) -> None:
    pass


class TestFile:
    """The file for the test writes. Use it in a `with` statement."""

    __test__ = False

    def __init__(self, path: Path, size_bytes: int, progress: Progress = _nobody) -> None:
        """Create and fill the file. `progress` is called with the bytes filled. Raises FileExistsError, OSError."""
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
        """A descriptor for writing. direct: past the page cache. durable: each write is durable when it returns.

        None if the file system does not support it. Raises OSError.
        """
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
        """Close all descriptors. The file, which has no name, is freed by that."""
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
    """Block signals that end the process: between the creation of a file and its removal they would leave it behind."""
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
    """Memory aligned for direct writes, with random content, which no device can compress."""
    buffer = memoryview(mmap.mmap(-1, size_bytes))
    buffer[:] = os.urandom(size_bytes)
    return buffer


@dataclass(slots=True)
class Workload:
    """The parameters of the documented test. A batch is padded to whole blocks when it is written."""

    batch_size: int
    message_size_bytes: int
    read_mix_percent: int = 0

    @property
    def submit_bytes(self) -> int:
        """The bytes of the messages of a batch."""
        return self.batch_size * self.message_size_bytes

    @property
    def write_bytes(self) -> int:
        """The bytes written for a batch: whole blocks."""
        return -(-self.submit_bytes // BLOCK_BYTES) * BLOCK_BYTES


@dataclass(slots=True)
class WorkloadResult:
    """The measurements of one run of the workload."""

    elapsed_s: float = 0.0
    write_count: int = 0
    read_count: int = 0
    latencies_ns: Latencies = ()
    """The latency of every write, or of every n-th one if there are more than LATENCIES_MAX."""
    throughput: list[tuple[float, int]] = field(default_factory=list)
    """(seconds since the start, bytes written so far), about once per second and at the end."""

    @property
    def read_mix_percent(self) -> float:
        """The percentage of reads among all operations."""
        total = self.write_count + self.read_count
        return 100 * self.read_count / total if total else 0.0

    @property
    def mean_latency_us(self) -> float:
        """The mean latency of a write in microseconds."""
        return mean_ns(self.latencies_ns) / 1000


def mean_ns(latencies: Latencies) -> float:
    """The mean of latencies; 0 if there are none."""
    return sum(latencies) / len(latencies) if latencies else 0.0


def percentiles_ns(latencies: Latencies, percents: Sequence[float]) -> list[int]:
    """For each percentage, the smallest latency that is not exceeded by that percentage of all; there must be some."""
    ordered = sorted(latencies)
    return [ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] for percent in percents]


def run_workload(
    workload: Workload, descriptor: int, file_bytes: int, progress: Progress = _nobody
) -> WorkloadResult:
    """Write once through the file. `progress` is called with the bytes written so far. Raises OSError."""
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
            # Read at a scattered offset in the written part: a multiplicative sequence is as good as random offsets.
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
    """Repeat write and `fdatasync` for some time, at least once. Raises OSError."""
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
