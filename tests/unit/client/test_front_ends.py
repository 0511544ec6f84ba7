"""The blocking and the asyncio client have the same calls: names, parameters, defaults, annotations and docstrings."""

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from amps.aio import AsyncClient, AsyncHAClient, AsyncMessageStream
from amps.client import Client, HAClient, MessageStream

PAIRS = [(Client, AsyncClient), (HAClient, AsyncHAClient), (MessageStream, AsyncMessageStream)]
WORDS = (
    ("AsyncHAClient", "HAClient"), ("AsyncClient", "Client"), ("AsyncMessageStream", "MessageStream"),
    ("StreamRequest", "MessageStream"), ("collections.abc.Coroutine[typing.Any, typing.Any, str]", "str"),
    ("amps.client.aio.", ""), ("amps.client.blocking.", ""),
)  # fmt: skip
"""What an asyncio client names otherwise."""
ONLY_HERE: dict[type, set[str]] = {
    AsyncClient: {"publish_nowait"},
    AsyncHAClient: {"publish_nowait"},
}
OTHER_PARAMETERS = {("Client", "send"): "timeout", ("HAClient", "send"): "timeout"}
"""Parameters of the blocking client that the other has not: its call never waits."""
NEVER_WAITS = {
    "ack", "add_connection_state_listener", "clear_connection_state_listeners", "discard", "drain", "flush_acks",
    "get_most_recent", "publish_nowait", "remove_connection_state_listener", "send", "conflate", "set_timeout",
    "set_max_depth", "memory_backed", "file_backed", "transaction",
}  # fmt: skip
GIVES_STREAM = {
    "bookmark_subscribe", "delta_subscribe", "execute", "sow", "sow_and_delta_subscribe", "sow_and_subscribe",
    "subscribe",
}  # fmt: skip
DIFFERENCES = {
    "Client.close": (
        "does; … In a forked child it only closes the child's copy of the socket. … of `consume` with a concurrency …"
        " seconds.",
        "does, and end all handler tasks; … coroutine … seconds; then they are cancelled.",
    ),
    "Client.consume": ("threads; one runs as other handlers do.", "tasks if the handler is a coroutine function."),
    "Client.disconnect": ("In this time it also waits for a running handler, at most 5 s.", ""),
    "Client.logon": ("seconds,", "cancelled, … seconds"),
    "Client.publish": (
        "stored: … may be published again. Bytes that a slow server … read when the call returns are sent by a thread"
        " of the client.",
        "stored. A call that is cancelled while … waits … published either.",
    ),
    "Client.send": (
        "If … read, … call waits, at most `timeout` seconds. If it times out,",
        "Raises BufferError if … read … bytes sent before; then",
    ),
    "Client.set_disconnect_handler": ("again.", "again, and be a coroutine function."),
    "Client.set_receive_started_callback": ("receive, on its receive thread.", "receive."),
    "HAClient.connect_and_logon": (
        "",
        "When it is cancelled, or its time is over, the attempts that it has begun end.",
    ),
}
"""By call of the blocking client: the words of its docstring that the other has not, and the other way round."""


def same(text: str) -> str:
    for other, word in WORDS:
        text = text.replace(other, word)
    return re.sub(r"\s+", " ", text.replace('"', "")).strip()


def public(kind: type) -> dict[str, Any]:
    """The public attributes that the class itself, or a class of this package, declares."""
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def calls_of(pair: tuple[type, type]) -> list[str]:
    return sorted(set(public(pair[0])) & set(public(pair[1])))


def function_of(member: Any) -> Callable[..., Any]:
    if isinstance(member, property):
        assert member.fget is not None
        return member.fget
    return member.__func__ if isinstance(member, classmethod) else member  # type: ignore[no-any-return]


CALLS = [(one, other, name) for one, other in PAIRS for name in calls_of((one, other))]
NAMES = [f"{one.__name__}.{name}" for one, _, name in CALLS]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_client_19_6_both_front_ends_have_the_same_names(one: type, other: type) -> None:
    assert set(public(one)) == set(public(other)) - ONLY_HERE.get(other, set())
    assert len(public(one)) > 15


@pytest.mark.parametrize(("one", "other", "name"), CALLS, ids=NAMES)
def test_parameters_defaults_and_annotations_are_the_same(one: type, other: type, name: str) -> None:
    members = [inspect.getattr_static(kind, name) for kind in (one, other)]
    assert type(members[0]) is type(members[1])
    if isinstance(members[0], property):
        assert (members[0].fset is None) == (members[1].fset is None)
    signatures = [inspect.signature(function_of(member)) for member in members]
    extra = OTHER_PARAMETERS.get((one.__name__, name))
    described = [
        [
            (p.name, p.kind, p.default, same(str(p.annotation)))
            for p in signature.parameters.values()
            if p.name != extra
        ]
        for signature in signatures
    ]
    assert described[0] == described[1]
    returned = [same(str(signature.return_annotation).replace("AsyncIterator", "Iterator")) for signature in signatures]
    assert returned[0] == returned[1]


@pytest.mark.parametrize(("one", "other", "name"), CALLS, ids=NAMES)
def test_what_waits_is_awaited(one: type, other: type, name: str) -> None:
    function = function_of(inspect.getattr_static(other, name))
    plain = (
        isinstance(inspect.getattr_static(one, name), property)
        or name in NEVER_WAITS | GIVES_STREAM
        or (name.startswith("set_") and name != "set_heartbeat")
    )
    assert inspect.iscoroutinefunction(function) is not plain


@pytest.mark.parametrize(("one", "other", "name"), CALLS, ids=NAMES)
def test_docstrings_say_the_same(one: type, other: type, name: str) -> None:
    """The differences that are intended are listed, so that a change of one is a change of both."""
    texts = [same(inspect.getdoc(function_of(inspect.getattr_static(kind, name))) or "") for kind in (one, other)]
    assert texts[0]
    assert texts[1]
    words = [text.split() for text in texts]
    matcher = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False)
    gone, new = [], []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            gone.append(" ".join(words[0][a:b]))
            new.append(" ".join(words[1][c:d]))
    differences = (" … ".join(filter(None, gone)), " … ".join(filter(None, new)))
    assert differences == DIFFERENCES.get(function_of(inspect.getattr_static(one, name)).__qualname__, ("", ""))


@pytest.mark.parametrize(("one", "other"), PAIRS[:2])
def test_the_constructors_are_the_same_without_dispatch(one: type, other: type) -> None:
    described = [
        [
            (p.name, p.kind, p.default, same(str(p.annotation)))
            for p in inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
            if p.name not in ("dispatch", "client_args")
        ]
        for kind in (one, other)
    ]
    assert described[0] == described[1]


def test_the_arguments_that_an_haclient_passes_on_are_those_of_a_client() -> None:
    from amps.client.blocking.ha import ClientArgs

    taken = set(inspect.signature(Client.__init__).parameters) - {"self", "name", "uri"}
    assert set(ClientArgs.__annotations__) == taken

