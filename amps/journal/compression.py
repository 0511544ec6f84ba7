"""Making a compressed journal out of a plain one.

The result is a sequence of independent zstd frames of FRAME_BYTES of content and zstd's seek table. `zstd -d <file`
restores the journal byte for byte, and readers (amps._core.journal.reader) find any offset without decompressing the
frames before it. The name ends in `.journal.gz` nevertheless, because documents and scripts use that name.

No failure can lose data. Every record of the original is checked first. The written file is read back and compared with
the original. It is on the device, under its final name, before the original is removed. A journal that fails the check
is left unchanged.

The work is done in steps of a few milliseconds, by a generator, so that the caller can do other work in between. Each
step yields the number of bytes that it has processed.
"""

from collections.abc import Iterator
from pathlib import Path

import zstandard

from amps._core.journal.reader import FILE_HEADER_SIZE, FRAME_BYTES, LogDamaged, LogFile, seek_table
from amps._core.journal.writer import check_records
from amps.journal.disk import Disk, whole_file
from amps.journal.names import unfinished_path

LEVEL = 3
CHECK_BYTES = 8 << 20
SYNC_BYTES = 16 << 20
PASSES = 3
"""The number of passes over the content: the steps of a journal of n bytes add up to PASSES × n."""


def compress_journal(disk: Disk, source: Path, target: Path) -> Iterator[int]:
    """Compress a full journal to `target` and remove `source`. Raises OSError, LogDamaged, and ValueError for a
    compressed journal.
    """
    file = LogFile(str(source))
    if file.compressed:
        raise ValueError(f"{source} is compressed already")
    yield from check_full(file)
    with whole_file(disk, target) as descriptor:
        yield from _write(disk, file, descriptor)
        disk.set_times(descriptor, source.stat().st_mtime_ns)
        disk.sync(descriptor)
        yield from _compare(file, unfinished_path(target))
    disk.unlink(source)
    disk.sync_directory(source.parent)


def check_full(file: LogFile) -> Iterator[int]:
    """Check every record of a plain journal, and that it is full. Raises LogDamaged."""
    offset = FILE_HEADER_SIZE
    finished = False
    while not finished:
        before = offset
        offset, finished = check_records(file, before, CHECK_BYTES)
        if offset == before:
            raise LogDamaged(
                str(file.path), offset, "neither an intact record nor the end of the journal is here"
            )
        yield offset - before
    yield file.size - offset + FILE_HEADER_SIZE


def _write(disk: Disk, file: LogFile, descriptor: int) -> Iterator[int]:
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    stored_sizes: list[int] = []
    end = 0
    synced = 0
    for offset in range(0, file.size, FRAME_BYTES):
        length = min(FRAME_BYTES, file.size - offset)
        file.need(offset, length)
        frame = compressor.compress(file.memory_view(offset, length))
        disk.write(descriptor, memoryview(frame), end)
        stored_sizes.append(len(frame))
        end += len(frame)
        if end - synced >= SYNC_BYTES:
            # Syncing in pieces keeps the device free for the journal in use.
            disk.sync(descriptor)
            synced = end
        yield length
    disk.write(descriptor, memoryview(seek_table(stored_sizes, file.size)), end)


def _compare(file: LogFile, path: Path) -> Iterator[int]:
    """Read the written file and compare it with the original. Raises LogDamaged."""
    copy = LogFile(str(path), file.number)
    if copy.size != file.size:
        raise LogDamaged(str(path), 0, f"it holds {copy.size} bytes instead of {file.size}")
    for offset in range(0, file.size, FRAME_BYTES):
        length = min(FRAME_BYTES, file.size - offset)
        file.need(offset, length)
        if copy.read(offset, length) != file.memory_view(offset, length):
            raise LogDamaged(str(path), offset, "the compressed content differs from the journal")
        yield length
