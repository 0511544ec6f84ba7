"""Failures of a whole pair: both lose their power, the network parts them, one loses its log."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import Instances, two_way
from tests.support.ports import release_port, reserve_port
from tests.support.server import numbered_bodies


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


@pytest.fixture
def pair(group: Instances) -> Instances:
    for name, to in two_way():
        group.add(name, to)
    group.start()
    return group


def bodies_in(group: Instances, name: str, count: int) -> list[bytes]:
    return [message.body for message in group.log_of(name, count, timeout_s=60)]


def test_both_instances_lose_their_power_at_once(pair: Instances, unique: str) -> None:
    """What Jepsen did to clusters of NATS: what was acknowledged before is in both logs, once and in order."""
    bodies = numbered_bodies(6000)
    for begin in (0, 2000, 4000):
        with pair.client("A", unique) as client:
            client.publish_persisted("t", bodies[begin : begin + 1000], begin + 1)
            client.publish_all("t", bodies[begin + 1000 : begin + 2000], first_sequence=begin + 1001)
            for name in "AB":
                pair.kill(name)
        pair.start()
        with pair.client("B", unique) as client:  # it goes on at the other instance
            client.publish_persisted("t", bodies[begin : begin + 2000], begin + 1)
    for name in "AB":
        assert bodies_in(pair, name, 6000) == bodies


def test_a_pair_that_was_parted_has_the_messages_of_both(group: Instances, unique: str) -> None:
    """replication.md §21, F7: each order of a publisher is kept; the publishers may be mixed differently."""
    ports = {name: reserve_port() for name in "AB"}
    try:
        for name, to in two_way():
            group.add(name, to, xml=f"<Admin><InetAddr>127.0.0.1:{ports[name]}</InetAddr></Admin>")
        proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
        group.start()
        for proxy in proxies:
            proxy.cut()
        group.wait_disconnected("A", "B")
        group.wait_disconnected("B", "A")
        for name in "AB":
            assert get(ports[name], "/amps/administrator/replication/0/downgrade").status == 200
        of = {name: [b"%s %d" % (name.encode(), number) for number in range(2000)] for name in "AB"}
        for name in "AB":
            with group.client(name, f"{unique}-{name}") as client:
                client.publish_persisted("t", of[name], 1)
        for proxy in proxies:
            proxy.heal()
        group.wait_connected("A", "B")
        group.wait_connected("B", "A")
        for name in "AB":
            found = bodies_in(group, name, 4000)
            for publisher, bodies in of.items():
                assert [body for body in found if body.startswith(publisher.encode())] == bodies
    finally:
        for port in ports.values():
            release_port(port)


def test_an_instance_whose_log_is_damaged_is_filled_again(pair: Instances, unique: str) -> None:
    """What Jepsen did to files of NATS, and F14: it does not start with a gap, and its partner has everything."""
    bodies = numbered_bodies(3000)
    with pair.client("A", unique) as client:
        client.publish_persisted("t", bodies, 1)
    pair.kill("A")
    journal = pair["A"].journals()[0]
    with journal.open("r+b") as file:
        file.seek(100_000)
        byte = file.read(1)[0]
        file.seek(100_000)
        file.write(bytes([byte ^ 0x10]))
    assert "no intact record is there" in pair["A"].start_refused()
    shutil.rmtree(journal.parent)
    pair.start("A")
    for name in "AB":
        assert bodies_in(pair, name, 3000) == bodies


def test_an_instance_that_stands_still_loses_nothing(pair: Instances, unique: str) -> None:
    """A pause of all processes, as of a virtual machine that is moved; the publisher waits meanwhile."""
    bodies = numbered_bodies(4000)
    pids = pair["B"].pids("amps: ")
    with pair.client("A", unique) as client:
        client.publish_persisted("t", bodies[:1000], 1)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            client.publish_all("t", bodies[1000:3000], first_sequence=1001, a="persisted")
            client.expect_nothing_for(2)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        client.wait_for_persisted(3000, 60)
        client.publish_persisted("t", bodies[3000:], 3001)
    for name in "AB":
        assert bodies_in(pair, name, 4000) == bodies
