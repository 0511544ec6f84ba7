"""Clients that move between two instances that replicate to each other (replication.md §10, §19, §26 19, 21 to 24)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.client import (
    EPOCH,
    Client,
    DefaultServerChooser,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
)
from tests.support.instances import Instances, two_way
from tests.support.server import wait_until

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    """A pair that the tests share that kill nothing: each uses topics of its own."""
    with Instances(tmp_path_factory.mktemp("pair")) as pair:
        for name, to in two_way(topics=["^T/"]):
            pair.add(name, to, topics=("^T/",))
        pair.start()
        yield pair


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as pair:
        for name, to in two_way():
            pair.add(name, to)
        pair.start()
        yield pair


def uri(group: Instances, name: str) -> str:
    return f"tcp://127.0.0.1:{group[name].port()}/amps/json"


def moving(group: Instances, name: str, store: MemoryPublishStore | None = None) -> HAClient:
    """A client that begins at A, and goes to the next instance after a failure."""
    servers = DefaultServerChooser(uri(group, "A"), uri(group, "B"))
    return HAClient(
        name, servers, delay_strategy=FixedDelayStrategy(0.02), timeout=PATIENCE_S, publish_store=store
    )


def bodies(group: Instances, name: str, topic: str, count: int) -> list[bytes]:
    return [message.body for message in group.log_of(name, count, topic)]


def test_replication_19_clients_move_from_a_killed_instance(group: Instances, unique: str) -> None:
    """replication.md §26 19, §19: nothing is lost or repeated, neither in the logs nor by a bookmark subscriber."""
    count = 4000
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        handled.append(bytes(message.data))
        message.discard()

    store = MemoryPublishStore()
    with (
        moving(group, f"{unique}-publisher", store) as publisher,
        moving(group, f"{unique}-subscriber") as subscriber,
    ):
        subscriber.bookmark_subscribe("t", EPOCH, sub_id="s", handler=handle, fully_durable=True)
        for number in range(count):
            publisher.publish("t", b"%d" % number)
            if number == count // 2:
                wait_until(lambda: bool(handled), PATIENCE_S, lambda: "nothing was handled")
                group.kill("A")
        wait_until(lambda: uri(group, "B") == publisher.connection_info.uri, PATIENCE_S, lambda: "not moved")
        group.start("A")
        publisher.publish_flush(timeout=PATIENCE_S)
        assert store.unpersisted_count() == 0
        wait_until(lambda: len(handled) >= count, PATIENCE_S, lambda: f"{len(handled)} were handled")
    wanted = [b"%d" % number for number in range(count)]
    assert handled == wanted
    assert bodies(group, "A", "t", count) == bodies(group, "B", "t", count) == wanted


def test_a_client_without_a_store_numbers_after_what_is_logged_only(group: Instances, unique: str) -> None:
    """replication.md 25.36: an instance whose destination is away has more than it tells as persisted."""
    with Client(unique, uri(group, "A"), publish_store=MemoryPublishStore()) as client:
        client.publish("t", b"1")
        client.publish_flush(timeout=PATIENCE_S)
        group.kill("B")
        client.publish("t", b"2")
        assert bodies(group, "A", "t", 2) == [b"1", b"2"]
    with Client(unique, uri(group, "A"), publish_store=MemoryPublishStore()) as client:
        assert client.publish("t", b"3") == 3
        group.start("B")
        client.publish_flush(timeout=PATIENCE_S)
    assert bodies(group, "B", "t", 3) == [b"1", b"2", b"3"]


def test_replication_21_a_repetition_at_the_other_instance_is_one_record(shared: Instances, unique: str) -> None:
    """replication.md §26 21, 25.10: the second is covered by a persisted acknowledgement."""
    topic = f"T/{unique}"
    with shared.client("A", unique) as client:
        client.publish_persisted(topic, [b"once"], 1)
    with shared.client("B", unique) as client:
        client.publish_persisted(topic, [b"once"], 1)
        client.publish_persisted(topic, [b"next"], 2)
    for name in "AB":
        assert bodies(shared, name, topic, 2) == [b"once", b"next"]


def test_replication_22_messages_without_a_number_differ_by_instance(shared: Instances, unique: str) -> None:
    """replication.md §26 22: each instance numbers for a publisher of its own."""
    topic = f"T/{unique}"
    for name, body in (("A", b"1"), ("B", b"2"), ("A", b"3")):
        with shared.client(name, unique) as client:
            client.publish(topic, body)
            client.flush("persisted")
    for name in "AB":
        messages = shared.log_of(name, 3, topic)
        publishers = {message.body: str(message["bm"]).split("|")[0] for message in messages}
        assert sorted(publishers) == [b"1", b"2", b"3"]
        assert publishers[b"1"] == publishers[b"3"] != publishers[b"2"]


def test_replication_23_a_lower_number_comes_too_late_everywhere(shared: Instances, unique: str) -> None:
    """replication.md §26 23: 3 after 5 is nowhere; 9 after 5 is on both."""
    topic = f"T/{unique}"
    with shared.client("A", unique) as client:
        client.publish_persisted(topic, [b"5"], 5)
        client.publish_all(topic, [b"3"], first_sequence=3, a="persisted")
        client.publish_persisted(topic, [b"9"], 9)
    for name in "AB":
        assert bodies(shared, name, topic, 2) == [b"5", b"9"]


def test_replication_24_a_name_is_used_once_per_instance(shared: Instances, unique: str) -> None:
    """replication.md §26 24: the second logon of a name ends the first one there, and nothing elsewhere."""
    with shared.client("A", unique) as first, shared.client("B", unique) as elsewhere:
        with shared.client("A", unique) as second:
            assert "name in use" in str(first.wait_for_close())
            second.flush()
        elsewhere.flush()
