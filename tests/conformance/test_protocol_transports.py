"""Transports: protocol.md §17, operations.md §3 and the behaviours 68 and 69 of §21 of protocol.md."""

import contextlib
import gzip
import socket
import ssl
import stat
import struct
import zlib
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.peer import ConnectionClosed, PeerError, RawClient, Silence, frame
from tests.support.peers import Peers
from tests.support.ports import has_ipv6
from tests.support.server import ServerProcess, StartServer, Transport

needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback address")


def check_logon_acks(client: RawClient, unique: str) -> None:
    """Behaviour 5 of protocol.md §21, and a published message that comes back."""
    client.send({"c": "logon", "cid": "17", "client_name": unique, "a": "received,processed"})
    received, processed = client.receive_many(2)
    assert received.is_ack("received", "17")
    assert processed.is_ack("processed", "17")
    assert processed.succeeded
    assert processed["client_name"] == unique
    assert processed.reason == "authentication disabled"
    client.subscribe(f"echo/{unique}", "s")
    body = bytes(range(256)) * 1000
    client.publish(f"echo/{unique}", body)
    assert client.receive().body == body


@pytest.fixture(scope="module")
def tls_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def socket_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("u") / "server.sock"


@pytest.fixture(scope="module")
def server(
    start_module_server: StartServer, authority: Authority, tls_directory: Path, socket_path: Path
) -> ServerProcess:
    """One instance with every kind of transport."""
    identity = authority.issue("server")
    tls = f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
    verify = f"{tls}<VerifyClient>true</VerifyClient><CAFile>{authority.certificate}</CAFile>"
    modern = f"{tls}<SecureSocketProtocols>TLSv1.3</SecureSocketProtocols>"
    transports = [
        Transport("plain"),
        Transport("every address", host=None),
        Transport("ipv4", host="0.0.0.0"),
        Transport("unix", type="amps-unix", socket_path=socket_path, extra_xml="<FileMask>0600</FileMask>"),
        Transport("tcps", type="tcps", extra_xml=tls),
        Transport("tcp with certificate", extra_xml=tls),
        Transport("verifying", type="tcps", extra_xml=verify),
        Transport("modern", type="tcps", extra_xml=modern),
        Transport("disabled", extra_xml="<InitialState>disabled</InitialState>"),
    ]
    if has_ipv6():
        transports.append(Transport("ipv6", host="[::]"))
    return start_module_server(transports=tuple(transports))


def test_protocol_68_unix_socket(peers: Peers, server: ServerProcess, unique: str) -> None:
    """protocol.md §21 68"""
    check_logon_acks(peers.open(server, "unix"), unique)


def test_protocol_68_file_mask(server: ServerProcess, socket_path: Path) -> None:
    """protocol.md §21 68: FileMask `0600` gives that mode."""
    mode = socket_path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("transport", ["tcps", "tcp with certificate", "modern"])
def test_protocol_68_tls(
    peers: Peers, server: ServerProcess, authority: Authority, unique: str, transport: str
) -> None:
    """protocol.md §21 68: `tcps`; a tcp transport with a certificate is TLS, too."""
    check_logon_acks(peers.open(server, transport, tls=authority.client_context()), unique)


@pytest.mark.parametrize("transport", ["tcps", "tcp with certificate"])
def test_protocol_68_tls_transports_speak_tls_only(
    peers: Peers, server: ServerProcess, unique: str, transport: str
) -> None:
    """protocol.md §21 68"""
    client = peers.open(server, transport)
    client.send({"c": "logon", "cid": "1", "client_name": unique, "a": "processed"})
    with pytest.raises(PeerError) as outcome:
        client.receive()
    assert outcome.type is not Silence


def test_protocol_68_protocol_versions(
    peers: Peers, server: ServerProcess, authority: Authority, unique: str
) -> None:
    """operations.md §3: `SecureSocketProtocols` limits what is negotiated."""
    old = authority.client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        peers.open(server, "modern", tls=old)
    check_logon_acks(peers.open(server, "tcps", tls=old), unique)


def test_protocol_68_client_certificates(
    peers: Peers, server: ServerProcess, authority: Authority, tmp_path: Path, unique: str
) -> None:
    """operations.md §3: `VerifyClient` requires a certificate of an authority in `CAFile`."""
    stranger = Authority(tmp_path, "another authority").issue("stranger")
    for context in (authority.client_context(), authority.client_context(stranger)):
        with pytest.raises((ssl.SSLError, ConnectionResetError, ConnectionClosed, BrokenPipeError)):
            peers.open(server, "verifying", tls=context).try_logon(unique)
    known = authority.client_context(authority.issue("client"))
    check_logon_acks(peers.open(server, "verifying", tls=known), unique)


def test_protocol_68_a_stalled_handshake_harms_no_other_client(
    peers: Peers, server: ServerProcess, authority: Authority, unique: str
) -> None:
    """protocol.md §17: connections that never begin TLS, or send random bytes, leave the transport working."""
    silent = peers.open(server, "tcps")
    rubbish = peers.open(server, "tcps")
    rubbish.send_bytes(b"\0" * 100)
    check_logon_acks(peers.open(server, "tcps", tls=authority.client_context()), unique)
    host, port = rubbish.socket.getsockname()
    server.log.wait_for("11-0002", "Transport[tcps]", f"{host}:{port}")
    assert silent.socket.fileno() >= 0


def test_protocol_68_addresses(peers: Peers, server: ServerProcess, unique: str) -> None:
    """protocol.md §21 68, §17: the port alone is every address, `0.0.0.0` is IPv4 only."""
    check_logon_acks(peers.open(server, "every address"), f"{unique}-1")
    check_logon_acks(peers.open(server, "ipv4"), f"{unique}-2")


@needs_ipv6
def test_protocol_68_ipv6_addresses(peers: Peers, server: ServerProcess, unique: str) -> None:
    """protocol.md §21 68, §17: the port alone listens on IPv6, too; `[::]` is IPv6 only."""
    check_logon_acks(peers.open(server, "every address", host="::1"), f"{unique}-1")
    check_logon_acks(peers.open(server, "ipv6", host="::1"), f"{unique}-2")
    with pytest.raises(ConnectionRefusedError):
        peers.open(server, "ipv6", host="127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        peers.open(server, "ipv4", host="::1")


def test_protocol_68_a_disabled_transport_does_not_listen(peers: Peers, server: ServerProcess) -> None:
    """protocol.md §21 68: `InitialState` `disabled` refuses TCP."""
    with pytest.raises(ConnectionRefusedError):
        peers.open(server, "disabled")


def test_protocol_68_messages_pass_between_transports(
    peers: Peers, server: ServerProcess, authority: Authority, topic: str
) -> None:
    """protocol.md §1: the transport is no part of a topic."""
    clients = [
        peers.logged_on(server, "plain"),
        peers.logged_on(server, "unix"),
        peers.logged_on(server, "tcps", tls=authority.client_context()),
    ]
    for client in clients:
        client.subscribe(topic, "s")
    for number, client in enumerate(clients):
        client.publish(topic, b"%d" % number)
        client.flush()
    for client in clients:
        assert [m.body for m in client.receive_published(3)] == [b"0", b"1", b"2"]


def test_protocol_68_the_unix_socket_of_a_killed_server_is_taken_over(
    start_server: StartServer, peers: Peers, tmp_path_factory: pytest.TempPathFactory, unique: str
) -> None:
    """operations.md §3: a file left behind by a crash does not prevent a start."""
    path = tmp_path_factory.mktemp("k") / "s"
    server = start_server(transports=(Transport("unix", type="amps-unix", socket_path=path),))
    server.kill_all()
    assert path.exists()
    server.start()
    check_logon_acks(peers.open(server), unique)
    server.stop()
    assert not path.exists()
    server.start()


def test_protocol_69_http_preflight(peers: Peers, server: ServerProcess, unique: str) -> None:
    """protocol.md §21 69, §17 D28: 101, then frames; the same port without preflight still works."""
    client = peers.open(server, "plain")
    client.send_bytes(
        b"GET /any/path/amps/json HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: anything\r\nX-Route: here\r\n\r\n"
    )
    answer = _read_http_answer(client)
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"upgrade:" in answer.lower()
    assert b"connection:" in answer.lower()
    check_logon_acks(client, f"{unique}-1")
    check_logon_acks(peers.open(server, "plain"), f"{unique}-2")


def test_protocol_69_http_preflight_in_pieces(peers: Peers, server: ServerProcess, unique: str) -> None:
    """protocol.md §17 D28: the request may arrive in pieces."""
    client = peers.open(server, "plain")
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    for position in range(0, len(request), 7):
        client.send_bytes(request[position : position + 7])
    assert _read_http_answer(client).startswith(b"HTTP/1.1 101 ")
    check_logon_acks(client, unique)


def test_protocol_69_a_websocket_handshake_is_refused_in_words(
    peers: Peers, server: ServerProcess, unique: str, authority: Authority
) -> None:
    """protocol.md §17: a port without WebSocket answers with its protocol; the log reports it, too."""
    for transport, tls, scheme in (("plain", None, b"tcp"), ("tcps", authority.client_context(), b"tcps")):
        client = peers.open(server, transport, tls=tls)
        client.send_bytes(
            b"GET /amps/json HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = _read_http_answer(client)
        assert answer.startswith(b"HTTP/1.1 400 ")
        text = _read_to_the_end(client)
        assert b"Content-Length: %d\r\n" % len(text) in answer
        assert b"WebSocket" in text
        assert b" %b://" % scheme in text
    server.log.wait_for("02-0001", "a WebSocket handshake on a port without WebSocket", count=2)
    check_logon_acks(peers.open(server, "plain"), unique)


def test_protocol_69_a_stray_request_is_refused_in_words(peers: Peers, server: ServerProcess) -> None:
    """protocol.md §17: a browser, or a health check."""
    client = peers.open(server, "plain")
    client.send_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert _read_http_answer(client).startswith(b"HTTP/1.1 426 ")
    assert b" tcp://" in _read_to_the_end(client)
    server.log.wait_for("02-0001", "an HTTP request to a port that serves no HTTP")


def first_bytes_of_tls() -> bytes:
    """The first bytes that a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


LOGON = frame({"c": "logon", "client_name": "x"})


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (first_bytes_of_tls(), "TLS to a port without it"),
        *((zlib.compress(LOGON, level), "compressed with zlib") for level in (0, 1, 6, 9)),
        (gzip.compress(LOGON), "compressed with gzip"),
        (b"POST /amps HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        (b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + LOGON, "PROXY"),
        (b"\x82\x8a\x00\x00\x00\x00" + LOGON, "WebSocket"),
        (LOGON[3::-1] + LOGON[4:], "lowest byte first"),
        (LOGON[4:], "without the length"),
        (b"8=FIX.4.2\x019=5\x01", "FIX"),
        (struct.pack(">IBB", 24, 1, 0) + b'{"proto":[1],"name":"A"', "the protocol of replication"),
        (b"\xff\xff\xff\xff whatever", "longer than the maximum"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_protocol_4_the_log_names_a_foreign_protocol(
    peers: Peers, server: ServerProcess, sent: bytes, named: str
) -> None:
    """protocol.md §2: bytes that are no frames end the connection; the log tells the operator what to change."""
    known = len(server.log.find("02-0001", named))
    client = peers.open(server, "plain")
    client.send_bytes(sent)
    assert client.wait_for_close() == []
    server.log.wait_for("02-0001", named, count=known + 1)


def test_protocol_4_after_a_logon_a_length_is_a_length(peers: Peers, server: ServerProcess) -> None:
    """protocol.md §2: after the logon the bytes are a length over the maximum, not another protocol."""
    client = peers.logged_on(server, "plain")
    client.send_bytes(zlib.compress(LOGON))
    client.wait_for_close()
    (record,) = server.log.wait_for("02-0001", client.client_name)
    assert "longer than the maximum" in record.text


def test_protocol_68_a_port_in_use_prevents_the_start(make_server: StartServer) -> None:
    """operations.md §1.7: error message, no start."""
    server = make_server()
    with socket.create_server(("127.0.0.1", server.port())):
        assert str(server.port()) in server.start_refused()


def _read_to_the_end(client: RawClient) -> bytes:
    """The bytes that come until the server closes the connection."""
    found = b""
    while chunk := client.socket.recv(4096):
        found += chunk
    return found


def _read_http_answer(client: RawClient) -> bytes:
    """The answer's header, read byte by byte so that no frame after it is consumed."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = client.socket.recv(1)
        assert byte, f"closed after {answer!r}"
        answer += byte
    return answer
