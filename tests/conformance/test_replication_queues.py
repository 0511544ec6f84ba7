"""Queues that span two or three real instances: replication.md §26, 57 to 66, and queues.md §24, 68 to 70."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import To
from tests.support.peer import bodies_of
from tests.support.queues import acknowledge, bodies, queue_xml
from tests.support.replicated_queues import QUIET_S, TOPICS, Group, nothing_for, take, take_until_quiet
from tests.support.server import wait_until

FIRST_REQUEST_S = 1.0
"""The typical time before the first acknowledgement by replication: then an instance requests messages (§24.8)."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    try:
        with made.instances:
            yield made
    finally:
        made.release()


@pytest.fixture
def pair(group: Group) -> Group:
    """A and B, with the same queue."""
    group.add("A", ["B"])
    group.add("B", ["A"])
    group.instances.start()
    return group


def test_each_message_is_delivered_once(pair: Group) -> None:
    """57: consumers on both instances; 1000 messages published to A are delivered 1000 times together."""
    consumers = [pair.consumer("A", 10), pair.consumer("B", 10)]
    pair.publish("A", *range(1000))
    found: list[bytes] = []

    def all_came() -> bool:
        for consumer in consumers:
            found.extend(take_until_quiet(consumer, 0.1))
        return len(found) >= 1000

    wait_until(all_came, 60, lambda: f"{len(found)} messages came")
    for consumer in consumers:
        nothing_for(consumer, QUIET_S)
    assert sorted(found) == sorted(bodies(*range(1000)))
    for name in "AB":
        pair.wait_metrics(name, queue_depth=0, owned=0)


def test_messages_move_to_the_only_consumer(pair: Group) -> None:
    """58, queues.md 68: all 100 are delivered on B, none twice; the counters of both say so; both queues are empty."""
    consumer = pair.consumer("B")
    pair.publish("A", *range(100))
    assert take(consumer, 100) == bodies(*range(100))
    nothing_for(consumer, QUIET_S)
    pair.wait_metrics("A", transferred_out=100, transferred_in=0, queue_depth=0)
    pair.wait_metrics("B", transferred_in=100, transferred_out=0, queue_depth=0)


def test_a_consumer_of_the_owner_with_free_backlog_gets_all(group: Group) -> None:
    """59, queues.md 68: nothing is transferred, also when the consumer is so slow that B requests the messages (§14.2).

    With a full backlog, B would rightly get messages that have been there for as long as the typical time.
    """
    queue = queue_xml("Q", "T", MaxPerSubscriptionBacklog=200)
    group.add("A", ["B"], queue)
    group.add("B", ["A"], queue)
    group.instances.start()
    idle = group.consumer("B")
    owners = group.consumer("A", 200)
    group.publish("A", *range(100))
    messages = owners.receive_published(100)
    assert bodies_of(messages) == bodies(*range(100))
    nothing_for(idle, FIRST_REQUEST_S + QUIET_S)
    acknowledge(owners, *messages)
    nothing_for(idle, QUIET_S)
    group.wait_metrics("A", transferred_out=0, queue_depth=0)
    group.wait_metrics("B", transferred_in=0, queue_depth=0)


def test_an_acknowledgement_on_the_other_instance_counts(pair: Group) -> None:
    """60: it empties the queue on A; after a restart of A nothing is delivered again."""
    consumer = pair.consumer("B")
    pair.publish("A", 1, 2)
    take(consumer, 2)
    pair.wait_metrics("A", queue_depth=0)
    pair.instances.kill("A")
    pair.instances.start("A")
    again = pair.consumer("A")
    nothing_for(again, QUIET_S)


def test_messages_of_a_stopped_owner(pair: Group) -> None:
    """61 to 63, queues.md 69: B delivers them only as a proxy, and only if a consumer is there; none comes twice."""
    pair.publish("A", 1, 2, 3)
    pair.wait_metrics("B", queue_depth=3, owned=0)
    pair.instances.kill("A")
    consumer = pair.consumer("B")
    pair.publish("B", 4, wait=False)
    assert take(consumer, 1) == bodies(4)
    nothing_for(consumer, 3)
    consumer.close()
    assert pair.metrics("B")["proxied_transfer"] == "disabled"
    pair.order("B", "enable_proxied_transfer")
    pair.wait_metrics("B", proxied_transfer="enabled")
    time.sleep(1)
    pair.wait_metrics("B", owned=0, queue_depth=3)
    consumer = pair.consumer("B")
    assert take(consumer, 3) == bodies(1, 2, 3)
    pair.wait_metrics("B", transferred_in=3, queue_depth=0)
    pair.instances.start("A")
    pair.instances.wait_connected("B", "A")
    pair.order("B", "disable_proxied_transfer")
    pair.wait_metrics("A", queue_depth=0)
    again = pair.consumer("A")
    nothing_for(again, QUIET_S)
    nothing_for(consumer, QUIET_S)


def test_details_tell_the_owner(pair: Group) -> None:
    """§17: `locally_owned` and `deliverable` of each message."""
    pair.publish("A", 1)
    pair.publish("B", 2)
    for name, own in (("A", [1, 0]), ("B", [0, 1])):
        pair.wait_metrics(name, queue_depth=2, owned=1)
        shown = pair.details(name)
        assert [message["locally_owned"] for message in shown["messages"]] == own
        assert [message["deliverable"] for message in shown["messages"]] == own
        assert shown["locally_owned"] == 1


def test_a_group_local_queue_belongs_to_its_initial_owner(group: Group) -> None:
    """64, queues.md 70: a message published to B goes to A's consumer, although B's is free.

    No more messages than the backlog of A's consumer: B may request what is beyond it (§14.2).
    """
    queue = queue_xml("Q", "T", kind="GroupLocalQueue", InitialOwner="A")
    group.add("A", ["B"], queue)
    group.add("B", ["A"], queue)
    group.instances.start()
    there, here = group.consumer("A"), group.consumer("B")
    group.publish("B", *range(10))
    assert take(there, 10) == bodies(*range(10))
    nothing_for(here, QUIET_S)


@pytest.mark.parametrize("shared", [True, False])
def test_group_local_queues_of_two_groups(group: Group, shared: bool) -> None:
    """64, queues.md 70: one queue with a common `GroupLocalQueueDomain`, two queues without."""
    common = {"GroupLocalQueueDomain": "X"} if shared else {}
    for name, group_name in (("A", "X"), ("B", "Y")):
        owner = "A" if shared else name
        queue = queue_xml(
            "Q", "T", kind="GroupLocalQueue", InitialOwner=owner, **(common if name == "B" else {})
        )
        other = "B" if name == "A" else "A"
        exclude = "" if shared else "replicate,cascade,queue_passthrough"
        group.add(name, [To(other, topics=TOPICS, exclude=exclude)], queue, group=group_name)
    group.instances.start()
    consumers = {name: group.consumer(name) for name in "AB"}
    group.publish("A", 1, 2)
    assert take(consumers["A"], 2) == bodies(1, 2)
    if shared:
        nothing_for(consumers["B"], QUIET_S)
    else:
        assert take(consumers["B"], 2) == bodies(1, 2)
    for name in "AB":
        group.wait_metrics(name, queue_depth=0)


def test_an_acknowledgement_before_its_message(pair: Group) -> None:
    """65: it is kept, on both instances; the message that comes later is not delivered."""
    consumer = pair.consumer("B")
    publisher = pair.client("A")
    publisher.publish("T", b"1", s=1, a="persisted")
    publisher.wait_for_persisted(1)
    (first,) = consumer.receive_published(1)
    name_id, sequence, *_ = str(first["bm"]).split("|")
    assert sequence == "1"
    acknowledge(pair.client("B"), f"{name_id}|2|")
    for name in "AB":
        pair.wait_metrics(name, deferred_ack_count=1)
    publisher.publish("T", b"2", s=2, a="persisted")
    publisher.wait_for_persisted(2)
    for name in "AB":
        pair.wait_metrics(name, deferred_ack_count=0, queue_depth=1)
    nothing_for(consumer, QUIET_S)


def test_a_barrier_waits_for_the_acknowledgements_of_all(group: Group) -> None:
    """66, queues.md 70: no instance delivers it before 1 to 3 are acknowledged; then both do."""
    queue = queue_xml("Q", "T", BarrierExpression="/id = 4")
    group.add("A", ["B"], queue)
    group.add("B", ["A"], queue)
    group.instances.start()
    there, here = group.consumer("A"), group.consumer("B")
    group.publish("A", 1, 2, 3, 4)
    held = there.receive_published(3)
    assert bodies_of(held) == bodies(1, 2, 3)
    for client in (there, here):
        nothing_for(client, 0.5)
    acknowledge(there, *held)
    assert bodies_of(there.receive_published(1)) == bodies(4)
    assert bodies_of(here.receive_published(1)) == bodies(4)


def test_removals_by_limits_are_replicated(group: Group) -> None:
    """25.34: the owner expires a message that was cancelled too often, and tells the others."""
    queue = queue_xml("Q", "T", MaxCancels=1)
    group.add("A", ["B"], queue)
    group.add("B", ["A"], queue)
    group.instances.start()
    consumer = group.consumer("A")
    group.publish("A", 1)
    (message,) = consumer.receive_published(1)
    group.wait_metrics("B", queue_depth=1)
    acknowledge(consumer, message, o="cancel")
    for name in "AB":
        group.wait_metrics(name, queue_depth=0)


def test_at_most_once_deliveries_are_replicated(group: Group) -> None:
    """queues.md §17: a delivery empties the queue on both instances."""
    queue = queue_xml("Q", "T", Semantics="at-most-once")
    group.add("A", ["B"], queue)
    group.add("B", ["A"], queue)
    group.instances.start()
    consumer = group.consumer("A")
    group.publish("A", 1, 2)
    assert bodies_of(consumer.receive_published(2)) == bodies(1, 2)
    for name in "AB":
        group.wait_metrics(name, queue_depth=0)


def test_a_chain_passes_requests_and_transfers(group: Group) -> None:
    """§24.8: the owner is two hops away."""
    group.add("A", ["B"])
    group.add("B", ["A", "C"])
    group.add("C", ["B"])
    group.instances.start()
    consumer = group.consumer("C")
    group.publish("A", *range(20))
    assert take(consumer, 20) == bodies(*range(20))
    group.wait_metrics("A", transferred_out=20, queue_depth=0)
    group.wait_metrics("B", queue_depth=0, owned=0)
    group.wait_metrics("C", transferred_in=20, queue_depth=0)


def test_filters_of_consumers_decide_what_is_requested(pair: Group) -> None:
    """§14.2: only messages that a subscription here could take move."""
    consumer = pair.consumer("B", filter="/id > 5")
    pair.publish("A", *range(10))
    assert take(consumer, 4) == bodies(6, 7, 8, 9)
    nothing_for(consumer, QUIET_S)
    pair.wait_metrics("A", queue_depth=6, owned=6, transferred_out=4)


def test_a_transfer_survives_restarts_of_both(pair: Group) -> None:
    """The owner after a crash is that before it."""
    consumer = pair.consumer("B", 3)
    pair.publish("A", 1, 2, 3)
    held = consumer.receive_published(3)
    assert bodies_of(held) == bodies(1, 2, 3)
    acknowledge(consumer, held[0])
    pair.wait_metrics("A", queue_depth=2)
    for name in "AB":
        pair.instances.kill(name)
    pair.instances.start()
    pair.wait_metrics("A", queue_depth=2, owned=0)
    pair.wait_metrics("B", queue_depth=2, owned=2)
    here = pair.consumer("B")
    assert take(here, 2) == bodies(2, 3)


def test_an_acknowledgement_of_a_message_that_is_gone_waits_for_the_first_one(pair: Group) -> None:
    """replication.md §7: neither client hears `persisted` while only one instance knows that the message is gone."""
    consumer, other = pair.consumer("A"), pair.client("A")
    pair.publish("A", 1)
    (message,) = consumer.receive_published(1)
    pair.instances.kill("B")
    for client in (consumer, other):
        client.send({"c": "sow_delete", "cid": "d", "t": "Q", "bm": message["bm"], "a": "persisted", "s": 1})
        client.expect_nothing_for(QUIET_S)
    pair.instances.start("B")
    for client in (consumer, other):
        assert client.wait_for_ack("persisted", timeout_s=20).succeeded
