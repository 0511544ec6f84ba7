"""Permission per transport: protocol.md §8, §13, operations.md §8.3 and §8.5, transaction_log.md §7.3."""

import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.server import (
    ServerProcess,
    StartServer,
    Transport,
    loaded_module_xml,
    module_xml,
    numbered_bodies,
)


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    """Transport `open` permits everything, `limited` denies topics that match `secret`, `reader` permits reading
    only.
    """
    return start_module_server(
        log_topics=("^L/",),
        modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
        transports=(
            Transport("open"),
            Transport("limited", extra_xml=module_xml("Entitlement", "simple", DeniedTopics="secret")),
            Transport(
                "reader",
                extra_xml=module_xml(
                    "Entitlement", "simple", AllowedTopics="^L/|^plain/", GrantedPermissions="read"
                ),
            ),
        ),
    )


def test_protocol_22_a_replay_skips_topics_without_permission(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §7.3: checked per topic, in replay and live; also when the first match is denied."""
    publisher = peers.logged_on(server, "open")
    for name in ("secret", "public"):
        publisher.publish(f"{recorded_topic}/{name}", b"old " + name.encode())
    publisher.flush("persisted")
    limited = peers.logged_on(server, "limited")
    limited.subscribe(f"^{recorded_topic}/", "replay", bm="0")
    for name in ("secret", "public"):
        publisher.publish(f"{recorded_topic}/{name}", b"new " + name.encode())
    assert bodies_of(limited.receive_published(2)) == [b"old public", b"new public"]
    unlimited = peers.logged_on(server, "open")
    unlimited.subscribe(f"^{recorded_topic}/", "replay", bm="0")
    assert len(unlimited.receive_published(4)) == 4
    limited.expect_silence()


@pytest.mark.parametrize("bookmark", [{}, {"bm": "0"}, {"bm": "0|1|"}])
def test_protocol_22_a_literal_topic_without_permission_is_refused(
    peers: Peers, server: ServerProcess, recorded_topic: str, bookmark: dict[str, str]
) -> None:
    """protocol.md §8, transaction_log.md §7.3"""
    limited = peers.logged_on(server, "limited")
    for command in ("subscribe", "sow_and_subscribe") if not bookmark else ("subscribe",):
        ack = limited.request({"c": command, "t": f"{recorded_topic}/secret", **bookmark})
        assert (ack["status"], ack.reason) == ("failure", "not entitled")


def test_protocol_22_permissions_are_of_the_transport(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """operations.md §8.5: `GrantedPermissions` `read`; other transports are not affected."""
    reader, writer = peers.logged_on(server, "reader"), peers.logged_on(server, "open")
    reader.subscribe(topic, "s")
    for wanted in ("processed", "persisted"):
        ack = reader.request({"c": "p", "t": topic}, b"no", ack=wanted)
        assert (ack["status"], ack.reason) == ("failure", "not entitled")
    refused = reader.try_subscribe(f"other/{topic}", "no")
    assert (refused["status"], refused.reason) == ("failure", "not entitled")
    writer.publish(topic, b"yes")
    assert reader.receive().body == b"yes"
    reader.expect_silence()


def test_protocol_30_a_subscription_replaced_without_permission_gets_nothing(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 30, §8.2: the replacement succeeds, and delivers no message of a denied topic."""
    limited, writer = peers.logged_on(server, "limited"), peers.logged_on(server, "open")
    limited.subscribe(topic, "s")
    limited.subscribe(f"{topic}/public", "other")
    assert limited.try_subscribe(f"{topic}/secret", "s", o="replace").succeeded
    for name in (topic, f"{topic}/secret", f"{topic}/public"):
        writer.publish(name, name.encode())
    assert limited.receive().body == f"{topic}/public".encode()
    limited.expect_silence()


def test_protocol_22_a_refused_publish_is_silent_without_an_ack_request(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §13: and leaves neither a message nor a used sequence number behind."""
    reader = peers.logged_on(server, "reader")
    reader.publish_all(recorded_topic, numbered_bodies(5), first_sequence=1)
    reader.expect_silence()
    reader.subscribe(recorded_topic, "s", bm="0")
    writer = peers.logged_on(server, "open")
    writer.publish(recorded_topic, b"1", s=1)
    assert bodies_of(reader.receive_published(1)) == [b"1"]
