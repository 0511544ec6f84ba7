"""An engine with direct access to the peer's side of the wire, without sockets."""

from typing import Any

from amps.client import Command
from amps.client.protocol.engine import Engine
from amps.client.protocol.engine_types import Deliver, EngineConfig, Event, Route, RouteKind
from amps.client.uri import parse_uri
from tests.unit.client.peer import Frame, encode, split_frames

URI = parse_uri("tcp://h:1/amps/json")


class Harness:
    """An engine with direct access to the peer's side of the wire."""

    def __init__(self, **options: Any) -> None:
        stores = {name: options.pop(name, None) for name in ("publish_store", "bookmark_store", "subscriptions")}
        if stores["publish_store"] is not None:
            stores["publish_store"].open("me")
        self.engine = Engine(EngineConfig("me", **options), **stores)
        self.now = 100.0

    def sent(self) -> list[Frame]:
        """The frames that the engine has queued for sending; the queue is empty afterwards."""
        return split_frames(b"".join(self.engine.outgoing()))

    def events(self, *kinds: type) -> list[Any]:
        return [event for event in self.engine.events() if not kinds or isinstance(event, kinds)]

    def receive(self, *headers: dict[str, Any], body: bytes = b"") -> None:
        data = b"".join(encode(header) for header in headers[:-1]) + encode(headers[-1], body)
        self.engine.receive(data, self.now)

    def connect(self) -> None:
        self.engine.connection_made(self.now, URI)

    def logon(self, seq: int = 0, **fields: Any) -> None:
        self.connect()
        ticket = self.engine.logon(self.now, None, None, "")
        ack = {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success", "s": seq}
        self.receive({**ack, **fields})

    def ready(self, seq: int = 0, **fields: Any) -> "Harness":
        self.logon(seq, **fields)
        self.sent()
        self.engine.events()
        return self

    def subscribe(self, sub_id: str | None = None, **options: Any) -> Route:
        route = Route(RouteKind.COMMAND)
        command = Command("subscribe", "t", sub_id=sub_id, **options)
        ticket = self.engine.execute(command, route, self.now)
        self.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
        self.engine.outgoing()
        self.engine.events()
        return route


def delivered(events: list[Event]) -> list[tuple[str | None, bytes]]:
    return [(m.sub_id, m.data) for event in events if isinstance(event, Deliver) for m in event.messages]
