"""Switching authentication and entitlement while the server runs, by signals and actions (operations.md §8.3)."""

import signal
from collections.abc import Iterator

import pytest

from tests.support.admin import get
from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, do, echo, on

MODULES = "<Module><Name>simple</Name><Library>libamps_simple_access_entitlement.so</Library></Module>"
ENTITLEMENT = (
    "<Entitlement><Module>simple</Module><Options><DeniedTopics>^secret|^/amps/administrator</DeniedTopics></Options>"
    "</Entitlement>"
)
NOBODY = "<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>"
NAMED = (
    "<Authentication><Module>amps-default-authentication-module</Module>"
    "<Options><RequireUsername>true</RequireUsername><AllowSpoofing>true</AllowSpoofing></Options></Authentication>"
)


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


def send(server: ServerProcess, number: int) -> None:
    """Send a signal that switches both, and wait until the supervisor has processed it."""
    before = len(server.log.find("25-0004"))
    assert server.process is not None
    server.process.send_signal(number)
    server.log.wait_for("25-0004", count=before + 1)


def may_subscribe(client: RawClient, topic: str) -> bool:
    return client.try_subscribe(topic).succeeded


def may_publish(client: RawClient, topic: str) -> bool:
    client.send({"c": "publish", "t": topic, "a": "processed", "cid": client.new_id()}, b"{}")
    return client.wait_for_ack("processed").succeeded


def wait_for(condition: object, what: str) -> None:
    assert callable(condition)
    wait_until(condition, 20, what)


def test_operations_61_entitlement_by_signals(start_server: StartServer, peers: Peers) -> None:
    """operations.md §13 61: SIGUSR1 lets a denied user act. After SIGUSR2 new commands are denied again, while the
    subscription made in between keeps delivering.
    """
    publish = do("publish-message", Topic="secret/a", MessageType="json", Data='{"by":"the server"}')
    server = start_server(
        modules_xml=MODULES,
        entitlement_xml=ENTITLEMENT,
        instance_xml=f"<Actions>{action(on('signal', Signal='SIGALRM'), publish)}</Actions>",
    )
    client, writer = peers.logged_on(server), peers.logged_on(server)
    assert not may_subscribe(client, "secret/a")
    assert not may_publish(writer, "secret/a")
    send(server, signal.SIGUSR1)
    wait_for(lambda: may_publish(writer, "secret/a"), "still denied")
    wait_for(lambda: may_subscribe(client, "secret/a"), "still denied")
    writer.publish("secret/a", b'{"n":1}')
    client.receive_until(b'{"n":1}')
    send(server, signal.SIGUSR2)
    wait_for(lambda: not may_publish(writer, "secret/a"), "still allowed")
    wait_for(lambda: not may_subscribe(peers.logged_on(server), "secret/a"), "still allowed")
    assert may_publish(writer, "open")
    assert server.process is not None
    server.process.send_signal(signal.SIGALRM)
    client.receive_until(b'{"by":"the server"}')
    assert [record.text for record in server.log.find("25-0004")] == [
        "entitlement disabled.",
        "entitlement enabled.",
    ]


def test_operations_9_4_authentication_by_signals(start_server: StartServer, peers: Peers) -> None:
    """operations.md §9.4, §8.3: all clients may log on; after SIGUSR2 no new client may, and connected ones stay."""
    server = start_server(authentication_xml=NOBODY)

    def logs_on() -> bool:
        return peers.open(server).try_logon(peers.new_name()).succeeded

    assert not logs_on()
    send(server, signal.SIGUSR1)
    wait_for(logs_on, "still refused")
    client = peers.logged_on(server)
    send(server, signal.SIGUSR2)
    wait_for(lambda: not logs_on(), "still let in")
    assert may_publish(client, "t")


def test_an_authenticated_name_is_kept_while_authentication_is_off(
    start_server: StartServer, peers: Peers
) -> None:
    """The module is still called: a client that it would accept has its identity, a client that it would refuse has
    none.
    """
    server = start_server(authentication_xml=NAMED)
    send(server, signal.SIGUSR1)
    wait_for(lambda: peers.open(server).try_logon(peers.new_name()).succeeded, "still refused")
    peers.logged_on(server, name="somebody", user_id="me")
    server.log.wait_for("1F-0004", "logon for: somebody\nclient authid = 'me'")


def test_replaced_processes_keep_the_switched_state(
    start_server: StartServer, peers: Peers, port: int
) -> None:
    server = start_server(
        transport_workers=1,
        modules_xml=MODULES,
        entitlement_xml=ENTITLEMENT,
        instance_xml=f"<Admin><InetAddr>{port}</InetAddr></Admin>",
    )
    assert get(port, "/amps/administrator").status == 403
    send(server, signal.SIGUSR1)
    wait_for(lambda: get(port, "/amps/administrator").status == 200, "still denied")
    old = [server.transport_pid(0), *server.pids("amps: services")]
    for pid in old:
        server.kill_process(pid)
    server.wait_for_new_tree(old)
    wait_for(lambda: is_status(port, 200), "denied by the new process")
    client = peers.logged_on(server)
    wait_for(lambda: may_publish(client, "secret/a"), "denied by the new process")
    send(server, signal.SIGUSR2)
    wait_for(lambda: is_status(port, 403), "still allowed")
    wait_for(lambda: not may_publish(client, "secret/a"), "still allowed")


def is_status(port: int, status: int) -> bool:
    try:
        return get(port, "/amps/administrator").status == status
    except OSError:
        return False


def test_operations_9_3_switching_by_actions(start_server: StartServer, peers: Peers) -> None:
    """operations.md §9.3, §9.4: the actions do the same; an explicit one takes the place of the signal's default."""
    server = start_server(
        modules_xml=MODULES,
        entitlement_xml=ENTITLEMENT,
        instance_xml="<Actions>"
        + action(on("signal", Signal="SIGUSR1"), echo("nothing else"))
        + action(on("signal", Signal="SIGUSR2"), do("disable-entitlements"), do("disable-authentication"))
        + action(on("signal", Signal="SIGALRM"), do("enable-entitlement"), do("enable-authentication"))
        + "</Actions>",
    )
    client = peers.logged_on(server)
    assert server.process is not None
    server.process.send_signal(signal.SIGUSR1)
    server.log.wait_for("29-0001", "nothing else")
    assert not may_publish(client, "secret/a")
    assert not server.log.find("25-0004")
    server.process.send_signal(signal.SIGUSR2)
    server.log.wait_for("25-0003", "authentication disabled")
    wait_for(lambda: may_publish(client, "secret/a"), "still denied")
    server.process.send_signal(signal.SIGALRM)
    server.log.wait_for("25-0003", "authentication enabled")
    wait_for(lambda: not may_publish(client, "secret/a"), "still allowed")


def test_entitlement_is_enabled_at_every_start(start_server: StartServer, peers: Peers) -> None:
    """operations.md §8.3"""
    server = start_server(modules_xml=MODULES, entitlement_xml=ENTITLEMENT)
    send(server, signal.SIGUSR1)
    server.restart()
    assert not may_publish(peers.logged_on(server), "secret/a")
