"""Replays: transaction_log.md §5, §7, §10, §15, §22 1 to 9, 22 to 25, 38, 48, 53, 68."""

import re
import threading

import pytest

from tests.support.peer import RawClient, bodies_of, bookmarks_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies


def test_transaction_log_1_epoch_replays_everything(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 1"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    messages = subscriber.receive_published(5)
    assert bodies_of(messages) == numbered_bodies(5)
    for message in messages:
        assert set(message.header) == {"c", "t", "sids", "bm", "l"}
    subscriber.expect_silence()


def test_transaction_log_2_now_starts_with_the_next(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 2"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    subscriber.subscribe(recorded_topic, "s", bm="0|1|")
    publisher.publish(recorded_topic, b"sixth", s=6)
    (message,) = subscriber.receive_published(1)
    assert message.body == b"sixth"
    assert "bm" in message


def test_transaction_log_3_a_bookmark_in_the_middle(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 3"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(5), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    bookmarks = bookmarks_of(subscriber.receive_published(5))
    subscriber.unsubscribe("all")
    for position, bookmark in enumerate(bookmarks, start=1):
        subscriber.subscribe(recorded_topic, f"from{position}", bm=bookmark)
        rest = subscriber.receive_published(5 - position) if position < 5 else []
        assert bodies_of(rest) == numbered_bodies(5)[position:]
        subscriber.expect_silence()
        subscriber.unsubscribe(f"from{position}")


def test_transaction_log_4_completed_marks_the_cutover(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 4"""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    subscriber.send({"c": "subscribe", "t": recorded_topic, "bm": "0", "sub_id": "s", "cid": "1",
                     "a": "processed,completed"})  # fmt: skip
    start = subscriber.receive_many(5)
    publisher.publish_all(recorded_topic, numbered_bodies(3, start=4), first_sequence=4)
    assert [m.get("a") for m in start] == ["processed", None, None, None, "completed"]
    assert bodies_of([*start[1:4], *subscriber.receive_published(3)]) == numbered_bodies(6)


def test_transaction_log_5_cutover_under_full_speed(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 5: several subscribers entering at different moments, on both workers."""
    total = 20_000
    bodies = numbered_bodies(total)
    subscribers = [peers.logged_on(logged_server) for _ in range(4)]

    def publish() -> None:
        for first in range(0, total, 100):
            publisher.publish_all(recorded_topic, bodies[first : first + 100], first_sequence=first + 1)

    thread = threading.Thread(target=publish)
    thread.start()
    for subscriber in subscribers:
        subscriber.subscribe(recorded_topic, "s", bm="0", a="processed,completed")
    for subscriber in subscribers:
        messages = [m for m in subscriber.receive_many(total + 1, timeout_s=60) if m.command == "p"]
        assert bodies_of(messages) == bodies
        assert [bookmark.split("|")[1] for bookmark in bookmarks_of(messages)] == [
            str(sequence) for sequence in range(1, total + 1)
        ]
    thread.join()


def test_transaction_log_6_one_order_for_all_subscribers(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §22 6: whenever a subscriber enters, and after a restart."""
    server = start_server(log_topics=("t1",))
    publishers = [peers.logged_on(server), peers.logged_on(server)]
    early, late = peers.logged_on(server), peers.logged_on(server)
    early.subscribe("t1", "s", bm="0")
    count = 3000

    def publish(number: int) -> None:
        bodies = [b"%d:%d" % (number, n) for n in range(count)]
        for first in range(0, count, 50):
            publishers[number].publish_all("t1", bodies[first : first + 50], first_sequence=first + 1)

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    late.subscribe("t1", "s", bm="0")
    seen = [
        [(m["bm"], m.body) for m in subscriber.receive_published(2 * count, timeout_s=60)]
        for subscriber in (early, late)
    ]
    for thread in threads:
        thread.join()
    server.restart()
    third = peers.logged_on(server)
    third.subscribe("t1", "s", bm="0")
    seen.append([(m["bm"], m.body) for m in third.receive_published(2 * count, timeout_s=60)])
    assert seen[0] == seen[1]
    assert seen[0] == seen[2]


def test_transaction_log_7_order_holds_across_topics(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 7"""
    published = [(f"{recorded_topic}/t{1 + n % 2 if n % 3 else 3}", b"%d" % n) for n in range(300)]
    for topic, body in published:
        publisher.publish(topic, body)
    publisher.flush("persisted")
    subscriber.subscribe(f"^{recorded_topic}/t[12]$", "s", bm="0")
    expected = [(topic, body) for topic, body in published if not topic.endswith("t3")]
    assert [(m["t"], m.body) for m in subscriber.receive_published(len(expected))] == expected


def test_transaction_log_9_a_bookmark_is_publisher_and_sequence(
    peers: Peers, logged_server: ServerProcess, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 9: the publisher id is the name hash in the logon ack."""
    publisher = peers.open(logged_server)
    name_hash = str(publisher.logon(peers.new_name())["bm"]).split("|")[0]
    sequences = [1, 2, 10, 2**40, 2**63, 2**64 - 1]
    for sequence in sequences:
        publisher.publish(recorded_topic, b"x", s=sequence)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    expected = [f"{name_hash}|{sequence}|" for sequence in sequences]
    assert bookmarks_of(subscriber.receive_published(len(sequences))) == expected
    for position, bookmark in enumerate(expected[:-1], start=1):
        subscriber.subscribe(recorded_topic, f"s{position}", bm=bookmark)
        assert bookmarks_of(subscriber.receive_published(len(sequences) - position)) == expected[position:]


def test_transaction_log_23_one_known_bookmark_is_enough(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 23; §7.2: whatever `bookmark_not_found` says."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(4), 1)
    subscriber.subscribe(recorded_topic, "all", bm="0")
    second = bookmarks_of(subscriber.receive_published(4))[1]
    subscriber.unsubscribe("all")
    for action in ("fail", "epoch", "now"):
        options = f"bookmark_not_found={action}"
        subscriber.subscribe(recorded_topic, action, bm=f"1|1|,{second}", o=options)
        assert bodies_of(subscriber.receive_published(2)) == numbered_bodies(2, start=3)
        subscriber.unsubscribe(action)


def test_transaction_log_25_a_regex_sees_recorded_topics_only(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 25: a client that connects adds nothing, and `live` makes no difference."""
    server = start_server(log_topics=("t1", "^a/"))
    replaying, live, ordinary, publisher = (peers.logged_on(server) for _ in range(4))
    replaying.subscribe(".*", "s", bm="0|1|")
    live.subscribe(".*", "s", bm="0|1|", o="live")
    ordinary.subscribe("^[^/]|^a/", "s")
    peers.logged_on(server)
    for topic in ("t1", "plain", "a/x", "b/a/x", "xt1"):
        publisher.publish(topic, topic.encode())
    publisher.publish("t1", b"end")
    assert bodies_of(replaying.receive_until(b"end")) == [b"t1", b"a/x"]
    assert bodies_of(live.receive_until(b"end")) == [b"t1", b"a/x"]
    assert bodies_of(ordinary.receive_until(b"end")) == [b"t1", b"plain", b"a/x", b"b/a/x", b"xt1"]


def test_transaction_log_25_a_regex_may_match_nothing_recorded_yet(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §20 5"""
    subscriber.subscribe(f"^{recorded_topic}/later$", "s", bm="0")
    publisher.publish(f"{recorded_topic}/later", b"1")
    assert subscriber.receive().body == b"1"


CONFLICTS = ["live,rate=10", "live,pause", "live,fully_durable", "rate_max_gap=1s", "rate=0", "live,resume"]


@pytest.mark.parametrize("options", CONFLICTS)
def test_transaction_log_38_conflicting_options_fail(
    subscriber: RawClient, recorded_topic: str, options: str
) -> None:
    """transaction_log.md §22 38 (R22)"""
    ack = subscriber.try_subscribe(recorded_topic, "s", bm="0", o=options)
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_transaction_log_48_requests_that_cannot_replay(subscriber: RawClient, recorded_topic: str) -> None:
    """transaction_log.md §22 48"""
    ack = subscriber.request({"c": "delta_subscribe", "t": recorded_topic, "bm": "0"})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")
    aggregated = "projection=[COUNT(/id) AS /n],grouping=[/c]"
    assert subscriber.try_subscribe(recorded_topic, "s", bm="0", o=aggregated).failed
    assert subscriber.try_subscribe(recorded_topic, "s", top_n=2).failed
    assert subscriber.try_subscribe(recorded_topic, "s", top_n=2, bm="0|1|").failed
    subscriber.subscribe(recorded_topic, "s", bm="0|1|")


def test_transaction_log_53_completed_names_its_place(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 53: also when no message matched; resuming there replays nothing older."""
    publisher.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    for topic, matching in ((recorded_topic, 3), (f"{recorded_topic}/nothing", 0)):
        client = peers.logged_on(logged_server)
        client.send({"c": "subscribe", "t": topic, "bm": "0", "sub_id": "s", "a": "processed,completed"})
        *_, completed = client.receive_many(matching + 2)
        assert completed.is_ack("completed")
        bookmark = str(completed["bm"])
        assert re.fullmatch(r"\d+\|\d+\|", bookmark)
        resumed = peers.logged_on(logged_server)
        resumed.subscribe(f"^{recorded_topic}", "s", bm=bookmark, o="bookmark_not_found=fail")
        publisher.publish(recorded_topic, b"after")
        assert resumed.receive().body == b"after"


def test_transaction_log_53_completed_of_now_is_the_end_of_the_log(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 53, §20 16: the last message before, whatever its topic."""
    server = start_server(log_topics=("^t",))
    client, publisher = peers.logged_on(server), peers.logged_on(server)
    client.subscribe("t2", "s", bm="0")
    publisher.publish_persisted("t1", numbered_bodies(3), 1)
    publisher.publish_persisted("t2", [b"last"], 4)
    last = client.receive()["bm"]
    client.send({"c": "subscribe", "t": "t1", "bm": "0|1|", "sub_id": "now", "a": "completed"})
    assert client.receive()["bm"] == last


def test_transaction_log_53_completed_on_an_empty_log(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §20 19: the bookmark is `0`; for NOW `completed` comes at once (§20 16)."""
    server = start_server(log_topics=("t1",))
    client = peers.logged_on(server)
    for bookmark in ("0", "0|1|", "1|1|"):
        client.send(
            {"c": "subscribe", "t": "t1", "bm": bookmark, "cid": bookmark, "a": "processed,completed"}
        )
        processed, completed = client.receive_many(2)
        assert processed.succeeded
        assert completed.is_ack("completed", bookmark)
        assert completed["bm"] == "0"


INVALID = ["[A:B", "A:B]", "[:]", "abc", "2015-01-02", "20150102T000000+0100", "1|", "|1|", "1|x|",
           "-1|2|", "1|2|,abc", ",", "1||",
           "18446744073709551616|1|", "1|18446744073709551616|", "0|2x|", "20240301", "[1|1|]"]  # fmt: skip


@pytest.mark.parametrize("bookmark", INVALID)
def test_transaction_log_68_malformed_bookmarks_fail(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, bookmark: str
) -> None:
    """transaction_log.md §22 68 (R6), §5.3: no subscription."""
    ack = subscriber.try_subscribe(recorded_topic, "s", bm=bookmark)
    assert (ack["status"], ack.reason) == ("failure", "invalid bookmark")
    publisher.publish(recorded_topic, b"1")
    publisher.flush("persisted")
    subscriber.expect_silence()


@pytest.mark.parametrize("bookmark", ["7|8", "7|8|", "7|8|extra", "7|8|extra|", " 7|8| ", "7|8|,9|9"])
def test_transaction_log_68_forms_of_a_bookmark(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str, bookmark: str
) -> None:
    """transaction_log.md §5.3, §20 41: a third part is ignored, blanks are skipped."""
    subscriber.subscribe(recorded_topic, "s", bm=bookmark)
    publisher.publish(recorded_topic, b"1")
    assert subscriber.receive().body == b"1"


def test_transaction_log_7_5_replace_of_a_replay_replays_nothing_again(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.4: the new topic applies from the replace point on."""
    for name in ("a", "b"):
        publisher.publish(f"{recorded_topic}/{name}", b"old " + name.encode())
    publisher.flush("persisted")
    subscriber.subscribe(f"{recorded_topic}/a", "s", bm="0")
    assert subscriber.receive().body == b"old a"
    assert subscriber.try_subscribe(f"{recorded_topic}/b", "s", bm="0", o="replace").succeeded
    for name in ("a", "b"):
        publisher.publish(f"{recorded_topic}/{name}", b"new " + name.encode())
    assert subscriber.receive().body == b"new b"
    subscriber.expect_silence()


def test_transaction_log_1_only_logged_copies_are_delivered_to_replays(
    publisher: RawClient, subscriber: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §1 9: a message that a default bookmark subscriber has received is durable; each
    comes once.
    """
    subscriber.subscribe(recorded_topic, "s", bm="0")
    for sequence in range(1, 301):
        publisher.publish(recorded_topic, b"%d" % sequence, s=sequence)
        if sequence % 50 == 0:
            publisher.flush("persisted")
    assert bodies_of(subscriber.receive_published(300)) == [b"%d" % sequence for sequence in range(1, 301)]
    subscriber.expect_silence()


def test_transaction_log_many_replays_at_once(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.7: thirty replays of different starting points, each complete and in order."""
    total = 5000
    bodies = numbered_bodies(total)
    publisher.publish_persisted(recorded_topic, bodies, 1)
    reader = peers.logged_on(logged_server)
    reader.subscribe(recorded_topic, "s", bm="0")
    bookmarks = bookmarks_of(reader.receive_published(total))
    starts = range(100, total, 160)
    clients = [peers.logged_on(logged_server) for _ in starts]
    for client, start in zip(clients, starts, strict=True):
        client.subscribe(recorded_topic, "s", bm=bookmarks[start])
    for client, start in zip(clients, starts, strict=True):
        assert bodies_of(client.receive_published(total - start - 1)) == bodies[start + 1 :]
