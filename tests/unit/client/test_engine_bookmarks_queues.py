"""The engine's bookmark subscriptions and queue acknowledgements."""

import pytest

from amps.client import EPOCH, MOST_RECENT, NOW, Command, Message
from amps.client.protocol.engine_types import Duplicate, Route, RouteKind, StreamEnd, TicketDone
from tests.unit.client.harness import Harness


@pytest.mark.parametrize(
    ("bookmark", "wire"),
    [
        (EPOCH, "0"),
        (NOW, "0|1|"),
        ("0|1", "0|1|"),
        (MOST_RECENT, "0"),
        ("1|2|,3|4|", "1|2|,3|4|"),
        ("20240301T090000Z", "20240301T090000Z"),
        ("[1|2|:3|4|)", "[1|2|:3|4|)"),
    ],
)
def test_client_43_bookmarks_on_the_wire(bookmark: str, wire: str) -> None:
    """client.md §21 43"""
    h = Harness().ready()
    h.engine.execute(Command("subscribe", "t", bookmark=bookmark), Route(RouteKind.COMMAND), h.now)
    assert h.sent()[0]["bm"] == wire


class Bookmarks:
    """A bookmark store that records its calls."""

    def __init__(self, recent: str | None) -> None:
        self.recent = recent
        self.seen: set[str | None] = set()
        self.stable: list[tuple[str, str]] = []
        self.released_ids: list[str] = []

    def log(self, message: Message) -> int:
        self.seen.add(message.bookmark)
        return len(self.seen)

    def is_discarded(self, message: Message) -> bool:
        return message.bookmark in self.seen

    def discard(self, sub_id: str, store_seq: int) -> None: ...

    def persisted(self, sub_id: str, bookmark: str) -> None:
        self.stable.append((sub_id, bookmark))

    def get_most_recent(self, sub_id: str) -> str | None:
        return self.recent

    def get_oldest_seq(self, sub_id: str) -> int:
        return 0

    def released(self, sub_id: str) -> None:
        self.released_ids.append(sub_id)

    def purge(self, sub_id: str | None = None) -> None: ...

    def prune(self) -> None: ...

    def close(self) -> None: ...


def test_client_44_the_engine_uses_the_bookmark_store() -> None:
    """client.md §21 44 and §7: the store supplies the resume point, detects duplicates and receives persisted acks"""
    store = Bookmarks("7|8|")
    h = Harness(bookmark_store=store).ready()
    command = Command("subscribe", "t", sub_id="S", bookmark=MOST_RECENT)
    ticket = h.engine.execute(command, Route(RouteKind.COMMAND), h.now)
    (sent,) = h.sent()
    assert (sent["bm"], sent.acks) == ("7|8|", {"processed", "persisted"})
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.engine.events()
    h.receive({"c": "p", "t": "t", "sids": "S", "bm": "1|1|"}, body=b"x")
    h.receive({"c": "p", "t": "t", "sids": "S", "bm": "1|1|"}, body=b"x")
    h.receive(
        {
            "c": "ack",
            "cid": ticket.command_id,
            "a": "persisted",
            "sub_id": "S",
            "bm": "1|9|",
            "status": "success",
        }
    )
    deliver, duplicate = h.events()
    assert deliver.messages[0].store_seq == 1
    assert isinstance(duplicate, Duplicate)
    assert h.engine.stats.duplicates_dropped == 1
    assert store.stable == [("S", "1|9|")]
    h.engine.connection_lost(h.now, None)
    assert store.released_ids == ["S"]


def test_client_44_without_a_store_only_processed_is_requested() -> None:
    """client.md §21 44"""
    h = Harness().ready()
    h.engine.execute(Command("subscribe", "t", bookmark=EPOCH), Route(RouteKind.COMMAND), h.now)
    assert h.sent()[0].acks == {"processed"}


def test_client_51_replays_with_an_end_end() -> None:
    """client.md §21 51, the engine's part: ranges end at `completed`, top_n after that many messages"""
    h = Harness().ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", bookmark="[1|1|:1|3|)"), route, h.now)
    (sent,) = h.sent()
    assert sent.acks == {"processed", "completed"}
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "completed", "status": "success"})
    assert [type(event) for event in h.events()] == [TicketDone, StreamEnd]
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "t", bookmark=EPOCH, top_n=2), route, h.now)
    h.receive({"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success"})
    h.receive(*[{"c": "p", "t": "t", "sids": ticket.command_id}] * 2)
    assert isinstance(h.events()[-1], StreamEnd)
    assert route.closed


def test_client_37_acks_are_batched_by_topic_and_backlog() -> None:
    """client.md §21 37, 38"""
    h = Harness(ack_batch_size=100).ready()
    route = Route(RouteKind.COMMAND)
    ticket = h.engine.execute(Command("subscribe", "q.*", sub_id="S", options="max_backlog=5"), route, h.now)
    h.receive(
        {"c": "ack", "cid": ticket.command_id, "a": "processed", "status": "success", "o": "max_backlog=3"}
    )
    assert route.max_backlog == 3
    h.sent()
    h.engine.ack("q.1", "1|1|", "", "S", h.now)
    h.engine.ack("q.2", "1|2|", "", "S", h.now)
    assert h.sent() == []
    h.engine.ack("q.1", "1|3|", "", "S", h.now)
    assert [frame.header for frame in h.sent()] == [
        {"c": "sow_delete", "t": "q.1", "bm": "1|1|,1|3|"},
        {"c": "sow_delete", "t": "q.2", "bm": "1|2|"},
    ]


def test_client_42_leftover_acks_go_out_after_logon_before_anything_else() -> None:
    """client.md §21 42, the engine's part"""
    h = Harness(ack_batch_size=10).ready()
    h.subscribe("S")
    h.engine.ack("q", "1|1|", "", "S", h.now)
    h.engine.ack("q", "1|2|", "", "S", h.now)
    h.engine.connection_lost(h.now, None)
    h.logon()
    h.engine.execute(Command("subscribe", "q"), Route(RouteKind.COMMAND), h.now)
    assert [(frame["c"], frame.get("bm")) for frame in h.sent()][1:] == [
        ("sow_delete", "1|1|,1|2|"), ("subscribe", None),
    ]  # fmt: skip
