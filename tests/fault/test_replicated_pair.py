"""Faults of a pair whose instances replicate to each other, sync: both lose their power, the network parts them, a
journal is damaged, a direction of the link falls silent, an instance is paused.

In each test, what was acknowledged is afterwards in both logs, once, and each publisher's messages are in their order.
"""

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import Instances, two_way
from tests.support.peer import Message, RawClient, bodies_of
from tests.support.ports import release_port, reserve_port
from tests.support.server import numbered_bodies

PATIENCE_S = 60.0
CHUNK = 50


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _pair(group: Instances) -> Instances:
    for name, to in two_way():
        group.add(name, to)
    return group


def _logged(group: Instances, name: str) -> list[bytes]:
    """All messages that the log of an instance has now."""
    with RawClient.tcp(group[name].port()) as client:
        client.logon(f"replay-{name}")
        client.send({"c": "subscribe", "t": "t", "bm": "0", "sub_id": "r", "a": "completed"})
        received: list[Message] = []
        while not (received and received[-1].is_ack("completed")):
            received.append(client.receive(PATIENCE_S))
    return bodies_of(message for message in received if message.command == "p")


def _in_parallel(act: Callable[[str], None], names: str) -> None:
    threads = [threading.Thread(target=act, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _sequence(message: Message) -> int:
    """The sequence number of a logon or persisted acknowledgement; 0 if it has none."""
    sequence = message.get("s") or 0
    assert isinstance(sequence, int)
    return sequence


def _publish_until_closed(client: RawClient, begin: int) -> None:
    """Publish the messages from number `begin`, which is also their sequence number, until the connection breaks."""
    with contextlib.suppress(OSError):
        while True:
            client.publish_all("t", numbered_bodies(CHUNK, begin), first_sequence=begin, a="persisted")
            begin += CHUNK
            time.sleep(0.002)


def test_both_instances_lose_their_power_under_load(group: Instances, unique: str) -> None:
    """Jepsen scenario of a coordinated power loss. Each log has all that was acknowledged when it is started again,
    before the publisher sends the rest, which it does at the other instance (replication.md §21 F4).
    """
    _pair(group).start()
    acknowledged = 0
    for name in "ABA":
        with RawClient.tcp(group[name].port()) as client:
            known = _sequence(client.logon(unique, o="ack_conflation=10ms"))
            assert known >= acknowledged
            publisher = threading.Thread(target=_publish_until_closed, args=(client, known + 1), daemon=True)
            publisher.start()
            acks = client.wait_for_persisted(known + 10 * CHUNK, PATIENCE_S)
            _in_parallel(group.kill, "AB")
            publisher.join(PATIENCE_S)
            assert not publisher.is_alive()
            acks += [message for message in client.wait_for_close() if message.is_ack("persisted")]
        acknowledged = max(_sequence(ack) for ack in acks)
        group.start("A", "B", connected=False)
        for each in "AB":
            found = _logged(group, each)
            assert len(found) >= acknowledged
            assert found == numbered_bodies(len(found))
    with group.client("A", unique + "-after") as client:
        client.publish_persisted("t", [b'{"last":1}'], 1)
    group.wait_connected("B", "A")
    with group.client("B", unique + "-after-b") as client:
        client.publish_persisted("t", [b'{"last":2}'], 1)
    logs = [_logged(group, name) for name in "AB"]
    for found in logs:
        kept = [body for body in found if b"last" not in body]
        assert len(kept) >= acknowledged
        assert kept == numbered_bodies(len(kept))
    assert sorted(logs[0]) == sorted(logs[1])


@pytest.fixture
def admin_ports() -> Iterator[dict[str, int]]:
    ports = {name: reserve_port() for name in "AB"}
    yield ports
    for port in ports.values():
        release_port(port)


def test_a_parted_pair_serves_publishers_and_is_one_again(
    group: Instances, unique: str, admin_ports: dict[str, int]
) -> None:
    """replication.md §21 F7: each side goes on alone when its link is downgraded, and gets the other's messages later.

    One publisher has messages on the way when the network is cut.
    """
    for name, to in two_way():
        group.add(name, to, xml=f"<Admin><InetAddr>127.0.0.1:{admin_ports[name]}</InetAddr></Admin>")
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    bodies = {"A": numbered_bodies(3000), "B": numbered_bodies(3000, 10_001)}
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        clients = {"A": first, "B": second}
        for name, client in clients.items():
            client.publish_all("t", bodies[name][:1000], first_sequence=1, a="persisted")
        for proxy in proxies:
            proxy.cut()
        for name, other in ("AB", "BA"):
            group.wait_disconnected(name, other)
            path = f"/amps/administrator/replication/{other}/downgrade"
            assert get(admin_ports[name], path).status == 200
        for name, client in clients.items():
            client.publish_all("t", bodies[name][1000:2000], first_sequence=1001, a="persisted")
            client.wait_for_persisted(2000, PATIENCE_S)
        for proxy in proxies:
            proxy.heal()
        for name, client in clients.items():
            client.publish_all("t", bodies[name][2000:], first_sequence=2001, a="persisted")
            client.wait_for_persisted(3000, PATIENCE_S)
    for name in "AB":
        found = bodies_of(group.log_of(name, 6000, timeout_s=PATIENCE_S))
        assert [body for body in found if json.loads(body)["n"] <= 10_000] == bodies["A"]
        assert [body for body in found if json.loads(body)["n"] > 10_000] == bodies["B"]


def _truncate(path: Path, position: int) -> None:
    os.truncate(path, position)


def _flip(path: Path, position: int) -> None:
    image = bytearray(path.read_bytes())
    image[position] ^= 1
    path.write_bytes(image)


@pytest.mark.parametrize("damage", [_truncate, _flip])
def test_a_damaged_instance_refuses_to_start_and_is_refilled_when_wiped(
    group: Instances, unique: str, damage: Callable[[Path, int], None]
) -> None:
    """replication.md §21 F14; Jepsen scenarios of a truncated and of a corrupted file. Nothing that the damaged
    instance has lost is lost for its partner, nor does the partner get anything twice.
    """
    _pair(group).start()
    here, there = numbered_bodies(1000, padding_bytes=500), numbered_bodies(1000, 10_001, padding_bytes=500)
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        first.publish_persisted("t", here, 1)
        second.publish_persisted("t", there, 1)
    group.kill("B")
    journal = group["B"].journals()[0]
    damage(journal, journal.read_bytes().index(here[500]) + 100)
    assert journal.name in group["B"].start_refused()
    shutil.rmtree(group["B"].journal_directory)
    group.start("B")
    group.wait_connected("A", "B")
    for name in "AB":
        assert bodies_of(group.log_of(name, 2000, timeout_s=PATIENCE_S)) == here + there


def test_one_silent_direction_ends_the_link_and_loses_nothing(group: Instances, unique: str) -> None:
    """Jepsen scenario of a partition in one direction: what B says no longer arrives at A, B still gets everything.

    Decision 25.30: the link ends after its silence. What B has already is not stored again by the next one.
    """
    _pair(group)
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    used = next(proxy for proxy in proxies if proxy.open_connections)
    towards_a = "back" if used is proxies[0] else "forward"
    bodies = numbered_bodies(1000)
    with group.client("A", unique) as client:
        client.publish_persisted("t", bodies[:500], 1)
        used.hold(towards_a)
        client.publish_all("t", bodies[500:], first_sequence=501, a="persisted")
        assert bodies_of(group.log_of("B", 1000)) == bodies
        group["A"].log.wait_for("1E-0002", "silent", timeout_s=40)
        used.heal()
        client.wait_for_persisted(1000, PATIENCE_S)
    for name in "AB":
        assert bodies_of(group.log_of(name, 1000)) == bodies


def _signal_all(group: Instances, name: str, number: signal.Signals) -> None:
    """Send a signal to all processes of an instance; the supervisor is the first."""
    process = group[name].process
    assert process is not None
    for pid in dict.fromkeys([process.pid, *group[name].pids()]):
        os.kill(pid, number)


def test_a_paused_instance_goes_on_where_it_was(group: Instances, unique: str) -> None:
    """Jepsen scenario of a paused process: publishers at both instances have messages on the way meanwhile.

    replication.md §21 F1 while B is paused: A delivers, and acknowledges nothing that B does not have.
    """
    _pair(group).start()
    here, there = numbered_bodies(4000), numbered_bodies(4000, 10_001)
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        for client, bodies in ((first, here), (second, there)):
            client.publish_all("t", bodies[:2000], first_sequence=1, a="persisted")
        first.wait_for_persisted(1, PATIENCE_S)
        pids_before = group["B"].pids()
        _signal_all(group, "B", signal.SIGSTOP)
        try:
            first.publish_all("t", here[2000:], first_sequence=2001, a="persisted")
            second.publish_all("t", there[2000:3000], first_sequence=2001, a="persisted")
            with group.reader("A", f="/n = 4000") as reader:
                assert bodies_of(reader.receive_published(1)) == here[-1:]
            with pytest.raises(AssertionError):
                first.wait_for_persisted(4000, 3)
        finally:
            _signal_all(group, "B", signal.SIGCONT)
        second.publish_all("t", there[3000:], first_sequence=3001, a="persisted")
        first.wait_for_persisted(4000, PATIENCE_S)
        second.wait_for_persisted(4000, PATIENCE_S)
        assert group["B"].pids() == pids_before
    for name in "AB":
        found = bodies_of(group.log_of(name, 8000))
        assert [body for body in found if json.loads(body)["n"] <= 10_000] == here
        assert [body for body in found if json.loads(body)["n"] > 10_000] == there
