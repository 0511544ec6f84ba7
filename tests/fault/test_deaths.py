"""Processes killed or frozen under load: no acknowledged message is missing, and no message is there twice."""

import contextlib
import os
import random
import signal
import threading
import time

import psutil

from tests.fault.load import Participant, Publisher, check_everything, replay, running, wait_for_all
from tests.fault.storm import LOGGED, crowd, kill_supervisor, only, storm
from tests.support.peer import PeerError, RawClient, frame
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies, wait_until

TAKEOVERS = 40


def test_fault_each_kind_of_death(start_server: StartServer) -> None:
    """All kinds in sequence, with one journal ready at a time, so that making the next one is covered."""
    server = start_server(
        log_topics=(LOGGED,),
        transport_workers=2,
        journal_xml="<PreallocatedJournalFiles>1</PreallocatedJournalFiles>",
    )
    storm(server, 1, ["tree", "core twice", "transport", "supervisor", "frozen core"])


def test_fault_random_deaths(start_server: StartServer) -> None:
    """A new seed for each run; it is printed, and a failure names it."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    server = start_server(log_topics=(LOGGED,), transport_workers=2)
    storm(server, seed, [None] * 4)


def test_fault_a_dead_transport_takes_only_its_own_connections(
    start_server: StartServer, peers: Peers
) -> None:
    """Clients of the other transport have neither gaps nor duplicates, and keep their connections."""
    server = start_server(log_topics=(LOGGED,), transport_workers=2)
    publishers, _ = crowd(server, 7, 4)
    watchers = [Watcher(server, f"watcher-{n}") for n in range(6)]
    with running([*publishers, *watchers]):
        for publisher in publishers:
            publisher.wait_for_progress(100)
        wait_until(lambda: all(watcher.connections for watcher in watchers), 20, "watchers are not connected")
        before = {participant.name: participant.connections for participant in [*publishers, *watchers]}
        for number in (0, 1):
            killed = server.transport_pid(number)
            server.kill_process(killed)
            server.wait_for_new_tree([killed])
            wait_for_all(publishers, [])
            kept = [w for w in watchers if w.connections == before[w.name]]
            if number == 0:
                assert 0 < len(kept) < len(watchers), "connections are not spread over the transports"
                wait_for_more(kept)
    check_everything(replay(server, LOGGED), publishers, [])


def wait_for_more(watchers: "list[Watcher]") -> None:
    """Wait until every one of them has received a further message."""
    seen = {watcher: len(watcher.bodies) for watcher in watchers}
    wait_until(lambda: all(len(w.bodies) > seen[w] for w in watchers), 20, "a survivor gets nothing more")


class Watcher(Participant):
    """An ordinary subscriber: within one connection it sees each publisher's messages without a gap."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        super().__init__(server, name)
        self.bodies: list[bytes] = []

    def session(self, client: RawClient) -> None:
        client.logon(self.name)
        client.subscribe("^load/", "s")
        self.connections += 1
        last: dict[bytes, int] = {}
        while not self._stopping.is_set():
            message = client.receive()
            self.bodies.append(message.body)
            publisher, _, rest = message.body.partition(b', "n": ')
            number = int(rest.partition(b",")[0])
            assert last.get(publisher, number - 1) == number - 1, (
                f"{self.name}: a gap before {message.body[:60]!r}"
            )
            last[publisher] = number


def test_fault_a_name_taken_over_under_load(start_server: StartServer) -> None:
    """Two connections take a name from each other while both publish: every acknowledged message is recorded.

    Messages that a connection still had on the way when it lost its name are dropped, and must not be acknowledged to
    it.
    """
    server = start_server(log_topics=(LOGGED,), transport_workers=2)
    store = [b'{"p": "rival", "n": %d, "x": "%s"}' % (n, b"z" * (n * 37 % 900)) for n in range(1, 60_001)]
    promised = [0]
    takeovers: list[int] = []
    guard = threading.Lock()
    stop = threading.Event()
    failures: list[str] = []

    def rival() -> None:
        while not stop.is_set():
            try:
                with RawClient.tcp(server.port(), timeout_s=10) as client:
                    owed = promised[0]
                    sent = client.logon("rival", o="ack_conflation=1ms")["s"]
                    assert isinstance(sent, int)
                    takeovers.append(sent)
                    if sent < owed:
                        failures.append(f"{owed} was acknowledged, the logon says {sent}")
                    for _ in range(40):
                        bodies = store[sent : sent + 25]
                        client.publish_all("load/r", bodies, first_sequence=sent + 1, a="persisted")
                        sent += len(bodies)
                        covered = client.wait_for_ack("persisted")["s"]
                        assert isinstance(covered, int)
                        with guard:
                            promised[0] = max(promised[0], covered)
            except (OSError, PeerError):
                continue

    threads = [threading.Thread(target=rival, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(
        lambda: len(takeovers) >= TAKEOVERS or bool(failures), 60, lambda: f"only {len(takeovers)} takeovers"
    )
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not failures, failures[:3]
    bodies = [body for _, body in replay(server, LOGGED)]
    assert bodies == store[: len(bodies)]
    assert len(bodies) >= promised[0] > 0


def test_fault_killed_again_and_again_while_it_starts(start_server: StartServer, peers: Peers) -> None:
    """At any moment of preallocation and recovery; the server can always start on the remaining files."""
    server = start_server(
        log_topics=(LOGGED,), journal_xml="<PreallocatedJournalFiles>4</PreallocatedJournalFiles>"
    )
    bodies = numbered_bodies(1500, padding_bytes=10_000)
    peers.logged_on(server).publish_persisted("load/1", bodies, 1)
    chance = random.Random(11)
    for attempt in range(8):
        server.kill_all()
        if attempt % 2:
            for spare in server.journals()[2:]:
                spare.unlink()
        server.launch()
        time.sleep(chance.random() * 0.4)
    server.kill_all()
    server.start()
    assert [body for _, body in replay(server, LOGGED)] == bodies
    sizes = {path.stat().st_size for path in server.journals()}
    assert sizes == {10 << 20}
    assert not list(server.journal_directory.glob("*.new"))


def test_fault_a_transport_killed_with_large_messages_on_the_way(start_server: StartServer) -> None:
    """A message in a spill file is recorded whole or not at all, and no spill file stays behind."""
    server = start_server(log_topics=(LOGGED,), transport_workers=1)
    publisher = Publisher(server, "large", "load/large", 3, largest_bytes=6_000_000)
    with running([publisher]):
        for _ in range(3):
            publisher.wait_for_progress(3)
            killed = server.transport_pid(0)
            server.kill_process(killed)
            server.wait_for_new_tree([killed])
        publisher.wait_for_progress(3)
    check_everything(replay(server, LOGGED), [publisher], [])
    wait_until(lambda: not spills(server), 10, lambda: f"left behind: {spills(server)}")


def spills(server: ServerProcess) -> list[str]:
    """Spill files of that server's runtime directory."""
    assert server.process is not None
    prefix = f"amps-run-{server.process.pid}-"
    return [
        name
        for directory in os.listdir("/dev/shm")
        if directory.startswith(prefix)
        for name in os.listdir(f"/dev/shm/{directory}")
        if name.startswith("spill")
    ]


def test_fault_the_supervisor_killed(start_server: StartServer, peers: Peers) -> None:
    """The other processes drain and end by themselves: received messages are acknowledged first, before they are due.

    The next start removes the files that are left in memory.
    """
    server = start_server(log_topics=(LOGGED,), transport_workers=2)
    client = peers.logged_on(server, o="ack_conflation=1h")
    client.publish_persisted("load/1", numbered_bodies(50), 1)
    client.publish_all("load/1", numbered_bodies(50, start=51), first_sequence=51, a="persisted")
    client.flush("completed")
    pid = server.process.pid if server.process is not None else 0
    kill_supervisor(server)
    client.wait_for_persisted(100)
    assert not any(psutil.pid_exists(child) for child in server._tree)
    server.start()
    assert [body for _, body in replay(server, LOGGED)] == numbered_bodies(100)
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"amps-run-{pid}-")]


def test_fault_the_log_process_killed(start_server: StartServer, peers: Peers) -> None:
    """Clients are not affected; later records are written by the new log process."""
    server = start_server(log_topics=(LOGGED,))
    client = peers.logged_on(server)
    killed = only(server.pids("amps: log"))
    server.kill_process(killed)
    server.wait_for_new_tree([killed])
    client.publish_persisted("load/1", numbered_bodies(10), 1)
    name = peers.new_name()
    peers.logged_on(server, name=name)
    server.log.wait_for("1F-0004", name)
    server.stop()
    assert server.log.find("FF-0003")


def test_fault_a_half_open_publisher(start_server: StartServer, peers: Peers) -> None:
    """A client vanished in the middle of a frame: the next client gets the name, and half a message has no effect."""
    server = start_server(log_topics=(LOGGED,))
    name = peers.new_name()
    vanished = peers.logged_on(server, name=name)
    vanished.publish_persisted("load/1", [b"1"], 1)
    whole = frame({"c": "p", "t": "load/1", "s": 2, "a": "persisted"}, b"x" * 5000)
    vanished.send_bytes(whole[: len(whole) // 2])
    successor = peers.open(server)
    assert successor.logon(name)["s"] == 1
    successor.publish_persisted("load/1", [b"2"], 2)
    with contextlib.suppress(OSError):
        vanished.send_bytes(whole[len(whole) // 2 :])
    assert {told.reason for told in vanished.wait_for_close()} <= {"name in use"}
    assert [body for _, body in replay(server, LOGGED)] == [b"1", b"2"]


def test_fault_a_stopped_subscriber_delays_no_other(start_server: StartServer, peers: Peers) -> None:
    """A subscriber that was stopped (SIGSTOP) for a while gets every message afterwards; others get them meanwhile."""
    server = start_server(log_topics=(LOGGED,))
    bodies = numbered_bodies(3000, padding_bytes=2000)
    reading, writing = os.pipe()
    sleeper = os.fork()
    if sleeper == 0:
        code = 1
        try:
            with RawClient.tcp(server.port(), receive_buffer_bytes=4096, timeout_s=60) as client:
                client.logon("sleeper")
                client.subscribe("load/1", "s", bm="0")
                os.write(writing, b"r")
                code = 0 if [m.body for m in client.receive_published(len(bodies))] == bodies else 2
        finally:
            os._exit(code)
    try:
        os.read(reading, 1)
        os.kill(sleeper, signal.SIGSTOP)
        watcher = peers.logged_on(server)
        watcher.subscribe("load/1", "s", bm="0")
        peers.logged_on(server).publish_persisted("load/1", bodies, 1)
        assert [m.body for m in watcher.receive_published(len(bodies))] == bodies
        os.kill(sleeper, signal.SIGCONT)
        assert os.waitstatus_to_exitcode(os.waitpid(sleeper, 0)[1]) == 0
        sleeper = 0
    finally:
        os.close(reading)
        os.close(writing)
        if sleeper:
            os.kill(sleeper, signal.SIGKILL)
            os.waitpid(sleeper, 0)
