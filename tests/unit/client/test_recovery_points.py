"""Adapters that keep recovery points outside a bookmark store (client.md §7, §19.7)."""

import json
import threading
from collections.abc import Iterable

import pytest

from amps.client import (
    Client,
    ConflatingRecoveryPointAdapter,
    InvalidTopicException,
    MemoryBookmarkStore,
    Message,
    RecoveryPoint,
    SOWRecoveryPointAdapter,
    StoreException,
)
from tests.unit.client.peer import WAIT_S, Connection, Frame, in_background
from tests.unit.client.talk import LoggedOn, wait_for

TOPIC = "/ADMIN/bookmark_store"


class Kept:
    """An adapter that records its calls, and can be held or made to fail."""

    def __init__(self) -> None:
        self.updates: list[RecoveryPoint] = []
        self.purged: list[str | None] = []
        self.threads: set[str] = set()
        self.errors: list[Exception] = []
        self.closed = self.pruned = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.entered = threading.Event()

    def load(self) -> Iterable[RecoveryPoint]:
        return [RecoveryPoint("S", "7|1|")]

    def update(self, point: RecoveryPoint) -> None:
        self.entered.set()
        assert self.may_go_on.wait(WAIT_S)
        if self.errors:
            raise self.errors.pop()
        self.threads.add(threading.current_thread().name)
        self.updates.append(point)

    def purge(self, sub_id: str | None = None) -> None:
        self.purged.append(sub_id)

    def prune(self) -> None:
        self.pruned += 1

    def close(self) -> None:
        self.closed += 1


def point(number: int, sub_id: str = "S") -> RecoveryPoint:
    return RecoveryPoint(sub_id, f"7|{number}|")


def test_only_the_newest_point_of_each_subscription_is_passed_on() -> None:
    """client.md §7: the conflating adapter has its own update thread"""
    kept = Kept()
    kept.may_go_on.clear()
    adapter = ConflatingRecoveryPointAdapter(kept, interval=0.01)
    assert list(adapter.load()) == [point(1)]
    adapter.update(point(1))
    assert kept.entered.wait(WAIT_S)
    for number in range(2, 1000):  # while the other adapter does not answer, nothing waits
        adapter.update(point(number))
    adapter.update(point(5, "T"))
    kept.may_go_on.set()
    wait_for(lambda: len(kept.updates) == 3)
    assert kept.updates == [point(1), point(999), point(5, "T")]
    assert kept.threads == {"amps-recovery-points"}
    adapter.close()
    assert (len(kept.updates), kept.closed) == (3, 1)


def test_closing_passes_on_what_is_pending() -> None:
    kept = Kept()
    adapter = ConflatingRecoveryPointAdapter(kept, interval=3600)
    adapter.update(point(1))
    adapter.update(point(2))
    adapter.prune()
    assert (kept.updates, kept.pruned) == ([point(2)], 1)
    adapter.update(point(3))
    adapter.update(point(3, "T"))
    adapter.purge("T")
    adapter.close()
    adapter.close()
    assert (kept.updates, kept.purged, kept.closed) == ([point(2), point(3)], ["T"], 1)
    with pytest.raises(StoreException, match="closed"):
        adapter.update(point(4))
    assert "amps-recovery-points" not in [thread.name for thread in threading.enumerate()]


def test_a_point_that_could_not_be_saved_is_saved_later() -> None:
    kept = Kept()
    kept.errors = [OSError("no room"), OSError("no room")]
    adapter = ConflatingRecoveryPointAdapter(kept, interval=0.005)
    adapter.update(point(1))
    wait_for(lambda: kept.updates == [point(1)])
    kept.errors = [OSError("no room")]
    adapter.update(point(2))
    wait_for(lambda: kept.updates[-1] == point(2))
    kept.errors = [OSError("no room"), OSError("no room")]
    adapter.update(point(3))
    wait_for(lambda: kept.updates[-1] == point(3))
    adapter.close()
    with pytest.raises(ValueError, match="interval"):
        ConflatingRecoveryPointAdapter(kept, interval=0)


def test_closing_reports_a_point_that_cannot_be_saved() -> None:
    kept = Kept()
    adapter = ConflatingRecoveryPointAdapter(kept, interval=3600)
    adapter.update(point(1))
    kept.errors = [OSError("no room")]
    with pytest.raises(OSError, match="no room"):
        adapter.close()
    assert kept.closed == 1


def test_a_store_passes_points_on_through_the_conflating_adapter() -> None:
    kept = Kept()
    store = MemoryBookmarkStore(adapter=ConflatingRecoveryPointAdapter(kept, interval=3600))
    assert store.get_most_recent("S") == "7|1|"
    for number in range(2, 101):
        message = Message.parsed(b"", {"bookmark": f"7|{number}|"}, 0, sub_id="S")
        store.discard("S", store.log(message))
    store.close()
    assert kept.updates == [point(100)]


# The SOW topic, with a scripted peer as the server


class Topic:
    """The records of a SOW topic by their key, as a server would keep them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.records: dict[tuple[str, str], bytes] = {}

    def take(self) -> None:
        frame = self.connection.expect("publish")
        assert frame["t"] == TOPIC
        record = json.loads(frame.body)
        self.records[record["clientName"], record["subId"]] = frame.body

    def answer(self) -> Frame:
        """Answer a query."""
        frame = self.connection.expect("sow")
        query = {"query_id": frame.get("query_id") or frame["cid"]}
        self.connection.ack(frame, **query)
        self.connection.send({"c": "group_begin", **query})
        for body in self.records.values():
            self.connection.send({"c": "sow", **query, "l": len(body)}, body=body)
        self.connection.send({"c": "group_end", **query})
        return frame


def test_client_50_a_new_process_resumes_from_the_sow_topic(logged_on: LoggedOn) -> None:
    """client.md §21 50: one record per (client name, sub id)"""
    client, connection = logged_on()
    topic = Topic(connection)
    adapter = SOWRecoveryPointAdapter(client, "o'hara\\s")
    with in_background(MemoryBookmarkStore, adapter=adapter) as call:
        assert topic.answer()["f"] == r"/clientName = 'o\'hara\\s'"
    store: MemoryBookmarkStore = call.result()
    for sub_id in ("S", "T"):
        for number in (1, 2):
            message = Message.parsed(b"", {"bookmark": f"7|{number}|"}, 0, sub_id=sub_id)
            store.discard(sub_id, store.log(message))
    for _ in range(6):  # the first message of a subscription is a point, too
        topic.take()
    assert {key: json.loads(body) for key, body in topic.records.items()} == {
        ("o'hara\\s", sub_id): {"clientName": "o'hara\\s", "subId": sub_id, "bookmark": "7|2|"}
        for sub_id in ("S", "T")
    }
    with in_background(store.close):
        connection.ack(connection.expect("flush"), "completed")
    with in_background(MemoryBookmarkStore, adapter=SOWRecoveryPointAdapter(client, "o'hara\\s")) as call:
        topic.answer()
    again: MemoryBookmarkStore = call.result()
    assert (again.get_most_recent("S"), again.get_most_recent("T")) == ("7|2|", "7|2|")
    with in_background(again.purge, "S"):
        frame = connection.expect("sow_delete")
        assert frame["f"] == r"/clientName = 'o\'hara\\s' AND /subId = 'S'"
        connection.ack(frame, ack_type=sorted(frame.acks)[-1])


def test_client_50_names_of_the_topic_and_its_fields(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    adapter = SOWRecoveryPointAdapter(
        client, "me", topic="points", client_name_field="c", sub_id_field="s", bookmark_field="b"
    )
    adapter.update(RecoveryPoint("S", "7|1|"))
    frame = connection.expect("publish")
    assert (frame["t"], json.loads(frame.body)) == ("points", {"c": "me", "s": "S", "b": "7|1|"})
    with in_background(adapter.purge):
        frame = connection.expect("sow_delete")
        assert (frame["t"], frame["f"]) == ("points", "/c = 'me'")
        connection.ack(frame, ack_type=sorted(frame.acks)[-1])


def failure(client: Client, connection: Connection, *, body: bytes | None) -> BaseException | None:
    """What making a store raises if a record has this body, or the server has no such topic."""
    adapter = SOWRecoveryPointAdapter(client, "me")
    topic = Topic(connection)
    outcome = None
    try:
        with in_background(MemoryBookmarkStore, adapter=adapter) as outcome:
            if body is None:
                connection.ack(connection.expect("sow"), status="failure", reason="invalid topic")
            else:
                topic.records["me", "S"] = body
                topic.answer()
    except (StoreException, InvalidTopicException) as error:
        return error
    return outcome.error if outcome is not None else None


def test_client_50_what_is_no_recovery_point_is_refused(logged_on: LoggedOn) -> None:
    client, connection = logged_on()
    assert isinstance(failure(client, connection, body=None), InvalidTopicException)
    for body in (b"{", b"[]", b'{"clientName":"me","subId":"S"}', b'{"clientName":"me","subId":"S","bookmark":1}'):
        error = failure(client, connection, body=body)
        assert isinstance(error, StoreException), body
        assert TOPIC in str(error)


def test_client_50_closing_waits_for_the_server(logged_on: LoggedOn) -> None:
    """A server that does not answer is a StoreException after the timeout."""
    client, connection = logged_on()
    adapter = SOWRecoveryPointAdapter(client, "me", timeout=0.05)
    adapter.update(RecoveryPoint("S", "7|1|"))
    with pytest.raises(StoreException, match="may not be saved"):
        adapter.close()
    assert connection.expect("publish")["t"] == TOPIC
