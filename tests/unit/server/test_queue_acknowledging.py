"""Acknowledging queue messages: the answers to `sow_delete`, and the records sent to the core (queues.md §8)."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps._core.values.value import derived_publisher_id, publisher_id
from amps.config import ModuleUse
from tests.support.queue_worker import Acknowledged, Client, Delivery, Entry, Stage, queue

ACKNOWLEDGE, CANCEL, EXPIRE, EXTEND_LEASE = range(4)
FLAG_DERIVED_PUBLISHER = 1
READS_ONLY = ModuleUse(
    "libamps_simple_access_entitlement", {"AllowedTopics": "^Q1$", "GrantedPermissions": "read"}
)
WRITES_ONLY = ModuleUse(
    "libamps_simple_access_entitlement", {"AllowedTopics": "^Q1$", "GrantedPermissions": "write"}
)
PUBLISHER = publisher_id("publisher")
CONSUMER = publisher_id("consumer")


class Consumer:
    """A client that consumes messages 1 to 5 of Q1, of which the first three were delivered."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.stage = Stage(directory, queue("Q1"), queue("Q.2", "T.2"), **options)
        publisher = self.stage.client("publisher")
        for number in range(1, 6):
            publisher.connection.ingress.set_permission(
                self.stage.worker.topics.entry("T", "json"), allowed=True
            )
            publisher.send({"c": "publish", "t": "T", "s": number}, b"%d" % number)
        self.stage.settle()
        self.positions = self.stage.core.positions()
        self.client: Client = self.stage.client("consumer")

    def consume(self) -> None:
        self.client.ask({"c": "subscribe", "t": "Q1", "a": "processed", "o": "max_backlog=5"})
        self.stage.core.deliver(
            *(Delivery(self.positions[number - 1], 0, slot=100 + number) for number in (1, 2, 3))
        )
        self.stage.settle()
        assert [message.body for message in self.client.received()] == [b"1", b"2", b"3"]
        # The first acknowledgement declares the queue's name to the core, and its permission.
        (taken,) = self.acknowledge("5|1|")
        self.answer(taken)
        self.client.received()

    def answer(self, *taken: Acknowledged, refused: bool = False) -> None:
        """Send the core's answers: there was room for deferred acknowledgements, or not."""
        for each in taken:
            self.stage.core.answer("queue_acknowledged", each.slot, each.serial, each.token, 0, 0, refused)
        self.stage.settle()

    def acknowledge(self, *bookmarks: str, **header: Any) -> list[Acknowledged]:
        """Send a `sow_delete`. Returns the acknowledgements that the core received."""
        self.client.send({"c": "sow_delete", "t": "Q1", "bm": ",".join(bookmarks), **header})
        self.stage.settle()
        return self.taken()

    def taken(self) -> list[Acknowledged]:
        taken = list(self.stage.core.acknowledged)
        self.stage.core.acknowledged.clear()
        return taken

    def answers(self) -> list[dict[str, Any]]:
        return [message.header for message in self.client.received()]

    def entry(self, number: int, slot: int = 0) -> Entry:
        return Entry(PUBLISHER, number, self.positions[number - 1], slot)


def bookmark(number: int) -> str:
    return f"{PUBLISHER}|{number}|"


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Consumer]:
    consumer = Consumer(tmp_path)
    consumer.consume()
    yield consumer
    assert consumer.stage.failures() == []
    consumer.stage.close()


# --- delivered messages ---------------------------------------------------------------------------------------


def test_queue_ack_of_delivered_messages(consumer: Consumer) -> None:
    """queues.md §8.1; §24, 24: positions and slots are sent along, so the messages need not be searched for."""
    (taken,) = consumer.acknowledge(bookmark(1), bookmark(3))
    assert taken.entries == (consumer.entry(1, 101), consumer.entry(3, 103))
    assert (taken.action, taken.token, taken.extension_ns, taken.searched_until) == (ACKNOWLEDGE, 0, 0, 0)
    assert taken.publisher_id == derived_publisher_id("consumer", "journal")
    assert (taken.sequence, taken.flags) == (0, FLAG_DERIVED_PUBLISHER)
    assert (taken.slot, taken.serial) == (
        consumer.client.connection.slot,
        consumer.client.connection.serial,
    )
    assert consumer.stage.worker.topics.entries[taken.topic].name == "Q1"
    assert consumer.client.connection.leases is not None
    assert consumer.client.connection.leases.count == 1
    assert consumer.answers() == []


@pytest.mark.parametrize(
    ("options", "action"), [("cancel", CANCEL), ("expire", EXPIRE), ("", ACKNOWLEDGE), (" cancel ,", CANCEL)]
)
@pytest.mark.parametrize("answer", [{}, {"a": "processed", "cid": "1"}])
def test_queue_ack_options(consumer: Consumer, options: str, action: int, answer: dict[str, str]) -> None:
    """queues.md §8.2, with and without a requested answer."""
    (taken,) = consumer.acknowledge(bookmark(1), o=options, **answer)
    assert (taken.action, taken.entries) == (action, (consumer.entry(1, 101),))
    # The lease is not held any more, whatever the outcome.
    assert consumer.client.connection.leases is not None
    assert consumer.client.connection.leases.get(PUBLISHER, 1, 0) is None


def test_queue_ack_lease_extension_keeps_the_leases(consumer: Consumer) -> None:
    """queues.md D-31."""
    for _ in range(2):
        (taken,) = consumer.acknowledge(bookmark(1), o="lease_extension=1500ms")
        assert (taken.action, taken.extension_ns) == (EXTEND_LEASE, 1_500_000_000)
        assert taken.entries == (consumer.entry(1, 101),)


def test_queue_ack_with_a_sequence_is_persisted_with_the_publishes(consumer: Consumer) -> None:
    """queues.md §8.3: conflated per connection."""
    (taken,) = consumer.acknowledge(bookmark(1), a="persisted", s=7)
    assert (taken.publisher_id, taken.sequence, taken.flags) == (CONSUMER, 7, 0)
    (answer,) = consumer.answers()
    assert (answer["a"], answer["s"], answer["status"]) == ("persisted", 7, "success")


@pytest.mark.parametrize("known", [1, 5])
def test_queue_ack_answers_in_order(consumer: Consumer, known: int) -> None:
    """queues.md §8.3; §24, 24; message 1 is held, 5 is looked up."""
    (taken,) = consumer.acknowledge(
        bookmark(known), a="received,processed,persisted,stats,completed", cid="x", s=3, query_id="q"
    )
    answers = consumer.answers()
    assert [answer["a"] for answer in answers] == ["received", "processed", "persisted"]
    assert [answer.get("cid") for answer in answers] == ["x", "x", None]
    assert all(answer["status"] == "success" for answer in answers)
    assert answers[1]["query_id"] == "q"
    consumer.stage.core.answer("queue_acknowledged", taken.slot, taken.serial, taken.token, 1, 1, False)
    consumer.stage.settle()
    (stats,) = consumer.answers()
    counts = {name: stats[name] for name in ("topic_matches", "matches", "records_deleted")}
    assert counts == {"topic_matches": 1, "matches": 1, "records_deleted": 1}
    assert (stats["a"], stats["cid"], stats["query_id"]) == ("stats", "x", "q")


def test_queue_ack_persisted_without_a_sequence_answers_the_command(consumer: Consumer) -> None:
    consumer.stage.core.holds_durability = True
    consumer.acknowledge(bookmark(1), a="persisted", cid="x")
    consumer.stage.core.holds_durability = False
    consumer.stage.settle()
    (answer,) = consumer.answers()
    assert (answer["a"], answer["cid"], answer["status"]) == ("persisted", "x", "success")


def test_queue_ack_many_at_once(consumer: Consumer) -> None:
    """A long list becomes several records; the answer adds up the counts of all."""
    names = [f"5|{number}|" for number in range(1, 10_001)]
    taken = consumer.acknowledge(*names, a="stats", cid="x", s=9)
    assert [len(each.entries) for each in taken] == [4096, 4096, 1808]
    assert [each.sequence for each in taken] == [0, 0, 9]
    for each in taken:
        consumer.stage.core.answer("queue_acknowledged", each.slot, each.serial, each.token, 10, 4, False)
    consumer.stage.settle()
    (stats,) = consumer.answers()
    assert (stats["topic_matches"], stats["matches"], stats["records_deleted"]) == (10_000, 30, 12)


# --- other messages -------------------------------------------------------------------------------------------


def test_queue_ack_of_messages_not_delivered_is_looked_up(consumer: Consumer) -> None:
    """queues.md §8.5, D-27; §24, 31: a bookmark that is not in the log is passed on as unknown."""
    (taken,) = consumer.acknowledge(bookmark(4), bookmark(2), bookmark(99))
    assert taken.entries == (consumer.entry(4), consumer.entry(2, 102), Entry(PUBLISHER, 99, 0, 0))
    assert taken.searched_until == consumer.stage.core.end


def test_queue_ack_by_a_client_that_is_no_consumer(tmp_path: Path) -> None:
    """queues.md §24, 29: another client's message."""
    consumer = Consumer(tmp_path)
    (taken,) = consumer.acknowledge(bookmark(5))
    assert taken.entries == (consumer.entry(5),)
    consumer.stage.close()


def test_queue_ack_twice(consumer: Consumer) -> None:
    """queues.md §24, 32: the second acknowledgement carries the position, and no slot."""
    consumer.acknowledge(bookmark(1))
    (taken,) = consumer.acknowledge(bookmark(1))
    assert taken.entries == (consumer.entry(1),)


def test_queue_acks_stay_in_order_during_a_lookup(consumer: Consumer) -> None:
    """Hundreds of lookups take many turns. The messages behind them were delivered, and are not looked up."""
    consumer.client.send({"c": "sow_delete", "t": "Q1", "bm": ",".join(f"5|{n}|" for n in range(1, 301))})
    for number in (1, 4, 2):
        consumer.client.send({"c": "sow_delete", "t": "Q1", "bm": bookmark(number)})
    consumer.stage.settle()
    taken = consumer.taken()
    # No acknowledgement follows before the core has answered that there was room.
    assert [len(each.entries) for each in taken] == [300]
    consumer.answer(*taken)
    taken += consumer.taken()
    assert [(len(each.entries), each.entries[0].sequence) for each in taken] == [(300, 1), (1, 1), (1, 4), (1, 2)]


def test_queue_ack_without_room_in_the_core(consumer: Consumer) -> None:
    """queues.md §8.5: with too many deferred acknowledgements, the client gets a failure and stays connected."""
    taken = consumer.acknowledge("5|7|", a="processed,persisted", cid="x", s=4)
    assert consumer.answers() == []
    consumer.answer(*taken, refused=True)
    processed, persisted = consumer.answers()
    assert (processed["a"], processed["status"], processed["cid"]) == ("processed", "failure", "x")
    assert processed["reason"] == "too many deferred acknowledgements"
    assert (persisted["a"], persisted["s"], persisted["status"]) == ("persisted", 4, "failure")
    assert [each.entries for each in consumer.acknowledge(bookmark(1))] == [(consumer.entry(1, 101),)]


def test_queue_ack_without_room_in_the_core_and_without_a_requested_answer(consumer: Consumer) -> None:
    """As with a publish that the transaction log cannot take, the connection ends, with the reason."""
    consumer.answer(*consumer.acknowledge("5|7|"), refused=True)
    (told,) = consumer.answers()
    assert told["reason"] == "too many deferred acknowledgements"
    assert consumer.client.connection.close_reason == "too many deferred acknowledgements"


def test_queue_ack_names_the_queue_literally(consumer: Consumer) -> None:
    """In other commands a name with a dot is an expression."""
    (taken,) = consumer.acknowledge(bookmark(1), t="Q.2")
    assert consumer.stage.worker.topics.entries[taken.topic].name == "Q.2"


def test_queue_ack_while_the_ring_is_full_waits(consumer: Consumer) -> None:
    ring = consumer.stage.worker.core.ring
    filler = {"c": "publish", "t": "T"}
    other = consumer.stage.client("other")
    while not other.connection.held:
        other.send(filler, bytes(500_000))
    for number in (4, 1):
        consumer.client.send(
            {"c": "sow_delete", "t": "Q1", "bm": bookmark(number), "a": "processed", "cid": "x"}
        )
    assert consumer.answers() == []
    consumer.stage.settle()
    assert [each.entries[0].sequence for each in consumer.taken()] == [4, 1]
    assert [answer["a"] for answer in consumer.answers()] == ["processed", "processed"]
    assert ring.head == ring.tail


def test_queue_ack_that_the_log_cannot_take_is_refused(consumer: Consumer) -> None:
    control = consumer.stage.worker.runtime.control
    consumer.stage.core.refuse()
    filler = consumer.stage.client("filler")
    while control.refused_from_bytes != 0:
        filler.send({"c": "publish", "t": "T"}, bytes(50_000))
        consumer.stage.settle()
    taken = consumer.acknowledge(bookmark(1), a="processed,persisted", cid="x", s=5)
    assert taken == []
    answers = consumer.answers()
    assert [(each["a"], each["reason"]) for each in answers] == [
        ("processed", "tx store failed"),
        ("persisted", "tx store failed"),
    ]
    assert not consumer.client.socket.closed
    # A client that requested no answer is disconnected.
    assert consumer.acknowledge(bookmark(2)) == []
    assert consumer.client.socket.closed


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "body", "reason"),
    [
        ({"t": "T", "bm": "1|1|"}, b"", "invalid topic"),
        ({"t": "T", "bm": "1|1|", "o": "cancel"}, b"", "invalid topic"),
        ({"t": "T", "f": "1=1"}, b"", "invalid topic"),
        ({"t": "T", "bm": "1|1|", "f": "1=1"}, b"", "invalid options"),
        ({"t": "^nothing", "bm": "1|1|"}, b"", "invalid topic"),
        ({"t": "^Q", "bm": "1|1|"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "f": "1=1"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "sow_keys": "1"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|"}, b"{}", "invalid options"),
        ({"t": "Q1", "sow_keys": "1"}, b"", "invalid options"),
        ({"t": "Q1"}, b"{}", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "o": "cancel,expire"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "o": "cancel,lease_extension=1s"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "o": "lease_extension=soon"}, b"", "invalid options"),
        ({"t": "Q1", "f": "1=1", "o": "lease_extension=1s"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "1|1|", "o": "replace"}, b"", "invalid options"),
        ({"t": "Q1", "bm": "nonsense"}, b"", "invalid bookmark"),
        ({"t": "Q1", "bm": "0"}, b"", "invalid bookmark"),
        ({"t": "Q1", "bm": "nonsense,"}, b"", "invalid bookmark"),
        ({"t": "Q1"}, b"", "no filter or bookmark"),
        ({"bm": "1|1|"}, b"", "no topic"),
        ({"t": "Q1", "f": "1="}, b"", "bad filter"),
    ],
)
def test_queue_ack_refusals(consumer: Consumer, header: dict[str, str], body: bytes, reason: str) -> None:
    """queues.md D-08, D-09, D-26; §24, 30."""
    answer = consumer.client.ask({"c": "sow_delete", "a": "processed", **header}, body)
    assert (answer["status"], answer["reason"]) == ("failure", reason)
    assert consumer.taken() == []
    assert consumer.client.connection.leases is not None
    assert consumer.client.connection.leases.count == 3


def test_queue_ack_needs_read(tmp_path: Path) -> None:
    """queues.md §14.5, D-33."""
    consumer = Consumer(tmp_path, entitlement=WRITES_ONLY)
    answer = consumer.client.ask({"c": "sow_delete", "t": "Q1", "bm": bookmark(1), "a": "processed"})
    assert answer["reason"] == "not entitled"
    assert consumer.taken() == []
    consumer.stage.close()


def test_queue_ack_needs_no_write(tmp_path: Path) -> None:
    """queues.md §14.5: a permission that is checked anew is checked for acknowledgements too."""
    consumer = Consumer(tmp_path, entitlement=READS_ONLY)
    consumer.consume()
    (taken,) = consumer.acknowledge(bookmark(1))
    assert taken.entries == (consumer.entry(1, 101),)
    consumer.client.connection.forget_permissions()
    listener = consumer.client.connection.listener
    listener.entitlement._other = type(
        "Nobody", (), {"allows": lambda *_: False, "may_log_on": lambda *_: True, "allows_all": False}
    )()
    assert consumer.acknowledge(bookmark(2)) == []
    consumer.stage.close()


def test_queue_ack_text_with_escapes(consumer: Consumer) -> None:
    text = json.dumps({"c": "sow_delete", "t": "Q1", "bm": bookmark(1)}).replace("|1|", "\\u007c1|")
    consumer.client.send(text)  # type: ignore[arg-type]
    consumer.stage.settle()
    (taken,) = consumer.taken()
    assert taken.entries == (consumer.entry(1, 101),)


# --- the fast path and the general one ------------------------------------------------------------------------


fields = st.fixed_dictionaries(
    {
        "t": st.sampled_from(["Q1", "Q1", "Q1", "Q.2", "T", ""]),
        "bm": st.lists(
            st.sampled_from(
                [bookmark(1), bookmark(2), bookmark(3), f" {PUBLISHER} | 3", bookmark(5), "5|5|", "x"]
            ),
            min_size=1,
            max_size=3,
        ).map(",".join),
    },
    optional={
        "o": st.sampled_from(
            [
                "",
                "cancel",
                "expire",
                " cancel",
                "cancel,",
                "cancel,expire",
                "none",
                "lease_extension=1s",
                "cancex",
            ]
        ),
        "a": st.sampled_from(["none", "persisted", "processed", "stats", "received,persisted", ""]),
        "s": st.sampled_from([1, 2, 3, "4", "x", 0]),
        "cid": st.sampled_from(["", "c"]),
        "f": st.just("1=1"),
        "x": st.just("x"),
        "query_id": st.just("q"),
        "sow_keys": st.just("1"),
        "unknown": st.just("y"),
    },
)
commands = st.lists(st.tuples(fields, st.sampled_from([b"", b"", b"", b"{}"])), max_size=6)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(commands)
def test_queue_ack_the_fast_path_gives_the_result_of_the_general_one(sent: list[tuple[dict[str, Any], bytes]]) -> None:
    """For any commands, the ingress passes on by itself the same records that Python would pass on."""
    outcomes = []
    for short in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            consumer = Consumer(Path(directory))
            consumer.consume()
            connection = consumer.client.connection
            if not short:
                connection.ingress.set_leases(None)
            for header, body in sent:
                consumer.client.send({"c": "sow_delete", **header}, body)
            consumer.stage.settle()
            leases = connection.leases
            assert leases is not None
            outcomes.append(
                (
                    [replace(each, serial=0, searched_until=0) for each in consumer.taken()],
                    [{**answer, "bm": None} for answer in consumer.answers()],
                    [leases.get(PUBLISHER, number, 0) for number in range(1, 6)],
                    consumer.client.socket.closed,
                )
            )
            assert consumer.stage.failures() == []
            consumer.stage.close()
    assert outcomes[0] == outcomes[1]
