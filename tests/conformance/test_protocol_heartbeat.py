"""Heartbeats: protocol.md §15 and behaviour 65 of §21."""

import contextlib
import time

import pytest

from tests.support.peer import ConnectionClosed, Message, RawClient, Silence
from tests.support.peers import Peers
from tests.support.server import ServerProcess


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


def beats_until_close(client: RawClient, witness: RawClient) -> tuple[list[Message], int]:
    """Return the messages that a silent client receives until the server closes its connection, and the number of
    heartbeats that a witness received and answered meanwhile.
    """
    received: list[Message] = []
    answered = 0
    while answered < 10:
        try:
            received.append(client.receive(timeout_s=0.05))
        except Silence:
            pass
        except ConnectionClosed:
            return received, answered
        with contextlib.suppress(Silence):
            assert witness.receive(timeout_s=0.05).header == {"c": "heartbeat"}
            witness.send({"c": "heartbeat", "o": "beat"})
            answered += 1
    raise AssertionError(f"still connected; it got {[message.header for message in received]}")


def test_protocol_65_a_silent_client_is_disconnected(
    peers: Peers, client: RawClient, plain_server: ServerProcess
) -> None:
    """protocol.md §21 65: heartbeats come, nothing goes back, reason `heartbeat`.

    The delay is measured in heartbeats, of which the server sends one in each interval. The connection is closed
    after two of them, or after one on a machine that halts for an interval. A client that answers gets at most four
    by then.
    """
    witness = peers.logged_on(plain_server)
    started = time.monotonic()
    for each in (client, witness):
        each.send({"c": "heartbeat", "o": "start,1"})
    (*received, told), answered = beats_until_close(client, witness)
    assert (told["status"], told.reason) == ("failure", "heartbeat")
    assert 1 <= len(received) <= 2
    assert all(message.header == {"c": "heartbeat"} for message in received)
    assert time.monotonic() - started > 2.9  # one interval until the first heartbeat, two for its answer
    assert answered <= 4
    plain_server.log.wait_for("07-0013", client.client_name, "heartbeat")
    plain_server.log.wait_for("07-0042", client.client_name)


@pytest.mark.parametrize(
    "answer", [{"c": "heartbeat", "o": "beat"}, {"c": "p", "t": "nobody"}, {"c": "flush"}]
)
def test_protocol_65_any_command_is_a_sign_of_life(client: RawClient, answer: dict[str, str]) -> None:
    """protocol.md §21 65, §15: `beat`, or any other command, keeps the connection."""
    client.send({"c": "heartbeat", "o": "start,500ms"})
    for _ in range(4):  # three intervals without an answer would end it
        assert client.receive().header == {"c": "heartbeat"}
        client.send(answer)
    client.send({"c": "heartbeat", "o": "stop"})


def test_protocol_65_no_heartbeats_while_messages_flow(
    peers: Peers, plain_server: ServerProcess, client: RawClient, topic: str
) -> None:
    """protocol.md §21 65"""
    client.subscribe(topic, "s")
    client.send({"c": "heartbeat", "o": "start,2"})
    publisher = peers.logged_on(plain_server)
    for number in range(60):
        publisher.publish(topic, b"%d" % number)
        if number % 10 == 0:
            client.send({"c": "heartbeat", "o": "beat"})
        time.sleep(0.05)
    publisher.publish(topic, b"end")
    assert [m.body for m in client.receive_until(b"end")] == [b"%d" % number for number in range(60)]


def test_protocol_65_without_heartbeats_a_client_need_not_answer(
    peers: Peers, plain_server: ServerProcess, client: RawClient, topic: str
) -> None:
    """protocol.md §15: a subscriber sends nothing but answers to heartbeats; while messages flow there are no
    heartbeats.
    """
    client.subscribe(topic, "s")
    client.send({"c": "heartbeat", "o": "start,500ms"})
    publisher = peers.logged_on(plain_server)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        publisher.publish(topic, b"x")
        while (message := client.receive()).header == {"c": "heartbeat"}:
            client.send({"c": "heartbeat", "o": "beat"})
        assert message.body == b"x"
        time.sleep(0.05)


@pytest.mark.parametrize("stop", ["stop", "start,0"])
def test_protocol_65_heartbeats_can_be_stopped(client: RawClient, stop: str) -> None:
    """protocol.md §15 D24"""
    client.send({"c": "heartbeat", "o": "start,300ms"})
    assert client.receive().header == {"c": "heartbeat"}
    assert client.request({"c": "heartbeat", "o": stop}).succeeded
    client.expect_nothing_for(1.5)
    client.expect_silence()


def test_protocol_65_heartbeats_are_off_until_started(client: RawClient) -> None:
    """protocol.md §15: not part of logon; a `beat` before starts nothing."""
    client.send({"c": "heartbeat", "o": "beat"})
    client.expect_nothing_for(1.0)
    client.expect_silence()


def test_protocol_65_start_is_acknowledged_when_asked(client: RawClient) -> None:
    """protocol.md §15"""
    client.send({"c": "heartbeat", "o": "start,60", "a": "received,processed", "cid": "h"})
    assert [m["a"] for m in client.receive_many(2)] == ["received", "processed"]
    client.expect_silence()


@pytest.mark.parametrize("options", ["begin,5", "start,soon", "start,-1", "start"])
def test_protocol_65_malformed_heartbeat_options_fail(client: RawClient, options: str) -> None:
    """protocol.md §10, §13"""
    ack = client.request({"c": "heartbeat", "o": options})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_65_the_legacy_form_is_understood(client: RawClient) -> None:
    """protocol.md §3.1: `heartbeat` and `timeout_interval` instead of options."""
    client.send({"c": "heartbeat", "heartbeat": "start", "timeout_interval": 1})
    assert client.receive(timeout_s=10).header == {"c": "heartbeat"}
    client.send({"c": "heartbeat", "heartbeat": "stop"})
    with pytest.raises((Silence, ConnectionClosed)) as silence:
        client.receive(timeout_s=3.5)
    assert silence.type is Silence
