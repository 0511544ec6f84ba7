"""Replays with bounds, pace and conflation, against plain models (transaction_log.md §5.3, §8, §11)."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps._core.delivery.delivery import (
    AUTO_INTERVAL_MAX_S,
    AUTO_INTERVAL_MIN_S,
    PACE_BYTES,
    PACE_MESSAGES,
    PACE_SPEED,
    REPLAY_DUE_LATER,
    REPLAY_ENDED,
    REPLAY_REACHED,
    REPLAY_UNFINISHED,
    Conflation,
    Group,
    Pace,
    ReplayBounds,
    ReplayTailer,
    TopicRoutes,
)
from amps._core.delivery.output import WANT_BOOKMARK, WANT_TIMESTAMP, OutputBuffer
from amps._core.expressions.machine import EvaluationContext
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.values.value import publisher_id
from amps._core.wire.persisted import Destinations
from amps._core.wire.topics import TopicTable
from amps.expressions.filters import compile_filter
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts
from tests.unit.core.test_delivered_frames import frames_of

START_US = 1_700_000_000_000_000
FILE_BYTES = 1 << 16
MANY = 1 << 40
PUBLISHERS = 3
SLOW_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@dataclass(frozen=True)
class Message:
    """One message of the log of a test, with the fields of its delivery."""

    time_us: int
    publisher: int
    sequence: int
    key: int
    position: int = 0

    @property
    def payload(self) -> bytes:
        return b'{"k":%d,"n":%d}' % (self.key, self.sequence)

    @property
    def bookmark(self) -> str:
        return f"{publisher_id(f'p{self.publisher}')}|{self.sequence}|"

    @property
    def point(self) -> tuple[int, int]:
        return publisher_id(f"p{self.publisher}"), self.sequence


class Log:
    """A journal with these messages, and replays of it."""

    def __init__(self, directory: Path, messages: list[Message]) -> None:
        feeder = Feeder(directory, FILE_BYTES, PUBLISHERS)
        for message in messages:
            parts = RecordParts(payload=message.payload, publisher_id=message.point[0])
            feeder.push(Feed(message.publisher, message.sequence, "t", parts))
            feeder.turn(message.time_us * 1000, 0)
        self.end: int = feeder.journal.position
        self._topics = TopicTable(lambda topic, message_type: (True, False, None, None))
        self._directory = LogDirectory(feeder.journal_storage.prefix, ".journal", self._topics.entry)
        self.evaluation = EvaluationContext(JsonExtractor(), FieldValues(), MessageContext())
        cursor = LogCursor(self._directory, 0, 0, True)
        positions = []
        while (record := cursor.step(self.end)) is not None:
            positions.append(record.position)
        self.messages = [
            replace(message, position=position) for message, position in zip(messages, positions, strict=True)
        ]

    def replay(
        self,
        bounds: ReplayBounds | None = None,
        pace: Pace | None = None,
        conflation: Conflation | None = None,
        messages_max: int | None = None,
        filter_text: str | None = None,
        destinations: Destinations | None = None,
        held_from: int | None = None,
    ) -> tuple[ReplayTailer, OutputBuffer]:
        output = OutputBuffer(lambda: None)
        routes = TopicRoutes(self._topics.entry("t", "json"), self.evaluation)
        filter_ = None if filter_text is None else compile_filter(filter_text)
        routes.add("s", "s", output, b"s", WANT_BOOKMARK | WANT_TIMESTAMP, filter_)
        group = Group(lambda entry, since, current: routes)
        cursor = LogCursor(self._directory, 0, 0, True)
        tailer = ReplayTailer(
            cursor, group, 0, 0, bounds, pace, conflation, messages_max, destinations, held_from
        )
        return tailer, output


@contextmanager
def log_of(messages: list[Message]) -> Iterator[Log]:
    with tempfile.TemporaryDirectory() as directory:
        yield Log(Path(directory), messages)


def delivered(output: OutputBuffer) -> list[tuple[str, str, bytes]]:
    """The (bookmark, time, payload) of each delivered message."""
    return [
        (str(header["bm"]), str(header["ts"]), payload)
        for header, payload in frames_of(b"".join(output.take()))
    ]


def bookmarks(output: OutputBuffer) -> list[str]:
    return [bookmark for bookmark, _, _ in delivered(output)]


@st.composite
def logs(draw: st.DrawFn, size_max: int = 30) -> list[Message]:
    steps = draw(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3)), max_size=size_max)
    )
    last = [0] * PUBLISHERS
    time_us = START_US
    messages = []
    for step, publisher, key in steps:
        time_us += step
        last[publisher] += 1
        messages.append(Message(time_us, publisher, last[publisher], key))
    return messages


# Bounds


@SLOW_FIXTURES
@given(logs(), st.data())
def test_bounds_of_any_kind(messages: list[Message], data: st.DataObject) -> None:
    """transaction_log.md §5.3, §20 9 and 12: the latest end counts, of messages known or awaited and of moments."""
    with log_of(messages) as log:
        last_us = messages[-1].time_us if messages else START_US
        inclusive = data.draw(st.booleans())
        begin_us = data.draw(st.one_of(st.just(0), st.integers(START_US, last_us + 2)))
        picks = st.lists(st.sampled_from(log.messages), max_size=3) if log.messages else st.just([])
        known, awaited = data.draw(picks), data.draw(picks)
        absent = data.draw(st.sampled_from([[], [(5, 5)]]))
        time_us = data.draw(st.one_of(st.just(0), st.integers(START_US, last_us + 2)))
        end_position = max((m.position + inclusive for m in known), default=0)
        end_us = 0 if not time_us else time_us if inclusive else time_us - 1
        points = [m.point for m in awaited] + absent
        bounds = ReplayBounds(begin_us, (inclusive, end_position, end_us, points))
        tailer, output = log.replay(bounds)
        chunk = data.draw(st.sampled_from([1, 200, MANY]))
        state = REPLAY_UNFINISHED
        while state == REPLAY_UNFINISHED:
            state = tailer.run_on_terms(log.end, chunk if chunk > 1 else MANY, output, MANY, 1, 1)

        def belongs(message: Message) -> bool:
            """True if at least one end is not passed at this message."""
            ends = [*known, *awaited]
            beyond = [
                message.position > end.position if inclusive else message.position >= end.position
                for end in ends
            ]
            return bool(absent) or message.time_us <= end_us or not all(beyond)

        within = []
        for message in log.messages:
            if not belongs(message):
                break
            if message.time_us >= begin_us:
                within.append(message)
        assert bookmarks(output) == [message.bookmark for message in within]
        assert (state == REPLAY_ENDED) == (not all(map(belongs, log.messages)))
        assert bounds.begun == (begin_us == 0 or bool(within))
        if state == REPLAY_REACHED:
            # No records are left. More can follow until the time of an end has passed, or its message has arrived.
            assert bounds.is_over(tailer.position, 1 << 62) == (not bounds.awaited_count)
            if end_us:
                assert not bounds.is_over(tailer.position, end_us - 1)


def test_bounds_the_end_of_a_moment_is_of_a_microsecond() -> None:
    """transaction_log.md §20 9: `]` takes the messages of that microsecond, `)` none of them."""
    messages = [Message(START_US + n // 2, 0, n + 1, 0) for n in range(6)]
    with log_of(messages) as log:
        for end_us, expected in ((START_US + 1, 4), (START_US, 2)):
            tailer, output = log.replay(ReplayBounds(0, (True, 0, end_us, [])))
            assert tailer.run_on_terms(log.end, MANY, output, MANY, 1, 1) == REPLAY_ENDED
            assert len(bookmarks(output)) == expected


def test_bounds_checked_again_give_the_same_result() -> None:
    """A replay that must wait checks the same record again."""
    message = Message(START_US, 0, 1, 0)
    later = Message(START_US, 0, 2, 0)
    with log_of([message, later]) as log:
        bounds = ReplayBounds(0, (False, 0, 0, [later.point]))
        tailer, output = log.replay(bounds, Pace(PACE_MESSAGES, 1.0))
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 1, 1) == REPLAY_ENDED
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 2, 2) == REPLAY_ENDED
        assert bookmarks(output) == [message.bookmark]
        assert (tailer.last_publisher_id, tailer.last_sequence) == message.point


# Numbers of messages


@SLOW_FIXTURES
@given(logs(), st.integers(1, 10), st.sampled_from([None, "/k = 1"]))
def test_a_number_of_messages_counts_matching_ones(
    messages: list[Message], count: int, filter_text: str | None
) -> None:
    """transaction_log.md §20 38"""
    with log_of(messages) as log:
        tailer, output = log.replay(messages_max=count, filter_text=filter_text)
        state = tailer.run_on_terms(log.end, MANY, output, MANY, 1, 1)
        matching = [m.bookmark for m in log.messages if filter_text is None or m.key == 1]
        assert bookmarks(output) == matching[:count]
        assert (state == REPLAY_ENDED) == (len(matching) >= count)


# Pace


def run_in_time(
    log: Log, tailer: ReplayTailer, output: OutputBuffer, tick_ns: int
) -> tuple[list[tuple[int, str]], int]:
    """The (time, bookmark) of each delivery, and the time of the end, with turns at intervals of at least `tick_ns`."""
    now_ns = 10**9
    went = []
    while True:
        state = tailer.run_on_terms(log.end, MANY, output, MANY, now_ns, 1)
        went += [(now_ns - 10**9, bookmark) for bookmark in bookmarks(output)]
        if state != REPLAY_DUE_LATER:
            assert state == REPLAY_REACHED
            return went, now_ns - 10**9
        assert tailer.pace is not None
        assert tailer.pace.due_ns > now_ns
        now_ns = max(tailer.pace.due_ns, now_ns + tick_ns)


@SLOW_FIXTURES
@given(
    st.lists(st.integers(0, 3_000_000), min_size=1, max_size=30),
    st.sampled_from([0.25, 1.0, 3.0, 1000.0]),
    st.sampled_from([0, 1, 500_000_000]),
    st.sampled_from([1, 1_000_000, 20_000_000]),
)
def test_pace_a_multiple_keeps_the_timetable(
    gaps_us: list[int], factor: float, gap_max_ns: int, tick_ns: int
) -> None:
    """transaction_log.md §8: deliveries are never early, and late by at most a turn."""
    messages = []
    time_us = START_US
    for number, gap_us in enumerate(gaps_us, start=1):
        time_us += gap_us
        messages.append(Message(time_us, 0, number, 0))
    with log_of(messages) as log:
        tailer, output = log.replay(pace=Pace(PACE_SPEED, factor, gap_max_ns))
        went, _ = run_in_time(log, tailer, output, tick_ns)
        assert [bookmark for _, bookmark in went] == [message.bookmark for message in messages]
        due_ns = 0.0
        for (when_ns, _), gap_us in zip(went, [0, *gaps_us[1:]], strict=True):
            wait_ns = gap_us * 1000 / factor
            due_ns += min(wait_ns, gap_max_ns) if gap_max_ns else wait_ns
            assert due_ns - 2 * len(gaps_us) <= when_ns <= due_ns + tick_ns + 2 * len(gaps_us)


def test_pace_a_missed_timetable_is_moved() -> None:
    """The replay does not catch up, since the rate is a ceiling."""
    messages = [Message(START_US + 1_000_000 * n, 0, n + 1, 0) for n in range(20)]
    with log_of(messages) as log:
        pace = Pace(PACE_SPEED, 1.0)
        tailer, output = log.replay(pace=pace)
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 10**9, 1) == REPLAY_DUE_LATER
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 12 * 10**9, 1) == REPLAY_DUE_LATER
        assert len(bookmarks(output)) == 2
        assert 12 * 10**9 + 700_000_000 <= pace.due_ns <= 13 * 10**9
        pace.begin()
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 50 * 10**9, 1) == REPLAY_DUE_LATER
        assert len(bookmarks(output)) == 1


@SLOW_FIXTURES
@given(
    st.sampled_from([PACE_MESSAGES, PACE_BYTES]),
    st.sampled_from([0.5, 3.0, 100.0, 5000.0]),
    st.sampled_from([1, 1_000_000, 30_000_000]),
)
def test_pace_never_above_the_ceiling(kind: int, rate: float, tick_ns: int) -> None:
    """transaction_log.md §8: over any stretch of time, apart from one allowance; near the ceiling in the long run."""
    count = 200
    messages = [Message(START_US, 0, n + 1, n) for n in range(count)]
    with log_of(messages) as log:
        tailer, output = log.replay(pace=Pace(kind, rate))
        went, took_ns = run_in_time(log, tailer, output, tick_ns)
        assert len(went) == count
        sizes = [1 if kind == PACE_MESSAGES else len(message.payload) for message in messages]
        slack = max(1.0, rate * 0.02) + max(sizes)
        for first in range(0, count, 17):
            for last in range(first + 1, count, 13):
                elapsed_s = (went[last][0] - went[first][0]) / 1e9
                assert sum(sizes[first + 1 : last + 1]) <= elapsed_s * rate + slack + 1e-6
        if tick_ns < 20_000_000:
            assert took_ns / 1e9 <= sum(sizes) / rate * 1.01 + tick_ns / 1e9


def test_pace_a_rate_is_above_zero() -> None:
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="above zero"):
            Pace(PACE_MESSAGES, rate)


# Conflation


def conflated(messages: list[Message], interval_us: int) -> list[tuple[Message, Message]]:
    """The model: (first, newest) of every interval, in the order in which the intervals end."""
    held: dict[int, tuple[Message, Message]] = {}
    done = []
    for message in messages:
        for key, (first, newest) in list(held.items()):
            if message.time_us >= first.time_us + interval_us:
                done.append((first, newest))
                del held[key]
        first = held[message.key][0] if message.key in held else message
        held[message.key] = first, message
    return done + list(held.values())


@SLOW_FIXTURES
@given(logs(60), st.integers(1, 12), st.sampled_from([60, 200, MANY]), st.sampled_from([60, MANY]))
def test_conflation_follows_the_time_of_the_messages(
    messages: list[Message], interval_us: int, log_bytes: int, output_bytes: int
) -> None:
    """transaction_log.md §11, §22 43 and 44: a key's newest message in place of its first, with turns of any length."""
    with log_of(messages) as log:
        conflation = Conflation(log.evaluation, [(b"k",)], interval_us / 1e6)
        tailer, output = log.replay(conflation=conflation)
        got: list[tuple[str, str, bytes]] = []
        state = REPLAY_UNFINISHED
        while state == REPLAY_UNFINISHED:
            state = tailer.run_on_terms(log.end, max(log_bytes, 160), output, output_bytes, 1, 1 << 62)
            got += delivered(output)
            # A client that resumes at this bookmark gets every message that is not delivered yet.
            safe = tailer.safe_bookmark
            place = next((n + 1 for n, m in enumerate(log.messages) if m.point == safe), 0)
            payloads = [m.payload for m in log.messages[place:]]
            missing = {newest.payload for first, newest in conflated(log.messages, interval_us)} - {
                payload for _, _, payload in got
            }
            assert missing <= set(payloads)
        expected = conflated(log.messages, interval_us)
        assert state == REPLAY_REACHED
        assert [(bookmark, time[-8:], payload) for bookmark, time, payload in got] == [
            (first.bookmark, f".{first.time_us % 1_000_000:06d}Z"[-8:], newest.payload)
            for first, newest in expected
        ]
        assert len(conflation) == 0
        assert conflation.held_bytes == 0


def test_conflation_at_the_end_of_the_log_uses_the_clock() -> None:
    """transaction_log.md §11: after the replay, intervals are in real time."""
    messages = [Message(START_US, 0, 1, 7), Message(START_US + 10, 0, 2, 7)]
    with log_of(messages) as log:
        conflation = Conflation(log.evaluation, [(b"k",)], 1.0)
        tailer, output = log.replay(conflation=conflation)
        before_ns = START_US * 1000 + 999_999_999
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 1, before_ns) == REPLAY_REACHED
        assert not output.pending_bytes
        assert conflation.due_ns == before_ns + 1
        assert tailer.safe_bookmark == (0, 0)
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 1, before_ns + 1) == REPLAY_REACHED
        assert bookmarks(output) == [messages[0].bookmark]
        assert tailer.safe_bookmark == messages[1].point


def test_conflation_counts_and_keeps_to_a_pace() -> None:
    """Held messages are delivered at the same pace. An end delivers them early, a change of terms at once."""
    messages = [Message(START_US + n, 0, n + 1, n % 5) for n in range(50)]
    with log_of(messages) as log:
        pace = Pace(PACE_MESSAGES, 10.0)
        conflation = Conflation(log.evaluation, [(b"k",)], 3600.0)
        tailer, output = log.replay(ReplayBounds(0, (True, 1 << 62, 0, [])), pace, conflation, messages_max=4)
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 10**9, 1) == REPLAY_REACHED
        assert len(conflation) == 5
        assert tailer.flush(output, MANY, 10**9) == REPLAY_DUE_LATER
        assert tailer.flush(output, MANY, pace.due_ns) == REPLAY_DUE_LATER
        assert len(bookmarks(output)) == 2
        tailer.release_all(output)
        assert [json.loads(payload)["n"] for _, _, payload in delivered(output)] == [48, 49]
        assert tailer.messages_left == 0


def test_conflation_is_bounded() -> None:
    """Beyond the limit the oldest messages are delivered early; none are lost."""
    messages = [Message(START_US, 0, n + 1, n) for n in range(400)]
    with log_of(messages) as log:
        conflation = Conflation(log.evaluation, [(b"k",)], 3600.0, held_bytes_max=50_000)
        tailer, output = log.replay(conflation=conflation)
        assert tailer.run_on_terms(log.end, MANY, output, MANY, 1, 1) == REPLAY_REACHED
        assert 0 < len(conflation) < 400
        assert conflation.held_bytes <= 50_000
        assert len(bookmarks(output)) == 400 - len(conflation)


def test_conflation_that_adapts() -> None:
    """sow.md §24 13: from 50 ms to 5 s, depending on whether the client keeps up."""
    with log_of([]) as log:
        conflation = Conflation(log.evaluation, [(b"k",)], None)
        assert conflation.adapts
        for behind, bound_s in ((True, AUTO_INTERVAL_MAX_S), (False, AUTO_INTERVAL_MIN_S)):
            for _ in range(100):
                conflation.adapt(behind)
            assert conflation.interval_ns == round(bound_s * 1e9)
        fixed = Conflation(log.evaluation, [(b"k",)], 1.0)
        fixed.adapt(True)
        assert fixed.interval_ns == 10**9
