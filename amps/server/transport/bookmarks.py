"""Bookmarks as text (transaction_log.md §5): where a subscription begins in the log, and where it ends.

A bookmark is a list of points, or a range between two of them. Points are messages, times, the epoch and now. This
module only parses them; `start_search.py` finds their positions in a log.

A list with a malformed point is malformed (§20, 6). The point may be the earliest one, so a subscription that began at
another point would miss messages without notice. The subscription is refused, and the log names the point.
"""

from dataclasses import dataclass

from amps.journal.bookmark_text import read_message_bookmark, read_moment_us
from amps.server.transport.failures import CommandFailure


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """The message with this publisher id and sequence."""

    publisher_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Points:
    """One side of a range. Times are UNIX microseconds."""

    epoch: bool = False
    now: bool = False
    messages: tuple[MessagePoint, ...] = ()
    times_us: tuple[int, ...] = ()


NOW = Points(now=True)


@dataclass(frozen=True, slots=True)
class BookmarkRange:
    """A parsed bookmark header. It begins at the earliest of the points of `begin` and ends at the latest of `end`. The
    point itself belongs to the range if the side is inclusive. A bookmark that is not a range has no end.
    """

    begin: Points
    begin_inclusive: bool = False
    end: Points | None = None
    end_inclusive: bool = False

    @property
    def is_now(self) -> bool:
        """Whether the bookmark is NOW alone, which selects no past messages."""
        return self.begin == NOW and self.end is None


def parse_bookmark(text: str) -> BookmarkRange:
    """Parse the `bm` header of a subscription. Raises CommandFailure."""
    text = text.strip()
    if text[:1] not in ("[", "(") and text[-1:] not in ("]", ")"):
        return BookmarkRange(_parse_list(text))
    begin, colon, end = text[1:-1].partition(":")
    if text[:1] not in ("[", "(") or text[-1:] not in ("]", ")") or not colon:
        raise CommandFailure("invalid bookmark", repr(text[:100]))
    return BookmarkRange(_parse_list(begin), text[0] == "[", _parse_list(end), text[-1] == "]")


def _parse_list(text: str) -> Points:
    epoch = now = False
    messages: list[MessagePoint] = []
    times_us: list[int] = []
    for item in text.split(","):
        point = item.strip()
        message = read_message_bookmark(point)
        if point == "0":
            epoch = True
        elif point.replace(" ", "") in ("0|1", "0|1|"):
            now = True
        elif message is not None:
            messages.append(MessagePoint(*message))
        else:
            times_us.append(_parse_time(point))
    return Points(epoch, now, tuple(messages), tuple(times_us))


def _parse_time(text: str) -> int:
    try:
        return read_moment_us(text)
    except ValueError:
        detail = f"{text[:100]!r} is no bookmark of a message, no moment, and neither 0 nor 0|1|"
        raise CommandFailure("invalid bookmark", detail) from None
