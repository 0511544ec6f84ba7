"""Memory pools with fake connections: which client is disconnected by which worker, and when."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from amps.server.memory_use import MemoryUse
from amps.server.transport.session import Phase
from amps.server.transport.slow_clients import PATIENCE_S, MemoryPool

LIMIT_BYTES = 1000


@dataclass(eq=False)
class FakeConnection:
    """The fields of a connection that the pool reads. `unsent_since_s` None: the client keeps up."""

    shown_name: str
    listener: Any
    unsent_bytes: int = 0
    writable: bool = False
    unsent_since_s: float | None = None
    aborted: list[str] = field(default_factory=list)
    phase: Phase = Phase.READY

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)
        self.phase = Phase.CLOSED

    def unsent_age_s(self, now_s: float) -> float:
        return 0.0 if self.unsent_since_s is None else now_s - self.unsent_since_s


class FakeInstance:
    """The state that workers share. `alone` False: another worker is deciding."""

    def __init__(self, workers: int = 1) -> None:
        self.memory_use = MemoryUse(workers, 1)
        self.woken: list[int] = []
        self.transport_wake_ups = [
            SimpleNamespace(send=lambda worker=worker: self.woken.append(worker)) for worker in range(workers)
        ]
        self.alone = True

    @contextlib.contextmanager
    def tried(self) -> Iterator[bool]:
        yield self.alone


class Clients:
    """A worker's part in a pool, and its clients, with limits of the instance, and of the transport where given."""

    def __init__(
        self,
        *,
        capacity: float = 0.5,
        age_limit_s: float | None = None,
        transport_capacity: float | None = None,
        transport_age_limit_s: float | None = None,
        instance: FakeInstance | None = None,
        index: int = 0,
    ) -> None:
        self.logged: list[tuple[str, str]] = []
        config = SimpleNamespace(client_max_capacity=capacity, client_message_age_limit_s=age_limit_s)
        log = SimpleNamespace(log=lambda record_id, client: self.logged.append((record_id, client)))
        self.listener = SimpleNamespace(
            config=SimpleNamespace(
                client_max_capacity=transport_capacity, client_message_age_limit_s=transport_age_limit_s
            )
        )
        self.now_s = 0.0
        instance = instance or FakeInstance()
        worker = SimpleNamespace(config=config, log=log, index=index, runtime=instance)
        self.pool = MemoryPool(cast(Any, worker), 0, LIMIT_BYTES, cast(Any, instance))

    def client(self, name: str, unsent_bytes: int = 0, **options: Any) -> FakeConnection:
        return FakeConnection(name, self.listener, unsent_bytes, **options)

    def check(self, connection: FakeConnection) -> None:
        self.pool.check(cast(Any, connection))
        self.pool.settle(self.now_s)

    def slow_client(self, name: str, unsent_bytes: int) -> FakeConnection:
        """A client that the worker has entered in the pool."""
        client = self.client(name, unsent_bytes)
        self.check(client)
        return client


def test_a_client_may_have_its_share_and_no_more() -> None:
    clients = Clients()
    slow = clients.client("slow", LIMIT_BYTES // 2)
    clients.check(slow)
    assert slow.aborted == []
    slow.unsent_bytes += 1
    clients.check(slow)
    assert slow.aborted == ["slow client"]
    assert clients.logged == [("70-0004", "slow")]


def test_a_transport_s_own_share_overrides_the_instance_s() -> None:
    clients = Clients(capacity=0.1, transport_capacity=0.9)
    slow = clients.client("slow", 899)
    clients.check(slow)
    assert slow.aborted == []
    slow.unsent_bytes = 901
    clients.check(slow)
    assert slow.aborted == ["slow client"]


def test_beyond_the_limit_of_all_the_client_with_the_most_bytes_is_disconnected() -> None:
    clients = Clients()
    all_clients = [clients.client(f"client {size}", size) for size in (300, 450, 250)]
    for client in all_clients:
        clients.check(client)
    assert [client.aborted for client in all_clients] == [[], [], []]
    all_clients[2].unsent_bytes = 251
    clients.check(all_clients[2])
    assert [client.aborted for client in all_clients] == [[], ["slow client"], []]
    assert clients.logged == [("70-0004", "client 450")]
    # Its bytes are freed, so the others fit.
    clients.check(all_clients[2])
    assert len(clients.logged) == 1


def test_clients_that_have_caught_up_or_left_do_not_count() -> None:
    clients = Clients()
    caught_up, left = clients.client("caught up", 450), clients.client("left", 450)
    for client in (caught_up, left):
        clients.check(client)
    caught_up.writable = True
    clients.pool.forget(cast(Any, caught_up))
    left.phase = Phase.CLOSED
    clients.pool.forget(cast(Any, left))
    clients.check(left)
    slow = clients.client("slow", 450)
    clients.check(slow)
    assert clients.logged == []


def test_clients_with_waiting_replays_only_are_not_entered() -> None:
    clients = Clients(age_limit_s=1.0)
    replaying = clients.client("replaying", unsent_bytes=0, unsent_since_s=0.0)
    clients.check(replaying)
    clients.pool.look_around(1000.0)
    assert replaying.aborted == []


def test_a_message_may_wait_until_the_age_limit() -> None:
    clients = Clients(age_limit_s=10.0)
    slow = clients.client("slow", 1, unsent_since_s=100.0)
    clients.check(slow)
    clients.pool.look_around(110.0)
    assert slow.aborted == []
    clients.pool.look_around(110.5)
    assert slow.aborted == ["slow client"]
    clients.pool.look_around(111.0)
    assert clients.logged == [("70-0004", "slow")]


def test_a_transport_s_own_age_limit_overrides_the_instance_s() -> None:
    clients = Clients(age_limit_s=1.0, transport_age_limit_s=10.0)
    slow = clients.client("slow", 1, unsent_since_s=100.0)
    clients.check(slow)
    clients.pool.look_around(105.0)
    assert slow.aborted == []
    clients.pool.look_around(111.0)
    assert slow.aborted == ["slow client"]


def test_without_an_age_limit_no_client_is_too_late() -> None:
    clients = Clients()
    slow = clients.client("slow", 1, unsent_since_s=0.0)
    clients.check(slow)
    clients.pool.look_around(1e9)
    assert slow.aborted == []


def test_a_client_that_has_caught_up_is_not_too_late() -> None:
    clients = Clients(age_limit_s=1.0)
    slow = clients.client("slow", 1, unsent_since_s=0.0)
    clients.check(slow)
    slow.writable = True
    clients.pool.forget(cast(Any, slow))
    clients.pool.look_around(1000.0)
    slow.writable = False
    # It was removed from the pool, and is checked again only after more output.
    clients.pool.look_around(2000.0)
    assert slow.aborted == []
    clients.check(slow)
    clients.pool.look_around(3000.0)
    assert slow.aborted == ["slow client"]


# --- several workers ------------------------------------------------------------------------------------


def two_workers(**options: Any) -> tuple[FakeInstance, Clients, Clients]:
    instance = FakeInstance(2)
    first, second = (Clients(capacity=1.0, instance=instance, index=index, **options) for index in range(2))
    return instance, first, second


def test_a_single_client_may_use_the_whole_pool() -> None:
    _, first, _ = two_workers()
    lone = first.slow_client("lone", LIMIT_BYTES)
    assert lone.aborted == []


def test_the_worker_with_the_largest_client_disconnects_it_whichever_worker_fills_the_pool() -> None:
    instance, first, second = two_workers()
    largest = first.slow_client("largest", 600)
    small = second.slow_client("small", 401)
    assert (largest.aborted, small.aborted, instance.woken) == ([], [], [0])
    first.pool.settle(0.0)
    assert (largest.aborted, small.aborted) == (["slow client"], [])
    second.pool.settle(10.0)
    assert (small.aborted, instance.memory_use.used_bytes(0)) == ([], 401)


def test_of_two_equal_clients_one_is_disconnected() -> None:
    _, first, second = two_workers()
    alike = [clients.slow_client("alike", 501) for clients in (first, second)]
    for clients in (second, first, second):
        clients.pool.settle(0.0)
    assert [client.aborted for client in alike] == [["slow client"], []]


def test_bytes_that_a_client_has_read_do_not_count() -> None:
    instance, first, second = two_workers()
    reading = first.slow_client("reading", 600)
    reading.unsent_bytes = 500
    small = second.slow_client("small", 450)
    # Its size was not updated since. Its own worker updates it before disconnecting.
    first.pool.settle(0.0)
    second.pool.settle(10.0)
    assert (reading.aborted, small.aborted, instance.memory_use.used_bytes(0)) == ([], [], 950)


def test_without_output_clients_are_checked_at_intervals() -> None:
    instance, first, _ = two_workers()
    reading = first.slow_client("reading", 600)
    reading.unsent_bytes = 100
    first.pool.look_around(0.1)
    assert instance.memory_use.used_bytes(0) == 100
    assert instance.memory_use.largest(0) == (0, 100)


def test_the_second_largest_takes_the_place_of_the_largest() -> None:
    instance, first, _ = two_workers()
    largest = first.slow_client("largest", 300)
    first.slow_client("second", 200)
    first.pool.forget(cast(Any, largest))
    assert (instance.memory_use.used_bytes(0), instance.memory_use.largest(0)) == (200, (0, 200))


def test_a_worker_that_does_not_answer_is_waited_for_a_limited_time() -> None:
    _, first, second = two_workers()
    first.slow_client("largest", 600)
    small, smaller = second.slow_client("small", 350), second.slow_client("smaller", 100)
    second.pool.settle(PATIENCE_S - 0.01)
    assert second.logged == []
    second.pool.settle(PATIENCE_S)
    assert (small.aborted, smaller.aborted) == (["slow client"], [])


def test_the_wait_starts_again_when_there_was_room() -> None:
    _, first, second = two_workers()
    largest = first.slow_client("largest", 600)
    small = second.slow_client("small", 450)
    largest.unsent_bytes = 500
    first.pool.look_around(0.5)
    second.pool.settle(0.6)
    largest.unsent_bytes = 600
    first.check(largest)
    assert largest.aborted == ["slow client"]
    first.slow_client("next", 700)
    second.pool.settle(PATIENCE_S + 0.1)
    assert small.aborted == []


def test_one_worker_decides_at_a_time() -> None:
    instance, first, _ = two_workers()
    instance.alone = False
    largest = first.slow_client("largest", 600)
    first.slow_client("other", 500)
    assert largest.aborted == []
    first.pool.settle(PATIENCE_S / 2)
    assert largest.aborted == []
    instance.alone = True
    first.pool.settle(PATIENCE_S / 2)
    assert largest.aborted == ["slow client"]


def test_a_worker_that_decides_without_end_is_waited_for_a_limited_time() -> None:
    instance, first, _ = two_workers()
    instance.alone = False
    largest = first.slow_client("largest", 600)
    first.slow_client("other", 500)
    first.pool.settle(PATIENCE_S)
    assert largest.aborted == ["slow client"]


def test_clients_of_a_dead_worker_do_not_count() -> None:
    instance, first, second = two_workers()
    first.slow_client("gone", 900)
    instance.memory_use.clear(0)
    small = second.slow_client("small", 900)
    second.pool.settle(10.0)
    assert small.aborted == []
