"""The header page of a value file of a SOW topic, and its text files beside it. docs/files.md has the layout.

The core writes the page; `amps._core.sow` reads and writes the slabs behind it. The page has three parts, which are
written one by one, so that a torn write of one does not harm the others:

- what the file is: topic, message type, size of its slabs, definition of its keys. It never changes.
- the *beginning*: from which transaction id on the past can be read. It is on the device before values are carried over
  from journals that are to be removed.
- where the log is that has the other values of the topic: for tools that are given the file alone.
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

import msgpack

from amps._core.journal.reader import checksum
from amps._core.sow.table import VALUE_FILE_HEADER_BYTES, VALUE_FILE_MAGIC, VALUE_FILE_VERSION

NEVER = 0xFFFFFFFFFFFFFFFF
IDENTITY_BYTES = 2048
"""The first part of the page."""
_BEGIN_OFFSET = 2048
_PLACE_OFFSET = 2560
_IDENTITY = struct.Struct("<8sIIQII")  # magic, version, checksum, slab size, definition, length of the texts
_BEGIN = struct.Struct("<QQ")  # transaction id, its bitwise inverse
_PLACE = struct.Struct("<II")  # length and checksum of the texts
_NAME_HEAD = struct.Struct("<II")


class ValueFileUnusable(Exception):
    """A value file that is damaged, or belongs to another topic or definition; the text has the reason."""


@dataclass(frozen=True, slots=True)
class ValueFileHeader:
    """What a value file is. `definition` is that of the topic's keys (`KeyMaker.definition`). Records of the log before
    the UNIX time `begin_ns` do not belong to the topic (sow.md §4, RecoveryPoint).
    """

    topic: str
    message_type: str
    slab_size: int
    definition: int
    begin_ns: int = 0

    def to_bytes(self) -> bytes:
        """The first part of the page. Raises ValueFileUnusable if the names are too long for it."""
        texts: bytes = msgpack.packb([self.topic, self.message_type, self.begin_ns])
        if len(texts) > IDENTITY_BYTES - _IDENTITY.size:
            raise ValueFileUnusable(f"the name of the topic is longer than {IDENTITY_BYTES - _IDENTITY.size} bytes")
        rest = struct.pack("<QII", self.slab_size, self.definition, len(texts)) + texts
        head = struct.pack("<8sII", VALUE_FILE_MAGIC, VALUE_FILE_VERSION, checksum(rest)) + rest
        return head.ljust(IDENTITY_BYTES, b"\0")


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the journals of a topic are. Paths are absolute."""

    instance: str
    directory: Path
    archive: Path | None


def read_identity(page: bytes) -> ValueFileHeader:
    """Read the first part of a page. Raises ValueFileUnusable."""
    if len(page) < VALUE_FILE_HEADER_BYTES or page[: len(VALUE_FILE_MAGIC)] != VALUE_FILE_MAGIC:
        raise ValueFileUnusable("it is no value file of a SOW topic")
    _, version, sum_, slab_size, definition, length = _IDENTITY.unpack_from(page)
    if version != VALUE_FILE_VERSION:
        raise ValueFileUnusable(f"its format has version {version}, and this server writes {VALUE_FILE_VERSION}")
    if length > IDENTITY_BYTES - _IDENTITY.size or checksum(page[16 : _IDENTITY.size + length]) != sum_:
        raise ValueFileUnusable("the checksum of its header does not match")
    topic, message_type, begin_ns = msgpack.unpackb(page[_IDENTITY.size : _IDENTITY.size + length])
    return ValueFileHeader(topic, message_type, slab_size, definition, begin_ns)


def check_identity(page: bytes, expected: ValueFileHeader) -> int:
    """Return `begin_ns` of the file, which was decided when it was made.

    Raises ValueFileUnusable unless the file is the expected one.
    """
    found = read_identity(page)
    if (found.topic, found.message_type) != (expected.topic, expected.message_type):
        raise ValueFileUnusable(f"it belongs to topic {found.topic!r} of type {found.message_type}")
    if found.slab_size != expected.slab_size:
        raise ValueFileUnusable(f"it was made with a SlabSize of {found.slab_size} bytes")
    if found.definition != expected.definition:
        raise ValueFileUnusable("it was made with another Key or KeyDomain")
    return found.begin_ns


def read_begin(page: bytes) -> int:
    """The transaction id from which on the past can be read. 0: from the beginning of the log on. NEVER: it cannot,
    because the topic is not recorded, or because the number was torn.
    """
    txid, inverse = _BEGIN.unpack_from(page, _BEGIN_OFFSET)
    if not txid and not inverse:
        return 0
    return int(txid) if txid ^ inverse == NEVER else NEVER


def write_begin(descriptor: int, txid: int) -> None:
    """Write it; the caller syncs the file. Raises OSError."""
    os.pwrite(descriptor, _BEGIN.pack(txid, txid ^ NEVER), _BEGIN_OFFSET)


def read_log_place(page: bytes) -> LogPlace | None:
    """Where the log was when the server started last; None: the topic is not recorded, or it is not known."""
    length, sum_ = _PLACE.unpack_from(page, _PLACE_OFFSET)
    texts = page[_PLACE_OFFSET + _PLACE.size :][:length]
    if not length or len(texts) < length or checksum(texts) != sum_:
        return None
    instance, directory, archive = msgpack.unpackb(texts)
    return LogPlace(instance, Path(directory), None if archive is None else Path(archive))


def write_log_place(descriptor: int, place: LogPlace | None) -> None:
    """Write it, if there is room for its texts. Raises OSError."""
    texts = b""
    if place is not None:
        archive = None if place.archive is None else str(place.archive)
        texts = msgpack.packb([place.instance, str(place.directory), archive])
    made = _PLACE.pack(len(texts), checksum(texts) if texts else 0) + texts
    room = VALUE_FILE_HEADER_BYTES - _PLACE_OFFSET
    if len(made) > room:
        made = b""
    made = made.ljust(room, b"\0")
    if os.pread(descriptor, room, _PLACE_OFFSET) != made:
        os.pwrite(descriptor, made, _PLACE_OFFSET)


def names_path(path: Path) -> Path:
    """The file with the names of the logical topics of a topic with `Pattern`, beside its value file."""
    return path.with_name(f"{path.name}.topics")


def name_record(name: str) -> bytes:
    """A name as it stands in that file."""
    text = name.encode("utf-8", "surrogatepass")
    return _NAME_HEAD.pack(len(text), checksum(text)) + text


def read_names(data: bytes) -> tuple[list[str], int]:
    """The names, in the order of their numbers, and the number of bytes that they take. A name that is cut off at the
    end was never used.
    """
    names = []
    at = 0
    while len(data) - at >= _NAME_HEAD.size:
        length, sum_ = _NAME_HEAD.unpack_from(data, at)
        text = data[at + _NAME_HEAD.size : at + _NAME_HEAD.size + length]
        if len(text) < length or checksum(text) != sum_:
            break
        names.append(text.decode("utf-8", "surrogatepass"))
        at += _NAME_HEAD.size + length
    return names, at
