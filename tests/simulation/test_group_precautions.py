"""Precautions whose lack random seeds notice seldom: each in the one situation that matters, on real instances with
simulated network and disks.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.group_topologies import TOPOLOGIES
from tests.simulation.group_world import GroupWorld

ROUNDS = 60
ROUND_NS = 20_000_000


class Pair:
    """Two instances that are sync for each other, and a client of the first one."""

    def __init__(self, directory: Path) -> None:
        self.world = GroupWorld(1, directory, topology=TOPOLOGIES["pair"])
        self.first, self.second = (self.world.instances[name] for name in sorted(self.world.instances))
        for instance in (self.first, self.second):
            instance.open()
            instance.begin()
        home = self.world.homes[0]
        self.client = home.client
        self.run()
        self.world._connect(home, self.first)
        self.run()
        assert self.client.wire is not None
        assert self.client.wire.ready

    def run(self, rounds: int = ROUNDS, flushes: bool = True, second_turns: bool = True) -> None:
        """Let everything run. `flushes`: the first one syncs its log. `second_turns`: the other one's core runs."""
        for _ in range(rounds):
            self.world.now_ns += ROUND_NS
            for instance in (self.first, self.second):
                for transport in filter(None, instance.transports):
                    transport.receive()
                    transport.publish()
                if instance is self.first or second_turns:
                    instance.turn()
                if instance is self.second or flushes:
                    instance.flush()
                instance.housekeeping(4)
                instance.look()
                for transport in filter(None, instance.transports):
                    transport.work()
                instance.run_replication(100)
            self.world.network.deliver_all()

    def publish(self, count: int) -> None:
        """Publish some messages, at least that many."""
        assert self.client.wire is not None
        until = self.client.last + count
        while self.client.last < until:
            self.client.wire.publish_some(self.world.chance)

    def logs(self) -> list[int]:
        """The number of messages in each log."""
        return [len(self.world._log_of(instance)) for instance in (self.first, self.second)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        for instance in made.world.instances.values():
            instance.close()


def test_a_record_leaves_an_instance_when_it_is_durable_there(pair: Pair) -> None:
    """replication.md §24.6: otherwise a partner could have what its source loses in a crash."""
    pair.publish(5)
    pair.run(flushes=False)
    assert pair.logs()[0] >= 5
    assert pair.logs()[1] == 0
    pair.run()
    assert pair.logs()[1] == pair.logs()[0]


def test_a_record_counts_when_the_core_has_taken_it(pair: Pair) -> None:
    """replication.md §24.6: what is only in the ring is lost with the core."""
    pair.publish(5)
    pair.run(second_turns=False)
    assert pair.logs()[0] >= 5
    assert pair.client.acked == 0
    pair.run()
    assert pair.client.acked >= 5


def test_a_flow_ends_when_the_core_refuses_a_record(pair: Pair) -> None:
    """Otherwise it would go on behind the refused record, which never came again."""
    pair.second.disk.full = True
    held = -1
    while held != pair.logs()[1]:  # until the core there refuses
        held = pair.logs()[1]
        pair.publish(200)
        pair.run(30)
    assert pair.logs()[0] > held > 0
    pair.second.disk.full = False
    pair.run(200)
    assert pair.logs()[0] == pair.logs()[1]
