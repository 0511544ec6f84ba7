"""A log as the core writes it, without a server: records go through a ring and the sequencer to one file."""

import struct
from pathlib import Path
from typing import NoReturn

from amps._core.journal.reader import FILE_HEADER_SIZE, build_file_header
from amps._core.journal.writer import IndexBuilder, LogWriter
from amps._core.sequencer.sequencer import Sequencer
from amps._core.shm.memory import ControlPage, Ring
from amps._core.values.value import publisher_id
from amps.server.records import (
    HEADER_BYTES,
    KIND_DECLARE_TOPIC,
    KIND_LOGON,
    NO_EXPIRATION,
    control_record,
)

SUFFIX = ".journal"
KIND_PUBLISH = 1
SERIAL = 1
PUBLISHER = "publisher"
RING_BYTES = 1 << 20
TURN_BYTES = 1 << 20
TIME_NS = 1_700_000_000_000_000_000

# length, checksum, connection slot, serial, 16 bytes of zeros, publisher, sequence, 8 bytes, topic number, expiration,
# kind, 10 bytes, payload length
_PUBLISH = struct.Struct("<IIII16xQQ8xIIH10xI")
assert _PUBLISH.size == HEADER_BYTES


class OneFile:
    """A storage of a single file, sparse until it is written to."""

    def __init__(self, prefix: str, size_bytes: int) -> None:
        self._path = Path(f"{prefix}{0:010d}{SUFFIX}")
        self._size_bytes = size_bytes

    def prepare_file(self, number: int, minimum_bytes: int) -> None:
        """Nothing to prepare; `next_file` raises if there is no room."""

    def next_file(
        self, number: int, start_position: int, minimum_bytes: int, first_txid: int
    ) -> tuple[int, None]:
        if number:
            raise ValueError(f"{self._path}: the messages need more than {self._size_bytes} bytes")
        header = build_file_header(number, self._size_bytes, start_position, first_txid, 1, 2, "perf", True)
        assert len(header) == FILE_HEADER_SIZE
        self._file = self._path.open("w+b", buffering=0)
        self._file.write(header)
        self._file.truncate(self._size_bytes)
        return self._size_bytes, None

    def write(self, offset: int, data: memoryview) -> None:
        self._file.seek(offset)
        self._file.write(data)

    def finish_file(self, number: int, index: IndexBuilder | None) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


class Journal:
    """Messages of one publisher, in the order of adding. `size_bytes`: room for all of them."""

    def __init__(self, prefix: str, size_bytes: int) -> None:
        self._storages = OneFile(prefix, size_bytes), OneFile(f"{prefix}transient.", FILE_HEADER_SIZE * 2)
        self._writer = LogWriter(self._storages[0], True)
        transient = LogWriter(self._storages[1], False)
        self._writer.open_first(0, 0, 1)
        transient.open_first(0, 0, 1)
        self._control = ControlPage()
        self._ring = Ring(RING_BYTES)
        self._sequencer = Sequencer(
            self._writer, transient, lambda topic, message_type: True, self._no_spill, 1, {}, TIME_NS
        )
        self._sequencer.attach_transport(0, self._ring)
        self._topics: dict[str, int] = {}
        self._sequence = 0
        self._publisher_id = publisher_id(PUBLISHER)
        self._push(control_record((PUBLISHER, ""), KIND_LOGON, 0, SERIAL))

    def add(self, topic: str, message_type: str, payload: bytes) -> None:
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = len(self._topics)
            names = (topic.encode(), message_type.encode())
            self._push(control_record(names, KIND_DECLARE_TOPIC, topic=number))
        self._sequence += 1
        header = _PUBLISH.pack(
            HEADER_BYTES + len(payload),
            0,
            0,
            SERIAL,
            self._publisher_id,
            self._sequence,
            number,
            NO_EXPIRATION,
            KIND_PUBLISH,
            len(payload),
        )
        self._push(header + payload)

    def finish(self) -> int:
        """Write all messages; return the position behind the last one."""
        self._turn()
        if self._sequencer.accepted != self._sequence:
            raise ValueError(f"{self._sequencer.accepted} of {self._sequence} messages were accepted")
        for storage in self._storages:
            storage.close()
        return self._writer.position

    def _push(self, record: bytes) -> None:
        while not self._ring.push(record):
            self._turn()

    def _turn(self) -> None:
        while self._sequencer.turn(self._control, TIME_NS, 0, TURN_BYTES):
            self._sequencer.release(())

    def _no_spill(self, token: bytes) -> NoReturn:
        raise ValueError("a message is larger than the ring takes")
