"""The administration interface of a running server: its addresses and its contents (operations.md §4, §5)."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.version import VERSION
from tests.support.admin import get
from tests.support.certificates import Authority
from tests.support.peers import Peers
from tests.support.ports import has_ipv6, release_port, reserve_port
from tests.support.server import StartServer, wait_until


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def admin(address: object, more: str = "") -> str:
    return f"<Admin><InetAddr>{address}</InetAddr>{more}</Admin>"


def can_connect(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def test_operations_13_a_port_alone_is_for_this_host(start_server: StartServer, port: int) -> None:
    """operations.md §4, §13 13: 127.0.0.1 and ::1, and no other address of the host."""
    server = start_server(instance_xml=admin(port))
    assert get(port, "/amps/instance/name").body == "Test"
    if has_ipv6():
        assert get(port, "/amps/instance/name", host="::1").body == "Test"
    assert not can_connect("127.0.0.2", port)
    assert server.log.find("19-0001", f"127.0.0.1:{port}")


def test_operations_4_an_address_is_taken_as_it_is_written(start_server: StartServer, port: int) -> None:
    """operations.md §4"""
    start_server(instance_xml=admin(f"0.0.0.0:{port}"))
    assert can_connect("127.0.0.2", port)


def test_operations_12_an_address_in_use_keeps_the_server_from_starting(
    make_server: StartServer, port: int
) -> None:
    """operations.md §13 12"""
    with socket.create_server(("127.0.0.1", port)):
        said = make_server(instance_xml=admin(port)).start_refused()
    assert f"transport amps-admin cannot listen on 127.0.0.1:{port}" in said


@pytest.mark.skipif(not has_ipv6(), reason="the host has no IPv6")
def test_operations_12_half_an_address_in_use_does_too(make_server: StartServer, port: int) -> None:
    """operations.md §13 12: otherwise clients that use the other address would reach another server."""
    with socket.create_server(("::1", port), family=socket.AF_INET6):
        said = make_server(instance_xml=admin(port)).start_refused()
    assert f"transport amps-admin cannot listen on [::1]:{port}" in said


def test_operations_7_the_configuration_is_that_of_the_start(start_server: StartServer, port: int) -> None:
    """operations.md §13 7: includes and variables expanded; editing the file changes nothing."""
    server = start_server(
        instance_xml=admin(port) + "<Description>${ABOUT}</Description>",
        environment={"ABOUT": "what it is for"},
    )
    (server.directory / "config.xml").write_text("edited")
    shown = get(port, "/amps/instance/config.xml").body
    assert "<Description>what it is for</Description>" in shown
    instance = get(port, "/amps/instance.json").json()["amps"]["instance"]
    assert instance["description"] == "what it is for"
    assert instance["config_path"] == str(server.directory / "config.xml")
    assert instance["version"] == VERSION
    assert server.process is not None
    assert instance["pid"] == str(server.process.pid)
    assert Path(instance["cwd"]) == server.directory.resolve()


def test_operations_4_https(start_server: StartServer, port: int, authority: Authority) -> None:
    """operations.md §4"""
    issued = authority.issue("localhost")
    xml = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    start_server(instance_xml=admin(port, xml))
    context = ssl.create_default_context(cafile=str(authority.certificate))
    assert get(port, "/amps/instance/name", host="localhost", tls=context).body == "Test"


def test_operations_1_a_file_with_a_name_only_serves_nothing(start_server: StartServer) -> None:
    """operations.md §13 1: without work for it, the services process does not exist."""
    server = start_server()
    assert server.pids("amps: services") == []


def test_many_requests_delay_no_client(start_server: StartServer, peers: Peers, port: int) -> None:
    """Idle connections are closed; clients of the server are not affected."""
    server = start_server(log_topics=("^L/",), instance_xml=admin(port))
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(150)]
    try:
        client = peers.logged_on(server)
        client.publish("L/a", b"{}", s=1, a="persisted")
        client.wait_for_persisted(1)
        server.log.wait_for("19-0004", "connections already")
    finally:
        for connection in idle:
            connection.close()

    def served() -> bool:
        try:
            return get(port, "/amps/instance/name").status == 200
        except OSError:
            return False

    wait_until(served, 20, "not served again")
