"""The publish store in files: what survives the death of the process, and what is refused."""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import amps.client.stores.segments
from amps._core.client import traffic as compiled
from amps.client import FilePublishStore, StoreCorruptException, StoreException, StoreFullException
from amps.client.protocol import traffic_python
from tests.unit.client.stores.damage import (
    SEGMENT_BYTES,
    START,
    body_of,
    die_at_step,
    frame_of,
    frames_of,
    opened,
)
from tests.unit.client.talk import wait_for

RECORD_BYTES = 16
MODULES = ("stores/segments.py", "protocol/traffic_python.py")
WRITERS = {"compiled": compiled.SegmentWriter, "python": traffic_python.SegmentWriter}
in_python = pytest.mark.parametrize("writer", ["python"], indirect=True)


@pytest.fixture(params=list(WRITERS), autouse=True)
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with the extension module and with its equivalent in Python."""
    monkeypatch.setattr(amps.client.stores.segments, "SegmentWriter", WRITERS[request.param])


def fill(store: FilePublishStore, count: int) -> None:
    for _ in range(count):
        sequence = store.highest_unpersisted() or store.last_persisted()
        store.append(START, body_of(sequence + 1))


def expected(*numbers: int) -> dict[int, bytes]:
    return {n: frame_of(n, body_of(n)) for n in numbers}


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def test_a_reopened_store_has_its_messages_and_continues_numbering(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    fill(store, 100)
    store.discard_up_to(40)
    store.close()
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(41, 101))
    assert (store.lowest_unpersisted(), store.highest_unpersisted(), store.last_persisted()) == (41, 100, 40)
    assert store.append(START, body_of(101)) == 101
    store.close()


def test_discarded_segments_are_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    fill(store, 200)
    assert len(segments(tmp_path / "s")) > 4
    store.discard_up_to(200)
    assert len(segments(tmp_path / "s")) == 1
    store.close()
    crashed_machine(tmp_path / "s")
    (tmp_path / "s" / "numbers").unlink()
    store = opened(tmp_path / "s")
    fill(store, 1)
    assert store.highest_unpersisted() == 201
    store.close()


@pytest.mark.parametrize("kept", [0, 5])
def test_numbering_continues_above_the_floor_after_a_restart(tmp_path: Path, kept: int) -> None:
    store = opened(tmp_path / "s")
    fill(store, kept)
    store.discard_up_to(1000)
    assert (store.unpersisted_count(), store.highest_unpersisted()) == (0, 0)
    store.close()
    store = opened(tmp_path / "s")
    assert store.last_persisted() == 1000
    assert store.append(START, b"x") == 1001
    store.close()
    store = opened(tmp_path / "s")
    assert list(frames_of(store)) == [1001]
    store.close()


def test_client_54_another_name_and_another_process_are_refused(tmp_path: Path) -> None:
    """client.md §21 54"""
    store = opened(tmp_path / "s")
    with pytest.raises(StoreException, match="another directory"):
        store.open("you")
    code = (
        "import sys; from amps.client import FilePublishStore, StoreException\n"
        "try: FilePublishStore(sys.argv[1]).open('me')\n"
        "except StoreException as error: print(error)"
    )
    told = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=True
    ).stdout
    assert f"in use by process {os.getpid()}: close it first" in told
    with pytest.raises(StoreException, match=r"in use by another store object of this process: call its close\(\)"):
        opened(tmp_path / "s")
    store.close()
    with pytest.raises(StoreException, match="belongs to client 'me'; give client 'you' another directory"):
        FilePublishStore(tmp_path / "s").open("you")
    opened(tmp_path / "s").close()


def test_calls_before_open_and_after_close_are_refused(tmp_path: Path) -> None:
    store = FilePublishStore(tmp_path / "s")
    with pytest.raises(StoreException, match="not open"):
        store.append(START, b"x")
    store.open("me")
    store.append(START, b"x")
    store.close()
    store.close()
    with pytest.raises(StoreException, match="not open"):
        store.append(START, b"x")
    assert store.find(1) is None


def test_a_record_torn_after_any_byte_is_dropped(tmp_path: Path) -> None:
    """The frame is written first, then the header; the process may die after each byte."""
    store = opened(tmp_path / "s")
    fill(store, 5)
    whole = segments(tmp_path / "s")[0].read_bytes()
    numbers = (tmp_path / "s" / "numbers").read_bytes()
    start = store._log.writer.end
    fill(store, 1)
    end = store._log.writer.end
    after = segments(tmp_path / "s")[0].read_bytes()
    store.close()
    body = start + RECORD_BYTES
    torn = [whole[:body] + after[body:at] + whole[at:] for at in range(body, end + 1)]
    torn += [after[:at] + bytes(body - at) + after[body:] for at in range(start, body)]
    for data in torn:
        segments(tmp_path / "s")[0].write_bytes(data)
        (tmp_path / "s" / "numbers").write_bytes(numbers)
        store = opened(tmp_path / "s")
        survived = 6 if data == after else 5
        assert frames_of(store) == expected(*range(1, survived + 1))
        assert store.append(START, body_of(survived + 1)) == survived + 1
        store.close()
        store = opened(tmp_path / "s")
        assert frames_of(store) == expected(*range(1, survived + 2))
        store.close()


def test_a_damaged_byte_before_the_last_record_is_reported(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    fill(store, 30)
    end = store._log._segments[0].offsets[-1]
    store.close()
    first = segments(tmp_path / "s")[0]
    data = first.read_bytes()
    for at in range(0, end, 7):
        first.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        with pytest.raises(StoreCorruptException, match=r"are missing.*\. Restore"):
            opened(tmp_path / "s")
    first.write_bytes(data)
    opened(tmp_path / "s").close()


@pytest.mark.parametrize("damage", ["hole", "empty tail", "first", "middle", "last", "all"])
def test_a_hole_or_a_missing_segment_is_reported(tmp_path: Path, damage: str) -> None:
    store = opened(tmp_path / "s")
    fill(store, 200)
    store.close()
    files = segments(tmp_path / "s")
    data = files[-1].read_bytes()
    gone = {"first": files[:1], "middle": files[1:2], "last": files[-1:], "all": files}.get(damage, [])
    for path in gone:
        path.unlink()
    if damage == "hole":
        files[-1].write_bytes(data[:50] + bytes(300) + data[350:])
    elif damage == "empty tail":
        files[-1].write_bytes(data[:50])
    with pytest.raises(StoreCorruptException, match=r"messages \d+ to \d+.* are missing"):
        opened(tmp_path / "s")


def test_a_missing_segment_of_discarded_messages_is_not_damage(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    fill(store, 200)
    first = segments(tmp_path / "s")[0].read_bytes()
    store.discard_up_to(190)
    store.close()
    (tmp_path / "s" / f"{1:020}.seg").write_bytes(first)  # as if the process had died before it was deleted
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(191, 201))
    store.close()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("call", ["crc32", "_pack_record", "_add_offset"])
@in_python
def test_an_interrupted_append_adds_a_record_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, large: bool
) -> None:
    """A handler of a signal, as that of Ctrl-C, runs after a call returns; it may raise."""

    def interrupting(function: Callable[..., Any]) -> Callable[..., Any]:
        def interrupted(*args: Any) -> None:
            function(*args)
            monkeypatch.undo()
            raise KeyboardInterrupt

        return interrupted

    store = opened(tmp_path / "s")
    fill(store, 3)
    owner = store._log.writer if call == "_add_offset" else traffic_python
    monkeypatch.setattr(owner, call, interrupting(getattr(owner, call)))
    with pytest.raises(KeyboardInterrupt):
        store.append(START, body_of(4))
    added = call == "_add_offset"
    number = 5 if added else 4
    body = b"x" * SEGMENT_BYTES if large else b"x"
    assert store.append(START, body) == number
    left = {**expected(*range(1, number)), number: frame_of(number, body)}
    assert frames_of(store) == left
    store.close()
    store = opened(tmp_path / "s")
    assert frames_of(store) == left
    assert store.append(START, b"") == number + 1
    store.close()


# A process of its own: a timer of the whole test process would be pytest's, and Python drops an interrupt that comes
# in the destructor of another test's garbage.
INTERRUPTED = """
import random, signal, sys
from amps.client import FilePublishStore

def interrupt(*_):
    raise KeyboardInterrupt

def append_until_interrupted():
    while True:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 6e-4))
        for _ in range(10_000):
            store.append(sys.argv[2].encode(), b"x" * 50)

signal.signal(signal.SIGALRM, interrupt)
store = FilePublishStore(sys.argv[1], segment_bytes=2**18)
store.open("me")
for _ in range(300):
    try:
        append_until_interrupted()
    except KeyboardInterrupt:
        assert not store._lock.locked()
print(store.unpersisted_count())
"""


def test_signals_at_any_time_leave_the_store_usable(tmp_path: Path) -> None:
    code = [sys.executable, "-P", "-c", INTERRUPTED, str(tmp_path / "s"), START.decode()]
    count = int(subprocess.run(code, stdout=subprocess.PIPE, check=True, timeout=60).stdout)
    store = opened(tmp_path / "s")
    kept = store.unpersisted_count()
    assert 300 <= count <= kept <= count + 1
    assert list(frames_of(store).items()) == [(n, frame_of(n, b"x" * 50)) for n in range(1, kept + 1)]
    store.close()


@pytest.mark.parametrize("name", ["state", "no state"])
def test_a_damaged_or_missing_state_is_reported(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path / "s")
    fill(store, 1)
    store.close()
    if name == "state":
        (tmp_path / "s" / "state").write_bytes(b"{")
    else:
        (tmp_path / "s" / "state").unlink()
    with pytest.raises(StoreCorruptException, match="restore it"):
        opened(tmp_path / "s")


def scenario(path: Path, told: int) -> None:
    """Appends (told as numbers), discards (told as negative numbers before them), a floor, a restart."""
    store = opened(path)
    for number in range(1, 31):
        os.write(told, b"%d " % store.append(START, body_of(number)))
    os.write(told, b"-12 ")
    store.discard_up_to(12)
    store.close()
    store = opened(path)
    for number in range(31, 61):
        os.write(told, b"%d " % store.append(START, body_of(number)))
    os.write(told, b"-59 ")
    store.discard_up_to(59)
    os.write(told, b"-100 ")
    store.discard_up_to(100)
    for number in range(101, 111):
        os.write(told, b"%d " % store.append(START, body_of(number)))
    store.close()


def test_death_before_any_line_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    step = died = 0
    alive = False
    while not alive:
        path = tmp_path / str(step)
        dead, told = die_at_step(step, MODULES, lambda fd, path=path: scenario(path, fd))  # type: ignore[misc]
        alive, died = not dead, died + dead
        accepted = {n for n in told if n > 0}
        begun = max([-n for n in told if n < 0], default=0)
        store = opened(path)
        found = frames_of(store)
        assert found == expected(*found)
        lost = accepted - set(found) - set(range(begun + 1))
        assert not lost, (step, lost)
        assert set(found) <= accepted | {max(accepted, default=0) + 1, begun + 1}
        number = store.append(START, b"next")
        assert number > max(accepted, default=0), step
        store.close()
        step += 1 + step // 40
    assert died > 100


def test_client_57_max_bytes_limits_the_store(tmp_path: Path) -> None:
    """client.md §21 57: a refused message uses no number."""
    store = opened(tmp_path / "s", max_bytes=2000, on_full="raise")
    size = RECORD_BYTES + len(frame_of(1, b"x" * 100))
    accepted = 2000 // size + 1
    for number in range(1, accepted + 1):
        assert store.append(START, b"x" * 100) == number
    with pytest.raises(StoreFullException, match="of 2000 bytes"):
        store.append(START, b"x" * 100)
    store.discard_up_to(1)
    store.discard_up_to(2)
    assert store.append(START, b"x") == accepted + 1
    store.discard_up_to(accepted + 1)
    assert store._log.kept_bytes == 0
    assert store.append(START, b"x" * SEGMENT_BYTES * 3) == accepted + 2
    with pytest.raises(StoreFullException):
        store.append(START, b"")
    store.close()
    store = opened(tmp_path / "s", max_bytes=2000, on_full="raise")
    with pytest.raises(StoreFullException):
        store.append(START, b"")
    store.close()


def crashed_machine(path: Path) -> None:
    """Make the directory look as if the machine had crashed since."""
    state = json.loads((path / "state").read_text())
    (path / "state").write_text(json.dumps({**state, "boot": "another"}))


@pytest.mark.parametrize("damage", ["hole", "zeros in an older segment", "missing segment"])
def test_a_crash_of_the_machine_loses_only_what_no_fsync_covered(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "s"
    store = opened(path, sync="always")
    fill(store, 100)
    store.sync(100)
    covered = store._log._segments[-1]
    at = store._log.writer.end
    fill(store, 200)
    store._log.close()  # as if the process had died: nothing is covered any more
    files = segments(path)
    index = files.index(covered.path)
    if damage == "missing segment":
        files[index + 1].unlink()
    elif damage == "hole":
        data = files[index].read_bytes()
        files[index].write_bytes(data[:at] + bytes(40) + data[at + 40 :])
    else:
        files[index + 1].write_bytes(bytes(SEGMENT_BYTES))
    with pytest.raises(StoreCorruptException):
        opened(path)
    crashed_machine(path)
    store = opened(path)
    found = frames_of(store)
    assert found == expected(*range(1, max(found) + 1))
    assert 100 <= max(found) < 150
    assert store.append(START, body_of(max(found) + 1)) == max(found) + 1
    store.close()
    store = opened(path)
    assert len(frames_of(store)) == len(found) + 1
    store.close()


def test_a_crash_of_the_machine_does_not_explain_damage_that_an_fsync_covered(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = opened(path, sync="always")
    fill(store, 100)
    store.close()
    data = segments(path)[0].read_bytes()
    segments(path)[0].write_bytes(data[:500] + bytes(10) + data[510:])
    crashed_machine(path)
    with pytest.raises(StoreCorruptException, match="damaged"):
        opened(path)


def test_a_forked_child_has_a_closed_store(tmp_path: Path) -> None:
    store = opened(tmp_path / "s", sync="interval")
    fill(store, 3)
    with store._lock:
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(20)  # the lock of the parent's thread would block the child for ever
            try:
                store.append(START, b"from the child")
            except StoreException as error:
                store.close()
                code = 0 if "not open" in str(error) else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert frames_of(store) == expected(1, 2, 3)
    fill(store, 1)
    with pytest.raises(StoreException, match="in use"):
        opened(tmp_path / "s")
    store.close()


def test_a_full_disk_refuses_the_message_and_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    fill(store, 10)
    allocate = os.posix_fallocate

    def no_room(fd: int, offset: int, size: int) -> None:
        allocate(fd, offset, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StoreException, match=r"No space left.*keeps its \d+ messages"):
        fill(store, 1000)
    accepted = store.highest_unpersisted() + 1
    assert frames_of(store) == expected(*range(1, accepted))
    with pytest.raises(StoreException, match="No space left"):
        store.append(START, b"x" * 1000)
    assert len(segments(tmp_path / "s")) == len(store._log._segments)
    monkeypatch.undo()
    assert store.append(START, body_of(accepted)) == accepted
    store.close()
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(1, accepted + 1))
    store.close()


def test_a_store_opens_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path / "s")
    fill(store, 10)
    store.close()
    allocate = os.posix_fallocate

    def no_room(fd: int, offset: int, size: int) -> None:
        if size > 64:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(1, 11))
    with pytest.raises(StoreException, match="No space left"):
        store.append(START, b"")
    store.discard_up_to(4)
    store.close()
    monkeypatch.undo()
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(5, 11))
    store.close()


def test_a_failed_fsync_stops_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path / "s", sync="always")
    number = store.append(START, b"x")
    monkeypatch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(StoreException, match="could not be written to the disk"):
        store.sync(number)
    monkeypatch.undo()
    with pytest.raises(StoreException, match="could not be written to the disk"):
        store.append(START, b"x")
    with pytest.raises(StoreException, match="could not be written to the disk"):
        store.sync(number)  # a thread that waited meanwhile: the second fsync does not report the lost pages
    store.close()
    store = opened(tmp_path / "s")
    assert store.append(START, b"x") == number + 1
    store.close()


def test_one_fsync_serves_all_threads_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path / "s", sync="always", segment_bytes=2**20)
    store.sync(store.append(START, b"first"))
    entered, go_on, calls = threading.Event(), threading.Event(), []
    fdatasync = os.fdatasync

    def slow(fd: int) -> None:
        calls.append(fd)
        entered.set()
        assert go_on.wait(20)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    threads = [threading.Thread(target=store.sync, args=(store.append(START, b"x"),)) for _ in range(2)]
    threads[0].start()
    assert entered.wait(20)
    threads += [threading.Thread(target=store.sync, args=(store.append(START, b"x"),)) for _ in range(6)]
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert len(calls) == 2
    assert store._durable == 9
    store.close()


def test_a_regular_thread_writes_to_the_disk_and_reports_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s", sync="interval", sync_interval=0.001)
    store.append(START, b"x")
    wait_for(lambda: store._durable == 1)
    monkeypatch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    store.append(START, b"x")
    wait_for(lambda: store._failed is not None)
    with pytest.raises(StoreException, match="could not be written"):
        store.append(START, b"x")
    store.close()


def test_a_store_that_is_copied_while_in_use_is_refused_or_has_a_prefix(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    stop = threading.Event()

    def append() -> None:
        number = 1
        while not stop.is_set():
            store.append(START, body_of(number))
            number += 1
            if number % 50 == 0:
                store.discard_up_to(number - 200)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for at in range(20):
            copy = tmp_path / f"copy{at}"
            copy.mkdir()
            for name in os.listdir(tmp_path / "s"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(tmp_path / "s" / name, copy / name)
            try:
                other = opened(copy)
            except StoreCorruptException:
                continue
            found = frames_of(other)
            assert found == expected(*found)
            if found:
                assert list(found) == list(range(min(found), max(found) + 1))
            other.close()
    finally:
        stop.set()
        writer.join()
        store.close()


def test_a_segment_that_cannot_be_removed_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements arrive on the receive thread, where an error would end the connection."""
    store = opened(tmp_path / "s")
    fill(store, 200)
    count = len(segments(tmp_path / "s"))
    monkeypatch.setattr(os, "unlink", lambda path: (_ for _ in ()).throw(PermissionError(errno.EACCES, "no")))
    store.discard_up_to(199)
    assert (frames_of(store), len(segments(tmp_path / "s"))) == (expected(200), count)
    store.close()
    monkeypatch.undo()
    store = opened(tmp_path / "s")
    assert (frames_of(store), len(segments(tmp_path / "s"))) == (expected(200), 1)
    store.close()


def test_an_empty_segment_that_could_not_be_continued_is_used_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died after it had made the file, and the disk was full when the next one started."""
    store = opened(tmp_path / "s")
    fill(store, 10)
    store.close()
    (tmp_path / "s" / f"{11:020}.seg").touch()
    allocate = os.posix_fallocate

    def no_room(fd: int, offset: int, size: int) -> None:
        if size > 24:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    store = opened(tmp_path / "s")
    monkeypatch.undo()
    store.discard_up_to(10)
    fill(store, 5)
    store.close()
    store = opened(tmp_path / "s")
    assert frames_of(store) == expected(*range(11, 16))
    store.close()


def test_a_gap_is_explained_on_the_disk_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledgements never wait for the disk; a segment after a gap does."""
    synced: list[str] = []
    sync = amps.client.stores.segments._sync

    def watched(path: Path) -> None:
        synced.append(path.name)
        sync(path)

    monkeypatch.setattr(amps.client.stores.segments, "_sync", watched)
    store = FilePublishStore(tmp_path / "s", segment_bytes=65536, sync="never")
    store.open("me")
    fill(store, 3)
    synced.clear()
    store.discard_up_to(1000)
    assert not synced
    fill(store, 100)
    assert synced == ["numbers"]
    store.close()
