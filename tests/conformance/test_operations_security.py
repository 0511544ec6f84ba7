"""Default security modules: operations.md §8.2, §8.3, §9.4 and the behaviours 54, 55 and 62 of §13."""

import pytest

from tests.support.peers import Peers
from tests.support.server import StartServer, loaded_module_xml, module_xml

DEFAULT = "amps-default-authentication-module"


def test_operations_54_any_client_logs_on_with_an_empty_identity(
    start_server: StartServer, peers: Peers, unique: str
) -> None:
    """operations.md §13 54"""
    server = start_server()
    client = peers.open(server)
    ack = client.try_logon(unique, user_id="somebody", pw="anything")
    assert ack.succeeded
    record = server.log.wait_for("1F-0004", unique)[0]
    assert "client authid = ''" in record.text


def test_operations_54_a_command_before_logon_closes_the_connection(
    start_server: StartServer, peers: Peers
) -> None:
    """operations.md §13 54"""
    server = start_server()
    client = peers.open(server)
    client.send({"c": "subscribe", "cid": "1", "t": "a", "a": "processed"})
    client.wait_for_close()
    assert server.log.wait_for("07-0013", "auth")


@pytest.mark.parametrize(
    "authentication",
    [
        module_xml("Authentication", DEFAULT, RequireLogon="false"),
        module_xml("Authentication", "amps-implicit-authentication-module"),
    ],
)
def test_operations_54_implicit_logon(start_server: StartServer, peers: Peers, authentication: str) -> None:
    """operations.md §13 54"""
    server = start_server(authentication_xml=authentication)
    client = peers.open(server)
    assert client.subscribe("a", "s").succeeded
    client.publish("a", b"1")
    assert client.receive().body == b"1"


def test_operations_54_spoofing_and_required_names(
    start_server: StartServer, peers: Peers, unique: str
) -> None:
    """operations.md §13 54"""
    server = start_server(
        authentication_xml=module_xml("Authentication", DEFAULT, AllowSpoofing="true", RequireUsername="true")
    )
    assert peers.open(server).try_logon(unique, user_id="ana").succeeded
    assert "client authid = 'ana'" in server.log.wait_for("1F-0004", unique)[0].text
    nameless = peers.open(server)
    ack = nameless.try_logon(f"{unique}-2")
    assert ack.failed
    nameless.wait_for_close()
    assert server.log.wait_for("07-0013", "auth")


def test_operations_55_refusing_modules(start_server: StartServer, peers: Peers, unique: str) -> None:
    """operations.md §13 55"""
    server = start_server(
        authentication_xml=module_xml("Authentication", "amps-default-no-authentication-module")
    )
    client = peers.open(server)
    assert client.try_logon(unique, user_id="ana", pw="x").failed
    client.wait_for_close()
    assert server.log.wait_for("07-0013", "Reason: auth.")


def test_operations_55_no_entitlement(start_server: StartServer, peers: Peers, unique: str) -> None:
    """operations.md §13 55"""
    server = start_server(entitlement_xml=module_xml("Entitlement", "amps-default-no-entitlement-module"))
    client = peers.open(server)
    ack = client.try_logon(unique)
    assert ack.failed
    assert ack.reason == "not entitled"
    client.wait_for_close()
    assert server.log.wait_for("07-0013", "Reason: entitlement.")


def test_operations_8_a_transport_has_modules_of_its_own(start_server: StartServer, peers: Peers) -> None:
    """operations.md §8.1: the transport's module comes before the instance's."""
    from tests.support.server import Transport

    closed = module_xml("Entitlement", "read only")
    server = start_server(
        modules_xml=loaded_module_xml("read only", "libamps_simple_access_entitlement.so"),
        transports=(
            Transport("open"),
            Transport(
                "reading",
                extra_xml=closed.replace(
                    "</Entitlement>",
                    "<Options><AllowedTopics>^a</AllowedTopics><GrantedPermissions>read</GrantedPermissions></Options>"
                    "</Entitlement>",
                ),
            ),
        ),
    )
    writer = peers.logged_on(server, "open")
    reader = peers.logged_on(server, "reading")
    assert reader.try_subscribe("b", "no").reason == "not entitled"
    assert reader.subscribe("a", "yes").succeeded
    reader.publish("a", b"refused")
    reader.flush()
    writer.publish("a", b"passed")
    assert reader.receive().body == b"passed"


def test_operations_62_one_name_one_user(start_server: StartServer, peers: Peers, unique: str) -> None:
    """operations.md §13 62"""
    server = start_server(
        log_topics=("^L/",), authentication_xml=module_xml("Authentication", DEFAULT, AllowSpoofing="true")
    )
    first = peers.logged_on(server, name=unique, user_id="ana")
    second = peers.logged_on(server, name=unique, user_id="ana")
    first.wait_for_close()
    assert server.log.wait_for("02-0025", unique)
    assert server.log.wait_for("07-0013", unique, "name in use")
    third = peers.open(server)
    ack = third.try_logon(unique, user_id="bob")
    assert ack.failed
    assert ack.reason == "name in use"
    third.wait_for_close()
    second.flush()


def test_operations_62_names_are_free_without_a_log(
    start_server: StartServer, peers: Peers, unique: str
) -> None:
    """operations.md §13 62"""
    server = start_server()
    first = peers.logged_on(server, name=unique)
    second = peers.logged_on(server, name=unique)
    first.flush()
    second.flush()
