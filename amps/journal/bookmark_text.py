"""Points in a log as text (transaction_log.md §5): the bookmark of a message, and a moment.

Commands and configurations name points in the same way, and read them here; bookmarks are written here, too.
"""

import datetime
import re

_MESSAGE = re.compile(r"(\d{1,20})\s*\|\s*(\d{1,20})\s*(?:\|(?:[^|,]*\|?)?)?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,9}))?Z?", re.ASCII)
_U64_MAX = 0xFFFFFFFFFFFFFFFF
TIME_US_MAX = _U64_MAX // 1000 - 1
"""In the year 2554, where the times of a log end: whatever is later is as far away."""


def read_message_bookmark(text: str) -> tuple[int, int] | None:
    """(publisher id, sequence) of the message with that bookmark; None if the text is no bookmark of a message."""
    match = _MESSAGE.fullmatch(text)
    if match is None or max(int(match[1]), int(match[2])) > _U64_MAX:
        return None
    return int(match[1]), int(match[2])


def format_bookmark(publisher_id: int, sequence: int) -> str:
    """The wire form; `0` (EPOCH) stands for a log that holds nothing yet (transaction_log.md §20, 19)."""
    return f"{publisher_id}|{sequence}|" if publisher_id else "0"


def read_moment_us(text: str) -> int:
    """UNIX microseconds, 0 for what is earlier. What is finer is cut off (transaction_log.md §20, 10). ValueError: it
    is no moment of the form YYYYmmddTHHMMSS, with or without a fraction and Z.
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:100]!r} is no time of the form YYYYmmddTHHMMSS")
    moment = datetime.datetime.strptime(match[1] + "+0000", "%Y%m%dT%H%M%S%z")
    time_us = int(moment.timestamp()) * 1_000_000 + int((match[2] or "0").ljust(6, "0")[:6])
    # Before 1970 is before every log.
    return min(max(0, time_us), TIME_US_MAX)
