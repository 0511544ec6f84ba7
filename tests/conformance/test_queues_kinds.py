"""Kinds of queues and their limits over sockets: queues.md §2, §5.1, §12, §13; behaviours 10, 22, 23, 60 and 62 of
§24.
"""

from pathlib import Path

import pytest

from tests.support.peer import RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.queue_configurations import configuration, element
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
from tests.support.server import StartServer, amps_server

OVER_TOPICS = "<UnderlyingTopic>^T(1|2)$</UnderlyingTopic>"
BARRIER = b'{"id":0,"bar":1}'
KINDS = {
    "Queue": {},
    "LocalQueue": {},
    "GroupLocalQueue": {"InitialOwner": "Test"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_queues_of_each_kind_deliver(start_server: StartServer, peers: Peers, kind: str) -> None:
    """queues.md §2: on one instance they differ in nothing; across a restart, too."""
    server = start_server(**options(queue_xml("Q", "T", kind=kind, **KINDS[kind])))
    queueing = Queueing(server, peers)
    queueing.publish(*range(1, 6))
    consumers = [queueing.consumer(2) for _ in range(2)]
    held = [consumer.receive_published(2) for consumer in consumers]
    assert sorted(bodies_of([*held[0], *held[1]])) == bodies(1, 2, 3, 4)
    assert acknowledge(consumers[0], held[0][0]).succeeded
    assert bodies_of(consumers[0].receive_published(1)) == bodies(5)
    assert acknowledge(consumers[1], held[1][1], o="cancel").succeeded
    assert bodies_of(consumers[1].receive_published(1)) == [held[1][1].body]
    rest = [body for body in bodies(*range(1, 6)) if body != held[0][0].body]
    for consumer in consumers:
        consumer.close()
    assert queueing.waiting("Q", 4) == rest
    assert Queueing(server.restart(), peers).waiting("Q", 4) == rest


def test_queues_of_another_owner_are_refused(make_server: StartServer) -> None:
    """queues.md §24, 23: the server does not check whether that instance exists. Without replication it would deliver
    messages that belong to the other instance, so such a queue needs replication.
    """
    queue = queue_xml("Q", "T", kind="GroupLocalQueue", InitialOwner="no-such-instance")
    said = make_server(**options(queue)).start_refused()
    assert "InitialOwner: 'no-such-instance' owns new messages of the queue, but this instance replicates" in said


@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_delta_subscribe"])
def test_queues_a_delta_subscription_gets_whole_messages(
    start_server: StartServer, peers: Peers, command: str
) -> None:
    """queues.md §24, 10, and the same with a query."""
    queueing = Queueing(start_server(**options(queue_xml("Q", "T"))), peers)
    client = queueing.client()
    header = {"c": command, "t": "Q", "sub_id": "s", "cid": client.new_id(), "a": "processed"}
    assert client.request({**header, "o": "max_backlog=10"}).succeeded
    if command.startswith("sow"):
        assert records_of(client) == []
    published = [b'{"id":1,"a":1,"b":2}', b'{"id":1,"a":1,"b":3}']
    queueing.publish_bodies(published)
    assert bodies_of(client.receive_published(2)) == published


def test_queues_a_barrier_that_matches_no_consumer(start_server: StartServer, peers: Peers) -> None:
    """queues.md §24, 60: messages before it must be acknowledged nevertheless."""
    queue = queue_xml("Q", "T", BarrierExpression="/bar IS NOT NULL")
    queueing = Queueing(start_server(**options(queue)), peers)
    client = queueing.client()
    client.subscribe("Q", "s", f="/bar IS NULL", o="max_backlog=2")
    m1, m2, m3 = bodies(1, 2, 3)
    queueing.publish_bodies([m1, m2, BARRIER, m3])
    held = client.receive_published(2)
    assert bodies_of(held) == [m1, m2]
    quiet(client)
    assert acknowledge(client, held[0]).succeeded
    quiet(client)
    assert acknowledge(client, held[1]).succeeded
    assert bodies_of(client.receive_published(1)) == [m3]
    quiet(client)


def bookmark_of(client: RawClient, number: int) -> str:
    """The bookmark of a message of T, from a replay."""
    client.subscribe("T", f"b{number}", f=f"/id = {number}", bm="0")
    (message,) = client.receive_published(1)
    client.unsubscribe(f"b{number}")
    return str(message["bm"])


def test_queues_beyond_their_target_depth_wait(start_server: StartServer, peers: Peers) -> None:
    """queues.md §13; §24, 62, without the statistics: a message beyond the depth is neither shown, nor found by a
    filter, nor delivered; an acknowledgement by bookmark is kept for it.
    """
    queueing = Queueing(start_server(**options(queue_xml("Q", "T", TargetQueueDepth=1000))), peers)
    queueing.publish(*range(1, 1501))
    client = queueing.client()
    assert query(client, bs=1000) == (bodies(*range(1, 1001)), (1000, 1000, 1000))
    cid = client.new_id()
    header = {"c": "sow_delete", "t": "Q", "f": "/id = 1200", "cid": cid, "a": "processed,stats"}
    assert client.request(header).succeeded
    assert counts(client, cid) == (1000, 0, 0)
    far = queueing.client()
    far.subscribe("Q", "s", f="/id = 1400", o="max_backlog=1")
    cid = client.new_id()
    acknowledge(client, bookmark_of(client, 1200), cid=cid, a="processed,stats")
    assert client.wait_for_ack("stats", cid)["records_deleted"] == 0
    quiet(far)
    cid = client.new_id()
    header = {"c": "sow_delete", "t": "Q", "f": "/id <= 500", "cid": cid, "a": "processed,stats"}
    assert client.request(header).succeeded
    assert counts(client, cid)[2] == 500
    assert bodies_of(far.receive_published(1)) == bodies(1400)
    rest = [number for number in range(501, 1501) if number not in (1200, 1400)]
    assert query(client, bs=1000)[0] == bodies(*rest)


@pytest.mark.parametrize(
    ("kind", "inner", "reason"),
    [
        ("Queue", OVER_TOPICS, "add DefaultPublishTarget"),
        ("Queue", f"{OVER_TOPICS}<DefaultPublishTarget>T3</DefaultPublishTarget>", "is not matched by"),
        ("GroupLocalQueue", "", "InitialOwner"),
        (
            "Queue",
            "<Priority>/p</Priority><BarrierExpression>/b = 1</BarrierExpression>",
            "BarrierExpression",
        ),
        ("Queue", "<TargetQueueDepth>999</TargetQueueDepth>", "below the minimum of 1000"),
        (
            "Queue",
            "<TargetQueueDepth>1000</TargetQueueDepth><Priority>/p</Priority>",
            "together with Priority",
        ),
        ("Queue", "<Filter>/t &lt; UNIX_TIMESTAMP()</Filter>", "not deterministic"),
        ("Queue", "<Semantics>at-most-once</Semantics><FairnessModel>fast</FairnessModel>", "round-robin"),
        ("Queue", "<Semantics>at_least_once</Semantics>", "write one of at-least-once, at-most-once"),
        ("Queue", "<UnderlyingTopic>other</UnderlyingTopic>", "is not recorded"),
    ],
)
def test_queues_a_start_is_refused(tmp_path: Path, kind: str, inner: str, reason: str) -> None:
    """queues.md §24, 22: the refusal names the error and its place, and comes before any file is made."""
    path = tmp_path / "config.xml"
    path.write_text(configuration(element("Q", inner, tag=kind)))
    refused = amps_server(path, cwd=tmp_path)
    assert refused.returncode == 1
    assert f"AMPSConfig/SOW/{kind}" in refused.stderr
    assert reason in refused.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.xml"]
