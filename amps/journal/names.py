"""Names of the files in a journal directory; every process and tool builds them here.

`<instance>.<ten digits>.journal` holds messages. Full ones may be compressed, then `.journal.gz` is their name (the
documented one; the content is zstd, as its magic number says), and may lie in the archive directory. Beside a journal
lie its index, `.index`, and its topic index, `.topic.index`. What ends in `.new` is not finished.
`<instance>.durable` is the watermark file, `<instance>.clients.ack` tells the last message of each publisher,
`<instance>.queues.ack` from where on the log is needed for each queue, `<instance>.queue.cache` what was in the queues,
`<instance>.removed` which journals were removed on purpose, `<instance>.actions` up to where actions have followed
queues.

A file only moves *forward*: from plain to compressed, from the journal directory to the archive. It is whole at its
new place before it leaves the old one. So `PLACES` looked at in order always find it, and a crash leaves it at both
places at worst; the first one counts.
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
    """Where a journal lies, and in which form."""

    number: int
    path: Path
    archived: bool
    compressed: bool


def journal_prefix(directory: Path, instance_name: str) -> str:
    """A journal's path up to its number."""
    return f"{directory}/{instance_name}."


def journal_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of journal `number` where it was made."""
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
    """Path of the file that tells where each queue begins in the log."""
    return directory / f"{instance_name}.queues.ack"


def queue_cache_path(directory: Path, instance_name: str) -> Path:
    """Path of the copy of what is in the queues."""
    return directory / f"{instance_name}.queue.cache"


def removals_path(directory: Path, instance_name: str) -> Path:
    """Path of the file that tells which journals were removed on purpose."""
    return directory / f"{instance_name}.removed"


def action_positions_path(directory: Path, instance_name: str) -> Path:
    """Path of the file that tells up to where actions have followed queues."""
    return directory / f"{instance_name}.actions"


def unfinished_path(path: Path) -> Path:
    """What a file is called until it is whole and on the device."""
    return path.with_name(path.name + UNFINISHED_SUFFIX)


def unfinished_files(directory: Path, instance_name: str) -> list[Path]:
    """Files of an instance that were being made. Raises OSError."""
    pattern = re.compile(
        re.escape(instance_name)
        + r"\.(?:\d{10}\.(?:journal|journal\.gz|index|topic\.index)"
        + r"|clients\.ack|queues\.ack|queue\.cache|removed|actions)\.new"
    )
    return sorted(entry for entry in directory.iterdir() if pattern.fullmatch(entry.name))


def reading_places(directory: Path, archive: Path | None, instance_name: str) -> list[tuple[str, str]]:
    """Where a reader looks for a journal, in that order: pairs of what stands before and after its number."""
    directories = [directory] if archive is None else [directory, archive]
    return [
        (journal_prefix(place, instance_name), suffix)
        for place in directories
        for suffix in (JOURNAL_SUFFIX, COMPRESSED_SUFFIX)
    ]


def index_places(directory: Path, archive: Path | None, instance_name: str, number: int) -> list[Path]:
    """Where a reader looks for the index of journal `number`."""
    directories = [directory] if archive is None else [directory, archive]
    return [index_path(place, instance_name, number) for place in directories]


def topic_index_places(directory: Path, archive: Path | None, instance_name: str, number: int) -> list[Path]:
    """Where a reader looks for the topic index of journal `number`."""
    directories = [directory] if archive is None else [directory, archive]
    return [topic_index_path(place, instance_name, number) for place in directories]


def find_journals(directory: Path, archive: Path | None, instance_name: str) -> dict[int, list[JournalPlace]]:
    """All journals of an instance by number, rising, each with the places where it lies; the first one counts.

    Other instances' files are not looked at. Raises OSError.
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
    """Names of the instances that have journals there. Raises OSError."""
    pattern = re.compile(r"(.+)\.\d{10}\.journal(?:\.gz)?")
    entries = [entry for place in (directory, archive) if place is not None for entry in place.iterdir()]
    found = (pattern.fullmatch(entry.name) for entry in entries)
    return sorted({match[1] for match in found if match})
