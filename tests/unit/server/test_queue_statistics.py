"""Statistics of queues besides the core's counters. They are shared, and partly reset at a restart."""

import os
from collections.abc import Callable

from amps.server.queue_statistics import QueueStatistics
from amps.server.runtime import Runtime


def in_a_child(work: Callable[..., object], *values: object) -> None:
    child = os.fork()
    if child == 0:
        work(*values)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_queries_of_all_workers_are_added_up() -> None:
    """queues.md §18, `query_count`"""
    statistics = QueueStatistics(3, 2)
    for worker, queue in ((0, 0), (1, 0), (1, 0), (2, 1)):
        in_a_child(statistics.count_query, worker, queue)
    assert [statistics.queries(queue) for queue in range(2)] == [3, 1]
    statistics.reset()
    assert [statistics.queries(queue) for queue in range(2)] == [0, 0]


def test_transactions_that_workers_refuse_are_counted_apart() -> None:
    """queue_guarantees.md Q-60"""
    statistics = QueueStatistics(2, 2)
    statistics.count_query(1, 1)
    for worker, queue in ((0, 0), (1, 0), (1, 1), (1, 1), (1, 1)):
        in_a_child(statistics.count_refused_transaction, worker, queue)
    assert [statistics.refused_transactions(queue) for queue in range(2)] == [2, 3]
    assert [statistics.queries(queue) for queue in range(2)] == [0, 1]
    statistics.reset()
    assert [statistics.refused_transactions(queue) for queue in range(2)] == [0, 0]


def test_an_instance_without_queues_has_none() -> None:
    QueueStatistics(2, 0).reset()


def test_a_new_tree_starts_now() -> None:
    """queues.md §18: the age of the oldest message is reset at a restart."""
    runtime = Runtime(1, queues=2)
    try:
        began_ns = runtime.began_ns
        runtime.queue_statistics.count_query(0, 1)
        runtime.reset()
        assert runtime.began_ns > began_ns
        assert runtime.queue_statistics.queries(1) == 0
    finally:
        runtime.directory.remove()
