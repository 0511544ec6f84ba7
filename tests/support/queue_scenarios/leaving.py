"""Examples about time limits, the target depth and a restart (queues.md §10, §13, §17)."""

from tests.support.queue_scenarios.bench import STRANGER, Bench, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Counts, ExpirationModel

MODELS: list[ExpirationModel] = ["default", "queue", "latest", "earliest"]


def _models_under_which_it_goes(
    make_subject: MakeSubject, expiration_ns: int | None, expiration_s: int | None, after_s: float
) -> set[ExpirationModel]:
    """A message that nobody takes, with an expiration of its own, in a queue under each model."""
    gone: set[ExpirationModel] = set()
    for model in MODELS:
        bench = Bench(make_subject, queue(expiration_ns=expiration_ns, expiration_model=model))
        message = bench.publish(expiration_s=expiration_s)
        bench.wait(after_s)
        if bench.removed() == [(message, ("time_limit",))]:
            gone.add(model)
        else:
            assert bench.available() == [message]
    return gone


def expiring_in_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 51."""
    bench = Bench(make_subject, queue(expiration_ns=SECOND_NS))
    message = bench.publish()
    bench.wait(0.999_999_999)
    assert bench.depth() == 1
    bench.wait(0.000_000_001)
    assert bench.depth() == 0
    assert bench.removed() == [(message, ("time_limit",))]


def models_of_expiration(make_subject: MakeSubject) -> None:
    """queues.md §24, 52."""
    hour_ns = 3600 * SECOND_NS
    assert _models_under_which_it_goes(make_subject, hour_ns, 2, after_s=5) == {"default", "earliest"}
    assert _models_under_which_it_goes(make_subject, None, 2, after_s=5) == {"default", "earliest"}
    assert _models_under_which_it_goes(make_subject, 2 * SECOND_NS, None, after_s=2) == set(MODELS)
    assert _models_under_which_it_goes(make_subject, 2 * SECOND_NS, 3600, after_s=5) == {"queue", "earliest"}
    assert _models_under_which_it_goes(make_subject, hour_ns, 2, after_s=3600) == set(MODELS)


def messages_that_never_expire(make_subject: MakeSubject) -> None:
    """queues.md D-13."""
    assert _models_under_which_it_goes(make_subject, 2 * SECOND_NS, 0, after_s=10**6) == {"queue", "earliest"}
    assert _models_under_which_it_goes(make_subject, None, 0, after_s=10**6) == set()
    assert _models_under_which_it_goes(make_subject, None, None, after_s=10**6) == set()


def expiring_as_the_underlying_topic_says(make_subject: MakeSubject) -> None:
    """queues.md §24, 53: the topic has stamped its expiration on the message."""
    bench = Bench(make_subject, queue())
    message = bench.publish(expiration_s=2)
    bench.wait(5)
    assert bench.removed() == [(message, ("time_limit",))]


def no_expiry_while_leased(make_subject: MakeSubject) -> None:
    """queues.md §24, 54."""
    bench = Bench(make_subject, queue(expiration_ns=SECOND_NS))
    consumer = bench.subscribe(1)
    message = bench.publish()
    bench.wait(3)
    assert (bench.depth(), bench.removed()) == (1, [])
    assert bench.ack(consumer, message) == Counts(1, 1, 1)
    assert bench.removed() == [(message, ())]

    message = bench.publish()
    bench.wait(3)
    bench.delivered()
    bench.subscribe(1)
    bench.disconnect(consumer)
    assert bench.removed() == [(message, ("time_limit",))]
    assert bench.delivered() == []


def a_lease_that_ends_too_late(make_subject: MakeSubject) -> None:
    """queues.md §6.2: a message whose lease ends after its time does not return."""
    bench = Bench(make_subject, queue(expiration_ns=SECOND_NS, lease_ns=2 * SECOND_NS))
    bench.subscribe(1)
    message = bench.publish()
    bench.wait(1)
    assert bench.removed() == []
    bench.delivered()
    bench.wait(1)
    assert bench.removed() == [(message, ("time_limit",))]
    assert (bench.delivered(), bench.subject.expired_leases(0), bench.depth()) == ([], 1, 0)


def expiring_while_down(make_subject: MakeSubject) -> None:
    """queues.md §24, 55."""
    bench = Bench(make_subject, queue(expiration_ns=2 * SECOND_NS))
    message = bench.publish()
    staying = bench.publish(expiration_s=0)
    bench.restart(down_s=4)
    assert bench.available() == [staying]
    assert bench.removed() == [(message, ("time_limit",))]


def a_restart_returns_all(make_subject: MakeSubject) -> None:
    """queues.md §24, 63, as far as the queue is concerned; §17."""
    bench = Bench(make_subject, queue(lease_ns=SECOND_NS))
    consumer = bench.subscribe(3)
    messages = [bench.publish() for _ in range(5)]
    bench.wait(1)
    bench.ack(consumer, messages[0], messages[2])
    assert bench.subject.expired_leases(0) == 3
    bench.restart()
    assert (bench.backlog(), bench.subject.expired_leases(0)) == (0, 0)
    left = [messages[1], messages[3], messages[4]]
    assert bench.available() == left
    bench.delivered()
    consumer = bench.subscribe(10)
    assert bench.delivered() == [(consumer, message) for message in left]
    assert bench.ack(consumer, messages[0]) == Counts(1, 0, 0)
    assert bench.subject.deferred(0) == 0


def the_counts_of_what_came_and_went(make_subject: MakeSubject) -> None:
    """queues.md §18: `insert_count`, `delete_count`."""
    bench = Bench(make_subject, queue(expiration_ns=SECOND_NS))
    messages = [bench.publish() for _ in range(4)]
    bench.ack(STRANGER, messages[0])
    bench.ack(STRANGER, messages[1], action="expire")
    bench.subscribe(1)
    bench.wait(1)
    assert (bench.subject.insert_count(0), bench.subject.delete_count(0), bench.depth()) == (4, 3, 1)


def beyond_the_target_depth(make_subject: MakeSubject) -> None:
    """queues.md §24, 62, with a hundredth of its numbers."""
    bench = Bench(make_subject, queue(target_depth=10))
    messages = [bench.publish(kind=number) for number in range(1, 16)]
    assert (bench.depth(), bench.subject.inactive(0), bench.available()) == (10, 5, messages[:10])
    assert bench.ack_matching(STRANGER, 12) == Counts(10, 0, 0)
    assert bench.ack(STRANGER, messages[11]) == Counts(1, 0, 0)
    assert (bench.subject.deferred(0), bench.subject.inactive(0)) == (1, 5)
    consumer = bench.subscribe(10, kinds=frozenset({14}))
    assert (bench.delivered(), bench.removed()) == ([], [])
    bench.ack(STRANGER, *messages[:5])
    assert bench.delivered() == [(consumer, messages[13])]
    assert bench.subject.deferred(0) == 0
    assert bench.removed() == [(message, ()) for message in [*messages[:5], messages[11]]]
    assert bench.available() == [*messages[5:11], messages[12], messages[14]]
    assert (bench.depth(), bench.subject.inactive(0)) == (9, 0)


def inactive_messages_become_active_too_late(make_subject: MakeSubject) -> None:
    """queues.md §13 with §10: an inactive message has no timer, and expires when it is reached."""
    bench = Bench(make_subject, queue(target_depth=1))
    first = bench.publish()
    late, last = bench.publish(expiration_s=1), bench.publish()
    bench.wait(2)
    assert (bench.subject.inactive(0), bench.removed()) == (2, [])
    bench.ack(STRANGER, first)
    assert bench.removed() == [(first, ()), (late, ("time_limit",))]
    assert (bench.available(), bench.subject.inactive(0)) == ([last], 0)


SCENARIOS: list[Scenario] = [
    expiring_in_the_queue,
    models_of_expiration,
    messages_that_never_expire,
    expiring_as_the_underlying_topic_says,
    no_expiry_while_leased,
    a_lease_that_ends_too_late,
    expiring_while_down,
    a_restart_returns_all,
    the_counts_of_what_came_and_went,
    beyond_the_target_depth,
    inactive_messages_become_active_too_late,
]
