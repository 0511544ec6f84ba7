"""Examples of time limits, the target depth and a restart (queues.md §10, §13, §17)."""

from tests.support.queue_scenarios.harness import STRANGER, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Counts, ExpirationModel

MODELS: list[ExpirationModel] = ["default", "queue", "latest", "earliest"]


def _models_under_which_it_goes(
    make_subject: MakeSubject, expiration_ns: int | None, expiration_s: int | None, after_s: float
) -> set[ExpirationModel]:
    """The models under which a message without consumers, with an expiration of its own, has expired
    after that time.
    """
    gone: set[ExpirationModel] = set()
    for model in MODELS:
        harness = Harness(make_subject, queue(expiration_ns=expiration_ns, expiration_model=model))
        message = harness.publish(expiration_s=expiration_s)
        harness.wait(after_s)
        if harness.removed() == [(message, ("time_limit",))]:
            gone.add(model)
        else:
            assert harness.available() == [message]
    return gone


def expiring_in_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 51."""
    harness = Harness(make_subject, queue(expiration_ns=SECOND_NS))
    message = harness.publish()
    harness.wait(0.999_999_999)
    assert harness.depth() == 1
    harness.wait(0.000_000_001)
    assert harness.depth() == 0
    assert harness.removed() == [(message, ("time_limit",))]


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
    harness = Harness(make_subject, queue())
    message = harness.publish(expiration_s=2)
    harness.wait(5)
    assert harness.removed() == [(message, ("time_limit",))]


def no_expiry_while_leased(make_subject: MakeSubject) -> None:
    """queues.md §24, 54."""
    harness = Harness(make_subject, queue(expiration_ns=SECOND_NS))
    consumer = harness.subscribe(1)
    message = harness.publish()
    harness.wait(3)
    assert (harness.depth(), harness.removed()) == (1, [])
    assert harness.ack(consumer, message) == Counts(1, 1, 1)
    assert harness.removed() == [(message, ())]

    message = harness.publish()
    harness.wait(3)
    harness.delivered()
    harness.subscribe(1)
    harness.disconnect(consumer)
    assert harness.removed() == [(message, ("time_limit",))]
    assert harness.delivered() == []


def a_lease_that_ends_too_late(make_subject: MakeSubject) -> None:
    """queues.md §6.2: a message whose lease ends after its time does not return."""
    harness = Harness(make_subject, queue(expiration_ns=SECOND_NS, lease_ns=2 * SECOND_NS))
    harness.subscribe(1)
    message = harness.publish()
    harness.wait(1)
    assert harness.removed() == []
    harness.delivered()
    harness.wait(1)
    assert harness.removed() == [(message, ("time_limit",))]
    assert (harness.delivered(), harness.subject.expired_leases(0), harness.depth()) == ([], 1, 0)


def expiring_while_down(make_subject: MakeSubject) -> None:
    """queues.md §24, 55."""
    harness = Harness(make_subject, queue(expiration_ns=2 * SECOND_NS))
    message = harness.publish()
    staying = harness.publish(expiration_s=0)
    harness.restart(down_s=4)
    assert harness.available() == [staying]
    assert harness.removed() == [(message, ("time_limit",))]


def a_restart_returns_all(make_subject: MakeSubject) -> None:
    """queues.md §24, 63, as far as it concerns the queue; §17."""
    harness = Harness(make_subject, queue(lease_ns=SECOND_NS))
    consumer = harness.subscribe(3)
    messages = [harness.publish() for _ in range(5)]
    harness.wait(1)
    harness.ack(consumer, messages[0], messages[2])
    assert harness.subject.expired_leases(0) == 3
    harness.restart()
    assert (harness.backlog(), harness.subject.expired_leases(0)) == (0, 0)
    left = [messages[1], messages[3], messages[4]]
    assert harness.available() == left
    harness.delivered()
    consumer = harness.subscribe(10)
    assert harness.delivered() == [(consumer, message) for message in left]
    assert harness.ack(consumer, messages[0]) == Counts(1, 0, 0)
    assert harness.subject.deferred(0) == 0


def the_counts_of_what_came_and_went(make_subject: MakeSubject) -> None:
    """queues.md §18: `insert_count`, `delete_count`."""
    harness = Harness(make_subject, queue(expiration_ns=SECOND_NS))
    messages = [harness.publish() for _ in range(4)]
    harness.ack(STRANGER, messages[0])
    harness.ack(STRANGER, messages[1], action="expire")
    harness.subscribe(1)
    harness.wait(1)
    assert (harness.subject.insert_count(0), harness.subject.delete_count(0), harness.depth()) == (4, 3, 1)


def beyond_the_target_depth(make_subject: MakeSubject) -> None:
    """queues.md §24, 62, with a hundredth of its numbers."""
    harness = Harness(make_subject, queue(target_depth=10))
    messages = [harness.publish(kind=number) for number in range(1, 16)]
    assert (harness.depth(), harness.subject.inactive(0), harness.available()) == (10, 5, messages[:10])
    assert harness.ack_matching(STRANGER, 12) == Counts(10, 0, 0)
    assert harness.ack(STRANGER, messages[11]) == Counts(1, 0, 0)
    assert (harness.subject.deferred(0), harness.subject.inactive(0)) == (1, 5)
    consumer = harness.subscribe(10, kinds=frozenset({14}))
    assert (harness.delivered(), harness.removed()) == ([], [])
    harness.ack(STRANGER, *messages[:5])
    assert harness.delivered() == [(consumer, messages[13])]
    assert harness.subject.deferred(0) == 0
    assert harness.removed() == [(message, ()) for message in [*messages[:5], messages[11]]]
    assert harness.available() == [*messages[5:11], messages[12], messages[14]]
    assert (harness.depth(), harness.subject.inactive(0)) == (9, 0)


def inactive_messages_become_active_too_late(make_subject: MakeSubject) -> None:
    """queues.md §13 with §10: an inactive message has no timer, and expires when it is reached."""
    harness = Harness(make_subject, queue(target_depth=1))
    first = harness.publish()
    late, last = harness.publish(expiration_s=1), harness.publish()
    harness.wait(2)
    assert (harness.subject.inactive(0), harness.removed()) == (2, [])
    harness.ack(STRANGER, first)
    assert harness.removed() == [(first, ()), (late, ("time_limit",))]
    assert (harness.available(), harness.subject.inactive(0)) == ([last], 0)


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
