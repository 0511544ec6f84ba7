"""Bookmark subscriptions on the wire: protocol.md §5.4, §8.1 and the behaviours 42, 54 to 62 of §21."""

import calendar
import re
import time

import pytest

from amps._core.values.value import publisher_id
from tests.support.peer import RawClient, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, numbered_bodies


def test_protocol_54_replay_then_completed_then_live(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 54"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "0", "cid": "1", "sub_id": "s",
                     "a": "processed,completed"})  # fmt: skip
    processed, *history, completed = subscriber.receive_many(5)
    assert processed.is_ack("processed", "1")
    assert processed.succeeded
    assert processed["sub_id"] == "s"
    assert bodies_of(history) == numbered_bodies(3)
    assert all(re.fullmatch(r"\d+\|\d+\|", bookmark) for bookmark in bookmarks_of(history))
    assert completed.is_ack("completed", "1")
    assert completed.succeeded
    assert completed["sub_id"] == "s"
    assert str(completed["bm"])
    publisher.publish_all(recorded_topic, numbered_bodies(2, start=4), first_sequence=4)
    live = subscriber.receive_published(2)
    assert bodies_of(live) == numbered_bodies(2, start=4)
    assert bookmarks_of(live)[0].endswith("|4|")


def test_protocol_54_bookmarks_appear_only_where_wanted(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, topic: str
) -> None:
    """protocol.md §21 54, transaction_log.md §22 33: option `bookmark`, on recorded topics only."""
    subscriber.subscribe(recorded_topic, "plain")
    publisher.publish(recorded_topic, b"1")
    assert "bm" not in subscriber.receive()
    subscriber.unsubscribe("plain")
    subscriber.subscribe(recorded_topic, "option", o="bookmark")
    subscriber.subscribe(topic, "other", o="bookmark")
    publisher.publish(recorded_topic, b"2", s=1)
    publisher.publish(topic, b"3", s=2)
    recorded, unrecorded = subscriber.receive_published(2)
    assert str(recorded["bm"]).endswith("|1|")
    assert "bm" not in unrecorded


def test_protocol_55_now_replays_nothing(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 55; also without the last bar."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.subscribe(recorded_topic, "bar", bm="0|1|")
    subscriber.subscribe(recorded_topic, "no bar", bm="0|1")
    publisher.publish(recorded_topic, b"new", s=4)
    got = subscriber.receive_published(2)  # two replays: one message each
    assert bodies_of(got) == [b"new", b"new"]
    assert {frozenset(m.subscriptions) for m in got} == {frozenset({"bar"}), frozenset({"no bar"})}
    assert all(bookmark.endswith("|4|") for bookmark in bookmarks_of(got))


def test_protocol_55_a_bookmark_starts_after_its_message(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 55"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    third = bookmarks_of(subscriber.receive_published(5))[2]
    subscriber.unsubscribe("all")
    subscriber.subscribe(recorded_topic, "rest", bm=third)
    assert bodies_of(subscriber.receive_published(2)) == numbered_bodies(2, start=4)


def test_protocol_55_a_list_starts_at_its_earliest(
    peers: Peers, logged_server: ServerProcess, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 55, transaction_log.md §22 14: of the bookmarks found, whatever the order of the list."""
    first, second = peers.logged_on(logged_server), peers.logged_on(logged_server)
    first.publish_persisted(recorded_topic, [b"a1"], 1)
    second.publish_persisted(recorded_topic, [b"b1"], 1)
    first.publish_persisted(recorded_topic, [b"a2"], 2)
    second.publish_persisted(recorded_topic, [b"b2"], 2)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    a1, b1, a2, _ = bookmarks_of(subscriber.receive_published(4))
    subscriber.unsubscribe("all")
    for number, given in enumerate([f"{b1},{a2}", f"{a2},{b1}", f"1|1|,{a2},{b1}", f" {b1} , {a2} "]):
        subscriber.subscribe(recorded_topic, f"list{number}", bm=given)
        assert bodies_of(subscriber.receive_published(2)) == [b"a2", b"b2"], given
        subscriber.unsubscribe(f"list{number}")
    subscriber.subscribe(recorded_topic, "epoch in list", bm=f"{a1},0")
    assert bodies_of(subscriber.receive_published(4)) == [b"a1", b"b1", b"a2", b"b2"]


def test_protocol_55_a_long_list_takes_effect_in_order_and_delays_no_client(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 55: later commands take effect after it, however long the search takes."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    known = f"{publisher_id(publisher.client_name)}|3|"
    unknown = ",".join(f"{other}|1|" for other in range(1, 3000))
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": f"{unknown},{known}", "cid": "1",
                     "sub_id": "s", "a": "processed"})  # fmt: skip
    subscriber.send({"c": "unsubscribe", "sub_id": "nobody", "cid": "2", "a": "processed"})
    assert publisher.flush().succeeded
    assert subscriber.receive().is_ack("processed", "1")
    assert subscriber.wait_for_ack("processed", "2").succeeded
    assert bodies_of(subscriber.receive_published(2)) == numbered_bodies(2, start=4)


def test_protocol_57_an_unknown_bookmark_starts_now_by_default(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 57, §10"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.subscribe(recorded_topic, "default", bm="1|1|")
    subscriber.subscribe(recorded_topic, "now", bm="1|1|", o="bookmark_not_found=now")
    subscriber.subscribe(recorded_topic, "epoch", bm="1|1|,2|2|", o="bookmark_not_found=epoch")
    publisher.publish(recorded_topic, b"new", s=4)
    got = subscriber.receive_published(6)
    by_subscription = {
        name: [m.body for m in got if name in m.subscriptions] for name in ("default", "now", "epoch")
    }
    assert by_subscription["default"] == [b"new"]
    assert by_subscription["now"] == [b"new"]
    assert by_subscription["epoch"] == [*numbered_bodies(3), b"new"]


def test_protocol_57_a_bookmark_may_be_required(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 57, transaction_log.md §22 22, 23: `fail`; one known bookmark is enough."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    second = bookmarks_of(subscriber.receive_published(3))[1]
    subscriber.unsubscribe("all")
    failed = subscriber.try_subscribe(recorded_topic, "s", bm="1|1|", o="bookmark_not_found=fail")
    assert (failed["status"], failed.reason) == ("failure", "invalid bookmark")
    subscriber.subscribe(recorded_topic, "s", bm=f"1|1|,{second}", o="bookmark_not_found=fail")
    assert bodies_of(subscriber.receive_published(1)) == numbered_bodies(1, start=3)


@pytest.mark.parametrize(
    "bookmark", ["{},{},2|x|", "2|x|,{},{}", "{},,{}", "{},{},", "[0,2|x|:{}]", "[{}:2|x|,{}]"]
)
@pytest.mark.parametrize("options", ["", "bookmark_not_found=epoch"])
def test_transaction_log_68_a_malformed_point_makes_a_list_malformed(
    logged_server: ServerProcess, publisher: RawClient, subscriber: RawClient, recorded_topic: str,
    bookmark: str, options: str,
) -> None:  # fmt: skip
    """transaction_log.md §20, 6: it may be the earliest. Nothing is subscribed or replaced; the log names the point."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    known = bookmarks_of(subscriber.receive_published(3))
    wrong = bookmark.format(known[0], known[1])
    for sub_id, more in (("s", ""), ("all", "replace,")):
        ack = subscriber.try_subscribe(recorded_topic, sub_id, bm=wrong, o=more + options)
        assert (ack["status"], ack.reason) == ("failure", "invalid bookmark")
    publisher.publish_persisted(recorded_topic, [b"new"], 4)
    delivered = subscriber.receive()
    assert (delivered.body, delivered.subscriptions) == (b"new", {"all"})
    named = "'2|x|'" if "x" in bookmark else "''"
    logged_server.log.wait_for("02-0030", subscriber.client_name, f"invalid bookmark: {named} is no", count=2)


@pytest.mark.parametrize("options", ["bookmark_not_found=maybe", "bookmark_not_found", "live,fully_durable"])
def test_protocol_57_invalid_replay_options_fail(
    subscriber: RawClient, recorded_topic: str, options: str
) -> None:
    """protocol.md §10 D12"""
    ack = subscriber.try_subscribe(recorded_topic, "s", bm="0", o=options)
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_58_a_literal_topic_must_be_recorded(
    subscriber: RawClient, publisher: RawClient, topic: str
) -> None:
    """protocol.md §21 58 (R), D14; transaction_log.md §22 24"""
    for bookmark in ("0", "0|1|", "1|1|"):
        ack = subscriber.try_subscribe(topic, "s", bm=bookmark)
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")
    publisher.publish(topic, b"1")
    publisher.flush()
    subscriber.expect_silence()


def test_protocol_58_without_a_log_no_topic_is_recorded(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """transaction_log.md §20 5: `same without any log`; a regex is accepted and delivers nothing."""
    client = peers.logged_on(plain_server)
    ack = client.try_subscribe(topic, "s", bm="0")
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")
    client.subscribe(f"^{topic}$", "r", bm="0")
    client.publish(topic, b"1")
    client.expect_silence()


def test_protocol_58_a_regex_delivers_only_recorded_topics(
    publisher: RawClient, subscriber: RawClient, unique: str
) -> None:
    """protocol.md §21 58: in replay and live."""
    publisher.publish(f"plain/{unique}", b"old plain")
    publisher.publish(f"L/{unique}", b"old recorded")
    publisher.flush("persisted")
    subscriber.subscribe(f"{unique}.*", "s", bm="0")
    publisher.publish(f"plain/{unique}", b"new plain")
    publisher.publish(f"L/{unique}", b"new recorded")
    publisher.publish(f"L/{unique}/end", b"end")
    assert bodies_of(subscriber.receive_until(b"end")) == [b"old recorded", b"new recorded"]


def test_protocol_62_persisted_acks_follow_the_log(
    peers: Peers,
    logged_server: ServerProcess,
    publisher: RawClient,
    subscriber: RawClient,
    recorded_topic: str,
) -> None:
    """protocol.md §21 62, §5.4 D10, transaction_log.md §22 52: a topic that gets nothing stands in for the filter.

    There is at most about one ack a second, and only while the log moves. Resuming from the last one misses nothing.
    """
    subscriber.subscribe(f"{recorded_topic}/nothing", "s", bm="0|1|", a="processed,persisted")
    acks = []
    started = time.monotonic()
    for sequence in range(1, 40):
        publisher.publish(recorded_topic, b"%d" % sequence, s=sequence)
        time.sleep(0.1)
    publisher.flush("persisted")
    last = ""
    while not last.endswith("|39|"):
        ack = subscriber.wait_for_ack("persisted")
        acks.append(ack)
        last = str(ack["bm"])
        assert ack["sub_id"] == "s"
        assert ack.succeeded
    assert len({ack["bm"] for ack in acks}) == len(acks)
    assert 2 <= len(acks) <= 2 + (time.monotonic() - started)
    subscriber.expect_nothing_for(1.2)
    resumed = peers.logged_on(logged_server)
    resumed.subscribe(recorded_topic, "r", bm=last)
    publisher.publish(recorded_topic, b"40", s=40)
    assert bodies_of(resumed.receive_published(1)) == [b"40"]


def test_protocol_42_timestamp_on_replayed_messages(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 42, replay; transaction_log.md §22 34: the time of the original publish, rising."""
    before_s = time.time()
    publisher.publish_persisted(recorded_topic, numbered_bodies(50), 1)
    after_s = time.time()
    time.sleep(1.5)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="timestamp")
    stamps = [str(m["ts"]) for m in subscriber.receive_published(50)]
    assert all(re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z", stamp) for stamp in stamps)
    assert stamps == sorted(stamps)
    seconds = [_seconds(stamp) for stamp in stamps]
    assert before_s - 0.5 <= seconds[0]
    assert seconds[-1] <= after_s + 0.5
    subscriber.subscribe(recorded_topic, "without", bm="0")
    assert all("ts" not in m for m in subscriber.receive_published(50))


def test_protocol_46_delta_and_bookmark_exclude_each_other(
    subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §21 46 (T), D14"""
    for command in ("delta_subscribe", "sow_and_delta_subscribe"):
        ack = subscriber.request({"c": command, "t": recorded_topic, "bm": "0"})
        assert (ack["status"], ack.reason) == ("failure", "invalid options")


@pytest.mark.parametrize("options", ["live", "fully_durable", "bookmark", "timestamp,bookmark_not_found=now"])
def test_protocol_replay_options_that_change_nothing_here(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, options: str
) -> None:
    """protocol.md §10; transaction_log.md §22 46, last part: without destinations `fully_durable` is the default."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(100), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0", o=options)
    publisher.publish_all(recorded_topic, numbered_bodies(100, start=101), first_sequence=101)
    got = subscriber.receive_published(200)
    assert bodies_of(got) == numbered_bodies(200)
    assert all("bm" in m for m in got)


def test_protocol_replay_ends_with_unsubscribe(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §11.1: in the middle of a replay; no message follows the ack."""
    publisher.publish_all(recorded_topic, numbered_bodies(20_000, padding_bytes=200), first_sequence=1)
    publisher.flush("persisted")
    subscriber.subscribe(recorded_topic, "s", bm="0")
    subscriber.receive_published(100)
    subscriber.send({"c": "unsubscribe", "sub_id": "s", "cid": "u", "a": "processed"})
    while not subscriber.receive().is_ack("processed", "u"):
        pass
    subscriber.expect_silence()
    subscriber.subscribe(recorded_topic, "s", bm="0")
    assert bodies_of(subscriber.receive_published(20_000)) == numbered_bodies(20_000, padding_bytes=200)


def test_protocol_replay_and_plain_subscription_of_one_connection(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §20 45: separate replays give one message each, a plain subscription its own."""
    subscriber.subscribe(recorded_topic, "plain")
    subscriber.subscribe(recorded_topic, "replay", bm="0|1|")
    publisher.publish(recorded_topic, b"1", s=1)
    got = {frozenset(m.subscriptions): m for m in subscriber.receive_published(2)}
    assert "bm" not in got[frozenset({"plain"})]
    assert "bm" in got[frozenset({"replay"})]


def _seconds(stamp: str) -> float:
    return calendar.timegm(time.strptime(stamp[:15], "%Y%m%dT%H%M%S")) + int(stamp[16:22]) / 1e6
