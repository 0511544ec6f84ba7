"""The topic index beside a full journal: its name, how it is made, how it is opened.

`<instance>.<number>.topic.index` says where the entries of each topic are; see `amps._core.topic_index`. It is a cache:
it can be made again from its journal at any time, and whoever finds none, or a damaged one, reads the journal. One
that does not name its journal's place in the log belongs to another log and is not used.
"""

import mmap
from pathlib import Path

from amps._core.bookmark_index import IndexDamaged
from amps._core.log_reader import LogDamaged
from amps._core.record_search import RecordSearch, RecordWalker
from amps._core.topic_index import FILE_BYTES_MAX, TopicIndexReader, build_topic_index
from amps.journal.entries import JournalFile

TOPIC_INDEX_SUFFIX = ".topic.index"


def topic_index_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of the topic index of journal `number`, once it is full."""
    return directory / f"{instance_name}.{number:010d}{TOPIC_INDEX_SUFFIX}"


def make_topic_index(journal: Path) -> bytes:
    """The topic index of a full journal, plain or compressed, by reading it.

    Raises OSError, and LogDamaged for a journal that is damaged, not full, or too large for a topic index.
    """
    with JournalFile(journal) as file:
        if file.size > FILE_BYTES_MAX:
            raise LogDamaged(str(journal), 32, f"{file.size} bytes are too many for a topic index")
        walker = RecordWalker(file, file.size, file.start_position, RecordSearch(include_noops=True))
        data = build_topic_index(walker, file.number, file.start_position, file.size)
    if walker.problem is not None:
        raise LogDamaged(str(journal), *walker.problem)
    if not walker.finished:
        raise LogDamaged(
            str(journal), walker.end_offset, "the journal is not full: it has no end-of-file record"
        )
    return data


def open_topic_index(path: Path) -> TopicIndexReader:
    """Raises OSError (FileNotFoundError if there is none), IndexDamaged."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise IndexDamaged("the file is empty")
        return TopicIndexReader(mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ))
