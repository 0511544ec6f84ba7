"""The invariants of a group, over what clients were told and what the logs hold.

They know nothing of how a group works, so they judge the model (`group_model`) and real instances (`group_world`)
alike. `Held` is a message in a log, as far as the invariants need it. Each function raises AssertionError with the
history's first message that is wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Bookmark = tuple[str, int]


@dataclass(frozen=True)
class Held:
    """A message in the log of an instance."""

    publisher: str
    sequence: int
    content: object

    @property
    def bookmark(self) -> Bookmark:
        return self.publisher, self.sequence


Logs = Mapping[str, Sequence[Held]]
"""Name of an instance -> its log, in order."""


class Promised(Protocol):
    """A persisted acknowledgement, and the instances (name, epoch) that it speaks for."""

    @property
    def bookmark(self) -> Bookmark: ...
    @property
    def holders(self) -> Iterable[tuple[str, int | str]]: ...


def check_promises(
    promises: Iterable[Promised], logs: Logs, epochs: Mapping[str, int] | Mapping[str, str]
) -> None:
    """Check that an acknowledged message is on the instance that acknowledged it and on every destination that was sync
    (replication.md §7). An instance that has begun a new epoch has lost its disk, and owes only the messages of that
    epoch.
    """
    held = {name: {message.bookmark for message in log} for name, log in logs.items()}
    for promise in promises:
        for name, epoch in promise.holders:
            if name in held and epochs[name] == epoch:
                assert promise.bookmark in held[name], (
                    f"{promise.bookmark} was acknowledged and is missing on {name}"
                )


def check_order(logs: Logs) -> None:
    """Check that each log holds each publisher's messages in rising order, none twice (replication.md §§10, 11)."""
    for name, log in logs.items():
        highest: dict[str, int] = {}
        for message in log:
            before = highest.get(message.publisher, 0)
            assert message.sequence != before, f"{message.bookmark} is on {name} twice"
            assert message.sequence > before, f"{message.bookmark} is on {name} after {before}"
            highest[message.publisher] = message.sequence


def check_contents(logs: Logs) -> None:
    """Check that equal bookmarks have equal contents, so no message was damaged or mixed up on its way."""
    contents: dict[Bookmark, object] = {}
    for name, log in logs.items():
        for message in log:
            known = contents.setdefault(message.bookmark, message.content)
            assert known == message.content, f"{message.bookmark} on {name}: {message.content}, was {known}"


def check_equal(logs: Logs) -> None:
    """At quiet: all logs hold the same messages per publisher, in the same order (replication.md §11)."""
    streams: dict[str, dict[str, list[int]]] = {}
    for name, log in logs.items():
        for message in log:
            streams.setdefault(message.publisher, {}).setdefault(name, []).append(message.sequence)
    for publisher, by_instance in streams.items():
        first = next(iter(logs))
        expected = by_instance.get(first, [])
        for name in logs:
            lacking = sorted(set(expected) ^ set(by_instance.get(name, [])))
            assert not lacking, f"{publisher}: {first} and {name} differ in {lacking[:10]}"
    lengths = {name: len(log) for name, log in logs.items()}
    assert len(set(lengths.values())) <= 1, f"the logs have different lengths: {lengths}"


def check_received(
    received: Sequence[Bookmark],
    logs: Logs,
    may_miss: Iterable[Bookmark] = (),
    fully_durable_on: Iterable[str] = (),
) -> None:
    """At quiet: a subscriber that resumed by bookmarks got each message once, in the order of each publisher, and
    nothing that the group does not have. `may_miss`: messages that the documented model may skip
    (docs/spec/replication_histories.md). `fully_durable_on`: instances that must hold all that it got.
    """
    highest: dict[str, int] = {}
    for publisher, sequence in received:
        before = highest.get(publisher, 0)
        assert sequence > before, f"{(publisher, sequence)} was delivered again, or after {before}"
        highest[publisher] = sequence
    got = set(received)
    anywhere = {message.bookmark for log in logs.values() for message in log}
    missed = anywhere - got - set(may_miss)
    assert not missed, f"never delivered: {sorted(missed)[:10]}"
    unknown = got - anywhere
    assert not unknown, f"delivered, and nobody has it: {sorted(unknown)[:10]}"
    for name in fully_durable_on:
        lacking = got - {message.bookmark for message in logs[name]}
        assert not lacking, f"delivered as fully durable, and not on {name}: {sorted(lacking)[:10]}"


@dataclass
class Lease:
    """A delivery of a queue message to a consumer, from one step of the history to another."""

    bookmark: Bookmark
    instance: str
    consumer: str
    begin: int
    end: int | None = None
    """Step at which it was acknowledged, given back or lost; None while it runs."""
    acknowledged: bool = False
    persisted: int | None = None
    """Step at which the consumer was told that its acknowledgement is persisted."""


def check_queue_deliveries(leases: Iterable[Lease], excused: Iterable[Bookmark] = ()) -> None:
    """Check that a message is in the hand of one consumer of the group at a time, and in nobody's once its
    acknowledgement was persisted (replication.md §14.1). `excused`: messages for which the documented model does not
    promise it.
    """
    by_message: dict[Bookmark, list[Lease]] = {}
    for lease in leases:
        by_message.setdefault(lease.bookmark, []).append(lease)
    for bookmark in by_message.keys() - set(excused):
        found = sorted(by_message[bookmark], key=lambda lease: lease.begin)
        for number, lease in enumerate(found):
            for before in found[:number]:
                assert before.end is not None, (
                    f"{bookmark} is leased to {before.consumer} and given away at once"
                )
                assert before.end <= lease.begin, (
                    f"{bookmark} is leased to {before.consumer} on {before.instance} and to {lease.consumer} "
                    f"on {lease.instance} at once"
                )
                assert before.persisted is None or before.persisted > lease.begin, (
                    f"{bookmark} was acknowledged on {before.instance} and delivered again on {lease.instance}"
                )


def check_queue_empty(
    messages: Iterable[Bookmark], leases: Iterable[Lease], left: Mapping[str, Iterable[Bookmark]]
) -> None:
    """At quiet, with consumers: every message of the queue was acknowledged, no instance keeps one, and no lease is
    left over (replication.md §14.3).
    """
    leases = list(leases)
    for name, rest in left.items():
        kept = sorted(rest)
        assert not kept, f"{name} still has {kept[:10]} in its queue"
    acknowledged = {lease.bookmark for lease in leases if lease.acknowledged}
    lost = set(messages) - acknowledged
    assert not lost, f"never acknowledged: {sorted(lost)[:10]}"
    for lease in leases:
        assert lease.end is not None, (
            f"{lease.bookmark} is still leased to {lease.consumer} on {lease.instance}"
        )


def check_owners(owners: Mapping[str, Mapping[Bookmark, str]], excused: Iterable[Bookmark] = ()) -> None:
    """At quiet: all instances name the same owner for each message that is left in their queues (replication.md
    §14.1).
    """
    excused = set(excused)
    known: dict[Bookmark, tuple[str, str]] = {}
    for name, queue in owners.items():
        for bookmark, owner in queue.items():
            if bookmark in excused:
                continue
            first, expected = known.setdefault(bookmark, (name, owner))
            assert owner == expected, f"{bookmark} belongs to {expected} on {first}, and to {owner} on {name}"
