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
    """No acknowledgement."""
    RECEIVED = 1
    """The server has received the command."""
    PARSED = 2
    """The server has read the command."""
    PROCESSED = 4
    """The server has accepted or refused the command."""
    PERSISTED = 8
    """The message is safe on disk; of a bookmark subscription: the log is stable up to a bookmark."""
    COMPLETED = 16
    """All results, or the whole replay, have been sent; of `flush`: everything before is processed."""
    STATS = 32
    """Counts of a query or a delete."""

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
    """The connection is lost or closed."""
    SHUTDOWN = 1
    """The client is closed for good."""
    CONNECTED = 2
    """The connection is open; the logon follows."""
    LOGGED_ON = 4
    """The logon has succeeded; an HAClient has not recovered yet."""
    PUBLISH_REPLAYED = 8
    """The messages of the publish store have been sent again."""
    HEARTBEAT_INITIATED = 16
    """Heartbeats have begun."""
    RESUBSCRIBED = 32
    """All subscriptions have been entered again: the recovery is finished."""
    UNKNOWN = 16384
    """Never reported; for other client libraries."""
