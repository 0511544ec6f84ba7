"""Routes of topics against a model that tries every subscription on every message, and the cost of changes."""

import functools
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

from amps._core.delivery.delivery import JournalTailer
from amps._core.delivery.output import OutputBuffer
from amps._core.expressions.machine import Filter
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldSet, FieldValues
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from amps.expressions.filters import compile_filter
from amps.messages import make_message_types, standard_settings
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.topics import topic_predicate
from amps.server.transport.options import Options
from amps.server.transport.session import Subscription
from amps.server.transport.subscriptions import SubscriptionSet
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts

FILE_BYTES = 1 << 20
NAMES = ["a", "b", "a/b", "ab", "x/1", "x/2", "forbidden/1"]
FILTERS: list[str | None] = [None, "/n = 1", "/n = 2", "/n IN (1, 2)", "/n > 1", "/n != 1 AND /n < 3"]
PAYLOADS = [b'{"n":0}', b'{"n":1}', b'{"n":2}', b"{}"]
TOPICS = [*NAMES, "^a", "b$", "x/.*", ".*", "^x/[12]$", "(a|b)", "forbidden/.*"]


@dataclass(eq=False)
class FakeConnection:
    """The fields of a connection that subscriptions and routes use."""

    message_type: str = "json"
    output: OutputBuffer = field(default_factory=lambda: OutputBuffer(lambda: None))

    def may(self, permission: str, topic: str) -> bool:
        return not topic.startswith("forbidden")

    def received(self) -> list[tuple[str, frozenset[str]]]:
        """The (topic, subscription ids) of each delivery since the last call."""
        data = b"".join(self.output.take())
        found = []
        while data:
            (length,) = struct.unpack_from(">I", data)
            header, _ = json.JSONDecoder().raw_decode(data[4 : 4 + length].decode())
            data = data[4 + length :]
            found.append((header["t"], frozenset(header["sids"].split(",") if "sids" in header else ())))
        return found


class Instance:
    """A log, a subscription set over it, and its tailer."""

    def __init__(self, directory: Path, combine: bool) -> None:
        self._feeder = Feeder(directory, FILE_BYTES, publishers=1)
        self._sequence = 0
        self.topics = TopicTable(lambda topic, message_type: (True, False, None, None))
        log: Any = None
        evaluations = EvaluationContexts(make_message_types(standard_settings().values()), "i", "g", log)
        self.members = SubscriptionSet(self.topics, evaluations, combine, live=True)
        journal = LogDirectory(self._feeder.journal_storage.prefix, ".journal", self.topics.entry)
        self._tailer = JournalTailer(LogCursor(journal, 0, 0, True), self.members.group, 0, 0)

    def publish(self, *topics: str, payload: bytes = b"{}") -> None:
        """Log messages and deliver them."""
        self.feed(*topics, payload=payload)
        assert self.turn(1 << 30)

    def feed(self, *topics: str, payload: bytes = b"{}") -> None:
        """Log messages."""
        for topic in topics:
            self._sequence += 1
            parts = RecordParts(payload=payload, publisher_id=publisher_id("p0"))
            self._feeder.push(Feed(0, self._sequence, topic, parts))
        self._feeder.turn(1000, 0)

    def turn(self, bytes_max: int) -> bool:
        """Run one turn of the tailer. Returns True if all messages were delivered."""
        return self._tailer.run(self._feeder.journal.position, bytes_max)


def subscription(
    connection: FakeConnection, sub_id: str, topic: str, filter_text: str | None = None, **options: Any
) -> Subscription:
    predicate = topic_predicate(topic, regex_allowed=True)
    owner: Any = connection
    made = Subscription(owner, sub_id, topic, predicate, Options(), **options)
    if filter_text is not None:
        made.filter = compiled(filter_text)
    return made


@functools.cache
def compiled(text: str) -> Filter:
    return compile_filter(text)


def accepts(filter_: Filter | None, payload: bytes) -> bool:
    """True if the filter by itself accepts the message."""
    if filter_ is None:
        return True
    fields, values = FieldSet(), FieldValues()
    program = filter_.program.bind(fields)
    return JsonExtractor().read(payload, fields, values) and program.matches(values)


class Routes(RuleBasedStateMachine):
    """Subscriptions are added, changed and removed between messages."""

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

    @rule(
        connection=st.integers(0, 2),
        topic=st.sampled_from(TOPICS),
        text=st.sampled_from(FILTERS),
        permitted=st.booleans(),
        send_ids=st.sampled_from([True, True, True, False]),
    )
    def subscribe(
        self, connection: int, topic: str, text: str | None, permitted: bool, send_ids: bool
    ) -> None:
        self.number += 1
        added = subscription(
            self.connections[connection],
            f"s{self.number}",
            topic,
            text,
            permitted=permitted,
            send_ids=send_ids,
        )
        self.subscriptions.append(added)
        self.instance.members.add(added)

    @rule(index=st.integers(0, 99))
    def unsubscribe(self, index: int) -> None:
        if self.subscriptions:
            self.instance.members.remove(self.subscriptions.pop(index % len(self.subscriptions)))

    @rule(index=st.integers(0, 99), topic=st.sampled_from(TOPICS), text=st.sampled_from(FILTERS))
    def replace(self, index: int, topic: str, text: str | None) -> None:
        if self.subscriptions:
            existing = self.subscriptions[index % len(self.subscriptions)]
            other = subscription(self.connections[0], existing.sub_id, topic, text)
            self.instance.members.remove(existing)
            existing.become(other)
            self.instance.members.add(existing)

    @rule(topics=st.lists(st.sampled_from(NAMES), max_size=8), payload=st.sampled_from(PAYLOADS))
    def publish(self, topics: list[str], payload: bytes) -> None:
        assert bool(self.instance.members) == bool(self.subscriptions)
        self.instance.publish(*topics, payload=payload)
        for connection in self.connections:
            expected: list[tuple[str, frozenset[str]]] = []
            for topic in topics:
                takers = [s for s in self.subscriptions if self.gets(s, connection, topic, payload)]
                if self.combine:
                    sub_ids = frozenset(taker.sub_id for taker in takers if taker.send_ids)
                    expected += [(topic, sub_ids)] if takers else []
                else:
                    expected += [(topic, frozenset([t.sub_id] if t.send_ids else [])) for t in takers]
            got = connection.received()
            assert [topic for topic, _ in got] == [topic for topic, _ in expected]
            assert sorted(got, key=shown) == sorted(expected, key=shown)

    @staticmethod
    def gets(entry: Subscription, connection: FakeConnection, topic: str, payload: bytes) -> bool:
        owner: Any = entry.connection
        if not accepts(entry.filter, payload):
            return False
        if owner is not connection or connection.message_type != "json" or not entry.permitted:
            return False
        if entry.predicate is None:
            return entry.topic == topic
        return entry.predicate(topic) and connection.may("read", topic)


def shown(delivered: tuple[str, frozenset[str]]) -> tuple[str, list[str]]:
    return delivered[0], sorted(delivered[1])


class SingleRoutes(Routes):
    """One message per subscription, as the durable tailer delivers it."""

    combine = False


SETTINGS = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestRoutes = Routes.TestCase
TestRoutes.settings = SETTINGS
TestSingleRoutes = SingleRoutes.TestCase
TestSingleRoutes.settings = SETTINGS


# The cost of changes


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path, combine=True)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the topics that a subscription was entered for, one entry each time."""
    worked_out: list[str] = []
    original = SubscriptionSet._enter

    def counting(self: SubscriptionSet, routes: Any, entry: Any, member: Any) -> None:
        worked_out.append(entry.name)
        original(self, routes, entry, member)

    monkeypatch.setattr(SubscriptionSet, "_enter", counting)
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
    assert sorted(tries) == sorted(f"t/{number}" for number in range(100))


def test_routes_an_expression_touches_matching_topics_only(instance: Instance, tries: list[str]) -> None:
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
    assert tries == ["t/7"]


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
    """Many new topics fit into few bytes of the log, but each one takes time."""
    instance.members.add(subscription(FakeConnection(), "all", ".*"))
    instance.feed(*(f"t/{number}" for number in range(600)))
    most = 0
    while not instance.turn(1 << 20):
        assert tries
        most = max(most, len(tries))
        tries.clear()
    assert 0 < most <= 300


# Output at the reader's pace


def test_output_buffer_counts_bytes_behind_the_last_paced_message(tmp_path: Path) -> None:
    """operations.md §2.1 4"""
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=False)
    instance.members.add(subscription(connection, "s", "t"))
    connection.output.append(b"12345")
    assert connection.output.unpaced_bytes == 5
    instance.publish("t")
    assert connection.output.unpaced_bytes == 0
    connection.output.append(b"123")
    connection.output.take()
    connection.output.append(b"4567")
    assert connection.output.unpaced_bytes == 7
    instance.publish("t")
    assert connection.output.unpaced_bytes == 0


def test_output_buffer_counts_live_messages(tmp_path: Path) -> None:
    """operations.md §2.1 1"""
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=True)
    instance.members.add(subscription(connection, "s", "t"))
    instance.publish("t", "t")
    assert connection.output.unpaced_bytes == connection.output.pending_bytes > 0


def test_output_buffer_collects_nothing_after_its_end(tmp_path: Path) -> None:
    connection = FakeConnection()
    instance = Instance(tmp_path, combine=True)
    instance.members.add(subscription(connection, "s", "t"))
    instance.publish("t")
    connection.output.close()
    instance.publish("t")
    connection.output.append(b"x")
    assert connection.output.take() == []


def test_routes_subscriptions_with_and_without_a_filter_share_a_frame(instance: Instance) -> None:
    """protocol.md §4: one message per connection; subscriptions whose filter does not match are not named."""
    connection = FakeConnection()
    instance.members.add(subscription(connection, "all", "a"))
    instance.members.add(subscription(connection, "one", "a", "/n = 1"))
    instance.members.add(subscription(connection, "pattern", "^a$", "/n > 1"))
    instance.publish("a", payload=b'{"n":1}')
    instance.publish("a", payload=b'{"n":0}')
    instance.publish("a", payload=b'{"n":2}')
    assert [ids for _, ids in connection.received()] == [{"all", "one"}, {"all"}, {"all", "pattern"}]
