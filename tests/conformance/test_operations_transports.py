"""Transports as operators configure them: operations.md §3 and the behaviours 11 to 19 and 25 of §13."""

import socket
import ssl
import stat
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.peer import PeerError, RawClient
from tests.support.peers import Peers
from tests.support.ports import has_ipv6
from tests.support.server import StartServer, Transport


def refuses(host: str, port: int, family: int = socket.AF_INET) -> bool:
    """True if no process listens there."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(10)
        try:
            probe.connect((host, port))
        except ConnectionRefusedError:
            return True
        return False


def test_operations_11_ready_means_ready(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 11"""
    server = start_server(log_topics=("^L/",))
    peers.logged_on(server)
    assert len(server.log.find("00-0015")) == 1
    server.stop()
    server.start()
    peers.logged_on(server)
    assert len(server.log.find("00-0015")) == 2


def test_operations_12_a_port_in_use(make_server: StartServer) -> None:
    """operations.md §13 12"""
    server = make_server()
    with socket.socket() as occupant:
        occupant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier test may have used the port
        occupant.bind(("127.0.0.1", server.port()))
        occupant.listen()
        said = server.start_refused()
    assert f"127.0.0.1:{server.port()}" in said
    assert "another program uses it" in said
    assert "00-0015" not in said


def test_operations_12_a_socket_file_in_use(make_server: StartServer, peers: Peers, tmp_path: Path) -> None:
    """operations.md §13 12, for unix sockets: the first server goes on."""
    transport = Transport("unix", type="amps-unix", socket_path=tmp_path / "s")
    first, second = make_server(transports=(transport,)), make_server(transports=(transport,))
    first.start()
    assert str(tmp_path / "s") in second.start_refused()
    peers.logged_on(first).flush()
    first.stop()


@pytest.mark.skipif(not has_ipv6(), reason="this host has no IPv6 loopback address")
def test_operations_13_addresses(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 13"""
    server = start_server(
        transports=(
            Transport("all", host=None),
            Transport("four", host="0.0.0.0"),
            Transport("six", host="[::]"),
        )
    )
    for transport, host in (("all", "127.0.0.1"), ("all", "::1"), ("four", "127.0.0.1"), ("six", "::1")):
        peers.logged_on(server, transport, host=host)
    assert refuses("::1", server.port("four"), socket.AF_INET6)
    assert refuses("127.0.0.1", server.port("six"))


def test_operations_14_tcp_with_a_certificate_is_tls(
    start_server: StartServer, peers: Peers, authority: Authority
) -> None:
    """operations.md §13 14"""
    identity = authority.issue("localhost")
    xml = f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
    server = start_server(transports=(Transport(extra_xml=xml),))
    peers.logged_on(server, tls=authority.client_context())
    plain = peers.open(server)
    plain.send({"c": "logon", "cid": "1", "client_name": "plain", "a": "processed"})
    with pytest.raises((PeerError, OSError)):
        plain.wait_for_ack("processed")


def test_operations_15_client_certificates(
    start_server: StartServer, peers: Peers, authority: Authority, tmp_path: Path
) -> None:
    """operations.md §13 15"""
    other = Authority(_made(tmp_path / "other"), "other authority")
    stranger = Authority(_made(tmp_path / "stranger"), "unknown authority")
    identity = authority.issue("localhost")
    ca_path = _made(tmp_path / "authorities")
    for number, known in enumerate((authority, other)):
        (ca_path / f"{number}.pem").write_bytes(known.certificate.read_bytes())
    xml = (
        f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
        "<VerifyClient>true</VerifyClient>"
    )
    server = start_server(
        transports=(
            Transport("file", type="tcps", extra_xml=f"{xml}<CAFile>{authority.certificate}</CAFile>"),
            Transport("path", type="tcps", extra_xml=f"{xml}<CAPath>{ca_path}</CAPath>"),
        )
    )

    def context(issuer: Authority | None) -> ssl.SSLContext:
        return authority.client_context(issuer.issue("client") if issuer else None)

    for transport, issuer in (("file", authority), ("path", authority), ("path", other)):
        peers.logged_on(server, transport, tls=context(issuer))
    for transport, unknown in (("file", None), ("file", other), ("path", stranger), ("path", None)):
        with pytest.raises((PeerError, OSError)):
            peers.logged_on(server, transport, tls=context(unknown))


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_operations_15_verification_needs_authorities(make_server: StartServer, authority: Authority) -> None:
    """operations.md §13 15"""
    identity = authority.issue("localhost")
    xml = (
        f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
        "<VerifyClient>true</VerifyClient>"
    )
    said = make_server(transports=(Transport(type="tcps", extra_xml=xml),)).start_refused()
    assert "Transport/VerifyClient: VerifyClient needs CAFile or CAPath" in said


def test_operations_16_protocol_versions(
    start_server: StartServer, peers: Peers, authority: Authority
) -> None:
    """operations.md §13 16"""
    identity = authority.issue("localhost")
    xml = f"<Certificate>{identity.certificate}</Certificate><PrivateKey>{identity.private_key}</PrivateKey>"
    server = start_server(
        transports=(
            Transport("default", type="tcps", extra_xml=xml),
            Transport(
                "newest",
                type="tcps",
                extra_xml=f"{xml}<SecureSocketProtocols>TLSv1.3</SecureSocketProtocols>",
            ),
        )
    )
    old = authority.client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    peers.logged_on(server, "default", tls=old)
    peers.logged_on(server, "newest", tls=authority.client_context())
    with pytest.raises((PeerError, OSError)):
        peers.logged_on(server, "newest", tls=old)


def test_operations_17_the_mode_of_a_socket_file(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """operations.md §13 17"""
    path = tmp_path / "s.sock"
    server = start_server(
        transports=(
            Transport("unix", type="amps-unix", socket_path=path, extra_xml="<FileMask>0622</FileMask>"),
        )
    )
    mode = path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o622
    client = peers.logged_on(server, "unix")
    client.subscribe("t", "s")
    client.publish("t", b"1")
    assert client.receive().body == b"1"


def test_operations_18_a_disabled_transport_does_not_listen(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 18, as far as it can be tested without administration"""
    server = start_server(
        transports=(Transport(), Transport("off", extra_xml="<InitialState>disabled</InitialState>"))
    )
    assert refuses("127.0.0.1", server.port("off"))
    peers.logged_on(server)


def test_operations_19_message_types_of_a_transport(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 19"""
    server = start_server(
        transports=(Transport("json", message_type="json"), Transport("any", message_type=None))
    )

    def logon(transport: str, **fields: str) -> tuple[RawClient, bool]:
        client = peers.open(server, transport)
        return client, client.try_logon(peers.new_name(), **fields).succeeded

    assert logon("json")[1]
    assert logon("json", mt="json")[1]
    json_client, _ = logon("any", mt="json")
    fix_client, _ = logon("any", mt="fix")
    for transport, fields in (("json", {"mt": "fix"}), ("any", {}), ("any", {"mt": "morse"})):
        client, succeeded = logon(transport, **fields)
        assert not succeeded
        client.wait_for_close()
    json_client.subscribe("t", "s")
    fix_client.subscribe("t", "s")
    fix_client.publish("t", b"1=a\x01")
    assert fix_client.receive().body == b"1=a\x01"
    json_client.publish("t", b"{}")
    assert json_client.receive().body == b"{}"
