"""A sequencer with three queues that is fed with random publishes, subscriptions, acknowledgements and time.

Now and then the queues are rebuilt from its journal. They must equal those of the sequencer, except for leases
(queues.md §17).
"""

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy

from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.queues.engine import (
    COUNTER_NAMES,
    COUNTERS_BYTES,
    SLOT_DTYPE,
    QueueArena,
    arena_bytes,
    blocks_bytes,
)
from amps._core.queues.manager import LogAdapter, QueueManager, RecordedTopic, rebuild
from amps.server.records import (
    HEADER_BYTES,
    KIND_DISCONNECT,
    KIND_LOGON,
    KIND_QUEUE_DELIVERIES,
    KIND_QUEUE_SUBSCRIBE,
    KIND_QUEUE_UNSUBSCRIBE,
    record_kind,
)
from tests.support.feed import Feed, Feeder, directory_of
from tests.support.queue_engine import EngineSettings
from tests.support.queue_subject import SECOND_NS, QueueSettings
from tests.support.records import RecordParts, element

KIND_QUEUE_ACKNOWLEDGEMENT = 4
HEADER = struct.Struct("<IIQQII")
ENTRY = struct.Struct("<QQQII")
DELIVERIES_HEADER = struct.Struct("<QII")
DELIVERY = struct.Struct("<QQIIII")
START_NS = 1_750_000_000_000_000_000
DELIVERED, DELAYED = 5, 7
DELIVER_AT = 6
"""Tag of the extension area: docs/files.md."""
ACKNOWLEDGE, CANCEL, EXPIRE = 0, 1, 2
QUEUES = [
    QueueSettings("Q", max_per_subscription=5),
    QueueSettings("M", at_least_once=False, fairness="round-robin", max_per_subscription=3),
    QueueSettings(
        "E",
        max_per_subscription=4,
        expiration_ns=3 * SECOND_NS,
        max_deliveries=2,
        lease_ns=SECOND_NS,
        deferred_ack_expiration_ns=2 * SECOND_NS,
    ),
]
PUBLISHERS = 3
FILE_BYTES = 16384
BLOCKS = 32


class Topics:
    """`T` feeds all queues, `U` the first."""

    def feeds(self, topic: str, message_type: str) -> tuple[int, ...]:
        return {"T": (0, 1, 2), "U": (0,)}.get(topic, ())

    def queue(self, name: str, message_type: str) -> int | None:
        return {"Q": 0, "M": 1, "E": 2}.get(name)


class Queues:
    def __init__(self) -> None:
        self.counters = numpy.zeros(COUNTERS_BYTES * len(QUEUES), "u1")
        memory = numpy.zeros(arena_bytes(BLOCKS), "u1")
        self.slots = memory[blocks_bytes(BLOCKS) :].view(SLOT_DTYPE)
        arena = QueueArena(memory, BLOCKS)
        self.manager = QueueManager(arena, self.counters.data, [EngineSettings(one) for one in QUEUES], 1)
        self.adapter = LogAdapter(self.manager, [(one.name, "json") for one in QUEUES])

    def counter(self, queue: int, name: str) -> int:
        row = self.counters[queue * COUNTERS_BYTES : (queue + 1) * COUNTERS_BYTES].view("<u8")
        return int(row[COUNTER_NAMES.index(name)])

    def delayed(self) -> list[tuple[int, int]]:
        """Positions and times of the delayed messages of all queues."""
        found = self.slots[self.slots["state"] == DELAYED]
        return sorted(zip(found["position"].tolist(), found["lease_ns"].tolist(), strict=True))

    def contents(self) -> list[list[int]]:
        """The positions that a restart restores, by queue."""
        return [
            [position for position, state in self.manager.states(queue) if state != DELIVERED]
            for queue in range(len(QUEUES))
        ]


class World:
    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.queues = Queues()
        topics = Topics()
        self.feeder = Feeder(directory, FILE_BYTES, PUBLISHERS, queues=(self.queues.adapter, topics))  # type: ignore[arg-type]
        self.now_ns = START_NS
        self.sequences = [0] * PUBLISHERS
        self.published: list[tuple[int, int]] = []  # bookmarks
        self.positions: dict[tuple[int, int], int] = {}
        self.slots: dict[tuple[int, int], int] = {}  # by queue and position
        self.live: dict[int, int] = {}  # subscription: session
        self.numbers = 0
        self.deliveries = 0
        self.tokens = 0
        self.answers: list[tuple[object, ...]] = []

    def turn(self) -> None:
        self.now_ns += self.chance.choice([0, 1000, SECOND_NS // 10, SECOND_NS])
        self.feeder.turn(self.now_ns, self.feeder.journal.position)
        for _, reply in self.feeder.sequencer.take_replies():
            if isinstance(reply, bytes):
                self._take_deliveries(reply)
            else:
                self.answers.append(reply)

    def _take_deliveries(self, record: bytes) -> None:
        assert record_kind(record) == KIND_QUEUE_DELIVERIES
        needed, count, _ = DELIVERIES_HEADER.unpack_from(record, HEADER_BYTES)
        assert needed <= self.feeder.journal.position
        for position, _, number, slot, queue, _ in DELIVERY.iter_unpack(
            record[HEADER_BYTES + DELIVERIES_HEADER.size :]
        ):
            assert number < self.numbers
            assert needed > position
            self.slots[queue, position] = slot
            self.deliveries += 1
            count -= 1
        assert count == 0

    def publish(self) -> None:
        publisher = self.chance.randrange(PUBLISHERS)
        self.sequences[publisher] += 1
        self._push_publish(publisher, self.sequences[publisher], self.chance.choice(["T", "T", "U", "V"]))

    def _push_publish(self, publisher: int, sequence: int, topic: str) -> None:
        expiration_s = self.chance.choice([0xFFFFFFFF, 0xFFFFFFFF, 0, 1, 10])
        parts = RecordParts(
            payload=bytes(self.chance.randrange(200)),
            publisher_id=publisher + 1,
            expiration_s=expiration_s,
            extension=element(DELIVER_AT, self.now_ns + self._delay_ns())
            if self.chance.random() < 0.3
            else b"",
        )
        self.feeder.push(Feed(publisher, sequence, topic, parts))
        self.published.append((publisher + 1, sequence))

    def _delay_ns(self) -> int:
        return self.chance.choice([1, SECOND_NS // 10, SECOND_NS, 3 * SECOND_NS, 100 * SECOND_NS])

    def publish_again(self) -> None:
        """Publish a duplicate, which enters no queue."""
        publisher = self.chance.randrange(PUBLISHERS)
        if self.sequences[publisher]:
            parts = RecordParts(payload=b"again", publisher_id=publisher + 1)
            self.feeder.push(Feed(publisher, self.sequences[publisher], "T", parts))

    def subscribe(self) -> None:
        session = self.chance.randrange(PUBLISHERS)
        if self.live and self.chance.random() < 0.3:
            number = self.chance.choice(list(self.live))
            session = self.live[number]
        else:
            number = self.numbers
            self.numbers += 1
        self.live[number] = session
        queues = self.chance.sample(range(3), self.chance.randrange(1, 4))
        self.feeder.send_control(
            [number, queues, self.chance.randrange(6), None], KIND_QUEUE_SUBSCRIBE, session
        )

    def unsubscribe(self) -> None:
        if self.live:
            number = self.chance.choice(list(self.live))
            self.feeder.send_control([number], KIND_QUEUE_UNSUBSCRIBE, self.live.pop(number))

    def reconnect(self) -> None:
        session = self.chance.randrange(PUBLISHERS)
        self.feeder.send_control(None, KIND_DISCONNECT, session)
        self.live = {number: of for number, of in self.live.items() if of != session}
        self.feeder.send_control((f"p{session}", "user"), KIND_LOGON, session)

    def acknowledge(self) -> None:
        """Acknowledge messages that were published, delivered or not, and some that have not come yet."""
        session = self.chance.randrange(PUBLISHERS)
        queue = self.chance.randrange(3)
        self._learn_positions()
        entries = []
        for _ in range(self.chance.randrange(1, 6)):
            if self.published and self.chance.random() < 0.9:
                bookmark = self.chance.choice(self.published[-60:])
            else:
                publisher = self.chance.randrange(PUBLISHERS)
                bookmark = publisher + 1, self.sequences[publisher] + self.chance.randrange(1, 4)
            position = self.positions.get(bookmark, 0)
            slot = self.slots.get((queue, position), 0xFFFFFFFF)
            entries.append(ENTRY.pack(*bookmark, position, slot, 0))
        self.sequences[session] += 1
        self.tokens += 1
        action = self.chance.choice([ACKNOWLEDGE, ACKNOWLEDGE, ACKNOWLEDGE, CANCEL, EXPIRE])
        searched = self.feeder.journal.position
        delay_ns = self._delay_ns() if action == CANCEL and self.chance.random() < 0.6 else 0
        header = HEADER.pack(action, len(entries), delay_ns, searched, self.tokens, 0)
        parts = RecordParts(
            kind=KIND_QUEUE_ACKNOWLEDGEMENT,
            publisher_id=session + 1,
            payload=header + b"".join(entries),
            user_id=self.chance.choice([b"", b"someone"]),
        )
        self.feeder.push(Feed(session, self.sequences[session], "QME"[queue], parts))
        self.published = self.published[-100:]

    def _learn_positions(self) -> None:
        cursor = LogCursor(directory_of(self.feeder.journal_storage), 0, 0, True)
        while (record := cursor.step(self.feeder.journal.position)) is not None:
            if record.kind == 1:
                self.positions[record.publisher_id, record.sequence] = record.position

    def rebuilt(self, queues: Queues | None = None, position: int = 0) -> Queues:
        """Rebuild queues from the journal from a position on, in steps. `queues`: the queues as of that position."""
        queues = queues or Queues()
        topics = Topics()

        def resolve(topic: str, message_type: str) -> RecordedTopic:
            number = topics.queue(topic, message_type)
            feeds = [queues.manager.queues[n] for n in topics.feeds(topic, message_type)]
            return RecordedTopic(topic.encode(), feeds, -1 if number is None else number)

        directory = LogDirectory(self.feeder.journal_storage.prefix, ".journal", resolve)
        cursor = LogCursor(directory, position // FILE_BYTES, 0, True)
        cursor.skip_to(position)
        while not rebuild(cursor, queues.adapter, self.feeder.journal.position, 3000):
            pass
        queues.adapter.begin()
        return queues

    def run(self, steps: int, after_each: Callable[[int], None]) -> None:
        """Run that number of random actions; `after_each` is called with the number of each."""
        actions: list[tuple[Callable[[], None], int]] = [
            (self.publish, 40),
            (self.publish_again, 2),
            (self.subscribe, 6),
            (self.unsubscribe, 3),
            (self.reconnect, 1),
            (self.acknowledge, 25),
            (self.turn, 25),
        ]
        for step in range(steps):
            [action] = self.chance.choices([one for one, _ in actions], [weight for _, weight in actions])
            action()
            after_each(step)

    def check(self, queues: Queues | None = None) -> None:
        """Check that the queues can be rebuilt from the journal. `queues`: the rebuilt ones."""
        queues = queues or self.rebuilt()
        assert queues.contents() == self.queues.contents()
        for queue in range(3):
            # Delays may be over there: time has not passed yet.
            kept, other = (
                one.counter(queue, "depth") + one.counter(queue, "delayed") for one in (self.queues, queues)
            )
            assert other == queues.counter(queue, "insert_count") == kept
            assert queues.counter(queue, "leased") == queues.counter(queue, "delete_count") == 0
        # Deferred acknowledgements may be older there: time has not passed yet.
        queues.manager.pass_time(self.now_ns)
        self.queues.manager.pass_time(self.now_ns)
        for queue in range(3):
            for name in ("deferred", "delayed", "next_delivery_ns"):
                assert queues.counter(queue, name) == self.queues.counter(queue, name)
        assert queues.delayed() == self.queues.delayed()
        self.queues.manager.output.take_removals()
