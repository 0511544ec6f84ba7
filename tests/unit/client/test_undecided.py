"""A client whose transaction is undecided waits before it connects again, longer each time (replication.md 25.93)."""

from amps.client import DisconnectedException
from amps.client.servers.choosers import DefaultServerChooser
from amps.client.servers.delays import ExponentialDelayStrategy
from amps.client.servers.failover import Failover
from amps.client.servers.undecided import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    QUIET_S,
    TRANSACTION_UNDECIDED,
    UndecidedWaits,
)

URI = "tcp://127.0.0.1:1/amps/json"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def undecided() -> DisconnectedException:
    return DisconnectedException("the server ended the connection", reason=TRANSACTION_UNDECIDED)


def test_waits_grow_to_a_limit_and_begin_anew() -> None:
    clock = Clock()
    waits = UndecidedWaits(clock)
    full_s = FIRST_WAIT_S
    for _ in range(40):
        assert full_s / 2 <= waits.wait_s(undecided()) <= full_s
        full_s = min(2 * full_s, LONGEST_WAIT_S)
        clock.now_s += QUIET_S
    assert full_s == LONGEST_WAIT_S
    clock.now_s += 1
    assert waits.wait_s(undecided()) <= FIRST_WAIT_S


def test_other_disconnects_cause_no_wait() -> None:
    waits = UndecidedWaits(Clock())
    assert waits.wait_s(DisconnectedException("the server closed the connection")) == 0
    assert waits.wait_s(DisconnectedException("too slow", reason="slow client")) == 0


def test_a_successful_logon_does_not_take_the_wait_back() -> None:
    failover = Failover("worker", DefaultServerChooser(URI), ExponentialDelayStrategy())
    waits = []
    for _ in range(4):
        waits.append(failover.next_attempt().wait_s)
        failover.succeeded("1.0")
        failover.lost(undecided())
    assert waits[0] == 0
    for number, wait_s in enumerate(waits[1:]):
        assert FIRST_WAIT_S * 2**number / 2 <= wait_s <= FIRST_WAIT_S * 2**number
    failover.next_attempt()
    failover.succeeded("1.0")
    failover.lost(DisconnectedException("the server closed the connection"))
    assert failover.next_attempt().wait_s == 0
