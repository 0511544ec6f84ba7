"""Acknowledging over sockets: queues.md §6, §8, behaviours 24, 28 to 33, 38 to 39, 43, 48 and 49 of §24."""

import time
from datetime import UTC, datetime

import pytest

from tests.support.peer import Message, bodies_of
from tests.support.peers import Peers
from tests.support.queues import Queueing, acknowledge, bodies, counts, options, queue_xml, quiet
from tests.support.server import StartServer


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T, Qs with strict leasing over T, Qm with a limit of 3 over all, Qo at most once, Ql with leases."""
    server = start_server(
        **options(
            queue_xml("Q", "T"),
            queue_xml("Qs", "T", Leasing="strict"),
            queue_xml("Qm", "T", MaxBacklog=3),
            queue_xml("Qo", "T", Semantics="at-most-once"),
            queue_xml("Ql", "T", LeasePeriod="1s", FairnessModel="round-robin"),
        )
    )
    return Queueing(server, peers)


def test_queues_several_at_once_and_both_answers(queueing: Queueing) -> None:
    """queues.md §24, 24."""
    client = queueing.consumer(2)
    queueing.publish(1, 2, 3, 4)
    held = client.receive_published(2)
    cid = client.new_id()
    answer = acknowledge(client, *held, a="processed,persisted", s=1, cid=cid)
    assert answer.succeeded
    assert bodies_of([m for m in client.receive_many(3) if m.command == "p"]) == bodies(3, 4)


def test_queues_a_persisted_acknowledgement_counts_as_the_publishers(queueing: Queueing) -> None:
    """queues.md §8.3: conflated, up to the sequence of the sow_delete."""
    client = queueing.consumer(2)
    queueing.publish(1)
    (message,) = client.receive_published(1)
    client.send({"c": "sow_delete", "t": "Q", "bm": str(message["bm"]), "a": "persisted", "s": 7})
    (answer,) = client.wait_for_persisted(7)
    assert (answer["s"], answer["status"]) == (7, "success")
    assert queueing.waiting("Q", 0) == []


def test_queues_strict_only_the_holder_acknowledges(queueing: Queueing) -> None:
    """queues.md §24, 28."""
    holder = queueing.consumer(1, "Qs")
    queueing.publish(1, 2)
    (message,) = holder.receive_published(1)
    other = queueing.client()
    cid = other.new_id()
    assert acknowledge(other, message, a="processed,stats", cid=cid).succeeded
    assert counts(other, cid) == (1, 0, 0)
    quiet(holder)
    cid = holder.new_id()
    acknowledge(holder, message, a="processed,stats", cid=cid)
    assert counts(holder, cid) == (1, 1, 1)
    assert bodies_of(holder.receive_published(1)) == bodies(2)


def test_queues_strict_any_client_acknowledges_an_unleased_message(queueing: Queueing) -> None:
    """queues.md §24, 28: an unleased message; the client knows its bookmark from another queue."""
    queueing.publish(1)
    client = queueing.consumer(1, "Q")
    (message,) = client.receive_published(1)
    cid = client.new_id()
    acknowledge(client, message, queue="Qs", a="processed,stats", cid=cid)
    assert counts(client, cid) == (1, 1, 1)
    assert queueing.waiting("Qs", 0) == []


def test_queues_sublet_any_client_acknowledges(queueing: Queueing) -> None:
    """queues.md §24, 29."""
    holder = queueing.consumer(1)
    queueing.publish(1, 2)
    (message,) = holder.receive_published(1)
    acknowledge(queueing.client(), message)
    assert bodies_of(holder.receive_published(1)) == bodies(2)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"t": "T", "bm": "1|1|"}, "invalid topic"),
        ({"t": "Q", "sow_keys": "1"}, "invalid options"),
        ({"t": "Q", "bm": "1|1|", "f": "1=1"}, "invalid options"),
        ({"t": "Q", "bm": "1|1|", "o": "cancel,expire"}, "invalid options"),
        ({"t": "Q", "bm": "x"}, "invalid bookmark"),
        ({"t": "^Q(", "bm": "1|1|"}, "bad regex topic"),
        ({"t": "^Q(", "f": "1=1"}, "bad regex topic"),
    ],
)
def test_queues_an_invalid_acknowledgement_is_refused(
    queueing: Queueing, header: dict[str, str], reason: str
) -> None:
    """queues.md §24, 30."""
    queueing.publish(1)
    answer = queueing.client().request({"c": "sow_delete", **header})
    assert (answer["status"], answer["reason"]) == ("failure", reason)
    assert queueing.waiting("Q", 1) == bodies(1)


@pytest.mark.parametrize(
    ("bookmarks", "detail"),
    [
        ("{0},2|x|,{1}", "'2|x|' is no bookmark of a message; the 2 valid ones of the list"),
        (
            "2|x|,{0},nonsense,{1}",
            "'2|x|' is no bookmark of a message, nor are 1 others; the 2 valid ones of the list",
        ),
        ("{0},{1},", "'' is no bookmark of a message; the 2 valid ones of the list"),
        (",{0},0|1|,{1}", "'' is no bookmark of a message, nor are 1 others; the 2 valid ones of the list"),
    ],
)
@pytest.mark.parametrize("wanted", ["processed", "persisted"])
def test_queues_a_malformed_bookmark_keeps_no_other_from_its_acknowledgement(
    queueing: Queueing, bookmarks: str, detail: str, wanted: str
) -> None:
    """queues.md D-27: a batch must not be refused for one of its entries; the failure names the malformed bookmark."""
    client = queueing.consumer(3)
    queueing.publish(1, 2, 3)
    first, second, _ = client.receive_published(3)
    header = {"c": "sow_delete", "t": "Q", "bm": bookmarks.format(first["bm"], second["bm"])}
    answer = client.request(header, ack=wanted)
    assert (answer["a"], answer["status"], answer["reason"]) == (wanted, "failure", "invalid bookmark")
    assert answer["detail"].startswith(detail)
    client.close()
    assert queueing.waiting("Q", 1) == bodies(3)


def test_queues_a_list_of_nothing_but_malformed_bookmarks_acknowledges_nothing(queueing: Queueing) -> None:
    """queues.md D-26."""
    client = queueing.consumer(1)
    queueing.publish(1)
    client.receive_published(1)
    answer = acknowledge(client, "2|x|,0", queue="Q")
    assert (answer["status"], answer["reason"]) == ("failure", "invalid bookmark")
    assert answer["detail"] == "'2|x|' is no bookmark of a message, nor are 1 others"
    client.close()
    assert queueing.waiting("Q", 1) == bodies(1)


def test_queues_one_that_is_known_and_one_that_is_not(queueing: Queueing) -> None:
    """queues.md §24, 31."""
    client = queueing.consumer(1)
    queueing.publish(1, 2)
    (message,) = client.receive_published(1)
    cid = client.new_id()
    acknowledge(client, message, "5|77|", a="processed,stats", cid=cid)
    assert counts(client, cid) == (2, 1, 1)
    assert bodies_of(client.receive_published(1)) == bodies(2)


def test_queues_twice(queueing: Queueing) -> None:
    """queues.md §24, 32."""
    client = queueing.consumer(1)
    queueing.publish(1)
    (message,) = client.receive_published(1)
    for expected in ((1, 1, 1), (1, 0, 0)):
        cid = client.new_id()
        assert acknowledge(client, message, a="processed,stats", cid=cid).succeeded
        assert counts(client, cid) == expected


def test_queues_a_cancelled_message_comes_again_first(queueing: Queueing) -> None:
    """queues.md §24, 33."""
    client = queueing.consumer(1)
    queueing.publish(1, 2, 3)
    (message,) = client.receive_published(1)
    acknowledge(client, message, o="cancel")
    again = client.receive_published(1)
    assert bodies_of(again) == bodies(1)
    acknowledge(client, *again)
    assert bodies_of(client.receive_published(1)) == bodies(2)


def lease_end_s(message: Message) -> float:
    text = str(message["lp"])
    return datetime.strptime(text, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC).timestamp()


def test_queues_a_lease_ends_and_a_late_acknowledgement_still_counts(queueing: Queueing) -> None:
    """queues.md §24, 37 and 38."""
    clients = [queueing.consumer(1, "Ql") for _ in range(2)]
    before_s = time.time()
    queueing.publish(1)
    (message,) = clients[0].receive_published(1)
    assert before_s + 1.0 <= lease_end_s(message) <= time.time() + 1.0
    (again,) = clients[1].receive_published(1)
    assert again.body == message.body
    assert again["bm"] == message["bm"]
    assert lease_end_s(again) >= lease_end_s(message)
    acknowledge(clients[0], message)
    for client in clients:
        client.close()
    assert queueing.waiting("Ql", 0) == []


def test_queues_a_lease_can_be_extended(queueing: Queueing) -> None:
    """queues.md D-31."""
    client = queueing.consumer(1, "Ql")
    queueing.publish(1)
    (message,) = client.receive_published(1)
    assert acknowledge(client, message, o="lease_extension=1h").succeeded
    client.expect_nothing_for(2.0)
    acknowledge(client, message)


def test_queues_leased_messages_go_to_others_in_order(queueing: Queueing) -> None:
    """queues.md §24, 39."""
    first = queueing.consumer(3)
    queueing.publish(1, 2, 3)
    first.receive_published(3)
    queueing.publish(4, 5)
    second = queueing.consumer(10)
    assert bodies_of(second.receive_published(2)) == bodies(4, 5)
    first.close()
    assert bodies_of(second.receive_published(3)) == bodies(1, 2, 3)


def test_queues_a_limit_over_all_subscriptions(queueing: Queueing) -> None:
    """queues.md §24, 43."""
    clients = [queueing.consumer(10, "Qm") for _ in range(2)]
    queueing.publish(*range(1, 9))
    held = [*clients[0].receive_published(2), *clients[1].receive_published(1)]
    assert sorted(bodies_of(held)) == bodies(1, 2, 3)
    for client in clients:
        quiet(client)
    acknowledge(clients[0], held[0])
    assert bodies_of(clients[0].receive_published(1)) == bodies(4)
    for client in clients:
        quiet(client)


def test_queues_at_most_once_is_gone_when_it_is_delivered(queueing: Queueing) -> None:
    """queues.md §24, 48."""
    client = queueing.consumer(10, "Qo")
    queueing.publish(1)
    (message,) = client.receive_published(1)
    assert message["lp"] == "0"
    client.close()
    assert queueing.waiting("Qo", 0) == []


@pytest.mark.parametrize(
    ("queue", "ends"), [("Q", False), ("Qs", False), ("Qm", False), ("Qo", False), ("Ql", True)]
)
def test_queues_a_lease_period_marks_messages_to_acknowledge(
    queueing: Queueing, queue: str, ends: bool
) -> None:
    """queues.md §5.4, D-05: a client that recognises queue messages by `lp` alone gets all of them; barriers have
    none (§24, 58), nor have replays (§24, 9).
    """
    client = queueing.consumer(1, queue)
    queueing.publish(1, 2, 3)
    for number in (1, 2, 3):
        (message,) = client.receive_published(1)
        assert (message.body, message.get("lp") != "0") == (bodies(number)[0], ends)
        if message.get("lp"):
            acknowledge(client, message)
    quiet(client)


@pytest.mark.parametrize("option", ["", "cancel", "expire"])
def test_queues_at_most_once_acknowledgements_make_room(queueing: Queueing, option: str) -> None:
    """queues.md §24, 49."""
    client = queueing.consumer(1, "Qo")
    queueing.publish(1, 2)
    (message,) = client.receive_published(1)
    quiet(client)
    assert acknowledge(client, message, o=option).succeeded
    assert bodies_of(client.receive_published(1)) == bodies(2)
    quiet(client)
