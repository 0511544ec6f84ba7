"""Detects the kind of a file by its first bytes, also inside a compressed file. Nothing else is checked.

Every file format of the server has a magic number of eight bytes and, except for the watermark file, a version after
it. A new format must be added to `KINDS`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from amps.journal.opening import READ_ERRORS, uncompressed

_HEAD_BYTES = 12


class Kind(NamedTuple):
    """A file's kind and the version of its format."""

    name: str
    version: str


KINDS: Mapping[bytes, str] = {
    b"AMPSOJNL": "journal",
    b"AMPSOIDX": "index",
    b"AMPSOTIX": "topic index",
    b"AMPSOCAK": "clients.ack",
    b"AMPSOQAK": "queues.ack",
    b"AMPSOQCA": "queue.cache",
    b"AMPSODUR": "durable",
    b"AMPSOSOW": "sow",
}
_WITHOUT_VERSION = frozenset({"durable"})


def kind_of(path: Path) -> Kind | None:
    """The kind of a file; None if it is no file of the server. Raises OSError if it cannot be read."""
    if path.is_dir():
        return None
    with path.open("rb") as raw:
        try:
            head = uncompressed(raw).read(_HEAD_BYTES)
        except READ_ERRORS:
            return None
    name = KINDS.get(head[:8])
    if name is None or len(head) < _HEAD_BYTES:
        return None
    version = 1 if name in _WITHOUT_VERSION else int.from_bytes(head[8:], "little")
    return Kind(name, f"{version}.0")
