"""HAClient against a server: what survives lost connections and deaths of the server (client.md §21 19 to 63)."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from amps.client import (
    EPOCH,
    NOW,
    Client,
    Command,
    ConnectionState,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    MessageStream,
)
from tests.support.server import ServerProcess, StartServer, package_path, wait_until

PATIENCE_S = 20.0
LOGGED = "^L/"
MakeHA = Callable[..., HAClient]


@pytest.fixture
def make_ha(unique: str) -> Iterator[MakeHA]:
    """Make connected clients of a server, which are closed with the test."""
    made: list[HAClient] = []

    def make(server: ServerProcess, name: str = "", **options: Any) -> HAClient:
        options.setdefault("delay_strategy", FixedDelayStrategy(0.02))
        client = HAClient(f"{unique}{name}", f"tcp://127.0.0.1:{server.port()}/amps/json", **options)
        made.append(client)
        return client.open(timeout=PATIENCE_S)

    yield make
    for client in made:
        client.close()


def cut(client: HAClient) -> None:
    """Cut the client's connection, and wait until it is connected and recovered again."""
    reconnects = client.stats.reconnects
    assert client._runtime.wire.transport is not None
    client._runtime.wire.transport.shutdown()
    wait_until(
        lambda: client.stats.reconnects > reconnects and client.state == ConnectionState.RESUBSCRIBED,
        PATIENCE_S,
        lambda: f"{client!r} does not come back: {client.connection_info}",
    )


def publisher_of(server: ServerProcess, unique: str) -> Client:
    return Client(f"{unique}-publisher", f"tcp://127.0.0.1:{server.port()}/amps/json")


def publish(client: Client, topic: str, first: int, last: int, **fields: Any) -> None:
    for n in range(first, last + 1):
        client.publish(topic, {"n": n, **fields})
    client.flush(timeout=PATIENCE_S)


def take(stream: MessageStream, count: int) -> list[int]:
    """Return the numbers in the next messages of a stream; fail if they do not come."""
    numbers: list[int] = []
    for _ in range(count):
        message = stream.get(PATIENCE_S)
        assert message is not None, f"only {numbers} of {count} messages came"
        numbers.append(message.json()["n"])
    return numbers


def rest(stream: MessageStream) -> list[int]:
    """Return the numbers in the messages that come without delay."""
    numbers = []
    while (message := stream.get(0.3)) is not None:
        numbers.append(message.json()["n"])
    return numbers


def test_client_19_a_replaced_filter_holds_after_a_reconnect(
    make_ha: MakeHA, plain_server: ServerProcess, topic: str, unique: str
) -> None:
    """client.md §21 19"""
    client = make_ha(plain_server)
    got: list[int] = []

    def handle(message: Message) -> None:
        got.append(message.json()["n"])

    client.subscribe(topic, "/n < 5", handler=handle, sub_id="s")
    client.subscribe(topic, "/n >= 5", handler=handle, sub_id="s", replace=True)
    with publisher_of(plain_server, unique) as publisher:
        publish(publisher, topic, 4, 5)
        wait_until(lambda: got == [5], PATIENCE_S, lambda: f"{got}")
        cut(client)
        publish(publisher, topic, 4, 6)
        wait_until(lambda: got == [5, 5, 6], PATIENCE_S, lambda: f"{got}")


def test_client_46_nothing_is_lost_or_delivered_twice(
    make_ha: MakeHA, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """client.md §21 46: with discarded and undiscarded messages, and messages published meanwhile"""
    client = make_ha(logged_server)
    stream = client.bookmark_subscribe(recorded_topic, EPOCH, sub_id="s")
    with publisher_of(logged_server, unique) as publisher:
        publish(publisher, recorded_topic, 1, 10)
        held = [stream.get(PATIENCE_S) for _ in range(6)]
        for at in (0, 1, 4):
            message = held[at]
            assert message is not None
            message.discard()
        cut(client)
        publish(publisher, recorded_topic, 11, 20)
        assert take(stream, 14) == list(range(7, 21))
        cut(client)
        assert rest(stream) == []


def test_a_subscription_at_now_loses_nothing(
    make_ha: MakeHA, start_server: StartServer, unique: str
) -> None:
    """client.md §19.5: also if it had received nothing before the server died"""
    server = start_server(log_topics=(LOGGED,))
    with publisher_of(server, unique) as publisher:
        publish(publisher, "L/a", 1, 3)
    client = make_ha(server)
    stream = client.bookmark_subscribe("L/a", NOW, sub_id="s")
    client.flush()
    server.kill_all()
    wait_until(lambda: client.reconnecting, PATIENCE_S, "the loss is not noticed")
    chooser = client.server_chooser
    client.server_chooser = type(chooser)("tcp://127.0.0.1:1/amps/json")
    server.start()
    with publisher_of(server, unique) as publisher:
        publish(publisher, "L/a", 4, 6)
    client.server_chooser = chooser
    assert take(stream, 3) == [4, 5, 6]
    assert rest(stream) == []


def test_client_51_ranges_and_limited_replays(
    make_ha: MakeHA, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """client.md §21 51: `top_n=7` ends after 7 even across a reconnect after 3; a range across one, too"""
    with publisher_of(logged_server, unique) as publisher:
        publish(publisher, recorded_topic, 1, 10)
    client = make_ha(logged_server)
    with client.bookmark_subscribe(recorded_topic, EPOCH) as stream:
        bookmarks = [message.bookmark for message in (stream.get(PATIENCE_S) for _ in range(10)) if message]
    limited = client.bookmark_subscribe(recorded_topic, EPOCH, sub_id="limited", top_n=7, rate=10, max_depth=1)
    assert take(limited, 3) == [1, 2, 3]
    cut(client)
    assert [message.json()["n"] for message in limited] == [4, 5, 6, 7]
    begin, end = bookmarks[1], bookmarks[7]
    assert begin is not None
    ranged = client.bookmark_subscribe(recorded_topic, f"[{begin}:{end})", sub_id="ranged", rate=10)
    assert take(ranged, 2) == [2, 3]
    cut(client)
    assert [message.json()["n"] for message in ranged] == [4, 5, 6, 7]


def test_client_52_paused_subscriptions_stay_paused(
    make_ha: MakeHA, logged_server: ServerProcess, recorded_topic: str, unique: str
) -> None:
    """client.md §21 52"""
    with publisher_of(logged_server, unique) as publisher:
        publish(publisher, recorded_topic, 1, 3)
    client = make_ha(logged_server)
    streams = [
        client.bookmark_subscribe(recorded_topic, EPOCH, sub_id=name, pause=True) for name in ("A", "B")
    ]
    for _ in range(2):
        assert [rest(stream) for stream in streams] == [[], []]
        cut(client)
    client.resume("A", "B")
    assert [take(stream, 3) for stream in streams] == [[1, 2, 3]] * 2
    cut(client)
    with publisher_of(logged_server, unique) as publisher:
        publish(publisher, recorded_topic, 4, 4)
    assert [take(stream, 1) for stream in streams] == [[4]] * 2


def test_client_53_unacknowledged_messages_are_sent_again(
    make_ha: MakeHA, start_server: StartServer
) -> None:
    """client.md §21 53: the server is killed while it has messages; the log holds each once"""
    server = start_server(log_topics=(LOGGED,))
    client = make_ha(server, publish_store=MemoryPublishStore())
    for n in range(1, 61):
        client.publish("L/a", {"n": n})
    client.publish_flush()
    for n in range(61, 101):
        client.publish("L/a", {"n": n})
    server.kill_all()
    wait_until(lambda: client.reconnecting, PATIENCE_S, "the loss is not noticed")
    assert [client.publish("L/a", {"n": n}) for n in range(101, 111)] == list(range(101, 111))
    server.start()
    client.publish_flush(timeout=PATIENCE_S)
    with client.bookmark_subscribe("L/a", EPOCH) as stream:
        assert take(stream, 110) == list(range(1, 111))
        assert rest(stream) == []
    assert client.unpersisted_count == 0


def test_client_62_what_is_entered_again(
    make_ha: MakeHA, plain_server: ServerProcess, topic: str, unique: str
) -> None:
    """client.md §21 62: a subscription with a handler keeps its id; without resubscribe it ends"""
    client = make_ha(plain_server)
    kept: list[str | None] = []
    ended: list[str | None] = []
    sub_id = client.subscribe(topic, handler=lambda m: kept.append(m.sub_id))
    client.execute_async_no_resubscribe(Command("subscribe", topic), lambda m: ended.append(m.sub_id))
    cut(client)
    with publisher_of(plain_server, unique) as publisher:
        publish(publisher, topic, 1, 2)
    wait_until(lambda: kept == [sub_id] * 2, PATIENCE_S, lambda: f"{kept}")
    assert ended == []


STOPPED = """
import sys
from amps.client import HAClient
client = HAClient(sys.argv[1], sys.argv[2], heartbeat=1)
states = []
client.add_connection_state_listener(states.append)
client.open(timeout=20)
print("open", flush=True)
while states.count(32) < 2:
    sys.stdin.readline()
print(client.connection_info.last_error, flush=True)
client.close()
"""


def test_client_63_a_stopped_client_is_disconnected(plain_server: ServerProcess, unique: str) -> None:
    """client.md §21 63: by SIGSTOP; reason `heartbeat`. Afterwards it comes back by itself"""
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", STOPPED, unique, f"tcp://127.0.0.1:{plain_server.port()}/amps/json"],
        env={**os.environ, "PYTHONPATH": package_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "open\n"
        child.send_signal(signal.SIGSTOP)
        plain_server.log.wait_for("07-0013", unique, "heartbeat", timeout_s=PATIENCE_S)
        child.send_signal(signal.SIGCONT)
        stop = threading.Event()
        pipe = child.stdin

        def poke() -> None:
            while not stop.wait(0.05):
                pipe.write("\n")
                pipe.flush()

        poking = threading.Thread(target=poke, daemon=True)
        poking.start()
        told = child.stdout.readline()
        stop.set()
        poking.join()
        assert told.strip() not in ("", "None")
        assert child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
