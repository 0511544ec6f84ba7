"""Constants and enumerations shared by the whole client: acknowledgement types, connection states,
bookmarks."""

from datetime import datetime
from enum import IntEnum, IntFlag
from typing import Any, Final, Self

Data = bytes | bytearray | memoryview | str
"""The types of bodies that need no codec; str is sent as UTF-8."""

Timeout = float | None
"""Seconds; None = no limit."""

DEFAULT: Final[Any] = type("_Default", (), {"__repr__": lambda self: "DEFAULT"})()
"""Stands for "use client.timeout"."""

Bookmark = str | datetime
"""Where a replay begins: EPOCH, NOW, MOST_RECENT, a bookmark, a time, a list or range of them (client.md §7).

A time is a `datetime` with a zone, ISO 8601 (UTC unless a zone is given), `YYYYmmddTHHMMSS`, or an age such as `-5m`
(in ms, s, m, h, d or w, by the clock of this host). `epoch` and `now` may be written as words.
"""

EPOCH: Final = "0"
"""Bookmark: the start of the transaction log."""

NOW: Final = "0|1|"
"""Bookmark: only new messages."""

MOST_RECENT: Final = "recent"
"""Bookmark: where the bookmark store resumes this subscription. Resolved before sending; EPOCH if nothing is known."""


class AckType(IntFlag):
    """A set of acknowledgement types. `str()` returns the list in its wire format."""

    NONE = 0
    RECEIVED = 1
    PARSED = 2
    PROCESSED = 4
    PERSISTED = 8
    COMPLETED = 16
    STATS = 32

    @classmethod
    def parse(cls, text: "AckType | str") -> Self:
        """Parse a comma-separated list; `none` and blanks are skipped, an unknown word raises ValueError."""
        if not isinstance(text, str):
            return cls(text)
        result = cls.NONE
        for word in text.split(","):
            name = word.strip().lower()
            if name and name != "none":
                try:
                    result |= cls[name.upper()]
                except KeyError:
                    raise ValueError(f"unknown acknowledgement type {word.strip()!r}") from None
        return cls(result)

    def __str__(self) -> str:
        return ",".join(
            name.lower() for name, kind in type(self).__members__.items() if kind and kind in self
        )


class ConnectionState(IntEnum):
    """The states that connection state listeners receive."""

    DISCONNECTED = 0
    SHUTDOWN = 1
    CONNECTED = 2
    LOGGED_ON = 4
    PUBLISH_REPLAYED = 8
    HEARTBEAT_INITIATED = 16
    RESUBSCRIBED = 32
    UNKNOWN = 16384
