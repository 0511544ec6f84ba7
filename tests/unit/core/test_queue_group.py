"""Queues that span instances: who owns a message, how it moves, and what the others learn (replication.md §14, §24.8).

Numbers in docstrings are the behaviours of replication.md §26, or rows of queues.md §19.
"""

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from tests.support.queue_group import (
    ACKNOWLEDGE,
    ACKNOWLEDGEMENT,
    CANCEL,
    ENTRY,
    EXPIRE,
    KIND_TRANSFER,
    MS,
    RECORD,
    Group,
    Instance,
    acknowledgement,
)
from tests.support.queue_subject import QueueSettings

AVAILABLE, LEASED, WAITING, ELSEWHERE = 2, 3, 8, 9
S = 1000 * MS


def queue(**changes: Any) -> QueueSettings:
    return replace(QueueSettings("Q", max_per_subscription=1000), **changes)


def group(names: str = "AB", settings: QueueSettings | None = None, **options: object) -> Group:
    return Group(names, settings or queue(), random.Random(1), options)


def owners(instance: Instance) -> list[str]:
    return [owner for _, _, owner, _, _ in instance.queue_state]


def states(instance: Instance) -> list[int]:
    return [state for _, state, _, _, _ in instance.queue_state]


def is_empty(instance: Instance) -> bool:
    queue = instance.manager.queues[0]
    assert queue.span is not None
    return (
        not instance.queue_state
        and queue.span.bookmarks.count == 0
        and queue.span.ownerships.in_use == 0
        and (instance.counter("foreign"), instance.counter("depth")) == (0, 0)
    )


def test_only_the_instance_of_the_publish_delivers() -> None:
    """57; §19 rows 4 and 5."""
    both = group()
    both["A"].subscribe(1000, both.now_ns)
    both["B"].subscribe(1000, both.now_ns)
    both.publish("A", 50)
    both.publish("B", 50)
    both.settle(20)
    assert sorted(both.watch.deliveries) == sorted(both.published)
    assert all(len(found) == 1 for found in both.watch.deliveries.values())
    assert {b: found[0] for b, found in both.watch.deliveries.items()} == {
        (publisher, n): "A" if publisher == both["A"].publisher else "B" for publisher, n in both.published
    }
    assert is_empty(both["A"])
    assert is_empty(both["B"])


def test_messages_go_to_the_only_consumer() -> None:
    """58, queues.md 68: all are delivered on B, and both counters are the number of messages."""
    both = group()
    both["B"].subscribe(10, both.now_ns)
    both.publish("A", 100)
    both.settle(400)
    assert all(found == ["B"] for found in both.watch.deliveries.values())
    assert len(both.watch.deliveries) == 100
    assert (both["A"].counter("transferred_out"), both["A"].counter("transferred_in")) == (100, 0)
    assert (both["B"].counter("transferred_out"), both["B"].counter("transferred_in")) == (0, 100)
    assert is_empty(both["A"])
    assert is_empty(both["B"])


def test_messages_that_move_keep_their_order() -> None:
    """58: a request names more messages than it wants; those cut off by the count are requested again at once. While a
    request is answered, further messages are acknowledged: they lead to no request that would come before others.
    """
    for at_once in (1, 3):
        both = group()
        both["B"].subscribe(3, both.now_ns)
        sent = both.publish("A", 60)
        order: list[tuple[int, int]] = []
        both.settle(100, acknowledges=False)  # until the messages are old enough
        began_ns = both.now_ns
        while len(order) < 60 and both.now_ns < began_ns + 2 * S:
            held = sorted(both["B"].holds)
            order += [bookmark for bookmark in held if bookmark not in order]
            for bookmark in held[:at_once]:
                both["B"].acknowledge(bookmark, ACKNOWLEDGE, both.now_ns)
            both.turn("B")
            both.settle(1, 5 * MS, acknowledges=False)
        assert order == sent
        assert both.now_ns < began_ns + S


def test_a_fast_consumer_keeps_the_messages() -> None:
    """59: A's consumer takes everything at once, so nothing moves to the idle consumer of B."""
    both = group()
    both["A"].subscribe(5, both.now_ns)
    both["B"].subscribe(5, both.now_ns)
    for _ in range(300):
        both.publish("A", 3)
        both.settle(1)
    both.settle(5)
    assert both["B"].counter("transferred_in") == 0
    assert is_empty(both["B"])


def test_a_message_is_requested_when_it_is_older_than_usual() -> None:
    """§14.2: the age is the moving average of acknowledgement minus message, 1 s at first, at least 10 ms."""
    both = group()
    both["B"].subscribe(5, both.now_ns)
    both.publish("A")
    both.settle(95)
    assert both["B"].counter("transferred_in") == 0
    both.settle(20)
    assert both["B"].counter("transferred_in") == 1
    span = both["B"].manager.queues[0].span
    assert span is not None
    assert span.typical_ns == 1e9  # an acknowledgement on this instance does not count
    both["B"].subscribe(0, both.now_ns)
    both["A"].subscribe(5, both.now_ns)
    for _ in range(150):
        both.publish("A")
        both.settle(1)
    both.settle(5)
    assert span.typical_ns < 3e7
    both["A"].subscribe(0, both.now_ns)
    both["B"].subscribe(5, both.now_ns)
    both.publish("A")
    both.settle(12)
    assert both["B"].counter("transferred_in") == 2


def test_requests_are_repeated_with_growing_intervals() -> None:
    """§24.8: after 1 s, doubling to 30 s; a refused request leaves no state (25.28)."""
    both = group()
    both["A"].subscribe(1, both.now_ns)
    first, second = both.publish("A", 2)
    both.settle(3, acknowledges=False)
    both["B"].subscribe(1, both.now_ns)
    named: list[int] = []
    begin_ns = both.now_ns
    both.cut("A", "B")
    both["B"].manager.set_reachable(["A"])
    for _ in range(11_000):
        both.now_ns += 10 * MS
        if any(first in bookmarks_in(wish[2]) for wish in both["B"].turn(both.now_ns)):
            named.append((both.now_ns - begin_ns) // S)
    gaps = [after - before for before, after in itertools.pairwise(named)]
    assert gaps[:6] == pytest.approx([1, 2, 4, 8, 16, 30], abs=1)
    assert second != first


def bookmarks_in(data: bytes) -> list[tuple[int, int]]:
    words = memoryview(data).cast("Q")
    return [(words[at], words[at + 1]) for at in range(0, len(words), 2)]


def test_no_request_without_free_backlog() -> None:
    """§14.2, first condition."""
    both = group()
    both["B"].subscribe(1, both.now_ns)
    both.publish("B")
    both.settle(2, acknowledges=False)
    both.publish("A", 5)
    both.settle(300, acknowledges=False)
    assert both["B"].counter("transferred_in") == 0


def test_the_owner_prefers_its_own_subscribers() -> None:
    """§14.2, §19 row 22: a message that a subscription of the owner can take is not granted."""
    both = group()
    both.publish("A", 3)
    both.settle(3)
    both["A"].subscribe(2, both.now_ns)
    both.turn("A")
    wanted = b"".join(a.to_bytes(8, "little") + b.to_bytes(8, "little") for a, b in sorted(both.published))
    assert both["A"].manager.request(0, "B", wanted, 3)
    both.turn("A")
    assert owners(both["A"]) == ["A", "A", "B"]
    assert states(both["A"]) == [LEASED, LEASED, ELSEWHERE]


def test_a_grant_is_limited_to_what_is_wanted() -> None:
    both = group()
    both.publish("A", 4)
    wanted = b"".join(a.to_bytes(8, "little") + b.to_bytes(8, "little") for a, b in sorted(both.published))
    assert both["A"].manager.request(0, "B", wanted, 2)
    both.turn("A")
    assert owners(both["A"]) == ["B", "B", "A", "A"]
    assert both["A"].counter("transferred_out") == 2


@pytest.mark.parametrize(
    ("number", "name", "bookmarks"), [(1, "B", bytes(16)), (0, "", bytes(16)), (0, "B", bytes(15))]
)
def test_malformed_requests_are_dropped(number: int, name: str, bookmarks: bytes) -> None:
    assert not group()["A"].manager.request(number, name, bookmarks, 1)


def test_an_acknowledgement_elsewhere_removes_the_message_and_survives() -> None:
    """60: after a restart of A, from the log or from a checkpoint, it is not delivered again."""
    for from_checkpoint in (False, True):
        both = group()
        both["B"].subscribe(5, both.now_ns)
        both.publish("A", 3)
        both.settle(50)
        both["A"].copy()
        both.settle(100)
        assert is_empty(both["A"])
        both.crash("A")
        both.start("A", from_checkpoint)
        assert is_empty(both["A"])
        both["A"].subscribe(5, both.now_ns)
        both.settle(50)
        assert all(found == ["B"] for found in both.watch.deliveries.values())


def test_each_of_many_messages_is_found_by_its_bookmark() -> None:
    """60: whatever the order of acknowledgements, they remove their own messages elsewhere, and no others."""
    both = group(settings=queue(max_per_subscription=10_000))
    for name in "AB":
        both[name].subscribe(10_000, both.now_ns)
    for _ in range(20):
        both.publish("A", 100)
        both.publish("B", 50)
        both.settle(1, acknowledges=False)
    both.settle(5, acknowledges=False)
    left = set(both.published)
    held = [(name, bookmark) for name in "AB" for bookmark in sorted(both[name].holds)]
    assert {bookmark for _, bookmark in held} == left
    random.Random(7).shuffle(held)
    for number, (name, bookmark) in enumerate(held, 1):
        both[name].acknowledge(bookmark, ACKNOWLEDGE, both.now_ns)
        left.remove(bookmark)
        if number % 500 == 0:
            both.settle(10, acknowledges=False)
            assert {found[0] for found in both["A"].queue_state} == left
            assert {found[0] for found in both["B"].queue_state} == left
    assert is_empty(both["A"])
    assert is_empty(both["B"])


def test_messages_of_a_stopped_owner_wait() -> None:
    """61: B delivers none of them, but what is published to B."""
    both = group()
    both.publish("A", 3)
    both.settle(3)
    both.crash("A")
    both["B"].subscribe(10, both.now_ns)
    (own,) = both.publish("B")
    both.settle(1000)
    assert list(both.watch.deliveries) == [own]


def test_a_proxy_takes_them() -> None:
    """62, queues.md 69: without a consumer nothing changes; then all are delivered. 63: none is delivered twice."""
    both = group()
    sent = both.publish("A", 3)
    both.settle(3)
    both.crash("A")
    both.proxy("B", True)
    both.settle(100)
    assert owners(both["B"]) == ["A"] * 3
    assert (both["B"].counter("proxied"), both["B"].counter("foreign")) == (1, 3)
    both["B"].subscribe(10, both.now_ns)
    both.settle(20)
    assert sorted(both.watch.deliveries) == sorted(sent)
    assert both["B"].counter("transferred_in") == 3
    both.start("A")
    both.proxy("B", False)
    both.settle(20)
    both["A"].subscribe(10, both.now_ns)
    both.settle(50)
    assert all(found == ["B"] for found in both.watch.deliveries.values())
    assert is_empty(both["A"])
    assert is_empty(both["B"])


def test_a_proxy_does_nothing_while_the_owner_can_be_reached() -> None:
    """§14.4: then the normal rules hold."""
    both = group()
    both.publish("A", 3)
    both.settle(3)
    both.proxy("B", True)
    both["B"].subscribe(10, both.now_ns)
    both.settle(5)
    assert both["B"].counter("transferred_in") == 0
    assert both["A"].counter("transferred_out") == 0


def test_a_proxy_grants_for_an_owner_that_cannot_be_reached() -> None:
    """§14.4: C requests from the owner that it knows; here it asks B as if B were the owner."""
    three = group("ABC")
    (sent,) = three.publish("A")
    three.settle(3)
    three.crash("A")
    wanted = sent[0].to_bytes(8, "little") + sent[1].to_bytes(8, "little")
    assert three["B"].manager.request(0, "C", wanted, 1)
    three.settle(2)
    assert owners(three["C"]) == ["A"]
    three.proxy("B", True)
    assert three["B"].manager.request(0, "C", wanted, 1)
    three.settle(2)
    assert three["B"].queue_state == [(sent, ELSEWHERE, "C", 1, True)]
    assert three["C"].queue_state == [(sent, AVAILABLE, "C", 1, True)]


def test_a_grant_of_the_owner_wins_over_that_of_a_proxy() -> None:
    """§24.8: of equal epochs, the one that is not by a proxy; a lease that runs ends by itself."""
    three = group("ABC")
    (sent,) = three.publish("A")
    three.settle(3)
    wanted = sent[0].to_bytes(8, "little") + sent[1].to_bytes(8, "little")
    assert three["A"].manager.request(0, "C", wanted, 1)
    three.turn("A")
    three["A"].sync()
    three.crash("A")  # its grant is in its log alone
    three.proxy("B", True)
    three["B"].subscribe(1, three.now_ns)
    three.settle(10, acknowledges=False)
    assert three["B"].queue_state == [(sent, LEASED, "B", 1, True)]
    three.start("A")
    three.settle(3, acknowledges=False)
    assert [three[name].queue_state[0][2:] for name in "ABC"] == [("C", 1, False)] * 3
    assert states(three["B"]) == [LEASED]
    three["B"].acknowledge(sent, CANCEL, three.now_ns)
    three.settle(2, acknowledges=False)
    assert states(three["B"]) == [ELSEWHERE]
    three["C"].subscribe(1, three.now_ns)
    three.settle(10)
    assert three.watch.deliveries[sent] == ["B", "C"]
    assert all(is_empty(three[name]) for name in "ABC")


def test_of_two_proxies_the_first_name_wins() -> None:
    """§24.8: of equal epochs by proxies, the owner whose name comes first."""
    three = group("ABC")
    three.publish("A")
    three.settle(3)
    three.crash("A")
    three.cut("B", "C")
    for name in "BC":
        three.proxy(name, True)
        three[name].subscribe(1, three.now_ns)
    three.settle(5, acknowledges=False)
    assert owners(three["B"]) == ["B"]
    assert owners(three["C"]) == ["C"]
    three.cut("B", "C", is_up=True)
    three.settle(5, acknowledges=False)
    assert owners(three["B"]) == owners(three["C"]) == ["B"]


def test_limits_are_those_of_the_owner() -> None:
    """25.34, §19 row 24: an instance that lost a message does not expire it by its limits."""
    for cancels, removed in ((1, True), (2, False)):
        both = group(settings=queue(max_cancels=cancels))
        (sent,) = both.publish("A")
        both["A"].subscribe(1, both.now_ns)
        both.settle(3, acknowledges=False)
        both["A"].acknowledge(sent, CANCEL, both.now_ns)
        both["A"].subscribe(0, both.now_ns)
        both.settle(3, acknowledges=False)
        assert is_empty(both["B"]) == removed
        assert is_empty(both["A"]) == removed


def test_a_lost_message_that_is_cancelled_waits_for_its_owner() -> None:
    three = group("ABC", settings=queue(max_cancels=1))
    (sent,) = three.publish("A")
    three.settle(3)
    three.crash("A")
    three.proxy("C", True)
    three.cut("B", "C")
    three["C"].subscribe(1, three.now_ns)
    three.settle(3, acknowledges=False)
    three.proxy("B", True)
    three["B"].subscribe(1, three.now_ns)
    three.settle(3, acknowledges=False)
    three.cut("B", "C", is_up=True)
    three.settle(3, acknowledges=False)
    assert three["C"].queue_state == [(sent, LEASED, "B", 1, True)]
    three["C"].acknowledge(sent, CANCEL, three.now_ns)
    three.settle(3, acknowledges=False)
    assert three["C"].queue_state == [(sent, ELSEWHERE, "B", 1, True)]
    assert states(three["B"]) == [LEASED]


def test_removals_by_time_are_local() -> None:
    """25.34, §19 row 19b: each instance removes its own copy; nothing about it is sent."""
    both = group(settings=queue(expiration_ns=S))
    both.publish("A", 2)
    both.settle(3)
    both.cut("A", "B")
    both.settle(150)
    assert is_empty(both["A"])
    assert is_empty(both["B"])
    assert [entry.publisher for name in "AB" for entry in both[name].log if entry.record] == [0, 0]
    assert reasons_in(both["A"]) == [1, 1]
    assert reasons_in(both["B"]) == [33, 33]


def reasons_in(instance: Instance) -> list[int]:
    found = []
    for entry in instance.log:
        if entry.record is not None:
            count = int.from_bytes(entry.record[84:88], "little")
            found += [
                int.from_bytes(entry.record[112 + 32 * at + 28 : 112 + 32 * at + 32], "little")
                for at in range(count)
            ]
    return found


def test_at_most_once_deliveries_are_told() -> None:
    """queues.md §17: a removal by delivery is replicated, so that nobody else delivers it."""
    both = group(settings=queue(at_least_once=False))
    both["A"].subscribe(10, both.now_ns)
    both.publish("A", 3)
    both.settle(5, acknowledges=False)
    assert is_empty(both["B"])
    both.crash("A")
    both.proxy("B", True)
    both["B"].subscribe(10, both.now_ns)
    both.settle(10, acknowledges=False)
    both.start("A")
    both["A"].subscribe(10, both.now_ns)
    both.settle(10, acknowledges=False)
    assert [len(found) for found in both.watch.deliveries.values()] == [1, 1, 1]


def test_forced_expiry_is_told() -> None:
    """§19 row 15."""
    both = group()
    both["A"].subscribe(1, both.now_ns)
    (sent,) = both.publish("A")
    both.settle(3, acknowledges=False)
    both["A"].acknowledge(sent, EXPIRE, both.now_ns)
    both.settle(3)
    assert is_empty(both["B"])


def test_a_group_local_queue_has_one_first_owner() -> None:
    """64, queues.md 70: wherever it is published."""
    both = group(initial_owner="A", domain=5)
    both["A"].subscribe(10, both.now_ns)
    both["B"].subscribe(10, both.now_ns)
    both.publish("B", 4)
    both.publish("A", 4)
    both.settle(20)
    assert all(found == ["A"] for found in both.watch.deliveries.values())
    assert len(both.watch.deliveries) == 8
    assert is_empty(both["B"])


def test_queues_of_other_domains_are_other_queues() -> None:
    """64: A's acknowledgements do not count in the queue of the same name of another group."""
    both = group(initial_owner="A", domain=5)
    other = Group("XB", queue(), random.Random(1), {"initial_owner": "B", "domain": 6})
    both["A"].subscribe(10, both.now_ns)
    both.publish("A", 2)
    both.settle(3)
    for entry in both["A"].log:
        other["B"].receive(entry, "X", 0, other.now_ns)
    assert states(other["B"]) == [AVAILABLE] * 2
    other["B"].sync()
    other.crash("B")
    other.start("B")
    assert states(other["B"]) == [AVAILABLE] * 2


def test_a_transfer_may_come_before_its_message() -> None:
    """§24.8; it survives a restart, from the log and from a checkpoint."""
    for restart in ("none", "log", "checkpoint"):
        three = Group("ABC", queue(), random.Random(1), {"initial_owner": "A"})
        (sent,) = three.publish("B")
        three.cut("B", "C")
        three["A"].sync()
        three["B"].sync()
        for link in three.links:  # C learns what A decides, but gets no message of B from A
            if link.source.name + link.sink.name == "BA":
                three.carry(link, 10)
        wanted = sent[0].to_bytes(8, "little") + sent[1].to_bytes(8, "little")
        assert three["A"].manager.request(0, "C", wanted, 1)
        three.turn("A")
        three["A"].sync()
        three["C"].receive(three["A"].log[1], "A", 1, three.now_ns)
        span = three["C"].manager.queues[0].span
        assert span is not None
        assert len(span.early) == 1
        three["C"].copy()
        if restart != "none":
            three.crash("C")
            three.start("C", restart == "checkpoint")
        three["C"].receive(three["B"].log[0], "B", 0, three.now_ns)
        assert three["C"].queue_state == [(sent, AVAILABLE, "C", 1, False)]
        span = three["C"].manager.queues[0].span
        assert span is not None
        assert not span.early


def test_an_early_transfer_is_forgotten_in_time() -> None:
    three = Group("AB", queue(deferred_ack_expiration_ns=S), random.Random(1), {"initial_owner": "A"})
    three.publish("A")
    assert three["A"].manager.request(
        0, "B", three["A"].publisher.to_bytes(8, "little") + (1).to_bytes(8, "little"), 1
    )
    three.turn("A")
    three["B"].receive(three["A"].log[1], "A", 1, three.now_ns)
    span = three["B"].manager.queues[0].span
    assert span is not None
    assert len(span.early) == 1
    assert three["B"].manager.due_ns <= three.now_ns + S
    three["B"].turn(three.now_ns + S - 1)
    assert len(span.early) == 1
    three["B"].turn(three.now_ns + S)
    assert not span.early


def test_an_acknowledgement_may_come_before_its_message() -> None:
    """65: it counts as deferred, and the message is not delivered."""
    both = group()
    both["A"].subscribe(1, both.now_ns)
    (sent,) = both.publish("A")
    both.settle(3)
    message, acknowledged = (entry for entry in both["A"].log if entry.publisher)
    late = group()
    late["B"].receive(acknowledged, "A", 1, late.now_ns)
    assert late["B"].counter("deferred") == 1
    late["B"].receive(message, "A", 0, late.now_ns)
    assert late["B"].counter("deferred") == 0
    assert late["B"].queue_state == []
    assert sent == (message.publisher, message.sequence)


def test_a_restart_keeps_the_owners() -> None:
    """A start from a checkpoint and one from the log alone give the same queue."""
    for from_checkpoint in (False, True):
        both = group()
        both["B"].subscribe(2, both.now_ns)
        both.publish("A", 5)
        both.publish("B", 2)
        both.settle(130, acknowledges=False)
        both["A"].copy()
        both["B"].copy()
        both["B"].acknowledge(min(both["B"].holds), ACKNOWLEDGE, both.now_ns)
        both.settle(150, acknowledges=False)
        before = {name: both[name].queue_state for name in "AB"}
        assert "B" in owners(both["A"])
        for name in "AB":
            both.crash(name)
            both.start(name, from_checkpoint)
            restored = [(b, owner, epoch, by) for b, _, owner, epoch, by in both[name].queue_state]
            assert restored == [(b, owner, epoch, by) for b, _, owner, epoch, by in before[name]]
            assert both[name].counter("foreign") == sum(owner != name for owner in owners(both[name]))


def acknowledge_elsewhere(instance: Instance, bookmark: tuple[int, int], now_ns: int) -> None:
    record = bytearray(acknowledgement(9, 1, [(*bookmark, 77)], ACKNOWLEDGE, 0))
    assert instance.adapter.replicate(record, 0, now_ns)


def test_the_head_of_a_key_that_is_owned_elsewhere_holds_the_others_back() -> None:
    """An order per key is that of the whole group (queue_guarantees.md §3)."""
    both = group(settings=queue(has_ordering_key=True))
    manager = both["B"].manager
    both["B"].subscribe(10, both.now_ns)
    manager.enqueue(0, 8, (1, 1), 1, None, 1, key_hash=9, origin="A")
    manager.enqueue(0, 16, (2, 1), 1, None, 1, key_hash=9)
    manager.enqueue(0, 24, (2, 2), 1, None, 1, key_hash=10)
    manager.serve(1)
    assert dict(manager.states(0)) == {8: ELSEWHERE, 16: WAITING, 24: LEASED}
    acknowledge_elsewhere(both["B"], (1, 1), 1)
    manager.serve(1)
    assert dict(manager.states(0)) == {16: LEASED, 24: LEASED}


def test_a_barrier_waits_for_messages_of_all_owners() -> None:
    """replication.md §26 66 and §14.3."""
    both = group(settings=queue(has_barriers=True))
    manager = both["B"].manager
    both["B"].subscribe(10, both.now_ns)
    manager.enqueue(0, 8, (1, 1), 1, None, 1, origin="A")
    manager.enqueue(0, 16, (1, 2), 1, None, 1, is_barrier=True, origin="A")
    manager.enqueue(0, 24, (1, 3), 1, None, 1, origin="A")
    manager.serve(1)
    assert not manager.output.take_deliveries(0, 10)
    manager.set_reachable(["A"])
    manager.pass_time(3 * S)
    manager.serve(3 * S)
    assert [bookmarks_in(wish[2]) for wish in manager.take_wishes()] == [[(1, 1)]]  # none behind the barrier
    acknowledge_elsewhere(both["B"], (1, 1), 3 * S)
    manager.serve(3 * S)
    assert len(manager.output.take_deliveries(0, 10)) == 32  # one record: the barrier
    assert dict(manager.states(0)) == {24: ELSEWHERE}
    decision = both["B"].adapter.take_decision()
    assert decision is not None
    assert not decision[2]  # each instance releases its own


def test_a_barrier_without_subscriptions_is_dropped() -> None:
    """queues.md D-16: when a later message is acknowledged by replication."""
    both = group(settings=queue(has_barriers=True))
    manager = both["B"].manager
    manager.enqueue(0, 8, (1, 1), 1, None, 1, is_barrier=True, origin="A")
    manager.enqueue(0, 16, (1, 2), 1, None, 1, origin="A")
    manager.enqueue(0, 24, (1, 3), 1, None, 1, is_barrier=True, origin="A")
    acknowledge_elsewhere(both["B"], (1, 2), 1)
    assert [position for position, _ in manager.states(0)] == [24]


def test_a_request_activates_messages_beyond_the_target_depth() -> None:
    """replication.md §14.2: up to the requested one, which then moves."""
    both = group(settings=queue(target_depth=2))
    sent = both.publish("A", 6)
    assert both["A"].counter("inactive") == 4
    wanted = sent[3][0].to_bytes(8, "little") + sent[3][1].to_bytes(8, "little")
    assert both["A"].manager.request(0, "B", wanted, 1)
    both.turn("A")
    assert owners(both["A"]) == ["A", "A", "A", "B", "A", "A"]
    assert both["A"].counter("inactive") == 2


def test_malformed_records_are_refused() -> None:
    """A record of another instance that is not sound has no effect."""
    both = group()
    both.publish("A", 2)
    assert both["A"].manager.request(
        0,
        "B",
        b"".join(a.to_bytes(8, "little") + b.to_bytes(8, "little") for a, b in sorted(both.published)),
        2,
    )
    both.turn("A")
    record = both["A"].log[-1].record
    assert record is not None
    length = int.from_bytes(record[:4], "little")
    sound = bytearray(record)
    assert both["B"].adapter.replicate(bytearray(sound), 0, 1)
    for at, value in ((84, 1), (84, 3), (84, 0xFF), (80, 0), (76, 0), (76, 0xFF), (length - 2, 0x41)):
        damaged = bytearray(sound)
        damaged[at] = value
        assert not both["B"].adapter.replicate(damaged, 0, 1), (at, value)
    assert not both["B"].adapter.replicate(sound[:60], 0, 1)
    assert not both["B"].adapter.replicate(sound[: length - 8], 0, 1)


def test_ownerships_are_forgotten() -> None:
    """A message may move any number of times; only the ownerships in use take memory."""
    both = group()
    manager = both["A"].manager
    (sent,) = both.publish("A")
    wanted = sent[0].to_bytes(8, "little") + sent[1].to_bytes(8, "little")
    span = manager.queues[0].span
    assert span is not None
    for epoch in range(1, 70_000, 2):
        assert manager.request(0, "B", wanted, 1)
        manager.serve(both.now_ns)
        decision = both["A"].adapter.take_decision()
        assert decision is not None
        back = bytearray(decision[1])
        back[104 + 8 + 24 : 104 + 8 + 28] = (epoch + 1).to_bytes(4, "little")
        back[-(len(back) - 144) :] = b"B\tA".ljust(len(back) - 144, b"\0")
        assert both["A"].adapter.replicate(back, 0, both.now_ns)
        assert span.ownerships.in_use == 1
        if epoch > 1000:
            break
    assert manager.owners(0)[0][1:3] == ("A", epoch + 1)


def wishes_of(both: Group, at_ns: int) -> list[tuple[str, list[tuple[int, int]], int]]:
    """What B wants then: owner, bookmarks in their order, how many."""
    manager = both["B"].manager
    manager.pass_time(at_ns)
    manager.serve(at_ns)
    return [(owner, bookmarks_in(bookmarks), count) for _, owner, bookmarks, count in manager.take_wishes()]


def granted(both: Group, sequences: list[int], at_ns: int) -> None:
    """A grants messages of its publisher 1 to B."""
    entries = [(1, sequence, 77) for sequence in sequences]
    assert both["B"].adapter.replicate(bytearray(transfer_record(entries, "A", "B")), 0, at_ns)


def transfer_record(entries: list[tuple[int, int, int]], before: str, after: str) -> bytes:
    """A transfer at epoch 1."""
    names = f"{before}\t{after}".encode()
    body = ACKNOWLEDGEMENT.pack(7, len(entries), 0, 0, 0, 0)
    body += b"".join(ENTRY.pack(*entry, 1, 0) for entry in entries) + names
    length = RECORD.size + len(body)
    return RECORD.pack(
        length, 0, 0, 1, 0, 9, 1, 0, 0, 0xFFFFFFFF, KIND_TRANSFER, 0, 0, 0, 0, 0, len(body)
    ) + body + bytes(-length % 8)


def test_messages_are_requested_in_the_order_of_their_priorities() -> None:
    """25.78: the best ones first, of all owners; those without a priority come last. Equal ones: in the order of the
    log.
    """
    both = group("ABC", settings=queue(has_priority=True))
    manager = both["B"].manager
    both["B"].subscribe(3, both.now_ns)
    priorities = [2, None, 9, 2, 0, 9, 7]
    for number, priority in enumerate(priorities, 1):
        origin = "C" if priority == 7 else "A"
        manager.enqueue(0, 8 * number, (1, number), 1, None, 1, priority=priority, origin=origin)
    manager.set_reachable(["A", "C"])
    assert wishes_of(both, 3 * S) == [
        ("A", [(1, 3), (1, 6), (1, 1), (1, 4), (1, 5), (1, 2)], 2),
        ("C", [(1, 7)], 1),
    ]


def test_what_is_behind_the_granted_ones_is_wanted_at_once() -> None:
    """25.77, 25.78: in the order of priorities. What was passed over is in other hands: it is asked for again later."""
    both = group(settings=queue(has_priority=True))
    manager = both["B"].manager
    both["B"].subscribe(2, both.now_ns)
    for number, priority in enumerate([1, 5, 9, 5, 3, 7], 1):
        manager.enqueue(0, 8 * number, (1, number), 1, None, 1, priority=priority, origin="A")
    manager.set_reachable(["A"])
    now_ns = 3 * S
    assert wishes_of(both, now_ns) == [("A", [(1, 3), (1, 6), (1, 2), (1, 4), (1, 5), (1, 1)], 2)]
    granted(both, [3, 2], now_ns)
    manager.serve(now_ns)
    both["B"].subscribe(4, now_ns)
    assert wishes_of(both, now_ns + 2 * MS) == [("A", [(1, 4), (1, 5), (1, 1)], 2)]
    assert wishes_of(both, now_ns + 500 * MS) == []


def test_of_many_messages_with_priorities_the_best_are_named() -> None:
    """25.78: a walk compares 16,384 messages, and names as many as a request may; the others in the next one."""
    both = group(settings=queue(has_priority=True))
    manager = both["B"].manager
    both["B"].subscribe(1, both.now_ns)
    chance = random.Random(5)
    count = 3000
    priorities = [chance.randrange(1000) for _ in range(count)]
    for number, priority in enumerate(priorities, 1):
        manager.enqueue(0, 8 * number, (1, number), 1, None, 1, priority=priority, origin="A")
    manager.set_reachable(["A"])
    order = sorted(range(1, count + 1), key=lambda number: (-priorities[number - 1], number))
    ((_, first, wanted),) = wishes_of(both, 3 * S)
    assert (first, wanted) == ([(1, number) for number in order[:256]], 1)
    ((_, second, _),) = wishes_of(both, 3 * S + S)
    assert second == [(1, number) for number in order[256:512]], "none of the first came: another consumer has them"


def test_a_walk_that_left_some_out_begins_again() -> None:
    """25.78: what it found and did not name is better than what is behind the place where it stopped."""
    both = group(settings=queue(has_priority=True))
    manager = both["B"].manager
    both["B"].subscribe(1, both.now_ns)
    of_a_walk = 16384
    for number in range(1, of_a_walk + 11):
        priority = 5 if number <= of_a_walk else 1
        manager.enqueue(0, 8 * number, (1, number), 1, None, 1, priority=priority, origin="A")
    manager.set_reachable(["A"])
    ((_, first, _),) = wishes_of(both, 3 * S)
    assert first == [(1, number) for number in range(1, 257)]
    ((_, second, _),) = wishes_of(both, 3 * S + S)
    assert second == [(1, number) for number in range(257, 513)]
    manager.set_reachable([])
    both.proxy("B", True)
    for number in (1, 2):
        manager.pass_time((4 + number) * S)
        manager.serve((4 + number) * S)
        leased = [position for position, state in manager.states(0) if state == LEASED]
        assert leased == [8 * one for one in range(1, number + 1)]
        both["B"].subscribe(number + 1, (4 + number) * S)


def test_a_proxy_takes_the_best_first() -> None:
    """25.78, §14.4."""
    both = group(settings=queue(has_priority=True))
    manager = both["B"].manager
    both["B"].subscribe(2, both.now_ns)
    both.proxy("B", True)
    for number, priority in enumerate([1, 5, None, 9], 1):
        manager.enqueue(0, 8 * number, (1, number), 1, None, 1, priority=priority, origin="A")
    manager.set_reachable([])
    manager.pass_time(3 * S)
    manager.serve(3 * S)
    assert dict(manager.states(0)) == {8: ELSEWHERE, 16: LEASED, 24: ELSEWHERE, 32: LEASED}
