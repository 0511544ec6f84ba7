"""Load that survives every fault of the server, and remembers every promise.

Publishers keep all their messages (a publish store) and resume behind the sequence in the logon acknowledgement.
Subscribers keep all delivered messages and resume with their last bookmark. Afterwards `check_everything` compares
the log with both: every acknowledged message is there exactly once and in order, and the deliveries equal the log.
"""

import json
import random
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.peer import ConnectionClosed, Message, PeerError, RawClient, frame
from tests.support.server import ServerProcess, wait_until

WINDOW = 150
RETRY_S = 0.02
LOOK_MS = 50
SESSION_TIMEOUT_S = 30.0
PATIENCE_S = 60.0


def _has_input(client: RawClient) -> bool:
    """Wait a moment for input. `select.select` takes only low file numbers; a run of many tests has higher ones."""
    poll = select.poll()
    poll.register(client.socket, select.POLLIN)
    return bool(poll.poll(LOOK_MS))


class Participant(threading.Thread):
    """A client that connects again whenever its connection ends, until it is stopped."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.connections = 0
        """The number of its logons."""
        self.problems: list[str] = []
        """Descriptions of violated invariants."""
        self._server = server
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._server = self.next_server()
                with RawClient.tcp(self._server.port(), timeout_s=SESSION_TIMEOUT_S) as client:
                    self.session(client)
            except AssertionError as failure:
                if not isinstance(failure, PeerError):
                    self.problems.append(str(failure))
                    return
                self._stopping.wait(RETRY_S)
            except OSError:
                self._stopping.wait(RETRY_S)

    def next_server(self) -> ServerProcess:
        """The server for the next connection."""
        return self._server

    def session(self, client: RawClient) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"{self.name} does not end"
        assert not self.problems, self.problems


class Publisher(Participant):
    """Numbers its messages 1, 2, 3, … and keeps at most `window` of them unacknowledged."""

    window = WINDOW
    may_be_refused = False

    def __init__(
        self, server: ServerProcess, name: str, topic: str, seed: int, largest_bytes: int = 4000
    ) -> None:
        super().__init__(server, name)
        self.topic = topic
        self.store: list[bytes] = []
        """Body of message n at place n - 1."""
        self.acknowledged = 0
        """Every message up to this number was promised, by an acknowledgement or at logon."""
        self.refused = 0
        """How often the server could not store a message. The message is then published again on a new connection."""
        self._chance = random.Random(seed)
        self._largest_bytes = largest_bytes

    def session(self, client: RawClient) -> None:
        sent = self._log_on(client)
        self.connections += 1
        while not self._stopping.is_set():
            burst = bytearray()
            while sent - self.acknowledged < self.window and len(burst) < 100_000:
                sent += 1
                burst += frame({"c": "p", "t": self.topic, "s": sent, "a": "persisted"}, self._body(sent))
            if burst:
                client.send_bytes(burst)
            self._take_acks(client)

    def _log_on(self, client: RawClient) -> int:
        """Return the number of the message behind which to resume."""
        promised = self.acknowledged
        known = client.logon(self.name, o="ack_conflation=5ms")["s"]
        assert isinstance(known, int)
        assert known >= promised, f"{self.name}: {promised} was acknowledged, the logon says {known}"
        self.acknowledged = known
        return known

    def wait_for_progress(self, messages: int = 1) -> None:
        """Wait until that number of further messages is acknowledged."""
        wanted = self.acknowledged + messages
        wait_until(
            lambda: self.acknowledged >= wanted or bool(self.problems),
            PATIENCE_S,
            lambda: f"{self.name} stands still\n{self._server.excerpt()}",
        )

    def _body(self, number: int) -> bytes:
        while len(self.store) < number:
            size = self._chance.randrange(20, self._largest_bytes)
            body = {"p": self.name, "n": len(self.store) + 1, "x": "y" * size}
            self.store.append(json.dumps(body).encode())
        return self.store[number - 1]

    def _take_acks(self, client: RawClient) -> None:
        if not _has_input(client):
            return
        message = client.receive()
        covered = message.get("s")
        # The failure concerns one message, or the connection, which then ends.
        if self.may_be_refused and message.failed and message.reason == "tx store failed":
            self.refused += 1
            raise ConnectionClosed("refused")
        assert message.is_ack("persisted"), f"{self.name} got {message.header}"
        assert message.succeeded, f"{self.name} got {message.header}"
        assert isinstance(covered, int)
        self.acknowledged = max(self.acknowledged, covered)


class Subscriber(Participant):
    """Receives every message from the epoch on, over any number of connections."""

    def __init__(self, server: ServerProcess, name: str, topic: str) -> None:
        super().__init__(server, name)
        self.seen: list[tuple[str, bytes]] = []
        """(bookmark, body) in the order of delivery."""
        self._topic = topic

    def session(self, client: RawClient) -> None:
        client.logon(self.name)
        start = self.seen[-1][0] if self.seen else "0"
        client.send({"c": "subscribe", "t": self._topic, "bm": start, "sub_id": "s"})
        self.connections += 1
        while not self._stopping.is_set():
            if not _has_input(client):
                continue
            message = client.receive()
            assert message.command == "p", f"{self.name} got {message.header}"
            self.seen.append((str(message["bm"]), message.body))


def replay(server: ServerProcess, topic: str, start: str = "0") -> list[tuple[str, bytes]]:
    """Return (bookmark, body) of all messages that are now in the log behind a bookmark."""
    with RawClient.tcp(server.port(), timeout_s=60) as client:
        client.logon("auditor")
        client.send({"c": "subscribe", "t": topic, "bm": start, "sub_id": "r", "a": "completed"})
        messages: list[Message] = []
        while not (messages and messages[-1].is_ack("completed")):
            messages.append(client.receive())
    return [(str(message["bm"]), message.body) for message in messages[:-1]]


def check_everything(
    stored: list[tuple[str, bytes]], publishers: list[Publisher], subscribers: list[Subscriber]
) -> None:
    """Compare the log with all promises and deliveries; see the module. The participants must have been stopped."""
    of_publisher: dict[str, list[bytes]] = {publisher.name: [] for publisher in publishers}
    for _, body in stored:
        of_publisher[json.loads(body)["p"]].append(body)
    for publisher in publishers:
        found = of_publisher[publisher.name]
        assert found == publisher.store[: len(found)], (
            f"{publisher.name}: lost, doubled, changed or out of order"
        )
        assert len(found) >= publisher.acknowledged, (
            f"{publisher.name}: {publisher.acknowledged} were acknowledged, {len(found)} are there"
        )
    assert len({bookmark for bookmark, _ in stored}) == len(stored)
    for subscriber in subscribers:
        count = len(subscriber.seen)
        assert subscriber.seen == stored[:count], (
            f"{subscriber.name} was given something else than the log holds"
        )


@contextmanager
def running(participants: list[Participant]) -> Iterator[None]:
    """Start the participants. At the end stop them, and fail with their problems."""
    for participant in participants:
        participant.start()
    try:
        yield
    finally:
        for participant in participants:
            participant._stopping.set()
    for participant in participants:
        participant.stop()


def wait_for_all(publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
    """Wait until all participants work again: publishers are acknowledged, and subscribers receive all messages
    acknowledged then.
    """
    for publisher in publishers:
        publisher.wait_for_progress()
    for subscriber in subscribers:
        seen = len(subscriber.seen)
        deadline_s = time.monotonic() + PATIENCE_S
        while len(subscriber.seen) == seen and not subscriber.problems:
            assert time.monotonic() < deadline_s, f"{subscriber.name} stands still"
            time.sleep(0.01)
