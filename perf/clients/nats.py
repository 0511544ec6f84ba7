"""nats-py, an asyncio client: JetStream.

Publishing does not wait for each acknowledgement (`publish_async`). Live messages come from a plain subscription to the
subject of the stream, which costs a client least. Stored ones come from an ordered consumer. Both call a coroutine for
each message, as the library requires. A work queue is fetched in batches.
"""

import asyncio
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
    overdue,
    wrong_topic,
)
from perf.clients.servers import NatsQueueServer, NatsServer
from perf.peers.nats import STREAM
from perf.peers.nats_queue import WORKERS

TOPIC = "bench.0"
PENDING_PUBLISHES = 4000
"""Unacknowledged publishes, the library's default."""
NO_LIMIT = 2**40


class Receiving:
    """The handler of a subscription, and a future of the bodies that it receives."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.received: list[bytes] = []
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def handler(self) -> Any:
        count, received, arrived = self.count, self.received, self.arrived
        keep = received.append

        async def handle(message: Any) -> None:
            keep(message.data)
            if message.subject != TOPIC and not arrived.done():
                arrived.set_exception(wrong_topic(message.subject, TOPIC))
            if len(received) == count and not arrived.done():
                arrived.set_result(None)

        return handle

    async def all(self) -> list[bytes]:
        """The bodies, when all have arrived."""
        try:
            await asyncio.wait_for(self.arrived, WAIT_S)
        except TimeoutError:
            raise overdue(self.received, self.count) from None
        return self.received


class NatsSession(AsyncSession):
    def __init__(self, port: int) -> None:
        self.port = port
        self.connection: Any = None
        self.stream: Any = None
        self.live: Receiving | None = None

    async def open(self) -> None:
        import nats

        self.connection = await nats.connect(f"nats://127.0.0.1:{self.port}", max_reconnect_attempts=0)
        self.stream = self.connection.jetstream(publish_async_max_pending=PENDING_PUBLISHES)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        publish = self.stream.publish_async
        futures = [await publish(TOPIC, body) for body in bodies]
        await asyncio.wait_for(self.stream.publish_async_completed(), WAIT_S)
        for future in futures:
            future.result()  # raises if the server has refused the message

    async def listen(self, count: int) -> None:
        self.live = Receiving(count)
        await self.connection.subscribe(
            TOPIC, cb=self.live.handler(), pending_msgs_limit=NO_LIMIT, pending_bytes_limit=NO_LIMIT
        )
        await self.connection.flush()

    async def heard(self) -> list[bytes]:
        assert self.live is not None
        return await self.live.all()

    async def replay(self, count: int) -> list[bytes]:
        receiving = Receiving(count)
        await self.stream.subscribe(
            TOPIC,
            cb=receiving.handler(),
            ordered_consumer=True,
            pending_msgs_limit=NO_LIMIT,
            pending_bytes_limit=NO_LIMIT,
        )
        return await receiving.all()

    async def work(self, count: int) -> list[bytes]:
        consumer = await self.stream.pull_subscribe_bind(durable=WORKERS, stream=STREAM)
        received: list[bytes] = []
        keep = received.append
        while len(received) < count:
            for message in await consumer.fetch(min(ACK_BATCH, count - len(received)), timeout=WAIT_S):
                keep(message.data)
                if message.subject != TOPIC:
                    raise wrong_topic(message.subject, TOPIC)
                if len(received) < count:
                    await message.ack()
                else:
                    await message.ack_sync(timeout=WAIT_S)
        return received

    async def close(self) -> None:
        await self.connection.close()


class NatsClient(ClientPeer):
    name = "nats"
    title = "nats-py (asyncio)"
    package = "nats-py"
    servers: ClassVar[Servers] = {
        Case.PUBLISH: NatsServer,
        Case.LIVE: NatsServer,
        Case.REPLAY: NatsServer,
        Case.QUEUE: NatsQueueServer,
    }
    ways: ClassVar[Ways] = {
        Case.PUBLISH: f"JetStream, `await publish_async`, {PENDING_PUBLISHES:,} pending",
        Case.LIVE: "core `subscribe(cb=…)` to the stream's subject",
        Case.REPLAY: "JetStream `subscribe(cb=…, ordered_consumer=True)`",
        Case.QUEUE: f"`pull_subscribe_bind`, `fetch({ACK_BATCH})`, `await message.ack()`",
    }
    pace = 30_000

    def session(self, port: int, case: Case) -> Session:
        return LoopSession(NatsSession(port))
