"""The bytes waiting for slow clients, counted in memory that all workers share."""

import os
from collections.abc import Callable
from pathlib import Path

from amps.config import load
from amps.server.memory_use import Deciding, MemoryUse, pool_limits
from amps.server.runtime import Runtime


def in_a_child(work: Callable[..., object], *values: object) -> None:
    child = os.fork()
    if child == 0:
        work(*values)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_use_of_a_pool_is_that_of_all_workers() -> None:
    use = MemoryUse(3, 6)
    for worker, pool, used_bytes, largest_bytes in ((0, 0, 5, 4), (1, 0, 7, 7), (2, 5, 9, 8), (0, 5, 1, 1)):
        in_a_child(use.publish, worker, pool, used_bytes, largest_bytes)
    assert [use.used_bytes(pool) for pool in range(6)] == [12, 0, 0, 0, 0, 10]
    assert (use.largest(0), use.largest(5)) == ((1, 7), (2, 8))


def test_the_first_of_equals_is_the_largest() -> None:
    use = MemoryUse(3, 1)
    for worker in (2, 1):
        use.publish(worker, 0, 5, 5)
    assert use.largest(0) == (1, 5)


def test_a_dead_worker_s_words_are_cleared_and_no_others() -> None:
    use = MemoryUse(3, 5)
    for worker in range(3):
        for pool in range(5):
            use.publish(worker, pool, 10, 10)
    use.clear(1)
    assert [use.used_bytes(pool) for pool in range(5)] == [20] * 5
    use.reset()
    assert [use.used_bytes(pool) for pool in range(5)] == [0] * 5


def test_a_new_tree_begins_with_empty_pools() -> None:
    runtime = Runtime(2, pools=3)
    try:
        runtime.memory_use.publish(1, 2, 10, 10)
        runtime.reset()
        assert runtime.memory_use.used_bytes(2) == 0
    finally:
        runtime.directory.remove()


def test_the_instance_has_a_pool_and_each_transport_with_a_limit_of_its_own() -> None:
    """operations.md §2.1 1"""
    own = "<MessageMemoryLimit>2MB</MessageMemoryLimit>"
    transports = "".join(
        f"<Transport><Name>{name}</Name><Type>tcp</Type><InetAddr>{port}</InetAddr>"
        f"<Protocol>amps</Protocol><MessageType>json</MessageType>{extra}</Transport>"
        for name, port, extra in (("a", 9001, ""), ("b", 9002, own), ("c", 9003, ""), ("d", 9004, own))
    )
    text = (
        "<AMPSConfig><Name>n</Name><MessageMemoryLimit>5MB</MessageMemoryLimit>"
        f"<Transports>{transports}</Transports></AMPSConfig>"
    )
    limits = pool_limits(load("c.xml", text=text).config)
    assert list(limits.items()) == [(None, 5 << 20), ("b", 2 << 20), ("d", 2 << 20)]


def test_one_worker_decides_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = Deciding(path), Deciding(path)
    with first.tried() as alone:
        assert alone
        with second.tried() as alone:
            assert not alone
    with second.tried() as alone:
        assert alone


def test_the_death_of_the_deciding_worker_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"

    def die_deciding() -> None:
        with Deciding(path).tried() as alone:
            os._exit(0 if alone else 1)

    in_a_child(die_deciding)
    with Deciding(path).tried() as alone:
        assert alone
