"""Names in an archive: which directory the rows of a topic and a day lie in, and what their files are called.

    <archive>/topic_key=orders%2Feurope/date=2026-11-22/journal-desk-7-0000000004-0000.parquet
    <archive>/_amps/…                                   what belongs to the archive itself, see `archive_manifest`

Directories are as Hive and Spark name those of partitions, so that what reads these finds columns `topic_key` and
`date` in their names. Readers pass over names that begin with `_` or `.` (`is_visible`).

The topic itself is the column `topic` of the files. The key is there to leave directories out by, and need not be the
topic: it may be shortened, and readers guess a type for it, so that the keys `1` and `01` may be one number to them.

A topic may be any text, and a directory's name may not: ASCII characters other than letters, digits, `-`, `_` and `.`
are written as `%` and two hexadecimal digits, which readers take back. A name that would be longer than file systems
allow is cut and ends with `~` and a digest. No other name holds `~`. Rows without a topic lie where Hive puts what is
NULL.
"""

import datetime
import hashlib
import re
from pathlib import Path, PurePosixPath

MANIFEST_DIRECTORY = "_amps"
TOPIC_KEY = "topic_key"
NO_TOPIC = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX = 255
DIGEST_CHARACTERS = 16
_EPOCH = datetime.date(1970, 1, 1)
_ESCAPED = re.compile(r"[\x00-\x7f]")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def topic_directory(topic: str | None) -> str:
    """Name of the directory with the rows of a topic; None: of those that have none."""
    if topic is None:
        return f"{TOPIC_KEY}={NO_TOPIC}"
    name = f"{TOPIC_KEY}=" + _ESCAPED.sub(_escape, topic)
    if topic == NO_TOPIC:
        name = name.replace("=_", "=%5F")
    if len(name.encode(errors="surrogateescape")) <= NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(topic.encode(errors="surrogateescape")).hexdigest()[:DIGEST_CHARACTERS]
    room = NAME_BYTES_MAX - DIGEST_CHARACTERS - 1
    cut = name.encode(errors="surrogateescape")[:room].decode(errors="ignore")
    # Half of an escaped character stands for nothing.
    cut = re.sub(r"%[0-9A-F]?\Z", "", cut)
    return f"{cut}~{digest}"


def _escape(character: re.Match[str]) -> str:
    return character[0] if character[0] in _PLAIN else f"%{ord(character[0]):02X}"


def day_of(day: int) -> str:
    """A day, counted from 1970, as YYYY-MM-DD."""
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


def days_of(date: str) -> int:
    """The other way round."""
    return (datetime.date.fromisoformat(date) - _EPOCH).days


def file_path(instance: str, number: int, part: int, topic: str | None, date: str) -> str:
    """Where the rows of a part of a journal with that topic and day lie, below the archive's directory."""
    name = f"journal-{instance}-{number:010d}-{part:04d}.parquet"
    return str(PurePosixPath(topic_directory(topic), f"date={date}", name))


def is_of_journal(path: str, instance: str, number: int) -> bool:
    """Whether a file is called as those of a journal are."""
    name = rf"journal-{re.escape(instance)}-{number:010d}-\d{{4,}}\.parquet"
    return re.fullmatch(name, PurePosixPath(path).name) is not None


def is_visible(name: str) -> bool:
    """Whether readers look at a file, or into a directory, of that name; as Spark decides it."""
    if name.startswith(("_metadata", "_common_metadata")):
        return True
    hidden = name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)
    return not hidden


def manifest_path(archive: Path) -> Path:
    """The directory of what belongs to the archive itself."""
    return archive / MANIFEST_DIRECTORY
