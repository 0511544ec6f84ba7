"""The client library against a server: connecting, logging on (client.md §21 2, 6, 8, 9, 63, 69)."""

import queue
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.client import (
    AlreadyConnectedException,
    AMPSException,
    AuthenticationException,
    BadFilterException,
    Client,
    ConnectionState,
    DisconnectedException,
    DuplicateLogonException,
    InvalidUriException,
    MemoryPublishStore,
    MessageTypeException,
    NameInUseException,
    UsageException,
)
from tests.support.certificates import Authority
from tests.support.server import ServerProcess, StartServer, Transport, module_xml, package_path, wait_until

MakeClient = Callable[..., Client]


@pytest.fixture
def make_client(unique: str) -> Iterator[MakeClient]:
    """Makes clients of a server that are closed with the test."""
    made: list[Client] = []

    def make(server: ServerProcess, *, name: str = "", credentials: str = "", **options: Any) -> Client:
        uri = options.pop("uri", f"tcp://{credentials}127.0.0.1:{server.port()}/amps/json")
        made.append(Client(f"{unique}{name}", uri, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_client_2_a_second_connect_is_refused_and_the_client_goes_on(
    make_client: MakeClient, plain_server: ServerProcess
) -> None:
    """client.md §21 2"""
    client = make_client(plain_server).open()
    with pytest.raises(AlreadyConnectedException):
        client.connect()
    client.flush()
    assert client.server_version


def test_client_6_the_second_client_of_a_name_replaces_the_first(
    make_client: MakeClient, logged_server: ServerProcess
) -> None:
    """client.md §21 6: the user is the same, so the server closes the old connection."""
    first = make_client(logged_server)
    lost = threading.Event()
    first.add_connection_state_listener(
        lambda state: lost.set() if state is ConnectionState.DISCONNECTED else None
    )
    first.open()
    second = make_client(logged_server).open()
    assert lost.wait(10)
    assert not first.connected
    second.flush()


def test_client_6_the_client_that_is_replaced_knows_why(
    make_client: MakeClient, logged_server: ServerProcess, topic: str
) -> None:
    """client.md §21 6: an application receives the reason in every way in which it notices the end of the
    connection.
    """
    first = make_client(logged_server, publish_store=MemoryPublishStore())
    told: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    first.set_disconnect_handler(lambda _, error: told.put(error))
    first.open()
    stream = first.subscribe(topic)
    make_client(logged_server).open()
    expected = "the server closed the connection: name in use: another client of this name has logged on"
    error = told.get(timeout=20)
    assert isinstance(error, DisconnectedException)
    assert (str(error), error.reason) == (expected, "name in use")
    with pytest.raises(DisconnectedException, match=expected) as of_stream:
        next(stream)
    assert of_stream.value.reason == "name in use"
    with pytest.raises(DisconnectedException, match=f"^publish: not connected: {expected}$") as of_publish:
        first.publish(topic, b"1")
    assert of_publish.value.reason == "name in use"
    with pytest.raises(DisconnectedException, match=f"^{expected}$") as of_logon:
        first.logon()
    assert of_logon.value.reason == "name in use"
    first.open().close()  # the call forgets the reason


def test_client_6_a_publisher_in_full_flow_knows_why_it_is_replaced(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §21 6: messages that it still sends when the server closes do not hide the reason."""
    first = make_client(logged_server, publish_store=MemoryPublishStore()).open()
    second = make_client(logged_server)
    threading.Timer(0.2, second.open).start()

    def publish_without_end() -> None:
        while True:
            first.publish(recorded_topic, b"x" * 1000)

    with pytest.raises(DisconnectedException, match="name in use"):
        publish_without_end()
    wait_until(lambda: second.logged_on, 10, "the second client did not log on")


def test_client_a_bad_filter_says_what_is_wrong_and_where(
    make_client: MakeClient, plain_server: ServerProcess, topic: str
) -> None:
    """client.md §19.9: the exception has the reason, and the server's detail."""
    client = make_client(plain_server).open()
    with pytest.raises(BadFilterException) as refused:
        client.subscribe(topic, "/a >")
    error = refused.value
    assert (error.reason, error.position) == ("bad filter", 4)
    assert error.detail is not None
    assert str(error) == f"subscribe failed: bad filter: {error.detail}"
    assert error.detail.startswith("the expression ends where a field, a literal or a function is expected")


def test_client_8_an_object_published_before_open_is_refused(
    make_client: MakeClient, plain_server: ServerProcess, topic: str
) -> None:
    """client.md §21 8: before `open` the message type of the body is unknown."""
    client = make_client(plain_server)
    with pytest.raises(
        DisconnectedException, match=r"^cannot encode dict: not connected; call open\(\) first"
    ):
        client.publish(topic, {"id": 1})
    with pytest.raises(DisconnectedException, match=r"^publish: not connected; call open\(\) first"):
        client.publish(topic, b"{}")
    client.open().publish(topic, {"id": 1})
    client.disconnect()
    with pytest.raises(DisconnectedException, match=r"^publish: not connected; call open\(\) first"):
        client.publish(topic, {"id": 1})


def test_client_6_another_users_name_is_in_use(
    make_client: MakeClient, spoofing_server: ServerProcess
) -> None:
    """client.md §21 6: the users differ, so the server closes the new connection."""
    first = make_client(spoofing_server, credentials="ana:x@").open()
    second = make_client(spoofing_server, credentials="bob:x@")
    second.connect()
    with pytest.raises(NameInUseException):
        second.logon()
    assert not second.connected
    first.flush()


def test_client_8_publishing_before_logon(
    make_client: MakeClient, plain_server: ServerProcess, implicit_server: ServerProcess, topic: str
) -> None:
    """client.md §21 8"""
    client = make_client(plain_server)
    client.connect()
    client.publish(topic, b"{}")
    wait_until(lambda: not client.connected, 10, "the server kept a connection that did not log on")
    watcher = make_client(implicit_server, name="-w")
    watcher.connect()
    with watcher.subscribe(topic) as stream:
        implicit = make_client(implicit_server, name="-i")
        implicit.connect()
        implicit.publish(topic, b'{"implicit":true}')
        assert next(stream).data == b'{"implicit":true}'
        with pytest.raises(DuplicateLogonException):
            implicit.logon()
        assert implicit.connected
        implicit.flush()


def test_client_8_with_a_store_a_publish_before_logon_is_a_usage_error(
    make_client: MakeClient, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """client.md §20"""
    client = make_client(logged_server, publish_store=MemoryPublishStore())
    client.connect()
    with pytest.raises(UsageException):
        client.publish(recorded_topic, b"{}")
    client.logon()
    assert client.publish(recorded_topic, b"{}") == 1
    client.publish_flush()


def test_client_9_a_server_that_refuses_every_client(
    make_client: MakeClient, start_server: StartServer
) -> None:
    """client.md §21 9"""
    server = start_server(
        authentication_xml=module_xml("Authentication", "amps-default-no-authentication-module")
    )
    client = make_client(server)
    client.connect()
    with pytest.raises(AuthenticationException):
        client.logon()
    assert not client.connected


def test_a_wrong_message_type_is_named(make_client: MakeClient, plain_server: ServerProcess) -> None:
    client = make_client(plain_server, uri=f"tcp://127.0.0.1:{plain_server.port()}/amps/nvfix")
    with pytest.raises(MessageTypeException):
        client.open()
    with pytest.raises(InvalidUriException):
        make_client(plain_server, uri="tcp://127.0.0.1/amps/json").open()


def test_client_63_a_stopped_client_is_disconnected(plain_server: ServerProcess, unique: str) -> None:
    """client.md §21 63, [S]: disconnect reason `heartbeat`"""
    program = (
        "import sys, time\n"
        "from amps.client import Client\n"
        f"client = Client({unique!r}, sys.argv[1], heartbeat=1).open()\n"
        "client.publish_flush()  # the server has the command before it, which asks for heartbeats, too\n"
        "print('open', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-W",
            "ignore",
            "-c",
            program,
            f"tcp://127.0.0.1:{plain_server.port()}/amps/json",
        ],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": package_path()},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.send_signal(19)  # SIGSTOP
        plain_server.log.wait_for("07-0013", unique, "heartbeat", timeout_s=20)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_heartbeats_keep_an_idle_connection(make_client: MakeClient, plain_server: ServerProcess) -> None:
    """client.md §9.6: both sides live on heartbeats alone, well beyond twice the interval"""
    states: list[ConnectionState] = []
    client = make_client(plain_server, heartbeat=1.0)
    client.add_connection_state_listener(states.append)
    client.open()
    quiet = threading.Event()
    assert not quiet.wait(3.5)
    client.flush()
    assert states == [
        ConnectionState.CONNECTED, ConnectionState.LOGGED_ON, ConnectionState.HEARTBEAT_INITIATED,
    ]  # fmt: skip


def test_client_69_preflight_against_the_server(make_client: MakeClient, plain_server: ServerProcess) -> None:
    """client.md §21 69 and protocol.md §21 69: no server setting is needed"""
    client = make_client(
        plain_server, uri=f"tcp://127.0.0.1:{plain_server.port()}/some/way/amps/json?http_preflight=true"
    )
    client.open()
    client.flush()


def test_unix_and_tls_transports(
    make_client: MakeClient, start_server: StartServer, authority: Authority, tmp_path: Path
) -> None:
    identity = authority.issue("localhost")
    server = start_server(
        transports=(
            Transport(
                name="tls",
                type="tcps",
                extra_xml=(
                    f"<Certificate>{identity.certificate}</Certificate>"
                    f"<PrivateKey>{identity.private_key}</PrivateKey>"
                ),
            ),
            Transport(name="unix", type="amps-unix", host=None, socket_path=tmp_path / "s"),
        )
    )
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    secure = make_client(server, uri=f"tcps://localhost:{server.port('tls')}/amps/json", tls=trusting).open()
    local = make_client(
        server, name="-unix", uri=f"unix://localhost:0/amps/json?path={tmp_path / 's'}"
    ).open()
    with secure.subscribe("t") as stream:
        local.publish("t", {"over": "unix"})
        assert next(stream).json() == {"over": "unix"}
    with local.subscribe("t") as stream:
        secure.publish("t", bytes(3_000_000))
        assert len(next(stream).data) == 3_000_000


def test_a_refused_certificate_is_the_reason_given(
    make_client: MakeClient, start_server: StartServer, authority: Authority
) -> None:
    """The server checks it when the client is already connected. Client and server both report the reason."""
    identity = authority.issue("localhost")
    server = start_server(
        transports=(
            Transport(
                name="tls",
                type="tcps",
                extra_xml=(
                    f"<Certificate>{identity.certificate}</Certificate>"
                    f"<PrivateKey>{identity.private_key}</PrivateKey>"
                    f"<VerifyClient>true</VerifyClient><CAFile>{authority.certificate}</CAFile>"
                ),
            ),
        )
    )
    client = make_client(
        server, uri=f"tcps://localhost:{server.port()}/amps/json", tls=authority.client_context()
    )
    client.connect()
    wait_until(lambda: not client.connected, 10, "the refusal is not noticed")
    with pytest.raises(DisconnectedException, match="does it want a certificate"):
        client.logon()
    server.log.wait_for("11-0002", "Transport[tls]", "certificate")


def test_a_server_that_goes_away_is_noticed(make_client: MakeClient, start_server: StartServer) -> None:
    server = start_server()
    client = make_client(server).open()
    errors: list[AMPSException] = []
    client.set_disconnect_handler(lambda _client, error: errors.append(error))
    stream = client.subscribe("t")
    server.kill_all()
    with pytest.raises(DisconnectedException):
        next(stream)
    wait_until(lambda: bool(errors), 10, "the disconnect handler was not called")
    server.start()
    client.open()
    client.flush()
