"""Random changes of SOW topics and random subscriptions, compared with a model of sow.md §§13, 17 and 18.

Each change is followed by the frames that the model expects for it, on every connection, and by nothing else.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess
from tests.support.sow_topics import focus_server

Document = dict[str, object]
Frame = tuple[str, list[str], str, str]
"""Command, ids, reason, and the body with its fields in order."""

KEYS = ("one", "two", "three")
CONNECTIONS = 3
SUBSCRIPTIONS = 5
CHANGES = 150

FILTERS: dict[str, Callable[[Document], bool]] = {
    "": lambda d: True,
    "/a > 1": lambda d: number(d, "a") > 1,
    "/a = 1": lambda d: number(d, "a") == 1,
    "/a IN (0, 2)": lambda d: number(d, "a") in (0, 2),
    "/a = 1 OR /b = 1": lambda d: 1 in (number(d, "a"), number(d, "b")),
    "/b IS NULL": lambda d: "b" not in d,
    "/a = 7": lambda d: False,
}
SELECTS: dict[str, Callable[[str], bool]] = {
    "": lambda name: True,
    "[-/a]": lambda name: name != "a",
    "[-/,+/b,+/id]": lambda name: name in ("b", "id"),
}


def number(document: Document, name: str) -> int:
    found = document.get(name, -1)
    assert isinstance(found, int)
    return found


@dataclass(frozen=True)
class Wanted:
    """A subscription."""

    sub_id: str
    text: str
    select: str
    delta: bool
    oof: bool
    no_empties: bool

    def matches(self, document: Document | None) -> bool:
        return document is not None and FILTERS[self.text](document)

    def header(self, topic: str) -> dict[str, str | bool]:
        options = [f"select={self.select}"] if self.select else []
        options += ["oof"] if self.oof else []
        options += ["no_empties"] if self.no_empties else []
        command = "delta_subscribe" if self.delta else "subscribe"
        said = {"f": self.text} if self.text else {}
        return {"c": command, "t": topic, "sub_id": self.sub_id, "o": ",".join(options), **said}


def selected(document: Document, select: str) -> Document:
    return {name: value for name, value in document.items() if SELECTS[select](name)}


def difference(old: Document, new: Document) -> tuple[Document, bool]:
    changed = {name: new.get(name) for name in {**old, **new} if old.get(name) != new.get(name)}
    keys = {name: value for name, value in new.items() if name == "id"}
    return {**keys, **changed}, bool(changed)


def frame(command: str, members: list[Wanted], body: Document, reason: str = "") -> Frame:
    return command, sorted(member.sub_id for member in members), reason, json.dumps(body, sort_keys=True)


def expected(members: list[Wanted], before: Document | None, after: Document | None) -> list[Frame]:
    """The frames for one connection: of a change, or of a removal (`after` None)."""
    frames = []
    for select in SELECTS:
        own = [member for member in members if member.select == select]
        matching = [member for member in own if member.matches(after)]
        if after is not None and matching:
            whole = before is None or any(
                not member.delta or (member.oof and not member.matches(before)) for member in matching
            )
            body = selected(after, select)
            if before is not None and not whole:
                body, changed = difference(selected(before, select), body)
                matching = [member for member in matching if changed or not member.no_empties]
            if matching:
                frames.append(frame("p", matching, body))
        left = [m for m in own if m.oof and m.matches(before) and not m.matches(after)]
        if left:
            last = before if after is None else after
            assert last is not None
            frames.append(frame("oof", left, selected(last, select), "deleted" if after is None else "match"))
    return sorted(frames)


def received(message: Message) -> Frame:
    body = json.dumps(json.loads(message.body), sort_keys=True)
    return message.command, sorted(message.subscriptions), message.reason, body


@pytest.fixture(scope="module")
def sow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    yield from focus_server(tmp_path_factory)


class World:
    """Connections with subscriptions, and the state that they should see."""

    def __init__(self, chance: random.Random, topic: str, peers: Peers, server: ServerProcess) -> None:
        self.chance = chance
        self.topic = topic
        self.publisher = peers.logged_on(server)
        self.clients: list[tuple[RawClient, list[Wanted]]] = []
        self.numbers = iter(range(10_000))
        self.state: dict[str, Document] = {}
        for _ in range(CONNECTIONS):
            self.clients.append((peers.logged_on(server), []))
        for client, members in self.clients:
            for _ in range(SUBSCRIPTIONS):
                self.subscribe(client, members)

    def subscribe(self, client: RawClient, members: list[Wanted]) -> None:
        chance = self.chance
        delta = chance.random() < 0.5
        member = Wanted(
            f"s{next(self.numbers)}",
            chance.choice(list(FILTERS)),
            chance.choice(list(SELECTS)),
            delta,
            chance.random() < 0.6,
            delta and chance.random() < 0.5,
        )
        assert client.request(member.header(self.topic)).succeeded
        members.append(member)

    def resubscribe(self) -> None:
        client, members = self.chance.choice(self.clients)
        gone = members.pop(self.chance.randrange(len(members)))
        assert client.unsubscribe(gone.sub_id).succeeded
        self.subscribe(client, members)

    def step(self) -> str:
        """Make a change, and check what every connection gets. Returns what was done."""
        chance, key = self.chance, self.chance.choice(KEYS)
        before = self.state.get(key)
        fields: Document = {
            name: chance.randrange(top) for name, top in (("a", 4), ("b", 3), ("c", 2)) if chance.random() < 0.7
        }
        body: Document = {"id": key, **fields}
        what = chance.choices(("p", "delta_publish", "sow_delete"), (5, 3, 1))[0]
        after: Document | None
        if what == "sow_delete":
            after = None
            self.publisher.request({"c": what, "t": self.topic}, json.dumps({"id": key}).encode())
            self.state.pop(key, None)
        else:
            after = body if what == "p" or before is None else {**before, **body}
            self.publisher.send({"c": what, "t": self.topic}, json.dumps(body).encode())
            self.state[key] = after
        for client, members in self.clients:
            wanted = expected(members, before, after)
            found = [received(message) for message in client.receive_many(len(wanted))]
            assert sorted(found) == wanted, f"{what} {body} after {before}, for {members}"
        return what


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("topic", ["others", "L/others"])
def test_sow_13_17_18_random_changes(peers: Peers, sow_server: ServerProcess, topic: str, seed: int) -> None:
    """sow.md §§13, 17, 18: every connection gets exactly the frames of the model, for each of many changes."""
    peers.logged_on(sow_server).request({"c": "sow_delete", "t": topic, "f": "1=1"}, ack="completed")
    world = World(random.Random(seed), topic, peers, sow_server)
    for number in range(CHANGES):
        if number % 10 == 9:
            world.resubscribe()
        world.step()
    world.publisher.flush()  # before another test deletes all records
    for client, _ in world.clients:
        client.expect_silence()
