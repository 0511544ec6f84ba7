"""Server choosers, delay strategies and the steps of failover."""

import pytest

from amps.client import (
    ConnectionException,
    ConnectionInfo,
    DefaultServerChooser,
    DisconnectedException,
    ExponentialDelayStrategy,
    FixedDelayStrategy,
    InvalidUriException,
    TransportTypeException,
)
from amps.client.servers.failover import Failover

A, B, C = (f"tcp://{name}:9007/amps/json" for name in "abc")


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def waits(strategy: ExponentialDelayStrategy | FixedDelayStrategy, count: int) -> list[float]:
    return [strategy.get_connect_wait_duration(A) for _ in range(count)]


def test_client_60_waits_double_up_to_the_longest() -> None:
    """client.md §21 60: without jitter, one dead server"""
    got = waits(ExponentialDelayStrategy(jitter=0), 11)
    assert got == pytest.approx([0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20, 20, 20])


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_client_60_jitter_is_added_to_waits_that_are_not_zero(share: float) -> None:
    """client.md §21 60: each wait lies in [d, d + 0.2); the added time is not limited by the longest wait"""
    got = waits(ExponentialDelayStrategy(random=lambda: share), 10)
    plain = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20, 20]
    assert got == pytest.approx([0, *(d + share * 0.2 for d in plain)])


def test_client_60_gives_up_after_the_longest_retry_time() -> None:
    """client.md §21 60: the last attempt is at the limit"""
    clock = Clock()
    strategy = ExponentialDelayStrategy(jitter=0, maximum_retry_time=1, clock=clock)
    at = []
    for _ in range(4):
        clock.now += strategy.get_connect_wait_duration(A)
        at.append(round(clock.now - 1000, 3))
    assert at == [0, 0.2, 0.6, 1.0]
    with pytest.raises(ConnectionException, match="within 1 s"):
        strategy.get_connect_wait_duration(A)


def test_waits_are_counted_for_each_server_until_a_reset() -> None:
    """client.md §19.8: the first attempt at each server is made at once"""
    for strategy in (ExponentialDelayStrategy(jitter=0), FixedDelayStrategy()):
        assert strategy.get_connect_wait_duration(A) == 0
        assert strategy.get_connect_wait_duration(B) == 0
        assert strategy.get_connect_wait_duration(A) == 0.2
        strategy.reset()
        assert strategy.get_connect_wait_duration(A) == 0


def test_a_fixed_delay_and_its_limit() -> None:
    clock = Clock()
    assert waits(FixedDelayStrategy(0.5), 3) == [0, 0.5, 0.5]
    strategy = FixedDelayStrategy(0.5, 0.8, clock=clock)
    waited = []
    for _ in range(3):
        waited.append(strategy.get_connect_wait_duration(A))
        clock.now += waited[-1]
    assert waited == pytest.approx([0, 0.5, 0.3])
    with pytest.raises(ConnectionException):
        strategy.get_connect_wait_duration(A)
    strategy.reset()
    assert strategy.get_connect_wait_duration(A) == 0


@pytest.mark.parametrize("wrong", [{"initial_delay": -1}, {"jitter": -0.1}, {"backoff_exponent": 0.5}])
def test_wrong_delays_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExponentialDelayStrategy(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="delay"):
        FixedDelayStrategy(float("nan"))


def info(uri: str = A) -> ConnectionInfo:
    return ConnectionInfo(uri, "me", 1, None, None, None)


def test_the_default_chooser_goes_on_after_a_failure_and_wraps() -> None:
    """client.md §9.3"""
    chooser = DefaultServerChooser(A).add(B).add_all([C])
    tried = []
    for _ in range(4):
        tried.append(chooser.get_current_uri())
        chooser.report_failure(DisconnectedException("gone"), info())
    assert tried == [A, B, C, A]
    assert chooser.get_error() == "gone"
    chooser.report_success(info())
    assert chooser.get_current_uri() == B
    assert chooser.get_current_authenticator() is None


def test_servers_can_be_removed() -> None:
    chooser = DefaultServerChooser(A, B, C)
    chooser.next()
    chooser.remove(A)
    assert chooser.get_current_uri() == B
    chooser.next()
    chooser.remove(C)
    assert chooser.get_current_uri() == B
    with pytest.raises(ValueError, match="not in the list"):
        chooser.remove("tcp://me:secret@d:1/amps/json")
    chooser.remove(B)
    assert chooser.get_current_uri() is None
    chooser.next()
    assert "no connection string" in chooser.get_error()


def test_a_chooser_refuses_connection_strings_that_cannot_work() -> None:
    with pytest.raises(InvalidUriException):
        DefaultServerChooser("tcp:/bad")
    with pytest.raises(TransportTypeException):
        DefaultServerChooser().add("foo://h:1/amps/json")
    with pytest.raises(TypeError):
        DefaultServerChooser().add_all(A)


def test_information_about_a_connection_hides_the_password() -> None:
    told = info("tcp://me:secret@h:1/amps/json")
    assert "secret" not in repr(told)
    assert "me" in repr(told)
    assert told.uri == "tcp://me:secret@h:1/amps/json"


def test_failover_reports_to_chooser_and_strategy() -> None:
    """client.md §9.1: a failed server is reported, a success resets the waits"""
    clock = Clock()
    failover = Failover("me", DefaultServerChooser(A, B), FixedDelayStrategy(), clock)
    assert failover.info == ConnectionInfo(None, "me", 0, None, None, None)
    first = failover.next_attempt()
    assert (first.uri, first.wait_s, first.authenticator) == (A, 0, None)
    error = DisconnectedException("no")
    failover.failed(error)
    assert failover.next_attempt().uri == B
    assert failover.info == ConnectionInfo(B, "me", 2, error, None, None)
    failover.succeeded("5.3")
    assert failover.info == ConnectionInfo(B, "me", 2, error, "5.3", 1000.0)
    lost = DisconnectedException("lost")
    failover.lost(lost)
    assert failover.info == ConnectionInfo(B, "me", 0, lost, "5.3", None)
    again = failover.next_attempt()
    assert (again.uri, again.wait_s) == (B, 0)


def test_failover_waits_longer_for_a_rival_with_the_same_name() -> None:
    """Two clients of one name must not end each other's connections for ever"""
    failover = Failover("me", DefaultServerChooser(A), FixedDelayStrategy(0))
    failover.lost(DisconnectedException("taken", reason="name in use"))
    assert failover.next_attempt().wait_s >= 0.5
    assert failover.next_attempt().wait_s == 0


def test_failover_ends_without_a_server() -> None:
    """client.md §21 59, the text of the exception"""
    with pytest.raises(ConnectionException, match="has no connection string"):
        Failover("me", DefaultServerChooser(), FixedDelayStrategy()).next_attempt()
