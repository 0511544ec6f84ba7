"""A sequencer with SOW topics, without processes: what its state must be, restarts, and the removal of journals."""

import json
import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.journal.writer import LogWriter
from amps._core.sequencer.sequencer import CarryOver, SowTopic, replay_states
from amps._core.sow.shaping import KeyMaker
from amps._core.sow.table import (
    VALUE_FILE_HEADER_BYTES,
    JournalPlaces,
    KeyMemory,
    KeyTable,
    StateReader,
    TopicState,
    ValueFile,
    table_bytes,
)
from amps.journal.value_file import NEVER, LogPlace, ValueFileHeader, write_begin, write_log_place
from amps.messages import make_message_types, standard_settings
from tests.support.feed import UNLOGGED_PREFIX, Feed, Feeder, Member
from tests.support.records import STATE, RecordParts, element

JSON = make_message_types(standard_settings().values())["json"]
SLAB_SIZE = 4096
KIND_SOW_DELETE = 3
FLAG_DELTA = 2
FAR = (1 << 63) - 1


@dataclass
class Kept:
    """The files of a SOW topic."""

    name: str
    directory: Path
    expires: bool = True
    keys: KeyMaker = field(init=False)
    descriptor: int = field(init=False)
    memory: mmap.mmap = field(init=False)
    sow: SowTopic = field(init=False)

    def __post_init__(self) -> None:
        self.keys = KeyMaker(self.name.encode(), [(b"id",)], JSON.extractor())
        path = self.directory / f"{self.name}.sow"
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def make(self) -> None:
        """Make the state, and take the records of the value file."""
        with (self.directory / f"{self.name}.keys").open("w+b") as file:
            file.truncate(table_bytes())
            self.memory = mmap.mmap(file.fileno(), table_bytes())
        values = ValueFile(
            self.descriptor,
            SLAB_SIZE,
            True,
            lambda offset, length: os.posix_fallocate(self.descriptor, offset, length),
        )
        if not os.fstat(self.descriptor).st_size:
            os.posix_fallocate(self.descriptor, 0, VALUE_FILE_HEADER_BYTES)
        recorded = not self.name.startswith(UNLOGGED_PREFIX)
        state = TopicState(KeyTable(self.memory), values, self.expires, recorded)
        state.take_file(os.fstat(self.descriptor).st_size)
        self.sow = SowTopic(state, False, JSON.documents())

    def reader(self, places: JournalPlaces) -> StateReader:
        """A reader of the state, as in another process."""
        return StateReader(
            KeyMemory(self.memory, False), ValueFile(self.descriptor, SLAB_SIZE, False), places
        )

    def close(self) -> None:
        """Close the value file."""
        os.close(self.descriptor)


class SowCore:
    """A core with one topic in the journal, `kept`, and one that is not recorded, `plain`."""

    def __init__(self, directory: Path, file_bytes: int = 65536) -> None:
        self.directory = directory
        self.topics = {name: Kept(name, directory) for name in ("kept", UNLOGGED_PREFIX)}
        self._sequence = 0
        self.now_ns = 1_000_000_000
        self._begin(None, file_bytes)

    def _begin(self, earlier: Feeder | None, file_bytes: int) -> None:
        for topic in self.topics.values():
            topic.make()
        self.first_number = getattr(self, "first_number", 0)
        places = JournalPlaces(self._directory(), lambda: (self.first_number, self.feeder.journal.number))
        parts = (
            self._find,
            [topic.sow for topic in self.topics.values()],
            places,
        )
        if earlier is None:
            self.feeder = Feeder(self.directory, file_bytes, sow=parts)
        else:
            journal = earlier.journal
            self.feeder = Feeder.over(earlier, journal, sow=parts)
        for name in self.topics:
            self.feeder.sequencer.topic_number(name, "json")
        self.places = places

    def _directory(self) -> LogDirectory:
        return LogDirectory(f"{self.directory}/journal.", ".journal", self._find)

    def _find(self, topic: str, message_type: str) -> Member | None:
        return (self.topics[topic].sow, 0, self.topics[topic].keys) if topic in self.topics else None

    # --- what clients do -----------------------------------------------------------------------------------

    def publish(
        self, topic: str, message: dict[str, Any], *, delta: bool = False, lifetime_s: int | None = None
    ) -> int:
        """Publish a message. Returns its transaction id."""
        payload = json.dumps(message).encode()
        maker = self.topics[topic].keys
        parts = RecordParts(
            payload,
            flags=FLAG_DELTA if delta else 0,
            extension=element(STATE, maker.key(payload), 0, maker.definition),
            **({} if lifetime_s is None else {"expiration_s": lifetime_s}),  # type: ignore[arg-type]
        )
        return self._send(topic, parts)

    def delete(self, topic: str, *ids: int, seen: dict[int, int] | None = None) -> list[Any]:
        """Delete keys. `seen`: by id, the transaction id that its newest record must have. Returns the answers."""
        maker = self.topics[topic].keys
        wanted = sorted((maker.key(b'{"id":%d}' % id_), (seen or {}).get(id_, 0)) for id_ in ids)
        payload = struct.pack("<II", 7, len(wanted)) + b"".join(struct.pack("<QQ", *one) for one in wanted)
        self._send(topic, RecordParts(payload, kind=KIND_SOW_DELETE))
        return [reply for _, reply in self.feeder.sequencer.take_replies() if reply[0] == "sow_deleted"]

    def _send(self, topic: str, parts: RecordParts) -> int:
        self._sequence += 1
        self.feeder.push(Feed(0, self._sequence, topic, parts))
        before = self.next_txid
        self.turn()
        return before

    def turn(self) -> None:
        """Let the core do its work at the current time."""
        self.feeder.turn(self.now_ns, 0)

    @property
    def next_txid(self) -> int:
        """The transaction id of the next record."""
        return int(self.feeder.sequencer.next_txid)

    # --- what can be read ----------------------------------------------------------------------------------

    def state(self, topic: str, txid: int = FAR) -> dict[int, Any]:
        """{id: message} of a snapshot, read as another process does."""
        reader = self.topics[topic].reader(
            JournalPlaces(self._directory(), lambda: (self.first_number, self.feeder.journal.number))
        )
        found = reader.values_at(txid, FAR)
        messages = [json.loads(payload) for _, payload in found.values()]
        return {message["id"]: message for message in messages}

    # --- what happens to the instance ----------------------------------------------------------------------

    def restart(self) -> None:
        """Begin again with the files, as after the death of the process."""
        earlier = self.feeder
        self._sequence = 0
        self._begin(earlier, 0)
        journal = self.feeder.journal
        cursor = LogCursor(self._directory(), self.first_number, 0, True)
        while not replay_states(cursor, journal.position, 4096):
            pass
        start = LogCursor(self._directory(), self.first_number, 0, True).position - VALUE_FILE_HEADER_BYTES
        for topic in self.topics.values():
            topic.sow.state.begin_carrying(1)
            topic.sow.state.end_carrying(start)

    def remove_journals(self, beginning: int) -> int:
        """Remove the journals before that number. Returns the transaction id from which the past can be read."""
        directory = self._directory()
        file = directory.file(beginning)
        cursor = LogCursor(directory, beginning, 0, False)
        first = cursor.step(self.feeder.journal.position)
        txid = self.next_txid if first is None else first.txid
        carry = CarryOver(
            self.feeder.sequencer,
            LogCursor(directory, self.first_number, 0, False),
            file.start_position,
            txid,
        )
        while not carry.step(self.feeder.control, 1000, 3):
            self.turn()
        self.feeder.sequencer.log_txid = txid
        for number in range(self.first_number, beginning):
            self.feeder.journal_storage.path(number).unlink()
        self.first_number = beginning
        self.places.forget(beginning)
        return int(txid)

    def close(self) -> None:
        """Close the files."""
        for topic in self.topics.values():
            topic.close()


def journal_of(core: SowCore) -> LogWriter:
    """The writer of the journal."""
    return core.feeder.journal


def begin_file(topic: Kept) -> None:
    """Write the header page of a value file, as the server does."""
    header = ValueFileHeader(topic.name, "json", SLAB_SIZE, topic.keys.definition)
    os.pwrite(topic.descriptor, header.to_bytes(), 0)
    if topic.name == UNLOGGED_PREFIX:
        write_begin(topic.descriptor, NEVER)
    else:
        write_log_place(topic.descriptor, LogPlace("journal", topic.directory, None))
