"""`<instance>.clients.ack`: the last message of each publisher, up to a position of the log.

With it, recovery need not read the indexes of old journals. It also outlives removed journals: a publisher's last
sequence is not lost with them, so that duplicates stay duplicates. It is a snapshot; messages of the log after its
position are newer. It is written at rotation, at an orderly stop and before a journal is removed. It is written under
another name first, and is on the device before it gets its own name.

Layout, all numbers little-endian: header of HEADER_BYTES: magic `AMPSOCAK` (8 bytes), version (4), CRC32C of all
following bytes (4), log position up to which it is valid (8), number, start position and first transaction id of the
journal that holds this position or ends there (8 each), number of publishers (8), bytes of names (8). Then per
publisher, by ascending id: publisher id, last sequence, time of the last message in UNIX ns (8 each). Then the known
client names: publisher id (8), length (4), UTF-8.

Version 2 is written only if there are refused transactions. They follow behind the names: for each publisher its id
(8), a count (4), and the first sequences of that many refused transactions (8 each), in their order.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import numpy.typing

from amps._core.journal.reader import checksum
from amps._core.journal.writer import SUMMARY_DTYPE
from amps._core.values.value import SERVER_NAMES
from amps.journal.disk import Disk, whole_file
from amps.journal.files import JournalHeader

MAGIC = b"AMPSOCAK"
VERSION = 1
VERSION_WITH_REFUSED = 2
REFUSED_MAX = 10_000
"""So many refused transactions of a publisher are kept, the latest ones."""
ROW_DTYPE = numpy.dtype([("publisher_id", "<u8"), ("last_sequence", "<u8"), ("last_timestamp_ns", "<u8")])
Rows = numpy.typing.NDArray[Any]
_HEADER = struct.Struct("<8sIIQQQQQQ")
_NAME = struct.Struct("<QI")
HEADER_BYTES = _HEADER.size
_CHECKED_FROM = 16


class ClientsAckDamaged(ValueError):
    """The file cannot be used; the text gives the reason."""


def no_rows() -> Rows:
    """An empty array of rows."""
    return numpy.empty(0, ROW_DTYPE)


@dataclass(slots=True)
class ClientsAck:
    """The last message of each publisher before `position`; the other numbers identify the log."""

    position: int = 0
    journal_number: int = 0
    start_position: int = 0
    first_txid: int = 0
    rows: Rows = field(default_factory=no_rows)
    names: dict[int, str] = field(default_factory=dict)
    """Client names by publisher id, as far as they are known."""
    refused: dict[int, list[int]] = field(default_factory=dict)
    """The first sequences of the refused transactions, by publisher id, in their order."""

    def take(self, summary: Rows) -> None:
        """Add the publishers of a later part of the log. summary: from the index of a journal."""
        newer = numpy.empty(len(summary), ROW_DTYPE)
        for name in ROW_DTYPE.names or ():
            newer[name] = summary[name]
        rows = numpy.concatenate((self.rows, newer))
        rows = rows[numpy.argsort(rows["publisher_id"], kind="stable")]
        ids = rows["publisher_id"]
        # Keep the last row of each publisher, which is the newer one.
        self.rows = rows[numpy.append(ids[1:] != ids[:-1], True)] if len(rows) else rows

    def take_refused(self, transactions: Iterable[tuple[int, int, int]]) -> None:
        """Add the refused transactions of a later part of the log: publisher id, first and last sequence of each."""
        for publisher, first, _ in transactions:
            known = self.refused.setdefault(publisher, [])
            known.append(first)
            del known[:-REFUSED_MAX]

    def set_refused(self, refused: Mapping[int, Iterable[int]]) -> None:
        """Replace the refused transactions by those of a running server, as far as `rows` cover them.

        A refusal behind the position may still be lost with the end of the log.
        """
        last = self.last_sequences()
        self.refused = {}
        for publisher, firsts in refused.items():
            covered = [first for first in firsts if first <= last.get(publisher, 0)]
            if covered:
                self.refused[publisher] = covered[-REFUSED_MAX:]

    def covers(self, header: JournalHeader) -> None:
        """Set the position to the end of a journal, all of whose messages are included now."""
        self.position = header.start_position + header.size
        self.journal_number = header.number
        self.start_position = header.start_position
        self.first_txid = header.first_txid

    def forget_before(self, timestamp_ns: int) -> int:
        """Drop the publishers without a message since that time, except those within servers. Returns the number of
        dropped publishers.
        """
        servers = [id_ for id_, name in self.names.items() if name.startswith(SERVER_NAMES)]
        is_kept = self.rows["last_timestamp_ns"] >= max(timestamp_ns, 0)
        if servers:
            # Without its number, an upstream of replication would repeat all that it has.
            is_kept |= numpy.isin(self.rows["publisher_id"], numpy.array(servers, "<u8"))
        kept = self.rows[is_kept]
        dropped = len(self.rows) - len(kept)
        self.rows = kept
        if dropped:
            kept_ids = set(kept["publisher_id"].tolist())
            self.refused = {id_: firsts for id_, firsts in self.refused.items() if id_ in kept_ids}
        return dropped

    def last_sequences(self) -> dict[int, int]:
        """The last sequences, by publisher id."""
        return dict(zip(self.rows["publisher_id"].tolist(), self.rows["last_sequence"].tolist(), strict=True))


def summary_of(publishers: Mapping[int, tuple[int, int, int]]) -> Rows:
    """Make an index summary from {publisher id: (first sequence, last sequence, last time)}."""
    return numpy.array([(publisher, *values) for publisher, values in publishers.items()], SUMMARY_DTYPE)


def write_clients_ack(disk: Disk, path: Path, ack: ClientsAck) -> None:
    """Replace the file; it is on the device afterwards. Raises OSError."""
    known = {int(publisher) for publisher in ack.rows["publisher_id"]} & ack.names.keys()
    names = b"".join(
        _NAME.pack(publisher, len(text)) + text
        for publisher, text in sorted((p, ack.names[p].encode("utf-8", "surrogatepass")) for p in known)
    )
    rows = ack.rows.tobytes()
    rest = (
        ack.position,
        ack.journal_number,
        ack.start_position,
        ack.first_txid,
        len(ack.rows),
        len(names),
    )
    refused = b"".join(
        struct.pack(f"<QI{len(firsts)}Q", publisher, len(firsts), *firsts)
        for publisher, firsts in sorted(ack.refused.items())
    )
    version = VERSION_WITH_REFUSED if refused else VERSION
    body = _HEADER.pack(MAGIC, version, 0, *rest)[_CHECKED_FROM:] + rows + names + refused
    data = _HEADER.pack(MAGIC, version, checksum(body), *rest) + rows + names + refused
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(data), 0)


def read_clients_ack(path: Path) -> ClientsAck:
    """Read and check the file. Raises ClientsAckDamaged, OSError (FileNotFoundError if there is none)."""
    data = path.read_bytes()
    if len(data) < HEADER_BYTES:
        raise ClientsAckDamaged(f"{path}: {len(data)} bytes are less than its header")
    magic, version, stored_sum, position, number, start, first_txid, count, name_bytes = _HEADER.unpack_from(
        data
    )
    if magic != MAGIC or version not in (VERSION, VERSION_WITH_REFUSED):
        raise ClientsAckDamaged(f"{path}: no clients.ack file of a known version")
    end = HEADER_BYTES + count * ROW_DTYPE.itemsize + name_bytes
    if end > len(data) if version == VERSION_WITH_REFUSED else end != len(data):
        raise ClientsAckDamaged(f"{path}: it has {len(data)} bytes, its header gives another length")
    if checksum(data[_CHECKED_FROM:]) != stored_sum:
        raise ClientsAckDamaged(f"{path}: its checksum does not match")
    rows = numpy.frombuffer(data, ROW_DTYPE, count, HEADER_BYTES)
    names = _read_names(path, data[end - name_bytes : end], name_bytes)
    return ClientsAck(position, number, start, first_txid, rows, names, _read_refused(path, data[end:]))


def _read_refused(path: Path, data: bytes) -> dict[int, list[int]]:
    refused: dict[int, list[int]] = {}
    offset = 0
    while offset < len(data):
        if len(data) - offset < _NAME.size:
            raise ClientsAckDamaged(f"{path}: its refused transactions end too early")
        publisher, count = _NAME.unpack_from(data, offset)
        offset += _NAME.size
        if (len(data) - offset) // 8 < count:
            raise ClientsAckDamaged(f"{path}: its refused transactions end too early")
        refused[publisher] = list(struct.unpack_from(f"<{count}Q", data, offset))
        offset += 8 * count
    return refused


def _read_names(path: Path, data: bytes, length: int) -> dict[int, str]:
    names: dict[int, str] = {}
    offset = 0
    while offset < length:
        if length - offset < _NAME.size:
            raise ClientsAckDamaged(f"{path}: its names end too early")
        publisher, size = _NAME.unpack_from(data, offset)
        offset += _NAME.size
        if length - offset < size:
            raise ClientsAckDamaged(f"{path}: its names end too early")
        names[publisher] = data[offset : offset + size].decode("utf-8", "surrogatepass")
        offset += size
    return names
