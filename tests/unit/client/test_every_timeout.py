"""Every public call that takes a `timeout` keeps it, against a server that never answers.

The tables name the calls; a call that is in neither fails the test.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.aio import AsyncClient, AsyncHAClient, AsyncMessageStream
from amps.client import (
    Client,
    Command,
    DisconnectedException,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    MessageStream,
    TimedOutException,
)
from amps.client.protocol.options import QUERY_KEYWORDS, SUBSCRIBE_KEYWORDS
from tests.unit.client.aio_peer import AsyncPeer
from tests.unit.client.peer import WAIT_S, Connection, Frame, Outcome, ScriptedPeer
from tests.unit.client.talk import wait_for

DEFAULT_S = 600.0
LIMIT = {"timeout": 0.05}
Call = Callable[[Any], Any]


def transact(client: Any) -> Any:
    """Acknowledge a message that a queue might have delivered."""
    leased = Message(b'{"c":"p","t":"q","bm":"1|1|","lp":"1"}x')

    async def transact_async() -> None:
        async with client.transaction(leased, **LIMIT):
            """Acknowledge it."""

    if isinstance(client, AsyncClient):
        return transact_async()
    with client.transaction(leased, **LIMIT):
        return None


CALLS: dict[str, Call] = {
    "publish": lambda client: client.publish("t", b"x", **LIMIT),
    "delta_publish": lambda client: client.delta_publish("t", b"x", **LIMIT),
    "publish_persisted": lambda client: client.publish_persisted("t", b"x", **LIMIT),
    "publish_flush": lambda client: client.publish_flush(**LIMIT),
    "transaction": transact,
    "flush": lambda client: client.flush(**LIMIT),
    "send": lambda client: client.send(Command("flush"), **LIMIT),
    "execute": lambda client: client.execute(Command("subscribe", "t"), **LIMIT),
    "execute_async": lambda client: client.execute_async(Command("subscribe", "t"), print, **LIMIT),
    "execute_async_no_resubscribe": lambda client: client.execute_async_no_resubscribe(
        Command("subscribe", "t"), print, **LIMIT
    ),
    "subscribe": lambda client: client.subscribe("t", **LIMIT),
    "bookmark_subscribe": lambda client: client.bookmark_subscribe("t", "0", **LIMIT),
    "delta_subscribe": lambda client: client.delta_subscribe("t", **LIMIT),
    "sow": lambda client: client.sow("t", **LIMIT),
    "sow_and_subscribe": lambda client: client.sow_and_subscribe("t", **LIMIT),
    "sow_and_delta_subscribe": lambda client: client.sow_and_delta_subscribe("t", **LIMIT),
    "sow_count": lambda client: client.sow_count("t", **LIMIT),
    "sow_delete": lambda client: client.sow_delete("t", filter="1=1", **LIMIT),
    "consume": lambda client: client.consume("t", print, **LIMIT),
    "pause": lambda client: client.pause("s", **LIMIT),
    "resume": lambda client: client.resume("s", **LIMIT),
    "unsubscribe": lambda client: client.unsubscribe("s", **LIMIT),
    "disconnect": lambda client: client.disconnect(**LIMIT),
    "close": lambda client: client.close(**LIMIT),
}
RETURN = {"publish", "delta_publish", "send", "disconnect", "close"}
"""Calls that wait for no answer."""
HANDLED = {
    "subscribe", "bookmark_subscribe", "delta_subscribe", "sow", "sow_and_subscribe", "sow_and_delta_subscribe"
}  # fmt: skip
"""Calls that take a handler."""
CALLS |= {
    f"{name} with a handler": (
        lambda client, name=name: getattr(client, name)("t", handler=print, **LIMIT)  # type: ignore[misc]
    )
    for name in HANDLED
}
STREAM_CALLS: dict[str, Call] = {
    "get": lambda stream: stream.get(**LIMIT),
    "to_pandas": lambda stream: stream.to_pandas(**LIMIT),
    "to_arrow": lambda stream: stream.to_arrow(**LIMIT),
}
CONNECTING: dict[type, dict[str, Call]] = {
    Client: {
        "connect": lambda client: client.connect(client.uri + "?http_preflight=true", **LIMIT),
        "logon": lambda client: (client.connect(), client.logon(**LIMIT)),
        "open": lambda client: client.open(**LIMIT),
    },
    HAClient: {
        "open": lambda client: client.open(**LIMIT),
        "connect_and_logon": lambda client: client.connect_and_logon(**LIMIT),
    },
}
"""Calls of a client that is not connected."""
NOT_A_LIMIT = {
    "set_heartbeat": "the silence after which the server counts as lost",
    "HAClient.connect": "raises UsageException",
    "HAClient.logon": "raises UsageException",
    "AsyncHAClient.connect": "raises UsageException",
    "AsyncHAClient.logon": "raises UsageException",
    "memory_backed": "makes a client",
    "file_backed": "makes a client",
    "transaction": "makes a transaction, which sends when its block is left, as any command",
    "publish_nowait": "never waits: its keywords are fields of a message",
}
"""Calls with a `timeout` that are no subject of these tests, and why."""


REFUSED_WITH_STORE = {"transaction": "a publish store cannot keep it"}
"""Calls that a client with a publish store refuses at once, and why."""


def limited(kind: type) -> set[str]:
    """The public calls of a class that take a `timeout`."""
    found = set()
    for name, member in inspect.getmembers(kind, callable):
        if name.startswith("_"):
            continue
        for parameter in inspect.signature(member).parameters.values():
            if parameter.name == "timeout" or parameter.kind is inspect.Parameter.VAR_KEYWORD:
                found.add(name)
    return found


@pytest.mark.parametrize(
    "kind", [Client, HAClient, AsyncClient, AsyncHAClient, MessageStream, AsyncMessageStream], ids=lambda k: k.__name__
)
def test_every_call_with_a_timeout_is_in_a_table(kind: type) -> None:
    assert "timeout" in SUBSCRIBE_KEYWORDS & QUERY_KEYWORDS
    tables = set(STREAM_CALLS) if issubclass(kind, MessageStream | AsyncMessageStream) else set(CALLS)
    for of, calls in CONNECTING.items():
        if kind.__name__.removeprefix("Async") == of.__name__:
            tables |= set(calls)
    known = tables | {name.rpartition(".")[2] for name in NOT_A_LIMIT if name.rpartition(".")[0] in ("", kind.__name__)}
    assert limited(kind) <= known


class Deaf(ScriptedPeer):
    """Reads everything, and answers nothing but the first logon and the subscription `s`."""

    def serve(self, connection: Connection, answers: bool) -> None:
        while (frame := connection.frames.get()) is not None:
            self.hear(connection, frame, answers)

    def hear(self, connection: Connection, frame: Frame, answers: bool) -> None:
        entering = frame["c"] == "subscribe" and frame.get("sub_id") == "s" and not frame.get("o")
        if answers and (frame["c"] == "logon" or entering):
            connection.ack(frame, client_name="me", s=0)


@pytest.fixture
def deaf() -> Iterator[Deaf]:
    peer = Deaf()
    yield peer
    peer.close()


def opened(deaf: Deaf, kind: type[Client], stored: bool) -> tuple[Any, MessageStream]:
    options: dict[str, Any] = {"publish_store": MemoryPublishStore()} if stored else {}
    client: Any
    if kind is Client:
        client = Client("me", deaf.uri, timeout=DEFAULT_S, **options)
    else:
        client = HAClient("me", deaf.uri, timeout=DEFAULT_S, delay_strategy=FixedDelayStrategy(0.01), **options)
    opening = Outcome(client.open, (), {})
    answering = Outcome(deaf.serve, (deaf.accept(), True), {})
    opening.result()
    stream = client.bookmark_subscribe("t", "0", sub_id="s", timeout=WAIT_S)
    del answering
    if stored:
        client.publish("t", b"not persisted")
    return client, stream


def check(name: str, outcome: Outcome, *allowed: type[BaseException]) -> None:
    """A call has ended: it has returned, if it waits for nothing, or has timed out."""
    outcome.wait()
    if name in RETURN and not allowed:
        assert outcome.error is None, (name, outcome.error)
    else:
        assert isinstance(outcome.error, (TimedOutException, *allowed)) or name in RETURN, (name, outcome.error)


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "stored"])
@pytest.mark.parametrize("kind", [Client, HAClient])
def test_calls_end_at_their_timeout(deaf: Deaf, kind: type[Client], stored: bool) -> None:
    client, stream = opened(deaf, kind, stored)
    for name, call in STREAM_CALLS.items():
        outcome = Outcome(call, (stream,), {})
        outcome.result()
        assert name != "get" or outcome.value is None
    for name, call in CALLS.items():
        if name in ("close", "disconnect") or (stored and name in REFUSED_WITH_STORE):
            continue
        check(name, Outcome(call, (client,), {}))
    check("disconnect", Outcome(CALLS["disconnect"], (client,), {}))
    check("close", Outcome(CALLS["close"], (client,), {}))


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "stored"])
def test_calls_end_at_their_timeout_between_two_servers(deaf: Deaf, stored: bool) -> None:
    """The next server accepts the connection, and answers no logon."""
    client, _ = opened(deaf, HAClient, stored)
    deaf.connections[0].close()
    second = deaf.accept()
    wait_for(lambda: b"logon" in second.raw)
    for name, call in CALLS.items():
        if name not in ("close", "disconnect", "unsubscribe") and not (stored and name in REFUSED_WITH_STORE):
            check(name, Outcome(call, (client,), {}), DisconnectedException)
    Outcome(client.unsubscribe, ("s",), LIMIT).result()  # nothing is entered there
    check("close", Outcome(CALLS["close"], (client,), {}))


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, calls in CONNECTING.items() for name in calls])
def test_connecting_ends_at_its_timeout(deaf: Deaf, kind: type[Client], name: str) -> None:
    client: Any = kind("me", deaf.uri, timeout=DEFAULT_S)
    check(name, Outcome(CONNECTING[kind][name], (client,), {}))
    client.close()


# asyncio


async def ended(call: Call, target: Any) -> BaseException | None:
    """Make a call; return its exception."""
    async with asyncio.timeout(WAIT_S):
        try:
            result = call(target)
            if inspect.isawaitable(result):
                await result
        except (TimedOutException, DisconnectedException) as error:
            return error
    return None


def answer_only(peer: AsyncPeer, frame: Frame) -> None:
    if frame["c"] == "logon" or (frame["c"] == "subscribe" and frame.get("sub_id") == "s" and not frame.get("o")):
        peer.acknowledge(frame)


@pytest.mark.parametrize("stored", [False, True], ids=["plain", "stored"])
@pytest.mark.parametrize("kind", [AsyncClient, AsyncHAClient])
@pytest.mark.parametrize("between", [False, True])
def test_asyncio_calls_end_at_their_timeout(kind: type[AsyncClient], stored: bool, between: bool) -> None:
    if between and kind is AsyncClient:
        return

    async def run() -> None:
        async with AsyncPeer() as peer:
            peer.answer = lambda frame: answer_only(peer, frame)
            options: Any = {"publish_store": MemoryPublishStore()} if stored else {}
            if kind is AsyncHAClient:
                options["delay_strategy"] = FixedDelayStrategy(0.01)
            client = kind("me", peer.uri, timeout=DEFAULT_S, **options)
            await client.open()
            stream = await client.bookmark_subscribe("t", "0", sub_id="s", timeout=WAIT_S)
            if stored:
                await client.publish("t", b"not persisted")
            if between:
                peer.answering = False
                peer.kill()
                await peer.expect("logon", 2)
            for call in STREAM_CALLS.values():
                assert await ended(call, stream) is None
            for name, call in CALLS.items():
                if name in ("close", "disconnect", "send") or (between and name == "unsubscribe"):
                    continue  # `send` never waits, and takes no timeout
                if stored and name in REFUSED_WITH_STORE:
                    continue
                error = await ended(call, client)
                if not between:
                    assert (type(error) is TimedOutException) is (name not in RETURN), (name, error)
                elif name not in RETURN:
                    assert error is not None, name
            for name in ("disconnect", "close"):
                assert await ended(CALLS[name], client) is None

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, calls in CONNECTING.items() for name in calls])
def test_asyncio_connecting_ends_at_its_timeout(kind: type[Client], name: str) -> None:
    async def run() -> None:
        async with AsyncPeer() as peer:
            peer.answering = False
            client: Any = (AsyncClient if kind is Client else AsyncHAClient)("me", peer.uri, timeout=DEFAULT_S)
            if name == "logon":
                await client.connect()
                assert type(await ended(lambda client: client.logon(**LIMIT), client)) is TimedOutException
            else:
                assert type(await ended(CONNECTING[kind][name], client)) is TimedOutException
            await client.close()

    asyncio.run(run())


