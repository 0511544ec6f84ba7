"""This project's blocking client, with and without a publish store."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import amps.client
from amps.client import EPOCH, AckType, Client, MemoryPublishStore, Message, PublishStore
from perf.clients.base import (
    ACK_BATCH,
    BACKLOG,
    WAIT_S,
    Case,
    ClientPeer,
    Servers,
    Session,
    Ways,
    overdue,
    wrong_topic,
)
from perf.clients.servers import AmpsQueueServer, AmpsReplayServer, AmpsServer
from perf.machine import own_version
from perf.peers.amps_queue import QUEUE
from perf.pump import PeerError

TOPIC = "bench"


class Collector:
    """The handler of a subscription, and the bodies it has received."""

    def __init__(self, topic: str, count: int, acknowledge: bool = False) -> None:
        self.received: list[bytes] = []
        self.count = count
        self.finished = threading.Event()
        self.error: PeerError | None = None
        self.handle = self.handler(topic, acknowledge)

    def handler(self, topic: str, acknowledge: bool) -> Callable[[Message], None]:
        received, count = self.received, self.count
        keep = received.append

        def handle(message: Message) -> None:
            keep(message.data)
            if message.topic != topic:
                self.fail(wrong_topic(message.topic, topic))
            if len(received) == count:
                self.finished.set()

        def work(message: Message) -> None:
            keep(message.data)
            if message.topic != topic:
                self.fail(wrong_topic(message.topic, topic))
            message.ack()
            if len(received) == count:
                self.finished.set()

        return work if acknowledge else handle

    def fail(self, error: PeerError) -> None:
        self.error = error
        self.finished.set()

    def wait(self) -> list[bytes]:
        """The bodies, when all have arrived."""
        arrived = self.finished.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        if not arrived:
            raise overdue(self.received, self.count)
        return self.received


class BlockingSession(Session):
    def __init__(self, port: int, store: PublishStore | None) -> None:
        self.client = Client(
            f"perf-{os.getpid()}",
            f"tcp://127.0.0.1:{port}/amps/json",
            publish_store=store,
            ack_batch_size=ACK_BATCH,
            timeout=WAIT_S,
        ).open()
        self.stored = store is not None
        self.live: Collector | None = None

    def publish(self, bodies: Sequence[bytes]) -> None:
        publish = self.client.publish
        for body in bodies:
            publish(TOPIC, body)
        if self.stored:
            self.client.publish_flush()
        else:
            self.client.flush(AckType.PERSISTED)

    def listen(self, count: int) -> None:
        self.live = Collector(TOPIC, count)
        self.client.subscribe(TOPIC, handler=self.live.handle)

    def heard(self) -> list[bytes]:
        assert self.live is not None
        return self.live.wait()

    def replay(self, count: int) -> list[bytes]:
        collector = Collector(TOPIC, count)
        self.client.bookmark_subscribe(TOPIC, EPOCH, handler=collector.handle)
        return collector.wait()

    def work(self, count: int) -> list[bytes]:
        collector = Collector(QUEUE, count, acknowledge=True)
        self.client.subscribe(QUEUE, handler=collector.handle, max_backlog=BACKLOG)
        received = collector.wait()
        self.client.flush_acks()
        self.client.flush(AckType.PERSISTED)
        return received

    def close(self) -> None:
        self.client.close()


class AmpsClient(ClientPeer):
    name = "amps"
    title = "this client"
    package = "amps-server"
    servers: ClassVar[Servers] = {
        Case.PUBLISH: AmpsServer,
        Case.LIVE: AmpsServer,
        Case.REPLAY: AmpsReplayServer,
        Case.QUEUE: AmpsQueueServer,
    }
    ways: ClassVar[Ways] = {
        Case.PUBLISH: "`publish`, at the end `flush(AckType.PERSISTED)`; no publish store",
        Case.LIVE: "`subscribe(handler=…)`",
        Case.REPLAY: "`bookmark_subscribe(EPOCH, handler=…)`",
        Case.QUEUE: f"`subscribe(handler=…, max_backlog={BACKLOG})`, `message.ack()`, `ack_batch_size={ACK_BATCH}`",
    }
    pace = 300_000

    def version(self) -> str:
        return own_version()

    def session(self, port: int, case: Case) -> Session:
        return BlockingSession(port, None)


class AmpsMemoryClient(AmpsClient):
    name = "amps-memory"
    title = "this client, memory store"
    servers: ClassVar[Servers] = {Case.PUBLISH: AmpsServer}
    ways: ClassVar[Ways] = {Case.PUBLISH: "`publish`, at the end `publish_flush`; `MemoryPublishStore`"}

    def session(self, port: int, case: Case) -> Session:
        return BlockingSession(port, MemoryPublishStore())


class FileStoreSession(BlockingSession):
    """A session whose publish store is in a temporary directory."""

    def __init__(self, port: int) -> None:
        self.directory = TemporaryDirectory(prefix="amps-perf-store-")
        super().__init__(port, file_store(Path(self.directory.name) / "store"))

    def close(self) -> None:
        super().close()
        self.directory.cleanup()


def file_store(path: Path) -> PublishStore:
    made: PublishStore = amps.client.FilePublishStore(path)  # type: ignore[attr-defined]
    return made


class AmpsFileClient(AmpsMemoryClient):
    name = "amps-file"
    title = "this client, file store"
    ways: ClassVar[Ways] = {Case.PUBLISH: "`publish`, at the end `publish_flush`; `FilePublishStore` with its defaults"}

    def absence(self) -> str:
        return "" if hasattr(amps.client, "FilePublishStore") else "this version has no FilePublishStore"

    def session(self, port: int, case: Case) -> Session:
        return FileStoreSession(port)
