"""The recovering engine against a simulated server, with connections lost at any byte in any state.

The server keeps a log, drops numbers that it knows, and serves subscriptions from bookmarks. Both directions of the
wire deliver bytes in random amounts; a lost connection loses what is on the way. In the end nothing may be missing: the
log holds each publish once and in order, every subscription has had every message once and in order, and every command
that waited has its answer.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amps.client import Command, DisconnectedException, MemoryBookmarkStore, MemoryPublishStore
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Deliver, EngineConfig, Phase, Route, RouteKind, Ticket
from tests.unit.client.harness import URI
from tests.unit.client.peer import Frame, decode, encode

TEMPLATE = PublishTemplate("publish", "t")
CALLS = ("publish", "publish", "subscribe", "unsubscribe", "replace", "flush", "ack", "discard", "discard")
WIRE = ("to server", "to client", "exchange", "exchange", "lose", "connect", "log on again")


@dataclass
class Server:
    """The server's state that survives connections, and that of the one connection."""

    log: list[bytes] = field(default_factory=list)
    last: int = 0
    acks: list[str] = field(default_factory=list)
    subscriptions: dict[str, int] = field(default_factory=dict)
    filters: dict[str, str] = field(default_factory=dict)
    received: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    commands: list[str] = field(default_factory=list)

    def drop(self) -> None:
        self.subscriptions.clear()
        self.filters.clear()
        self.received.clear()
        self.output.clear()
        self.commands.clear()

    def receive(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 4:
            length = int.from_bytes(self.received[:4], "big")
            if len(self.received) < 4 + length:
                return
            self._process(decode(bytes(self.received[4 : 4 + length])))
            del self.received[: 4 + length]
            self.deliver()

    def _process(self, frame: Frame) -> None:
        command = frame["c"]
        self.commands.append(command)
        if frame.get("s") is not None:
            assert frame["s"] <= self.last + 1, f"a gap: {frame} after {self.last}"
            assert "subscribe" not in self.commands or frame["s"] > self.last, "the store is sent first, and once"
            if frame["s"] > self.last:
                self.last = frame["s"]
                if command == "sow_delete":
                    self.acks += frame["bm"].split(",")
                else:
                    self.log.append(frame.body)
        if command == "logon":
            self._ack(frame, "processed", s=self.last)
        elif command == "subscribe":
            name = frame["sub_id"]
            replaces = "replace" in frame.header.get("o", "")
            assert replaces == (name in self.subscriptions), frame
            if not replaces:
                self.subscriptions[name] = int(frame["bm"].split("|")[1]) if "|" in frame["bm"] else 0
            self.filters[name] = frame.header.get("f", "")
            self._ack(frame, "processed")
        elif command == "unsubscribe":
            self.subscriptions.pop(frame["sub_id"], None)
            if frame.get("cid"):
                self._ack(frame, "processed")
        elif command == "flush":
            self._ack(frame, "completed")
            self.output += encode({"c": "ack", "a": "persisted", "status": "success", "s": self.last})

    def _ack(self, frame: Frame, kind: str, **fields: Any) -> None:
        self.output += encode({"c": "ack", "cid": frame["cid"], "a": kind, "status": "success", **fields})

    def deliver(self) -> None:
        for name, at in self.subscriptions.items():
            for n in range(at, len(self.log)):
                body = self.log[n]
                self.output += encode({"c": "p", "t": "t", "sids": name, "bm": f"1|{n + 1}|", "l": len(body)}, body)
            self.subscriptions[name] = len(self.log)


class World:
    """A client's engine, a server, and the wire between them."""

    def __init__(self) -> None:
        self.store = MemoryPublishStore()
        self.bookmarks = MemoryBookmarkStore()
        self.engine = Engine(EngineConfig("me"), self.store, self.bookmarks)
        self.engine.recovers = True
        self.server = Server()
        self.wire = bytearray()
        self.published: list[bytes] = []
        self.acknowledged: list[str] = []
        self.routes: dict[str, Route] = {}
        self.filters: dict[str, str] = {}
        self.seen: dict[str, list[bytes]] = {}
        self.undiscarded: dict[str, list[int]] = {}
        self.tickets: list[Ticket] = []

    def act(self, action: str, n: int) -> None:
        engine = self.engine
        names = sorted(self.routes)
        name = names[n % len(names)] if names else ""
        if action == "publish":
            body = b"%d" % (len(self.published) + 1)
            try:
                engine.publish_body(TEMPLATE, body)
            except DisconnectedException:
                assert not engine.stats.messages_in, "after the first logon, the store takes every message"
                return
            self.published.append(body)
        elif action == "ack":
            self.acknowledged.append(f"{len(self.acknowledged)}|1|")
            engine.ack("q", self.acknowledged[-1], "", None, 0)
        elif action == "subscribe":
            name = f"s{len(self.seen)}"
            self.routes[name] = Route(RouteKind.COMMAND)
            self.seen[name] = []
            self.undiscarded[name] = []
            self.filters[name] = ""
            command = Command("subscribe", "t", sub_id=name, bookmark="0")
            self.tickets.append(engine.execute(command, self.routes[name], 0))
        elif action == "replace" and name:
            self.filters[name] = f"/n = {n}"
            command = Command(
                "subscribe", "t", filter=self.filters[name], sub_id=name, bookmark="0", options="replace"
            )
            self.tickets.append(engine.execute(command, self.routes[name], 0))
        elif action == "unsubscribe" and name:
            del self.routes[name], self.filters[name]
            self.tickets.append(engine.execute(Command("unsubscribe", sub_id=name), None, 0))
        elif action == "flush":
            self.tickets.append(engine.execute(Command("flush"), None, 0))
        elif action == "discard" and name and self.undiscarded[name]:
            waiting = self.undiscarded[name]
            self.bookmarks.discard(name, waiting.pop(n % len(waiting)))
        elif action == "to server":
            self.to_server(n)
        elif action == "to client":
            self.to_client(n)
        elif action == "exchange":
            self.to_server(1 << 30)
            self.to_client(1 << 30)
        elif action == "log on again":
            for part in ("lose", "connect", "exchange"):
                self.act(part, n)
        elif action == "lose":
            engine.connection_lost(0, DisconnectedException("gone"))
            self.wire.clear()
            self.server.drop()
        elif action == "connect" and engine.phase is Phase.DISCONNECTED:
            engine.connection_made(0, URI)
            engine.logon(0, None, None, "")
        self.events()

    def to_server(self, most: int) -> None:
        for chunk in self.engine.outgoing():
            self.wire += chunk
        self.server.receive(bytes(self.wire[:most]))
        del self.wire[:most]

    def to_client(self, most: int) -> None:
        self.engine.receive(bytes(self.server.output[:most]), 0)
        del self.server.output[:most]
        if self.engine.phase is Phase.LOGGED_ON:
            self.engine.recover(0)

    def events(self) -> None:
        for event in self.engine.events():
            if isinstance(event, Deliver):
                for message in event.messages:
                    if message.command == "publish":
                        self.seen[str(message.sub_id)].append(message.data)
                        self.undiscarded[str(message.sub_id)].append(message.store_seq)

    def settle(self) -> None:
        """Let everything arrive."""
        if self.engine.phase is Phase.DISCONNECTED:
            self.act("connect", 0)
        self.act("flush", 0)
        for _ in range(50):
            self.to_server(1 << 30)
            self.to_client(1 << 30)
            self.events()
            if not (self.engine.has_outgoing or self.server.output) and self.engine.ready:
                return
        raise AssertionError(f"still {self.engine.phase}")


amounts = st.integers(1, 400)
steps = st.tuples(st.sampled_from(CALLS + WIRE), amounts)


@given(st.lists(steps, max_size=80))
def test_nothing_is_lost_or_repeated(actions: list[tuple[str, int]]) -> None:
    """client.md §21 46, 53, §9.5: whatever is lost, and whenever"""
    world = World()
    for action, n in [("connect", 0), ("to server", 400), ("to client", 400), *actions]:
        world.act(action, n)
    world.settle()
    assert world.server.log == world.published
    assert sorted(world.server.acks, key=lambda bookmark: int(bookmark.split("|")[0])) == world.acknowledged
    for ticket in world.tickets:
        assert ticket.done, ticket
        assert ticket.error is None, ticket
    assert world.store.unpersisted_count() == 0
    assert set(world.server.subscriptions) == set(world.routes)
    for name in world.routes:
        assert world.seen[name] == world.published, name
        assert world.server.filters[name] == world.filters[name], name
