"""Delayed delivery and delayed return over sockets: queue_guarantees.md §1, §2, and §7, 1 to 10."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.admin import get
from tests.support.peer import Value, bodies_of
from tests.support.peers import Peers
from tests.support.ports import release_port, reserve_port
from tests.support.queues import (
    Queueing,
    acknowledge,
    bodies,
    counts,
    options,
    query,
    queue_xml,
    quiet,
    records_of,
)
from tests.support.server import StartServer, wait_until
from tests.support.services import action, do, on

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers, port: int) -> Queueing:
    """Q over T; Qe with a limit of cancels and delays of its own; Qp with priorities."""
    given = options(
        queue_xml("Q", "T"),
        queue_xml("Qe", "T", CancelDelay="50ms", CancelDelayFactor=2, CancelDelayMax="1s", MaxCancels=3),
        queue_xml("Qp", "T", Priority="/id"),
    )
    given["instance_xml"] += f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>"
    return Queueing(start_server(**given), peers)


def state(port: int, queue: str = "Q") -> tuple[int, int, str]:
    """Depth, delayed and next_delivery of a queue, in the administration interface."""
    row: dict[str, Any]
    found = json.loads(get(port, f"/amps/instance/queues/{queue}!json.json").body)
    (row,) = found["amps"]["instance"]["queues"]
    return int(row["queue_depth"]), int(row.get("delayed", 0)), row.get("next_delivery", "")


def test_queues_delays_hold_a_message_back_from_queues_alone(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 1: subscribers get it at once; the consumer gets it with the same time, not before it."""
    subscriber, consumer = queueing.client(), queueing.consumer()
    subscriber.subscribe("T", "t")
    before = now_ms()
    queueing.publish(1, delay=300)
    after = now_ms() + 1
    (message,) = subscriber.receive_published(1)
    assert message.raw_header.endswith(b',"not_before":%d}' % message["not_before"])
    assert before + 300 <= int(message["not_before"]) <= after + 300
    (delivered,) = consumer.receive_published(1)
    assert now_ms() >= int(message["not_before"])
    assert delivered["not_before"] == message["not_before"]


def test_queues_delays_are_shown_to_replays(queueing: Queueing) -> None:
    """queue_guarantees.md §1.3: with the header as it was published, and none for other messages."""
    later = now_ms() + HOUR_MS
    queueing.publish(1, not_before=later)
    queueing.publish(2)
    replay = queueing.client()
    replay.subscribe("T", "t", bm="0")
    first, second = replay.receive_published(2)
    assert (first["not_before"], "not_before" in second) == (later, False)


@pytest.mark.parametrize("ordered", [{}, {"orderby": "/id"}], ids=["log", "ordered"])
def test_queues_delays_are_shown_by_queries_of_the_queue(queueing: Queueing, ordered: dict[str, Value]) -> None:
    """queue_guarantees.md §1.3: as the last key of the record's header, once the message is available."""
    over = now_ms() - 5
    queueing.publish(1, not_before=over)
    queueing.publish(2)
    queueing.publisher.flush("persisted")
    client = queueing.client()
    client.send({"c": "sow", "t": "Q", "cid": "1", **ordered})
    delayed, plain = records_of(client)
    assert (delayed.header["not_before"], list(delayed.header)[-1]) == (over, "not_before")
    assert "not_before" not in plain.header


def test_queues_delays_that_are_over_do_not_delay(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 2."""
    consumer = queueing.consumer()
    for fields in ({"not_before": now_ms() - 5}, {"not_before": 1}, {"not_before": 0}, {"delay": 0}):
        queueing.publish(1, **fields)
    assert bodies_of(consumer.receive_published(4)) == bodies(1) * 4


@pytest.mark.parametrize(
    "header",
    [
        {"delay": 1, "not_before": 2},
        {"delay": "soon"},
        {"delay": -1},
        {"delay": 2**64},
        {"delay": 3654 * 24 * HOUR_MS},
        {"delay": True},
        {"not_before": "soon"},
        {"not_before": -1},
        {"not_before": 2**64},
        {"not_before": 2**63 // 10**6 + 1},
    ],
    ids=str,
)
def test_queues_delays_that_are_not_valid_are_refused(queueing: Queueing, header: dict[str, Value]) -> None:
    """queue_guarantees.md §7, 2: nothing is in the log, and the next publish is taken."""
    subscriber = queueing.client()
    subscriber.subscribe("T", "t")
    answer = queueing.publisher.request({"c": "publish", "t": "T", **header}, b"{}")
    assert (answer["status"], answer["reason"]) == ("failure", "bad delay")
    queueing.publisher.send({"c": "p", "t": "T", **header}, b"{}")
    queueing.publish(1)
    assert bodies_of(subscriber.receive_published(1)) == bodies(1)


def test_queues_delays_survive_a_death(start_server: StartServer, peers: Peers) -> None:
    """queue_guarantees.md §7, 3: each of 10,000 messages is delivered once, and none before its time."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=20_000))), peers)
    at_ms = [now_ms() + number % 2000 for number in range(10_000)]
    for number, time_ms in enumerate(at_ms):
        queueing.publisher.publish("T", b'{"id":%d}' % number, not_before=time_ms)
    queueing.publisher.flush("persisted")
    queueing.server.kill_all()
    queueing = Queueing(queueing.server.start(), peers)
    consumer = queueing.consumer(20_000)
    found = []
    for message in consumer.receive_published(10_000):
        assert now_ms() >= int(message["not_before"])
        found.append(int(message.body[6:-1]))
        assert message["not_before"] == at_ms[found[-1]]
    assert sorted(found) == list(range(10_000))
    quiet(consumer)


def test_queues_delays_are_counted(queueing: Queueing, port: int) -> None:
    """queue_guarantees.md §7, 4: `delayed`, `depth`, `next_delivery` before and after; a query shows none of them."""
    later = now_ms() + HOUR_MS
    queueing.publish(1, not_before=later)
    queueing.publish(2, not_before=now_ms() + 400)
    queueing.publish(3)
    assert state(port)[:2] == (1, 2)
    assert query(queueing.client())[0] == bodies(3)
    wait_until(lambda: state(port)[:2] == (2, 1), 10, lambda: str(state(port)))
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(later // 1000))
    assert state(port)[2] == f"{moment}.{later % 1000:03d}000Z"
    assert query(queueing.client())[0] == bodies(2, 3)
    details = json.loads(get(port, "/amps/instance/queues/Q!json/details").body)
    assert (details["depth"], details["delayed"]) == (2, 1)
    first = details["messages"][0]
    assert (first["deliverable"], first["next_delivery"]) == (0, state(port)[2])


@pytest.mark.parametrize("how", ["bookmark", "filter"])
def test_queues_delays_are_cancelled_by_acknowledging(queueing: Queueing, port: int, how: str) -> None:
    """queue_guarantees.md §7, 5: also after a restart."""
    subscriber = queueing.client()
    subscriber.subscribe("T", "t", bm="0")
    queueing.publish(1, 2, delay=1000)
    first, _ = subscriber.receive_published(2)
    client, cid = queueing.client(), "c"
    if how == "bookmark":
        acknowledge(client, first, queue="Q", a="processed,stats", cid=cid)
        assert counts(client, cid) == (1, 1, 1)
    else:
        client.request({"c": "sow_delete", "t": "Q", "f": "/id = 1", "a": "processed,stats", "cid": cid})
        assert counts(client, cid) == (2, 1, 1)
    wait_until(lambda: state(port)[1] == 1, 10, lambda: str(state(port)))
    queueing.server.kill_all()
    queueing = Queueing(queueing.server.start(), queueing.peers)
    consumer = queueing.consumer()
    assert bodies_of(consumer.receive_published(1)) == bodies(2)
    quiet(consumer)


def test_queues_delays_longer_than_the_lifetime_expire(queueing: Queueing, port: int) -> None:
    """queue_guarantees.md §7, 6."""
    consumer = queueing.consumer()
    queueing.publish(1, delay=1500, e=1)
    wait_until(lambda: state(port)[:2] == (0, 0), 10, lambda: str(state(port)))
    quiet(consumer)


def test_queues_delays_end_in_their_order(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 7: by time; of the same time by the log, or by priority."""
    consumer, by_priority = queueing.consumer(), queueing.consumer(queue="Qp")
    at_ms = now_ms() + 200
    for number, later in ((1, 200), (2, 0), (3, 200), (4, 0)):
        queueing.publisher.publish("T", b'{"id":%d}' % number, not_before=at_ms + later)
    queueing.publisher.flush("persisted")
    assert bodies_of(consumer.receive_published(4)) == bodies(2, 4, 1, 3)
    assert bodies_of(by_priority.receive_published(4)) == bodies(4, 2, 3, 1)


@pytest.mark.parametrize("orderly", [True, False])
@pytest.mark.parametrize("dies", [False, True])
def test_queues_delays_of_a_cancel(queueing: Queueing, dies: bool, orderly: bool) -> None:
    """queue_guarantees.md §7, 8: back at its time, at any consumer; also after a death or a restart in that time."""
    consumer = queueing.consumer(1)
    queueing.publish(1)
    (message,) = consumer.receive_published(1)
    before = time.monotonic()
    acknowledge(consumer, message, o="cancel,delay=1s", a="processed,persisted", s=1)
    assert consumer.wait_for_persisted(1)
    if dies:
        if orderly:
            queueing.server.stop()
        else:
            queueing.server.kill_all()
        queueing = Queueing(queueing.server.start(), queueing.peers)
    else:
        consumer.unsubscribe("s")
    other = queueing.consumer(1)
    assert bodies_of(other.receive_published(1)) == bodies(1)
    assert time.monotonic() - before >= 1


def test_queues_delays_of_each_cancel_of_a_queue(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 9: they grow; `delay=0` is none; the limit of cancels comes first."""
    consumer = queueing.consumer(queue="Qe")
    queueing.publish(1, 2)
    message, second = consumer.receive_published(2)
    for delay_ms in (50, 100):
        before = time.monotonic()
        acknowledge(consumer, message, o="cancel")
        (message,) = consumer.receive_published(1)
        assert message.body == bodies(1)[0]
        assert time.monotonic() - before >= delay_ms / 1000
    cid = consumer.new_id()
    acknowledge(consumer, message, o="cancel", a="processed,stats", cid=cid)
    assert counts(consumer, cid) == (1, 1, 1)
    acknowledge(consumer, second, o="cancel,delay=0")
    assert bodies_of(consumer.receive_published(1)) == bodies(2)
    quiet(consumer)


@pytest.mark.parametrize(
    "text", ["delay=1s", "expire,delay=1s", "cancel,delay=soon", "cancel,delay=11y", "cancel,delay=600w"]
)
def test_queues_delays_of_other_acknowledgements_are_refused(queueing: Queueing, text: str) -> None:
    """queue_guarantees.md §7, 10: also delays that are no interval of up to ten years."""
    consumer = queueing.consumer()
    queueing.publish(1)
    (message,) = consumer.receive_published(1)
    answer = acknowledge(consumer, message, o=text)
    assert (answer["status"], answer["reason"]) == ("failure", "bad delay")
    acknowledge(consumer, message, a="processed,stats", cid="last")
    assert counts(consumer, "last") == (1, 1, 1)


def test_queues_delays_are_shown_by_the_journal_tools(queueing: Queueing) -> None:
    """queue_guarantees.md §1.2: the time is in the record."""
    queueing.publish(1, not_before=now_ms() + HOUR_MS)
    queueing.server.stop()
    path = queueing.server.journals()[0]
    command = [sys.executable, "-P", "-m", "amps.cli.utilities.journal_dump", str(path)]
    assert b"deliver at" in subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def test_queues_delays_of_messages_that_an_action_publishes(start_server: StartServer, peers: Peers) -> None:
    """queue_guarantees.md §1.11: messages that recur, each with a delay."""
    published = do("publish-message", Topic="T", MessageType="json", Data='{"id":1}', Delay="150ms")
    made = action(on("schedule", Every="1s", Name="recurring"), published)
    given = options(queue_xml("Q", "T"))
    given["instance_xml"] += f"<Actions>{made}</Actions>"
    queueing = Queueing(start_server(**given), peers)
    consumer = queueing.consumer()
    for message in consumer.receive_published(2):
        assert now_ms() >= int(message["not_before"])
        assert message.body == bodies(1)[0]
