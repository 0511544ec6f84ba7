"""Publishing without a call of the store (`Outbox.publish` and `SegmentWriter`): what death leaves at any instant."""

import contextlib
import ctypes
import errno
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from amps._core.client import traffic as compiled
from amps._core.wire.framing import encode_frame
from amps.client import FilePublishStore, HybridPublishStore, StoreException, StoreFullException
from amps.client.protocol import traffic_python
from amps.client.protocol.command import PublishTemplate
from amps.client.protocol.store_interfaces import frames_of
from tests.unit.client.harness import Harness
from tests.unit.client.stores.damage import SEGMENT_BYTES, START, body_of, frame_of, opened
from tests.unit.client.stores.damage import frames_of as kept

REPOSITORY = Path(__file__).parents[4]
HEADER = b'{"c":"publish","t":"t"}'
BOTH = pytest.mark.parametrize("traffic", [compiled, traffic_python], ids=["compiled", "python"])


def outbox(store: Any) -> compiled.Outbox:
    """An outbox as the client of a store has it when it is connected."""
    box = compiled.Outbox(2**20)
    box.learn("t", HEADER)
    box.ready = box.signalled = box.numbered = True
    box.log = frames_of(store)
    return box


def published(number: int, body: bytes) -> bytes:
    """The frame that `publish` makes."""
    fields = {"cmd": "publish", "topic": "t", "ack_type": "persisted", "seq": number}
    return bytes(encode_frame(fields, body))


def publish(box: compiled.Outbox, body: bytes) -> int:
    result = box.publish("t", body)
    return -2 - result if result < -1 else result


# The writer


@BOTH
def test_a_record_is_what_the_format_says(traffic: ModuleType) -> None:
    """client.md §19.7: `u32 length, u32 CRC, u64 seq, frame`, and the CRC of zlib"""
    numbers, segment, offsets = memoryview(bytearray(24)).cast("Q"), bytearray(400), array("I")
    writer = traffic.SegmentWriter()
    writer.open(numbers, 2**32 + 7, 5, 1000, 400)
    writer.begin(segment, offsets, 3)
    assert (writer.append(START, b"x" * 77), writer.append(START, b"")) == (2**32 + 7, 2**32 + 8)
    frames = [frame_of(2**32 + 7, b"x" * 77), frame_of(2**32 + 8, b"")]
    records = [
        len(frame).to_bytes(4, "little")
        + traffic_python.crc32(frame, 7 + at).to_bytes(4, "little")
        + (2**32 + 7 + at).to_bytes(8, "little")
        + frame
        for at, frame in enumerate(frames)
    ]
    assert segment == bytes(3) + records[0] + records[1] + bytes(397 - len(records[0] + records[1]))
    assert list(offsets) == [3, 3 + len(records[0])]
    assert list(numbers) == [0, 0, 2**32 + 8]
    assert (writer.total, writer.kept_bytes) == (1000 + len(b"".join(records)), 600 + len(b"".join(records)))


@BOTH
def test_a_writer_refuses_what_does_not_fit(traffic: ModuleType) -> None:
    numbers, frame = memoryview(bytearray(24)).cast("Q"), frame_of(1, b"")
    writer = traffic.SegmentWriter()
    with pytest.raises(ValueError, match="not open"):
        writer.begin(bytearray(100), array("I"), 0)
    with pytest.raises(ValueError, match="three words"):
        writer.open(numbers[:2], 1, 0, 0, 0)
    assert writer.append(START, b"") == 0
    writer.open(numbers, 1, 0, 0, 0)
    for size in range(16 + len(frame) + 3):
        segment = bytearray(size)
        writer.begin(segment, array("I"), 2)
        assert writer.has_room(len(frame)) == writer.add(frame) == (size == 18 + len(frame))
        assert bool(any(segment)) == (size == 18 + len(frame))
    for refuse, allow in ((writer.seal, writer.resume), (writer.detach, None)):
        segment = bytearray(500)
        writer.begin(segment, array("I"), 0)
        refuse()
        assert writer.append(START, b"") == 0
        writer.resume()
        assert bool(writer.append(START, b"")) == (allow is not None)
    del segment[:]  # no map is held any more
    writer.begin(bytearray(1000), array("I"), 0)
    writer.max_bytes = writer.kept_bytes + 1
    assert [writer.append(START, b""), writer.append(START, b"")] == [3, 0]
    writer.max_bytes = writer.kept_bytes
    assert writer.append(START, b"") == 0
    writer.close()
    assert (writer.append(START, b""), writer.kept_bytes) == (0, 0)


@BOTH
def test_discarding_moves_the_place_of_the_first_record_and_the_floor(traffic: ModuleType) -> None:
    numbers = memoryview(bytearray(24)).cast("Q")
    writer = traffic.SegmentWriter()
    writer.open(numbers, 1, 0, 0, 0)
    writer.begin(bytearray(1000), offsets := array("I"), 0)
    for _ in range(3):
        writer.append(START, b"")
    writer.discard(2, offsets[2])
    assert (writer.persisted, numbers[0], writer.kept_bytes) == (2, 2, writer.total - offsets[2])
    writer.discard(1, 0)
    assert (writer.persisted, numbers[0], writer.next_number) == (2, 2, 4)
    writer.discard(3, writer.total)
    assert (writer.kept_bytes, writer.next_number, writer.append(START, b"")) == (0, 4, 4)
    writer.discard(50, 0)
    assert (writer.kept_bytes, writer.next_number, writer.append(START, b"")) == (0, 51, 0)


# The fast path of the clients


@pytest.mark.parametrize("kind", ["file", "hybrid"])
def test_publishes_are_the_records_that_the_store_would_write(tmp_path: Path, kind: str) -> None:
    """Fast publishes and calls of the store, over several segments; `make_room` is the engine's."""
    store: Any = (
        opened(tmp_path / "s")
        if kind == "file"
        else HybridPublishStore(tmp_path / "s", memory_messages=20, segment_bytes=SEGMENT_BYTES, sync="never")
    )
    store.open("me")
    box, refused = outbox(store), 0
    expected = {}
    for number in range(1, 301):
        body = body_of(number)
        if number % 10 == 0:
            assert store.append(START, body) == number
            expected[number] = frame_of(number, body)
            continue
        got = publish(box, body)
        if got == -1:
            refused += 1
            store.make_room(len(START) + len(body) + 25)
            got = publish(box, body)
        assert got == number
        expected[number] = published(number, body)
        if number == 205:
            store.discard_up_to(150)
    assert 10 < refused < 200
    expected = {number: frame for number, frame in expected.items() if number > 150}
    assert kept(store) == expected
    store.close()
    assert publish(box, b"x") == -1
    store.open("me")
    assert kept(store) == expected
    assert store.append(START, b"x") == 301
    store.close()


def test_each_publish_that_waits_for_the_disk_is_a_call_of_the_store(tmp_path: Path) -> None:
    for kind in (FilePublishStore, HybridPublishStore):
        assert frames_of(kind(tmp_path / kind.__name__, sync="always")) is None
        assert frames_of(kind(tmp_path / kind.__name__)) is not None


def test_a_hybrid_store_decides_when_messages_go_to_files(tmp_path: Path) -> None:
    """client.md §19.7: each publish moves 16 until `low_watermark` are in memory"""
    store = HybridPublishStore(tmp_path / "s", memory_messages=100, low_watermark=50, sync="never")
    store.open("me")
    box, in_memory = outbox(store), []
    for number in range(1, 201):
        if publish(box, b"x") == -1:
            store.make_room(100)
            assert publish(box, b"x") == number
        in_memory.append(store._memory.count)
    assert in_memory[98:106] == [99, 100, 85, 70, 55, 51, 52, 53]
    assert max(in_memory) == 100
    store.discard_up_to(190)
    assert [publish(box, b"x") for _ in range(2)] == [201, 202]
    store.max_bytes = 1
    assert publish(box, b"x") == -1
    with pytest.raises(StoreFullException):
        store.make_room(100)
    store.max_bytes = None
    store.make_room(100)
    assert publish(box, b"x") == 203
    store.close()
    assert publish(box, b"x") == -1
    with pytest.raises(StoreException, match="not open"):
        store.make_room(100)
    store.open("me")
    assert list(kept(store)) == list(range(191, 204))
    store.close()


def test_a_hybrid_store_that_could_not_write_its_messages_continues_behind_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HybridPublishStore(tmp_path / "s", sync="never")
    store.open("me")
    for _ in range(3):
        store.append(START, b"lost")

    def no_room(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StoreException, match="No space left"):
        store.close()
    monkeypatch.undo()
    store.open("me")
    assert [store.append(START, b"kept") for _ in range(2)] == [1, 2]
    store.close()
    store.open("me")
    assert kept(store) == {number: frame_of(number, b"kept") for number in (1, 2)}
    store.close()


def test_a_failed_disk_and_a_limit_refuse_the_fast_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (FilePublishStore, HybridPublishStore):
        store = kind(tmp_path / kind.__name__, max_bytes=290, sync="never")
        store.open("me")
        box, numbers = outbox(store), []
        for _ in range(5):
            if publish(box, b"x" * 100) == -1:
                with contextlib.suppress(StoreException, StoreFullException):
                    store.make_room(200)
                    numbers.append(publish(box, b"x" * 100))
            else:
                numbers.append(store.highest_unpersisted())
        assert numbers == [1, 2]
        store.max_bytes = None
        with contextlib.suppress(StoreException, StoreFullException):
            store.make_room(200)
        assert publish(box, b"x") == 3
        store.close()
    files = FilePublishStore(tmp_path / "failing", sync="interval", sync_interval=3600)
    files.open("me")
    box = outbox(files)
    files.append(START, b"x")
    assert publish(box, b"x") == 2
    monkeypatch.setattr(os, "fdatasync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(StoreException, match="could not be written"):
        files._commit()
    assert publish(box, b"x") == -1
    with pytest.raises(StoreException, match="could not be written"):
        files.make_room(100)
    files.close()


@pytest.mark.parametrize("kind", [FilePublishStore, HybridPublishStore])
def test_a_forked_child_publishes_nothing(tmp_path: Path, kind: Any) -> None:
    store = kind(tmp_path / "s")
    store.open("me")
    box = outbox(store)
    store.append(START, b"x")
    assert publish(box, b"x") == 2
    child = os.fork()
    if child == 0:
        os._exit(0 if publish(box, b"from the child") == -1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert publish(box, b"x") == 3
    store.close()


def test_a_long_message_on_a_full_disk_leaves_an_empty_segment_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is cut to be made anew: a write to the old map would be a SIGBUS."""
    path = tmp_path / "s"
    opened(path).close()
    (path / f"{1:020}.seg").touch()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store = opened(path)
            box = outbox(store)
            allocate = os.posix_fallocate

            def no_room(fd: int, offset: int, size: int) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            os.posix_fallocate = no_room
            for body in (b"x" * 2 * SEGMENT_BYTES, b"short"):
                with pytest.raises(StoreException, match="No space left"):
                    store.append(START, body)
                assert publish(box, b"short") == -1
            os.posix_fallocate = allocate
            assert store.append(START, b"short") == 1
            store.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store = opened(path)
    assert kept(store) == {1: frame_of(1, b"short")}
    store.close()


def test_a_short_message_uses_the_room_that_a_long_one_did_not_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path / "s")
    store.append(START, b"first")

    def no_room(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StoreException, match="No space left"):
        store.append(START, b"x" * 2 * SEGMENT_BYTES)
    assert publish(outbox(store), b"short") == 2
    store.discard_up_to(100)  # the numbers jump: no record may follow in this segment
    with pytest.raises(StoreException, match="No space left"):
        store.append(START, b"x")
    assert publish(outbox(store), b"short") == -1
    monkeypatch.undo()
    assert store.append(START, b"x") == 101
    store.close()
    store = opened(tmp_path / "s")
    assert kept(store) == {101: frame_of(101, b"x")}
    store.close()


@pytest.mark.parametrize("room", [True, False])
def test_nothing_is_added_to_a_segment_that_is_being_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """Another thread may publish while the next segment is allocated: the segment's name is its first number."""
    store = opened(tmp_path / "s")
    box, numbers = outbox(store), []
    store.append(START, b"first")
    allocate = os.posix_fallocate

    def allocating(fd: int, offset: int, size: int) -> None:
        numbers.append(publish(box, b"short"))
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        allocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", allocating)
    with contextlib.nullcontext() if room else pytest.raises(StoreException):
        assert store.append(START, b"x" * SEGMENT_BYTES) == 2
    assert numbers == [-1]
    store.close()
    monkeypatch.undo()
    store = opened(tmp_path / "s")
    assert list(kept(store)) == ([1, 2] if room else [1])
    store.close()


def test_numbers_are_in_the_order_of_the_wire_while_the_store_makes_room(tmp_path: Path) -> None:
    """client.md §19.7: another thread publishes through the outbox between any two steps of this one."""

    class Racing(FilePublishStore):
        others = 0

        def publish_too(self) -> None:
            self.others += publish(harness.engine.outbox, b"other") > 0

        def append(self, start: bytes, body: bytes) -> int:
            number = super().append(start, body)
            self.publish_too()
            return number

        def make_room(self, frame_bytes: int) -> None:
            super().make_room(frame_bytes)
            self.publish_too()

    store = Racing(tmp_path / "s", segment_bytes=SEGMENT_BYTES, sync="never")
    harness = Harness(publish_store=store).ready()
    harness.engine.outbox.learn("t", HEADER)
    for _ in range(100):
        harness.engine.publish_body(PublishTemplate("publish", "t"), b"x" * 200)
    sent = harness.sent()
    assert store.others >= 5
    assert [frame["s"] for frame in sent] == list(range(1, 101 + store.others))
    store.close()


# Death


PTRACE_TRACEME, PTRACE_SINGLESTEP = 0, 9


def test_death_at_any_instruction_of_a_publish_leaves_a_record_or_none(tmp_path: Path) -> None:
    """The child runs instruction by instruction; what its files are after each is what its death would leave."""
    libc = ctypes.CDLL(None, use_errno=True)
    path = tmp_path / "s"
    store = opened(path)
    for number in range(1, 4):
        store.append(START, body_of(number))
    store.close()
    body = b"y" * 30
    child = os.fork()
    if child == 0:
        os._exit(publish_traced(path, libc, body))
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        pytest.skip("tracing a child is not allowed here")
    files = [path / f"{1:020}.seg", path / "numbers"]
    states: dict[tuple[bytes, ...], None] = {}
    steps = 0
    while os.WIFSTOPPED(status) and not (steps and os.WSTOPSIG(status) == signal.SIGSTOP):
        states[tuple(file.read_bytes() for file in files)] = None
        assert libc.ptrace(PTRACE_SINGLESTEP, child, None, None) == 0
        status = os.waitpid(child, 0)[1]
        steps += 1
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    before = {n: frame_of(n, body_of(n)) for n in range(1, 4)}
    seen = []
    for at, state in enumerate(states):
        copy = tmp_path / f"copy{at}"
        copy.mkdir()
        shutil.copy(path / "state", copy)
        for file, data in zip(files, state, strict=True):
            (copy / file.name).write_bytes(data)
        again = opened(copy)
        found = kept(again)
        assert found in (before, {**before, 4: published(4, body)})
        assert again.append(START, b"next") == len(found) + 1
        again.close()
        seen.append(len(found))
    assert seen == sorted(seen)
    assert set(seen) == {3, 4}
    assert seen.index(4) > 4


def publish_traced(path: Path, libc: Any, body: bytes) -> int:
    store = opened(path)
    box = outbox(store)
    if libc.ptrace(PTRACE_TRACEME, 0, None, None) != 0:
        return 1
    here = os.getpid()
    os.kill(here, signal.SIGSTOP)
    box.publish("t", body)
    os.kill(here, signal.SIGSTOP)
    return 0


@contextlib.contextmanager
def sink(acknowledges: bool) -> Iterator[int]:
    """A server that accepts each client, reads what it sends, and acknowledges some; yields its port."""

    def frame(header: bytes) -> bytes:
        return len(header).to_bytes(4, "big") + header

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(frame(b'{"c":"ack","cid":"1","a":"processed","status":"success","s":0}'))
            tail = b""
            while data := connection.recv(2**18):
                tail = (tail + data)[-1000:]
                found = re.findall(rb'"s":(\d+)}', tail)
                if acknowledges and found:
                    number = b"%d" % max(0, int(found[0]) - 2000)
                    connection.sendall(frame(b'{"c":"ack","a":"persisted","status":"success","s":%b}' % number))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


@pytest.mark.parametrize("acknowledges", [False, True])
def test_processes_killed_at_full_speed_lose_nothing_that_was_accepted(tmp_path: Path, acknowledges: bool) -> None:
    """One directory, used by one process after another, each killed by SIGKILL at any instant."""
    chosen = random.Random()
    told = tmp_path / "told"
    told.write_bytes(bytes(8))
    command = [sys.executable, "-m", "tests.unit.client.stores.fast_publisher"]
    accepted, begun = 0, 5000 * acknowledges  # then some are discarded
    with sink(acknowledges) as port:
        for _ in range(2):
            process = subprocess.Popen([*command, str(port), str(tmp_path / "s"), str(told)], cwd=REPOSITORY)
            try:
                while int.from_bytes(told.read_bytes(), sys.byteorder) <= accepted + begun:
                    assert process.poll() is None
                    time.sleep(0.001)
                time.sleep(chosen.uniform(0, 0.1))
            finally:
                process.kill()
                process.wait()
            accepted = int.from_bytes(told.read_bytes(), sys.byteorder)
            store = opened(tmp_path / "s")
            last = max(store.highest_unpersisted(), store.last_persisted())
            assert accepted <= last <= accepted + 1
            found = kept(store)
            assert list(found) == list(range(store.last_persisted() + 1, last + 1))
            for number in [*found][-3000:]:
                assert found[number] == published(number, body_of(number))
            store.close()
