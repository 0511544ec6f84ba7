"""Steps that many tests share, between a client and the scripted peer."""

import time
from collections.abc import Callable
from typing import Any

from amps.client import Client, MessageStream
from tests.unit.client.peer import WAIT_S, Connection, Outcome, ScriptedPeer, in_background

LoggedOn = Callable[..., tuple[Client, Connection]]
"""The fixture `logged_on`: a logged-on client and the peer's side of its connection."""


def log_on(client: Client, peer: ScriptedPeer, seq: int = 0, **fields: Any) -> Connection:
    """Connect and log on. Returns the peer's side of the connection."""
    opening = Outcome(client.open, (), {})
    connection = peer.accept()
    connection.logon(seq, **fields)
    opening.result()
    return connection


def subscribe(client: Client, connection: Connection, handler: Any, topic: str = "t", **options: Any) -> str:
    """Subscribe with a handler and let the peer accept it."""
    with in_background(client.subscribe, topic, handler=handler, **options) as call:
        connection.ack(connection.expect("subscribe"))
    return str(call.result())


def stream_of(client: Client, connection: Connection, **options: Any) -> MessageStream:
    """Subscribe and let the peer accept it. Only the caller has a reference to the returned stream."""
    with in_background(client.subscribe, "t", **options) as call:
        connection.ack(connection.expect("subscribe"))
    stream = call.result()
    call.value = None
    assert isinstance(stream, MessageStream)
    return stream


def synchronise(client: Client, connection: Connection) -> None:
    """Wait until the client has processed everything the peer has sent."""
    with in_background(client.flush):
        connection.ack(connection.expect("flush"), "completed")


def wait_for(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.005)
