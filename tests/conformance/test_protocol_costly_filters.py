"""Costly filters and other clients: how long one client's filters delay the others, and that no command speeds them
up.

A message may take a quarter of a second in filters. With a backlog of such messages a worker serves its other clients
in between. A command that takes effect behind the backlog waits for its turn (protocol.md §8). The tests observe that
in one connection's stream, without a clock: a *witness* gets the messages of the backlog as they are evaluated, and
the answers to its own commands stand between them.
"""

import json

import pytest

from amps.server.transport.connection import COMMANDS_PER_TURN
from tests.support.peer import Message, RawClient, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

BACKLOG = 24
LATER = 10
MUCH_BYTES = 400_000  # 24 of them exceed the buffers of a connection
BEHIND_S = 60.0
COSTLY = " AND ".join(f"NOT (/a LIKE '^(a|aa)+[bc]z{{0,{number + 1}}}$')" for number in range(60))
ANSWERS_MIN = 4  # a quick machine gives one for each message of the backlog


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(transport_workers=1, log_topics=("^L/",))


def costly(number: int, padding_bytes: int = 0) -> bytes:
    message = {"a": "a" * 40 + "x", "id": number, "k": "ab"[number % 2], "padding": " " * padding_bytes}
    return json.dumps(message).encode()


def cheap(number: int) -> bytes:
    return json.dumps({"a": "", "id": number, "k": "ab"[number % 2]}).encode()


def numbers(messages: list[Message], sub_id: str) -> list[int]:
    """The messages for a subscription, in the order of their arrival."""
    return [
        int(json.loads(message.body)["id"])
        for message in messages
        if message.command == "p" and sub_id in message.subscriptions
    ]


class Backlog:
    """A topic with a costly filter on it, a publisher and a witness."""

    def __init__(self, peers: Peers, server: ServerProcess, topic: str, **bookmark: str) -> None:
        self.topic = topic
        self.slow = peers.logged_on(server)
        self.slow.subscribe(topic, "slow", f=COSTLY, **bookmark)
        self.witness = peers.logged_on(server)
        self.witness.subscribe(topic, "witness", **bookmark)
        self.publisher = peers.logged_on(server)
        self._bookmark = bool(bookmark)
        self._seen: list[Message] = []

    def begin(self, padding_bytes: int = 0) -> None:
        """Publish the backlog, and wait until its first message has been evaluated."""
        self.publisher.publish_all(self.topic, [costly(number, padding_bytes) for number in range(BACKLOG)])
        self.publisher.flush("persisted" if self._bookmark else "completed")
        while not self.seen:
            self.step()

    @property
    def seen(self) -> list[int]:
        """The numbers of the messages that the witness received."""
        return numbers(self._seen, "witness")

    def step(self) -> None:
        self._seen.append(self.witness.receive(BEHIND_S))

    def ask(self) -> int:
        """Send a flush as the witness, which needs all earlier work to be done. Return how much of the backlog was
        evaluated before the answer.
        """
        cid = self.witness.new_id()
        self.witness.send({"c": "flush", "cid": cid, "a": "completed"})
        while not (self._seen and self._seen[-1].is_ack("completed", cid)):
            self.step()
        return len(self.seen)

    def still_lasts(self) -> None:
        """Check that the witness is served before the end of the backlog."""
        assert self.ask() < BACKLOG

    def go_on(self) -> None:
        """Publish more messages, with a cheap filter; their numbers continue."""
        self.publisher.publish_all(self.topic, [cheap(BACKLOG + number) for number in range(LATER)])
        self.publisher.flush()

    def finish(self) -> None:
        """Check that the witness received every message once, in order."""
        while len(self.seen) < BACKLOG + LATER:
            self.step()
        assert self.seen == list(range(BACKLOG + LATER))


def send_subscribe(client: RawClient, topic: str, sub_id: str, **fields: str) -> str:
    """Send the command and wait until the server has it. Return the command id of its `processed` ack."""
    cid = client.new_id()
    header = {"c": "subscribe", "cid": cid, "t": topic, "sub_id": sub_id, "a": "received,processed", **fields}
    client.send(header)
    client.wait_for_ack("received", cid)
    return cid


def receive_to(client: RawClient, number: int) -> list[Message]:
    """Receive up to the message with that number, and return all messages."""
    received: list[Message] = []
    while not (received and received[-1].command == "p" and json.loads(received[-1].body)["id"] == number):
        received.append(client.receive(BEHIND_S))
    return received


LAST = BACKLOG + LATER - 1


def test_costly_filters_others_are_served_while_a_subscription_waits_to_be_entered(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """protocol.md §8: a subscribe does not make the worker evaluate the whole backlog at once."""
    backlog = Backlog(peers, server, topic)
    newcomer = peers.logged_on(server)
    backlog.begin()
    send_subscribe(newcomer, topic + "/other", "new")
    answers = 0
    while backlog.ask() < BACKLOG:
        answers += 1
    assert answers >= ANSWERS_MIN
    backlog.go_on()
    backlog.finish()


def test_costly_filters_a_subscription_gets_later_messages(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """protocol.md §8: several clients wait, and each gets all messages behind its own place, once and in order."""
    backlog = Backlog(peers, server, topic)
    newcomers = [peers.logged_on(server) for _ in range(2)]
    backlog.begin()
    for number, newcomer in enumerate(newcomers):
        send_subscribe(newcomer, topic, "new")
        backlog.still_lasts()
        backlog.publisher.publish(topic, cheap(BACKLOG + number))
        backlog.publisher.flush()
    backlog.publisher.publish_all(topic, [cheap(BACKLOG + number) for number in range(2, LATER)])
    for number, newcomer in enumerate(newcomers):
        received = receive_to(newcomer, LAST)
        assert received[0].is_ack("processed")
        assert numbers(received, "new") == list(range(BACKLOG + number, BACKLOG + LATER))
    backlog.finish()


@pytest.mark.parametrize("recorded", [False, True], ids=["live", "bookmark"])
def test_costly_filters_replace_splits_exactly(
    peers: Peers, server: ServerProcess, unique: str, recorded: bool
) -> None:
    """protocol.md §8.2: the old filter applies to messages before the command, the new one to those after it."""
    bookmark = {"bm": "0|1|"} if recorded else {}
    topic = f"L/{unique}" if recorded else unique
    backlog = Backlog(peers, server, topic, **bookmark)
    client = peers.logged_on(server)
    client.subscribe(topic, "s", f="/k = 'a'", **bookmark)
    client.subscribe(topic, "all", **bookmark)
    client.flush()
    backlog.begin()
    cid = send_subscribe(client, topic, "s", f="/k = 'b'", o="replace", **bookmark)
    backlog.still_lasts()
    backlog.go_on()
    received: list[Message] = []
    while (
        sum(message.command == "p" and "all" in message.subscriptions for message in received)
        < LATER + BACKLOG
    ):
        received.append(client.receive(BEHIND_S))
    if numbers(received, "s")[-1] != LAST:
        received.append(client.receive(BEHIND_S))
    assert numbers(received, "all") == list(range(BACKLOG + LATER))
    before, after = range(0, BACKLOG, 2), range(BACKLOG + 1, BACKLOG + LATER, 2)
    assert numbers(received, "s") == [*before, *after]
    (answer,) = [index for index, message in enumerate(received) if message.is_ack("processed", cid)]
    assert numbers(received[:answer], "s") == [*before]
    backlog.finish()


def test_costly_filters_replace_by_a_client_that_stops_reading(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §8.2: a client that leaves the shared tailer while its replacement waits gets every message once."""
    backlog = Backlog(peers, server, recorded_topic, bm="0|1|")
    client = peers.logged_on(server, receive_buffer_bytes=1 << 14)
    client.subscribe(recorded_topic, "s", f="/k = 'a'", bm="0|1|")
    client.subscribe(recorded_topic, "all", bm="0|1|")
    client.flush()
    backlog.begin(MUCH_BYTES)
    cid = send_subscribe(client, recorded_topic, "s", f="/k = 'b'", o="replace", bm="0|1|")
    backlog.still_lasts()
    while backlog.ask() < BACKLOG:
        pass
    joined = len(server.log.find("21-0002", client.client_name))
    received: list[Message] = []
    while not any(message.is_ack("processed", cid) for message in received):
        received.append(client.receive(BEHIND_S))
    backlog.go_on()
    backlog.finish()
    while any(numbers(received, sub_id)[-1:] != [LAST] for sub_id in ("s", "all")):
        received.append(client.receive(BEHIND_S))
    assert numbers(received, "all") == list(range(BACKLOG + LATER))
    old, new = [[n for n in numbers(received, "s") if n % 2 == kind] for kind in (0, 1)]
    assert numbers(received, "s") == old + new
    assert old == [*range(0, old[-1] + 1, 2)]
    assert new == [*range(new[0], BACKLOG + LATER, 2)]
    assert new[0] - old[-1] in (1, 3)  # the message between them does not match the filter in question
    server.log.wait_for("21-0002", client.client_name, count=joined + 1)


def test_costly_filters_a_replay_joins_later(
    peers: Peers, server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §8.1: a subscription that has caught up while others have not gets every message, and once."""
    backlog = Backlog(peers, server, recorded_topic, bm="0|1|")
    client = peers.logged_on(server)
    backlog.begin()
    client.subscribe(recorded_topic, "replay", bm="0")
    received = receive_to(client, BACKLOG - 1)
    backlog.still_lasts()
    backlog.go_on()
    received += receive_to(client, LAST)
    assert numbers(received, "replay") == list(range(BACKLOG + LATER))
    backlog.finish()
    # The replay has joined the shared tailer, or will; either way it goes on.
    backlog.publisher.publish(recorded_topic, cheap(LAST + 1))
    assert numbers(client.receive_published(1), "replay") == [LAST + 1]
    client.expect_silence()


@pytest.mark.parametrize("leaves", ["unsubscribes", "disconnects"])
def test_costly_filters_a_leaving_client_affects_no_other(
    peers: Peers, server: ServerProcess, topic: str, leaves: str
) -> None:
    """protocol.md §8: a tailer without members goes on for waiting subscriptions, and does not wait for a
    closed one.
    """
    backlog = Backlog(peers, server, topic)
    gone, newcomer = peers.logged_on(server), peers.logged_on(server)
    backlog.begin()
    send_subscribe(gone, topic, "gone")
    backlog.still_lasts()
    backlog.publisher.publish(topic, cheap(BACKLOG))
    backlog.publisher.flush()
    send_subscribe(newcomer, topic, "new")
    backlog.still_lasts()
    gone.close()
    if leaves == "unsubscribes":
        assert backlog.slow.unsubscribe("all").succeeded
        assert backlog.witness.unsubscribe("all").succeeded
    else:
        backlog.slow.close()
        backlog.witness.close()
    backlog.publisher.publish_all(topic, [cheap(BACKLOG + number) for number in range(1, LATER)])
    received = receive_to(newcomer, LAST)
    assert received[0].is_ack("processed")
    assert numbers(received, "new") == list(range(BACKLOG + 1, BACKLOG + LATER))
    server.check_undisturbed()


def test_costly_filters_a_waiting_subscription_delays_later_commands(
    peers: Peers, server: ServerProcess, topic: str
) -> None:
    """protocol.md §8: the commands after a subscribe wait until it is entered, however many a client sent with it."""
    backlog = Backlog(peers, server, topic)
    client = peers.logged_on(server)
    backlog.begin()
    nothing = frame({"c": "unsubscribe", "sub_id": "none"})
    subscribes = [
        frame({"c": "subscribe", "cid": cid, "t": topic, "sub_id": "s", "a": "processed"})
        for cid in ("first", "second")
    ]
    # The last command that a worker processes in one turn is one that waits.
    client.send_bytes(nothing * (COMMANDS_PER_TURN - 1) + b"".join(subscribes))
    assert client.wait_for_ack("processed", "first", BEHIND_S).succeeded
    assert client.wait_for_ack("processed", "second", BEHIND_S).reason == "subscription already exists"
    backlog.go_on()
    backlog.finish()
