"""The embedded server (queue_guarantees.md §5): its life inside a program, and the clock that a program advances."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

import amps
from amps.client import EPOCH, Client, MessageStream
from amps.embedded.server import RUNNING
from tests.support.documents import GUIDE_TO_EMBEDDED, block
from tests.support.server import package_path, wait_until

NOTHING_S = 0.05
WAIT_S = 20.0


@pytest.fixture
def server() -> Iterator[amps.Server]:
    """A server with a manual clock, a queue of long leases, and a schedule."""
    actions = """<Actions><Action>
        <On><Module>amps-action-on-schedule</Module><Options><Every>1h</Every></Options></On>
        <Do><Module>amps-action-do-execute-system</Module><Options><Command>sleep 0.6</Command></Options></Do>
        <Do><Module>amps-action-do-publish-message</Module>
          <Options><MessageType>json</MessageType><Topic>bells</Topic><Data>{}</Data></Options></Do>
      </Action><Action>
        <On><Module>amps-action-on-sow-expire-message</Module>
          <Options><Topic>work</Topic><MessageType>json</MessageType></Options></On>
        <Do><Module>amps-action-do-publish-message</Module>
          <Options><MessageType>json</MessageType><Topic>dead</Topic><Data>{{AMPS_DATA}}</Data></Options></Do>
      </Action></Actions>"""
    queues = {"work": {"LeasePeriod": "30s", "Expiration": "10m"}}
    with amps.Server(queues=queues, extra_config=actions, clock="manual") as started:
        yield started


def get(stream: MessageStream) -> bytes | None:
    """The next message's data; None: there is none for a moment."""
    message = stream.get(NOTHING_S)
    return None if message is None else bytes(message.data)


def need(stream: MessageStream) -> bytes:
    message = stream.get(WAIT_S)
    assert message is not None
    return bytes(message.data)


# --- 24: life ---------------------------------------------------------------------------------------------------------


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


class Traces:
    """What a server could leave behind."""

    def __init__(self, server: amps.Server) -> None:
        assert server._process is not None
        self.first = server._process.pid
        root = psutil.Process(self.first)
        self.processes = [root, *root.children(recursive=True)]
        self.directory = server.directory
        self.runtime = Path(os.environ.get("AMPS_RUNTIME_DIRECTORY", "/dev/shm"))
        self.port = server.port()

    def left(self) -> list[str]:
        found = [str(each) for each in self.processes if is_alive(each)]
        left = self.directory, *self.runtime.glob(f"amps-run-{self.first}-*")
        found += [str(path) for path in left if path.exists()]
        with socket.socket() as probe, contextlib.suppress(ConnectionRefusedError):
            probe.connect(("127.0.0.1", self.port))
            found.append(f"port {self.port}")
        return found


def test_24_two_servers_at_a_time_and_nothing_is_left_after_the_block_or_an_exception() -> None:
    """queue_guarantees.md §7, 24"""
    with amps.Server() as first, Client("a", first.uri()) as client:
        stream = client.subscribe("t")
        traces = None
        try:
            with amps.Server() as second, Client("a", second.uri()) as other:
                assert first.directory != second.directory
                other.publish("t", "of the second")
                other.flush()
                traces = Traces(second)
                raise LookupError
        except LookupError:
            assert traces is not None
            assert len(traces.processes) >= 4
            assert traces.left() == []
        client.publish("t", "of the first")
        assert need(stream) == b"of the first"
        traces = Traces(first)
    assert traces.left() == []
    assert RUNNING == []


@pytest.mark.parametrize("containing", ["server.uri()) as client:\n    client.publish", "server.advance(30)"])
def test_24_25_the_guides_examples_run(containing: str) -> None:
    """queue_guarantees.md §7, 24 and 25: the blocks of docs/guide/embedded-server.md as they are."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", block(GUIDE_TO_EMBEDDED, containing)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": package_path()},
    )
    assert (done.stdout, done.returncode) == ("True\n" if "advance" in containing else "{'id': 1}\n", 0), done.stderr


PROGRAM = """
import os, signal, sys, threading, time
import amps
kind, kept = sys.argv[1:]
server = amps.Server(directory=kept or None)
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
if kind == "with a child":
    if os.fork() == 0:  # it holds all descriptors open
        time.sleep(100)
try:
    print(server._process.pid, server.port(), server.directory, flush=True)
    if kind != "ends":
        time.sleep(100)
except KeyboardInterrupt:
    print(server.running, flush=True)
    time.sleep(100)
"""


def of_program(kind: str, runtime: Path, kept: str = "") -> "tuple[subprocess.Popen[str], Traces]":
    """A program with a server. `runtime`: for files in memory; no server outside the test may clean up there."""
    runtime.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, kind, kept],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": package_path(), "AMPS_RUNTIME_DIRECTORY": str(runtime)},
        start_new_session=True,
    )
    assert program.stdout is not None
    first, port, directory = program.stdout.readline().split()
    traces = Traces.__new__(Traces)
    traces.first, traces.port, traces.directory = int(first), int(port), Path(directory)
    traces.runtime = runtime
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(traces.first)
        traces.processes = [root, root.parent(), *root.children(recursive=True)]
    return program, traces


@pytest.mark.parametrize("kind", ["killed", "with a child", "ends"])
def test_24_the_end_of_the_program_ends_the_server_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    """queue_guarantees.md §7, 24: also if children of the program live on, and hold its descriptors."""
    program, traces = of_program(kind, tmp_path / "run")
    try:
        if kind != "ends":
            program.kill()
        program.wait(WAIT_S)
        wait_until(lambda: traces.left() == [], WAIT_S, lambda: str(traces.left()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        assert program.stdout is not None
        program.stdout.close()


def test_24_a_killed_program_leaves_the_data_in_a_directory_that_it_named(tmp_path: Path) -> None:
    """queue_guarantees.md §5, 2"""
    kept = tmp_path / "kept"
    program, traces = of_program("killed", tmp_path / "run", str(kept))
    with Client("a", f"tcp://127.0.0.1:{traces.port}/amps/json") as client:
        client.publish("t", "kept")
        client.flush()
    program.kill()
    program.communicate()
    wait_until(lambda: traces.left() == [str(kept)], WAIT_S, lambda: str(traces.left()))
    with amps.Server(directory=kept) as server, Client("a", server.uri()) as client:
        assert [m.data for m in client.bookmark_subscribe("t", EPOCH, top_n=1)] == [b"kept"]


def test_24_an_interrupt_from_the_terminal_reaches_the_program_and_not_the_server(tmp_path: Path) -> None:
    """queue_guarantees.md §7, 24"""
    program, traces = of_program("interrupted", tmp_path / "run")
    assert program.stdout is not None
    os.killpg(program.pid, signal.SIGINT)
    assert program.stdout.readline() == "True\n"
    with Client("a", f"tcp://127.0.0.1:{traces.port}/amps/json") as client:
        client.flush()
    program.kill()
    program.communicate()
    wait_until(lambda: traces.left() == [], WAIT_S, lambda: str(traces.left()))


def test_24_an_interrupted_start_leaves_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """queue_guarantees.md §7, 24: the program has not learned the server's process id yet."""
    from amps.embedded import launching

    with amps.Server():  # the starter runs
        assert launching._starter is not None
        starter = psutil.Process(launching._starter._process.pid)
        before = set(starter.children())

        class Interrupted:
            def __init__(self, answers: socket.socket) -> None:
                answers.recv(100)
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(launching, "Launched", Interrupted)
            with pytest.raises(KeyboardInterrupt), amps.Server(directory=tmp_path):
                pass
        wait_until(lambda: set(starter.children()) <= before, WAIT_S, "the server lives on")


SHORT = """
import amps
print("begins", flush=True)
with amps.Server():
    pass
"""


@pytest.mark.parametrize("delay_s", [0, 0.1, 0.25, 0.35])
def test_24_ctrl_c_while_the_first_server_starts_ends_the_program_and_leaves_nothing(
    delay_s: float, tmp_path: Path
) -> None:
    """queue_guarantees.md §7, 24: the starter may fork the server after the program has given up. Waiting for its end
    would take 30 s.
    """
    program = subprocess.Popen(
        [sys.executable, "-P", "-c", SHORT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": package_path(), "AMPS_RUNTIME_DIRECTORY": str(tmp_path)},
        start_new_session=True,
    )
    try:
        assert program.stdout is not None
        program.stdout.readline()
        time.sleep(delay_s)
        known = psutil.Process(program.pid).children(recursive=True)
        program.send_signal(signal.SIGINT)
        program.wait(WAIT_S)
        wait_until(lambda: not psutil.wait_procs(known, 0)[1], WAIT_S, lambda: str(known))
        wait_until(lambda: list(tmp_path.iterdir()) == [], WAIT_S, lambda: str(list(tmp_path.iterdir())))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


@pytest.mark.parametrize(("wrong", "told"), [("file", "is not a directory"), ("clock", "is damaged")])
def test_24_a_directory_that_cannot_be_used(tmp_path: Path, wrong: str, told: str) -> None:
    """queue_guarantees.md §5, 2 and 4"""
    directory = tmp_path / "d"
    if wrong == "file":
        directory.write_bytes(b"")
    else:
        directory.mkdir()
        (directory / "clock").write_bytes(bytes(4096))
    for clock in ("system", "manual"):
        with pytest.raises(amps.ServerError, match=told), amps.Server(directory=directory, clock=clock):  # type: ignore[arg-type]
            pass


def test_24_elements_of_a_queue_are_a_mapping() -> None:
    with pytest.raises(TypeError, match="elements of the queue 'q' are a mapping"):
        amps.Server(queues={"q": None})  # type: ignore[dict-item]


def test_24_the_package_and_a_program_import_nothing_of_the_server() -> None:
    """queue_guarantees.md §5, 1"""
    code = (
        "import sys, amps\nassert not [m for m in sys.modules if m.startswith('amps.') and m != 'amps.version']\n"
        "with amps.Server() as server:\n    assert server.running\n"
        "found = [m for m in sys.modules if m.startswith('amps.') and not m.startswith('amps.embedded')]\n"
        "assert found == ['amps.version'], found\n"
        "assert 'numpy' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, timeout=60, env={**os.environ, "PYTHONPATH": package_path()}
    )


def test_24_without_the_server_the_name_says_what_to_install() -> None:
    """queue_guarantees.md §5, 1: in the package with the client alone."""
    code = (
        "import sys\nsys.modules['amps.embedded'] = None\nimport amps\n"
        "try:\n    amps.Server\nexcept ImportError as problem:\n    assert 'amps-server' in str(problem)\n"
        "else:\n    raise AssertionError\n"
        "assert not hasattr(amps, 'Other')"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", code], check=True, timeout=60, env={**os.environ, "PYTHONPATH": package_path()}
    )


def test_24_a_source_tree_that_is_not_compiled_is_named(tmp_path: Path) -> None:
    """queue_guarantees.md §5, 1: a program beside the checkout imports it, whatever is installed."""
    shutil.copytree(
        amps.__path__[0], tmp_path / "amps", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    )
    (tmp_path / "program.py").write_text("import amps\nwith amps.Server():\n    pass\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")},
    )
    assert done.returncode == 1
    assert "is a source tree that is not compiled" in done.stderr
    assert "python -P" in done.stderr


def test_24_errors_are_reachable() -> None:
    """queue_guarantees.md §5, 2"""
    with amps.Server(queues=["work"]) as server:
        assert server.errors() == []
        wait_until(lambda: "00-0015" in server.log_path.read_text(), WAIT_S, lambda: server.output)
        os.kill(psutil.Process(Traces(server).first).children()[1].pid, signal.SIGKILL)
        wait_until(lambda: any(" 01-000" in line for line in server.errors()), WAIT_S, lambda: server.output)


# --- 25: the clock ----------------------------------------------------------------------------------------------------


def test_25_a_lease_ends_when_the_clock_has_passed_it_and_not_before(server: amps.Server) -> None:
    """queue_guarantees.md §7, 25"""
    with Client("holds", server.uri()) as holder, Client("waits", server.uri()) as waiter:
        held = holder.subscribe("work", max_backlog=1)
        holder.publish("work", "1")
        assert need(held) == b"1"
        waiting = waiter.subscribe("work")
        server.advance(29)
        assert (get(waiting), get(held)) == (None, None)
        server.advance(1)
        # It goes to one of them, and has been handed to its connection.
        assert sorted((get(waiting), get(held)), key=str) == [None, b"1"] or need(waiting) == b"1"


def test_25_a_schedule_runs_once_the_clock_has_passed_it(server: amps.Server) -> None:
    """queue_guarantees.md §7, 25: its message has been published when `advance` returns."""
    with Client("a", server.uri()) as client:
        bells = client.subscribe("bells")
        server.advance(3500)
        assert get(bells) is None
        server.advance(200)
        assert bells.get(0.4) is not None  # the action takes longer than this, and was waited for
        server.advance(3 * 3600)  # a jump over three times is one
        assert need(bells) == b"{}"
        assert get(bells) is None


def test_25_a_message_expires_and_its_action_runs_before_advance_returns(server: amps.Server) -> None:
    """queue_guarantees.md §7, 25: a chain of core, log, services and core."""
    with Client("a", server.uri()) as client:
        dead = client.subscribe("dead")
        client.publish("work", '"old"')
        client.flush()
        server.advance(599)
        assert get(dead) is None
        server.advance(2)
        written = client.bookmark_subscribe("dead", EPOCH, top_n=1, timeout=WAIT_S)
        assert need(written) == b'"old"'
        assert need(dead) == b'"old"'


def test_25_timestamps_filters_and_the_log_have_the_servers_time(server: amps.Server) -> None:
    """queue_guarantees.md §5, 3"""
    with Client("a", server.uri()) as client:
        stream = client.subscribe("t", "UNIX_TIMESTAMP() > /after", options="timestamp")
        until = time.time() + 86400 * 364
        client.publish("t", f'{{"after": {until}}}')
        client.flush()
        server.advance(86400 * 365)
        client.publish("t", f'{{"after": {until}, "now": 1}}')
        message = stream.get(WAIT_S)
        assert message is not None
        assert message.json()["now"] == 1
        assert message.timestamp is not None
        stamped = datetime.fromisoformat(message.timestamp).replace(tzinfo=UTC).timestamp()
        assert until < stamped <= server.time()
        client.subscribe("another")
        client.flush()
    last_year = datetime.fromtimestamp(server.time(), UTC).year
    wait_until(lambda: f"\n{last_year}-" in server.output, WAIT_S, lambda: server.output)


def test_25_conflation_and_heartbeats_follow_the_clock(server: amps.Server) -> None:
    """queue_guarantees.md §5, 3: timers of the transports. An unanswered heartbeat waits in real time."""
    with Client("a", server.uri(), heartbeat=60, heartbeat_timeout=600) as client:
        stream = client.subscribe("t", options="conflation=1h,conflation_key=[/id]")
        client.publish("t", '{"id": 1}')
        client.flush()
        first = get(stream)
        client.publish("t", '{"id": 1, "n": 2}')
        client.flush()
        assert get(stream) is None or first is None
        for _ in range(10):
            server.advance(1000)
        assert need(stream) == (b'{"id": 1, "n": 2}')
        assert client.connected
        client.flush()


def test_25_a_restart_and_a_death_keep_the_time(tmp_path: Path) -> None:
    """queue_guarantees.md §5, 4"""
    with amps.Server(directory=tmp_path, queues={"work": {"LeasePeriod": "30s"}}, clock="manual") as server:
        server.advance(1000.5)
        server.kill()
        assert 1000 < server.time() - time.time() <= 1001
        server.start()
        server.advance(0.5)
        server.restart()
        assert 1000.9 < server.time() - time.time() <= 1001
        with Client("a", server.uri()) as client:
            stream = client.subscribe("work")
            client.publish("work", "1")
            assert need(stream) == b"1"
            server.advance(31)
            assert need(stream) == b"1"
    with (
        pytest.raises(amps.ServerError, match=r'1032\.? ?s ahead.*clock="manual"'),
        amps.Server(directory=tmp_path, queues=["work"]),
    ):
        pass


def test_25_what_cannot_be_advanced(server: amps.Server) -> None:
    """queue_guarantees.md §5, 3 and 4"""
    for wrong in (-1, float("nan"), float("inf"), 1e12, 10**400):
        with pytest.raises(ValueError, match="can be advanced by 0 to"):
            server.advance(wrong)
    with pytest.raises(TypeError):
        server.advance("1")  # type: ignore[arg-type]
    server.advance(50 * 365 * 86400)
    with pytest.raises(ValueError, match="too large"):
        server.advance(50 * 365 * 86400)
    with amps.Server() as other, pytest.raises(amps.ServerError, match='clock="manual"'):
        other.advance(1)
    server.stop()
    with pytest.raises(amps.ServerError, match="does not run"):
        server.advance(1)


def test_25_processes_that_die_meanwhile_are_waited_for(server: amps.Server) -> None:
    """queue_guarantees.md §5, 3: a core that is killed restarts with the new time."""
    with Client("a", server.uri()) as client:
        client.publish("work", "1")
        client.flush()
    children = {" ".join(each.cmdline()): each for each in psutil.Process(Traces(server).first).children()}
    core = next(each for title, each in children.items() if "core" in title)
    core.suspend()
    advancing = threading.Thread(target=server.advance, args=(3600,))
    advancing.start()
    try:
        time.sleep(0.1)
        assert advancing.is_alive()
    finally:
        core.kill()
        advancing.join(WAIT_S)
    assert not advancing.is_alive()
    with Client("b", server.uri()) as client:
        bells = client.bookmark_subscribe("dead", EPOCH, top_n=1)
        assert need(bells) == b"1"
