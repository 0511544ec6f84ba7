"""`amps journal verify`: are journal files whole, and if not, where not?

Reads every record of every file and changes nothing. The verdict is what a server would say: damage that it
would refuse to start with or that a replay would stop at fails; a torn end that holds nothing acknowledged is
mentioned, the next start cuts it off.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from amps._core.log_reader import FILE_HEADER_SIZE, LogDamaged, read_file_header, scan_file
from amps.cli.options import HelpfulCommand


@dataclass(frozen=True)
class Verdict:
    """About one file: whether a server can use it, and a line for the reader."""

    path: Path
    usable: bool
    text: str


@dataclass(frozen=True)
class JournalHeader:
    """What a file says about itself; `in_use` is False for one that waits for its turn."""

    number: int
    size_bytes: int
    start_position: int
    instance_name: str
    in_use: bool


def read_header(path: Path) -> JournalHeader:
    """Raises LogDamaged."""
    with path.open("rb") as file:
        header = read_file_header(file.read(FILE_HEADER_SIZE), str(path))
    if header is None:
        raise LogDamaged(str(path), 0, "the file header holds nothing but zeros")
    number, size_bytes, start_position, _, instance_name, in_use = header
    actual_bytes = path.stat().st_size
    if actual_bytes != size_bytes:
        raise LogDamaged(
            str(path), min(actual_bytes, size_bytes), f"{actual_bytes} bytes instead of {size_bytes}"
        )
    return JournalHeader(number, size_bytes, start_position, instance_name, in_use)


def verify(path: Path) -> Verdict:
    """Check one file, with its neighbours for what they say about it."""
    try:
        header = read_header(path)
    except LogDamaged as damage:
        return Verdict(path, False, f"damaged at offset {damage.offset}: {damage.detail}")
    if not header.in_use:
        return Verdict(path, True, "not used yet")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        found = scan_file(memory, header.start_position)
    summary = (
        f"{found.record_count} records, log positions {header.start_position} to "
        f"{header.start_position + found.end_offset}, last transaction id {found.last_txid}"
    )
    if found.finished:
        return Verdict(path, True, f"whole and full: {summary}")
    beyond = f"; intact records again from offset {found.valid_after}" if found.valid_after else ""
    acknowledged_offset = promised(path, header, found.durable_position) - header.start_position
    if acknowledged_offset > found.end_offset or has_successor(path, header):
        what = "no intact record" if found.damaged else "nothing"
        return Verdict(
            path,
            False,
            f"damaged at offset {found.end_offset}: {what} there where acknowledged ones were{beyond}; {summary}",
        )
    if found.damaged:
        return Verdict(
            path, True, f"torn at offset {found.end_offset}, nothing acknowledged is lost{beyond}; {summary}"
        )
    return Verdict(path, True, f"whole, in use: {summary}")


def promised(path: Path, header: JournalHeader, position_in_records: int) -> int:
    """Log position up to which messages were acknowledged, as far as this file and the watermark file know."""
    from amps.server.core.flusher import read_watermark
    from amps.server.journal_names import watermark_path

    return max(position_in_records, read_watermark(watermark_path(path.parent, header.instance_name)))


def has_successor(path: Path, header: JournalHeader) -> bool:
    """Whether a later journal is in use: then this one was full."""
    from amps.server.journal_names import journal_path

    successor = journal_path(path.parent, header.instance_name, header.number + 1)
    try:
        return successor.is_file() and read_header(successor).in_use
    except LogDamaged:
        return False


def journals(paths: tuple[Path, ...]) -> Iterator[Path]:
    """Files as they are, directories as the journals in them."""
    from amps.server.journal_names import JOURNAL_SUFFIX

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.glob(f"*{JOURNAL_SUFFIX}"))
        if not found:
            raise click.UsageError(f"there are no journals (*{JOURNAL_SUFFIX}) in {path}")
        yield from found


@click.group()
def journal() -> None:
    """Examine the files of a transaction log."""


@journal.command("verify", cls=HelpfulCommand, example="amps journal verify ./amps-data/journal")
@click.argument("paths", type=click.Path(exists=True, path_type=Path), nargs=-1, required=True)
@click.pass_context
def verify_command(context: click.Context, paths: tuple[Path, ...]) -> None:
    """Read every record of journal files, or of all in a directory, and say where one is damaged.

    Changes nothing. Exit status 1 if a file is damaged.
    """
    damaged = False
    for path in journals(paths):
        verdict = verify(path)
        damaged |= not verdict.usable
        click.echo(f"{path}: {verdict.text}")
    if damaged:
        context.exit(1)
