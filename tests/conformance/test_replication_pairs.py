"""Two instances that replicate to each other (replication.md §26, 1 to 9, 18, 19, 36, 47, 50, 52)."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.instances import REPLICATION, Instances, Sent, To, two_way
from tests.support.peer import Message, RawClient
from tests.support.server import numbered_bodies, wait_until

NEVER_S = 1.5
"""So long a test waits for what must not come."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _pair(group: Instances, topics: tuple[str, ...] = ("t", "local"), **options: Any) -> Instances:
    """A and B; topic `local` is recorded and not replicated."""
    for name, to in two_way(topics=["t"], **options):
        group.add(name, to, topics=topics)
    return group


def _identities(messages: list[Message]) -> list[tuple[object, bytes]]:
    return [(message["bm"], message.body) for message in messages]


def _persisted(client: RawClient, timeout_s: float) -> bool:
    """Whether an acknowledgement of a persisted message arrives."""
    try:
        client.wait_for_ack("persisted", timeout_s=timeout_s)
    except AssertionError:
        return False
    return True


def test_both_have_the_same_messages_in_the_same_order(group: Instances, unique: str) -> None:
    """Behaviours 1 and 47: one connection carries both flows."""
    _pair(group)
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    with group.client("A", unique) as client:
        client.publish_persisted("t", numbered_bodies(1000), 1)
    there = group.log_of("B", 1000)
    assert _identities(there) == _identities(group.log_of("A", 1000))
    assert [message.body for message in there] == numbered_bodies(1000)
    with group.client("B", unique + "-b") as client:
        client.publish_persisted("t", numbered_bodies(10, 5000), 1)
    assert _identities(group.log_of("A", 1010)) == _identities(group.log_of("B", 1010))
    assert sum(proxy.open_connections for proxy in proxies) == 1


def test_a_publisher_waits_for_a_sync_destination_that_is_away(group: Instances, unique: str) -> None:
    """Behaviours 2 and 5, and 8: a fully durable subscriber waits, others do not."""
    _pair(group).start()
    with group.client("A", unique + "-first") as client:
        client.publish_persisted("t", numbered_bodies(3), 1)
    group["B"].stop()
    with (
        group.client("A", unique) as client,
        group.client("A", unique + "-other") as other,
        group.client("A", unique + "-plain") as plain,
        group.client("A", unique + "-durable") as durable,
        group.client("A", unique + "-local") as local,
        group.reader("A") as reader,
    ):
        plain.subscribe("t")
        durable.subscribe("t", bm="0", o="fully_durable")
        local.subscribe("local", bm="0", o="fully_durable")
        assert len(durable.receive_published(3)) == 3
        reader.receive_published(3)
        client.publish("t", b'{"n":7}', s=1, a="persisted")
        assert plain.receive_published(1)[0].body == b'{"n":7}'
        assert reader.receive_published(1)[0].body == b'{"n":7}'
        other.publish_persisted("local", [b'{"n":8}'], 1)
        assert local.receive_published(1)[0].body == b'{"n":8}'
        assert not _persisted(client, NEVER_S)
        durable.expect_nothing_for(0.2)
        group.launch("B")
        client.wait_for_persisted(1)
        assert durable.receive_published(1)[0].body == b'{"n":7}'
    assert group.log_of("B", 4)[-1].body == b'{"n":7}'
    with group.reader("B", "local") as reader:
        reader.expect_silence()


def test_nobody_waits_for_an_async_destination(group: Instances, unique: str) -> None:
    """Behaviours 3 and 4."""
    group.add("A", [To("B"), To("C", sync=False)])
    group.add("B", [To("A"), To("C", sync=False)])
    group.add("C", [To("A", sync=False), To("B", sync=False)])
    group.start()
    group["C"].stop()
    with group.client("A", unique) as client:
        client.publish_persisted("t", numbered_bodies(10), 1)
        group["B"].stop()
        client.publish("t", b"{}", s=11, a="persisted")
        assert not _persisted(client, NEVER_S)
        group.launch("B")
        client.wait_for_persisted(11)
        group.launch("C")
        group.log_of("C", 11)


def test_a_filter_decides_what_is_sent_and_waited_for(group: Instances, unique: str) -> None:
    """Behaviour 6."""
    chosen = [Sent("t", "/n > 5")]
    group.add("A", [To("B", topics=chosen)])
    group.add("B", [To("A", topics=chosen)])
    group.start()
    with group.client("A", unique) as client:
        client.publish_persisted("t", numbered_bodies(10), 1)
    assert [message.body for message in group.log_of("B", 5)] == numbered_bodies(5, 6)
    group["B"].stop()
    with group.client("A", unique + "-2") as client, group.client("A", unique + "-3") as waiting:
        client.publish_persisted("t", numbered_bodies(5), 1)
        waiting.publish("t", b'{"n":9}', s=1, a="persisted")
        assert not _persisted(waiting, NEVER_S)
    group.launch("B")


def test_the_acknowledgement_interval_of_the_link_delays_publishers(group: Instances, unique: str) -> None:
    """Behaviour 7: a message that is published right after an acknowledgement waits for the next one."""
    _pair(group, ack_interval="2s").start()
    with group.client("A", unique) as client:
        client.publish_persisted("t", [b"{}"], 1)
        began = time.monotonic()
        client.publish_persisted("t", [b"{}"], 2)
        assert time.monotonic() - began > 1


def test_bookmarks_of_persisted_acknowledgements_advance_with_the_destinations(
    group: Instances, unique: str
) -> None:
    """Behaviour 9."""
    _pair(group).start()
    with group.client("A", unique) as client, group.client("A", unique + "-s") as subscriber:
        client.publish_persisted("t", [b"{}"], 1)
        subscriber.subscribe("t", bm="0", f="/x = 'nothing'", a="processed,persisted")

        def bookmark(sequence: int, timeout_s: float) -> bool:
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                try:
                    ack = subscriber.wait_for_ack("persisted", timeout_s=deadline - time.monotonic())
                except AssertionError:
                    return False
                if f"|{sequence}|" in str(ack.get("bm")):
                    return True
            return False

        client.publish_persisted("t", [b"{}"], 2)
        assert bookmark(2, 10)
        group["B"].stop()
        client.publish("t", b"{}", s=3, a="persisted")
        assert not bookmark(3, NEVER_S)
        group.launch("B")
        assert bookmark(3, 20)


def test_a_killed_instance_gets_what_it_lacks(group: Instances, unique: str) -> None:
    """Behaviour 18."""
    _pair(group).start()
    count = 10_000
    bodies = numbered_bodies(count)
    with group.client("A", unique) as client:
        for begin in range(0, count, 500):
            client.publish_all("t", bodies[begin : begin + 500], first_sequence=begin + 1, a="persisted")
            if begin == count // 2:
                group.kill("B")
        group.launch("B")
        client.wait_for_persisted(count, 60)
    assert [message.body for message in group.log_of("B", count)] == bodies
    group["A"].log.wait_for("1E-0005", "A!B", count=2)


def test_a_publisher_moves_to_the_other_instance(group: Instances, unique: str) -> None:
    """Behaviour 19: it sends again what was not acknowledged, and each message is there once."""
    _pair(group).start()
    bodies = numbered_bodies(2000)
    with group.client("A", unique) as client:
        client.publish_all("t", bodies[:1000], first_sequence=1, a="persisted")
        client.wait_for_persisted(1)
        group.kill("A")
    with RawClient.tcp(group["B"].port()) as client:
        known = client.logon(unique, o="ack_conflation=10ms").get("s") or 0
        assert isinstance(known, int)
        client.publish_all("t", bodies[known:], first_sequence=known + 1, a="persisted")
        group.launch("A")
        client.wait_for_persisted(2000, 60)
    for name in "AB":
        assert [message.body for message in group.log_of(name, 2000)] == bodies


def test_two_publishers_at_once_keep_their_order_everywhere(group: Instances, unique: str) -> None:
    """Behaviour 36."""
    _pair(group).start()
    with group.client("A", unique + "-a") as first, group.client("B", unique + "-b") as second:
        for begin in range(0, 1000, 100):
            for client, offset in ((first, 0), (second, 10_000)):
                client.publish_all(
                    "t", numbered_bodies(100, offset + begin + 1), first_sequence=begin + 1, a="persisted"
                )
        first.wait_for_persisted(1000)
        second.wait_for_persisted(1000)
    for name in "AB":
        bodies = [message.body for message in group.log_of(name, 2000)]
        assert [body for body in bodies if json.loads(body)["n"] < 10_000] == numbered_bodies(1000)
        assert [body for body in bodies if json.loads(body)["n"] > 10_000] == numbered_bodies(1000, 10_001)
        assert bodies == [message.body for message in group.log_of(name, 2000)]


@pytest.mark.parametrize("algorithm", ["zlib", "zstd"])
def test_a_compressed_flow_needs_fewer_bytes(group: Instances, unique: str, algorithm: str) -> None:
    """Behaviour 50, decision 25.2."""
    group.add(
        "A", [To("B", exclude="replicate,cascade", xml=f"<CompressionType>{algorithm}</CompressionType>")]
    )
    group.add("B")
    proxy = group.proxy("A", "B")
    group.start()
    before = proxy.bytes_forward
    with group.client("A", unique) as client:
        client.publish_persisted("t", numbered_bodies(500, padding_bytes=1000), 1)
    assert [message.body for message in group.log_of("B", 500)] == numbered_bodies(500, padding_bytes=1000)
    assert proxy.bytes_forward - before < 250_000


def test_a_new_instance_and_a_wiped_one_get_everything(group: Instances, unique: str) -> None:
    """Behaviour 52, decision 25.26: the wiped one also gets back what was once published there."""
    _pair(group)
    group.start("A", connected=False)
    with group.client("A", unique) as client:
        client.publish_all("t", numbered_bodies(300), first_sequence=1, a="persisted")
        client.flush("completed")
        group.start("B")
        client.wait_for_persisted(300)
    group.log_of("B", 300)
    with group.client("B", unique + "-b") as client:
        client.publish_persisted("t", numbered_bodies(200, 1000), 1)
    group["B"].stop()
    for path in group["B"].journal_directory.iterdir():
        path.unlink()
    group.launch("B")
    group.wait_connected("A", "B")
    assert _identities(group.log_of("B", 500)) == _identities(group.log_of("A", 500))


def test_a_half_open_connection_is_noticed(group: Instances, unique: str) -> None:
    """Decision 25.30: after 15 s without a word the link ends, and a new one resynchronizes."""
    group.add("A", [To("B", exclude="replicate,cascade")])
    group.add("B")
    proxy = group.proxy("A", "B")
    group.start()
    proxy.hold()
    with group.client("A", unique) as client:
        client.publish_all("t", numbered_bodies(5), first_sequence=1, a="persisted")
        group["A"].log.wait_for("1E-0002", "silent", timeout_s=40)
        proxy.heal()
        client.wait_for_persisted(5, 40)


def test_a_killed_replication_process_is_started_again_and_nothing_is_lost(
    group: Instances, unique: str
) -> None:
    _pair(group).start()
    bodies = numbered_bodies(3000)
    with group.client("A", unique) as client:
        for begin in range(0, 3000, 100):
            client.publish_all("t", bodies[begin : begin + 100], first_sequence=begin + 1, a="persisted")
            if begin in (500, 1500):
                group.kill_replication("B" if begin == 500 else "A")
                client.wait_for_persisted(begin, 60)
        client.wait_for_persisted(3000, 60)
    for name in "AB":
        assert [message.body for message in group.log_of(name, 3000)] == bodies


def test_a_cut_connection_begins_again_where_it_was(group: Instances, unique: str) -> None:
    _pair(group)
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    bodies = numbered_bodies(5000)
    with group.client("A", unique) as client:
        for begin in range(0, 5000, 500):
            client.publish_all("t", bodies[begin : begin + 500], first_sequence=begin + 1, a="persisted")
            for proxy in proxies:
                proxy.cut()
                proxy.heal()
        client.wait_for_persisted(5000, 60)
    assert [message.body for message in group.log_of("B", 5000)] == bodies


def test_large_messages_pass(group: Instances, unique: str) -> None:
    """Records that are too large for the ring, and for one batch."""
    group.add("A", [To("B", exclude="replicate,cascade")], journal_size="64MB")
    group.add("B", journal_size="64MB")
    group.start()
    bodies = [b'{"n":"' + bytes([65 + number]) * (20 << 20) + b'"}' for number in range(3)]
    with group.client("A", unique) as client:
        for number, body in enumerate(bodies):
            client.publish_persisted("t", [body, b"{}"], 2 * number + 1)
    received = [message.body for message in group.log_of("B", 6, timeout_s=60)]
    assert received == [each for body in bodies for each in (body, b"{}")]


def test_an_orderly_stop_sends_what_an_async_destination_lacks(group: Instances, unique: str) -> None:
    _pair(group, sync=False).start()
    with group.client("A", unique) as client:
        client.publish_persisted("t", numbered_bodies(2000), 1)
    group["A"].stop()
    assert len(group.log_of("B", 2000)) == 2000
    wait_until(lambda: not group.is_connected("B", "A"), 20, "B still believes that A is there")
    assert group["B"].port(REPLICATION)
