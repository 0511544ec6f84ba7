"""Journals made byte by byte, without a server and without the code under test."""

import struct
from pathlib import Path

from amps._core.journal.reader import FILE_HEADER_SIZE, build_file_header
from tests.support.records import KIND_END_OF_FILE, KIND_NAME, KIND_TOPIC, RecordParts, padded

START_POSITION = 40_000
TOPIC_HASHES = (77, 78)


def topic_payload(topic: bytes, message_type: bytes, previous: int = 0, topic_hash: int = 77) -> bytes:
    """The payload of a topic record."""
    lengths = len(message_type).to_bytes(4, "little") + len(topic).to_bytes(4, "little")
    return previous.to_bytes(8, "little") + topic_hash.to_bytes(8, "little") + lengths + message_type + topic


def name_payload(name_id: int, text: bytes, previous: int = 0, name_class: int = 1) -> bytes:
    """The payload of a name record."""
    numbers = (
        previous.to_bytes(8, "little") + name_id.to_bytes(8, "little") + name_class.to_bytes(4, "little")
    )
    return numbers + len(text).to_bytes(4, "little") + text


def journal(parts: list[RecordParts], size: int, *, finished: bool = False) -> bytes:
    """A journal with two topics, `red` (json) and `blue` (fix), and these records."""
    names = ((b"red", b"json"), (b"blue", b"fix"))
    records = [
        *(
            RecordParts(topic_payload(*name, topic_hash=hash_), kind=KIND_TOPIC, topic_id=topic_id)
            for topic_id, (name, hash_) in enumerate(zip(names, TOPIC_HASHES, strict=True))
        ),
        *parts,
        *([RecordParts(kind=KIND_END_OF_FILE)] if finished else []),
    ]
    data = bytearray(build_file_header(3, size, START_POSITION, 1, 1, 2, "inst", True))
    for record in records:
        place = RecordParts(**{**vars(record), "position": START_POSITION + len(data)})
        data += padded(place.to_bytes(sealed=True))
    assert len(data) <= size
    return bytes(data).ljust(size, b"\0")


def names_in(path: Path) -> list[tuple[int, bytes]]:
    """All name records of a file, found without the code under test."""
    data = path.read_bytes()
    at = FILE_HEADER_SIZE
    found = []
    while at + 80 <= len(data) and (length := struct.unpack_from("<I", data, at)[0]):
        if struct.unpack_from("<H", data, at + 64)[0] == KIND_NAME:
            payload = data[at + 80 : at + length]
            assert struct.unpack_from("<II", payload, 16) == (1, len(payload) - 24)
            found.append((struct.unpack_from("<Q", payload, 8)[0], payload[24:]))
        at += (length + 7) // 8 * 8
    return found
