"""This project's asyncio client."""

import asyncio
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from amps.client import EPOCH, AckType, Message
from perf.clients.amps_blocking import TOPIC, AmpsClient
from perf.clients.asynchronous import AsyncSession, LoopSession
from perf.clients.base import ACK_BATCH, BACKLOG, WAIT_S, Case, Session, Ways, overdue, wrong_topic
from perf.peers.amps_queue import QUEUE


class Receiving:
    """A future of the bodies of a subscription, and the handler that collects them."""

    def __init__(self, topic: str, count: int) -> None:
        self.topic = topic
        self.count = count
        self.received: list[bytes] = []
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def handler(self, acknowledge: bool = False) -> Callable[[Message], None]:
        topic, count, received, arrived = self.topic, self.count, self.received, self.arrived
        keep = received.append

        def handle(message: Message) -> None:
            keep(message.data)
            if message.topic != topic and not arrived.done():
                arrived.set_exception(wrong_topic(message.topic, topic))
            if len(received) == count and not arrived.done():
                arrived.set_result(None)

        def work(message: Message) -> None:
            message.ack()
            handle(message)

        return work if acknowledge else handle

    async def all(self) -> list[bytes]:
        """The bodies, when all have arrived."""
        try:
            await asyncio.wait_for(self.arrived, WAIT_S)
        except TimeoutError:
            raise overdue(self.received, self.count) from None
        return self.received


class AmpsAsyncSession(AsyncSession):
    def __init__(self, port: int) -> None:
        self.port = port
        self.client: Any = None
        self.live: Receiving | None = None

    async def open(self) -> None:
        from amps.aio import AsyncClient

        self.client = AsyncClient(
            f"perf-{os.getpid()}",
            f"tcp://127.0.0.1:{self.port}/amps/json",
            ack_batch_size=ACK_BATCH,
            timeout=WAIT_S,
        )
        await self.client.open()

    async def publish(self, bodies: Sequence[bytes]) -> None:
        publish = self.client.publish
        for body in bodies:
            await publish(TOPIC, body)
        await self.client.flush(AckType.PERSISTED)

    async def listen(self, count: int) -> None:
        self.live = Receiving(TOPIC, count)
        await self.client.subscribe(TOPIC, handler=self.live.handler())

    async def heard(self) -> list[bytes]:
        assert self.live is not None
        return await self.live.all()

    async def replay(self, count: int) -> list[bytes]:
        receiving = Receiving(TOPIC, count)
        await self.client.bookmark_subscribe(TOPIC, EPOCH, handler=receiving.handler())
        return await receiving.all()

    async def work(self, count: int) -> list[bytes]:
        receiving = Receiving(QUEUE, count)
        await self.client.subscribe(QUEUE, handler=receiving.handler(acknowledge=True), max_backlog=BACKLOG)
        received = await receiving.all()
        self.client.flush_acks()
        await self.client.flush(AckType.PERSISTED)
        return received

    async def close(self) -> None:
        await self.client.close()


class AmpsAsyncClient(AmpsClient):
    name = "amps-asyncio"
    title = "this client, asyncio"
    ways: ClassVar[Ways] = {
        **AmpsClient.ways,
        Case.PUBLISH: "`await publish`, at the end `await flush(AckType.PERSISTED)`; no publish store",
    }

    def absence(self) -> str:
        return "" if importlib.util.find_spec("amps.aio") else "this version has no amps.aio"

    def session(self, port: int, case: Case) -> Session:
        return LoopSession(AmpsAsyncSession(port))
