"""The instance's clock, and when all processes have passed a new time (queue_guarantees.md §5)."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps.embedded.manual_clock import ClockConnection, read_offset_ns
from amps.server import advancing
from amps.server.advancing import ROUNDS_MAX, Advancing
from amps.server.children import Child
from amps.server.clock import SYSTEM, ManualClock
from amps.server.runtime import Runtime

HOUR_NS = 3600 * 10**9


@pytest.fixture
def connection() -> Iterator[ClockConnection]:
    made = ClockConnection()
    yield made
    made.close()


@pytest.fixture
def clock(tmp_path: Path, connection: ClockConnection) -> ManualClock:
    connection.theirs.setblocking(False)
    return ManualClock(tmp_path / "clock", connection.theirs)


def test_all_times_have_the_offset(clock: ManualClock, tmp_path: Path) -> None:
    """queue_guarantees.md §5, 3"""
    clock.advance(HOUR_NS)
    for shifted, real in (
        (clock.time_ns() / 1e9, time.time()),
        (clock.time_s(), time.time()),
        (clock.monotonic_ns() / 1e9, time.monotonic()),
        (clock.monotonic_s(), time.monotonic()),
    ):
        assert 3599 < shifted - real < 3601
    assert read_offset_ns(tmp_path / "clock") == HOUR_NS


def test_forked_processes_see_every_advance(clock: ManualClock) -> None:
    """queue_guarantees.md §5, 3"""
    go_in, go_out = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(go_in, 1)
        os._exit(0 if clock.offset_ns == HOUR_NS else 1)
    clock.advance(HOUR_NS)
    os.write(go_out, b"x")
    assert os.waitpid(child, 0)[1] == 0
    os.close(go_in)
    os.close(go_out)


def test_the_offset_survives_and_never_falls(clock: ManualClock, tmp_path: Path) -> None:
    """queue_guarantees.md §5, 4"""
    clock.advance(HOUR_NS)
    with pytest.raises(ValueError, match="too large"):
        clock.advance(1 << 62)
    with pytest.raises(ValueError, match="too large"):
        clock.advance(-1)
    assert ManualClock(tmp_path / "clock", clock.requests).offset_ns == HOUR_NS


def test_a_file_of_something_else_is_refused(tmp_path: Path, connection: ClockConnection) -> None:
    """queue_guarantees.md §5, 4: an empty file, or one of zeros, does not mean that the offset has fallen."""
    for content in (b"", b"x", bytes(4096), b"z" * 4096):
        (tmp_path / "clock").write_bytes(content)
        with pytest.raises(OSError, match="is not the file of a clock"):
            ManualClock(tmp_path / "clock", connection.theirs)
        with pytest.raises(OSError, match="is not the file of a clock"):
            read_offset_ns(tmp_path / "clock")
        assert (tmp_path / "clock").read_bytes() == content
    assert read_offset_ns(tmp_path / "nothing") == 0


def test_timers_that_an_advance_makes_due_ring_once_and_in_order(clock: ManualClock) -> None:
    """queue_guarantees.md §5, 3"""
    rung: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock.call_later(loop, 20, lambda: rung.append("second"))
        clock.call_later(loop, 10, lambda: (rung.append("first"), cancelled.cancel()))
        cancelled = clock.call_later(loop, 15, lambda: rung.append("cancelled"))
        clock.call_later(loop, 31, lambda: rung.append("later"))
        clock.call_later(loop, 0.001, lambda: rung.append("by itself"))
        await asyncio.sleep(0.02)
        assert rung == ["by itself"]
        clock.advance(30 * 10**9)
        clock.run_due()
        clock.run_due()
        assert rung == ["by itself", "first", "second"]
        assert len(clock.timers) == 1
        for timer in list(clock.timers):
            timer.cancel()

    asyncio.run(main())
    assert not clock.timers


def test_sleeping_ends_with_an_advance_and_leaves_no_timer_when_it_is_cancelled(clock: ManualClock) -> None:
    async def main() -> None:
        sleeping = asyncio.create_task(clock.sleep(1000))
        given_up = asyncio.create_task(clock.sleep(1000))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert len(clock.timers) == 1
        clock.advance(1000 * 10**9)
        clock.run_due()
        await sleeping
        assert not clock.timers
        await clock.sleep(0.001)
        await SYSTEM.sleep(0.001)

    asyncio.run(main())


# --- advancing --------------------------------------------------------------------------------------------------------


class Tree:
    """A supervisor's view of its processes, and what it told them."""

    def __init__(self, clock: ManualClock, connection: ClockConnection) -> None:
        self.program = connection._ours
        self.program.setblocking(False)
        self.core, self.transport, self.services = (self.process(number) for number in (1, 2, 3))
        self.written = 0
        self.pushed = 0
        runtime = SimpleNamespace(
            control=SimpleNamespace(watermarks=lambda: (self.written,)),
            ingress=[SimpleNamespace(head=0)],
            egress=[self],
        )
        self.told: list[tuple[int, int]] = []
        self.advancing = Advancing(
            clock,
            cast(Runtime, runtime),
            [lambda: [self.core], lambda: [self.transport], lambda: [self.services]],
            lambda child, what, round_: self.told.append((child.pid, round_)),
        )

    @property
    def head(self) -> int:
        return self.pushed

    @staticmethod
    def process(pid: int) -> Child:
        return cast(Child, SimpleNamespace(pid=pid, ready=True))

    def request(self, data: bytes = b"advance 1 5") -> None:
        self.program.send(data)
        self.advancing.receive()

    def answer(self) -> bytes | None:
        try:
            return self.program.recv(1000)
        except BlockingIOError:
            return None


@pytest.fixture
def tree(clock: ManualClock, connection: ClockConnection) -> Tree:
    return Tree(clock, connection)


def test_each_stage_waits_for_the_one_before(tree: Tree, clock: ManualClock) -> None:
    """queue_guarantees.md §5, 3"""
    tree.request()
    assert (clock.offset_ns, tree.told) == (5, [(1, 1)])
    tree.advancing.passed(tree.core, 1)
    assert tree.told == [(1, 1), (2, 1)]
    tree.advancing.passed(tree.core, 1)
    tree.advancing.passed(tree.transport, 7)  # of another round
    assert tree.answer() is None
    tree.advancing.passed(tree.transport, 1)
    assert tree.told[-1] == (3, 1)
    assert tree.advancing.busy
    tree.advancing.passed(tree.services, 1)
    assert tree.answer() == b"1 ok"
    assert not tree.advancing.busy
    tree.advancing.step()
    tree.request(b"advance 2 0")
    assert tree.told[-1] == (1, 2)


@pytest.mark.parametrize("traffic", ["written", "pushed"])
def test_rounds_are_repeated_while_processes_pass_something_on(tree: Tree, traffic: str) -> None:
    """queue_guarantees.md §5, 3: an action publishes, and a filter is evaluated by a transport."""
    tree.request()
    for round_ in (1, 2, 3):
        tree.advancing.passed(tree.core, round_)
        tree.advancing.passed(tree.transport, round_)
        if round_ < 3:
            setattr(tree, traffic, getattr(tree, traffic) + 1)
        assert tree.answer() is None
        tree.advancing.passed(tree.services, round_)
    assert tree.answer() == b"1 ok"


def test_clients_that_publish_all_the_time_do_not_hold_it_up(tree: Tree) -> None:
    tree.request()
    for round_ in range(1, ROUNDS_MAX + 1):
        assert tree.answer() is None
        for child in (tree.core, tree.transport, tree.services):
            tree.written += 1
            tree.advancing.passed(child, round_)
    assert tree.answer() == b"1 ok"


def test_a_process_that_is_replaced_is_asked_again_when_it_is_ready(tree: Tree) -> None:
    """queue_guarantees.md §5, 3"""
    tree.request()
    tree.core = cast(Any, None)
    tree.advancing.step()
    tree.core = tree.process(8)
    tree.core.ready = False
    tree.advancing.step()
    assert tree.told == [(1, 1)]
    tree.core.ready = True
    tree.advancing.step()
    assert tree.told == [(1, 1), (8, 1)]
    tree.advancing.passed(tree.core, 1)
    assert tree.told[-1] == (2, 1)


def test_a_process_that_does_not_pass_is_an_answer(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advancing, "LIMIT_S", 0.0)
    tree.request()
    assert (tree.answer() or b"").startswith(b"1 failed a process has not passed")
    assert not tree.advancing.busy


def test_a_time_that_is_too_large_is_an_answer_and_the_programs_end_closes(
    tree: Tree, connection: ClockConnection
) -> None:
    tree.request(b"advance 4 %d" % (1 << 62))
    assert (tree.answer() or b"").startswith(b"4 failed the time of the server would be too large")
    assert tree.told == []
    tree.advancing.receive()
    assert tree.advancing.open
    connection._ours.close()
    tree.advancing.receive()
    assert not tree.advancing.open


def test_an_answer_to_an_interrupted_request_is_skipped(connection: ClockConnection) -> None:
    """A program may be interrupted while it waits."""
    connection.theirs.settimeout(10)
    connection.theirs.send(b"1 ok")
    connection._number = 1
    connection.theirs.send(b"2 failed because")
    with pytest.raises(OSError, match=r"^because$"):
        connection.advance(1.5)
    assert connection.theirs.recv(100) == b"advance 2 1500000000"
    connection.theirs.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionError):
        connection.advance(1)
