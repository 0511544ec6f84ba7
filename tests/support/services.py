"""Replacements for the surroundings of the services process in tests: log, core, publisher, supervisor."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from amps.config import LoadedConfig, ServerConfig, load
from amps.server.eventlog.catalogue import CATALOGUE, fill
from amps.server.services.actions.engine import Engine
from amps.server.services.actions.step import Environment
from amps.server.services.core_requests import CoreRequests
from amps.server.services.publisher import PublishFailure
from amps.server.services.replication_requests import ReplicationRequests

LOG_XML = (
    "<TransactionLog><JournalDirectory>journal</JournalDirectory>"
    "<Topic><Name>a</Name><MessageType>json</MessageType></Topic></TransactionLog>"
)


class RecordingLog:
    """Keeps logged records, as (id, text)."""

    def __init__(self) -> None:
        self.records: list[tuple[str, str]] = []
        self.rotations = 0

    def log(self, record_id: str, /, text: str | None = None, **values: Any) -> None:
        if text is not None:
            values["text"] = text
        self.records.append((record_id, fill(CATALOGUE[record_id].template, values)))

    def rotate(self) -> None:
        self.rotations += 1

    def texts(self, record_id: str) -> list[str]:
        return [text for found, text in self.records if found == record_id]


class RecordingPublisher:
    """Keeps published messages; refuses them when the test says so."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, bytes]] = []
        self.refusal: str | None = None

    async def publish(self, topic: str, message_type: str, data: bytes, delay_ms: int | None = None) -> None:
        assert delay_ms is None
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise PublishFailure(self.refusal)
        self.messages.append((topic, message_type, data))


class FakeCore:
    """The core's end of the channel for requests, served on the event loop. `answer(verb, rest)` makes the answers."""

    def __init__(self, answer: Callable[[str, list[Any]], list[list[Any]]] | None = None) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.ours, self.theirs):
            end.setblocking(False)
        self.asked: list[tuple[str, list[Any]]] = []
        self.journals: list[dict[str, Any]] = []
        self.marked: list[int] = []
        self.refusal: str | None = None
        self._answer = answer or self._usual

    def _usual(self, verb: str, rest: list[Any]) -> list[list[Any]]:
        if self.refusal is not None:
            return [["error", self.refusal]]
        return [["ok", self.journals if verb == "list" else self.marked]]

    def serve(self) -> CoreRequests:
        """Begin to answer. Return the requesting side."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self.ours.fileno(), self._hear)
        requests = CoreRequests(self.theirs)
        requests.begin(loop)
        return requests

    def _hear(self) -> None:
        number, verb, *rest = msgpack.unpackb(self.ours.recv(1 << 20))
        self.asked.append((verb, rest))
        self._send([msgpack.packb([number, *answer]) for answer in self._answer(verb, rest)])

    def _send(self, datagrams: list[bytes]) -> None:
        while datagrams:
            try:
                self.ours.send(datagrams[0])
            except BlockingIOError:
                asyncio.get_running_loop().call_later(0.001, self._send, datagrams)
                return
            del datagrams[0]

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            loop = asyncio.get_running_loop()
            for end in (self.ours, self.theirs):
                loop.remove_reader(end.fileno())
        self.ours.close()
        self.theirs.close()


class Surroundings:
    """An engine with everything around it replaced. Make it inside a running event loop."""

    def __init__(
        self, actions_xml: str = "", *, log: bool = False, now_s: float = 1_700_000_000.5, text: str = ""
    ) -> None:
        """`text`: a whole configuration, instead of one with these actions."""
        self.loaded = load("actions.xml", text=text) if text else loaded(actions_xml, log=log)
        self.config: ServerConfig = self.loaded.config
        self.log = RecordingLog()
        self.publisher = RecordingPublisher()
        self.core = FakeCore()
        self.requests = self.core.serve()
        self.replication: ReplicationRequests | None = None
        self.uptime_s = 1e9
        self.shutdowns: list[str] = []
        self.switched: list[tuple[str, bool]] = []
        self.engine = Engine(self.config.actions, self._environment, lambda: now_s)

    def _environment(self, engine: Engine) -> Environment:
        self.environment = Environment(
            config=self.config,
            log=self.log,  # type: ignore[arg-type]
            publisher=self.publisher,  # type: ignore[arg-type]
            core=self.requests,
            raise_event=engine.raise_event,
            ask_for_shutdown=self.shutdowns.append,
            switch=lambda what, enabled: self.switched.append((what, enabled)),
            replication=self.replication,
            uptime_s=lambda: self.uptime_s,
        )
        return self.environment

    async def happened(self, kind: str, which: str = "", **variables: str) -> str | None:
        """Raise an event. Return why it failed, None if it did not."""
        done = self.engine.happened(kind, which, variables)
        assert done is not None, f"no actions for {kind} {which}"
        reason = await done
        await self.engine.idle()
        return reason

    def echoed(self) -> list[str]:
        """The texts that echo-message wrote."""
        return self.log.texts("29-0001")

    def close(self) -> None:
        self.core.close()


@contextlib.contextmanager
def surroundings(actions_xml: str = "", *, log: bool = False) -> Iterator[Surroundings]:
    made = Surroundings(actions_xml, log=log)
    try:
        yield made
    finally:
        made.close()


def loaded(actions_xml: str = "", *, log: bool = False, instance_xml: str = "") -> LoadedConfig:
    """A configuration with these actions."""
    text = (
        f"<AMPSConfig><Name>n</Name>{instance_xml}{LOG_XML if log else ''}"
        f"<Actions>{actions_xml}</Actions></AMPSConfig>"
    )
    return load("actions.xml", text=text)


def module(element: str, name: str, **options: str | tuple[str, ...]) -> str:
    """`On`, `Do` or `If`; the text of options is XML."""
    inner = "".join(
        f"<{key}>{text}</{key}>"
        for key, value in options.items()
        for text in ((value,) if isinstance(value, str) else value)
    )
    return (
        f"<{element}><Module>{name}</Module>"
        + (f"<Options>{inner}</Options>" if inner else "")
        + f"</{element}>"
    )


def on(name: str, **options: str | tuple[str, ...]) -> str:
    return module("On", f"amps-action-on-{name}", **options)


def do(name: str, **options: str | tuple[str, ...]) -> str:
    return module("Do", f"amps-action-do-{name}", **options)


def when(name: str, **options: str | tuple[str, ...]) -> str:
    return module("If", f"amps-action-if-{name}", **options)


def echo(text: str) -> str:
    return do("echo-message", Message=text)


def action(*parts: str) -> str:
    return f"<Action>{''.join(parts)}</Action>"
