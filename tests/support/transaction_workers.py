"""Workers that take messages of two queues, and answer with transactions: by a core, and by the model of the queues.

A subject processes one input after the other. It tells deliveries, what its log has of the workers, and what is in the
queues, all by bookmarks, since log positions are its own affair. The core is the real one, with a journal, and recovery
at a restart; only the transport is missing.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy

from amps._core.journal.reader import LogCursor, LogDirectory, LogFile
from amps._core.journal.writer import IndexBuilder, LogWriter, scan_file
from amps._core.queues.engine import COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import LogAdapter, QueueManager, RecordedTopic, rebuild
from amps._core.values.value import publisher_id
from amps.server.records import (
    HEADER_BYTES,
    KIND_DECLARE_TOPIC,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_QUEUE_SUBSCRIBE,
    control_record,
)
from tests.support.feed import SERIAL, Feeder, directory_of
from tests.support.log_directories import Directory
from tests.support.queue_engine import EngineSettings
from tests.support.queue_model import QueueModel
from tests.support.queue_subject import (
    SECOND_NS,
    Bookmark,
    Delivered,
    Entry,
    Outcome,
    QueueSettings,
    TransactionPublish,
)
from tests.support.records import RecordParts, ring_position
from tests.support.transactions import (
    KIND_QUEUE_ACKNOWLEDGEMENT,
    KIND_TRANSACTION_REFUSED,
    acknowledgement_payload,
    ring_transaction,
)

WORKERS = 3
PUBLISHER = WORKERS
"""The session that publishes jobs; the workers have the numbers below."""
IDS = [publisher_id(f"p{slot}") for slot in range(WORKERS + 1)]
"""Publisher ids by session."""
SETTINGS = [
    QueueSettings("Q", max_per_subscription=3),
    QueueSettings(
        "E", max_per_subscription=3, lease_ns=SECOND_NS, expiration_ns=4 * SECOND_NS, max_deliveries=3
    ),
]
FEEDS: Mapping[str, tuple[int, ...]] = {"T": (0, 1), "U": (0,), "R": ()}
"""Topics, and the queues that their messages enter."""
NUMBERS = {name: number for number, name in enumerate([*FEEDS, *(one.name for one in SETTINGS)], 50)}
KIND_PUBLISH = 1
BLOCKS = 32
FILE_BYTES = 1 << 20
_DELIVERIES = struct.Struct("<QII")
_DELIVERY = struct.Struct("<QQIIII")

Written = tuple[int, int, int, str]
"""A record of a worker: kind, publisher id, sequence, topic."""
Delivery = tuple[int, int, Bookmark]
"""Subscription, queue, message."""


class Workers(Protocol):
    def publish(self, now_ns: int, session: int, sequence: int, topic: str) -> None: ...

    def subscribe(self, now_ns: int, subscription: int, worker: int, queues: Sequence[int]) -> None: ...

    def reconnect(self, now_ns: int, worker: int) -> None:
        """End the connection of a worker, and begin another one, without subscriptions."""

    def acknowledge(self, now_ns: int, sequence: int, queue: int, message: Bookmark) -> None:
        """The publisher of jobs acknowledges a message, whoever holds it."""

    def transact(
        self,
        now_ns: int,
        worker: int,
        sequence: int,
        queue: int,
        messages: Sequence[Bookmark],
        topics: Sequence[str],
    ) -> Outcome:
        """The answer to a transaction whose publishes go to these topics."""

    def tick(self, now_ns: int) -> None: ...

    def restart(self, now_ns: int) -> None: ...

    def take_deliveries(self) -> list[Delivery]:
        """Those since the last call."""

    def take_written(self) -> list[Written]:
        """Publishes and refusals of the workers that are new in the log."""

    def available(self, queue: int) -> list[Bookmark]:
        """The messages that are in a queue and not leased, in log order."""

    def leased(self, queue: int) -> int: ...

    def last_sequence(self, worker: int) -> int:
        """The one that a logon would tell."""


class ModelWorkers:
    """The model of the queues, with positions of its own."""

    def __init__(self, make: type[QueueModel] = QueueModel) -> None:
        self._model = make(SETTINGS)
        self._position = 4096
        self._bookmarks: dict[int, Bookmark] = {}  # by position
        self._written: list[Written] = []

    def _place(self, bookmark: Bookmark) -> int:
        self._position += 128
        self._bookmarks[self._position] = bookmark
        return self._position

    def publish(self, now_ns: int, session: int, sequence: int, topic: str) -> None:
        bookmark = IDS[session], sequence
        self._model.publish(now_ns, self._place(bookmark), bookmark, None, _entries(topic), 0)
        if session != PUBLISHER:
            self._written.append((KIND_PUBLISH, *bookmark, topic))

    def subscribe(self, now_ns: int, subscription: int, worker: int, queues: Sequence[int]) -> None:
        self._model.subscribe(now_ns, subscription, worker, dict.fromkeys(queues), 3)

    def reconnect(self, now_ns: int, worker: int) -> None:
        self._model.disconnect(now_ns, worker)

    def acknowledge(self, now_ns: int, sequence: int, queue: int, message: Bookmark) -> None:
        self._model.acknowledge(now_ns, PUBLISHER, queue, [message], "acknowledge")

    def transact(
        self,
        now_ns: int,
        worker: int,
        sequence: int,
        queue: int,
        messages: Sequence[Bookmark],
        topics: Sequence[str],
    ) -> Outcome:
        own = [(IDS[worker], sequence + number) for number in range(1, len(topics) + 1)]
        last = self._model.last_sequence(IDS[worker])
        publishes = [
            TransactionPublish(self._place(bookmark), _entries(topic))
            for bookmark, topic in zip(own, topics, strict=True)
        ]
        outcome = self._model.transact(now_ns, worker, queue, (IDS[worker], sequence), messages, publishes)
        if self._model.last_sequence(IDS[worker]) == last:
            return outcome
        if outcome == "done":
            self._written += [(KIND_PUBLISH, *mark, topic) for mark, topic in zip(own, topics, strict=True)]
        else:
            last = sequence + len(topics)
            self._written.append((KIND_TRANSACTION_REFUSED, IDS[worker], last, SETTINGS[queue].name))
        return outcome

    def tick(self, now_ns: int) -> None:
        self._model.tick(now_ns)

    def restart(self, now_ns: int) -> None:
        self._model.restart(now_ns)

    def take_deliveries(self) -> list[Delivery]:
        return [
            (event.subscription, event.queue, self._bookmarks[event.position])
            for event in self._model.take_events()
            if isinstance(event, Delivered)
        ]

    def take_written(self) -> list[Written]:
        written, self._written = self._written, []
        return written

    def available(self, queue: int) -> list[Bookmark]:
        return [self._bookmarks[position] for position in self._model.available(queue)]

    def leased(self, queue: int) -> int:
        return self._model.backlog(queue)

    def last_sequence(self, worker: int) -> int:
        return self._model.last_sequence(IDS[worker])


def _entries(topic: str) -> dict[int, Entry]:
    return {queue: Entry() for queue in FEEDS[topic]}


class _Topics:
    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        return FEEDS.get(topic, ())

    def queue(self, name: str, message_type: str) -> int | None:
        return {one.name: number for number, one in enumerate(SETTINGS)}.get(name)


class CoreWorkers:
    """A core with a journal in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._make_queues()
        self._feeder = Feeder(directory, FILE_BYTES, WORKERS + 1, queues=(self._adapter, _Topics()))  # type: ignore[arg-type]
        self._declare()
        self._cursor = LogCursor(directory_of(self._feeder.journal_storage), 0, 0, True)
        self._positions: dict[Bookmark, int] = {}
        self._bookmarks: dict[int, Bookmark] = {}
        self._subscriptions = 0
        self._deliveries: list[Delivery] = []
        self._written: list[Written] = []
        self._refused: list[int] = []

    def _make_queues(self) -> None:
        self._counters = numpy.zeros(COUNTERS_BYTES * len(SETTINGS), "u1")
        arena = QueueArena(numpy.zeros(arena_bytes(BLOCKS), "u1"), BLOCKS)
        settings = [EngineSettings(one) for one in SETTINGS]
        self.manager = QueueManager(arena, self._counters.data, settings, 1)
        self._adapter = LogAdapter(self.manager, [(one.name, "json") for one in SETTINGS])

    def _declare(self) -> None:
        for name, number in NUMBERS.items():
            self._push(control_record((name.encode(), b"json"), KIND_DECLARE_TOPIC, topic=number))

    def _push(self, record: bytes) -> None:
        assert self._feeder.ring.push(record)

    def tick(self, now_ns: int) -> None:
        self._feeder.turn(now_ns, self._feeder.journal.position)
        while (record := self._cursor.step(self._feeder.journal.position)) is not None:
            bookmark = record.publisher_id, record.sequence
            if record.kind == KIND_PUBLISH:
                self._positions[bookmark] = record.position
                self._bookmarks[record.position] = bookmark
            if (
                record.kind in (KIND_PUBLISH, KIND_TRANSACTION_REFUSED)
                and record.publisher_id != IDS[PUBLISHER]
            ):
                self._written.append((record.kind, *bookmark, record.topic[0]))
        for _, reply in self._feeder.sequencer.take_replies():
            if isinstance(reply, bytes):
                _, count, _ = _DELIVERIES.unpack_from(reply, HEADER_BYTES)
                rows = [*_DELIVERY.iter_unpack(reply[HEADER_BYTES + _DELIVERIES.size :])]
                assert len(rows) == count
                self._deliveries += [(row[2], row[4], self._bookmarks[row[0]]) for row in rows]
            elif reply[0] == "transaction_refused":
                self._refused.append(int(str(reply[3])))

    def publish(self, now_ns: int, session: int, sequence: int, topic: str) -> None:
        self._push_record(session, sequence, topic, RecordParts(b"job"))
        self.tick(now_ns)

    def _push_record(self, session: int, sequence: int, topic: str, parts: RecordParts) -> None:
        made = RecordParts(
            parts.payload,
            parts.kind,
            NUMBERS[topic],
            IDS[session],
            sequence,
            position=ring_position(session, SERIAL),
        )
        self._push(made.to_bytes())

    def subscribe(self, now_ns: int, subscription: int, worker: int, queues: Sequence[int]) -> None:
        self._feeder.send_control([subscription, list(queues), 3, None], KIND_QUEUE_SUBSCRIBE, worker)
        self.tick(now_ns)

    def reconnect(self, now_ns: int, worker: int) -> None:
        self._feeder.send_control(None, KIND_DISCONNECT, worker)
        self._feeder.send_control((f"p{worker}", "user"), KIND_LOGON, worker)
        self.tick(now_ns)

    def _entries(self, messages: Iterable[Bookmark]) -> list[tuple[int, int, int]]:
        return [(*message, self._positions[message]) for message in dict.fromkeys(messages)]

    def acknowledge(self, now_ns: int, sequence: int, queue: int, message: Bookmark) -> None:
        payload = acknowledgement_payload(self._entries([message]))
        parts = RecordParts(payload, KIND_QUEUE_ACKNOWLEDGEMENT)
        self._push_record(PUBLISHER, sequence, SETTINGS[queue].name, parts)
        self.tick(now_ns)

    def transact(
        self,
        now_ns: int,
        worker: int,
        sequence: int,
        queue: int,
        messages: Sequence[Bookmark],
        topics: Sequence[str],
    ) -> Outcome:
        publishes = [(NUMBERS[topic], b"result") for topic in topics]
        self._push(
            ring_transaction(
                (worker, SERIAL),
                IDS[worker],
                sequence,
                NUMBERS[SETTINGS[queue].name],
                self._entries(messages),
                publishes,
            )
        )
        self.tick(now_ns)
        refused, self._refused = self._refused, []
        assert refused in ([], [sequence])
        return "refused" if refused else "done"

    def restart(self, now_ns: int) -> None:
        """Recover the journal, rebuild the queues from it, and go on."""
        path, journal = self._feeder.journal_storage.path(0), self._feeder.journal
        found = Directory(self._directory).recover()
        assert found.position == journal.position
        index = IndexBuilder(None, 0, 0, journal.size)
        scan = scan_file(LogFile(str(path)), 0, index)
        writer = LogWriter(self._feeder.journal_storage, True)
        writer.resume(
            0,
            0,
            journal.size,
            scan.end_offset,
            index,
            len(scan.topics),
            scan.name_ids,
            found.last_refused_offset,
        )
        self._make_queues()
        topics = _Topics()

        def resolve(topic: str, message_type: str) -> RecordedTopic:
            number = topics.queue(topic, message_type)
            feeds = [self.manager.queues[one] for one in topics.feeds(topic, message_type)]
            return RecordedTopic(topic.encode(), feeds, -1 if number is None else number)

        cursor = LogCursor(LogDirectory(self._feeder.journal_storage.prefix, ".journal", resolve), 0, 0, True)
        while not rebuild(cursor, self._adapter, scan.end_offset, 3000):
            pass
        self._adapter.begin()
        self._feeder = Feeder.over(
            self._feeder,
            writer,
            (self._adapter, topics),  # type: ignore[arg-type]
            found.publishers,
            found.refused,
        )
        self._declare()
        self.tick(now_ns)

    def take_deliveries(self) -> list[Delivery]:
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def take_written(self) -> list[Written]:
        written, self._written = self._written, []
        return written

    def available(self, queue: int) -> list[Bookmark]:
        return [self._bookmarks[position] for position in self.manager.available(queue)]

    def leased(self, queue: int) -> int:
        return sum(state == 3 for _, state in self.manager.states(queue))

    def last_sequence(self, worker: int) -> int:
        return self._feeder.sequencer.last_sequence(IDS[worker])
