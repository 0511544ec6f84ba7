"""Fixtures for client tests against a scripted peer."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import Client, FixedDelayStrategy, HAClient
from tests.unit.client.ha import MakeHA
from tests.unit.client.peer import Connection, ScriptedPeer
from tests.unit.client.talk import log_on


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    scripted = ScriptedPeer()
    yield scripted
    scripted.close()


@pytest.fixture
def make_client(peer: ScriptedPeer) -> Iterator[Callable[..., Client]]:
    """Make clients of the peer, which are closed at the end of the test."""
    made: list[Client] = []

    def make(name: str = "tester", **options: Any) -> Client:
        made.append(Client(name, options.pop("uri", peer.uri), **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def logged_on(
    peer: ScriptedPeer, make_client: Callable[..., Client]
) -> Callable[..., tuple[Client, Connection]]:
    """Make a logged-on client and the peer's side of its connection."""

    def make(*, seq: int = 0, **options: Any) -> tuple[Client, Connection]:
        client = make_client(**options)
        return client, log_on(client, peer, seq)

    return make


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Closing clients ends their threads."""
    before = set(threading.enumerate())
    yield
    for thread in threading.enumerate():
        if thread not in before and thread.name.startswith(("amps-rx:", "amps-tx:", "amps-dispatch:")):
            thread.join(5)
            assert not thread.is_alive(), thread


@pytest.fixture
def make_ha(peer: ScriptedPeer) -> Iterator[MakeHA]:
    """Make clients of the peer (or of other servers), which are closed at the end of the test."""
    made: list[HAClient] = []

    def make(servers: Any = None, **options: Any) -> HAClient:
        options.setdefault("delay_strategy", FixedDelayStrategy(0.01))
        client = HAClient("tester", servers or peer.uri, **options)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close(timeout=1)


@pytest.fixture
def dead() -> str:
    """The connection string of a port at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"tcp://127.0.0.1:{port}/amps/json"
