"""Opening any journal file and reading its header: plain or compressed, in use, full or spare.

`LogFile` (amps._core.journal.reader) reads both forms, so `open_journal` opens every journal from its path. `scan_file`
scans its records, and `cursor_over` returns a cursor over one file alone.
"""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amps._core.journal.reader import (
    FILE_HEADER_SIZE,
    FRAME_MAGIC,
    FrameCache,
    FrameMap,
    LogCursor,
    LogDamaged,
    LogFile,
    read_file_header,
)
from amps.journal.names import COMPRESSED_SUFFIX, JOURNAL_SUFFIX


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The header in the first page of a journal. A spare has no start position yet."""

    number: int
    size: int
    start_position: int
    first_txid: int
    instance_name: str
    in_use: bool


def open_journal(path: Path, cache: FrameCache | None = None) -> LogFile:
    """Open a journal in use or full, plain or compressed. Raises OSError, LogDamaged (for a spare, too).

    cache: for decompressed content; None: a cache of its own, of up to 16 MiB.
    """
    return LogFile(str(path), None, cache)


def read_header(path: Path) -> JournalHeader:
    """The header of a journal, spare or not. Raises OSError, LogDamaged."""
    with path.open("rb") as file:
        page = file.read(FILE_HEADER_SIZE)
        size = file.seek(0, 2)
    if page[: len(FRAME_MAGIC)] == FRAME_MAGIC:
        frames = FrameMap(str(path))
        size = frames.size
        page = frames.read(0, min(size, FILE_HEADER_SIZE))
    header = read_file_header(page, str(path))
    if header is None:
        raise LogDamaged(str(path), 0, "the file header holds nothing but zeros")
    number, file_size, start, first_txid, name, in_use = header
    if file_size != size:
        raise LogDamaged(str(path), size, f"it has {size} bytes, its header says {file_size}")
    return JournalHeader(number, size, start, first_txid, name, in_use)


def seek_table_remedy(damage: LogDamaged) -> str | None:
    """Advice for a compressed journal of which only the seek table is known to be damaged; None for other damage."""
    if not damage.path.endswith(COMPRESSED_SUFFIX) or "seek table" not in damage.detail:
        return None
    plain = damage.path.removesuffix(COMPRESSED_SUFFIX) + JOURNAL_SUFFIX
    return (
        f"its messages may be whole. Restore it with: zstd -dc {shlex.quote(damage.path)} > {shlex.quote(plain)} "
        "(ignore an error about the end of the file); then move the compressed file away, and check the journals with "
        "'amps journal verify'"
    )


class _OneFile:
    """A substitute for a LogDirectory, with one file."""

    def __init__(self, file: LogFile, resolver: Callable[[str, str], object]) -> None:
        self._file = file
        self.resolver = resolver

    def file(self, number: int) -> LogFile:
        if number != self._file.number:
            raise FileNotFoundError(f"journal {number:010d} follows")
        return self._file


def cursor_over(file: LogFile, resolver: Callable[[str, str], object], *, verify: bool = True) -> LogCursor:
    """A cursor at the first record of a file. Limits passed to it must not exceed `start_position + size`."""
    return LogCursor(_OneFile(file, resolver), file.number, 0, verify)
