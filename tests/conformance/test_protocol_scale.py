"""Many topics, subscriptions and connections, and long names: nothing is lost, and no memory or file stays behind."""

import re
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.peer import bodies_of, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",))


def test_transaction_log_many_topics(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §7.3: 20,000 topics, over several journals, in replay and after a restart."""
    server = start_server(log_topics=("^L/",))
    publisher, live = peers.logged_on(server), peers.logged_on(server)
    live.subscribe("^L/", "s")
    expected = [(f"L/{n % 20_000}/x", b"%d" % n) for n in range(30_000)]
    for first in range(0, len(expected), 1000):
        part = enumerate(expected[first : first + 1000], start=first + 1)
        publisher.send_bytes(
            b"".join(frame({"c": "p", "t": topic, "s": s}, body + b"x" * 500) for s, (topic, body) in part)
        )
    assert [(m["t"], m.body[:-500]) for m in live.receive_published(30_000, timeout_s=60)] == expected
    publisher.flush("persisted", timeout_s=60)
    for _ in range(2):
        reader = peers.logged_on(server)
        reader.subscribe("^L/", "s", bm="0")
        assert [(m["t"], m.body[:-500]) for m in reader.receive_published(30_000, timeout_s=60)] == expected
        one = peers.logged_on(server)
        one.subscribe("L/19999/x", "s", bm="0")
        assert one.receive().body[:-500] == b"19999"
        server.restart()


def test_protocol_many_subscriptions(peers: Peers, server: ServerProcess, topic: str) -> None:
    """protocol.md §4: 2,000 on one connection; one message names all that match."""
    client = peers.logged_on(server)
    client.send_bytes(
        b"".join(frame({"c": "subscribe", "t": f"{topic}/{n}", "sub_id": f"s{n}"}) for n in range(1900))
        + b"".join(frame({"c": "subscribe", "t": f"^{topic}/7$", "sub_id": f"r{n}"}) for n in range(100))
    )
    client.publish(f"{topic}/7", b"x")
    assert client.receive().subscriptions == {"s7", *(f"r{n}" for n in range(100))}
    assert client.unsubscribe("all").succeeded
    client.publish(f"{topic}/7", b"x")
    client.expect_silence()


def test_connections_are_spread_over_the_transports(start_server: StartServer, peers: Peers) -> None:
    """The workers share one listening socket; a worker that is awake must not accept all connections."""
    server = start_server(transport_workers=2)
    for _ in range(60):
        peers.open(server)
    connected = server.log.wait_for("07-0001", count=60)
    workers = Counter(re.findall(r"-(\d+)-\d+\]", record.text)[0] for record in connected)
    assert min(workers["0"], workers["1"]) >= 15, workers


def test_protocol_many_connections_at_once(peers: Peers, server: ServerProcess, topic: str) -> None:
    """protocol.md §4: 300 subscribers of one topic."""
    clients = [peers.logged_on(server) for _ in range(300)]
    for client in clients:
        client.subscribe(topic, "s")
    clients[0].publish_all(topic, numbered_bodies(50))
    for client in clients:
        assert bodies_of(client.receive_published(50)) == numbered_bodies(50)


def test_protocol_connections_that_come_and_go(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §4: a disconnect leaves nothing; measured over a thousand of them while messages flow."""
    publisher = peers.logged_on(server)
    witness = peers.logged_on(server)
    witness.subscribe(recorded_topic, "s")
    stop = threading.Event()
    published = 0

    def publish() -> None:
        nonlocal published
        while not stop.is_set():
            publisher.publish_all(recorded_topic, numbered_bodies(20, start=published + 1))
            published += 20
            stop.wait(0.005)

    def come_and_go(times: int) -> None:
        for number in range(times):
            with Peers(f"{recorded_topic}-{number}") as visitors:
                visitor = visitors.logged_on(server)
                visitor.subscribe(recorded_topic, "live")
                visitor.subscribe("^L/", "replay", bm="0|1|" if number % 2 else "0")
                if number % 3:
                    visitor.receive()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        come_and_go(200)
        before_bytes = server.anonymous_bytes()
        come_and_go(800)
        growth_bytes = server.anonymous_bytes() - before_bytes
    finally:
        stop.set()
        thread.join()
    publisher.publish(recorded_topic, b"end")
    assert bodies_of(witness.receive_until(b"end", timeout_s=60)) == numbered_bodies(published)
    assert growth_bytes < 40 * 2**20


def test_protocol_subscriptions_of_the_disconnected_are_forgotten(
    peers: Peers, server: ServerProcess
) -> None:
    """protocol.md §4: 30 MB of topics must not stay in memory for disconnected clients."""

    def visit() -> None:
        with Peers(peers.new_name()) as visitors:
            visitor = visitors.logged_on(server)
            for number in range(30):
                visitor.send(
                    {"c": "subscribe", "t": f"plain/{number}/" + "t" * 50_000, "sub_id": str(number)}
                )
            visitor.flush()

    visit()
    before_bytes = server.anonymous_bytes()
    for _ in range(20):
        visit()
    assert server.anonymous_bytes() - before_bytes < 15 * 2**20


def test_protocol_an_unrecorded_message_is_forgotten(peers: Peers, server: ServerProcess, topic: str) -> None:
    """docs/messages.md, the transient log: kept only until all transports have read it, however much is published."""
    subscriber, publisher = peers.logged_on(server), peers.logged_on(server)
    subscriber.subscribe(topic, "s")
    for _ in range(10):
        publisher.publish_all(topic, [b"x" * 100_000] * 100)  # 10 MB
        subscriber.receive_published(100)
    publisher.publish_all(topic, [b"y"])
    assert server.process is not None
    pattern = f"amps-run-{server.process.pid}-*/transient*"

    def kept_bytes() -> int:
        return sum(path.stat().st_size for path in Path("/dev/shm").glob(pattern))

    wait_until(
        lambda: 0 < kept_bytes() <= 40 * 2**20, 10, lambda: f"{kept_bytes()} bytes of the transient log stay"
    )


@pytest.mark.parametrize("length", [1000, 60_000])
def test_protocol_long_names(peers: Peers, server: ServerProcess, recorded_topic: str, length: int) -> None:
    """protocol.md §3: topic, correlation id and subscription id of any length that a header may have."""
    client = peers.logged_on(server)
    name = f"{recorded_topic}/" + "n" * length
    sub_id = "i" * length
    correlation_id = "x" * length
    client.subscribe(name, sub_id)
    client.subscribe(name, "replay", bm="0|1|")
    client.publish(name, b"body", s=1, x=correlation_id)
    arrived = {str(m["sids"]): m for m in client.receive_published(2)}
    assert set(arrived) == {sub_id, "replay"}
    for message in arrived.values():
        assert (message["t"], message["x"], message.body) == (name, correlation_id, b"body")


def test_protocol_a_header_without_bounds_closes_the_connection(peers: Peers, server: ServerProcess) -> None:
    """protocol.md §3: a header of many megabytes is refused."""
    client = peers.logged_on(server)
    client.send({"c": "p", "t": "t" * (8 * 2**20)}, b"x")
    assert client.wait_for_close() == []
    server.log.wait_for("07-0013", client.client_name, "unknown command")
