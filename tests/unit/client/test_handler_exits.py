"""Handlers that raise what no `except Exception` catches: nothing is lost, and the subscription goes on.

client.md §19.11. For `sys.exit`, `pytest.fail` and the like on threads of the client.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Literal

import pytest

from amps.aio import AsyncClient
from amps.client import Client, HAClient, Message
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import Connection, ScriptedPeer, encode, in_background
from tests.unit.client.talk import log_on, synchronise, wait_for

KINDS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, pytest.fail.Exception, ValueError]
COUNT = 10


class Failing:
    """A handler that notes bodies, and raises at one of them."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.bodies: list[str] = []

    def __call__(self, message: Message) -> None:
        self.bodies.append(message.text)
        if message.text == "3":
            raise self.kind("bad message")


def send_batch(connection: Connection, **fields: Any) -> None:
    """Send messages in one go: the client receives them together."""
    each = [
        encode({"c": "p", "t": "t", "sids": "s", "bm": f"1|{at + 1}|", **fields}, str(at).encode())
        for at in range(COUNT)
    ]
    connection.socket.sendall(b"".join(each))


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("dispatch", ["inline", "thread"])
@pytest.mark.parametrize("kind", KINDS)
def test_client_25_any_exception_of_a_handler_is_reported(
    peer: ScriptedPeer,
    caplog: pytest.LogCaptureFixture,
    kind: type[BaseException],
    dispatch: Literal["inline", "thread"],
    listening: bool,
) -> None:
    """client.md §21 25: a bookmark subscription gets the rest of what has arrived, too."""
    handler, errors = Failing(kind), list[BaseException]()
    client = HAClient("me", peer.uri, dispatch=dispatch, timeout=10)
    connection = log_on(client, peer)
    if listening:
        client.set_exception_listener(errors.append)
    with in_background(client.bookmark_subscribe, "t", "0", sub_id="s", handler=handler):
        connection.ack(connection.expect("subscribe"))
    send_batch(connection)
    wait_for(lambda: len(handler.bodies) == COUNT)
    assert handler.bodies == [str(at) for at in range(COUNT)]
    synchronise(client, connection)
    assert [type(error) for error in errors] == ([kind] if listening else [])
    assert [record.levelname for record in caplog.records] == ([] if listening else ["WARNING"])
    assert client.stats.handler_errors == 1
    assert len(peer.connections) == 1
    client.close()


@pytest.mark.parametrize("dispatch", ["inline", "thread"])
def test_any_exception_of_a_listener_is_reported(
    peer: ScriptedPeer, make_client: Callable[..., Client], dispatch: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one of the exception listener itself."""
    client = make_client(dispatch=dispatch)
    connection = log_on(client, peer)
    client.set_exception_listener(lambda error: sys.exit("listener"))
    client.set_last_chance_handler(lambda message: sys.exit("handler"))
    connection.publish("unknown")
    synchronise(client, connection)
    connection.publish("unknown")
    wait_for(lambda: client.stats.handler_errors == 2)
    wait_for(lambda: caplog.text.count("the exception listener raised") == 2)
    synchronise(client, connection)


def test_an_acknowledgement_that_fails_is_reported(
    peer: ScriptedPeer, make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, errors, bodies = make_client(auto_ack=True), list[BaseException](), list[str]()
    connection = log_on(client, peer)
    client.set_exception_listener(errors.append)
    with in_background(client.subscribe, "t", sub_id="s", handler=lambda message: bodies.append(message.text)):
        connection.ack(connection.expect("subscribe"), opts="max_backlog=20")

    def ack(self: Client, *arguments: Any, **options: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Client, "ack", ack)
    send_batch(connection, lp="1")
    synchronise(client, connection)
    assert len(bodies) == COUNT
    assert {type(error) for error in errors} == {OSError}


def test_an_interrupt_of_a_call_reaches_the_caller(
    peer: ScriptedPeer, make_client: Callable[..., Client]
) -> None:
    """Ctrl-C in a listener that a call of the application runs ends that call."""
    client = make_client()

    def interrupted(state: object) -> None:
        raise KeyboardInterrupt

    client.add_connection_state_listener(interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.connect()
    client.clear_connection_state_listeners()


async def run_async(kind: type[BaseException], coroutine: bool, caught: list[BaseException]) -> None:
    loop = asyncio.get_running_loop()
    async with AsyncPeer() as peer:
        client = AsyncClient("me", peer.uri, timeout=10)
        client.set_exception_listener(caught.append)
        await client.open()
        handler = Failing(kind)

        async def awaited(message: Message) -> None:
            handler(message)

        await client.subscribe("t", sub_id="s", handler=awaited if coroutine else handler)
        for at in range(COUNT):
            peer.publish("s", str(at).encode())
        async with asyncio.timeout(10):
            while len(handler.bodies) < COUNT:
                await asyncio.sleep(0.01)
        assert handler.bodies == [str(at) for at in range(COUNT)]
        await client.flush()
        await client.close()
    assert loop.is_running()


@pytest.mark.parametrize("coroutine", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_client_25_any_exception_of_a_handler_in_the_event_loop(kind: type[BaseException], coroutine: bool) -> None:
    """It is reported. `sys.exit` and Ctrl-C end the loop, which then may go on without a loss."""
    caught, loop = list[BaseException](), asyncio.new_event_loop()
    ends = issubclass(kind, SystemExit | KeyboardInterrupt)
    try:
        work = loop.create_task(run_async(kind, coroutine, caught))
        if ends:
            with pytest.raises(kind):
                loop.run_until_complete(work)
        loop.run_until_complete(work)
    finally:
        loop.close()
    assert [type(error) for error in caught] == ([] if ends else [kind])
