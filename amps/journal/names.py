"""Names of the files in a journal directory; every process and tool builds them here.

`<instance>.<ten digits>.journal` holds messages, `.index` beside it is the index of a full journal,
`.journal.new` is a file whose preallocation is not finished, `<instance>.durable` is the watermark file.
"""

import re
from pathlib import Path

JOURNAL_SUFFIX = ".journal"
INDEX_SUFFIX = ".index"
NEW_SUFFIX = ".journal.new"
NEW_INDEX_SUFFIX = ".index.new"


def journal_prefix(directory: Path, instance_name: str) -> str:
    """A journal's path up to its number."""
    return f"{directory}/{instance_name}."


def journal_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of journal `number`."""
    return directory / f"{instance_name}.{number:010d}{JOURNAL_SUFFIX}"


def index_path(directory: Path, instance_name: str, number: int) -> Path:
    """Path of the index of journal `number`, once it is full."""
    return directory / f"{instance_name}.{number:010d}{INDEX_SUFFIX}"


def watermark_path(directory: Path, instance_name: str) -> Path:
    """Path of the watermark file."""
    return directory / f"{instance_name}.durable"


def journal_numbers(directory: Path, instance_name: str) -> list[int]:
    """Numbers of this instance's journals, rising. Other instances' files are not looked at."""
    pattern = re.compile(re.escape(instance_name) + r"\.(\d{10})" + re.escape(JOURNAL_SUFFIX))
    found = (pattern.fullmatch(entry.name) for entry in directory.iterdir())
    return sorted(int(match[1]) for match in found if match)
