"""The event log end to end: senders in several processes, and one log process."""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from amps.config import LogTargetConfig
from amps.server.eventlog import (
    EventLog,
    minimum_level,
    open_log_channel,
)
from amps.server.eventlog import sender as sender_module
from amps.server.eventlog.catalogue import LEVEL_NUMBERS, NOTHING
from amps.server.eventlog.records import MAX_TEXT_BYTES
from tests.unit.eventlog.log import RECORD, Log, exit_code, file_target, fork


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
