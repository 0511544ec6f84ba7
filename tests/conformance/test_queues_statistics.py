"""The state of queues that a running server shows over HTTP, and the switches there (queues.md §18, §16.4).

The tests never measure ages. They only wait until an age changes.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.admin import get
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.queues import Queueing, acknowledge, options, queue_xml, result, transact, transaction_body
from tests.support.server import StartServer, wait_until

WAIT_S = 15.0
METRICS = {
    "age_of_oldest_lease",
    "backlog",
    "deferred_ack_count",
    "expired_leases",
    "inactive_message_count",
    "max_backlog",
    "message_type",
    "owned",
    "proxied_transfer",
    "queue_depth",
    "seconds_behind",
    "target_queue_depth",
    "topic",
    "transferred_in",
    "transferred_out",
}
DETAILS = {
    "age_of_oldest_lease",
    "backlog",
    "cursors",
    "delete_count",
    "depth",
    "expired_leases",
    "insert_count",
    "internal_depth",
    "last_acked_txid",
    "last_queued_txid",
    "locally_owned",
    "messages",
    "priority_count",
    "seconds_behind",
    "transferred_in",
}


class Observed(Queueing):
    """A server with queues and an administration interface."""

    port = 0

    def text(self, path: str) -> str:
        answer = get(self.port, f"/amps/{path}")
        assert answer.status == 200, answer.body
        return answer.body

    def metrics(self, queue: str = "Q") -> dict[str, Any]:
        found = json.loads(self.text(f"instance/queues/{queue}!json.json"))["amps"]["instance"]["queues"]
        (row,) = found
        assert row.pop("id") == f"{queue}!json"
        return dict(row)

    def sow(self, queue: str = "Q") -> dict[str, Any]:
        (row,) = json.loads(self.text(f"instance/sow/{queue}!json.json"))["amps"]["instance"]["sow"]
        return dict(row)

    def details(self, queue: str = "Q") -> dict[str, Any]:
        return dict(json.loads(self.text(f"instance/queues/{queue}!json/details")))

    def wait_for(self, queue: str = "Q", **expected: str) -> None:
        """Wait until the metrics have these values."""
        wait_until(
            lambda: self.metrics(queue).items() >= expected.items(),
            WAIT_S,
            f"{expected} of {self.metrics(queue)}",
        )

    def wait_for_age(self, name: str, queue: str = "Q") -> None:
        """Wait until an age is a second or more."""
        wait_until(lambda: int(self.metrics(queue)[name]) >= 1, WAIT_S, f"{name} does not move")


Start = Callable[..., Observed]


@pytest.fixture
def start(start_server: StartServer, peers: Peers) -> Iterator[Start]:
    port = reserve_port()

    def started(*queues: str, actions: str = "", **more: Any) -> Observed:
        given = options(*queues, **more)
        given["instance_xml"] += f"<Actions>{actions}</Actions>" if actions else ""
        given["instance_xml"] += f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>"
        observed = Observed(start_server(**given), peers)
        observed.port = port
        return observed

    yield started
    release_port(port)


def test_queues_67_metrics(start: Start) -> None:
    """queues.md §24, 67: the fields of §18, for one queue, for all, in all forms."""
    observed = start(queue_xml("Q", "T", MaxBacklog=7), queue_xml("Q2", "T2", TargetQueueDepth=2000))
    metrics = observed.metrics()
    assert metrics.keys() == METRICS
    assert (metrics["topic"], metrics["message_type"]) == ("Q", "json")
    assert (metrics["max_backlog"], metrics["target_queue_depth"]) == ("7", "0")
    assert observed.metrics("Q2")["target_queue_depth"] == "2000"
    everything = json.loads(observed.text("instance.json"))["amps"]["instance"]
    assert [queue["id"] for queue in everything["queues"]] == ["Q!json", "Q2!json"]
    assert everything["queues"][0].keys() == METRICS | {"id"}, "details are not part of it"
    assert observed.text("instance/queues/Q!json/queue_depth") == "0"
    assert "<queue id='Q!json'><topic>Q</topic></queue>" in observed.text("instance/queues/Q!json/topic.xml")
    assert get(observed.port, "/amps/instance/queues/Q!xml").status == 404


def test_queues_67_details(start: Start) -> None:
    """queues.md §24, 67; operations.md §13, 39: the holder of each message by client name, at once, while it is
    leased.
    """
    observed = start(queue_xml("Q", "T"))
    observed.publish(1, 2, 3)
    details = observed.details()
    assert details.keys() == DETAILS
    assert details["depth"] == details["insert_count"] == len(details["messages"]) == 3
    assert all("leased_to" not in message for message in details["messages"])
    assert [message["deliverable"] for message in details["messages"]] == [1, 1, 1]

    consumer = observed.consumer(2)
    received = consumer.receive_published(2)
    details = observed.details()
    assert [message.get("leased_to") for message in details["messages"]] == [consumer.client_name] * 2 + [
        None
    ]
    assert [message["bookmark"] for message in details["messages"][:2]] == [one["bm"] for one in received]
    assert [message["deliverable"] for message in details["messages"]] == [0, 0, 1]
    assert details["messages"][0]["leased_age"] >= 0
    assert details["messages"][0]["journal"].endswith(".journal")
    txids = [message["txid"] for message in details["messages"]]
    assert txids == sorted(set(txids))
    assert txids[0] > 0
    assert details["last_queued_txid"] == txids[2]
    assert details["backlog"] == 2

    acknowledge(consumer, received[0], a="processed")
    consumer.receive_published(1)
    details = observed.details()
    assert (details["depth"], details["delete_count"], details["last_acked_txid"]) == (2, 1, txids[0])
    (cursor,) = [one for one in details["cursors"] if one["cursor_subscriptions"]]
    assert cursor["cursor_subscriptions"] == [
        {
            "client_name": consumer.client_name,
            "sub_id": "s",
            "topic": "Q",
            "filter": "",
            "backlog": 2,
            "max_backlog": 2,
        }
    ]
    assert (cursor["last_delivered_txid"], cursor["last_processed_txid"]) == (txids[2], txids[2])
    assert (cursor["state"], cursor["last_result"], cursor["processing_count"]) == ("full", "delivered", 2)

    consumer.unsubscribe("s")
    wait_until(lambda: observed.details()["backlog"] == 0, WAIT_S, "still leased")
    assert ["leased_to" in message for message in observed.details()["messages"]] == [False] * 2


def test_queues_67_dump(start: Start) -> None:
    """queues.md §24, 67; operations.md §13, 40: exactly one record, a line for each queue, the fullest first."""
    observed = start(queue_xml("Q", "T"), queue_xml("Q2", "T2"))
    observed.publish(1, 2, topic="T2")
    observed.text("administrator/diagnostics/dump")
    log = observed.server.log
    log.wait_for("31-0010", "'Q!json': queue_depth 0")
    text = log.text()
    assert text.count("31-0010") == 1
    assert 0 < text.index("'Q2!json': queue_depth 2") < text.index("'Q!json': queue_depth 0")


def test_queues_depth_backlog_and_ages(start: Start) -> None:
    """queues.md §18: depth, owned, backlog, ages of the oldest message and of the oldest lease."""
    observed = start(queue_xml("Q", "T"))
    observed.publish(1, 2, 3)
    observed.wait_for(queue_depth="3", owned="3", backlog="0", age_of_oldest_lease="0")
    observed.wait_for_age("seconds_behind")
    consumer = observed.consumer(2)
    received = consumer.receive_published(2)
    observed.wait_for(queue_depth="3", backlog="2")
    observed.wait_for_age("age_of_oldest_lease")
    acknowledge(consumer, *received, a="processed")
    received = consumer.receive_published(1)
    observed.wait_for(queue_depth="1", backlog="1")
    acknowledge(consumer, *received, a="processed")
    observed.wait_for(queue_depth="0", backlog="0", seconds_behind="0", age_of_oldest_lease="0", owned="0")


def test_queues_backlog_of_subscriptions(start: Start) -> None:
    """operations.md §5.7: the leased messages of each subscription, over all of its queues."""
    observed = start(queue_xml("Q", "T"), queue_xml("Q2", "T"))

    def backlogs() -> dict[str, str]:
        found = json.loads(observed.text("instance/subscriptions.json"))["amps"]["instance"]["subscriptions"]
        return {row["sub_id"]: row["backlog"] for row in found}

    assert backlogs() == {}
    first, second = observed.consumer(5, "^Q", "both"), observed.consumer(10, "Q2", "one")
    observed.publish(1, 2)
    wait_until(lambda: sum(map(int, backlogs().values())) == 4, WAIT_S, lambda: f"backlogs {backlogs()}")
    assert backlogs().keys() == {"both", "one"}
    second.close()
    wait_until(lambda: backlogs() == {"both": "4"}, WAIT_S, lambda: f"backlogs {backlogs()}")
    acknowledge(first, *first.receive_published(1), a="processed")
    wait_until(lambda: backlogs() == {"both": "3"}, WAIT_S, lambda: f"backlogs {backlogs()}")


def test_queues_backlog_of_messages_delivered_at_most_once(start: Start) -> None:
    """queues.md §18, §5.3: it has left the queue, and counts until it is acknowledged."""
    observed = start(queue_xml("Q", "T", Semantics="at-most-once"))
    observed.publish(1, 2, 3)
    consumer = observed.consumer(2)
    received = consumer.receive_published(2)
    observed.wait_for(queue_depth="1", backlog="2", age_of_oldest_lease="0")
    acknowledge(consumer, received[0], a="processed")
    observed.wait_for(queue_depth="0", backlog="2")


def test_queues_waiting_messages(start: Start) -> None:
    """queue_guarantees.md §3.10: shown for queues with an OrderingKey only."""
    observed = start(queue_xml("Q", "T", OrderingKey="/o"), queue_xml("R", "T"))
    observed.publish_bodies([b'{"o":1}', b'{"o":1}', b'{"o":1}', b'{"o":2}', b"{}"])
    observed.wait_for(waiting="2", queue_depth="5")
    assert observed.metrics().keys() == METRICS | {"waiting"}
    assert observed.details()["waiting"] == 2
    assert [message["deliverable"] for message in observed.details()["messages"]] == [1, 0, 0, 1, 1]
    assert observed.metrics("R").keys() == METRICS


def test_queues_transactions(start: Start) -> None:
    """queue_guarantees.md Q-60: by queue; not shown before there was one, nor for other queues; repetitions do not
    count; reset at a restart.
    """
    observed = start(queue_xml("Q", "T"), queue_xml("R", "T"))
    observed.publish(1, 2)
    worker = observed.peers.logged_on(observed.server, name="worker")
    worker.subscribe("Q", "s", o="max_backlog=10")
    first, second = worker.receive_published(2)
    before = observed.text("instance/queues.json"), observed.details().keys()
    assert before[1] == DETAILS
    assert transact(worker, [first], 1, transaction_body(result(b"r", "T2"))).succeeded
    counts = {"transactions": "1", "transactions_lease_lost": "0", "transactions_refused": "0"}
    assert observed.metrics().items() >= counts.items()
    assert observed.metrics().keys() == METRICS | counts.keys()
    assert transact(worker, [first], 3, b"").reason == "lease lost"
    for sequence, topic in ((4, "X"), (10, "Y")):
        assert (
            transact(worker, [second], sequence, transaction_body(result(b"r", topic))).reason
            == "not recorded"
        )
    assert transact(worker, [first], 20, b"", t="T").reason == "invalid topic"
    worker.close()
    worker = observed.peers.logged_on(observed.server, name="worker")
    assert transact(worker, [first], 1, transaction_body(result(b"r", "T2"))).succeeded
    assert transact(worker, [first], 3, b"").reason == "lease lost"
    counts |= {"transactions_lease_lost": "1", "transactions_refused": "2"}
    assert observed.metrics().items() >= counts.items()
    assert observed.details().items() >= {name: int(count) for name, count in counts.items()}.items()
    assert observed.metrics("R").keys() == METRICS
    assert observed.details("R").keys() == DETAILS
    observed.server.kill_all()
    observed.server.start()
    assert observed.metrics().keys() == METRICS


def test_queues_expired_leases(start: Start) -> None:
    """queues.md §18: cumulative; reset at a restart, as is the age of the oldest message."""
    observed = start(queue_xml("Q", "T", LeasePeriod="300ms"))
    observed.publish(1)
    consumer = observed.consumer(1)
    consumer.receive_published(2)
    wait_until(lambda: int(observed.metrics()["expired_leases"]) >= 1, WAIT_S, "no lease has expired")
    assert observed.details()["expired_leases"] >= 1
    observed.wait_for_age("seconds_behind")
    observed.server.kill_all()
    observed.server.start()
    assert observed.metrics()["expired_leases"] == "0"
    observed.wait_for(queue_depth="1")
    observed.wait_for_age("seconds_behind")


def test_queues_deferred_and_inactive(start: Start) -> None:
    """queues.md §18, §13: acknowledgements that wait for their message, messages beyond the target depth."""
    observed = start(queue_xml("Q", "T", TargetQueueDepth=1000))
    observed.publish_bodies([b'{"id":%d}' % number for number in range(1003)])
    observed.wait_for(queue_depth="1000", inactive_message_count="3")
    assert len(observed.details()["messages"]) == 1000
    consumer = observed.client()
    acknowledge(consumer, "12345|1|", queue="Q", a="processed")
    observed.wait_for(deferred_ack_count="1")


def test_queues_as_sow(start: Start) -> None:
    """queues.md D-39; operations.md §13, 30: a queue is a SOW entry, too."""
    observed = start(queue_xml("Q", "T"))
    observed.publish(1, 2, 3)
    consumer = observed.consumer(1)
    received = consumer.receive_published(1)
    acknowledge(consumer, received[0], a="processed")
    client = observed.client()
    for _ in range(2):
        client.send({"c": "sow", "cid": "q", "t": "Q", "a": "completed"})
        client.wait_for_ack("completed", "q")
    row = observed.sow()
    assert {name: row[name] for name in ("insert_count", "delete_count", "update_count", "valid_keys")} == {
        "insert_count": "3",
        "delete_count": "1",
        "update_count": "0",
        "valid_keys": "2",
    }
    assert row["query_count"] == "2"
    assert row["stored_bytes"] == row["memory_bytes"] == "0"


def test_queues_proxied_transfer(start: Start) -> None:
    """queues.md §16.4, §18: disabled at first; it cannot be enabled, since there is no instance to transfer messages
    from.
    """
    observed = start(queue_xml("Q", "T"))
    assert observed.metrics()["proxied_transfer"] == "disabled"
    refusal = get(observed.port, "/amps/administrator/queues/Q!json/enable_proxied_transfer")
    assert refusal.status == 409
    assert "no other instance can own its messages" in refusal.body
    observed.text("administrator/queues/Q!json/disable_proxied_transfer")
    assert observed.metrics()["proxied_transfer"] == "disabled"


def test_queues_filters_and_priorities_in_details(start: Start) -> None:
    """queues.md §18: the cursors of different filters, and the priorities in the queue."""
    observed = start(queue_xml("Q", "T", Priority="/p"))
    observed.publish_bodies([b'{"p":1,"k":"a"}', b'{"p":5,"k":"b"}', b'{"p":5,"k":"b"}', b'{"k":"b"}'])
    consumer = observed.client()
    consumer.subscribe("Q", "s", o="max_backlog=1", filter="/k = 'a'")
    consumer.receive_published(1)

    def cursor() -> dict[str, Any]:
        found = [one for one in observed.details()["cursors"] if one["cursor_subscriptions"]]
        return dict(found[0])

    (subscription,) = cursor()["cursor_subscriptions"]
    assert subscription["client_name"] == consumer.client_name
    assert "/k" in subscription["filter"]
    assert (subscription["backlog"], subscription["max_backlog"]) == (1, 1)
    details = observed.details()
    assert details["priority_count"] == 3
    assert [message["priority"] for message in details["messages"]] == [1, 5, 5, None]
    wait_until(
        lambda: cursor()["last_processed_txid"] == details["last_queued_txid"], WAIT_S, "not all evaluated"
    )
