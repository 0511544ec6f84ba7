"""Clients with the same name wait before they take the name from each other, longer each time."""

import contextlib
import threading
import time

import pytest

from amps.cli.publishing import PublishFailed, ReliablePublisher
from amps.client import AMPSException, Client, DisconnectedException
from amps.client.servers import rivals as rivals_module
from amps.client.servers.rivals import FIRST_WAIT_S, LONGEST_WAIT_S, NAME_IN_USE, QUIET_S, Rivals
from tests.support.server import StartServer


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def taken() -> DisconnectedException:
    return DisconnectedException("another client of this name has logged on", reason=NAME_IN_USE)


def test_waits_grow_to_a_limit() -> None:
    rivals = Rivals(Clock())
    full_s = FIRST_WAIT_S
    for count in range(1, 12):
        assert full_s / 2 <= rivals.wait_s(taken()) <= full_s
        assert rivals.take_overs == count
        full_s = min(2 * full_s, LONGEST_WAIT_S)


def test_other_disconnects_cause_no_wait() -> None:
    rivals = Rivals(Clock())
    assert rivals.wait_s(None) == 0
    assert rivals.wait_s(DisconnectedException("the server closed the connection")) == 0
    assert rivals.wait_s(DisconnectedException("too slow", reason="slow client")) == 0
    assert rivals.take_overs == 0


def test_after_a_quiet_time_waits_start_again_at_the_minimum() -> None:
    clock = Clock()
    rivals = Rivals(clock)
    for _ in range(5):
        rivals.wait_s(taken())
    clock.now_s += QUIET_S + 1
    assert rivals.wait_s(taken()) <= FIRST_WAIT_S
    assert rivals.take_overs == 1


def test_waits_of_two_clients_differ() -> None:
    assert len({Rivals(Clock()).wait_s(taken()) for _ in range(20)}) > 1


def publish_without_end(publisher: ReliablePublisher) -> None:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        publisher.publish("orders", b"{}")


def test_a_publisher_gives_up_a_name_that_is_taken_again_and_again(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server(log_topics=[".*"])
    monkeypatch.setattr(rivals_module, "FIRST_WAIT_S", 0.001)
    name, uri = "one-name-for-two", f"tcp://127.0.0.1:{server.port()}/amps/json"
    publisher = ReliablePublisher(lambda store: Client(name, uri, publish_store=store))
    publisher.open()
    over = threading.Event()

    def take_the_name() -> None:
        while not over.is_set():
            # The publisher may take the name back at any moment.
            with contextlib.closing(Client(name, uri)) as client, contextlib.suppress(AMPSException):
                client.open()
                over.wait(0.02)

    rival = threading.Thread(target=take_the_name)
    rival.start()
    try:
        with pytest.raises(PublishFailed, match=r"named 'one-name-for-two' ended .* messages are acknowledged"):
            publish_without_end(publisher)
    finally:
        over.set()
        rival.join()
        publisher.close()
    assert publisher.failures == 0
