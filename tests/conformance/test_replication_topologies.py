"""Shapes of replication with real servers: chain, star, ring, two sites (replication.md §9, §18, §21 F12, §26, 25 to 29
and 45).

A pair and one-way chains are in test_replication_pairs.py and test_replication_chains.py. Here all links go both
ways and pass everything on, as an operator would configure them.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.failover_load import PLACES, by_publisher
from tests.support.instances import Instances
from tests.support.peer import RawClient, Silence, bodies_of
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, numbered_bodies, wait_until
from tests.support.topologies import SITES, Shape

NEVER_S = 1.0


@pytest.fixture
def shape(tmp_path: Path) -> Iterator[Shape]:
    made = Shape(Instances(tmp_path))
    yield made
    made.close()


def _publish(shape: Shape, name: str, client: str, place: int, count: int, *, wait: bool = True) -> list[int]:
    """Publish at one instance, and wait until all have it, if all links are sync. Returns the numbers."""
    first = place * PLACES + 1
    with shape.instances.client(name, client) as publisher:
        publisher.publish_all("t", numbered_bodies(count, first), first_sequence=1, a="persisted")
        if wait:
            publisher.wait_for_persisted(count)
        else:
            publisher.flush("completed")
    return list(range(first, first + count))


def _everywhere(shape: Shape, expected: list[int], *names: str) -> None:
    """Each message is once in each log, those of each publisher in their order."""
    for name in names or shape.names:
        assert by_publisher(shape.numbers(name, len(expected))) == expected, name


def _comes_to_rest(shape: Shape) -> int:
    """Wait until nothing is sent any more; return how many messages were sent."""
    before = -1
    while (now := shape.sent()) != before:
        before = now
        time.sleep(0.5)
    return now


def test_a_chain_whose_middle_dies(shape: Shape, unique: str) -> None:
    """Behaviours 25 to 27 both ways at once; replication.md §21 F12: the ends exchange nothing until it returns."""
    shape.add_lines("chain").instances.start()
    expected = _publish(shape, "A", unique + "-a", 0, 50) + _publish(shape, "D", unique + "-d", 1, 50)
    _everywhere(shape, expected)
    shape.instances.kill("B")
    with (
        shape.instances.client("A", unique + "-left") as left,
        shape.instances.client("D", unique + "-right") as right,
    ):
        for place, client in ((2, left), (3, right)):
            client.publish_all("t", numbered_bodies(50, place * PLACES + 1), first_sequence=1, a="persisted")
        _everywhere(
            shape, expected + [3 * PLACES + each for each in range(1, 51)], "C", "D"
        )
        for client in (left, right):
            with pytest.raises(Silence):
                client.wait_for_ack("persisted", timeout_s=NEVER_S / 2)
        shape.instances.launch("B")
        left.wait_for_persisted(50, 40)
        right.wait_for_persisted(50, 40)
    _everywhere(shape, expected + [place * PLACES + each for place in (2, 3) for each in range(1, 51)])


def test_a_star_with_a_publisher_at_each_end(shape: Shape, unique: str) -> None:
    """replication.md §9: the hub passes on what it got from one side to all others, and nothing back."""
    shape.add_lines("star").instances.start()
    count = 60
    expected: list[int] = []
    for place, name in enumerate("ABH"):
        expected += _publish(shape, name, f"{unique}-{name}", place, count)
    _everywhere(shape, expected)
    # From A and B: to the hub, and from there to two others. From the hub: to three.
    assert _comes_to_rest(shape) == 3 * len(expected)
    shape.instances.kill("C")
    with RawClient.tcp(shape.instances["A"].port()) as client:
        client.logon(unique + "-waits", o="ack_conflation=10ms")
        client.publish_all("t", numbered_bodies(count, 3 * PLACES + 1), first_sequence=1, a="persisted")
        with pytest.raises(Silence):  # it waits for the instance behind the hub
            client.wait_for_ack("persisted", timeout_s=NEVER_S)
        shape.instances.launch("C")
        client.wait_for_persisted(count, 40)
    expected += range(3 * PLACES + 1, 3 * PLACES + 1 + count)
    _everywhere(shape, expected)
    # Decision 25.26: a hub that has lost its disk gets everything back, what was once published there, too.
    shape.instances["H"].stop()
    for path in shape.instances["H"].journal_directory.iterdir():
        path.unlink()
    shape.instances.launch("H")
    _everywhere(shape, expected, "H")
    expected += _publish(shape, "B", unique + "-after", 4, count)
    _everywhere(shape, expected)


def test_nothing_circulates_in_a_ring_of_four(shape: Shape, unique: str) -> None:
    """Behaviour 28 with a publisher at each: all logs are equal per publisher, and `messages_out` stops rising."""
    shape.add_lines("ring").instances.start()
    count = 200
    clients = [RawClient.tcp(shape.instances[name].port()) for name in shape.names]
    try:
        for name, client in zip(shape.names, clients, strict=True):
            client.logon(f"{unique}-{name}", o="ack_conflation=10ms")
        for begin in range(0, count, 50):
            for place, client in enumerate(clients):
                bodies = numbered_bodies(50, place * PLACES + begin + 1)
                client.publish_all("t", bodies, first_sequence=begin + 1, a="persisted")
        for client in clients:
            client.wait_for_persisted(count, 40)
    finally:
        for client in clients:
            client.close()
    expected = [place * PLACES + each for place in range(4) for each in range(1, count + 1)]
    _everywhere(shape, expected)
    sent = _comes_to_rest(shape)
    # Both ways around to the opposite instance, which sends its first copy on to the other side; no further.
    assert 3 * len(expected) <= sent <= 5 * len(expected)
    time.sleep(NEVER_S)
    assert shape.sent() == sent


def test_two_sites_use_the_other_server_of_a_site(shape: Shape, unique: str) -> None:
    """replication.md §18, as conf/two-sites.xml. Behaviour 45: a server dies, and the next address is used."""
    shape.add_sites().instances.start()
    count = 50
    expected: list[int] = []
    for place, name in enumerate(("E1", "W2", "E2")):
        expected += _publish(shape, name, f"{unique}-{name}", place, count)
    _everywhere(shape, expected)
    # A record goes to the partner; both send it to the other site, where one server sends it to its partner. That one
    # got it from its own site, so it may send it to the other server of the first site once more, where it ends.
    assert _comes_to_rest(shape) <= 5 * len(expected)
    shape.instances.kill("W1")
    expected += _publish(shape, "E2", unique + "-while", 3, count)
    _everywhere(shape, expected, "E1", "E2", "W2")
    for name in SITES["east"]:
        shape.instances[name].log.wait_for("1E-0001", f"{name}!west!async", "instance W2")
    expected += _publish(shape, "W2", unique + "-waits", 4, count, wait=False)
    shape.instances.launch("W1")
    _everywhere(shape, expected)
    wait_until(lambda: shape.instances.is_connected("W2", "W1"), 20, "W2 has not come back to W1")


def _example(name: str, names: list[str], ports: dict[str, dict[str, int]]) -> str:
    """The text of conf/two-sites.xml for one instance, with other addresses."""
    site, number = name.split("-")
    text = (Path(__file__).parents[2] / "conf" / "two-sites.xml").read_text()
    changes = {
        "${SITE}": site,
        "${OTHER}": next(each.split("-")[0] for each in names if site not in each),
        "${NUMBER}": number,
        "${PARTNER}": "2" if number == "1" else "1",
        ">9007<": f">127.0.0.1:{ports[name]['clients']}<",
        ">9107<": f">127.0.0.1:{ports[name]['replication']}<",
        "127.0.0.1:8085": f"127.0.0.1:{ports[name]['admin']}",
        **{f"{each}:9107": f"127.0.0.1:{ports[each]['replication']}" for each in names},
    }
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def test_the_example_of_two_sites_runs(tmp_path: Path, unique: str) -> None:
    """conf/two-sites.xml: a message goes from one site to both instances of the other one."""
    names = [f"{site}-{number}" for site in ("london", "newyork") for number in "12"]
    ports = {name: {use: reserve_port() for use in ("clients", "replication", "admin")} for name in names}
    servers = [ServerProcess(tmp_path / name, config_xml=_example(name, names, ports)) for name in names]
    try:
        for server in servers:
            server.start()
        with RawClient.tcp(ports["london-1"]["clients"]) as publisher:
            publisher.logon(unique, o="ack_conflation=10ms")
            publisher.publish_persisted("orders/eu", numbered_bodies(10), 1)
        for name in names:
            with RawClient.tcp(ports[name]["clients"]) as reader:
                reader.logon(f"{unique}-reader")
                reader.subscribe("orders/eu", bm="0")
                assert bodies_of(reader.receive_published(10)) == numbered_bodies(10)
        for server in servers:
            server.stop()
    finally:
        for server in servers:
            server.close()
        for of_one in ports.values():
            for port in of_one.values():
                release_port(port)
