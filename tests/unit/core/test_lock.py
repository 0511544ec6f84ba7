"""The lock of a journal directory: waiting for the holder, and reporting it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amps.server.core import lock
from amps.server.core.lock import DirectoryInUse, lock_directory
from tests.support.server import package_path

# Takes the lock as the core does, reports it, and obeys: `e` = it is ending, `x` = release.
HOLDER = """
import os, sys
from pathlib import Path
from amps.server.core.lock import lock_directory
held = lock_directory(Path(sys.argv[1]), "i", print)
print(os.getpid(), flush=True)
for word in sys.stdin:
    if word == "e\\n":
        held.ending()
        print("ending", flush=True)
    else:
        break
"""


class Reports:
    """The records logged while waiting."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, **values: Any) -> None:
        self.made.append((event, values))


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": package_path()},
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    yield process
    process.kill()
    process.communicate()


def tell(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def test_a_living_holder_is_named_within_about_a_second(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    reports = Reports()
    began_s = time.monotonic()
    with pytest.raises(DirectoryInUse) as refusal:
        lock_directory(tmp_path, "i", reports)
    assert time.monotonic() - began_s < lock.ENDING_WAIT_S / 3
    text = str(refusal.value)
    assert f"process {holder.pid}, the core of the server with pid {os.getpid()}" in text
    assert f"stop that server first (kill {os.getpid()})" in text
    assert str(tmp_path / "i.lock") in text
    assert reports.made == []


def test_another_instance_in_the_same_directory_is_ignored(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    lock_directory(tmp_path, "j", Reports()).release()


def test_a_holder_that_ends_is_waited_for_with_a_record(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(holder, "e")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ending\n"
    monkeypatch.setattr(lock, "GRACE_S", 0.0)
    reports = Reports()

    def report(event: str, **values: Any) -> None:
        reports(event, **values)
        tell(holder, "x")

    lock_directory(tmp_path, "i", report).release()
    ((event, values),) = reports.made
    assert event == "1D-0011"
    assert values["holder"].pid == holder.pid


def test_waiting_has_a_limit(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(holder, "e")
    assert holder.stdout is not None
    holder.stdout.readline()
    monkeypatch.setattr(lock, "ENDING_WAIT_S", 0.2)
    with pytest.raises(DirectoryInUse, match=f"process {holder.pid}"):
        lock_directory(tmp_path, "i", Reports())


def test_after_a_kill_the_lock_is_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The lock is free at once, without waiting until the dead process is reaped."""
    holder.send_signal(signal.SIGKILL)
    lock_directory(tmp_path, "i", Reports()).release()


@pytest.mark.parametrize(
    ("line", "who", "advice"),
    [
        ("", "an unknown process", "stop it first"),
        ("pid=1\n", "an unknown process", "stop it first"),
        ("pid=77 supervisor=70 state=serving host=elsewhere\n", "process 77 on host elsewhere", "kill 70"),
    ],
)
def test_a_holder_that_is_not_visible_from_here(
    tmp_path: Path, holder: subprocess.Popen[str], line: str, who: str, advice: str
) -> None:
    """The holder is a foreign program, or a server of another host or container."""
    (tmp_path / "i.lock").write_text(line)
    with pytest.raises(DirectoryInUse) as refusal:
        lock_directory(tmp_path, "i", Reports())
    assert who in str(refusal.value)
    assert advice in str(refusal.value)


def die_slowly(pid: int, parent: int) -> dict[str, str]:
    return {
        "stat": f"{pid} (a b) c) S {parent} 1 1 0 -1 0 0 0",
        "status": "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n",
    }


@pytest.mark.parametrize(
    ("change", "dying"),
    [
        (lambda p: p, False),
        (lambda p: {**p, "stat": p["stat"].replace(") S", ") Z")}, True),
        (lambda p: {**p, "stat": p["stat"].replace("-1 0 0", "-1 4 0")}, True),
        (lambda p: {**p, "status": "ShdPnd:\t0000000000000100\n"}, True),
        (lambda p: {**p, "status": "ShdPnd:\t0000000000004000\n"}, False),
        (lambda p: {**p, "stat": p["stat"].replace("S 20", "S 1")}, True),
    ],
    ids=["alive", "zombie", "exiting", "killed", "terminated", "orphan"],
)
def test_processes_that_count_as_dying(
    change: Callable[[dict[str, str]], dict[str, str]],
    dying: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in change(die_slowly(30, 20)).items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(lock, "Path", lambda path: tmp_path / path.rpartition("/")[2])
    assert lock.Holder(30, 20, "serving", socket.gethostname()).is_ending() == dying
