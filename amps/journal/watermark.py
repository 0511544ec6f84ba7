"""The watermark file: the log position up to which the log was durable when the file was last written.

It is written after each sync and before the first acknowledgement that depends on the sync, and it survives the death
of the process. If a crash of the machine tears a store, the position does not match its inverse and counts as unknown.
"""

import mmap
import os
import struct
from pathlib import Path

from amps.journal.disk import FILE_MODE, Disk

WATERMARK_FILE_BYTES = 4096
WATERMARK_FORMAT = struct.Struct("<8sQQ")
WATERMARK_MAGIC = b"AMPSODUR"


class WatermarkFile:
    """The watermark file, mapped. It is created with its full size, so no later store needs a new block.

    With the plain disk, the flusher itself stores into `memory` the bytes that `write` would store
    (amps/_core/journal/group_commit.pxi).
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            if os.fstat(descriptor).st_size < WATERMARK_FILE_BYTES:
                os.pwrite(descriptor, bytes(WATERMARK_FILE_BYTES), 0)
                os.fsync(descriptor)
            self.memory = mmap.mmap(descriptor, WATERMARK_FILE_BYTES)
        finally:
            os.close(descriptor)

    def write(self, position: int) -> None:
        """Store the log position before which everything is durable."""
        inverse = position ^ 0xFFFFFFFFFFFFFFFF
        self._disk.store(self.memory, WATERMARK_FORMAT.pack(WATERMARK_MAGIC, position, inverse))


def read_watermark(path: Path) -> int:
    """The log position before which everything was durable when the file was last written; 0 = unknown."""
    try:
        data = path.read_bytes()[: WATERMARK_FORMAT.size]
    except FileNotFoundError:
        return 0
    if len(data) < WATERMARK_FORMAT.size:
        return 0
    magic, position, inverse = WATERMARK_FORMAT.unpack(data)
    # After a store torn by a crash of the machine, the position does not match its inverse and is unknown.
    return int(position) if magic == WATERMARK_MAGIC and position ^ inverse == 0xFFFFFFFFFFFFFFFF else 0
