"""The topic index beside a full journal: making and opening it.

`<instance>.<number>.topic.index` has the offsets of the entries of each topic; see `amps._core.journal.search`. It is a
cache: it can be made again from its journal at any time. A reader that finds no topic index, or a damaged one, reads
the journal. A topic index with another file number, start position or size than its journal belongs to another log and
is not used.
"""

import mmap
from collections.abc import Generator, Iterator
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps._core.journal.search import RecordSearch, RecordWalker, TopicIndexBuilder, TopicIndexReader
from amps._core.journal.writer import IndexDamaged
from amps.journal.disk import Disk, whole_file
from amps.journal.entries import JournalFile

STEP_BYTES = 4 << 20
WRITE_BYTES = 1 << 20


def topic_index_steps(journal: Path) -> Generator[None, None, bytes]:
    """Make the topic index of a full journal, plain or compressed, by reading it in steps of a few milliseconds.

    Returns the index. Raises OSError, LogDamaged for a journal that is damaged or not full, ValueError for one too
    large for a topic index.
    """
    with JournalFile(journal) as file:
        walker = RecordWalker(file, file.size, file.start_position, RecordSearch(include_noops=True))
        builder = TopicIndexBuilder(walker)
        while builder.advance(STEP_BYTES):
            yield
        data = builder.to_bytes(file.number, file.start_position, file.size)
    if walker.problem is not None:
        raise LogDamaged(str(journal), *walker.problem)
    if not walker.finished:
        raise LogDamaged(
            str(journal), walker.end_offset, "the journal is not full: it has no end-of-file record"
        )
    return data


def make_topic_index(journal: Path) -> bytes:
    """Make the topic index of a full journal at once. Raises the exceptions of `topic_index_steps`."""
    steps = topic_index_steps(journal)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def topic_index_file_steps(disk: Disk, journal: Path, path: Path) -> Iterator[None]:
    """Make the topic index of a full journal and write it to `path`, in steps of a few milliseconds.

    It gets its name only when it is complete and on the device, because no later check precedes its use. Raises the
    exceptions of `topic_index_steps`.
    """
    data = memoryview((yield from topic_index_steps(journal)))
    with whole_file(disk, path) as descriptor:
        for offset in range(0, len(data), WRITE_BYTES):
            disk.write(descriptor, data[offset : offset + WRITE_BYTES], offset)
            disk.sync(descriptor)
            yield


def open_topic_index(path: Path) -> TopicIndexReader:
    """Open and check a topic index. Raises OSError (FileNotFoundError if there is none), IndexDamaged."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise IndexDamaged("the file is empty")
        return TopicIndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ))
