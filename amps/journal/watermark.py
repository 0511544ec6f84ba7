"""The watermark file: how far the log was durable when it was last written.

It is written after each sync and before the first acknowledgement that rests on it, and it survives the death of the
process. A store that a crash of the machine has torn does not match its inverse: then nothing is known.
"""

import mmap
import os
import struct
from pathlib import Path

from amps.journal.disk import Disk

WATERMARK_FILE_BYTES = 4096
WATERMARK_FORMAT = struct.Struct("<8sQQ")
WATERMARK_MAGIC = b"AMPSODUR"


class WatermarkFile:
    """The watermark file, mapped. It is made whole, so no later store needs a new block.

    The flusher stores into `memory` itself, what `write` would (amps/_core/journal/group_commit.pxi), if the disk is
    the plain one.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            if os.fstat(descriptor).st_size < WATERMARK_FILE_BYTES:
                os.pwrite(descriptor, bytes(WATERMARK_FILE_BYTES), 0)
                os.fsync(descriptor)
            self.memory = mmap.mmap(descriptor, WATERMARK_FILE_BYTES)
        finally:
            os.close(descriptor)

    def write(self, position: int) -> None:
        """Everything before that log position is durable."""
        inverse = position ^ 0xFFFFFFFFFFFFFFFF
        self._disk.store(self.memory, WATERMARK_FORMAT.pack(WATERMARK_MAGIC, position, inverse))


def read_watermark(path: Path) -> int:
    """Log position that was durable when the file was last written; 0 = nothing known."""
    try:
        data = path.read_bytes()[: WATERMARK_FORMAT.size]
    except FileNotFoundError:
        return 0
    if len(data) < WATERMARK_FORMAT.size:
        return 0
    magic, position, inverse = WATERMARK_FORMAT.unpack(data)
    # A store torn by a machine crash does not match its inverse: then nothing is known.
    return int(position) if magic == WATERMARK_MAGIC and position ^ inverse == 0xFFFFFFFFFFFFFFFF else 0
