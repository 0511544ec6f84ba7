"""Transactions of workers on queues that span instances (queue_guarantees.md §4; replication.md §14, decision 25.93)."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.client import HAClient
from tests.support.queues import bodies
from tests.support.replicated_queues import Group

WAIT_S = 30


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path)
    try:
        with group.instances:
            group.add("A", ["B"])
            group.add("B", ["A"])
            yield group
    finally:
        group.release()


class Worker:
    """A worker that handles one message in a transaction, and moves between the instances in that order."""

    def __init__(self, group: Group, *names: str) -> None:
        self._servers = [f"tcp://127.0.0.1:{group.instances[name].port()}/amps/json" for name in names]
        self.outcome: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with HAClient("worker", self._servers, dispatch="thread") as client:
            done = threading.Event()

            def handle(message: Any) -> None:
                try:
                    with message.transaction() as transaction:
                        transaction.publish("Tresult", message.data)
                    self.outcome.append(None)
                except Exception as failure:
                    self.outcome.append(failure)
                done.set()

            client.subscribe("Q", handler=handle)
            done.wait(2 * WAIT_S)

    def finished(self) -> list[object]:
        self._thread.join(2 * WAIT_S)
        assert not self._thread.is_alive()
        return self.outcome


def test_a_transaction_of_a_lost_owner_is_decided_when_the_owner_is_back(pair: Group) -> None:
    """The owner has recorded it, and dies before the other instance has it. The worker repeats it there: it must not be
    refused for good, or the two logs would differ for ever, and the message would be in one queue and not in the other.
    """
    proxies = [pair.instances.proxy("A", "B"), pair.instances.proxy("B", "A")]
    pair.instances.start()
    pair.publish("A", 1)
    for proxy in proxies:
        proxy.cut()
    worker = Worker(pair, "A", "B")
    pair.wait_metrics("A", queue_depth=0)
    pair.instances.kill("A")
    pair.instances["B"].log.wait_for("07-0013", "worker", "transaction undecided", timeout_s=WAIT_S)
    for proxy in proxies:
        proxy.heal()
    pair.instances.start("A")
    assert worker.finished() == [None]
    for name in "AB":
        (result,) = pair.instances.log_of(name, 1, "Tresult")
        assert [result.body] == bodies(1)
        pair.wait_metrics(name, queue_depth=0)
