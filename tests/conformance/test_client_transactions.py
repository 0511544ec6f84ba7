"""The client's transactions against a server: queue_guarantees.md §4, 10."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.aio import AsyncClient, AsyncHAClient
from amps.client import (
    Client,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    InvalidTopicException,
    MemoryPublishStore,
    Message,
    MessageStream,
    TransactionRefusedException,
    UsageException,
    Worker,
)
from tests.support.cutting_proxy import CuttingProxy
from tests.support.held_syncs import HeldSyncs
from tests.support.peers import Peers
from tests.support.queues import Queueing, options, queue_xml
from tests.support.server import ServerProcess, StartServer, package_path, wait_until

TIMEOUT_S = 20.0


@pytest.fixture
def held(tmp_path: Path) -> HeldSyncs:
    return HeldSyncs(tmp_path / "held")


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    server = start_server(**options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=5), queue_xml("R", "TR")))
    return Queueing(server, peers)


@pytest.fixture
def client(queueing: Queueing) -> Iterator[Client]:
    with Client("worker", uri(queueing.server)) as client:
        yield client


def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def next_of(stream: MessageStream) -> Message:
    message = stream.get(TIMEOUT_S)
    assert message is not None, "nothing came"
    return message


def results(queueing: Queueing, topic: str = "TR") -> list[object]:
    """All bodies of a topic in the log."""
    reader = queueing.client()
    reader.subscribe(topic, "all", bm="0", a="processed,completed")
    found = []
    while not (message := reader.receive()).is_ack("completed"):
        if message.command == "p":
            found.append(json.loads(message.body))
    reader.close()
    return found


def test_a_block_acknowledges_and_publishes(queueing: Queueing, client: Client) -> None:
    """client.md §21, 78 and 80: leaving the block sends it and returns when it is persisted; `ack` sends nothing."""
    queueing.publish(1, 2, 3)
    with client.subscribe("Q", max_backlog=5) as stream:
        for number in range(3):
            message = next_of(stream)
            with message.transaction() as transaction:
                transaction.publish("TR", {"n": number})
                transaction.publish("T2", b'"x"', expiration=100, correlation_id="abc", sow_key="k")
                assert results(queueing) == [{"n": n} for n in range(number)]
            assert results(queueing)[-1] == {"n": number}
            message.ack()  # no effect
        client.flush_acks()
    assert results(queueing, "T2") == ["x"] * 3
    assert queueing.waiting("Q", 0) == []
    assert client.stats.acks_sent == 0


def test_several_messages(queueing: Queueing, client: Client) -> None:
    """queue_guarantees.md §4, 10."""
    queueing.publish(1, 2)
    stream = client.subscribe("Q", max_backlog=5)
    first, second = next_of(stream), next_of(stream)
    with first.transaction(second) as transaction:
        transaction.publish("TR", 12)
    stream.close()
    assert results(queueing) == [12]
    assert queueing.waiting("Q", 0) == []


def test_an_exception_sends_nothing(queueing: Queueing, client: Client) -> None:
    """client.md §21, 78: the message stays leased."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)

    def fail() -> None:
        with message.transaction() as transaction:
            transaction.publish("TR", 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert results(queueing) == []
    with message.transaction() as transaction:
        transaction.publish("TR", 2)
    assert results(queueing) == [2]


def test_nothing_else_acknowledges_a_message_in_a_transaction(queueing: Queueing, client: Client) -> None:
    """queue_guarantees.md Q-38: an acknowledgement in the block would come first, and the result would be lost."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    with message.transaction() as transaction:
        for acknowledge in (message.ack, lambda: message.ack("cancel"), lambda: client.ack(message)):
            with pytest.raises(UsageException, match="which acknowledges it when its block ends"):
                acknowledge()
        for nested in (message.transaction, lambda: client.transaction(message)):
            with pytest.raises(UsageException, match="is in a transaction"):
                nested()
        message.discard()
        assert message.json() == {"id": 1}
        transaction.publish("TR", 1)
    client.ack(message)  # no effect
    client.flush_acks()
    assert client.stats.acks_sent == 0
    assert results(queueing) == [1]
    assert queueing.waiting("Q", 0) == []


@pytest.mark.parametrize("how", ["raises", "refused topic", "two"])
def test_a_message_of_a_transaction_without_effect_can_be_given_back(
    queueing: Queueing, client: Client, how: str
) -> None:
    """queue_guarantees.md §4, 10"""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    second = message.transaction()

    def work() -> None:
        with message.transaction() as transaction:
            transaction.publish("X" if how == "refused topic" else "TR", 1)
            if how == "raises":
                raise LookupError
            if how == "two":
                with second:
                    pass

    with pytest.raises((LookupError, InvalidTopicException, UsageException)):
        work()
    message.ack("cancel")
    assert next_of(stream).bookmark == message.bookmark
    assert results(queueing) == []


def test_a_lost_lease(queueing: Queueing, client: Client) -> None:
    """client.md §21, 79 and 80: TransactionRefusedException; the next holder does the work."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    stream.close()
    client.flush()
    failures: list[object] = []
    client.set_failed_write_handler(lambda *told: failures.append(told))
    with (
        pytest.raises(TransactionRefusedException, match="lease lost") as caught,
        message.transaction() as transaction,
    ):
        transaction.publish("TR", 1)
    assert caught.value.reason == "lease lost"
    message.ack("cancel")  # no effect: the message belongs to others
    assert failures == []
    again = client.subscribe("Q", max_backlog=5)
    with next_of(again).transaction() as transaction:
        transaction.publish("TR", 2)
    assert results(queueing) == [2]


def test_a_refused_topic_keeps_the_lease(queueing: Queueing, client: Client) -> None:
    """client.md §21, 79; queue_guarantees.md §4, 4."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    refused = pytest.raises(InvalidTopicException, match="'X' is not recorded")
    with refused, message.transaction() as transaction:
        transaction.publish("X", 1)
    with message.transaction():
        pass
    assert queueing.waiting("Q", 0) == []


def test_wrong_use(queueing: Queueing, client: Client) -> None:
    """client.md §21, 82; queue_guarantees.md §4, 10 and Q-37."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    transaction = message.transaction()
    with pytest.raises(UsageException, match="inside its with block"):
        transaction.publish("TR", 1)
    with transaction:
        pass
    with pytest.raises(UsageException, match="one with block"), transaction:
        pass
    with pytest.raises(UsageException, match="in a transaction already"):
        message.transaction()
    queueing.publish(1, topic="TR")
    replay = client.subscribe("^T", bookmark="0")
    other = next_of(replay)
    with pytest.raises(ValueError, match="delivered with a lease"):
        other.transaction()
    stream.close()
    queueing.publish(2)
    with Client("storing", uri(queueing.server), publish_store=MemoryPublishStore()) as storing:
        work = storing.subscribe("Q", max_backlog=5)
        stored = next_of(work)
        with pytest.raises(UsageException, match="publish store"), stored.transaction():
            pass


def test_asyncio(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 10: the same in `async with`, also when the lease was lost."""
    queueing.publish(1, 2)

    async def work() -> None:
        async with AsyncClient("worker", uri(queueing.server)) as client:
            stream = client.subscribe("Q", max_backlog=5)
            async with stream as messages:
                message = await anext(aiter(messages))
                with pytest.raises(UsageException, match="async with"), message.transaction():
                    pass
                async with message.transaction() as transaction:
                    transaction.publish("TR", {"n": 1})
                assert results(queueing) == [{"n": 1}]
                lost = await anext(aiter(messages))
            await client.flush()
            with pytest.raises(TransactionRefusedException):
                async with lost.transaction() as transaction:
                    transaction.publish("TR", {"n": 2})

    asyncio.run(work())
    assert results(queueing) == [{"n": 1}]


def test_an_ha_client_repeats_until_it_has_the_answer(
    start_server: StartServer, peers: Peers, held: HeldSyncs
) -> None:
    """client.md §21, 81; queue_guarantees.md §7, 20: the connection is lost between the entry and its answer."""
    server = start_server(**options(queue_xml("Q", "T")), environment=held.environment)
    queueing = Queueing(server, peers)
    queueing.publish(1)
    watcher = queueing.client()
    watcher.subscribe("TR", "w")
    with HAClient("worker", uri(server), delay_strategy=FixedDelayStrategy(0.02)) as client:
        stream = client.subscribe("Q", max_backlog=5)
        message = next_of(stream)
        done = threading.Event()

        def run() -> None:
            with message.transaction(timeout=TIMEOUT_S) as transaction:
                transaction.publish("TR", 1)
            done.set()

        thread = threading.Thread(target=run)
        with held.held():
            thread.start()
            assert watcher.receive_published(1)[0].body == b"1"  # it is in the log, and not durable
            assert client._runtime.wire.transport is not None
            client._runtime.wire.transport.shutdown()
            wait_until(lambda: not client._engine.ready, TIMEOUT_S, lambda: "the loss was not noticed")
            assert not done.is_set()
        assert done.wait(TIMEOUT_S)
        thread.join()
        assert client.stats.reconnects == 1
    assert results(queueing) == [1]
    assert queueing.waiting("Q", 0) == []


def test_a_delay_in_a_transaction(queueing: Queueing, client: Client) -> None:
    """client.md §21, 83; queue_guarantees.md Q-39: subscribers get the result at once, consumers at its time."""
    queueing.publish(1)
    subscriber = client.subscribe("TR")
    consumer = client.subscribe("R", max_backlog=5)
    work = client.subscribe("Q", max_backlog=5)
    before = time.time()
    with next_of(work).transaction() as transaction:
        transaction.publish("TR", 1, delay=0.3)
        transaction.publish("TR", 2, not_before=before - 1)
    seen = [next_of(subscriber) for _ in range(2)]
    after = time.time()
    assert seen[0].not_before is not None
    assert before + 0.3 <= seen[0].not_before <= after + 0.301
    assert [next_of(consumer).json(), next_of(consumer).json()] == [2, 1]
    assert time.time() >= seen[0].not_before


def test_a_plain_client_raises_when_the_connection_is_lost(
    start_server: StartServer, peers: Peers, held: HeldSyncs
) -> None:
    """client.md §21, 81: it cannot know what became of the transaction."""
    server = start_server(**options(queue_xml("Q", "T")), environment=held.environment)
    queueing = Queueing(server, peers)
    queueing.publish(1)
    with Client("worker", uri(server)) as client:
        stream = client.subscribe("Q", max_backlog=5)
        message = next_of(stream)
        with held.held():
            transport = client._runtime.wire.transport
            assert transport is not None
            timer = threading.Timer(0.2, transport.shutdown)
            timer.start()
            refused = pytest.raises(DisconnectedException)
            with refused, message.transaction(timeout=TIMEOUT_S) as transaction:
                transaction.publish("TR", 1)
            timer.join()


def test_each_result_once_over_cut_connections(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 20: cuts at any byte; each message has its results once."""
    count = 60
    queueing.publish(*range(1, count + 1))
    refused = 0
    with (
        CuttingProxy(queueing.server.port(), seed=3, longest_bytes=4000) as proxy,
        HAClient(
            "worker", f"tcp://127.0.0.1:{proxy.port}/amps/json", delay_strategy=FixedDelayStrategy(0.01)
        ) as client,
    ):
        stream = client.subscribe("Q", max_backlog=5)
        while len(done := results(queueing)) < count:
            for _ in range(40):
                message = stream.get(1.0)
                if message is None:
                    break
                try:
                    with message.transaction(timeout=TIMEOUT_S) as transaction:
                        transaction.publish("TR", message.json()["id"])
                        transaction.publish("T2", message.json()["id"])
                except TransactionRefusedException:
                    refused += 1
            proxy.calm = proxy.cuts >= 8
        cuts = proxy.cuts
        proxy.calm = True
    assert cuts >= 5
    assert sorted(done) == list(range(1, count + 1))  # type: ignore[type-var]
    assert results(queueing, "T2") == done


def test_a_killed_worker(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 18: a worker that is killed at the worst moment; another one makes each result once."""
    queueing.publish(*range(1, 21))
    program = """
import os, sys
sys.path[:0] = eval(sys.argv[2])
from amps.client import Client

handled = 0
with Client(f"worker-{os.getpid()}", sys.argv[1]) as client:
    stream = client.subscribe("Q", max_backlog=5)
    while (message := stream.get(0.5)) is not None:
        with message.transaction() as transaction:
            transaction.publish("TR", message.json()["id"])
        handled += 1
        if handled == 7:
            os.kill(os.getpid(), 9)
"""
    codes = []
    for _ in range(10):
        ran = subprocess.run(
            [sys.executable, "-P", "-c", program, uri(queueing.server), repr(package_path().split(":"))],
            timeout=60,
            check=False,
        )
        codes.append(ran.returncode)
        if len(results(queueing)) == 20:
            break
    assert -signal.SIGKILL in codes
    assert sorted(results(queueing)) == list(range(1, 21))  # type: ignore[type-var]


def test_in_a_worker(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 10: a Worker's own acknowledgement then does nothing."""
    queueing.publish(*range(1, 11))

    def handle(message: Message) -> None:
        with message.transaction() as transaction:
            transaction.publish("TR", message.json()["id"])

    worker = Worker(uri(queueing.server), "Q", handle, concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: len(results(queueing)) == 10, TIMEOUT_S, lambda: str(worker.stats))
    finally:
        worker.stop()
        thread.join()
    assert sorted(results(queueing)) == list(range(1, 11))  # type: ignore[type-var]
    assert queueing.waiting("Q", 0) == []


def test_in_a_worker_with_coroutines(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 10: `async with`; other handlers go on while one waits for the server."""
    queueing.publish(*range(1, 6))
    held = asyncio.Event()

    async def handle(message: Message) -> None:
        async with message.transaction() as transaction:
            transaction.publish("TR", message.json()["id"])
            if message.json()["id"] == 1:
                await held.wait()
        if message.json()["id"] == 5:
            held.set()

    worker = Worker(uri(queueing.server), "Q", handle, concurrency=5)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: len(results(queueing)) == 5, TIMEOUT_S, lambda: str(worker.stats))
    finally:
        worker.stop()
        thread.join()
    assert sorted(results(queueing)) == list(range(1, 6))  # type: ignore[type-var]
    assert queueing.waiting("Q", 0) == []


def test_the_loop_goes_on_while_a_transaction_waits(queueing: Queueing, client: Client) -> None:
    """A handler that is a coroutine function has a blocking client."""
    queueing.publish(1)
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)

    async def work() -> int:
        turns = 0
        done = asyncio.create_task(transact())
        while not done.done():
            turns += 1
            await asyncio.sleep(0)
        await done
        return turns

    async def transact() -> None:
        async with message.transaction() as transaction:
            transaction.publish("TR", 1)

    assert asyncio.run(work()) > 2
    assert results(queueing) == [1]


@pytest.mark.parametrize("when", ["lease lost", "burying", "after its transaction"])
def test_a_worker_makes_no_dead_letter_of_a_message_that_is_not_its_own(
    queueing: Queueing, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """queue_guarantees.md §4, 3: the last attempt fails, but another consumer has done the work, or this one has."""
    queueing.publish(1)
    other = queueing.client()

    def take_away(message: Message) -> None:
        if when != "after its transaction":
            assert message.bookmark is not None
            other.send({"c": "sow_delete", "cid": "1", "t": "Q", "bm": message.bookmark, "a": "processed"})
            while not other.receive().is_ack("processed"):
                pass

    def handle(message: Message) -> None:
        take_away(message)
        if when != "burying":
            with message.transaction() as transaction:
                transaction.publish("TR", 1)
        raise LookupError("the handler fails")

    worker = Worker(uri(queueing.server), "Q", handle, max_attempts=1, dead_letter_topic="TD", retry_delay=0)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        wait_until(lambda: worker.stats.failed == 1, TIMEOUT_S, lambda: str(worker.stats))
    finally:
        worker.stop()
        thread.join()
        other.close()
    assert results(queueing, "TD") == []
    assert results(queueing) == ([1] if when == "after its transaction" else [])
    assert queueing.waiting("Q", 0) == []
    assert ("is not this worker's any more" in caplog.text) is (when != "after its transaction")
    assert worker.stats.dead == 0


def test_an_asyncio_ha_client(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 10."""
    queueing.publish(1)

    async def work() -> None:
        async with (
            AsyncHAClient("worker", uri(queueing.server)) as client,
            client.subscribe("Q", max_backlog=5) as messages,
            (await anext(aiter(messages))).transaction() as transaction,
        ):
            transaction.publish("TR", 1)

    asyncio.run(work())
    assert results(queueing) == [1]
