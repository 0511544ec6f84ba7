"""Arguments of a wrong type, or out of range, are refused where they are given, with their names."""

from collections.abc import Callable
from typing import Any, assert_type

import pytest

from amps.aio import AsyncClient, AsyncHAClient
from amps.client import Client, DefaultServerChooser, HAClient, Message

URI = "tcp://h:1/amps/json"
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "heartbeat": ({"heartbeat": "a"}, TypeError, "heartbeat must be a number of seconds or None: 'a'"),
    "no heartbeat": ({"heartbeat": 0}, ValueError, "heartbeat must be positive: 0"),
    "heartbeat_timeout": ({"heartbeat_timeout": float("nan")}, TypeError, "heartbeat_timeout must be a number"),
    "timeout": ({"timeout": -1}, ValueError, "timeout cannot be negative: -1"),
    "ack_timeout": ({"ack_timeout": "x"}, TypeError, "ack_timeout must be a number"),
    "publish_store": ({"publish_store": "path"}, TypeError, "publish_store must be an object with .* not str"),
    "bookmark_store": ({"bookmark_store": 5}, TypeError, "bookmark_store must be an object with .* not int"),
    "subscription_manager": ({"subscription_manager": 5}, TypeError, "subscription_manager must be an object"),
    "authenticator": ({"authenticator": "secret"}, TypeError, "authenticator must be an object with .* not str"),
    "codec": ({"codec": 5}, TypeError, "codec must be an object with .* not int"),
    "tls": ({"tls": True}, TypeError, "tls must be an object with .* not bool"),
    "logger": ({"logger": "x"}, TypeError, "logger must be an object with .* not str"),
}
WRONG_HA: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "attempt_timeout": ({"attempt_timeout": -1}, ValueError, "attempt_timeout cannot be negative"),
    "delay_strategy": ({"delay_strategy": 3}, TypeError, "delay_strategy must be an object with .* not int"),
    "servers": ({"servers": 5}, TypeError, "servers must be an object with .* not int"),
}


@pytest.mark.parametrize("kind", [Client, HAClient, AsyncClient, AsyncHAClient])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings(kind: type, name: str) -> None:
    arguments, error, text = WRONG[name]
    with pytest.raises(error, match=text) as refused:
        kind("me", URI, **arguments)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", [HAClient, AsyncHAClient])
@pytest.mark.parametrize("name", WRONG_HA)
def test_wrong_settings_of_a_client_that_reconnects(kind: type, name: str) -> None:
    arguments, error, text = WRONG_HA[name]
    with pytest.raises(error, match=text):
        kind("me", **arguments)


SETTING: dict[str, Callable[[Any], object]] = {
    "timeout": lambda client: setattr(client, "timeout", -1),
    "attempt_timeout": lambda client: setattr(client, "attempt_timeout", -1),
    "ack_timeout": lambda client: setattr(client, "ack_timeout", "x"),
    "ack_batch_size": lambda client: setattr(client, "ack_batch_size", "x"),
    "server_chooser": lambda client: setattr(client, "server_chooser", 5),
    "delay_strategy": lambda client: setattr(client, "delay_strategy", 5),
}


@pytest.mark.parametrize("kind", [HAClient, AsyncHAClient])
@pytest.mark.parametrize("name", SETTING)
def test_wrong_values_of_attributes(kind: type, name: str) -> None:
    client = kind("me", URI)
    before = getattr(client, name)
    with pytest.raises((TypeError, ValueError)):
        SETTING[name](client)
    assert getattr(client, name) == before


def test_a_chooser_may_be_replaced() -> None:
    client, chooser = HAClient("me", URI), DefaultServerChooser(URI)
    client.server_chooser = chooser
    assert client.server_chooser is chooser


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    "setter",
    [
        "set_exception_listener", "set_transport_filter", "set_last_chance_handler", "set_duplicate_handler",
        "set_failed_write_handler", "set_disconnect_handler", "set_receive_started_callback",
        "add_connection_state_listener",
    ],
)  # fmt: skip
def test_handlers_that_cannot_be_called(kind: type, setter: str) -> None:
    with pytest.raises(TypeError, match="a handler must be callable, not int"):
        getattr(kind("me", URI), setter)(5)
    with pytest.raises(TypeError, match="a handler must be callable, not int"):
        kind("me", URI).set_global_handler("ack", 5)


@pytest.mark.parametrize("call", ["execute", "execute_async", "execute_async_no_resubscribe", "send"])
def test_a_text_instead_of_a_command(call: str) -> None:
    with pytest.raises(TypeError, match="a Command is needed"):
        getattr(Client("me", URI), call)("subscribe")


def test_wrong_options() -> None:
    client = Client("me", URI)
    wrong: Any = "x"
    with pytest.raises(TypeError, match="max_backlog must be an int, not str"):
        client.subscribe("t", max_backlog=wrong)
    with pytest.raises(TypeError, match="top_n must be an int, not str"):
        client.sow("t", top_n=wrong)
    with pytest.raises(TypeError, match="an interval is a number of seconds"):
        client.subscribe("t", conflation=[])  # type: ignore[call-arg]


def test_the_type_of_a_decoded_body() -> None:
    """client.md §19.2: mypy checks this test."""
    message = Message(b'{"c":"publish"}abc')
    assert assert_type(message.decode(bytes), bytes) == b"abc"
    assert assert_type(message.decode(), Any) == b"abc"
