"""The world of one seed with queues: consumers besides publishers, and all faults that can happen to them.

The queues of a seed are random (`queue_plans`), as are the habits of consumers (`consumers`). The watch
(`queue_watch`) compares the core's decisions, its deliveries and its acknowledgements with the journal. The contents
of the core's queues are compared too, after every start and now and then. At the end consumers acknowledge all
messages, on the server that has run until then and on a freshly started one. The queues must become empty, and no
message may be stuck.
"""

import mmap
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy

from amps._core.queues.engine import COUNTER_NAMES, COUNTERS_BYTES
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.server.core import queues as core_queues
from tests.simulation.checks import Entry
from tests.simulation.consumers import Command, Consumer, ConsumerWire
from tests.simulation.queue_log import KIND_ACKNOWLEDGEMENT, KIND_TRANSACTION_REFUSED, Bookmark, Message
from tests.simulation.queue_plans import KINDS, QueuePublisher, make_plans
from tests.simulation.queue_transports import QueueTransport
from tests.simulation.queue_watch import QueueWatch
from tests.simulation.server import NAME, Settings, configured
from tests.simulation.world import World

EGRESS_BYTES = 1 << 15
"""Room for the messages that a barrier may release at once."""
BLOCKS = 64
CHECKPOINT_LOG_BYTES, CHECKPOINT_SLOTS, CHECKPOINT_PIECE_BYTES = 3000, 5, 200
INACTIVE, AVAILABLE, LEASED, BARRIER, DELIVERED, _, DELAYED, WAITING = range(1, 9)
SUBSCRIPTIONS_MAX = 3
DRAIN_ROUNDS = 1500
SETTLING_ROUNDS = 30
ROUND_NS = 20_000_000
"""Short enough to acknowledge before the shortest lease has ended."""


class SimulatedMemory:
    """The queues' shared memory, in memory that is gone with the process."""

    newest: bytes | mmap.mmap

    def __init__(self, path: Path, size: int) -> None:
        self.view = mmap.mmap(-1, max(size, mmap.PAGESIZE))
        SimulatedMemory.newest = self.view  # the counters are mapped last

    def make_room(self, offset: int, length: int) -> None:
        """Do nothing: the memory always has room."""


class ObservedSequencer:
    """The sequencer, with a callback that receives its answers."""

    def __init__(self, sequencer: Any, hear: Callable[[list[tuple[int, object]]], None]) -> None:
        self._sequencer = sequencer
        self._hear = hear
        self.has_postponed = False
        """True if, before the last turn, decided deliveries waited for the journal."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sequencer, name)

    def turn(self, *arguments: Any) -> bool:
        self.has_postponed = self._sequencer.adapter.manager.output.has_unwritten_deliveries
        return bool(self._sequencer.turn(*arguments))

    def take_replies(self) -> list[tuple[int, object]]:
        replies: list[tuple[int, object]] = self._sequencer.take_replies()
        self._hear(replies)
        return replies


class QueueWorld(World):
    """Everything of one seed. `directory` is empty and on a fast file system."""

    client_type = QueuePublisher
    damage_share = 0.1

    def __init__(self, seed: int, directory: Path, echo: bool = False) -> None:
        module: Any = core_queues
        module.BLOCKS_MAX = BLOCKS
        module._SharedMemory = SimulatedMemory
        super().__init__(seed, directory, echo)
        count = self.chance.choice([1, 2, 4])
        self.consumers = [Consumer(f"consumer-{n}", self.chance, self._told) for n in range(count)]
        for client in self.clients:
            client.clock_ns = lambda: self._clock_ns  # type: ignore[attr-defined]
        for consumer in self.consumers:
            self.watch.owners[publisher_id(consumer.name)] = consumer.name
            self.watch.owners[derived_publisher_id(consumer.name, NAME)] = consumer.name
        self.others = set(self.watch.owners)
        # Whatever the weights of the other actions in this world, ordinary work goes on.
        self._weights[self._bustle] = sum(self._weights.values()) / 4
        self._counters: bytes | mmap.mmap = b""
        self._has_turned = False  # since the server started

    def _make_settings(self, journal_bytes: int, preallocated: int, ring_bytes: int) -> Settings:
        self.plans = make_plans(self.chance)
        self.watch = QueueWatch(self.plans)
        config = configured(journal_bytes, preallocated, tuple(plan.config for plan in self.plans))
        return Settings(config, ring_bytes, lambda: self._clock_ns, self.trace, EGRESS_BYTES)

    def _make_transport(self, index: int) -> QueueTransport:
        return QueueTransport(
            self.server.runtime,
            index,
            NAME,
            self.chance,
            self.watch,
            lambda: self.server.log.view,
            [plan.name for plan in self.plans],
        )

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        changed = [
            (self._send, 6),
            (self._connect, 8),
            (self._bustle, 60),
            (self._housekeeping, 10),
            (self._deliver, 4),
            (self._flush_command, 1),
            (self._manage, 6),
            (self._jump_clock, 0.05),
            (self._hang_up, 2),
            (self._kill_transport, 2),
            (self._kill_server, 1.2),
            (self._crash_machine, 1.2),
            (self._light_fuse, 2),
        ]
        as_ever = [row for row in super()._actions() if row[0] not in [action for action, _ in changed]]
        return [
            *as_ever,
            *changed,
            (self._connect_consumer, 12),
            (self._subscribe, 12),
            (self._unsubscribe, 2),
            (self._command, 40),
            (self._send_commands, 30),
            (self._pass_time, 25),
            (self._check_queues, 2),
        ]

    def _turn(self) -> None:
        super()._turn()
        self._has_turned = True

    # Actions of clients

    def _connect(self) -> None:
        if self.chance.random() < 0.1 or any(one.wire is None or one.wire.closed for one in self.clients):
            super()._connect()

    def _told(self, command: Command) -> None:
        self.watch.told(command, self.server.runtime.control.durable)

    def _connect_consumer(self) -> None:
        consumer = self.chance.choice(self.consumers)
        if consumer.connection is None or self.chance.random() < 0.03:
            self._connect_to(consumer, self.chance.choice(self._transports))  # type: ignore[arg-type]

    def _connect_to(self, consumer: Consumer, transport: QueueTransport | None) -> None:
        wire = ConsumerWire(consumer)
        if transport is not None and transport.connect(wire):
            self.trace(f"{consumer.name} connects to transport {transport.index}")
            consumer.wire = wire

    def _end_of(self, consumer: Consumer) -> Any:
        """Return transport and session of a consumer's connection; None if it has none."""
        wire = consumer.connection
        for transport in self._transports:
            if wire is not None and isinstance(transport, QueueTransport):
                session = transport.session_of(wire)
                if session is not None:
                    return transport, session
        return None

    def _subscribe(self) -> None:
        self._subscribe_of(self.chance.choice(self.consumers))

    def _subscribe_of(self, consumer: Consumer) -> None:
        end = self._end_of(consumer)
        if end is None or end[0].has_waiting:
            return
        numbers = end[1].wire.subscriptions
        number = None
        if numbers and (len(numbers) == SUBSCRIPTIONS_MAX or self.chance.random() < 0.5):
            number = self.chance.choice(numbers)
        queues = self.chance.sample(range(len(self.plans)), self.chance.randint(1, len(self.plans)))
        kind = self.chance.randrange(KINDS) if self.chance.random() < 0.3 else None
        max_backlog = self.chance.choice([0, 1, 2, 5, 5, 20])
        self.trace(f"{consumer.name} subscribes to {queues}, kind {kind}, backlog {max_backlog} ({number})")
        end[0].subscribe(end[1], number, dict.fromkeys(queues, kind), max_backlog)

    def _unsubscribe(self) -> None:
        consumer = self.chance.choice(self.consumers)
        end = self._end_of(consumer)
        if end is not None and end[1].wire.subscriptions:
            number = self.chance.choice(end[1].wire.subscriptions)
            self.trace(f"{consumer.name} ends subscription {number}")
            end[0].unsubscribe(end[1], number)

    def _command(self) -> None:
        self._command_of(self.chance.choice(self.consumers))

    def _command_of(self, consumer: Consumer) -> None:
        end = self._end_of(consumer)
        if end is None:
            return
        for command in consumer.decide(self.chance, self.watch.received[-40:], self._guesses()):
            self.trace(f"{consumer.name}: {command}")
            if not command.sequence and not end[0].prepare(end[1], command):
                end[1].wire.held.update({(command.queue, bookmark): None for bookmark in command.bookmarks})

    def _guesses(self) -> list[tuple[int, Bookmark]]:
        """Return queues, each with the bookmark of a message that came last or will come next."""
        found = []
        for queue in range(len(self.plans)):
            found += [(queue, message.bookmark) for message in self.watch.entered(queue)[-4:]]
            client = self.chance.choice(self.clients)
            found += [(queue, (publisher_id(client.name), client.last + ahead)) for ahead in (1, 2)]
        return found

    def _send_commands(self) -> None:
        self._send_of(self.chance.choice(self.consumers))

    def _send_of(self, consumer: Consumer) -> None:
        end = self._end_of(consumer)
        if end is not None:
            wire = end[1].wire
            command = wire.next_command()
            if command is not None and end[0].prepare(end[1], command):
                wire.sent(command)

    def _bustle(self) -> None:
        if self.chance.random() < 0.3:
            self._connect()
        for consumer in self.consumers:
            end = self._end_of(consumer)
            if end is None:
                if consumer.wire is None or consumer.wire.closed:
                    self._connect_to(consumer, self.chance.choice(self._transports))  # type: ignore[arg-type]
            elif not end[1].wire.subscriptions:
                self._subscribe_of(consumer)
            self._command_of(consumer)
            self._send_of(consumer)
        super()._bustle()

    def _pass_time(self) -> None:
        """Move the clock by a step that is long for leases and lifetimes; sometimes the clock is set back a little."""
        steps_ms = [10, 100, 300, 1000, 1000, 10_000, 100_000, -100, -2000]
        self._clock_ns += self.chance.choice(steps_ms) * 1_000_000

    def _may_remove(self, end: int) -> bool:
        """A journal must stay while messages of it are in a queue, or while a queue has deferred acknowledgements."""
        self.watch.follow_durable(self.server.runtime.control.durable)
        for log in (self.watch.run.log, self.watch.run.durable_log):
            for queue in log.queues:
                if queue.deferred or any(position < end for position in queue.messages):
                    return False
        return True

    # Checks

    def _started(self) -> None:
        self._counters = SimulatedMemory.newest
        self._has_turned = False
        core, log = self.server.core, self.server.log
        assert core._queues is not None
        # The limits are small, so that many checkpoints are written and each of them takes many turns.
        core._queues.checkpoints.log_bytes_min = CHECKPOINT_LOG_BYTES
        core._queues.checkpoints.slots_per_step = CHECKPOINT_SLOTS
        core._queues.checkpoints.piece_bytes = CHECKPOINT_PIECE_BYTES
        written = self.server.runtime.control.watermarks()[0]
        self.watch.begin(log.cursor(), log.cursor(), written)
        self._check_contents()
        for number, queue in enumerate(self.watch.run.log.queues):
            # A deferred acknowledgement may be dropped if its publisher has published later messages.
            awaited = [
                bookmark
                for bookmark, until_ns in queue.deferred.items()
                if bookmark[1] > core.sequencer.last_sequence(bookmark[0]) and until_ns > self._clock_ns
            ]
            # That of an inactive message is in a copy of the queue with the message; in the log it has left.
            inactive = self._counter(number, "inactive")
            assert len(awaited) <= self._counter(number, "deferred") <= len(queue.deferred) + inactive
            assert self._counter(number, "leased") == self._counter(number, "delivered") == 0
        core.sequencer = ObservedSequencer(core.sequencer, self._hear)  # type: ignore[assignment]
        core.turns.sequencer = core.sequencer
        super()._started()

    def _hear(self, replies: list[tuple[int, object]]) -> None:
        sequencer = self.server.core.sequencer
        journal = sequencer.journal
        assert journal is not None
        assert isinstance(sequencer, ObservedSequencer)
        self.watch.is_frozen = self._manager.output.frozen
        self.watch.hear(replies, journal.position, sequencer.now_ns, sequencer.has_postponed, self._available)

    def _counter(self, queue: int, name: str) -> int:
        row = numpy.frombuffer(self._counters, "<u8", COUNTERS_BYTES // 8, queue * COUNTERS_BYTES)
        return int(row[COUNTER_NAMES.index(name)])

    def _available(self, queue: int) -> list[int]:
        return [position for position, state in self._manager.states(queue) if state == AVAILABLE]

    @property
    def _manager(self) -> Any:
        queues = self.server.core._queues
        assert queues is not None
        return queues.adapter.manager

    def _check_contents(self) -> None:
        """Check that the core's queues contain the messages that the journal gives, in the same order."""
        for number, (plan, queue) in enumerate(zip(self.plans, self.watch.run.log.queues, strict=True)):
            states = self._manager.states(number)
            if plan.config.target_queue_depth is not None:
                # Beyond the target depth a message may still be there although it was acknowledged.
                states = [row for row in states if row[1] != INACTIVE or row[0] in queue.messages]
            found = [position for position, state in states if state != DELIVERED]
            assert found == list(queue.messages), (
                f"{plan} has {found}, the journal says {list(queue.messages)}; {states}"
            )

    def _check_queues(self) -> None:
        """Check the invariants that hold between two turns."""
        sequencer = self.server.core.sequencer
        self.watch.follow(self.server.runtime.control.watermarks()[0])
        self.watch.follow_durable(self.server.runtime.control.durable)
        if self._manager.output.removal_count:
            return  # the journal cannot store the removals
        self._check_contents()
        held = 0
        for number, (plan, queue) in enumerate(zip(self.plans, self.watch.run.log.queues, strict=True)):
            states = self._manager.states(number)
            counts = [sum(state == wanted for _, state in states) for wanted in range(WAITING + 1)]
            assert counts[LEASED] == self._counter(number, "leased")
            assert counts[DELIVERED] == self._counter(number, "delivered")
            assert counts[INACTIVE] == self._counter(number, "inactive")
            assert counts[DELAYED] == self._counter(number, "delayed")
            assert counts[WAITING] == self._counter(number, "waiting")
            active = counts[AVAILABLE] + counts[LEASED] + counts[BARRIER] + counts[WAITING]
            assert active == self._counter(number, "depth")
            self._check_heads(queue.messages, states)
            target = plan.config.target_queue_depth
            prompt = [
                at
                for at, state in states
                if state in (AVAILABLE, LEASED, BARRIER) and at not in queue.delayed
            ]
            assert target is None or len(prompt) <= target
            held += counts[LEASED] + counts[DELIVERED]
            for position, state in states:
                if state == LEASED:
                    self.watch.check_lease(number, position, sequencer.now_ns)
                elif state in (AVAILABLE, BARRIER, DELAYED, WAITING):
                    expires_ns = queue.messages[position].expires_ns
                    late = expires_ns is not None and expires_ns <= sequencer.now_ns and self._has_turned
                    assert not late, f"{plan.name}: {queue.messages[position]} is out of date"
                if state == DELAYED and self._has_turned:
                    assert queue.delayed[position] > sequencer.now_ns, f"{plan.name}: {position} is late"
        subscribers = [
            self._manager.subscriber(one.transport, number)
            for number, one in self.watch.run.subscribers.items()
        ]
        assert held == sum(one.outstanding for one in subscribers if one is not None)

    def _check_heads(self, messages: Mapping[int, Message], states: list[tuple[int, int]]) -> None:
        """Check that one active message of a key does not wait, the oldest if none was delayed
        (queue_guarantees.md §3).
        """
        by_key: defaultdict[object, list[int]] = defaultdict(list)
        for position, state in states:
            key = messages[position].key if position in messages else None
            if state != INACTIVE and key is not None:
                by_key[key].append(state)
        for key, of_key in by_key.items():
            active = [state for state in of_key if state != DELAYED]
            heads = [state for state in active if state != WAITING]
            assert len(heads) <= 1, f"{key} has {of_key}"
            if active and active == of_key:
                assert heads, f"{key} has {of_key}"

    def _check(self) -> list[Entry]:
        entries = super()._check()
        self._check_transactions()
        self._check_queues()
        return entries

    def _check_transactions(self) -> None:
        """Check that each transaction is in the log whole, or not at all, as its client was told."""
        log = self.server.log
        cursor, end = log.cursor(), self.server.runtime.control.watermarks()[0]
        is_whole = cursor.place()[0] == 0  # no journal was removed
        found: dict[tuple[int, int], int] = {}
        while (record := cursor.step(end)) is not None:
            if record.publisher_id in self.others:
                found[record.publisher_id, record.sequence] = record.kind
        for consumer in self.consumers:
            publisher = publisher_id(consumer.name)
            for command in consumer.transactions:
                assert command.publishes is not None
                last = command.sequence + command.publishes
                kinds = [found.get((publisher, number)) for number in range(command.sequence, last + 1)]
                entered = [KIND_ACKNOWLEDGEMENT] + [1] * command.publishes
                absent = [None] * command.publishes
                assert kinds in (entered, [*absent, None], [*absent, KIND_TRANSACTION_REFUSED]), (
                    command,
                    kinds,
                )
                if command in consumer.accepted:
                    assert kinds == entered or not is_whole, (
                        f"{consumer.name}: {command} was promised: {kinds}"
                    )
                if command in consumer.rejected:
                    assert kinds != entered, f"{consumer.name}: {command} was refused"

    # The end

    def _settle(self) -> None:
        self.disk.calm()
        self.trace("consumers work everything off")
        self._drain()
        super()._settle()

    def _settled(self) -> None:
        self._drain()

    def _drain(self) -> None:
        rounds = 0
        while rounds <= 2 * SETTLING_ROUNDS or not self._is_drained():
            assert rounds < DRAIN_ROUNDS, f"it does not come to an end: {self._left()}"
            self.watch.drains = rounds >= SETTLING_ROUNDS
            deaths = self.deaths
            self._survive(self._drain_round)  # an error of the disk may be noticed only now
            rounds = rounds + 1 if self.deaths == deaths else 0
        self._check_queues()
        self.watch.check_drained()
        for number in range(len(self.plans)):
            assert self._counter(number, "leased") == self._counter(number, "delivered") == 0
        self.watch.drains = False

    def _is_drained(self) -> bool:
        durable_log = self.watch.run.durable_log
        return (
            not any(queue.messages for queue in durable_log.queues)
            and not any(consumer.store_of_commands for consumer in self.consumers)
            and not any(
                consumer.connection is not None and consumer.connection.held for consumer in self.consumers
            )
            and not any(transport is None or transport.has_waiting for transport in self._transports)  # type: ignore[attr-defined]
        )

    def _last_delay_ns(self) -> int:
        """The latest time for which a message waits; the clock may have been set back by years since then."""
        queues = self.watch.run.log.queues
        return max((queue.delayed.get(at, 0) for queue in queues for at in queue.messages), default=0)

    def _left(self) -> str:
        queues = self.watch.run.durable_log.queues
        found = [
            f"{plan.name}: {list(queue.messages)}" for plan, queue in zip(self.plans, queues, strict=True)
        ]
        return "; ".join([*found, *[f"{one.name}: {one.store_of_commands}" for one in self.consumers]])

    def _drain_round(self) -> None:
        self._clock_ns = max(self._clock_ns + ROUND_NS, self._last_delay_ns())
        while self._dead_transports:
            index = self._dead_transports.pop()
            self.server.runtime.control.set_transport_alive(index, False)
            self.server.supervisor.to_core.append(msgpack.packb(["transport died", index]))
        self._look()
        for consumer in self.consumers:
            end = self._end_of(consumer)
            if end is None:
                if consumer.wire is None or consumer.wire.closed:
                    self._connect_to(consumer, self.chance.choice(self._transports))  # type: ignore[arg-type]
                continue
            if not end[1].wire.works_off:
                end[1].wire.works_off = True
                end[0].subscribe(end[1], None, dict.fromkeys(range(len(self.plans)), None), 5)
            if end[1].wire.next_command() is None:
                consumer.work_off()
            self._send_of(consumer)
            end[0].push_prepared(end[1])
        for transport in self._transports:
            if transport is not None:
                transport.receive()
                transport.publish()
        self._turn()
        self._flush_step()
        self._housekeeping()
        for transport in self._transports:
            if transport is not None:
                transport.work()
        self.watch.follow_durable(self.server.runtime.control.durable)
