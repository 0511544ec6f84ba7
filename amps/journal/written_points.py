"""Converts points in a log as people write them into the forms that a server reads (transaction_log.md §5).

A server reads `0`, `0|1|`, bookmarks of messages, and UTC times of the form YYYYmmddTHHMMSS. People also write `epoch`,
`now`, `2026-11-24T09:30:00+01:00`, and `-5m` for five minutes ago; programs pass a `datetime`. Lists and ranges may
consist of any of them. A text of another form is left unchanged; its reader reports the error.
"""

import re
from datetime import UTC, datetime, timedelta

from amps.journal.bookmark_text import read_message_bookmark, read_moment_us

_EPOCH = "0"
_NOW = "0|1|"
_NAMES = {"epoch": _EPOCH, "now": _NOW, "0|1": _NOW}
_AGO = re.compile(r"-\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)", re.ASCII | re.IGNORECASE)
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].+)?", re.ASCII)


def points_text(written: str | datetime, now: datetime | None = None) -> str:
    """The form that a server reads, of a point, a comma-separated list of points, or a range of two in brackets.

    A time without a zone is UTC in a text; a `datetime` must have a zone. now: the time from which `-5m` counts, by
    default the clock of this host. Raises ValueError for a `datetime` without a zone, TypeError for any other type.
    """
    if isinstance(written, datetime):
        if written.tzinfo is None:
            raise ValueError(
                f"{written!r} has no time zone: write datetime.now(UTC), or .astimezone() if it is local time"
            )
        return _wire_time(written)
    if not isinstance(written, str):
        raise TypeError(f"a bookmark must be a str or a datetime, not {type(written).__name__}")
    text = written.strip()
    now = now or datetime.now(UTC)
    if text[:1] in ("[", "(") and text[-1:] in ("]", ")"):
        return text[0] + _range_text(text[1:-1], now) + text[-1]
    return _list_text(text, now)[0]


def _range_text(text: str, now: datetime) -> str:
    """Convert a range. Times have colons too, so the separator is the first colon with known points on both sides."""
    for colon in (at for at, character in enumerate(text) if character == ":"):
        begin, begin_known = _list_text(text[:colon], now)
        end, end_known = _list_text(text[colon + 1 :], now)
        if begin_known and end_known:
            return f"{begin}:{end}"
    return text


def _list_text(text: str, now: datetime) -> tuple[str, bool]:
    """(converted comma-separated list, True if each of its points is known)."""
    points = [_point_text(point, now) for point in text.split(",")]
    if None in points:
        return text, False
    return ",".join(point for point in points if point is not None), True


def _point_text(text: str, now: datetime) -> str | None:
    """The converted point; None if its form is not known."""
    text = text.strip()
    named = _NAMES.get(text.lower())
    if named is not None:
        return named
    if text in (_EPOCH, _NOW) or read_message_bookmark(text) is not None:
        return text
    try:
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return _wire_time(now - timedelta(seconds=float(ago[1]) * _UNIT_S[ago[2].lower()]))
        if _ISO.fullmatch(text):
            moment = datetime.fromisoformat(text)
            return _wire_time(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
        read_moment_us(text)
    except (ValueError, OverflowError):
        return None
    return text


def _wire_time(moment: datetime) -> str:
    """The wire form of a moment. Whole seconds have no fraction, since every server reads that form."""
    moment = moment.astimezone(UTC)
    fraction = f".{moment.microsecond:06d}" if moment.microsecond else ""
    # Not strftime: it writes years below 1000 with fewer than four digits.
    date = f"{moment.year:04d}{moment.month:02d}{moment.day:02d}"
    return f"{date}T{moment.hour:02d}{moment.minute:02d}{moment.second:02d}{fraction}Z"
