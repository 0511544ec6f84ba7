"""pika: publisher confirms, consuming, acknowledgements of many messages at once.

`SelectConnection` publishes, because the blocking connection waits for each confirm. The blocking connection consumes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from perf.clients.base import ACK_BATCH, BACKLOG, WAIT_S, Case, ClientPeer, Session, overdue
from perf.clients.servers import RabbitMqServer
from perf.peers.rabbitmq import QUEUE
from perf.peers.server import ServerPeer

PENDING = 4000
"""Publishes whose confirm may be outstanding."""
NAME = QUEUE.decode() if isinstance(QUEUE, bytes) else QUEUE


class Publisher:
    """Publishes on the loop of a SelectConnection; ends when all are confirmed."""

    def __init__(self, parameters: Any, bodies: Sequence[bytes]) -> None:
        import pika

        self.bodies = bodies
        self.sent = 0
        self.confirmed = 0
        self.properties = pika.BasicProperties(delivery_mode=2)
        self.channel: Any = None
        self.refused: str | None = None
        self.connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=lambda connection, error: self.fail(repr(error)),
        )

    def opened(self, channel: Any) -> None:
        self.channel = channel
        channel.confirm_delivery(self.answered, callback=lambda frame: self.publish())

    def fail(self, reason: str) -> None:
        self.refused = reason
        self.connection.ioloop.stop()

    def publish(self) -> None:
        publish, properties, bodies = self.channel.basic_publish, self.properties, self.bodies
        last = min(len(bodies), self.confirmed + PENDING)
        while self.sent < last:
            publish("", NAME, bodies[self.sent], properties)
            self.sent += 1

    def answered(self, frame: Any) -> None:
        import pika

        if not isinstance(frame.method, pika.spec.Basic.Ack):
            self.fail(repr(frame.method))
            return
        tag = frame.method.delivery_tag
        self.confirmed = tag if frame.method.multiple else self.confirmed + 1
        if self.confirmed >= len(self.bodies):
            self.connection.ioloop.stop()
        elif self.sent - self.confirmed < PENDING // 2:
            self.publish()

    def run(self) -> None:
        self.connection.ioloop.start()
        if self.refused is not None:
            raise RuntimeError(f"not confirmed: {self.refused}")


class PikaSession(Session):
    def __init__(self, port: int) -> None:
        import pika

        self.parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self.connection = pika.BlockingConnection(self.parameters)
        self.channel = self.connection.channel()
        self.live = 0

    def publish(self, bodies: Sequence[bytes]) -> None:
        Publisher(self.parameters, bodies).run()

    def listen(self, count: int) -> None:
        self.live = count

    def heard(self) -> list[bytes]:
        return self.consume(self.live, acknowledge=False)

    def replay(self, count: int) -> list[bytes]:
        return self.consume(count, acknowledge=False)

    def work(self, count: int) -> list[bytes]:
        return self.consume(count, acknowledge=True)

    def consume(self, count: int, *, acknowledge: bool) -> list[bytes]:
        received: list[bytes] = []
        keep = received.append

        def handle(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            keep(body)
            if acknowledge and (len(received) % ACK_BATCH == 0 or len(received) == count):
                channel.basic_ack(method.delivery_tag, multiple=True)
            if len(received) == count:
                channel.stop_consuming()

        self.connection.call_later(WAIT_S, self.channel.stop_consuming)
        self.channel.basic_qos(prefetch_count=BACKLOG if acknowledge else 0)
        self.channel.basic_consume(NAME, handle, auto_ack=not acknowledge)
        self.channel.start_consuming()
        if len(received) != count:
            raise overdue(received, count)
        return received

    def close(self) -> None:
        self.connection.close()


class PikaClient(ClientPeer):
    name = "rabbitmq"
    title = "pika"
    package = "pika"
    servers: ClassVar[dict[Case, type[ServerPeer]]] = dict.fromkeys(
        (Case.PUBLISH, Case.LIVE, Case.QUEUE), RabbitMqServer
    )
    ways: ClassVar[dict[Case, str]] = {
        Case.PUBLISH: f"`SelectConnection`, `basic_publish` with confirms, up to {PENDING:,} pending",
        Case.LIVE: "`BlockingConnection`, `basic_consume(auto_ack=True)`",
        Case.QUEUE: f"`BlockingConnection`, `basic_consume`, `basic_ack(multiple=True)` for {ACK_BATCH} messages",
    }
    pace = 10_000

    def session(self, port: int, case: Case) -> Session:
        return PikaSession(port)
