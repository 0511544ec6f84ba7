"""Queue subscriptions of a worker: requests to the core, answers, and deliveries (queues.md §4 to §8, §14)."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.config import ModuleUse
from amps.server.transport.queues import Queues
from amps.server.transport.subscriptions import shown_text
from tests.support.peer import Message
from tests.support.queue_worker import BARRIER, NO_SUBSCRIPTION, Delivery, Stage, queue

READS_ONLY = ModuleUse("libamps_simple_access_entitlement", {"AllowedTopics": ["^Q1$", "^T$"]})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Queues Q1 and Q2 over T, Q3 over an expression with a target of its own, T2 over itself."""
    stage = Stage(
        tmp_path,
        queue("Q1"),
        queue("Q2"),
        queue("Q3", "^T_", underlying_is_regex=True, default_publish_target="T_3"),
        queue("T2", "T2"),
    )
    yield stage
    assert stage.failures() == []
    stage.close()


def publish(stage: Stage, topic: str, *bodies: bytes, **header: Any) -> None:
    publisher = stage.client("publisher")
    for body in bodies:
        publisher.send({"c": "publish", "t": topic, **header}, body)
    stage.settle()
    publisher.leave()
    stage.settle()


def summary(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [(message.get("t"), message.get("sids"), message.body) for message in messages]


# --- subscribing --------------------------------------------------------------------------------------------


def test_queue_subscribe_passes_the_answer_of_the_core_on(stage: Stage) -> None:
    """queues.md §5.2; §24, 4."""
    client = stage.client("c")
    answer = client.ask({"c": "subscribe", "t": "Q1", "sub_id": "s", "a": "processed", "o": "max_backlog=10"})
    assert (answer["status"], answer["o"], answer["sub_id"]) == ("success", "max_backlog=5", "s")
    assert stage.core.subscribed == [(client.connection.serial, [0, [0], 10, None, ["s", "Q1", ""]])]
    assert not stage.worker.feeds.has_live


@pytest.mark.parametrize(
    ("options", "backlog"),
    [("", 1), ("max_backlog=0", 0), ("max_backlog= 7", 7), ("oof,live,max_backlog=2,conflation=none", 2)],
)
def test_queue_subscribe_max_backlog(stage: Stage, options: str, backlog: int) -> None:
    """queues.md §5.1, D-24; §24, 2, 3 and 6."""
    answer = stage.client("c").ask({"c": "delta_subscribe", "t": "Q1", "a": "processed", "o": options})
    assert answer["o"] == f"max_backlog={min(backlog, 5)}"
    assert stage.core.subscribed[0][1][2] == backlog


@pytest.mark.parametrize(
    "options",
    [
        "max_backlog=-1",
        "max_backlog=x",
        "conflation=1s",
        "conflation=1s,conflation_key=[/id]",
        "conflation_key=[/id]",
        "pause",
        "resume",
        "rate=10",
        "rate_max_gap=1s",
        "fully_durable",
        "bookmark_not_found=now",
    ],
)
@pytest.mark.parametrize("topic", ["Q1", "^Q"])
def test_queue_subscribe_options_without_meaning_fail(stage: Stage, topic: str, options: str) -> None:
    """queues.md D-20, D-24; §24, 6."""
    answer = stage.client("c").ask({"c": "subscribe", "t": topic, "a": "processed", "o": options})
    assert (answer["status"], answer["reason"]) == ("failure", "invalid options")
    assert stage.core.subscribed == []


def test_queue_subscribe_max_backlog_is_ignored_on_other_topics(stage: Stage) -> None:
    """queues.md D-20."""
    answer = stage.client("c").ask({"c": "subscribe", "t": "T", "a": "processed", "o": "max_backlog=10"})
    assert answer["status"] == "success"
    assert "o" not in answer
    assert stage.core.subscribed == []


def test_queue_subscribe_with_filters_identifies_equal_ones(stage: Stage) -> None:
    """queues.md §9.2: filters with the same meaning are equal, whatever their text."""
    client = stage.client("c")
    for number, text in enumerate(("/k = 1", "/k=1", "/k = 2", "")):
        answer = client.ask({"c": "subscribe", "t": "Q1", "sub_id": str(number), "a": "processed", "f": text})
        assert answer["status"] == "success"
    first, second, third, fourth = [payload[3] for _, payload in stage.core.subscribed]
    assert first == second != third
    assert None not in (first, third)
    assert fourth is None


def test_queue_subscribe_with_a_bad_filter_fails(stage: Stage) -> None:
    answer = stage.client("c").ask({"c": "subscribe", "t": "Q1", "a": "processed", "f": "/k = "})
    assert (answer["status"], answer["reason"]) == ("failure", "bad filter")
    assert stage.core.subscribed == []


def test_queue_filters_without_subscriptions_are_not_evaluated(stage: Stage) -> None:
    """The core's answer may arrive after the subscription has ended."""
    client = stage.client("c")
    client.ask({"c": "subscribe", "t": "Q1", "sub_id": "s", "a": "processed", "f": "/k = 1"})
    filter_id = stage.core.subscribed[0][1][3]
    client.ask({"c": "unsubscribe", "sub_id": "s", "a": "processed"})
    gc.collect()
    stage.core.answer("queue_evaluate", 0, 0, 1, 0, filter_id)
    stage.core.answer("queue_evaluated_enough", 0, 0, 1)
    stage.settle()
    assert stage.failures() == []


def test_queue_filters_hold_for_barriers_too(stage: Stage) -> None:
    """queues.md §12; a replaced filter applies to barriers released before the replacement."""
    client = stage.client("c")
    subscribe = {"c": "subscribe", "t": "Q1", "sub_id": "s", "a": "processed"}
    client.ask({**subscribe, "f": "/k = 1"})
    publish(stage, "T", b'{"k":1}', b'{"k":2}')
    first, second = stage.core.positions()
    barriers = [Delivery(position, NO_SUBSCRIPTION, flags=BARRIER) for position in (first, second)]
    stage.core.deliver(*barriers)
    stage.settle()
    assert summary(client.received()) == [("Q1", "s", b'{"k":1}')]
    stage.core.holds_durability = True
    stage.core.deliver(*barriers, durable_needed=stage.core.end + 8)
    client.send({**subscribe, "cid": "r", "o": "replace", "f": "/k = 2"})
    stage.settle()
    assert client.received() == []
    stage.worker.runtime.control.durable = stage.core.end + 8
    stage.settle()
    assert summary(client.received()) == [("Q1", "s", b'{"k":1}'), (None, None, b"")]
    stage.core.deliver(*barriers)
    stage.settle()
    assert summary(client.received()) == [("Q1", "s", b'{"k":2}')]


def test_queue_subscribe_sends_the_core_texts_to_show(stage: Stage) -> None:
    """queues.md §18, `details`: the texts are valid and bounded in length, for any names given by the client."""
    client = stage.client("c")
    answer = client.ask(
        {
            "c": "subscribe", "t": "Q1", "sub_id": "s", "a": "processed",
            "filter": "/k = '" + "x" * 600 + "'",
        }
    )  # fmt: skip
    assert answer["status"] == "success"
    ((_, payload),) = stage.core.subscribed
    sub_id, topic, filter_text = payload[4]
    assert (sub_id, topic) == ("s", "Q1")
    assert len(filter_text) == 500
    assert filter_text.endswith("xxx")
    assert shown_text("s\ud83d") == "s\\ud83d", "half of a character, as JSON may bring it"


def test_queue_subscribe_by_expression_to_queues_and_topics(stage: Stage) -> None:
    """queues.md D-23; §24, 5: one subscription to all matching queues, and to copies of other matching topics."""
    client = stage.client("c")
    answer = client.ask(
        {"c": "subscribe", "t": "^(Q|T)", "sub_id": "s", "a": "processed", "o": "max_backlog=2"}
    )
    assert answer["o"] == "max_backlog=2"
    assert [payload for _, payload in stage.core.subscribed] == [
        [0, [0, 1, 2, 3], 2, None, ["s", "^(Q|T)", ""]]
    ]
    publish(stage, "T", b"1")
    publish(stage, "T2", b"2")
    assert summary(client.received()) == [("T", "s", b"1")]
    first, second = stage.core.positions()
    stage.core.deliver(Delivery(first, 0, queue=1), Delivery(second, 0, queue=3))
    stage.settle()
    assert summary(client.received()) == [("Q2", "s", b"1"), ("T2", "s", b"2")]


def test_queue_subscribe_non_regex_topic_names_one_queue(tmp_path: Path) -> None:
    """A name with a dot is an expression unless the client sets the option."""
    stage = Stage(tmp_path, queue("Q.1"), queue("Q-1"))
    client = stage.client("c")
    for topic, options in (("Q.1", "non_regex_topic"), ("Q.1", "")):
        client.ask({"c": "subscribe", "t": topic, "a": "processed", "o": options})
    assert [payload[1] for _, payload in stage.core.subscribed] == [[0], [0, 1]]
    stage.close()


def test_queue_subscription_to_a_queue_over_its_own_name(stage: Stage) -> None:
    """queues.md §1.6; §24, 8: a message published there is delivered once, by the queue."""
    client = stage.client("c")
    client.ask({"c": "subscribe", "t": "T2", "sub_id": "s", "a": "processed"})
    publish(stage, "T2", b"1")
    assert client.received() == []
    stage.core.deliver(Delivery(stage.core.positions()[0], 0, queue=3))
    stage.settle()
    (message,) = client.received()
    assert (message["t"], message["sids"], message.body) == ("T2", "s", b"1")


@pytest.mark.parametrize(
    ("topic", "underlying"), [("Q1", "T"), ("T2", "T2"), ("Q3", "T_x"), ("^Q[13]$", "T_x")]
)
def test_queue_with_a_bookmark_is_its_underlying_topic(stage: Stage, topic: str, underlying: str) -> None:
    """queues.md §14.4; §24, 9: all messages are delivered, as if there were no queue."""
    for each in ("T", "T2", "T_x", "Ty"):
        publish(stage, each, each.encode())
    client = stage.client("c")
    client.send({"c": "subscribe", "t": topic, "sub_id": "s", "bm": "0", "a": "processed"})
    stage.settle()
    expected = ["T", "T_x"] if topic == "^Q[13]$" else [underlying]
    answer, *messages = client.received()
    assert answer.is_ack("processed")
    assert "o" not in answer
    assert [message["t"] for message in messages] == expected
    assert all("lp" not in message and "bm" in message for message in messages)
    assert stage.core.subscribed == []


def test_queue_with_the_option_bookmark_stays_a_queue(stage: Stage) -> None:
    """queues.md §5.1; §24, 9."""
    stage.client("c").ask({"c": "subscribe", "t": "Q1", "a": "processed", "o": "bookmark"})
    assert len(stage.core.subscribed) == 1


def test_queue_answer_is_sent_after_earlier_deliveries_and_before_later_ones(stage: Stage) -> None:
    """queues.md §5.5: a replacement keeps its number. After the answer, no delivery of the old form follows."""
    client = stage.client("c")
    subscribe = {"c": "subscribe", "sub_id": "s", "a": "processed"}
    client.ask({**subscribe, "t": "Q1", "o": "max_backlog=4"})
    publish(stage, "T", b"1", b"2")
    first, second = stage.core.positions()
    stage.core.holds_durability = True
    stage.core.deliver(Delivery(first, 0, queue=0), durable_needed=stage.core.end + 1)
    client.send({**subscribe, "cid": "r", "t": "Q2", "o": "replace,max_backlog=3"})
    stage.settle()
    stage.core.deliver(Delivery(second, 0, queue=1))
    stage.settle()
    assert [payload for _, payload in stage.core.subscribed] == [
        [0, [0], 4, None, ["s", "Q1", ""]],
        [0, [1], 3, None, ["s", "Q2", ""]],
    ]
    assert client.received() == []
    stage.worker.runtime.control.durable = stage.core.end + 1
    stage.settle()
    messages = client.received()
    assert [message.get("t") for message in messages] == ["Q1", None, "Q2"]
    assert messages[1].is_ack("processed", "r")
    assert messages[1]["o"] == "max_backlog=3"


def test_queue_replacements_between_queues_topics_and_bookmarks(stage: Stage) -> None:
    """A subscription keeps its number, so that messages it holds can still be acknowledged (queues.md §5.5)."""
    client = stage.client("c")
    subscribe = {"c": "subscribe", "sub_id": "s", "a": "processed"}
    client.ask({**subscribe, "t": "T"})
    client.ask({**subscribe, "t": "^Q1$", "o": "replace"})
    client.ask({**subscribe, "t": "Q2", "o": "replace"})
    answer = client.ask({**subscribe, "t": "T", "o": "replace"})
    assert "o" not in answer
    publish(stage, "T", b"1")
    assert summary(client.received()) == [("T", "s", b"1")]
    answer = client.ask({**subscribe, "t": "Q3", "o": "replace"})
    assert "o" in answer
    assert [payload[:2] for _, payload in stage.core.subscribed] == [
        [0, [0]],
        [0, [1]],
        [0, []],
        [0, [2]],
    ]
    publish(stage, "T", b"2")
    assert client.received() == []
    client.ask({**subscribe, "t": "Q1", "o": "replace", "bm": "0|1|"})
    publish(stage, "T", b"3")
    assert summary(client.received()) == [("T", "s", b"3")]


def test_queue_replacement_of_a_queue_by_a_replay(stage: Stage) -> None:
    publish(stage, "T", b"1")
    client = stage.client("c")
    client.ask({"c": "subscribe", "sub_id": "s", "a": "processed", "t": "Q1"})
    client.send(
        {"c": "subscribe", "cid": "r", "sub_id": "s", "a": "processed", "t": "Q1", "o": "replace", "bm": "0"}
    )
    stage.settle()
    answer, message = client.received()
    assert answer.is_ack("processed", "r")
    assert (message["t"], message.body) == ("T", b"1")
    assert stage.core.subscribed[-1][1][:2] == [0, []]


def test_queue_unsubscribe_and_disconnect(stage: Stage) -> None:
    """queues.md §5.6; §24, 14. A number is never used again."""
    client = stage.client("c")
    for sub_id in ("a", "b"):
        client.ask({"c": "subscribe", "t": "Q1", "sub_id": sub_id, "a": "processed"})
    client.ask({"c": "unsubscribe", "sub_id": "a", "a": "processed"})
    assert stage.core.unsubscribed == [0]
    publish(stage, "T", b"1")
    position = stage.core.positions()[0]
    stage.core.deliver(Delivery(position, 0), Delivery(position, 1))
    stage.settle()
    assert [message["sids"] for message in client.received()] == ["b"]
    client.leave()
    other = stage.client("d")
    other.ask({"c": "subscribe", "t": "Q1", "sub_id": "a", "a": "processed"})
    assert [payload[0] for _, payload in stage.core.subscribed] == [0, 1, 2]
    stage.core.deliver(Delivery(position, 1), Delivery(position, 2))
    stage.settle()
    assert [message["sids"] for message in other.received()] == ["a"]


def test_queue_client_that_disconnects_while_it_subscribes(stage: Stage) -> None:
    client = stage.client("c")
    client.send({"c": "subscribe", "t": "Q1", "sub_id": "a"})
    client.leave()
    stage.settle()
    assert not stage.worker.queues.has_subscriptions


def test_queue_barrier_goes_to_every_subscription_of_the_queue(stage: Stage) -> None:
    """queues.md §12."""
    clients = [stage.client(name) for name in ("c", "d")]
    for client in clients:
        client.ask({"c": "subscribe", "t": "Q1", "sub_id": "a", "a": "processed", "o": "max_backlog=0"})
    publish(stage, "T", b"1")
    stage.core.deliver(Delivery(stage.core.positions()[0], NO_SUBSCRIPTION, flags=BARRIER))
    stage.settle()
    for client in clients:
        (message,) = client.received()
        assert "lp" not in message


def test_queue_deliveries_wait_for_the_device_and_demand_a_sync(stage: Stage) -> None:
    client = stage.client("c")
    client.ask({"c": "subscribe", "t": "Q1", "a": "processed"})
    stage.core.holds_durability = True
    publish(stage, "T", b"1")
    stage.core.deliver(Delivery(stage.core.positions()[0], 0))
    stage.settle()
    assert client.received() == []
    stage.worker.runtime.control.durable = stage.core.end
    stage.settle()
    assert len(client.received()) == 1


def test_queue_message_that_is_damaged_ends_the_connection(stage: Stage) -> None:
    client = stage.client("c")
    client.ask({"c": "subscribe", "t": "Q1", "a": "processed"})
    publish(stage, "T", b"1")
    stage.core.deliver(Delivery(stage.core.positions()[0] + 8, 0))
    stage.settle()
    assert client.socket.closed
    assert [record_id for record_id, _ in stage.logged if record_id.startswith("1D")] == ["1D-0010"]


# --- permissions --------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Stage]:
    """Only Q1 and T may be read or written."""
    stage = Stage(
        tmp_path, queue("Q1", "Tx", default_publish_target="Tx"), queue("Q2"), entitlement=READS_ONLY
    )
    yield stage
    assert stage.failures() == []
    stage.close()


def test_queue_read_permission_applies_to_the_queues_name(guarded: Stage) -> None:
    """queues.md §14.5; §24, 65."""
    client = guarded.client("c")
    assert client.ask({"c": "subscribe", "t": "Q1", "a": "processed"}).succeeded
    assert client.ask({"c": "subscribe", "t": "Q2", "a": "processed"})["reason"] == "not entitled"
    answer = client.ask({"c": "subscribe", "t": "^Q", "a": "processed"})
    assert answer.succeeded
    assert [payload[1] for _, payload in guarded.core.subscribed] == [[0], [0]]
    # A replay is of the underlying topic, which has permissions of its own.
    assert client.ask({"c": "subscribe", "t": "Q1", "bm": "0", "a": "processed"})["reason"] == "not entitled"
    assert client.ask({"c": "subscribe", "t": "Q2", "bm": "0", "a": "processed"}).succeeded


def test_queue_publishing_needs_the_permission_of_the_queues_name(guarded: Stage) -> None:
    """queues.md §14.5; §24, 65."""
    client = guarded.client("c")
    publish_ = {"c": "publish", "a": "processed"}
    assert client.ask({**publish_, "t": "Q1"}, b"1").succeeded
    assert client.ask({**publish_, "t": "Tx"}, b"2")["reason"] == "not entitled"
    assert client.ask({**publish_, "t": "Q2"}, b"3")["reason"] == "not entitled"
    client.send({"c": "publish", "t": "Q1"}, b"4")
    guarded.settle()
    assert [(record.topic, record.payload) for record in guarded.core.records()] == [
        (("Tx", "json"), b"1"),
        (("Tx", "json"), b"4"),
    ]


# --- publishing ---------------------------------------------------------------------------------------------


def test_queue_publish_to_its_name_is_recorded_under_its_target(stage: Stage) -> None:
    """queues.md §4; §24, 15 and 16."""
    for number, topic in enumerate(("Q1", "T", "Q3", "T_3", "T2", "Q1")):
        publish(stage, topic, b"%d" % number)
    publish(stage, "Q3", b"large" + bytes(2 << 20), a="processed")
    topics = [record.topic[0] for record in stage.core.records()]
    assert topics == ["T", "T", "T_3", "T_3", "T2", "T", "T_3"]


def test_queue_publish_that_requests_its_own_answer(stage: Stage) -> None:
    """The answer waits for the device, as for the target's topic, although the queue's name itself is not recorded."""
    stage.core.holds_durability = True
    client = stage.client("c")
    client.send({"c": "publish", "cid": "1", "t": "Q1", "a": "persisted"}, b"1")
    stage.settle()
    assert client.received() == []
    stage.worker.runtime.control.durable = stage.core.end
    stage.settle()
    assert client.received()[0].is_ack("persisted", "1")


def test_queue_rerouted_publish_is_pubsub_under_the_targets_name(stage: Stage) -> None:
    """queues.md §4; §24, 15 and 16."""
    client = stage.client("c")
    client.ask({"c": "subscribe", "t": "T_3", "sub_id": "s", "a": "processed"})
    publish(stage, "Q3", b"1")
    assert summary(client.received()) == [("T_3", "s", b"1")]


def test_queue_numbers_differ_from_those_of_a_dead_worker(tmp_path: Path) -> None:
    """The dead worker's deliveries may still be in the ring that its successor reads."""
    stage = Stage(tmp_path, queue("Q1"))
    first = [Queues(*_parts_of(stage))._next_number for _ in range(2)]
    assert first[0] != first[1]
    assert all(0 < number < NO_SUBSCRIPTION for number in first)
    # After the last number they start again at 1, and skip those in use.
    client = stage.client("c")
    for number in (0, NO_SUBSCRIPTION - 1):
        stage.worker.queues._next_number = number
        client.ask({"c": "subscribe", "t": "Q1", "sub_id": f"s{number}", "a": "processed"})
    client.ask({"c": "subscribe", "t": "Q1", "sub_id": "last", "a": "processed"})
    assert [payload[0] for _, payload in stage.core.subscribed] == [0, NO_SUBSCRIPTION - 1, 1]
    stage.close()


def _parts_of(stage: Stage) -> tuple[Any, ...]:
    worker = stage.worker
    return worker.core, worker.runtime.control, worker.feeds, worker.queues.filters, worker.schedule
