"""The core's description of one queue: rows of its cursors, subscriptions and first messages, within bounds."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from amps._core.queues import manager as queue_details
from amps._core.queues.manager import LogAdapter, client_key, describe_queue, describe_subscriptions
from amps.server.admin.queue_counters import NEVER
from amps.server.admin.queue_details import counters_in
from amps.server.core.queue_answers import answer_about_queues
from amps.server.request_answers import PART_BYTES
from tests.support.queue_files import QueueFiles
from tests.support.queue_slots import SharedQueues
from tests.support.queue_subject import QueueSettings

ANNA, BEN = client_key(0, 5, 1), client_key(0, 6, 1)
NAMES = {(0, 5): "anna", (0, 6): "ben"}


@pytest.fixture
def queues() -> SharedQueues:
    return SharedQueues(QueueSettings("Q", max_per_subscription=100), QueueSettings("P", has_priority=True))


def rows(queues: SharedQueues, kind: str, queue: int = 0) -> list[tuple[Any, ...]]:
    return [row[1:] for row in describe_queue(queues.manager, queue, NAMES) if row[0] == kind]


def test_an_empty_queue(queues: SharedQueues) -> None:
    assert rows(queues, "message") == rows(queues, "subscription") == []
    assert rows(queues, "cursor") == [(0, "idle", 0, 0, 0)]
    described = describe_queue(queues.manager, 0, NAMES)
    assert counters_in(described)["oldest_position"] == NEVER
    assert rows(queues, "queue")[0][1] == 0, "it reserves nothing"


def test_holders_of_messages(queues: SharedQueues) -> None:
    queues.enter(0, 8, 16, 24)
    queues.manager.subscribe(0, 1, BEN, {0: None}, 2)
    queues.manager.serve(77)
    assert rows(queues, "message") == [
        (8, 1, 8, 0, None, "ben", 77, 0, 1),
        (16, 1, 16, 0, None, "ben", 77, 0, 1),
        (24, 1, 24, 1, None, None, 0, 0, 1),
    ]
    assert rows(queues, "subscription") == [(0, "ben", "", "", "", 2, 2)]
    assert rows(queues, "cursor") == [(0, "full", 16, 16, 2)]
    assert counters_in(describe_queue(queues.manager, 0, NAMES))["leased"] == 2


def test_a_lease_that_was_extended_shows_its_beginning(queues: SharedQueues) -> None:
    queues.enter(0, 8)
    queues.manager.subscribe(0, 1, BEN, {0: None}, 2)
    queues.manager.serve(77)
    queues.manager.acknowledge(0, BEN, [(1, 8, 8, 0)], 3, 10**12, 100)
    assert rows(queues, "message")[0][-3] == 77


def test_a_delayed_message_shows_its_time(queues: SharedQueues) -> None:
    """queue_guarantees.md §1.9"""
    queues.manager.enqueue(0, 8, (1, 8), 1, None, 50, deliver_at_ns=99)
    assert rows(queues, "message") == [(8, 1, 8, 0, None, None, 0, 99, 1)]
    counters = counters_in(describe_queue(queues.manager, 0, NAMES))
    assert (counters["depth"], counters["delayed"], counters["next_delivery_ns"]) == (0, 1, 99)
    queues.manager.pass_time(99)
    assert rows(queues, "message") == [(8, 1, 8, 1, None, None, 0, 0, 1)]


def test_an_unknown_client_has_no_name(queues: SharedQueues) -> None:
    """Another client has taken its name over, and its connection is about to end."""
    queues.enter(0, 8)
    queues.manager.subscribe(0, 1, client_key(1, 5, 1), {0: None}, 2)
    queues.manager.serve(77)
    assert rows(queues, "message")[0][5] == ""


def test_cursors_of_filters(queues: SharedQueues) -> None:
    queues.enter(0, 8, 16, 24)
    queues.manager.subscribe(0, 1, BEN, {0: 7}, 5, ("s1", "Q", "/k = 1"))
    queues.manager.subscribe(0, 2, ANNA, {0: 7}, 6, ("s2", "^Q", "/k = 1"))
    everything, filtered = rows(queues, "cursor")
    assert everything[1] == "idle"
    assert filtered == (1, "evaluating", 0, 0, 0)
    queues.manager.hear(1, [(8, 0)], 17, 50)
    queues.manager.serve(60)
    assert rows(queues, "cursor")[1] == (1, "evaluating", 16, 8, 1)
    queues.manager.hear(1, [], 25, 50)
    assert rows(queues, "cursor")[1] == (1, "waiting", 24, 8, 1)
    assert rows(queues, "subscription") == [
        (1, "ben", "s1", "Q", "/k = 1", 1, 5),
        (1, "anna", "s2", "^Q", "/k = 1", 0, 6),
    ]


def test_priorities(queues: SharedQueues) -> None:
    queues.manager.enqueue(1, 8, (1, 1), 1, None, 1, 0)
    queues.manager.enqueue(1, 16, (1, 2), 1, None, 1, None)
    assert [row[4] for row in rows(queues, "message", 1)] == [0, None]


def test_a_message_delivered_at_most_once_is_not_in_the_queue() -> None:
    queues = SharedQueues(QueueSettings("Q", at_least_once=False, fairness="round-robin"))
    queues.enter(0, 8, 16)
    queues.manager.subscribe(0, 1, BEN, {0: None}, 1)
    queues.manager.serve(1)
    assert [row[0] for row in rows(queues, "message")] == [16]
    assert rows(queues, "subscription") == [(0, "ben", "", "", "", 1, 1)]


def test_a_barrier_cannot_be_delivered(queues: SharedQueues) -> None:
    queues.enter(0, 8)
    queues.enter(0, 16, is_barrier=True)
    assert [row[3] for row in rows(queues, "message")] == [1, 0]


def test_it_is_bounded(queues: SharedQueues) -> None:
    """The first 1000 messages are shown, from a bounded number of slots at the head."""
    positions = [8 * number for number in range(1, 3001)]
    queues.enter(0, *positions)
    assert [row[0] for row in rows(queues, "message")] == positions[:1000]
    queues.leave(0, *positions[:1500])
    assert [row[0] for row in rows(queues, "message")] == positions[1500:2500]
    for number in range(1200):
        queues.manager.subscribe(0, number, BEN, {0: number}, 1)
    assert len(rows(queues, "cursor")) == queue_details.CURSORS_MAX
    assert len(rows(queues, "subscription")) == queue_details.SUBSCRIPTIONS_MAX


def test_a_queue_that_is_almost_empty_is_not_searched_through(tmp_path: Path) -> None:
    """With one message in every block, the core reads a bounded number of slots."""
    files = QueueFiles(tmp_path, QueueSettings("Q"))
    blocks = queue_details.SLOTS_MAX // 1024
    for first in range(0, 1024 * (blocks + 5), 1024):
        positions = [8 * number for number in range(first + 1, first + 1025)]
        files.enter(0, *positions)
        files.acknowledge(0, *positions[1:])
    found = [row[1] for row in describe_queue(files.manager, 0, NAMES) if row[0] == "message"]
    assert found == [8 * (1024 * block + 1) for block in range(blocks)]


def test_a_cursor_that_stands_between_two_blocks(queues: SharedQueues) -> None:
    queues.enter(0, *[8 * number for number in range(1, 1030)])
    queues.manager.subscribe(0, 1, BEN, {0: 7}, 5)
    for until, processed in (
        (8, 0),
        (9, 8),
        (8 * 1024, 8 * 1023),
        (8 * 1025, 8 * 1024),
        (8 * 1025 + 1, 8 * 1025),
    ):
        queues.manager.hear(1, [], until, 50)
        assert rows(queues, "cursor")[1][2] == processed


def test_subscriptions_of_all_queues(queues: SharedQueues) -> None:
    """Each subscription is listed once, also for several queues. A replacement changes its terms, not its leases."""
    queues.enter(0, 8, 16)
    queues.manager.subscribe(0, 3, BEN, {0: None, 1: None}, 9, ("s", "^[PQ]$", ""))
    queues.manager.subscribe(1, 3, ANNA, {1: 5}, 9, ("t", "P", "/k"))
    queues.manager.serve(5)
    described = describe_subscriptions(queues.manager, 0, NAMES)
    assert described == [
        (0, 3, 0, "ben", "s", "^[PQ]$", "", 1, 1),
        (1, 3, 1, "anna", "t", "P", "/k", 0, 1),
    ]
    queues.manager.subscribe(0, 3, BEN, {}, 9, ("s", "T", ""))
    assert describe_subscriptions(queues.manager, 0, NAMES)[0] == (0, 3, 0, "ben", "s", "T", "", 1, 9)
    queues.manager.acknowledge(0, BEN, [(1, 8, 8, 0)], 0, 0, 6)
    assert describe_subscriptions(queues.manager, 0, NAMES)[0] == (0, 3, None, "ben", "s", "T", "", 0, 9)
    queues.manager.unsubscribe(0, 3, 7)
    assert describe_subscriptions(queues.manager, 0, NAMES) == described[1:]


def test_many_subscriptions_are_sent_in_several_steps(queues: SharedQueues) -> None:
    for number in range(2500):
        queues.manager.subscribe(0, number, BEN, {0: None}, 1)
    found = [
        [row[1] for row in describe_subscriptions(queues.manager, skip, NAMES)]
        for skip in (0, 1000, 2000, 2500)
    ]
    assert found == [list(range(1000)), list(range(1000, 2000)), list(range(2000, 2500)), []]


class Asked:
    """The parts of a sequencer that requests use."""

    names = NAMES

    def __init__(self, queues: SharedQueues | None) -> None:
        self.adapter = None if queues is None else LogAdapter(queues.manager, [("Q", "json"), ("P", "json")])


def ask(queues: SharedQueues | None, request: object) -> list[Any] | None:
    answers = answer_about_queues(msgpack.packb(request), Asked(queues))  # type: ignore[arg-type]
    return None if answers is None else [msgpack.unpackb(answer) for answer in answers]


def test_an_answer_comes_in_parts_that_fit(queues: SharedQueues) -> None:
    queues.enter(0, *[8 * number for number in range(1, 1001)])
    queues.manager.subscribe(0, 1, BEN, {0: None}, 1000)
    queues.manager.serve(77)
    for number in range(2, 200):
        queues.manager.subscribe(0, number, BEN, {0: number}, 1, ("s", "Q", "x" * 500))
    packed = answer_about_queues(msgpack.packb([9, "queue", 0]), Asked(queues))  # type: ignore[arg-type]
    assert packed is not None
    assert max(map(len, packed)) <= PART_BYTES + 100
    answers = [msgpack.unpackb(answer) for answer in packed]
    assert [answer[:2] for answer in answers] == [[9, "more"]] * (len(answers) - 1) + [[9, "ok"]]
    assert len(answers) > 2
    found = [row for answer in answers for row in answer[2]]
    assert found == [list(row) for row in describe_queue(queues.manager, 0, NAMES)]


@pytest.mark.parametrize("number", [-1, 2, 1.0, "Q", None, True, 2**63])
def test_an_unknown_queue(queues: SharedQueues, number: object) -> None:
    answer = ask(queues, [9, "queue", number])
    assert answer is not None
    assert answer[0][:2] == [9, "error"]


def test_an_instance_without_queues() -> None:
    assert ask(None, [9, "queue", 0]) == [[9, "error", "there is no queue of the number 0"]]


@pytest.mark.parametrize(
    "request_", [[9, "list"], [9, "queue"], [9, "compress", 0], "queue", 7, {"queue": 0}]
)
def test_other_questions_are_not_answered_here(queues: SharedQueues, request_: object) -> None:
    assert ask(queues, request_) is None


def test_malformed_requests_are_not_answered_here(queues: SharedQueues) -> None:
    assert answer_about_queues(b"\xc1", Asked(queues)) is None  # type: ignore[arg-type]
    assert answer_about_queues(b"", Asked(queues)) is None  # type: ignore[arg-type]
