"""Reading headers of queue messages in the log by their positions: transaction id, time, and journal.

Only single headers are read, anywhere in the log; journals may be full, archived or compressed. A journal may be
removed meanwhile; its messages are then unknown. Reading waits for the disk, so it should be done in a thread; the
event loop continues while the disk works.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from amps._core.journal import search as read_ahead
from amps._core.journal.reader import RECORD_HEADER_SIZE, LogDamaged, LogDirectory, LogFile, LogRemoved
from amps._core.shm.memory import ControlPage
from amps.config import ServerConfig
from amps.journal.names import reading_places

# length, checksum, position, transaction id, time, publisher id, sequence
_HEADER = struct.Struct("<IIQQQQQ")


@dataclass(frozen=True, slots=True)
class MessageHead:
    """A message's header. `timestamp_ns`: UNIX time at which it entered the log. `path`: of its journal."""

    txid: int
    timestamp_ns: int
    path: str


def read_heads(
    config: ServerConfig, control: ControlPage, positions: Iterable[int]
) -> dict[int, MessageHead | None]:
    """The messages at these log positions; None: not readable. Positions that are not written yet are left out."""
    settings = config.transaction_log
    assert settings is not None, "queues need a transaction log"
    places = reading_places(settings.journal_directory, settings.journal_archive_directory, config.name)
    first, *more = places
    directory = LogDirectory(*first, lambda topic, message_type: None, more)
    written = control.watermarks()[0]
    found: dict[int, MessageHead | None] = {}
    file: LogFile | None = None
    for position in sorted(set(positions)):
        if position >= written:
            break
        try:
            if file is None or not position < file.start_position + file.size:
                number = directory.number_at(position, control.first_journal_number, control.watermarks()[3])
                file = directory.file(number)
            found[position] = _head(file, position)
        except (LogDamaged, LogRemoved, OSError):
            file = None
            found[position] = None
    return found


def _head(file: LogFile, position: int) -> MessageHead | None:
    if not file.start_position <= position < file.start_position + file.size:
        return None
    offset = position - file.start_position
    resident, wanted = read_ahead.resident_range(
        file, offset, file.start_position + file.size, RECORD_HEADER_SIZE
    )
    if resident < wanted:
        read_ahead.read(file, offset, wanted)
    _, _, at, txid, timestamp_ns, _, _ = _HEADER.unpack_from(file.read(offset, RECORD_HEADER_SIZE))
    return MessageHead(txid, timestamp_ns, file.path) if at == position else None
