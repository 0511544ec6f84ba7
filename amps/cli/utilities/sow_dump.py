"""`amps_sow_dump`: the messages of SOW topics, from their value files and the journals with their other values."""

import io
import itertools
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy
from numpy.typing import NDArray

from amps._core.sow.files import NO_TIME_LIMIT, StateFold
from amps.cli.failures import describe, tell
from amps.cli.options import option
from amps.cli.utilities.common import SETTINGS, UtilityCommand, version_option, writer
from amps.journal.bookmark_text import read_message_bookmark, read_moment_us
from amps.journal.layout import block, iso8601
from amps.journal.names import instance_names
from amps.journal.sow_state import (
    FileState,
    Moment,
    Parts,
    StateUnknown,
    ValueFileAccess,
    each_value,
    read_state,
)
from amps.journal.value_file import LogPlace

VERSION_TEXT = "amps-sow-v1.0"
CHART_STEP = 128
CHART_ROWS_MAX = 1024
NEVER_NS = 0xFFFFFFFFFFFFFFFF
SUMMARY_LABELS = (
    "File",
    "Version",
    "Valid Keys",
    "Record Size",
    "Maximum Records",
    "Multirecords",
    "Maximum record size",
    "Average record size",
    "Slab Count",
)
SLAB_LABELS = (
    "size",
    "file offset",
    "valid count",
    "invalid count",
    "stored bytes",
    "data bytes",
    "deleted bytes",
)


def moment_of(text: str) -> Moment:
    """Return the end of a state. Raises ValueError."""
    message = read_message_bookmark(text)
    if message is not None and message[0]:
        return Moment(text, message=message)
    return Moment(text, time_us=read_moment_us(text))


class MomentText(click.ParamType[Moment]):
    """A bookmark of a message, or a time."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        if isinstance(value, Moment):
            return value
        try:
            return moment_of(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither the bookmark of a message nor a time YYYYmmddTHHMMSS", param, ctx)


def log_of(journals: Path | None, archive: Path | None, instance: str | None) -> LogPlace | None:
    """Return the log that the options name; None: that of the value file. Raises StateUnknown, OSError."""
    if journals is None:
        return None
    names = instance_names(journals, archive)
    if instance is None and len(names) != 1:
        raise StateUnknown(
            f"there are journals of {len(names)} instances in {journals}"
            + (f": choose one by --instance, of {', '.join(names)}" if names else "")
        )
    return LogPlace(instance or names[0], journals, archive)


def verbose_text(key: int, place: int, parts: Parts) -> bytes:
    """A record with all that is stored of it, as operations.md §11 documents."""
    checksum, flags, length, txid, timestamp_ns, expiry_ns, given_key, correlation, payload, _, _ = parts
    in_file = place >> 63
    expiration = "" if expiry_ns in (0, NEVER_NS) else iso8601(expiry_ns)
    lines: list[tuple[str, object]] = [
        ("key", key),
        ("crc", f"{checksum:08x}"),
        ("flags", f"{flags:#x}"),
        ("slab offset" if in_file else "log position", place & ~(1 << 63)),
        ("allocated", (length + 7) // 8 * 8),
        ("data size", len(payload)),
        ("expiration", expiration),
        ("iso8601 timestamp", iso8601(timestamp_ns)),
        ("local txid", txid),
    ]
    text = "".join(f"{label} = {value}\n" for label, value in lines).encode()
    for label, content in ((b"string key", given_key), (b"correlation id", correlation), (b"data", payload)):
        text += label + b" = [" + content + b"]\n"
    return text + b"\n"


def summary_text(access: ValueFileAccess, state: FileState, lengths: NDArray[numpy.int64]) -> bytes:
    """What the file has, and each of its slabs."""
    size = access.values.bytes_of_slab
    slabs = access.values.slabs()
    values = (
        access.path,
        VERSION_TEXT,
        len(state.keys),
        "as long as the message needs",
        "not limited",
        0,
        int(lengths.max(initial=0)),
        int(lengths.mean()) if len(lengths) else 0,
        len(slabs),
    )
    text = block(SUMMARY_LABELS, values) + b"Slab Detail\n"
    for number, records, dead, stored, payload, deleted in slabs:
        detail = (size, 4096 + number * size, records - dead, dead, stored, payload, deleted)
        text += b"".join(b"  " + line + b"\n" for line in block(SLAB_LABELS, detail).splitlines()) + b"\n"
    return text


def sizing_chart(lengths: NDArray[numpy.int64]) -> bytes:
    """How much a file with records of one fixed size would need for these messages, by that size."""
    rows = [f"{'Record Size':>12} {'Store':>14} {'Efficiency':>10} {'Multirecords':>12}"]
    total = int(lengths.sum())
    for number in range(1, CHART_ROWS_MAX + 1):
        size = number * CHART_STEP
        stored = int(((lengths + size - 1) // size * size).sum())
        several = int((lengths > size).sum())
        rows.append(f"{size:>12} {stored:>14} {total / stored if stored else 1:>10.1%} {several:>12}")
        if not several:
            break
    return ("\n".join(rows) + "\n").encode()


def write_zip(payloads: Iterator[bytes]) -> None:
    """Write a ZIP file with the entries 1, 2, … to standard output."""
    sys.stdout.flush()
    with zipfile.ZipFile(sys.stdout.buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, payload in enumerate(payloads, 1):
            archive.writestr(str(number), payload)


@click.command(
    cls=UtilityCommand, context_settings=SETTINGS, example="amps_sow_dump -n 10 ./amps-data/sow/orders.sow"
)
@click.argument("filenames", metavar="FILENAME...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-n", "limit", type=click.IntRange(0), metavar="LIMIT", help="Maximum of records shown per file.")
@click.option("-v", "--verbose", is_flag=True, help="Show all that is stored of each record, and the slabs.")
@click.option(
    "-d",
    "delimiter",
    type=click.IntRange(0, 255),
    default=10,
    show_default=True,
    metavar="CODE",
    help="The character behind each message, as a decimal number.",
)
@click.option("-z", "as_zip", is_flag=True, help="Write a ZIP file with the messages as entries 1, 2, ….")
@option("sizing-chart", is_flag=True, help="Show which store records of one fixed size would need.")
@option("topic", None, metavar="NAME", help="One of the topics of a file of a topic with Pattern.")
@option(
    "as-of",
    "moment",
    type=MomentText(),
    metavar="MOMENT",
    help="The state as of a bookmark or a time YYYYmmddTHHMMSS (UTC), both included; default: now.",
)
@option(
    "journals",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIRECTORY",
    help="The JournalDirectory; default: the one of the server that used the file last.",
)
@option(
    "archive",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIRECTORY",
    help="With --journals: the JournalArchiveDirectory.",
)
@option("instance", None, metavar="NAME", help="With --journals: the instance, if there are several.")
@version_option
@click.pass_context
def main(
    context: click.Context,
    filenames: tuple[Path, ...],
    limit: int | None,
    verbose: bool,
    delimiter: int,
    as_zip: bool,
    sizing_chart: bool,
    topic: str | None,
    moment: Moment | None,
    journals: Path | None,
    archive: Path | None,
    instance: str | None,
) -> None:
    """Show the messages of SOW topics. FILENAME is the FileName of a topic.

    The values that the transaction log has are read from the journals. The server may run. By default, each message is
    a line. Exit status 1 if a file cannot be used.
    """
    if as_zip and (verbose or sizing_chart or len(filenames) > 1 or sys.stdout.isatty()):
        raise click.UsageError("-z writes the messages of one file to standard output: redirect it to a file")
    if journals is None and (archive is not None or instance is not None):
        raise click.UsageError("--archive and --instance need --journals")
    failed = False
    for path in filenames:
        try:
            state = read_state(topic, log_of(journals, archive, instance), path, moment)
            _show(path, state, limit, verbose, bytes([delimiter]), as_zip, sizing_chart)
        except StateUnknown as problem:
            sys.stdout.flush()
            click.echo(f"error: {problem}", err=True)
            failed = True
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            tell(describe(error))
            failed = True
    if failed:
        context.exit(1)


def _show(
    path: Path, state: FileState, limit: int | None, verbose: bool, delimiter: bytes, as_zip: bool, chart: bool
) -> None:
    """Write one state. Raises StateUnknown, LogDamaged, OSError."""
    write: Callable[[bytes], object] = writer()
    values = each_value(state)
    if as_zip:
        write_zip(parts[8] for _, parts in itertools.islice(values, limit))
        return
    lengths = []
    collected = io.BytesIO()
    for number, (at, parts) in enumerate(values):
        lengths.append(len(parts[8]) if chart else parts[2])
        if limit is not None and number >= limit:
            if not (verbose or chart):
                break
            continue
        if verbose:
            collected.write(verbose_text(int(state.keys[at]), int(state.places[at]), parts))
        elif not chart:
            collected.write(parts[8])
            collected.write(delimiter)
        if collected.tell() > 1 << 16:
            write(collected.getvalue())
            collected = io.BytesIO()
    write(collected.getvalue())
    sizes = numpy.array(lengths, numpy.int64)
    if verbose:
        write(summary_text(state_access(path), state, sizes))
    if chart:
        write(sizing_chart(sizes))


def state_access(path: Path) -> ValueFileAccess:
    """Return the file with the facts about its slabs. Raises StateUnknown, OSError."""
    access = ValueFileAccess(path)
    names = access.names()
    StateFold(access.header.definition).read_values(
        access.values, range(1 if names is None else len(names)), NO_TIME_LIMIT
    )
    return access


if __name__ == "__main__":
    main()
