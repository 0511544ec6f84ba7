"""Names of the files in a journal directory; every process and tool builds them here.

`<instance>.<ten digits>.journal` holds messages. A full journal may be compressed and then ends in `.journal.gz` (the
documented name; the content is zstd, as its magic number shows). Full journals may be in the archive directory. The
index, `.index`, and the topic index, `.topic.index`, are beside the journal. A name that ends in `.new` is that of an
unfinished file.

`<instance>.durable` is the watermark file. `<instance>.clients.ack` has the last message of each publisher,
`<instance>.queues.ack` the log position at which each queue begins, `<instance>.queue.cache` the checkpoint of the
queues, `<instance>.removed` the journals removed on purpose, `<instance>.actions` the log positions up to which actions
have followed queues, `<instance>.identity` the identity of the instance and its log for other instances.

A file only moves *forward*: from plain to compressed, from the journal directory to the archive. It is complete at its
new place before it leaves the old one. So a search of `reading_places` in their order always finds it. A crash may
leave it at both places; the first one counts.
"""

import re
from dataclasses import dataclass
from pathlib import Path

JOURNAL_SUFFIX = ".journal"
COMPRESSED_SUFFIX = ".journal.gz"
INDEX_SUFFIX = ".index"
TOPIC_INDEX_SUFFIX = ".topic.index"
UNFINISHED_SUFFIX = ".new"


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """The place of a journal, and its form."""

    number: int
    path: Path
    archived: bool
    compressed: bool


def journal_prefix(directory: Path, instance_name: str) -> str:
    """The path of a journal up to its number."""
    return f"{directory}/{instance_name}."


def journal_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path at which journal `number` is created."""
    return directory / f"{instance_name}.{number:010d}{JOURNAL_SUFFIX}"


def compressed_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of journal `number` when it is compressed."""
    return directory / f"{instance_name}.{number:010d}{COMPRESSED_SUFFIX}"


def index_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of the index of journal `number`, once it is full."""
    return directory / f"{instance_name}.{number:010d}{INDEX_SUFFIX}"


def topic_index_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of the topic index of journal `number`, if there is one."""
    return directory / f"{instance_name}.{number:010d}{TOPIC_INDEX_SUFFIX}"


def watermark_path(directory: Path, instance_name: str) -> Path:
    """Path of the watermark file."""
    return directory / f"{instance_name}.durable"


def clients_ack_path(directory: Path, instance_name: str) -> Path:
    """Path of the file with the last message of each publisher."""
    return directory / f"{instance_name}.clients.ack"


def queues_ack_path(directory: Path, instance_name: str) -> Path:
    """Path of the file with the log position at which each queue begins."""
    return directory / f"{instance_name}.queues.ack"


def queue_cache_path(directory: Path, instance_name: str) -> Path:
    """Path of the checkpoint of the queues."""
    return directory / f"{instance_name}.queue.cache"


def removals_path(directory: Path, instance_name: str) -> Path:
    """Path of the file that records the journals removed on purpose."""
    return directory / f"{instance_name}.removed"


def action_positions_path(directory: Path, instance_name: str) -> Path:
    """Path of the file with the log positions up to which actions have followed queues."""
    return directory / f"{instance_name}.actions"


def identity_path(directory: Path, instance_name: str) -> Path:
    """Path of the file with the identity of the instance and its log."""
    return directory / f"{instance_name}.identity"


def unfinished_path(path: Path) -> Path:
    """The path of a file until it is complete and on the device."""
    return path.with_name(path.name + UNFINISHED_SUFFIX)


def unfinished_files(directory: Path, instance_name: str) -> list[Path]:
    """The unfinished files of an instance. Raises OSError."""
    pattern = re.compile(
        re.escape(instance_name)
        + r"\.(?:\d{10}\.(?:journal|journal\.gz|index|topic\.index)"
        + r"|clients\.ack|queues\.ack|queue\.cache|removed|actions)\.new"
    )
    return sorted(entry for entry in directory.iterdir() if pattern.fullmatch(entry.name))


def reading_places(directory: Path, archive: Path | None, instance_name: str) -> list[tuple[str, str]]:
    """The places at which a reader searches a journal, in order, as (text before its number, text behind it)."""
    directories = [directory] if archive is None else [directory, archive]
    return [
        (journal_prefix(place, instance_name), suffix)
        for place in directories
        for suffix in (JOURNAL_SUFFIX, COMPRESSED_SUFFIX)
    ]


def index_places(directory: Path, archive: Path | None, instance_name: str, number: int) -> list[Path]:
    """The paths at which a reader searches the index of journal `number`, in order."""
    directories = [directory] if archive is None else [directory, archive]
    return [index_path(place, instance_name, number) for place in directories]


def topic_index_places(directory: Path, archive: Path | None, instance_name: str, number: int) -> list[Path]:
    """The paths at which a reader searches the topic index of journal `number`, in order."""
    directories = [directory] if archive is None else [directory, archive]
    return [topic_index_path(place, instance_name, number) for place in directories]


def find_journals(directory: Path, archive: Path | None, instance_name: str) -> dict[int, list[JournalPlace]]:
    """All journals of an instance by number, ascending, each with the places where it exists; the first one counts.

    Files of other instances are ignored. Raises OSError.
    """
    pattern = re.compile(re.escape(instance_name) + r"\.(\d{10})\.journal(\.gz)?")
    found: dict[int, list[JournalPlace]] = {}
    for archived, place in ((False, directory), (True, archive)):
        for entry in sorted(place.iterdir()) if place is not None else ():
            match = pattern.fullmatch(entry.name)
            if match is not None:
                number = int(match[1])
                found.setdefault(number, []).append(
                    JournalPlace(number, entry, archived, match[2] is not None)
                )
    return dict(sorted(found.items()))


def instance_names(directory: Path, archive: Path | None = None) -> list[str]:
    """Names of the instances with journals in the directories. Raises OSError."""
    pattern = re.compile(r"(.+)\.\d{10}\.journal(?:\.gz)?")
    entries = [entry for place in (directory, archive) if place is not None for entry in place.iterdir()]
    found = (pattern.fullmatch(entry.name) for entry in entries)
    return sorted({match[1] for match in found if match})
