"""Routes of topics against a model that tries every subscription on every message, and what a change costs."""

import json
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from amps._core.delivery import JournalTailer, Outlet
from amps._core.identity import publisher_id
from amps._core.log_reader import LogCursor, LogDirectory
from amps._core.topic_table import TopicTable
from amps.server.topics import topic_predicate
from amps.server.transport.options import Options
from amps.server.transport.subscriptions import Subscription, SubscriptionSet
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts

FILE_BYTES = 1 << 20
NAMES = ["a", "b", "a/b", "ab", "x/1", "x/2", "forbidden/1"]
TOPICS = [*NAMES, "^a", "b$", "x/.*", ".*", "^x/[12]$", "(a|b)", "forbidden/.*"]


@dataclass(eq=False)
class FakeConnection:
    """What subscriptions and routes know of a connection."""

    message_type: str = "json"
    outlet: Outlet = field(default_factory=lambda: Outlet(lambda: None))

    def may(self, permission: str, topic: str) -> bool:
        return not topic.startswith("forbidden")

    def received(self) -> list[tuple[str, frozenset[str]]]:
        """(topic, subscription ids) of what was delivered since the last call."""
        data = b"".join(self.outlet.take())
        found = []
        while data:
            (length,) = struct.unpack_from(">I", data)
            header = json.loads(data[4 : 3 + length])  # the payload is one byte
            data = data[4 + length :]
            found.append((header["t"], frozenset(header["sids"].split(","))))
        return found


class Instance:
    """A log, a subscription set over it, and the tailer that serves it."""

    def __init__(self, directory: Path, combine: bool) -> None:
        self._feeder = Feeder(directory, FILE_BYTES, publishers=1)
        self._sequence = 0
        self.topics = TopicTable(lambda topic, message_type: (True, False, None))
        self.members = SubscriptionSet(self.topics, combine)
        log = LogDirectory(self._feeder.journal_storage.prefix, ".journal", self.topics.entry)
        self._tailer = JournalTailer(LogCursor(log, 0, 0, True), self.members.group, 0, 0)

    def publish(self, *topics: str) -> None:
        """Log messages and deliver them."""
        self.feed(*topics)
        assert self.turn(1 << 30)

    def feed(self, *topics: str) -> None:
        """Log messages."""
        for topic in topics:
            self._sequence += 1
            parts = RecordParts(payload=b"x", publisher_id=publisher_id("p0"))
            self._feeder.push(Feed(0, self._sequence, topic, parts))
        self._feeder.turn(1000, 0)

    def turn(self, bytes_max: int) -> bool:
        """One turn of the tailer. True: everything was delivered."""
        return self._tailer.run(self._feeder.journal.position, bytes_max)


def subscription(connection: FakeConnection, sub_id: str, topic: str, **options: Any) -> Subscription:
    predicate = topic_predicate(topic, regex_allowed=True)
    owner: Any = connection
    return Subscription(owner, sub_id, topic, predicate, Options(), **options)


class Routes(RuleBasedStateMachine):
    """Subscriptions come, change and go between messages."""

    combine = True

    def __init__(self) -> None:
        super().__init__()
        self._directory = tempfile.TemporaryDirectory()
        self.instance = Instance(Path(self._directory.name), self.combine)
        self.connections = [FakeConnection(), FakeConnection(), FakeConnection(message_type="fix")]
        self.subscriptions: list[Subscription] = []
        self.number = 0

    def teardown(self) -> None:
        self._directory.cleanup()

    @rule(connection=st.integers(0, 2), topic=st.sampled_from(TOPICS), permitted=st.booleans())
    def subscribe(self, connection: int, topic: str, permitted: bool) -> None:
        self.number += 1
        added = subscription(self.connections[connection], f"s{self.number}", topic, permitted=permitted)
        self.subscriptions.append(added)
        self.instance.members.add(added)

    @rule(index=st.integers(0, 99))
    def unsubscribe(self, index: int) -> None:
        if self.subscriptions:
            self.instance.members.remove(self.subscriptions.pop(index % len(self.subscriptions)))

    @rule(index=st.integers(0, 99), topic=st.sampled_from(TOPICS))
    def replace(self, index: int, topic: str) -> None:
        if self.subscriptions:
            existing = self.subscriptions[index % len(self.subscriptions)]
            other = subscription(self.connections[0], existing.sub_id, topic)
            self.instance.members.remove(existing)
            existing.become(other)
            self.instance.members.add(existing)

    @rule(topics=st.lists(st.sampled_from(NAMES), max_size=8))
    def publish(self, topics: list[str]) -> None:
        assert bool(self.instance.members) == bool(self.subscriptions)
        self.instance.publish(*topics)
        for connection in self.connections:
            expected = []
            for topic in topics:
                sub_ids = [s.sub_id for s in self.subscriptions if self.gets(s, connection, topic)]
                if self.combine:
                    expected += [(topic, frozenset(sub_ids))] if sub_ids else []
                else:
                    expected += [(topic, frozenset([sub_id])) for sub_id in sub_ids]
            got = connection.received()
            assert [topic for topic, _ in got] == [topic for topic, _ in expected]
            assert sorted(got, key=str) == sorted(expected, key=str)

    @staticmethod
    def gets(entry: Subscription, connection: FakeConnection, topic: str) -> bool:
        owner: Any = entry.connection
        if owner is not connection or connection.message_type != "json" or not entry.permitted:
            return False
        if entry.predicate is None:
            return entry.topic == topic
        return entry.predicate(topic) and connection.may("read", topic)


class SingleRoutes(Routes):
    """One message per subscription, as the durable tailer has it."""

    combine = False


SETTINGS = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRoutes = Routes.TestCase
TestRoutes.settings = SETTINGS
TestSingleRoutes = SingleRoutes.TestCase
TestSingleRoutes.settings = SETTINGS


# What a change costs


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path, combine=True)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the topics whose routes were worked out."""
    worked_out: list[str] = []
    original = SubscriptionSet._routes

    def counting(self: SubscriptionSet, entry: Any, matching: list[Subscription]) -> Any:
        worked_out.append(entry.name)
        return original(self, entry, matching)

    monkeypatch.setattr(SubscriptionSet, "_routes", counting)
    return worked_out


def test_routes_a_literal_subscription_touches_its_topic_only(instance: Instance, tries: list[str]) -> None:
    connection = FakeConnection()
    names = [f"t/{number}" for number in range(500)]
    instance.members.add(subscription(connection, "all", ".*"))
    instance.publish(*names)
    tries.clear()
    for number in range(100):
        one = subscription(connection, "one", f"t/{number}")
        instance.members.add(one)
        instance.publish(*names)
        instance.members.remove(one)
    instance.publish(*names)
    assert sorted(tries) == sorted(2 * [f"t/{number}" for number in range(100)])


def test_routes_an_expression_touches_what_it_matches_only(instance: Instance, tries: list[str]) -> None:
    connection = FakeConnection()
    names = [f"t/{number}" for number in range(500)]
    instance.members.add(subscription(connection, "all", ".*"))
    instance.publish(*names)
    tries.clear()
    one = subscription(connection, "one", "^t/7$")
    instance.members.add(one)
    instance.publish(*names)
    instance.members.remove(one)
    instance.publish(*names)
    assert tries == ["t/7", "t/7"]


def test_routes_an_expression_is_tried_once_per_topic(instance: Instance) -> None:
    connection = FakeConnection()
    count = 0

    def matches(name: str) -> bool:
        nonlocal count
        count += 1
        return True

    names = [f"t/{number}" for number in range(50)]
    first = subscription(connection, "first", "[t]")
    first.predicate = matches
    instance.members.add(first)
    for number in range(20):
        instance.publish(*names)
        instance.members.add(subscription(connection, f"e{number}", f"^t/{number}$"))
        instance.publish(*names)
        instance.members.add(subscription(connection, f"l{number}", f"t/{number}"))
    assert count == len(names)


def test_routes_new_topics_count_against_the_turn(instance: Instance, tries: list[str]) -> None:
    """Thousands of new topics fit into little log, and each takes its time."""
    instance.members.add(subscription(FakeConnection(), "all", ".*"))
    instance.feed(*(f"t/{number}" for number in range(600)))
    most = 0
    while not instance.turn(1 << 20):
        assert tries
        most = max(most, len(tries))
        tries.clear()
    assert 0 < most <= 300


# Output that came at the reader's pace


def test_outlet_counts_what_came_after_the_last_paced_message(tmp_path: Path) -> None:
    """operations.md §2.1 4"""
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=False)
    instance.members.add(subscription(connection, "s", "t"))
    connection.outlet.append(b"12345")
    assert connection.outlet.unpaced_bytes == 5
    instance.publish("t")
    assert connection.outlet.unpaced_bytes == 0
    connection.outlet.append(b"123")
    connection.outlet.take()
    connection.outlet.append(b"4567")
    assert connection.outlet.unpaced_bytes == 7
    instance.publish("t")
    assert connection.outlet.unpaced_bytes == 0


def test_outlet_counts_live_messages(tmp_path: Path) -> None:
    """operations.md §2.1 1"""
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=True)
    instance.members.add(subscription(connection, "s", "t"))
    instance.publish("t", "t")
    assert connection.outlet.unpaced_bytes == connection.outlet.pending_bytes > 0


def test_outlet_collects_nothing_after_its_end(tmp_path: Path) -> None:
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=True)
    instance.members.add(subscription(connection, "s", "t"))
    instance.publish("t")
    connection.outlet.close()
    instance.publish("t")
    connection.outlet.append(b"x")
    assert connection.outlet.take() == []
