"""Keyword arguments of publishing, subscribing and querying calls, and their conversion to `opts` and header fields.

The order of the option tokens is fixed (it is the order of `_TOKENS`). The caller's own `options=` text
comes last and is copied verbatim, without a trailing comma. This module does not use commands or connections.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from amps.client.enums import DEFAULT, AckType, Bookmark, Timeout
from amps.client.protocol.delays import Moment

OnFull = Literal["pause", "drop_oldest", "raise"]


class _CommonArgs(TypedDict, total=False):
    replace: bool
    """Replace the subscription with this `sub_id`; all options are given anew."""
    oof: bool
    """Of queries with a subscription: also deliver `oof` messages, for records that no longer match."""
    timestamp: bool
    """Give each message the time at which the server processed it."""
    no_sowkey: bool
    """Leave out the SOW keys."""
    non_regex_topic: bool
    """Take the topic literally, whatever characters it has."""
    live: bool
    """After a replay, deliver new messages before they are durable."""
    pause: bool
    """Enter the subscription paused; `resume` starts it."""
    send_keys: bool
    """Of delta subscriptions: send the key fields with each change."""
    no_empties: bool
    """Of delta subscriptions: leave out messages without a change."""
    with_bookmarks: bool
    """Give the messages of an ordinary subscription bookmarks."""
    conflation: str | float
    """Deliver only the newest message of each key in an interval: seconds, or a text such as `250ms` or `auto`."""
    conflation_key: Sequence[str]
    """The fields that identify messages for conflation."""
    select: Sequence[str]
    """The fields to deliver, such as `-/`, `+/id`."""
    rate: int | str
    """The speed of a replay: messages a second, or a text such as `500KB` (a second) or `2X`."""
    top_n: int
    """The maximum number of records, or of messages of a replay."""
    options: str
    """Further options, comma-separated, sent as they are."""
    sub_id: str
    """The id of the subscription; generated if there is none. It must be stable for MOST_RECENT."""
    ack_type: AckType | str
    """Acknowledgement types to request; they are delivered with `control`."""
    timeout: Timeout
    """Seconds to wait for the server's answer; None = no limit. TimedOutException."""
    control: bool
    """Whether the stream includes markers of groups and acknowledgements."""
    resubscribe: bool
    """Whether an HAClient enters the subscription again after a reconnect; by default it does."""
    max_depth: int
    """The number of messages that the stream buffers; 0 = no bound."""
    on_full: OnFull
    """What a full stream does: `pause` reading, `drop_oldest`, or `raise` (it ends with StreamException)."""
    conflate: bool
    """Whether a newer message replaces an unread one with the same SOW key, in the stream."""


class BookmarkSubscribeArgs(_CommonArgs, total=False):
    """Keywords of bookmark_subscribe."""

    max_backlog: int
    """The unacknowledged queue messages that the subscription may have, by default 1. The server may lower it."""
    bookmark_not_found: Literal["now", "epoch", "fail"]
    """Where to begin if the log lacks the bookmark: `now` (default), `epoch` or `fail` (InvalidBookmarkException)."""
    fully_durable: bool
    """Deliver new messages only after all synchronous destinations have them."""
    rate_max_gap: str | float
    """The longest pause of a replay with a `rate` such as `2X`: seconds, or a text such as `5s`."""


class SubscribeArgs(BookmarkSubscribeArgs, total=False):
    """Keywords of subscribe and delta_subscribe (which takes no bookmark)."""

    bookmark: Bookmark
    """Where the replay begins: see `Bookmark`."""


class QueryArgs(_CommonArgs, total=False):
    """Keywords of sow, sow_and_subscribe and sow_and_delta_subscribe."""

    bookmark: Bookmark
    """Where the replay begins: see `Bookmark`."""
    order_by: str
    """`/field [ASC|DESC]`, comma-separated."""
    batch_size: int
    """The number of records in one message."""
    sow_keys: str | Iterable[str]
    """The keys of the records, as a list or comma-separated."""
    query_id: str
    """The id of the query; by default the command id."""
    skip_n: int
    """The number of records to skip."""
    grouping: Sequence[str]
    """The fields by which an aggregated query groups."""
    projection: Sequence[str]
    """The fields of an aggregated query."""


class PublishArgs(TypedDict, total=False):
    """Keywords of the publishing calls. One that is None counts as absent."""

    expiration: int | None
    """Seconds until the message expires; 0 = never."""
    correlation_id: str | None
    """A text of Base64 characters that is delivered with the message."""
    sow_key: str | None
    """The key of the record, for topics whose publishers make the keys."""
    delay: float | None
    """Seconds, at most ten years, during which no queue delivers the message. They count from the moment at which the
    server reads it; with a publish store, from the call on (queue_guarantees.md §1, Q-47)."""
    not_before: Moment | None
    """The time before which no queue delivers the message: a `datetime` with a time zone, or UNIX seconds. Not together
    with `delay`."""


@dataclass(slots=True)
class CallSettings:
    """Keyword arguments sorted by their purpose."""

    options: str
    headers: dict[str, Any]
    timeout: Timeout
    control: bool
    resubscribe: bool
    max_depth: int | None
    on_full: OnFull | None
    conflate: bool

    @classmethod
    def of_command(cls, control: bool, timeout: Timeout) -> "CallSettings":
        """Return the settings of a call that takes a whole command."""
        return cls("", {}, timeout, control, True, None, None, False)


def check_buffer(max_depth: int, on_full: OnFull) -> None:
    """Check the settings of a stream's buffer. Raises ValueError."""
    if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 0:
        raise ValueError(f"max_depth must be a number of messages, 0 = no bound: {max_depth!r}")
    if on_full not in get_args(OnFull):
        raise ValueError(f"on_full must be one of {', '.join(get_args(OnFull))}: {on_full!r}")


def interval_text(value: str | float) -> str:
    """Return an interval as an option value: a text unchanged, seconds in the largest exact unit of s, ms, us."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
        raise TypeError(f"an interval is a number of seconds, or a text such as 5s: {value!r}")
    if value < 0:
        raise ValueError(f"an interval cannot be negative: {value}")
    microseconds = round(value * 1_000_000)
    if microseconds % 1_000_000 == 0:
        return f"{microseconds // 1_000_000}s"
    if microseconds % 1000 == 0:
        return f"{microseconds // 1000}ms"
    return f"{microseconds}us"


def _word(name: str) -> Callable[[Any], str]:
    return lambda value: name if value else ""


def _interval(name: str) -> Callable[[Any], str]:
    return lambda value: f"{name}={interval_text(value)}"


def _list(name: str) -> Callable[[Any], str]:
    def token(value: str | Sequence[str]) -> str:
        items = [value] if isinstance(value, str) else list(value)
        return f"{name}=[{','.join(items)}]"

    return token


def _count(name: str) -> Callable[[Any], str]:
    def token(value: int) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
        if value < 0:
            raise ValueError(f"{name} cannot be negative: {value}")
        return f"{name}={value}"

    return token


def _value(name: str) -> Callable[[Any], str]:
    return lambda value: f"{name}={value}"


_WORDS = (
    "replace",
    "oof",
    "timestamp",
    "no_sowkey",
    "non_regex_topic",
    "live",
    "fully_durable",
    "pause",
    "send_keys",
    "no_empties",
)
_TOKENS: dict[str, Callable[[Any], str]] = {
    **{name: _word(name) for name in _WORDS},
    "with_bookmarks": _word("bookmark"),
    "conflation": _interval("conflation"),
    "rate_max_gap": _interval("rate_max_gap"),
    **{name: _list(name) for name in ("conflation_key", "select", "grouping", "projection")},
    "max_backlog": _count("max_backlog"),
    "skip_n": _count("skip_n"),
    "rate": _value("rate"),
    "bookmark_not_found": _value("bookmark_not_found"),
}
_HEADERS = ("sub_id", "bookmark", "query_id", "order_by", "batch_size", "sow_keys", "ack_type")
_SETTINGS = ("options", "top_n", "timeout", "control", "resubscribe", "max_depth", "on_full", "conflate")
SUBSCRIBE_KEYWORDS = frozenset(SubscribeArgs.__annotations__)
QUERY_KEYWORDS = frozenset(QueryArgs.__annotations__)
PUBLISH_KEYWORDS = frozenset(PublishArgs.__annotations__)


def join_options(*parts: str) -> str:
    """Join parts to one option string; drop empty parts and trailing commas."""
    return ",".join(stripped for part in parts if (stripped := part.strip().rstrip(",").rstrip()))


def option_items(options: str) -> list[str]:
    """The single options of an option string; commas inside brackets do not separate."""
    items: list[str] = []
    depth = 0
    item = ""
    for character in options + ",":
        if character == "," and depth == 0:
            if item.strip():
                items.append(item.strip())
            item = ""
            continue
        depth += (character in "[(") - (character in "])")
        item += character
    return items


def option_names(options: str) -> set[str]:
    """The names of the options in an option string."""
    return {item.partition("=")[0].strip() for item in option_items(options)} - {""}


def without_options(options: str, *names: str) -> str:
    """Return an option string without the options of these names; the others stay as they are."""
    return ",".join(
        item for item in option_items(options) if item.partition("=")[0].strip() not in names
    )


def is_plain(fields: PublishArgs) -> bool:
    """Whether a publish has no header field of its own."""
    return all(value is None for value in fields.values()) and PUBLISH_KEYWORDS.issuperset(fields)


def check_publish_keywords(fields: PublishArgs) -> None:
    """Raise TypeError for a keyword that no publishing call has."""
    for name in fields:
        if name not in PUBLISH_KEYWORDS:
            raise TypeError(f"a publish has no argument {name!r}")


def split_keywords(
    keywords: Mapping[str, Any], *, query: bool, call: str, forbidden: Iterable[str] = ()
) -> CallSettings:
    """Sort the keyword arguments of one call; an unknown keyword raises TypeError."""
    allowed = (QUERY_KEYWORDS if query else SUBSCRIBE_KEYWORDS) - frozenset(forbidden)
    for name in keywords:
        if name not in allowed:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    tokens = [token(keywords[name]) for name, token in _TOKENS.items() if keywords.get(name) is not None]
    headers = {name: keywords[name] for name in _HEADERS if keywords.get(name) is not None}
    top_n = keywords.get("top_n")
    if top_n is not None:
        if query:
            tokens.append(_count("top_n")(top_n))
        else:
            headers["top_n"] = top_n
    options = join_options(*tokens, keywords.get("options") or "")
    return CallSettings(
        options=options,
        headers=headers,
        timeout=keywords.get("timeout", DEFAULT),
        control=bool(keywords.get("control", False)),
        resubscribe=bool(keywords.get("resubscribe", True)),
        max_depth=keywords.get("max_depth"),
        on_full=keywords.get("on_full"),
        conflate=bool(keywords.get("conflate", False)),
    )
