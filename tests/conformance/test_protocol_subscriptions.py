"""Subscribing: protocol.md §7, §8, and the behaviours 20 to 31 and 42 of §21."""

import itertools
import threading

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


@pytest.fixture(scope="module")
def literal_server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(
        instance_xml="<RegexTopicSupport>false</RegexTopicSupport>", log_topics=("LOG_.*",)
    )


# Topics


def test_protocol_20_a_topic_with_regex_characters_is_an_expression(client: RawClient, topic: str) -> None:
    """protocol.md §21 20"""
    client.subscribe(f"{topic}/a.*b", "regex")
    client.publish(f"{topic}/a.*b", b"1")
    client.publish(f"{topic}/axxb", b"2")
    assert [client.receive().body for _ in range(2)] == [b"1", b"2"]
    client.unsubscribe("regex")
    client.subscribe(f"{topic}/a.*b", "literal", o="non_regex_topic")
    client.publish(f"{topic}/axxb", b"3")
    client.publish(f"{topic}/a.*b", b"4")
    assert client.receive().body == b"4"
    client.expect_silence()


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("ill", ["ill"], ["fill", "illness", "ILL"]),
        ("^fill$", ["fill"], ["fills", "xfill", "a/fill"]),
        ("fill.log", ["nyc/fill/log", "fill.log", "fillxlog2"], ["fill/lo", "FILL.LOG", "fill\nlog"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^x+y", ["xy", "xxyz"], ["y"]),
        ("^fil{1,2}$", ["fil", "fill"], ["filll"]),
        ("^[ab](c)?$", ["a", "bc"], ["ac2", "c"]),
        ("^a\\.b$", ["a.b"], ["axb"]),
        ("^(?=ab).*z$", ["abz"], ["az"]),
        ("^\\d+$", ["2024"], ["20x"]),
        ("^(?i)fill$", ["FILL", "fill"], ["fills"]),
    ],
)
def test_protocol_21_topic_expressions(
    peers: Peers, plain_server: ServerProcess,
    expression: str, matching: list[str], other: list[str],
) -> None:  # fmt: skip
    """protocol.md §21 21, §8: PCRE, unanchored, case-sensitive; no regex character means exact."""
    client = peers.logged_on(plain_server)
    client.subscribe(expression, "s")
    client.subscribe("fence21", "fence")
    for name in [*matching, *other]:
        client.publish(name, name.encode())
    client.publish("fence21", b"end")
    received = [m for m in client.receive_until(b"end") if "s" in m.subscriptions]
    assert [m["t"] for m in received] == matching


def test_protocol_21_expressions_meet_topics_in_unicode(client: RawClient, topic: str) -> None:
    """protocol.md §8: a character matches as one character, however many bytes it has."""
    client.subscribe(f"^{topic}/Z.rich$", "s")
    client.publish(f"{topic}/Zürich", b"1")
    assert client.receive().body == b"1"


def test_protocol_21_regex_topic_support_can_be_switched_off(
    peers: Peers, literal_server: ServerProcess
) -> None:
    """protocol.md §21 21, last part"""
    client = peers.logged_on(literal_server)
    client.subscribe("fi.*", "s")
    client.subscribe("fence", "f")
    client.publish("fill", b"1")
    client.publish("fi.*", b"2")
    client.publish("fence", b"end")
    assert [m.body for m in client.receive_until(b"end")] == [b"2"]


def test_protocol_22_topics_without_permission(
    peers: Peers, entitled_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 22 (E): a literal one is refused, a regex skips them."""
    client = peers.logged_on(entitled_server)
    refused = client.try_subscribe(f"deny.{unique}.x", "no")
    assert (refused["status"], refused.reason) == ("failure", "not entitled")
    client.subscribe(f"\\.{unique}\\.x$", "s")
    denied = client.request({"c": "p", "t": f"deny.{unique}.x"}, b"denied")
    assert (denied["status"], denied.reason) == ("failure", "not entitled")
    client.publish(f"ok.{unique}.x", b"allowed")
    assert client.receive().body == b"allowed"
    client.expect_silence()


# Ids


def test_protocol_23_the_command_id_names_the_subscription(client: RawClient, topic: str) -> None:
    """protocol.md §21 23"""
    ack = client.request({"c": "subscribe", "t": topic, "cid": "9"})
    assert ack["sub_id"] == "9"
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "9"
    assert client.unsubscribe("9").succeeded
    client.publish(topic, b"2")
    client.expect_silence()


def test_protocol_ids_the_server_makes_an_id_when_there_is_none(client: RawClient, topic: str) -> None:
    """protocol.md §4: `SAMPS-<text>`, returned in acks."""
    client.send({"c": "subscribe", "t": topic, "a": "processed"})
    ack = client.receive()
    assert ack.succeeded
    assert "cid" not in ack
    sub_id = str(ack["sub_id"])
    assert sub_id.startswith("SAMPS-")
    client.publish(topic, b"1")
    assert client.receive()["sids"] == sub_id
    assert client.unsubscribe(sub_id).succeeded
    client.publish(topic, b"2")
    client.expect_silence()


def test_protocol_24_overlapping_subscriptions_share_one_message(client: RawClient, topic: str) -> None:
    """protocol.md §21 24"""
    client.subscribe(topic, "one")
    client.subscribe(f"^{topic}$", "two")
    client.subscribe(f"^{topic}/other", "three")
    client.publish(topic, b"1")
    delivered = client.receive()
    assert delivered.subscriptions == {"one", "two"}
    assert str(delivered["sids"]).count(",") == 1
    client.expect_silence()


def test_protocol_24_subscription_ids_can_be_left_off(client: RawClient, topic: str) -> None:
    """protocol.md §3.1: `send_matching_ids` false."""
    client.send({"c": "subscribe", "t": topic, "sub_id": "s", "cid": "1", "a": "processed",
                 "send_matching_ids": False})  # fmt: skip
    assert client.receive().succeeded
    client.publish(topic, b"1")
    assert "sids" not in client.receive()


def test_protocol_28_an_active_id_cannot_be_used_again(client: RawClient, topic: str) -> None:
    """protocol.md §21 28, D5: the old subscription goes on."""
    client.subscribe(topic, "s")
    again = client.try_subscribe(f"{topic}/other", "s")
    assert (again["status"], again.reason) == ("failure", "subscription already exists")
    client.publish(f"{topic}/other", b"1")
    client.publish(topic, b"2")
    assert client.receive().body == b"2"
    client.expect_silence()


def test_protocol_28_ids_belong_to_their_connection(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §4: the same id elsewhere is another subscription."""
    first, second = peers.logged_on(plain_server), peers.logged_on(plain_server)
    first.subscribe(topic, "s")
    second.subscribe(topic, "s")
    assert first.unsubscribe("s").succeeded
    first.publish(topic, b"1")
    assert second.receive().body == b"1"
    first.expect_silence()


def test_protocol_28_replace_of_an_unknown_id_subscribes(client: RawClient, topic: str) -> None:
    """protocol.md §21 28 (R), D5"""
    client.subscribe(topic, "new", o="replace")
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "new"


# Replacing and ending


def test_protocol_29_replace_loses_and_doubles_nothing(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 29, by topic: messages in both scopes arrive once, then only those of the new one."""
    client = peers.logged_on(plain_server)
    client.subscribe(f"^{topic}/[ab]$", "s")
    publisher = peers.logged_on(plain_server)
    stop = threading.Event()

    def publish() -> None:
        for number in itertools.count():
            for letter in "abc":
                publisher.publish(f"{topic}/{letter}", b"%d" % number)
            if stop.is_set():
                break

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        before = client.receive_many(300)
        for wanted in ("[bc]", "[ab]", "[bc]"):
            replacement = {"c": "subscribe", "t": f"^{topic}/{wanted}$", "sub_id": "s", "o": "replace"}
            client.send({**replacement, "a": "processed"})
            while not before[-1].is_ack("processed"):
                before.append(client.receive())
            before.append(client.receive())
        after = client.receive_many(300)
    finally:
        stop.set()
        thread.join()
    both = [int(m.body) for m in [*before, *after] if m.get("t") == f"{topic}/b"]
    assert both == list(range(both[0], both[0] + len(both)))
    assert {m["t"] for m in after} == {f"{topic}/b", f"{topic}/c"}


def test_protocol_30_replace_with_a_denied_topic_delivers_nothing(
    peers: Peers, entitled_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 30, first part (E)"""
    client = peers.logged_on(entitled_server)
    client.subscribe(f"ok.{unique}", "s")
    assert client.try_subscribe(f"deny.{unique}", "s", o="replace").succeeded
    client.publish(f"ok.{unique}", b"1")
    client.publish(f"deny.{unique}", b"2")
    client.expect_silence()


def test_protocol_31_unsubscribe_needs_an_id(client: RawClient) -> None:
    """protocol.md §21 31"""
    ack = client.request({"c": "unsubscribe"})
    assert (ack["status"], ack.reason) == ("failure", "invalid sub id")


def test_protocol_31_lists_and_all_end_subscriptions(client: RawClient, topic: str) -> None:
    """protocol.md §21 31, §11.1"""
    for name in "abcde":
        client.subscribe(f"{topic}/{name}", name)
    assert client.unsubscribe("a,b").succeeded
    for name in "abc":
        client.publish(f"{topic}/{name}", name.encode())
    assert client.receive().body == b"c"
    client.expect_silence()
    assert client.unsubscribe("all").succeeded
    for name in "abcde":
        client.publish(f"{topic}/{name}", name.encode())
    client.expect_silence()


def test_protocol_31_nothing_follows_the_ack(peers: Peers, plain_server: ServerProcess, topic: str) -> None:
    """protocol.md §21 31: while another client publishes at full speed."""
    client = peers.logged_on(plain_server)
    client.subscribe(topic, "s")
    publisher = peers.logged_on(plain_server)
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            publisher.publish_all(topic, [b"x"] * 100)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        client.receive_many(100)
        client.send({"c": "unsubscribe", "sub_id": "s", "cid": "u", "a": "processed"})
        while not client.receive().is_ack("processed", "u"):
            pass
        client.expect_silence()
    finally:
        stop.set()
        thread.join()


def test_protocol_31_an_unknown_id_is_no_failure(client: RawClient) -> None:
    """protocol.md §11.1 D19"""
    assert client.unsubscribe("nobody").succeeded
    assert client.request({"c": "unsubscribe", "query_id": "nobody"}).succeeded


def test_protocol_a_disconnect_ends_its_subscriptions(
    peers: Peers, plain_server: ServerProcess, topic: str, unique: str
) -> None:
    """protocol.md §4: ids are free again, and no message is delivered to the next connection."""
    first = peers.logged_on(plain_server, name=unique)
    first.subscribe(topic, "s")
    first.close()
    plain_server.log.wait_for("07-0013", unique)
    second = peers.logged_on(plain_server, name=unique)
    second.publish(topic, b"1")
    second.expect_silence()
    second.subscribe(topic, "s")


# Timestamps


def test_protocol_42_timestamp_on_live_messages(client: RawClient, topic: str) -> None:
    """protocol.md §21 42, publish"""
    client.subscribe(topic, "s", o="timestamp")
    client.publish(topic, b"1")
    stamp = str(client.receive()["ts"])
    assert len(stamp) == len("20240301T093015.123456Z")
    assert stamp[8] == "T"
    assert stamp.endswith("Z")
    assert (stamp[:8] + stamp[9:15] + stamp[16:22]).isdigit()
    client.subscribe(topic, "plain")
    client.publish(topic, b"2")
    assert client.receive().subscriptions == {"s", "plain"}
    client.unsubscribe("s")
    client.publish(topic, b"3")
    assert "ts" not in client.receive()
