"""`-format`: the layout of one message, as literal text with tags for fields of its header and for its body."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from amps.client import Message

# The values of the tags of -format.
TAGS: dict[str, Callable[[Message], object]] = {
    "bookmark": lambda message: message.bookmark,
    "command": lambda message: message.command,
    "correlation_id": lambda message: message.correlation_id,
    "expiration": lambda message: message.expiration,
    "lease_period": lambda message: message.lease_period,
    "length": lambda message: len(message.data),
    "reason": lambda message: message.reason,
    "sowkey": lambda message: message.sow_key,
    "user_id": lambda message: message.user_id,
    "timestamp": lambda message: message.timestamp,
    "topic": lambda message: message.topic,
}
NAMES = ("data", *TAGS)
# A name in braces, or a brace after a backslash; every other brace is literal.
TAG = re.compile(r"\\([{}])|\{([A-Za-z_]\w*)\}")


@dataclass(frozen=True)
class Layout:
    """The output format of a message: literal bytes and fields. `names`: the names of all tags in it."""

    pieces: tuple[bytes | Callable[[Message], bytes], ...]
    names: frozenset[str]

    def __call__(self, message: Message) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in self.pieces)


class Format(click.ParamType[Layout]):
    """Text with tags: the output format of a message."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Layout:
        names: set[str] = set()
        pieces: list[bytes | Callable[[Message], bytes]] = []
        end = 0
        for found in TAG.finditer(value):
            brace, name = found.groups()
            if name is not None and name not in NAMES:
                self.fail(
                    f"there is no tag {{{name}}}; there are {known_tags()}. For the text itself write "
                    f"\\{{{name}}}",
                    param,
                    ctx,
                )
            if name is not None:
                names.add(name)
            pieces.append(os.fsencode(value[end : found.start()]))
            pieces.append(brace.encode() if name is None else field_printer(name))
            end = found.end()
        pieces.append(os.fsencode(value[end:]))
        return Layout(tuple(pieces), frozenset(names))


def known_tags() -> str:
    return ", ".join(f"{{{name}}}" for name in NAMES)


def body(message: Message) -> bytes:
    return message.data


def field_printer(name: str) -> Callable[[Message], bytes]:
    """Return the function that prints a tag's value; it prints nothing if the message lacks the field."""
    if name == "data":
        return body
    field = TAGS[name]

    def printed(message: Message) -> bytes:
        value = field(message)
        return b"" if value is None else str(value).encode()

    return printed
