"""Load on instances that replicate to each other. Its clients move to any instance after each end of a connection.

Publishers and bookmark subscribers keep what `tests.fault.load` says. Here also live the workers of a queue that spans
the instances, and the audit: all logs have the same messages, every acknowledged one once and in its publisher's order;
a `fully_durable` subscriber missed nothing and got nothing twice on one connection; a queue message whose
acknowledgement was answered never comes again.
"""

import json
import random
from collections.abc import Iterator, Sequence

from tests.fault.load import PATIENCE_S, Participant, Publisher, check_everything, replay
from tests.support.peer import Message, RawClient, Silence
from tests.support.server import ServerProcess, wait_until

LOGGED = "^load/"
QUEUE = "Q"
QUEUED = "load/queued"
"""The topic of the messages in the queue."""
BACKLOG = 20
LARGEST_BYTES = 400
FIRST_S = 0.05
NEXT_S = 0.001
QUIET_S = 1.5

Key = tuple[str, int]
"""Name of the publisher and number of the message."""


def key_of(body: bytes) -> Key:
    content = json.loads(body)
    return content["p"], content["n"]


def arrivals(client: RawClient, first_s: float = FIRST_S) -> Iterator[Message]:
    """Messages that arrive now, until there is a pause."""
    wait_s = first_s
    try:
        while True:
            yield client.receive(wait_s)
            wait_s = NEXT_S
    except Silence:
        return


class Mover(Participant):
    """A client that goes to any of the instances when a connection ended."""

    def __init__(self, servers: Sequence[ServerProcess], name: str, seed: int) -> None:
        super().__init__(servers[0], name)
        self._servers = servers
        self._choice = random.Random(seed)

    def next_server(self) -> ServerProcess:
        return self._choice.choice(self._servers)


class MovingPublisher(Publisher):
    """A publisher that moves with its store. All destinations must be sync and never be downgraded."""

    window = 20

    def __init__(self, servers: Sequence[ServerProcess], name: str, topic: str, seed: int) -> None:
        super().__init__(servers[0], name, topic, seed, LARGEST_BYTES)
        self._servers = servers
        self._choice = random.Random(seed)

    def next_server(self) -> ServerProcess:
        return self._choice.choice(self._servers)

    def _log_on(self, client: RawClient) -> int:
        """The bookmark of the logon covers what was promised; its sequence may not yet (replication.md 25.85)."""
        ack = client.logon(self.name, o="ack_conflation=5ms")
        known = ack["s"]
        assert isinstance(known, int)
        bookmark = str(ack.get("bm") or "")
        logged = int(bookmark.split("|")[1]) if "|" in bookmark else 0
        assert max(known, logged) >= self.acknowledged, (
            f"{self.name}: {self.acknowledged} was acknowledged, the logon says {ack.header}"
        )
        self.acknowledged = max(self.acknowledged, known)
        return known


class MovingSubscriber(Mover):
    """Reads with `fully_durable` from the epoch on, and resumes with the last bookmark of each publisher.

    It repeats nothing on one connection, and leaves out nothing of a publisher (replication.md §19).
    """

    def __init__(self, servers: Sequence[ServerProcess], name: str, seed: int) -> None:
        super().__init__(servers, name, seed)
        self.seen: dict[str, list[bytes]] = {}
        """Bodies by publisher, without repetitions."""
        self._bookmarks: dict[str, str] = {}

    @property
    def count(self) -> int:
        return sum(map(len, list(self.seen.values())))

    def session(self, client: RawClient) -> None:
        client.logon(self.name)
        start = ",".join(self._bookmarks.values()) or "0"
        client.send({"c": "subscribe", "t": LOGGED, "bm": start, "sub_id": "s", "o": "fully_durable"})
        self.connections += 1
        last: dict[str, int] = {}
        while not self._stopping.is_set():
            for message in arrivals(client):
                assert message.command == "p", f"{self.name} got {message.header}"
                publisher, number = key_of(message.body)
                assert number > last.get(publisher, 0), f"{self.name} got {publisher} {number} twice"
                last[publisher] = number
                seen = self.seen.setdefault(publisher, [])
                assert number <= len(seen) + 1, (
                    f"{self.name} missed {publisher} {len(seen) + 1} to {number - 1} at "
                    f"{self._server.options.name}, subscribed with {start}"
                )
                if number > len(seen):
                    seen.append(message.body)
                    self._bookmarks[publisher] = str(message["bm"])


class Worker(Mover):
    """Takes messages of the queue at any instance, and acknowledges each."""

    def __init__(self, servers: Sequence[ServerProcess], name: str, seed: int) -> None:
        super().__init__(servers, name, seed)
        self.delivered: set[Key] = set()
        self.answered: set[Key] = set()
        """Their acknowledgement was answered with `persisted`."""

    def session(self, client: RawClient) -> None:
        client.logon(self.name, o="ack_conflation=5ms")
        client.subscribe(QUEUE, "s", o=f"max_backlog={BACKLOG}")
        self.connections += 1
        waiting: dict[str, Key] = {}
        while not self._stopping.is_set():
            for message in arrivals(client):
                take_message(client, message, self.delivered, self.answered, waiting)


def take_message(
    client: RawClient, message: Message, delivered: set[Key], answered: set[Key], waiting: dict[str, Key]
) -> None:
    """Acknowledge a delivery, or note the answer to an acknowledgement."""
    if message.command == "p":
        key = key_of(message.body)
        delivered.add(key)
        cid = client.new_id()
        waiting[cid] = key
        client.send({"c": "sow_delete", "t": QUEUE, "bm": str(message["bm"]), "a": "persisted", "cid": cid})
    elif message.is_ack("persisted") and message.succeeded:
        answered.add(waiting[str(message["cid"])])


def drain_queue(servers: Sequence[ServerProcess]) -> set[Key]:
    """Take and acknowledge everything that is in the queue, at all instances at once. Return what was delivered."""
    delivered: set[Key] = set()
    answered: set[Key] = set()
    clients = [RawClient.tcp(server.port(), timeout_s=PATIENCE_S) for server in servers]
    waiting: list[dict[str, Key]] = [{} for _ in clients]
    try:
        for number, client in enumerate(clients):
            client.logon(f"drain-{number}", o="ack_conflation=5ms")
            client.subscribe(QUEUE, "s", o=f"max_backlog={BACKLOG}")
        quiet = 0
        while quiet < 2:
            before = len(delivered), len(answered)
            for client, open_acks in zip(clients, waiting, strict=True):
                for message in arrivals(client, QUIET_S / len(clients)):
                    take_message(client, message, delivered, answered, open_acks)
            quiet = quiet + 1 if (len(delivered), len(answered)) == before else 0
    finally:
        for client in clients:
            client.close()
    assert delivered == answered, f"acknowledgements without an answer: {sorted(delivered - answered)[:10]}"
    return delivered


def replay_when_equal(servers: Sequence[ServerProcess]) -> list[list[tuple[str, bytes]]]:
    """Wait until all logs have the same number of messages, and return them."""
    logs: list[list[tuple[str, bytes]]] = []

    def equal() -> bool:
        logs[:] = [replay(server, LOGGED) for server in servers]
        return len({len(log) for log in logs}) == 1

    wait_until(equal, PATIENCE_S, lambda: f"the logs stay different: {[len(log) for log in logs]}")
    return logs


def check_group(
    servers: Sequence[ServerProcess], publishers: list[Publisher], subscribers: list[MovingSubscriber]
) -> list[tuple[str, bytes]]:
    """Compare all logs with each other, with all promises and deliveries. The participants must have been stopped.

    Return the first log.
    """
    logs = replay_when_equal(servers)
    for log in logs:
        check_everything(log, publishers, [])
    assert set(logs[0]) == set().union(*logs), "bookmarks differ between the logs"
    for subscriber in subscribers:
        for publisher in publishers:
            seen = subscriber.seen.get(publisher.name, [])
            assert seen == publisher.store[: len(seen)], f"{subscriber.name} got something else than was published"
    return logs[0]
