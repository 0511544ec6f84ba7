"""The order per key of queues with an OrderingKey: queue_guarantees.md §3 and §7, 11 to 17."""

import contextlib
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.peer import Message, RawClient, Silence
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, counts, options, query, queue_xml, quiet
from tests.support.server import StartServer

KEYED = queue_xml("Q", "T", OrderingKey="/o")
KEYS, CONSUMERS, MESSAGES = 1000, 8, 4000
WAIT_S = 20


@pytest.fixture
def start(start_server: StartServer, peers: Peers) -> Callable[..., Queueing]:
    return lambda *queues, **more: Queueing(start_server(**options(*queues, **more)), peers)


def keyed(*messages: tuple[int, Any]) -> list[bytes]:
    """Bodies with an id and a key."""
    return [json.dumps({"id": number, "o": key}).encode() for number, key in messages]


def ids(messages: Sequence[Message]) -> list[int]:
    return [json.loads(message.body)["id"] for message in messages]


def next_of(*clients: RawClient) -> tuple[RawClient, Message]:
    """The next message for one of the clients."""
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        for client in clients:
            with contextlib.suppress(Silence):
                return client, client.receive(0.01)
    raise AssertionError("no message comes")


def test_queues_one_message_of_a_key_at_a_time(start: Callable[..., Queueing]) -> None:
    """queue_guarantees.md §7, 11: two consumers with room for ten."""
    queueing = start(KEYED)
    consumers = [queueing.consumer(10), queueing.consumer(10)]
    queueing.publish_bodies(keyed(*[(number, "red") for number in range(6)]))
    for number in range(6):
        holder, message = next_of(*consumers)
        assert ids([message]) == [number]
        for consumer in consumers:
            consumer.expect_silence()
        acknowledge(holder, message)
    for consumer in consumers:
        quiet(consumer)


def test_queues_waiting_messages_can_be_removed(start: Callable[..., Queueing]) -> None:
    """queue_guarantees.md §7, 14: by bookmark and by filter; the others keep their order. Queries show them."""
    queueing = start(KEYED)
    queueing.publish_bodies(keyed(*[(number, "red") for number in range(8)]))
    consumer = queueing.consumer(10)
    (head,) = consumer.receive_published(1)
    publisher, first = str(head["bm"]).split("|")[:2]
    marks = [f"{publisher}|{int(first) + number}|" for number in range(8)]
    other = queueing.client()
    for gone in (4, 1, 7):  # from the middle, the first, the last
        acknowledge(other, marks[gone], queue="Q")
    cid = other.new_id()
    other.send({"c": "sow_delete", "t": "Q", "filter": "/id = 5", "a": "stats", "cid": cid})
    assert counts(other, cid)[2] == 1
    bodies, _ = query(other)
    assert [json.loads(body)["id"] for body in bodies] == [2, 3, 6]
    for number in (2, 3, 6):
        acknowledge(consumer, head)
        (head,) = consumer.receive_published(1)
        assert ids([head]) == [number]
    acknowledge(consumer, head)
    quiet(consumer)


def test_queues_without_a_key_and_with_priorities(start: Callable[..., Queueing]) -> None:
    """queue_guarantees.md §7, 15."""
    queueing = start(KEYED, queue_xml("QP", "TP", OrderingKey="/o", Priority="/p"))
    queueing.publish_bodies([*keyed((1, None), (2, None)), b'{"id":3}', b"not readable"])
    assert len(queueing.consumer(10).receive_published(4)) == 4
    rows = [(1, "red", 1), (2, "red", 9), (3, "blue", 2), (4, None, 5)]
    queueing.publish_bodies([json.dumps({"id": n, "o": o, "p": p}).encode() for n, o, p in rows], topic="TP")
    consumer = queueing.consumer(1, "QP")
    for number in (4, 3, 1, 2):
        (message,) = consumer.receive_published(1)
        assert ids([message]) == [number]
        acknowledge(consumer, message)


@pytest.mark.parametrize("orderly", [True, False])
def test_queues_a_restart_keeps_heads_and_order(
    start_server: StartServer, peers: Peers, orderly: bool
) -> None:
    """queue_guarantees.md §7, 17: from a checkpoint, and without one; messages published later join the same keys."""
    queueing = Queueing(start_server(**options(KEYED)), peers)
    server = queueing.server
    queueing.publish_bodies(keyed((1, "red"), (2, "blue"), (3, "red"), (4, 7), (5, "blue"), (6, "7")))
    consumer = queueing.consumer(10)
    held = consumer.receive_published(3)
    assert ids(held) == [1, 2, 4]
    acknowledge(consumer, held[1], a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    if orderly:
        server.stop()
    else:
        server.kill_all()
    queueing = Queueing(server.start(), peers)
    queueing.publish_bodies(keyed((7, "red"), (8, "blue"), (9, 7.0), (10, "green")))
    consumer = queueing.consumer(10)
    held = consumer.receive_published(4)
    assert ids(held) == [1, 4, 5, 10]
    quiet(consumer)
    acknowledge(consumer, *held)
    held = consumer.receive_published(3)
    assert ids(held) == [3, 6, 8]
    acknowledge(consumer, *held)
    assert ids(consumer.receive_published(2)) == [7, 9]


class Work:
    """Consumers that acknowledge, cancel, forget and disconnect at random, and what they know of the order.

    A message may come again, but never while an earlier message of its key is not acknowledged: then two of the key
    would be in flight, or out of order. A delivery read late, after another consumer's acknowledgement, proves nothing.
    """

    def __init__(self, queueing: Queueing, seed: int) -> None:
        self.queueing = queueing
        self.chance = random.Random(seed)
        self.by_key: list[list[int]] = [[] for _ in range(KEYS)]
        self.acknowledged: set[int] = set()
        self.lately: set[int] = set()  # acknowledged since the start of the server
        self.received = 0
        self.consumers: list[RawClient] = []

    def publish(self) -> None:
        rows = [(number, self.chance.randrange(KEYS)) for number in range(MESSAGES)]
        for number, key in rows:
            self.by_key[key].append(number)
        self.queueing.publish_bodies(keyed(*rows))

    def connect(self) -> None:
        while len(self.consumers) < CONSUMERS:
            self.consumers.append(self.queueing.consumer(10))

    def work(self, is_calm: bool) -> bool:
        """Receive what has come. False: nothing has come."""
        worked = False
        for consumer in list(self.consumers):
            while True:
                try:
                    message = consumer.receive(0.001)
                except Silence:
                    break
                worked = True
                self._take(consumer, message, 0.0 if is_calm else self.chance.random())
            if not is_calm and self.chance.random() < 0.01:
                consumer.close()
                self.consumers.remove(consumer)
        return worked

    def _take(self, consumer: RawClient, message: Message, lot: float) -> None:
        body = json.loads(message.body)
        if body["id"] in self.lately:
            consumer.send({"c": "sow_delete", "t": "Q", "bm": message["bm"]})
            return
        of_key = self.by_key[body["o"]]
        earlier = of_key[: of_key.index(body["id"])]
        assert self.acknowledged.issuperset(earlier), f"{body} overtook {earlier}"
        self.acknowledged.discard(body["id"])
        self.received += 1
        if lot > 0.95:
            return  # its lease will end
        option = {"o": "cancel"} if lot > 0.85 else {}
        consumer.send({"c": "sow_delete", "t": "Q", "bm": message["bm"], **option})
        if not option:
            self.acknowledged.add(body["id"])
            self.lately.add(body["id"])


def test_queues_keep_the_order_of_many_keys(start_server: StartServer, peers: Peers) -> None:
    """queue_guarantees.md §7, 12: cancels, ends of leases, disconnects, and ends of the server by SIGKILL."""
    queue = queue_xml("Q", "T", OrderingKey="/o", LeasePeriod="300ms")
    work = Work(Queueing(start_server(**options(queue)), peers), 1)
    work.publish()
    for _ in range(2):
        for _ in range(20):
            work.connect()
            work.work(is_calm=False)
        for consumer in work.consumers:
            consumer.close()
        work.consumers.clear()
        work.lately.clear()
        work.queueing.server.kill_all()
        work.queueing = Queueing(work.queueing.server.start(), peers)
    work.connect()
    deadline_s = time.monotonic() + WAIT_S
    while len(work.acknowledged) < MESSAGES and time.monotonic() < deadline_s:
        work.work(is_calm=True)
    assert len(work.acknowledged) == MESSAGES
    assert work.received > MESSAGES
