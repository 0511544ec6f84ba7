"""Publishers, client names and subscribers of a pair (replication.md §10, §11, §26, 21 to 24, 35 and 56).

All tests use one pair, each with client names and topics of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import Instances, two_way
from tests.support.peer import Message, RawClient, bodies_of
from tests.support.server import wait_until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    directory: Path = tmp_path_factory.mktemp("publishers")
    with Instances(directory) as group:
        for name, to in two_way():
            group.add(name, to, topics=["^r/"])
        group.start()
        yield group


@pytest.fixture
def topic(unique: str) -> str:
    return f"r/{unique}"


def _replay(pair: Instances, topic: str, count: int) -> dict[str, list[Message]]:
    """The messages of a topic in both logs; there are no more of them."""
    found: dict[str, list[Message]] = {}
    for name in "AB":
        with pair.reader(name, topic) as reader:
            found[name] = reader.receive_published(count)
            reader.expect_silence()
    return found


def test_replication_21_the_same_message_at_both_instances(pair: Instances, topic: str, unique: str) -> None:
    """Behaviour 21, decision 25.10: the second one is a duplicate, and a success acknowledgement covers it."""
    with pair.client("A", unique) as client:
        client.publish_persisted(topic, [b'{"at":"A"}'], 1)
    with pair.client("B", unique) as client:
        client.publish_persisted(topic, [b'{"at":"B"}'], 1)
        client.publish_persisted(topic, [b'{"at":"B"}'], 2)
    for messages in _replay(pair, topic, 2).values():
        assert bodies_of(messages) == [b'{"at":"A"}', b'{"at":"B"}']


def test_replication_22_messages_without_a_sequence_from_both_instances(
    pair: Instances, topic: str, unique: str
) -> None:
    """Behaviour 22: each instance numbers them itself, under a publisher of its own."""
    for turn, name in enumerate("ABAB"):
        with pair.client(name, unique) as client:
            client.publish(topic, b'{"n":%d}' % turn, a="persisted")
            client.wait_for_ack("persisted")
    found = _replay(pair, topic, 4)
    for messages in found.values():
        assert bodies_of(messages) == [b'{"n":%d}' % turn for turn in range(4)]
        publishers = [str(message["bm"]).split("|")[0] for message in messages]
        assert publishers[0] == publishers[2] != publishers[1] == publishers[3]
    assert [message["bm"] for message in found["A"]] == [message["bm"] for message in found["B"]]


def test_replication_23_sequences_may_skip_and_never_go_back(pair: Instances, topic: str, unique: str) -> None:
    """Behaviour 23."""
    with pair.client("A", unique) as client:
        for sequence in (5, 3, 9):
            client.publish(topic, b'{"s":%d}' % sequence, s=sequence, a="persisted")
        client.wait_for_persisted(9)
    for messages in _replay(pair, topic, 2).values():
        assert bodies_of(messages) == [b'{"s":5}', b'{"s":9}']


def test_replication_24_a_name_is_taken_over_at_one_instance_only(pair: Instances, topic: str, unique: str) -> None:
    """Behaviour 24."""
    with pair.client("A", unique) as first, pair.client("B", unique) as elsewhere:
        with pair.client("A", unique) as second:
            (told,) = first.wait_for_close()
            assert told.reason == "name in use"
            for client in (second, elsewhere):
                client.subscribe(topic)
                client.flush("processed")


def test_replication_35_what_subscribers_see_of_a_message(pair: Instances, topic: str, unique: str) -> None:
    """Behaviour 35: the time is that of the instance, all else is that of the original."""
    with RawClient.tcp(pair["A"].port()) as at_a, RawClient.tcp(pair["B"].port()) as at_b:
        for client in (at_a, at_b):
            client.logon(f"{unique}-{id(client)}")
            client.subscribe(topic, o="timestamp")
        with pair.client("A", unique, user_id="ana") as publisher:
            publisher.publish(topic, b"{}", s=1, x="correlation/1", a="persisted")
            publisher.wait_for_persisted(1)
        here, there = at_a.receive(), at_b.receive()
    for key in ("x", "user_id", "t"):
        assert here.get(key) == there.get(key), key
    assert here["x"] == "correlation/1"
    assert str(here["ts"]) <= str(there["ts"])
    # A replay shows the same as the live subscription, and the same bookmark at each instance.
    replayed: dict[str, Message] = {}
    for name, live in (("A", here), ("B", there)):
        with pair.reader(name, topic, o="timestamp") as reader:
            replayed[name] = reader.receive()
        for key in ("x", "user_id", "ts"):
            assert replayed[name].get(key) == live.get(key), key
    assert replayed["A"]["bm"] == replayed["B"]["bm"]


def test_replication_56_subscribers_see_nothing_of_replication_itself(
    pair: Instances, topic: str, unique: str
) -> None:
    """Behaviour 56, decision 25.33: neither live nor in a replay of everything."""
    with RawClient.tcp(pair["B"].port()) as live:
        live.logon(f"{unique}-live")
        live.subscribe(".*")
        with pair.client("A", unique) as client:
            client.publish_persisted(topic, [b"{}"], 1)
        assert live.receive()["t"] == topic
        live.expect_silence()
    with pair.reader("B", ".*") as reader:
        last: list[Message] = []

        def arrived() -> bool:
            last.append(reader.receive())
            return last[-1]["t"] == topic

        wait_until(arrived, 20, "the message is not in the replay")
        assert all(str(message["t"]).startswith("r/") for message in last)
        reader.expect_silence()
