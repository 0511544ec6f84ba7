"""Examples about acknowledgements: what they remove, what they may not, and what they report (queues.md §8)."""

from tests.support.queue_scenarios.bench import STRANGER, Bench, MakeSubject, Scenario, queue
from tests.support.queue_subject import Counts


def several_bookmarks_at_once(make_subject: MakeSubject) -> None:
    """queues.md §24, 24."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(2)
    messages = [bench.publish() for _ in range(4)]
    assert len(bench.delivered()) == 2
    assert bench.ack(consumer, *messages[:2]) == Counts(2, 2, 2)
    assert bench.depth() == 2
    assert bench.delivered() == [(consumer, message) for message in messages[2:]]
    assert bench.removed() == [(message, ()) for message in messages[:2]]


def a_filter_deletes_leased_messages_too(make_subject: MakeSubject) -> None:
    """queues.md §24, 25."""
    bench = Bench(make_subject, queue())
    bench.subscribe(2)
    messages = [bench.publish(kind=kind) for kind in (1, 2, 1, 2, 1)]
    assert bench.ack_matching(STRANGER, 1) == Counts(5, 3, 3)
    assert bench.removed() == [(message, ()) for message in messages[::2]]


def emptying_a_queue_frees_its_consumers(make_subject: MakeSubject) -> None:
    """queues.md §24, 26."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(2)
    messages = [bench.publish() for _ in range(5)]
    assert bench.delivered() == [(consumer, message) for message in messages[:2]]
    assert bench.ack_matching(STRANGER, 0) == Counts(5, 5, 5)
    assert (bench.depth(), bench.backlog(), bench.outstanding(consumer)) == (0, 0, 0)
    more = [bench.publish() for _ in range(2)]
    assert bench.delivered() == [(consumer, message) for message in more]


def strict_leasing_leaves_leased_messages_to_their_holder(make_subject: MakeSubject) -> None:
    """queues.md §24, 27."""
    bench = Bench(make_subject, queue(strict=True))
    consumer = bench.subscribe(2)
    messages = [bench.publish() for _ in range(5)]
    assert bench.ack_matching(STRANGER, 0) == Counts(5, 5, 3)
    assert (bench.depth(), bench.backlog()) == (2, 2)
    assert bench.ack(consumer, *messages[:2]) == Counts(2, 2, 2)


def strict_leasing_by_bookmark(make_subject: MakeSubject) -> None:
    """queues.md §24, 28; §8.4: it is the connection that counts, and any option is refused alike."""
    bench = Bench(make_subject, queue(strict=True, max_cancels=1))
    consumer = bench.subscribe(1)
    sibling = bench.subscribe(0, beside=consumer)
    other = bench.subscribe(0)
    first, second = bench.publish(), bench.publish()
    bench.delivered()
    assert bench.ack(other, first) == Counts(1, 0, 0)
    assert bench.ack(other, first, action="cancel") == Counts(1, 0, 0)
    assert bench.ack(other, first, action="expire") == Counts(1, 0, 0)
    assert (bench.removed(), bench.delivered(), bench.subject.deferred(0)) == ([], [], 0)
    assert bench.ack(other, second) == Counts(1, 1, 1)
    assert bench.ack(sibling, first) == Counts(1, 1, 1)
    assert (bench.depth(), bench.outstanding(consumer)) == (0, 0)


def anybody_may_acknowledge_a_sublet_message(make_subject: MakeSubject) -> None:
    """queues.md §24, 29."""
    bench = Bench(make_subject, queue())
    holder = bench.subscribe(1)
    first, second = bench.publish(), bench.publish()
    assert bench.delivered() == [(holder, first)]
    assert bench.ack(STRANGER, first) == Counts(1, 1, 1)
    assert bench.delivered() == [(holder, second)]


def unknown_bookmarks_are_deferred(make_subject: MakeSubject) -> None:
    """queues.md §24, 31, and §8.5: a message that was acknowledged before it came is never delivered."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(10)
    message = bench.publish()
    to_come = bench.next_position
    bench.delivered()
    assert bench.ack(consumer, message, to_come) == Counts(2, 1, 1)
    assert bench.subject.deferred(0) == 1
    assert bench.removed() == [(message, ())]
    assert bench.publish() == to_come
    assert (bench.subject.deferred(0), bench.depth(), bench.subject.insert_count(0)) == (0, 0, 1)
    assert (bench.delivered(), bench.removed()) == ([], [])


def deferred_acknowledgements_expire(make_subject: MakeSubject) -> None:
    """queues.md §8.5: `DeferredAckExpiration`."""
    bench = Bench(make_subject, queue(deferred_ack_expiration_ns=2_000_000_000))
    consumer = bench.subscribe(10)
    to_come = bench.next_position
    bench.ack(STRANGER, to_come)
    bench.wait(1.5)
    bench.restart()
    assert bench.subject.deferred(0) == 1
    consumer = bench.subscribe(10)
    bench.wait(0.5, tick=False)
    assert bench.publish() == to_come
    assert bench.subject.deferred(0) == 0
    assert bench.delivered() == [(consumer, to_come)]


def a_second_acknowledgement_does_nothing(make_subject: MakeSubject) -> None:
    """queues.md §24, 32; D-11, also for a message that was acknowledged, expired, or never entered this queue."""
    bench = Bench(make_subject, queue("Q"), queue("Q2"))
    consumer = bench.subscribe(10)
    messages = [bench.publish(), bench.publish(), bench.publish(queues=[1])]
    bench.ack(consumer, messages[0])
    bench.ack(consumer, messages[1], action="expire")
    assert bench.ack(consumer, *messages) == Counts(3, 0, 0)
    assert bench.subject.deferred(0) == 0
    bench.restart()
    assert bench.ack(consumer, *messages) == Counts(3, 0, 0)
    assert bench.subject.deferred(0) == 0


def a_bookmark_given_twice_is_found_once(make_subject: MakeSubject) -> None:
    """queues.md D-10."""
    bench = Bench(make_subject, queue())
    message = bench.publish()
    assert bench.ack(STRANGER, message, message) == Counts(2, 1, 1)
    assert (bench.depth(), bench.subject.deferred(0)) == (0, 0)


def cancelled_messages_return_to_their_place(make_subject: MakeSubject) -> None:
    """queues.md §24, 33."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(1)
    first, second, third = (bench.publish() for _ in range(3))
    bench.delivered()
    assert bench.ack(consumer, first, action="cancel") == Counts(1, 1, 0)
    assert bench.delivered() == [(consumer, first)]
    bench.ack(consumer, first)
    bench.ack(consumer, second)
    assert bench.delivered() == [(consumer, second), (consumer, third)]


def cancelling_too_often(make_subject: MakeSubject) -> None:
    """queues.md §24, 34."""
    bench = Bench(make_subject, queue(max_cancels=2))
    consumer = bench.subscribe(1)
    message = bench.publish()
    bench.ack(consumer, message, action="cancel")
    assert bench.delivered() == [(consumer, message)] * 2
    assert bench.removed() == []
    assert bench.ack(consumer, message, action="cancel") == Counts(1, 1, 1)
    assert (bench.delivered(), bench.removed()) == ([], [(message, ("max_cancels",))])


def cancelling_what_is_not_leased(make_subject: MakeSubject) -> None:
    """queues.md §19, 14b: nothing happens, and nothing is kept for what is to come."""
    bench = Bench(make_subject, queue(max_cancels=1))
    message = bench.publish()
    assert bench.ack(STRANGER, message, bench.next_position, action="cancel") == Counts(2, 0, 0)
    assert bench.ack_matching(STRANGER, 0, action="cancel") == Counts(1, 1, 0)
    assert (bench.available(), bench.subject.deferred(0)) == ([message], 0)


def cancelling_by_filter(make_subject: MakeSubject) -> None:
    """queues.md §8.2: as though the lease had ended, for whatever is leased."""
    bench = Bench(make_subject, queue(max_cancels=2))
    consumer = bench.subscribe(2)
    messages = [bench.publish() for _ in range(3)]
    bench.delivered()
    assert bench.ack_matching(STRANGER, 0, action="cancel") == Counts(3, 3, 0)
    assert bench.delivered() == [(consumer, message) for message in messages[:2]]
    assert bench.ack_matching(STRANGER, 0, action="cancel") == Counts(3, 3, 2)
    assert bench.removed() == [(message, ("max_cancels",)) for message in messages[:2]]


def expiring_on_request(make_subject: MakeSubject) -> None:
    """queues.md §24, 35, and the same for a message that is not leased."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(1)
    leased, available = bench.publish(), bench.publish()
    bench.delivered()
    assert bench.ack(consumer, available, action="expire") == Counts(1, 1, 1)
    assert bench.ack(consumer, leased, action="expire") == Counts(1, 1, 1)
    assert bench.delivered() == []
    assert bench.removed() == [(leased, ("forced_expire",)), (available, ("forced_expire",))]


def extending_a_lease(make_subject: MakeSubject) -> None:
    """queues.md D-31."""
    bench = Bench(make_subject, queue(lease_ns=2_000_000_000))
    holder = bench.subscribe(2)
    longer, usual, other = bench.publish(), bench.publish(), bench.publish()
    taker = bench.subscribe(10)
    assert [consumer for consumer, _ in bench.delivered()] == [holder, holder, taker]
    bench.wait(1)
    bench.extend(holder, longer, bench.next_position, extension_s=2.5)
    bench.extend(holder, other, extension_s=100)
    bench.extend(taker, usual, extension_s=100)
    assert (bench.delivered(), bench.subject.deferred(0)) == ([], 0)
    bench.disconnect(taker)
    bench.wait(1)
    assert bench.subject.expired_leases(0) == 1
    assert bench.delivered() == [(holder, usual)]
    bench.wait(1.499_999_999)
    assert bench.subject.expired_leases(0) == 1
    bench.wait(0.000_000_001)
    assert bench.subject.expired_leases(0) == 2


SCENARIOS: list[Scenario] = [
    several_bookmarks_at_once,
    a_filter_deletes_leased_messages_too,
    emptying_a_queue_frees_its_consumers,
    strict_leasing_leaves_leased_messages_to_their_holder,
    strict_leasing_by_bookmark,
    anybody_may_acknowledge_a_sublet_message,
    unknown_bookmarks_are_deferred,
    deferred_acknowledgements_expire,
    a_second_acknowledgement_does_nothing,
    a_bookmark_given_twice_is_found_once,
    cancelled_messages_return_to_their_place,
    cancelling_too_often,
    cancelling_what_is_not_leased,
    cancelling_by_filter,
    expiring_on_request,
    extending_a_lease,
]
