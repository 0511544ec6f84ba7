"""Moments, ranges and limits of replays: transaction_log.md §5.2, §5.3, §7.2, §20 8 to 16 and 38, §22 15 to 21, 48."""

import datetime
import time

import pytest

from tests.support.peer import RawClient, Value, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer


def numbers(count: int, start: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


@pytest.fixture
def six(publisher: RawClient, subscriber: RawClient, recorded_topic: str) -> list[tuple[str, str]]:
    """Bookmark and time of six messages, bodies 1 to 6, no two of the same microsecond."""
    for number, body in enumerate(numbers(6), start=1):
        publisher.publish(recorded_topic, body, s=number)
        publisher.flush()
    publisher.flush("persisted")
    subscriber.subscribe(recorded_topic, "all", bm="0", o="timestamp")
    messages = subscriber.receive_published(6)
    subscriber.unsubscribe("all")
    times = [str(message["ts"]) for message in messages]
    assert times == sorted(set(times))
    return list(zip(bookmarks_of(messages), times, strict=True))


def replayed(subscriber: RawClient, topic: str, bookmark: str, **fields: Value) -> list[bytes]:
    """Return the bodies that a replay delivers up to its `completed` acknowledgement."""
    sub_id = fields.setdefault("sub_id", subscriber.new_id())
    subscriber.send({"c": "subscribe", "t": topic, "bm": bookmark, "a": "processed,completed", **fields})
    assert subscriber.wait_for_ack("processed").succeeded, bookmark
    bodies = []
    while not (message := subscriber.receive()).is_ack("completed"):
        assert message.command == "p"
        bodies.append(message.body)
    assert message["sub_id"] == sub_id
    return bodies


def stamp(time_s: float) -> str:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def test_transaction_log_15_a_moment_begins_with_later_messages(
    subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §22 15, §20 9: the message of exactly that microsecond is not later; `Z` changes nothing."""
    for place, (_, moment) in enumerate(six, start=1):
        for text in (moment, moment[:-1], moment[:-1] + "999Z"):
            assert replayed(subscriber, recorded_topic, text) == numbers(6)[place:], text
            subscriber.unsubscribe("all")
    for before in ("20200101T000000", "19690101T000000Z"):
        assert replayed(subscriber, recorded_topic, before) == numbers(6)


def test_transaction_log_15_a_moment_to_come_lets_only_later_messages_through(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §20 11: `completed` at once."""
    begin_s = time.time() + 1.0
    assert replayed(subscriber, recorded_topic, stamp(begin_s)) == []
    publisher.publish_persisted(recorded_topic, [b"too early"], 7)
    early = time.time() < begin_s
    time.sleep(max(0.0, begin_s + 0.05 - time.time()))
    publisher.publish_persisted(recorded_topic, [b"later"], 8)
    expected = [b"later"] if early else [b"too early", b"later"]
    assert bodies_of(subscriber.receive_published(len(expected))) == expected
    publisher.publish(recorded_topic, b"on", s=9)
    assert subscriber.receive().body == b"on"


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [("[", "]", (2, 3, 4)), ("(", "]", (3, 4)), ("[", ")", (2, 3)), ("(", ")", (3,))],
)
@pytest.mark.parametrize("by_time", [False, True])
def test_transaction_log_16_brackets_decide_the_ends_of_a_range(
    publisher: RawClient,
    subscriber: RawClient,
    recorded_topic: str,
    six: list[tuple[str, str]],
    begin: str,
    end: str,
    expected: tuple[int, ...],
    by_time: bool,
) -> None:
    """transaction_log.md §22 16 and 18, §20 9 and 14: by messages and by moments; no message comes afterwards."""
    first, last = six[1][by_time], six[3][by_time]
    for _ in range(2):
        got = replayed(subscriber, recorded_topic, f"{begin}{first}:{last}{end}", sub_id="range")
        assert got == [b"%d" % number for number in expected]
    publisher.publish(recorded_topic, b"7", s=7)
    publisher.flush("persisted")
    subscriber.expect_silence()


def test_transaction_log_17_the_widest_range_of_lists_counts(
    subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §22 17; §20 8: a list may mix messages and moments."""
    messages = [bookmark for bookmark, _ in six]
    moments = [moment for _, moment in six]
    two_to_five = [b"2", b"3", b"4", b"5"]
    for begins, ends in (
        ((messages[2], messages[1]), (messages[3], messages[4])),
        ((messages[2], moments[1]), (messages[3], moments[4])),
        ((moments[4], messages[1], "0|1|"), (moments[3], messages[4], "0")),
        ((moments[3], moments[1]), (moments[4], moments[2])),
    ):
        got = replayed(subscriber, recorded_topic, f"[{','.join(begins)}:{','.join(ends)}]")
        assert got == two_to_five, (begins, ends)


def test_transaction_log_17_special_points_of_ranges(
    subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §20 13 and 15."""
    second, fourth = six[1][0], six[3][0]
    everything = numbers(6)
    for bookmark, expected in (
        (f"(0:{second}]", everything[:2]),
        (f"[0:{second})", everything[:1]),
        ("[0:0|1|]", everything),
        ("(0:0|1)", everything),
        (f"({second}:0|1|)", everything[2:]),
        ("[0:0]", []),
        (f"[{fourth}:{second}]", []),
        ("(0|1|:0|1|]", []),
        (f"( {second} : {fourth} ]", everything[2:4]),
    ):
        assert replayed(subscriber, recorded_topic, bookmark) == expected, bookmark


def test_transaction_log_19_a_range_may_end_in_the_future(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §22 19: the end comes by the clock, without a further message."""
    end_s = time.time() + 1.5
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": f"[0:{stamp(end_s)}]", "sub_id": "s",
                     "a": "completed"})  # fmt: skip
    assert bodies_of(subscriber.receive_published(6)) == numbers(6)
    publisher.publish_persisted(recorded_topic, [b"within"], 7)
    assert time.time() < end_s, "the machine stood still"
    assert subscriber.receive().body == b"within"
    completed = subscriber.receive()
    assert completed.is_ack("completed")
    assert time.time() >= end_s
    publisher.publish(recorded_topic, b"behind", s=8)
    publisher.flush("persisted")
    subscriber.expect_silence()


def test_transaction_log_19_a_later_message_ends_a_range_too(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §20 14: it is not delivered, and no message of the range comes after `completed`."""
    end_s = time.time() + 0.6
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": f"[0:{stamp(end_s)})", "sub_id": "s",
                     "a": "completed", "o": "timestamp"})  # fmt: skip
    number = 0
    while time.time() < end_s + 0.4:
        number += 1
        publisher.publish(recorded_topic, b"%d" % number, s=number)
        time.sleep(0.002)
    publisher.flush("persisted")
    got = []
    while not (message := subscriber.receive()).is_ack("completed"):
        got.append(message)
    assert bodies_of(got) == numbers(len(got))
    assert 0 < len(got) < number
    assert all(str(m["ts"]) < stamp(end_s) for m in got)
    subscriber.subscribe(recorded_topic, "rest", bm=got[-1]["bm"], o="timestamp")
    assert str(subscriber.receive()["ts"]) >= stamp(end_s)


def test_transaction_log_20_a_range_may_begin_in_the_future(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §22 20, protocol.md §21 56"""
    begin_s = time.time() + 1.0
    subscriber.subscribe(
        recorded_topic, "s", bm=f"[{stamp(begin_s)}:{stamp(begin_s + 1.0)}]", a="processed,completed"
    )
    publisher.publish_persisted(recorded_topic, [b"before"], 7)
    assert time.time() < begin_s, "the machine stood still"
    time.sleep(max(0.0, begin_s + 0.05 - time.time()))
    publisher.publish_persisted(recorded_topic, [b"within"], 8)
    assert subscriber.receive().body == b"within"
    assert subscriber.receive().is_ack("completed")
    publisher.publish_persisted(recorded_topic, [b"after"], 9)
    subscriber.expect_silence()


def test_transaction_log_21_a_range_may_begin_with_the_last_message(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 21, §5.3"""
    server = start_server(log_topics=("^t",))
    publisher, subscriber = peers.logged_on(server), peers.logged_on(server)
    end = stamp(time.time() + 3600)
    publisher.publish_persisted("t1", numbers(3), 1)
    for number, begin in enumerate(("[0|1|", "[0|1")):
        subscriber.subscribe("t1", f"s{number}", bm=f"{begin}:{end})")
        assert subscriber.receive().body == b"3"
    subscriber.subscribe("t2", "other topic", bm=f"[0|1|:{end})")
    subscriber.subscribe("t1", "exclusive", bm=f"(0|1|:{end})")
    subscriber.expect_silence()
    publisher.publish_persisted("t1", [b"new"], 4)
    assert bodies_of(subscriber.receive_published(3)) == [b"new"] * 3


def test_transaction_log_22_an_end_that_is_not_there_yet_is_waited_for(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, subscriber: RawClient, recorded_topic: str,
    six: list[tuple[str, str]],
) -> None:  # fmt: skip
    """transaction_log.md §20 12: also one of several, and if the message goes to another topic; `fail` refuses it."""
    publisher_id = six[0][0].split("|")[0]
    later = f"{publisher_id}|9|"
    for bookmark in (f"[0:{later}]", f"[0:{six[1][0]},{later}]"):
        refused = subscriber.try_subscribe(recorded_topic, "f", bm=bookmark, o="bookmark_not_found=fail")
        assert (refused["status"], refused.reason) == ("failure", "invalid bookmark")
    for name, bookmark in (
        ("inclusive", f"({six[3][0]}:{later}]"),
        ("exclusive", f"({six[3][0]}:{six[1][0]},{later})"),
        ("elsewhere", f"({six[3][0]}:{publisher_id}|8|]"),
    ):
        subscriber.send(
            {"c": "subscribe", "t": recorded_topic, "bm": bookmark, "sub_id": name, "a": "completed"}
        )
        assert bodies_of(subscriber.receive_published(2)) == [b"5", b"6"]
    publisher.publish(recorded_topic, b"7", s=7)
    assert bodies_of(subscriber.receive_published(3)) == [b"7"] * 3
    publisher.publish(f"{recorded_topic}/other", b"8", s=8)
    assert subscriber.receive()["sub_id"] == "elsewhere"
    for number in (9, 10):
        publisher.publish(recorded_topic, b"%d" % number, s=number)
    rest = subscriber.receive_many(3)
    assert [m.body for m in rest if m.command == "p"] == [b"9"]
    assert {m["sub_id"] for m in rest if m.is_ack("completed")} == {"inclusive", "exclusive"}
    publisher.flush("persisted")
    subscriber.expect_silence()


def test_transaction_log_48_a_number_of_messages(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §22 48 (R38), protocol.md §21 59: counting stored and new messages."""
    assert replayed(subscriber, recorded_topic, "0", top_n=2) == [b"1", b"2"]
    assert replayed(subscriber, recorded_topic, "0", top_n=2, filter="/id > 0") == []
    assert replayed(subscriber, recorded_topic, "0", top_n=8, sub_id="s") == numbers(6)
    for number in (7, 8, 9):
        publisher.publish(recorded_topic, b"%d" % number, s=number)
    assert bodies_of(subscriber.receive_published(2)) == [b"7", b"8"]
    publisher.flush("persisted")
    subscriber.expect_silence()
    assert replayed(subscriber, recorded_topic, "0", top_n=1, sub_id="s") == [b"1"]
    assert subscriber.try_subscribe(recorded_topic, "w", bm="0", top_n=0).failed


def test_transaction_log_16_a_range_and_a_filter(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.1: messages of the range that match; the message at an end need not match."""
    bodies = [b'{"n":%d}' % number for number in range(1, 8)]
    publisher.publish_persisted(recorded_topic, bodies, 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    marks = bookmarks_of(subscriber.receive_published(7))
    subscriber.unsubscribe("all")
    got = replayed(subscriber, recorded_topic, f"[{marks[1]}:{marks[5]}]", filter="/n % 3 = 0")
    assert got == [bodies[2], bodies[5]]
    got = replayed(subscriber, recorded_topic, f"[{marks[0]}:{marks[4]}]", filter="/n % 3 = 0", top_n=1)
    assert got == [bodies[2]]


FAR_FUTURE = (
    "22620412T000000",
    "25540721T233434",
    "25540721T233435",
    "26000101T000000",
    "99991231T235959.999999999",
)


@pytest.mark.parametrize("moment", FAR_FUTURE)
def test_transaction_log_15_a_moment_in_the_far_future(
    subscriber: RawClient, publisher: RawClient, recorded_topic: str, six: list[tuple[str, str]], moment: str
) -> None:
    """transaction_log.md §5.2, §22 15: no message arrives until then; a range that ends then goes on."""
    begins = [moment, f"1|1|,{moment}", f"[{moment}:{moment}]", f"({moment}:99991231T235959)"]
    for number, bookmark in enumerate(begins):
        for option in ("bookmark_not_found=now", "bookmark_not_found=fail"):
            subscriber.subscribe(recorded_topic, f"later {number} {option}", bm=bookmark, o=option)
    ends = [f"[0:{moment}]", f"[0:{moment})", f"[0:{six[2][0]},{moment})"]
    for number, bookmark in enumerate(ends):
        subscriber.subscribe(recorded_topic, f"range {number}", bm=bookmark)
    assert bodies_of(subscriber.receive_published(18)) == numbers(6) * 3
    publisher.publish(recorded_topic, b"7", s=7)
    publisher.flush("persisted")
    last = subscriber.receive_published(3)
    assert bodies_of(last) == [b"7"] * 3
    assert {message["sids"] for message in last} == {"range 0", "range 1", "range 2"}
    subscriber.expect_silence()


def test_transaction_log_16_a_limit_beyond_all_numbers(
    subscriber: RawClient, recorded_topic: str, six: list[tuple[str, str]]
) -> None:
    """transaction_log.md §7.2"""
    for number in (1 << 63, (1 << 64) - 1, 1 << 64, (1 << 64) + 1):
        subscriber.subscribe(recorded_topic, f"top {number}", bm="0", top_n=number)
        assert bodies_of(subscriber.receive_published(6)) == numbers(6)
