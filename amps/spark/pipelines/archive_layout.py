"""Names in an archive: the directory for the rows of a topic and a day, and the names of their files.

    <archive>/topic_key=orders%2Feurope/date=2026-11-22/journal-desk-7-0000000004-0000.parquet
    <archive>/_amps/…                                   files of the archive itself, see `archive_manifest`

Directories have the names that Hive and Spark give to partitions, so their readers derive the columns `topic_key` and
`date` from these names. Readers skip names that begin with `_` or `.` (`is_visible`).

The topic itself is the column `topic` of the files. The key serves to skip directories, and may differ from the
topic: it may be shortened, and readers infer a type for it, so that they may read the keys `1` and `01` as one number.

A topic may be any text, but the name of a directory may not. ASCII characters other than letters, digits, `-`, `_` and
`.` are written as `%` and two hexadecimal digits, which readers decode. A name that would be longer than file systems
allow is cut and ends with `~` and a digest. No other name contains `~`. Rows without a topic lie in the directory that
Hive uses for NULL.
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
    """Return the name of the directory with the rows of a topic; None is for rows without a topic."""
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
    # Remove an escaped character that was cut in half.
    cut = re.sub(r"%[0-9A-F]?\Z", "", cut)
    return f"{cut}~{digest}"


def _escape(character: re.Match[str]) -> str:
    return character[0] if character[0] in _PLAIN else f"%{ord(character[0]):02X}"


def day_of(day: int) -> str:
    """Return a day, counted from 1970, as YYYY-MM-DD."""
    return (_EPOCH + datetime.timedelta(days=day)).isoformat()


def days_of(date: str) -> int:
    """Return the number of a day, counted from 1970; the inverse of `day_of`."""
    return (datetime.date.fromisoformat(date) - _EPOCH).days


def file_path(instance: str, number: int, part: int, topic: str | None, date: str) -> str:
    """Return the path, below the archive's directory, of the file for a part's rows with this topic and day."""
    name = f"journal-{instance}-{number:010d}-{part:04d}.parquet"
    return str(PurePosixPath(topic_directory(topic), f"date={date}", name))


def is_of_journal(path: str, instance: str, number: int) -> bool:
    """Whether a file has the name of a file of this journal."""
    name = rf"journal-{re.escape(instance)}-{number:010d}-\d{{4,}}\.parquet"
    return re.fullmatch(name, PurePosixPath(path).name) is not None


def is_visible(name: str) -> bool:
    """Whether readers read a file or directory of this name, by Spark's rule."""
    if name.startswith(("_metadata", "_common_metadata")):
        return True
    hidden = name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)
    return not hidden


def manifest_path(archive: Path) -> Path:
    """Return the directory with the files of the archive itself."""
    return archive / MANIFEST_DIRECTORY
