"""Consumers as clients with a store of acknowledgements: they survive every death and remember each confirmed
command.

Some consumers behave correctly and some do not. They keep messages for long, and acknowledge late or twice. They also
acknowledge messages that other consumers hold or that have not been published yet. They cancel, expire and extend. A
command with a number is sent again after a reconnection until its persisted acknowledgement has come, so commands
reach the server long after the lease has ended. Some acknowledge and publish in transactions, which are sent again
until they have an answer of their own, whatever the server says about their sequences.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from amps._core.queues.engine import CANCEL_WITHOUT_DELAY
from tests.simulation.clients import Client, Wire
from tests.simulation.queue_log import ACKNOWLEDGE, CANCEL, EXPIRE, EXTEND, Bookmark

MEMORY = 60
"""The number of received messages that a consumer remembers."""


@dataclass(frozen=True)
class Command:
    """One `sow_delete` by bookmarks, or a transaction. `extension_ns`: of a lease; of a cancel its delay, 0 = none was
    requested.
    """

    queue: int
    action: int
    bookmarks: tuple[Bookmark, ...]
    extension_ns: int
    sequence: int
    """0 means that the command has no number."""
    publishes: int | None = None
    """Of a transaction, which takes so many sequences more; None: it is no transaction."""


@dataclass(frozen=True)
class Received:
    """A message as a consumer received it."""

    queue: int
    bookmark: Bookmark
    position: int
    slot: int


class ConsumerWire(Wire):
    """A consumer's end of one connection."""

    def __init__(self, consumer: "Consumer") -> None:
        super().__init__(consumer, consumer.user)
        self.consumer = consumer
        self.held: dict[tuple[int, Bookmark], None] = {}
        """Messages that came over this connection and were not acknowledged over it."""
        self.subscriptions: list[int] = []
        """Numbers of the subscriptions, as the transport assigned them."""
        self.transacted: set[int] = set()
        """Sequences of the transactions that were sent over it."""
        self.works_off = False
        """True once the consumer has subscribed to all queues, to empty them."""

    def logged_on(self, last_sequence: int) -> None:
        """The server has processed every command up to `last_sequence`, and all their effects are durable."""
        self.ready = True
        self.consumer.told(last_sequence)
        self.next_sequence = last_sequence + 1

    def persisted(self, sequence: int, reason: str | None) -> None:
        if reason is None:
            self.consumer.told(sequence)
        else:
            refused = self.consumer.store_of_commands.pop(sequence, None)
            if refused is not None:
                self.held.update({(refused.queue, bookmark): None for bookmark in refused.bookmarks})

    def next_command(self) -> Command | None:
        """Return the next numbered command to send; None if there is none."""
        for sequence, command in self.consumer.store_of_commands.items():
            if (
                sequence not in self.transacted
                if command.publishes is not None
                else sequence >= self.next_sequence
            ):
                return command
        return None

    def sent(self, command: Command) -> None:
        """Note that a numbered command was sent over this connection."""
        self.next_sequence = max(self.next_sequence, command.sequence + 1)
        if command.publishes is not None:
            self.transacted.add(command.sequence)

    def transaction_answered(self, sequence: int, succeeded: bool) -> None:
        command = self.consumer.store_of_commands.pop(sequence, None)
        if command is None:
            return  # repeated over this connection
        if succeeded:
            self.consumer.accepted.append(command)
            self.consumer.tell(command)
        else:
            self.consumer.rejected.append(command)
            self.held.update({(command.queue, bookmark): None for bookmark in command.bookmarks})


class Consumer(Client):
    """One consumer: its name, its store, its habits."""

    def __init__(self, name: str, chance: random.Random, tell: Callable[[Command], None]) -> None:
        """`tell` is called with each command that the server has confirmed as persisted."""
        super().__init__(name, "consumer", lambda _: 0)
        self.tell = tell
        self.transactions: list[Command] = []
        """All that it ever decided on; `accepted` and `rejected`: those with an answer."""
        self.accepted: list[Command] = []
        self.rejected: list[Command] = []
        self.store_of_commands: dict[int, Command] = {}
        self.memory: list[Received] = []
        self.diligence = chance.choice([0.02, 0.1, 0.5, 1.0])
        """The probability that it acts on the messages it holds."""
        self._habits = [
            (self._work, 10.0),
            (self._transact, chance.choice([0, 5, 20])),
            (self._repeat, chance.choice([0, 1, 3])),
            (self._meddle, chance.choice([0, 1, 3])),
            (self._guess, chance.choice([0, 1, 3])),
            (self._cancel, chance.choice([0, 1, 4])),
            (self._expire, chance.choice([0, 0.5, 2])),
            (self._extend, chance.choice([0, 1, 3])),
        ]

    @property
    def connection(self) -> ConsumerWire | None:
        """Its connection; None if it has none that can be used."""
        wire = self.wire
        return wire if isinstance(wire, ConsumerWire) and wire.ready and not wire.closed else None

    def told(self, sequence: int) -> None:
        """The server has confirmed that every command up to this number is persisted."""
        for known, command in list(self.store_of_commands.items()):
            if known <= sequence and command.publishes is None:
                self.tell(self.store_of_commands.pop(known))

    def receive(self, received: Received) -> None:
        self.memory.append(received)
        del self.memory[:-MEMORY]

    def decide(
        self, chance: random.Random, others: list[Received], guesses: list[tuple[int, Bookmark]]
    ) -> list[Command]:
        """Return the commands it sends now. `others`: messages that any consumer received lately. `guesses`: queues,
        each with a bookmark that may be in it or come to it.
        """
        wire = self.connection
        assert wire is not None
        if chance.random() > self.diligence:
            return []
        habits = [habit for habit, _ in self._habits]
        [habit] = chance.choices(habits, [weight for _, weight in self._habits])
        chosen = habit(chance, wire, others, guesses)
        if isinstance(chosen, Command):
            return [chosen]
        return [] if chosen is None else [self._numbered(chance, *chosen)]

    def work_off(self) -> list[Command]:
        """Acknowledge every message that it holds."""
        wire = self.connection
        assert wire is not None
        by_queue: dict[int, list[Bookmark]] = {}
        for queue, bookmark in wire.held:
            by_queue.setdefault(queue, []).append(bookmark)
        wire.held.clear()
        return [self._command(queue, ACKNOWLEDGE, names) for queue, names in by_queue.items()]

    def _numbered(
        self, chance: random.Random, queue: int, action: int, bookmarks: list[Bookmark], extension_ns: int = 0
    ) -> Command:
        if chance.random() < 0.2:
            return Command(queue, action, tuple(bookmarks), extension_ns, 0)
        return self._command(queue, action, bookmarks, extension_ns)

    def _command(self, queue: int, action: int, bookmarks: list[Bookmark], extension_ns: int = 0) -> Command:
        self.last += 1
        command = Command(queue, action, tuple(bookmarks), extension_ns, self.last)
        self.store_of_commands[self.last] = command
        return command

    # Habits: each returns queue, action, bookmarks

    def _some_held(
        self, chance: random.Random, wire: ConsumerWire, keeps: bool = False
    ) -> tuple[int, list[Bookmark]] | None:
        if not wire.held:
            return None
        held = list(wire.held)
        queue = held[0][0] if chance.random() < 0.7 else chance.choice(held)[0]
        names = [bookmark for of, bookmark in held if of == queue]
        if chance.random() < 0.3:
            chance.shuffle(names)
        names = names[: chance.choice([1, 3, 10])]
        if not keeps:
            for name in names:
                del wire.held[queue, name]
        return queue, names

    def _work(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark]] | None:
        found = self._some_held(chance, wire)
        return None if found is None else (found[0], ACKNOWLEDGE, found[1])

    def _transact(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> Command | None:
        """Acknowledge held messages, and publish; sometimes also one that another consumer received."""
        found = self._some_held(chance, wire)
        if found is None:
            return None
        queue, names = found
        if others and chance.random() < 0.1:
            names += [one.bookmark for one in others[-3:] if one.queue == queue and one.bookmark not in names]
        publishes = chance.choice([0, 1, 1, 2, 4])
        self.last += 1
        command = Command(queue, ACKNOWLEDGE, tuple(names), 0, self.last, publishes)
        self.store_of_commands[self.last] = command
        self.transactions.append(command)
        self.last += publishes
        return command

    def _cancel(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark], int] | None:
        found = self._some_held(chance, wire)
        if found is None:
            return None
        return found[0], CANCEL, found[1], chance.choice([0, 0, 1, 10**8, 10**9, CANCEL_WITHOUT_DELAY])

    def _expire(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark]] | None:
        found = self._some_held(chance, wire)
        return None if found is None else (found[0], EXPIRE, found[1])

    def _extend(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark], int] | None:
        found = self._some_held(chance, wire, keeps=True)
        if found is None:
            return None
        return found[0], EXTEND, found[1], chance.choice([1, 10**6, 10**9, 10**11])

    def _repeat(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark]] | None:
        """Choose among the messages it has ever received, over any connection."""
        return self._any_of(chance, self.memory, [ACKNOWLEDGE, ACKNOWLEDGE, CANCEL, EXPIRE])

    def _meddle(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark]] | None:
        """Choose among the messages that any consumer received."""
        return self._any_of(chance, others, [ACKNOWLEDGE, ACKNOWLEDGE, CANCEL, EXPIRE])

    def _guess(
        self,
        chance: random.Random,
        wire: ConsumerWire,
        others: list[Received],
        guesses: list[tuple[int, Bookmark]],
    ) -> tuple[int, int, list[Bookmark]] | None:
        """Choose a bookmark that no consumer has received yet."""
        if not guesses:
            return None
        queue, bookmark = chance.choice(guesses)
        return queue, chance.choice([ACKNOWLEDGE, ACKNOWLEDGE, EXPIRE, CANCEL]), [bookmark]

    def _any_of(
        self, chance: random.Random, known: list[Received], actions: list[int]
    ) -> tuple[int, int, list[Bookmark]] | None:
        if not known:
            return None
        queue = chance.choice(known).queue
        names = [one.bookmark for one in known if one.queue == queue]
        return queue, chance.choice(actions), chance.sample(names, min(len(names), chance.choice([1, 2, 5])))
