"""Random histories of the model: one seed chooses topology, clients, steps and faults, and replays exactly.

A plan keeps to what the documented model promises: clients move only along links that are sync and not downgraded, a
wiped instance gets its clients when it is filled again. The histories in which nobody can keep a promise are in
`test_replication_histories`. So a seed that fails is a fault of the specification, or a history that the document
lacks.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.simulation.group_checks import (
    Held,
    Logs,
    check_contents,
    check_equal,
    check_order,
    check_promises,
    check_received,
)
from tests.simulation.group_clients import Publisher, Subscriber, deliver_acks
from tests.simulation.group_flows import Group, Link
from tests.simulation.group_model import DOWNGRADED, PUBLISH, SYNC, Instance
from tests.simulation.group_topologies import TOPOLOGIES, model_of


def logs_of(group: Group, durable_only: bool = True, messages_only: bool = False) -> Logs:
    """The logs as the invariants read them. `messages_only`: without what is about queues."""
    return {
        name: [
            Held(record.publisher, record.sequence, record.content)
            for record in instance.log[: instance.durable if durable_only else None]
            if record.kind == PUBLISH or not messages_only
        ]
        for name, instance in group.instances.items()
    }


def epochs_of(group: Group) -> dict[str, int]:
    return {name: instance.epoch for name, instance in group.instances.items()}


class Plan:
    """Everything of one seed."""

    def __init__(self, seed: int, group_type: Callable[[list[Instance]], Group] = Group) -> None:
        self.chance = chance = random.Random(seed)
        self.topology = chance.choice(list(TOPOLOGIES.values()))
        self.group = group_type(model_of(self.topology))
        self.homes = [sorted(chance.choice(self.topology.moves)) for _ in range(chance.randint(1, 4))]
        self.publishers = {f"p{n}": Publisher(f"p{n}") for n in range(len(self.homes))}
        self.subscribers = [Subscriber(f"s{n}") for n in range(2)]
        self.subscriber_homes = [sorted(chance.choice(self.topology.moves)) for _ in self.subscribers]
        self.tainted: set[Link] = set()
        """Links that were downgraded and have not caught up since."""
        self.filling: set[str] = set()
        """Instances that were wiped and have not caught up since."""
        self.history: list[str] = []
        self.deaths = 0
        self.weights = {action: chance.choice([0.3, 1.0, 3.0]) * weight for action, weight in self._actions()}

    def _actions(self) -> Sequence[tuple[Callable[[], None], float]]:
        return [
            (self._publish, 30),
            (self._send, 40),
            (self._take, 40),
            (self._sync, 40),
            (self._acknowledge, 30),
            (self._take_ack, 40),
            (self._tell_publishers, 30),
            (self._run_subscriber, 40),
            (self._connect, 60),
            (self._move_publisher, 6),
            (self._move_subscriber, 12),
            (self._save_state, 3),
            (self._break, 2),
            (self._partition, 1),
            (self._heal, 2),
            (self._kill, 1),
            (self._crash, 1),
            (self._start, 12),
            (self._downgrade, 0.4),
            (self._upgrade, 5),
            (self._wipe, 0.3),
        ]

    def run(self, steps: int) -> None:
        actions, weights = list(self.weights), list(self.weights.values())
        for action in self.chance.choices(actions, weights, k=steps):
            action()
        self.check()
        self.settle()

    # Parts of the group, at random

    def _link(self) -> Link:
        return self.chance.choice(self.group.links())

    def _instance(self) -> Instance:
        return self.chance.choice(list(self.group.instances.values()))

    def _some(self) -> int:
        return self.chance.choice([1, 2, 5, 20])

    def _note(self, *words: object) -> None:
        self.history.append(" ".join(map(str, words)))

    # Steps

    def _publish(self) -> None:
        publisher = self.chance.choice(list(self.publishers.values()))
        publisher.publish(self.group, self._some())

    def _send(self) -> None:
        self.group.send(self._link(), self._some())

    def _take(self) -> None:
        self.group.take(self._link(), self._some())

    def _sync(self) -> None:
        instance = self._instance()
        if instance.alive:
            instance.sync()

    def _acknowledge(self) -> None:
        self.group.acknowledge(self._link())

    def _take_ack(self) -> None:
        self.group.take_ack(self._link())

    def _tell_publishers(self) -> None:
        before = len(self.promises())
        deliver_acks(self.group, self.publishers, self.chance)
        found = self.promises()[before:]
        if found and self.chance.random() < 0.1:
            # A false promise shows when an instance that it speaks for loses what was not durable.
            name = self.chance.choice(sorted(name for name, _ in self.chance.choice(found).holders))
            if self.group.instances[name].alive:
                self._note("crash", name, "after a promise")
                self._end(self.group.instances[name])
                self.group.crash(name, 0)

    def _run_subscriber(self) -> None:
        self.chance.choice(self.subscribers).run(self.group, self._some())

    def _connect(self) -> None:
        self.group.connect(self._link())

    def _save_state(self) -> None:
        self.group.save_state(self._instance().name)

    # Clients move

    def _may_move(self) -> bool:
        """True if no link was downgraded and has not caught up since (replication.md §8)."""
        for link in sorted(self.tainted):
            destination = self.group.destination(link)
            caught_up = destination.acked() >= len(self.group.instances[link[0]].log)
            if destination.mode == SYNC and link in self.group.flows and caught_up:
                self.tainted.discard(link)
        return not self.tainted

    def _is_filled(self, name: str) -> bool:
        """True if an instance was never wiped, or holds again all that the others hold."""
        if name in self.filling:
            held = {record.bookmark for record in self.group.instances[name].log}
            if all(
                record.bookmark in held
                for instance in self.group.instances.values()
                for record in instance.log
            ):
                self.filling.discard(name)
        return name not in self.filling

    def _move_publisher(self) -> None:
        number = self.chance.randrange(len(self.publishers))
        publisher = self.publishers[f"p{number}"]
        name = self.chance.choice(self.homes[number])
        back = publisher.where is None and publisher.home == name
        if self._is_filled(name) and (back or not publisher.last or self._may_move()):
            self._note(publisher.name, "moves to", name)
            publisher.connect(self.group, name)

    def _move_subscriber(self) -> None:
        number = self.chance.randrange(len(self.subscribers))
        subscriber = self.subscribers[number]
        name = self.chance.choice(self.subscriber_homes[number])
        if self._is_filled(name) and (not subscriber.seen or self._may_move()):
            self._note(subscriber.name, "moves to", name)
            subscriber.connect(self.group, name)

    # Faults

    def _break(self) -> None:
        link = self._link()
        self._note("link", link, "breaks")
        self.group.break_flow(link)

    def _partition(self) -> None:
        one, other = self.chance.sample(sorted(self.group.instances), 2)
        self._note("cut between", one, other)
        self.group.partition(one, other)

    def _heal(self) -> None:
        self.group.heal()

    def _end(self, instance: Instance) -> None:
        self.deaths += 1
        for publisher in self.publishers.values():
            if publisher.where == instance.name:
                publisher.disconnect(self.group)
        for subscriber in self.subscribers:
            if subscriber.where == instance.name:
                subscriber.disconnect()

    def _kill(self) -> None:
        instance = self._instance()
        if instance.alive:
            self._note("kill", instance.name)
            self._end(instance)
            self.group.kill(instance.name)

    def _crash(self) -> None:
        """Crash one machine, or all of them at the same moment: a power failure of the site."""
        alive = [instance for instance in self.group.instances.values() if instance.alive]
        if alive and self.chance.random() < 0.7:
            alive = [self.chance.choice(alive)]
        for instance in alive:
            kept = self.chance.choice([0, 0, 1, 5])
            self._note("crash", instance.name, "and keep", kept)
            self._end(instance)
            self.group.crash(instance.name, kept)

    def _start(self) -> None:
        instance = self._instance()
        if not instance.alive:
            self._note("start", instance.name)
            self.group.start(instance.name)

    def _downgrade(self) -> None:
        link = self._link()
        if self.group.destination(link).mode == SYNC:
            self._note("downgrade", link)
            self.group.downgrade(link)
            self.tainted.add(link)

    def _upgrade(self) -> None:
        link = self._link()
        if self.group.destination(link).mode == DOWNGRADED:
            self._note("upgrade", link)
            self.group.upgrade(link)

    def _wipe(self) -> None:
        """Replace a disk, if the others hold all that was promised."""
        instance = self._instance()
        if self.filling or not self._may_move():
            return
        others = [other for other in self.group.instances.values() if other is not instance]
        promised = {
            promise.bookmark for publisher in self.publishers.values() for promise in publisher.promises
        }
        for other in others:
            if not other.alive or promised - {record.bookmark for record in other.log[: other.durable]}:
                return
        self._note("wipe", instance.name)
        if instance.alive:
            self._end(instance)
            self.group.kill(instance.name)
        self.group.wipe(instance.name)
        self.filling.add(instance.name)
        self.group.start(instance.name)

    # Checks

    def promises(self) -> list[Any]:
        return [promise for publisher in self.publishers.values() for promise in publisher.promises]

    def check(self) -> None:
        logs = logs_of(self.group)
        check_promises(self.promises(), logs, epochs_of(self.group))
        check_order(logs_of(self.group, durable_only=False))
        check_contents(logs)

    def settle(self) -> None:
        """Quiet: all instances run, all links are whole, all publishers send what they have left."""
        self.group.heal()
        for name in self.group.instances:
            self.group.start(name)
        for link in self.group.links():
            self.group.break_flow(link)
        assert self.group.settle(), "the group does not come to rest"
        for number, publisher in enumerate(self.publishers.values()):
            publisher.connect(self.group, publisher.where or self.homes[number][0])
            publisher.publish(self.group, max(0, publisher.last - publisher.next + 1) + 1)
        assert self.group.settle(), "the group does not come to rest"
        self._upgrade_all()
        deliver_acks(self.group, self.publishers)
        self.check()
        for publisher in self.publishers.values():
            assert publisher.acked == publisher.last, f"{publisher.name} was never fully acknowledged"
        check_equal(logs_of(self.group))
        logs = logs_of(self.group, messages_only=True)
        for number, subscriber in enumerate(self.subscribers):
            if subscriber.where is None:
                subscriber.connect(self.group, self.subscriber_homes[number][0])
            subscriber.run(self.group)
            excused = {
                missed.bookmark for missed in subscriber.skipped if missed.reason != "before the start"
            }
            check_received(subscriber.received, logs, excused)

    def _upgrade_all(self) -> None:
        for link in self.group.links():
            self.group.upgrade(link)


DEFAULT_PLAN_STEPS = 600


def run_plan(
    seed: int,
    steps: int = DEFAULT_PLAN_STEPS,
    group_type: Callable[[list[Instance]], Group] = Group,
    plan_type: type[Plan] = Plan,
) -> Plan:
    """Run a seed. A violated invariant raises, with the last events attached."""
    plan = plan_type(seed, group_type)
    try:
        plan.run(steps)
    except BaseException as failure:
        failure.add_note(
            f"seed {seed} ({plan.topology.name}), {steps} steps; last events:\n"
            + "\n".join(plan.history[-30:])
        )
        raise
    return plan
