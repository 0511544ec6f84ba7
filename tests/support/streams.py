"""Logs that grow record by record, for the streams of replication: made byte by byte, without the code under test."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amps._core.journal.reader import LogCursor, LogDirectory, build_file_header
from amps._core.replication.stream import FRAME_DATA, FRAME_NAMES
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from tests.support.journals import name_payload, topic_payload
from tests.support.records import (
    KIND_END_OF_FILE,
    KIND_NAME,
    KIND_TOPIC,
    PATH,
    SOURCE,
    RecordParts,
    element,
    padded,
)

HEADER_BYTES = 4096
KIND_TRANSACTION = 19
TRANSACTION_BYTES = 96
SECOND_NS = 10**9
CLIENT_CLASS, PATH_CLASS = 1, 3


@dataclass(frozen=True)
class Logged:
    """A record as it is in a log."""

    parts: RecordParts
    raw: bytes
    topic: str
    path: bytes
    group: int
    """Number of its transaction; 0 = none."""

    @property
    def end(self) -> int:
        return self.parts.position + len(padded(self.raw))


class GrowingLog:
    """A log in a directory. Records are appended; a full file is ended, and the next one begun."""

    def __init__(self, directory: Path, file_bytes: int = 1 << 16, first_txid: int = 1) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.prefix = f"{directory}/log."
        self.file_bytes = file_bytes
        self.number = 0
        self.txid = first_txid
        self.records: list[Logged] = []
        self.groups = 0
        self.time_ns = 1000 * SECOND_NS
        self._shared: LogDirectory | None = None
        self._begin(1, 0)

    def path(self, number: int) -> Path:
        return Path(f"{self.prefix}{number:010d}.journal")

    def _begin(self, number: int, start: int) -> None:
        self.number, self.start = number, start
        header = build_file_header(number, self.file_bytes, start, self.txid, 1, 2, "log", True)
        self.path(number).write_bytes(header + bytes(self.file_bytes - len(header)))
        self.position = start + HEADER_BYTES
        self.topics: dict[tuple[str, str], int] = {}
        self.names: set[int] = set()
        self.last_topic_offset = self.last_name_offset = 0

    def _put(self, parts: RecordParts) -> tuple[RecordParts, bytes]:
        placed = replace(parts, position=self.position)
        raw = placed.to_bytes(sealed=True)
        with self.path(self.number).open("r+b") as file:
            file.seek(self.position - self.start)
            file.write(padded(raw))
        self.position += len(padded(raw))
        return placed, raw

    def _name(self, name_class: int, text: bytes) -> int:
        name_id = publisher_id(text.decode())
        if name_id not in self.names:
            payload = name_payload(name_id, text, self.last_name_offset, name_class)
            self.last_name_offset = self.position - self.start
            self._put(RecordParts(payload, kind=KIND_NAME, txid=self.txid))
            self.names.add(name_id)
        return name_id

    def rotate(self) -> None:
        """End the file and begin the next one."""
        self._put(RecordParts(kind=KIND_END_OF_FILE))
        self._begin(self.number + 1, self.start + self.file_bytes)

    def append(
        self,
        client: str,
        sequence: int,
        topic: str = "t",
        path: bytes = b"",
        source: tuple[int, int] | None = None,
        message_type: str = "json",
        extension: bytes = b"",
        **fields: Any,
    ) -> Logged:
        """One record. `path`: the instances it passed; `source`: name id of the upstream, and transaction id there."""
        return self.append_group(
            [(client, sequence, topic, path, source, message_type, extension, fields)], False
        )[0]

    def append_group(self, wanted: list[tuple[Any, ...]], is_transaction: bool = True) -> list[Logged]:
        """Records as one transaction."""
        need = sum(1000 + len(one[2]) + len(one[3]) + len(one[7].get("payload", b"")) for one in wanted)
        if self.position - self.start + need > self.file_bytes - 200:
            self.rotate()
        made = []
        for client, sequence, topic, path, source, message_type, extension, fields in wanted:
            key = (topic, message_type)
            if key not in self.topics:
                self.topics[key] = len(self.topics)
                text = topic_payload(topic.encode(), message_type.encode(), self.last_topic_offset)
                self.last_topic_offset = self.position - self.start
                self._put(RecordParts(text, kind=KIND_TOPIC, topic_id=self.topics[key], txid=self.txid))
            publisher = fields.pop("publisher_id", None) or self._name(CLIENT_CLASS, client.encode())
            if source is not None:
                extension += element(SOURCE, *source)
            if path:
                extension += element(PATH, self._name(PATH_CLASS, path))
            parts = RecordParts(
                publisher_id=publisher,
                sequence=sequence,
                topic_id=self.topics[key],
                extension=extension,
                **fields,
            )
            made.append((parts, topic, path))
        if is_transaction:
            self.groups += 1
            sizes = [len(padded(parts.to_bytes())) for parts, _, _ in made]
            payload = struct.pack("<QII", sum(sizes), len(sizes), 0)
            self._put(RecordParts(payload, kind=KIND_TRANSACTION, txid=self.txid, timestamp_ns=self.time_ns))
        logged = []
        for parts, topic, path in made:
            self.time_ns += SECOND_NS
            placed, raw = self._put(replace(parts, txid=self.txid, timestamp_ns=self.time_ns))
            logged.append(Logged(placed, raw, topic, path, self.groups if is_transaction else 0))
            self.txid += 1
        self.records += logged
        return logged

    def directory(self, topics: TopicTable) -> LogDirectory:
        return LogDirectory(self.prefix, ".journal", topics.entry)

    def cursor(self, topics: TopicTable, number: int = 1) -> LogCursor:
        """All cursors share the files, and the topics of the first one, as those of a process do."""
        if self._shared is None:
            self._shared = self.directory(topics)
        return LogCursor(self._shared, number, 0, True)


def topic_table(refusal: Callable[[str], str | None] = lambda topic: None) -> TopicTable:
    """The topics of a process that records all of them."""
    return TopicTable(lambda topic, message_type: (True, False, refusal(topic), None))


@dataclass(frozen=True)
class Received:
    """A record of a DATA frame."""

    raw: bytes
    txid: int
    kind: int
    journal: int


def records_of(payload: bytes) -> list[Received]:
    """The records of a DATA frame, read without the code under test."""
    journal, count, zero = struct.unpack_from("<QII", payload)
    assert zero == 0
    at, found = 16, []
    while at < len(payload):
        length = struct.unpack_from("<I", payload, at)[0]
        txid = struct.unpack_from("<Q", payload, at + 16)[0]
        kind = struct.unpack_from("<H", payload, at + 64)[0]
        found.append(Received(payload[at : at + length], txid, kind, journal))
        assert not any(payload[at + length : at + (length + 7) // 8 * 8])
        at += (length + 7) // 8 * 8
    assert at == len(payload)
    assert count == len(found)
    return found


def names_of(payload: bytes) -> list[tuple[int, int, int, bytes]]:
    """[(journal, kind, id, text)] of a NAMES frame."""
    (journal,) = struct.unpack_from("<Q", payload)
    at, found = 8, []
    while at < len(payload):
        kind, length, name_id = struct.unpack_from("<IIQ", payload, at)
        found.append((journal, kind, name_id, payload[at + 16 : at + 16 + length]))
        at += 16 + (length + 7) // 8 * 8
    assert at == len(payload)
    return found


def whole(frames: list[tuple[int, list[bytes | memoryview]]]) -> list[tuple[int, bytes]]:
    """Frames of a source with their payloads in one piece."""
    return [(kind, b"".join(parts)) for kind, parts in frames]


def records_in(frames: list[tuple[int, bytes]]) -> list[Received]:
    """All records of the DATA frames among some frames."""
    assert {kind for kind, _ in frames} <= {FRAME_DATA, FRAME_NAMES}
    return [one for kind, payload in frames if kind == FRAME_DATA for one in records_of(payload)]


def ack_payload(through: int, exceptions: list[tuple[int, int]]) -> bytes:
    """The payload of an ACK frame."""
    return struct.pack("<QII", through, len(exceptions), 0) + b"".join(
        struct.pack("<QQ", *one) for one in exceptions
    )
