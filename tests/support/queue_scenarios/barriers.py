"""Examples about barrier messages (queues.md §12)."""

from tests.support.queue_scenarios.harness import STRANGER, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Counts


def a_barrier_waits_and_is_waited_for(make_subject: MakeSubject) -> None:
    """queues.md §24, 58."""
    harness = Harness(make_subject, queue(has_barriers=True))
    one, two = harness.publish(), harness.publish()
    barrier = harness.publish(is_barrier=True)
    three = harness.publish()
    first, second = harness.subscribe(1), harness.subscribe(1)
    assert harness.delivered() == [(first, one), (second, two)]
    assert harness.available() == [barrier, three]
    harness.ack(first, one)
    assert (harness.delivered(), harness.barriers()) == ([], [])
    harness.ack(second, two)
    assert harness.barriers() == [(barrier, {first, second})]
    assert harness.delivered() == [(first, three)]
    assert (harness.depth(), harness.backlog()) == (1, 1)
    assert harness.removed() == [(one, ()), (two, ()), (barrier, ())]
    assert harness.ack(first, barrier) == Counts(1, 0, 0)
    assert harness.subject.deferred(0) == 0


def barriers_pass_full_backlogs(make_subject: MakeSubject) -> None:
    """queues.md §24, 59, and the same with a full backlog of the queue."""
    harness = Harness(make_subject, queue("Q", has_barriers=True), queue("Q2", max_backlog=1))
    none, full = harness.subscribe(0, queues=[0]), harness.subscribe(1)
    held = harness.publish(queues=[1])
    assert harness.delivered() == [(full, held)]
    barrier = harness.publish(is_barrier=True, queues=[0])
    assert harness.barriers() == [(barrier, {none, full})]
    assert (harness.outstanding(none), harness.outstanding(full), harness.depth()) == (0, 1, 0)

    harness = Harness(make_subject, queue(has_barriers=True, max_backlog=0))
    consumer = harness.subscribe(1)
    barrier = harness.publish(is_barrier=True)
    harness.publish()
    assert (harness.barriers(), harness.delivered()) == ([(barrier, {consumer})], [])


def a_filter_keeps_a_barrier_away_but_not_its_pause(make_subject: MakeSubject) -> None:
    """queues.md §24, 60."""
    harness = Harness(make_subject, queue(has_barriers=True))
    consumer = harness.subscribe(2, kinds=frozenset({0}))
    one, two = harness.publish(), harness.publish()
    barrier = harness.publish(kind=1, is_barrier=True)
    three = harness.publish()
    assert harness.delivered() == [(consumer, one), (consumer, two)]
    harness.ack(consumer, one)
    assert harness.delivered() == []
    harness.ack(consumer, two)
    assert harness.barriers() == [(barrier, set())]
    assert harness.delivered() == [(consumer, three)]


def a_barrier_waits_for_a_subscription(make_subject: MakeSubject) -> None:
    """queues.md §24, 61."""
    harness = Harness(make_subject, queue(has_barriers=True))
    barrier, message = harness.publish(is_barrier=True), harness.publish()
    assert (harness.barriers(), harness.available()) == ([], [barrier, message])
    harness.restart()
    consumer = harness.subscribe(1)
    harness.subscribe(1)
    assert harness.barriers() == [(barrier, {consumer})]
    assert harness.delivered() == [(consumer, message)]


def barriers_in_a_row(make_subject: MakeSubject) -> None:
    """queues.md §12: each waits for the previous one; earlier messages that expired do not delay any."""
    harness = Harness(make_subject, queue(has_barriers=True, expiration_ns=2 * SECOND_NS))
    unwanted = harness.publish(kind=1)
    consumer = harness.subscribe(10, kinds=frozenset({0}))
    harness.wait(1)
    first, second, message = (
        harness.publish(is_barrier=True),
        harness.publish(is_barrier=True),
        harness.publish(),
    )
    assert (harness.barriers(), harness.delivered()) == ([], [])
    harness.wait(1)
    assert harness.barriers() == [(first, {consumer}), (second, {consumer})]
    assert harness.delivered() == [(consumer, message)]
    assert harness.removed() == [(unwanted, ("time_limit",)), (first, ()), (second, ())]


def a_barrier_expires(make_subject: MakeSubject) -> None:
    """queues.md §19, 27."""
    harness = Harness(make_subject, queue(has_barriers=True))
    held = harness.publish()
    barrier, waiting = harness.publish(is_barrier=True, expiration_s=1), harness.publish()
    consumer = harness.subscribe(2)
    assert harness.delivered() == [(consumer, held)]
    harness.wait(1)
    assert harness.removed() == [(barrier, ("time_limit",))]
    assert (harness.barriers(), harness.delivered()) == ([], [(consumer, waiting)])


def a_waiting_barrier_is_acknowledged(make_subject: MakeSubject) -> None:
    """queues.md §8.1: `1=1` empties a queue; a barrier counts as a message that is not leased."""
    harness = Harness(make_subject, queue(has_barriers=True, strict=True))
    barriers = [harness.publish(is_barrier=True) for _ in range(3)]
    assert harness.ack(STRANGER, barriers[0], action="cancel") == Counts(1, 0, 0)
    assert harness.ack(STRANGER, barriers[0]) == Counts(1, 1, 1)
    assert harness.ack(STRANGER, barriers[1], action="expire") == Counts(1, 1, 1)
    assert harness.ack_matching(STRANGER, 0) == Counts(1, 1, 1)
    assert harness.removed() == [(barriers[0], ()), (barriers[1], ("forced_expire",)), (barriers[2], ())]


def messages_delivered_at_most_once_hold_a_barrier(make_subject: MakeSubject) -> None:
    """queues.md §12: until they are acknowledged, or their subscription ends."""
    harness = Harness(make_subject, queue(at_least_once=False, fairness="round-robin", has_barriers=True))
    first, second = harness.subscribe(1), harness.subscribe(1)
    one, two = harness.publish(), harness.publish()
    barrier = harness.publish(is_barrier=True)
    assert harness.delivered() == [(first, one), (second, two)]
    harness.ack(first, one)
    assert harness.barriers() == []
    harness.unsubscribe(second)
    assert harness.barriers() == [(barrier, {first})]


SCENARIOS: list[Scenario] = [
    a_barrier_waits_and_is_waited_for,
    barriers_pass_full_backlogs,
    a_filter_keeps_a_barrier_away_but_not_its_pause,
    a_barrier_waits_for_a_subscription,
    barriers_in_a_row,
    a_barrier_expires,
    a_waiting_barrier_is_acknowledged,
    messages_delivered_at_most_once_hold_a_barrier,
]
