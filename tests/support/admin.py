"""The administration interface alone: the HTTP server on a thread with an event loop; the core is replaced."""

import asyncio
import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from amps.config import ServerConfig
from amps.server.admin.queues import QueueView
from amps.server.admin.replication import ReplicationView
from amps.server.admin.server import AdminServer
from amps.server.services.actions.engine import Engine
from amps.server.services.actions.step import Environment
from amps.server.services.core_requests import CoreRequests
from amps.server.services.transport_requests import TransportRequests
from amps.server.write_statistics import WriteStatistics
from tests.support.services import FakeCore, RecordingLog, RecordingPublisher, loaded

WAIT_S = 20.0


@dataclass
class Answer:
    """An HTTP response."""

    status: int
    headers: http.client.HTTPMessage
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def get(
    port: int,
    path: str,
    *,
    host: str = "127.0.0.1",
    method: str = "GET",
    credentials: tuple[str, str] | None = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send one request and return the response."""
    sent = dict(headers or {})
    if credentials is not None:
        sent["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    connection: http.client.HTTPConnection
    if tls is not None:
        connection = http.client.HTTPSConnection(host, port, timeout=WAIT_S, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=WAIT_S)
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def journal(number: int, full: bool = True, **more: object) -> dict[str, object]:
    """The core's description of a journal."""
    return {
        "number": number,
        "path": f"/data/journal/n.{number:010d}.journal",
        "archived": False,
        "compressed": False,
        "full": full,
        "min_timestamp_ns": (1_700_000_000 + number) * 10**9,
        "max_timestamp_ns": (1_700_000_001 + number) * 10**9,
        "size_bytes": 10485760,
        **more,
    }


class AdminFixture:
    """One interface, served until `close`."""

    def __init__(
        self,
        admin_xml: str = "",
        actions_xml: str = "",
        instance_xml: str = "",
        journals: list[dict[str, Any]] | None = None,
        log: bool = True,
        queues: Callable[[ServerConfig, CoreRequests], QueueView] | None = None,
        replication: Callable[[ServerConfig], ReplicationView] | None = None,
    ) -> None:
        admin = f"<Admin><InetAddr>127.0.0.1:0</InetAddr>{admin_xml}</Admin>"
        self.loaded = loaded(actions_xml, log=log, instance_xml=admin + instance_xml)
        self.log = RecordingLog()
        self.publisher = RecordingPublisher()
        self.core: FakeCore
        self.transport: FakeCore
        self.transport_rows: list[list[Any]] = []
        """The rows that transport 0 returns for its subscriptions."""
        self._journals = journals or []
        self._make_queues = queues
        self._make_replication = replication
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._started = threading.Event()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._started.wait(WAIT_S)
        if self._problem is not None:
            raise self._problem

    def get(self, path: str, **options: Any) -> Answer:
        return get(self.port, path, **options)

    def _serve(self) -> None:
        self._loop = uvloop.new_event_loop()
        try:
            self._loop.run_until_complete(self._main())
        except BaseException as problem:
            self._problem = problem
        finally:
            self._started.set()
            self._loop.close()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self.core = FakeCore()
        self.core.journals = self._journals
        requests = self.core.serve()
        assert self.loaded.config.admin is not None

        def environment(engine: Engine) -> Environment:
            return Environment(
                self.loaded.config,
                self.log,  # type: ignore[arg-type]
                self.publisher,  # type: ignore[arg-type]
                requests,
                engine.raise_event,
                lambda cause: None,
                lambda what, enabled: None,
            )

        self.engine = Engine(self.loaded.config.actions, environment)
        admin = self.loaded.config.admin
        self.writes = WriteStatistics()
        queues = self._make_queues(self.loaded.config, requests) if self._make_queues is not None else None
        self.transport = FakeCore(lambda verb, rest: [["ok", self.transport_rows]])
        self.transport.serve()
        asyncio.get_running_loop().remove_reader(self.transport.theirs.fileno())
        transports = TransportRequests([self.transport.theirs])
        transports.begin(asyncio.get_running_loop())
        server = AdminServer(
            self.loaded,
            admin,
            requests,
            transports,
            self.writes,
            self.engine,
            self.log,  # type: ignore[arg-type]
            queues,
            replication=self._make_replication(self.loaded.config) if self._make_replication else None,
        )
        await server.start([self._socket])
        self._started.set()
        await self._stop.wait()
        await server.stop()
        self.core.close()
        self.transport.close()

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(WAIT_S)
        self._socket.close()
        assert not self._thread.is_alive()
