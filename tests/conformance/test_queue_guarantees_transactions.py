"""Transactions of workers over sockets: queue_guarantees.md §4, behaviours 18 to 22 of §7."""

import json
import re

import pytest

from amps.journal.verify import verify_instance
from tests.support.peer import Message, Value
from tests.support.peers import Peers
from tests.support.queues import (
    Queueing,
    bodies,
    options,
    query,
    queue_xml,
    quiet,
    result,
    send,
    transact,
    transaction_body,
)
from tests.support.server import StartServer, loaded_module_xml, module_xml
from tests.support.utilities import run

QUEUES = (
    queue_xml("Q", "T"),
    queue_xml("Ql", "TL", LeasePeriod="300ms"),
    queue_xml("Qr", "TR"),
    queue_xml("Qo", "TO", Semantics="at-most-once"),
)


@pytest.fixture
def queueing(start_server: StartServer, peers: Peers) -> Queueing:
    """Q over T, Ql with a short lease over TL, Qr over TR, Qo at most once over TO; topics T… and Q… are recorded."""
    return Queueing(start_server(**options(*QUEUES)), peers)


def recorded(queueing: Queueing, topic: str) -> list[Message]:
    """All messages of a topic in the log."""
    reader = queueing.client()
    reader.subscribe(topic, "all", bm="0", a="processed,completed")
    found = []
    while not (message := reader.receive()).is_ack("completed"):
        if message.command == "p":
            found.append(message)
    reader.close()
    return found


def bookmark_of(message: Message) -> tuple[int, int]:
    publisher, sequence = str(message["bm"]).split("|")[:2]
    return int(publisher), int(sequence)


def test_18_acknowledges_and_publishes(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 18: subscribers get both, adjacent bookmarks; the queue is empty."""
    watcher = queueing.client()
    watcher.subscribe("^T", "w")
    worker = queueing.consumer()
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    body = transaction_body(result(b'{"r":1}'), result(b'{"r":2}', "T2", k="key", x="corr", e=100))
    answer = transact(worker, [message], 10, body)
    assert (answer["status"], answer["s"]) == ("success", 12)
    got = [one for one in watcher.receive_many(3) if one.command == "p"]
    assert [(one["t"], one.body) for one in got[1:]] == [("TR", b'{"r":1}'), ("T2", b'{"r":2}')]
    assert got[2]["x"] == "corr"
    first, second = (recorded(queueing, topic)[-1] for topic in ("TR", "T2"))
    assert bookmark_of(second) == (bookmark_of(first)[0], bookmark_of(first)[1] + 1)
    assert bookmark_of(first)[1] == 11
    worker.close()
    assert queueing.waiting("Q", 0) == []
    assert queueing.waiting("Qr", 1) == [b'{"r":1}']


def test_18_many_messages_and_publishes_and_none(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 1: several messages, a bookmark twice, no publish at all."""
    worker = queueing.consumer(10)
    queueing.publish(*range(1, 7))
    messages = worker.receive_published(6)
    body = transaction_body(*(result(b"%d" % number) for number in range(300)))
    assert transact(worker, [*messages[:4], messages[1]], 1, body)["s"] == 301
    assert [one.body for one in recorded(queueing, "TR")] == [b"%d" % number for number in range(300)]
    assert transact(worker, messages[4:], 302, b"")["s"] == 302
    worker.close()
    assert queueing.waiting("Q", 0) == []


def test_18_a_publish_may_go_to_the_name_of_a_queue(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 1: as any publish, also back to the same queue; the command may be absent."""
    worker = queueing.consumer(1)
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    assert transact(worker, [message], 1, transaction_body(({"t": "Q"}, b'{"id":2}'))).succeeded
    (again,) = worker.receive_published(1)
    assert again.body == b'{"id":2}'


def test_18_a_message_beyond_the_ring(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 9: a transaction may be as long as a message, and longer than a journal."""
    worker = queueing.consumer()
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    large = b"x" * (3 << 20)
    body = transaction_body(*(result(large) for _ in range(5)))
    assert transact(worker, [message], 1, body).succeeded
    assert [len(one.body) for one in recorded(queueing, "TR")] == [len(large)] * 5
    worker.close()
    assert queueing.waiting("Q", 0) == []


def test_18_processed_tells_the_decision(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 1: `processed` comes when it is decided, before `persisted`."""
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    for sequence, expected in ((1, "success"), (3, "failure")):
        command_id = send(worker, messages, sequence, transaction_body(result(b"r")), a="processed,persisted")
        answers = [worker.wait_for_ack(kind, command_id) for kind in ("processed", "persisted")]
        assert [one["status"] for one in answers] == [expected, expected]


def test_19_a_lost_lease(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 19: failure `lease lost`, nothing published, the message goes to another consumer."""
    worker = queueing.consumer(1, "Ql")
    queueing.publish(1, topic="TL")
    (message,) = worker.receive_published(1)
    worker.unsubscribe("s")
    other = queueing.consumer(1, "Ql")
    (same,) = other.receive_published(1)
    assert same.body == message.body
    answer = transact(worker, [message], 1, transaction_body(result(b"r")), t="Ql")
    assert (answer["status"], answer["reason"]) == ("failure", "lease lost")
    assert transact(other, [same], 1, transaction_body(result(b"s")), t="Ql").succeeded
    assert [one.body for one in recorded(queueing, "TR")] == [b"s"]


@pytest.mark.parametrize("bookmark", ["77|1|", "1|1|"])
def test_19_a_message_that_is_not_leased(queueing: Queueing, bookmark: str) -> None:
    """queue_guarantees.md §7, 19: a message that is not in the log, or never was delivered, is not leased."""
    queueing.publish(1)
    worker = queueing.client()
    assert transact(worker, bookmark, 1, transaction_body(result(b"r"))).reason == "lease lost"
    assert recorded(queueing, "TR") == []
    assert queueing.waiting("Q", 1) == bodies(1)


def test_19_at_most_once_queues_lease_nothing(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 3."""
    worker = queueing.consumer(1, "Qo")
    queueing.publish(1, topic="TO")
    (message,) = worker.receive_published(1)
    assert transact(worker, [message], 1, transaction_body(result(b"r")), t="Qo").reason == "lease lost"


def test_20_a_repetition_after_a_reconnect(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 20: once in the log; a refused one is refused again, after later publishes, a restart."""
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    worker.subscribe("Q", "s", o="max_backlog=10")
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    body = transaction_body(result(b"r"))
    assert transact(worker, [message], 5, body).succeeded
    refused = transact(worker, [message], 7, body)
    assert refused.reason == "lease lost"
    worker.publish("TR", b"later", s=9)
    worker.flush("persisted")
    for restart in (False, True, True):
        worker.close()
        if restart:
            queueing.server.stop()
            queueing.server.start()
        worker = queueing.peers.logged_on(queueing.server, name="worker")
        answers = [transact(worker, [message], sequence, body) for sequence in (5, 7)]
        assert [(one["status"], one["s"]) for one in answers] == [("success", 6), ("failure", 8)]
        assert answers[1].reason == "lease lost"
    assert [one.body for one in recorded(queueing, "TR")] == [b"r", b"later"]


def test_20_a_repetition_whose_topic_is_not_recorded_any_more(queueing: Queueing) -> None:
    """queue_guarantees.md Q-33: what has happened is told, whatever the configuration says now."""
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    worker.subscribe("Q", "s", o="max_backlog=10")
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    body = transaction_body(result(b"r"))
    assert transact(worker, [message], 5, body).succeeded
    assert transact(worker, [message], 7, body).reason == "lease lost"
    worker.close()
    queueing.server.restart(log_topics=("^T[LO]?$", "^Q"), instance_xml=f"<SOW>{QUEUES[0]}</SOW>")
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    answers = [transact(worker, [message], sequence, body) for sequence in (5, 7)]
    assert [one.reason for one in answers] == ["", "lease lost"]
    assert transact(worker, [message], 9, body).reason == "not recorded"


def test_20_a_repetition_after_kill(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 20: the refusal is in the journal, not in a file of an orderly stop."""
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    assert transact(worker, "77|1|", 3, b"").reason == "lease lost"
    assert transact(worker, "77|1|", 3, b"").reason == "lease lost"
    worker.publish("TR", b"later", s=4)
    worker.flush("persisted")
    worker.close()
    queueing.server.kill_all()
    queueing.server.start()
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    assert transact(worker, "77|1|", 3, b"").reason == "lease lost"
    assert transact(worker, "77|1|", 4, b"").succeeded  # the publish had that sequence


def test_20_a_failure_found_by_the_transport_is_repeated(queueing: Queueing) -> None:
    """queue_guarantees.md Q-32: a later transaction does not make the repetition look like one that had its effect."""
    worker = queueing.peers.logged_on(queueing.server, name="worker")
    worker.subscribe("Q", "s", o="max_backlog=10")
    queueing.publish(1, 2)
    first, second = worker.receive_published(2)
    bad = transaction_body(result(b"bad"), result(b"bad", "X"))
    assert transact(worker, [first], 5, bad).reason == "not recorded"
    assert transact(worker, [second], 8, transaction_body(result(b"good"))).succeeded
    for kill in (False, True):
        worker.close()
        if kill:
            queueing.server.kill_all()
            queueing.server.start()
        worker = queueing.peers.logged_on(queueing.server, name="worker")
        answer = transact(worker, [first], 5, bad)
        assert (answer["status"], answer.reason) == ("failure", "lease lost")
        assert transact(worker, [second], 8, transaction_body(result(b"good"))).succeeded
    assert [one.body for one in recorded(queueing, "TR")] == [b"good"]


BAD: list[tuple[dict[str, Value], bytes, str]] = [
    ({}, transaction_body(result(b"r", "X")), "not recorded"),
    ({}, transaction_body(result(b"r", "/AMPS/devnull")), "not recorded"),
    ({}, transaction_body(result(b"r", "/AMPS/Stats")), "invalid topic"),
    ({}, transaction_body(({"c": "p"}, b"r")), "bad transaction"),
    ({}, transaction_body(({"c": "sow_delete", "t": "TR"}, b"r")), "bad transaction"),
    ({}, transaction_body(({"c": "p", "t": "TR", "s": 4}, b"r")), "bad transaction"),
    ({}, transaction_body(({"c": "p", "t": "TR", "a": "persisted"}, b"r")), "bad transaction"),
    ({}, transaction_body(({"c": "p", "t": "TR", "e": 1 << 40}, b"r")), "bad transaction"),
    ({}, transaction_body(result(b"r"))[:-1], "bad transaction"),
    ({}, transaction_body(result(b"r")) + b"\0\0", "bad transaction"),
    ({}, b"\xff\xff\xff\xff", "bad transaction"),
    ({}, b"\0\0\0\5hello", "bad transaction"),
    ({}, b"\0\0\0\0", "bad transaction"),
    ({}, transaction_body(*[result(b"r")] * 4097), "bad transaction"),
    ({"f": "1=1"}, b"", "bad transaction"),
    ({"s": 0}, b"", "bad transaction"),
    ({"s": "x"}, b"", "bad transaction"),
    ({"s": (1 << 64) - 1}, transaction_body(result(b"r")), "bad transaction"),
    ({"t": "T"}, b"", "invalid topic"),
    ({"bm": "x"}, b"", "invalid bookmark"),
    ({"bm": ""}, b"", "invalid bookmark"),
    ({"bm": ",".join(f"7|{number}|" for number in range(1, 4098))}, b"", "bad transaction"),
]


@pytest.mark.parametrize(("fields", "body", "reason"), BAD, ids=range(len(BAD)))
def test_21_a_bad_transaction(queueing: Queueing, fields: dict[str, Value], body: bytes, reason: str) -> None:
    """queue_guarantees.md §7, 21: a failure, nothing happens, and the connection stays."""
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    first = transaction_body(result(b"before"))
    answer = transact(worker, messages, 3, first + body, **fields)
    assert (answer["status"], answer["reason"]) == ("failure", reason), answer
    assert recorded(queueing, "TR") == []
    # The lease is still there. A sequence above those of the command is free.
    assert transact(worker, messages, 5000, first).succeeded
    assert [one.body for one in recorded(queueing, "TR")] == [b"before"]


WRONG: list[tuple[dict[str, Value], str, str]] = [
    ({"c": "p"}, "bad transaction", "it has no topic"),
    ({"c": "sow_delete", "t": "TR"}, "bad transaction", "the command 'sow_delete' is not publish"),
    ({"t": "TR", "sub_id": "x"}, "bad transaction", "the key 'sub_id' is not allowed"),
    ({"t": "TR", "e": 1 << 40}, "bad transaction", "the expiration is no number of seconds"),
    ({"t": "TR", "x": "y" * 70_000}, "bad transaction", "the correlation id or the SOW key is too long"),
    ({"t": "TR", "delay": -1}, "bad delay", "delay: '-1' is no number of milliseconds"),
    ({"t": "TR", "delay": 1, "not_before": 1}, "bad delay", "delay and not_before exclude each other"),
]


@pytest.mark.parametrize(("header", "reason", "told"), WRONG)
def test_21_the_failure_names_the_publish_and_what_is_wrong(
    queueing: Queueing, header: dict[str, Value], reason: str, told: str
) -> None:
    """queue_guarantees.md §7, 21"""
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    body = transaction_body(result(b"1"), result(b"two"), (header, b"r"), result(b"4"))
    answer = transact(worker, messages, 3, body)
    assert (answer["status"], answer["reason"]) == ("failure", reason), answer
    assert str(answer["detail"]).startswith("publish 3: "), answer
    assert told in str(answer["detail"]), answer


def test_21_without_persisted(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 1: a transaction requests `persisted`, which alone tells what became of it."""
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    command_id = send(worker, messages, 3, b"", a="processed")
    assert worker.wait_for_ack("processed", command_id).reason == "bad transaction"


def test_21_a_forbidden_topic(start_server: StartServer, peers: Peers) -> None:
    """queue_guarantees.md §7, 21: each topic must be permitted; the failure names it."""
    server = start_server(
        **options(*QUEUES),
        modules_xml=loaded_module_xml("simple", "libamps_simple_access_entitlement.so"),
        entitlement_xml=module_xml("Entitlement", "simple", DeniedTopics="^Tdeny"),
    )
    queueing = Queueing(server, peers)
    worker = queueing.consumer()
    queueing.publish(1, 2)
    messages = worker.receive_published(2)
    for sequence in (1, 4):
        answer = transact(
            worker, messages[:1], sequence, transaction_body(result(b"a"), result(b"b", "Tdeny"))
        )
        assert answer.reason == "not entitled"
        assert "'Tdeny'" in str(answer["detail"])
        assert "publish 2" in str(answer["detail"])
    for sequence, message in enumerate(messages):
        assert transact(worker, [message], 7 + 2 * sequence, transaction_body(result(b"a"))).succeeded
    assert [one.body for one in recorded(queueing, "TR")] == [b"a", b"a"]


def test_21_content_that_is_not_recorded(start_server: StartServer, peers: Peers) -> None:
    """queue_guarantees.md §4, 4: nor may the filter of a recorded topic exclude a message."""
    topic_xml = "<Topic><Name>TF</Name><MessageType>json</MessageType><Filter>/keep = 1</Filter></Topic>"
    server = start_server(**options(*QUEUES, log_topics=("^T[LRO]?$", "^Q"), journal_xml=topic_xml))
    queueing = Queueing(server, peers)
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    for keep, succeeds in ((0, False), (1, True)):
        body = transaction_body(result(b"r"), result(b'{"keep":%d}' % keep, "TF"))
        answer = transact(worker, messages, 1 + 3 * keep, body)
        assert answer.succeeded == succeeds, answer
    assert [one.body for one in recorded(queueing, "TR")] == [b"r"]


def test_22_a_replay_a_filter_and_the_tools(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 22: the published messages are ordinary ones."""
    worker = queueing.consumer(20)
    queueing.publish(*range(1, 6))
    for number, message in enumerate(worker.receive_published(5)):
        body = transaction_body(result(b'{"n":%d}' % number), result(b'{"n":%d}' % -number, "T2"))
        assert transact(worker, [message], 1 + 3 * number, body).succeeded
    reader = queueing.client()
    reader.subscribe("^T", "f", bm="0", f="/n > 2", a="processed,completed")
    got = []
    while not (message := reader.receive()).is_ack("completed"):
        got.append(message)
    assert [one.body for one in got if one.command == "p"] == [b'{"n":3}', b'{"n":4}']
    # From a bookmark inside a group.
    reader.subscribe("^T", "b", bm=str(got[-1]["bm"]), a="processed,completed")
    got = []
    while not (message := reader.receive()).is_ack("completed"):
        got.append(message)
    assert [one.body for one in got if one.command == "p"] == [b'{"n":-4}']
    queueing.server.stop()
    journals = sorted(queueing.server.journal_directory.glob("*.journal"))
    dump = run("journal_dump", journals[0]).out
    assert len(re.findall(r"^transaction +: [123] of 3$", dump.decode("latin-1"), re.MULTILINE)) == 15
    directory = queueing.server.journal_directory
    reports = list(verify_instance(directory, "Test"))
    assert [report.problems for report in reports if report.problems] == []


def test_persisted_acknowledgements_of_publishes_go_on(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 2: the sequences of a transaction count among those of the publishes."""
    worker = queueing.consumer()
    queueing.publish(1)
    messages = worker.receive_published(1)
    worker.send({"c": "p", "t": "TR", "s": 1, "a": "persisted"}, b"1")
    command_id = send(worker, messages, 2, transaction_body(result(b"2")))
    worker.send({"c": "p", "t": "TR", "s": 4, "a": "persisted"}, b"3")
    worker.wait_for_ack("persisted", command_id)
    (*_, last) = worker.wait_for_persisted(4)
    assert last.succeeded
    assert [one.body for one in recorded(queueing, "TR")] == [b"1", b"2", b"3"]
    quiet(worker)


def test_18_kill_at_random(queueing: Queueing) -> None:
    """queue_guarantees.md §7, 18: after kill -9 of the whole server both or neither, and each answered one is there."""
    answered: list[int] = []
    for kill in range(3):
        worker = queueing.peers.logged_on(queueing.server, name=f"w{kill}")
        queueing.publisher = queueing.peers.logged_on(queueing.server)
        worker.subscribe("Q", "s", o="max_backlog=10")
        queueing.publish(*range(10 * kill + 1, 10 * kill + 11))
        messages = []
        while len(messages) < 10:
            message = worker.receive()
            if message.command == "p":
                messages.append(message)
        ids = {}
        for number, message in enumerate(messages):
            document = json.loads(message.body)
            name = send(
                worker,
                [message],
                1 + 3 * number,
                transaction_body(*(result(b'{"of":%d}' % document["id"], topic) for topic in ("TR", "T2"))),
            )
            ids[name] = document["id"]
            if number == 3 * kill:
                break
        for name in list(ids)[: kill + 1]:
            assert worker.wait_for_ack("persisted", name).succeeded
            answered.append(ids[name])
        queueing.server.kill_all()
        queueing.server.start()
        worker.close()
        reader = queueing.client()
        left = {json.loads(body)["id"] for body in query(reader)[0]}
        reader.close()
        results = [
            [json.loads(one.body)["of"] for one in recorded(queueing, topic)] for topic in ("TR", "T2")
        ]
        assert results[0] == results[1]
        assert len(set(results[0])) == len(results[0])
        assert set(answered) <= set(results[0])
        assert left | set(results[0]) == set(range(1, 10 * kill + 11))
        assert not left & set(results[0])


def test_21_sequences_at_the_end_of_64_bits(queueing: Queueing) -> None:
    """queue_guarantees.md §4, 2: a publish beyond the highest sequence fails; the last sequence may be the highest."""
    worker = queueing.consumer()
    queueing.publish(1)
    (message,) = worker.receive_published(1)
    last = 2**64 - 1
    answer = transact(worker, [message], last, transaction_body(result(b"r")))
    assert (answer["status"], answer["reason"]) == ("failure", "bad transaction")
    assert transact(worker, [message], last, b"")["s"] == last
    worker.close()
    assert queueing.waiting("Q", 0) == []
    assert recorded(queueing, "TR") == []
