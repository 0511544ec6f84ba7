"""Random faults of two or three instances that replicate to each other in full mesh, from one seed.

Instances and single processes die or stand still; connections are cut, flap, fall silent in one direction, or become
slow. With `hosts`, disks hang or are slow, and clocks are set. After each fault the network is whole, all instances
run, and all clients must work again.
"""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.fault.load import Participant, Publisher, running
from tests.fault.replicated_load import (
    LOGGED,
    QUEUE,
    QUEUED,
    MovingPublisher,
    MovingSubscriber,
    Worker,
    check_group,
    drain_queue,
    key_of,
)
from tests.fault.storm import DEATHS_PER_KIND, kill_supervisor
from tests.fault.transacting_load import (
    TASK_QUEUE,
    TASK_QUEUE_XML,
    WORK,
    TaskPublisher,
    TransactingWorker,
    check_tasks,
    finish_tasks,
)
from tests.support.held_syncs import HeldSyncs
from tests.support.instances import Instances, Sent, To
from tests.support.link_proxy import LinkProxy
from tests.support.queues import queue_xml
from tests.support.server import ServerProcess, wait_until
from tests.support.settable_clock import SettableClock

KINDS = (
    "death",
    "deaths in turn",
    "power loss",
    "death while parted",
    "core",
    "transport",
    "replication",
    "supervisor",
    "restart",
    "pause",
    "cut",
    "flapping",
    "silence",
    "slow",
)
HOST_KINDS = ("hanging disk", "slow disk", "clock")
LONGEST_S = 2.0
SLOWEST_SYNC_S = 0.2
LARGEST_JUMP_S = 1000.0
PROGRESS_S = 90.0
NAMES = "ABC"


@dataclass(frozen=True)
class Host:
    """The disk and the clock of the machine of one instance."""

    syncs: HeldSyncs
    clock: SettableClock

    @property
    def environment(self) -> dict[str, str]:
        return {**self.syncs.environment, **self.clock.environment}


NO_HOSTS: Mapping[str, Host] = MappingProxyType({})


def make_hosts(directory: Path, names: str) -> dict[str, Host]:
    """The hosts of instances. Servers start more slowly there."""
    return {
        name: Host(HeldSyncs(directory / f"disk-{name}"), SettableClock(directory / f"clock-{name}"))
        for name in names
    }


def make_group(directory: Path, count: int, hosts: Mapping[str, Host] = NO_HOSTS) -> Instances:
    """Instances A, B, … that are not started: each has the others as sync destinations behind proxies, and queues."""
    names = NAMES[:count]
    group = Instances(directory)
    patterns = (LOGGED, f"^{QUEUE}$", WORK, f"^{TASK_QUEUE}$")
    topics = [Sent(pattern) for pattern in patterns]
    for name in names:
        group.add(
            name,
            [To(other, topics=topics) for other in names if other != name],
            topics=patterns,
            xml=f"<SOW>{queue_xml(QUEUE, QUEUED)}{TASK_QUEUE_XML}</SOW>",
            environment=hosts[name].environment if hosts else {},
        )
    for name in names:
        for other in names:
            if other != name:
                group.proxy(name, other)
    return group


class GroupStorm:
    """The faults of one seed. `strike` returns when everything works again."""

    def __init__(
        self, group: Instances, names: str, seed: int, hosts: Mapping[str, Host] = NO_HOSTS
    ) -> None:
        self.history: list[str] = []
        self._hosts = hosts
        self._kinds = KINDS + HOST_KINDS if hosts else KINDS
        self._group = group
        self._names = names
        self._chance = random.Random(seed)
        self._deaths: Counter[tuple[str, str]] = Counter()

    def strike(self, participants: Sequence[Participant], kind: str | None = None) -> None:
        self._wait(0.5)
        kind = kind or self._chance.choice(self._kinds)
        name = self._chance.choice(self._names)
        self.history.append(f"{kind} {name}")
        getattr(self, "_" + kind.replace(" ", "_"))(name)
        for proxy in self._proxies():
            proxy.heal()
        wait_for_progress(participants)

    # Deaths

    def _death(self, name: str) -> None:
        self._group.kill(name)
        self._wait()
        self._start(name)

    def _deaths_in_turn(self, name: str) -> None:
        """Each instance dies while the one before it may still lack something."""
        for each in self._chance.sample(self._names, len(self._names)):
            self._group.kill(each)
            self._wait(0.5)
            self._start(each)

    def _power_loss(self, name: str) -> None:
        threads = [threading.Thread(target=self._group.kill, args=(each,)) for each in self._names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in self._chance.sample(self._names, len(self._names)):
            self._start(each)

    def _death_while_parted(self, name: str) -> None:
        other = self._other(name)
        for proxy in self._proxies(name, other):
            proxy.cut()
        self._wait(1)
        self._group.kill(self._chance.choice([name, other]))
        self._wait(0.5)
        if self._chance.random() < 0.5:
            for proxy in self._proxies():
                proxy.heal()
        for each in (name, other):
            if self._group[each].process is None:
                self._start(each)

    def _supervisor(self, name: str) -> None:
        kill_supervisor(self._group[name])
        self._start(name)

    def _restart(self, name: str) -> None:
        self._group[name].stop()
        self._start(name)

    def _core(self, name: str) -> None:
        self._one_process(name, "amps: core")

    def _transport(self, name: str) -> None:
        self._one_process(name, "amps: transport")

    def _replication(self, name: str) -> None:
        self._one_process(name, "amps: replication")

    def _one_process(self, name: str, title: str) -> None:
        """Kill one process. The supervisor gives up after many deaths within a minute."""
        self._deaths[name, title] += 1
        server = self._group[name]
        pids = server.pids(title)
        if self._deaths[name, title] > DEATHS_PER_KIND or not pids:
            self._death(name)
        else:
            server.kill_process(pids[0])

    def _start(self, name: str) -> None:
        for key in [key for key in self._deaths if key[0] == name]:
            del self._deaths[key]
        self._group[name].start()

    # Pauses and the network

    def _pause(self, name: str) -> None:
        signal_all(self._group[name], signal.SIGSTOP)
        try:
            self._wait()
        finally:
            signal_all(self._group[name], signal.SIGCONT)

    def _cut(self, name: str) -> None:
        for proxy in self._proxies(name, self._other(name)):
            proxy.cut()
        self._wait()

    def _flapping(self, name: str) -> None:
        for _ in range(6):
            self._cut(name)
            for proxy in self._proxies():
                proxy.heal()
            self._wait(0.5)

    def _silence(self, name: str) -> None:
        """Nothing more arrives at one instance from another one; then it continues, or the connection is lost."""
        other = self._other(name)
        self._group.proxy(name, other).hold("back")
        self._group.proxy(other, name).hold("forward")
        self._wait()
        if self._chance.random() < 0.5:
            for proxy in self._proxies(name, other):
                proxy.cut()

    def _slow(self, name: str) -> None:
        proxies = self._proxies(name, self._other(name))
        for proxy in proxies:
            proxy.delay_s = self._chance.random() * 0.1
        self._wait()
        for proxy in proxies:
            proxy.delay_s = 0

    # The host

    def _hanging_disk(self, name: str) -> None:
        with self._hosts[name].syncs.held():
            self._wait()

    def _slow_disk(self, name: str) -> None:
        with self._hosts[name].syncs.slowed(self._chance.random() * SLOWEST_SYNC_S):
            self._wait(2 * LONGEST_S)

    def _clock(self, name: str) -> None:
        self._hosts[name].clock.set_forward(self._chance.uniform(-LARGEST_JUMP_S, LARGEST_JUMP_S))
        self._wait()

    def _other(self, name: str) -> str:
        return self._chance.choice(self._names.replace(name, ""))

    def _proxies(self, *pair: str) -> list[LinkProxy]:
        """The proxies between two instances, or all."""
        among = pair or self._names
        return [self._group.proxy(one, other) for one in among for other in among if one != other]

    def _wait(self, longest_s: float = LONGEST_S) -> None:
        time.sleep(self._chance.random() * longest_s)


def signal_all(server: ServerProcess, number: signal.Signals) -> None:
    """Send a signal to all processes of an instance, the supervisor first."""
    assert server.process is not None
    for pid in dict.fromkeys([server.process.pid, *server.pids()]):
        os.kill(pid, number)


def _progress(participants: Sequence[Participant]) -> dict[str, int]:
    """How far each participant has got. All workers count as one: the queue may be empty for those at an instance
    whose messages others have taken.
    """
    found: dict[str, int] = {}
    for each in participants:
        assert not each.problems, each.problems
        if isinstance(each, Publisher):
            found[each.name] = each.acknowledged
        elif isinstance(each, MovingSubscriber):
            found[each.name] = each.count
        elif isinstance(each, Worker):
            found["workers"] = found.get("workers", 0) + len(each.answered)
        elif isinstance(each, TransactingWorker):
            found["transacting workers"] = found.get("transacting workers", 0) + len(each.done)
    return found


def wait_for_progress(participants: Sequence[Participant]) -> None:
    """Wait until everyone has got further."""
    before = _progress(participants)

    def standing_still() -> list[str]:
        return [name for name, count in _progress(participants).items() if count <= before[name]]

    wait_until(lambda: not standing_still(), PROGRESS_S, lambda: f"these stand still: {standing_still()}")


def group_storm(
    group: Instances,
    names: str,
    seed: int,
    kinds: Sequence[str | None],
    hosts: Mapping[str, Host] = NO_HOSTS,
) -> None:
    """Run load, one fault of each of `kinds` (None: any), and the audit afterwards."""
    servers = [group[name] for name in names]
    publishers = [
        MovingPublisher(servers, f"publisher-{n}", topic, seed + n)
        for n, topic in enumerate(["load/0", "load/1", QUEUED])
    ]
    subscribers = [MovingSubscriber(servers, f"subscriber-{n}", seed + 10 + n) for n in range(2)]
    workers = [Worker(servers, f"worker-{n}", seed + 20 + n) for n in range(3)]
    tasks = [TaskPublisher(server, f"tasks-{n}", seed + 30 + n) for n, server in enumerate(servers)]
    taskers = [TransactingWorker(servers, f"tasker-{n}", seed + 40 + n) for n in range(3)]
    everyone = [*publishers, *subscribers, *workers, *tasks, *taskers]
    weather = GroupStorm(group, names, seed, hosts)
    try:
        with running(everyone):
            # A subscriber that moves knows a place only for publishers of which it has had a message.
            wait_until(
                lambda: all(len(subscriber.seen) == len(publishers) for subscriber in subscribers),
                PROGRESS_S,
                "subscribers do not get messages of all publishers",
            )
            for kind in kinds:
                weather.strike(everyone, kind)
        check_group(servers, list(publishers), subscribers)
        # The contents of the logs are also on the disks.
        weather.strike([], "power loss")
        log = check_group(servers, list(publishers), subscribers)
        answered = {key for worker in workers for key in worker.answered}
        again = drain_queue(servers)
        assert not again & answered, f"delivered after the answer: {sorted(again & answered)[:10]}"
        queued = {key_of(body) for _, body in log if key_of(body)[0] == publishers[2].name}
        delivered = again.union(*(worker.delivered for worker in workers))
        assert delivered == queued, f"never delivered: {sorted(queued - delivered)[:10]}"
        check_tasks(servers, tasks, [*taskers, *finish_tasks(servers, seed)])
    except BaseException as failure:
        failure.add_note(f"seed {seed}, instances {names}, faults so far: {weather.history}")
        raise
