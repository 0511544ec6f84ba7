"""Replacing bookmark subscriptions, and ordinary ones by bookmark.

transaction_log.md §7.3, §7.4, §7.6, §9, §20 5, 17, 18 and 22, §22 53; protocol.md §8.2. Messages delivered before the
place of the replacement are not delivered again; later messages come once.
"""

import threading

import pytest

from tests.support.peer import Message, RawClient, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess


def numbers(first: int, last: int) -> list[bytes]:
    """Bodies, both ends included."""
    return [b'{"n":%d,"k":1}' % number for number in range(first, last + 1)]


def receive_until_completed(subscriber: RawClient, count: int = 1) -> list[Message]:
    """Receive up to that number of `completed` acknowledgements, and return everything received."""
    received: list[Message] = []
    while sum(message.is_ack("completed") for message in received) < count:
        received.append(subscriber.receive(20))
    return received


def published(received: list[Message]) -> list[Message]:
    return [message for message in received if message.command == "p"]


def replace(subscriber: RawClient, topic: str, options: str = "", **more: object) -> Message:
    """Replace subscription `s`. Return the acknowledgement."""
    wanted = ",".join(filter(None, ["replace", options]))
    return subscriber.try_subscribe(topic, "s", o=wanted, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("bookmark", ["0", None])
def test_transaction_log_53_completed_of_a_replacement_comes_when_the_replay_arrives(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, bookmark: str | None
) -> None:
    """transaction_log.md §7.6, §20 17, §22 53: it comes behind the messages, and resuming at its bookmark replays
    none of them. The acknowledgement of the replaced command is not lost.
    """
    publisher.publish_persisted(recorded_topic, numbers(1, 30), 1)
    start = {} if bookmark is None else {"bm": bookmark}
    subscriber.send(
        {"c": "subscribe", "cid": "1", "t": recorded_topic, "sub_id": "s", "bm": "0", "o": "rate=10",
         "a": "completed"}
    )  # fmt: skip
    received = subscriber.receive_published(2, 20)
    subscriber.send(
        {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace,rate=100",
         "a": "completed", **start}
    )  # fmt: skip
    received += receive_until_completed(subscriber, 2)
    assert bodies_of(published(received)) == numbers(1, 30)
    first, second = received[-2:]
    assert [message.is_ack("completed", cid) for message, cid in ((first, "1"), (second, "2"))] == [True] * 2
    assert first["bm"] == second["bm"] != "0"
    subscriber.subscribe(recorded_topic, "again", bm=str(second["bm"]))
    publisher.publish(recorded_topic, b'{"n":31}')
    assert {subscriber.receive().body for _ in range(2)} == {b'{"n":31}'}
    subscriber.expect_silence()


def test_transaction_log_53_a_caught_up_one_that_is_replaced_completes_too(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.6: at once, and with a correct bookmark."""
    publisher.publish_persisted(recorded_topic, numbers(1, 3), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    last = bookmarks_of(subscriber.receive_published(3))[-1]
    for options in ("replace", "replace,live", "replace"):
        subscriber.send(
            {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": options, "a": "completed"}
        )
        (message,) = receive_until_completed(subscriber)
        assert message["bm"] == last


@pytest.mark.parametrize("bookmark", [None, "0|1|", "0"])
def test_transaction_log_22_live_ends_where_it_is_replaced_without(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, bookmark: str | None
) -> None:
    """transaction_log.md §7.4, §9, §20 22: without `live` it can be paused, its rate applies, and each message comes
    once.
    """
    start = {} if bookmark is None else {"bm": bookmark}
    subscriber.subscribe(recorded_topic, "s", bm="0|1|", o="live")
    publisher.publish(recorded_topic, numbers(1, 1)[0])
    assert subscriber.receive().body == numbers(1, 1)[0]
    assert replace(subscriber, recorded_topic, **start).succeeded
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "pause"}).succeeded
    publisher.publish_persisted(recorded_topic, numbers(2, 4), 2)
    subscriber.expect_silence()
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    assert bodies_of(subscriber.receive_published(3)) == numbers(2, 4)
    assert replace(subscriber, recorded_topic, "live", **start).succeeded
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "pause"}).reason == "invalid options"
    assert replace(subscriber, recorded_topic, "rate=1", **start).succeeded
    publisher.publish_persisted(recorded_topic, numbers(5, 14), 5)
    got = [subscriber.receive()]
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "pause"}).succeeded
    assert bodies_of(got) == numbers(5, 5)
    assert replace(subscriber, recorded_topic, "resume", **start).succeeded
    assert bodies_of(subscriber.receive_published(9)) == numbers(6, 14)
    subscriber.expect_silence()


def test_protocol_8_2_an_ordinary_subscription_becomes_a_replay_by_a_bookmark(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """protocol.md §8.2, transaction_log.md §7.4: as a new subscription with its options."""
    subscriber.subscribe(recorded_topic, "s")
    publisher.publish_persisted(recorded_topic, numbers(1, 3), 1)
    assert bodies_of(subscriber.receive_published(3)) == numbers(1, 3)
    ack = replace(subscriber, recorded_topic, "bookmark_not_found=fail", bm="1|1|")
    assert (ack.failed, ack.reason) == (True, "invalid bookmark")
    publisher.publish_persisted(recorded_topic, numbers(4, 4), 4)
    message = subscriber.receive()
    assert message.body == numbers(4, 4)[0]
    assert "bm" not in message  # the ordinary subscription goes on
    subscriber.send(
        {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace", "a": "completed",
         "bm": "[0:0|1|]"}
    )  # fmt: skip
    received = receive_until_completed(subscriber)
    assert bodies_of(published(received)) == numbers(1, 4)
    assert all(bookmarks_of(published(received)))
    publisher.publish_persisted(recorded_topic, numbers(5, 5), 5)
    subscriber.expect_silence()
    subscriber.subscribe(recorded_topic, "s")
    assert replace(subscriber, recorded_topic, bm="0", top_n=2).succeeded
    assert bodies_of(subscriber.receive_published(2)) == numbers(1, 2)
    subscriber.expect_silence()


def test_protocol_8_2_an_ordinary_subscription_goes_on_by_bookmark_without_a_gap(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """protocol.md §8.2: NOW is its current place, while other clients publish."""
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s")
    total = 3000

    def publish() -> None:
        for first in range(1, total + 1, 20):
            publisher.publish_all(recorded_topic, numbers(first, first + 19), first_sequence=first)

    thread = threading.Thread(target=publish)
    thread.start()
    received = subscriber.receive_published(200, 20)
    subscriber.send(
        {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace", "a": "processed",
         "bm": "0|1|"}
    )  # fmt: skip
    while len(published(received)) < total:
        received.append(subscriber.receive(20))
    thread.join()
    assert bodies_of(published(received)) == numbers(1, total)
    (answer,) = [place for place, message in enumerate(received) if message.is_ack("processed")]
    assert ["bm" in message for message in published(received)] == [place >= answer for place in range(total)]
    subscriber.expect_silence()


def test_transaction_log_7_4_a_replacement_without_a_bookmark_changes_every_option(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.4, §8, §11, §20 38: rate, conflation and a number of messages; place and end stay."""
    publisher.publish_persisted(recorded_topic, numbers(1, 20), 1)
    subscriber.subscribe(recorded_topic, "marks", bm="0")
    marks = [str(mark) for mark in bookmarks_of(subscriber.receive_published(20))]
    subscriber.unsubscribe("marks")
    subscriber.subscribe(recorded_topic, "s", bm=f"[0:{marks[14]}]", o="rate=1")
    received = [subscriber.receive()]
    for options in ("rate=1", "fully_durable,rate=1", "timestamp,rate=2"):
        assert replace(subscriber, recorded_topic, options).succeeded
    subscriber.send(
        {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace", "a": "completed"}
    )
    received += receive_until_completed(subscriber)
    assert bodies_of(published(received)) == numbers(1, 15)
    assert received[-1]["bm"] == marks[14]
    subscriber.expect_silence()  # the range has ended
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=1")
    subscriber.receive()
    assert replace(subscriber, recorded_topic, top_n=3).succeeded
    received = subscriber.receive_published(3)
    assert bodies_of(received) == numbers(2, 4)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=1")
    subscriber.receive()
    assert replace(subscriber, recorded_topic, "conflation=1000s,conflation_key=[/k]").succeeded
    subscriber.expect_silence()
    assert replace(subscriber, recorded_topic).succeeded  # a held message has the first bookmark
    received = published([subscriber.receive()])
    assert (bodies_of(received), bookmarks_of(received)) == (numbers(20, 20), [marks[1]])


@pytest.mark.parametrize("options", [None, "live", "pause"])
def test_transaction_log_24_a_replay_is_not_replaced_by_a_topic_that_is_not_recorded(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, topic: str, options: str | None
) -> None:
    """transaction_log.md §7.3, §20 5, §22 24: with a bookmark or without; the old one goes on."""
    subscriber.subscribe(recorded_topic, "s", bm="0|1|", **({} if options is None else {"o": options}))
    for start in ({}, {"bm": "0"}):
        ack = replace(subscriber, topic, **start)
        assert (ack.failed, ack.reason) == (True, "invalid topic")
    publisher.publish(recorded_topic, b"x")
    if options == "pause":
        assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    assert subscriber.receive().body == b"x"


@pytest.mark.parametrize("start", [{}, {"bm": "0"}])
def test_transaction_log_22_a_paused_replay_does_not_become_live(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, start: dict[str, str]
) -> None:
    """transaction_log.md §9 6, §20 22: failure, and the old one can be resumed."""
    publisher.publish_persisted(recorded_topic, numbers(1, 2), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="pause")
    assert replace(subscriber, recorded_topic, "live", **start).reason == "invalid options"
    subscriber.expect_silence()
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    assert bodies_of(subscriber.receive_published(2)) == numbers(1, 2)


@pytest.mark.parametrize("start", [{}, {"bm": "0"}])
def test_transaction_log_18_persisted_is_sent_if_a_replacement_asks_for_it(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, start: dict[str, str]
) -> None:
    """transaction_log.md §7.6, §20 18"""
    subscriber.subscribe(recorded_topic, "s", bm="0")
    subscriber.send(
        {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace", "a": "persisted",
         **start}
    )  # fmt: skip
    publisher.publish(recorded_topic, b"x")
    told = set()
    # On a slow machine the ack of its beginning may come before anything is published.
    while (message := subscriber.receive(20)).is_ack("persisted"):
        told.add(message["bm"])
    assert message.body == b"x"
    assert message["bm"] not in told
    while True:
        ack = subscriber.receive(20)
        assert ack.is_ack("persisted")
        if ack["bm"] == message["bm"]:
            break


@pytest.mark.parametrize("start", [{}, {"bm": "0"}])
def test_protocol_12_replace_with_pause_stands_still_until_it_is_resumed(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, start: dict[str, str]
) -> None:
    """protocol.md §10 D12, transaction_log.md §9 1: a replay, and a subscription that has caught up; an ordinary one
    only by bookmark.
    """
    publisher.publish_persisted(recorded_topic, numbers(1, 5), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=1")
    assert subscriber.receive().body == numbers(1, 1)[0]
    assert replace(subscriber, recorded_topic, "pause", f="/n > 3", **start).succeeded
    subscriber.expect_silence()
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    assert bodies_of(subscriber.receive_published(2)) == numbers(4, 5)
    assert replace(subscriber, recorded_topic, "pause,rate=100", **start).succeeded
    publisher.publish_persisted(recorded_topic, numbers(6, 7), 6)
    subscriber.expect_silence()
    ack = subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume,rate=10"})
    assert (ack.failed, ack.reason) == (True, "invalid options")  # that would be a replacement
    assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume,rate=100"}).succeeded
    assert bodies_of(subscriber.receive_published(2)) == numbers(6, 7)
    subscriber.subscribe(recorded_topic, "ordinary")
    ack = subscriber.try_subscribe(recorded_topic, "ordinary", o="replace,pause")
    assert (ack.failed, ack.reason) == (True, "invalid options")
    assert subscriber.try_subscribe(recorded_topic, "ordinary", o="replace,pause", bm="0").succeeded
    subscriber.expect_silence()


def test_transaction_log_16_a_replacement_has_the_end_of_its_own_range(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §5.3, §7.4: an end further away, nearer, already behind it, and none at all; a later
    beginning skips the messages before it.
    """
    publisher.publish_persisted(recorded_topic, numbers(1, 20), 1)
    subscriber.subscribe(recorded_topic, "marks", bm="0")
    marks = [str(mark) for mark in bookmarks_of(subscriber.receive_published(20))]
    subscriber.unsubscribe("marks")
    for range_, expected in (
        (f"[0:{marks[17]}]", numbers(1, 18)),
        (f"[0:{marks[4]})", numbers(1, 4)),
        (f"[0:{marks[0]})", numbers(1, 1)),
        (f"[{marks[9]}:{marks[11]}]", numbers(1, 1) + numbers(10, 12)),
    ):
        subscriber.subscribe(recorded_topic, "s", bm=f"[0:{marks[14]}]", o="rate=1")
        received = [subscriber.receive()]
        subscriber.send(
            {"c": "subscribe", "cid": "2", "t": recorded_topic, "sub_id": "s", "o": "replace",
             "a": "completed", "bm": range_}
        )  # fmt: skip
        received += receive_until_completed(subscriber)
        assert bodies_of(published(received)) == expected
        subscriber.expect_silence()
        subscriber.subscribe(recorded_topic, "s", bm="0|1|")  # the old subscription has ended
        subscriber.unsubscribe("s")
    subscriber.send(
        {"c": "subscribe", "cid": "1", "t": recorded_topic, "sub_id": "s", "o": "rate=1", "a": "completed",
         "bm": f"[0:{marks[14]}]"}
    )  # fmt: skip
    received = [subscriber.receive()]
    assert replace(subscriber, recorded_topic, bm="0").succeeded
    received += receive_until_completed(subscriber)
    assert bodies_of(published(received)) == numbers(1, 20)
    assert received[-1].is_ack("completed", "1")
    publisher.publish(recorded_topic, b"x")
    assert subscriber.receive().body == b"x"


def test_transaction_log_9_4_a_replaced_subscription_leaves_its_shared_replay(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §9 4, §7.4: it goes on from there with its own options; the others continue unchanged."""
    publisher.publish_persisted(recorded_topic, numbers(1, 30), 1)
    for sub_id in ("s", "other"):
        subscriber.subscribe(recorded_topic, sub_id, bm="0", o="pause,rate=20")
    assert subscriber.request({"c": "subscribe", "sub_id": "s,other", "o": "resume"}).succeeded
    received = [subscriber.receive(), subscriber.receive()]
    assert all(message.subscriptions == {"s", "other"} for message in received)
    assert replace(subscriber, recorded_topic, f="/n > 28").succeeded
    while sum("other" in message.subscriptions for message in received) < 30:
        received.append(subscriber.receive(20))
    for sub_id, expected in (("other", numbers(1, 30)), ("s", numbers(29, 30))):
        got = [message.body for message in received if sub_id in message.subscriptions]
        assert got[-len(expected) :] == expected
    # Both of its last messages came long before the end of the other subscription.
    assert [message.subscriptions for message in received].index({"s"}) < 15
    subscriber.expect_silence()


def test_transaction_log_5_a_replacement_by_bookmark_where_nothing_is_recorded(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """transaction_log.md §20 5 and 19: an expression is accepted, completes with `0` and delivers nothing."""
    client = peers.logged_on(plain_server)
    client.subscribe(f"^{topic}", "s")
    assert replace(client, topic, bm="0").reason == "invalid topic"
    client.publish(topic, b"1")
    assert client.receive().body == b"1"
    ack = client.request(
        {"c": "subscribe", "t": f"^{topic}", "sub_id": "s", "o": "replace,rate=5", "bm": "0"}, ack="completed"
    )
    assert (ack.succeeded, ack["bm"]) == (True, "0")
    client.publish(topic, b"2")
    client.expect_silence()
    assert replace(client, f"^{topic}", "pause").succeeded
    assert client.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    client.expect_silence()
