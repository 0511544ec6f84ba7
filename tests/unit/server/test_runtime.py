"""The runtime directory and the wake-ups."""

import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amps.server.records import control_record
from amps.server.runtime import (
    PREFIX,
    Runtime,
    RuntimeDirectory,
    WakeUp,
    remove_stale,
    runtime_base,
)
from tests.support.server import package_path

# Makes a directory, leaves it to a child that lives as long as standard input is open, and dies.
ORPHANED_CHILD = """
import os
from amps.server.runtime import RuntimeDirectory
print(RuntimeDirectory().path, flush=True)
if os.fork() == 0:
    os.close(1)
    os.read(0, 1)
os._exit(0)
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that contains the runtime directories of this test."""
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.fixture
def wake_up() -> Iterator[WakeUp]:
    made = WakeUp()
    yield made
    os.close(made.fd)


def is_sent(wake_up: WakeUp) -> bool:
    poller = select.poll()
    poller.register(wake_up.fd, select.POLLIN)
    return bool(poller.poll(0))


# --- the directory ----------------------------------------------------------------------------------------


def test_the_directory_is_private_and_in_the_configured_place(base: Path) -> None:
    assert runtime_base() == base
    directory = RuntimeDirectory()
    assert directory.path.parent == base
    assert directory.path.name.startswith(PREFIX)
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.remove()
    assert list(base.iterdir()) == []


def test_without_configuration_it_is_in_memory_or_among_temporary_files(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMPS_RUNTIME_DIRECTORY")
    monkeypatch.setattr("tempfile.tempdir", str(base))
    writable = os.access("/dev/shm", os.W_OK | os.X_OK)
    assert runtime_base() == (Path("/dev/shm") if writable else base)


def test_the_next_start_removes_the_directory_of_a_killed_instance(base: Path) -> None:
    stale = base / f"{PREFIX}1-dead"
    stale.mkdir()
    (stale / "lock").touch()
    (stale / "transient.0000000000.log").write_bytes(b"left over")
    directory = RuntimeDirectory()
    assert not stale.exists()
    assert directory.path.exists()
    directory.remove()


def test_a_living_instance_keeps_its_directory(base: Path) -> None:
    first = RuntimeDirectory()
    (first.path / "index.0000000001").write_bytes(b"in use")
    second = RuntimeDirectory()
    assert (first.path / "index.0000000001").read_bytes() == b"in use"
    second.remove()
    first.remove()


def test_other_directories_are_left_alone(base: Path) -> None:
    being_made = base / f"{PREFIX}2-new"
    being_made.mkdir()
    foreign = base / "other"
    foreign.mkdir()
    (foreign / "lock").touch()
    (base / f"{PREFIX}file").touch()
    remove_stale(base)
    assert sorted(path.name for path in base.iterdir()) == [f"{PREFIX}2-new", f"{PREFIX}file", "other"]


def test_a_start_leaves_the_directory_of_another_start_alone(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other start checks at any moment, including right before and right after the lock is taken or named."""
    looked = 0
    flock = fcntl.flock

    def flock_under_observation(descriptor: int, operation: int) -> None:
        nonlocal looked
        looked += 1
        for step in (lambda: None, lambda: flock(descriptor, operation)):
            step()
            with monkeypatch.context() as as_usual:
                as_usual.setattr("amps.server.runtime.fcntl.flock", flock)
                remove_stale(base)

    monkeypatch.setattr("amps.server.runtime.fcntl.flock", flock_under_observation)
    directory = RuntimeDirectory()
    monkeypatch.setattr("amps.server.runtime.fcntl.flock", flock)
    assert looked == 1
    remove_stale(base)
    assert [path.name for path in directory.path.iterdir()] == ["lock"]
    directory.remove()


def test_a_directory_that_cannot_be_made_is_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPS_RUNTIME_DIRECTORY", str(base / "none"))
    with pytest.raises(OSError, match=r"none/amps-run-.*No such file.*AMPS_RUNTIME_DIRECTORY"):
        RuntimeDirectory()


def test_a_directory_is_stale_only_when_the_last_child_is_gone(base: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-c", ORPHANED_CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": package_path()},
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip())
        assert owner.wait(30) == 0
        remove_stale(base)
        assert path.exists()
        owner.stdin.close()
        deadline_s = time.monotonic() + 30
        while path.exists() and time.monotonic() < deadline_s:
            remove_stale(base)
            time.sleep(0.01)
        assert not path.exists()


def test_clearing_removes_everything_but_the_lock(base: Path) -> None:
    directory = RuntimeDirectory()
    (directory.path / "spill.0.1.2").touch()
    directory.clear()
    assert [path.name for path in directory.path.iterdir()] == ["lock"]
    remove_stale(base)
    assert directory.path.exists()
    directory.remove()


# --- wake-ups --------------------------------------------------------------------------------------------


def test_a_wake_up_is_silent_until_it_is_sent(wake_up: WakeUp) -> None:
    assert not is_sent(wake_up)
    wake_up.send()
    assert is_sent(wake_up)


def test_sending_twice_counts_once(wake_up: WakeUp) -> None:
    wake_up.send()
    wake_up.send()
    wake_up.clear()
    assert not is_sent(wake_up)
    wake_up.send()
    assert is_sent(wake_up)


def test_clearing_a_silent_wake_up_does_not_wait(wake_up: WakeUp) -> None:
    wake_up.clear()
    assert not is_sent(wake_up)


def test_a_wake_up_that_is_never_cleared_can_be_sent_any_number_of_times(wake_up: WakeUp) -> None:
    os.eventfd_write(wake_up.fd, 2**64 - 2)
    wake_up.send()
    assert is_sent(wake_up)


# --- the whole runtime --------------------------------------------------------------------------------------


def test_a_new_tree_finds_no_files_of_the_old_one(base: Path) -> None:
    runtime = Runtime(2)
    runtime.control.durable = 4711
    runtime.control.set_transport_alive(1, True)
    assert runtime.ingress[0].push(control_record(["old"]))
    assert runtime.egress[1].push(control_record(["old"]))
    runtime.core_wake_up.send()
    runtime.transport_wake_ups[1].send()
    runtime.spill_path("0.1.2").touch()
    runtime.index_path(3).touch()
    Path(f"{runtime.transient_prefix}0000000000.log").touch()
    runtime.reset()
    assert runtime.control.durable == 0
    assert not runtime.control.transport_alive(1)
    assert [ring.pop_all() for ring in (*runtime.ingress, *runtime.egress)] == [[], [], [], []]
    assert not any(is_sent(wake_up) for wake_up in (runtime.core_wake_up, *runtime.transport_wake_ups))
    assert [path.name for path in runtime.directory.path.iterdir()] == ["lock"]
    for made in (runtime.core_wake_up, *runtime.transport_wake_ups):
        os.close(made.fd)
    runtime.directory.remove()


def test_files_of_different_kinds_never_share_a_name(base: Path) -> None:
    runtime = Runtime(1)
    paths = [
        runtime.index_path(1),
        runtime.index_path(2),
        runtime.spill_path("1"),
        Path(f"{runtime.transient_prefix}0000000001.log"),
    ]
    assert len(set(paths)) == len(paths)
    assert {path.parent for path in paths} == {runtime.directory.path}
    for made in (runtime.core_wake_up, *runtime.transport_wake_ups):
        os.close(made.fd)
    runtime.directory.remove()


def test_the_services_process_has_a_place_behind_the_workers(base: Path) -> None:
    without, with_services = Runtime(2), Runtime(2, services=True)
    assert (without.workers, without.transports) == (2, 2)
    assert (with_services.workers, with_services.transports, with_services.services_index) == (2, 3, 2)
    assert (
        len(with_services.ingress) == len(with_services.egress) == len(with_services.transport_wake_ups) == 3
    )
    for runtime in (without, with_services):
        for made in (runtime.core_wake_up, *runtime.transport_wake_ups):
            os.close(made.fd)
        runtime.directory.remove()


def test_a_new_tree_gets_no_wake_ups_of_the_old_one(base: Path) -> None:
    runtime = Runtime(1, services=True)
    for _ in range(3):
        runtime.services_requests.send(b"a request of a process that is gone")
        runtime.core_requests.send(b"an answer to it")
    runtime.reset()
    for end in (runtime.core_requests, runtime.services_requests):
        with pytest.raises(BlockingIOError):
            end.recv(100)
    for made in (runtime.core_wake_up, *runtime.transport_wake_ups):
        os.close(made.fd)
    runtime.directory.remove()
