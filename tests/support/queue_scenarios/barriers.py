"""Examples about barrier messages (queues.md §12)."""

from tests.support.queue_scenarios.bench import STRANGER, Bench, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Counts


def a_barrier_waits_and_is_waited_for(make_subject: MakeSubject) -> None:
    """queues.md §24, 58."""
    bench = Bench(make_subject, queue(has_barriers=True))
    one, two = bench.publish(), bench.publish()
    barrier = bench.publish(is_barrier=True)
    three = bench.publish()
    first, second = bench.subscribe(1), bench.subscribe(1)
    assert bench.delivered() == [(first, one), (second, two)]
    assert bench.available() == [barrier, three]
    bench.ack(first, one)
    assert (bench.delivered(), bench.barriers()) == ([], [])
    bench.ack(second, two)
    assert bench.barriers() == [(barrier, {first, second})]
    assert bench.delivered() == [(first, three)]
    assert (bench.depth(), bench.backlog()) == (1, 1)
    assert bench.removed() == [(one, ()), (two, ()), (barrier, ())]
    assert bench.ack(first, barrier) == Counts(1, 0, 0)
    assert bench.subject.deferred(0) == 0


def barriers_pass_full_backlogs(make_subject: MakeSubject) -> None:
    """queues.md §24, 59, and the same with a full backlog of the queue."""
    bench = Bench(make_subject, queue("Q", has_barriers=True), queue("Q2", max_backlog=1))
    none, full = bench.subscribe(0, queues=[0]), bench.subscribe(1)
    held = bench.publish(queues=[1])
    assert bench.delivered() == [(full, held)]
    barrier = bench.publish(is_barrier=True, queues=[0])
    assert bench.barriers() == [(barrier, {none, full})]
    assert (bench.outstanding(none), bench.outstanding(full), bench.depth()) == (0, 1, 0)

    bench = Bench(make_subject, queue(has_barriers=True, max_backlog=0))
    consumer = bench.subscribe(1)
    barrier = bench.publish(is_barrier=True)
    bench.publish()
    assert (bench.barriers(), bench.delivered()) == ([(barrier, {consumer})], [])


def a_filter_keeps_a_barrier_away_but_not_its_pause(make_subject: MakeSubject) -> None:
    """queues.md §24, 60."""
    bench = Bench(make_subject, queue(has_barriers=True))
    consumer = bench.subscribe(2, kinds=frozenset({0}))
    one, two = bench.publish(), bench.publish()
    barrier = bench.publish(kind=1, is_barrier=True)
    three = bench.publish()
    assert bench.delivered() == [(consumer, one), (consumer, two)]
    bench.ack(consumer, one)
    assert bench.delivered() == []
    bench.ack(consumer, two)
    assert bench.barriers() == [(barrier, set())]
    assert bench.delivered() == [(consumer, three)]


def a_barrier_waits_for_a_subscription(make_subject: MakeSubject) -> None:
    """queues.md §24, 61."""
    bench = Bench(make_subject, queue(has_barriers=True))
    barrier, message = bench.publish(is_barrier=True), bench.publish()
    assert (bench.barriers(), bench.available()) == ([], [barrier, message])
    bench.restart()
    consumer = bench.subscribe(1)
    bench.subscribe(1)
    assert bench.barriers() == [(barrier, {consumer})]
    assert bench.delivered() == [(consumer, message)]


def barriers_in_a_row(make_subject: MakeSubject) -> None:
    """queues.md §12: each waits for the previous one; expired earlier messages hold none back."""
    bench = Bench(make_subject, queue(has_barriers=True, expiration_ns=2 * SECOND_NS))
    unwanted = bench.publish(kind=1)
    consumer = bench.subscribe(10, kinds=frozenset({0}))
    bench.wait(1)
    first, second, message = (
        bench.publish(is_barrier=True),
        bench.publish(is_barrier=True),
        bench.publish(),
    )
    assert (bench.barriers(), bench.delivered()) == ([], [])
    bench.wait(1)
    assert bench.barriers() == [(first, {consumer}), (second, {consumer})]
    assert bench.delivered() == [(consumer, message)]
    assert bench.removed() == [(unwanted, ("time_limit",)), (first, ()), (second, ())]


def a_barrier_expires(make_subject: MakeSubject) -> None:
    """queues.md §19, 27."""
    bench = Bench(make_subject, queue(has_barriers=True))
    held = bench.publish()
    barrier, waiting = bench.publish(is_barrier=True, expiration_s=1), bench.publish()
    consumer = bench.subscribe(2)
    assert bench.delivered() == [(consumer, held)]
    bench.wait(1)
    assert bench.removed() == [(barrier, ("time_limit",))]
    assert (bench.barriers(), bench.delivered()) == ([], [(consumer, waiting)])


def a_waiting_barrier_is_acknowledged(make_subject: MakeSubject) -> None:
    """queues.md §8.1: `1=1` empties a queue; a barrier counts as a message that is not leased."""
    bench = Bench(make_subject, queue(has_barriers=True, strict=True))
    barriers = [bench.publish(is_barrier=True) for _ in range(3)]
    assert bench.ack(STRANGER, barriers[0], action="cancel") == Counts(1, 0, 0)
    assert bench.ack(STRANGER, barriers[0]) == Counts(1, 1, 1)
    assert bench.ack(STRANGER, barriers[1], action="expire") == Counts(1, 1, 1)
    assert bench.ack_matching(STRANGER, 0) == Counts(1, 1, 1)
    assert bench.removed() == [(barriers[0], ()), (barriers[1], ("forced_expire",)), (barriers[2], ())]


def messages_delivered_at_most_once_hold_a_barrier(make_subject: MakeSubject) -> None:
    """queues.md §12: until they are acknowledged, or their subscription ends."""
    bench = Bench(make_subject, queue(at_least_once=False, fairness="round-robin", has_barriers=True))
    first, second = bench.subscribe(1), bench.subscribe(1)
    one, two = bench.publish(), bench.publish()
    barrier = bench.publish(is_barrier=True)
    assert bench.delivered() == [(first, one), (second, two)]
    bench.ack(first, one)
    assert bench.barriers() == []
    bench.unsubscribe(second)
    assert bench.barriers() == [(barrier, {first})]


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
