"""Records as bytes, made without the code under test, and a storage that keeps a log in a directory.

The layout is the one docs/files.md documents; CRC32C is computed bit by bit from its definition.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from amps._core.journal.reader import FILE_HEADER_SIZE, build_file_header
from amps._core.journal.writer import IndexBuilder

HEADER_BYTES = 80
NO_EXPIRATION = 0xFFFFFFFF
KIND_PUBLISH = 1
KIND_TOPIC = 16
KIND_END_OF_FILE = 17
KIND_NAME = 18
FLAG_DERIVED_PUBLISHER = 1


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC32C (Castagnoli) as RFC 3720 defines it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def padded(data: bytes) -> bytes:
    """The bytes with zeros up to a multiple of 8."""
    return data + bytes(-len(data) % 8)


@dataclass(frozen=True)
class RecordParts:
    """A record's fields; `slot` and `serial` stand where a ring's record has them."""

    payload: bytes = b""
    kind: int = KIND_PUBLISH
    topic_id: int = 0
    publisher_id: int = 0
    sequence: int = 0
    txid: int = 0
    timestamp_ns: int = 0
    durable_position: int = 0
    position: int = 0
    expiration_s: int = NO_EXPIRATION
    flags: int = 0
    correlation_id: bytes = b""
    user_id: bytes = b""
    sow_key: bytes = b""
    extension: bytes = b""

    def to_bytes(self, *, sealed: bool = False) -> bytes:
        """Unpadded; `sealed`: with its checksum, as it stands in a file."""
        rest = self.extension + self.correlation_id + self.user_id + self.sow_key + self.payload
        header = struct.pack(
            "<II6QIIHHHHHHI",
            HEADER_BYTES + len(rest),
            0,
            self.position,
            self.txid,
            self.timestamp_ns,
            self.publisher_id,
            self.sequence,
            self.durable_position,
            self.topic_id,
            self.expiration_s,
            self.kind,
            self.flags,
            len(self.correlation_id),
            len(self.user_id),
            len(self.sow_key),
            len(self.extension),
            len(self.payload),
        )
        assert len(header) == HEADER_BYTES
        record = header + rest
        if sealed:
            record = record[:4] + struct.pack("<I", crc32c(record[8:])) + record[8:]
        return record


def element(tag: int, *words: int) -> bytes:
    """One element of the extension area."""
    value = struct.pack(f"<{len(words)}Q", *words)
    return struct.pack("<HH", tag, len(value)) + value


CLIENT, EXPIRY, SOURCE, PATH, STATE = 1, 2, 3, 4, 7
"""Tags of the extension area."""


def ring_position(slot: int, serial: int) -> int:
    """The position field of a record in a ring, which names its session."""
    return serial << 32 | slot


class DirectoryStorage:
    """Keeps a log as files of one directory, in the format of the journal; nothing is synced."""

    def __init__(self, directory: Path, size_bytes: int, name: str = "log") -> None:
        self.directory = directory
        self.size_bytes = size_bytes
        self.name = name
        self.indexes: dict[int, bytes] = {}
        """The indexes of the finished files, by number."""
        self.numbers: list[int] = []

    @property
    def prefix(self) -> str:
        return f"{self.directory}/{self.name}."

    def path(self, number: int) -> Path:
        return Path(f"{self.prefix}{number:010d}.journal")

    def prepare_file(self, number: int, minimum_bytes: int) -> None:
        """Do nothing: there is always a next file."""

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, None]:
        size = max(self.size_bytes, (minimum_bytes + 4095) // 4096 * 4096)
        header = build_file_header(number, size, start_position, first_txid, 1, 2, self.name, True)
        self.path(number).write_bytes(header + bytes(size - FILE_HEADER_SIZE))
        self.numbers.append(number)
        self._file = self.path(number).open("r+b", buffering=0)
        return size, None

    def write(self, offset: int, data: memoryview) -> None:
        self._file.seek(offset)
        self._file.write(data)

    def finish_file(self, number: int, index: IndexBuilder | None) -> None:
        self._file.close()
        if index is not None:
            self.indexes[number] = index.to_bytes()
