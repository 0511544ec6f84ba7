"""Points in a log as text (transaction_log.md §5): the bookmark of a message, and a moment.

Commands and configurations use the same texts for points. This module reads them, and writes bookmarks.
"""

import datetime
import re

_MESSAGE = re.compile(r"(\d{1,20})\s*\|\s*(\d{1,20})\s*(?:\|(?:[^|,]*\|?)?)?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,9}))?Z?", re.ASCII)
_U64_MAX = 0xFFFFFFFFFFFFFFFF
TIME_US_MAX = _U64_MAX // 1000 - 1
"""In the year 2554, where the range of times in a log ends. Later times are treated as this time."""


def read_message_bookmark(text: str) -> tuple[int, int] | None:
    """(publisher id, sequence) of the message with that bookmark; None if the text is no bookmark of a message."""
    match = _MESSAGE.fullmatch(text)
    if match is None or max(int(match[1]), int(match[2])) > _U64_MAX:
        return None
    return int(match[1]), int(match[2])


def format_bookmark(publisher_id: int, sequence: int) -> str:
    """The wire form of a bookmark; `0` (EPOCH) stands for an empty log (transaction_log.md §20, 19)."""
    return f"{publisher_id}|{sequence}|" if publisher_id else "0"


def read_moment_us(text: str) -> int:
    """UNIX microseconds of a moment, 0 for a moment before 1970. Finer digits are cut off (transaction_log.md §20, 10).

    Raises ValueError if the text is not of the form YYYYmmddTHHMMSS, with or without a fraction and Z.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:100]!r} is no time of the form YYYYmmddTHHMMSS")
    moment = datetime.datetime.strptime(match[1] + "+0000", "%Y%m%dT%H%M%S%z")
    time_us = int(moment.timestamp()) * 1_000_000 + int((match[2] or "0").ljust(6, "0")[:6])
    # A moment before 1970 is before every log.
    return min(max(0, time_us), TIME_US_MAX)
