"""Memory pools with fake connections: who is disconnected, and when."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from amps.server.transport.slow_clients import MemoryPool

LIMIT_BYTES = 1000


@dataclass(eq=False)
class FakeConnection:
    """What the pool looks at. `unsent_since_s` None: the client keeps up."""

    shown_name: str
    listener: Any
    unsent_bytes: int = 0
    writable: bool = False
    unsent_since_s: float | None = None
    aborted: list[str] = field(default_factory=list)
    phase: Any = field(default_factory=lambda: SimpleNamespace(value="ready"))

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)
        self.phase = SimpleNamespace(value="closed")

    def unsent_age_s(self, now_s: float) -> float:
        return 0.0 if self.unsent_since_s is None else now_s - self.unsent_since_s


class Clients:
    """A pool, its worker and its clients; limits of the instance, and of the transport where given."""

    def __init__(
        self,
        *,
        capacity: float = 0.5,
        age_limit_s: float | None = None,
        transport_capacity: float | None = None,
        transport_age_limit_s: float | None = None,
    ) -> None:
        self.logged: list[tuple[str, str]] = []
        config = SimpleNamespace(client_max_capacity=capacity, client_message_age_limit_s=age_limit_s)
        log = SimpleNamespace(log=lambda record_id, client: self.logged.append((record_id, client)))
        self.listener = SimpleNamespace(
            config=SimpleNamespace(
                client_max_capacity=transport_capacity, client_message_age_limit_s=transport_age_limit_s
            )
        )
        self.pool = MemoryPool(cast(Any, SimpleNamespace(config=config, log=log)), LIMIT_BYTES)

    def client(self, name: str, unsent_bytes: int = 0, **options: Any) -> FakeConnection:
        return FakeConnection(name, self.listener, unsent_bytes, **options)

    def check(self, connection: FakeConnection) -> None:
        self.pool.check(cast(Any, connection))


def test_a_client_may_have_its_share_and_no_more() -> None:
    clients = Clients()
    slow = clients.client("slow", LIMIT_BYTES // 2)
    clients.check(slow)
    assert slow.aborted == []
    slow.unsent_bytes += 1
    clients.check(slow)
    assert slow.aborted == ["slow client"]
    assert clients.logged == [("70-0004", "slow")]


def test_a_transport_s_own_share_goes_before_the_instance_s() -> None:
    clients = Clients(capacity=0.1, transport_capacity=0.9)
    slow = clients.client("slow", 899)
    clients.check(slow)
    assert slow.aborted == []
    slow.unsent_bytes = 901
    clients.check(slow)
    assert slow.aborted == ["slow client"]


def test_beyond_the_limit_of_all_the_client_with_the_most_has_to_go() -> None:
    clients = Clients()
    all_clients = [clients.client(f"client {size}", size) for size in (300, 450, 250)]
    for client in all_clients:
        clients.check(client)
    assert [client.aborted for client in all_clients] == [[], [], []]
    all_clients[2].unsent_bytes = 251
    clients.check(all_clients[2])
    assert [client.aborted for client in all_clients] == [[], ["slow client"], []]
    assert clients.logged == [("70-0004", "client 450")]
    # With it its share is gone: the others fit.
    clients.check(all_clients[2])
    assert len(clients.logged) == 1


def test_clients_that_have_caught_up_or_left_do_not_count() -> None:
    clients = Clients()
    caught_up, left = clients.client("caught up", 450), clients.client("left", 450)
    for client in (caught_up, left):
        clients.check(client)
    caught_up.writable = True
    left.phase = SimpleNamespace(value="closed")
    slow = clients.client("slow", 450)
    clients.check(slow)
    assert clients.logged == []


def test_clients_for_which_only_replays_wait_are_not_even_remembered() -> None:
    clients = Clients(age_limit_s=1.0)
    replaying = clients.client("replaying", unsent_bytes=0, unsent_since_s=0.0)
    clients.check(replaying)
    clients.pool.check_ages(1000.0)
    assert replaying.aborted == []


def test_a_message_may_wait_as_long_as_the_age_limit_says() -> None:
    clients = Clients(age_limit_s=10.0)
    slow = clients.client("slow", 1, unsent_since_s=100.0)
    clients.check(slow)
    clients.pool.check_ages(110.0)
    assert slow.aborted == []
    clients.pool.check_ages(110.5)
    assert slow.aborted == ["slow client"]
    clients.pool.check_ages(111.0)
    assert clients.logged == [("70-0004", "slow")]


def test_a_transport_s_own_age_limit_goes_before_the_instance_s() -> None:
    clients = Clients(age_limit_s=1.0, transport_age_limit_s=10.0)
    slow = clients.client("slow", 1, unsent_since_s=100.0)
    clients.check(slow)
    clients.pool.check_ages(105.0)
    assert slow.aborted == []
    clients.pool.check_ages(111.0)
    assert slow.aborted == ["slow client"]


def test_without_an_age_limit_nobody_is_too_late() -> None:
    clients = Clients()
    slow = clients.client("slow", 1, unsent_since_s=0.0)
    clients.check(slow)
    clients.pool.check_ages(1e9)
    assert slow.aborted == []


def test_a_client_that_has_caught_up_is_not_too_late() -> None:
    clients = Clients(age_limit_s=1.0)
    slow = clients.client("slow", 1, unsent_since_s=0.0)
    clients.check(slow)
    slow.writable = True
    clients.pool.check_ages(1000.0)
    slow.writable = False
    # It was forgotten, and is looked at again only after more output.
    clients.pool.check_ages(2000.0)
    assert slow.aborted == []
    clients.check(slow)
    clients.pool.check_ages(3000.0)
    assert slow.aborted == ["slow client"]
