"""The shared parts of `amps_bio_perf_test` and `amps storage-test`: options, the run, its figures and CSV files."""

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from amps.journal.storage_test import MIB, Progress, TestFile, Workload, WorkloadResult, run_workload

DEFAULT_FILE = Path("amps_bio_perf_test.data")
LATENCY_CSV = Path("amps_bio_perf_latency.csv")
THROUGHPUT_CSV = Path("amps_bio_perf_throughput.csv")
LATENCY_COLUMNS = ("write", "batch_size", "message_size", "write_size", "latency_us")
THROUGHPUT_COLUMNS = ("elapsed_s", "batch_size", "message_size", "write_size", "bytes_written", "bytes_per_s")
LATENCY_SAMPLES_MAX = 10_000


class MessageSize(click.ParamType[int]):
    """256 to 128K bytes, a multiple of 256."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().upper()
        factor = 1024 if text.endswith("K") else 1
        digits = text.removesuffix("K")
        size = int(digits) * factor if digits.isascii() and digits.isdigit() else 0
        if not 256 <= size <= 128 * 1024 or size % 256:
            self.fail(f"{value!r} is no multiple of 256 between 256 and 128K", param, ctx)
        return size


@dataclass(frozen=True, slots=True)
class Settings:
    """The values of the options."""

    workload: Workload
    file_bytes: int
    path: Path


def workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The documented options."""
    for decorate in reversed(
        (
            click.option(
                "-b",
                "--batch_size",
                "batch_size",
                type=click.IntRange(1, 256),
                default=32,
                show_default=True,
                metavar="N",
                help="Messages per batch, 1 to 256.",
            ),
            click.option(
                "-m",
                "--message_size",
                "message_size",
                type=MessageSize(),
                default="1K",
                show_default=True,
                metavar="BYTES",
                help="Size of a message, 256 to 128K, a multiple of 256.",
            ),
            click.option(
                "-s",
                "--file_size",
                "file_size_mb",
                type=click.IntRange(1, 8192),
                default=256,
                show_default=True,
                metavar="MB",
                help="Size of the file, at most 8192.",
            ),
            click.option(
                "-r",
                "--read_mix",
                "read_mix",
                type=click.IntRange(0, 99),
                default=0,
                show_default=True,
                metavar="PERCENT",
                help="Reads among the operations, 0 to 99.",
            ),
            click.option(
                "-f",
                "--file",
                "path",
                type=click.Path(path_type=Path),
                default=DEFAULT_FILE,
                show_default=True,
                help="File to write to, on the device to be tested. It must not exist, and is removed afterwards.",
            ),
        )
    ):
        command = decorate(command)
    return command


def settings_of(batch_size: int, message_size: int, file_size_mb: int, read_mix: int, path: Path) -> Settings:
    """Check the options. Raises click.UsageError for contradictory values, or if existing files would be changed."""
    workload = Workload(batch_size, message_size, read_mix)
    if workload.write_bytes > file_size_mb * MIB:
        raise click.UsageError(
            f"a batch of {workload.submit_bytes} bytes does not fit into a file of {file_size_mb} MB; make -s larger"
        )
    if os.path.lexists(path):
        raise click.UsageError(f"{path} exists already and is left alone; name a file that does not")
    for csv_path, columns in ((LATENCY_CSV, LATENCY_COLUMNS), (THROUGHPUT_CSV, THROUGHPUT_COLUMNS)):
        if csv_path.exists() and not _is_ours(csv_path, columns):
            raise click.UsageError(f"{csv_path} is here and was not written by this test; move it away")
    return Settings(workload, file_size_mb * MIB, path)


def run(settings: Settings, file: TestFile, progress: Progress) -> WorkloadResult:
    """Run the documented test on an existing file. Print a note if direct writes are refused."""
    descriptor = file.descriptor(direct=True, durable=True)
    if descriptor is None:
        click.echo(
            f"note: {settings.path.absolute().parent} refuses O_DIRECT; writing through the page cache",
            err=True,
        )
        descriptor = file.descriptor(direct=False, durable=True)
    assert descriptor is not None
    return run_workload(settings.workload, descriptor, settings.file_bytes, progress)


def report(settings: Settings, result: WorkloadResult) -> None:
    """Print the documented figures and add to the CSV files."""
    workload = settings.workload
    count = result.write_count + result.read_count
    figures = (
        ("Elapsed time", f"{result.elapsed_s:.3f} s"),
        ("Writer thread count", "1"),
        ("Batch size", f"{workload.batch_size} messages"),
        ("Submit size", f"{workload.submit_bytes} bytes"),
        ("Write size", f"{workload.write_bytes} bytes"),
        ("Submit count", str(count)),
        ("Read count", str(result.read_count)),
        ("Write count", str(result.write_count)),
        ("Submit rate", f"{count / result.elapsed_s:.1f} per s"),
        ("Write rate", f"{result.write_count * workload.write_bytes / MIB / result.elapsed_s:.1f} MiB/s"),
        ("Actual read mix", f"{result.read_mix_percent:.1f} %"),
        ("Mean write latency", f"{result.mean_latency_us:.1f} us"),
    )
    for label, value in figures:
        click.echo(f"{label:<19} : {value}")
    _write_csv_files(workload, result)
    click.echo(f"Latency samples are in {LATENCY_CSV}, throughput samples in {THROUGHPUT_CSV}.")


def _write_csv_files(workload: Workload, result: WorkloadResult) -> None:
    sizes = (workload.batch_size, workload.message_size_bytes, workload.write_bytes)
    step = max(1, -(-len(result.latencies_ns) // LATENCY_SAMPLES_MAX))
    scale = -(-result.write_count // max(1, len(result.latencies_ns)))
    with _appending(LATENCY_CSV, LATENCY_COLUMNS) as latency_rows:
        for number in range(0, len(result.latencies_ns), step):
            latency_rows.writerow((number * scale, *sizes, round(result.latencies_ns[number] / 1000, 3)))
    with _appending(THROUGHPUT_CSV, THROUGHPUT_COLUMNS) as throughput_rows:
        before_s, before_bytes = 0.0, 0
        for elapsed_s, written in result.throughput:
            rate = (written - before_bytes) / max(elapsed_s - before_s, 1e-9)
            throughput_rows.writerow((f"{elapsed_s:.3f}", *sizes, written, round(rate)))
            before_s, before_bytes = elapsed_s, written


@contextmanager
def _appending(path: Path, columns: tuple[str, ...]) -> Iterator[Any]:
    with path.open("a", newline="") as file:
        rows = csv.writer(file)
        if not file.tell():
            rows.writerow(columns)
        yield rows


def _is_ours(path: Path, columns: tuple[str, ...]) -> bool:
    with path.open(errors="replace") as file:
        line = file.readline(1000)
    return not line or line.strip() == ",".join(columns)
