"""The frames that a tailer makes of records, compared with the headers that follow from the records' parts."""

import json
import struct
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps._core.delivery.delivery import Group, JournalTailer, TopicRoutes
from amps._core.delivery.output import WANT_BOOKMARK, WANT_TIMESTAMP, OutputBuffer
from amps._core.expressions.machine import EvaluationContext
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.values.value import publisher_id
from amps._core.wire.topics import TopicTable
from tests.support.feed import Feed, Feeder
from tests.support.records import RecordParts

FILE_BYTES = 1 << 20
YEAR_2000_NS = 946_684_800_000_000_000
YEAR_2300_NS = 10_413_792_000_000_000_000

texts = st.text(st.characters(min_codepoint=32, codec="utf-8", exclude_characters='"\\'), max_size=6)


@dataclass(frozen=True)
class Published:
    """A message and the time at which it is sequenced."""

    now_ns: int
    publisher: int
    sequence_step: int
    payload_bytes: int
    correlation_id: str = ""
    user_id: str = ""


published = st.builds(
    Published,
    st.integers(YEAR_2000_NS, YEAR_2300_NS),
    st.integers(0, 3),
    st.one_of(st.integers(1, 200), st.integers(1, 2**60)),
    st.one_of(st.integers(0, 50), st.sampled_from([32_768, 32_769, 50_000])),
    texts,
    texts,
)


def moment(year: int, month: int, day: int, *rest: int) -> int:
    """The nanoseconds of a UTC time."""
    return (datetime(year, month, day, *rest, tzinfo=UTC) - datetime.fromtimestamp(0, UTC)) // timedelta(
        microseconds=1
    ) * 1000 + 789


# Times around the ends of months, leap years and centuries, within one second and across it.
EDGES = sorted(
    moment(year, month, day, *clock)
    for year in (2023, 2024, 2100)
    for month, day in ((1, 1), (1, 31), (2, 1), (2, 28), (2, 29), (3, 1), (9, 30), (12, 31))
    for clock in ((), (9, 5, 7, 1), (9, 5, 7, 2), (23, 59, 59, 999_999))
    if day != 29 or (year % 4 == 0 and year != 2100)
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@example([Published(now_ns, 0, 1, 1) for now_ns in sorted(EDGES)], WANT_TIMESTAMP)
@example([Published(YEAR_2000_NS, 0, step, 1) for step in (9, 1, 89, 1, 899, 1, 2**63)], WANT_BOOKMARK)
@given(st.lists(published, max_size=20), st.sampled_from([0, 1, 2, 3]))
def test_protocol_12_frames_have_the_recorded_fields(made: list[Published], flags: int) -> None:
    """protocol.md §12: topic, ids, bookmark, time, correlation id, user, length."""
    assert WANT_BOOKMARK | WANT_TIMESTAMP == 3
    made.sort(key=lambda each: each.now_ns)  # times in the log never decrease
    with tempfile.TemporaryDirectory() as directory:
        feeder = Feeder(Path(directory), FILE_BYTES)
        last = [0, 0, 0, 0]
        expected = []
        for each in made:
            last[each.publisher] += each.sequence_step
            publisher = publisher_id(f"p{each.publisher}")
            parts = RecordParts(
                payload=b"x" * each.payload_bytes,
                publisher_id=publisher,
                correlation_id=each.correlation_id.encode(),
                user_id=each.user_id.encode(),
            )
            feeder.push(Feed(each.publisher, last[each.publisher], "t", parts))
            feeder.turn(each.now_ns, 0)
            header = {"c": "p", "t": "t", "sids": "s"}
            if flags & WANT_BOOKMARK:
                header["bm"] = f"{publisher}|{last[each.publisher]}|"
            if flags & WANT_TIMESTAMP:
                seconds, nanoseconds = divmod(each.now_ns, 10**9)
                clock = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
                header["ts"] = f"{clock:%Y%m%dT%H%M%S}.{nanoseconds // 1000:06d}Z"
            header |= {"x": each.correlation_id} if each.correlation_id else {}
            header |= {"user_id": each.user_id} if each.user_id else {}
            expected.append(({**header, "l": each.payload_bytes}, parts.payload))

        topics = TopicTable(lambda topic, message_type: (True, False, None, None))
        log = LogDirectory(feeder.journal_storage.prefix, ".journal", topics.entry)
        output = OutputBuffer(lambda: None)
        evaluation = EvaluationContext(JsonExtractor(), FieldValues(), MessageContext())
        routes = TopicRoutes(topics.entry("t", "json"), evaluation)
        routes.add("s", "s", output, b"s", flags)
        tailer = JournalTailer(LogCursor(log, 0, 0, True), Group(lambda entry, since, current: routes), 0, 0)
        assert tailer.run(feeder.journal.position, 1 << 40)
        pending = output.pending_bytes
        stream = b"".join(output.take())
        assert len(stream) == pending
        assert frames_of(stream) == expected


def frames_of(stream: bytes) -> list[tuple[dict[str, object], bytes]]:
    """The header and payload of each frame."""
    frames = []
    while stream:
        (length,) = struct.unpack_from(">I", stream)
        frame, stream = stream[4 : 4 + length], stream[4 + length :]
        header, end = json.JSONDecoder().raw_decode(frame.decode())
        frames.append((header, frame[len(frame.decode()[:end].encode()) :]))
    return frames
