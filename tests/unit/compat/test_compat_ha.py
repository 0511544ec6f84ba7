"""HAClient of `amps.compat` on real servers that are killed, and its choosers and delay strategies (client.md §9)."""

import logging
import queue
from typing import Any

import pytest

import amps.compat as AMPS
from amps.testing import AmpsServer


class Listening:
    """Counts how often a client has recovered."""

    def __init__(self, client: AMPS.HAClient) -> None:
        self.recovered: queue.SimpleQueue[bool] = queue.SimpleQueue()
        client.add_connection_state_listener(self.note)

    def note(self, state: Any) -> None:
        if state == AMPS.ConnectionStateListener.Resubscribed:
            self.recovered.put(True)


@pytest.fixture(autouse=True)
def no_warnings_of_lost_connections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "amps.client")


def test_publishes_and_subscriptions_survive_the_loss_of_the_server() -> None:
    """client.md §9: the store publishes again what was not acknowledged; each message is logged and handled once."""
    with AmpsServer() as server:
        client = AMPS.HAClient.create_memory_backed("ha")
        chooser = AMPS.DefaultServerChooser()
        chooser.add(server.uri())
        client.set_server_chooser(chooser)
        client.set_reconnect_delay(10)
        states = Listening(client)
        client.connect_and_logon()
        assert states.recovered.get(timeout=30)
        received: queue.SimpleQueue[str] = queue.SimpleQueue()

        def handle(message: AMPS.Message) -> None:
            received.put(message.get_data())
            client.discard(message)

        client.bookmark_subscribe(handle, "t", AMPS.Client.Bookmarks.EPOCH, "S")
        client.publish("t", "1")
        assert received.get(timeout=30) == "1"
        server.kill()
        client.publish("t", "2")  # with a store, this returns at once
        server.start()
        client.publish("t", "3")
        assert [received.get(timeout=60) for _ in range(2)] == ["2", "3"]
        client.publish_flush(60_000)
        logged = client.execute(AMPS.Command("subscribe").set_topic("t").set_bookmark("0").set_top_n(3))
        assert [message.get_data() for message in logged if message is not None] == ["1", "2", "3"]
        assert client.get_unpersisted_count() == 0
        assert not client.disconnected()
        assert client.get_connection_info().uri == server.uri()
        client.close()
        assert client.disconnected()
        assert received.empty()
        assert client.get_bookmark_store().get_oldest_bookmark_seq("S") == 0


def test_client_30_a_stream_is_not_resumed() -> None:
    """client.md §21, 30: nothing more after a reconnect; buffered messages are read first."""
    with AmpsServer() as server:
        client = AMPS.HAClient("ha")
        client.set_server_chooser(AMPS.DefaultServerChooser(server.uri()))
        client.set_reconnect_delay(10)
        states = Listening(client)
        client.connect_and_logon()
        assert states.recovered.get(timeout=30)
        stream = client.subscribe("t")
        assert isinstance(stream, AMPS.MessageStream)
        client.publish("t", "1")
        client.flush()
        server.kill()
        server.start()
        assert states.recovered.get(timeout=60)
        client.publish("t", "2")
        client.flush()
        message = next(stream)
        assert message is not None
        assert message.get_data() == "1"
        with pytest.raises(AMPS.DisconnectedException):
            next(stream)
        client.close()


class OnlyOnce:
    """A chooser of an application: it gives up after the first failure."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def get_current_uri(self) -> str | None:
        return None if self.failures else "tcp://127.0.0.1:1/amps/json"

    def get_current_authenticator(self) -> None:
        return None

    def report_failure(self, exception: Exception, info: Any) -> None:
        self.failures.append(exception)

    def report_success(self, info: Any) -> None:
        raise AssertionError

    def get_error(self) -> str:
        return "gave up"


class Waits:
    """A delay strategy of an application, in milliseconds."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_connect_wait_duration(self, uri: str) -> float:
        self.asked.append(uri)
        return 5

    def reset(self) -> None:
        pass


def test_choosers_and_strategies_of_applications_decide() -> None:
    """client.md §9.3, §9.4"""
    client = AMPS.HAClient("ha")
    with pytest.raises(AMPS.UsageException, match="needs a server chooser"):
        client.connect_and_logon()
    chooser, waits = OnlyOnce(), Waits()
    client.set_server_chooser(chooser)
    client.set_reconnect_delay_strategy(waits)
    client.set_timeout(5000)
    client.set_logon_options("ack_conflation=50ms,")
    client.set_retry_on_disconnect(False)
    assert (client.get_server_chooser(), client.get_reconnect_delay_strategy()) == (chooser, waits)
    assert (client.get_timeout(), client.get_logon_options()) == (5000, "ack_conflation=50ms")
    assert client.get_retry_on_disconnect() is False
    with pytest.raises(AMPS.ConnectionException, match="gave up"):
        client.connect_and_logon()
    assert waits.asked == ["tcp://127.0.0.1:1/amps/json"]
    assert isinstance(chooser.failures[0], AMPS.ConnectionRefusedException)
    client.set_timeout(0)
    assert client._ha_client.attempt_timeout is None
    with pytest.raises(AMPS.UsageException, match="connect_and_logon"):
        client.connect("tcp://127.0.0.1:1/amps/json")
    with pytest.raises(AMPS.UsageException, match="connect_and_logon"):
        client.logon()
    with pytest.raises(AMPS.UsageException, match="add_connection_state_listener"):
        client.set_disconnect_handler(print)
    client.close()


def test_client_60_delays_are_in_milliseconds() -> None:
    """client.md §21, 60"""
    strategy = AMPS.ExponentialDelayStrategy(jitter=0)
    waits = [round(strategy.get_connect_wait_duration("u"), 6) for _ in range(10)]
    assert waits == [0, 200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000]
    strategy.reset()
    assert strategy.getConnectWaitDuration("u") == 0  # type: ignore[attr-defined]
    fixed = AMPS.FixedDelayStrategy(150)
    assert [round(fixed.get_connect_wait_duration("u"), 6) for _ in range(3)] == [0, 150, 150]
