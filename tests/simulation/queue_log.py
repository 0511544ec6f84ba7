"""The contents of queues according to a journal, in the simplest form: one record after the other, lists in log
order.

It knows nothing of leases and of the core's memory (queues.md §17): a message enters, and leaves by a record. A
message beyond the target depth that is acknowledged has left here, though the core still keeps it.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from amps._core.journal.reader import LogCursor
from tests.simulation.checks import MESSAGES
from tests.simulation.queue_plans import NS_PER_S, QueuePlan, names_and_numbers

KIND_ACKNOWLEDGEMENT = 4
KIND_EXPIRY = 5
KIND_TRANSACTION_REFUSED = 20
ACKNOWLEDGE, CANCEL, EXPIRE, EXTEND, DELIVERED, ANSWERED, DELAYED = range(7)
TIME_LIMIT, FORCED, CANCELS, DELIVERIES, BARRIER_SENT = 1, 2, 4, 8, 16
HEADER = struct.Struct("<IIQQII")
ENTRY = struct.Struct("<QQQII")
Bookmark = tuple[int, int]


@dataclass(frozen=True)
class Message:
    """A message that entered a queue."""

    position: int
    bookmark: Bookmark
    kind: int
    is_barrier: bool
    priority: int | None
    key: object
    entered_ns: int
    expires_ns: int | None

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The sort key of delivery: messages of a higher priority first, and those of equal priority in the order of
        the log.
        """
        return self.priority is None, -(self.priority or 0), self.position


@dataclass(frozen=True)
class Left:
    """A removal that the journal records, or a delay of a cancelled message (DELAYED).

    `publisher_id` names the client that caused it; 0 means the core. `message` is None if the message has not come
    yet or was already gone.
    """

    queue: int
    publisher_id: int
    sequence: int
    action: int
    reasons: int
    bookmark: Bookmark
    position: int
    timestamp_ns: int
    message: Message | None


@dataclass
class QueueContents:
    """One queue: its messages by log position, the deferred acknowledgements with the time at which each lapses, and
    the latest time until which each message that was ever delayed has to wait.
    """

    messages: dict[int, Message] = field(default_factory=dict)
    deferred: dict[Bookmark, int] = field(default_factory=dict)
    delayed: dict[int, int] = field(default_factory=dict)
    entered: list[Message] = field(default_factory=list)


def delay_end(until_ns: int) -> int:
    """The time from which on a message that is delayed until a time may be delivered."""
    return until_ns


class QueueLog:
    """All queues, up to the position to which a journal was read."""

    def __init__(self, plans: Sequence[QueuePlan]) -> None:
        self._plans = plans
        self._numbers = names_and_numbers(plans)
        self.queues = [QueueContents() for _ in plans]

    def follow(self, cursor: LogCursor, limit: int) -> list[Left]:
        """Read on, up to a log position. Return the removals and delays, in order."""
        left: list[Left] = []
        while (record := cursor.step(limit)) is not None:
            if record.kind in MESSAGES:
                self._enter(record)
            elif record.kind in (KIND_ACKNOWLEDGEMENT, KIND_EXPIRY):
                left += self._leave(record)
            elif record.kind != KIND_TRANSACTION_REFUSED:
                raise AssertionError(f"a record of an unexpected kind: {record}")
        return left

    def _enter(self, record: Any) -> None:
        body = None
        for plan, queue in zip(self._plans, self.queues, strict=True):
            if not plan.feeds(record.topic[0]):
                continue
            body = json.loads(record.payload) if body is None else body
            if not plan.takes(body):
                continue
            bookmark = (record.publisher_id, record.sequence)
            until_ns = queue.deferred.pop(bookmark, None)
            if until_ns is not None and until_ns > record.timestamp_ns:
                continue
            expires_ns = plan.expires_ns(record.timestamp_ns, record.expiration_s)
            message = Message(
                record.position,
                bookmark,
                body["k"],
                plan.is_barrier(body),
                plan.priority(body),
                None if plan.is_barrier(body) else plan.key(body),
                record.timestamp_ns,
                expires_ns,
            )
            queue.messages[record.position] = message
            queue.entered.append(message)
            if "not_before" in body and not message.is_barrier:
                queue.delayed[record.position] = delay_end(body["not_before"] * 1_000_000)

    def _leave(self, record: Any) -> list[Left]:
        number = self._numbers[record.topic[0]]
        queue, plan = self.queues[number], self._plans[number]
        action, count, until_ns, searched_until, token, _ = HEADER.unpack_from(record.payload)
        assert len(record.payload) == HEADER.size + count * ENTRY.size, record
        assert searched_until == token == 0, record
        assert (action == EXPIRE) == (record.kind == KIND_EXPIRY) or record.publisher_id, record
        assert action in (ACKNOWLEDGE, EXPIRE, DELIVERED, ANSWERED, DELAYED), record
        assert count, record
        left = []
        for *bookmark, position, deliveries, reasons in ENTRY.iter_unpack(record.payload[HEADER.size :]):
            assert deliveries == 0 or (position and action in (ACKNOWLEDGE, EXPIRE, DELAYED)), record
            name = bookmark[0], bookmark[1]
            if action == DELAYED:
                assert position in queue.messages, f"{name} is delayed, and gone"
                queue.delayed[position] = delay_end(until_ns)
            message = (
                queue.messages.get(position) if action == DELAYED else queue.messages.pop(position, None)
            )
            assert message is None or message.bookmark == name, f"{name} is not at {position}"
            if action == ANSWERED:
                assert message is None, f"{name} has entered although its acknowledgement came before it"
                continue
            if not position:
                queue.deferred.pop(name, None)  # its time begins again
                kept_ns = int(plan.config.deferred_ack_expiration_s * NS_PER_S)
                queue.deferred[name] = record.timestamp_ns + kept_ns
            left.append(
                Left(
                    number,
                    record.publisher_id,
                    record.sequence,
                    action,
                    reasons,
                    name,
                    position,
                    record.timestamp_ns,
                    message,
                )
            )
        return left
