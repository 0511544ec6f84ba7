"""A highly available publisher and subscriber while their server is killed and restarted again and again, under load.

Nothing that was published is missing, and no message is handled twice: neither in the log nor by the subscriber. The
publisher has a publish store, in memory or in files, the subscriber a bookmark store in memory.
"""

import random
import threading
import time
from pathlib import Path

import pytest

from amps.client import (
    EPOCH,
    Client,
    FilePublishStore,
    FixedDelayStrategy,
    HAClient,
    MemoryPublishStore,
    Message,
    PublishStore,
)
from tests.support.server import ServerProcess, StartServer, wait_until

PATIENCE_S = 60.0
TOPIC = "load/orders"
LOGGED = "^load/"
UNDISCARDED = 100


class Load:
    """One client that publishes numbered messages, and one that handles them."""

    def __init__(self, server: ServerProcess, seed: int, store: PublishStore) -> None:
        uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
        delays = FixedDelayStrategy(0.02)
        self.publisher = HAClient(
            "load-publisher", uri, publish_store=store, delay_strategy=delays, timeout=PATIENCE_S
        )  # fmt: skip
        self.subscriber = HAClient(
            "load-subscriber", uri, delay_strategy=FixedDelayStrategy(0.02)
        )
        self.published = 0
        self.handled: list[int] = []
        self._undiscarded: list[Message] = []
        self._chance = random.Random(seed)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._publish, name="load", daemon=True)

    def start(self) -> None:
        self.publisher.open(timeout=PATIENCE_S)
        self.subscriber.open(timeout=PATIENCE_S)
        self.subscriber.bookmark_subscribe(TOPIC, EPOCH, sub_id="s", handler=self._handle)
        self._thread.start()

    def _publish(self) -> None:
        try:
            while not self._stopping.is_set():
                for _ in range(50):
                    self.published += 1
                    self.publisher.publish(TOPIC, b'{"n":%d}' % self.published)
                time.sleep(0.001)
        except BaseException as failure:
            self._failure = failure

    def _handle(self, message: Message) -> None:
        self.handled.append(message.json()["n"])
        self._undiscarded.append(message)
        if len(self._undiscarded) > UNDISCARDED:  # in any order
            self._undiscarded.pop(self._chance.randrange(UNDISCARDED)).discard()

    def wait_for_progress(self, messages: int) -> None:
        """Wait until the subscriber has handled so many further messages."""
        wanted = len(self.handled) + messages
        wait_until(lambda: len(self.handled) >= wanted or self._failure is not None, PATIENCE_S, self.describe)
        assert self._failure is None, self._failure

    def wait_for_reconnects(self, count: int) -> None:
        """Wait until both clients have reconnected so often."""
        clients = (self.publisher, self.subscriber)
        wait_until(
            lambda: all(client.stats.reconnects >= count for client in clients), PATIENCE_S, self.describe
        )

    def describe(self) -> str:
        return (
            f"published {self.published}, handled {len(self.handled)}; {self.publisher!r},"
            f" {self.publisher.connection_info}; {self.subscriber!r}, {self.subscriber.connection_info}"
        )

    def finish(self) -> None:
        """Stop publishing, and wait until everything is persisted and handled."""
        self._stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), self.describe()
        assert self._failure is None, self._failure
        self.publisher.publish_flush(timeout=PATIENCE_S)
        wait_until(lambda: len(self.handled) >= self.published, PATIENCE_S, self.describe)

    def close(self) -> None:
        self._stopping.set()
        self.publisher.close()
        self.subscriber.close()


def kill_in_turn(server: ServerProcess, seed: int, store: PublishStore, deaths: int) -> None:
    chance = random.Random(seed)
    load = Load(server, seed, store)
    try:
        load.start()
        for death in range(deaths):
            load.wait_for_progress(200)
            time.sleep(chance.random() * 0.3)
            server.kill_all()
            time.sleep(chance.random() * 0.2)
            server.start()
            load.wait_for_reconnects(death + 1)
        load.wait_for_progress(200)
        load.finish()
        expected = list(range(1, load.published + 1))
        assert load.handled == expected
        with Client("reader", f"tcp://127.0.0.1:{server.port()}/amps/json") as reader:
            recorded: list[int] = []
            reader.bookmark_subscribe(TOPIC, EPOCH, handler=lambda m: recorded.append(m.json()["n"]))
            wait_until(lambda: len(recorded) >= len(expected), PATIENCE_S, lambda: f"{len(recorded)} in the log")
            reader.flush()
            assert recorded == expected
    finally:
        load.close()


def store_of(kind: str, directory: Path) -> PublishStore:
    if kind == "memory":
        return MemoryPublishStore(max_bytes=1 << 20)
    return FilePublishStore(directory / "store", max_bytes=1 << 20)


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_fault_a_server_killed_and_restarted_under_load(
    kind: str, start_server: StartServer, tmp_path: Path
) -> None:
    """client.md §21 46, 53: two deaths; a new seed in each run, which is printed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    kill_in_turn(start_server(log_topics=(LOGGED,)), seed, store_of(kind, tmp_path), 2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_fault_a_server_killed_many_times_under_load(
    kind: str, start_server: StartServer, tmp_path: Path
) -> None:
    """client.md §21 46, 53: many deaths."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    kill_in_turn(start_server(log_topics=(LOGGED,)), seed, store_of(kind, tmp_path), 25)
