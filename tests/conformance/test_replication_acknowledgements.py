"""Acknowledgements with destinations of replication: replication.md §7, §8, and behaviours 2 to 6, 8, 9, 16 and 20 of
§26. "Stopped" means that an instance is killed.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import Instances, Sent, To, two_way
from tests.support.peer import Message, RawClient, Silence
from tests.support.ports import release_port, reserve_port
from tests.support.server import wait_until

WITHHELD_S = 1.5
"""An acknowledgement that is not withheld comes within a few milliseconds."""
ACK = {"a": "persisted"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def pair(group: Instances) -> None:
    for name, to in two_way():
        group.add(name, to)
    group.start()


def expect_no_ack(client: RawClient) -> None:
    """Check that no persisted acknowledgement comes, although the server answers other commands."""
    with pytest.raises(Silence):
        client.wait_for_ack("persisted", timeout_s=WITHHELD_S)
    client.flush("processed")


def published(client: RawClient, topic: str, number: int, sequence: int) -> None:
    client.publish(topic, b'{"x":%d}' % number, s=sequence, **ACK)


def bodies(messages: list[Message]) -> list[int]:
    return [json.loads(message.body)["x"] for message in messages]


def test_replication_2_a_stopped_sync_destination_withholds_acks(group: Instances) -> None:
    """replication.md §26 behaviour 2."""
    pair(group)
    with group.client("A", "p") as client, group.client("A", "s") as subscriber:
        subscriber.subscribe("t")
        published(client, "t", 1, 1)
        client.wait_for_persisted(1)
        group.kill("B")
        published(client, "t", 2, 2)
        expect_no_ack(client)
        assert bodies(subscriber.receive_published(2)) == [1, 2]
        group.launch("B")
        client.wait_for_persisted(2)
        assert bodies(group.log_of("B", 2)) == [1, 2]


def test_replication_3_a_stopped_async_destination_withholds_nothing(group: Instances) -> None:
    """replication.md §26 behaviour 3."""
    group.add("A", [To("B", sync=False, exclude="replicate")])
    group.add("B")
    group.start()
    group.kill("B")
    with group.client("A", "p") as client:
        published(client, "t", 1, 1)
        client.wait_for_persisted(1)


def test_replication_4_only_the_sync_one_of_two_destinations_counts(group: Instances) -> None:
    """replication.md §26 behaviour 4."""
    group.add("A", [To("B", exclude="replicate"), To("C", sync=False, exclude="replicate")])
    group.add("B")
    group.add("C")
    group.start()
    with group.client("A", "p") as client:
        group.kill("C")
        published(client, "t", 1, 1)
        client.wait_for_persisted(1)
        group.kill("B")
        published(client, "t", 2, 2)
        expect_no_ack(client)


def test_replication_5_a_publisher_whose_messages_no_destination_carries_is_acked(group: Instances) -> None:
    """replication.md §26 behaviour 5."""
    pair_with_own_topic(group)
    group.kill("B")
    with group.client("A", "p1") as first, group.client("A", "p2") as second:
        published(first, "t", 1, 1)
        published(second, "own", 2, 1)
        second.wait_for_persisted(1)
        expect_no_ack(first)
        published(second, "own", 3, 2)
        second.wait_for_persisted(2)
        group.launch("B")
        first.wait_for_persisted(1)
    assert bodies(group.log_of("B", 1)) == [1]


def pair_with_own_topic(group: Instances) -> None:
    """A pair that replicates `t`, and not `own`, which A records as well."""
    group.add("A", [To("B", topics=["t"])], topics=("t", "own"))
    group.add("B", [To("A", topics=["t"])], topics=("t", "own"))
    group.start()


def test_replication_6_messages_that_the_filter_leaves_out_are_acked(group: Instances) -> None:
    """replication.md §26 behaviour 6."""
    group.add("A", [To("B", topics=[Sent("t", "/x > 5", exclude="replicate,replicate_filter")])])
    group.add("B")
    group.start()
    with group.client("A", "p1") as first, group.client("A", "p2") as second:
        published(first, "t", 4, 1)
        published(first, "t", 6, 2)
        first.wait_for_persisted(2)
        assert bodies(group.log_of("B", 1)) == [6]
        group.kill("B")
        published(second, "t", 5, 1)
        second.wait_for_persisted(1)
        published(first, "t", 7, 3)
        expect_no_ack(first)


def test_replication_8_fully_durable_waits_only_for_destinations_that_carry_the_topic(
    group: Instances,
) -> None:
    """replication.md §26 behaviour 8: history comes, new messages of `t` do not until the destination is back."""
    pair_with_own_topic(group)
    with group.client("A", "p") as client:
        published(client, "t", 1, 1)
        client.wait_for_persisted(1)
        group.kill("B")
        published(client, "t", 2, 2)
        expect_no_ack(client)
        subscribers = [RawClient.tcp(group["A"].port()) for _ in range(4)]
        plain, full, own, plain_own = subscribers
        for number, (subscriber, topic, options) in enumerate(
            ((plain, "t", ""), (full, "t", "fully_durable"), (own, "own", "fully_durable"), (plain_own, "own", ""))
        ):
            subscriber.logon(f"s{number}")
            subscriber.subscribe(topic, bm="0", o=options)
        assert bodies(plain.receive_published(2)) == [1, 2]
        assert bodies(full.receive_published(2)) == [1, 2], "history is not held back"
        published(client, "t", 3, 3)
        published(client, "own", 4, 4)
        assert bodies(plain.receive_published(1)) == [3]
        for subscriber in (own, plain_own):
            assert bodies(subscriber.receive_published(1)) == [4]
        full.expect_nothing_for(WITHHELD_S)
        published(client, "own", 5, 5)
        assert bodies(own.receive_published(1)) == [5]
        group.launch("B")
        assert bodies(full.receive_published(1)) == [3]
        client.wait_for_persisted(5)
        published(client, "t", 6, 6)
        assert bodies(full.receive_published(1)) == [6]
        for subscriber in subscribers:
            subscriber.close()


def test_replication_9_the_bookmark_of_persisted_acks_stops_with_the_destination(group: Instances) -> None:
    """replication.md §26 behaviour 9."""
    pair(group)
    with group.client("A", "p") as client, group.client("A", "s") as subscriber:
        subscriber.subscribe("t", sub_id="s", bm="0", filter="/x = -1", a="processed,persisted")
        published(client, "t", 1, 1)
        wait_for_bookmark(subscriber, "|1|")
        group.kill("B")
        published(client, "t", 2, 2)
        with pytest.raises(Silence):
            subscriber.wait_for_ack("persisted", timeout_s=2.5)
        group.launch("B")
        wait_for_bookmark(subscriber, "|2|")


def wait_for_bookmark(client: RawClient, end: str) -> None:
    """Wait for a persisted acknowledgement with a bookmark of that end."""
    wait_until(
        lambda: str(client.wait_for_ack("persisted").get("bm")).endswith(end),
        10,
        lambda: f"no bookmark {end}",
    )


def test_replication_16_a_downgrade_sends_what_was_withheld(group: Instances) -> None:
    """replication.md §26 behaviour 16, and the messages that `fully_durable` holds back."""
    port = reserve_port()
    try:
        group.add("A", [To("B")], xml=f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>")
        group.add("B", [To("A")])
        group.start()
        with group.client("A", "p") as client, group.client("A", "s") as full:
            full.subscribe("t", bm="0|1|", o="fully_durable")
            group.kill("B")
            published(client, "t", 1, 1)
            expect_no_ack(client)
            full.expect_nothing_for(0.2)
            assert get(port, "/amps/administrator/replication/B/downgrade").status == 200
            client.wait_for_persisted(1)
            assert bodies(full.receive_published(1)) == [1]
    finally:
        release_port(port)


def test_replication_20_a_logon_tells_what_is_persisted_and_what_is_logged(group: Instances) -> None:
    """replication.md §26 behaviour 20, and 25.36: with a stopped destination, `seq` is below the bookmark's."""
    pair(group)
    with group.client("A", "p") as client:
        client.publish_persisted("t", [b'{"x":%d}' % number for number in range(1, 51)], 1)
        answer = logon_again(group, "B")
        assert (answer["s"], answer["bm"]) == (50, group.log_of("B", 50)[-1]["bm"])
        group.kill("B")
        published(client, "t", 51, 51)
        expect_no_ack(client)
    answer = logon_again(group, "A")
    assert (answer["s"], str(answer["bm"]).split("|")[1]) == (50, "51")


def logon_again(group: Instances, name: str) -> Message:
    with RawClient.tcp(group[name].port()) as client:
        return client.logon("p")


@pytest.mark.parametrize("ack", ["flush", "unnumbered"])
def test_replication_7_other_persisted_acks_wait_too(group: Instances, ack: str) -> None:
    """replication.md §7: a flush waits for all publishes of the client, also for those without a sequence."""
    pair(group)
    with group.client("A", "p") as client:
        asked: dict[str, Callable[[], None]] = {
            "flush": lambda: client.send({"c": "flush", "cid": "f", "a": "persisted"}),
            "unnumbered": lambda: client.publish("t", b'{"x":2}', cid="f", **ACK),
        }
        group.kill("B")
        client.publish("t", b'{"x":1}')
        asked[ack]()
        expect_no_ack(client)
        group.launch("B")
        assert client.wait_for_ack("persisted", "f").succeeded
