"""What subscribers of a pair see of replicated messages (replication.md §26, 30, 35 and 56).

All tests use one pair, each with client names and topics of its own.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.instances import Instances, two_way
from tests.support.peer import Message, RawClient
from tests.support.server import wait_until

DELAY_S = 0.6


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    directory: Path = tmp_path_factory.mktemp("subscribers")
    with Instances(directory) as group:
        for name, to in two_way():
            group.add(name, to, topics=["^r/"])
        for ends in ("AB", "BA"):
            group.proxy(*ends)
        group.start()
        yield group


@pytest.fixture
def topic(unique: str) -> str:
    return f"r/{unique}"


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


def test_replication_35_the_time_of_a_message_is_that_of_its_arrival(
    pair: Instances, topic: str, unique: str
) -> None:
    """replication.md §26 35, §3: what arrives half a second later has a time half a second later."""
    proxies = [pair.proxy("A", "B"), pair.proxy("B", "A")]
    with pair.client("A", unique) as publisher:
        for proxy in proxies:
            proxy.hold()
        time.sleep(0.1)  # what its threads wait for now still passes
        publisher.publish(topic, b"{}", s=1, a="persisted")
        time.sleep(DELAY_S)
        for proxy in proxies:
            proxy.heal()
        publisher.wait_for_persisted(1)
    times = []
    for name in "AB":
        with pair.reader(name, topic, o="timestamp") as reader:
            times.append(datetime.strptime(str(reader.receive()["ts"]), "%Y%m%dT%H%M%S.%fZ"))
    assert (times[1] - times[0]).total_seconds() >= DELAY_S / 2


def test_replication_30_a_delta_of_a_topic_without_state_is_replicated_as_it_is(
    pair: Instances, topic: str, unique: str
) -> None:
    """replication.md §26 30 as far as it holds without SOW topics: the record on B is that on A."""
    body = b'{"id":1,"x":2}'
    with pair.client("A", unique) as publisher:
        publisher.publish(topic, b'{"id":1,"y":1}', s=1)
        publisher.send({"c": "delta_publish", "t": topic, "s": 2, "a": "persisted"}, body)
        publisher.wait_for_persisted(2)
    found = []
    for name in "AB":
        messages = pair.log_of(name, 2, topic)
        assert messages[1].body == body
        found.append([(message["bm"], message.body) for message in messages])
    assert found[0] == found[1]


def test_messages_that_are_not_recorded_are_forgotten(pair: Instances, unique: str) -> None:
    """docs/messages.md, the transient log: the replication process does not read it, so it keeps nothing of it."""
    process = pair["A"].process
    assert process is not None
    pattern = f"amps-run-{process.pid}-*/transient*"
    with pair.client("A", unique) as publisher:
        for _ in range(10):
            publisher.publish_all(f"plain/{unique}", [b"x" * 100_000] * 100)  # 10 MB
            publisher.flush()

        def kept_bytes() -> int:
            publisher.publish(f"plain/{unique}", b"y")
            return sum(path.stat().st_size for path in Path("/dev/shm").glob(pattern))

        wait_until(
            lambda: 0 < kept_bytes() <= 40 * 2**20, 10, lambda: f"{kept_bytes()} bytes of the transient log stay"
        )


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
