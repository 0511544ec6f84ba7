"""The highly available asyncio client while its server is killed and restarted again and again, under load.

Nothing that was published is missing, and no message is handled twice. Meanwhile the tasks that publish and read are
cancelled at random, and begin again where they were.
"""

import asyncio
import random

import pytest

from amps.aio import AsyncClient, AsyncHAClient
from amps.client import EPOCH, FixedDelayStrategy, MemoryPublishStore
from tests.support.server import ServerProcess, StartServer

PATIENCE_S = 60.0
TOPIC = "load/orders"


class Load:
    """A publisher and a reader of numbered messages, whose tasks may be cancelled at any time."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
        self.publisher = AsyncHAClient(
            "load-publisher", uri, publish_store=MemoryPublishStore(max_bytes=1 << 16),
            delay_strategy=FixedDelayStrategy(0.02), timeout=PATIENCE_S,
        )  # fmt: skip
        self.reader = AsyncHAClient("load-reader", uri, delay_strategy=FixedDelayStrategy(0.02), max_depth=100)
        self.published = 0
        self.read: list[int] = []
        self.stopping = False
        self._chance = chance

    async def publish(self) -> None:
        while not self.stopping:
            # Counted only if it returns: a publish that is cancelled has not published.
            await self.publisher.publish(TOPIC, b'{"n":%d}' % (self.published + 1))
            self.published += 1
            if self.published % 50 == 0:
                await asyncio.sleep(0.001)

    async def take(self) -> None:
        while True:
            message = await self.stream.get()
            assert message is not None
            self.read.append(message.json()["n"])
            if self._chance.random() < 0.9:  # the rest stays undiscarded
                message.discard()

    async def open(self) -> None:
        await self.publisher.open(timeout=PATIENCE_S)
        await self.reader.open(timeout=PATIENCE_S)
        self.stream = await self.reader.bookmark_subscribe(TOPIC, EPOCH, sub_id="s")
        self.tasks = {call: asyncio.create_task(call()) for call in (self.publish, self.take)}

    async def cancel_one(self) -> None:
        """Cancel one of the tasks, and begin it again."""
        call = self._chance.choice(list(self.tasks))
        task = self.tasks[call]
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE_S)
        assert task.cancelled(), task
        self.tasks[call] = asyncio.create_task(call())

    async def progress(self, messages: int) -> None:
        wanted = len(self.read) + messages
        async with asyncio.timeout(PATIENCE_S):
            while len(self.read) < wanted:
                for task in self.tasks.values():
                    assert not task.done(), task
                await asyncio.sleep(0.005)
                if self._chance.random() < 0.3:
                    await self.cancel_one()

    async def finish(self) -> None:
        self.stopping = True
        await asyncio.wait_for(self.tasks[self.publish], PATIENCE_S)
        await self.publisher.publish_flush(timeout=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.read) < self.published:
                await asyncio.sleep(0.01)
        self.tasks[self.take].cancel()


async def kill_in_turn(server: ServerProcess, seed: int, deaths: int) -> None:
    chance = random.Random(seed)
    load = Load(server, chance)
    try:
        await load.open()
        for _ in range(deaths):
            await load.progress(200)
            await asyncio.sleep(chance.random() * 0.3)
            await asyncio.to_thread(server.kill_all)
            for _ in range(chance.randrange(20)):
                await load.cancel_one()
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.start)
        await load.progress(200)
        await load.finish()
        expected = list(range(1, load.published + 1))
        assert load.read == expected
        async with AsyncClient("log-reader", f"tcp://127.0.0.1:{server.port()}/amps/json") as log:
            recorded = [m.json()["n"] async for m in log.bookmark_subscribe(TOPIC, "[0:0|1|]")]
        assert recorded == expected
        assert load.publisher.stats.reconnects >= deaths
        assert load.reader.stats.reconnects >= deaths
    finally:
        await load.publisher.close(timeout=1)
        await load.reader.close(timeout=1)


def test_fault_a_server_killed_under_load_of_tasks_that_are_cancelled(start_server: StartServer) -> None:
    """client.md §19.6; §21, 46 and 53: three deaths; a new seed in each run, which is printed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    asyncio.run(kill_in_turn(start_server(log_topics=("^load/",)), seed, 3))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fault_a_server_killed_many_times_under_load_of_tasks_that_are_cancelled(
    start_server: StartServer,
) -> None:
    """client.md §19.6; §21, 46 and 53: many deaths."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    asyncio.run(kill_in_turn(start_server(log_topics=("^load/",)), seed, 30))
