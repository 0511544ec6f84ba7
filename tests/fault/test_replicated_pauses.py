"""Instances that stand still, or whose clock jumps, while publishers and workers of a queue go on."""

import functools
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fault.load import replay, running
from tests.fault.replicated_storm import signal_all, wait_for_progress
from tests.fault.transacting_load import (
    LEASE_S,
    RESULTS,
    TASK_QUEUE,
    TASK_QUEUE_XML,
    TASKS,
    WORK,
    TaskPublisher,
    TransactingWorker,
    check_tasks,
    finish_tasks,
)
from tests.support.instances import Instances, Sent, two_way
from tests.support.patched_servers import patched
from tests.support.queues import result, send, transaction_body
from tests.support.server import ServerProcess, wait_until
from tests.support.settable_clock import SettableClock

SHORT_TIMES = """
from amps.server.replication import link
link.PING_AFTER_S, link.DEAD_AFTER_S, link.WATCH_S = 0.5, 1.5, 0.2
"""
LONG = bool(os.environ.get("AMPS_LONG_TESTS"))
PATIENCE_S = 60.0
PAUSE_S = 20.0 if LONG else 3.0
"""Longer than the leases, and than the silence after which a link ends."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    with Instances(tmp_path) as instances:
        yield instances


def _add_pair(group: Instances, environments: Mapping[str, Mapping[str, str]], xml: str = "") -> None:
    topics = (Sent(WORK), Sent(f"^{TASK_QUEUE}$"))
    for name, to in two_way(topics=topics):
        group.add(
            name,
            to,
            topics=(WORK, f"^{TASK_QUEUE}$"),
            xml=f"<SOW>{TASK_QUEUE_XML}</SOW>{xml}",
            environment=environments.get(name, {}),
        )


def _load(
    group: Instances,
) -> tuple[list[ServerProcess], list[TaskPublisher], list[TransactingWorker]]:
    """Both instances, a publisher of tasks for each, and four workers that move."""
    servers = [group[name] for name in "AB"]
    publishers = [TaskPublisher(server, f"tasks-{n}", n) for n, server in enumerate(servers)]
    return servers, publishers, [TransactingWorker(servers, f"worker-{n}", 10 + n) for n in range(4)]


def test_leases_of_a_paused_instance_take_no_effect_later(group: Instances, tmp_path: Path) -> None:
    """replication.md §14.1, §24.8, queue_guarantees.md §4 rule 3; Jepsen scenario of a paused process. Workers answer
    during the pause, which is longer than their leases: each task is acknowledged once in the group.
    """
    short_times = {} if LONG else patched(tmp_path, SHORT_TIMES)
    _add_pair(group, {"A": short_times, "B": short_times})
    group.start()
    servers, publishers, workers = _load(group)
    everyone = [*publishers, *workers]
    with running(everyone):
        wait_for_progress(everyone)
        for name in "BA" if LONG else "B":
            pids = group[name].pids()
            signal_all(group[name], signal.SIGSTOP)
            try:
                time.sleep(PAUSE_S)
            finally:
                signal_all(group[name], signal.SIGCONT)
            wait_for_progress(everyone)
            assert group[name].pids() == pids
        wait_until(lambda: any(worker.lost for worker in workers), 60, f"no lease of {LEASE_S} s was over")
    check_tasks(servers, publishers, [*workers, *finish_tasks(servers, 20)])


DOWNGRADE = """<Actions><Action><On><Module>amps-action-on-schedule</Module><Options><Every>200ms</Every></Options></On>
<Do><Module>amps-action-do-downgrade-replication</Module><Options><Age>2s</Age></Options></Do>
<Do><Module>amps-action-do-echo-message</Module><Options><Message>looked at ages</Message></Options></Do>
</Action></Actions>"""
LOOKED = "looked at ages"
HOUR_S = 3600


def _has_looked(group: Instances, count: int) -> bool:
    return len(group["A"].log.search(LOOKED)) >= count


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[SettableClock]:
    made = SettableClock(tmp_path / "clock")
    yield made
    made.close()


def test_a_clock_that_jumps_loses_nothing_and_downgrades_nothing(group: Instances, clock: SettableClock) -> None:
    """replication.md §8, 25.17, queue_guarantees.md §1 rule 10: the clock of A is set back, then forward. Under load a
    message is always on its way to B. No age follows the clock, and each task is acknowledged once in the group.
    """
    _add_pair(group, {"A": clock.environment}, DOWNGRADE)
    group.start()
    servers, publishers, workers = _load(group)
    everyone = [*publishers, *workers]
    with running(everyone):
        wait_for_progress(everyone)
        for jump_s, looks in ((-HOUR_S, 15), (2 * HOUR_S, 3)):
            clock.set_forward(jump_s)
            wanted = len(group["A"].log.search(LOOKED)) + looks
            wait_until(functools.partial(_has_looked, group, wanted), 60, "the schedule does not run")
            wait_for_progress(everyone)
    for name in "AB":
        assert not group[name].log.find("1E-0017")
        assert group.is_connected(name, "BA"["AB".index(name)])
    check_tasks(servers, publishers, [*workers, *finish_tasks(servers, 20)])


@pytest.mark.parametrize("own_name", [False, True])
def test_a_worker_that_moves_with_an_open_transaction(group: Instances, unique: str, own_name: bool) -> None:
    """Decision 25.93. A has recorded the transaction, and dies before B has it. B decides nothing before A is back.
    Then the transaction of the same client name is a repetition, which succeeds; that of another name is refused.
    """
    _add_pair(group, {})
    proxies = [group.proxy("A", "B"), group.proxy("B", "A")]
    group.start()
    with group.client("A", unique + "-p") as publisher:
        publisher.publish_persisted(TASKS, [b'{"p":"p","n":1}'], 1)
    with group.client("A", unique) as worker:
        worker.subscribe(TASK_QUEUE, "s")
        (task,) = worker.receive_published(1)
        for proxy in proxies:
            proxy.cut()
        for name, other in ("AB", "BA"):
            group.wait_disconnected(name, other)
        body = transaction_body(result(b'{"done":1}', RESULTS))
        send(worker, [task], 1, body, t=TASK_QUEUE)
        with group.reader("A", RESULTS) as reader:
            assert reader.receive_published(1)[0].body == b'{"done":1}'
        group.kill("A")
    name_at_b = unique + ("-at-b" if own_name else "")
    with group.client("B", name_at_b) as worker:
        send(worker, [task], 1, body, t=TASK_QUEUE)
        assert worker.wait_for_ack("processed").reason == "transaction undecided"
    for proxy in proxies:
        proxy.heal()
    group.start("A")
    with group.client("A", unique + "-q") as publisher:
        publisher.publish_persisted(TASKS, [b'{"p":"p","n":2}'], 1)
    with group.client("B", name_at_b) as worker:
        send(worker, [task], 1, body, t=TASK_QUEUE)
        answer = worker.wait_for_ack("persisted", timeout_s=PATIENCE_S)
        assert answer.reason == ("lease lost" if own_name else "")
    assert [[found for _, found in replay(group[name], RESULTS)] for name in "AB"] == [[b'{"done":1}']] * 2
