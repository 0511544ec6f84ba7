"""Delays of the client library against a server: client.md §19.14; §21, 74 to 77."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import amps.compat as AMPS
from amps.client import (
    EPOCH,
    Client,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    MessageStream,
)
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess, StartServer
from tests.unit.cli.running import run

TIMEOUT_S = 20.0


@pytest.fixture
def server(start_server: StartServer) -> ServerProcess:
    return start_server(**options(queue_xml("Q", "T", MaxPerSubscriptionBacklog=5)))


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client("delaying", uri(server)) as client:
        yield client


def uri(server: ServerProcess) -> str:
    return f"tcp://127.0.0.1:{server.port()}/amps/json"


def next_of(stream: MessageStream) -> Message:
    message = stream.get(TIMEOUT_S)
    assert message is not None, "nothing came"
    return message


def test_client_74_received_times(client: Client) -> None:
    """client.md §21, 74: in a delivery, a replay and a query; and a time that was received can be published."""
    over = (datetime.now(UTC) - timedelta(seconds=1)).replace(microsecond=123_000)
    client.publish("T", b"1", not_before=over)
    client.publish("T", b"2")
    client.flush()
    expected = [over.timestamp(), None]
    replay = client.bookmark_subscribe("T", EPOCH)
    replayed = [next_of(replay) for _ in range(2)]
    queried = client.sow("Q").to_list()
    with client.subscribe("Q", max_backlog=5) as consumer:
        delivered = [next_of(consumer) for _ in range(2)]
    for messages in (replayed, queried, delivered):
        assert [message.not_before for message in messages] == expected
    client.publish("T", b"3", not_before=replayed[0].not_before)
    assert next_of(replay).not_before == expected[0]


@pytest.mark.parametrize("kind", ["delay", "not-before"])
def test_client_75_the_command_line(server: ServerProcess, client: Client, kind: str) -> None:
    """client.md §21, 75"""
    before = time.time()
    moment = datetime.fromtimestamp(before + 1.5, UTC)
    value = "1500ms" if kind == "delay" else moment.isoformat()
    consumer = client.subscribe("Q", max_backlog=5)
    address = f"127.0.0.1:{server.port()}"
    done = run("publish", "-server", address, "-type", "json", "-topic", "T", f"-{kind}", value, stdin=b"1\n")
    assert done.returncode == 0, done.stderr
    message = next_of(consumer)
    assert message.not_before is not None
    assert before + 1.5 <= message.not_before <= time.time()
    if kind == "not-before":
        assert message.not_before <= moment.timestamp() + 0.001


def test_client_76_compat(server: ServerProcess) -> None:
    """client.md §21, 76"""
    client = AMPS.Client("ported")
    client.connect(uri(server))
    client.logon()
    before_ms = time.time() * 1000
    client.execute_async(AMPS.Command("publish").set_topic("T").set_data("1").set_delay(500), None)
    client.flush()
    client.publish("T", "2")
    stream = client.execute(AMPS.Command("subscribe").set_topic("Q").set_options("max_backlog=5"))
    content = (message for message in stream if message is not None and message.get_command() == "publish")
    second, first = next(content), next(content)
    assert (second.get_data(), second.get_not_before()) == ("2", 0)
    assert first.get_data() == "1"
    assert before_ms + 500 <= first.get_not_before() <= time.time() * 1000
    client.close()


def test_client_77_a_message_is_given_back_for_a_while(client: Client) -> None:
    """client.md §21, 77"""
    client.publish("T", b"1")
    stream = client.subscribe("Q", max_backlog=5)
    message = next_of(stream)
    before = time.monotonic()
    message.ack("cancel,delay=400ms")
    again = next_of(stream)
    assert time.monotonic() - before >= 0.4
    assert again.bookmark == message.bookmark


def test_a_stored_delay_does_not_begin_anew_after_an_outage(server: ServerProcess) -> None:
    """queue_guarantees.md Q-47: what was published during an outage is delivered when its delay has passed."""
    store = MemoryPublishStore()
    strategy = FixedDelayStrategy(0.05)
    with HAClient("away", uri(server), publish_store=store, delay_strategy=strategy) as client:
        client.publish("T", b"1")
        client.publish_flush()
        server.kill_all()
        deadline = time.monotonic() + TIMEOUT_S
        while not client.disconnected:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        before = time.time()
        client.publish("T", b"2", delay=0.5)
        after = time.time()
        time.sleep(0.6)
        server.start()
        client.publish_flush(timeout=TIMEOUT_S)
        stream = client.subscribe("Q", max_backlog=5)
        assert next_of(stream).data == b"1"
        second = next_of(stream)
        assert second.not_before is not None
        assert before + 0.5 <= second.not_before <= after + 0.501
