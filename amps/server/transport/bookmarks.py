"""Bookmarks as text (transaction_log.md §5): what a subscription names as its starting point.

The grammar is read in full, so that malformed bookmarks and forms that are not served yet (timestamps,
intervals) are told apart: the first are `invalid bookmark`, the second say that they are not supported yet.
"""

import re
from dataclasses import dataclass

from amps.server.transport.failures import CommandFailure, not_supported_yet

_MESSAGE = re.compile(r"(\d{1,20})\s*\|\s*(\d{1,20})\s*(?:\|(?:[^|,]*\|?)?)?", re.ASCII)
_TIMESTAMP = re.compile(r"\d{8}T\d{6}(?:\.\d{1,9})?Z?", re.ASCII)
_U64_MAX = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """Just after the message with that bookmark."""

    publisher_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class StartPoint:
    """A parsed bookmark header: the earliest of these points counts."""

    epoch: bool = False
    now: bool = False
    messages: tuple[MessagePoint, ...] = ()


def parse_bookmark(text: str) -> StartPoint:
    """Parse the `bm` header of a subscription. Raises CommandFailure."""
    text = text.strip()
    if text[:1] in "[(" or text[-1:] in "])":
        _check_interval(text)
        raise not_supported_yet("bookmark intervals")
    return _parse_list(text)


def _parse_list(text: str) -> StartPoint:
    epoch = now = timestamp = False
    messages: list[MessagePoint] = []
    for item in text.split(","):
        point = item.strip()
        match = _MESSAGE.fullmatch(point)
        if point == "0":
            epoch = True
        elif point.replace(" ", "") in ("0|1", "0|1|"):
            now = True
        elif match is not None and int(match[1]) <= _U64_MAX and int(match[2]) <= _U64_MAX:
            messages.append(MessagePoint(int(match[1]), int(match[2])))
        elif _TIMESTAMP.fullmatch(point):
            timestamp = True
        else:
            raise CommandFailure("invalid bookmark", repr(text[:100]))
    if timestamp:
        raise not_supported_yet("timestamps as bookmarks")
    return StartPoint(epoch, now, tuple(messages))


def _check_interval(text: str) -> None:
    begin, colon, end = text[1:-1].partition(":")
    if text[:1] not in "[(" or text[-1:] not in "])" or not colon or not begin.strip() or not end.strip():
        raise CommandFailure("invalid bookmark", repr(text[:100]))
    for side in (begin, end):
        try:
            _parse_list(side)
        except CommandFailure as failure:
            if failure.reason == "invalid bookmark":
                raise


def format_bookmark(publisher_id: int, sequence: int) -> str:
    """The wire form; `0` (EPOCH) stands for a log that holds nothing yet (transaction_log.md §20, 19)."""
    return f"{publisher_id}|{sequence}|" if publisher_id else "0"
