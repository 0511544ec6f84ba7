"""What a message contains: its header as named values, and its body as JSON, fields or text, by message type.

A body that cannot be decoded as its message type is text, or Base64 if it is no UTF-8. Numbers of JSON bodies keep all
their digits. Text that may come from others is made printable before it is shown on a terminal.
"""

import base64
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from amps.cli.layouts import TAGS
from amps.client import Message
from amps.client.payloads.codecs import codec_for, json_loads

# The long names of header fields, by the names of the tags of -format; `length` is no field.
HEADER_FIELDS = {"topic": "topic"} | {
    name: {"command": "cmd", "lease_period": "leaseperiod", "sowkey": "sow_key"}.get(name, name)
    for name in sorted(TAGS)
    if name != "length"
}
PAIRS = frozenset(("fix", "nvfix"))
DOCUMENTS = frozenset(("bson", "msgpack"))
FIELD_END = b"\x01"
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


# Made once: `json.dumps` with arguments makes an encoder for each call.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode


def header_of(message: Message) -> dict[str, str | int]:
    """The header fields that the message has, by the names of the tags of -format."""
    fields = message.header
    return {name: fields[field] for name, field in HEADER_FIELDS.items() if field in fields}


def json_text(data: bytes, message_type: str) -> bytes | None:
    """The body as JSON in one line; None if it is none of this message type."""
    try:
        if message_type == "json":
            json_loads(data)
            return data.replace(b"\n", b" ").replace(b"\r", b" ")  # only outside of strings
        if message_type in PAIRS:
            return _encode(pairs(data)).encode()
        if message_type in DOCUMENTS:
            value = codec_for(message_type).decode(data)
            return _encode(value).encode()
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        pass  # the body is not what its type says
    return None


def json_line(message: Message, message_type: str) -> bytes:
    """The message as one JSON object: `header`, and the body as `data`, `text` or `base64`."""
    header = _encode(header_of(message)).encode("utf-8", "backslashreplace")
    data = message.data
    value = json_text(data, message_type)
    if value is not None:
        return b'{"header": %b, "data": %b}' % (header, value)
    try:
        return b'{"header": %b, "text": %b}' % (header, _encode(data.decode()).encode())
    except UnicodeDecodeError:
        return b'{"header": %b, "base64": "%b"}' % (header, base64.b64encode(data))


def pairs(data: bytes) -> dict[str, str | list[str]]:
    """The fields of a fix or nvfix body; a repeated field has a list of values. Raises ValueError."""
    found: dict[str, str | list[str]] = {}
    for pair in data.split(FIELD_END):
        if not pair:
            continue
        name, equals, value = pair.decode().partition("=")
        if not equals:
            raise ValueError(f"there is no '=' in {pair[:40]!r}")
        before = found.get(name)
        if before is None:
            found[name] = value
        elif isinstance(before, list):
            before.append(value)
        else:
            found[name] = [before, value]
    return found


class Number(str):
    """A number as it is written in JSON."""


_decode = json.JSONDecoder(parse_float=Number, parse_int=Number).decode


def fields_of(message: Message, message_type: str) -> Mapping[str, Any] | None:
    """The fields of the body; None if it has none. Numbers are `Number`s."""
    text = json_text(message.data, message_type)
    if text is None:
        return None
    try:
        value = _decode(text.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def text_of(message: Message, message_type: str) -> str:
    """The body for people: indented JSON, one field per line, or its text."""
    data = message.data
    text = json_text(data, message_type)
    if text is not None:
        return indented(text.decode())
    return data.decode("utf-8", "backslashreplace")


def indented(text: str) -> str:
    """JSON on several lines. The text must be valid; its strings and numbers stay as they are."""
    lines: list[str] = [""]
    depth = 0
    before = ""
    for token in _JSON_TOKEN.findall(text):
        if token in "}]":
            depth -= 1
            if before not in ("{", "["):
                lines.append("  " * depth)
        elif before in ("{", "[", ","):
            lines.append("  " * depth)
        if token in ("{", "["):
            depth += 1
        lines[-1] += ": " if token == ":" else token
        before = token
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text that cannot control a terminal: control characters, except for tab and newline, are escaped."""
    if text.isprintable():
        return text  # the usual case
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
