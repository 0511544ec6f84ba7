"""Messages up to the documented maximum: protocol.md §1, §2; no copy of one stays behind."""

import hashlib
import time

import pytest

from tests.support.peer import MAXIMUM_MESSAGE_BYTES, Value, encode_header, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until

MEGABYTE = 2**20


def large_body(size_bytes: int, seed: int) -> bytes:
    """A body without two equal blocks, so that a lost or doubled piece changes its checksum."""
    block = bytes(range(256)) * (MEGABYTE // 256)
    blocks = (b"%16d" % (seed + n) + block[16:] for n in range(size_bytes // MEGABYTE + 1))
    return b"".join(blocks)[:size_bytes]


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(
        log_topics=("^L/",),
        instance_xml="<MessageMemoryLimit>2GB</MessageMemoryLimit><ClientMaxCapacity>100%</ClientMaxCapacity>",
    )


@pytest.mark.parametrize("size", [MEGABYTE, 9 * MEGABYTE, 11 * MEGABYTE, 64 * MEGABYTE])
def test_protocol_large_messages_pass_live_and_replayed(
    peers: Peers, server: ServerProcess, recorded_topic: str, size: int
) -> None:
    """protocol.md §1, transaction_log.md §20 28: also a message larger than a journal of 10 MB."""
    publisher, live, replay = (peers.logged_on(server) for _ in range(3))
    live.subscribe(recorded_topic, "s")
    bodies = [b"before", large_body(size, 1), b"between", large_body(size, 100), b"after"]
    publisher.timeout_s = live.timeout_s = replay.timeout_s = 60
    publisher.publish_persisted(recorded_topic, bodies, 1)
    replay.subscribe(recorded_topic, "s", bm="0")
    for subscriber in (live, replay):
        assert [m.body == body for m, body in zip(subscriber.receive_published(5), bodies, strict=True)] == [
            True
        ] * 5


@pytest.mark.timeout(240)
def test_protocol_large_messages_up_to_the_maximum(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §1, §2: 200 MB, header included, through publish, log, live delivery and replay.

    One byte more disconnects the publisher; afterwards no process keeps a copy.
    """
    publisher, live, replay = (peers.logged_on(server) for _ in range(3))
    for client in (publisher, live, replay):
        client.timeout_s = 100
    live.subscribe(recorded_topic, "s")
    publisher.publish_persisted(recorded_topic, [b"warm"], 1)
    assert live.receive().body == b"warm"
    idle = server.anonymous_bytes(), server.resident_bytes()

    header: dict[str, Value] = {"c": "p", "t": recorded_topic, "s": 2, "a": "persisted"}
    body = large_body(MAXIMUM_MESSAGE_BYTES - len(encode_header(header)), 1)
    checksum = hashlib.sha256(body).hexdigest()
    data = frame(header, body)
    assert len(data) == 4 + MAXIMUM_MESSAGE_BYTES
    del body
    publisher.send_bytes(data)
    publisher.wait_for_persisted(2)
    assert hashlib.sha256(live.receive().body).hexdigest() == checksum
    replay.subscribe(recorded_topic, "s", bm="0")
    warm, large = replay.receive_published(2)
    assert warm.body == b"warm"
    assert hashlib.sha256(large.body).hexdigest() == checksum

    publisher.send_bytes((MAXIMUM_MESSAGE_BYTES + 1).to_bytes(4, "big") + data[4:5000])
    assert publisher.wait_for_close() == []
    server.log.wait_for("07-0013", publisher.client_name)

    def grown() -> list[int]:
        now = server.anonymous_bytes(), server.resident_bytes()
        return [(after - before) // MEGABYTE for before, after in zip(idle, now, strict=True)]

    # Resident memory also contains pages of mapped files that the replay read for other tests' messages.
    wait_until(
        lambda: grown()[0] < 64 and grown()[1] < 128,
        15,
        lambda: f"{grown()} MB more, anonymous and resident, than before the large message",
    )


def test_protocol_large_message_does_not_hold_up_others(
    peers: Peers, server: ServerProcess, recorded_topic: str, topic: str
) -> None:
    """protocol.md §2: half a large frame on one connection delays no other connection."""
    publisher = peers.logged_on(server)
    data = frame({"c": "p", "t": recorded_topic, "s": 1, "a": "persisted"}, large_body(50 * MEGABYTE, 1))
    publisher.send_bytes(data[: len(data) // 2])
    others = [peers.logged_on(server) for _ in range(4)]
    for other in others:
        other.subscribe(topic, "s")
    others[0].publish(topic, b"1")
    assert [other.receive().body for other in others] == [b"1"] * 4
    time.sleep(0.2)
    publisher.send_bytes(data[len(data) // 2 :])
    publisher.wait_for_persisted(1)


def test_protocol_large_message_cut_off_is_not_published(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §2: an incomplete frame has no effect."""
    subscriber = peers.logged_on(server)
    subscriber.subscribe(recorded_topic, "s")
    broken = peers.logged_on(server)
    data = frame({"c": "p", "t": recorded_topic, "s": 1}, large_body(20 * MEGABYTE, 1))
    broken.send_bytes(data[:-1])
    broken.close()
    server.log.wait_for("07-0013", broken.client_name)
    other = peers.logged_on(server)
    other.publish_persisted(recorded_topic, [b"whole"], 1)
    assert subscriber.receive().body == b"whole"


def test_protocol_a_message_cut_off_leaves_no_memory_behind(start_server: StartServer, peers: Peers) -> None:
    """operations.md §2, Limits: memory for an incomplete message is released as soon as the connection has ended."""
    server = start_server()
    before_bytes = server.anonymous_bytes()
    for _ in range(4):
        client = peers.logged_on(server)
        client.send_bytes((100 * 2**20).to_bytes(4, "big") + b'{"c":"p","t":"big"}' + bytes(30 * 2**20))
        client.close()
    wait_until(
        lambda: server.anonymous_bytes() - before_bytes < 20 * 2**20,
        10.0,
        lambda: f"{(server.anonymous_bytes() - before_bytes) >> 20} MiB more than before",
    )
