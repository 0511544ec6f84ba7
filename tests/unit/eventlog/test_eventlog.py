"""The event log end to end: senders in several processes, one log process, every kind of target."""

import ast
import contextlib
import errno
import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import amps
from amps.config import LogTargetConfig
from amps.server.eventlog import (
    CATALOGUE,
    LEVELS,
    EventLog,
    minimum_level,
    open_log_channel,
    run_log_process,
    shared_counters,
    unwritable_targets,
)
from amps.server.eventlog import sender as sender_module
from amps.server.eventlog.catalogue import LEVEL_NUMBERS, NOTHING, fill
from amps.server.eventlog.records import MAX_TEXT_BYTES
from amps.server.eventlog.targets import Target, expand_mask, repair_gzip
from tests.support.server import package_path

RECORD = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}[+-]\d\d:\d\d \[\d+\] "
    r"(developer|trace|stats|info|warning|error|critical|emergency): [0-9A-F]{2}-[0-9A-F]{4} "
)
ID = r"[0-9A-F]{2}-[0-9A-F]{4}"
EVERYTHING = frozenset(LEVELS)


def fork(action: Callable[[], None]) -> int:
    """Run `action` in a child process. Its exit code shows whether the action raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Log:
    """A channel and its log process."""

    def __init__(self, *targets: LogTargetConfig) -> None:
        self.targets = targets
        self.counters = shared_counters(len(targets))
        self.sender, self.receiver = open_log_channel()
        self.log = EventLog(self.sender, 1, minimum_level(targets))
        self.pid = 0
        self.start()

    def start(self) -> None:
        def run() -> None:
            self.sender.close()
            run_log_process(self.targets, "instance", self.receiver, self.counters)

        self.pid = fork(run)

    def finish(self) -> None:
        """Close the last sender and wait for the log process."""
        self.sender.close()
        assert exit_code(self.pid) == 0
        self.receiver.close()


def file_target(path: Path, **values: object) -> LogTargetConfig:
    return LogTargetConfig(**({"protocol": "file", "levels": EVERYTHING, "file_name": str(path)} | values))  # type: ignore[arg-type]


def test_texts_never_contain_the_name_of_a_level() -> None:
    for record_id, entry in CATALOGUE.items():
        fixed = re.sub(r"\{\w+\}", "", entry.template).lower()
        for name in (*LEVELS, "debug"):
            assert name not in fixed, (record_id, name)


def test_the_catalogue_is_sorted_and_its_ids_are_well_formed() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    for record_id, entry in CATALOGUE.items():
        assert re.fullmatch(ID, record_id)
        assert entry.level in LEVELS


def test_every_id_that_the_server_logs_is_in_the_catalogue() -> None:
    package = Path(amps.__path__[0])
    for source in [*package.rglob("*.py"), *package.rglob("*.pyx")]:
        for record_id in re.findall(f'"({ID})"', source.read_text()):
            assert record_id in CATALOGUE, f"{source}: {record_id}"


def ids_of(call: ast.Call) -> list[str]:
    """The ids of the catalogue that a call may pass as its first argument; none if it logs nothing, or any id."""
    first = call.args[0] if call.args else None
    choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    values = [choice.value for choice in choices if isinstance(choice, ast.Constant)]
    return [value for value in values if isinstance(value, str) and re.fullmatch(ID, value)]


def fields_of(template: str) -> tuple[set[str], set[str]]:
    """The values that a template needs, and those that only its parts in `[[ ]]` have."""
    optional_parts = "".join(re.findall(r"\[\[.*?\]\]", template, re.DOTALL))
    needed = set(re.findall(r"\{(\w+)\}", re.sub(r"\[\[.*?\]\]", "", template, flags=re.DOTALL)))
    return needed, set(re.findall(r"\{(\w+)\}", optional_parts)) - needed


def faults_of(call: ast.Call, record_id: str) -> list[str]:
    """The faults of a call that logs a message: values that its template lacks, and values that the call lacks."""
    needed, optional = fields_of(CATALOGUE[record_id].template)
    names = {keyword.arg for keyword in call.keywords}
    given = {name for name in names if name is not None}
    if len(call.args) > 1:  # a text
        given.add("text")
    unknown = given - needed - optional
    missing = set() if None in names else needed - given
    return [f"{record_id} has no {{{name}}}" for name in sorted(unknown)] + [
        f"{record_id} needs {{{name}}}" for name in sorted(missing)
    ]


def test_every_call_gives_the_values_of_its_template_and_no_text_of_its_own() -> None:
    """The texts in the log are those in the catalogue. A missing value would be a question mark in the log.

    A call may pass the id to `log`, to a `Report`, or to a function that passes it on.
    """
    faults: list[str] = []
    seen: set[str] = set()
    package = Path(amps.__path__[0])
    for source in package.rglob("*.py"):
        for call in ast.walk(ast.parse(source.read_text())):
            if not isinstance(call, ast.Call):
                continue
            for record_id in ids_of(call):
                seen.add(record_id)
                place = f"{source.relative_to(package)}:{call.lineno}"
                faults += [f"{place}: {fault}" for fault in faults_of(call, record_id)]
    assert not faults, "\n".join(faults)
    assert len(seen) > 100


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ('log("29-0010", text="t")', []),
        ('report("29-0010", "t")', []),
        ('log("2C-0007", path=p)', []),
        ('self._report("2C-0007", "a text")', ["2C-0007 has no {text}", "2C-0007 needs {path}"]),
        ('log("2C-0007", path=p, size=1)', ["2C-0007 has no {size}"]),
        ('log("07-0013", client=c)', []),
        ('log("07-0013", client=c, reason=r)', []),
        ('log("07-0013", **values)', []),
        ('log("07-0013", text=t, **values)', ["07-0013 has no {text}"]),
        ('log("25-0003" if x else "25-0004")', ["25-0003 needs {state}", "25-0004 needs {state}"]),
    ],
)
def test_faulty_calls_are_found(call: str, faults: list[str]) -> None:
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call)
    assert [fault for record_id in ids_of(tree) for fault in faults_of(tree, record_id)] == faults


def test_a_text_that_the_template_has_no_place_for_is_ignored(tmp_path: Path) -> None:
    """It is an exception in tests, and never one in a server."""
    log = Log(file_target(tmp_path / "a.log"))
    with pytest.raises(RuntimeWarning, match=r"2C-0007: its template in the catalogue has no \{text\}"):
        log.log.log("2C-0007", text="another text", path="p")
    with pytest.raises(RuntimeWarning):
        EventLog(None, 1, NOTHING).log("2C-0007", "another text", path="p")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        log.log.log("2C-0007", text="another text", path="p")
    log.log.log("29-0010", text="one {path}")
    log.finish()
    assert [warning.category for warning in warned] == [RuntimeWarning]
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "info: 2C-0007 journal p is removed.",
        "warning: 29-0010 one {path}.",
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"client": "c"}, "client[c] disconnected."),
        ({"client": "c", "reason": ""}, "client[c] disconnected."),
        ({"client": "c", "reason": "slow client"}, "client[c] disconnected. Reason: slow client."),
        ({}, "client[?] disconnected."),
        ({"client": "a\nb{x}"}, r"client[a\x0ab{x}] disconnected."),
        ({"client": b"\xff"}, r"client[\xff] disconnected."),
    ],
)
def test_filling_a_text(values: dict[str, object], text: str) -> None:
    assert fill(CATALOGUE["07-0013"].template, values) == text


def test_a_record_in_a_file(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "logs" / "a.log"))
    log.log.log("07-0013", client="x", reason="name in use")
    log.log.with_thread(4).log("00-0001", text="A copyright line")
    log.log.log(
        "00-0004", part=1, parts=1, data="<a>\n</a>\n2026-02-03T08:15:30.1234560-05:00 [4] info: 00-0000 x"
    )
    log.finish()
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert [bool(RECORD.match(line)) for line in lines] == [True, True, True, False, False, False]
    assert lines[0].endswith("[1] info: 07-0013 client[x] disconnected. Reason: name in use.")
    assert lines[1].endswith("[4] info: 00-0001 A copyright line")
    assert lines[-1].startswith(" 2026-02-03")


def test_the_time_is_that_of_the_sender_in_local_time(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    before = time.time()
    log.log.log("00-0001", text="x")
    after = time.time()
    log.finish()
    stamp = (tmp_path / "a.log").read_text().split()[0]
    from datetime import datetime

    moment = datetime.fromisoformat(stamp).timestamp()
    assert before - 0.001 <= moment <= after + 0.001


def test_many_senders_lose_nothing(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    count, processes = 3000, 3

    def send(number: int) -> None:
        mine = log.log.with_thread(number)
        for index in range(count):
            mine.log("00-0001", text=f"record {index} " + "x" * (index % 500))

    children = [fork(lambda number=number: send(number)) for number in range(processes)]  # type: ignore[misc]
    assert [exit_code(child) for child in children] == [0] * processes
    log.finish()
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert len(lines) == count * processes
    for number in range(processes):
        mine = [int(line.split()[5]) for line in lines if line.split()[1] == f"[{number}]"]
        assert mine == list(range(count))


def test_records_wait_for_a_restarted_log_process(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    log.log.log("00-0001", text="first")
    while not (tmp_path / "a.log").exists() or "first" not in (tmp_path / "a.log").read_text():
        time.sleep(0.01)
    os.kill(log.pid, signal.SIGKILL)
    assert exit_code(log.pid) == -signal.SIGKILL
    for index in range(20):
        log.log.log("00-0001", text=f"while nobody reads {index}")
    log.start()
    log.log.log("00-0001", text="last")
    log.finish()
    texts = [line.split("00-0001 ")[1] for line in (tmp_path / "a.log").read_text().splitlines()]
    assert texts == ["first", *(f"while nobody reads {index}" for index in range(20)), "last"]


def test_finish_ends_the_log_process_although_a_sender_is_open(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    for index in range(100):
        log.log.log("00-0001", text=str(index))
    log.log.finish()
    assert exit_code(log.pid) == 0
    assert len((tmp_path / "a.log").read_text().splitlines()) == 100


def test_signals_of_the_server_do_not_end_the_log_process(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    log.log.log("00-0001", text="ready")
    while not (tmp_path / "a.log").exists() or "ready" not in (tmp_path / "a.log").read_text():
        time.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(log.pid, number)
    log.log.log("FF-0003")
    log.finish()
    assert "shutdown complete" in (tmp_path / "a.log").read_text()


def test_a_text_beyond_the_packet_is_cut_with_a_note(tmp_path: Path) -> None:
    log = Log(file_target(tmp_path / "a.log"))
    log.log.log("12-0001", client="c", data="é" * MAX_TEXT_BYTES)
    log.finish()
    (line,) = (tmp_path / "a.log").read_text().splitlines()
    kept, note = line.rsplit(" [... ", 1)
    assert len(kept.encode()) < MAX_TEXT_BYTES + 100
    assert kept.endswith("é")
    dropped = int(note.split()[0])
    assert dropped == len(("client[c] publish command received: " + "é" * MAX_TEXT_BYTES).encode()) - len(
        kept.split("12-0001 ")[1].encode()
    )


def test_levels_without_a_target_are_not_sent() -> None:
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with sender, receiver:
        log = EventLog(sender, 0, LEVEL_NUMBERS["warning"])
        log.log("00-0001", text="info")
        assert not log.enabled("info")
        assert not log.enabled("debug")
        assert log.enabled("error")
        log.log("00-0008", text="warning")
        assert b"warning" in receiver.recv(1000)
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(1000)


def test_a_log_without_a_channel_accepts_records_and_drops_them() -> None:
    log = EventLog(None, 0, 0)
    assert not log.enabled("emergency")
    log.log("FF-0003")
    log.finish()


def test_a_closed_reader_does_not_stop_the_sender() -> None:
    sender, receiver = open_log_channel()
    receiver.close()
    log = EventLog(sender, 0, 0)
    log.log("FF-0003")
    log.finish()
    sender.close()


def test_a_reader_that_stalls_costs_one_wait_and_the_loss_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender_module, "SEND_TIMEOUT_S", 1)
    sender, receiver = open_log_channel()
    with sender, receiver:
        log = EventLog(sender, 0, 0)
        began = time.monotonic()
        for number in range(1000):
            log.log("00-0001", text=f"{number} " + "x" * 10_000)
        assert time.monotonic() - began < 30  # a thousand waits would take a thousand seconds
        texts = []
        receiver.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                texts.append(receiver.recv(2**17))
        received = len(texts)
        assert 0 < received < 1000
        log.log("00-0001", text="again")
        assert b"again" in receiver.recv(2**17)
        assert f"{1000 - received} log records were lost".encode() in receiver.recv(2**17)


@pytest.mark.parametrize(
    ("target", "level"),
    [
        (LogTargetConfig("stdout"), NOTHING),
        (LogTargetConfig("stdout", levels=frozenset({"error", "critical"})), LEVEL_NUMBERS["error"]),
        (LogTargetConfig("stdout", include_ids=("12-0010",)), LEVEL_NUMBERS["trace"]),
        (LogTargetConfig("stdout", include_ids=("12-0010",), exclude_ids=("12-.*",)), NOTHING),
    ],
)
def test_the_lowest_level_that_must_be_sent(target: LogTargetConfig, level: int) -> None:
    assert minimum_level([target]) == level
    assert minimum_level([]) == NOTHING


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
