"""The process tree: every process that dies is replaced, and none survives its supervisor (design of the tree)."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.support.peer import ConnectionClosed, bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until
from tests.support.services import action, echo, on


def test_operations_the_log_process_is_replaced(start_server: StartServer, peers: Peers) -> None:
    """Messages flow without it; later records are written again."""
    server = start_server(log_topics=("t1",))
    client = peers.logged_on(server)
    client.subscribe("t1", "s", bm="0")
    (log_pid,) = server.pids("amps: log")
    server.kill_process(log_pid)
    client.publish_persisted("t1", [b"1"], 1)
    assert client.receive().body == b"1"
    server.wait_for_new_tree([log_pid])
    newcomer = peers.logged_on(server)
    server.log.wait_for("1F-0004", newcomer.client_name)
    client.publish_persisted("t1", [b"2"], 2)
    assert client.receive().body == b"2"


def test_operations_nothing_survives_the_supervisor(start_server: StartServer, peers: Peers) -> None:
    """If only the supervisor is killed, its children end too. The instance starts again on the same ports and files."""
    server = start_server(log_topics=("t1",))
    client = peers.logged_on(server)
    client.publish_persisted("t1", [b"1"], 1)
    children = [psutil.Process(pid) for pid in server.pids()]
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(10)

    def all_gone() -> bool:
        return not [c for c in children if c.is_running() and c.status() != psutil.STATUS_ZOMBIE]

    wait_until(all_gone, 15, lambda: f"still running: {children}")
    with pytest.raises(ConnectionClosed):
        client.receive()
    server.kill_all()
    server.start()
    reader = peers.logged_on(server)
    reader.subscribe("t1", "s", bm="0")
    assert bodies_of(reader.receive_published(1)) == [b"1"]


def test_operations_the_core_dies_again_and_again(start_server: StartServer, peers: Peers) -> None:
    """Each time the tree comes back, with all acknowledged messages."""
    server = start_server(log_topics=("t1",))
    for number in range(1, 5):
        client = peers.logged_on(server)
        client.publish_persisted("t1", [b"%d" % number], 1)
        old = [server.core_pid(), *server.transport_pids()]
        server.kill_core()
        server.wait_for_new_tree(old)
        reader = peers.logged_on(server)
        reader.subscribe("t1", "s", bm="0")
        assert bodies_of(reader.receive_published(number)) == [b"%d" % n for n in range(1, number + 1)]


def test_operations_services_that_keep_dying_do_not_end_the_instance(
    start_server: StartServer, peers: Peers
) -> None:
    """Messages do not need them: the supervisor pauses before it starts them again, and the instance can stop
    meanwhile.
    """
    server = start_server(instance_xml=f"<Actions>{action(on('schedule', Every='1h'), echo('x'))}</Actions>")
    client = peers.logged_on(server)
    client.subscribe("t", "s")
    for _ in range(5):
        wait_until(lambda: bool(server.pids("amps: services")), 10, "no services")
        (pid,) = server.pids("amps: services")
        server.kill_process(pid)
        wait_until(lambda pid=pid: pid not in server.pids(), 10, "it is still there")  # type: ignore[misc]
    server.log.wait_for("01-0009")
    client.publish("t", b"{}")
    assert client.receive().body == b"{}"
    assert not server.pids("amps: services")
    server.stop()


def test_operations_a_process_that_stands_still_is_noticed(start_server: StartServer, peers: Peers) -> None:
    """A stopped core sends no answers; when it continues, no message is lost."""
    server = start_server(log_topics=("t1",))
    client = peers.logged_on(server)
    core = server.core_pid()
    os.kill(core, signal.SIGSTOP)
    try:
        client.publish_all("t1", [b"1", b"2"], first_sequence=1, a="persisted")
        client.expect_nothing_for(0.5)
    finally:
        os.kill(core, signal.SIGCONT)
    client.wait_for_persisted(2)


def another(server: ServerProcess, make_server: StartServer) -> ServerProcess:
    """A server with other ports, but with the same name and journal directory."""
    other = make_server(log_topics=("t1",))
    mine, theirs = (f"<JournalDirectory>{s.journal_directory}<" for s in (other, server))
    return make_server(config_xml=other.config_xml().replace(mine, theirs))


def test_operations_a_second_server_names_the_user_of_its_journals(
    start_server: StartServer, make_server: StartServer
) -> None:
    """The refusal names the first server and the remedy; the first server is not disturbed."""
    server = start_server(name="Test", log_topics=("t1",))
    second = another(server, make_server)
    began_s = time.monotonic()
    said = second.start_refused()
    assert time.monotonic() - began_s < 8, "a start with a refusal after 1 s, on a loaded machine"
    assert server.process is not None
    assert f"process {server.core_pid()}, the core of the server with pid {server.process.pid}" in said
    assert f"kill {server.process.pid}" in said
    assert not second.log.find("1D-0011")
    server.check_undisturbed()


def test_operations_a_start_waits_for_a_core_that_lost_its_supervisor(
    start_server: StartServer, make_server: StartServer, peers: Peers
) -> None:
    """The core drains and ends by itself; the log reports the wait for it."""
    server = start_server(name="Test", log_topics=("t1",))
    client = peers.logged_on(server)
    client.publish_persisted("t1", [b"1"], 1)
    second = another(server, make_server)
    core = server.core_pid()
    # Stopped, so that it cannot end before the second server has started.
    os.kill(core, signal.SIGSTOP)
    server.kill_process(server.process.pid)  # type: ignore[union-attr]
    second.launch()
    try:
        (waits,) = second.log.wait_for("1D-0011", f"process {core}", timeout_s=30)
        assert waits.level == "info"
    finally:
        os.kill(core, signal.SIGCONT)
    second.log.wait_for("00-0015", timeout_s=30)
    second.kill_all()
    server.kill_all()


def test_operations_70_a_start_right_after_a_kill(start_server: StartServer, peers: Peers) -> None:
    """A start does not have to wait after SIGKILL of the whole tree."""
    server = start_server(log_topics=("t1",))
    for number in range(1, 4):
        client = peers.logged_on(server)
        client.publish_persisted("t1", [b"%d" % number], 1)
        pids = [*server.pids(), server.process.pid]  # type: ignore[union-attr]
        for pid in pids:
            # A process may already have ended with another one that was killed before.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.process.wait(10)  # type: ignore[union-attr]
        server._forget()
        server.start()
    reader = peers.logged_on(server)
    reader.subscribe("t1", "s", bm="0")
    assert bodies_of(reader.receive_published(3)) == [b"1", b"2", b"3"]


def test_operations_12_two_starts_at_once(make_server: StartServer, tmp_path: Path) -> None:
    """operations.md §13 12: of two starts of one configuration one succeeds, and the other reports why it failed."""
    first = make_server(log_topics=("t1",))
    second = make_server(config_xml=first.config_xml())
    servers = (first, second)
    for _ in range(4):
        for server in servers:
            server.launch()
        wait_until(
            lambda: any(s.process is None or s.process.poll() is not None for s in servers), 30, "both run"
        )
        loser, winner = sorted(servers, key=lambda s: s.process.poll() is None)  # type: ignore[union-attr]
        assert loser.process is not None
        assert loser.process.returncode == 1, loser.excerpt()
        assert "Traceback" not in loser.output()
        assert re.search(r"Error: transport json cannot listen|Error: .* is held by process", loser.output())
        winner.log.wait_for("00-0015", timeout_s=30)
        for server in servers:
            server.kill_all()
            server.log.path.unlink()


def test_operations_12_starts_at_once_with_one_runtime_directory(
    make_server: StartServer, tmp_path: Path
) -> None:
    """Servers of different configurations share the parent of their runtime directories, and all of them start."""
    base = tmp_path / "run"
    base.mkdir()
    servers = [
        make_server(log_topics=("t1",), environment={"AMPS_RUNTIME_DIRECTORY": str(base)}) for _ in range(3)
    ]
    for _ in range(3):
        for server in servers:
            server.launch()
        for server in servers:
            server.log.wait_for("00-0015", timeout_s=60)
        assert len(list(base.glob("amps-run-*/lock"))) == 3
        for server in servers:
            server.kill_all()
            server.log.path.unlink()
    servers[0].start().stop()
    assert list(base.iterdir()) == []
