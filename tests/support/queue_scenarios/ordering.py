"""Examples about the order per key (queue_guarantees.md §3)."""

from tests.support.queue_scenarios.harness import STRANGER, Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import SECOND_NS, Counts

RED, BLUE = 0xFFFFFFFF, 1


def one_message_of_a_key_is_held_at_a_time(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 11."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    first, second = harness.subscribe(10), harness.subscribe(10)
    messages = [harness.publish(key=RED) for _ in range(5)]
    assert harness.depth() == 5
    for at, message in enumerate(messages):
        ((consumer, delivered),) = harness.delivered()
        assert delivered == message
        assert harness.available() == messages[at + 1 :]
        assert harness.subject.waiting(0) == 4 - at
        assert harness.ack(consumer, message) == Counts(1, 1, 1)
    assert harness.delivered() == []
    assert (harness.outstanding(first), harness.outstanding(second), harness.depth()) == (0, 0, 0)
    last = harness.publish(key=RED)
    assert [message for _, message in harness.delivered()] == [last]


def keys_go_in_parallel(make_subject: MakeSubject) -> None:
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(10)
    red, blue = harness.publish(key=RED), harness.publish(key=BLUE)
    more_red, more_blue = harness.publish(key=RED), harness.publish(key=BLUE)
    assert harness.delivered() == [(consumer, red), (consumer, blue)]
    harness.ack(consumer, blue)
    assert harness.delivered() == [(consumer, more_blue)]
    harness.ack(consumer, red, more_blue)
    assert harness.delivered() == [(consumer, more_red)]


def a_head_that_comes_back_stays_the_head(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.3: after a cancel, the end of its lease, of its subscription, and a restart."""
    harness = Harness(make_subject, queue(has_ordering_key=True, lease_ns=SECOND_NS))
    first, second, third = (harness.publish(key=RED) for _ in range(3))
    consumer = harness.subscribe(2)
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first, action="cancel")
    assert harness.delivered() == [(consumer, first)]
    harness.wait(1)
    assert harness.delivered() == [(consumer, first)]
    other = harness.subscribe(2)
    harness.disconnect(consumer)
    assert harness.delivered() == [(other, first)]
    harness.restart()
    assert harness.subject.waiting(0) == 2
    again = harness.subscribe(2)
    for message in (first, second, third):
        assert harness.delivered() == [(again, message)]
        harness.ack(again, message)


def waiting_messages_leave_in_any_order(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 14: from the middle, first, last, and the only one."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(2)
    head, first, second, third, fourth, last = (harness.publish(key=RED) for _ in range(6))
    assert harness.delivered() == [(consumer, head)]
    for gone, left in ((third, 4), (first, 3), (last, 2)):
        assert harness.ack(STRANGER, gone, action="cancel") == Counts(1, 0, 0)
        assert harness.ack(STRANGER, gone) == Counts(1, 1, 1)
        assert harness.subject.waiting(0) == left
    after = harness.publish(key=RED)
    for message in (second, fourth, after):
        harness.ack(consumer, head)
        assert harness.delivered() == [(consumer, message)]
        head = message
    only = harness.publish(key=RED)
    assert harness.ack_matching(STRANGER, 0, action="expire") == Counts(2, 2, 2)
    assert harness.removed()[-2:] == [(after, ("forced_expire",)), (only, ("forced_expire",))]
    head, only = harness.publish(key=RED), harness.publish(key=RED)
    harness.ack(STRANGER, only)
    next_one = harness.publish(key=RED)
    assert harness.delivered() == [(consumer, head)]
    harness.ack(consumer, head)
    assert harness.delivered() == [(consumer, next_one)]
    assert (harness.depth(), harness.subject.waiting(0)) == (1, 0)


def messages_without_a_key_and_priorities(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 15."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(10)
    messages = [harness.publish() for _ in range(3)]
    assert harness.delivered() == [(consumer, message) for message in messages]

    harness = Harness(make_subject, queue(has_ordering_key=True, has_priority=True))
    red, more_red = harness.publish(key=RED, priority=1), harness.publish(key=RED, priority=9)
    blue, plain = harness.publish(key=BLUE, priority=2), harness.publish(priority=5)
    consumer = harness.subscribe(1)
    for message in (plain, blue, red, more_red):
        assert harness.delivered() == [(consumer, message)]
        harness.ack(consumer, message)


def a_filter_does_not_pass_the_head(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.6."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(10, kinds=frozenset({1}))
    head, second = harness.publish(key=RED, kind=0), harness.publish(key=RED, kind=1)
    assert harness.delivered() == []
    harness.ack(STRANGER, head)
    assert harness.delivered() == [(consumer, second)]


def waiting_messages_expire(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.7; also when the head is held."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(1)
    head, short, last = (harness.publish(key=RED, expiration_s=seconds) for seconds in (2, 1, None))
    assert harness.delivered() == [(consumer, head)]
    harness.wait(1)
    assert harness.removed() == [(short, ("time_limit",))]
    harness.wait(1)
    assert harness.removed() == []
    harness.ack(consumer, head, action="cancel")
    assert harness.removed() == [(head, ("time_limit",))]
    assert harness.delivered() == [(consumer, last)]

    harness = Harness(make_subject, queue(has_ordering_key=True, expiration_ns=2 * SECOND_NS))
    consumer = harness.subscribe(1)
    head, second = harness.publish(key=RED), harness.publish(key=RED)
    harness.wait(1)
    third = harness.publish(key=RED)
    harness.wait(1)
    assert harness.removed() == [(second, ("time_limit",))]
    assert (harness.depth(), harness.subject.waiting(0)) == (2, 1)
    harness.ack(consumer, head)
    assert harness.delivered() == [(consumer, head), (consumer, third)]


def barriers_have_no_key(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.8: a barrier waits for the waiting messages before it."""
    harness = Harness(make_subject, queue(has_ordering_key=True, has_barriers=True))
    consumer = harness.subscribe(10)
    first, second = harness.publish(key=RED), harness.publish(key=RED)
    barrier, third = harness.publish(key=RED, is_barrier=True), harness.publish(key=RED)
    harness.ack(consumer, first)
    assert harness.barriers() == []
    harness.ack(consumer, second)
    assert harness.barriers() == [(barrier, {consumer})]
    assert harness.delivered() == [(consumer, first), (consumer, second), (consumer, third)]
    assert (harness.depth(), harness.subject.waiting(0)) == (1, 0)


def messages_join_their_key_when_they_become_active(make_subject: MakeSubject) -> None:
    """Beyond the target depth they are in no key; waiting messages count in the depth."""
    harness = Harness(make_subject, queue(has_ordering_key=True, target_depth=2))
    consumer = harness.subscribe(10)
    head, second, third, blue = (harness.publish(key=key) for key in (RED, RED, RED, BLUE))
    assert harness.delivered() == [(consumer, head)]
    assert (harness.depth(), harness.subject.inactive(0), harness.subject.waiting(0)) == (2, 2, 1)
    harness.ack(consumer, head)
    assert harness.delivered() == [(consumer, second)]
    assert (harness.depth(), harness.subject.inactive(0), harness.subject.waiting(0)) == (2, 1, 1)
    harness.ack(STRANGER, third)
    assert harness.delivered() == [(consumer, blue)]


def a_head_cancelled_with_a_delay_holds_back_its_key(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §7, 13: and no other key; also over a restart."""
    harness = Harness(make_subject, queue(has_ordering_key=True))
    consumer = harness.subscribe(10)
    red, later, blue = harness.publish(key=RED), harness.publish(key=RED), harness.publish(key=BLUE)
    assert harness.delivered() == [(consumer, red), (consumer, blue)]
    harness.ack(consumer, red, action="cancel", delay_s=2)
    harness.ack(consumer, blue)
    assert harness.delivered() == []
    assert harness.subject.waiting(0) == 1
    harness.restart()
    consumer = harness.subscribe(10)
    harness.wait(1)
    assert harness.delivered() == []
    harness.wait(1)
    assert harness.delivered() == [(consumer, red)]
    harness.ack(consumer, red)
    assert harness.delivered() == [(consumer, later)]


def a_delayed_message_joins_its_key_at_its_place(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.5: next when no message is held. A barrier waits for it; it waits for none behind one."""
    harness = Harness(make_subject, queue(has_ordering_key=True, has_barriers=True))
    first = harness.publish(key=RED)
    delayed = harness.publish(key=RED, delay_s=1)
    second = harness.publish(key=RED)
    late = harness.publish(key=RED, delay_s=2)
    harness.publish(is_barrier=True)
    behind = harness.publish(key=RED)
    harness.wait(1)
    assert harness.subject.waiting(0) == 3
    consumer = harness.subscribe(10)
    for message in (first, delayed, second):
        assert [at for _, at in harness.delivered()] == [message]
        harness.ack(consumer, message)
    assert harness.delivered() == []
    harness.wait(1)
    assert [at for _, at in harness.delivered()] == [late]
    harness.ack(consumer, late)
    assert [at for _, at in harness.delivered()] == [behind]


def a_head_that_comes_back_gives_way_to_an_earlier_message(make_subject: MakeSubject) -> None:
    """queue_guarantees.md §3.5, Q-28: one that was delayed, and came while the head was held, or was delayed itself."""
    for cancel_delay_s in (0, 2):
        harness = Harness(make_subject, queue(has_ordering_key=True))
        early = harness.publish(key=RED, delay_s=1)
        head, last = harness.publish(key=RED), harness.publish(key=RED)
        consumer = harness.subscribe(10)
        assert harness.delivered() == [(consumer, head)]
        if cancel_delay_s:
            harness.ack(consumer, head, action="cancel", delay_s=cancel_delay_s)
        harness.wait(1)
        assert (harness.delivered(), harness.subject.waiting(0)) == ([], 2)
        if cancel_delay_s:
            harness.wait(1)
        else:
            harness.ack(consumer, head, action="cancel")
        for message, waiting in ((early, 2), (head, 1), (last, 0)):
            assert harness.delivered() == [(consumer, message)]
            assert harness.subject.waiting(0) == waiting
            harness.ack(consumer, message)
        assert harness.depth() == 0


SCENARIOS: list[Scenario] = [
    one_message_of_a_key_is_held_at_a_time,
    keys_go_in_parallel,
    a_head_that_comes_back_stays_the_head,
    waiting_messages_leave_in_any_order,
    messages_without_a_key_and_priorities,
    a_filter_does_not_pass_the_head,
    waiting_messages_expire,
    barriers_have_no_key,
    messages_join_their_key_when_they_become_active,
    a_head_cancelled_with_a_delay_holds_back_its_key,
    a_delayed_message_joins_its_key_at_its_place,
    a_head_that_comes_back_gives_way_to_an_earlier_message,
]
