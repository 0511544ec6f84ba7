"""Paginated subscriptions to a live server, compared with the model after each command (sow.md §§11, 13, 17, 18, D19).

Each seed makes random commands, and random subscriptions that come, are replaced and go.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from amps._core.sow.shaping import KeyMaker
from amps.expressions import parse_field
from amps.messages import make_message_types, standard_settings
from tests.support import sow_views
from tests.support.peer import Message, RawClient
from tests.support.peers import Peers
from tests.support.queues import records_of
from tests.support.server import ServerProcess, StartServer
from tests.support.sow import options, topic_xml
from tests.support.sow_model import Change, Settings, SowModel
from tests.support.sow_views import Event, OrderField, Row, View

LOGGED = [pytest.param([], id="in the value file"), pytest.param(["orders"], id="in the journal")]
TYPES = make_message_types(standard_settings().values())
KEYS = KeyMaker(b"orders", (parse_field("/id"),), TYPES["json"].extractor())
ORDERS = [
    ("", ()),
    ("/p", (OrderField("/p"),)),
    ("/p DESC,/t", (OrderField("/p", descending=True), OrderField("/t"))),
    ("/t TEXT", (OrderField("/t", as_text=True),)),
]
FILTERS: list[tuple[str, Callable[[Any], bool]]] = [
    ("", sow_views.everything),
    ("/a > 3", lambda message: isinstance(message.get("a"), int) and message["a"] > 3),
]
SELECTS = [("", ()), ("select=[-/b]", ("-/b",))]


@dataclass
class Subscriber:
    """A client with one subscription, and its view of the topic."""

    client: RawClient
    view: View
    header: dict[str, Any]


def random_view(chance: random.Random, delta: bool) -> tuple[View, dict[str, Any]]:
    """The view of a page, and the header that asks for it."""
    order_by, order = chance.choice(ORDERS)
    text, matches = chance.choice(FILTERS)
    select, lists = chance.choice(SELECTS)
    oof, no_empties = chance.random() < 0.7, delta and chance.random() < 0.5
    top, skip = chance.choice([0, 1, 2, 3, 5, 100]), chance.choice([0, 0, 1, 2, 4, 9])
    said = [f"top_n={top}", f"skip_n={skip}", "oof" * oof, "no_empties" * no_empties, select]
    view = View(matches, oof=oof, delta=delta, no_empties=no_empties, select=lists, order_by=order, top=top, skip=skip)
    command = "sow_and_delta_subscribe" if delta else "sow_and_subscribe"
    header = {"c": command, "t": "orders", "sub_id": "s", "o": ",".join(filter(None, said)), "bs": 3}
    return view, header | ({"orderby": order_by} if order_by else {}) | ({"f": text} if text else {})


def row_of(key: Any, body: bytes) -> Row:
    return Row(int(key), json.loads(body))


def event_of(message: Message) -> Event:
    reason = message.get("reason")
    assert message.command == ("p" if reason is None else "oof")
    return Event(int(str(message["k"])), json.loads(message.body), None if reason is None else str(reason))


def comes_in_order(found: list[Event], expected: list[Event], batch: bool) -> None:
    """Out-of-focus messages are first; those of a batch, which is one transaction, in any order."""
    if batch:
        count = sum(event.reason is not None for event in expected)
        assert sorted(found[:count], key=str) == sorted(expected[:count], key=str)
        assert found[count:] == expected[count:]
    else:
        assert found == expected


class Run:
    """A server and the model of its topic, driven by one seed."""

    def __init__(self, seed: int, server: ServerProcess, peers: Peers) -> None:
        self.chance = random.Random(seed)
        self.model = SowModel(Settings(), lambda text: KEYS.text_key(text.split(b"\x01", 1)[1]))
        self.publisher = peers.logged_on(server)
        self.new_client = lambda: peers.logged_on(server)
        self.subscribers: list[Subscriber] = []

    def body(self) -> str:
        chance = self.chance
        fields: dict[str, Any] = {"id": chance.randrange(14)}
        for name, values in (
            ("p", [1, 2, 2.5, -3, None, True, "x", 10]),
            ("t", ["a", "b", "B", 5, 12, None]),
            ("a", list(range(8))),
            ("b", [1, 2]),
        ):
            if chance.random() < 0.8:
                fields[name] = chance.choice(values)
        return json.dumps(fields)

    def change(self) -> list[Change]:
        """A command to the server and to the model."""
        kind = self.chance.choices(["p", "delta_publish", "one", "many"], [8, 6, 3, 1])[0]
        if kind in ("p", "delta_publish"):
            body = self.body()
            self.publisher.send({"c": kind, "t": "orders"}, body.encode())
            self.publisher.flush()
            return self.model.publish(body) if kind == "p" else self.model.delta_publish(body)
        limit = self.chance.randrange(14)
        text = f"/id = {limit}" if kind == "one" else f"/id > {limit}"
        self.publisher.send({"c": "sow_delete", "t": "orders", "cid": "d", "f": text, "a": "completed"})
        self.publisher.wait_for_ack("completed", "d")
        self.publisher.flush()
        if kind == "one":
            return self.model.delete_where(lambda message: message["id"] == limit)
        return self.model.delete_where(lambda message: message["id"] > limit)

    def subscribe(self) -> None:
        view, header = random_view(self.chance, self.chance.random() < 0.4)
        subscriber = Subscriber(self.new_client(), view, header)
        subscriber.client.send({**header, "cid": "1"})
        found = [row_of(row.header["k"], row.body) for row in records_of(subscriber.client)]
        assert found == sow_views.rows(view, self.model.state())
        self.subscribers.append(subscriber)

    def replace(self, subscriber: Subscriber) -> None:
        view, header = random_view(self.chance, subscriber.view.delta)
        header.setdefault("orderby", "/p")
        if not view.order_by:
            view = replace(view, order_by=(OrderField("/p"),))
        client = subscriber.client
        client.send({**header, "o": f"replace,{header['o']}", "cid": "r", "a": "completed"})
        rows, left = sow_views.replaced(subscriber.view, view, self.model.state())
        assert [row_of(row.header["k"], row.body) for row in records_of(client)] == rows
        found = [event_of(message) for message in client.receive_many(len(left))] if left else []
        assert sorted(found, key=str) == sorted(left, key=str)
        assert client.receive().is_ack("completed")
        subscriber.view, subscriber.header = view, header

    def step(self) -> None:
        choice = self.chance.random()
        if choice < 0.08 and len(self.subscribers) < 8:
            self.subscribe()
        elif choice < 0.12 and self.subscribers:
            self.replace(self.chance.choice(self.subscribers))
        elif choice < 0.14 and len(self.subscribers) > 2:
            gone = self.subscribers.pop(self.chance.randrange(len(self.subscribers)))
            gone.client.close()
        changes = self.change()
        if not changes:
            return
        for subscriber in self.subscribers:
            expected = sow_views.events(subscriber.view, self.model, changes[0].txid)
            if expected:
                found = [event_of(message) for message in subscriber.client.receive_many(len(expected))]
                comes_in_order(found, expected, len(changes) > 1)

    def end(self) -> None:
        """Nothing else was sent."""
        for subscriber in self.subscribers:
            subscriber.client.expect_silence()


@pytest.mark.parametrize("logged", LOGGED)
@pytest.mark.parametrize("seed", range(4))
def test_sow_pages_are_those_of_the_model(
    start_server: StartServer, peers: Peers, logged: list[str], seed: int
) -> None:
    """sow.md §25, 42; §11, D19."""
    run = Run(seed, start_server(**options(topic_xml("orders", "/id"), logged=logged)), peers)
    for _ in range(seed * 5):
        run.change()
    for _ in range(120):
        run.step()
    run.end()
