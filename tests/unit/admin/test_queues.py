"""Queues in the administration interface, from the core's files, without a core (queues.md §18, §16.4)."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amps._core.journal.reader import LogCursor
from amps._core.queues.manager import describe_queue, describe_subscriptions
from amps._core.shm.memory import ControlPage
from amps.config import QueueConfig, ServerConfig
from amps.server.admin import queues as admin_queues
from amps.server.admin.message_heads import read_heads
from amps.server.admin.queues import QueueView
from amps.server.services.core_requests import CoreRequests
from tests.support.admin import AdminFixture
from tests.support.feed import Feed, Feeder, directory_of, read_all
from tests.support.queue_files import QueueFiles
from tests.support.queue_subject import QueueSettings
from tests.support.records import RecordParts

SECOND_NS = 10**9
NOW_NS = 1_750_000_000 * SECOND_NS
NAMES = {(0, 0): "anna"}
MESSAGES = 20


def configured(name: str, **more: Any) -> QueueConfig:
    return QueueConfig(name, "json", "Queue", "a", False, "a", **more)


class Queued:
    """An interface and its queues. The clock stands still; messages were published one per second."""

    def __init__(self, path: Path, *queues: tuple[QueueConfig, QueueSettings]) -> None:
        """Each queue is given as its configuration and as the core's settings."""
        self.feeder = Feeder(path, 16384)
        for number in range(1, MESSAGES + 1):
            self.feeder.push(Feed(0, number, "T", RecordParts(payload=b"{}")))
            self.feeder.turn(NOW_NS - (MESSAGES + 1 - number) * SECOND_NS, 0)
        cursor = LogCursor(directory_of(self.feeder.journal_storage), 0, 0, True)
        self.records = read_all(cursor, self.feeder.journal.position)
        self.positions = [record.position for record in self.records]
        self.path = path
        self.files = QueueFiles(path, *[settings for _, settings in queues], control=self.feeder.control)
        self.queues = tuple(config for config, _ in queues)
        self.view: QueueView
        self.admin = AdminFixture(queues=self._view)

    def _view(self, config: ServerConfig, core: CoreRequests) -> QueueView:
        settings = config.transaction_log
        assert settings is not None
        log = replace(settings, journal_directory=self.path, journal_archive_directory=None)
        config = replace(config, name="journal", transaction_log=log, queues=self.queues)
        self.view = QueueView(config, self.files, core, lambda: NOW_NS)  # type: ignore[arg-type]
        return self.view

    def get(self, path: str, status: int = 200) -> str:
        answer = self.admin.get(f"/amps/{path}")
        assert answer.status == status, answer.body
        return answer.body

    def rows(self, path: str) -> list[dict[str, str]]:
        """The members of a collection."""
        found = json.loads(self.get(f"{path}.json"))["amps"]
        for name in path.split("/")[:2]:
            found = found[name]
        return list(found)

    def metrics(self, queue: str) -> dict[str, str]:
        (row,) = self.rows(f"instance/queues/{queue}")
        return row

    def answers(self, verb: str, rest: list[Any]) -> list[list[Any]]:
        """The answer of a core, in two parts."""
        describe = {"queue": describe_queue, "queue subscriptions": describe_subscriptions}[verb]
        rows = describe(self.files.manager, rest[0], NAMES)
        return [["more", rows[:2]], ["ok", rows[2:]]]


Start = Callable[..., Queued]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Queued] = []

    def starting(*queues: tuple[QueueConfig, QueueSettings]) -> Queued:
        started.append(Queued(tmp_path, *queues))
        return started[-1]

    yield starting
    for one in started:
        one.admin.close()


@pytest.fixture
def two(start: Start) -> Queued:
    """Two queues: the first with limits, the second with a name that must be escaped."""
    return start(
        (
            configured("Q", max_backlog=7, target_queue_depth=2000),
            QueueSettings("Q", lease_ns=3600 * SECOND_NS, max_per_subscription=5),
        ),
        (configured("a/b", priority="/p"), QueueSettings("a/b", has_priority=True)),
    )


def test_configured_metrics(two: Queued) -> None:
    """queues.md §18: fixed metrics; a limit that is not set is shown as 0."""
    q, ab = two.rows("instance/queues")
    assert {
        name: q[name] for name in ("id", "topic", "message_type", "max_backlog", "target_queue_depth")
    } == {
        "id": "Q!json",
        "topic": "Q",
        "message_type": "json",
        "max_backlog": "7",
        "target_queue_depth": "2000",
    }
    assert (ab["id"], ab["max_backlog"], ab["target_queue_depth"]) == ("a/b!json", "0", "0")
    assert two.metrics("a%2Fb!json") == ab


def test_an_empty_queue(two: Queued) -> None:
    metrics = two.metrics("Q!json")
    fixed = {"id", "topic", "message_type", "max_backlog", "target_queue_depth", "proxied_transfer"}
    assert not {"delayed", "next_delivery", "waiting"} & metrics.keys()
    assert {metrics[name] for name in metrics.keys() - fixed} == {"0"}


def test_counters_move(two: Queued) -> None:
    """queues.md §18: the core's counters under the names of the interface."""
    files = two.files
    files.enter(0, *two.positions)
    files.manager.subscribe(0, 1, 1, {0: None}, 4)
    files.manager.serve(NOW_NS - 70 * SECOND_NS)
    metrics = two.metrics("Q!json")
    assert (metrics["queue_depth"], metrics["owned"], metrics["backlog"]) == (
        str(MESSAGES),
        str(MESSAGES),
        "4",
    )
    assert metrics["age_of_oldest_lease"] == "70"
    files.manager.acknowledge(0, 1, [(9, 9, 0, 0)], 0, 0, NOW_NS)
    files.manager.pass_time(NOW_NS + 3600 * SECOND_NS)
    metrics = two.metrics("Q!json")
    assert (metrics["deferred_ack_count"], metrics["expired_leases"], metrics["backlog"]) == ("1", "4", "0")
    assert metrics["age_of_oldest_lease"] == "0"
    assert two.metrics("a%2Fb!json")["queue_depth"] == "0"


def test_the_age_of_the_oldest_message(two: Queued) -> None:
    """queues.md §18, `seconds_behind`: counted from the time at which the message entered the log."""
    two.files.enter(0, *two.positions)
    assert two.metrics("Q!json")["seconds_behind"] == str(MESSAGES)
    two.files.acknowledge(0, *two.positions[:3])
    assert two.metrics("Q!json")["seconds_behind"] == str(MESSAGES - 3)
    assert [row["seconds_behind"] for row in two.rows("instance/queues")] == [str(MESSAGES - 3), "0"]
    two.files.acknowledge(0, *two.positions)
    assert two.metrics("Q!json")["seconds_behind"] == "0"


def test_the_age_begins_anew_with_the_instance(two: Queued) -> None:
    """queues.md §18: reset at a restart."""
    two.files.began_ns = NOW_NS - 4 * SECOND_NS
    two.files.enter(0, *two.positions)
    assert two.metrics("Q!json")["seconds_behind"] == "4"
    two.files.acknowledge(0, *two.positions[:-2])
    assert two.metrics("Q!json")["seconds_behind"] == "2"


def test_a_message_that_is_not_written_yet_is_new(two: Queued) -> None:
    two.files.enter(0, two.feeder.journal.position + 800)
    assert two.metrics("Q!json")["seconds_behind"] == "0"


def test_the_age_of_a_message_that_has_vanished_is_not_known(two: Queued) -> None:
    """An unknown age is shown as empty, not as 0."""
    two.files.enter(0, *two.positions)
    for journal in two.path.glob("journal.*.journal"):
        journal.unlink()
    assert two.metrics("Q!json")["seconds_behind"] == ""
    assert two.get("instance/queues/Q!json/queue_depth") == str(MESSAGES)


def test_a_message_is_looked_up_once(two: Queued, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of a message is looked up once for all requests, and for all queues in one call."""
    looked_up = []

    def reading(config: ServerConfig, control: ControlPage, positions: Any) -> Any:
        looked_up.append(sorted(positions))
        return read_heads(config, control, looked_up[-1])

    monkeypatch.setattr(admin_queues, "read_heads", reading)
    two.files.enter(0, *two.positions)
    two.files.enter(1, *two.positions[1:])
    for _ in range(3):
        two.rows("instance/queues")
        two.metrics("Q!json")
    assert looked_up == [two.positions[:2]]
    two.files.acknowledge(0, two.positions[0])
    two.metrics("Q!json")
    assert looked_up[1:] == [[two.positions[1]]]


def test_missing_counters_are_an_error_that_names_the_core(two: Queued) -> None:
    two.files.queue_counters_path.unlink()
    assert "the core's counters cannot be read" in two.get("instance/queues/Q!json", 500)
    assert "the core's counters cannot be read" in two.get("instance/queues.json", 500)
    assert "the core's counters cannot be read" in two.get("instance/sow/Q!json.json", 500)


def test_details_come_from_the_core(two: Queued) -> None:
    """operations.md §5.8, queues.md §18: positions become transactions, journals and ages."""
    two.admin.core._answer = two.answers
    for number, position in enumerate(two.positions):
        two.files.manager.enqueue(1, position, (1, number), 1, None, 1, None if number % 3 else number % 2)
    two.files.manager.subscribe(0, 1, 0, {1: None}, 1)
    two.files.manager.serve(NOW_NS - 70 * SECOND_NS)
    answer = two.admin.get("/amps/instance/queues/a%2Fb!json/details")
    assert answer.headers["Content-Type"].startswith("application/json")
    details = answer.json()
    assert two.admin.core.asked == [("queue", [1])]
    assert {name: value for name, value in details.items() if name not in ("cursors", "messages")} == {
        "internal_depth": 1024,
        "insert_count": MESSAGES,
        "delete_count": 0,
        "depth": MESSAGES,
        "last_queued_txid": two.records[-1].txid,
        "last_acked_txid": 0,
        "priority_count": 3,
        "seconds_behind": MESSAGES,
        "age_of_oldest_lease": 70,
        "backlog": 1,
        "expired_leases": 0,
        "locally_owned": MESSAGES,
        "transferred_in": 0,
    }
    assert [message["txid"] for message in details["messages"]] == [record.txid for record in two.records]
    assert [message["age"] for message in details["messages"]] == list(range(MESSAGES, 0, -1))
    leased = [message for message in details["messages"] if "leased_to" in message]
    assert leased == [
        {
            "txid": two.records[3].txid,
            "bookmark": "1|3|",
            "journal": str(two.path / "journal.0000000000.journal"),
            "deliverable": 0,
            "age": MESSAGES - 3,
            "locally_owned": 1,
            "priority": 1,
            "leased_to": "anna",
            "leased_age": 70,
        }
    ]
    assert details["cursors"] == [
        {
            "cursor_id": 0,
            "state": "full",
            "last_processed_txid": two.records[-1].txid,
            "last_delivered_txid": two.records[3].txid,
            "last_result": "passed",
            "processing_count": 1,
            "cursor_subscriptions": [
                {
                    "client_name": "anna",
                    "sub_id": "",
                    "topic": "",
                    "filter": "",
                    "backlog": 1,
                    "max_backlog": 1,
                }
            ],
        }
    ]


def test_details_of_messages_that_have_vanished(two: Queued) -> None:
    two.admin.core._answer = two.answers
    two.files.enter(0, *two.positions)
    for journal in two.path.glob("journal.*.journal"):
        journal.unlink()
    details = json.loads(two.get("instance/queues/Q!json/details"))
    assert {(one["txid"], one["journal"], one["age"]) for one in details["messages"]} == {(0, "", 0)}
    assert (details["depth"], details["seconds_behind"]) == (MESSAGES, 0)


def test_details_have_one_form(two: Queued) -> None:
    two.admin.core._answer = two.answers
    assert json.loads(two.get("instance/queues/Q!json/details.json"))["depth"] == 0
    two.get("instance/queues/Q!json/details.xml", 400)
    two.get("instance/queues/Q!json/details.csv", 400)
    two.get("instance/queues/Q!json/details/depth", 404)
    assert "details" not in two.metrics("Q!json")
    assert "details" in two.get("instance/queues/Q!json"), "the page has a link to it"


def test_details_when_the_core_does_not_answer(two: Queued) -> None:
    two.admin.core.refusal = "it is busy"
    assert two.get("instance/queues/Q!json/details", 500) == "it is busy\n"


def test_subscriptions(two: Queued) -> None:
    """operations.md §5.7: the transports list the subscriptions; `backlog` is the number of leased messages.

    The core gives the backlogs in several steps.
    """
    two.admin.core._answer = two.answers
    two.files.enter(0, *two.positions)
    two.files.manager.subscribe(0, 7, 0, {0: None}, 3, ("s", "Q", ""))
    for number in range(1500):
        two.files.manager.subscribe(0, 100 + number, 0, {1: 5}, 1, ("t", "a/b", "/k = 1"))
    two.files.manager.serve(1)
    two.admin.transport_rows = [[4, 7, "anna", "s", "Q", "json", "", "", "timestamp"]]
    two.admin.transport_rows += [
        [10 + n, 100 + n, "anna", "t", "a/b", "json", "/k = 1", "", ""] for n in range(1500)
    ]
    two.admin.transport_rows += [
        [2000, None, "bert", "b", "c", "fix", "", "0", "pause"],
        [2001, 9999, *"abcdef", ""],
    ]
    first, *others, bookmark, new = two.rows("instance/subscriptions")
    assert first == {
        "id": "4",
        "backlog": "3",
        "bookmark": "",
        "client_id": "anna",
        "entitlement_filter": "",
        "filter": "",
        "message_type": "json",
        "options": "timestamp,max_backlog=3",
        "pagination_id": "",
        "sub_id": "s",
        "topic": "Q",
    }
    assert [row["id"] for row in others] == [str(10 + number) for number in range(1500)]
    assert {(row["topic"], row["filter"], row["backlog"], row["options"]) for row in others} == {
        ("a/b", "/k = 1", "0", "max_backlog=1")
    }
    assert (
        bookmark.items() >= {"id": "2000", "bookmark": "0", "options": "pause", "message_type": "fix"}.items()
    )
    assert (new["backlog"], new["options"]) == ("0", ""), "the core does not know it yet"
    assert two.admin.core.asked == [("queue subscriptions", [0]), ("queue subscriptions", [1000])]
    assert two.get("instance/subscriptions/4/backlog") == "3"
    two.get("instance/subscriptions/12345678/backlog", 404)


def test_queues_are_sow_entries(two: Queued) -> None:
    """queues.md §18, D-39: `valid_keys` is the depth.

    `stored_bytes` is 0, since messages are stored in the log only.
    """
    two.files.enter(0, *two.positions)
    two.files.acknowledge(0, *two.positions[:5])
    two.files.queue_statistics.count_query(0, 0)
    two.files.queue_statistics.count_query(1, 0)
    q, ab = two.rows("instance/sow")
    assert q == {
        "id": "Q!json",
        "delete_count": "5",
        "insert_count": str(MESSAGES),
        "memory_bytes": "0",
        "message_type": "json",
        "mmaps": "0",
        "query_count": "2",
        "slab_count": "0",
        "stored_bytes": "0",
        "topic": "Q",
        "update_count": "0",
        "valid_keys": str(MESSAGES - 5),
    }
    assert (ab["insert_count"], ab["query_count"]) == ("0", "0")
    assert two.rows("instance/sow/a%2Fb!json") == [ab]


def test_proxied_transfer_is_switched_by_the_core(two: Queued) -> None:
    """queues.md §16.4: disabled by default; the core may refuse it."""
    path = "administrator/queues/a%2Fb!json"
    assert [row["proxied_transfer"] for row in two.rows("instance/queues")] == ["disabled", "disabled"]
    two.get(f"{path}/enable_proxied_transfer")
    two.get(f"{path}/disable_proxied_transfer")
    assert two.admin.core.asked[-2:] == [("proxied transfer", [1, 1]), ("proxied transfer", [1, 0])]
    two.admin.core.refusal = "the queue is one of this instance alone"
    assert two.admin.core.refusal in two.get(f"{path}/enable_proxied_transfer", 409)
    two.get("administrator/queues/none!json/enable_proxied_transfer", 404)


def test_the_dump_is_one_record(two: Queued) -> None:
    """queues.md §18; operations.md §13, 40: a line for each queue, those with the most messages first."""
    two.files.enter(1, *two.positions[:2])
    two.get("administrator/diagnostics/dump")
    (text,) = two.admin.log.texts("31-0010")
    assert text.splitlines()[1:] == [
        f"'a/b!json': queue_depth 2, inactive 0, backlog 0, subscriptions 0, inserted 2, deleted 0, expired_leases 0, "
        f"deferred_acks 0, seconds_behind {MESSAGES}, age_of_oldest_lease 0, proxied_transfer disabled",
        "'Q!json': queue_depth 0, inactive 0, backlog 0, subscriptions 0, inserted 0, deleted 0, expired_leases 0, "
        "deferred_acks 0, seconds_behind 0, age_of_oldest_lease 0, proxied_transfer disabled",
    ]


def test_delayed_messages_are_shown(two: Queued) -> None:
    """queue_guarantees.md §1.9: in the metrics and in the dump."""
    deliver_at_ns = 1_750_000_000_123_000_000
    two.files.manager.enqueue(0, two.positions[0], (1, 1), 1, None, 1, deliver_at_ns=deliver_at_ns)
    metrics = two.metrics("Q!json")
    shown = "20250615T150640.123000Z"
    assert (metrics["queue_depth"], metrics["delayed"], metrics["next_delivery"]) == ("0", "1", shown)
    two.get("administrator/diagnostics/dump")
    (text,) = two.admin.log.texts("31-0010")
    assert f"'Q!json': queue_depth 0, inactive 0, delayed 1, next_delivery {shown}, backlog 0, " in text


def test_waiting_messages_are_counted(start: Start) -> None:
    """queue_guarantees.md §3.10: for queues with an OrderingKey only, so that others are shown as before."""
    keyed = start(
        (configured("Q", ordering_key="/o"), QueueSettings("Q", has_ordering_key=True)),
        (configured("R"), QueueSettings("R")),
    )
    keyed.admin.core._answer = keyed.answers
    for number in (0, 1):
        for position in keyed.positions[:3]:
            keyed.files.manager.enqueue(number, position, (1, position), 1, None, 1, key_hash=5)
    q, r = keyed.rows("instance/queues")
    assert (q["waiting"], q["queue_depth"]) == ("2", "3")
    assert "waiting" not in r
    assert set(q) - set(r) == {"waiting"}
    details = json.loads(keyed.get("instance/queues/Q!json/details"))
    assert (details["waiting"], details["depth"]) == (2, 3)
    assert [message["deliverable"] for message in details["messages"]] == [1, 0, 0]
    assert "waiting" not in json.loads(keyed.get("instance/queues/R!json/details"))
    keyed.get("administrator/diagnostics/dump")
    (text,) = keyed.admin.log.texts("31-0010")
    assert "'Q!json': queue_depth 3, inactive 0, waiting 2, backlog 0, " in text
    assert "'R!json': queue_depth 3, inactive 0, backlog 0, " in text


def test_refused_transactions_are_counted(two: Queued) -> None:
    """queue_guarantees.md Q-60: only of queues that had a transaction, so that others are shown as before."""
    two.admin.core._answer = two.answers
    two.files.queue_statistics.count_refused_transaction(0, 0)
    two.files.queue_statistics.count_refused_transaction(1, 0)
    q, other = two.rows("instance/queues")
    added = {"transactions": "0", "transactions_lease_lost": "0", "transactions_refused": "2"}
    assert q.items() >= added.items()
    assert set(q) - set(other) == added.keys()
    details = json.loads(two.get("instance/queues/Q!json/details"))
    assert [details[name] for name in added] == [0, 0, 2]
    assert not added.keys() & json.loads(two.get("instance/queues/a%2Fb!json/details")).keys()
    two.get("administrator/diagnostics/dump")
    (text,) = two.admin.log.texts("31-0010")
    shown = (
        "deferred_acks 0, transactions 0, transactions_lease_lost 0, transactions_refused 2, seconds_behind 0"
    )
    assert shown in text
    assert text.count("transactions") == 3


def test_a_dump_is_bounded(two: Queued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_queues, "DUMP_BYTES_MAX", 300)
    two.get("administrator/diagnostics/dump")
    (text,) = two.admin.log.texts("31-0010")
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == ["'Q!json'", "and 1 more"]


def test_an_instance_without_queues() -> None:
    admin = AdminFixture()
    try:
        assert admin.get("/amps/instance/queues").status == 404
        assert admin.get("/amps/administrator/queues").status == 404
        assert admin.get("/amps/administrator/diagnostics/dump").status == 200
        assert admin.log.texts("31-0010") == ["queue diagnostics:\nthere are no queues"]
    finally:
        admin.close()


def test_ten_thousand_queues(start: Start) -> None:
    """All queues in one answer; a single queue without the others."""
    count = 10_000
    names = [f"Q{number}" for number in range(count)]
    queued = start(*[(configured(name), QueueSettings(name)) for name in names])
    for number in range(0, count, 100):
        queued.files.enter(number, queued.positions[number % MESSAGES])
    rows = queued.rows("instance/queues")
    assert len(rows) == count
    assert sum(int(row["queue_depth"]) for row in rows) == count // 100
    assert queued.metrics("Q9900!json") == rows[9900]
    queued.get("administrator/diagnostics/dump")
    (text,) = queued.admin.log.texts("31-0010")
    lines = text.splitlines()[1:]
    assert len(text) < 110_000
    assert lines[0].startswith("'Q0!json': queue_depth 1")
    assert lines[-1] == f"and {count - len(lines) + 1} more"
