"""A pair on two hosts (network namespaces) with a cable between them: unplugged, or passing one direction only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import Instances, two_way
from tests.support.namespaces import Cable
from tests.support.patched_servers import patched
from tests.support.peer import Silence, bodies_of
from tests.support.server import Transport, numbered_bodies

PATIENCE_S = 60.0
PART = 100
SHORT_TIMES = """
from amps.server.replication import dialling, link, replication
link.PING_AFTER_S, link.DEAD_AFTER_S, link.WATCH_S = 0.5, 2.0, 0.2
dialling.HELLO_S = replication.HELLO_S = 1.0
"""


@pytest.fixture
def cable() -> Iterator[Cable]:
    with Cable() as made:
        yield made


@pytest.fixture
def group(cable: Cable, tmp_path: Path) -> Iterator[Instances]:
    environment = patched(tmp_path, SHORT_TIMES)
    with Instances(tmp_path) as instances:
        for side, (name, to) in enumerate(two_way()):
            instances.add(
                name,
                to,
                host=cable.addresses[side],
                transports=[Transport("unix", "amps-unix", socket_path=tmp_path / f"{name}.socket")],
                command_prefix=cable.prefix(side),
                environment=environment,
            )
        instances.start()
        yield instances


def test_a_cable_is_unplugged_and_loses_each_direction(group: Instances, cable: Cable, unique: str) -> None:
    """replication.md §21 F1, F3, 25.30; Jepsen scenarios of full and asymmetric partitions. Each fault ends the link,
    by silence. Meanwhile nothing is acknowledged; afterwards both have all messages of both publishers, once and in
    order.
    """
    faults = [
        (cable.unplug, cable.plug),
        (lambda: cable.mute(0), lambda: cable.unmute(0)),
        (lambda: cable.mute(1), lambda: cable.unmute(1)),
    ]
    count = PART * (1 + len(faults))
    bodies = {"A": numbered_bodies(count), "B": numbered_bodies(count, 10_001)}
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        clients = {"A": first, "B": second}
        for name, client in clients.items():
            client.publish_persisted("t", bodies[name][:PART], 1)
        for number, (fail, heal) in enumerate(faults, 1):
            begin = number * PART
            fail()
            for name, client in clients.items():
                client.publish_all(
                    "t", bodies[name][begin : begin + PART], first_sequence=begin + 1, a="persisted"
                )
            for name, other in ("AB", "BA"):
                group.wait_disconnected(name, other)
            # What one direction still carried may be stored there, but no acknowledgement came through.
            for client in clients.values():
                with pytest.raises(Silence):
                    client.wait_for_persisted(begin + PART, 0.2)
            heal()
            for client in clients.values():
                client.wait_for_persisted(begin + PART, PATIENCE_S)
            for name, other in ("AB", "BA"):
                group.wait_connected(name, other)
    for name in "AB":
        found = bodies_of(group.log_of(name, 2 * count, timeout_s=PATIENCE_S))
        assert [body for body in found if body in set(bodies["A"])] == bodies["A"]
        assert [body for body in found if body in set(bodies["B"])] == bodies["B"]
