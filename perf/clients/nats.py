"""nats-py: JetStream. The library is for asyncio only.

`publish_async` does not wait for each acknowledgement. Messages are received by a callback, which an ordered consumer
feeds when they are read again from the first one. A worker fetches batches and acknowledges each message, as a work
queue requires.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from perf.clients.asynchronous import AsyncSession, LoopSession
from perf.clients.base import ACK_BATCH, WAIT_S, Case, ClientPeer, Session, overdue, wrong_topic
from perf.clients.servers import NatsQueueServer, NatsServer
from perf.peers.nats import STREAM
from perf.peers.nats_queue import WORKERS
from perf.peers.server import ServerPeer

PENDING = 4000
"""Publishes whose acknowledgement may be outstanding."""
SUBJECT = "bench.0"


class Receiving:
    """A future of the bodies of a subscription, and the callback that collects them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.received: list[bytes] = []
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, message: Any) -> None:
        self.received.append(message.data)
        if message.subject != SUBJECT and not self.arrived.done():
            self.arrived.set_exception(wrong_topic(message.subject, SUBJECT))
        if len(self.received) == self.count and not self.arrived.done():
            self.arrived.set_result(None)

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
        self.client: Any = None
        self.stream: Any = None
        self.live: Receiving | None = None

    async def open(self) -> None:
        import nats

        self.client = await nats.connect(f"nats://127.0.0.1:{self.port}")
        self.stream = self.client.jetstream(timeout=WAIT_S, publish_async_max_pending=PENDING)

    async def publish(self, bodies: Sequence[bytes]) -> None:
        publish = self.stream.publish_async
        for body in bodies:
            await publish(SUBJECT, body, wait_stall=WAIT_S)
        await self.stream.publish_async_completed()

    async def listen(self, count: int) -> None:
        self.live = Receiving(count)
        await self.client.subscribe("bench.*", cb=self.live.handle, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await self.client.flush()

    async def heard(self) -> list[bytes]:
        assert self.live is not None
        return await self.live.all()

    async def replay(self, count: int) -> list[bytes]:
        receiving = Receiving(count)
        await self.stream.subscribe("bench.*", cb=receiving.handle, ordered_consumer=True)
        return await receiving.all()

    async def work(self, count: int) -> list[bytes]:
        received: list[bytes] = []
        worker = await self.stream.pull_subscribe_bind(WORKERS, STREAM)
        while len(received) < count:
            messages = await worker.fetch(ACK_BATCH, timeout=WAIT_S)
            for message in messages:
                received.append(message.data)
                await message.ack()
        await self.client.flush()
        return received

    async def close(self) -> None:
        await self.client.close()


class NatsClient(ClientPeer):
    name = "nats"
    title = "nats-py"
    package = "nats-py"
    servers: ClassVar[dict[Case, type[ServerPeer]]] = {
        Case.PUBLISH: NatsServer,
        Case.LIVE: NatsServer,
        Case.REPLAY: NatsServer,
        Case.QUEUE: NatsQueueServer,
    }
    ways: ClassVar[dict[Case, str]] = {
        Case.PUBLISH: f"`publish_async`, up to {PENDING:,} pending, at the end `publish_async_completed`",
        Case.LIVE: "`subscribe(cb=…)`",
        Case.REPLAY: "`subscribe(cb=…, ordered_consumer=True)`",
        Case.QUEUE: f"`pull_subscribe`, `fetch({ACK_BATCH})`, `message.ack()`",
    }
    pace = 25_000

    def session(self, port: int, case: Case) -> Session:
        return LoopSession(NatsSession(port))
