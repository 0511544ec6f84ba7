"""Logging on: protocol.md §6 and the behaviours 5 to 12 of §21."""

import re

import pytest

from tests.support.peer import ConnectionClosed
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, Transport, module_xml, wait_until


def test_protocol_5_logon_acks_received_then_processed(
    peers: Peers, plain_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 5"""
    client = peers.open(plain_server)
    client.send({"c": "logon", "cid": "17", "client_name": unique, "a": "received,processed", "mt": "json"})
    received, processed = client.receive_many(2)
    assert received.is_ack("received", "17")
    assert processed.is_ack("processed", "17")
    assert processed.succeeded
    assert processed["client_name"] == unique
    assert processed.reason == "authentication disabled"
    assert str(processed["version"])
    client.expect_silence()


def test_protocol_5_a_logon_without_ack_request_is_silent(
    peers: Peers, plain_server: ServerProcess, unique: str
) -> None:
    """protocol.md §5: no ack is produced unless `a` asks for it."""
    client = peers.open(plain_server)
    client.send({"c": "logon", "client_name": unique})
    client.expect_silence()


def test_protocol_logon_without_a_log_returns_sequence_zero(
    peers: Peers, plain_server: ServerProcess, unique: str
) -> None:
    """protocol.md §5.2, D38: `s` 0 and `bm` `<hash>|0|` also without a log."""
    client = peers.open(plain_server)
    ack = client.logon(unique)
    assert ack["s"] == 0
    name_hash, sequence, end = str(ack["bm"]).split("|")
    assert name_hash.isdigit()
    assert (sequence, end) == ("0", "")


def test_protocol_6_logon_returns_the_last_sequence_of_the_name(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §21 6"""
    first = peers.open(logged_server)
    ack = first.logon(unique)
    assert ack["s"] == 0
    name_hash = str(ack["bm"]).split("|")[0]
    assert name_hash.isdigit()
    assert str(ack["bm"]) == f"{name_hash}|0|"
    first.publish_persisted(recorded_topic, [b"%d" % n for n in range(1, 6)], 1)
    first.close()
    again = peers.open(logged_server).logon(unique)
    assert again["s"] == 5
    assert again["bm"] == f"{name_hash}|5|"


def test_protocol_7_a_second_logon_is_refused_and_the_connection_stays(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 7, §6 D11"""
    client = peers.logged_on(plain_server)
    second = client.try_logon(peers.new_name())
    assert second.failed
    assert second.reason == "duplicate logon"
    client.subscribe(topic, "s")
    client.publish(topic, b"1")
    assert client.receive().body == b"1"


def test_protocol_7_implicit_logon_takes_any_first_command(
    peers: Peers, implicit_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 7 (I): afterwards every logon is rejected."""
    client = peers.open(implicit_server)
    client.subscribe(topic, "s")
    later = client.try_logon(peers.new_name())
    assert later.failed
    assert later.reason == "duplicate logon"
    client.publish(topic, b"1")
    assert client.receive().body == b"1"


def test_protocol_7_logon_without_requirement(
    peers: Peers, require_no_logon_server: ServerProcess, topic: str
) -> None:
    """protocol.md §6 rule 1: `RequireLogon` `false` permits implicit logons."""
    client = peers.open(require_no_logon_server)
    client.subscribe(topic, "s")


def test_protocol_8_a_first_command_that_is_no_logon_closes(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 8, §6 D11: the requested ack first, then the end, reason `auth`."""
    ended_before = len(plain_server.log.find("07-0013", "auth"))
    client = peers.open(plain_server)
    client.send({"c": "subscribe", "t": topic, "cid": "1", "a": "processed", "sub_id": "s"})
    acks = client.wait_for_close()
    assert [(ack["cid"], ack["status"], ack.reason) for ack in acks] == [("1", "failure", "logon required")]
    plain_server.log.wait_for("07-0013", "auth", count=ended_before + 1)


def test_protocol_8_nothing_before_the_logon_takes_effect(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §6 rule 2: a publish before the logon reaches no subscriber."""
    subscriber = peers.logged_on(plain_server)
    subscriber.subscribe(topic, "s")
    stranger = peers.open(plain_server)
    stranger.publish(topic, b"early")
    assert stranger.wait_for_close() == []
    subscriber.publish(topic, b"late")
    assert subscriber.receive().body == b"late"


@pytest.mark.parametrize("fields", [{}, {"mt": "nosuch"}, {"mt": ""}], ids=["none", "unknown", "empty"])
def test_protocol_9_an_any_type_transport_needs_a_known_type(
    peers: Peers, plain_server: ServerProcess, unique: str, fields: dict[str, str]
) -> None:
    """protocol.md §21 9 (A), D11"""
    client = peers.open(plain_server, "any")
    ack = client.try_logon(unique, **fields)
    assert ack.failed
    assert ack.reason == "invalid message type"
    with pytest.raises(ConnectionClosed):
        client.receive()


def test_protocol_9_a_typed_transport_refuses_other_types(
    peers: Peers, plain_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 9 (J)"""
    client = peers.open(plain_server)
    ack = client.try_logon(unique, mt="nvfix")
    assert ack.failed
    assert ack.reason == "invalid message type"
    with pytest.raises(ConnectionClosed):
        client.receive()
    peers.logged_on(plain_server)
    peers.logged_on(plain_server, mt="json")


@pytest.mark.parametrize(
    "message_type", ["json", "nvfix", "fix", "xml", "bson", "bflat", "msgpack", "binary"]
)
def test_protocol_9_every_default_type_may_be_named(
    peers: Peers, plain_server: ServerProcess, message_type: str
) -> None:
    """protocol.md §1: the types declared by default."""
    peers.logged_on(plain_server, "any", mt=message_type)


def test_protocol_9_equal_topics_of_different_types_are_different(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §1"""
    json_client = peers.logged_on(plain_server, "any", mt="json")
    fix_client = peers.logged_on(plain_server, "any", mt="fix")
    for client in (json_client, fix_client):
        client.subscribe(topic, "s")
    fix_client.publish(topic, b"fix")
    json_client.publish(topic, b"json")
    assert json_client.receive().body == b"json"
    assert fix_client.receive().body == b"fix"


@pytest.fixture(scope="module")
def transports_server(start_module_server: StartServer) -> ServerProcess:
    """One instance whose transports differ in authentication and entitlement."""
    return start_module_server(
        transports=(
            Transport("open"),
            Transport(
                "closed", extra_xml=module_xml("Authentication", "amps-default-no-authentication-module")
            ),
            Transport(
                "unentitled", extra_xml=module_xml("Entitlement", "amps-default-no-entitlement-module")
            ),
            Transport(
                "named",
                extra_xml=module_xml(
                    "Authentication", "amps-default-authentication-module", RequireUsername="true"
                ),
            ),
        )
    )


@pytest.fixture(scope="module")
def require_no_logon_server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(
        authentication_xml=module_xml(
            "Authentication", "amps-default-authentication-module", RequireLogon="false"
        )
    )


def test_protocol_10_refused_authentication_closes(
    peers: Peers, transports_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 10, §13: `auth failure`, disconnect reason `auth`."""
    client = peers.open(transports_server, "closed")
    ack = client.try_logon(unique)
    assert ack.failed
    assert ack.reason == "auth failure"
    with pytest.raises(ConnectionClosed):
        client.receive()
    transports_server.log.wait_for("07-0013", "auth")
    peers.logged_on(transports_server, "open")


def test_protocol_10_logon_without_permission_closes(
    peers: Peers, transports_server: ServerProcess, unique: str
) -> None:
    """protocol.md §6 rule 2: authenticated but not permitted: disconnect reason `entitlement`."""
    client = peers.open(transports_server, "unentitled")
    ack = client.try_logon(unique)
    assert ack.failed
    assert ack.reason == "not entitled"
    with pytest.raises(ConnectionClosed):
        client.receive()
    transports_server.log.wait_for("07-0013", "entitlement")


def test_protocol_10_a_required_user_name(
    peers: Peers, transports_server: ServerProcess, unique: str
) -> None:
    """operations.md §8.2: `RequireUsername`."""
    ack = peers.open(transports_server, "named").try_logon(unique)
    assert ack.failed
    assert ack.reason == "auth failure"
    assert peers.open(transports_server, "named").try_logon(unique, user_id="ana").succeeded


def test_protocol_11_the_publishers_identity_is_delivered(
    peers: Peers, spoofing_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 11 (U)"""
    subscriber = peers.logged_on(spoofing_server)
    subscriber.subscribe(topic, "s")
    peers.logged_on(spoofing_server, user_id="ana", pw="any").publish(topic, b"1")
    assert subscriber.receive()["user_id"] == "ana"


def test_protocol_11_the_default_module_hides_the_user_name(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 11 (J): the identity is the empty string."""
    subscriber = peers.logged_on(plain_server)
    subscriber.subscribe(topic, "s")
    peers.logged_on(plain_server, user_id="ana").publish(topic, b"1")
    assert "user_id" not in subscriber.receive()


def test_protocol_11_the_identity_is_replayed(
    peers: Peers, spoofing_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §12.1: identity and correlation id belong to the message, live or replayed."""
    publisher = peers.logged_on(spoofing_server, user_id="ana")
    publisher.publish(recorded_topic, b"1", s=1, x="abc+/=", a="persisted")
    publisher.wait_for_persisted(1)
    subscriber = peers.logged_on(spoofing_server, user_id="bob")
    subscriber.subscribe(recorded_topic, "s", bm="0")
    replayed = subscriber.receive()
    assert (replayed["user_id"], replayed["x"]) == ("ana", "abc+/=")


def test_protocol_12_the_same_user_takes_its_name_over(
    peers: Peers, logged_server: ServerProcess, topic: str, unique: str
) -> None:
    """protocol.md §21 12 (T)"""
    first = peers.logged_on(logged_server, name=unique)
    second = peers.logged_on(logged_server, name=unique)
    (told,) = first.wait_for_close()
    assert told.header == {
        "c": "ack",
        "a": "processed",
        "status": "failure",
        "reason": "name in use",
        "client_name": unique,
        "detail": "another client of this name has logged on",
    }
    logged_server.log.wait_for("02-0025", unique)
    logged_server.log.wait_for("07-0013", unique, "name in use")
    second.subscribe(topic, "s")
    second.publish(topic, b"1")
    assert second.receive().body == b"1"


def test_protocol_12_take_overs_without_end_leave_a_few_records(
    peers: Peers, logged_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 12 (T): the first is logged at once, and later the number of further ones, on any worker."""
    for _ in range(24):
        peers.logged_on(logged_server, name=unique)
    more = logged_server.log.wait_for("02-0027", unique, timeout_s=60)
    assert "Give each client a name of its own" in more[0].text

    def counted() -> int:
        found = logged_server.log.find("02-0027", unique)
        return sum(int(re.search(r"(\d+) more times", record.text)[1]) for record in found)  # type: ignore[index]

    wait_until(lambda: counted() == 22, 60, "not all of them are counted")
    assert len(logged_server.log.find("02-0025", unique)) == 1


def test_protocol_12_take_overs_not_logged_yet_are_logged_at_a_stop(
    peers: Peers, start_server: StartServer, unique: str
) -> None:
    """protocol.md §21 12 (T)"""
    server = start_server(log_topics=[".*"])
    for _ in range(5):
        peers.logged_on(server, name=unique)
    server.stop()
    assert len(server.log.find("02-0025", unique)) == 1
    (more,) = server.log.find("02-0027", unique)
    assert "3 more times" in more.text


def test_protocol_12_a_name_can_be_taken_over_again_and_again(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §21 12 (T): with messages on the way each time, whichever worker has the connection."""
    for number in range(1, 11):
        client = peers.logged_on(logged_server, name=unique)
        client.publish(recorded_topic, b"%d" % number, s=number, a="persisted")
        if number % 2:
            client.wait_for_persisted(number)
    client.wait_for_persisted(10)
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    client.publish(recorded_topic, b"end", s=11)
    bodies = [message.body for message in subscriber.receive_until(b"end")]
    assert set(bodies) >= {b"1", b"3", b"5", b"7", b"9"}, "an acknowledged message is missing"
    assert bodies == sorted(set(bodies), key=int)


def test_protocol_12_another_user_may_not_take_the_name(
    peers: Peers, spoofing_server: ServerProcess, topic: str, unique: str
) -> None:
    """protocol.md §21 12 (T+U)"""
    first = peers.logged_on(spoofing_server, name=unique, user_id="ana")
    second = peers.open(spoofing_server)
    ack = second.try_logon(unique, user_id="bob")
    assert ack.failed
    assert ack.reason == "name in use"
    with pytest.raises(ConnectionClosed):
        second.receive()
    first.subscribe(topic, "s")
    first.publish(topic, b"1")
    assert first.receive().body == b"1"


def test_protocol_12_a_name_is_free_when_its_owner_has_gone(
    peers: Peers, spoofing_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 12 (T+U): also for another user."""
    peers.logged_on(spoofing_server, name=unique, user_id="ana").close()
    spoofing_server.log.wait_for("07-0013", unique)
    wait_until(
        lambda: peers.open(spoofing_server).try_logon(unique, user_id="bob").succeeded,
        10,
        "the name stays with a client that has gone",
    )


def test_protocol_12_without_a_log_equal_names_live_side_by_side(
    peers: Peers, plain_server: ServerProcess, topic: str, unique: str
) -> None:
    """protocol.md §21 12 (J)"""
    clients = [peers.logged_on(plain_server, name=unique) for _ in range(3)]
    for client in clients:
        client.subscribe(topic, "s")
    clients[0].publish(topic, b"1")
    assert [client.receive().body for client in clients] == [b"1"] * 3


@pytest.mark.parametrize("options", ["none", "", "ack_conflation=100ms", "pretty", "pretty=true", "none,"])
def test_protocol_logon_options_are_accepted(
    peers: Peers, logged_server: ServerProcess, options: str
) -> None:
    """protocol.md §6: the logon options."""
    peers.logged_on(logged_server, o=options)


@pytest.mark.parametrize("options", ["bogus", "ack_conflation=soon", "oof", "ack_conflation="])
def test_protocol_unknown_logon_options_fail(
    peers: Peers, logged_server: ServerProcess, unique: str, options: str
) -> None:
    """protocol.md §10: an unknown option fails the command."""
    ack = peers.open(logged_server).try_logon(unique, o=options)
    assert ack.failed
    assert ack.reason == "invalid options"


def test_protocol_logon_is_logged_with_its_details(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """operations.md §6.4: record 1F-0004."""
    first = peers.logged_on(logged_server, name=unique)
    first.publish_persisted(recorded_topic, [b"1", b"2", b"3"], 1)
    first.close()
    peers.logged_on(logged_server, name=unique, x="corr+1")
    first_record, second_record = logged_server.log.wait_for("1F-0004", unique, count=2)
    assert f"AMPS client session logon for: {unique}" in first_record.text
    for label in ("client authid = ''", "client name hash", "client version", "last acked client seq"):
        assert label in first_record.text
    assert "corr+1" in second_record.text


def test_protocol_trace_shows_commands_and_acks(start_server: StartServer, peers: Peers, topic: str) -> None:
    """operations.md §6.4: 12-0010, 12-0001 and 17-0002 at level trace."""
    server = start_server(log_level="trace")
    client = peers.logged_on(server)
    client.publish(topic, b'{"secret":1}', cid="c9", a="processed")
    client.wait_for_ack("processed", "c9")
    server.log.wait_for("12-0010", client.client_name)
    server.log.wait_for("12-0001", client.client_name, topic, '{"secret":1}')
    server.log.wait_for("17-0002", client.client_name, "c9")
