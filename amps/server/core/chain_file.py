"""The file of a topic's chains (sow.md §3.1): links, appended and never changed.

    header   magic `AMPSCHN1` (8 bytes), definition of the topic's keys (4), CRC32 of both (4)
    link     identifier (8), key (8), transaction id (8), CRC32 of the file offset and the three (4), zeros (4)

All numbers are little-endian. A link with the identifier 0 is a *mark*: the file has the links of all messages up to
its transaction id. Zeros behind the last link mean nothing.

The log is the authority. After a failure the end of the file may be torn, behind the last sync in any way: the file is
cut off at the first link that is not whole, and the core resolves the messages behind `known_to` again. The file may
also know messages that the log lost; these links are cut off, too. The offset within the checksum keeps a link of an
earlier life of the file's blocks from counting.
"""

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

from amps.journal.disk import Disk
from amps.server.core.chain_keys import NONE, Link

_MAGIC = b"AMPSCHN1"
_HEADER = struct.Struct("<8sII")
_LINK = struct.Struct("<QQQII")
_CHECKED = struct.Struct("<QQQQ")


class BadChainFile(Exception):
    """The file cannot be used. The text says what to do."""


class ChainFile:
    """An open file of chains."""

    def __init__(self, disk: Disk, path: Path, definition: int, up_to: int | None = None) -> None:
        """Open the file, or create it, in a directory that exists.

        `definition`: that of the topic's keys (`KeyMaker.definition`). `up_to`: the last transaction id of the log;
        None if the log does not record the topic. Raises BadChainFile, or OSError.
        """
        self.path = path
        self.links: list[Link] = []
        """The links that were read, in their order, without marks."""
        self.known_to = 0
        """The transaction id up to which the file has all links."""
        self.lost_bytes = 0
        """How much was cut off when the file was opened."""
        self._disk = disk
        self._descriptor = disk.open(path, os.O_RDWR | os.O_CREAT)
        try:
            self._end = self._read(definition, up_to)
        except BaseException:
            self.close()
            raise

    def append(self, links: Iterable[Link], known_to: int = NONE) -> None:
        """Write links, and a mark if `known_to` is not NONE. They are durable after `sync`.

        Raises OSError, such as for a full disk. Then nothing counts as written, and the call can be repeated.
        """
        marks = [] if known_to == NONE else [Link(NONE, NONE, known_to)]
        entries = bytearray()
        for link in (*links, *marks):
            at = self._end + len(entries)
            entries += _LINK.pack(link.identifier, link.key, link.txid, _checksum(link, at), 0)
        self._disk.write(self._descriptor, memoryview(entries), self._end)
        self._end += len(entries)
        self.known_to = max(self.known_to, known_to)

    def sync(self) -> None:
        """Make all that was written durable. Raises OSError."""
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def _read(self, definition: int, up_to: int | None) -> int:
        """Read the file, or begin it, and return where it ends."""
        data = self.path.read_bytes()
        header = data[: _HEADER.size]
        if len(header) < _HEADER.size or not any(header):  # new, or its first bytes never reached the device
            self._begin(definition)
            self._cut(data, _HEADER.size)
            return _HEADER.size
        magic, found, checksum = _HEADER.unpack(header)
        if magic != _MAGIC or checksum != crc32(header[:-4]):
            raise BadChainFile(
                f"{self.path} is no file of chains, or its beginning is damaged; move it away, and the server makes "
                "the chains again from the transaction log"
            )
        if found != definition:
            raise BadChainFile(
                f"{self.path} has the chains of other fields or of another KeyDomain; move it away, or correct the "
                "configuration"
            )
        end = self._read_links(data, up_to)
        self._cut(data, end)
        return end

    def _read_links(self, data: bytes, up_to: int | None) -> int:
        """Read links up to the first one that does not count, and return its place."""
        at = _HEADER.size
        while len(data) - at >= _LINK.size:
            identifier, key, txid, checksum, _ = _LINK.unpack_from(data, at)
            link = Link(identifier, key, txid)
            if checksum != _checksum(link, at) or (up_to is not None and txid > up_to):
                break
            if identifier == NONE:
                self.known_to = max(self.known_to, txid)
            else:
                # A message may have several links, of which this one need not be the last.
                self.known_to = max(self.known_to, txid - 1)
                self.links.append(link)
            at += _LINK.size
        return at

    def _begin(self, definition: int) -> None:
        header = _HEADER.pack(_MAGIC, definition, 0)[:-4]
        whole = header + crc32(header).to_bytes(4, "little")
        self._disk.write(self._descriptor, memoryview(whole), 0)
        self._disk.sync(self._descriptor)
        self._disk.sync_directory(self.path.parent)

    def _cut(self, data: bytes, end: int) -> None:
        """Overwrite what is behind the end, so that none of it counts when it stands behind new links."""
        rest = data[end:]
        self.lost_bytes = len(rest.rstrip(b"\0"))
        if self.lost_bytes:
            self._disk.write(self._descriptor, memoryview(bytes(len(rest))), end)
            self._disk.sync(self._descriptor)


def _checksum(link: Link, offset: int) -> int:
    return crc32(_CHECKED.pack(offset, link.identifier, link.key, link.txid))
