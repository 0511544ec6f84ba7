"""`<instance>.queues.ack`: the log position at which each queue begins (queues.md §17).

All messages before a queue's `position` have left it, so reading the log from there rebuilds the queue. Every message
that left later has a record behind that position. The file also stores the RecoveryPoint with which a queue began; with
another RecoveryPoint the queue begins anew. Deferred acknowledgements (queues.md §8.5) are stored here, because their
records may be before that position. When the rules by which messages enter a queue change, the messages that had not
left it by the old rules may be needed again later. So the position at which it began then, `kept`, stays its position.

Layout, all numbers little-endian: header of HEADER_BYTES: magic `AMPSOQAK` (8 bytes), version (4), CRC32C of all
following bytes (4), then the LogMark: the log position at the time of writing; number, start position and first
transaction id of the journal with that position (8 each). Then a msgpack list, with these items per queue: name,
message type, recovery point, position, deferred acknowledgements as [[publisher id, sequence, UNIX time in ns]], rules,
kept (0: none), early transfers as [[publisher id, sequence, name of the owner, epoch, whether a proxy decided, UNIX
time in ns]]. Early are transfers whose messages have not come yet; a file of an earlier version lacks them.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from amps._core.journal.reader import checksum
from amps.journal.disk import Disk, whole_file
from amps.journal.files import JournalHeader

MAGIC = b"AMPSOQAK"
VERSION = 1
MARK = struct.Struct("<QQQQ")
_HEADER = struct.Struct("<8sII")
HEADER_BYTES = _HEADER.size + MARK.size
QUEUES_MAX = 1 << 20

RecoveryPointKey = tuple[Any, ...]
"""A recovery point, in values that msgpack can encode."""

EarlyTransfer = tuple[int, int, str, int, bool, int]
"""A transfer whose message has not come: publisher id, sequence, owner, epoch, by a proxy, UNIX time of its expiration.
"""


class QueuesAckDamaged(ValueError):
    """The file cannot be used; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """A position in a log, and the journal that holds it, which distinguishes that log from others."""

    position: int
    journal_number: int
    start_position: int
    first_txid: int

    def fits(self, journals: Sequence[JournalHeader], end: int) -> bool:
        """True if the mark is from the log that ends at `end`. journals: its headers, oldest first, at least one."""
        if self.position > end:
            return False
        if self.journal_number < journals[0].number:
            return self.position <= journals[0].start_position  # its journals were removed
        same = {(info.number, info.start_position, info.first_txid) for info in journals}
        return (self.journal_number, self.start_position, self.first_txid) in same


@dataclass(frozen=True, slots=True)
class QueueStart:
    """The beginning of one queue in the log; the module's docstring explains the fields."""

    name: str
    message_type: str
    recovery_point: RecoveryPointKey
    position: int
    deferred: tuple[tuple[int, int, int], ...] = ()
    definition: tuple[object, ...] = ()
    kept: int = 0
    early: tuple[EarlyTransfer, ...] = ()


def write_queues_ack(disk: Disk, path: Path, mark: LogMark, queues: Sequence[QueueStart]) -> None:
    """Replace the file; it is on the device afterwards. Raises OSError."""
    rows = [
        (
            queue.name,
            queue.message_type,
            queue.recovery_point,
            queue.position,
            queue.deferred,
            queue.definition,
            queue.kept,
            queue.early,
        )
        for queue in queues
    ]
    body = MARK.pack(*mark_values(mark)) + msgpack.packb(rows, unicode_errors="surrogatepass")
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(_HEADER.pack(MAGIC, VERSION, checksum(body)) + body), 0)


def mark_values(mark: LogMark) -> tuple[int, int, int, int]:
    """The values of a mark, in their order in files."""
    return mark.position, mark.journal_number, mark.start_position, mark.first_txid


def read_queues_ack(path: Path) -> tuple[LogMark, list[QueueStart]]:
    """Read and check the file. Raises QueuesAckDamaged, OSError (FileNotFoundError if there is none)."""
    data = path.read_bytes()
    if len(data) < HEADER_BYTES:
        raise QueuesAckDamaged(f"{path}: {len(data)} bytes are less than its header")
    magic, version, stored_sum = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise QueuesAckDamaged(f"{path}: no queues.ack file of a known version")
    if checksum(data[_HEADER.size :]) != stored_sum:
        raise QueuesAckDamaged(f"{path}: its checksum does not match")
    try:
        rows = msgpack.unpackb(
            data[HEADER_BYTES:], use_list=False, unicode_errors="surrogatepass", max_array_len=QUEUES_MAX
        )
        return LogMark(*MARK.unpack_from(data, _HEADER.size)), [QueueStart(*row) for row in rows]
    except (ValueError, TypeError) as problem:
        raise QueuesAckDamaged(f"{path}: its content is not valid ({problem})") from problem
