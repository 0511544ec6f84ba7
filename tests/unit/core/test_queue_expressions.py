"""Filter, BarrierExpression and Priority of queues, evaluated when messages enter (queues.md §2, §3, §9.3, §12; D-12).

Most tests call the rules of one queue. The others feed a sequencer as a transport does, and rebuild the queues from its
journal.
"""

import json
import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from amps._core.expressions.machine import EvaluationContext, UserFunction
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.messages.json import JsonExtractor
from amps._core.queues.engine import COUNTERS_BYTES, QueueArena, arena_bytes
from amps._core.queues.manager import LogAdapter, QueueManager, QueueRules, RecordedTopic, rebuild
from amps._core.values.fields import FieldValues, MessageContext, searches_given_up
from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.config.queue_topics import QueueTopics
from amps.expressions import SHIPPED, ExpressionError, Functions, compile_expression
from amps.messages import make_message_types, standard_settings
from amps.server.core.queues import engine_settings, queue_rules
from amps.server.evaluation_contexts import EvaluationContexts
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts

TYPES = make_message_types(standard_settings().values())
PRIORITY_MAX = 2**64 - 1
BLOCKS = 16
FILE_BYTES = 1 << 20
DELIVERY = struct.Struct("<QQIIII")
SLOT_BARRIER = 4
NOT_ENTERED = None


class Log:
    """A log that keeps its records."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def log(self, event: str, **details: object) -> None:
        self.events.append((event, details))


def queue(name: str = "Q", **expressions: str) -> QueueConfig:
    """A queue over T."""
    return QueueConfig(
        name,
        "json",
        "Queue",
        "T",
        False,
        "T",
        max_per_subscription_backlog=100,
        **expressions,  # type: ignore[arg-type]
    )


def evaluations(log: Any = None, functions: Functions = SHIPPED) -> EvaluationContexts:
    return EvaluationContexts(TYPES, "instance", "group", log, functions=functions)


def rules(
    *, functions: Functions = SHIPPED, on: EvaluationContexts | None = None, **expressions: str
) -> QueueRules:
    made = queue_rules(queue(**expressions), on or evaluations(functions=functions), functions)
    assert made is not None
    return made


def judged(
    of: QueueRules, payload: bytes, topic: bytes = b"T", **parts: Any
) -> tuple[bool, int | None] | None:
    return of.judged(RecordParts(payload=payload, **parts).to_bytes(), topic)


def priority(of: QueueRules, payload: bytes) -> int | None:
    made = judged(of, payload)
    assert made is not None
    assert not made[0]
    return made[1]


# --- the three expressions ----------------------------------------------------------------------------------


def test_queue_rules_are_none_for_a_queue_without_expressions() -> None:
    assert queue_rules(queue(), evaluations(), SHIPPED) is None


@pytest.mark.parametrize(
    ("payload", "enters"),
    [(b'{"x":2}', True), (b'{"x":1}', False), (b'{"x":"3"}', True), (b"{}", False), (b'{"x":[0,2]}', True)],
)
def test_queue_filter(payload: bytes, enters: bool) -> None:
    """queues.md §3; §24, 17."""
    assert judged(rules(filter="/x > 1"), payload) == ((False, None) if enters else NOT_ENTERED)


@pytest.mark.parametrize(
    ("payload", "is_barrier"), [(b'{"bar":1}', True), (b'{"bar":null}', False), (b'{"foo":1}', False)]
)
def test_queue_barrier(payload: bytes, is_barrier: bool) -> None:
    """queues.md §12; §24, 58."""
    assert judged(rules(barrier_expression="/bar IS NOT NULL"), payload) == (is_barrier, None)


def test_queue_filter_and_barrier_apply_to_one_message() -> None:
    both = rules(filter="/x > 1", barrier_expression="/x = 3 AND /y = 1")
    assert judged(both, b'{"x":1,"y":1}') is NOT_ENTERED
    assert judged(both, b'{"x":2,"y":1}') == (False, None)
    assert judged(both, b'{"y":1,"x":3}') == (True, None)
    assert judged(both, b'{"x":1}') is NOT_ENTERED


def test_queue_filter_and_priority_apply_to_one_message() -> None:
    both = rules(filter="/x > 1", priority="/price * /qty + /x")
    assert judged(both, b'{"x":1,"price":2.5,"qty":2}') is NOT_ENTERED
    assert judged(both, b'{"x":2,"price":2.5,"qty":2}') == (False, 7)
    assert judged(both, b'{"x":3,"price":2.5}') == (False, None)
    assert judged(both, b'{"x":3,"price":1,"qty":1}') == (False, 4)


# --- priorities (D-12) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("5", 5),
        ("0", 0),
        ("-0.0", 0),
        ("1.999999", 1),
        ("0.999999", 0),
        ("-1", 0),
        ("-0.5", 0),
        ("-1e300", 0),
        ("9007199254740993", 9007199254740993),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63),
        ("18446744073709551615", PRIORITY_MAX),
        ("18446744073709551616", PRIORITY_MAX),
        ("1.8446744073709549e19", 2**64 - 2048),
        ("1.8446744073709552e19", PRIORITY_MAX),
        ("1e300", PRIORITY_MAX),
        ('"7"', 7),
        ('"7.9"', 7),
        ('"-7"', 0),
        ('"18446744073709551615"', PRIORITY_MAX),
        ("true", 1),
        ("false", 0),
        ("[3,9]", 3),
        ("null", None),
        ('"x"', None),
        ('"7x"', None),
        ('""', None),
        ("{}", None),
        ('{"q":1}', None),
        ("[]", None),
    ],
)
def test_queue_priority(value: str, expected: int | None) -> None:
    """queues.md §9.3, D-12; §24, 50."""
    assert priority(rules(priority="/p"), b'{"p":%s}' % value.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/missing", None),
        ("/missing * 2", None),
        ("/p / 0", None),
        ("'x' + 1", None),
        ("/p > 1", 1),
        ("/p - 10", 0),
        ("/p * 1e30", PRIORITY_MAX),
        ("/p * -1e30", 0),
        ("IF(/p > 3, 2.5, NULL)", 2),
        ("IF(/p < 3, 2.5, NULL)", None),
    ],
)
def test_queue_priority_of_an_expression(text: str, expected: int | None) -> None:
    """queues.md §9.3, D-12."""
    assert priority(rules(priority=text), b'{"p":4}') == expected


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(2**63 - 3, 2**63 + 3),
    st.integers(2**64 - 3, 2**64 + 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-2, 2),
    st.floats(2.0**62, 2.0**65),
)


@settings(max_examples=300, deadline=None)
@given(NUMBERS, st.booleans())
@example(2.0**64, False)
@example(float(2**64 - 2048), True)
def test_queue_priority_is_the_number_within_bounds(number: float, as_text: bool) -> None:
    """queues.md §9.3, D-12: the fraction is cut off, and a number out of range becomes the nearest in range."""
    written = json.dumps(json.dumps(number) if as_text else number)
    expected = min(max(int(Fraction(number)), 0), PRIORITY_MAX)
    assert priority(PRIORITY_OF_P, b'{"p":%s}' % written.encode()) == expected


PRIORITY_OF_P = rules(priority="/p")


# --- expressions that cannot be evaluated ---------------------------------------------------------------------

BROKEN = b'{"x":2,"p":'


def test_queue_rules_a_message_that_cannot_be_read() -> None:
    """With a filter it does not enter the queue.

    Otherwise it is no barrier and has no priority. Each case is counted.
    """
    log = Log()
    on = evaluations(log)
    assert judged(rules(on=on, filter="/p = 1"), BROKEN, b"T1", publisher_id=7, sequence=1) is NOT_ENTERED
    assert (
        judged(rules(on=on, filter="NOT (/p = 1)"), BROKEN, b"T1", publisher_id=7, sequence=2) is NOT_ENTERED
    )
    assert judged(rules(on=on, barrier_expression="/p IS NULL"), BROKEN, b"T1", publisher_id=7) == (
        False,
        None,
    )
    made = judged(rules(on=on, priority="IF(/p IS NULL, 5, 6)"), BROKEN, b"T2", publisher_id=7, sequence=9)
    assert made == (False, None)
    on.report()
    details = {"message_type": "json", "topic": "T2", "count": 4, "bookmark": "7|9|"}
    assert log.events == [("14-0003", details)]
    on.report()
    assert len(log.events) == 1


def test_queue_rules_each_expression_reads_its_own_fields() -> None:
    """The result of an expression does not depend on the presence of others."""
    assert judged(rules(filter="/x > 1"), BROKEN) == (False, None)
    assert judged(rules(filter="/x > 1", priority="/p"), BROKEN) == (False, None)
    assert judged(rules(filter="/x > 2", priority="/p"), BROKEN) is NOT_ENTERED
    assert judged(rules(filter="/p IS NULL", priority="/x"), BROKEN) is NOT_ENTERED
    assert judged(rules(filter="/x = 2", barrier_expression="/p IS NULL"), BROKEN) == (False, None)
    # The next message is evaluated as usual.
    both = rules(filter="/x > 1", priority="/p")
    assert judged(both, BROKEN) == (False, None)
    assert judged(both, b'{"x":2,"p":3}') == (False, 3)


def test_queue_rules_a_message_that_takes_too_much_memory() -> None:
    small = EvaluationContext(JsonExtractor(), FieldValues(1000), MessageContext(b"i", b"g"))

    def one(**texts: str) -> QueueRules:
        programs = [
            compile_expression(texts[name]).program if name in texts else None
            for name in ("filter", "barrier", "priority")
        ]
        return QueueRules(small, *programs, False)  # type: ignore[arg-type]

    message = b'{"a":"' + b"\\u0041" * 5000 + b'","b":1}'
    for texts in ({"filter": "LENGTH(/a) > 0"}, {"filter": "NOT (/a = 'x')"}):
        assert judged(one(**texts), message) is NOT_ENTERED
    assert judged(one(filter="/b = 1", barrier="LENGTH(/a) > 0"), message) == (False, None)
    assert judged(one(filter="/b = 1", priority="LENGTH(/a)"), message) == (False, None)
    assert small.exhausted == 4
    assert judged(one(filter="/b = 1", priority="LENGTH(/a)"), b'{"a":"\\u0041B","b":1}') == (False, 2)


def test_queue_rules_a_search_that_is_given_up_does_not_match() -> None:
    """This holds under NOT as well, and other expressions are not affected."""
    before = searches_given_up()
    for text in ("/a LIKE '(?R)'", "/a NOT LIKE '(?R)'", "NOT (/a LIKE '(?R)' AND /b = 1)"):
        assert judged(rules(filter=text), b'{"a":"x","b":1}') is NOT_ENTERED
    both = rules(filter="/b = 1", barrier_expression="/a NOT LIKE '(?R)'")
    assert judged(both, b'{"a":"x","b":1}') == (False, None)
    both = rules(filter="/b = 1", priority="IF(/a LIKE '(?R)', 1, 2)")
    assert judged(both, b'{"a":"x","b":1}') == (False, None)
    assert searches_given_up() == before + 5


DEEP = " OR ".join(
    "/a" + "".join(f"{'[0]' if at == level else ''}/a" for at in range(60)) + " = 1" for level in range(60)
)
"""At each level the value below is read twice: as the only element of an array and as itself."""


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ({"filter": f"NOT ({DEEP})"}, NOT_ENTERED),
        ({"filter": "/b = 1", "priority": f"IF({DEEP}, 5, 6)"}, NOT_ENTERED),
        ({"barrier_expression": f"NOT ({DEEP})"}, (False, None)),
        ({"priority": f"IF({DEEP}, 5, 6)"}, (False, None)),
    ],
)
def test_queue_rules_a_message_that_takes_too_long_to_read(
    expressions: dict[str, str], expected: tuple[bool, int | None] | None
) -> None:
    before = searches_given_up()
    message = b'{"b":1,"a":' + b'{"a":' * 60 + b'"' + b'\\"' * 10_000_000 + b'"' + b"}" * 61
    made = rules(**expressions)
    assert judged(made, message) == expected
    assert searches_given_up() == before + 1
    assert made.evaluation.unreadable == 0


def test_queue_rules_a_function_of_the_user_that_fails_gives_null() -> None:
    def fail(value: object) -> object:
        raise RuntimeError("no")

    own = UserFunction("BROKEN", fail, 1, 1)
    functions = Functions(own={"BROKEN": own})
    log = Log()
    on = evaluations(log, functions)
    assert judged(rules(functions=functions, on=on, filter="BROKEN(/x) = 1"), b'{"x":1}') is NOT_ENTERED
    assert judged(rules(functions=functions, on=on, filter="BROKEN(/x) IS NULL"), b'{"x":1}') == (False, None)
    assert judged(rules(functions=functions, on=on, priority="BROKEN(/x)"), b'{"x":1}') == (False, None)
    assert own.failures == 3
    on.report()
    ((event, details),) = log.events
    assert (event, details["function"], details["count"]) == ("14-0005", "BROKEN", 3)


# --- expressions that are allowed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "TOPIC_NAME() = 'T/1' AND /x = 1",
        "USER() = 'ann'",
        "CORRELATION_ID() = 'c-1'",
        "BOOKMARK() = '7|9|'",
        "MESSAGE_SIZE() = 7",
        "AMPS_INSTANCE_NAME() = 'instance'",
        "CLIENT_NAME() IS NULL",
        "LAST_UPDATED() IS NULL",
    ],
)
def test_queue_rules_facts_are_those_of_the_record(text: str) -> None:
    """The facts are the same when the log is read again."""
    parts = {"publisher_id": 7, "sequence": 9, "user_id": b"ann", "correlation_id": b"c-1"}
    assert judged(rules(filter=text), b'{"x":1}', b"T/1", **parts) == (False, None)
    assert judged(rules(filter=f"NOT ({text})"), b'{"x":1}', b"T/1", **parts) is NOT_ENTERED


def test_queue_rules_are_deterministic() -> None:
    for element in ("filter", "barrier_expression", "priority", "ordering_key"):
        with pytest.raises(ExpressionError):
            rules(**{element: "UNIX_TIMESTAMP()"})


def test_queue_rules_refuse_malformed_records() -> None:
    made = rules(filter="/x = 1")
    record = RecordParts(payload=b'{"x":1}').to_bytes()
    for data in (b"", record[:40], record[:-1]):
        with pytest.raises(ValueError, match="no record"):
            made.judged(data, b"T")


# --- through the adapter ---------------------------------------------------------------------------------------

QUEUES = (
    queue("Q0"),
    queue("Q1", filter="/x > 1"),
    queue("Q2", priority="/p"),
    queue("Q3", barrier_expression="/bar IS NOT NULL"),
    queue("Q4"),
)


def adapter_of(queues: Sequence[QueueConfig]) -> LogAdapter:
    on = evaluations()
    arena = QueueArena(numpy.zeros(arena_bytes(BLOCKS), "u1"), BLOCKS)
    counters = numpy.zeros(len(queues) * COUNTERS_BYTES, "u1")
    manager = QueueManager(arena, counters.data, [engine_settings(one) for one in queues], 1)
    names = [(one.name, one.message_type) for one in queues]
    return LogAdapter(manager, names, [queue_rules(one, on, SHIPPED) for one in queues])


class Instance:
    """A sequencer with queues."""

    def __init__(self, directory: Path, queues: Sequence[QueueConfig]) -> None:
        self.queues = queues
        self.topics = QueueTopics(ServerConfig("i", "i", queues=tuple(queues)))
        self.adapter = adapter_of(queues)
        self.feeder = Feeder(directory, FILE_BYTES, publishers=1, queues=(self.adapter, self.topics))
        self.sent = 0

    def publish(self, *payloads: bytes, topic: str = "T") -> None:
        for payload in payloads:
            self.sent += 1
            self.feeder.push(Feed(0, self.sent, topic, RecordParts(payload=payload)))
        self.feeder.turn(2000, 0)

    def restarted(self) -> LogAdapter:
        """The queues as rebuilt from the journal."""
        adapter = adapter_of(self.queues)

        def resolve(topic: str, message_type: str) -> RecordedTopic:
            numbers = self.topics.feeds(topic, message_type)
            return RecordedTopic(topic.encode(), [adapter.manager.queues[number] for number in numbers], -1)

        directory = LogDirectory(self.feeder.journal_storage.prefix, ".journal", resolve)
        assert rebuild(LogCursor(directory, 0, 0, True), adapter, self.feeder.journal.position, 1 << 30)
        return adapter


def positions(adapter: LogAdapter, number: int) -> list[int]:
    return [position for position, _ in adapter.manager.states(number)]


def delivered(adapter: LogAdapter, number: int) -> list[int]:
    """The log positions of messages delivered to a consumer, in order of delivery."""
    adapter.manager.subscribe(0, number, 1, {number: None}, 100)
    adapter.manager.serve(3000)
    taken = adapter.manager.output.take_deliveries(0, 1000)
    return [position for position, *_ in DELIVERY.iter_unpack(taken)]


def test_queue_log_adapter_enters_messages_by_the_rules(tmp_path: Path) -> None:
    """queues.md §24, 17 and 50; also after a restart."""
    instance = Instance(tmp_path, QUEUES)
    instance.publish(
        b'{"x":0,"p":1}',
        b'{"x":1,"p":5}',
        b'{"x":2,"p":3}',
        b'{"x":3,"p":null}',
        b'{"bar":1,"p":"x"}',
        b'{"x":7,"p":0}',
        b"not readable",
    )
    for adapter in (instance.adapter, instance.restarted()):
        all_of_them = positions(adapter, 0)
        m0, m1, m2, m3, bar, m5, unreadable = all_of_them
        assert positions(adapter, 1) == [m2, m3, m5]
        assert positions(adapter, 3) == positions(adapter, 4) == all_of_them
        assert dict(adapter.manager.states(3))[bar] == SLOT_BARRIER
        assert [at for at, state in adapter.manager.states(3) if state == SLOT_BARRIER] == [bar]
        assert [at for at, state in adapter.manager.states(4) if state == SLOT_BARRIER] == []
        assert delivered(adapter, 2) == [m1, m2, m0, m5, m3, bar, unreadable]
        assert delivered(adapter, 4) == all_of_them
        assert delivered(adapter, 3) == [m0, m1, m2, m3]


def test_queue_log_adapter_asks_for_the_topic(tmp_path: Path) -> None:
    over = QueueConfig(
        "Q", "json", "Queue", "^T", True, "T", filter="TOPIC_NAME() = 'T2'", max_per_subscription_backlog=9
    )
    instance = Instance(tmp_path, (over,))
    instance.publish(b"{}", topic="T1")
    instance.publish(b"{}", topic="T2")
    instance.publish(b"{}", topic="T3")
    assert len(positions(instance.adapter, 0)) == 1
    assert positions(instance.restarted(), 0) == positions(instance.adapter, 0)


def test_queue_log_adapter_has_rules_for_each_queue_or_for_none() -> None:
    manager = adapter_of(QUEUES).manager
    with pytest.raises(ValueError, match="each queue"):
        LogAdapter(manager, [("Q", "json"), ("R", "json")], [None])
    LogAdapter(manager, [("Q", "json"), ("R", "json")])
