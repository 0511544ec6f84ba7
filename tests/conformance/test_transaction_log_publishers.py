"""Publisher identity, sequence numbers, persisted acks: transaction_log.md §4, §6, §22 10 to 13, 49, 50."""

import pytest

from tests.support.peer import RawClient, bodies_of, bookmarks_of
from tests.support.peers import SOON, Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies


@pytest.fixture
def publisher(peers: Peers, logged_server: ServerProcess) -> RawClient:
    return peers.logged_on(logged_server)


def replay(peers: Peers, server: ServerProcess, topic: str, count: int, start: str = "0") -> list[bytes]:
    """Replay exactly `count` messages of a topic: one more or less is an error."""
    subscriber = peers.logged_on(server)
    subscriber.send({"c": "subscribe", "t": topic, "bm": start, "sub_id": "r", "a": "processed,completed"})
    processed, *messages, completed = subscriber.receive_many(count + 2, timeout_s=60)
    assert processed.is_ack("processed"), processed
    assert processed.succeeded, processed
    assert completed.is_ack("completed"), f"more than {count} messages, e.g. {completed.body!r}"
    return bodies_of(messages)


def test_transaction_log_10_unnumbered_publishes_have_an_identity_of_their_own(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """transaction_log.md §22 10, §4.3: derived from name and instance, so the same on every connection."""
    publisher = peers.open(logged_server)
    name_hash = str(publisher.logon(unique)["bm"]).split("|")[0]
    publisher.publish_all(recorded_topic, numbered_bodies(3))
    publisher.flush("persisted")
    publisher.close()
    again = peers.logged_on(logged_server, name=unique)
    again.publish_all(recorded_topic, numbered_bodies(3, start=4))
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(recorded_topic, "s", bm="0")
    messages = subscriber.receive_published(6)
    assert bodies_of(messages) == numbered_bodies(6)
    parts = [bookmark.split("|") for bookmark in bookmarks_of(messages)]
    assert len({publisher_id for publisher_id, _, _ in parts}) == 1
    assert parts[0][0] != name_hash
    sequences = [int(sequence) for _, sequence, _ in parts]
    assert sequences == sorted(set(sequences))


def test_transaction_log_10_the_logon_ack_knows_only_own_numbers(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """transaction_log.md §4.3: server-made numbers never clash with the publisher's own."""
    first = peers.logged_on(logged_server, name=unique)
    first.publish_all(recorded_topic, numbered_bodies(5))
    first.flush("persisted")
    first.close()
    second = peers.open(logged_server)
    assert second.logon(unique, o=SOON)["s"] == 0
    second.publish_persisted(recorded_topic, [b"one"], 1)
    assert replay(peers, logged_server, recorded_topic, 6) == [*numbered_bodies(5), b"one"]


@pytest.mark.parametrize("zero", [b"0", b'"0"', b"00", b"-0"])
def test_transaction_log_4_2_zero_is_no_number(start_server: StartServer, peers: Peers, zero: bytes) -> None:
    """transaction_log.md §4.2: a sequence is above 0; a zero must neither be acknowledged as one nor harm the log."""
    server = start_server(log_topics=["^L"])
    client = peers.logged_on(server)
    client.publish_persisted("L", numbered_bodies(3), 1)
    client.send(b'{"c":"publish","t":"L","cid":"z","a":"persisted","s":%s}' % zero, b"zero")
    client.wait_for_ack("persisted", "z")
    client.publish_persisted("L", numbered_bodies(3, start=4), 4)
    server.restart()
    reader = peers.logged_on(server)
    reader.subscribe("L", "r", bm="0", a="processed,completed")
    bodies = [message.body for message in reader.receive_many(7) if message.command == "p"]
    assert [body for body in bodies if body != b"zero"] == numbered_bodies(6)


def test_transaction_log_11_numbers_only_rise(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 11"""
    for sequence in (1, 2, 3, 2, 3, 10, 5, 20):
        publisher.publish(recorded_topic, b"%d" % sequence, s=sequence)
    publisher.flush("persisted")
    assert replay(peers, logged_server, recorded_topic, 5) == [b"1", b"2", b"3", b"10", b"20"]


def test_transaction_log_12_numbers_are_per_publisher_not_per_topic(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §22 12"""
    publisher.publish(f"{recorded_topic}/t1", b"first", s=5)
    publisher.publish(f"{recorded_topic}/t2", b"second", s=5)
    publisher.flush("persisted")
    other = peers.logged_on(logged_server)
    other.publish(f"{recorded_topic}/t2", b"another publisher", s=5)
    other.flush("persisted")
    assert replay(peers, logged_server, f"^{recorded_topic}/", 2) == [b"first", b"another publisher"]


def test_transaction_log_12_numbers_used_for_other_topics_are_used(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, topic: str, unique: str
) -> None:
    """transaction_log.md §22 12, §20 43: a topic that is not recorded takes part in the sequence."""
    subscriber = peers.logged_on(logged_server)
    subscriber.subscribe(f"{unique}$", "s")
    publisher = peers.logged_on(logged_server)
    for name in (topic, topic, recorded_topic):
        publisher.publish(name, name.encode(), s=5)
    publisher.publish(recorded_topic, b"end", s=6)
    assert [m.body for m in subscriber.receive_until(b"end")] == [topic.encode()]


def test_transaction_log_13_the_last_sequence_survives_a_restart(
    start_server: StartServer, peers: Peers, unique: str
) -> None:
    """transaction_log.md §22 13"""
    server = start_server(log_topics=("t1",))
    publisher = peers.open(server)
    ack = publisher.logon(unique, o=SOON)
    assert ack["s"] == 0
    name_hash, sequence, _ = str(ack["bm"]).split("|")
    assert sequence == "0"
    publisher.publish_persisted("t1", numbered_bodies(7), 1)
    server.restart()
    publisher = peers.open(server)
    ack = publisher.logon(unique, o=SOON)
    assert (ack["s"], ack["bm"]) == (7, f"{name_hash}|7|")
    publisher.publish_persisted("t1", numbered_bodies(7), 1)
    assert replay(peers, server, "t1", 7) == numbered_bodies(7)
    publisher.publish_persisted("t1", [b"8"], 8)
    assert replay(peers, server, "t1", 8) == [*numbered_bodies(7), b"8"]


def test_transaction_log_49_the_old_connection_is_closed_before_the_new_one_publishes(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """transaction_log.md §22 49, §6: messages that the old connection sent in time count, and no message is there
    twice.
    """
    old = peers.logged_on(logged_server, name=unique)
    old.publish_all(recorded_topic, numbered_bodies(500), first_sequence=1)
    new = peers.open(logged_server)
    known = new.logon(unique, o=SOON)["s"]
    assert isinstance(known, int)
    new.publish_persisted(recorded_topic, numbered_bodies(1000 - known, start=known + 1), known + 1)
    assert replay(peers, logged_server, recorded_topic, 1000) == numbered_bodies(1000)
    old.wait_for_close()


def test_transaction_log_50_a_burst_has_few_acks(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §22 50"""
    publisher = peers.logged_on(logged_server, o="")
    publisher.publish_all(recorded_topic, numbered_bodies(1000), first_sequence=1, a="persisted", cid="c")
    acks = publisher.wait_for_persisted(1000)
    assert len(acks) < 20
    assert all("cid" not in ack for ack in acks)
    assert acks[-1]["s"] == 1000
    publisher.flush("persisted")
    publisher.expect_silence()


def test_transaction_log_1_3_duplicates_reach_no_subscriber(
    peers: Peers, logged_server: ServerProcess, publisher: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §4.2: a discarded duplicate is not delivered to plain subscriptions, either."""
    plain = peers.logged_on(logged_server)
    plain.subscribe(recorded_topic, "s")
    for sequence in (1, 2, 1, 2, 2, 3):
        publisher.publish(recorded_topic, b"%d" % sequence, s=sequence)
    assert bodies_of(plain.receive_published(3)) == [b"1", b"2", b"3"]
    plain.expect_silence()


def test_transaction_log_many_publishers_at_once(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §1 4: every publisher's messages in one order for all subscribers, none lost, none twice."""
    publishers = [peers.logged_on(logged_server) for _ in range(20)]
    for number, publisher in enumerate(publishers):
        bodies = [b"%d:%d" % (number, n) for n in range(200)]
        publisher.publish_all(recorded_topic, bodies, first_sequence=1, a="persisted")
    for publisher in publishers:
        publisher.wait_for_persisted(200)
    stored = replay(peers, logged_server, recorded_topic, 4000)
    for number in range(20):
        own = [body for body in stored if body.startswith(b"%d:" % number)]
        assert own == [b"%d:%d" % (number, n) for n in range(200)]
