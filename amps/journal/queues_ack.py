"""`<instance>.queues.ack`: where each queue begins in the log (queues.md §17).

Everything before a queue's `position` has left it, so a queue is made again by reading the log from there. What has
left later is a record behind it. The file also tells by which RecoveryPoint a queue began: with another one it begins
anew. Acknowledgements that wait for their messages (queues.md §8.5) are written down here, because their records may
lie before that position. If the rules by which messages enter a queue have changed, what had not left it by the old
ones may be wanted again one day: `kept`, where it began then, stays its position.

Layout, all numbers little-endian: header of HEADER_BYTES: magic `AMPSOQAK` (8 bytes), version (4), CRC32C of all that
follows (4), then the LogMark: the log position when it was written; number, start position and first transaction id of
the journal with that position (8 each). Then a msgpack list: of each queue name, message type, recovery point,
position, [[publisher id, sequence, UNIX time in ns] of the acknowledgements that wait], rules, kept (0: nothing).
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
"""What a recovery point means, in values that msgpack knows."""


class QueuesAckDamaged(ValueError):
    """The file cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """A position in a log, and what tells that log from another one: the journal that holds the position."""

    position: int
    journal_number: int
    start_position: int
    first_txid: int

    def fits(self, journals: Sequence[JournalHeader], end: int) -> bool:
        """Whether a log that ends at `end` is the one; `journals`: its headers, oldest first, at least one."""
        if self.position > end:
            return False
        if self.journal_number < journals[0].number:
            return self.position <= journals[0].start_position  # its journals were removed
        same = {(info.number, info.start_position, info.first_txid) for info in journals}
        return (self.journal_number, self.start_position, self.first_txid) in same


@dataclass(frozen=True, slots=True)
class QueueStart:
    """Where one queue begins."""

    name: str
    message_type: str
    recovery_point: RecoveryPointKey
    position: int
    deferred: tuple[tuple[int, int, int], ...] = ()
    definition: tuple[object, ...] = ()
    kept: int = 0


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
        )
        for queue in queues
    ]
    body = MARK.pack(*mark_values(mark)) + msgpack.packb(rows, unicode_errors="surrogatepass")
    with whole_file(disk, path) as descriptor:
        disk.write(descriptor, memoryview(_HEADER.pack(MAGIC, VERSION, checksum(body)) + body), 0)


def mark_values(mark: LogMark) -> tuple[int, int, int, int]:
    """In the order in which files have them."""
    return mark.position, mark.journal_number, mark.start_position, mark.first_txid


def read_queues_ack(path: Path) -> tuple[LogMark, list[QueueStart]]:
    """Raises QueuesAckDamaged, OSError (FileNotFoundError if there is none)."""
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
        raise QueuesAckDamaged(f"{path}: its content makes no sense ({problem})") from problem
