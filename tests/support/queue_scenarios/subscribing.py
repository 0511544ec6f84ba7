"""Examples about subscriptions, their backlogs, their replacement and their end (queues.md §5)."""

from tests.support.queue_scenarios.bench import Bench, MakeSubject, Scenario, queue
from tests.support.queue_subject import Fairness, QueueSettings


def published_messages_come_in_order(make_subject: MakeSubject) -> None:
    """queues.md §24, 1."""
    bench = Bench(make_subject, queue())
    messages = [bench.publish() for _ in range(3)]
    assert bench.available() == messages
    consumer = bench.subscribe(10)
    assert bench.delivered() == [(consumer, message) for message in messages]
    bench.wait(10**6)
    assert bench.delivered() == []
    assert (bench.depth(), bench.backlog(), bench.available()) == (3, 3, [])
    bench.publish()
    assert bench.leases_until_ns() == [None]


def one_message_at_a_time_unless_more_are_asked_for(make_subject: MakeSubject) -> None:
    """queues.md §24, 2."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(1)
    first, second = bench.publish(), bench.publish()
    assert consumer.backlog == 1
    assert bench.delivered() == [(consumer, first)]
    bench.ack(consumer, first)
    assert bench.delivered() == [(consumer, second)]


def a_queue_allows_one_unless_it_says_more(make_subject: MakeSubject) -> None:
    """queues.md §24, 3."""
    bench = Bench(make_subject, QueueSettings("Q"))
    messages = [bench.publish() for _ in range(3)]
    consumer = bench.subscribe(10)
    assert consumer.backlog == 1
    assert bench.delivered() == [(consumer, messages[0])]


def the_smaller_limit_counts(make_subject: MakeSubject) -> None:
    """queues.md §24, 4."""
    bench = Bench(make_subject, queue(max_per_subscription=5))
    consumer = bench.subscribe(10)
    messages = [bench.publish() for _ in range(8)]
    assert consumer.backlog == 5
    assert bench.delivered() == [(consumer, message) for message in messages[:5]]
    for held, released in zip(messages, messages[5:], strict=False):
        bench.ack(consumer, held)
        assert bench.delivered() == [(consumer, released)]

    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(3)
    messages = [bench.publish() for _ in range(8)]
    assert consumer.backlog == 3
    assert bench.delivered() == [(consumer, message) for message in messages[:3]]


def one_backlog_over_several_queues(make_subject: MakeSubject) -> None:
    """queues.md §24, 5."""
    bench = Bench(make_subject, queue("Q1", 4), queue("Q2", 2))
    consumer = bench.subscribe(10)
    assert consumer.backlog == 2
    first = [bench.publish(queues=[0]) for _ in range(3)]
    second = [bench.publish(queues=[1]) for _ in range(3)]
    assert bench.delivered() == [(consumer, first[0]), (consumer, first[1])]
    bench.ack(consumer, first[0])
    bench.ack(consumer, first[1])
    assert bench.delivered() == [(consumer, first[2]), (consumer, second[0])]
    assert bench.outstanding(consumer) == 2
    bench.ack(consumer, second[0], queue=1)
    assert bench.delivered() == [(consumer, second[1])]
    assert (bench.backlog(0), bench.backlog(1)) == (1, 1)


def a_backlog_of_zero_gets_nothing(make_subject: MakeSubject) -> None:
    """queues.md §24, 6, as far as the queue is concerned."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(0)
    bench.publish()
    bench.wait(1)
    assert consumer.backlog == 0
    assert bench.delivered() == []


def consumers_share_the_messages(make_subject: MakeSubject) -> None:
    """queues.md §24, 8."""
    bench = Bench(make_subject, queue())
    consumers = {bench.subscribe(10), bench.subscribe(10)}
    messages = [bench.publish() for _ in range(4)]
    delivered = bench.delivered()
    assert [message for _, message in delivered] == messages
    assert {consumer for consumer, _ in delivered} == consumers


def replacing_a_filter_keeps_what_is_held(make_subject: MakeSubject) -> None:
    """queues.md §24, 11."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(4, kinds=frozenset({1}))
    held = [bench.publish(kind=1), bench.publish(kind=1)]
    waiting = bench.publish(kind=2)
    assert bench.delivered() == [(consumer, message) for message in held]
    assert bench.replace(consumer, 4, kinds=frozenset({2})) == 4
    assert bench.delivered() == [(consumer, waiting)]
    assert bench.outstanding(consumer) == 3
    bench.publish(kind=1)
    assert bench.delivered() == []
    last = bench.publish(kind=2)
    assert bench.delivered() == [(consumer, last)]
    assert bench.ack(consumer, *held).records_deleted == 2
    assert bench.outstanding(consumer) == 2


def replacing_a_backlog_by_a_smaller_one(make_subject: MakeSubject) -> None:
    """queues.md §24, 12."""
    bench = Bench(make_subject, queue())
    consumer = bench.subscribe(10)
    messages = [bench.publish() for _ in range(12)]
    assert bench.delivered() == [(consumer, message) for message in messages[:10]]
    assert bench.replace(consumer, 5) == 5
    for held in messages[:5]:
        bench.ack(consumer, held)
    assert bench.delivered() == []
    bench.ack(consumer, messages[5])
    assert bench.delivered() == [(consumer, messages[10])]


def replacing_the_queue(make_subject: MakeSubject) -> None:
    """queues.md §24, 13."""
    bench = Bench(make_subject, queue("Q"), queue("Q2", 5))
    consumer = bench.subscribe(10, queues=[0])
    held = [bench.publish(queues=[0]) for _ in range(10)]
    assert len(bench.delivered()) == 10
    waiting = [bench.publish(queues=[1]) for _ in range(2)]
    assert bench.replace(consumer, 10, queues=[1]) == 5
    bench.ack(consumer, *held[:5])
    assert bench.delivered() == []
    assert (bench.backlog(0), bench.backlog(1), bench.outstanding(consumer)) == (5, 0, 5)
    bench.ack(consumer, held[5])
    assert bench.delivered() == [(consumer, waiting[0])]
    bench.publish(queues=[0])
    bench.ack(consumer, held[6])
    assert bench.delivered() == [(consumer, waiting[1])]
    bench.unsubscribe(consumer)
    assert (bench.backlog(0), bench.backlog(1), bench.depth(0)) == (0, 0, 4)


def unsubscribing_returns_the_leases_of_one_subscription(make_subject: MakeSubject) -> None:
    """queues.md §24, 14."""
    bench = Bench(make_subject, queue())
    leaving = bench.subscribe(2)
    staying = bench.subscribe(4, beside=leaving)
    messages = [bench.publish() for _ in range(4)]
    first = bench.delivered()
    returned = [message for consumer, message in first if consumer == leaving]
    assert len(returned) == 2 < len(messages)
    bench.unsubscribe(leaving)
    assert bench.delivered() == [(staying, message) for message in returned]
    assert (bench.depth(), bench.backlog(), bench.outstanding(staying)) == (4, 4, 4)


def a_replaced_subscription_keeps_its_place(make_subject: MakeSubject) -> None:
    """queues.md D-07."""
    bench = Bench(make_subject, queue("Q", fairness="fast"), queue("Q2", fairness="fast"))
    first = bench.subscribe(10, queues=[1])
    second = bench.subscribe(10)
    bench.replace(first, 10, queues=[0])
    message = bench.publish(queues=[0])
    assert bench.delivered() == [(first, message)]
    bench.unsubscribe(first)
    third = bench.subscribe(10)
    assert bench.delivered() == [(second, message)]
    assert bench.publish(queues=[1])
    assert third not in [consumer for consumer, _ in bench.delivered()]


def the_order_of_subscriptions_is_that_of_their_creation(make_subject: MakeSubject) -> None:
    """queues.md D-07: whatever their numbers are, also those of subscriptions that have ended."""
    fairness: list[Fairness] = ["fast", "proportional", "round-robin"]
    for model in fairness:
        bench = Bench(make_subject, queue(fairness=model))
        bench.unsubscribe(bench.subscribe(10, number=2))
        first, second, third = (bench.subscribe(1, number=number) for number in (3, 1, 2))
        messages = [bench.publish() for _ in range(3)]
        assert bench.delivered() == list(zip([first, second, third], messages, strict=True))


def each_queue_tracks_for_itself(make_subject: MakeSubject) -> None:
    """queues.md §24, 15 and 17, as far as the queues are concerned: the log's messages enter some of them, or none."""
    bench = Bench(make_subject, queue("A"), queue("B"))
    both = bench.publish()
    only_b = bench.publish(queues=[1])
    bench.publish(queues=[])
    assert (bench.available(0), bench.available(1)) == ([both], [both, only_b])
    consumer = bench.subscribe(10)
    assert bench.delivered() == [(consumer, both), (consumer, both), (consumer, only_b)]
    bench.ack(consumer, both, queue=0)
    assert (bench.depth(0), bench.depth(1), bench.outstanding(consumer)) == (0, 2, 2)


def what_nobody_wants_blocks_nobody(make_subject: MakeSubject) -> None:
    """queues.md §24, 18."""
    bench = Bench(make_subject, queue())
    unwanted = bench.publish(kind=3)
    first = bench.subscribe(10, kinds=frozenset({1}))
    second = bench.subscribe(10, kinds=frozenset({2}))
    one, two = bench.publish(kind=1), bench.publish(kind=2)
    assert bench.delivered() == [(first, one), (second, two)]
    assert bench.available() == [unwanted]


SCENARIOS: list[Scenario] = [
    published_messages_come_in_order,
    one_message_at_a_time_unless_more_are_asked_for,
    a_queue_allows_one_unless_it_says_more,
    the_smaller_limit_counts,
    one_backlog_over_several_queues,
    a_backlog_of_zero_gets_nothing,
    consumers_share_the_messages,
    replacing_a_filter_keeps_what_is_held,
    replacing_a_backlog_by_a_smaller_one,
    replacing_the_queue,
    unsubscribing_returns_the_leases_of_one_subscription,
    a_replaced_subscription_keeps_its_place,
    the_order_of_subscriptions_is_that_of_their_creation,
    each_queue_tracks_for_itself,
    what_nobody_wants_blocks_nobody,
]
