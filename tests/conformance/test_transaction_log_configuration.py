"""The choice of recorded messages: transaction_log.md §2 and the behaviours 27 to 29, 33 of §22."""

import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.server import StartServer, Transport


def test_transaction_log_27_recording_starts_with_the_configuration(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 27"""
    server = start_server(log_topics=("t1",))
    peers.logged_on(server).publish("plain", b"before")
    server.restart(log_topics=("t1", "plain"))
    publisher = peers.logged_on(server)
    publisher.publish("plain", b"after", s=1)
    subscriber = peers.logged_on(server)
    subscriber.subscribe("plain", "s", bm="0")
    assert subscriber.receive().body == b"after"
    subscriber.expect_silence()


def test_transaction_log_27_a_topic_no_longer_recorded(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §7.3: a topic that is no longer configured gives an error, whatever old journals hold."""
    server = start_server(log_topics=("t1", "t2"))
    peers.logged_on(server).publish_persisted("t2", [b"1"], 1)
    server.restart(log_topics=("t1",))
    ack = peers.logged_on(server).try_subscribe("t2", "s", bm="0")
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")


def test_transaction_log_28_a_log_without_topics(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §22 28: journals exist, nothing is recorded, every publish gets its own ack."""
    server = start_server(name="L1", log_topics=())
    assert [p.name for p in server.journals()] == ["L1.0000000000.journal", "L1.0000000001.journal"]
    client = peers.logged_on(server)
    for number in range(1, 6):
        client.publish("t1", b"nothing of this is stored", s=number, a="persisted", cid=f"c{number}")
    acks = client.receive_many(5)
    assert [ack["cid"] for ack in acks] == [f"c{number}" for number in range(1, 6)]
    assert all(ack.is_ack("persisted") and ack.succeeded for ack in acks)
    ack = client.try_subscribe("t1", "s", bm="0")
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")
    assert all(b"nothing of this is stored" not in p.read_bytes() for p in server.journals())


@pytest.mark.parametrize(
    ("regex_support", "covered", "other"),
    [
        ("true", ["xLOG_1", "LOG_", "LOG_.*"], ["LOG", "log_1"]),
        ("false", ["LOG_.*"], ["xLOG_1", "LOG_1", "LOG"]),
    ],
)
def test_transaction_log_29_names_of_recorded_topics(
    start_server: StartServer, peers: Peers, regex_support: str, covered: list[str], other: list[str]
) -> None:
    """transaction_log.md §22 29"""
    server = start_server(
        log_topics=("LOG_.*",), instance_xml=f"<RegexTopicSupport>{regex_support}</RegexTopicSupport>"
    )
    client = peers.logged_on(server)
    for topic in covered:
        client.subscribe(topic, topic, bm="0", o="non_regex_topic")
        client.publish(topic, topic.encode())
        assert client.receive().body == topic.encode()
    for topic in other:
        ack = client.try_subscribe(topic, topic, bm="0", o="non_regex_topic")
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")


@pytest.mark.parametrize("name", ["A", "^A$"])
def test_transaction_log_2_the_message_type_counts(
    start_server: StartServer, peers: Peers, name: str
) -> None:
    """transaction_log.md §1 2, §2: json `A` and fix `A` are different topics."""
    server = start_server(transports=(Transport("any", message_type=None),), log_topics=((name, "json"),))
    json_client = peers.logged_on(server, mt="json")
    fix_client = peers.logged_on(server, mt="fix")
    fix_client.publish("A", b"fix")
    fix_client.flush()
    json_client.publish_persisted("A", [b"json"], 1)
    json_client.subscribe("A", "s", bm="0")
    assert json_client.receive().body == b"json"
    json_client.expect_silence()
    ack = fix_client.try_subscribe("A", "s", bm="0")
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")


def test_transaction_log_2_both_types_recorded_are_kept_apart(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §2: also in a replay by regex, and after a restart."""
    server = start_server(
        transports=(Transport("any", message_type=None),), log_topics=((".*", "json"), (".*", "fix"))
    )
    for message_type in ("json", "fix"):
        publisher = peers.logged_on(server, mt=message_type)
        publisher.publish_persisted("A", [message_type.encode()] * 3, 1)
    for _ in range(2):
        for message_type in ("json", "fix"):
            subscriber = peers.logged_on(server, mt=message_type)
            subscriber.subscribe(".*", "s", bm="0")
            assert bodies_of(subscriber.receive_published(3)) == [message_type.encode()] * 3
            subscriber.expect_silence()
        server.restart()


def test_transaction_log_2_several_matching_entries_record_once(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §2"""
    server = start_server(log_topics=("t1", "t.*", ".*"))
    client = peers.logged_on(server)
    client.publish_persisted("t1", [b"1", b"2"], 1)
    client.subscribe("^t1$", "s", bm="0")
    assert bodies_of(client.receive_published(2)) == [b"1", b"2"]
    client.expect_silence()


def test_transaction_log_33_bookmarks_on_ordinary_subscriptions(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 33"""
    server = start_server(log_topics=("t1",))
    publisher, subscriber = peers.logged_on(server), peers.logged_on(server)
    publisher.publish_persisted("t1", [b"old"], 1)
    subscriber.subscribe("t1", "s", o="bookmark")
    subscriber.subscribe("plain", "p", o="bookmark")
    publisher.publish("t1", b"new", s=2)
    publisher.publish("plain", b"unrecorded", s=3)
    recorded, unrecorded = subscriber.receive_published(2)
    assert (recorded.body, str(recorded["bm"])[-3:]) == (b"new", "|2|")
    assert unrecorded.body == b"unrecorded"
    assert "bm" not in unrecorded


# Recording by content (transaction_log.md §20, 1)

FILTERED = "".join(
    f"<Topic><Name>{name}</Name><MessageType>json</MessageType>{content}</Topic>"
    for name, content in (
        ("^F/", "<Filter>/keep = 1 OR CORRELATION_ID() = 'keep'</Filter>"),
        ("^F/named$", "<Filter>CLIENT_NAME() LIKE '^keeper'</Filter>"),
        ("^F/all$", ""),
    )
)


def test_transaction_log_filter_selects_recorded_messages(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §20 1: a message that does not match is delivered live, but to no bookmark subscription."""
    server = start_server(log_topics=(), journal_xml=FILTERED)
    publisher = peers.logged_on(server)
    live = peers.logged_on(server)
    live.subscribe("F/a", "live", o="bookmark")
    by_bookmark = peers.logged_on(server)
    by_bookmark.subscribe("F/a", "literal", bm="0")
    by_bookmark.subscribe("^F/a$", "regex", bm="0")
    ahead = peers.logged_on(server)
    ahead.subscribe("F/a", "ahead", bm="0", o="live")
    bodies = [b'{"keep":1,"n":1}', b'{"keep":0,"n":2}', b"nonsense", b'{"n":4}', b'{"keep":1,"n":5}']
    for number, body in enumerate(bodies, 1):
        publisher.publish("F/a", body, s=number, a="persisted", **({"x": "keep"} if number == 4 else {}))
    publisher.wait_for_persisted(5)
    kept = [bodies[0], bodies[3], bodies[4]]
    received = live.receive_published(5)
    assert bodies_of(received) == bodies
    assert ["bm" in message for message in received] == [body in kept for body in bodies]
    assert sorted(bodies_of(by_bookmark.receive_published(6))) == sorted(kept * 2)
    assert bodies_of(ahead.receive_published(3)) == kept
    for client in (live, by_bookmark, ahead):
        client.expect_silence()
    assert all(
        b'"keep":0' not in p.read_bytes() and b"nonsense" not in p.read_bytes() for p in server.journals()
    )
    server.restart()
    late = peers.logged_on(server)
    late.subscribe("F/a", "late", bm="0")
    assert bodies_of(late.receive_published(3)) == kept
    late.expect_silence()


def test_transaction_log_filters_of_several_topics_are_alternatives(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §20 1: a message is recorded if any Topic element selects it."""
    server = start_server(log_topics=(), journal_xml=FILTERED)
    keeper = peers.logged_on(server, name="keeper 1")
    other = peers.logged_on(server, name="other")
    subscriber = peers.logged_on(server)
    subscriber.subscribe("^F/", "s", bm="0")
    for topic, body in (("F/named", b'{"keep":0}'), ("F/all", b'{"keep":0}'), ("F/a", b'{"keep":0}')):
        keeper.publish(topic, body)
        keeper.flush()
        other.publish(topic, body.replace(b"0", b"2"))
        other.flush()
    got = [(message["t"], message.body) for message in subscriber.receive_published(3)]
    assert got == [("F/named", b'{"keep":0}'), ("F/all", b'{"keep":0}'), ("F/all", b'{"keep":2}')]
    subscriber.expect_silence()


def test_transaction_log_large_messages_are_filtered_too(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §20 1: large messages reach the core through spill files."""
    server = start_server(log_topics=(), journal_xml=FILTERED, journal_size="100MB")
    client = peers.logged_on(server)
    client.subscribe("F/a", "s", o="bookmark")
    for number, keep in ((1, b"0"), (2, b"1")):
        client.publish("F/a", b'{"fill":"' + b"x" * (20 << 20) + b'","keep":' + keep + b"}", s=number)
        assert ("bm" in client.receive_published(1, timeout_s=60)[0]) == (keep == b"1")


def test_transaction_log_a_filter_that_is_none_stops_the_start(make_server: StartServer) -> None:
    """expressions.md §14.7"""
    broken = FILTERED.replace("/keep = 1 OR", "/keep = OR")
    assert "this filter cannot be used" in make_server(log_topics=(), journal_xml=broken).start_refused()
