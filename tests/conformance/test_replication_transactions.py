"""Transactions of workers on queues that span instances (queue_guarantees.md §4; replication.md §14, 25.93)."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.client import HAClient
from tests.support.queues import bodies, queue_xml, result, send, transaction_body
from tests.support.replicated_queues import Group
from tests.support.server import wait_until

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


def test_a_proxy_decides_without_the_lost_owner(pair: Group) -> None:
    """replication_histories.md H-23: the refusal of the instance that the operator lets act for the owner takes the
    sequences. When the owner is back, its transaction is a duplicate there: the two logs differ.
    """
    proxies = [pair.instances.proxy("A", "B"), pair.instances.proxy("B", "A")]
    pair.instances.start()
    pair.publish("A", 1)
    worker = pair.client("A", "worker")
    worker.subscribe("Q", "s")
    (message,) = worker.receive_published(1)
    for proxy in proxies:
        proxy.cut()
    body = transaction_body(result(b'{"done":1}', "Tresult"))
    send(worker, [message], 1, body)
    pair.wait_metrics("A", queue_depth=0)
    pair.instances.kill("A")
    pair.order("B", "enable_proxied_transfer")
    (again,) = pair.consumer("B", 1).receive_published(1)
    assert again.body == message.body
    worker = pair.client("B", "worker")
    send(worker, [message], 1, body)
    pair.instances["B"].log.wait_for("02-0030", "worker", "lease lost")
    for proxy in proxies:
        proxy.heal()
    pair.instances.start("A")
    assert worker.wait_for_ack("persisted", timeout_s=WAIT_S).reason == "lease lost"
    pair.publish("A", 2)
    assert len(pair.instances.log_of("A", 1, "Tresult")) == 1
    with pair.instances.reader("B", "Tresult") as reader:
        reader.expect_silence()


def test_a_transaction_of_a_message_that_never_existed_is_refused(tmp_path: Path) -> None:
    """replication.md 25.94: not while a partner is away, which may have recorded it; then once, as any lost lease. Its
    sequences are taken in both logs, so the worker goes on.
    """
    group = Group(tmp_path)
    queue = queue_xml("Q", "T", DeferredAckExpiration="1s")
    try:
        with group.instances:
            group.add("A", ["B"], queue)
            group.add("B", ["A"], queue)
            proxies = [group.instances.proxy("A", "B"), group.instances.proxy("B", "A")]
            group.instances.start()
            for proxy in proxies:
                proxy.cut()
            for name, other in ("AB", "BA"):
                group.instances.wait_disconnected(name, other)
            for _ in range(3):
                assert _attempt(group) == "transaction undecided"
                time.sleep(1)
            for proxy in proxies:
                proxy.heal()
            wait_until(lambda: _attempt(group) == "lease lost", WAIT_S, "it is never decided")
            worker = group.client("B", "worker")
            worker.publish_persisted("Tresult", [b'{"after":1}'], 3)
            for name in "AB":
                (result,) = group.instances.log_of(name, 1, "Tresult")
                assert result.body == b'{"after":1}'
    finally:
        group.release()


def _attempt(group: Group) -> str:
    """A worker connects and repeats its transaction. Returns the reason of the failure."""
    worker = group.client("B", "worker")
    send(worker, "4711|7|", 1, transaction_body(result(b'{"done":1}', "Tresult")), a="processed,persisted")
    reason = worker.wait_for_ack("processed", timeout_s=WAIT_S).reason
    worker.close()
    return str(reason)
