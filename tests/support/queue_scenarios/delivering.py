"""Examples about who gets which message, and how long (queues.md §6, §7, §9.3, §11)."""

from tests.support.queue_scenarios.bench import START_NS, Bench, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Action, Counts


def a_lease_ends(make_subject: MakeSubject) -> None:
    """queues.md §24, 37."""
    bench = Bench(make_subject, queue(lease_ns=SECOND_NS, fairness="round-robin"))
    first, second = bench.subscribe(1), bench.subscribe(1)
    message = bench.publish()
    assert bench.leases_until_ns() == [START_NS + SECOND_NS]
    bench.wait(0.999_999_999)
    assert (bench.delivered(), bench.outstanding(first)) == ([], 1)
    bench.wait(0.000_000_001)
    assert bench.delivered() == [(second, message)]
    assert (bench.subject.expired_leases(0), bench.outstanding(first), bench.outstanding(second)) == (1, 0, 1)


def the_former_holder_acknowledges(make_subject: MakeSubject) -> None:
    """queues.md §24, 38."""
    bench = Bench(make_subject, queue(lease_ns=SECOND_NS, fairness="round-robin"))
    first, second = bench.subscribe(1), bench.subscribe(1)
    message = bench.publish()
    bench.wait(1)
    assert bench.delivered() == [(first, message), (second, message)]
    assert bench.ack(first, message) == Counts(1, 1, 1)
    assert (bench.depth(), bench.outstanding(second)) == (0, 0)


def a_disconnected_consumer_returns_its_leases(make_subject: MakeSubject) -> None:
    """queues.md §24, 39."""
    bench = Bench(make_subject, queue())
    first = bench.subscribe(3)
    messages = [bench.publish() for _ in range(5)]
    bench.delivered()
    second = bench.subscribe(10)
    assert bench.delivered() == [(second, message) for message in messages[3:]]
    bench.ack(second, messages[3], action="cancel")
    bench.delivered()
    bench.disconnect(first)
    younger = bench.publish()
    assert bench.delivered() == [(second, message) for message in [*messages[:3], younger]]


def delivered_too_often(make_subject: MakeSubject) -> None:
    """queues.md §24, 40."""
    bench = Bench(make_subject, queue(max_deliveries=2))
    message = bench.publish()
    for _ in range(2):
        consumer = bench.subscribe(1)
        assert bench.delivered() == [(consumer, message)]
        assert bench.removed() == []
        bench.disconnect(consumer)
    assert bench.removed() == [(message, ("max_deliveries",))]
    bench.subscribe(1)
    assert (bench.delivered(), bench.depth()) == ([], 0)


def delivered_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 41."""
    bench = Bench(make_subject, queue(max_deliveries=1))
    message = bench.publish()
    bench.unsubscribe(bench.subscribe(1))
    assert bench.removed() == [(message, ("max_deliveries",))]
    message = bench.publish()
    bench.ack(bench.subscribe(1), message)
    assert bench.removed() == [(message, ())]


def a_restart_forgets_deliveries(make_subject: MakeSubject) -> None:
    """queues.md §24, 42."""
    bench = Bench(make_subject, queue(max_deliveries=2))
    message = bench.publish()
    bench.disconnect(bench.subscribe(1))
    bench.restart()
    bench.delivered()
    for _ in range(2):
        assert bench.removed() == []
        consumer = bench.subscribe(1)
        assert bench.delivered() == [(consumer, message)]
        bench.disconnect(consumer)
    assert bench.removed() == [(message, ("max_deliveries",))]


def all_limits_together(make_subject: MakeSubject) -> None:
    """queues.md §11: all reasons that hold are reported; D-25: in this order."""
    bench = Bench(make_subject, queue(max_deliveries=1, max_cancels=1, expiration_ns=SECOND_NS))
    consumer = bench.subscribe(1)
    message = bench.publish()
    bench.wait(1)
    assert bench.removed() == []
    assert bench.ack(consumer, message, action="cancel") == Counts(1, 1, 1)
    assert bench.removed() == [(message, ("time_limit", "max_cancels", "max_deliveries"))]


def the_backlog_of_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 43."""
    bench = Bench(make_subject, queue(max_backlog=3))
    consumers = [bench.subscribe(10), bench.subscribe(10)]
    messages = [bench.publish() for _ in range(8)]
    assert [message for _, message in bench.delivered()] == messages[:3]
    assert bench.backlog() == 3
    for held, released in zip(messages, messages[3:], strict=False):
        bench.ack(consumers[0], held)
        assert [message for _, message in bench.delivered()] == [released]


def proportional_to_capacity(make_subject: MakeSubject) -> None:
    """queues.md §24, 44."""
    bench = Bench(make_subject, queue())
    all_kinds = 9
    inky, blinky, clyde = (
        bench.subscribe(backlog, kinds=frozenset({kind, all_kinds}))
        for kind, backlog in enumerate([2, 4, 10])
    )
    for kind, held in enumerate([1, 3, 4]):
        for _ in range(held):
            bench.publish(kind=kind)
    assert [bench.outstanding(consumer) for consumer in (inky, blinky, clyde)] == [1, 3, 4]
    bench.delivered()
    message = bench.publish(kind=all_kinds)
    assert bench.delivered() == [(clyde, message)]


def proportional_among_equals(make_subject: MakeSubject) -> None:
    """queues.md §24, 45."""
    bench = Bench(make_subject, queue())
    first, second = bench.subscribe(10), bench.subscribe(10)
    messages = [bench.publish() for _ in range(4)]
    assert bench.delivered() == list(zip([first, second] * 2, messages, strict=True))


def round_robin(make_subject: MakeSubject) -> None:
    """queues.md §24, 46."""
    bench = Bench(make_subject, queue(fairness="round-robin"))
    first, second, third = (bench.subscribe(10) for _ in range(3))
    messages = [bench.publish() for _ in range(6)]
    assert bench.delivered() == list(zip([first, second, third] * 2, messages, strict=True))
    bench.replace(second, 2)
    messages = [bench.publish() for _ in range(4)]
    assert bench.delivered() == list(zip([first, third] * 2, messages, strict=True))


def round_robin_goes_on_where_it_was(make_subject: MakeSubject) -> None:
    """queues.md §7: the next after the previous receiver, also when that has gone and others have come."""
    bench = Bench(make_subject, queue(fairness="round-robin"))
    first, second, third = (bench.subscribe(10) for _ in range(3))
    messages = [bench.publish(), bench.publish()]
    assert bench.delivered() == [(first, messages[0]), (second, messages[1])]
    bench.ack(second, messages[1])
    bench.disconnect(second)
    fourth = bench.subscribe(10)
    messages = [bench.publish() for _ in range(3)]
    assert bench.delivered() == list(zip([third, fourth, first], messages, strict=True))


def the_first_with_room(make_subject: MakeSubject) -> None:
    """queues.md §24, 47."""
    bench = Bench(make_subject, queue(fairness="fast"))
    first, second = bench.subscribe(3), bench.subscribe(3)
    messages = [bench.publish() for _ in range(4)]
    assert bench.delivered() == list(zip([first] * 3 + [second], messages, strict=True))


def at_most_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 48."""
    bench = Bench(make_subject, queue(at_least_once=False, fairness="round-robin", lease_ns=SECOND_NS))
    consumer = bench.subscribe(10)
    message = bench.publish()
    assert bench.leases_until_ns() == [None]
    assert (bench.depth(), bench.available(), bench.backlog()) == (0, [], 1)
    assert bench.removed() == [(message, ())]
    bench.wait(2)
    assert (bench.backlog(), bench.subject.expired_leases(0)) == (1, 0)
    bench.disconnect(consumer)
    assert bench.backlog() == 0
    bench.subscribe(10)
    bench.restart()
    bench.subscribe(10)
    assert (bench.delivered(), bench.removed(), bench.depth()) == ([], [], 0)


def at_most_once_needs_acknowledgements(make_subject: MakeSubject) -> None:
    """queues.md §24, 49."""
    settings = queue(at_least_once=False, fairness="round-robin", max_deliveries=1, max_cancels=1)
    actions: list[Action] = ["acknowledge", "cancel", "expire"]
    for action in actions:
        bench = Bench(make_subject, settings)
        consumer = bench.subscribe(1)
        first, second = bench.publish(), bench.publish()
        assert bench.delivered() == [(consumer, first)]
        assert bench.ack(consumer, first, action=action) == Counts(1, 1, 0)
        assert bench.delivered() == [(consumer, second)]
        assert bench.removed() == [(first, ()), (second, ())]
        assert (bench.depth(), bench.backlog(), bench.subject.deferred(0)) == (0, 1, 0)


def at_most_once_leaves_what_was_not_delivered(make_subject: MakeSubject) -> None:
    """queues.md D-06: the options do nothing to a message that waits; an acknowledgement removes it."""
    bench = Bench(make_subject, queue(at_least_once=False, fairness="round-robin"))
    message = bench.publish()
    assert bench.ack(bench.subscribe(0), message, action="cancel") == Counts(1, 0, 0)
    assert bench.ack(bench.subscribe(0), message, action="expire") == Counts(1, 0, 0)
    assert bench.available() == [message]
    assert bench.ack(bench.subscribe(0), message) == Counts(1, 1, 1)
    assert bench.removed() == [(message, ())]


def by_priority(make_subject: MakeSubject) -> None:
    """queues.md §24, 50."""
    bench = Bench(make_subject, queue(has_priority=True))
    one, five, three, null, text, zero = (
        bench.publish(priority=priority) for priority in (1, 5, 3, None, None, 0)
    )
    consumer = bench.subscribe(10)
    assert bench.delivered() == [(consumer, message) for message in (five, three, one, zero, null, text)]


def by_priority_then_age(make_subject: MakeSubject) -> None:
    """queues.md §24, 50; priorities have 64 bits."""
    bench = Bench(make_subject, queue(has_priority=True))
    highest = 2**64 - 1
    lowest, low, first, second = (
        bench.publish(priority=priority) for priority in (1, highest - 1, highest, highest)
    )
    consumer = bench.subscribe(1)
    assert bench.delivered() == [(consumer, first)]
    bench.ack(consumer, first, action="cancel")
    assert bench.delivered() == [(consumer, first)]
    bench.ack(consumer, first)
    bench.ack(consumer, second)
    bench.ack(consumer, low)
    assert bench.delivered() == [(consumer, second), (consumer, low), (consumer, lowest)]


def by_priority_whatever_the_filters(make_subject: MakeSubject) -> None:
    """queues.md §9.3: of what different subscriptions may get, the highest comes first, and no priority last."""
    bench = Bench(make_subject, queue(has_priority=True, max_backlog=1))
    none = bench.publish(kind=1)
    low = bench.publish(kind=1, priority=1)
    high = bench.publish(kind=2, priority=9)
    middle = bench.publish(kind=1, priority=5)
    some = bench.subscribe(10, kinds=frozenset({1}))
    assert bench.delivered() == [(some, middle)]
    every = bench.subscribe(10, kinds=frozenset({2}))
    for consumer, message, following in (
        (some, middle, [(every, high)]),
        (every, high, [(some, low)]),
        (some, low, [(some, none)]),
        (some, none, []),
    ):
        bench.ack(consumer, message)
        assert bench.delivered() == following


SCENARIOS: list[Scenario] = [
    a_lease_ends,
    the_former_holder_acknowledges,
    a_disconnected_consumer_returns_its_leases,
    delivered_too_often,
    delivered_once,
    a_restart_forgets_deliveries,
    all_limits_together,
    the_backlog_of_the_queue,
    proportional_to_capacity,
    proportional_among_equals,
    round_robin,
    round_robin_goes_on_where_it_was,
    the_first_with_room,
    at_most_once,
    at_most_once_needs_acknowledgements,
    at_most_once_leaves_what_was_not_delivered,
    by_priority,
    by_priority_then_age,
    by_priority_whatever_the_filters,
]
