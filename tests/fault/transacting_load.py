"""Workers of a queue that spans instances, each of whose answers is a transaction: no stale lease can take effect.

A task is published to one instance, by a publisher that stays there (a publisher that moves may give a message two
owners, replication_histories.md H-10). A worker acknowledges it together with one result. It keeps some tasks longer
than their lease lasts. So the results tell which leases took effect: each task must have exactly one in each log.

A worker has a client name for each instance: it repeats a transaction without an answer there, and nowhere else. So
it goes on at the other instance meanwhile, which would decide nothing about that transaction (decision 25.93).
"""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fault.load import PATIENCE_S, Publisher, check_everything, replay, running
from tests.fault.replicated_load import Key, Mover, MovingPublisher, arrivals, key_of
from tests.support.peer import Message, RawClient, Value
from tests.support.queues import queue_xml, result, transaction_body
from tests.support.server import ServerProcess, wait_until

WORK = "^work/"
TASKS = "work/tasks"
RESULTS = "work/results"
TASK_QUEUE = "W"
LEASE_S = 1
BACKLOG = 10
PACE_S = 0.05

TASK_QUEUE_XML = queue_xml(TASK_QUEUE, TASKS, LeasePeriod=f"{LEASE_S}s", MaxPerSubscriptionBacklog=BACKLOG)

Transaction = tuple[str, int, Key]
"""Client name, sequence and task."""


class TaskPublisher(MovingPublisher):
    """Publishes tasks to one instance, slowly enough for the workers."""

    window = 5

    def __init__(self, server: ServerProcess, name: str, seed: int) -> None:
        super().__init__([server], name, TASKS, seed)

    def _take_acks(self, client: RawClient) -> None:
        self._stopping.wait(PACE_S)
        super()._take_acks(client)


@dataclass
class _Station:
    """What a worker knows of its work at one instance."""

    last: int = 0
    unanswered: dict[int, tuple[str, Key]] = field(default_factory=dict)
    """By sequence: bookmark and task of a transaction."""


class TransactingWorker(Mover):
    """See the module. `patient`: it answers at once."""

    def __init__(
        self, servers: Sequence[ServerProcess], name: str, seed: int, patient: bool = False
    ) -> None:
        super().__init__(servers, name, seed)
        self.done: list[Transaction] = []
        self.lost: list[Transaction] = []
        """Those that were refused: the lease was over."""
        self._patient = patient
        self._stations: dict[str, _Station] = {}

    def session(self, client: RawClient) -> None:
        here = self._server.options.name
        name = f"{self.name}-{here}"
        station = self._stations.setdefault(here, _Station())
        client.logon(name, o="ack_conflation=5ms")
        for sequence in station.unanswered:
            self._transact(client, name, station, sequence)
        client.subscribe(TASK_QUEUE, "s", o=f"max_backlog={BACKLOG}")
        self.connections += 1
        waiting: list[tuple[float, str, Key]] = []
        while not self._stopping.is_set():
            for message in arrivals(client):
                if message.command == "p":
                    key = key_of(message.body)
                    waiting.append((time.monotonic() + self._working_s(), str(message["bm"]), key))
                elif message.is_ack("persisted"):
                    self._answered(name, station, message)
            for task in [task for task in waiting if task[0] <= time.monotonic()]:
                waiting.remove(task)
                sequence = station.last + 1
                station.last += 2
                station.unanswered[sequence] = task[1:]
                self._transact(client, name, station, sequence)

    def _working_s(self) -> float:
        if self._patient:
            return 0.0
        return self._choice.random() * (LEASE_S * 1.5 if self._choice.random() < 0.1 else 0.1)

    def _transact(self, client: RawClient, name: str, station: _Station, sequence: int) -> None:
        bookmark, key = station.unanswered[sequence]
        body = json.dumps({"worker": name, "s": sequence, "p": key[0], "n": key[1]}).encode()
        header: dict[str, Value] = {"c": "transaction", "cid": str(sequence), "t": TASK_QUEUE, "a": "persisted"}
        client.send({**header, "bm": bookmark, "s": sequence}, transaction_body(result(body, RESULTS)))

    def _answered(self, name: str, station: _Station, message: Message) -> None:
        sequence = int(str(message["cid"]))
        task = station.unanswered.pop(sequence, None)
        if task is None:
            return  # repeated on this connection
        if message.succeeded:
            self.done.append((name, sequence, task[1]))
        else:
            assert message.reason == "lease lost", f"{name} got {message.header}"
            self.lost.append((name, sequence, task[1]))


def _results(server: ServerProcess) -> list[Transaction]:
    contents = [json.loads(body) for _, body in replay(server, RESULTS)]
    return [(content["worker"], content["s"], (content["p"], content["n"])) for content in contents]


def finish_tasks(servers: Sequence[ServerProcess], seed: int) -> list[TransactingWorker]:
    """Work off what is left, at all instances. Return the workers."""
    workers = [TransactingWorker([server], f"last-{n}", seed + n, True) for n, server in enumerate(servers)]

    def is_finished() -> bool:
        return all(len(replay(server, TASKS)) == len(replay(server, RESULTS)) for server in servers)

    with running([*workers]):
        wait_until(is_finished, PATIENCE_S, lambda: f"tasks are left: {_open_tasks(servers)}")
    return workers


def _open_tasks(servers: Sequence[ServerProcess]) -> dict[str, list[Key]]:
    found = {}
    for server in servers:
        tasks = Counter(key_of(body) for _, body in replay(server, TASKS))
        tasks.subtract(key for *_, key in _results(server))
        found[server.options.name] = [key for key, count in tasks.items() if count][:10]
    return found


def check_tasks(
    servers: Sequence[ServerProcess], publishers: Sequence[Publisher], workers: Sequence[TransactingWorker]
) -> None:
    """Compare all logs with what publishers and workers were told. Nobody works any more, and no task is left."""
    for server in servers:
        tasks = replay(server, TASKS)
        check_everything(tasks, list(publishers), [])
        results = _results(server)
        counts = Counter(key for *_, key in results)
        twice = [key for key, count in counts.items() if count > 1]
        assert not twice, f"acknowledged twice on {server.options.name}: {twice[:10]}"
        assert set(counts) == {key_of(body) for _, body in tasks}
        for worker in workers:
            lacking = set(worker.done) - set(results)
            assert not lacking, f"{worker.name}: results are missing on {server.options.name}: {lacking}"
            stale = set(worker.lost) & set(results)
            assert not stale, f"{worker.name}: refused, and in the log of {server.options.name}: {stale}"
