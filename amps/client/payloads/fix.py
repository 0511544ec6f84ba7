"""FIX and NVFIX bodies: builders that write `key=value` fields, shredders that read them (client.md §12).

A field is `key=value` followed by a separator, by default 0x01. Keys of FIX are non-negative integers, keys of NVFIX
are texts. Texts are encoded as UTF-8; a value given as bytes is copied, so that a body may hold another encoding. The
builders check only what would change the meaning of the body: a separator in a field, or `=` in a key.
"""

import re
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from amps.client.payloads.bodies import Body, body_bytes

Field = str | bytes | bytearray | memoryview | int | float
"""The types of values that builders take; numbers are written as `str()` writes them."""

K = TypeVar("K", int, str)

_INTEGER = re.compile(r"-?[0-9]+")


def _separator_byte(separator: int | str | bytes) -> bytes:
    """Return a separator as one byte; an integer is the code of a character."""
    if isinstance(separator, int):
        one = bytes((separator,)) if 0 <= separator <= 255 else b""
    elif isinstance(separator, str | bytes):
        one = separator.encode("utf-8") if isinstance(separator, str) else separator
    else:
        raise TypeError(f"the separator must be an int, str or bytes, not {type(separator).__name__}")
    if len(one) != 1:
        raise ValueError(f"the separator must be one byte: {separator!r}")
    if one == b"=":
        raise ValueError("the separator cannot be '=', which ends a key")
    return one


def _tag_text(tag: int | str) -> bytes:
    text = str(tag)
    if isinstance(tag, bool) or not _INTEGER.fullmatch(text):
        raise ValueError(f"a fix body has numbers for keys, not {tag!r}; names are for nvfix")
    if text.startswith("-"):
        raise ValueError(f"a fix tag cannot be negative: {text}")
    return text.encode("ascii")


def _name_text(name: str) -> bytes:
    text = str(name).encode("utf-8")
    if b"=" in text or not text:
        raise ValueError(f"no usable nvfix name: {name!r}")
    return text


def _tag(key: bytes) -> int:
    if not key.isdigit():  # int() would also take signs, blanks and underscores
        raise ValueError(f"a fix tag is a number, not {key[:40]!r}")
    return int(key)


class _Builder:
    """The fields of one body, in the order in which they were appended."""

    _kind = ""

    def __init__(self, separator: int | str | bytes = 1) -> None:
        self._separator = _separator_byte(separator)
        self._body = bytearray()

    def _append(self, key: bytes, value: Field) -> None:
        text = value if isinstance(value, bytes | bytearray | memoryview) else str(value).encode("utf-8")
        text = bytes(text)
        if self._separator in text or self._separator in key:
            raise ValueError(
                f"the {self._kind} field {key[:40]!r} contains the separator {self._separator!r}, "
                "so it would be read as two fields"
            )
        self._body += key
        self._body += b"="
        self._body += text
        self._body += self._separator

    def get_data(self) -> bytes:
        """Return the body; each field ends with the separator."""
        return bytes(self._body)

    def get_string(self) -> str:
        """Return the body as text. Raises UnicodeDecodeError if a value given as bytes is not UTF-8."""
        return self._body.decode("utf-8")

    def size(self) -> int:
        """Return the number of bytes of the body."""
        return len(self._body)

    def reset(self) -> Self:
        """Remove all fields."""
        self._body.clear()
        return self


class FIXBuilder(_Builder):
    """Builds a FIX body: `FIXBuilder().append(35, "D").append(55, "MSFT").get_data()` (client.md §12).

    `separator`: the code of the separator, or the separator as text or bytes. Raises ValueError unless it is one byte.
    """

    _kind = "fix"

    def append(self, tag: int | str, value: Field) -> Self:
        """Append a field.

        Raises ValueError for a tag that is not a non-negative integer, or a separator in the value.
        """
        self._append(_tag_text(tag), value)
        return self


class NVFIXBuilder(_Builder):
    """Builds an NVFIX body: like FIXBuilder, with names for keys (client.md §12)."""

    _kind = "nvfix"

    def append(self, name: str, value: Field) -> Self:
        """Append a field. Raises ValueError for an empty name, `=` in the name, or a separator in the field."""
        self._append(_name_text(name), value)
        return self


class _Shredder(Generic[K]):
    """Reads the fields of a body."""

    _kind = ""

    def __init__(self, separator: int | str | bytes = 1) -> None:
        self._separator = _separator_byte(separator)

    def _key(self, key: bytes) -> K:
        raise NotImplementedError

    def fields(self, data: Body) -> Iterator[tuple[K, str]]:
        """Yield the fields in their order, repeated keys included.

        Raises ValueError for a field without `=`, a key that is no tag (FIX) or empty (NVFIX), or bytes that are not
        UTF-8.
        """
        for pair in body_bytes(data).split(self._separator):
            if pair:
                key, equals, value = pair.partition(b"=")
                if not equals:
                    raise ValueError(f"{self._kind} field without '=': {pair[:40]!r}")
                yield self._key(key), value.decode("utf-8")

    def to_map(self, data: Body) -> dict[K, str]:
        """Return the fields as a dictionary; of a repeated key, the last value. Raises ValueError as `fields` does."""
        return dict(self.fields(data))


class FIXShredder(_Shredder[int]):
    """Reads FIX bodies: `FIXShredder().to_map(message)` returns values by tag (client.md §12)."""

    _kind = "fix"

    def _key(self, key: bytes) -> int:
        return _tag(key)


class NVFIXShredder(_Shredder[str]):
    """Reads NVFIX bodies: `NVFIXShredder().to_map(message)` returns values by name (client.md §12)."""

    _kind = "nvfix"

    def _key(self, key: bytes) -> str:
        if not key:
            raise ValueError("nvfix field without a name")
        return key.decode("utf-8")

