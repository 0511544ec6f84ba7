"""Every call of the client ends at its timeout, tested against a server that reads nothing."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps.client import (
    Client,
    Command,
    DisconnectedException,
    MemoryPublishStore,
    TimedOutException,
)
from amps.client.blocking import transport as transports
from tests.support.certificates import Authority
from tests.support.stuck import StuckServer
from tests.unit.client.peer import Outcome
from tests.unit.client.talk import wait_for

LARGE = b"x" * (8 << 20)
"""More bytes than the buffers of a connection hold."""
TIMEOUT_S = 0.2


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(directory)
    identity = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.private_key)
    return context, authority.client_context()


@pytest.fixture(params=["tcp", "tcps", "unix"])
def stuck(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[StuckServer, Client]]:
    """A server that does not read, and a logged-on client without a store that has filled the connection's buffers."""
    server, client = stuck_client(request.param, tmp_path)
    yield server, client
    server.close()
    client.close(timeout=0)


def stuck_client(
    scheme: str, directory: Path, store: MemoryPublishStore | None = None
) -> tuple[StuckServer, Client]:
    trusting: ssl.SSLContext | None = None
    if scheme == "tcps":
        context, trusting = contexts(directory / "certificates")
        server = StuckServer(tls=context)
    else:
        server = StuckServer(path=directory / "socket" if scheme == "unix" else None)
    client = Client("stuck", server.uri, tls=trusting, publish_store=store, timeout=20)
    server.let_in()
    client.open()
    client.publish("t", LARGE)
    client.timeout = TIMEOUT_S
    return server, client


CALLS: dict[str, Callable[[Client], object]] = {
    "publish": lambda client: client.publish("late", b"late"),
    "publish with its own timeout": lambda client: client.publish("late", b"late", timeout=0.1),
    "publish with fields": lambda client: client.publish("late", b"late", expiration=1),
    "delta_publish": lambda client: client.delta_publish("late", b"late"),
    "send": lambda client: client.send(Command("publish", topic="late", data=b"late")),
    "send with its own timeout": lambda client: client.send(Command("flush"), timeout=0.1),
    "execute": lambda client: client.execute(Command("sow", topic="late")),
    "execute_async": lambda client: client.execute_async(Command("subscribe", topic="late"), print),
    "subscribe": lambda client: client.subscribe("late"),
    "bookmark_subscribe": lambda client: client.bookmark_subscribe("late", "0"),
    "sow": lambda client: client.sow("late"),
    "sow_count": lambda client: client.sow_count("late"),
    "sow_delete": lambda client: client.sow_delete("late", filter="1=1"),
    "flush": lambda client: client.flush(),
    "publish_flush": lambda client: client.publish_flush(),
    "unsubscribe": lambda client: client.unsubscribe(),
    "logon": lambda client: client.logon(),
}


def test_every_call_ends_when_the_server_does_not_read(stuck: tuple[StuckServer, Client]) -> None:
    """A call that timed out has sent nothing. An earlier message arrives whole, and the client remains usable."""
    server, client = stuck
    for name, call in CALLS.items():
        outcome = Outcome(call, (client,), {})
        outcome.wait()
        assert type(outcome.error) is TimedOutException, (name, outcome.error)
        assert "the server does not read" in str(outcome.error), name
    client.timeout = 20
    last = Outcome(client.publish, ("t", b"last"), {})
    ((header, body),) = server.read_until(b"last")
    last.result()
    assert (header, body) == ({"c": "publish", "t": "t"}, LARGE)


@pytest.mark.parametrize("call", ["disconnect", "close"])
def test_disconnecting_ends_when_the_server_does_not_read(
    stuck: tuple[StuckServer, Client], call: str
) -> None:
    _, client = stuck
    outcome = Outcome(getattr(client, call), (), {})
    outcome.result()
    assert not client.connected


def test_disconnecting_waits_until_pending_data_is_read(stuck: tuple[StuckServer, Client]) -> None:
    server, client = stuck
    leaving = Outcome(client.disconnect, (), {"timeout": 20})
    _, body = server.read()
    assert body == LARGE
    leaving.result()


def test_calls_end_while_another_thread_waits_without_end(stuck: tuple[StuckServer, Client]) -> None:
    """The waiting thread holds the send lock. Other threads must still end at their own timeouts."""
    server, client = stuck
    patient = Outcome(client.publish, ("t", b"patient"), {"timeout": None})
    for name in ("publish", "flush", "subscribe"):
        outcome = Outcome(CALLS[name], (client,), {})
        outcome.wait()
        assert type(outcome.error) is TimedOutException, name
    assert len(server.read_until(b"patient")) == 1
    patient.result()


def test_a_thread_that_waits_without_end_gets_an_error_when_the_connection_is_lost(
    stuck: tuple[StuckServer, Client],
) -> None:
    server, client = stuck
    patient = Outcome(client.publish, ("t", b"patient"), {"timeout": None})
    server.hang_up()
    with pytest.raises(DisconnectedException, match="not connected"):
        patient.result()
    server.let_in()
    client.open(timeout=20)


@pytest.mark.parametrize("scheme", ["tcp", "tcps", "unix"])
def test_a_publish_that_timed_out_is_not_in_the_store_and_nothing_else_is_lost(
    scheme: str, tmp_path: Path
) -> None:
    store = MemoryPublishStore()
    server, client = stuck_client(scheme, tmp_path, store)
    try:
        for _ in range(3):
            with pytest.raises(TimedOutException, match="publish was not sent in time"):
                client.publish("t", b"not accepted")
            with pytest.raises(TimedOutException):
                client.publish_flush()
        assert store.unpersisted_count() == 1
        assert store.highest_unpersisted() == 1
        server.hang_up()
        wait_for(lambda: not client.connected)
        server.let_in()
        client.open(timeout=20)
        last = Outcome(client.publish, ("t", b"last"), {"timeout": 20})
        frames = server.read_until(b"last")
        assert last.result() == 2
        assert [(header["s"], body) for header, body in frames] == [(1, LARGE)]
    finally:
        server.close()
        client.close(timeout=0)


def test_a_publish_that_waits_for_room_in_the_store_ends(tmp_path: Path) -> None:
    """client.md §21 57: publish waits for an acknowledgement until its timeout."""
    server = StuckServer()
    store = MemoryPublishStore(max_bytes=1)
    client = Client("full", server.uri, publish_store=store, timeout=20)
    try:
        server.let_in()
        client.open()
        assert client.publish("t", b"1") == 1
        with pytest.raises(TimedOutException, match="no room in time, 1 messages in it are not persisted"):
            client.publish("t", b"2", timeout=TIMEOUT_S)
        assert store.unpersisted_count() == 1
        server.read_until(b"1")
        server.acknowledge(a="persisted", s=1)
        assert client.publish("t", b"2", timeout=20) == 2
    finally:
        server.close()
        client.close(timeout=0)


@pytest.mark.parametrize("query", ["", "?http_preflight=true"])
@pytest.mark.parametrize("scheme", ["tcp", "tcps"])
def test_connecting_ends_when_the_server_answers_nothing(scheme: str, query: str, tmp_path: Path) -> None:
    """Connecting ends although the server does not answer a TLS handshake, a preflight or a logon."""
    server = StuckServer()  # the kernel completes the connection, but the server never accepts it
    client = Client("early", f"{scheme}://127.0.0.1:{server.port}/amps/json{query}", timeout=TIMEOUT_S)
    try:
        outcome = Outcome(client.open, (), {})
        outcome.wait()
        assert type(outcome.error) is TimedOutException, outcome.error
        assert not client.connected
    finally:
        server.close()
        client.close()


def test_connecting_ends_while_another_thread_connects() -> None:
    server = StuckServer()
    client = Client("twice", f"tcps://127.0.0.1:{server.port}/amps/json", timeout=20)
    first = Outcome(client.connect, (), {})
    wait_for(lambda: bool(client._connector._connecting.holder))
    with pytest.raises(TimedOutException, match="another thread is still connecting"):
        client.connect(timeout=TIMEOUT_S)
    server.close()
    first.wait()
    assert isinstance(first.error, ConnectionError)
    client.close()


def test_connecting_ends_while_the_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    given_up: list[bool] = []
    look_up = socket.getaddrinfo

    def slow(*arguments: object, **options: object) -> object:
        if "flags" not in options:
            given_up.append(answered.wait(20))
        return look_up(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(transports.socket, "getaddrinfo", slow)
    client = Client("nameless", "tcp://localhost:9/amps/json", timeout=TIMEOUT_S)
    with pytest.raises(TimedOutException):
        client.connect()
    answered.set()
    wait_for(lambda: bool(given_up))
    assert given_up == [True], "the call has waited for the answer"
    client.close()


def test_a_server_that_reads_slowly_gets_all_messages_in_order(stuck: tuple[StuckServer, Client]) -> None:
    """With many publishing threads, of which most wait, frames stay whole and each thread's messages stay in order."""
    server, client = stuck
    client.timeout = 20

    def publish(number: int) -> None:
        for count in range(50):
            client.publish("t", b"%d %d " % (number, count) + b"." * 20_000)

    threads = [Outcome(publish, (number,), {}) for number in range(4)]
    seen: dict[bytes, list[int]] = {}
    server.read()
    for _ in range(200):
        number, count, _ = server.read()[1].split(b" ")
        seen.setdefault(number, []).append(int(count))
        time.sleep(0.001)
    for thread in threads:
        thread.result()
    assert list(seen.values()) == [list(range(50))] * 4
