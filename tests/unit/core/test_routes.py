"""The frames of one topic that each receiver gets, compared with each member by itself."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps._core.delivery.delivery import Group, JournalTailer, TopicRoutes
from amps._core.delivery.output import OutputBuffer
from amps._core.expressions.machine import EvaluationContext
from amps._core.journal.reader import LogCursor, LogDamaged, LogDirectory
from amps._core.messages.json import JsonExtractor
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.wire.topics import TopicTable
from amps.expressions.filters import compile_filter
from tests.support.feed import Feed, Feeder
from tests.support.records import HEADER_BYTES, RecordParts

FILE_BYTES = 1 << 16
NUMBERS = range(4)
FILTERS: dict[str | None, Callable[[int], bool]] = {
    None: lambda n: True,
    "/n = 1": lambda n: n == 1,
    "/n IN (1, 2)": lambda n: n in (1, 2),
    "/n > 1": lambda n: n > 1,
    "/n = 3 AND /n > 5": lambda n: False,
}


@dataclass(frozen=True)
class Wish:
    """A member: its receiver and its filter."""

    receiver: int
    filter_text: str | None
    named: bool = True


class Topic:
    """A log of one message per number, and its readers."""

    def __init__(self, directory: Path) -> None:
        feeder = Feeder(directory, FILE_BYTES)
        for number in NUMBERS:
            feeder.push(Feed(0, number + 1, "t", RecordParts(payload=b'{"n":%d}' % number)))
        feeder.turn(2000, 0)
        self.end = feeder.journal.position
        self.topics = TopicTable(lambda topic, message_type: (True, False, None, None))
        self.log = LogDirectory(feeder.journal_storage.prefix, ".journal", self.topics.entry)
        self.path = Path(self.log.path(0))

    def routes(self) -> TopicRoutes:
        evaluation = EvaluationContext(JsonExtractor(), FieldValues(), MessageContext())
        return TopicRoutes(self.topics.entry("t", "json"), evaluation)

    def tailer(self, routes: TopicRoutes, verify: bool) -> JournalTailer:
        cursor = LogCursor(self.log, 0, 0, verify)
        return JournalTailer(cursor, Group(lambda entry, since, current: routes), 0, 0)


@pytest.fixture(scope="module")
def topic(tmp_path_factory: pytest.TempPathFactory) -> Topic:
    return Topic(tmp_path_factory.mktemp("log"))


def frames_of(output: OutputBuffer) -> list[tuple[list[str], int]]:
    """The ids and the message of each frame."""
    stream = b"".join(output.take())
    frames = []
    while stream:
        (length,) = struct.unpack_from(">I", stream)
        header, end = json.JSONDecoder().raw_decode(stream[4 : 4 + length].decode())
        ids = header["sids"].split(",") if "sids" in header else []
        frames.append((ids, json.loads(stream[4 + end : 4 + length])["n"]))
        stream = stream[4 + length :]
    return frames


wishes = st.lists(
    st.builds(Wish, st.integers(0, 4), st.sampled_from(list(FILTERS)), st.booleans()), max_size=12
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(wishes, st.sets(st.integers(0, 11)), st.booleans())
@example([Wish(0, "/n = 1"), Wish(0, "/n = 1"), Wish(1, "/n = 1")], set(), False)
@example([Wish(0, "/n = 1"), Wish(0, None)], {1}, False)
def test_routes_each_receiver_gets_one_frame_for_all_its_members(
    topic: Topic, wanted: list[Wish], leaving: set[int], verify: bool
) -> None:
    """protocol.md §4. Two receivers may share a connection."""
    outputs = [OutputBuffer(lambda: None) for _ in range(3)]
    routes = topic.routes()
    members = dict(enumerate(wanted))
    for key, wish in members.items():
        filter_ = None if wish.filter_text is None else compile_filter(wish.filter_text)
        sub_id = b"%d" % key if wish.named else None
        routes.add(key, wish.receiver, outputs[wish.receiver % 3], sub_id, 0, filter_)
    for _ in range(2):
        assert topic.tailer(routes, verify).run(topic.end, 1 << 40)
        for number, output in enumerate(outputs):
            expected = []
            for n in NUMBERS:
                for receiver in range(number, 5, 3):
                    takers = [
                        key
                        for key, wish in members.items()
                        if wish.receiver == receiver and FILTERS[wish.filter_text](n)
                    ]
                    if takers:
                        expected.append((n, sorted(str(key) for key in takers if members[key].named)))
            assert sorted((n, sorted(ids)) for ids, n in frames_of(output)) == sorted(expected)
        for key in leaving & members.keys():
            routes.remove(key)
            del members[key]


def test_routes_frames_of_one_message_keep_the_order_of_the_filters(topic: Topic) -> None:
    """This holds for frames made for several members and for frames of one."""
    output = OutputBuffer(lambda: None)
    routes = topic.routes()
    several, one = compile_filter("/n = 1"), compile_filter("/n IN (1, 7)")
    for key, receiver, filter_ in [
        ("a", "first", one),
        ("b", "second", several),
        ("c", "second", several),
        ("d", "third", several),
        ("e", "fourth", one),
    ]:
        routes.add(key, receiver, output, key.encode(), 0, filter_)
    assert topic.tailer(routes, False).run(topic.end, 1 << 40)
    assert [ids for ids, _ in frames_of(output)] == [["a"], ["e"], ["b", "c"], ["d"]]


def test_routes_a_receiver_may_leave_while_frames_are_made(topic: Topic) -> None:
    """The callback that reports output may add and remove receivers."""
    routes = topic.routes()
    first = OutputBuffer(lambda: routes.remove("second"))
    second = OutputBuffer(lambda: None)
    routes.add("first", "first", first, b"first", 0, compile_filter("/n = 1"))
    routes.add("second", "second", second, b"second", 0, compile_filter("/n IN (1, 2)"))
    assert topic.tailer(routes, False).run(topic.end, 1 << 40)
    assert frames_of(first) == [(["first"], 1)]
    assert frames_of(second) == []


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(("part", "found"), [("position", True), ("length", True), ("payload", False)])
def test_delivery_a_damaged_record_is_not_delivered(
    tmp_path: Path, verify: bool, part: str, found: bool
) -> None:
    """The end of a record is always checked; its content only by a verifying reader."""
    topic = Topic(tmp_path)
    data = bytearray(topic.path.read_bytes())
    start = data.index(b'{"n":2}') - HEADER_BYTES
    assert int.from_bytes(data[start : start + 4], "little") == HEADER_BYTES + 7
    place, value = {"length": (3, 0x7F), "position": (8, 0xFF), "payload": (HEADER_BYTES + 5, ord("7"))}[part]
    data[start + place] = value
    topic.path.write_bytes(data)
    output = OutputBuffer(lambda: None)
    routes = topic.routes()
    routes.add("s", "s", output, b"s", 0)
    tailer = topic.tailer(routes, verify)
    if found or verify:
        with pytest.raises(LogDamaged):
            tailer.run(topic.end, 1 << 40)
        assert [n for _, n in frames_of(output)] == [0, 1]
    else:
        assert tailer.run(topic.end, 1 << 40)
        assert [n for _, n in frames_of(output)] == [0, 1, 7, 3]
