"""The record that travels to the log process, and the line it becomes.

On the wire, one packet per record: time (ns since the epoch, int64), thread number (uint32), level number
(uint8), kind (uint8), id (7 bytes), then the text in UTF-8, all little-endian. The sender reads the clock;
the log process does all work that costs more.

In a target: `2026-02-03T08:15:30.1234560-05:00 [4] info: 07-0013 client[x] disconnected.` A record may run
over several lines; a continuation line never looks like the beginning of a record.
"""

import re
import struct
import time
from typing import NamedTuple

from amps.server.eventlog.catalogue import LEVELS

MAX_TEXT_BYTES = 60 * 1024
"""Longer texts are cut: a record has to fit in one packet whatever the system's socket buffer sizes."""

KIND_RECORD = 0
KIND_END = 1
"""A packet that ends the log: the log process writes all records that it has and ends."""

KIND_ROTATE = 2
"""A packet for rotation: targets that rotate begin their next file, and the files of others are opened again."""

_HEADER = struct.Struct("<qIBB7s")
_LOOKS_LIKE_RECORD = re.compile(r"\n(?=\d{4}-\d\d-\d\dT\d\d:)")


class Record(NamedTuple):
    """One logged event."""

    time_ns: int
    thread_number: int
    level_number: int
    id: str
    text: str
    kind: int = KIND_RECORD


def pack(
    time_ns: int, thread_number: int, level_number: int, record_id: str, text: str, kind: int = KIND_RECORD
) -> bytes:
    """The packet of a record; a text beyond the limit is cut, with a note of the missing length."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) > MAX_TEXT_BYTES:
        cut = encoded[:MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
        encoded = cut + b" [... %d bytes left out]" % (len(encoded) - len(cut))
    return (
        _HEADER.pack(time_ns, thread_number, level_number, kind, record_id.encode("ascii", "replace"))
        + encoded
    )


def unpack(packet: bytes) -> Record | None:
    """The record of a packet; None if it is malformed."""
    if len(packet) < _HEADER.size:
        return None
    time_ns, thread_number, level_number, kind, record_id = _HEADER.unpack_from(packet)
    if level_number >= len(LEVELS):
        return None
    text = packet[_HEADER.size :].decode("utf-8", "backslashreplace")
    return Record(time_ns, thread_number, level_number, record_id.decode("ascii", "replace"), text, kind)


class LineFormatter:
    """Formats records. The formatted second is cached, because successive records share it."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""
        self._offset = ""

    def line(self, record: Record) -> str:
        """The record as it is written, without the final line break."""
        second, rest_ns = divmod(record.time_ns, 10**9)
        if second != self._second:
            local = time.localtime(second)
            offset = time.strftime("%z", local)
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", local)
            self._offset = f"{offset[:3]}:{offset[3:5]}"
        text = record.text
        if "\n" in text:
            text = _LOOKS_LIKE_RECORD.sub("\n ", text)
        return (
            f"{self._prefix}.{rest_ns // 100:07d}{self._offset} [{record.thread_number}] "
            f"{LEVELS[record.level_number]}: {record.id} {text}"
        )
