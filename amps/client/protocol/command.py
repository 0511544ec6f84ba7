"""Commands: an application fills in their fields; they are checked and encoded as one frame.

A Command is mutable and reusable; the engine copies it before it adds ids and acknowledgement types.
Attributes that were never set are class attributes, so that creating a command costs only the attributes that
are set: the publish path creates one per message when a store is in use. Bodies are never interpreted, escaped
or checked.
"""

import re
import struct
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from amps.client.enums import DEFAULT, AckType, Bookmark, Data, Timeout
from amps.client.protocol.delays import Moment, delay_ms, moment_after, moment_ms
from amps.client.protocol.framing import build_header, encode_frame, parse_header

_pack_length = struct.Struct(">I").pack
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*\Z")
_TOPIC_REQUIRED = frozenset(
    ("publish", "delta_publish", "subscribe", "delta_subscribe", "sow", "sow_and_subscribe",
     "sow_and_delta_subscribe", "sow_delete", "transaction")
)  # fmt: skip
_NUMBERS = ("expiration", "batch_size", "top_n", "sequence")
_HEADERS = (
    ("topic", "topic"),
    ("filter", "filter"),
    ("order_by", "orderby"),
    ("sub_id", "sub_id"),
    ("query_id", "query_id"),
    ("bookmark", "bookmark"),
    ("sow_key", "sow_key"),
    ("sow_keys", "sow_keys"),
    ("correlation_id", "correlation_id"),
    ("expiration", "expiration"),
    ("batch_size", "batch_size"),
    ("top_n", "top_n"),
    ("sequence", "seq"),
)

_TEXTS = ("command_id", *(a for a, _ in _HEADERS if a not in _NUMBERS), "options")
MAX_NUMBER = 2**63 - 1
MAX_EXPIRATION_S = 2**32 - 2

PUBLISHES = frozenset(("publish", "delta_publish"))
SUBSCRIPTIONS = frozenset(("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"))
QUERIES = frozenset(("sow", "sow_and_subscribe", "sow_and_delta_subscribe"))


def check_text(name: str, value: str) -> str:
    """Return a header text. It must be encodable as UTF-8: the server would close the connection otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has a lone surrogate at {error.start}, which UTF-8 cannot express"
        ) from None
    return value


def check_number(name: str, value: int, most: int = MAX_NUMBER, *, least: int = 0) -> int:
    """Return a header number; it must be an integer between `least` and `most`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must lie between {least} and {most}: {value}")
    return value


def check_timeout(seconds: object) -> float | None:
    """Return a time limit in seconds, None for no limit. A negative limit has already passed."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds != seconds:
        raise TypeError(f"a timeout is a number of seconds or None: {seconds!r}")
    return seconds


def check_seconds(name: str, seconds: float | None) -> float | None:
    """Return a time in seconds, which must not be negative; None = none."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or seconds != seconds:
        raise TypeError(f"{name} must be a number of seconds or None: {seconds!r}")
    if seconds < 0:
        raise ValueError(f"{name} cannot be negative: {seconds}")
    return seconds


def check_command(command: object) -> None:
    """Raise TypeError for what is no Command."""
    if not isinstance(command, Command):
        raise TypeError(f"a Command is needed, such as Command('subscribe', 'topic'): {command!r}")


def check_expiration(value: int) -> int:
    """Return an expiration in whole seconds; 0 = never."""
    return check_number("expiration", value, MAX_EXPIRATION_S)


def check_delay(delay: float | None, not_before: Moment | None) -> None:
    """Raise ValueError or TypeError for a delay and a time that a publish cannot have."""
    if delay is not None and not_before is not None:
        raise ValueError("a message has a delay or a time not_before, not both")
    if delay is not None:
        delay_ms(delay)
    if not_before is not None:
        moment_ms(not_before)


def check_base64(name: str, value: str) -> str:
    """Return a text of Base64 characters: correlation ids and SOW keys made by publishers may hold no others."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not _BASE64.match(value):
        raise ValueError(f"{name} may hold Base64 characters only (A-Z a-z 0-9 + / =): {value!r}")
    return value


def to_bytes(data: Data) -> bytes:
    """Return a body as bytes; a buffer that could change is copied."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if not isinstance(data, bytearray | memoryview):
        raise TypeError(f"a command's data must be bytes-like or str, not {type(data).__name__}")
    return bytes(data)


class PublishTemplate:
    """The header of publish commands to one topic, built once."""

    __slots__ = ("command", "header", "sequenced", "topic")

    def __init__(self, command: str, topic: str, **fields: Any) -> None:
        if not topic:
            raise ValueError(f"{command} needs a topic")
        check_text("topic", topic)
        self.command = command
        self.topic = topic
        self.header: bytes = build_header({"cmd": command, "topic": topic, **fields})
        self.sequenced = self.header[:-1] + b',"a":"persisted","s":'


class Command:
    """One command. Every setter `set_<name>` returns the command, so that calls can be chained.

    Times are in seconds. Values are checked when the command is sent: ValueError, TypeError.
    """

    filter: str | None = None
    """The content filter."""
    order_by: str | None = None
    """`/field [ASC|DESC]`, comma-separated."""
    options: str = ""
    """Options, comma-separated."""
    sub_id: str | None = None
    """The id of the subscription."""
    query_id: str | None = None
    """The id of the query; by default the command id."""
    command_id: str | None = None
    """The id of the command; the client generates one if it is None."""
    bookmark: Bookmark | None = None
    """Where a replay begins: see `Bookmark`."""
    sow_key: str | None = None
    """The key of the record, of Base64 characters."""
    sow_keys: str | None = None
    """The keys of records, comma-separated."""
    correlation_id: str | None = None
    """A text of Base64 characters that is delivered with the message."""
    expiration: int | None = None
    """Seconds; 0 = never expires."""
    delay: float | None = None
    """Seconds during which no queue delivers the message."""
    not_before: Moment | None = None
    """The time before which no queue delivers the message: a `datetime` with a time zone, or UNIX seconds."""
    batch_size: int | None = None
    """The number of records of a result in one message."""
    top_n: int | None = None
    """The maximum number of records of a result, or of messages of a replay."""
    sequence: int | None = None
    """The sequence number."""
    ack_type: AckType = AckType.NONE
    """The requested acknowledgement types."""
    timeout: Timeout = DEFAULT
    """Seconds to wait for the answer; None = no limit, DEFAULT = that of the client."""
    topic: str | None = None
    """A literal topic, or a regular expression where the command takes one."""
    data: Data = b""
    """The body; text is sent as UTF-8."""

    def __init__(
        self,
        command: str,
        topic: str | None = None,
        *,
        filter: str | None = None,
        order_by: str | None = None,
        options: str = "",
        sub_id: str | None = None,
        query_id: str | None = None,
        command_id: str | None = None,
        bookmark: Bookmark | None = None,
        sow_key: str | None = None,
        sow_keys: str | Iterable[str] | None = None,
        correlation_id: str | None = None,
        expiration: int | None = None,
        delay: float | None = None,
        not_before: Moment | None = None,
        batch_size: int | None = None,
        top_n: int | None = None,
        sequence: int | None = None,
        ack_type: AckType | str = AckType.NONE,
        data: Data = b"",
        timeout: Timeout = DEFAULT,
    ) -> None:
        self.command = command
        """The name of the command, such as `subscribe`."""
        self.topic = topic
        self.filter = filter
        self.order_by = order_by
        self.options = options
        self.sub_id = sub_id
        self.query_id = query_id
        self.command_id = command_id
        self.bookmark = bookmark
        self.sow_key = sow_key
        self.set_sow_keys(sow_keys)
        self.correlation_id = correlation_id
        self.expiration = expiration
        self.delay = delay
        self.not_before = not_before
        self.batch_size = batch_size
        self.top_n = top_n
        self.sequence = sequence
        self.ack_type = AckType.parse(ack_type)
        self.data = data
        self.timeout = timeout

    def __repr__(self) -> str:
        told = {
            name: value
            for name, value in vars(self).items()
            if value and value is not DEFAULT and not name.startswith("_") and name not in ("command", "data")
        }
        return f"Command({self.command!r}, {', '.join(f'{k}={v!r}' for k, v in told.items())})"

    # Setters

    def set_topic(self, value: str | None) -> Self:
        """A literal topic, or a regular expression where the command takes one."""
        self.topic = value
        return self

    def set_filter(self, value: str | None) -> Self:
        """The content filter."""
        self.filter = value
        return self

    def set_order_by(self, value: str | None) -> Self:
        """`/field [ASC|DESC]`, comma-separated."""
        self.order_by = value
        return self

    def set_options(self, value: str) -> Self:
        """Options, comma-separated; a trailing comma does not matter."""
        self.options = value
        return self

    def set_sub_id(self, value: str | None) -> Self:
        """The id of the subscription; to replace, pause or resume a subscription, the id of the active one."""
        self.sub_id = value
        return self

    def set_query_id(self, value: str | None) -> Self:
        """The id of the query; by default the command id."""
        self.query_id = value
        return self

    def set_command_id(self, value: str | None) -> Self:
        """The id of the command; if it is not set, the client generates one when it sends the command."""
        self.command_id = value
        return self

    def set_bookmark(self, value: Bookmark | None) -> Self:
        """A bookmark, a comma-separated list of them, a time, a range, or EPOCH, NOW, MOST_RECENT: see `Bookmark`."""
        self.bookmark = value
        return self

    def set_sow_key(self, value: str | None) -> Self:
        """The key of the record, for topics whose publishers make the keys."""
        self.sow_key = value
        return self

    def set_sow_keys(self, value: str | Iterable[str] | None) -> Self:
        """A comma-separated list or an iterable of keys."""
        self.sow_keys = value if value is None or isinstance(value, str) else ",".join(value)
        return self

    def set_correlation_id(self, value: str | None) -> Self:
        """A text of Base64 characters that is delivered with the message."""
        self.correlation_id = value
        return self

    def set_expiration(self, value: int | None) -> Self:
        """Seconds; 0 = never expires."""
        self.expiration = value
        return self

    def set_delay(self, value: float | None) -> Self:
        """Seconds, at most ten years, during which no queue delivers the message (queue_guarantees.md §1).

        They count from the moment at which the server reads it; with a publish store, from now on (Q-47).
        """
        self.delay = value
        return self

    def set_not_before(self, value: Moment | None) -> Self:
        """The time before which no queue delivers the message; not together with a delay.

        A `datetime` with a time zone, or UNIX seconds.
        """
        self.not_before = value
        return self

    def set_batch_size(self, value: int | None) -> Self:
        """The number of records of a result in one message."""
        self.batch_size = value
        return self

    def set_top_n(self, value: int | None) -> Self:
        """The maximum number of records of a result, or of messages of a replay."""
        self.top_n = value
        return self

    def set_sequence(self, value: int | None) -> Self:
        """The sequence number. The publish store sets it; a number set by hand can make the server drop messages."""
        self.sequence = value
        return self

    def set_ack_type(self, value: AckType | str) -> Self:
        """Replace the requested acknowledgement types."""
        self.ack_type = AckType.parse(value)
        return self

    def add_ack_type(self, value: AckType | str) -> Self:
        """Request further acknowledgement types."""
        self.ack_type = self.ack_type | AckType.parse(value)
        return self

    def set_data(self, value: Data) -> Self:
        """The body; text is sent as UTF-8."""
        self.data = value
        return self

    def set_timeout(self, value: Timeout) -> Self:
        """Seconds to wait for the answer; None = no limit."""
        self.timeout = value
        return self

    def reset(self, command: str) -> Self:
        """Clear all fields and set another command name."""
        self.__dict__.clear()
        self.command = command
        return self

    def copy(self) -> Self:
        """An independent command with the same values."""
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        return other

    # Checking and encoding

    def validate(self) -> None:
        """Raise ValueError if no server could accept the command. Called before anything is sent."""
        name = check_text("command", self.command)
        for attribute in _TEXTS:
            text = getattr(self, attribute)
            if text is not None and not isinstance(
                text, datetime
            ):  # a bookmark, which is converted to text later
                check_text(attribute, text)
        for attribute in _NUMBERS:
            number = getattr(self, attribute)
            if number is not None:
                check_number(attribute, number)
        if self.expiration is not None:
            check_expiration(self.expiration)
        check_delay(self.delay, self.not_before)
        if self.topic == "" or (self.topic is None and name in _TOPIC_REQUIRED and not self._is_resume()):
            raise ValueError(f"{name} needs a topic")
        if self.correlation_id is not None:
            check_base64("correlation_id", self.correlation_id)
        if self.sow_key is not None:
            check_base64("sow_key", self.sow_key)
        if name == "sow_delete":
            given = [
                selector
                for selector in ("filter", "sow_keys", "bookmark")
                if getattr(self, selector) is not None
            ]
            if len(self.data):
                given.append("data")
            if len(given) > 1:
                raise ValueError(f"sow_delete takes one selector, not {' and '.join(given)}")

    def _is_resume(self) -> bool:
        return self.sub_id is not None and ("resume" in self.options or "pause" in self.options)

    def header(self) -> dict[str, str | int]:
        """The header fields by their long names."""
        fields: dict[str, str | int] = {"cmd": self.command}
        if self.command_id is not None:
            fields["cmd_id"] = self.command_id
        for attribute, name in _HEADERS:
            value = getattr(self, attribute)
            if value is not None:
                fields[name] = value
        if self.delay is not None:
            fields["delay"] = delay_ms(self.delay)
        if self.not_before is not None:
            fields["not_before"] = moment_ms(self.not_before)
        options = self.options.strip().rstrip(",")
        if options:
            fields["opts"] = options
        if self.ack_type:
            fields["ack_type"] = str(self.ack_type)
        return fields

    def fix_delay(self) -> None:
        """Turn a delay into a time, because the message may be sent again later (queue_guarantees.md Q-47)."""
        if self.delay is not None:
            self.not_before, self.delay = moment_after(self.delay), None

    def encode(self) -> bytes:
        """The frame of this command: length, header, body."""
        frame: bytes = encode_frame(self.header(), to_bytes(self.data))
        return frame

    def numbered_parts(self) -> tuple[bytes, bytes]:
        """The parts of a frame that a publish store will number: the header up to the number, and the body.

        The command requests a persisted acknowledgement.
        """
        fields = self.header()
        fields.pop("seq", None)
        fields["ack_type"] = str(self.ack_type | AckType.PERSISTED)
        return build_header(fields)[:-1] + b',"s":', to_bytes(self.data)


FRAME_OVERHEAD_BYTES = 4 + 20 + 1
"""What a numbered frame has at most besides the two parts that a publish store gets: length, number, brace."""


class TransactionCommand(Command):
    """An acknowledgement and publishes as one command (queue_guarantees.md §4); the engine numbers it."""

    publishes: int

    def __init__(self, queue: str, bookmarks: str, body: bytes, publishes: int) -> None:
        """bookmarks: of the messages to acknowledge. body: the frames of that number of publishes."""
        super().__init__("transaction", queue, bookmark=bookmarks, data=body)
        self.publishes = publishes


def numbered_frame(start: bytes, sequence: int, body: bytes) -> bytes:
    """Return a whole frame from the parts that a publish store gets, and its number."""
    number = b"%d}" % sequence
    return b"".join((_pack_length(len(start) + len(number) + len(body)), start, number, body))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def command_from_frame(frame: bytes) -> Command:
    """Return the publish or delete command in a stored frame."""
    payload = frame[4:]
    fields, body_at = parse_header(payload)
    command = Command(
        str(fields["cmd"]),
        fields.get("topic"),
        filter=fields.get("filter"),
        bookmark=fields.get("bookmark"),
        sow_key=fields.get("sow_key"),
        sow_keys=fields.get("sow_keys"),
        correlation_id=fields.get("correlation_id"),
        expiration=fields.get("expiration"),
        delay=_seconds(fields.get("delay")),
        not_before=_seconds(fields.get("not_before")),
        sequence=fields.get("seq"),
        options=fields.get("opts", ""),
        ack_type=fields.get("ack_type", ""),
        data=payload[body_at:],
    )
    if command.command == "p":
        command.command = "publish"
    return command
