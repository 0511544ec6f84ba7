"""HAClient against scripted servers: choosing a server and connecting."""

import inspect
import time

import pytest

from amps.client import (
    AlreadyConnectedException,
    AuthenticationException,
    Client,
    ConnectionException,
    ConnectionState,
    DefaultServerChooser,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    PublishStoreGapException,
    TimedOutException,
    UsageException,
)
from amps.client.blocking.ha import ClientArgs
from tests.unit.client.ha import SOON_S, MakeHA, Recording, connected, welcome
from tests.unit.client.peer import WAIT_S, ScriptedPeer, in_background
from tests.unit.client.talk import wait_for


def test_client_59_the_next_server_is_tried(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """client.md §21 59: one failure, one success"""
    chooser = Recording(dead, peer.uri)
    client = make_ha(chooser)
    connected(client, peer)
    ((error, failed),) = chooser.failures
    assert isinstance(error, ConnectionException)
    assert (failed.uri, failed.attempts, failed.client_name) == (dead, 1, "tester")
    assert [(info.uri, info.attempts) for info in chooser.successes] == [(peer.uri, 2)]
    info = client.connection_info
    assert (info.uri, info.last_error, info.server_version) == (peer.uri, error, "9.9.9")
    assert abs((info.since or 0) - time.time()) < WAIT_S
    assert not client.disconnected
    assert not client.reconnecting
    with pytest.raises(AlreadyConnectedException):
        client.connect_and_logon()


def test_client_59_no_server_at_all(make_ha: MakeHA) -> None:
    """client.md §21 59: the text of get_error()"""

    class Empty(Recording):
        def get_error(self) -> str:
            return "all servers are being maintained"

    client = make_ha(Empty())
    with pytest.raises(ConnectionException, match="all servers are being maintained"):
        client.connect_and_logon()
    assert client.disconnected
    assert not client.reconnecting


def test_client_60_the_strategy_ends_connecting(make_ha: MakeHA, dead: str) -> None:
    """client.md §21 60: gives up after the longest retry time; the waits are kept"""
    client = make_ha(dead, delay_strategy=FixedDelayStrategy(0.05, 0.2))
    began = time.monotonic()
    with pytest.raises(ConnectionException, match=r"within 0\.2 s"):
        client.connect_and_logon()
    assert time.monotonic() - began >= 0.2


def test_connecting_keeps_its_timeout(make_ha: MakeHA, peer: ScriptedPeer, dead: str) -> None:
    """Against no server, and against one that never answers a logon"""
    client = make_ha(dead)
    with pytest.raises(TimedOutException, match="refused"):
        client.connect_and_logon(timeout=SOON_S)
    client.server_chooser = DefaultServerChooser(peer.uri)
    with pytest.raises(TimedOutException):
        client.connect_and_logon(timeout=SOON_S)
    assert client.disconnected
    peer.accept().expect_close()
    connected(client, peer)


def test_an_attempt_keeps_its_timeout(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """A server that accepts connections but never answers is given up for the next"""
    client = make_ha(attempt_timeout=SOON_S)
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        peer.accept().expect_close()
        welcome(peer)
    assert isinstance(client.connection_info.last_error, TimedOutException)


def test_a_refused_logon_is_a_failure_of_that_server(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §9.1 4; the authenticator of the chooser is used"""

    class Secretive:
        def authenticate(self, username: str, password: str) -> str:
            return "sesame"

        def retry(self, username: str, password: str) -> str:
            raise AssertionError

        def completed(self, username: str, password: str, reason: str) -> None:
            pass

    class Choosing(Recording):
        def get_current_authenticator(self) -> Secretive:
            return Secretive()

    chooser = Choosing(peer.uri)
    client = make_ha(chooser)
    with in_background(client.connect_and_logon, timeout=WAIT_S):
        first = peer.accept()
        frame = first.expect("logon")
        assert frame["pw"] == "sesame"
        first.ack(frame, status="failure", reason="auth failure")
        welcome(peer)
    assert [type(error) for error, _ in chooser.failures] == [AuthenticationException]


def test_client_56_a_server_that_lags_behind_is_passed_over(make_ha: MakeHA, peer: ScriptedPeer) -> None:
    """client.md §21 56: error_on_publish_gap"""
    other = ScriptedPeer()
    try:
        chooser = Recording(peer.uri, other.uri)
        client = make_ha(chooser, publish_store=MemoryPublishStore(error_on_publish_gap=True))
        first = connected(client, peer, seq=10)
        first.close()
        welcome(peer, seq=9)
        welcome(other, seq=10)
        wait_for(lambda: client.state == ConnectionState.RESUBSCRIBED)
        assert [type(error) for error, _ in chooser.failures] == [PublishStoreGapException]
    finally:
        client.close()
        other.close()


def test_a_chooser_that_raises_ends_connecting(make_ha: MakeHA) -> None:
    class Broken(Recording):
        def get_current_uri(self) -> str:
            raise ZeroDivisionError("broken chooser")

    with pytest.raises(ZeroDivisionError):
        make_ha(Broken()).connect_and_logon()


def test_calls_that_an_ha_client_does_not_have(make_ha: MakeHA) -> None:
    """client.md §19.5"""
    client = make_ha()
    with pytest.raises(UsageException):
        client.connect()
    with pytest.raises(UsageException):
        client.logon()
    with pytest.raises(UsageException):
        client.set_disconnect_handler(None)
    with pytest.raises(DisconnectedException):
        client.flush()


def test_arguments_match_those_of_the_client() -> None:
    """ClientArgs lists every keyword of Client"""
    keywords = set(inspect.signature(Client).parameters) - {"name", "uri"}
    assert set(ClientArgs.__annotations__) == keywords


def test_memory_backed() -> None:
    client = HAClient.memory_backed("me", ["tcp://h:1/amps/json"], timeout=3)
    assert isinstance(client.publish_store, MemoryPublishStore)
    assert client.bookmark_store is not None
    assert client.timeout == 3
    client.close()
