"""Examples of acknowledgements: their effect, their limits, and their counts (queues.md §8)."""

from tests.support.queue_scenarios.harness import STRANGER, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import Counts


def several_bookmarks_at_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 24."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(2)
    messages = [harness.publish() for _ in range(4)]
    assert len(harness.delivered()) == 2
    assert harness.ack(consumer, *messages[:2]) == Counts(2, 2, 2)
    assert harness.depth() == 2
    assert harness.delivered() == [(consumer, message) for message in messages[2:]]
    assert harness.removed() == [(message, ()) for message in messages[:2]]


def a_filter_deletes_leased_messages_too(make_subject: MakeSubject) -> None:
    """queues.md §24, 25."""
    harness = Harness(make_subject, queue())
    harness.subscribe(2)
    messages = [harness.publish(kind=kind) for kind in (1, 2, 1, 2, 1)]
    assert harness.ack_matching(STRANGER, 1) == Counts(5, 3, 3)
    assert harness.removed() == [(message, ()) for message in messages[::2]]


def emptying_a_queue_frees_its_consumers(make_subject: MakeSubject) -> None:
    """queues.md §24, 26."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(2)
    messages = [harness.publish() for _ in range(5)]
    assert harness.delivered() == [(consumer, message) for message in messages[:2]]
    assert harness.ack_matching(STRANGER, 0) == Counts(5, 5, 5)
    assert (harness.depth(), harness.backlog(), harness.outstanding(consumer)) == (0, 0, 0)
    more = [harness.publish() for _ in range(2)]
    assert harness.delivered() == [(consumer, message) for message in more]


def strict_leasing_leaves_leased_messages_to_their_holder(make_subject: MakeSubject) -> None:
    """queues.md §24, 27."""
    harness = Harness(make_subject, queue(strict=True))
    consumer = harness.subscribe(2)
    messages = [harness.publish() for _ in range(5)]
    assert harness.ack_matching(STRANGER, 0) == Counts(5, 5, 3)
    assert (harness.depth(), harness.backlog()) == (2, 2)
    assert harness.ack(consumer, *messages[:2]) == Counts(2, 2, 2)


def strict_leasing_by_bookmark(make_subject: MakeSubject) -> None:
    """queues.md §24, 28; §8.4: the connection decides, and any option is refused alike."""
    harness = Harness(make_subject, queue(strict=True, max_cancels=1))
    consumer = harness.subscribe(1)
    sibling = harness.subscribe(0, beside=consumer)
    other = harness.subscribe(0)
    first, second = harness.publish(), harness.publish()
    harness.delivered()
    assert harness.ack(other, first) == Counts(1, 0, 0)
    assert harness.ack(other, first, action="cancel") == Counts(1, 0, 0)
    assert harness.ack(other, first, action="expire") == Counts(1, 0, 0)
    assert (harness.removed(), harness.delivered(), harness.subject.deferred(0)) == ([], [], 0)
    assert harness.ack(other, second) == Counts(1, 1, 1)
    assert harness.ack(sibling, first) == Counts(1, 1, 1)
    assert (harness.depth(), harness.outstanding(consumer)) == (0, 0)


def any_client_may_acknowledge_a_sublet_message(make_subject: MakeSubject) -> None:
    """queues.md §24, 29."""
    harness = Harness(make_subject, queue())
    holder = harness.subscribe(1)
    first, second = harness.publish(), harness.publish()
    assert harness.delivered() == [(holder, first)]
    assert harness.ack(STRANGER, first) == Counts(1, 1, 1)
    assert harness.delivered() == [(holder, second)]


def unknown_bookmarks_are_deferred(make_subject: MakeSubject) -> None:
    """queues.md §24, 31, and §8.5: a message that was acknowledged before it came is never delivered."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(10)
    message = harness.publish()
    to_come = harness.next_position
    harness.delivered()
    assert harness.ack(consumer, message, to_come) == Counts(2, 1, 1)
    assert harness.subject.deferred(0) == 1
    assert harness.removed() == [(message, ())]
    assert harness.publish() == to_come
    assert (harness.subject.deferred(0), harness.depth(), harness.subject.insert_count(0)) == (0, 0, 1)
    assert (harness.delivered(), harness.removed()) == ([], [])


def deferred_acknowledgements_expire(make_subject: MakeSubject) -> None:
    """queues.md §8.5: `DeferredAckExpiration`."""
    harness = Harness(make_subject, queue(deferred_ack_expiration_ns=2_000_000_000))
    consumer = harness.subscribe(10)
    to_come = harness.next_position
    harness.ack(STRANGER, to_come)
    harness.wait(1.5)
    harness.restart()
    assert harness.subject.deferred(0) == 1
    consumer = harness.subscribe(10)
    harness.wait(0.5, tick=False)
    assert harness.publish() == to_come
    assert harness.subject.deferred(0) == 0
    assert harness.delivered() == [(consumer, to_come)]


def a_second_acknowledgement_does_nothing(make_subject: MakeSubject) -> None:
    """queues.md §24, 32; D-11, also for a message that was acknowledged, expired, or never entered this queue."""
    harness = Harness(make_subject, queue("Q"), queue("Q2"))
    consumer = harness.subscribe(10)
    messages = [harness.publish(), harness.publish(), harness.publish(queues=[1])]
    harness.ack(consumer, messages[0])
    harness.ack(consumer, messages[1], action="expire")
    assert harness.ack(consumer, *messages) == Counts(3, 0, 0)
    assert harness.subject.deferred(0) == 0
    harness.restart()
    assert harness.ack(consumer, *messages) == Counts(3, 0, 0)
    assert harness.subject.deferred(0) == 0


def a_bookmark_given_twice_is_found_once(make_subject: MakeSubject) -> None:
    """queues.md D-10."""
    harness = Harness(make_subject, queue())
    message = harness.publish()
    assert harness.ack(STRANGER, message, message) == Counts(2, 1, 1)
    assert (harness.depth(), harness.subject.deferred(0)) == (0, 0)


def cancelled_messages_return_to_their_place(make_subject: MakeSubject) -> None:
    """queues.md §24, 33."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(1)
    first, second, third = (harness.publish() for _ in range(3))
    harness.delivered()
    assert harness.ack(consumer, first, action="cancel") == Counts(1, 1, 0)
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first)
    harness.ack(consumer, second)
    assert harness.delivered() == [(consumer, second), (consumer, third)]


def cancelling_too_often(make_subject: MakeSubject) -> None:
    """queues.md §24, 34."""
    harness = Harness(make_subject, queue(max_cancels=2))
    consumer = harness.subscribe(1)
    message = harness.publish()
    harness.ack(consumer, message, action="cancel")
    assert harness.delivered() == [(consumer, message)] * 2
    assert harness.removed() == []
    assert harness.ack(consumer, message, action="cancel") == Counts(1, 1, 1)
    assert (harness.delivered(), harness.removed()) == ([], [(message, ("max_cancels",))])


def cancelling_unleased_messages(make_subject: MakeSubject) -> None:
    """queues.md §19, 14b: nothing happens, and nothing is stored for a message to come."""
    harness = Harness(make_subject, queue(max_cancels=1))
    message = harness.publish()
    assert harness.ack(STRANGER, message, harness.next_position, action="cancel") == Counts(2, 0, 0)
    assert harness.ack_matching(STRANGER, 0, action="cancel") == Counts(1, 1, 0)
    assert (harness.available(), harness.subject.deferred(0)) == ([message], 0)


def cancelling_by_filter(make_subject: MakeSubject) -> None:
    """queues.md §8.2: each leased message is treated as if its lease had ended."""
    harness = Harness(make_subject, queue(max_cancels=2))
    consumer = harness.subscribe(2)
    messages = [harness.publish() for _ in range(3)]
    harness.delivered()
    assert harness.ack_matching(STRANGER, 0, action="cancel") == Counts(3, 3, 0)
    assert harness.delivered() == [(consumer, message) for message in messages[:2]]
    assert harness.ack_matching(STRANGER, 0, action="cancel") == Counts(3, 3, 2)
    assert harness.removed() == [(message, ("max_cancels",)) for message in messages[:2]]


def expiring_on_request(make_subject: MakeSubject) -> None:
    """queues.md §24, 35, and the same for a message that is not leased."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(1)
    leased, available = harness.publish(), harness.publish()
    harness.delivered()
    assert harness.ack(consumer, available, action="expire") == Counts(1, 1, 1)
    assert harness.ack(consumer, leased, action="expire") == Counts(1, 1, 1)
    assert harness.delivered() == []
    assert harness.removed() == [(leased, ("forced_expire",)), (available, ("forced_expire",))]


def extending_a_lease(make_subject: MakeSubject) -> None:
    """queues.md D-31."""
    harness = Harness(make_subject, queue(lease_ns=2_000_000_000))
    holder = harness.subscribe(2)
    longer, usual, other = harness.publish(), harness.publish(), harness.publish()
    taker = harness.subscribe(10)
    assert [consumer for consumer, _ in harness.delivered()] == [holder, holder, taker]
    harness.wait(1)
    harness.extend(holder, longer, harness.next_position, extension_s=2.5)
    harness.extend(holder, other, extension_s=100)
    harness.extend(taker, usual, extension_s=100)
    assert (harness.delivered(), harness.subject.deferred(0)) == ([], 0)
    harness.disconnect(taker)
    harness.wait(1)
    assert harness.subject.expired_leases(0) == 1
    assert harness.delivered() == [(holder, usual)]
    harness.wait(1.499_999_999)
    assert harness.subject.expired_leases(0) == 1
    harness.wait(0.000_000_001)
    assert harness.subject.expired_leases(0) == 2


SCENARIOS: list[Scenario] = [
    several_bookmarks_at_once,
    a_filter_deletes_leased_messages_too,
    emptying_a_queue_frees_its_consumers,
    strict_leasing_leaves_leased_messages_to_their_holder,
    strict_leasing_by_bookmark,
    any_client_may_acknowledge_a_sublet_message,
    unknown_bookmarks_are_deferred,
    deferred_acknowledgements_expire,
    a_second_acknowledgement_does_nothing,
    a_bookmark_given_twice_is_found_once,
    cancelled_messages_return_to_their_place,
    cancelling_too_often,
    cancelling_unleased_messages,
    cancelling_by_filter,
    expiring_on_request,
    extending_a_lease,
]
