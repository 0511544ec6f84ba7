"""Examples of deliveries: their receivers, and how long messages stay leased (queues.md §6, §7, §9.3, §11)."""

from tests.support.queue_scenarios.harness import START_NS, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Action, Counts


def a_lease_ends(make_subject: MakeSubject) -> None:
    """queues.md §24, 37."""
    harness = Harness(make_subject, queue(lease_ns=SECOND_NS, fairness="round-robin"))
    first, second = harness.subscribe(1), harness.subscribe(1)
    message = harness.publish()
    assert harness.leases_until_ns() == [START_NS + SECOND_NS]
    harness.wait(0.999_999_999)
    assert (harness.delivered(), harness.outstanding(first)) == ([], 1)
    harness.wait(0.000_000_001)
    assert harness.delivered() == [(second, message)]
    assert (harness.subject.expired_leases(0), harness.outstanding(first), harness.outstanding(second)) == (
        1,
        0,
        1,
    )


def the_former_holder_acknowledges(make_subject: MakeSubject) -> None:
    """queues.md §24, 38."""
    harness = Harness(make_subject, queue(lease_ns=SECOND_NS, fairness="round-robin"))
    first, second = harness.subscribe(1), harness.subscribe(1)
    message = harness.publish()
    harness.wait(1)
    assert harness.delivered() == [(first, message), (second, message)]
    assert harness.ack(first, message) == Counts(1, 1, 1)
    assert (harness.depth(), harness.outstanding(second)) == (0, 0)


def a_disconnected_consumer_returns_its_leases(make_subject: MakeSubject) -> None:
    """queues.md §24, 39."""
    harness = Harness(make_subject, queue())
    first = harness.subscribe(3)
    messages = [harness.publish() for _ in range(5)]
    harness.delivered()
    second = harness.subscribe(10)
    assert harness.delivered() == [(second, message) for message in messages[3:]]
    harness.ack(second, messages[3], action="cancel")
    harness.delivered()
    harness.disconnect(first)
    younger = harness.publish()
    assert harness.delivered() == [(second, message) for message in [*messages[:3], younger]]


def delivered_too_often(make_subject: MakeSubject) -> None:
    """queues.md §24, 40."""
    harness = Harness(make_subject, queue(max_deliveries=2))
    message = harness.publish()
    for _ in range(2):
        consumer = harness.subscribe(1)
        assert harness.delivered() == [(consumer, message)]
        assert harness.removed() == []
        harness.disconnect(consumer)
    assert harness.removed() == [(message, ("max_deliveries",))]
    harness.subscribe(1)
    assert (harness.delivered(), harness.depth()) == ([], 0)


def delivered_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 41."""
    harness = Harness(make_subject, queue(max_deliveries=1))
    message = harness.publish()
    harness.unsubscribe(harness.subscribe(1))
    assert harness.removed() == [(message, ("max_deliveries",))]
    message = harness.publish()
    harness.ack(harness.subscribe(1), message)
    assert harness.removed() == [(message, ())]


def a_restart_forgets_deliveries(make_subject: MakeSubject) -> None:
    """queues.md §24, 42."""
    harness = Harness(make_subject, queue(max_deliveries=2))
    message = harness.publish()
    harness.disconnect(harness.subscribe(1))
    harness.restart()
    harness.delivered()
    for _ in range(2):
        assert harness.removed() == []
        consumer = harness.subscribe(1)
        assert harness.delivered() == [(consumer, message)]
        harness.disconnect(consumer)
    assert harness.removed() == [(message, ("max_deliveries",))]


def all_limits_together(make_subject: MakeSubject) -> None:
    """queues.md §11: all reasons that apply are reported; D-25: in this order."""
    harness = Harness(make_subject, queue(max_deliveries=1, max_cancels=1, expiration_ns=SECOND_NS))
    consumer = harness.subscribe(1)
    message = harness.publish()
    harness.wait(1)
    assert harness.removed() == []
    assert harness.ack(consumer, message, action="cancel") == Counts(1, 1, 1)
    assert harness.removed() == [(message, ("time_limit", "max_cancels", "max_deliveries"))]


def the_backlog_of_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 43."""
    harness = Harness(make_subject, queue(max_backlog=3))
    consumers = [harness.subscribe(10), harness.subscribe(10)]
    messages = [harness.publish() for _ in range(8)]
    assert [message for _, message in harness.delivered()] == messages[:3]
    assert harness.backlog() == 3
    for held, released in zip(messages, messages[3:], strict=False):
        harness.ack(consumers[0], held)
        assert [message for _, message in harness.delivered()] == [released]


def proportional_to_capacity(make_subject: MakeSubject) -> None:
    """queues.md §24, 44."""
    harness = Harness(make_subject, queue())
    all_kinds = 9
    inky, blinky, clyde = (
        harness.subscribe(backlog, kinds=frozenset({kind, all_kinds}))
        for kind, backlog in enumerate([2, 4, 10])
    )
    for kind, held in enumerate([1, 3, 4]):
        for _ in range(held):
            harness.publish(kind=kind)
    assert [harness.outstanding(consumer) for consumer in (inky, blinky, clyde)] == [1, 3, 4]
    harness.delivered()
    message = harness.publish(kind=all_kinds)
    assert harness.delivered() == [(clyde, message)]


def proportional_among_equals(make_subject: MakeSubject) -> None:
    """queues.md §24, 45."""
    harness = Harness(make_subject, queue())
    first, second = harness.subscribe(10), harness.subscribe(10)
    messages = [harness.publish() for _ in range(4)]
    assert harness.delivered() == list(zip([first, second] * 2, messages, strict=True))


def round_robin(make_subject: MakeSubject) -> None:
    """queues.md §24, 46."""
    harness = Harness(make_subject, queue(fairness="round-robin"))
    first, second, third = (harness.subscribe(10) for _ in range(3))
    messages = [harness.publish() for _ in range(6)]
    assert harness.delivered() == list(zip([first, second, third] * 2, messages, strict=True))
    harness.replace(second, 2)
    messages = [harness.publish() for _ in range(4)]
    assert harness.delivered() == list(zip([first, third] * 2, messages, strict=True))


def round_robin_goes_on_where_it_was(make_subject: MakeSubject) -> None:
    """queues.md §7: the next after the previous receiver, also when that has gone and others have come."""
    harness = Harness(make_subject, queue(fairness="round-robin"))
    first, second, third = (harness.subscribe(10) for _ in range(3))
    messages = [harness.publish(), harness.publish()]
    assert harness.delivered() == [(first, messages[0]), (second, messages[1])]
    harness.ack(second, messages[1])
    harness.disconnect(second)
    fourth = harness.subscribe(10)
    messages = [harness.publish() for _ in range(3)]
    assert harness.delivered() == list(zip([third, fourth, first], messages, strict=True))


def the_first_with_room(make_subject: MakeSubject) -> None:
    """queues.md §24, 47."""
    harness = Harness(make_subject, queue(fairness="fast"))
    first, second = harness.subscribe(3), harness.subscribe(3)
    messages = [harness.publish() for _ in range(4)]
    assert harness.delivered() == list(zip([first] * 3 + [second], messages, strict=True))


def at_most_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 48."""
    harness = Harness(make_subject, queue(at_least_once=False, fairness="round-robin", lease_ns=SECOND_NS))
    consumer = harness.subscribe(10)
    message = harness.publish()
    assert harness.leases_until_ns() == [None]
    assert (harness.depth(), harness.available(), harness.backlog()) == (0, [], 1)
    assert harness.removed() == [(message, ())]
    harness.wait(2)
    assert (harness.backlog(), harness.subject.expired_leases(0)) == (1, 0)
    harness.disconnect(consumer)
    assert harness.backlog() == 0
    harness.subscribe(10)
    harness.restart()
    harness.subscribe(10)
    assert (harness.delivered(), harness.removed(), harness.depth()) == ([], [], 0)


def at_most_once_needs_acknowledgements(make_subject: MakeSubject) -> None:
    """queues.md §24, 49."""
    settings = queue(at_least_once=False, fairness="round-robin", max_deliveries=1, max_cancels=1)
    actions: list[Action] = ["acknowledge", "cancel", "expire"]
    for action in actions:
        harness = Harness(make_subject, settings)
        consumer = harness.subscribe(1)
        first, second = harness.publish(), harness.publish()
        assert harness.delivered() == [(consumer, first)]
        assert harness.ack(consumer, first, action=action) == Counts(1, 1, 0)
        assert harness.delivered() == [(consumer, second)]
        assert harness.removed() == [(first, ()), (second, ())]
        assert (harness.depth(), harness.backlog(), harness.subject.deferred(0)) == (0, 1, 0)


def at_most_once_leaves_undelivered_messages(make_subject: MakeSubject) -> None:
    """queues.md D-06: the options have no effect on a waiting message; an acknowledgement removes it."""
    harness = Harness(make_subject, queue(at_least_once=False, fairness="round-robin"))
    message = harness.publish()
    assert harness.ack(harness.subscribe(0), message, action="cancel") == Counts(1, 0, 0)
    assert harness.ack(harness.subscribe(0), message, action="expire") == Counts(1, 0, 0)
    assert harness.available() == [message]
    assert harness.ack(harness.subscribe(0), message) == Counts(1, 1, 1)
    assert harness.removed() == [(message, ())]


def by_priority(make_subject: MakeSubject) -> None:
    """queues.md §24, 50."""
    harness = Harness(make_subject, queue(has_priority=True))
    one, five, three, null, text, zero = (
        harness.publish(priority=priority) for priority in (1, 5, 3, None, None, 0)
    )
    consumer = harness.subscribe(10)
    assert harness.delivered() == [(consumer, message) for message in (five, three, one, zero, null, text)]


def by_priority_then_age(make_subject: MakeSubject) -> None:
    """queues.md §24, 50; priorities have 64 bits."""
    harness = Harness(make_subject, queue(has_priority=True))
    highest = 2**64 - 1
    lowest, low, first, second = (
        harness.publish(priority=priority) for priority in (1, highest - 1, highest, highest)
    )
    consumer = harness.subscribe(1)
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first, action="cancel")
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first)
    harness.ack(consumer, second)
    harness.ack(consumer, low)
    assert harness.delivered() == [(consumer, second), (consumer, low), (consumer, lowest)]


def by_priority_whatever_the_filters(make_subject: MakeSubject) -> None:
    """queues.md §9.3: of messages for different subscriptions the highest comes first, and one without
    priority last.
    """
    harness = Harness(make_subject, queue(has_priority=True, max_backlog=1))
    none = harness.publish(kind=1)
    low = harness.publish(kind=1, priority=1)
    high = harness.publish(kind=2, priority=9)
    middle = harness.publish(kind=1, priority=5)
    some = harness.subscribe(10, kinds=frozenset({1}))
    assert harness.delivered() == [(some, middle)]
    every = harness.subscribe(10, kinds=frozenset({2}))
    for consumer, message, following in (
        (some, middle, [(every, high)]),
        (every, high, [(some, low)]),
        (some, low, [(some, none)]),
        (some, none, []),
    ):
        harness.ack(consumer, message)
        assert harness.delivered() == following


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
    at_most_once_leaves_undelivered_messages,
    by_priority,
    by_priority_then_age,
    by_priority_whatever_the_filters,
]
