"""Connecting, logging on and losing the connection, against a scripted peer."""

import gc
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amps.client import (
    AlreadyConnectedException,
    AuthenticationException,
    Client,
    ConnectionRefusedException,
    ConnectionState,
    DisconnectedException,
    TimedOutException,
    UsageException,
)
from amps.client.blocking.transport import dial
from amps.client.uri import parse_uri
from tests.support.certificates import Authority
from tests.support.congestion import another_control, congestion_control
from tests.unit.client.peer import (
    WAIT_S,
    Connection,
    Outcome,
    ScriptedPeer,
    encode,
    in_background,
    split_frames,
)
from tests.unit.client.talk import LoggedOn

MakeClient = Callable[..., Client]


def test_client_1_connect_sends_nothing_and_logon_comes_first(
    peer: ScriptedPeer, make_client: MakeClient
) -> None:
    """client.md §21 1"""
    client = make_client()
    client.connect()
    connection = peer.accept()
    connection.expect_nothing()
    assert client.connected
    assert not client.logged_on
    with in_background(client.logon) as logon:
        frame = connection.expect()
        assert frame["c"] == "logon"
        assert frame["client_name"] == "tester"
        assert frame.acks == {"processed"}
        assert frame["mt"] == "json"
        assert frame["cid"]
        assert frame["version"]
        connection.expect_nothing()
        connection.ack(frame, client_name="tester", s=0, version="9.9.9")
    assert logon.value.status == "success"
    assert client.logged_on
    assert client.server_version == "9.9.9"
    assert client.state is ConnectionState.LOGGED_ON


class Recorder:
    """An authenticator that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def authenticate(self, username: str, password: str) -> str:
        self.calls.append(("authenticate", username, password))
        return "token"

    def retry(self, username: str, password: str) -> str:
        self.calls.append(("retry", username, password))
        return "answer"

    def completed(self, username: str, password: str, reason: str) -> None:
        self.calls.append(("completed", username, password, reason))


@pytest.mark.parametrize(
    ("credentials", "user", "password"), [("u:p@", "u", "p"), ("u:@", "u", ""), ("", None, None)]
)
def test_client_3_credentials_of_the_connection_string(
    peer: ScriptedPeer, make_client: MakeClient, credentials: str, user: str | None, password: str | None
) -> None:
    """client.md §21 3"""
    client = make_client(uri=f"tcp://{credentials}127.0.0.1:{peer.port}/amps/json")
    with in_background(client.open):
        frame = peer.accept().logon()
    assert (frame.get("user_id"), frame.get("pw")) == (user, password)
    assert ("user_id" in frame.header, "pw" in frame.header) == (user is not None, password is not None)


def test_client_3_4_custom_authenticator_and_challenge(peer: ScriptedPeer, make_client: MakeClient) -> None:
    """client.md §21 3 and 4"""
    recorder = Recorder()
    client = make_client(uri=f"tcp://u:p@127.0.0.1:{peer.port}/amps/json", authenticator=recorder)
    with in_background(client.open):
        connection = peer.accept()
        first = connection.expect("logon")
        assert (first["user_id"], first["pw"]) == ("u", "token")
        connection.ack(first, status="retry", user_id="u2", pw="challenge")
        second = connection.logon(reason="welcome")
        assert (second["user_id"], second["pw"]) == ("u2", "answer")
    assert recorder.calls == [
        ("authenticate", "u", "p"),
        ("retry", "u2", "challenge"),
        ("completed", "u2", "answer", "welcome"),
    ]
    connection.expect_nothing()


def test_client_4_endless_challenges_end(peer: ScriptedPeer, make_client: MakeClient) -> None:
    """client.md §21 4: 33 retries"""
    client = make_client(authenticator=Recorder())
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    for _ in range(33):
        connection.ack(connection.expect("logon"), status="retry", user_id="u", pw="c")
    with pytest.raises(AuthenticationException):
        opening.result()
    assert not client.connected


def test_the_default_authenticator_has_no_answer(peer: ScriptedPeer, make_client: MakeClient) -> None:
    client = make_client()
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    connection.ack(connection.expect("logon"), status="retry", user_id="u", pw="c")
    with pytest.raises(AuthenticationException):
        opening.result()
    connection.expect_close()


def test_an_authenticator_may_reject_the_server(peer: ScriptedPeer, make_client: MakeClient) -> None:
    class Suspicious(Recorder):
        def completed(self, username: str, password: str, reason: str) -> None:
            raise AuthenticationException("not this server")

    client = make_client(authenticator=Suspicious())
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    connection.logon()
    with pytest.raises(AuthenticationException, match="not this server"):
        opening.result()
    connection.expect_close()


def test_client_5_closed_port_and_empty_parameters(peer: ScriptedPeer, make_client: MakeClient) -> None:
    """client.md §21 5"""
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(ConnectionRefusedException):
        make_client(uri=f"tcp://127.0.0.1:{port}/amps/json").connect()
    client = make_client(uri=f"{peer.uri}?&tcp_nodelay=true")
    client.connect()
    assert client.connected


@pytest.mark.parametrize(
    ("parameters", "expected"), [("", True), ("?tcp_nodelay=true", True), ("?tcp_nodelay=0", False)]
)
def test_small_commands_do_not_wait_for_acknowledgements_of_the_network(
    peer: ScriptedPeer, parameters: str, expected: bool
) -> None:
    """client.md §2, tcp_nodelay; on by default, see docs/decisions.md"""
    transport = dial(parse_uri(peer.uri + parameters), timeout_s=WAIT_S)
    assert bool(transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is expected
    transport.close()


def test_a_connection_to_a_server_on_this_host_is_not_paced(peer: ScriptedPeer) -> None:
    another_control()  # otherwise the socket would have this setting anyway
    transport = dial(parse_uri(peer.uri), timeout_s=WAIT_S)
    assert congestion_control(transport._socket) == b"reno"
    transport.close()


def test_client_7_logon_options_and_correlation(peer: ScriptedPeer, make_client: MakeClient) -> None:
    """client.md §21 7"""
    client = make_client(
        uri=f"{peer.uri}?pretty=true", logon_correlation="abc=", logon_options="ack_conflation=50ms"
    )
    with in_background(client.open):
        frame = peer.accept().logon()
    assert (frame["x"], frame["o"]) == ("abc=", "ack_conflation=50ms,pretty=true")
    with pytest.raises(ValueError, match="Base64"):
        Client("x", logon_correlation="a b")


def test_connecting_twice_and_again(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """client.md §21 2, [P] part: a second connect is refused; after disconnect the client can connect again"""
    client, connection = logged_on()
    with pytest.raises(AlreadyConnectedException):
        client.connect()
    client.disconnect()
    connection.expect_close()
    assert not client.connected
    assert client.state is ConnectionState.DISCONNECTED
    with in_background(client.open):
        peer.accept().logon()
    assert client.logged_on
    assert client.stats.reconnects == 1


def test_a_silent_server_times_the_logon_out(peer: ScriptedPeer, make_client: MakeClient) -> None:
    client = make_client(timeout=0.2)
    client.connect()
    with pytest.raises(TimedOutException):
        client.logon()
    peer.accept().expect_close()
    assert not client.connected


def test_commands_without_a_connection_raise_an_error_that_names_the_cause(make_client: MakeClient) -> None:
    client = make_client()
    for call in (lambda: client.publish("t", b""), lambda: client.subscribe("t"), client.logon, client.flush):
        with pytest.raises(DisconnectedException):
            call()
    client.close()
    with pytest.raises(UsageException):
        client.connect()


def test_the_disconnect_handler_may_reconnect(peer: ScriptedPeer, logged_on: LoggedOn) -> None:
    """client.md §9.8: it runs once per lost connection, not when the application disconnects"""
    client, connection = logged_on()
    reconnected = threading.Event()
    errors: list[Exception] = []

    def handler(lost: Client, error: Exception) -> None:
        errors.append(error)
        lost.connect()
        lost.logon()
        reconnected.set()

    client.set_disconnect_handler(handler)
    connection.close()
    second = peer.accept()
    second.logon()
    assert reconnected.wait(10)
    assert isinstance(errors[0], DisconnectedException)
    with in_background(client.flush):
        second.ack(second.expect("flush"), "completed")
    client.disconnect()
    assert len(errors) == 1


def test_state_listeners_are_called(peer: ScriptedPeer, make_client: MakeClient) -> None:
    client = make_client(heartbeat=5.0)
    states: list[ConnectionState] = []
    client.add_connection_state_listener(states.append)
    with in_background(client.open):
        peer.accept().logon()
    client.close()
    assert states == [
        ConnectionState.CONNECTED,
        ConnectionState.LOGGED_ON,
        ConnectionState.HEARTBEAT_INITIATED,
        ConnectionState.DISCONNECTED,
        ConnectionState.SHUTDOWN,
    ]
    assert client.state is ConnectionState.SHUTDOWN


def test_corrupt_data_ends_the_connection(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    lost = threading.Event()
    client.set_disconnect_handler(lambda _client, _error: lost.set())
    connection.socket.sendall(b"\xff\xff\xff\xff")
    assert lost.wait(10)
    connection.expect_close()


def test_client_63_heartbeats_and_silence(logged_on: LoggedOn) -> None:
    """client.md §21 63, the plain client's part: start, beats, an answer to each, loss after silence"""
    lost: list[Exception] = []
    client, connection = logged_on(heartbeat=0.3, heartbeat_timeout=1.0)
    client.set_disconnect_handler(lambda _client, error: lost.append(error))
    started = time.monotonic()
    assert connection.expect("heartbeat")["o"] == "start,1"
    connection.send({"c": "heartbeat"})
    for _ in range(3):
        assert connection.expect("heartbeat")["o"] == "beat"
    connection.expect_close()
    assert time.monotonic() - started > 0.5
    deadline = time.monotonic() + 10
    while not lost and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "nothing received" in str(lost[0])


def test_heartbeats_are_requested_before_the_logon_returns(
    peer: ScriptedPeer, make_client: MakeClient
) -> None:
    """client.md §9.6: the request does not depend on the sending thread, which may be delayed"""
    client = make_client(heartbeat=60.0)
    client._runtime.sender.signal = lambda: None  # type: ignore[method-assign]
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    connection.logon()
    opening.result()
    assert connection.expect("heartbeat")["o"] == "start,60"


def test_transport_filter_sees_all_bytes(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    seen: dict[bool, bytes] = {True: b"", False: b""}

    def look(data: bytes, outgoing: bool) -> None:
        seen[outgoing] += data

    client.set_transport_filter(look)
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")
    assert split_frames(seen[True])[0]["c"] == "flush"
    assert split_frames(seen[False])[0]["a"] == "completed"


def test_a_dropped_client_closes_its_connection(peer: ScriptedPeer) -> None:
    """client.md §19.3: a client collected while open gives a ResourceWarning, and no thread keeps it alive"""
    client: Client | None = Client("dropped", peer.uri)
    assert client is not None
    with in_background(client.open):
        connection = peer.accept()
        connection.logon()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client = None
        gc.collect()
    connection.expect_close()
    assert any(
        warning.category is ResourceWarning and "dropped" in str(warning.message) for warning in caught
    )


class Proxy:
    """An HTTP proxy that records upgrade requests and passes bytes on, or answers with a status."""

    def __init__(self, target_port: int, status: str) -> None:
        self.requests: list[bytes] = []
        self._target_port = target_port
        self._status = status
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += near.recv(1)
            self.requests.append(request)
            near.sendall(f"HTTP/1.1 {self._status}\r\nX: y\r\n\r\n".encode())
            if not self._status.startswith("101"):
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target_port))
            self._sockets.append(far)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()
        for sock in self._sockets:
            sock.close()


def test_client_69_http_preflight_at_each_connect(peer: ScriptedPeer, make_client: MakeClient) -> None:
    """client.md §21 69"""
    proxy = Proxy(peer.port, "101 Switching Protocols")
    client = make_client(
        uri=f"tcp://127.0.0.1:{proxy.port}/way/amps/json?http_preflight=true",
        http_headers={"Token": "secret"},
    )
    for _ in range(2):
        with in_background(client.open):
            peer.accept().logon()
        client.disconnect()
    proxy.close()
    assert len(proxy.requests) == 2
    lines = proxy.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /way/amps/json HTTP/1.1"
    assert "Connection: Upgrade" in lines
    assert "Token: secret" in lines
    assert proxy.requests[0] == proxy.requests[1]


def test_client_69_a_refused_preflight_names_the_status(make_client: MakeClient) -> None:
    """client.md §21 69"""
    proxy = Proxy(0, "403 Forbidden")
    client = make_client(uri=f"tcp://127.0.0.1:{proxy.port}/amps/json?http_preflight=true")
    with pytest.raises(ConnectionRefusedException, match="403"):
        client.connect()
    proxy.close()
    with pytest.raises(Exception, match="line break"):
        make_client(
            uri=f"tcp://127.0.0.1:{proxy.port}/amps/json?http_preflight=true", http_headers=["a: b\r\nc: d"]
        ).connect()


def test_unix_sockets(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    client = Client("unix", f"unix://localhost:0/amps/json?path={path}")
    with in_background(client.open):
        connection = Connection(listener.accept()[0])
        connection.logon()
    assert client.logged_on
    client.close()
    connection.close()
    listener.close()


@pytest.mark.parametrize("reset", [False, True])
def test_a_server_that_answers_nothing_may_expect_tls(reset: bool) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client("plain", f"tcp://127.0.0.1:{listener.getsockname()[1]}/amps/json", timeout=20)
    opening = Outcome(client.open, (), {})
    sock, _ = listener.accept()
    assert sock.recv(4 if reset else 1 << 16)  # unread bytes turn the close into a reset
    sock.close()
    opening.wait()
    assert isinstance(opening.error, DisconnectedException)
    assert "does its port expect TLS (tcps)?" in str(opening.error)
    client.close()
    listener.close()


class TlsPeer:
    """A listener whose connections speak TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def accept(self) -> ssl.SSLSocket:
        sock, _ = self.listener.accept()
        return self._context.wrap_socket(sock, server_side=True)


def _tls_contexts(authority: Authority) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.private_key)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    return context, trusting


def test_tls_both_ways_at_once(authority: Authority) -> None:
    """A blocked send must not stop reading, over TLS too: both sides send more than the buffers hold."""
    server_context, trusting = _tls_contexts(authority)
    peer = TlsPeer(server_context)
    client = Client("tls", f"tcps://localhost:{peer.port}/amps/json", tls=trusting, timeout=20)
    accepted = Outcome(peer.accept, (), {})
    opening = Outcome(client.open, (), {})
    sock: ssl.SSLSocket = accepted.result()
    size = int.from_bytes(sock.recv(4), "big")
    logon = _receive(sock, size)
    sock.sendall(_ack(b"1"))
    opening.result()
    assert b'"logon"' in logon
    got = 0
    done = threading.Event()

    def count(_message: Any) -> None:
        nonlocal got
        got += 1
        if got == 300:
            done.set()

    client.set_last_chance_handler(count)
    body = bytes(100_000)
    publishing = Outcome(lambda: [client.publish("t", body) for _ in range(300)], (), {})
    frame = encode({"c": "p", "t": "t", "sids": "none"}, body)
    for _ in range(300):
        sock.sendall(frame)
    assert done.wait(20)
    received = 0
    while received < 300 * 100_000:
        received += len(sock.recv(1 << 20))
    publishing.result()
    client.close()
    sock.close()
    peer.listener.close()


def test_tls_verifies_the_server(authority: Authority) -> None:
    server_context, _ = _tls_contexts(authority)
    peer = TlsPeer(server_context)
    accepted = Outcome(peer.accept, (), {})
    client = Client("tls", f"tcps://localhost:{peer.port}/amps/json")
    with pytest.raises(ConnectionRefusedException, match=r"(?i)certificate"):
        client.connect()
    accepted.wait()
    assert isinstance(accepted.error, ssl.SSLError)
    client.close()
    peer.listener.close()


def _receive(sock: ssl.SSLSocket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data


def _ack(cid: bytes) -> bytes:
    payload = b'{"c":"ack","cid":"%b","a":"processed","status":"success","s":0}' % cid
    return len(payload).to_bytes(4, "big") + payload
