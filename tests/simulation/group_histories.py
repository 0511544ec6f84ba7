"""Random histories of a queue that spans instances, from a seed; see test_queue_group.py."""

import random

from tests.support.queue_group import ACKNOWLEDGE, CANCEL, MS, Group
from tests.support.queue_subject import QueueSettings

STEPS = 600
DEFAULT = QueueSettings("Q", max_per_subscription=20)


def run_group(
    seed: int, proxies: bool, settings: QueueSettings = DEFAULT, initial_owner: str | None = None
) -> Group:
    """Run a group of two or three instances through random steps, and then let it settle."""
    choices = random.Random(f"{seed} {proxies} {settings} {initial_owner}")
    names = choices.choice(("AB", "ABC", "ABC"))
    pairs = choices.choice((None, ("AB", "BC"))) if len(names) == 3 else None
    options: dict[str, object] = (
        {} if initial_owner is None else {"initial_owner": initial_owner, "domain": 9}
    )
    group = Group(names, settings, choices, options, pairs)
    for _ in range(STEPS):
        _step(group, choices, proxies)
    for name in names:
        if not group[name].is_up:
            group.start(name, choices.random() < 0.5)
    for link in group.links:
        link.is_up = True
    group.connect()
    consumers = choices.sample(names, choices.randint(1, len(names)))
    for name in names:
        group.proxy(name, False)
        group[name].subscribe(choices.randint(1, 20) if name in consumers else 0, group.now_ns)
    for _ in range(400):
        group.settle(10, 100 * MS)
        if all(not instance.queue_state for instance in group.instances.values()):
            break
    group.settle(10, 20 * MS)
    return group


def _step(group: Group, choices: random.Random, proxies: bool) -> None:
    group.now_ns += choices.choice((1, 1, 10, 100, 1000)) * MS
    name = choices.choice(group.names)
    instance = group[name]
    what = choices.random()
    if not instance.is_up:
        if what < 0.1:
            group.start(name, choices.random() < 0.5)
        return
    if what < 0.25:
        group.publish(name, choices.randint(1, 3))
    elif what < 0.3:
        instance.subscribe(choices.randint(0, 8), group.now_ns)
    elif what < 0.45:
        for bookmark in [bookmark for bookmark in instance.holds if choices.random() < 0.7]:
            instance.acknowledge(bookmark, ACKNOWLEDGE if choices.random() < 0.8 else CANCEL, group.now_ns)
    elif what < 0.6:
        instance.sync()
    elif what < 0.63:
        instance.copy()
    elif what < 0.65:
        group.crash(name)
    elif what < 0.68:
        other = choices.choice(group.names)
        if other != name:
            group.cut(name, other, choices.random() < 0.7)
    elif what < 0.7:
        if proxies:
            group.proxy(name, not instance.is_proxied)
    elif what < 0.85:
        for link in group.links:
            if choices.random() < 0.7:
                group.carry(link, choices.randint(1, 20))
        group.ask(0.2)
    else:
        for each in group.names:
            group.turn(each)


def check_end(group: Group, all_delivered: bool = True) -> None:
    """Check that all queues are empty, and that nothing was lost."""
    durable = {
        (entry.publisher, entry.sequence)
        for instance in group.instances.values()
        for entry in instance.log
        if entry.record is None
    }
    for instance in group.instances.values():
        assert not instance.queue_state, f"{instance.name} still has {instance.queue_state[:5]}"
        queue = instance.manager.queues[0]
        assert queue.span is not None
        assert queue.span.bookmarks.count == 0
        assert queue.span.ownerships.in_use == 0
        assert not queue.span.early
        assert [
            instance.counter(name) for name in ("foreign", "depth", "leased", "delivered", "deferred")
        ] == [0] * 5
        here = {(entry.publisher, entry.sequence) for entry in instance.log if entry.record is None}
        assert here == durable
    if all_delivered:
        assert durable <= set(group.watch.deliveries)
        assert durable <= set(group.watch.acknowledged)
