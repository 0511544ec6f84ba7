"""Moving a full journal to the archive directory, and removing one.

On one file system the file is renamed. Across file systems it is copied under an unfinished name, synced, read back,
compared and renamed, and only then is the original removed. So it is complete at one of the two places at any time. The
indexes move before the journal, so that they are found wherever the journal is.

Like compressing, moving is done in steps, by generators that yield the number of bytes that each step has processed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps.journal.disk import Disk, whole_file
from amps.journal.names import (
    JournalPlace,
    index_path,
    index_places,
    reading_places,
    topic_index_path,
    topic_index_places,
)
from amps.journal.removals import note_removal

STEP_BYTES = 1 << 20
SYNC_BYTES = 16 << 20


def archive_journal(
    disk: Disk, instance_name: str, place: JournalPlace, archive: Path, *, copying: bool | None = None
) -> Iterator[int]:
    """Move a journal and its indexes to `archive`. Raises OSError, LogDamaged.

    copying: True to copy, False to rename; None: copy if the directories are on different file systems.
    """
    directory = place.path.parent
    if copying is None:
        copying = directory.stat().st_dev != archive.stat().st_dev
    for path_of in (index_path, topic_index_path):
        index = path_of(directory, instance_name, place.number)
        if index.exists():
            yield from _move(disk, index, archive / index.name, copying)
    yield from _move(disk, place.path, archive / place.path.name, copying)


def _move(disk: Disk, source: Path, target: Path, copying: bool) -> Iterator[int]:
    if copying:
        yield from _copy(disk, source, target)
        disk.unlink(source)
    else:
        disk.rename(source, target)
        disk.sync_directory(target.parent)
    disk.sync_directory(source.parent)


def _copy(disk: Disk, source: Path, target: Path) -> Iterator[int]:
    original = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(original)
        with whole_file(disk, target) as descriptor:
            for offset in range(0, status.st_size, STEP_BYTES):
                data = os.pread(original, STEP_BYTES, offset)
                disk.write(descriptor, memoryview(data), offset)
                if offset % SYNC_BYTES == SYNC_BYTES - STEP_BYTES:
                    disk.sync(descriptor)
                yield len(data)
            disk.set_times(descriptor, status.st_mtime_ns)
            disk.sync(descriptor)
            for offset in range(0, max(status.st_size, os.fstat(descriptor).st_size), STEP_BYTES):
                data = os.pread(original, STEP_BYTES, offset)
                if data != os.pread(descriptor, STEP_BYTES, offset):
                    raise LogDamaged(str(target), offset, f"the copy differs from {source}")
                yield len(data)
    finally:
        os.close(original)


def remove_journal(
    disk: Disk, directory: Path, archive: Path | None, instance_name: str, number: int
) -> None:
    """Remove a journal, then its indexes. The caller removes the oldest first. Raises OSError.

    The removal is first recorded as made on purpose, so that it is not taken for a loss after a crash. If there is no
    space for that record, it is written after the removal, which frees space.
    """
    noted = note_removal(disk, directory, instance_name, number)
    for prefix, suffix in reversed(reading_places(directory, archive, instance_name)):
        path = Path(f"{prefix}{number:010d}{suffix}")
        if path.exists():
            disk.unlink(path)
            # Before another journal is removed: a crash must not bring this one back without the ones after it.
            disk.sync_directory(path.parent)
    for places in (index_places, topic_index_places):
        for path in places(directory, archive, instance_name, number):
            disk.unlink(path)
    if not noted:
        note_removal(disk, directory, instance_name, number)
