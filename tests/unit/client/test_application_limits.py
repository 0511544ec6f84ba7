"""Calls end at their timeout although the application's own code blocks: handlers, authenticators, choosers."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from amps.client import (
    AuthenticationException,
    Client,
    ConnectionException,
    ConnectionState,
    DefaultServerChooser,
    FixedDelayStrategy,
    HAClient,
    TimedOutException,
)
from amps.client.blocking import runtime
from tests.unit.client.peer import WAIT_S, Outcome, ScriptedPeer, in_background
from tests.unit.client.talk import LoggedOn, log_on, subscribe, wait_for

SOON_S = 0.05


class Blocking:
    """Functions that block until the end of the test."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ends = threading.Event()

    def __call__(self, *arguments: Any) -> None:
        self.began.set()
        assert self.ends.wait(2 * WAIT_S)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    functions = Blocking()
    yield functions
    functions.ends.set()


@pytest.mark.parametrize("dispatch", ["inline", "thread"])
@pytest.mark.parametrize("call", ["disconnect", "close"])
def test_closing_waits_for_a_handler_at_most_its_timeout(
    logged_on: LoggedOn,
    blocking: Blocking,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    dispatch: Literal["inline", "thread"],
) -> None:
    monkeypatch.setattr(runtime, "HANDLER_S", 100 * WAIT_S)
    client, connection = logged_on(dispatch=dispatch)
    connection.publish(subscribe(client, connection, blocking))
    assert blocking.began.wait(WAIT_S)
    Outcome(getattr(client, call), (), {"timeout": SOON_S}).result()
    assert not blocking.ends.is_set()
    blocking.ends.set()
    wait_for(lambda: not client.connected)


def test_closing_waits_for_a_handler(logged_on: LoggedOn, blocking: Blocking) -> None:
    client, connection = logged_on()
    connection.publish(subscribe(client, connection, blocking))
    assert blocking.began.wait(WAIT_S)
    closing = Outcome(client.close, (), {"timeout": WAIT_S})
    connection.expect_close()
    assert closing._thread.is_alive()
    blocking.ends.set()
    closing.result()
    assert client.state is ConnectionState.SHUTDOWN


class Password:
    """An authenticator of which one method is replaced."""

    def __init__(self, method: str, function: Callable[..., Any]) -> None:
        setattr(self, method, function)

    def authenticate(self, username: str, password: str) -> str:
        return "first"

    def retry(self, username: str, password: str) -> str:
        return "second"

    def completed(self, username: str, password: str, reason: str) -> None:
        """Accept."""


def welcome(peer: ScriptedPeer, method: str) -> None:
    connection = peer.accept()
    if method != "authenticate":
        frame = connection.expect("logon")
        connection.ack(frame, status="retry" if method == "retry" else "success")


@pytest.mark.parametrize("method", ["authenticate", "retry", "completed"])
def test_an_authenticator_that_blocks_is_not_waited_for(
    peer: ScriptedPeer, make_client: Callable[..., Client], blocking: Blocking, method: str
) -> None:
    client = make_client()
    client.connect()
    with in_background(welcome, peer, method):
        logging_on = Outcome(client.logon, (), {"authenticator": Password(method, blocking), "timeout": 1})
        logging_on.wait()
    assert type(logging_on.error) is TimedOutException
    assert "authenticator" in str(logging_on.error)
    assert not client.connected
    log_on(client, peer)


@pytest.mark.parametrize("method", ["authenticate", "retry", "completed"])
@pytest.mark.parametrize("kind", [ValueError, SystemExit, AuthenticationException])
def test_an_authenticator_that_raises_ends_the_connection(
    peer: ScriptedPeer, make_client: Callable[..., Client], kind: type[BaseException], method: str
) -> None:
    def raises(*arguments: Any) -> None:
        raise kind("no token")

    client = make_client()
    client.connect()
    with in_background(welcome, peer, method), pytest.raises(kind, match="no token"):
        client.logon(authenticator=Password(method, raises))
    assert client.state is ConnectionState.DISCONNECTED
    log_on(client, peer)


def test_an_authenticator_of_a_second_logon_does_not_end_the_connection(logged_on: LoggedOn) -> None:
    def raises(*arguments: Any) -> None:
        raise ValueError("no token")

    client, _ = logged_on()
    with pytest.raises(ValueError, match="no token"):
        client.logon(authenticator=Password("authenticate", raises))
    assert client.logged_on


class Chooser(DefaultServerChooser):
    """A chooser of which one method is replaced."""

    def __init__(self, uri: str, method: str, function: Callable[..., Any]) -> None:
        super().__init__(uri)
        setattr(self, method, function)


@pytest.mark.parametrize("method", ["get_current_uri", "get_current_authenticator", "report_failure"])
def test_a_chooser_that_blocks_is_not_waited_for(blocking: Blocking, method: str) -> None:
    unreachable = ScriptedPeer()
    unreachable.listener.close()
    client = HAClient("me", Chooser(unreachable.uri, method, blocking), delay_strategy=FixedDelayStrategy(0.01))
    connecting = Outcome(client.connect_and_logon, (), {"timeout": 0.3})
    assert blocking.began.wait(WAIT_S)
    connecting.wait()
    assert type(connecting.error) is TimedOutException
    assert not client.reconnecting
    client.close()


def test_a_chooser_that_blocks_after_a_success_is_reported(peer: ScriptedPeer, blocking: Blocking) -> None:
    client, errors = HAClient("me", Chooser(peer.uri, "report_success", blocking)), list[BaseException]()
    client.set_exception_listener(errors.append)
    connecting = Outcome(client.connect_and_logon, (), {"timeout": 0.5})
    peer.accept().logon()
    connecting.result()
    assert [type(error) for error in errors] == [TimedOutException]
    assert client.logged_on
    client.close()


def test_a_chooser_may_not_wait_for_its_client(peer: ScriptedPeer) -> None:
    """It would wait for itself, also if another thread asks it."""
    client = HAClient("me", Chooser(peer.uri, "get_current_uri", lambda: client.flush()))
    with pytest.raises(Exception, match="waits for the server"):
        client.connect_and_logon(timeout=WAIT_S)
    client.close()


@pytest.mark.parametrize("answer", [5, b"tcp://h:1/amps/json"])
def test_a_chooser_that_returns_no_text_is_told_so(answer: object) -> None:
    client = HAClient("me", Chooser("tcp://h:1/amps/json", "get_current_uri", lambda: answer))
    with pytest.raises(TypeError, match="get_current_uri of the server chooser returned"):
        client.connect_and_logon(timeout=WAIT_S)
    client.close()


class Delays:
    """A delay strategy whose methods do as they are told."""

    def __init__(self, wait: Any = 0.0) -> None:
        self.wait = wait

    def get_connect_wait_duration(self, uri: str) -> Any:
        return self.wait

    def reset(self) -> None:
        raise ValueError("no reset")


def test_a_strategy_that_returns_no_number_is_told_so(peer: ScriptedPeer) -> None:
    client = HAClient("me", peer.uri, delay_strategy=Delays("soon"))
    with pytest.raises(TypeError, match="get_connect_wait_duration returned 'soon'"):
        client.connect_and_logon(timeout=WAIT_S)
    client.set_exception_listener(lambda error: None)
    client.close()


def test_closing_does_not_raise_what_a_strategy_raises(peer: ScriptedPeer) -> None:
    client, errors = HAClient("me", peer.uri, delay_strategy=Delays()), list[BaseException]()
    client.set_exception_listener(errors.append)
    log_on(client, peer)
    client.close()
    assert [str(error) for error in errors] == ["no reset", "no reset"]
    assert client.state is ConnectionState.SHUTDOWN


def test_a_connection_that_nobody_can_make_ends_with_its_reason() -> None:
    client = HAClient("me", Chooser("tcp://h:1/amps/json", "get_current_uri", lambda: None))
    with pytest.raises(ConnectionException):
        client.connect_and_logon(timeout=WAIT_S)
    client.close()
