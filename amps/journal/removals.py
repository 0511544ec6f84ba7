"""`<instance>.removed`: the journals that were removed on purpose, so that a start can detect other missing journals.

The server or `amps journal remove` removes journals from the oldest on. So the file stores one number, that of the
first journal that stays. If a log begins with a later journal, other journals are missing, for example because an
archive directory is not mounted or a person removed them. The file is a line of text. It serves only that check.
Without the file, no journal counts as removed on purpose.
"""

import contextlib
import re
from pathlib import Path

from amps.journal.disk import Disk, whole_file
from amps.journal.names import removals_path

_LINE = re.compile(rb"journals before (\d{1,10}) were removed\n")
_LINE_BYTES_MAX = 64


def first_kept(directory: Path, instance_name: str) -> int:
    """Number of the first journal that was not removed on purpose; 0 if none was, or the file cannot be read."""
    with contextlib.suppress(OSError), removals_path(directory, instance_name).open("rb") as file:
        match = _LINE.fullmatch(file.read(_LINE_BYTES_MAX))
        if match is not None:
            return int(match[1])
    return 0


def note_removal(disk: Disk, directory: Path, instance_name: str, number: int) -> bool:
    """Record that this journal and all before it are removed. Return False if the file cannot be written now."""
    if first_kept(directory, instance_name) > number:
        return True
    try:
        with whole_file(disk, removals_path(directory, instance_name)) as descriptor:
            disk.write(descriptor, memoryview(b"journals before %d were removed\n" % (number + 1)), 0)
    except OSError:
        return False
    return True


def forget_removals(disk: Disk, directory: Path, instance_name: str) -> None:
    """Remove the file, since the log begins anew with journal 0. Raises OSError."""
    path = removals_path(directory, instance_name)
    if path.exists():
        disk.unlink(path)
        disk.sync_directory(directory)
