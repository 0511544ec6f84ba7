"""Examples of subscriptions, their backlogs, their replacement and their end (queues.md §5)."""

from tests.support.queue_scenarios.harness import Harness, MakeSubject, Scenario, queue
from tests.support.queue_subject import Fairness, QueueSettings


def published_messages_come_in_order(make_subject: MakeSubject) -> None:
    """queues.md §24, 1."""
    harness = Harness(make_subject, queue())
    messages = [harness.publish() for _ in range(3)]
    assert harness.available() == messages
    consumer = harness.subscribe(10)
    assert harness.delivered() == [(consumer, message) for message in messages]
    harness.wait(10**6)
    assert harness.delivered() == []
    assert (harness.depth(), harness.backlog(), harness.available()) == (3, 3, [])
    harness.publish()
    assert harness.leases_until_ns() == [None]


def one_message_at_a_time_unless_more_are_asked_for(make_subject: MakeSubject) -> None:
    """queues.md §24, 2."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(1)
    first, second = harness.publish(), harness.publish()
    assert consumer.backlog == 1
    assert harness.delivered() == [(consumer, first)]
    harness.ack(consumer, first)
    assert harness.delivered() == [(consumer, second)]


def a_queue_allows_one_unless_it_says_more(make_subject: MakeSubject) -> None:
    """queues.md §24, 3."""
    harness = Harness(make_subject, QueueSettings("Q"))
    messages = [harness.publish() for _ in range(3)]
    consumer = harness.subscribe(10)
    assert consumer.backlog == 1
    assert harness.delivered() == [(consumer, messages[0])]


def the_smaller_limit_counts(make_subject: MakeSubject) -> None:
    """queues.md §24, 4."""
    harness = Harness(make_subject, queue(max_per_subscription=5))
    consumer = harness.subscribe(10)
    messages = [harness.publish() for _ in range(8)]
    assert consumer.backlog == 5
    assert harness.delivered() == [(consumer, message) for message in messages[:5]]
    for held, released in zip(messages, messages[5:], strict=False):
        harness.ack(consumer, held)
        assert harness.delivered() == [(consumer, released)]

    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(3)
    messages = [harness.publish() for _ in range(8)]
    assert consumer.backlog == 3
    assert harness.delivered() == [(consumer, message) for message in messages[:3]]


def one_backlog_over_several_queues(make_subject: MakeSubject) -> None:
    """queues.md §24, 5."""
    harness = Harness(make_subject, queue("Q1", 4), queue("Q2", 2))
    consumer = harness.subscribe(10)
    assert consumer.backlog == 2
    first = [harness.publish(queues=[0]) for _ in range(3)]
    second = [harness.publish(queues=[1]) for _ in range(3)]
    assert harness.delivered() == [(consumer, first[0]), (consumer, first[1])]
    harness.ack(consumer, first[0])
    harness.ack(consumer, first[1])
    assert harness.delivered() == [(consumer, first[2]), (consumer, second[0])]
    assert harness.outstanding(consumer) == 2
    harness.ack(consumer, second[0], queue=1)
    assert harness.delivered() == [(consumer, second[1])]
    assert (harness.backlog(0), harness.backlog(1)) == (1, 1)


def a_backlog_of_zero_gets_nothing(make_subject: MakeSubject) -> None:
    """queues.md §24, 6, as far as it concerns the queue."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(0)
    harness.publish()
    harness.wait(1)
    assert consumer.backlog == 0
    assert harness.delivered() == []


def consumers_share_the_messages(make_subject: MakeSubject) -> None:
    """queues.md §24, 8."""
    harness = Harness(make_subject, queue())
    consumers = {harness.subscribe(10), harness.subscribe(10)}
    messages = [harness.publish() for _ in range(4)]
    delivered = harness.delivered()
    assert [message for _, message in delivered] == messages
    assert {consumer for consumer, _ in delivered} == consumers


def replacing_a_filter_keeps_leased_messages(make_subject: MakeSubject) -> None:
    """queues.md §24, 11."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(4, kinds=frozenset({1}))
    held = [harness.publish(kind=1), harness.publish(kind=1)]
    waiting = harness.publish(kind=2)
    assert harness.delivered() == [(consumer, message) for message in held]
    assert harness.replace(consumer, 4, kinds=frozenset({2})) == 4
    assert harness.delivered() == [(consumer, waiting)]
    assert harness.outstanding(consumer) == 3
    harness.publish(kind=1)
    assert harness.delivered() == []
    last = harness.publish(kind=2)
    assert harness.delivered() == [(consumer, last)]
    assert harness.ack(consumer, *held).records_deleted == 2
    assert harness.outstanding(consumer) == 2


def replacing_a_backlog_by_a_smaller_one(make_subject: MakeSubject) -> None:
    """queues.md §24, 12."""
    harness = Harness(make_subject, queue())
    consumer = harness.subscribe(10)
    messages = [harness.publish() for _ in range(12)]
    assert harness.delivered() == [(consumer, message) for message in messages[:10]]
    assert harness.replace(consumer, 5) == 5
    for held in messages[:5]:
        harness.ack(consumer, held)
    assert harness.delivered() == []
    harness.ack(consumer, messages[5])
    assert harness.delivered() == [(consumer, messages[10])]


def replacing_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 13."""
    harness = Harness(make_subject, queue("Q"), queue("Q2", 5))
    consumer = harness.subscribe(10, queues=[0])
    held = [harness.publish(queues=[0]) for _ in range(10)]
    assert len(harness.delivered()) == 10
    waiting = [harness.publish(queues=[1]) for _ in range(2)]
    assert harness.replace(consumer, 10, queues=[1]) == 5
    harness.ack(consumer, *held[:5])
    assert harness.delivered() == []
    assert (harness.backlog(0), harness.backlog(1), harness.outstanding(consumer)) == (5, 0, 5)
    harness.ack(consumer, held[5])
    assert harness.delivered() == [(consumer, waiting[0])]
    harness.publish(queues=[0])
    harness.ack(consumer, held[6])
    assert harness.delivered() == [(consumer, waiting[1])]
    harness.unsubscribe(consumer)
    assert (harness.backlog(0), harness.backlog(1), harness.depth(0)) == (0, 0, 4)


def unsubscribing_returns_the_leases_of_one_subscription(make_subject: MakeSubject) -> None:
    """queues.md §24, 14."""
    harness = Harness(make_subject, queue())
    leaving = harness.subscribe(2)
    staying = harness.subscribe(4, beside=leaving)
    messages = [harness.publish() for _ in range(4)]
    first = harness.delivered()
    returned = [message for consumer, message in first if consumer == leaving]
    assert len(returned) == 2 < len(messages)
    harness.unsubscribe(leaving)
    assert harness.delivered() == [(staying, message) for message in returned]
    assert (harness.depth(), harness.backlog(), harness.outstanding(staying)) == (4, 4, 4)


def a_replaced_subscription_keeps_its_place(make_subject: MakeSubject) -> None:
    """queues.md D-07."""
    harness = Harness(make_subject, queue("Q", fairness="fast"), queue("Q2", fairness="fast"))
    first = harness.subscribe(10, queues=[1])
    second = harness.subscribe(10)
    harness.replace(first, 10, queues=[0])
    message = harness.publish(queues=[0])
    assert harness.delivered() == [(first, message)]
    harness.unsubscribe(first)
    third = harness.subscribe(10)
    assert harness.delivered() == [(second, message)]
    assert harness.publish(queues=[1])
    assert third not in [consumer for consumer, _ in harness.delivered()]


def the_order_of_subscriptions_is_that_of_their_creation(make_subject: MakeSubject) -> None:
    """queues.md D-07: whatever their numbers are, also those of subscriptions that have ended."""
    fairness: list[Fairness] = ["fast", "proportional", "round-robin"]
    for model in fairness:
        harness = Harness(make_subject, queue(fairness=model))
        harness.unsubscribe(harness.subscribe(10, number=2))
        first, second, third = (harness.subscribe(1, number=number) for number in (3, 1, 2))
        messages = [harness.publish() for _ in range(3)]
        assert harness.delivered() == list(zip([first, second, third], messages, strict=True))


def each_queue_tracks_for_itself(make_subject: MakeSubject) -> None:
    """queues.md §24, 15 and 17, as far as they concern queues: the log's messages enter some of them, or none."""
    harness = Harness(make_subject, queue("A"), queue("B"))
    both = harness.publish()
    only_b = harness.publish(queues=[1])
    harness.publish(queues=[])
    assert (harness.available(0), harness.available(1)) == ([both], [both, only_b])
    consumer = harness.subscribe(10)
    assert harness.delivered() == [(consumer, both), (consumer, both), (consumer, only_b)]
    harness.ack(consumer, both, queue=0)
    assert (harness.depth(0), harness.depth(1), harness.outstanding(consumer)) == (0, 2, 2)


def unmatched_messages_block_no_consumer(make_subject: MakeSubject) -> None:
    """queues.md §24, 18."""
    harness = Harness(make_subject, queue())
    unwanted = harness.publish(kind=3)
    first = harness.subscribe(10, kinds=frozenset({1}))
    second = harness.subscribe(10, kinds=frozenset({2}))
    one, two = harness.publish(kind=1), harness.publish(kind=2)
    assert harness.delivered() == [(first, one), (second, two)]
    assert harness.available() == [unwanted]


SCENARIOS: list[Scenario] = [
    published_messages_come_in_order,
    one_message_at_a_time_unless_more_are_asked_for,
    a_queue_allows_one_unless_it_says_more,
    the_smaller_limit_counts,
    one_backlog_over_several_queues,
    a_backlog_of_zero_gets_nothing,
    consumers_share_the_messages,
    replacing_a_filter_keeps_leased_messages,
    replacing_a_backlog_by_a_smaller_one,
    replacing_the_queue,
    unsubscribing_returns_the_leases_of_one_subscription,
    a_replaced_subscription_keeps_its_place,
    the_order_of_subscriptions_is_that_of_their_creation,
    each_queue_tracks_for_itself,
    unmatched_messages_block_no_consumer,
]
