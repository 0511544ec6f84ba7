"""Consumers of the benchmark suite acknowledge each received message once, in batches of 80, for any chunks.

Here the servers' bytes are written by hand from their protocols, and the consumers' bytes are parsed by hand, so that
neither relies on the code under test.
"""

import json
import mmap
import multiprocessing
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from perf.consuming import ACK_BATCH, PREFETCH, Consumer, Demand, exchange
from perf.load import payload
from perf.memory import held_bytes, own_part_bytes
from perf.peers.amps_queue import AmpsQueue, BookmarkConsumer
from perf.peers.beanstalkd import ReservingConsumer, count_inserted
from perf.peers.nats_queue import PullConsumer
from perf.peers.rabbitmq import ChannelConsumer, ConfirmCounter, publish_parts
from perf.peers.redis_group import GroupConsumer
from perf.pump import PeerError

MESSAGES = 205  # two batches and a rest
PUBLISHERS = ("3948331409633264000", "13948331409633264001")


@dataclass(frozen=True)
class Protocol:
    """A peer's protocol, from both sides."""

    consumer: Callable[[socket.socket], Consumer]
    handle: Callable[[int], Any]
    """The handle of a message by its number, counted from 1, as `acknowledged` returns it."""
    message: Callable[[int], bytes]
    before: Callable[[int, int], bytes]
    """Bytes that the server sends before a run of messages: by the run's number, counted from 0, and its length."""
    acknowledged: Callable[[bytes], list[list[Any]]]
    """The batches, from a consumer's bytes."""
    unconfirmed: bytes
    """A possible end of the server's bytes without a confirmation of everything."""
    confirmed: Callable[[Any], bytes]
    """Bytes that the server sends instead, or after that, to a consumer that it knows."""


RUNS = (60, 40, 80, 25)
"""The numbers of messages that arrive together."""
ACKNOWLEDGED_BEFORE = (2, 3)
"""Runs before which a batch was acknowledged."""


def nothing(run: int, count: int) -> bytes:
    return b""


def redis_before(run: int, count: int) -> bytes:
    counts = b":80\r\n:80\r\n" if run in ACKNOWLEDGED_BEFORE else b""
    return counts + b"*1\r\n*2\r\n$5\r\nbench\r\n*%d\r\n" % count


def commands(sent: bytes) -> Iterator[list[bytes]]:
    """The commands in bytes of the Redis protocol."""
    lines = sent.split(b"\r\n")
    at = 0
    while lines[at]:
        count = int(lines[at][1:])
        words = lines[at + 2 : at + 2 + 2 * count : 2]
        sizes = [int(size[1:]) for size in lines[at + 1 : at + 1 + 2 * count : 2]]
        assert sizes == [len(word) for word in words]
        yield words
        at += 1 + 2 * count
    assert at == len(lines) - 1


def redis_batches(sent: bytes) -> list[list[bytes]]:
    acknowledged = [words[3:] for words in commands(sent) if words[:3] == [b"XACK", b"bench", b"workers"]]
    deleted = [words[2:] for words in commands(sent) if words[:2] == [b"XDEL", b"bench"]]
    assert acknowledged == deleted
    return acknowledged


def redis_id(number: int) -> bytes:
    return b"1700000000000-%d" % number


def redis_entry(number: int) -> bytes:
    entry = redis_id(number)
    return b"*2\r\n$%d\r\n%s\r\n*2\r\n$1\r\nd\r\n$256\r\n%s\r\n" % (len(entry), entry, payload())


def beanstalkd_batches(sent: bytes) -> list[list[bytes]]:
    """Each batch is followed by as many reservations, if that many messages are left."""
    assert sent.count(b"reserve\r\n") == min(100 + sent.count(b"delete ") // 80 * 80, MESSAGES)
    runs = re.findall(rb"(?:delete \d+\r\n)+", sent)
    return [re.findall(rb"delete (\d+)\r\n", run) for run in runs]


def nats_subject(number: int) -> bytes:
    return b"$JS.ACK.BENCH.workers.1.%d.%d.1700000000000000000.%d" % (number, number, MESSAGES - number)


def nats_message(number: int) -> bytes:
    return b"MSG bench.0 1 %s 256\r\n%s\r\n" % (nats_subject(number), payload())


def nats_batches(sent: bytes) -> list[list[bytes]]:
    """Each batch ends with a request for more messages, or is the last one."""
    batches: list[list[bytes]] = [[]]
    for line in re.findall(
        rb"PUB (\S+) 0\r\n\r\n|(PUB \$JS\.API\.CONSUMER\.MSG\.NEXT\.BENCH\.workers )", sent
    ):
        if line[0]:
            batches[-1].append(line[0])
        elif batches[-1]:
            batches.append([])
    return batches


def frames(sent: bytes) -> Iterator[tuple[int, bytes]]:
    """The type and content of AMQP frames on channel 1."""
    at = 0
    while at < len(sent):
        size = int.from_bytes(sent[at + 3 : at + 7], "big")
        assert sent[at + 1 : at + 3] == b"\0\1"
        assert sent[at + 7 + size] == 0xCE
        yield sent[at], sent[at + 7 : at + 7 + size]
        at += 8 + size


def rabbit_tag(number: int) -> int:
    """The last tag looks like the end of a payload."""
    return 0x7E227D - MESSAGES + number


def rabbit_delivery(number: int) -> bytes:
    def frame(kind: int, content: bytes) -> bytes:
        return bytes([kind, 0, 1]) + len(content).to_bytes(4, "big") + content + b"\xce"

    deliver = b"\0\x3c\0\x3c\x01c" + rabbit_tag(number).to_bytes(8, "big") + b"\0\0\x05bench"
    header = b"\0\x3c\0\0" + (256).to_bytes(8, "big") + b"\x10\0\x02"
    return frame(1, deliver) + frame(2, header) + frame(3, payload())


def rabbit_batches(sent: bytes) -> list[list[int]]:
    """Each batch covers all messages behind the previous one."""
    tags = [rabbit_tag(number) for number in range(1, MESSAGES + 1)]
    batches = []
    for kind, content in frames(sent):
        if kind == 1 and content[:4] == b"\0\x3c\0\x50":
            assert content[12] == 1
            upto = tags.index(int.from_bytes(content[4:12], "big")) + 1
            batches.append(tags[:upto])
            del tags[:upto]
    return batches


def bookmark(number: int) -> str:
    """Bookmarks of two publishers, which differ in length."""
    return f"{PUBLISHERS[number % 2]}|{1_000_000_000 + number}|"


def amps_frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode() + body
    return len(text).to_bytes(4, "big") + text


def amps_message(number: int) -> bytes:
    header: dict[str, object] = {"c": "p", "t": "bench-queue", "sids": "1", "bm": bookmark(number), "l": 256}
    if number % 3 == 0:
        header["lp"] = "20240611T091530.250000Z"
    return amps_frame(header, payload())


def amps_before(run: int, count: int) -> bytes:
    answer = {"c": "ack", "cid": "1", "a": "processed", "status": "success", "o": "max_backlog=100"}
    return amps_frame(answer) if run == 0 else b""


def amps_headers(sent: bytes) -> Iterator[dict[str, str]]:
    at = 0
    while at < len(sent):
        size = int.from_bytes(sent[at : at + 4], "big")
        yield json.loads(sent[at + 4 : at + 4 + size])
        at += 4 + size


def amps_batches(sent: bytes) -> list[list[str]]:
    deletes = [header for header in amps_headers(sent) if header["c"] == "sow_delete"]
    assert all(set(header) == {"c", "t", "bm"} and header["t"] == "bench-queue" for header in deletes)
    return [header["bm"].split(",") for header in deletes]


PROTOCOLS = {
    "redis": Protocol(
        lambda sock: GroupConsumer(sock, 0, Demand(MESSAGES)),
        redis_id,
        redis_entry,
        redis_before,
        redis_batches,
        b":45\r\n:4",
        lambda consumer: b"5\r\n",
    ),
    "beanstalkd": Protocol(
        lambda sock: ReservingConsumer(sock, Demand(MESSAGES)),
        lambda number: b"%d" % number,
        lambda number: b"RESERVED %d 256\r\n%s\r\n" % (number, payload()),
        lambda run, count: b"DELETED\r\n" * 80 if run in ACKNOWLEDGED_BEFORE else b"",
        beanstalkd_batches,
        b"DELETED\r\n" * 44 + b"DELETE",
        lambda consumer: b"D\r\n",
    ),
    "nats": Protocol(
        lambda sock: PullConsumer(sock, 3),
        nats_subject,
        nats_message,
        nothing,
        nats_batches,
        b"PING\r\n",
        lambda consumer: b"MSG %s.confirmed 2 0\r\n\r\n" % consumer.inbox,
    ),
    "rabbitmq": Protocol(
        ChannelConsumer,
        rabbit_tag,
        rabbit_delivery,
        lambda run, count: b"\1\0\1\0\0\0\6\0\x3c\0\x15\x01c\xce" if run == 0 else b"",
        rabbit_batches,
        b"\1\0\1\0\0\0\x12\0\x32\0\x0b\x05be",
        lambda consumer: b"nch\0\0\0\0\0\0\0\1\xce",
    ),
    "amps": Protocol(
        BookmarkConsumer,
        bookmark,
        amps_message,
        amps_before,
        amps_batches,
        amps_frame({"c": "ack", "cid": "2", "a": "persisted", "status": "success"})[:-1],
        lambda consumer: b"}",
    ),
}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A consumer's end of a connection, and the server's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        other, _ = server.accept()
        with other:
            yield one, other


@pytest.fixture
def sock(pair: tuple[socket.socket, socket.socket]) -> socket.socket:
    return pair[0]


def feed(consumer: Consumer, data: bytes, chunk_bytes: int) -> int:
    chunks = range(0, len(data), chunk_bytes)
    return sum(consumer.take(memoryview(data)[first : first + chunk_bytes]) for first in chunks)


@pytest.mark.parametrize("chunk_bytes", [1, 7, 331, 10**6])
@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_received_messages_are_acknowledged_in_batches(
    protocol: Protocol, chunk_bytes: int, sock: socket.socket
) -> None:
    consumer = protocol.consumer(sock)
    consumer.start()
    handles = [protocol.handle(number) for number in range(1, MESSAGES + 1)]
    received = 0
    for run, count in enumerate(RUNS):
        numbers = range(received + 1, received + count + 1)
        data = protocol.before(run, count) + b"".join(map(protocol.message, numbers))
        assert feed(consumer, data, chunk_bytes) == count
        received += count
        whole = received // ACK_BATCH * ACK_BATCH
        batches = [batch for batch in protocol.acknowledged(bytes(consumer.outgoing)) if batch]
        assert batches == [handles[first : first + ACK_BATCH] for first in range(0, whole, ACK_BATCH)]
    consumer.finish()
    assert protocol.acknowledged(bytes(consumer.outgoing)) == [handles[:80], handles[80:160], handles[160:]]
    assert feed(consumer, protocol.unconfirmed, chunk_bytes) == 0
    assert not consumer.confirmed
    assert feed(consumer, protocol.confirmed(consumer), chunk_bytes) == 0
    assert consumer.confirmed


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_a_chunk_may_end_anywhere_in_a_message(protocol: Protocol, sock: socket.socket) -> None:
    """Three messages, cut in two in every possible way."""
    numbers = range(MESSAGES - 2, MESSAGES + 1)
    data = protocol.before(0, 3) + b"".join(map(protocol.message, numbers))
    for cut in range(len(data)):
        consumer = protocol.consumer(sock)
        consumer.start()
        taken = consumer.take(memoryview(data)[:cut])
        assert taken + consumer.take(memoryview(data)[cut:]) == 3
        consumer.finish()
        assert protocol.acknowledged(bytes(consumer.outgoing))[-1][-3:] == list(map(protocol.handle, numbers))


@pytest.mark.parametrize("name", ["beanstalkd", "nats", "redis"])
def test_a_consumer_without_messages_has_nothing_to_confirm(name: str, sock: socket.socket) -> None:
    consumer = PROTOCOLS[name].consumer(sock)
    consumer.start()
    consumer.finish()
    assert consumer.confirmed


def test_more_messages_than_there_are_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].sendall(amps_before(0, 3) + b"".join(map(amps_message, (1, 2, 3))))
    with pytest.raises(PeerError, match="3 messages arrived instead of 2"):
        exchange([], [BookmarkConsumer(pair[0])], 2)


def test_a_server_that_falls_silent_is_an_error(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perf.consuming.STALL_S", 0.01)
    pair[1].sendall(amps_before(0, 1) + amps_message(1))
    with pytest.raises(PeerError, match="1 of 2 messages arrived"):
        exchange([], [BookmarkConsumer(pair[0])], 2)


def test_a_server_that_closes_the_connection_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(PeerError, match="the server closed a consumer's connection"):
        exchange([], [BookmarkConsumer(pair[0])], 1)


def test_a_redis_consumer_requests_messages_within_its_room_and_the_shared_demand(
    sock: socket.socket,
) -> None:
    """A reply may be shorter than requested.

    Requested messages are not requested by others, unless they did not arrive.
    """
    demand = Demand(MESSAGES)
    one, other = GroupConsumer(sock, 1, demand), GroupConsumer(sock, 2, demand)
    one.start()
    for run, count in enumerate(RUNS):
        feed(one, redis_before(run, count) + redis_entry(1) * count, 10**6)
    other.start()
    asked = [words for words in commands(bytes(one.outgoing)) if words[0] == b"XREADGROUP"]
    assert [words[5] for words in asked] == [b"100", b"40", b"80", b"25"]
    assert all(words[:4] == [b"XREADGROUP", b"GROUP", b"workers", b"c1"] for words in asked)
    assert not other.outgoing


def test_a_nats_consumer_requests_a_batch_with_each_that_it_acknowledges(sock: socket.socket) -> None:
    consumer = PROTOCOLS["nats"].consumer(sock)
    consumer.start()
    feed(consumer, b"".join(map(nats_message, range(1, 161))), 10**6)
    assert re.findall(rb'{"batch": (\d+)}\r\n', consumer.outgoing) == [b"100", b"80", b"80"]


def test_a_subscription_to_a_topic_that_is_no_queue_is_refused(sock: socket.socket) -> None:
    answer = amps_frame({"c": "ack", "cid": "1", "a": "processed", "status": "success"})
    consumer = BookmarkConsumer(sock)
    consumer.start()
    assert list(amps_headers(bytes(consumer.outgoing))) == [
        {"c": "subscribe", "cid": "1", "t": "bench-queue", "a": "processed", "o": "max_backlog=100"}
    ]
    with pytest.raises(PeerError, match="not subscribed to the queue"):
        feed(consumer, answer + amps_message(1), 10**6)


def test_a_failure_at_the_end_is_no_confirmation(sock: socket.socket) -> None:
    consumer = BookmarkConsumer(sock)
    consumer.start()
    consumer.finish()
    with pytest.raises(PeerError, match="not entitled"):
        feed(consumer, amps_frame({"c": "ack", "status": "failure", "reason": "not entitled"}), 10**6)


def test_confirms_of_rabbitmq_are_counted_in_any_order() -> None:
    def confirm(tag: int, multiple: int) -> bytes:
        return b"\1\0\1\0\0\0\x0d\0\x3c\0\x50" + tag.to_bytes(8, "big") + bytes([multiple]) + b"\xce"

    count = ConfirmCounter()
    assert count(memoryview(confirm(2, 0) + confirm(4, 0))) == 2
    assert count(memoryview(confirm(1, 0)[:9])) == 0
    assert count(memoryview(confirm(1, 0)[9:])) == 1
    assert count(memoryview(confirm(3, 1))) == 1
    assert count(memoryview(confirm(9, 1) + confirm(10, 0))) == 6
    assert count(memoryview(confirm(12, 0))) == 1
    assert count(memoryview(confirm(12, 1))) == 1
    refused = b"\1\0\1\0\0\0\x0d\0\x3c\0\x78" + bytes(9) + b"\xce"
    with pytest.raises(PeerError, match="RabbitMQ refused"):
        count(memoryview(refused))


def test_a_message_to_rabbitmq_is_persistent() -> None:
    prefix, suffix = publish_parts()
    (publish, header, body) = frames(prefix + payload() + suffix)
    assert publish == (1, b"\0\x3c\0\x28\0\0\0\x05bench\0")
    assert header == (2, b"\0\x3c\0\0" + (256).to_bytes(8, "big") + b"\x10\0\x02")
    assert body == (3, payload())


def test_jobs_that_beanstalkd_refuses_are_an_error() -> None:
    assert count_inserted(memoryview(b"INSERTED 1\r\nINSERTED 20\r\nINSE")) == 2
    with pytest.raises(PeerError, match="beanstalkd refused"):
        count_inserted(memoryview(b"INSERTED 1\r\nOUT_OF_MEMORY\r\n"))


def test_the_server_is_configured_with_a_queue_of_the_same_prefetch(tmp_path: Path) -> None:
    peer = AmpsQueue()
    peer.directory, peer.port = tmp_path, 9
    queue = etree.parse(peer.command()[-1]).find("SOW/Queue")
    assert queue is not None
    assert {element.tag: element.text for element in queue} == {
        "Name": "bench-queue",
        "MessageType": "json",
        "UnderlyingTopic": "bench",
        "Semantics": "at-least-once",
        "MaxPerSubscriptionBacklog": str(PREFETCH),
    }


def test_memory_that_processes_share_is_counted_once() -> None:
    """Pages of files are not counted at all."""
    size = 64 << 20
    content = b"x" * (size - mmap.PAGESIZE)
    with mmap.mmap(-1, size) as shared:
        child = multiprocessing.get_context("fork").Process(target=touch, args=(shared,), daemon=True)
        child.start()
        try:
            wait_for(shared, "ready", child)
            # Memory that the child copied of this process so far must not count.
            before = held_bytes([os.getpid(), child.pid or 0])
            shared[mmap.PAGESIZE :] = content
            say(shared, "written")
            wait_for(shared, "touched", child)
            held = held_bytes([os.getpid(), child.pid or 0])
            alone = held_bytes([os.getpid()])
        finally:
            child.kill()
            child.join()
    assert 0.9 * size <= held - before < 1.5 * size
    assert held - alone > 0.4 * size
    assert own_part_bytes("Rss: 9 kB\nPss: 8 kB\nPss_Anon: 3 kB\nPss_File: 4 kB\nPss_Shmem: 1 kB\n") == 4096


def touch(shared: mmap.mmap) -> None:
    """Run in a separate process: read all pages, report it, and wait."""
    say(shared, "ready")
    wait_for(shared, "written")
    for at in range(mmap.PAGESIZE, len(shared), mmap.PAGESIZE):
        shared[at]
    say(shared, "touched")
    time.sleep(60)


def say(shared: mmap.mmap, word: str) -> None:
    shared[: len(word)] = word.encode()


def wait_for(shared: mmap.mmap, word: str, other: multiprocessing.process.BaseProcess | None = None) -> None:
    """Wait until the other process has written that word."""
    while shared[: len(word)] != word.encode():
        assert other is None or other.is_alive()
        time.sleep(0.001)
