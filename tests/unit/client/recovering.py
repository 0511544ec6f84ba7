"""An engine over several servers, for tests of recovery."""

from typing import Any

from amps.client import (
    Command,
    DisconnectedException,
)
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.engine_types import (
    Phase,
    Route,
    RouteKind,
    Ticket,
)
from tests.unit.client.harness import Harness
from tests.unit.client.peer import Frame

LOST = DisconnectedException("gone")
TEMPLATE = PublishTemplate("publish", "t")


class Recovering(Harness):
    """An engine that recovers, and its changing servers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.engine.recovers = True

    def ready(self, seq: int = 0) -> "Recovering":
        self.logon(seq)
        self.engine.recover(self.now)
        self.sent()
        assert self.engine.phase is Phase.READY
        self.engine.events()
        return self

    def lose(self) -> list[Any]:
        self.engine.connection_lost(self.now, LOST)
        return self.events()

    def reconnect(self, seq: int = 0) -> list[Frame]:
        """Log on to the next server and recover; return what the engine sends before subscriptions are accepted."""
        self.logon(seq)
        self.sent()
        self.engine.recover(self.now)
        return self.sent()

    def accept(self, *frames: Frame) -> None:
        for frame in frames:
            self.receive({"c": "ack", "cid": frame["cid"], "a": "processed", "status": "success"})

    def again(self, seq: int = 0) -> list[Frame]:
        """Lose the connection, recover on the next, accept all subscriptions; return what was sent."""
        self.lose()
        frames = self.reconnect(seq)
        self.accept(*[frame for frame in frames if "subscribe" in frame["c"]])
        assert self.engine.phase is Phase.READY
        return frames + self.sent()

    def start(self, command: Command, route: Route | None = None, **options: Any) -> Ticket:
        return self.engine.execute(command, route, self.now, **options)

    def enter(self, command: Command, **options: Any) -> Route:
        """Execute a command that the server accepts."""
        route = Route(RouteKind.COMMAND)
        ticket = self.start(command, route, **options)
        self.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
        self.sent()
        self.engine.events()
        return route

    def message(self, sub_id: str, bookmark: str, body: bytes = b"{}") -> None:
        self.receive({"c": "p", "t": "t", "sids": sub_id, "bm": bookmark, "l": len(body)}, body=body)


def subscribe(sub_id: str = "s", **fields: Any) -> Command:
    return Command("subscribe", "t", sub_id=sub_id, **fields)
