"""pika, with its own loop (`SelectConnection`) and with asyncio (`AsyncioConnection`).

Both have the same interface of callbacks, which is faster than `BlockingConnection`: that one waits for each confirm.
Publishing keeps a number of publishes unconfirmed. A consumer acknowledges all messages up to one, in batches. A
stream is read the same way from its first message, since RabbitMQ requires acknowledgements there, too.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

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
from perf.clients.servers import RabbitMqServer, RabbitMqStreamServer
from perf.pump import PeerError

QUEUE = "bench"
WINDOW = 1000
"""Unconfirmed publishes."""
REFILL = 250
"""Publishes are resumed when this many fit into the window."""
PERSISTENT = 2


class PikaSession(Session):
    """A connection and a channel. Each step runs the connection's loop until a callback stops it."""

    def __init__(self, port: int, case: Case, asynchronous: bool) -> None:
        import pika
        from pika.adapters.asyncio_connection import AsyncioConnection

        connect: Any = AsyncioConnection if asynchronous else pika.SelectConnection
        self.properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        self.stream = case is Case.REPLAY
        self.error: PeerError | None = None
        self.received: list[bytes] = []
        self.count = 0
        self.closing = False
        self.channel: Any = None
        self.connection = connect(
            pika.ConnectionParameters("127.0.0.1", port, heartbeat=0),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=self.closed,
            on_close_callback=self.closed,
        )
        loop = self.connection.ioloop
        self.start_loop: Callable[[], None] = loop.run_forever if asynchronous else loop.start
        self.run()

    # The loop

    def run(self) -> None:
        """Run the loop until `stop`, for WAIT_S at most. Raises PeerError for what has gone wrong in a callback."""
        loop = self.connection.ioloop
        timer = loop.call_later(WAIT_S, self.time_out)
        self.start_loop()
        if hasattr(timer, "cancel"):
            timer.cancel()
        else:
            loop.remove_timeout(timer)
        if self.error is not None:
            raise self.error

    def stop(self, *answer: object) -> None:
        self.connection.ioloop.stop()

    def fail(self, error: PeerError) -> None:
        self.error = self.error or error
        self.stop()

    def time_out(self) -> None:
        self.fail(overdue(self.received, self.count))

    def opened(self, channel: Any) -> None:
        self.channel = channel
        self.stop()

    def closed(self, connection: object, error: object) -> None:
        if self.closing:
            self.stop()
        else:
            self.fail(PeerError(f"RabbitMQ closed the connection: {error}"))

    # The steps

    def publish(self, bodies: Sequence[bytes]) -> None:
        publish, properties, total = self.channel.basic_publish, self.properties, len(bodies)
        sent = through = 0
        beyond: set[int] = set()

        def send() -> None:
            nonlocal sent
            end = min(total, through + len(beyond) + WINDOW)
            for body in bodies[sent:end]:
                publish("", QUEUE, body, properties)
            sent = end

        def confirmed(frame: Any) -> None:
            nonlocal through, beyond
            method = frame.method
            if method.NAME != "Basic.Ack":
                self.fail(PeerError(f"RabbitMQ refused a message: {method}"))
                return
            if method.multiple:
                through = max(through, method.delivery_tag)
                beyond = {tag for tag in beyond if tag > through}
            else:
                beyond.add(method.delivery_tag)
            while through + 1 in beyond:
                through += 1
                beyond.remove(through)
            if through == total:
                self.stop()
            elif through + len(beyond) + WINDOW - sent >= REFILL:
                send()

        self.channel.confirm_delivery(confirmed, callback=lambda _: send())
        self.run()

    def consume(self, count: int, acknowledge: bool, ready: Callable[..., None] | None = None) -> None:
        """Start a consumer, whose last message stops the loop; it acknowledges if told to, else RabbitMQ does."""
        self.received, self.count = [], count
        received = self.received
        keep = received.append

        def deliver(channel: Any, method: Any, _properties: object, body: bytes) -> None:
            keep(body)
            if method.routing_key != QUEUE:
                self.fail(wrong_topic(method.routing_key, QUEUE))
            if len(received) == count:
                self.stop()

        def work(channel: Any, method: Any, _properties: object, body: bytes) -> None:
            keep(body)
            if method.routing_key != QUEUE:
                self.fail(wrong_topic(method.routing_key, QUEUE))
            arrived = len(received)
            if arrived % ACK_BATCH == 0 or arrived == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
                if arrived == count:  # the answer shows that the acknowledgement has been processed
                    channel.queue_declare(QUEUE, passive=True, callback=self.stop)

        self.channel.basic_consume(
            QUEUE,
            work if acknowledge else deliver,
            auto_ack=not acknowledge,
            arguments={"x-stream-offset": "first"} if self.stream else None,
            callback=ready,
        )

    def listen(self, count: int) -> None:
        self.consume(count, acknowledge=False, ready=self.stop)
        self.run()

    def heard(self) -> list[bytes]:
        self.run()
        return self.received

    def replay(self, count: int) -> list[bytes]:
        return self.work(count)

    def work(self, count: int) -> list[bytes]:
        self.channel.basic_qos(
            prefetch_count=BACKLOG, callback=lambda _: self.consume(count, acknowledge=True)
        )
        self.run()
        return self.received

    def close(self) -> None:
        self.closing = True
        self.connection.close()
        self.run()


class PikaClient(ClientPeer):
    name = "pika"
    title = "pika, SelectConnection"
    package = "pika"
    servers: ClassVar[Servers] = {
        Case.PUBLISH: RabbitMqServer,
        Case.LIVE: RabbitMqServer,
        Case.REPLAY: RabbitMqStreamServer,
        Case.QUEUE: RabbitMqServer,
    }
    ways: ClassVar[Ways] = {
        Case.PUBLISH: f"`confirm_delivery` with a callback, `basic_publish`, {WINDOW:,} unconfirmed",
        Case.LIVE: "`basic_consume(auto_ack=True)`, classic queue",
        Case.REPLAY: f"`basic_consume` from a stream, `basic_qos({BACKLOG})`, `basic_ack(multiple=True)` "
        f"per {ACK_BATCH}",
        Case.QUEUE: f"`basic_consume`, `basic_qos({BACKLOG})`, `basic_ack(multiple=True)` per {ACK_BATCH}",
    }
    pace = 15_000
    asynchronous = False

    def session(self, port: int, case: Case) -> Session:
        return PikaSession(port, case, self.asynchronous)


class PikaAsyncClient(PikaClient):
    name = "pika-asyncio"
    title = "pika, AsyncioConnection"
    asynchronous = True
