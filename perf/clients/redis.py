"""redis-py with hiredis: streams, blocking and with asyncio.

Publishing fills pipelines without transactions, the documented way to save round trips. Reading takes as many entries
per call as a pipeline has. A consumer acknowledges and deletes its entries, and requests the next ones, in one
pipeline.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from perf.clients.asynchronous import AsyncSession, LoopSession
from perf.clients.base import (
    ACK_BATCH,
    WAIT_S,
    Case,
    ClientPeer,
    Servers,
    Session,
    Ways,
    installed,
    overdue,
    wrong_topic,
)
from perf.clients.servers import RedisQueueServer, RedisServer
from perf.peers.redis_group import GROUP

TOPIC = b"bench"
STREAM = "bench"
FIELD = b"d"
BATCH = 1000
BLOCK_MS = int(WAIT_S * 1000)
CONSUMER = "c"


def entries_of(answer: Any) -> list[Any]:
    """The entries in an answer to XREAD or XREADGROUP: a mapping of streams in RESP3, a list of pairs in RESP2."""
    pairs = list(answer.items()) if isinstance(answer, dict) else answer
    if not pairs:
        return []
    [(topic, entries)] = pairs
    if topic != TOPIC:
        raise wrong_topic(topic, TOPIC)
    return entries[0] if isinstance(answer, dict) else entries  # type: ignore[no-any-return]


class RedisSession(Session):
    def __init__(self, port: int) -> None:
        import redis

        self.client = redis.Redis("127.0.0.1", port, socket_timeout=WAIT_S)
        self.client.ping()
        self.live = 0

    def publish(self, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for body in bodies[first : first + BATCH]:
                pipeline.xadd(STREAM, {FIELD: body})
            pipeline.execute()

    def listen(self, count: int) -> None:
        self.live = count

    def heard(self) -> list[bytes]:
        return self.replay(self.live)

    def replay(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        keep = received.append
        last: Any = "0-0"
        while len(received) < count:
            entries = entries_of(self.client.xread({STREAM: last}, count=BATCH, block=BLOCK_MS))
            if not entries:
                raise overdue(received, count)
            for _, fields in entries:
                keep(fields[FIELD])
            last = entries[-1][0]
        return received

    def work(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        keep = received.append
        entries = entries_of(self.client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=ACK_BATCH))
        while entries:
            for _, fields in entries:
                keep(fields[FIELD])
            ids = [entry_id for entry_id, _ in entries]
            pipeline = self.client.pipeline(transaction=False)
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            pipeline.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=ACK_BATCH)
            entries = entries_of(pipeline.execute()[-1])
        return received

    def close(self) -> None:
        self.client.close()


class RedisAsyncSession(AsyncSession):
    def __init__(self, port: int) -> None:
        self.port = port
        self.client: Any = None
        self.live = 0

    async def open(self) -> None:
        import redis.asyncio

        self.client = redis.asyncio.Redis(host="127.0.0.1", port=self.port, socket_timeout=WAIT_S)
        await self.client.ping()

    async def publish(self, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for body in bodies[first : first + BATCH]:
                pipeline.xadd(STREAM, {FIELD: body})
            await pipeline.execute()

    async def listen(self, count: int) -> None:
        self.live = count

    async def heard(self) -> list[bytes]:
        return await self.replay(self.live)

    async def replay(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        keep = received.append
        last: Any = "0-0"
        while len(received) < count:
            entries = entries_of(await self.client.xread({STREAM: last}, count=BATCH, block=BLOCK_MS))
            if not entries:
                raise overdue(received, count)
            for _, fields in entries:
                keep(fields[FIELD])
            last = entries[-1][0]
        return received

    async def work(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        keep = received.append
        entries = entries_of(await self.client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=ACK_BATCH))
        while entries:
            for _, fields in entries:
                keep(fields[FIELD])
            ids = [entry_id for entry_id, _ in entries]
            pipeline = self.client.pipeline(transaction=False)
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            pipeline.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=ACK_BATCH)
            entries = entries_of((await pipeline.execute())[-1])
        return received

    async def close(self) -> None:
        await self.client.aclose()


class RedisClient(ClientPeer):
    name = "redis"
    title = "redis-py with hiredis"
    package = "redis"
    servers: ClassVar[Servers] = {
        Case.PUBLISH: RedisServer,
        Case.LIVE: RedisServer,
        Case.REPLAY: RedisServer,
        Case.QUEUE: RedisQueueServer,
    }
    ways: ClassVar[Ways] = {
        Case.PUBLISH: f"`pipeline(transaction=False)` of {BATCH:,} `xadd`",
        Case.LIVE: f"`xread(block=…, count={BATCH})` in a loop",
        Case.REPLAY: f"`xread(count={BATCH})` in a loop",
        Case.QUEUE: f"pipelines of `xack`, `xdel` and the next `xreadgroup(count={ACK_BATCH})`",
    }
    pace = 60_000

    def version(self) -> str:
        return f"{super().version()} with {installed('hiredis')}"

    def session(self, port: int, case: Case) -> Session:
        return RedisSession(port)


class RedisAsyncClient(RedisClient):
    name = "redis-asyncio"
    title = "redis.asyncio with hiredis"

    def session(self, port: int, case: Case) -> Session:
        return LoopSession(RedisAsyncSession(port))
