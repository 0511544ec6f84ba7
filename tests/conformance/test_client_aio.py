"""The asyncio clients against a server: client.md §6, §19.6; §21, 21, 28 and 40."""

import asyncio
import random

import pytest

from amps.aio import AsyncClient
from amps.client import EPOCH, BadFilterException, MemoryPublishStore, Message
from tests.support.peers import Peers
from tests.support.queues import Queueing, bodies, options, queue_xml
from tests.support.server import ServerProcess, StartServer

TIMEOUT_S = 20.0


def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    server = start_server(**options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=5, LeasePeriod="30s")))
    return Queueing(server, peers)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_client_40_a_queue_is_consumed_and_failures_come_again(queueing: Queueing, concurrency: int) -> None:
    """client.md §21, 40: each message is handled once, those of failed handlers again"""
    queueing.publish(*range(1, 41))
    attempts: list[bytes] = []
    done: set[bytes] = set()

    async def consume() -> None:
        finished = asyncio.Event()

        async def handler(message: Message) -> None:
            attempts.append(message.data)
            await asyncio.sleep(0.001)
            if message.json()["id"] % 10 == 0 and attempts.count(message.data) == 1:
                raise ValueError("the first time")
            done.add(message.data)
            if len(done) == 40:
                finished.set()

        async with AsyncClient("consumer", uri(queueing.server)) as client:
            client.set_exception_listener(lambda error: None)
            await client.consume("Q", handler, concurrency=concurrency)
            await asyncio.wait_for(finished.wait(), TIMEOUT_S)

    asyncio.run(consume())
    assert sorted(attempts) == sorted(bodies(*range(1, 41)) + bodies(10, 20, 30, 40))


@pytest.mark.parametrize("stored", [False, True])
def test_client_19_3_publish_persisted_returns_when_the_message_is_in_the_log(
    start_server: StartServer, stored: bool
) -> None:
    server = start_server(log_topics=[".*"])

    async def publish() -> list[bytes]:
        store = MemoryPublishStore() if stored else None
        async with AsyncClient("publisher", uri(server), publish_store=store) as client:
            numbers = [await client.publish_persisted("t", b"%d" % number) for number in range(1, 4)]
            assert numbers == [number * stored for number in range(1, 4)]
            assert client.unpersisted_count == 0
            async with client.bookmark_subscribe("t", EPOCH, top_n=3) as stream:
                return [message.data for message in await stream.to_list()]

    assert asyncio.run(publish()) == [b"1", b"2", b"3"]


def test_readers_cancelled_at_random_lose_nothing(start_server: StartServer) -> None:
    """client.md §19.6: also behind a full buffer, in a subscription that replays and continues live"""
    server = start_server(log_topics=[".*"])
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    count = 5000

    async def read() -> list[int]:
        async with (
            AsyncClient("publisher", uri(server), publish_store=MemoryPublishStore(max_bytes=50_000)) as publisher,
            AsyncClient("reader", uri(server), max_depth=50) as reader,
        ):
            got: list[int] = []
            stream = await reader.bookmark_subscribe("t", EPOCH)

            async def publish() -> None:
                for number in range(count):
                    await publisher.publish("t", b'{"n":%d}' % number)
                await publisher.publish_flush(timeout=TIMEOUT_S)

            async def take() -> None:
                while True:
                    message = await stream.get(chance.choice([None, 0.0, 0.0005]))
                    if message is not None:
                        got.append(message.json()["n"])
                    if chance.random() < 0.1:
                        await asyncio.sleep(0)

            publishing = asyncio.create_task(publish())
            taking = asyncio.create_task(take())
            async with asyncio.timeout(TIMEOUT_S):
                while len(got) < count:
                    await asyncio.sleep(chance.random() * 0.002)
                    taking.cancel()
                    await asyncio.wait([taking])
                    taking = asyncio.create_task(take())
                    if chance.random() < 0.1:
                        await reader.flush()
            taking.cancel()
            await publishing
            return got

    assert asyncio.run(read()) == list(range(count))


def test_client_21_after_publish_flush_the_log_has_everything(start_server: StartServer) -> None:
    """client.md §21, 21, with a recorded topic; and a refused command leaves the client usable (11)"""
    server = start_server(log_topics=[".*"])

    async def use() -> list[int]:
        async with AsyncClient("one", uri(server)) as one, AsyncClient("two", uri(server)) as two:
            for number in range(1000):
                one.publish_nowait("t", b'{"n":%d}' % number)
            await one.publish_flush()
            with pytest.raises(BadFilterException):
                await two.subscribe("t", "/a >")
            return [m.json()["n"] async for m in two.bookmark_subscribe("t", "[0:0|1|]")]

    assert asyncio.run(use()) == list(range(1000))
