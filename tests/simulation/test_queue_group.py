"""A queue that spans instances, under random failures: crashes, lost links, lost and repeated requests, slow clients.

Each run is made from one seed. At its end everything works again, and the consumers acknowledge all: then every queue
is empty, each message was delivered, and no message was lost. Two stronger rules hold as long as no instance acts as
a proxy. No two instances have a message with their clients at the same time. No instance delivers a message that was
acknowledged durably at another one.
"""

from collections.abc import Callable

import pytest

from tests.simulation.group_histories import check_end, run_group
from tests.support.queue_group import Group
from tests.support.queue_subject import QueueSettings

SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_without_proxies(seed: int) -> None:
    """replication.md §14, queues.md §16: exactly one owner at any time."""
    group = run_group(seed, proxies=False)
    check_end(group)
    assert not group.watch.held_twice
    assert not group.watch.delivered_after


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_with_proxies(seed: int) -> None:
    """replication.md §14.4: messages may be delivered twice, but none is lost, and all copies agree in the end."""
    check_end(run_group(seed, proxies=True))


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_at_most_once(seed: int) -> None:
    """queues.md §17: a delivery is recorded before it is sent, and replicated."""
    group = run_group(
        seed, proxies=False, settings=QueueSettings("Q", at_least_once=False, max_per_subscription=5)
    )
    check_end(group, all_delivered=False)
    assert all(len(found) == 1 for found in group.watch.deliveries.values())


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_a_group_local_queue(seed: int) -> None:
    """replication.md §14.1: `InitialOwner` is the first owner of all messages."""
    group = run_group(seed, proxies=False, initial_owner="B")
    check_end(group)
    assert not group.watch.held_twice


Defect = Callable[[pytest.MonkeyPatch], None]


def _no_transfer_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers of other instances are ignored."""
    from tests.support import queue_group

    true = queue_group.Instance.receive

    def receive(self: queue_group.Instance, entry: queue_group.Logged, *more: object) -> None:
        record = entry.record
        if record is None or queue_group.RECORD.unpack_from(record)[10] != queue_group.KIND_TRANSFER:
            true(self, entry, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_group.Instance, "receive", receive)


def _everything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records leave an instance before they are durable there."""
    from tests.support import queue_group

    def carry(self: Group, link: queue_group.Link, count: int) -> None:
        durable, link.source.durable = link.source.durable, len(link.source.log)
        try:
            true(self, link, count)
        finally:
            link.source.durable = durable

    true = Group.carry
    monkeypatch.setattr(Group, "carry", carry)


@pytest.mark.parametrize("defect", [_no_transfer_is_written, _everything_is_sent])
def test_defects_are_found(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with a defect fails for some seed."""
    defect(monkeypatch)
    for seed in range(SEEDS):
        try:
            group = run_group(seed, proxies=False)
            check_end(group)
            assert not group.watch.held_twice
            assert not group.watch.delivered_after
        except AssertionError:
            return
    pytest.fail("the defect was not found")
