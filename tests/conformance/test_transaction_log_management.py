"""Management of a running server's journals: transaction_log.md §12, §13 and behaviours 56, 57, 59, 60, 63, 64 of
§22.

The options of actions are tested with the actions, and the contents of requests with the requests.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from amps.cli.main import amps
from tests.conformance.test_transaction_log_journals import fill, replayed
from tests.support.admin import get
from tests.support.managed import ask
from tests.support.peer import bodies_of
from tests.support.peers import SOON, Peers
from tests.support.ports import release_port, reserve_port
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, do, on

ARCHIVE = "<JournalArchiveDirectory>./archive</JournalArchiveDirectory>"
MESSAGES = 2500  # of 10 kB: two full journals and a part of the third


@pytest.fixture
def start_managed(start_server: StartServer) -> Callable[..., ServerProcess]:
    def start(journal_xml: str = ARCHIVE, **options: Any) -> ServerProcess:
        return start_server(
            name="L1",
            log_topics=("t1",),
            journal_xml=journal_xml,
            module="tests.support.managed",
            **options,
        )

    return start


def request(server: ServerProcess, verb: str, **options: float) -> Any:
    _, outcome, content = ask(server.directory, 1, verb, *([options] if options else []))
    assert outcome == "ok", content
    return content


def listed(server: ServerProcess) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = request(server, "list")
    return rows


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.journal*"))


def wait_for(server: ServerProcess, condition: Callable[[dict[str, Any]], bool], count: int) -> None:
    """Wait until that number of full journals fulfils the condition."""
    wait_until(
        lambda: sum(bool(row["full"] and condition(row)) for row in listed(server)) == count,
        20,
        lambda: f"{listed(server)}\n{server.excerpt()}",
    )


def bookmark_inside(peers: Peers, server: ServerProcess, bodies: list[bytes], place: int) -> str:
    reader = peers.logged_on(server)
    reader.subscribe("t1", "s", bm="0")
    messages = reader.receive_published(place + 1, timeout_s=30)
    assert bodies_of(messages) == bodies[: place + 1]
    reader.close()  # an open reader would stay at that place, and need the journal
    return str(messages[-1]["bm"])


@pytest.fixture
def port() -> Iterator[int]:
    """A port for the administration interface."""
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


class Acting:
    """A server whose configuration has an action for each way of managing journals, run over HTTP with an age."""

    def __init__(self, start_server: StartServer, port: int, journal_xml: str = ARCHIVE) -> None:
        self._port = port
        actions = "".join(
            action(on("admin", Path=name, RequiredParameter="AGE"), do(f"{name}-journal", Age="{{AGE}}"))
            for name in ("compress", "archive", "remove")
        )
        self.server = start_server(
            name="L1",
            log_topics=("t1",),
            journal_xml=journal_xml,
            instance_xml=f"<Admin><InetAddr>{port}</InetAddr></Admin><Actions>{actions}</Actions>",
        )

    def act(self, name: str, age: str = "1s") -> int:
        """Run an action once, and return how often it found journals of that age. Its work continues after that."""
        log = self.server.log
        ran = len(log.find("19-0003"))
        chose = len(log.find("29-0004"))
        answer = get(self._port, f"/amps/administrator/actions/{name}?AGE={age}")
        assert answer.status == 200, answer.body
        log.wait_for("19-0003", count=ran + 1)  # it is logged after the records of the action
        return len(log.find("29-0004")) - chose

    def act_until(self, name: str, done: Callable[[], bool]) -> None:
        """Run an action until all full journals are old enough and `done` returns True."""

        def looked() -> bool:
            self.act(name)
            time.sleep(0.05)
            return done()

        wait_until(looked, 30, lambda: f"{self.files()} {self.archived()}\n{self.server.excerpt()}")

    def files(self) -> list[str]:
        """The files of the journal directory, without spares."""
        return [name for name in files(self.server.journal_directory) if name < "L1.0000000003"]

    def archived(self) -> list[str]:
        return files(self.server.directory / "archive")


PLAIN = [f"L1.000000000{number}.journal" for number in range(3)]
COMPRESSED = [f"{name}.gz" for name in PLAIN]


def test_transaction_log_56_the_compress_action(start_server: StartServer, peers: Peers, port: int) -> None:
    """transaction_log.md §22 56, first half: full journals become `.journal.gz`, the log keeps its contents."""
    acting = Acting(start_server, port)
    server = acting.server
    bodies = fill(peers.logged_on(server), 1, MESSAGES)
    inside = bookmark_inside(peers, server, bodies, 300)
    plain = {path.name: path.read_bytes() for path in server.journals()[:2]}
    assert acting.act("compress", "1h") == 0
    assert acting.files() == PLAIN
    acting.act_until("compress", lambda: acting.files() == [*COMPRESSED[:2], PLAIN[2]])
    for name, content in plain.items():
        restored = subprocess.run(
            ["zstd", "-dc"], input=(server.journal_directory / f"{name}.gz").read_bytes(), capture_output=True
        )
        assert restored.stdout == content
    assert server.log.find("2C-0006", PLAIN[1])
    for _ in range(2):
        assert replayed(peers, server) == bodies
        assert replayed(peers, server, inside) == bodies[301:]
        assert acting.files() == [*COMPRESSED[:2], PLAIN[2]]
        server.restart()


@pytest.mark.parametrize("compressed", [False, True])
def test_transaction_log_56_the_archive_action(
    start_server: StartServer, peers: Peers, port: int, compressed: bool
) -> None:
    """transaction_log.md §22 56, second half: full journals are in the archive only, also after a restart."""
    acting = Acting(start_server, port)
    server = acting.server
    bodies = fill(peers.logged_on(server), 1, MESSAGES)
    inside = bookmark_inside(peers, server, bodies, 300)
    assert acting.act("archive", "1h") == 0
    assert (acting.files(), acting.archived()) == (PLAIN, [])
    full = PLAIN[:2]
    if compressed:
        full = COMPRESSED[:2]
        acting.act_until("compress", lambda: acting.files() == [*full, PLAIN[2]])
    acting.act_until("archive", lambda: acting.files() == PLAIN[2:])
    assert acting.archived() == full
    assert server.log.find("2C-0005", full[0])
    for _ in range(2):
        assert replayed(peers, server) == bodies
        assert replayed(peers, server, inside) == bodies[301:]
        assert (acting.files(), acting.archived()) == (PLAIN[2:], full)
        server.restart()


def test_transaction_log_56_a_replay_goes_on_while_its_journals_are_compressed_and_archived(
    start_server: StartServer, peers: Peers, port: int
) -> None:
    """transaction_log.md §13.2: allowed; the reader continues after files were moved, and needs little memory for
    them.
    """
    limit = "<CompressedJournalCacheMemoryLimit>1MB</CompressedJournalCacheMemoryLimit>"
    acting = Acting(start_server, port, ARCHIVE + limit)
    bodies = fill(peers.logged_on(acting.server), 1, MESSAGES)
    readers = [peers.logged_on(acting.server) for _ in range(3)]
    for reader in readers:
        reader.subscribe("t1", "s", bm="0")
    acting.act_until("compress", lambda: acting.files() == [*COMPRESSED[:2], PLAIN[2]])
    acting.act_until("archive", lambda: acting.archived() == COMPRESSED[:2])
    for reader in readers:
        assert bodies_of(reader.receive_published(MESSAGES, timeout_s=60)) == bodies


def test_transaction_log_57_the_remove_action(start_server: StartServer, peers: Peers, port: int) -> None:
    """transaction_log.md §22 57, §20 44: also after a restart, orderly or not; duplicates stay known."""
    acting = Acting(start_server, port)
    server = acting.server
    early = peers.open(server)
    early.logon("early", o=SOON)
    early.publish_persisted("t1", [b"first %d" % n for n in range(5)], 1)
    bodies = fill(peers.logged_on(server), 1, MESSAGES)
    inside = bookmark_inside(peers, server, [b"first %d" % n for n in range(5)] + bodies, 300)
    assert acting.act("remove", "1h") == 0
    assert acting.files() == PLAIN
    acting.act_until("remove", lambda: acting.files() == PLAIN[2:])
    assert acting.archived() == []
    for orderly in (True, False):
        rest = replayed(peers, server)
        assert 0 < len(rest) < 700
        assert rest == bodies[-len(rest) :]
        assert replayed(peers, server, inside) == []  # as with an unknown bookmark: from now on
        refused = peers.logged_on(server)
        ack = refused.try_subscribe("t1", "r", bm=inside, o="bookmark_not_found=fail")
        assert (ack["status"], ack.reason) == ("failure", "invalid bookmark")
        again = peers.open(server)
        assert again.logon("early")["s"] == 5
        again.publish("t1", b"duplicate", s=5)
        again.flush("persisted")
        assert replayed(peers, server) == rest
        if orderly:
            server.restart()
        else:
            server.kill_all()
            server.start()
    assert server.log.find("2C-0007", PLAIN[1])


@pytest.mark.parametrize(
    ("options", "count"), [("rate=50", 300), ("", MESSAGES)], ids=["at a rate", "unread"]
)
def test_transaction_log_59_a_journal_stays_while_a_replay_reads_it(
    start_server: StartServer, peers: Peers, port: int, options: str, count: int
) -> None:
    """transaction_log.md §22 59: the file stays until the replay leaves it, and the replay is complete. The slow
    replays are one at a rate, here of a part of the first journal, and one whose client does not read.
    """
    acting = Acting(start_server, port)
    server = acting.server
    bodies = fill(peers.logged_on(server), 1, MESSAGES)
    last = bookmark_inside(peers, server, bodies, count - 1) if options else "0|1|"
    slow = peers.logged_on(server)
    slow.subscribe("t1", "s", bm=f"[0:{last}]", o=options)
    acting.act_until("remove", lambda: bool(server.log.find("2C-0008", PLAIN[0])))
    assert acting.files() == PLAIN
    assert bodies_of(slow.receive_published(count, timeout_s=60)) == bodies[:count]
    acting.act_until("remove", lambda: acting.files() == PLAIN[2:])


def test_transaction_log_60_requests_are_checked(
    start_managed: Callable[..., ServerProcess], peers: Peers
) -> None:
    """transaction_log.md §22 60, §20 30: full journals only; an invalid request is an error and changes nothing."""
    server = start_managed("")
    fill(peers.logged_on(server), 1, 10)
    before = files(server.journal_directory)
    for bad in (
        ("archive", {"age_s": 0}),
        ("compress", {"up_to": 0}),
        ("remove", {"age_s": -1}),
        ("remove", {"age_s": "soon"}),
        ("remove", {"up_to": True}),
        ("remove", {}),
        ("remove",),
        ("remove", 5),
        ("explode",),
        (),
    ):
        _, outcome, text = ask(server.directory, 7, *bad)
        assert outcome == "error", bad
        assert text
    assert request(server, "remove", age_s=0) == []
    assert files(server.journal_directory) == before
    (current,) = listed(server)
    assert current["number"] == 0
    assert not current["full"]
    assert 0 < current["min_timestamp_ns"] <= current["max_timestamp_ns"] <= time.time_ns()


def test_transaction_log_63_clients_ack_only_saves_work(
    start_managed: Callable[..., ServerProcess], peers: Peers
) -> None:
    """transaction_log.md §22 63: deleted, or damaged, duplicates are still detected."""
    server = start_managed()
    publisher = peers.open(server)
    publisher.logon("keeper", o=SOON)
    fill(publisher, 1, 1500)
    server.stop()
    path = server.journal_directory / "L1.clients.ack"
    assert b"keeper" in path.read_bytes()
    for damage in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1] + b"?")):
        damage()
        server.start()
        again = peers.open(server)
        assert again.logon("keeper")["s"] == 1500
        server.stop()


def test_transaction_log_64_publishers_that_stay_away_are_forgotten_at_a_start(
    start_managed: Callable[..., ServerProcess], peers: Peers
) -> None:
    """transaction_log.md §22 64"""
    server = start_managed("<InactiveClientAckExpiration>1s</InactiveClientAckExpiration>")
    publisher = peers.open(server)
    publisher.logon("P", o=SOON)
    publisher.publish_persisted("t1", [b"%d" % n for n in range(1, 6)], 1)
    time.sleep(2)
    publisher.publish("t1", b"duplicate", s=3)
    publisher.flush("persisted")
    assert replayed(peers, server) == [b"%d" % n for n in range(1, 6)]
    server.stop()
    time.sleep(2)
    server.start()
    again = peers.open(server)
    assert again.logon("P", o=SOON)["s"] == 0
    again.publish_persisted("t1", [b"anew"], 1)
    assert replayed(peers, server) == [*(b"%d" % n for n in range(1, 6)), b"anew"]
    messages = peers.logged_on(server)
    messages.subscribe("t1", "s", bm="0")
    bookmarks = [str(message["bm"]) for message in messages.receive_published(6)]
    assert replayed(peers, server, bookmarks[3]) == [b"5", b"anew"]


def test_transaction_log_13_journals_of_a_stopped_instance_are_managed_from_the_command_line(
    start_managed: Callable[..., ServerProcess], peers: Peers
) -> None:
    """transaction_log.md §13, §13.3: changes are refused while a server runs; listing is always allowed."""
    server = start_managed()
    bodies = fill(peers.logged_on(server), 1, MESSAGES)
    journal, archive = str(server.journal_directory), str(server.directory / "archive")

    def run(command: str, *options: str) -> tuple[int, str]:
        result = CliRunner().invoke(amps, ["journal", command, journal, "-archive", archive, *options])
        return result.exit_code, result.output

    for command in ("archive", "compress", "remove"):
        code, output = run(command, "-up-to", "0")
        assert code == 1
        assert "use its actions" in output
    code, output = run("list")
    assert code == 0
    assert output.count(" full") == 2
    server.stop()
    assert run("compress", "-up-to", "1")[0] == 0
    assert run("archive", "-up-to", "0")[0] == 0
    code, output = run("verify")
    assert code == 0, output
    assert output.count("sound") >= 3
    server.start()
    assert replayed(peers, server) == bodies
    server.stop()
    code, output = run("remove", "-up-to", "2")
    assert code == 1
    assert "not the number of a full journal" in output
    assert run("remove", "-age", "1h")[0] == 0
    assert run("remove", "-up-to", "0")[0] == 0
    assert files(Path(archive)) == []
    server.start()
    rest = replayed(peers, server)
    assert 0 < len(rest) < len(bodies)
    assert rest == bodies[-len(rest) :]
    damaged = server.journal_directory / "L1.0000000001.journal.gz"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 1
    damaged.write_bytes(bytes(content))
    code, output = run("verify")
    assert code == 1
    assert f"{damaged}: damaged at offset" in output
