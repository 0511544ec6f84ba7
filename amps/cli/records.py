"""Messages from files: separated by one byte, plain or compressed, or one per member of a ZIP archive.

Files are read in chunks; memory is bounded by one message of up to `MAX_RECORD_BYTES`. For the display of progress, a
source has the number of bytes it has consumed, and their total if it is known.
"""

import gzip
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MAX_RECORD_BYTES = 200 * 2**20
CHUNK_BYTES = 1 << 20
_NUMBER = re.compile("[1-9][0-9]*")


class RecordError(ValueError):
    """The input cannot be read as messages."""


def split_records(stream: IO[bytes], delimiter: int) -> Iterator[bytes]:
    """Yield the records between delimiter bytes; empty records are skipped, the last one needs no delimiter."""
    separator = bytes((delimiter,))
    rest: list[bytes] = []
    rest_bytes = 0
    # Read the available bytes, not a whole chunk: records of a live input must not wait for a full megabyte.
    read = getattr(stream, "read1", stream.read)
    while chunk := read(CHUNK_BYTES):
        first, found, others = chunk.partition(separator)
        rest.append(first)
        rest_bytes += len(first)
        if rest_bytes > MAX_RECORD_BYTES:
            raise RecordError(
                f"no delimiter (code {delimiter}) within {MAX_RECORD_BYTES} bytes: is -delimiter right?"
            )
        if not found:
            continue
        if rest_bytes:
            yield b"".join(rest)
        *whole, last = others.split(separator)
        yield from filter(None, whole)
        rest, rest_bytes = [last], len(last)
    if rest_bytes:
        yield b"".join(rest)


class RecordSource:
    """The messages of one file (`.gz` and `.zip` by name) or stream."""

    def __init__(self, path: Path | None, delimiter: int, stdin: IO[bytes] | None = None) -> None:
        self.path = path
        self.delimiter = delimiter
        self.total_bytes: int | None = None
        self.left_out: list[str] = []  # members of a ZIP archive that are not messages
        self._stdin = stdin
        self._raw: IO[bytes] | None = None
        self._consumed_bytes = 0
        if path is not None and path.is_file():
            self.total_bytes = path.stat().st_size

    @property
    def consumed_bytes(self) -> int:
        """The number of bytes read, of the file on disk (for a ZIP, of its members)."""
        return self._raw.tell() if self._raw is not None and not self._raw.closed else self._consumed_bytes

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._records()
        except OSError as error:
            raise RecordError(f"{self.path or 'standard input'}: {error.strerror or error}") from error

    def _records(self) -> Iterator[bytes]:
        if self.path is None:
            assert self._stdin is not None
            yield from split_records(self._stdin, self.delimiter)
        elif self.path.suffix.lower() == ".zip":
            yield from self._zip_records(self.path)
        else:
            with self.path.open("rb") as raw:
                if self.total_bytes is not None:
                    self._raw = raw
                if self.path.suffix.lower() == ".gz":
                    yield from self._gzip_records(raw)
                else:
                    yield from split_records(raw, self.delimiter)
                self._consumed_bytes = self.total_bytes or 0

    def _gzip_records(self, raw: IO[bytes]) -> Iterator[bytes]:
        try:
            with gzip.open(raw) as stream:
                yield from split_records(stream, self.delimiter)  # type: ignore[arg-type]  # GzipFile reads bytes
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise RecordError(f"{self.path}: {error}") from error

    def _zip_records(self, path: Path) -> Iterator[bytes]:
        """Yield the top-level members named 1, 2, … as one message each, in this order, and skip other members.

        Members of an archive without such names are read like plain files.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                members = [member for member in archive.infolist() if not member.is_dir()]
                numbered = [member for member in members if _NUMBER.fullmatch(member.filename)]
                if numbered:
                    self.left_out = [m.filename for m in members if not _NUMBER.fullmatch(m.filename)]
                    members = sorted(numbered, key=lambda member: int(member.filename))
                self.total_bytes = sum(member.file_size for member in members)
                for member in members:
                    if numbered:
                        if member.file_size > MAX_RECORD_BYTES:
                            raise RecordError(f"{path}: member {member.filename} is too large for a message")
                        yield archive.read(member)
                    else:
                        with archive.open(member) as stream:
                            yield from split_records(stream, self.delimiter)
                    self._consumed_bytes += member.file_size
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise RecordError(f"{path}: {error}") from error
        except (RuntimeError, NotImplementedError) as error:  # encrypted, or compressed in some other way
            raise RecordError(f"{path}: {error}; unpack it and publish the files") from error
