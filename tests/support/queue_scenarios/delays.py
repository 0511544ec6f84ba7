"""Examples of delayed messages (queue_guarantees.md §1, §2, §7)."""

from tests.support.queue_scenarios.harness import STRANGER, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import AT_ONCE, SECOND_NS, Counts

MS_NS = 1_000_000


def a_delay_ends_at_its_time(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 1 and 2: not a nanosecond before it; a time that has passed is no delay."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(10)
    later = harness.publish(delay_s=0.3)
    passed, now = harness.publish(delay_s=-1), harness.publish(delay_s=0)
    assert harness.delivered() == [(consumer, passed), (consumer, now)]
    harness.wait(0.299_999_999)
    assert harness.delivered() == []
    harness.wait(0.000_000_001)
    assert harness.delivered() == [(consumer, later)]


def delayed_messages_do_not_fill_the_queue(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 4."""
    harness = Harness(make_subject, queue(target_depth=2))
    delayed = [harness.publish(delay_s=delay_s) for delay_s in (3, 1, 2)]
    assert (harness.depth(), harness.subject.delayed(0)) == (0, delayed)
    assert harness.subject.next_delivery_ns(0) == harness.now_ns + SECOND_NS
    plain = [harness.publish() for _ in range(3)]
    assert (harness.depth(), harness.subject.inactive(0)) == (2, 1)
    harness.wait(1)
    assert (harness.depth(), harness.subject.inactive(0)) == (
        3,
        1,
    )  # also if the depth has reached the target
    assert harness.available() == [delayed[1], *plain[:2]]
    harness.wait(2)
    assert (harness.depth(), harness.subject.delayed(0)) == (5, [])
    assert harness.subject.next_delivery_ns(0) == AT_ONCE


def a_delayed_message_passes_inactive_ones(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §1.4: those before it in the log do not hold it up, not even when it comes back."""
    harness = Harness(make_subject, queue(target_depth=1, lease_ns=SECOND_NS))
    first, inactive, delayed = harness.publish(), harness.publish(), harness.publish(delay_s=1)
    harness.wait(1)
    assert harness.available() == [first, delayed]
    consumer, other = harness.subscribe(1), harness.subscribe(1)
    assert harness.delivered() == [(consumer, first), (other, delayed)]
    harness.ack(other, delayed, action="cancel")
    assert harness.delivered() == [(other, delayed)]
    harness.ack(other, delayed)
    assert harness.delivered() == []
    harness.ack(consumer, first)
    assert [at for _, at in harness.delivered()] == [inactive]


def a_delayed_message_passes_messages_that_deliveries_activate(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §1.4: at-most-once deliveries make room for inactive messages one by one, in one turn."""
    settings = queue(at_least_once=False, fairness="round-robin", target_depth=1)
    harness = Harness(make_subject, settings)
    first, second, third = (harness.publish() for _ in range(3))
    delayed = harness.publish(delay_s=1)
    harness.wait(1)
    assert (harness.available(), harness.subject.inactive(0)) == ([first, delayed], 2)
    consumer = harness.subscribe(3)
    assert harness.delivered() == [(consumer, first), (consumer, delayed), (consumer, second)]
    assert (harness.available(), harness.subject.inactive(0)) == ([third], 0)


def a_restart_makes_room_for_inactive_messages(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §1.4, §2.3: a message that its record delays again does not count in the depth."""
    harness = Harness(make_subject, queue(target_depth=1))
    consumer = harness.subscribe(1)
    first, second, third = (harness.publish() for _ in range(3))
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first, action="cancel", delay_s=5)
    assert harness.delivered() == [(consumer, second)]
    harness.restart()
    assert (harness.depth(), harness.available()) == (1, [second])
    consumer = harness.subscribe(1)
    for message in (second, third):
        assert harness.delivered() == [(consumer, message)]
        harness.ack(consumer, message)
    harness.wait(5)
    assert harness.delivered() == [(consumer, first)]


def acknowledging_a_delayed_message(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 5: by bookmark and by filter; `cancel` does nothing."""
    harness = Harness(make_subject, queue())
    first, second, third = (harness.publish(kind=kind, delay_s=1 + kind) for kind in range(3))
    assert harness.ack(STRANGER, first, second, third, action="cancel") == Counts(3, 0, 0)
    assert harness.ack(STRANGER, first) == Counts(1, 1, 1)
    assert harness.ack_matching(STRANGER, 1) == Counts(2, 1, 1)
    assert harness.removed() == [(first, ()), (second, ())]
    assert harness.subject.next_delivery_ns(0) == harness.now_ns + 3 * SECOND_NS
    harness.restart()
    consumer = harness.subscribe(10)
    harness.wait(10)
    assert harness.delivered() == [(consumer, third)]


def expiring_before_its_time(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 6; in the order of the log and out of it."""
    harness = Harness(make_subject, queue(expiration_ns=2 * SECOND_NS))
    consumer = harness.subscribe(10)
    slow, own = harness.publish(delay_s=3), harness.publish(delay_s=3, expiration_s=1)
    both = harness.publish(delay_s=2)
    harness.wait(1)
    assert harness.removed() == [(own, ("time_limit",))]
    harness.wait(1)
    assert harness.removed() == [(slow, ("time_limit",)), (both, ("time_limit",))]
    harness.wait(5)
    assert harness.delivered() == []
    assert consumer.backlog == 10


def the_order_of_delayed_messages(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 7: by their times, and then by the log or by priority."""
    harness = Harness(make_subject, queue(), queue("P", has_priority=True))
    delays_s = (2.0, 1.0, 2.0, 1.0)
    messages = [harness.publish(delay_s=delay_s, priority=number) for number, delay_s in enumerate(delays_s)]
    plain, by_priority = harness.subscribe(10, queues=[0]), harness.subscribe(10, queues=[1])
    harness.wait(1)
    assert [at for to, at in harness.delivered() if to == plain] == [messages[1], messages[3]]
    harness.wait(0.999)
    assert harness.delivered() == []
    harness.wait(0.001)
    delivered = harness.delivered()
    assert [at for to, at in delivered if to == plain] == [messages[0], messages[2]]
    assert [at for to, at in delivered if to == by_priority] == [messages[2], messages[0]]


def a_barrier_waits_for_delayed_messages(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §1.8; a barrier itself is not delayed."""
    harness = Harness(make_subject, queue(has_barriers=True))
    consumer = harness.subscribe(10)
    delayed = harness.publish(delay_s=1)
    barrier = harness.publish(is_barrier=True, delay_s=5)
    behind = harness.publish()
    assert (harness.barriers(), harness.delivered()) == ([], [])
    harness.wait(1)
    assert harness.delivered() == [(consumer, delayed)]
    harness.ack(consumer, delayed)
    assert harness.barriers() == [(barrier, {consumer})]
    assert harness.delivered() == [(consumer, behind)]


def cancelling_with_a_delay(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 8: it is back at its time, at any consumer, also after a restart."""
    harness = Harness(make_subject, queue(target_depth=1))
    first = harness.subscribe(1)
    message, other = harness.publish(), harness.publish()
    assert harness.ack(first, message, action="cancel", delay_s=1) == Counts(1, 1, 0)
    assert harness.delivered() == [(first, message), (first, other)]
    assert (harness.depth(), harness.subject.delayed(0)) == (1, [message])
    harness.restart(0.9)
    second = harness.subscribe(10, number=2)
    assert harness.delivered() == [(second, other)]
    harness.wait(0.099_999_999)
    assert harness.delivered() == []
    harness.wait(0.000_000_001)
    assert harness.delivered() == [(second, message)]


def the_delay_of_a_queue_for_cancels(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 9; the option of a command comes before it, also none at all."""
    settings = {"cancel_delay_ns": 100 * MS_NS, "cancel_delay_factor": 2.0}
    harness = Harness(make_subject, queue(**settings, cancel_delay_max_ns=SECOND_NS))
    consumer = harness.subscribe(1)
    message = harness.publish()
    for delay_ms in (100, 200, 400, 800, 1000, 1000):
        assert harness.delivered() == [(consumer, message)]
        harness.ack(consumer, message, action="cancel")
        harness.wait((delay_ms - 1) / 1000)
        assert harness.delivered() == []
        harness.wait(0.001)
    harness.ack(consumer, message, action="cancel", delay_s=None)
    assert harness.delivered() == [(consumer, message)] * 2
    harness.ack(consumer, message, action="cancel", delay_s=5)
    harness.wait(4.999)
    assert harness.delivered() == []


def a_limit_of_cancels_comes_before_the_delay(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 9."""
    harness = Harness(make_subject, queue(max_cancels=3, cancel_delay_ns=SECOND_NS))
    consumer = harness.subscribe(1)
    message = harness.publish()
    for _ in range(2):
        harness.ack(consumer, message, action="cancel")
        assert harness.removed() == []
        harness.wait(1)
    assert harness.ack(consumer, message, action="cancel", delay_s=1) == Counts(1, 1, 1)
    assert harness.removed() == [(message, ("max_cancels",))]


def leases_that_end_otherwise_have_no_delay(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §2.2: only a cancel delays."""
    harness = Harness(make_subject, queue(cancel_delay_ns=SECOND_NS, lease_ns=SECOND_NS))
    first = harness.subscribe(1)
    second = harness.subscribe(1)
    message = harness.publish()
    assert harness.delivered() == [(first, message)]
    harness.disconnect(first)
    assert harness.delivered() == [(second, message)]
    harness.wait(1)
    assert harness.delivered() == [(second, message)]


def a_delay_by_another_client(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §2.5: the rules of leasing hold as for `cancel`; what nobody holds is not delayed."""
    harness = Harness(make_subject, queue(), queue("S", strict=True))
    consumer = harness.subscribe(10)
    message = harness.publish()
    harness.delivered()
    assert harness.ack(STRANGER, message, action="cancel", delay_s=1, queue=1) == Counts(1, 0, 0)
    assert harness.ack(STRANGER, message, action="cancel", delay_s=1) == Counts(1, 1, 0)
    harness.disconnect(consumer)
    assert harness.available(1) == [message]
    assert harness.ack(consumer, message, action="cancel", delay_s=1, queue=1) == Counts(1, 0, 0)
    assert (harness.subject.delayed(0), harness.subject.delayed(1)) == ([message], [])


SCENARIOS: list[Scenario] = [
    a_delay_ends_at_its_time,
    delayed_messages_do_not_fill_the_queue,
    a_delayed_message_passes_inactive_ones,
    a_delayed_message_passes_messages_that_deliveries_activate,
    a_restart_makes_room_for_inactive_messages,
    acknowledging_a_delayed_message,
    expiring_before_its_time,
    the_order_of_delayed_messages,
    a_barrier_waits_for_delayed_messages,
    cancelling_with_a_delay,
    the_delay_of_a_queue_for_cancels,
    a_limit_of_cancels_comes_before_the_delay,
    leases_that_end_otherwise_have_no_delay,
    a_delay_by_another_client,
]
