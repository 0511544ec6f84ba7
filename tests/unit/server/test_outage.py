"""An outage of the storage: the pauses grow, and no client waits at the listener."""

import socket

import pytest

from amps.server import outage
from amps.server.outage import Outage, turn_away


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(outage.time, "monotonic", lambda: now[0])
    return now


def test_outage_pauses_grow_to_a_bound(clock: list[float]) -> None:
    now = Outage()
    delays = []
    for _ in range(8):
        delays.append(now.failed("gone"))
        assert not now.retry_is_due()
        clock[0] += delays[-1]
        assert now.retry_is_due()
        assert not now.retry_is_due(), "a retry is under way"
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    assert now.age_s == sum(delays)


def test_outage_connecting_clients_are_turned_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        clients = [socket.create_connection(listener.getsockname(), 10) for _ in range(3)]
        turn_away([listener])
        for client in clients:
            with client:
                assert client.recv(1) == b""
        turn_away([listener])  # no client is waiting
