"""`<instance>.queue.cache`: the checkpoint of the queues, so that a start reads only the log since then.

It is a copy, never the only one. If it is missing, damaged or from another log, the queues are rebuilt from the log
alone, from the positions in `queues.ack` on. It is written in pieces beside the running queues (queues/checkpoint.pxi
explains why that is correct). It is written under another name first, and is on the device before it gets its own name.

Layout, all numbers little-endian: header: magic `AMPSOQCA` (8 bytes), version (4), CRC32C of the rest of the header
(4), LogMark (4 x 8; its position is that at which the copying began). Then sections, each with a header: kind (4),
flags (4), CRC32C of its content (4), 0 (4), length of its content (8). A QUEUE is a msgpack list, see CachedQueue. With
an OrderingKey, ORDERING_SEED (16 bytes) follows: the secret with which the hashes of its keys were made. Its MESSAGES
follow, as `copy_messages` makes them, with their width as flags (0 to 2). If other instances own any of them, or did,
OWNERSHIPS precede them: a msgpack map {number: [name of the owner, epoch, whether a proxy decided]}. The last sections
are PUBLISHERS, and END without content.
"""

import enum
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgpack

from amps._core.journal.reader import checksum
from amps.journal.disk import Disk
from amps.journal.names import unfinished_path
from amps.journal.queues_ack import MARK, EarlyTransfer, LogMark, RecoveryPointKey, mark_values

MAGIC = b"AMPSOQCA"
VERSION = 1
_HEADER = struct.Struct("<8sII")
_SECTION = struct.Struct("<IIIIQ")


class QueueCacheDamaged(ValueError):
    """The file cannot be used; the text gives the reason."""


class Kind(enum.IntEnum):
    """The kind of a section."""

    QUEUE = 1
    MESSAGES = 2
    PUBLISHERS = 3
    END = 4
    ORDERING_SEED = 5
    OWNERSHIPS = 6


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """A queue in the checkpoint. definition: the rules by which messages entered it. until: the log position up to
    which it had read the log. The other fields are those of QueueStart.
    """

    name: str
    message_type: str
    recovery_point: RecoveryPointKey
    definition: tuple[object, ...]
    until: int
    position: int
    deferred: tuple[tuple[int, int, int], ...]
    kept: int
    early: tuple[EarlyTransfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the file."""

    kind: Kind
    width: int
    """Of its messages, see `copy_messages`; an unknown one is refused when they are restored."""
    content: memoryview

    def queue(self) -> CachedQueue:
        """The content of a QUEUE section. Raises QueueCacheDamaged."""
        try:
            return CachedQueue(*msgpack.unpackb(self.content, use_list=False, unicode_errors="surrogatepass"))
        except (ValueError, TypeError) as problem:
            raise QueueCacheDamaged(f"the data of a queue is not valid ({problem})") from problem

    def ownerships(self) -> dict[int, tuple[str, int, bool]]:
        """The content of an OWNERSHIPS section. Raises QueueCacheDamaged."""
        try:
            found = msgpack.unpackb(
                self.content, use_list=False, unicode_errors="surrogatepass", strict_map_key=False
            )
            return {
                int(number): (str(owner), int(epoch), bool(by))
                for number, (owner, epoch, by) in found.items()
            }
        except (ValueError, TypeError, AttributeError) as problem:
            raise QueueCacheDamaged(f"the owners of messages are not valid ({problem})") from problem


def header_bytes(mark: LogMark) -> bytes:
    """The header of the file."""
    body = MARK.pack(*mark_values(mark))
    return _HEADER.pack(MAGIC, VERSION, checksum(body)) + body


def section_bytes(kind: Kind, content: bytes = b"", width: int = 0) -> bytes:
    """A section as stored in the file."""
    return _SECTION.pack(kind, width, checksum(content), 0, len(content)) + content


def queue_bytes(queue: CachedQueue) -> bytes:
    """A QUEUE section as stored in the file."""
    row = (
        queue.name,
        queue.message_type,
        queue.recovery_point,
        queue.definition,
        queue.until,
        queue.position,
        queue.deferred,
        queue.kept,
        queue.early,
    )
    return section_bytes(Kind.QUEUE, msgpack.packb(row, unicode_errors="surrogatepass"))


def ownerships_bytes(ownerships: Mapping[int, tuple[str, int, bool]]) -> bytes:
    """An OWNERSHIPS section as stored in the file."""
    return section_bytes(Kind.OWNERSHIPS, msgpack.packb(ownerships, unicode_errors="surrogatepass"))


class QueueCacheWriter:
    """Writes the file in pieces. Its methods raise OSError; the caller must then call `abandon`."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._unfinished = unfinished_path(path)
        self._descriptor = -1
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Append bytes to the file."""
        if self._descriptor < 0:
            self._descriptor = self._disk.open(self._unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._disk.write(self._descriptor, memoryview(data), self.size_bytes)
        self.size_bytes += len(data)

    def finish(self) -> None:
        """Make the complete file durable and give it its name."""
        self._disk.sync(self._descriptor)
        self._close()
        self._disk.rename(self._unfinished, self._path)
        self._disk.sync_directory(self._path.parent)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._close()
        self._disk.unlink(self._unfinished)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            self._disk.close(descriptor)


class QueueCacheReader:
    """Opens the file and checks all of it. Raises QueueCacheDamaged, OSError (FileNotFoundError if there is none)."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            try:
                self._memory = memoryview(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ))
            except ValueError as problem:
                raise QueueCacheDamaged("it is empty") from problem
        if len(self._memory) < _HEADER.size + MARK.size:
            raise QueueCacheDamaged(f"{len(self._memory)} bytes are less than its header")
        magic, version, stored_sum = _HEADER.unpack_from(self._memory)
        if magic != MAGIC or version != VERSION:
            raise QueueCacheDamaged("it is no queue.cache file of a known version")
        mark = self._memory[_HEADER.size : _HEADER.size + MARK.size]
        if checksum(mark) != stored_sum:
            raise QueueCacheDamaged("the checksum of its header does not match")
        self.mark = LogMark(*MARK.unpack(mark))
        self.publishers = memoryview(b"")
        last: Kind | None = None
        for section in self._sections(True):
            if section.kind == Kind.PUBLISHERS:
                self.publishers = section.content
            last = section.kind
        if last != Kind.END:
            raise QueueCacheDamaged("it is not complete")

    def __iter__(self) -> Iterator[Section]:
        return self._sections(False)

    def _sections(self, check: bool) -> Iterator[Section]:
        at = _HEADER.size + MARK.size
        while at < len(self._memory):
            if len(self._memory) - at < _SECTION.size:
                raise QueueCacheDamaged(f"it is cut off at offset {at}")
            number, flags, stored_sum, _, length = _SECTION.unpack_from(self._memory, at)
            begin = at + _SECTION.size
            content = self._memory[begin : begin + length]
            if len(content) < length:
                raise QueueCacheDamaged(f"it is cut off at offset {at}")
            if check and checksum(content) != stored_sum:
                raise QueueCacheDamaged(f"the checksum at offset {at} does not match")
            try:
                kind = Kind(number)
            except ValueError as problem:
                raise QueueCacheDamaged(f"there is a section of unknown kind at offset {at}") from problem
            yield Section(kind, flags, content)
            at = begin + length
