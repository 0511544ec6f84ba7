"""Each history of docs/spec/replication_histories.md, as steps of the model.

A test shows first that the promise breaks in this history, and then that what the document advises keeps it.
"""

import dataclasses

import pytest

from tests.simulation.group_checks import (
    check_contents,
    check_equal,
    check_order,
    check_promises,
    check_queue_deliveries,
    check_received,
)
from tests.simulation.group_clients import Publisher, Subscriber, deliver_acks
from tests.simulation.group_flows import Group, record_of
from tests.simulation.group_model import ASYNC, Destination, Instance
from tests.simulation.group_plans import epochs_of, logs_of
from tests.simulation.group_queues import Queues
from tests.simulation.group_topologies import PAIR, SITES, STAR, TRIANGLE, Topology, model_of


class Cast:
    """A group with one publisher, and everything at rest."""

    def __init__(self, topology: Topology = PAIR, publisher_at: str = "a") -> None:
        self.group = Group(model_of(topology))
        self.p = Publisher("p")
        self.publishers = {"p": self.p}
        self.rest()
        self.p.connect(self.group, publisher_at)

    def publish(self, count: int, publisher: Publisher | None = None) -> None:
        (publisher or self.p).publish(self.group, count)

    def rest(self) -> None:
        assert self.group.settle()
        deliver_acks(self.group, self.publishers)

    def sync(self, *names: str) -> None:
        for name in names:
            self.group.instances[name].sync()
        deliver_acks(self.group, self.publishers)

    def heal(self) -> None:
        self.group.heal()
        for name in self.group.instances:
            self.group.start(name)
        self.rest()

    def sequences(self, name: str, publisher: str = "p") -> list[int]:
        return [r.sequence for r in self.group.instances[name].log if r.publisher == publisher]

    def check(self) -> None:
        promises = [promise for publisher in self.publishers.values() for promise in publisher.promises]
        check_promises(promises, logs_of(self.group), epochs_of(self.group))
        check_order(logs_of(self.group))
        check_equal(logs_of(self.group))


def _make_async(group: Group) -> None:
    for link in group.links():
        destination = group.destination(link)
        destination.configured = destination.mode = ASYNC


@pytest.mark.parametrize("sync", [False, True])
def test_h1_failover_over_an_async_link(sync: bool) -> None:
    """H-1 (replication.md §21, F6)."""
    cast = Cast()
    if not sync:
        _make_async(cast.group)
    cast.publish(80)
    cast.rest()
    cast.group.partition("a", "b")
    cast.publish(20)
    cast.sync("a")
    assert cast.p.acked == (80 if sync else 100)
    cast.group.kill("a")
    cast.p.connect(cast.group, "b")
    cast.publish(21 if sync else 1)
    cast.heal()
    if sync:
        cast.check()
    else:
        assert cast.sequences("b") == [*range(1, 81), 101]
        with pytest.raises(AssertionError, match="differ in"):
            cast.check()


@pytest.mark.parametrize("stays", [False, True])
def test_h2_failover_over_a_downgraded_link(stays: bool) -> None:
    """H-2 (replication.md §8): `stays`, the publisher waits for the instance that acknowledged."""
    cast = Cast()
    cast.group.partition("a", "b")
    cast.group.downgrade(("a", "b"))
    cast.publish(10)
    cast.sync("a")
    assert cast.p.acked == 10
    cast.group.kill("a")
    if stays:
        cast.group.start("a")
    cast.p.connect(cast.group, "a" if stays else "b")
    cast.publish(1)
    cast.heal()
    if stays:
        cast.check()
    else:
        assert cast.sequences("b") == [11]


def test_h3_both_sides_are_downgraded_and_a_disk_is_lost() -> None:
    """H-3 (replication.md §8, F7): a message that one side alone acknowledged is gone with its disk."""
    cast = Cast()
    q = cast.publishers["q"] = Publisher("q")
    q.connect(cast.group, "b")
    cast.group.partition("a", "b")
    cast.group.downgrade(("a", "b"))
    cast.group.downgrade(("b", "a"))
    cast.publish(5)
    cast.publish(5, q)
    cast.sync("a", "b")
    assert (cast.p.acked, q.acked) == (5, 5)
    cast.group.kill("a")
    cast.group.kill("b")
    cast.group.wipe("a")
    cast.heal()
    assert cast.sequences("a") == cast.sequences("b") == []
    assert cast.sequences("a", "q") == cast.sequences("b", "q") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("caught_up", [False, True])
def test_h4_failover_just_after_an_upgrade(caught_up: bool) -> None:
    """H-4 (replication.md §8, §24.7): an upgrade waits for new messages only; the other side may lack older ones."""
    cast = Cast()
    cast.group.downgrade(("a", "b"))
    cast.publish(10)
    cast.sync("a")
    cast.group.upgrade(("a", "b"))
    if caught_up:
        cast.rest()
    assert cast.p.acked == 10
    cast.group.kill("a")
    cast.p.connect(cast.group, "b")
    cast.publish(1)
    cast.heal()
    assert cast.sequences("b") == ([*range(1, 12)] if caught_up else [11])


@pytest.mark.parametrize("waits", [False, True])
def test_h5_a_publisher_goes_on_at_a_wiped_instance(waits: bool) -> None:
    """H-5 (F14, 25.26)."""
    cast = Cast()
    cast.publish(50)
    cast.rest()
    cast.group.kill("a")
    cast.group.wipe("a")
    cast.group.start("a")
    if waits:
        cast.rest()
    cast.p.connect(cast.group, "a")
    cast.p.next = 51
    cast.publish(1)
    cast.heal()
    if waits:
        cast.check()
    else:
        assert cast.sequences("a") == [51]
        assert cast.sequences("b") == [*range(1, 52)]


def _seen_on_a() -> tuple[Cast, Publisher, Subscriber]:
    """A subscriber on A has p's message; r, whom it has never seen, published to B before p's message came there."""
    cast = Cast()
    r = cast.publishers["r"] = Publisher("r")
    r.connect(cast.group, "b")
    subscriber = Subscriber("s")
    subscriber.connect(cast.group, "a")
    cast.publish(1)
    cast.publish(1, r)
    cast.sync("a", "b")
    cast.group.send(("a", "b"), 9)
    cast.group.take(("a", "b"), 9)
    cast.sync("b")
    cast.group.send(("b", "a"), 9)
    cast.group.acknowledge(("a", "b"))
    cast.group.take_ack(("a", "b"))
    subscriber.run(cast.group)
    assert subscriber.received == [("p", 1)]
    cast.group.kill("a")
    return cast, r, subscriber


@pytest.mark.parametrize("from_the_beginning", [False, True])
def test_h6_a_subscriber_moves_and_has_never_seen_a_publisher(from_the_beginning: bool) -> None:
    """H-6 (replication.md §11, §19): it resumes behind a message that it did not get."""
    cast, r, subscriber = _seen_on_a()
    subscriber.connect(cast.group, "b")
    if from_the_beginning:
        subscriber.next = 0
        subscriber.skipped.clear()
    cast.heal()
    assert r.acked == 1
    subscriber.run(cast.group)
    if from_the_beginning:
        check_received(subscriber.received, logs_of(cast.group))
        assert subscriber.repeats == 1
    else:
        assert [missed.reason for missed in subscriber.skipped] == ["unseen publisher"]
        with pytest.raises(AssertionError, match="never delivered"):
            check_received(subscriber.received, logs_of(cast.group))


@pytest.mark.parametrize("history", [True, False])
def test_h7_history_is_not_held_back(history: bool) -> None:
    """H-7 (replication.md §7): a `fully_durable` subscription gets history that the partner lacks."""
    cast = Cast()
    cast.group.partition("a", "b")
    subscriber = Subscriber("s")
    if not history:
        subscriber.connect(cast.group, "a")
    cast.publish(1)
    cast.sync("a")
    if history:
        subscriber.connect(cast.group, "a")
    subscriber.run(cast.group)
    assert subscriber.loose == history
    assert subscriber.received == ([("p", 1)] if history else [])
    if history:
        with pytest.raises(AssertionError, match="not on b"):
            check_received(subscriber.received, logs_of(cast.group), fully_durable_on=["b"])


def test_h8_a_plain_subscriber_sees_what_no_other_instance_gets() -> None:
    """H-8 (F5): the disk is lost before the message left, and the publisher does not come back."""
    cast = Cast()
    plain, durable = Subscriber("s", fully_durable=False), Subscriber("d")
    plain.connect(cast.group, "a")
    durable.connect(cast.group, "a")
    cast.group.partition("a", "b")
    cast.publish(1)
    cast.sync("a")
    plain.run(cast.group)
    durable.run(cast.group)
    assert (plain.received, durable.received) == ([("p", 1)], [])
    cast.group.kill("a")
    cast.group.wipe("a")
    cast.heal()
    with pytest.raises(AssertionError, match="nobody has it"):
        check_received(plain.received, logs_of(cast.group))
    check_received(durable.received, logs_of(cast.group))


@pytest.mark.parametrize("topology", [STAR, TRIANGLE])
def test_h9_clients_that_move_twice(topology: Topology) -> None:
    """H-9 (replication.md §24.7): an instance speaks for itself and its own destinations, not for those of the
    instance that it got a message from. In a full mesh this is the same.
    """
    first, second, third = ("hub", "a", "b") if topology is STAR else ("a", "b", "c")
    cast = Cast(topology, first)
    cast.publish(2)
    cast.sync(first)
    link = (first, second)
    cast.group.send(link, 9)
    cast.group.take(link, 9)
    cast.sync(second)
    cast.group.send((second, first), 9)
    cast.p.connect(cast.group, second)
    assert cast.p.acked == (2 if topology is STAR else 0)
    cast.p.connect(cast.group, third)
    cast.publish(3)
    cast.heal()
    if topology is STAR:
        assert cast.sequences(third)[0] == 3
    else:
        cast.check()


def test_h10_a_queue_message_that_is_published_twice() -> None:
    """H-10 (replication.md §24.8, epoch 0): it may be delivered twice; it is not lost, and the queue gets empty."""
    cast = Cast()
    queues = Queues(cast.group)
    one, other = queues.add_consumer("one", "a"), queues.add_consumer("other", "b")
    cast.publish(1)
    cast.sync("a")
    cast.p.connect(cast.group, "b")
    cast.publish(1)
    cast.sync("b")
    queues.deliver("a")
    queues.deliver("b")
    assert (len(queues.held(one)), len(queues.held(other))) == (1, 1)
    assert queues.twice_published() == {("p", 1)}
    with pytest.raises(AssertionError, match="at once"):
        check_queue_deliveries(queues.leases)
    queues.drain()
    assert queues.left() == {"a": [], "b": []}


def _queue_cut_in_two() -> tuple[Cast, Queues]:
    cast = Cast()
    queues = Queues(cast.group)
    queues.add_consumer("one", "a")
    queues.add_consumer("other", "b")
    cast.publish(1)
    cast.rest()
    cast.group.partition("a", "b")
    return cast, queues


def test_h11_proxied_use_while_the_owner_lives() -> None:
    """H-11 (replication.md §14.4): a partition looks like a dead owner."""
    cast, queues = _queue_cut_in_two()
    queues.deliver("a")
    queues.hosts["b"].proxied = True
    queues.request("b")
    queues.deliver("b")
    with pytest.raises(AssertionError, match="at once"):
        check_queue_deliveries(queues.leases)
    cast.group.heal()
    queues.drain()
    assert queues.left() == {"a": [], "b": []}


@pytest.mark.parametrize("closed", [False, True])
def test_h12_an_owner_returns_after_proxied_use(closed: bool) -> None:
    """H-12 (replication.md §14.4, F9): `closed`, its client transports open when it has caught up."""
    cast, queues = _queue_cut_in_two()
    cast.group.kill("a")
    queues.instance_ended("a")
    queues.hosts["b"].proxied = True
    queues.request("b")
    queues.deliver("b")
    queues.acknowledge(queues.consumers["other"])
    cast.sync("b")
    cast.group.start("a")
    cast.group.heal()
    if closed:
        cast.rest()
    queues.deliver("a")
    assert len(queues.leases) == (1 if closed else 2)


@pytest.mark.parametrize("closed", [False, True])
def test_h13_a_wiped_owner_is_refilled_while_it_has_consumers(closed: bool) -> None:
    """H-13 (F14, §14.1): it sees the publish before the transfer that gave the message away."""
    cast, queues = _queue_cut_in_two()
    cast.group.heal()
    cast.rest()
    queues.consumers["one"].connected = False
    queues.request("b")
    queues.grant()
    cast.rest()
    queues.deliver("b")
    assert len(queues.held(queues.consumers["other"])) == 1
    cast.group.kill("a")
    cast.group.wipe("a")
    cast.group.start("a")
    cast.group.connect(("b", "a"))
    cast.group.send(("b", "a"), 1)
    cast.group.take(("b", "a"), 1)
    queues.consumers["one"].connected = not closed
    queues.deliver("a")
    cast.rest()
    queues.consumers["one"].connected = True
    queues.deliver("a")
    assert len(queues.leases) == (1 if closed else 2)


def test_h14_an_acknowledgement_dies_with_its_instance() -> None:
    """H-14 (replication.md §14.3): the message was processed, and is delivered again elsewhere, as after any lost
    lease.
    """
    cast, queues = _queue_cut_in_two()
    queues.deliver("a")
    queues.acknowledge(queues.consumers["one"])
    cast.sync("a")
    queues.settle_acknowledgements()
    assert queues.leases[0].persisted is None, "B lacks it, so it is not persisted"
    cast.group.kill("a")
    queues.instance_ended("a")
    queues.hosts["b"].proxied = True
    queues.request("b")
    queues.deliver("b")
    assert [lease.instance for lease in queues.leases] == ["a", "b"]
    check_queue_deliveries(queues.leases)


def test_h15_journals_were_removed() -> None:
    """H-15 (replication.md §13, §24.5): a wiped or new instance gets what is left, and the gap is reported."""
    cast = Cast()
    cast.publish(10)
    cast.rest()
    cast.group.kill("b")
    cast.group.wipe("b")
    cast.group.instances["a"].removed = 6
    cast.heal()
    assert cast.group.gaps == 1
    assert cast.sequences("b") == [7, 8, 9, 10]


def _lose_durable_tail(instance: Instance, length: int) -> None:
    """A disk said that it had written what it had not."""
    del instance.log[length:]
    instance.durable = length


@pytest.mark.parametrize("both", [False, True])
def test_h16_a_disk_that_lies(both: bool) -> None:
    """H-16: one lying disk is filled again by the partner; if both lie and both lose power, the message is gone."""
    cast = Cast()
    cast.publish(10)
    cast.rest()
    assert cast.p.acked == 10
    for name in ("a", "b"):
        cast.group.kill(name)
    _lose_durable_tail(cast.group.instances["b"], 7)
    if both:
        _lose_durable_tail(cast.group.instances["a"], 8)
    cast.heal()
    assert cast.sequences("a") == cast.sequences("b") == [*range(1, 9 if both else 11)]
    if both:
        with pytest.raises(AssertionError, match="acknowledged and is missing"):
            cast.check()
    else:
        cast.check()


@pytest.mark.parametrize("new_epoch", [False, True])
def test_h17_a_source_that_lost_its_tail(new_epoch: bool) -> None:
    """H-17 (25.67): the same transaction ids would name other records; so the source begins a new epoch."""
    cast = Cast()
    cast.publish(10)
    cast.rest()
    cast.group.kill("a")
    a = cast.group.instances["a"]
    _lose_durable_tail(a, 7)
    if new_epoch:
        a.epoch += 1
    cast.group.start("a")
    q = cast.publishers["q"] = Publisher("q")
    q.connect(cast.group, "a")
    cast.publish(5, q)
    a.sync()
    last_txid, _ = cast.group.resume_of(cast.group.instances["b"], a)
    assert (a.number_after(last_txid) > 7) == (not new_epoch), "the last transaction id names a new record"
    cast.heal()
    assert cast.sequences("b", "q") == ([1, 2, 3, 4, 5] if new_epoch else [4, 5])


def test_h18_one_name_on_two_instances() -> None:
    """H-18 (replication.md §10): two clients of one name make different messages with equal bookmarks."""
    cast = Cast()
    cast.group.partition("a", "b")
    twin = Publisher("p")
    twin.connect(cast.group, "b")
    cast.publish(2)
    twin.publish(cast.group, 0)
    cast.group.instances["b"].publish(record_of("p", 1, "other topic"))
    cast.heal()
    with pytest.raises(AssertionError, match="was"):
        check_contents(logs_of(cast.group))


def test_h19_two_publishers_are_ordered_differently() -> None:
    """H-19 (replication.md §11, 25.14): each log has its own order of two publishers, so last values of a key may
    differ.
    """
    cast = Cast()
    q = cast.publishers["q"] = Publisher("q")
    q.connect(cast.group, "b")
    cast.publish(1)
    cast.publish(1, q)
    cast.heal()
    cast.check()
    orders = [[r.publisher for r in instance.log] for instance in cast.group.instances.values()]
    assert orders == [["p", "q"], ["q", "p"]]


def test_h20_partial_ways_drop_older_messages() -> None:
    """H-20 (25.9): two ways with different topics to one instance: the faster way makes the slower one's messages
    look like duplicates.
    """
    group = Group(
        [
            Instance(
                "a",
                "g",
                [Destination("b", ("b",), topics="^t$"), Destination("c", ("c",), topics="^u$")],
            ),
            Instance("b", "g", [Destination("c", ("c",))]),
            Instance("c", "g", []),
        ]
    )
    a = group.instances["a"]
    a.log_on("p")
    a.publish(record_of("p", 1, "t"))
    a.publish(record_of("p", 2, "u"))
    a.sync()
    group.connect(("a", "c"))
    group.send(("a", "c"), 9)
    group.take(("a", "c"), 9)
    assert group.settle()
    assert [r.sequence for r in group.instances["c"].log] == [2], "message 1 came by way of B, too late"


def _sites(pass_through: str) -> Topology:
    """Two sites, whose links between sites have this `PassThrough`: `.*`, or the own group alone."""
    ways = tuple(
        dataclasses.replace(
            way, pass_through=way.source[:4] if way.mode == ASYNC and pass_through == "own" else ".*"
        )
        for way in SITES.ways
    )
    return dataclasses.replace(SITES, ways=ways)


@pytest.mark.parametrize("pass_through", ["own", ".*"])
def test_h21_a_site_is_lost(pass_through: str) -> None:
    """H-21 (replication.md §18): what had not left by the async links is gone. With `PassThrough` of the own group
    alone, a site that was lost as a whole is not filled again with its own messages.
    """
    cast = Cast(_sites(pass_through), "east1")
    cast.publish(4)
    cast.rest()
    for east in ("east1", "east2"):
        for west in ("west1", "west2"):
            cast.group.partition(east, west)
    cast.publish(3)
    cast.rest()
    assert cast.p.acked == 7
    for name in ("east1", "east2"):
        cast.group.kill(name)
        cast.group.wipe(name)
    cast.heal()
    assert cast.sequences("west1") == cast.sequences("west2") == [1, 2, 3, 4]
    assert (
        cast.sequences("east1") == cast.sequences("east2") == ([1, 2, 3, 4] if pass_through == ".*" else [])
    )


@pytest.mark.parametrize("pass_through", ["own", ".*"])
def test_h22_messages_come_back_from_another_site(pass_through: str) -> None:
    """H-22 (replication.md §9): `PassThrough` looks at the last hop. What one west instance got from the other one goes
    on to east, also if it came from there; what it got from east itself does not.
    """
    cast = Cast(_sites(pass_through), "east1")
    group = cast.group
    for one, other in (("east1", "east2"), ("east1", "west2"), ("east2", "west1"), ("west1", "west2")):
        group.partition(one, other)
    cast.publish(1)
    group.settle()
    assert cast.sequences("west1") == [1]
    group.heal()
    for one, other in (("east1", "east2"), ("east1", "west1"), ("west2", "east2")):
        group.partition(one, other)
    cast.publish(1)
    group.settle()
    assert cast.sequences("east2") == ([2] if pass_through == "own" else [1, 2])
    cast.heal()
    assert cast.p.acked == 2
    if pass_through == "own":
        with pytest.raises(AssertionError, match="missing on east2"):
            cast.check()
    else:
        cast.check()
