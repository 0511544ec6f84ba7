"""The watch over the core: a core that hangs is replaced; a core that waits for its disk is not.

operations.md §6.4 (30-0000), §12.3, design of the tree. The times are shortened in the server under test.
"""

import os
import signal
import time
from pathlib import Path

from tests.support.patched_servers import patched
from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer

WARNING_S = 1.0
KILL_S = 4.0

SITE = """
import os, time
import amps.server.health as health
health.STUCK_WARNING_S, health.STUCK_KILL_S = {warning_s}, {kill_s}
write = os.pwrite
def slow_write(*args):
    while os.path.exists({mark!r}):
        time.sleep(0.05)
    return write(*args)
os.pwrite = slow_write
"""


def start(start_server: StartServer, directory: Path) -> tuple[ServerProcess, Path]:
    """A server with short limits for a hanging core, and whose disk blocks while a file exists."""
    mark = directory / "disk-stands-still"
    code = SITE.format(warning_s=WARNING_S, kill_s=KILL_S, mark=str(mark))
    return start_server(log_topics=("t1",), environment=patched(directory, code)), mark


def test_operations_12_3_a_core_that_stands_still_is_replaced(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """operations.md §12.3: the log reports it first, and the core is killed later; acknowledged messages are there."""
    server, _ = start(start_server, tmp_path)
    peers.logged_on(server).publish_persisted("t1", [b"1"], 1)
    core = server.core_pid()
    old = [core, *server.transport_pids()]
    server._disturbed = True
    os.kill(core, signal.SIGSTOP)
    server.log.wait_for("30-0000", "core", timeout_s=30)
    (killed,) = server.log.wait_for("30-0003", "core", timeout_s=30)
    assert killed.level == "error"
    assert f"pid {core}" in killed.text
    server.wait_for_new_tree(old)
    server.log.wait_for("01-0004")
    reader = peers.logged_on(server)
    reader.subscribe("t1", "s", bm="0")
    assert bodies_of(reader.receive_published(1)) == [b"1"]
    peers.logged_on(server).publish_persisted("t1", [b"2"], 1)
    assert reader.receive().body == b"2"


def test_operations_12_3_a_core_that_waits_for_its_disk_is_left_alone(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """The log distinguishes the two cases; when the disk responds again, the message is acknowledged."""
    server, mark = start(start_server, tmp_path)
    client = peers.logged_on(server)
    client.publish_persisted("t1", [b"1"], 1)
    core = server.core_pid()
    mark.touch()
    client.publish_all("t1", [b"2"], first_sequence=2, a="persisted")
    (said,) = server.log.wait_for("30-0001", "core", "disk", timeout_s=30)
    assert said.level == "warning"
    time.sleep(KILL_S + 2)
    assert server.core_pid() == core
    mark.unlink()
    client.wait_for_persisted(2)
    server.log.wait_for("30-0002", "core")
    assert not server.log.find("30-0000")
    assert not server.log.find("30-0003")


def test_operations_12_3_a_tree_that_was_stopped_as_a_whole_goes_on(
    start_server: StartServer, peers: Peers, tmp_path: Path
) -> None:
    """As with Ctrl-Z and fg, or with a paused container: no process is killed for it."""
    server, _ = start(start_server, tmp_path)
    client = peers.logged_on(server)
    assert server.process is not None
    everyone = [server.process.pid, *server.pids()]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(KILL_S + 3)
    os.kill(server.process.pid, signal.SIGCONT)
    time.sleep(1)  # the supervisor checks the other processes before they continue
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    client.publish_persisted("t1", [b"1"], 1)
    time.sleep(1.5)
    assert not server.log.find("30-0003")
    server.check_undisturbed()
