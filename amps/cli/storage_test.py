"""`amps storage-test`: measure whether a device is suitable for a transaction log, and at which sizes of writes."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from amps.cli.options import POSITIVE_NUMBER, option
from amps.cli.utilities.common import Begin, UtilityCommand, bytes_progress
from amps.cli.utilities.storage_run import Settings, report, run, settings_of, workload_options
from amps.journal.storage_test import Latencies, TestFile, mean_ns, measure_syncs, percentiles_ns

SIZES_BYTES = tuple(4096 << 2 * step for step in range(6))
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
PLOT_FILE = Path("amps-storage-test.svg")
SECONDS_MAX = 86400.0
BUFFERED, DIRECT = "buffered", "O_DIRECT"


@dataclass(frozen=True, slots=True)
class Point:
    """The latencies of writes of one size and mode, until they were durable."""

    mode: str
    write_bytes: int
    mean_s: float
    percentiles_us: dict[float, float]


def measured(mode: str, write_bytes: int, latencies_ns: Latencies) -> Point:
    """Return the figures of a row of the table."""
    values = [value / 1000 for value in percentiles_ns(latencies_ns, PERCENTILES)]
    return Point(mode, write_bytes, mean_ns(latencies_ns) / 1e9, dict(zip(PERCENTILES, values, strict=True)))


@click.command(
    "storage-test",
    cls=UtilityCommand,
    context_settings={"help_option_names": ["-h", "-help", "--help"]},
    example="amps storage-test -f /data/journal/test -plot disk.svg",
)
@workload_options
@option(
    "seconds",
    None,
    type=POSITIVE_NUMBER,
    default=0.5,
    show_default=True,
    help="Seconds for each size in each mode.",
)
@option(
    "plot",
    "plot_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=PLOT_FILE,
    show_default=True,
    help="SVG file for the plot of the latencies.",
)
@click.option("-overwrite", "--overwrite", is_flag=True, help="Overwrite the plot's file without asking.")
def storage_test(
    batch_size: int,
    message_size: int,
    file_size_mb: int,
    read_mix: int,
    path: Path,
    seconds: float,
    plot_path: Path,
    overwrite: bool,
) -> None:
    """Measure a device for journals: first the same as amps_bio_perf_test, then, for writes of 4 KiB to
    4 MiB, the time until they are durable (fdatasync), with the page cache and with direct I/O.

    A publisher waits at least for one such write until it gets its acknowledgement.
    """
    settings = settings_of(batch_size, message_size, file_size_mb, read_mix, path)
    if seconds > SECONDS_MAX:
        raise click.UsageError(f"-seconds {seconds:g} is more than a day for each size: measure for less")
    check_plot(plot_path, overwrite)
    with (
        bytes_progress() as begin,
        TestFile(path, settings.file_bytes, begin("preallocating", settings.file_bytes)) as file,
    ):
        result = run(settings, file, begin("writing", settings.file_bytes))
        points = sweep(settings, file, seconds, begin)
    report(settings, result)
    show(points)
    write_plot(plot_path, path, points)
    click.echo(f"The plot is in {plot_path}.")


def check_plot(plot_path: Path, overwrite: bool) -> None:
    """Check, before the measurement, that the plot can and may be written. Raises UsageError, Abort."""
    existed = os.path.exists(plot_path)  # False also for an invalid name
    if existed and not overwrite:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"{plot_path} exists already; overwrite it with -overwrite, or name another file with -plot"
            )
        click.confirm(f"{plot_path} exists already. Overwrite it?", abort=True, err=True)
    try:
        plot_path.open("ab").close()
        if not existed:
            plot_path.unlink()
    except OSError as error:
        raise click.UsageError(
            f"the plot cannot be written to {plot_path} ({error.strerror}); name another file with -plot"
        ) from None


def sweep(settings: Settings, file: TestFile, seconds: float, begin: Begin) -> list[Point]:
    """Measure all sizes that fit into the file, in both modes if the device allows both."""
    ways = [
        (BUFFERED, file.descriptor(direct=False, durable=False)),
        (DIRECT, file.descriptor(direct=True, durable=False)),
    ]
    sizes = [size for size in SIZES_BYTES if size <= settings.file_bytes]
    allowed = [(mode, descriptor) for mode, descriptor in ways if descriptor is not None]
    progress = begin("syncing", len(sizes) * len(allowed))
    points: list[Point] = []
    for mode, descriptor in allowed:
        for size in sizes:
            latencies_ns = measure_syncs(descriptor, settings.file_bytes, size, seconds)
            points.append(measured(mode, size, latencies_ns))
            progress(len(points))
    return points


def show(points: Sequence[Point]) -> None:
    """The table."""
    from rich.console import Console
    from rich.table import Table

    from amps.cli.utilities.latency_plot import latency_text, size_text

    table = Table(title="write and fdatasync", box=None, padding=(0, 1))
    for column in ("mode", "size", "per s", "MiB/s", *(f"{percent:g} %" for percent in PERCENTILES)):
        table.add_column(column, justify="left" if column == "mode" else "right", no_wrap=True)
    for point in points:
        table.add_row(
            point.mode,
            size_text(point.write_bytes),
            f"{1 / point.mean_s:,.0f}",
            f"{point.write_bytes / (1 << 20) / point.mean_s:,.1f}",
            *map(latency_text, point.percentiles_us.values()),
        )
    Console().print(table)


def write_plot(plot_path: Path, tested: Path, points: Sequence[Point]) -> None:
    """Write a plot of median and 99th percentile over the size of a write, for each mode."""
    from amps.cli.utilities.latency_plot import Line, plot

    lines = []
    for colour, mode in enumerate(dict.fromkeys(point.mode for point in points)):
        for percent, name, dashed in ((50.0, "median", False), (99.0, "99 %", True)):
            curve = [(p.write_bytes, p.percentiles_us[percent]) for p in points if p.mode == mode]
            lines.append(Line(f"{mode}, {name}", curve, colour, dashed))
    plot_path.write_text(
        plot(f"Until a write is durable: {tested.absolute().parent}", lines), encoding="utf-8"
    )
