"""Pause and resume: transaction_log.md §9, §20 23 to 25 and 45, §22 39 to 41; protocol.md §21 60."""

import threading

import pytest

from tests.support.peer import RawClient, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, numbered_bodies


def pause(client: RawClient, sub_ids: str, option: str = "pause") -> None:
    ack = client.request({"c": "subscribe", "sub_id": sub_ids, "o": option})
    assert ack.succeeded, ack
    assert ack["sub_id"] == sub_ids


def resume(client: RawClient, sub_ids: str) -> None:
    """Resume without waiting for the acknowledgement: messages may come before it."""
    client.send({"c": "subscribe", "sub_id": sub_ids, "o": "resume"})


def test_transaction_log_39_entered_paused_it_waits(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 39, §20 17: the whole replay comes when it is resumed, and `completed` then."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    subscriber.send({"c": "subscribe", "t": recorded_topic, "sub_id": "s", "bm": "0", "o": "pause",
                     "a": "processed,completed"})  # fmt: skip
    assert subscriber.wait_for_ack("processed").succeeded
    publisher.publish_persisted(recorded_topic, numbered_bodies(2, start=6), 6)
    subscriber.expect_nothing_for(1.0)
    resume(subscriber, "s")
    got = subscriber.receive_many(8)
    assert [m.body for m in got if m.command == "p"] == numbered_bodies(7)
    assert got[5].is_ack("completed")
    publisher.publish(recorded_topic, b"live", s=8)
    assert subscriber.receive().body == b"live"


def test_transaction_log_39_a_pause_in_the_middle_loses_nothing(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 39: several times over, with messages published meanwhile."""
    total = 20_000
    bodies = numbered_bodies(total, padding_bytes=200)
    publisher.publish_persisted(recorded_topic, bodies, 1)
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s", bm="0", o="rate=10000")
    got = subscriber.receive_published(1000)
    for round_ in range(3):
        subscriber.send(
            {"c": "subscribe", "sub_id": "s", "o": "pause", "cid": f"p{round_}", "a": "processed"}
        )
        while not (message := subscriber.receive()).is_ack("processed", f"p{round_}"):
            got.append(message)
        # Messages on their way may still arrive.
        assert len(got) < total
        subscriber.expect_silence()
        added = numbered_bodies(10, start=total + 1 + 10 * round_, padding_bytes=200)
        publisher.publish_persisted(recorded_topic, added, total + 1 + 10 * round_)
        bodies += added
        resume(subscriber, "s")
        got += subscriber.receive_published(2000)
    got += subscriber.receive_published(len(bodies) - len(got), timeout_s=60)
    assert bodies_of(got) == bodies
    assert len(set(bookmarks_of(got))) == len(bodies)


def test_transaction_log_39_a_caught_up_replay_can_be_paused(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §9 1, §20 24: twice is no failure; another subscription of the connection goes on."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(2), 1)
    for sub_id in ("a", "b"):
        subscriber.subscribe(recorded_topic, sub_id, bm="0")
        assert len(subscriber.receive_published(2)) == 2
    resume(subscriber, "a")
    pause(subscriber, "a")
    pause(subscriber, "a")
    publisher.publish_persisted(recorded_topic, numbered_bodies(2, start=3), 3)
    got = subscriber.receive_published(2)
    assert [m.subscriptions for m in got] == [{"b"}, {"b"}]
    subscriber.expect_silence()
    resume(subscriber, "a")
    got = subscriber.receive_published(2)
    assert bodies_of(got) == numbered_bodies(2, start=3)
    assert [m.subscriptions for m in got] == [{"a"}, {"a"}]
    publisher.publish(recorded_topic, b"live", s=5)
    assert bodies_of(subscriber.receive_published(2)) == [b"live", b"live"]


@pytest.mark.parametrize("options", ["", "rate=100000", "rate=100X"])
def test_transaction_log_40_resumed_together_they_share_a_replay(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, options: str
) -> None:
    """transaction_log.md §22 40, §20 45; protocol.md §21 60: in log order; a message for both comes once, with both
    ids.
    """
    topics = [f"{recorded_topic}/{name}" for name in ("a", "b", "c")]
    for number in range(300):
        publisher.publish(topics[number * number % 3 if number % 5 else 2], b"%d" % number)
    publisher.publish_persisted(topics[0], [b"end"], 1)
    subscriber.subscribe(f"^{recorded_topic}/", "reference", bm="0")
    reference = [(str(m["t"]), m.body) for m in subscriber.receive_published(301)]
    subscriber.unsubscribe("reference")
    for sub_id, topic in (("A", topics[0]), ("B", topics[1]), ("AB", f"^{recorded_topic}/[ab]$")):
        subscriber.subscribe(topic, sub_id, bm="0", o=f"pause,{options}")
    subscriber.send({"c": "subscribe", "t": recorded_topic, "sub_id": "A, B,AB", "o": "resume"})
    expected = [(topic, body) for topic, body in reference if topic != topics[2]]
    got = subscriber.receive_published(len(expected))
    assert [(m["t"], m.body) for m in got] == expected
    assert all(m.subscriptions == {"AB", "A" if m["t"] == topics[0] else "B"} for m in got)
    pause(subscriber, "B")
    publisher.publish(topics[0], b"a")
    publisher.publish(topics[1], b"b")
    publisher.publish_persisted(topics[2], [b"c"], 2)
    apart: list[tuple[bytes, str]] = []
    while len(apart) < 3:
        message = subscriber.receive()
        apart += [(message.body, sub_id) for sub_id in message.subscriptions]
    assert sorted(apart) == [(b"a", "A"), (b"a", "AB"), (b"b", "AB")]
    resume(subscriber, "B")
    message = subscriber.receive()
    assert (message.body, message.subscriptions) == (b"b", {"B"})


def test_transaction_log_40_at_different_places_each_has_its_own(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §9 4"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(4), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    second = bookmarks_of(subscriber.receive_published(4))[1]
    subscriber.unsubscribe("all")
    for sub_id, bookmark, options in (("a", "0", ""), ("b", second, ""), ("c", "0", ",rate=1000")):
        subscriber.subscribe(recorded_topic, sub_id, bm=bookmark, o=f"pause{options}")
    resume(subscriber, "a,b,c")
    got = subscriber.receive_published(10)
    by_id = {sub_id: [m.body for m in got if sub_id in m.subscriptions] for sub_id in "abc"}
    assert by_id == {"a": numbered_bodies(4), "b": numbered_bodies(2, start=3), "c": numbered_bodies(4)}
    assert all(len(m.subscriptions) == 1 for m in got)


def test_transaction_log_40_a_member_of_a_shared_replay_may_end(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """The other members receive every message."""
    bodies = numbered_bodies(20_000, padding_bytes=100)
    publisher.publish_persisted(recorded_topic, bodies, 1)
    for sub_id in ("a", "b", "c"):
        subscriber.subscribe(recorded_topic, sub_id, bm="0", o="pause")
    resume(subscriber, "a,b,c")
    got = subscriber.receive_published(10)
    for sub_id in ("a", "b"):
        subscriber.send({"c": "unsubscribe", "sub_id": sub_id})
    got += subscriber.receive_published(len(bodies) - 10, timeout_s=60)
    assert bodies_of(got) == bodies
    assert all("c" in m.subscriptions for m in got)
    publisher.publish(recorded_topic, b"live", s=20_001)
    message = subscriber.receive()
    assert (message.body, message.subscriptions) == (b"live", {"c"})


def test_transaction_log_41_a_disconnect_removes_paused_replays(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 41 (R23): the failure names the id."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(1), 1)
    name = peers.new_name()
    first = peers.logged_on(logged_server, name=name)
    first.subscribe(recorded_topic, "s", bm="0", o="pause")
    first.close()
    second = peers.logged_on(logged_server, name=name)
    ack = second.request({"c": "subscribe", "sub_id": "s", "t": recorded_topic, "o": "resume"})
    assert (ack["status"], ack.reason, ack["sub_id"]) == ("failure", "invalid sub id", "s")
    second.expect_silence()


@pytest.mark.parametrize("refused", ["gone", "ordinary", "paced"])
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("resume", [False, True])
def test_transaction_log_41_all_are_paused_or_resumed_or_none(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, refused: str, place: str, resume: bool
) -> None:
    """transaction_log.md §20, 23: one that cannot be paused or resumed leaves the others of the list unchanged."""
    subscriber.subscribe(recorded_topic, "s", bm="0", o="pause" if resume else "")
    subscriber.subscribe(f"{recorded_topic}/other", "ordinary")
    subscriber.subscribe(f"{recorded_topic}/other", "paced", bm="0", o="rate=5")
    names = f"{refused},s" if place == "first" else f"s,{refused}"
    option = "resume" if resume else "pause"
    terms = ",rate=7" if refused == "paced" else ""
    ack = subscriber.request({"c": "subscribe", "sub_id": names, "o": option + terms})
    wanted = ("invalid sub id", refused) if refused == "gone" else ("invalid options", names)
    assert (ack["status"], ack.reason, ack["sub_id"]) == ("failure", *wanted)
    publisher.publish_persisted(recorded_topic, numbered_bodies(1), 1)
    if resume:
        subscriber.expect_nothing_for(0.5)
        assert subscriber.request({"c": "subscribe", "sub_id": "s", "o": "resume"}).succeeded
    assert subscriber.receive().subscriptions == {"s"}


def test_transaction_log_41_all_unknown_ids_are_named(subscriber: RawClient, recorded_topic: str) -> None:
    """transaction_log.md §20, 23: in a field of their own, once each; the reason is one text."""
    subscriber.subscribe(recorded_topic, "s", bm="0")
    ack = subscriber.request({"c": "subscribe", "sub_id": "a, s,b,a", "o": "pause"})
    assert (ack["status"], ack.reason, ack["sub_id"]) == ("failure", "invalid sub id", "a,b")


def test_transaction_log_38_only_replays_can_be_paused(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §20 22, protocol.md §21 60"""
    subscriber.subscribe(recorded_topic, "ordinary")
    subscriber.subscribe(recorded_topic, "live", bm="0|1|", o="live")
    for sub_id in ("ordinary", "live"):
        for option in ("pause", "resume"):
            ack = subscriber.request({"c": "subscribe", "sub_id": sub_id, "o": option})
            assert (ack["status"], ack.reason) == ("failure", "invalid options")
    for option in ("live,pause", "live,resume", "pause,resume", "replace,pause", "replace,resume"):
        ack = subscriber.request({"c": "subscribe", "sub_id": "ordinary", "o": option})
        assert (ack["status"], ack.reason) == ("failure", "invalid options")
    ack = subscriber.request({"c": "subscribe", "t": recorded_topic, "sub_id": "new", "o": "pause"})
    assert ack.failed
    publisher.publish(recorded_topic, b"x")
    assert subscriber.receive().subscriptions == {"ordinary", "live"}


def test_transaction_log_39_pausing_at_random_under_load(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §9 1: while others publish, through cutover and back."""
    total = 8000
    bodies = numbered_bodies(total)
    subscriber = peers.logged_on(logged_server)

    def publish() -> None:
        for first in range(0, total, 40):
            publisher.publish_all(recorded_topic, bodies[first : first + 40], first_sequence=first + 1)

    thread = threading.Thread(target=publish)
    thread.start()
    for sub_id in ("a", "b"):
        subscriber.subscribe(recorded_topic, sub_id, bm="0")
    for round_ in range(60):
        for option in ("pause", "resume"):
            subscriber.send({"c": "subscribe", "sub_id": ("a", "a,b", "b")[round_ % 3], "o": option})
    thread.join()
    resume(subscriber, "a,b")
    got: dict[str, list[bytes]] = {"a": [], "b": []}
    while min(map(len, got.values())) < total:
        message = subscriber.receive()
        for sub_id in message.subscriptions:
            got[sub_id].append(message.body)
    assert got == {"a": bodies, "b": bodies}
