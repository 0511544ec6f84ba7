"""A highly available client whose connections are cut at random bytes, while several threads use it.

Nothing is lost or repeated, no call exceeds its timeout, and the client ends at once when it is closed.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable

from amps.client import (
    EPOCH,
    AMPSException,
    Client,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    RetryOperationException,
)
from tests.support.cutting_proxy import CuttingProxy
from tests.support.peers import Peers
from tests.support.queues import Queueing, options, queue_xml
from tests.support.server import StartServer, wait_until

PATIENCE_S = 60.0
LOGGED = "^load/"
TOPIC = "load/orders"
PUBLISHERS = 3
CUTS = 60
CALL_S = 5.0
SLACK_S = 10.0


def test_fault_connections_cut_at_random_bytes(start_server: StartServer) -> None:
    """client.md §21 30, 46, 53: publishers, a handler, a stream, and threads that wait for answers"""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    server = start_server(log_topics=(LOGGED,))
    with CuttingProxy(server.port(), seed, random.choice((3_000, 20_000))) as proxy:
        client = HAClient(
            "cut",
            f"tcp://127.0.0.1:{proxy.port}/amps/json",
            publish_store=MemoryPublishStore(),

            delay_strategy=FixedDelayStrategy(0.005),
            timeout=CALL_S,
            dispatch="thread" if seed % 2 else "inline",
        )
        stop = threading.Event()
        problems: list[str] = []
        published = [0] * PUBLISHERS
        handled: list[bytes] = []
        read: list[bytes] = []
        answered = [0]

        def run(work: Callable[[], None]) -> None:
            while not stop.is_set():
                started = time.monotonic()
                try:
                    work()
                except AMPSException as error:
                    problems.append(f"{work}: {error!r}")
                    return
                took_s = time.monotonic() - started
                if took_s > CALL_S + SLACK_S:
                    problems.append(f"{work} took {took_s:.1f} s")
                    return

        def publish(number: int) -> None:
            published[number] += 1
            client.publish(TOPIC, b'{"p":%d,"n":%d}' % (number, published[number]))
            time.sleep(0.0005)

        def ask() -> None:
            client.flush()
            sub_id = client.subscribe("load/other", handler=lambda m: None)
            client.unsubscribe(sub_id)
            answered[0] += 1

        def read_on() -> None:
            message = stream.get(0.1)
            if message is not None:
                read.append(message.data)

        try:
            client.open(timeout=PATIENCE_S)
            client.bookmark_subscribe(TOPIC, EPOCH, sub_id="handled", handler=lambda m: handled.append(m.data))
            stream = client.bookmark_subscribe(TOPIC, EPOCH, sub_id="read", max_depth=100)
            workers: list[Callable[[], None]] = [
                *((lambda number=number: publish(number)) for number in range(PUBLISHERS)),
                ask,
                read_on,
            ]
            threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in workers]
            for thread in threads:
                thread.start()
            wait_until(
                lambda: proxy.cuts >= CUTS or bool(problems),
                PATIENCE_S,
                lambda: f"{proxy.cuts} cuts, {client!r}, {client.connection_info}",
            )
            proxy.calm = True
            wait_until(lambda: bool(problems) or len(read) > 100, PATIENCE_S, lambda: f"{len(read)} read")
            stop.set()
            for thread in threads:
                thread.join(CALL_S + SLACK_S)
                assert not thread.is_alive(), thread
            assert not problems, problems
            client.publish_flush(timeout=PATIENCE_S)
            total = sum(published)
            wait_until(lambda: len(handled) >= total, PATIENCE_S, lambda: f"{len(handled)} of {total} handled")
            while len(read) < total:
                message = stream.get(PATIENCE_S)
                assert message is not None, f"{len(read)} of {total} read"
                read.append(message.data)
            assert answered[0] > 0
        finally:
            stop.set()
            started = time.monotonic()
            client.close()
            assert time.monotonic() - started < SLACK_S
    recorded: list[bytes] = []
    with Client("reader", f"tcp://127.0.0.1:{server.port()}/amps/json") as reader:
        reader.bookmark_subscribe(TOPIC, EPOCH, handler=lambda m: recorded.append(m.data))
        wait_until(lambda: len(recorded) >= total, PATIENCE_S, lambda: f"{len(recorded)} of {total} in the log")
    for number in range(PUBLISHERS):
        expected = [b'{"p":%d,"n":%d}' % (number, n) for n in range(1, published[number] + 1)]
        start = b'{"p":%d,' % number
        assert [body for body in recorded if body.startswith(start)] == expected
    assert handled == recorded
    assert read == recorded


def flush(client: HAClient) -> None:
    """Flush; again if a cut that was due before the proxy became calm has taken the answer."""
    for _ in range(50):
        with contextlib.suppress(RetryOperationException):
            client.publish_flush(timeout=PATIENCE_S)
            return
    raise AssertionError("the connection is cut again and again")


def test_fault_queue_consumers_cut_at_random_bytes(start_server: StartServer, peers: Peers) -> None:
    """client.md §21 40, 42: every message is handled, acknowledgements get through, and the queue ends empty"""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    server = start_server(**options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=20, LeasePeriod="60s")))
    queueing = Queueing(server, peers)
    total = 3000
    handled: list[int] = []
    with CuttingProxy(server.port(), seed, 10_000) as proxy:
        clients = [
            HAClient(
                f"consumer-{number}",
                f"tcp://127.0.0.1:{proxy.port}/amps/json",

                publish_store=MemoryPublishStore() if number else None,
                delay_strategy=FixedDelayStrategy(0.005),
                timeout=PATIENCE_S,
                ack_batch_size=5,
                ack_timeout=0.05,
                auto_ack=True,
            )
            for number in range(2)
        ]
        try:
            for client in clients:
                client.open(timeout=PATIENCE_S)
                client.subscribe("Q", handler=lambda m: handled.append(m.json()["id"]), max_backlog=20)
            for first in range(1, total, 100):
                queueing.publish(*range(first, first + 100))
            wait_until(
                lambda: len(set(handled)) == total,
                PATIENCE_S,
                lambda: f"{len(set(handled))} of {total} handled, {clients}",
            )
            proxy.calm = True
            for client in clients:
                client.flush_acks()
                flush(client)
            assert queueing.waiting("Q", 0) == []
        finally:
            for client in clients:
                client.close()
    assert proxy.cuts > 10
