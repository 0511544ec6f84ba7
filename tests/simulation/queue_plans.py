"""The queues of a seed: their configurations, and the same rules implemented a second time in plain Python.

The core evaluates `Filter`, `BarrierExpression`, `Priority` and `OrderingKey` as expressions. This module computes
their values without expressions, so that the two can be compared. The target depth is far below the minimum of a
configuration, so that it takes effect.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from amps.config.model_queues import QueueConfig
from amps.topic_expressions import topic_predicate
from tests.simulation.clients import Client

NS_PER_S = 1_000_000_000
KINDS = 3
"""The number of kinds of messages; the filter of a consumer selects one."""
UNDERLYING = ("orders", "quotes", "^(orders|quotes)$", "^news/", "^(orders|quotes|news/)")
Body = dict[str, Any]


@dataclass(frozen=True)
class QueuePlan:
    """One queue, with functions of a topic or body: whether the queue takes it, whether it is a barrier, its priority,
    and its key (None = it has none).
    """

    config: QueueConfig
    feeds: Callable[[str], bool]
    takes: Callable[[Body], bool]
    is_barrier: Callable[[Body], bool]
    priority: Callable[[Body], int | None]
    key: Callable[[Body], object]

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def at_least_once(self) -> bool:
        return self.config.semantics == "at-least-once"

    def expires_ns(self, received_ns: int, expiration_s: int | None) -> int | None:
        """The time at which a message expires in the queue, None = never (queues.md §10, D-13)."""
        config = self.config
        of_queue = None if config.expiration_s is None else received_ns + int(config.expiration_s * NS_PER_S)
        if expiration_s is None or config.expiration_model == "queue":
            return of_queue
        of_message = received_ns + expiration_s * NS_PER_S if expiration_s else None
        if config.expiration_model == "default":
            return of_message
        times = [time_ns for time_ns in (of_queue, of_message) if time_ns is not None]
        if config.expiration_model == "latest":
            return max(times) if len(times) == 2 else None
        return min(times, default=None)


def make_plans(chance: random.Random) -> list[QueuePlan]:
    """Make between one and four random queues."""
    return [_make_plan(chance, number) for number in range(chance.choice([1, 2, 3, 4]))]


def _make_plan(chance: random.Random, number: int) -> QueuePlan:
    at_least_once = chance.random() < 0.7
    underlying = chance.choice(UNDERLYING)
    is_regex = underlying.startswith("^")
    least = chance.choice([0, 1]) if chance.random() < 0.3 else None
    extra = chance.choice(["none", "none", "priority", "barrier", "target"])
    config = QueueConfig(
        name=f"queue-{number}",
        message_type="json",
        kind="LocalQueue",
        underlying_topic=underlying,
        underlying_is_regex=is_regex,
        default_publish_target="orders" if is_regex else underlying,
        semantics="at-least-once" if at_least_once else "at-most-once",
        fairness_model=chance.choice(["fast", "round-robin", "proportional"])
        if at_least_once
        else "round-robin",
        lease_period_s=chance.choice([None, 0.2, 0.2, 1, 60]) if at_least_once else None,
        max_backlog=chance.choice([None, None, 3, 10]),
        max_per_subscription_backlog=chance.choice([1, 2, 5, 20]),
        expiration_s=chance.choice([None, None, None, 0.5, 20]),
        expiration_model=chance.choice(["default", "queue", "latest", "earliest"]),
        filter=None if least is None else f"/k > {least}",
        leasing=chance.choice(["sublet", "sublet", "strict"]),
        max_deliveries=chance.choice([0, 0, 1, 3]),
        max_cancels=chance.choice([0, 0, 1, 2]),
        cancel_delay_s=chance.choice([None, 0.1, 0.3, 1]) if at_least_once else None,
        cancel_delay_factor=chance.choice([1, 1.5, 10]),
        cancel_delay_max_s=2,
        priority="/p" if extra == "priority" else None,
        barrier_expression="/barrier = 1" if extra == "barrier" else None,
        target_queue_depth=chance.choice([1, 3, 10]) if extra == "target" else None,
        # Acknowledgements of messages beyond the target depth must be remembered for as long as the message waits.
        deferred_ack_expiration_s=1e9 if extra == "target" else chance.choice([86400, 5]),
        ordering_key="/o" if chance.random() < 0.4 and at_least_once else None,
    )
    return QueuePlan(
        config,
        topic_predicate(underlying, is_regex) or (lambda topic: topic == underlying),
        lambda body: least is None or body["k"] > least,
        lambda body: extra == "barrier" and body.get("barrier") == 1,
        lambda body: priority_of(body.get("p")) if extra == "priority" else None,
        lambda body: None if config.ordering_key is None else key_of(body.get("o")),
    )


def priority_of(value: object) -> int | None:
    """The priority that the value of a field gives (queues.md §9.3, D-12)."""
    if not isinstance(value, int | float):
        return None
    return max(0, min((1 << 64) - 1, int(value)))


def key_of(value: object) -> object:
    """The key that the value of a field gives: equal for equal values, and for a number and its text
    (queue_guarantees.md Q-21).
    """
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return None if value is None else float(value)  # type: ignore[arg-type]


def names_and_numbers(plans: Sequence[QueuePlan]) -> dict[str, int]:
    """The numbers of the queues by name."""
    return {plan.name: number for number, plan in enumerate(plans)}


class QueuePublisher(Client):
    """A publisher whose messages carry the fields that queues evaluate."""

    clock_ns: Callable[[], int]

    def new_body(self, chance: random.Random) -> bytes:
        self.bodies += 1
        body: Body = {"id": f"{self.name}:{self.bodies}", "k": chance.randrange(KINDS)}
        if chance.random() < 0.7:
            body["p"] = chance.choice([0, 1, 2, 3, -1, 2.5, "x", 1e30])
        if chance.random() < 0.1:
            body["barrier"] = 1
        if chance.random() < 0.2:
            body["not_before"] = self.clock_ns() // 1_000_000 + chance.choice([-1000, 0, 10, 300, 1000, 5000])
        if chance.random() < 0.8:
            body["o"] = chance.choice(["ann", "bob", 7, "7", 7.0, 2.5])
        body["x"] = "x" * self.sizes(chance)
        return json.dumps(body).encode()
