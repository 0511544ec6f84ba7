"""Sharing of connections between a worker and others, which are only numbers here, and cases where it cannot accept."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from amps._core.shm.memory import ControlPage
from amps.server.transport import accepting
from amps.server.transport.accepting import Acceptor
from tests.support.congestion import another_control, congestion_control

SELF, OTHER = 0, 1


@dataclass
class Log:
    """A log that keeps its records."""

    records: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def log(self, record_id: str, **values: object) -> None:
        self.records.append((record_id, values))


class Protocol(asyncio.Protocol):
    """A connection of the worker, which counts until it is lost."""

    def __init__(self, made: "Made") -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.transports.append(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._made.acceptor.lost()


class Made:
    """An acceptor with one listening socket, clients of it, and their connections."""

    def __init__(self) -> None:
        self.control = ControlPage()
        self.log = Log()
        runtime = SimpleNamespace(control=self.control, workers=2)
        self.acceptor = Acceptor(runtime, SELF, self.log)  # type: ignore[arg-type]
        self.transports: list[asyncio.BaseTransport] = []
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.listening.setblocking(False)
        self.address = self.listening.getsockname()
        self.clients: list[socket.socket] = []

    def begin(self, tls: ssl.SSLContext | None = None) -> None:
        self.acceptor.begin(asyncio.get_running_loop())
        self.acceptor.open("t", self.listening, tls, lambda: Protocol(self))

    def other(self, connections: int, alive: bool = True, beat_ago_s: float = 0.0) -> None:
        self.control.set_connections(OTHER, connections)
        self.control.set_transport_alive(OTHER, alive)
        self.control.transport_beat(OTHER, time.monotonic_ns() - int(beat_ago_s * 1e9))

    def connect(self, count: int) -> None:
        self.clients += [socket.create_connection(self.address) for _ in range(count)]

    @property
    def count(self) -> int:
        return self.control.connections(SELF)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.002)


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    for client in made.clients:
        client.close()
    made.listening.close()


def run(made: Made, body: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await body()
        finally:
            for transport in made.transports:
                assert isinstance(transport, asyncio.Transport)
                transport.abort()
            if not made.acceptor._stopped:
                made.acceptor.stop()

    asyncio.run(whole())


def test_a_connection_from_this_host_is_not_paced(made: Made) -> None:
    """This holds for any default of the system."""

    async def body() -> None:
        made.listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, another_control())
        made.begin()
        made.connect(1)
        await made.until(lambda: len(made.transports) == 1, "taken")
        (transport,) = made.transports
        assert congestion_control(transport.get_extra_info("socket")) == b"reno"

    run(made, body)


def test_waiting_clients_are_left_to_a_worker_with_fewer(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "LEAVE_S", 600.0)
    made.other(0)

    async def body() -> None:
        made.connect(10)
        made.begin()
        await made.until(lambda: len(made.transports) == 1, "the first is taken")
        await asyncio.sleep(0.05)
        assert made.count == len(made.transports) == 1

    run(made, body)


def test_clients_that_no_other_worker_accepts_are_accepted_after_a_moment(made: Made) -> None:
    made.other(0, beat_ago_s=-600.0)  # it always seems alive, and accepts no clients

    async def body() -> None:
        made.connect(10)
        made.begin()
        await made.until(lambda: len(made.transports) == 10, "not all are served")
        assert made.count == 10

    run(made, body)


@pytest.mark.parametrize(
    ("connections", "alive", "beat_ago_s"), [(0, False, 0.0), (0, True, 30.0), (1000, True, 0.0)]
)
def test_a_worker_that_is_dead_stuck_or_busier_is_not_waited_for(
    made: Made, monkeypatch: pytest.MonkeyPatch, connections: int, alive: bool, beat_ago_s: float
) -> None:
    monkeypatch.setattr(accepting, "LEAVE_S", 600.0)
    made.other(connections, alive, beat_ago_s)

    async def body() -> None:
        made.connect(100)
        made.begin()
        await made.until(lambda: len(made.transports) == 100, "not all are served")
        for client in made.clients[:60]:
            client.close()
        await made.until(lambda: made.count == 40, "lost connections count on")

    run(made, body)


def test_the_permitted_lead_grows_with_the_number(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "LEAVE_S", 600.0)
    made.other(32)

    async def body() -> None:
        made.connect(50)
        made.begin()
        await made.until(lambda: len(made.transports) == 35, "its share is not taken")
        await asyncio.sleep(0.05)
        # 35 - (1 + 35 // 16) is the first number that is not below 32.
        assert made.count == 35

    run(made, body)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_without_descriptors_clients_wait(made: Made, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(accepting, "RETRY_S", 0.01)
    refusals = [OSError(number, "too many")] * 3

    class Short(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if refusals:
                raise refusals.pop()
            return super().accept()

    async def body() -> None:
        made.listening = Short(fileno=made.listening.detach())
        made.listening.setblocking(False)
        made.connect(3)
        made.begin()
        await made.until(lambda: len(made.transports) == 3, "not served when there is room again")
        assert not refusals
        ((record_id, values),) = made.log.records
        assert record_id == "11-0004"
        assert values["transport"] == "t"
        assert values["reason"].startswith("too many; raise ")

    run(made, body)


def test_a_handshake_that_fails_is_logged_and_does_not_count(made: Made) -> None:
    async def body() -> None:
        made.begin(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        made.connect(1)
        await made.until(lambda: made.count == 1, "a handshake counts")
        made.clients[0].sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await made.until(lambda: made.count == 0, "a failed handshake counts on")
        ((record_id, values),) = made.log.records
        assert record_id == "11-0002"
        host, port = made.clients[0].getsockname()
        assert values["address"] == f"{host}:{port}"
        assert "HTTP" in values["reason"]
        assert not made.transports

    run(made, body)


def test_after_stopping_no_client_is_accepted(made: Made) -> None:
    made.other(0)

    async def body() -> None:
        made.connect(5)
        made.begin()
        await made.until(lambda: bool(made.transports), "nobody is served")
        made.acceptor.stop()
        taken = made.count  # perhaps more than are accepted yet
        await made.until(lambda: len(made.transports) == taken, "not all that were taken are served")
        await asyncio.sleep(0.05)
        assert len(made.transports) == made.count == taken < 5
        with pytest.raises(ConnectionRefusedError):
            made.connect(1)

    run(made, body)
