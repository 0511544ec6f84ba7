"""Composite bodies: a builder that joins parts, a parser that separates them (client.md §12, expressions.md §12.6).

Each part that the message type declares is a 4-byte big-endian length and that many bytes. The bytes after the last
declared part are the unparsed payload. It has no length, so a body does not show where the parts end: the parser needs
the number of parts to find the payload.
"""

from typing import Self

from amps.client.payloads.bodies import Body, body_bytes

_LENGTH_BYTES = 4
_MAX_PART_BYTES = 2**32 - 1


class CompositeMessageBuilder:
    """Builds a composite body: `CompositeMessageBuilder().append('{"id":1}').append(photo).get_data()`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._payload = b""

    def append(self, part: Body) -> Self:
        """Append a part, whose type must be the next one that the message type declares. Text is encoded as UTF-8."""
        data = body_bytes(part)
        if len(data) > _MAX_PART_BYTES:
            raise ValueError(f"a part of a composite message holds at most {_MAX_PART_BYTES} bytes: {len(data)}")
        self._parts.append(data)
        return self

    def set_payload(self, payload: Body) -> Self:
        """Set the unparsed payload: bytes after the last part, which the server does not interpret."""
        self._payload = body_bytes(payload)
        return self

    def clear(self) -> Self:
        """Remove all parts and the payload."""
        self._parts.clear()
        self._payload = b""
        return self

    reset = clear
    """The same as `clear`."""

    def size(self) -> int:
        """Return the number of parts."""
        return len(self._parts)

    def get_data(self) -> bytes:
        """Return the body."""
        pieces: list[bytes] = []
        for part in self._parts:
            pieces.append(len(part).to_bytes(_LENGTH_BYTES, "big"))
            pieces.append(part)
        pieces.append(self._payload)
        return b"".join(pieces)


class CompositeMessageParser:
    """Separates a composite body into its parts: `parser.parse(message, parts=2)`, then `get_part(0)`, `payload`."""

    def __init__(self) -> None:
        self._parts: tuple[bytes, ...] = ()
        self._payload = b""

    def parse(self, body: Body, parts: int | None = None) -> int:
        """Read a message or a body; return the number of parts.

        `parts`: the number of parts that the message type declares; the bytes after them are the payload. Without it,
        the whole body must consist of parts. Raises ValueError if the body does not hold its parts; the parser then
        keeps the parts of the last body.
        """
        if parts is not None and (not isinstance(parts, int) or isinstance(parts, bool) or parts < 0):
            raise ValueError(f"parts must be a number of parts: {parts!r}")
        data = body_bytes(body)
        found: list[bytes] = []
        at = 0
        while len(found) < parts if parts is not None else at < len(data):
            start = at + _LENGTH_BYTES
            end = start + int.from_bytes(data[at:start], "big")
            if start > len(data) or end > len(data):
                raise ValueError(_truncated(len(found), at, len(data), parts))
            found.append(data[start:end])
            at = end
        self._parts = tuple(found)
        self._payload = data[at:]
        return len(found)

    def size(self) -> int:
        """Return the number of parts of the last body."""
        return len(self._parts)

    def get_part(self, index: int) -> bytes:
        """Return a part, counted from 0. Raises IndexError if the body has no such part."""
        if not 0 <= index < len(self._parts):
            raise IndexError(f"the composite message has {len(self._parts)} parts, counted from 0: {index}")
        return self._parts[index]

    @property
    def parts(self) -> tuple[bytes, ...]:
        """All parts of the last body."""
        return self._parts

    @property
    def payload(self) -> bytes:
        """The unparsed payload of the last body; empty if `parse` was called without `parts`."""
        return self._payload


def _truncated(index: int, at: int, size: int, parts: int | None) -> str:
    told = f"part {index} of the composite message, at byte {at} of {size}, is incomplete"
    if parts is None:
        told += "; if the message has an unparsed payload, pass parts="
    return told
