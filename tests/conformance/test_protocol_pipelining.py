"""Commands of one connection take effect in the order they were sent (protocol.md §4, §5)."""

import threading

import pytest

from tests.support.peer import RawClient, bodies_of, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, numbered_bodies


@pytest.fixture
def client(peers: Peers, logged_server: ServerProcess) -> RawClient:
    return peers.logged_on(logged_server)


def test_protocol_4_a_whole_session_in_one_write(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """protocol.md §4, §6: logon, subscribe, publish, flush sent at once."""
    client = peers.open(logged_server)
    client.send_bytes(
        frame({"c": "logon", "client_name": unique, "cid": "1", "a": "processed"})
        + frame({"c": "subscribe", "t": recorded_topic, "sub_id": "s", "cid": "2", "a": "processed"})
        + frame({"c": "p", "t": recorded_topic, "s": 1}, b"one")
        + frame({"c": "flush", "cid": "3", "a": "persisted"})
    )
    arrived = client.receive_many(4)
    assert [m.get("cid") for m in arrived if m.command == "ack"] == ["1", "2", "3"]
    assert [m.body for m in arrived if m.command == "p"] == [b"one"]


@pytest.mark.parametrize("bookmark", [{}, {"bm": "0|1|"}, {"bm": "0"}], ids=["plain", "now", "epoch"])
def test_protocol_4_a_subscription_sees_the_next_publish(
    client: RawClient, recorded_topic: str, bookmark: dict[str, str]
) -> None:
    """protocol.md §4: a subscribe directly followed by a publish."""
    for number in range(50):
        topic = f"{recorded_topic}/{number}"
        client.send_bytes(
            frame({"c": "subscribe", "t": topic, "sub_id": f"s{number}", **bookmark})
            + frame({"c": "p", "t": topic}, b"%d" % number)
        )
    got = {m["sids"]: m.body for m in client.receive_published(50)}
    assert got == {f"s{number}": b"%d" % number for number in range(50)}
    client.expect_silence()


@pytest.mark.parametrize("bookmark", [{}, {"bm": "0|1|"}], ids=["plain", "now"])
def test_protocol_4_earlier_publishes_are_not_seen(
    client: RawClient, recorded_topic: str, bookmark: dict[str, str]
) -> None:
    """protocol.md §8: `all new messages`; §8.1 now: no replay."""
    for number in range(50):
        topic = f"{recorded_topic}/{number}"
        client.send_bytes(
            frame({"c": "p", "t": topic}, b"early")
            + frame({"c": "subscribe", "t": topic, "sub_id": f"s{number}", **bookmark})
            + frame({"c": "p", "t": topic}, b"late")
        )
    assert bodies_of(client.receive_published(50)) == [b"late"] * 50
    client.expect_silence()


def test_protocol_4_an_unsubscribe_ends_before_the_next_publish(
    client: RawClient, recorded_topic: str
) -> None:
    """protocol.md §11.1: plain and bookmark subscriptions."""
    for number, bookmark in enumerate([{}, {"bm": "0"}] * 20):
        topic = f"{recorded_topic}/{number}"
        client.send_bytes(
            frame({"c": "subscribe", "t": topic, "sub_id": "s", **bookmark})
            + frame({"c": "unsubscribe", "sub_id": "s"})
            + frame({"c": "p", "t": topic}, b"x")
        )
    client.flush("persisted")
    client.expect_silence()


def test_transaction_log_4_completed_comes_after_all_earlier_publishes(
    client: RawClient, recorded_topic: str
) -> None:
    """transaction_log.md §7.6: `completed` is the place in the log where the subscribe was received."""
    bodies = numbered_bodies(1000)
    burst = b"".join(frame({"c": "p", "t": recorded_topic, "s": n}, b) for n, b in enumerate(bodies, start=1))
    subscribe = {"c": "subscribe", "t": recorded_topic, "bm": "0", "sub_id": "s", "a": "completed"}
    client.send_bytes(burst + frame(subscribe) + frame({"c": "p", "t": recorded_topic, "s": 1001}, b"after"))
    arrived = client.receive_many(1002)
    assert bodies_of(arrived[:1000]) == bodies
    assert arrived[1000].is_ack("completed")
    assert str(arrived[1000]["bm"]).endswith("|1000|")
    assert arrived[1001].body == b"after"


def test_protocol_4_order_across_recorded_and_other_topics(
    peers: Peers, logged_server: ServerProcess, unique: str
) -> None:
    """protocol.md §4, transaction_log.md §1 5: one order for all plain subscriptions, recorded or not."""
    subscribers = [peers.logged_on(logged_server) for _ in range(4)]
    for subscriber in subscribers:
        subscriber.subscribe(f"{unique}/.*", "s")
    publishers = [peers.logged_on(logged_server) for _ in range(2)]

    def publish(index: int) -> None:
        for number in range(500):
            root = "L" if number % 3 else "plain"
            publishers[index].publish(f"{root}/{unique}/{number % 7}", b"%d:%d" % (index, number))

    threads = [threading.Thread(target=publish, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    seen = [bodies_of(subscriber.receive_published(1000)) for subscriber in subscribers]
    for thread in threads:
        thread.join()
    assert all(order == seen[0] for order in seen[1:])
    for index in range(2):
        own = [body for body in seen[0] if body.startswith(b"%d:" % index)]
        assert own == [b"%d:%d" % (index, number) for number in range(500)]


def test_transaction_log_8_epoch_and_now_in_a_list(
    client: RawClient, peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """transaction_log.md §20 8: EPOCH is earliest of all, NOW latest; both count as found."""
    client.publish_persisted(recorded_topic, numbered_bodies(3), 1)
    client.subscribe(recorded_topic, "all", bm="0")
    second = client.receive_published(3)[1]["bm"]
    client.unsubscribe("all")
    for given, expected in ((f"0|1|,{second}", numbered_bodies(1, 3)), (f"0,{second}", numbered_bodies(3))):
        reader = peers.logged_on(logged_server)
        reader.subscribe(recorded_topic, "s", bm=given, o="bookmark_not_found=fail")
        assert bodies_of(reader.receive_published(len(expected))) == expected
        reader.expect_silence()
    reader = peers.logged_on(logged_server)
    reader.subscribe(recorded_topic, "s", bm="0|1|,1|1|", o="bookmark_not_found=fail")
    reader.expect_silence()
