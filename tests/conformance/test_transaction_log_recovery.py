"""Restarts and killed processes: transaction_log.md §1, §12, §22 6, 8, 63."""

import os
import random
import signal
import threading
import time

import pytest

from tests.support.journals import names_in
from tests.support.peer import ConnectionClosed, Message, PeerError, RawClient, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until

TOPICS = ("t1",)


class StubbornPublisher(threading.Thread):
    """A publisher with a store: publishes 1, 2, 3, … and always resumes behind the sequence in the logon ack."""

    def __init__(self, server: ServerProcess, name: str, topic: str = "t1") -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        """Every message up to this number was acknowledged as persisted, by an ack or at logon."""
        self.sent = 0
        self.losses: list[str] = []
        """Logon acks with a sequence below an acknowledged one. Publishing again would hide such a loss."""
        self._server = server
        self._name = name
        self._topic = topic
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._session()
            except (OSError, PeerError):
                time.sleep(0.02)

    def wait_for_progress(self, messages: int) -> None:
        """Wait until that number of further messages is acknowledged."""
        wanted = self.acknowledged + messages
        wait_until(lambda: self.acknowledged >= wanted, 30, "the publisher stands still")

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()
        assert not self.losses

    def _session(self) -> None:
        with RawClient.tcp(self._server.port(), timeout_s=10) as client:
            known = client.logon(self._name, o="ack_conflation=10ms")["s"]
            assert isinstance(known, int)
            if known < self.acknowledged:
                self.losses.append(f"{self.acknowledged} was acknowledged, the logon ack knows {known}")
            self.sent = known
            self.acknowledged = max(self.acknowledged, known)
            while not self._stopping.is_set():
                bodies = numbered_bodies(50, start=self.sent + 1, padding_bytes=100)
                client.publish_all(self._topic, bodies, first_sequence=self.sent + 1, a="persisted")
                self.sent += len(bodies)
                for ack in client.wait_for_persisted(self.sent):
                    covered = ack["s"]
                    assert isinstance(covered, int)
                    self.acknowledged = max(self.acknowledged, covered)


def everything(peers: Peers, server: ServerProcess, topic: str = "t1") -> list[Message]:
    """Return all messages of a topic that are in the log now."""
    client = peers.logged_on(server)
    client.send({"c": "subscribe", "t": topic, "bm": "0", "sub_id": "r", "a": "processed,completed"})
    assert client.receive().succeeded
    messages: list[Message] = []
    while not (messages and messages[-1].is_ack("completed")):
        messages.append(client.receive(timeout_s=60))
    return messages[:-1]


def check_nothing_acknowledged_is_missing(messages: list[Message], publisher: StubbornPublisher) -> None:
    stored = bodies_of(messages)
    assert stored == numbered_bodies(len(stored), padding_bytes=100), "lost, doubled or out of order"
    assert len(stored) >= publisher.acknowledged


def test_transaction_log_6_a_restart_keeps_order_and_payloads(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 6, §1 4: three restarts, publishing before and after each."""
    server = start_server(log_topics=TOPICS)
    expected: list[bytes] = []
    for part in range(4):
        bodies = [os.urandom(random.Random(part * 100 + n).randrange(3000)) for n in range(100)]
        peers.logged_on(server).publish_persisted("t1", bodies, 1)
        expected += bodies
        assert bodies_of(everything(peers, server)) == expected
        server.restart()
        assert bodies_of(everything(peers, server)) == expected


def test_transaction_log_6_every_kind_of_content_survives(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §1.1: topic, body, correlation id, bookmark and time stay."""
    server = start_server(log_topics=(".*",))
    publisher = peers.logged_on(server)
    for sequence, topic in enumerate(["a", "ä/ö", "x" * 500, "with blank", "a.*b"], start=1):
        publisher.publish(topic, b"%d" % sequence, s=sequence, x="abc+/=" * sequence, e=3600)
        publisher.publish(topic, b"")
    publisher.flush("persisted")

    def content() -> list[tuple[object, ...]]:
        client = peers.logged_on(server)
        client.subscribe("^", "s", bm="0", o="timestamp")
        return [(m["t"], m["bm"], m["ts"], m.get("x"), m.body) for m in client.receive_published(10)]

    before = content()
    server.restart()
    assert content() == before


def test_transaction_log_8_acknowledged_messages_survive_sigkill(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 8: killed right after the ack, many times; no message twice."""
    server = start_server(log_topics=TOPICS)
    name = peers.new_name()
    for cycle in range(5):
        publisher = peers.open(server)
        known = publisher.logon(name, o="ack_conflation=1ms")["s"]
        assert isinstance(known, int)
        bodies = numbered_bodies(200, start=known + 1)
        publisher.publish_all("t1", bodies, first_sequence=known + 1, a="persisted")
        acknowledged = publisher.wait_for_persisted(known + 100)[-1]["s"]
        assert isinstance(acknowledged, int)
        server.kill_all()
        server.start()
        stored = bodies_of(everything(peers, server))
        assert len(stored) >= acknowledged, f"cycle {cycle}"
        assert stored == numbered_bodies(len(stored))


def test_transaction_log_8_acks_of_unnumbered_publishes_are_kept_too(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §4.4: a persisted ack is a promise, whether client or server numbered the message."""
    server = start_server(log_topics=TOPICS)
    publisher = peers.logged_on(server)
    for number in range(20):
        assert publisher.request({"c": "p", "t": "t1"}, b"%d" % number, ack="persisted").succeeded
    server.kill_all()
    server.start()
    assert bodies_of(everything(peers, server)) == [b"%d" % number for number in range(20)]


def test_transaction_log_63_duplicates_are_known_after_sigkill(
    start_server: StartServer, peers: Peers
) -> None:
    """transaction_log.md §22 63: for many publishers, with and without files beside the journals."""
    server = start_server(log_topics=TOPICS)
    names = [f"publisher-{n}" for n in range(30)]
    for number, name in enumerate(names):
        client = peers.open(server)
        client.logon(name)
        client.publish_persisted("t1", [b"x"] * (number + 1), 1)
    total = sum(range(1, 31))
    for leave_caches in (True, False):
        server.kill_all()
        if not leave_caches:
            for path in server.journal_directory.iterdir():
                if path.suffix != ".journal":
                    path.unlink()
        server.start()
        for number, name in enumerate(names):
            client = peers.open(server)
            assert client.logon(name)["s"] == number + 1
            client.publish_persisted("t1", [b"again"] * (number + 1), 1)
        assert bodies_of(everything(peers, server)) == [b"x"] * total


def test_transaction_log_8_the_whole_tree_killed_under_load(start_server: StartServer, peers: Peers) -> None:
    """transaction_log.md §22 8: at random moments while three publishers run."""
    server = start_server(log_topics=TOPICS, transport_workers=2)
    names = [peers.new_name() for _ in range(3)]
    publishers = [StubbornPublisher(server, name, f"t1/{n}") for n, name in enumerate(names)]
    server.restart(log_topics=("^t1/",))
    moments = random.Random(5)
    for publisher in publishers:
        publisher.start()
    for _ in range(4):
        time.sleep(0.3 + moments.random())
        server.kill_all()
        server.start()
    for publisher in publishers:
        publisher.wait_for_progress(1)
        publisher.stop()
    for number, publisher in enumerate(publishers):
        check_nothing_acknowledged_is_missing(everything(peers, server, f"t1/{number}"), publisher)


def test_transaction_log_8_the_core_killed_under_load(start_server: StartServer, peers: Peers) -> None:
    """The supervisor restarts the tree and the core recovers; no acknowledged message is missing."""
    server = start_server(log_topics=TOPICS)
    publisher = StubbornPublisher(server, peers.new_name())
    publisher.start()
    for _ in range(3):
        publisher.wait_for_progress(500)
        old = [server.core_pid(), *server.transport_pids()]
        server.kill_core()
        server.wait_for_new_tree(old)
    publisher.wait_for_progress(1)
    publisher.stop()
    check_nothing_acknowledged_is_missing(everything(peers, server), publisher)


def test_transaction_log_8_a_transport_killed_under_load(start_server: StartServer, peers: Peers) -> None:
    """Only the connections of that transport end; other clients are not affected, and the name is free at once."""
    server = start_server(log_topics=TOPICS, transport_workers=2)
    publisher = StubbornPublisher(server, peers.new_name())
    publisher.start()
    bystanders = [peers.logged_on(server) for _ in range(8)]
    for bystander in bystanders:
        bystander.subscribe("chat", "s")
    for number in (0, 1):
        publisher.wait_for_progress(200)
        killed = server.transport_pid(number)
        server.kill_transport(number)
        server.wait_for_new_tree([killed])
        if number == 0:
            alive = [bystander for bystander in bystanders if _is_alive(bystander)]
            assert 0 < len(alive) < len(bystanders)
            alive[0].publish("chat", b"hello")
            assert [m.body for b in alive for m in b.receive_published(1)] == [b"hello"] * len(alive)
    publisher.wait_for_progress(1)
    publisher.stop()
    check_nothing_acknowledged_is_missing(everything(peers, server), publisher)


def test_transaction_log_12_sigterm_drains(start_server: StartServer, peers: Peers) -> None:
    """Messages sent before the signal and acknowledged are stored; the server ends with exit code 0."""
    server = start_server(log_topics=TOPICS)
    publisher = StubbornPublisher(server, peers.new_name())
    publisher.start()
    publisher.wait_for_progress(200)
    server.stop()
    server.start()
    publisher.wait_for_progress(1)
    publisher.stop()
    check_nothing_acknowledged_is_missing(everything(peers, server), publisher)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_transaction_log_12_connections_are_closed_at_shutdown(
    start_server: StartServer, peers: Peers, signal_number: signal.Signals
) -> None:
    """SIGTERM and SIGINT end the server in order, with clients connected and subscribed."""
    server = start_server(log_topics=TOPICS)
    client = peers.logged_on(server)
    client.subscribe("t1", "s", bm="0")
    server.stop(signal_number)
    with pytest.raises(ConnectionClosed):
        client.receive()


def _is_alive(client: RawClient) -> bool:
    try:
        client.expect_silence()
    except (OSError, PeerError):
        return False
    return True


@pytest.mark.parametrize("killed", [False, True])
def test_transaction_log_6_a_restart_names_no_publisher_again(start_server: StartServer, killed: bool) -> None:
    """docs/files.md: a name record stands once in each file, also after a restart or SIGKILL."""
    server = start_server(log_topics=("t1",))
    for sequence in (1, 2):
        with Peers("ada") as peers:
            peers.logged_on(server, name="ada").publish_persisted("t1", [b"{}"], sequence)
        if killed:
            server.kill_all()
        else:
            server.stop()
        server.start()
    names = [text for _, text in names_in(server.journals()[0])]
    assert names.count(b"ada") == 1
