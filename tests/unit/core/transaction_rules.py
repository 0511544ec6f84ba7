"""Random transactions of workers, and a comparison with the model after each step (queue_guarantees.md §4).

Workers hold messages of two queues, of which one has leases that end soon. They send transactions of messages that they
hold, held, or never held; repeat earlier ones, also from other connections; and lose their connections. The core
restarts now and then. The comparison covers each answer, the deliveries, the log, and what is in the queues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.queue_subject import SECOND_NS, Bookmark, Outcome
from tests.support.transaction_workers import FEEDS, IDS, PUBLISHER, SETTINGS, WORKERS, ModelWorkers, Workers

START_NS = 1_750_000_000_000_000_000

Answer = TypeVar("Answer")

choices = st.integers(0, 2**16)
workers = st.integers(0, WORKERS - 1)
pauses = st.sampled_from([0, 0, 0, 1, SECOND_NS // 2, SECOND_NS])
topic_lists = st.lists(st.sampled_from(["R", "R", "T", "U"]), max_size=3)


@dataclass(frozen=True)
class Sent:
    """A transaction as a worker sent it."""

    worker: int
    sequence: int
    queue: int
    messages: tuple[Bookmark, ...]
    topics: tuple[str, ...]


class TransactionRules(RuleBasedStateMachine):
    make: Callable[[], Workers]

    @initialize()
    def begin(self) -> None:
        self.subject, self.model = type(self).make(), ModelWorkers()
        self.now_ns = START_NS
        self.sequences = [0] * (WORKERS + 1)
        self.subscriptions: dict[int, int] = {}  # the worker of each
        self.messages: list[Bookmark] = []  # those that may be in a queue
        self.held: list[
            tuple[int, int, Bookmark]
        ] = []  # worker, queue and message, also of leases that have ended
        self.sent: list[Sent] = []
        for worker in range(WORKERS - 1):
            self._subscribe(worker)
        for topic in ("T", "U", "T"):
            self.publish(0, topic)

    def _next(self, session: int, count: int = 1) -> int:
        """The first of the next sequences of a session."""
        first = self.sequences[session] + 1
        self.sequences[session] += count
        return first

    def _subscribe(self, worker: int) -> None:
        number = len(self.subscriptions)
        self.subscriptions[number] = worker
        self._step(0, lambda one, now_ns: one.subscribe(now_ns, number, worker, range(len(SETTINGS))))

    @rule(pause_ns=pauses, topic=st.sampled_from(["T", "T", "U"]))
    def publish(self, pause_ns: int, topic: str) -> None:
        sequence = self._next(PUBLISHER)
        self.messages.append((IDS[PUBLISHER], sequence))
        self._step(pause_ns, lambda one, now_ns: one.publish(now_ns, PUBLISHER, sequence, topic))

    @rule(worker=workers, topic=st.sampled_from(sorted(FEEDS)))
    def publish_own(self, worker: int, topic: str) -> None:
        """A worker publishes without a transaction."""
        sequence = self._next(worker)
        if FEEDS[topic]:
            self.messages.append((IDS[worker], sequence))
        self._step(0, lambda one, now_ns: one.publish(now_ns, worker, sequence, topic))

    @precondition(lambda self: self.held)
    @rule(choice=choices)
    def acknowledge(self, choice: int) -> None:
        _, queue, message = self.held[choice % len(self.held)]
        sequence = self._next(PUBLISHER)
        self._step(0, lambda one, now_ns: one.acknowledge(now_ns, sequence, queue, message))

    @precondition(lambda self: self.held)
    @rule(pause_ns=pauses, choice=choices, more=st.lists(choices, max_size=2), topics=topic_lists)
    def transact(self, pause_ns: int, choice: int, more: list[int], topics: list[str]) -> None:
        """A transaction of messages that a worker was given from one queue."""
        worker, queue, message = self.held[-1 - choice % min(len(self.held), 8)]
        own = [one for holder, of, one in self.held if (holder, of) == (worker, queue)]
        self._transact(
            pause_ns, worker, queue, [message, *(own[-1 - one % len(own)] for one in more)], topics
        )

    @rule(
        worker=workers,
        queue=st.integers(0, 1),
        picks=st.lists(choices, min_size=1, max_size=2),
        topics=topic_lists,
    )
    def transact_any(self, worker: int, queue: int, picks: list[int], topics: list[str]) -> None:
        """A transaction of any messages of the log."""
        self._transact(0, worker, queue, [self.messages[pick % len(self.messages)] for pick in picks], topics)

    def _transact(
        self, pause_ns: int, worker: int, queue: int, messages: Sequence[Bookmark], topics: Sequence[str]
    ) -> None:
        sent = Sent(worker, self._next(worker, len(topics) + 1), queue, tuple(messages), tuple(topics))
        self.sent.append(sent)
        if self._send(pause_ns, sent) == "done":
            self.messages += [
                (IDS[worker], sent.sequence + number)
                for number, topic in enumerate(topics, 1)
                if FEEDS[topic]
            ]

    @precondition(lambda self: self.sent)
    @rule(pause_ns=pauses, choice=choices)
    def repeat(self, pause_ns: int, choice: int) -> None:
        """The same transaction again; the worker may have another connection now."""
        self._send(pause_ns, self.sent[-1 - choice % len(self.sent)])

    def _send(self, pause_ns: int, sent: Sent) -> Outcome:
        return self._step(
            pause_ns,
            lambda one, now_ns: one.transact(
                now_ns, sent.worker, sent.sequence, sent.queue, sent.messages, sent.topics
            ),
        )

    @rule(worker=workers, subscribes=st.booleans())
    def reconnect(self, worker: int, subscribes: bool) -> None:
        self._step(0, lambda one, now_ns: one.reconnect(now_ns, worker))
        if subscribes:
            self._subscribe(worker)

    @rule(pause_ns=pauses)
    def tick(self, pause_ns: int) -> None:
        self._step(pause_ns, lambda one, now_ns: one.tick(now_ns))

    @rule(workers_after=st.lists(workers, unique=True))
    def restart(self, workers_after: list[int]) -> None:
        self._step(0, lambda one, now_ns: one.restart(now_ns))
        for worker in workers_after:
            self._subscribe(worker)

    def _step(self, pause_ns: int, do: Callable[[Workers, int], Answer]) -> Answer:
        self.now_ns += pause_ns
        answer, expected = do(self.subject, self.now_ns), do(self.model, self.now_ns)
        assert answer == expected
        given, expected_given = self.subject.take_deliveries(), self.model.take_deliveries()
        for queue in range(len(SETTINGS)):
            assert [one for one in given if one[1] == queue] == [
                one for one in expected_given if one[1] == queue
            ]
            assert self.subject.available(queue) == self.model.available(queue)
            assert self.subject.leased(queue) == self.model.leased(queue)
        for worker in range(WORKERS):
            assert self.subject.last_sequence(worker) == self.model.last_sequence(worker)
        assert self.subject.take_written() == self.model.take_written()
        self.held += [(self.subscriptions[number], queue, message) for number, queue, message in given]
        return answer


def check_transactions(make: Callable[[], Workers], settings: hypothesis.settings) -> None:
    """Run the state machine. A difference raises AssertionError."""

    class Rules(TransactionRules):
        pass

    Rules.make = staticmethod(make)  # type: ignore[assignment]
    run_state_machine_as_test(Rules, settings=settings)
