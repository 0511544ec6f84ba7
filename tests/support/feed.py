"""Feeds a sequencer with records as transports do, without a transport."""

import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from amps._core.journal.reader import LogCursor, LogDirectory, Record
from amps._core.journal.writer import LogWriter
from amps._core.queues.manager import LogAdapter
from amps._core.sequencer.sequencer import Sequencer, SowTopic
from amps._core.shm.memory import ControlPage, Ring
from amps._core.sow.shaping import KeyMaker
from amps._core.sow.table import JournalPlaces
from amps.config.queue_topics import QueueTopics
from amps.server.records import (
    KIND_DECLARE_TOPIC,
    KIND_LOGON,
    KIND_SPILLED_PUBLISH,
    control_record,
    raw_control_record,
)
from tests.support.records import DirectoryStorage, RecordParts, padded, ring_position

UNLOGGED_PREFIX = "plain"
RING_BYTES = 1 << 20
SERIAL = 1
Member = tuple[SowTopic, int, KeyMaker]
SowParts = tuple[Callable[[str, str], Member | None], list[SowTopic], JournalPlaces | None]


@dataclass(frozen=True)
class Feed:
    """One message to be sequenced."""

    publisher: int
    """The slot of its session."""
    sequence: int
    topic: str
    parts: RecordParts


class Feeder:
    """A sequencer with a journal and a transient log in one directory, one ring, and publishers `p0`, `p1`, …"""

    def __init__(
        self,
        directory: Path,
        file_bytes: int,
        publishers: int = 4,
        ring_bytes: int = RING_BYTES,
        queues: tuple[LogAdapter, QueueTopics] | None = None,
        sow: SowParts | None = None,
    ) -> None:
        self.journal_storage = DirectoryStorage(directory, file_bytes, "journal")
        self.transient_storage = DirectoryStorage(directory, file_bytes, "transient")
        self.journal = LogWriter(self.journal_storage, True)
        self.journal.open_first(0, 0, 1)
        self._begin(publishers, ring_bytes, queues, 1, sow=sow)

    @classmethod
    def over(
        cls,
        earlier: "Feeder",
        journal: LogWriter,
        queues: tuple[LogAdapter, QueueTopics] | None = None,
        last_sequences: Mapping[int, int] | None = None,
        refused: Mapping[int, Iterable[int]] | None = None,
        sow: SowParts | None = None,
    ) -> "Feeder":
        """A core after a restart, which goes on in the journal of an earlier one with that writer. `last_sequences`,
        `refused`: by publisher id, as recovery has found them.
        """
        made = cls.__new__(cls)
        made.journal_storage = earlier.journal_storage
        made.transient_storage = earlier.transient_storage
        made.journal = journal
        made._begin(4, RING_BYTES, queues, earlier.sequencer.next_txid, last_sequences, refused, sow)
        return made

    def _begin(
        self,
        publishers: int,
        ring_bytes: int,
        queues: tuple[LogAdapter, QueueTopics] | None,
        next_txid: int,
        last_sequences: Mapping[int, int] | None = None,
        refused: Mapping[int, Iterable[int]] | None = None,
        sow: SowParts | None = None,
    ) -> None:
        self.transient = LogWriter(self.transient_storage, False)
        self.transient.open_first(0, 0, next_txid)
        self.control = ControlPage()
        self.ring = Ring(ring_bytes)
        self.sequencer = Sequencer(
            self.journal,
            self.transient,
            lambda topic, message_type: not topic.startswith(UNLOGGED_PREFIX),
            self._open_spill,
            next_txid,
            last_sequences or {},
            1000,
            queues,
            refused,
            None,
            sow,
        )
        self.sequencer.attach_transport(0, self.ring)
        self._topics: dict[str, int] = {}
        self._spills: dict[bytes, bytes] = {}
        for slot in range(publishers):
            self._push(control_record((f"p{slot}", "user"), KIND_LOGON, slot, SERIAL))
        self.turn(1000, 0)
        self.sequencer.take_replies()

    def send_control(self, payload: object, kind: int, publisher: int) -> None:
        """A control record of a session."""
        self._push(control_record(payload, kind, publisher, SERIAL))

    def push(self, feed: Feed) -> None:
        """Push the message into the ring, or into a spill file if it is too large."""
        number = self._topics.get(feed.topic)
        if number is None:
            number = self._topics[feed.topic] = len(self._topics)
            names = (feed.topic.encode(), b"json")
            self._push(control_record(names, KIND_DECLARE_TOPIC, topic=number))
        parts = replace(
            feed.parts,
            topic_id=number,
            sequence=feed.sequence,
            position=ring_position(feed.publisher, SERIAL),
        )
        record = parts.to_bytes()
        if len(record) > self.ring.capacity // 8:
            token = b"%d" % len(self._spills)
            self._spills[token] = padded(record)
            self._push(raw_control_record(token, KIND_SPILLED_PUBLISH, feed.publisher, SERIAL))
        else:
            self._push(record)

    def turn(self, now_ns: int, durable: int) -> None:
        """Sequence what the ring holds."""
        while self.sequencer.turn(self.control, now_ns, durable, 1 << 20):
            self.sequencer.release(())

    def _push(self, record: bytes) -> None:
        while not self.ring.push(record):
            self.turn(0, 0)

    def _open_spill(self, token: bytes) -> mmap.mmap:
        data = self._spills[token]
        memory = mmap.mmap(-1, len(data))
        memory[:] = data
        return memory


def directory_of(storage: DirectoryStorage) -> LogDirectory:
    """A reader of the log in a storage; topics are (name, message type)."""
    return LogDirectory(storage.prefix, ".journal", lambda topic, message_type: (topic, message_type))


def read_all(cursor: LogCursor, limit: int) -> list[Record]:
    """Every message up to a limit."""
    records = []
    while (record := cursor.step(limit)) is not None:
        records.append(record)
    return records
