"""Targets of the event log: rotation, compression, files that cannot be written, pipes, syslog."""

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from amps.config import LogTargetConfig
from amps.server.eventlog import (
    unwritable_targets,
)
from amps.server.eventlog.targets import Target, expand_mask, repair_gzip
from tests.support.server import package_path
from tests.unit.eventlog.log import EVERYTHING, RECORD, Log, exit_code, file_target


def test_rotation_by_size_with_a_counter(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "x-%n.log", rotation_threshold_bytes=10_000))
    for index in range(400):
        log.log.log("00-0001", text=f"{index:03d} " + "x" * 50)
    log.finish()
    files = sorted(tmp_path.glob("x-*.log"))
    assert [file.name for file in files] == [f"x-{number:05d}.log" for number in range(len(files))]
    assert len(files) > 3
    for file in files[:-1]:
        assert 9_800 <= file.stat().st_size <= 10_000
    numbers = [int(line.split()[4]) for file in files for line in file.read_text().splitlines()]
    assert numbers == list(range(400))


def test_rotation_onto_the_same_name_overwrites_it(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "x.log", rotation_threshold_bytes=2_000))
    for index in range(100):
        log.log.log("00-0001", text=f"{index:03d}")
    log.finish()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= 2_000
    assert file.read_text().splitlines()[-1].endswith(" 099")


def test_a_restarted_log_process_continues_its_counter(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "x-%n.log", rotation_threshold_bytes=1_000))
    for index in range(50):
        log.log.log("00-0001", text=f"{index:03d}")
    while not any("049" in file.read_text() for file in tmp_path.iterdir()):
        time.sleep(0.01)
    os.kill(log.pid, signal.SIGKILL)
    exit_code(log.pid)
    log.start()
    for index in range(50, 100):
        log.log.log("00-0001", text=f"{index:03d}")
    log.finish()
    numbers = [
        int(line.split()[4]) for file in sorted(tmp_path.iterdir()) for line in file.read_text().splitlines()
    ]
    assert numbers == list(range(100))


def test_gzip_rotates_by_uncompressed_size_and_decompresses(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "x-%n.log.gz", protocol="gzip", rotation_threshold_bytes=10_000))
    for index in range(400):
        log.log.log("00-0001", text=f"{index:03d} " + "x" * 50)
    log.finish()
    files = sorted(tmp_path.iterdir())
    sizes = [len(gzip.decompress(file.read_bytes())) for file in files]
    assert all(9_800 <= size <= 10_000 for size in sizes[:-1])
    text = b"".join(gzip.decompress(file.read_bytes()) for file in files).decode()
    assert [int(line.split()[4]) for line in text.splitlines()] == list(range(400))


def test_a_gzip_log_cut_short_is_repaired_before_it_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    log = Log(file_target(path, protocol="gzip"))
    for index in range(10):
        log.log.log("00-0001", text=f"{index:03d}")
    deadline = time.monotonic() + 30
    import zlib

    while time.monotonic() < deadline:
        if path.exists() and b" 009" in zlib.decompressobj(wbits=31).decompress(path.read_bytes()):
            break
        time.sleep(0.01)
    os.kill(log.pid, signal.SIGKILL)
    exit_code(log.pid)
    with pytest.raises(EOFError):
        gzip.decompress(path.read_bytes())
    log.start()
    log.log.log("00-0001", text="010")
    log.finish()
    text = gzip.decompress(path.read_bytes()).decode()
    assert [int(line.split()[4]) for line in text.splitlines()] == list(range(11))
    assert [file.name for file in tmp_path.iterdir()] == ["x.gz"]


def test_repairing_leaves_whole_files_alone_and_empties_malformed_ones(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gz"
    whole.write_bytes(gzip.compress(b"a" * 100) + gzip.compress(b"b"))
    content = whole.read_bytes()
    assert repair_gzip(whole) == 101
    assert whole.read_bytes() == content
    nonsense = tmp_path / "nonsense.gz"
    nonsense.write_bytes(b"not compressed")
    assert repair_gzip(nonsense) == 0
    assert not nonsense.exists()
    assert repair_gzip(tmp_path / "missing.gz") == 0


@pytest.mark.parametrize(
    ("mask", "extension", "name"),
    [
        ("initMessage", ".log", "initMessage.log"),
        ("a.log", ".log", "a.log"),
        ("a.log.gz", ".gz", "a.log.gz"),
        ("a-%n.log", ".log", "a-00007.log"),
        ("a-%%n", ".log", "a-%n.log"),
    ],
)
def test_file_name_masks(mask: str, extension: str, name: str) -> None:
    assert expand_mask(mask, extension, 7) == name


def test_a_target_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where a directory is wanted")
    log = Log(file_target(tmp_path / "blocked" / "a.log"), file_target(tmp_path / "b.log"))
    log.log.log("00-0001", text="one")
    log.log.log("00-0001", text="two")
    log.finish()
    text = (tmp_path / "b.log").read_text()
    assert "one" in text
    assert "two" in text
    assert text.count("01-0032") == 1


class FullSink:
    """A sink that keeps lines, and raises while the disk is full."""

    def __init__(self) -> None:
        self.full = False
        self.kept: list[str] = []
        self.written: list[str] = []

    def write(self, level_number: int, line: str) -> None:
        self.kept.append(line)

    def flush(self) -> bool:
        lines, self.kept = self.kept, []
        if lines and self.full:
            raise OSError(errno.ENOSPC, "full")
        self.written += lines
        return bool(lines)

    def close(self) -> None:
        self.flush()


def test_a_full_target_is_reported_once_and_its_gap_when_it_works_again() -> None:
    sink, reports = FullSink(), []
    target = Target(LogTargetConfig("file"), sink, "a.log", lambda *report: reports.append(report))
    for number in range(10):
        sink.full = 2 <= number < 7
        target.write(3, f"{number}")
        target.write(3, f"{number}")
        target.flush()
        target.flush()
    assert reports == [("a.log", "full", 0), ("a.log", "", 10)]
    assert sink.written == [f"{n // 2}" for n in (*range(4), *range(14, 20))]


def test_the_gap_is_reported_in_the_target_itself(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("a file where a directory is wanted")
    log = Log(file_target(tmp_path / "d" / "a.log"), file_target(tmp_path / "b.log"))
    log.log.log("00-0001", text="one")
    b = tmp_path / "b.log"
    wait_for(lambda: b.exists() and "01-0032" in b.read_text())
    (tmp_path / "d").unlink()
    log.log.log("00-0001", text="two")
    log.finish()
    for name in ("d/a.log", "b.log"):
        text = (tmp_path / name).read_text()
        assert f"01-0033 the log target {tmp_path / 'd' / 'a.log'} can be written again; 1 records" in text
        assert "00-0001 two" in text


@pytest.mark.parametrize("protocol", ["file", "gzip"])
@pytest.mark.parametrize("what", ["file", "directory", "renamed"])
def test_a_log_file_that_is_removed_or_renamed_is_made_again(
    tmp_path: Path, protocol: str, what: str
) -> None:
    """The file may be removed by a user, or renamed by a program that rotates logs."""
    path = tmp_path / "d" / {"file": "a.log", "gzip": "a.gz"}[protocol]
    log = Log(LogTargetConfig(protocol, levels=EVERYTHING, file_name=str(path)))
    log.log.log("00-0001", text="one")
    wait_for(lambda: path.exists() and path.stat().st_size > 0)
    if what == "directory":
        shutil.rmtree(path.parent)
    elif what == "file":
        path.unlink()
    else:
        path.rename(tmp_path / "old")
    log.log.log("00-0001", text="two")
    log.finish()
    data = path.read_bytes()
    text = (gzip.decompress(data) if protocol == "gzip" else data).decode()
    assert [line.split(" ", 3)[3] for line in text.splitlines()] == ["00-0001 two"]


def test_a_line_that_was_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("2026-01-01T00:00:00.0000000+00:00 [1] info: 00-00")
    log = Log(file_target(path))
    log.log.log("00-0001", text="one")
    log.finish()
    first, second = path.read_text().splitlines()
    assert first.endswith("00-00")
    assert RECORD.match(second)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_unwritable_targets_are_found_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")
    (problem,) = unwritable_targets(
        (
            file_target(tmp_path / "blocked" / "a.log"),
            file_target(tmp_path / "new" / "b.log"),
            LogTargetConfig("stdout"),
        )
    )
    assert "blocked" in problem
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_directories_and_pipes_are_no_log_files(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A directory cannot be written, and a pipe would block the whole log until a reader opens it."""
    make(tmp_path / "a.log")
    (problem,) = unwritable_targets((file_target(tmp_path / "a.log"),))
    assert "no file has that name" in problem


def test_console_and_syslog_targets() -> None:
    """Syslog is observed through LOG_PERROR, which repeats each message on standard error."""
    program = """
import os
from amps.config import LogTargetConfig
from amps.server.eventlog import EventLog, minimum_level, open_log_channel, run_log_process
targets = (
    LogTargetConfig("stdout", levels=frozenset({"info"})),
    LogTargetConfig("syslog", levels=frozenset({"info"}), syslog_options=("LOG_PERROR", "LOG_PID")),
    LogTargetConfig("syslog", levels=frozenset({"info"}), ident="other", syslog_options=("LOG_PERROR",)),
    LogTargetConfig("stderr", include_ids=("FF-0003",)),
)
sender, receiver = open_log_channel()
log = EventLog(sender, 9, minimum_level(targets))
log.log("00-0001", text="hello")
log.log("FF-0003")
log.finish()
run_log_process(targets, "inst", receiver)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": package_path()},
    )
    assert [line.split("info: ")[1] for line in done.stdout.splitlines()] == [
        "00-0001 hello",
        "FF-0003 shutdown complete.",
    ]
    errors = done.stderr.splitlines()
    assert len([line for line in errors if line.startswith("inst[")]) == 2
    assert len([line for line in errors if line.startswith("other:")]) == 2
    assert len([line for line in errors if RECORD.match(line)]) == 1
