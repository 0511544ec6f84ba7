"""The forms in which utilities accept a body: a message, or the body itself."""

from typing import Any, Protocol


class Bodied(Protocol):
    """An object with a body: `amps.client.Message`, which this package cannot import."""

    @property
    def data(self) -> bytes:
        """The body."""


Body = Bodied | bytes | bytearray | memoryview | str
"""A message, or a body; text is encoded as UTF-8."""


def body_bytes(body: Any) -> bytes:
    """Return the body of a message, or a body, as bytes. Raises TypeError for anything else."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode("utf-8")
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    data = getattr(body, "data", None)
    if not isinstance(data, bytes):
        raise TypeError(f"a body is a Message, bytes-like or str, not {type(body).__name__}")
    return data
