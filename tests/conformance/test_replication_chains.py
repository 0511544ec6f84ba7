"""Chains and rings of instances: what passes through (replication.md §9, §26, 25 to 29)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import Instances, Sent, To
from tests.support.server import numbered_bodies

LOOSE = "replicate,cascade"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _publish(group: Instances, name: str, client: str, count: int, start: int = 1) -> list[bytes]:
    bodies = numbered_bodies(count, start)
    with group.client(name, client) as publisher:
        publisher.publish_persisted("t", bodies, 1)
    return bodies


def _bodies(group: Instances, name: str, count: int) -> list[bytes]:
    return sorted(message.body for message in group.log_of(name, count))


def _chain(group: Instances, **passes: str | None) -> None:
    """A chain of instances, each a group of its own. `passes`: of each instance its PassThrough to the next one."""
    names = [*passes]
    for index, name in enumerate(names):
        to = (
            [To(names[index + 1], pass_through=passes[name], exclude=LOOSE)] if index + 1 < len(names) else []
        )
        group.add(name, to, group=name)
    group.start()


@pytest.mark.parametrize(
    ("passes", "passed"), [(None, False), ("A", True), ("^X$", False), ("^(A|B)$", True), (".*", True)]
)
def test_an_instance_in_the_middle_passes_groups_on(
    group: Instances, unique: str, passes: str | None, passed: bool
) -> None:
    """Behaviours 25 and 26: messages that are published in the middle go on in any case."""
    _chain(group, A=".*", B=passes, C=None)
    first = _publish(group, "A", unique + "-a", 20)
    second = _publish(group, "B", unique + "-b", 10, 100)
    assert _bodies(group, "B", 30) == sorted([*first, *second])
    expected = sorted([*first, *second] if passed else second)
    assert _bodies(group, "C", len(expected)) == expected


@pytest.mark.parametrize(("passes", "passed"), [("^B$", True), ("^A$", False)])
def test_the_last_hop_counts_and_not_the_first(
    group: Instances, unique: str, passes: str, passed: bool
) -> None:
    """Behaviour 27."""
    _chain(group, A=".*", B="A", C=passes, D=None)
    first = _publish(group, "A", unique + "-a", 20)
    second = _publish(group, "C", unique + "-c", 10, 100)
    expected = sorted([*first, *second] if passed else second)
    assert _bodies(group, "D", len(expected)) == expected


def test_a_ring_with_a_publisher_each_comes_to_rest(group: Instances, unique: str) -> None:
    """Behaviour 28: each message once everywhere, no publisher waits for ever, and nothing is sent in circles."""
    names = "ABC"
    for name in names:
        group.add(name, [To(other) for other in names if other != name])
    proxies = [group.proxy(name, other) for name in names for other in names if name != other]
    group.start()
    bodies: list[bytes] = []
    for round_ in range(3):
        for index, name in enumerate(names):
            bodies += _publish(
                group, name, f"{unique}-{name}-{round_}", 100, 1 + 1000 * (10 * round_ + index)
            )
    for name in names:
        assert _bodies(group, name, len(bodies)) == sorted(bodies)
    time.sleep(0.5)  # acknowledgements at intervals of 50 ms
    before = [(proxy.bytes_forward, proxy.bytes_back) for proxy in proxies]
    time.sleep(1)
    after = [(proxy.bytes_forward, proxy.bytes_back) for proxy in proxies]
    # PING and LINKSTATE only.
    assert (
        sum(
            now - then
            for each, other in zip(after, before, strict=True)
            for now, then in zip(each, other, strict=True)
        )
        < 4000
    )


def test_all_publish_at_once_in_a_ring(group: Instances, unique: str) -> None:
    """Behaviour 28, with acknowledgements that wait for each other's records."""
    names = "ABC"
    for name in names:
        group.add(name, [To(other) for other in names if other != name])
    group.start()
    clients = []
    try:
        for index, name in enumerate(names):
            context = group.client(name, f"{unique}-{name}")
            clients.append((context, context.__enter__(), index))
        for begin in range(0, 1000, 100):
            for _, client, index in clients:
                client.publish_all(
                    "t",
                    numbered_bodies(100, 10_000 * index + begin + 1),
                    first_sequence=begin + 1,
                    a="persisted",
                )
        for _, client, _ in clients:
            client.wait_for_persisted(1000, 30)
    finally:
        for context, _, _ in clients:
            context.__exit__(None, None, None)
    expected = sorted(body for index in range(3) for body in numbered_bodies(1000, 10_000 * index + 1))
    for name in names:
        assert _bodies(group, name, 3000) == expected


def test_topics_and_filters_count_for_messages_that_pass_through(group: Instances, unique: str) -> None:
    """Behaviour 29."""
    topics = ("t", "u")
    group.add("A", [To("B", exclude=LOOSE)], topics=topics)
    group.add("B", [To("C", exclude=LOOSE, topics=[Sent("t", "/n > 15")])], topics=topics)
    group.add("C", topics=topics)
    group.start()
    with group.client("A", unique) as publisher:
        publisher.publish_all("u", numbered_bodies(5), first_sequence=1)
        publisher.publish_persisted("t", numbered_bodies(20), 6)
    assert _bodies(group, "C", 5) == sorted(numbered_bodies(5, 16))
    with group.reader("C", "u") as reader:
        reader.expect_silence()
