"""The watch must notice a message that was passed over, and accept an order that the rules allow.

Each case is one turn of one queue. The case states which messages entered, which were delivered, in which order, and
which are available at the end of the turn.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest

from amps.server.records import KIND_QUEUE_DELIVERIES, raw_control_record
from tests.simulation.queue_log import Message, QueueLog
from tests.simulation.queue_plans import QueuePlan, make_plans
from tests.simulation.queue_watch import (
    DELIVERIES_HEADER,
    DELIVERY,
    QueueWatch,
    Request,
    Run,
    Subscriber,
)

ENTERED_NS, NOW_NS = 1000, 3000
WRITTEN = 100_000
CONSUMER = 1
PUBLISHER = 7


class SilentCursor:
    """A journal without further records."""

    def step(self, limit: int) -> None:
        return None


def _plan(target_depth: int | None, at_least_once: bool) -> QueuePlan:
    plan = make_plans(random.Random(1))[0]
    config = dataclasses.replace(
        plan.config,
        semantics="at-least-once" if at_least_once else "at-most-once",
        lease_period_s=None,
        max_backlog=None,
        max_per_subscription_backlog=20,
        max_deliveries=0,
        priority=None,
        ordering_key=None,
        target_queue_depth=target_depth,
    )
    return dataclasses.replace(plan, config=config)


def _turn(
    entered: Sequence[int],
    decided: Sequence[int],
    available: Sequence[int],
    *,
    target_depth: int | None,
    delayed: Sequence[int] = (),
    due_at_entry: Sequence[int] = (),
    transports: Sequence[int] = (),
    at_least_once: bool = False,
) -> None:
    """Let the watch hear one turn. `delayed` had to wait for their time when they entered; the time of
    `due_at_entry` had come by then. `transports`: of each delivery (0 if not given); answers are heard by transport.
    """
    watch = QueueWatch([_plan(target_depth, at_least_once)])
    journal: Any = SilentCursor()
    run = watch.run = Run(journal, journal, QueueLog(watch._plans), QueueLog(watch._plans))
    run.known = [{}]
    contents = run.log.queues[0]
    for position in entered:
        message = Message(position, (PUBLISHER, position), 0, False, None, None, ENTERED_NS, None)
        contents.entered.append(message)
        if at_least_once or position not in decided:
            contents.messages[position] = message
    contents.delayed.update(dict.fromkeys(delayed, ENTERED_NS + 1))
    contents.delayed.update(dict.fromkeys(due_at_entry, ENTERED_NS))
    by_transport: dict[int, list[int]] = {}
    for at, position in enumerate(decided):
        if not at_least_once:
            run.recorded[0, (PUBLISHER, position)] = position
        by_transport.setdefault(transports[at] if transports else 0, []).append(position)
    for transport in by_transport:
        subscriber = Subscriber(transport, "consumer", [Request({0: None}, 20)], {0: None}, 20, entered=True)
        run.subscribers[CONSUMER + transport] = subscriber
    replies: list[tuple[int, object]] = []
    for transport, positions in sorted(by_transport.items()):
        rows = [DELIVERY.pack(position, 0, CONSUMER + transport, 0, 0, 0) for position in positions]
        payload = DELIVERIES_HEADER.pack(WRITTEN, len(rows), 0) + b"".join(rows)
        replies.append((transport, raw_control_record(payload, KIND_QUEUE_DELIVERIES)))
    watch.hear(replies, WRITTEN, NOW_NS, False, lambda queue: list(available))
    assert watch.decided == len(decided)


def test_a_delayed_message_may_pass_inactive_ones() -> None:
    """queue_guarantees.md §1.4: beyond the target depth, earlier messages were inactive when it was delivered. They
    became active after that, in the same turn.
    """
    _turn([8, 16, 24, 32], [8, 32, 16], [24], target_depth=1, delayed=[32])
    _turn([8, 16, 24, 32], [8, 32, 16], [24], target_depth=1, delayed=[32], transports=[0, 1, 1])
    _turn([8, 16, 24, 32, 40], [32, 8], [16, 24, 40], target_depth=3, delayed=[32, 40])


def test_a_message_in_order_is_accepted() -> None:
    for target_depth in (None, 2):
        _turn([8, 16, 24], [8, 16], [24], target_depth=target_depth)
        _turn([8, 16, 24], [8, 16], [24], target_depth=target_depth, at_least_once=True)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"delayed": [32], "target_depth": None}, id="no message is ever inactive"),
        pytest.param({"delayed": [32], "target_depth": 4}, id="the depth was below the target"),
        pytest.param({"delayed": [16, 32], "target_depth": 1}, id="the earlier one was delayed, too"),
        pytest.param({"target_depth": 1}, id="inactive ones are behind those that were not delayed"),
        pytest.param(
            {"due_at_entry": [32], "target_depth": 1}, id="its time had come before it entered the queue"
        ),
        pytest.param(
            {"delayed": [32], "target_depth": 1, "at_least_once": True}, id="a delivery leaves the depth as it is"
        ),
    ],
)
def test_the_watch_notices_a_message_that_was_passed_over(case: dict[str, Any]) -> None:
    """queues.md §13, queue_guarantees.md §1.4: 16 is available, and 32 is delivered."""
    with pytest.raises(AssertionError, match=r"Message\(position=16.* comes before Message\(position=32"):
        _turn([8, 16, 32], [8, 32], [16], **case)


@pytest.mark.parametrize("decided", [[8, 16, 40], [16, 8, 40]])
def test_the_order_of_the_decisions_counts(decided: list[int]) -> None:
    """Messages that were delivered before do not count in the depth: with 40 alone, 24 would have been active."""
    with pytest.raises(AssertionError, match=r"Message\(position=24.* comes before Message\(position=40"):
        _turn([8, 16, 24, 40], decided, [24], target_depth=2, delayed=[40], transports=[1, 1, 0])


def test_inactive_messages_become_active_in_the_order_of_the_log() -> None:
    """queues.md §13: 32 was not delayed, so 16 was active before it, even if 8 filled the target depth."""
    with pytest.raises(AssertionError, match=r"Message\(position=16.* comes before Message\(position=32"):
        _turn([8, 16, 32], [32, 8], [16], target_depth=1, transports=[0, 1])
