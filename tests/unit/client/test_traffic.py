"""The client's hot path: the extension module and its equivalent in Python give the same results.

Every test runs with both. Where the two may differ (only the extension publishes without the engine), the test says so.
"""

import itertools
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.client import traffic as compiled
from amps._core.wire.framing import FrameTooLarge, HeaderError, encode_frame, parse_header
from amps.client.protocol import traffic_python

BOTH = pytest.mark.parametrize("traffic", [compiled, traffic_python], ids=["compiled", "python"])
LIMIT = 1 << 20


@dataclass(eq=False)
class Owner:
    acknowledged: list[tuple[str | None, str]] = field(default_factory=list)

    def ack(self, target: Any, *, options: str = "") -> None:
        self.acknowledged.append((target.bookmark, options))


@dataclass(eq=False)
class Route:
    name: str
    owner: Owner | None = None
    ack_batch: Any = None


@dataclass
class Deliver:
    route: Route
    messages: list[Any]


def frame(body: bytes, **fields: Any) -> bytes:
    return bytes(encode_frame(fields, body))


def publish(sids: str, body: bytes = b"x", **fields: Any) -> bytes:
    return frame(body, cmd="p", topic="orders", sids=sids, bookmark="1|2|", **fields)


def read(traffic: ModuleType, chunks: list[bytes], routes: dict[bytes, Route]) -> list[tuple[Any, ...]]:
    """What a reader makes of chunks: messages with their route, and payloads left to the engine."""
    reader = traffic.FrameReader(LIMIT, traffic.ReceivedMessage, Deliver)
    seen: list[tuple[Any, ...]] = []

    def note(events: list[Deliver]) -> None:
        for event in events:
            seen.extend((event.route.name, m.topic, m.bookmark, m.data, bytes(m.view)) for m in event.messages)
        events.clear()

    for chunk in chunks:
        events: list[Deliver] = []
        reader.feed(bytearray(chunk))
        while (payload := reader.next(routes, events)) is not None:
            note(events)
            seen.append(("engine", payload))
        note(events)
    assert reader.buffered_bytes == 0
    assert reader.frames == len(seen)
    assert reader.content == sum(one[0] != "engine" for one in seen)
    return seen


ROUTES = {b"1": Route("one"), b"two": Route("two")}
STREAM = [
    publish("1", b"a"),
    publish("1", b""),
    publish("two", b"{b}"),
    publish("1,two", b"both"),
    publish("unknown", b"c"),
    b"\0\0\0\0",
    frame(b"", cmd="ack", ack_type="processed", sids="1"),
    publish("1", b'"sids":"two"', leaseperiod="0"),
    frame(b'{"sids":"1"}', cmd="p", topic="orders"),
    frame(b"d", cmd="publish", topic="orders", sids="1"),
    publish("two", b"e" * 5000),
]


@BOTH
def test_a_known_subscription_gets_messages_and_the_engine_the_rest(traffic: ModuleType) -> None:
    seen = read(traffic, [b"".join(STREAM)], ROUTES)
    assert [one[0] for one in seen] == ["one", "one", "two", *["engine"] * 3, "one", "engine", "engine", "two"]
    assert seen[0] == ("one", "orders", "1|2|", b"a", b"a")
    assert seen[-1][3] == b"e" * 5000
    assert seen[4] == ("engine", publish("unknown", b"c")[4:])


@BOTH
@pytest.mark.parametrize(
    "header",
    [
        b'{"c":"p","t":"a","sids":"1","bm":"1|2|","l":3}',
        b'{"c":"p","topic":"a","sids":"1","bookmark":"1|2|","ts":"now","lp":"0","x":"","user_id":"{\xc3\xa9}"}',
        b'{"c":"p","sids":"1","t":"a","bm":"1|2|"}',
        b'{"c":"p","t":"z","sids":"1","bm":"1|2|","t":"a"}',
        b'{"c":"p","t":"z","sids":"1","bm":"1|2|","topic":"a"}',
        b'{"c":"p","t":"a","sids":"1","bm":"9|9|","bookmark":"1|2|"}',
        b'{"c":"p","t":"a","sids":"1","bm":"9|9|","bm":"1|2|"}',
        b'{"c":"p","t":"a","sids":"1","x":"\\"}","bm":"1|2|"}',
        b'{"c":"p","t":"\\u0061","sids":"1","bm":"1|2|"}',
        b'{"c":"p", "t":"a" ,"sids":"1","bm":"1|2|","l":-1}',
        b'{"c":"p","t":"a","sids":"1","x":"%b","bm":"1|2|"}' % (b"x" * 70_000),
    ],
)
def test_a_header_of_any_form_is_read_as_the_general_parser_does(traffic: ModuleType, header: bytes) -> None:
    payload = header + b'{"t":"body","sids":"two"}'
    seen = read(traffic, [len(payload).to_bytes(4, "big") + payload], ROUTES)
    if seen != [("engine", payload)]:
        body = payload[len(header) :]
        assert seen == [("one", "a", "1|2|", body, body)]
    assert parse_header(payload)[0]["topic"] == "a"


@BOTH
@pytest.mark.parametrize(
    "header",
    [
        b'{"c":"p","t":"a","sids":"1","sids":"two"}',
        b'{"c":"p","t":"a","sids":"1","c":"oof"}',
        b'{"c":"p","t":"a","sids":"1","cmd":"oof"}',
    ],
)
def test_a_header_whose_last_value_says_otherwise_is_not_of_that_subscription(
    traffic: ModuleType, header: bytes
) -> None:
    """Of a repeated key, the last value counts (protocol.md §3)."""
    seen = read(traffic, [len(header).to_bytes(4, "big") + header], ROUTES)
    assert seen[0][0] in ("engine", "two")


@BOTH
def test_a_stream_cut_at_every_byte_gives_the_same(traffic: ModuleType) -> None:
    whole = b"".join([*STREAM[:-1], publish("two", b"e" * 50)])
    expected = read(traffic, [whole], ROUTES)
    assert len(expected) == 10
    for at in range(1, len(whole)):
        assert read(traffic, [whole[:at], whole[at:]], ROUTES) == expected
    assert read(traffic, [whole[at : at + 1] for at in range(len(whole))], ROUTES) == expected


texts = st.text(st.characters(codec="utf-8"), max_size=12)
fields = st.fixed_dictionaries(
    {"cmd": st.sampled_from(["p", "p", "publish", "oof", "ack", 'p"'])},
    optional={
        "topic": texts,
        "sids": st.sampled_from(["1", "two", "1,two", "é", '"1', "1\\"]),
        "bookmark": texts,
        "sow_key": texts,
        "leaseperiod": st.sampled_from(["0", "20260101T000000.000000Z"]),
        "seq": st.integers(0, 2**63),
        "timestamp": texts,
    },
)


@given(st.lists(st.tuples(fields, st.binary(max_size=40)), max_size=8), st.lists(st.integers(0, 2000), max_size=6))
def test_both_read_any_stream_alike_and_as_the_general_parser(
    content: list[tuple[dict[str, Any], bytes]], cuts: list[int]
) -> None:
    whole = b"".join(frame(body, **one) for one, body in content)
    places = sorted({min(cut, len(whole)) for cut in cuts} | {0, len(whole)})
    chunks = [whole[a:b] for a, b in itertools.pairwise(places)]
    made = read(compiled, chunks, ROUTES)
    assert made == read(compiled, [whole] if whole else [], ROUTES)
    for one, (header, body) in zip(made, content, strict=True):
        payload = frame(body, **header)[4:]
        if one[0] == "engine":
            assert one == ("engine", payload)
        else:
            parsed, at = parse_header(payload)
            assert one[1:] == (parsed.get("topic"), parsed.get("bookmark"), payload[at:], body)
            assert parsed["cmd"] == "p"
            assert ROUTES[parsed["sids"].encode()].name == one[0]
    # The one in Python leaves more to the engine: a header with an escape.
    for fast, slow in zip(made, read(traffic_python, chunks, ROUTES), strict=True):
        assert slow == fast or slow[0] == "engine"


@given(st.binary(max_size=200))
def test_garbage_is_left_to_the_engine_or_refused(garbage: bytes) -> None:
    for traffic in (compiled, traffic_python):
        reader = traffic.FrameReader(LIMIT, traffic.ReceivedMessage, Deliver)
        reader.feed(garbage)
        try:
            while (payload := reader.next(ROUTES, [])) is not None:
                assert payload in garbage
        except FrameTooLarge:
            pass
        reader.clear()
        assert reader.buffered_bytes == 0
        reader.feed(publish("1"))
        events: list[Deliver] = []
        assert reader.next(ROUTES, events) is None
        assert len(events) == 1


@BOTH
def test_a_frame_over_the_limit_is_refused_when_its_length_is_known(traffic: ModuleType) -> None:
    reader = traffic.FrameReader(100, traffic.ReceivedMessage, Deliver)
    reader.feed(b"\0\0")
    assert reader.next({}, []) is None
    reader.feed(b"\0\x65")
    with pytest.raises(FrameTooLarge, match="101 bytes is over the limit of 100"):
        reader.next({}, [])


@BOTH
def test_bytes_must_be_read_before_more_are_fed(traffic: ModuleType) -> None:
    reader = traffic.FrameReader(LIMIT, traffic.ReceivedMessage, Deliver)
    reader.feed(publish("none"))
    with pytest.raises(ValueError, match="not been read"):
        reader.feed(b"x")
    reader.clear()
    reader.feed(publish("none"))
    assert reader.next({}, []) is not None


@BOTH
def test_a_message_is_independent_of_the_received_bytes(traffic: ModuleType) -> None:
    reader = traffic.FrameReader(LIMIT, traffic.ReceivedMessage, Deliver)
    received = bytearray(publish("1", b"kept"))
    events: list[Deliver] = []
    reader.feed(received)
    assert reader.next(ROUTES, events) is None
    received[:] = bytes(len(received))
    assert events[0].messages[0].data == b"kept"
    assert events[0].messages[0].topic == "orders"


@BOTH
def test_a_malformed_header_raises_when_it_is_read(traffic: ModuleType) -> None:
    message = traffic.ReceivedMessage(b'{"c":"p"')
    for name in ("data", "view", "topic", "bookmark"):
        with pytest.raises(HeaderError):
            getattr(message, name)


# The log of frames


class FrameLogModel:
    def __init__(self) -> None:
        self.frames: dict[int, bytes] = {}
        self.next = 1


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 600)),
        st.tuples(st.just("drop"), st.integers(0, 80)),
        st.tuples(st.just("raise"), st.integers(0, 200)),
        st.tuples(st.just("clear"), st.just(0)),
    ),
    max_size=60,
)


@given(actions, st.sampled_from([0, 2000]))
def test_frame_logs_follow_the_model(steps: list[tuple[str, int]], max_bytes: int) -> None:
    for traffic in (compiled, traffic_python):
        model = FrameLogModel()
        log = traffic.FrameLog(max_bytes)
        for action, number in steps:
            if action == "append":
                full = bool(max_bytes) and sum(map(len, model.frames.values())) >= max_bytes
                assert log.full == full
                got = log.append(b'{"c":"p","s":', bytes(number))
                if full:
                    assert got == 0
                    continue
                assert got == model.next
                model.frames[got] = frame(bytes(number), cmd="p", seq=got)
                model.next += 1
            elif action == "drop":
                log.drop_up_to(number)
                model.frames = {at: kept for at, kept in model.frames.items() if at > number}
            elif action == "raise":
                log.raise_next(number)
                if not model.frames:
                    model.next = max(model.next, number)
            else:
                log.clear()
                model.frames = {}
            assert (log.count, log.next_number) == (len(model.frames), model.next)
            assert log.lowest == min(model.frames, default=0)
            assert log.kept_bytes == sum(map(len, model.frames.values()))
        for at in range(model.next + 1):
            assert log.frame(at) == model.frames.get(at)


@BOTH
def test_a_log_of_many_blocks_and_large_frames(traffic: ModuleType) -> None:
    log = traffic.FrameLog()
    sizes = [10, 300_000, 70_000, 1, 260_000, *[100] * 9000]
    for at, size in enumerate(sizes, 1):
        assert log.append(b'{"c":"p","s":', b"%d" % at * size) == at
    for at in (1, 2, 3, 4, 5, 6, 5000, len(sizes)):
        assert log.frame(at) == frame(b"%d" % at * sizes[at - 1], cmd="p", seq=at)
    log.drop_up_to(7000)
    assert (log.lowest, log.frame(7000)) == (7001, None)
    log.drop_up_to(10**12)
    assert (log.count, log.kept_bytes, log.lowest) == (0, 0, 0)


# The outbox


@BOTH
def test_frames_leave_in_the_order_in_which_they_came(traffic: ModuleType) -> None:
    box = traffic.Outbox(LIMIT)
    frames = [b"a", b"b" * 70_000, b"c", b"d" * 3]
    for one in frames:
        box.add(one)
    box.add_parts(b"e", b"f" * 70_000)
    box.add_parts(b"g", b"h")
    expected = b"".join(frames) + b"e" + b"f" * 70_000 + b"gh"
    assert box.pending_bytes == len(expected)
    assert box.frames == 6
    assert b"".join(box.take()) == expected
    assert (box.pending_bytes, box.take()) == (0, [])
    box.add(b"x")
    box.clear()
    assert (box.pending_bytes, box.take()) == (0, [])


@BOTH
def test_a_numbered_frame_is_kept_and_added_in_one_step(traffic: ModuleType) -> None:
    box = traffic.Outbox(LIMIT)
    box.log = traffic.FrameLog(100)
    assert box.add_numbered(b'{"c":"p","s":', b"body") == 1
    assert box.add_numbered(b'{"c":"p","s":', b"b" * 90) == 2
    assert box.add_numbered(b'{"c":"p","s":', b"full") == 0
    expected = [frame(b"body", cmd="p", seq=1), frame(b"b" * 90, cmd="p", seq=2)]
    assert b"".join(box.take()) == b"".join(expected)
    assert [box.log.frame(1), box.log.frame(2), box.log.count] == [*expected, 2]


def ready(numbered: bool = False, max_bytes: int = 0) -> compiled.Outbox:
    box = compiled.Outbox(LIMIT)
    box.learn("orders", b'{"c":"publish","t":"orders"}')
    box.ready = box.signalled = True
    box.numbered = numbered
    box.log = compiled.FrameLog(max_bytes) if numbered else None
    return box


def done(result: int) -> int:
    return -2 - result if result < -1 else result


def test_publish_lays_out_the_frame_that_the_engine_would() -> None:
    box = ready()
    assert done(box.publish("orders", b"bytes")) == done(box.publish("orders", "tëxt")) == 0
    assert b"".join(box.take()) == b"".join(
        frame(body, cmd="publish", topic="orders") for body in (b"bytes", "tëxt".encode())
    )


def test_publish_with_numbers_keeps_what_it_sends() -> None:
    box = ready(numbered=True)
    assert box.log is not None
    box.log.raise_next(99)
    assert [done(box.publish("orders", b"%d" % at)) for at in range(3)] == [99, 100, 101]
    frames = [frame(b"%d" % at, cmd="publish", topic="orders", ack_type="persisted", seq=99 + at) for at in range(3)]
    assert b"".join(box.take()) == b"".join(frames)
    assert [box.log.frame(99 + at) for at in range(3)] == frames


@pytest.mark.parametrize(
    "prepare",
    [
        lambda box: setattr(box, "ready", False),
        lambda box: setattr(box, "blocked", True),
        lambda box: setattr(box, "numbered", True),
    ],
    ids=["not ready", "blocked", "a store that keeps its frames elsewhere"],
)
def test_publish_leaves_it_to_the_engine(prepare: Any) -> None:
    box = ready()
    prepare(box)
    assert box.publish("orders", b"x") == -1
    assert (box.pending_bytes, box.frames) == (0, 0)


@pytest.mark.parametrize(
    ("topic", "data"),
    [
        ("unknown", b"x"),
        (7, b"x"),
        ("orders", {"a": 1}),
        ("orders", bytearray(b"x")),
        ("orders", "\ud800"),
        ("orders", b"x" * (LIMIT + 1)),
        ("orders", None),
    ],
)
def test_publish_leaves_other_arguments_to_the_engine(topic: object, data: object) -> None:
    box = ready(numbered=True)
    assert box.publish(topic, data) == -1
    assert (box.pending_bytes, box.log.count if box.log else None) == (0, 0)


def test_publish_leaves_it_to_the_engine_when_the_log_is_full() -> None:
    box = ready(numbered=True, max_bytes=1)
    assert done(box.publish("orders", b"x")) == 1
    assert box.publish("orders", b"x") == -1
    assert box.frames == 1


def test_publish_reports_when_to_send() -> None:
    box = ready()
    assert box.publish("orders", b"x") == -2  # the first one: not in a burst
    assert not box.burst
    results = [box.publish("orders", b"x" * 1000) for _ in range(200)]
    assert -2 in results  # at the latest when 64 KiB wait
    assert box.pending_bytes > 64 * 1024


# Batches of acknowledgements


@BOTH
def test_a_batch_joins_bookmarks(traffic: ModuleType) -> None:
    batch = traffic.AckBatch("q", 5)
    batch.add(b"1|1|", 1)
    batch.add(b"1|2|,1|3|", 2)
    assert (batch.count, batch.limit) == (3, 5)
    assert batch.take() == "1|1|,1|2|,1|3|"
    assert (batch.count, batch.limit) == (0, 0)


def leased(traffic: ModuleType, route: Route, topic: str = "q", **fields: Any) -> Any:
    reader = traffic.FrameReader(LIMIT, traffic.ReceivedMessage, Deliver)
    events: list[Deliver] = []
    reader.feed(frame(b"", cmd="p", topic=topic, sids="1", bookmark="1|2|", **fields))
    assert reader.next({b"1": route}, events) is None
    return events[0].messages[0]


def test_a_leased_message_adds_itself_to_the_batch_under_way() -> None:
    owner = Owner()
    batch = compiled.AckBatch("q", 4)
    message = leased(compiled, Route("r", owner, batch), leaseperiod="0")
    message.ack()  # the first of a batch is the engine's
    assert owner.acknowledged == [("1|2|", "")]
    batch.add(b"1|1|", 1)
    message.ack()
    message.ack()
    assert (batch.count, len(owner.acknowledged)) == (3, 1)
    message.ack()  # the batch would be due
    message.ack("cancel")
    assert owner.acknowledged[1:] == [("1|2|", ""), ("1|2|", "cancel")]
    assert batch.take() == "1|1|,1|2|,1|2|"


@BOTH
def test_other_messages_are_acknowledged_by_their_owner(traffic: ModuleType) -> None:
    for topic, fields in (("q", {}), ("other", {"leaseperiod": "0"})):
        owner = Owner()
        batch = traffic.AckBatch("q", 9)
        batch.add(b"1|1|", 1)
        leased(traffic, Route("r", owner, batch), topic, **fields).ack()
        assert (owner.acknowledged, batch.count) == ([("1|2|", "")], 1)
    leased(traffic, Route("r", None)).ack()
    traffic.ReceivedMessage(publish("1")[4:]).ack()
