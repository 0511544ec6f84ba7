"""Instances that have the same queue and replicate it, and consumers of it."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.admin import get
from tests.support.instances import Instances, Sent, To
from tests.support.peer import RawClient, Silence
from tests.support.ports import release_port, reserve_port
from tests.support.queues import acknowledge, bodies, queue_xml
from tests.support.server import wait_until

TOPICS = (Sent("^T"), Sent("^Q"))
QUIET_S = 1.0


class Group:
    """Instances with one queue, their admin interfaces, and named clients."""

    def __init__(self, directory: Path) -> None:
        self.instances = Instances(directory)
        self._admin: dict[str, int] = {}
        self._clients: list[RawClient] = []

    def add(
        self, name: str, to: Sequence[To | str], queue: str | None = None, xml: str = "", **options: Any
    ) -> None:
        """Add an instance whose destinations replicate the queue and its messages."""
        self._admin[name] = reserve_port()
        xml += f"<Admin><InetAddr>127.0.0.1:{self._admin[name]}</InetAddr><Interval>1s</Interval></Admin>"
        self.instances.add(
            name,
            [one if isinstance(one, To) else To(one, topics=TOPICS) for one in to],
            topics=("^T", "^Q"),
            xml=f"<SOW>{queue or queue_xml('Q', 'T')}</SOW>{xml}",
            **options,
        )

    def release(self) -> None:
        for client in self._clients:
            client.close()
        for port in self._admin.values():
            release_port(port)

    def client(self, name: str, client_name: str | None = None) -> RawClient:
        """A client that is logged on, with a name of its own if none is given."""
        client = RawClient.tcp(self.instances[name].port())
        self._clients.append(client)
        client.logon(client_name or f"client-{len(self._clients)}", o="ack_conflation=10ms")
        return client

    def consumer(self, name: str, backlog: int = 10, **fields: Any) -> RawClient:
        client = self.client(name)
        client.subscribe("Q", "s", o=f"max_backlog={backlog}", **fields)
        return client

    def publish(self, name: str, *numbers: int, wait: bool = True) -> None:
        """Publish messages; they are durable on the other instance, too, if that is waited for."""
        client = self.client(name)
        for body in bodies(*numbers):
            client.publish("T", body)
        client.flush("persisted" if wait else "processed")
        client.close()

    def metrics(self, name: str) -> dict[str, str]:
        answer = get(self._admin[name], "/amps/instance/queues/Q!json.json")
        found = answer.json()["amps"]["instance"]["queues"][0]
        return {key: str(value) for key, value in found.items()}

    def details(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(get(self._admin[name], "/amps/instance/queues/Q!json/details").body)
        return found

    def order(self, name: str, operation: str) -> None:
        answer = get(self._admin[name], f"/amps/administrator/queues/Q!json/{operation}")
        assert answer.status == 200, answer.body

    def act(self, name: str, path: str) -> None:
        """Run the actions of a path of the administration interface."""
        answer = get(self._admin[name], f"/amps/administrator/actions/{path}")
        assert answer.status == 200, answer.body

    def wait_metrics(self, name: str, **expected: int | str) -> None:
        wait_until(
            lambda: all(self.metrics(name)[key] == str(value) for key, value in expected.items()),
            20,
            lambda: f"{name}: {self.metrics(name)}, expected {expected}",
        )


def take(client: RawClient, count: int) -> list[bytes]:
    """Receive messages one by one, and acknowledge each."""
    found = []
    for _ in range(count):
        (message,) = client.receive_published(1)
        acknowledge(client, message)
        found.append(message.body)
    return found


def take_until_quiet(client: RawClient, quiet_s: float = QUIET_S) -> list[bytes]:
    """Receive and acknowledge messages until none comes for a while."""
    found: list[bytes] = []
    with contextlib.suppress(Silence):
        while True:
            (message,) = client.receive_published(1, quiet_s)
            acknowledge(client, message)
            found.append(message.body)
    return found


def nothing_for(client: RawClient, seconds: float) -> None:
    client.expect_nothing_for(seconds)
