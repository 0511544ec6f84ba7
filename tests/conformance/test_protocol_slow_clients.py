"""Clients that don't read: operations.md §2.1, protocol.md §13, transaction_log.md §7.7 and §22 42.

The limits apply to the instance, however many workers share its clients. The tests of the limits run with several
workers.
"""

import time

import pytest

from amps.server.transport.slow_clients import PATIENCE_S
from tests.support.peer import PeerError, RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, Transport, numbered_bodies, wait_until

SMALL_BUFFER_BYTES = 16 * 1024
PADDING_BYTES = 10_000

WORKERS = 8

LIMITS = "<MessageMemoryLimit>4MB</MessageMemoryLimit><ClientMaxCapacity>100%</ClientMaxCapacity>"
ROOMY = "<MessageMemoryLimit>40MB</MessageMemoryLimit><ClientMaxCapacity>100%</ClientMaxCapacity>"


def worker_of(server: ServerProcess, client: RawClient) -> int:
    """The worker of a client, taken from the connection's name, `<instance>-<transport>-<worker>-<n>`."""
    host, port = client.socket.getsockname()
    (record,) = server.log.wait_for("07-0001", f" from {host}:{port}.")
    connection = record.text.removeprefix("client[").partition("]")[0]
    return int(connection.rsplit("-", 2)[1])


def slow_readers_apart(peers: Peers, server: ServerProcess) -> tuple[RawClient, RawClient]:
    """Two clients of different workers. The worker that accepts a connection is not predictable."""
    first = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    for _ in range(50):
        second = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
        if worker_of(server, second) != worker_of(server, first):
            return first, second
        second.close()
    raise AssertionError("one worker takes all connections")


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(log_topics=("^L/",), instance_xml=LIMITS)


def test_protocol_slow_client_is_disconnected_and_no_other(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """operations.md §13 23, protocol.md §13, replication.md §26 68: 70-0004, reason `slow client`; offlining to disk is
    not supported yet.
    """
    slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    slow.subscribe(topic, "s")
    quick = peers.logged_on(server)
    quick.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(100, padding_bytes=PADDING_BYTES)
    for _ in range(40):  # 40 MB; a socket buffers a few of them
        publisher.publish_all(topic, bodies)
        assert bodies_of(quick.receive_published(100)) == bodies
    server.log.wait_for("70-0004", slow.client_name)
    server.log.wait_for("07-0013", slow.client_name, "slow client")
    quick.expect_silence()
    assert not server.log.find("70-0004", quick.client_name)


def test_protocol_slow_client_that_reads_in_time_gets_everything(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """operations.md §2.1: bytes that the socket does not accept are kept below the limit, in order."""
    late = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    late.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(300, padding_bytes=PADDING_BYTES)  # 3 MB
    publisher.publish_all(topic, bodies)
    publisher.flush()
    time.sleep(2 * PATIENCE_S)  # otherwise the client would be tolerated even with a full pool
    assert bodies_of(late.receive_published(300)) == bodies


def test_protocol_slow_client_capacity_is_a_share_of_the_limit(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """operations.md §13 24, second part, §2: a client may not exceed its share, even if the pool has room."""
    server = start_server(
        instance_xml="<MessageMemoryLimit>400MB</MessageMemoryLimit><ClientMaxCapacity>1%</ClientMaxCapacity>"
    )
    slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    slow.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    for _ in range(40):
        publisher.publish_all(topic, numbered_bodies(100, padding_bytes=PADDING_BYTES))
        publisher.flush()
    server.log.wait_for("07-0013", slow.client_name, "slow client")


def test_protocol_slow_client_may_fill_the_pool_alone(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """operations.md §2.1: the limit is the instance's; one worker's clients may use the memory that others do not
    need.
    """
    server = start_server(transport_workers=WORKERS, instance_xml=ROOMY)
    late = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    late.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(3800, padding_bytes=PADDING_BYTES)  # 38 of 40 MB
    publisher.publish_all(topic, bodies)
    publisher.flush()
    assert bodies_of(late.receive_published(len(bodies), timeout_s=60)) == bodies
    assert not server.log.find("70-0004")


def test_operations_24_the_one_with_more_goes_first(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """operations.md §13 24, first part, §2.1: two slow readers of two workers together exceed the limit.

    The client with more memory is disconnected, although the message that fills the pool is for the other one.
    """
    server = start_server(transport_workers=WORKERS, instance_xml=ROOMY)
    greedy, modest = slow_readers_apart(peers, server)
    greedy.subscribe(f"{topic}/greedy", "s")
    modest.subscribe(f"{topic}/modest", "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(3200, padding_bytes=PADDING_BYTES)  # 32 MB for the first, 20 MB for the second
    publisher.publish_all(f"{topic}/greedy", bodies)
    publisher.flush()
    assert not server.log.find("70-0004")
    publisher.publish_all(f"{topic}/modest", bodies[:2000])
    server.log.wait_for("07-0013", greedy.client_name, "slow client")
    assert bodies_of(modest.receive_published(2000, timeout_s=60)) == bodies[:2000]
    assert len(server.log.find("70-0004")) == 1


def test_operations_24_of_two_alike_one_goes(start_server: StartServer, peers: Peers, topic: str) -> None:
    """operations.md §13 24, §2.1: two slow readers of two workers get the same; without one of them there is room."""
    server = start_server(transport_workers=2, instance_xml=ROOMY)
    readers = slow_readers_apart(peers, server)
    for reader in readers:
        reader.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(3200, padding_bytes=PADDING_BYTES)  # 32 MB for each of them
    publisher.publish_all(topic, bodies)
    publisher.flush()
    (record,) = server.log.wait_for("70-0004")
    (other,) = (reader for reader in readers if reader.client_name not in record.text)
    assert bodies_of(other.receive_published(len(bodies), timeout_s=60)) == bodies
    assert len(server.log.find("70-0004")) == 1


def test_operations_24_a_killed_worker_gives_its_memory_back(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """operations.md §2.1: the output of a dead worker's clients no longer counts."""
    server = start_server(transport_workers=4, instance_xml=ROOMY)
    publisher, lost = slow_readers_apart(peers, server)
    lost.subscribe(topic, "s")
    bodies = numbered_bodies(3800, padding_bytes=PADDING_BYTES)  # 38 of 40 MB
    publisher.publish_all(topic, bodies)
    publisher.flush()
    assert not server.log.find("70-0004")
    killed = worker_of(server, lost)
    pid = server.transport_pid(killed)
    server.kill_process(pid)
    server.wait_for_new_tree([pid])
    # It has another worker: the new worker reports the output of its own clients again.
    late = next(
        client for client in slow_readers_apart(peers, server) if worker_of(server, client) != killed
    )
    late.subscribe(topic, "s")
    publisher.publish_all(topic, bodies)
    publisher.flush()
    assert bodies_of(late.receive_published(len(bodies), timeout_s=60)) == bodies
    assert not server.log.find("70-0004")


def test_operations_26_a_transport_with_a_limit_of_its_own(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """operations.md §13 26, replication.md §26 69: its clients neither count in the instance's pool nor are
    disconnected when that is full.

    Its own limit also covers all workers together.
    """
    server = start_server(
        transport_workers=WORKERS,
        transports=(
            Transport("shared"),
            Transport("own", extra_xml="<MessageMemoryLimit>40MB</MessageMemoryLimit>"),
        ),
        instance_xml=LIMITS,
    )
    slow = {
        name: peers.logged_on(server, name, receive_buffer_bytes=SMALL_BUFFER_BYTES)
        for name in ("own", "shared")
    }
    for client in slow.values():
        client.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(3000, padding_bytes=PADDING_BYTES)  # 30 MB
    publisher.publish_all(topic, bodies)
    server.log.wait_for("07-0013", slow["shared"].client_name, "slow client")
    assert bodies_of(slow["own"].receive_published(len(bodies), timeout_s=60)) == bodies
    publisher.publish_all(topic, bodies)
    publisher.publish_all(topic, bodies)
    server.log.wait_for("07-0013", slow["own"].client_name, "slow client")


def test_protocol_slow_client_may_be_too_old(start_server: StartServer, peers: Peers, topic: str) -> None:
    """operations.md §13 25, §2, replication.md §26 68: output that waits longer than the limit is too old."""
    server = start_server(
        instance_xml="<MessageMemoryLimit>400MB</MessageMemoryLimit>"
        "<ClientMessageAgeLimit>1s</ClientMessageAgeLimit>"
    )
    slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    slow.subscribe(topic, "s")
    quick = peers.logged_on(server)
    quick.subscribe(topic, "s")
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(1200, padding_bytes=PADDING_BYTES)  # 12 MB, more than sockets take
    began_s = time.monotonic()
    publisher.publish_all(topic, bodies)
    assert bodies_of(quick.receive_published(1200)) == bodies
    server.log.wait_for("07-0013", slow.client_name, "slow client", timeout_s=15)
    assert time.monotonic() - began_s > 0.95
    quick.expect_nothing_for(1.5)
    quick.expect_silence()


def test_replication_69_the_age_limit_of_the_instance_holds_for_a_transport_with_a_limit_of_its_own(
    start_server: StartServer, peers: Peers, topic: str
) -> None:
    """replication.md §26 69, §20: what a transport does not name comes from the instance; its own pool has room."""
    server = start_server(
        transport_workers=1,
        transports=(
            Transport("shared"),
            Transport("own", extra_xml="<MessageMemoryLimit>400MB</MessageMemoryLimit>"),
            Transport("patient", extra_xml="<ClientMessageAgeLimit>1h</ClientMessageAgeLimit>"),
        ),
        instance_xml="<MessageMemoryLimit>400MB</MessageMemoryLimit>"
        "<ClientMessageAgeLimit>1s</ClientMessageAgeLimit>",
    )
    slow = {
        name: peers.logged_on(server, name, receive_buffer_bytes=SMALL_BUFFER_BYTES)
        for name in ("own", "patient")
    }
    for client in slow.values():
        client.subscribe(topic, "s")
    publisher = peers.logged_on(server, "shared")
    bodies = numbered_bodies(1200, padding_bytes=PADDING_BYTES)  # 12 MB, more than sockets take
    publisher.publish_all(topic, bodies)
    server.log.wait_for("70-0004", slow["own"].client_name, timeout_s=15)
    server.log.wait_for("07-0013", slow["own"].client_name, "slow client")
    assert bodies_of(slow["patient"].receive_published(1200, timeout_s=60)) == bodies


def test_protocol_slow_client_frees_its_memory(peers: Peers, server: ServerProcess, topic: str) -> None:
    """operations.md §2.1: many times; no memory of the disconnected clients stays."""
    publisher = peers.logged_on(server)
    memory_bytes = []
    for _ in range(4):
        slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
        slow.subscribe(topic, "s")
        for _ in range(20):
            publisher.publish_all(topic, numbered_bodies(100, padding_bytes=PADDING_BYTES))
            publisher.flush()
        server.log.wait_for("07-0013", slow.client_name, "slow client")
        memory_bytes.append(server.anonymous_bytes())
    assert memory_bytes[-1] - memory_bytes[0] < 8 * 2**20


@pytest.mark.parametrize("options", ["", "fully_durable"])
def test_transaction_log_42_a_stalled_replay_waits(
    peers: Peers, server: ServerProcess, recorded_topic: str, options: str
) -> None:
    """transaction_log.md §22 42, operations.md §13 27, replication.md §26 70: never disconnected, before or after
    cutover; gets every message.
    """
    publisher = peers.logged_on(server)
    total = 2000
    bodies = numbered_bodies(total, padding_bytes=PADDING_BYTES)  # 20 MB
    publisher.publish_persisted(recorded_topic, bodies, 1)
    before = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    before.subscribe(recorded_topic, "s", bm="0", o=options)
    after = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    after.subscribe(recorded_topic, "s", bm="0|1|", o=options)
    more = numbered_bodies(total, start=total + 1, padding_bytes=PADDING_BYTES)
    publisher.publish_persisted(recorded_topic, more, total + 1)
    for stalled in (before, after):
        with pytest.raises(AssertionError, match="no record"):
            server.log.wait_for("07-0013", stalled.client_name, timeout_s=1)
        assert not server.log.find("70-0004", stalled.client_name)
        assert not server.log.find("70-0011", stalled.client_name)
    assert bodies_of(before.receive_published(2 * total, timeout_s=60)) == bodies + more
    assert bodies_of(after.receive_published(total, timeout_s=60)) == more
    publisher.publish(recorded_topic, b"end")
    assert before.receive_until(b"end") == after.receive_until(b"end") == []


def test_transaction_log_42_a_stalled_replay_costs_little_memory(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §7.7: a replay reads at the speed of the client; no output is accumulated for it."""
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(3000, padding_bytes=PADDING_BYTES)  # 30 MB
    publisher.publish_persisted(recorded_topic, bodies, 1)
    before_bytes = server.anonymous_bytes()
    stalled = [peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES) for _ in range(4)]
    for client in stalled:
        client.subscribe(recorded_topic, "s", bm="0")
    quick = peers.logged_on(server)
    quick.subscribe(recorded_topic, "s", bm="0")
    assert bodies_of(quick.receive_published(3000, timeout_s=60)) == bodies
    assert server.anonymous_bytes() - before_bytes < 40 * 2**20


def test_transaction_log_42_live_replays_can_be_too_slow(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §7.7, §10, replication.md §26 70: with `live` the protection ends when the replay is done."""
    slow = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    slow.subscribe(recorded_topic, "s", bm="0", o="live", a="processed,completed")
    slow.wait_for_ack("completed")
    publisher = peers.logged_on(server)
    for burst in range(40):
        bodies = numbered_bodies(100, padding_bytes=PADDING_BYTES)
        publisher.publish_all(recorded_topic, bodies, first_sequence=burst * 100 + 1)
        publisher.flush()
    server.log.wait_for("07-0013", slow.client_name, "slow client")


def publish_without_reading(client: RawClient, topic: str, messages: int) -> None:
    """Publish messages with three acknowledgements of about 1 KB each, until the server disconnects the client."""
    client.timeout_s = 5
    try:
        for _ in range(messages // 100):
            client.publish_all(topic, [b"x"] * 100, cid="c" * 1000, a="received,processed,completed")
    except (OSError, PeerError):
        pass  # disconnected


def test_protocol_a_publisher_that_never_reads_its_acks_is_disconnected(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """operations.md §2.1 1: all output that the socket does not accept counts, and no other client is affected."""
    deaf = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    other = peers.logged_on(server)
    other.subscribe(topic, "s")
    publish_without_reading(deaf, "nobody", 10_000)
    server.log.wait_for("70-0004", deaf.client_name)
    other.publish(topic, b"1")
    assert other.receive().body == b"1"
    deaf.close()
    wait_until(
        lambda: bool(server.log.find("07-0013", deaf.client_name)), 15, "the deaf client is still there"
    )


@pytest.mark.parametrize("bookmark", ["0", "0|1|"])
def test_protocol_a_stalled_replay_does_not_excuse_unread_acks(
    peers: Peers, server: ServerProcess, recorded_topic: str, bookmark: str
) -> None:
    """operations.md §2.1 1 and 4: the messages of a replay are paced by the reader; requested acknowledgements are
    not.
    """
    publisher = peers.logged_on(server)
    publisher.publish_persisted(recorded_topic, numbered_bodies(2000, padding_bytes=PADDING_BYTES), 1)
    deaf = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    deaf.subscribe(recorded_topic, "s", bm=bookmark)
    publish_without_reading(deaf, "nobody", 10_000)
    server.log.wait_for("70-0004", deaf.client_name)


def test_transaction_log_42_a_stalled_replay_may_have_acks_waiting(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """operations.md §2.1 4: acknowledgements that fit do not harm a replay far beyond the limit."""
    publisher = peers.logged_on(server)
    bodies = numbered_bodies(2000, padding_bytes=PADDING_BYTES)  # 20 MB
    publisher.publish_persisted(recorded_topic, bodies, 1)
    stalled = peers.logged_on(server, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    stalled.subscribe(recorded_topic, "s", bm="0")
    stalled.publish_all("nobody", [b"x"] * 300, cid="c" * 1000, a="received,processed,completed")
    assert bodies_of(stalled.receive_until(bodies[-1], timeout_s=60)) == bodies[:-1]
    assert not server.log.find("70-0004", stalled.client_name)
