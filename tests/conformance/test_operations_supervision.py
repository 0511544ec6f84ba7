"""The process tree: whatever dies is replaced, and nothing survives its supervisor (design of the tree)."""

import os
import signal

import psutil
import pytest

from tests.support.peer import ConnectionClosed, bodies_of
from tests.support.peers import Peers
from tests.support.server import StartServer, wait_until


def test_operations_the_log_process_is_replaced(start_server: StartServer, peers: Peers) -> None:
    """Messages go on while it is gone; later records are written again."""
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
    """Killed alone, it takes its children along; the instance starts again on the same ports and files."""
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
    """Each time the tree comes back and what was acknowledged is there."""
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


def test_operations_a_process_that_stands_still_is_noticed(start_server: StartServer, peers: Peers) -> None:
    """A stopped core answers nobody; when it goes on, nothing was lost."""
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
