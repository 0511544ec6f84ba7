"""A worker's turns: their causes, the polling after them, and the sleep."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from amps.server.transport import turns as module
from amps.server.transport.turns import BUSY_POLL_NS, REST_S, Turns


@dataclass
class Timer:
    delay_s: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """An event loop that runs scheduled calls one by one."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.later: list[Timer] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "Timer":
        self.later.append(Timer(delay_s, call))
        return self.later[-1]

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def add_reader(self, descriptor: int, call: Callable[[], None]) -> None:
        self.woken = call

    def step(self) -> None:
        self.calls.popleft()()


class Harness:
    """Turns over a core, an event loop and a clock that the test controls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1000
        self.asleep = False
        self.changed = False
        self.published = True
        self.more = False
        self.may_deliver = True
        self.has_connections = True
        self.turns_had = 0
        self.loop = Loop()
        self.failures: list[str] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: self.now_ns))
        self.view = SimpleNamespace(
            moved=lambda: self.changed,
            wake=self._wake,
            fall_asleep=self._fall_asleep,
            journal_written=0,
            transient_written=0,
            durable=0,
        )
        core: Any = SimpleNamespace(view=self.view, publish_pushed=lambda: self.published)
        wake_up: Any = SimpleNamespace(fd=0, clear=lambda: None)
        self.turns = Turns(
            core,
            wake_up,
            self._work,
            lambda: self.may_deliver,
            lambda: self.has_connections,
            self.failures.append,
        )
        loop: Any = self.loop
        self.turns.begin(loop)
        self.loop.step()
        self.sleep()
        self.turns_had = 0

    def _wake(self) -> None:
        self.asleep = False

    def _fall_asleep(self) -> bool:
        self.asleep = not self.changed
        return self.asleep

    def _work(self) -> bool:
        self.turns_had += 1
        self.changed = False
        return self.more

    def sleep(self) -> None:
        """Let time pass until the worker sleeps."""
        self.now_ns += BUSY_POLL_NS
        while self.loop.calls:
            self.loop.step()
        assert self.asleep


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(monkeypatch)


def test_turns_polls_for_the_core_and_the_sockets(harness: Harness) -> None:
    """After input that a client of this worker may receive, the worker polls.

    The core need not send a wake-up, and the event loop runs in between.
    """
    harness.turns.pushed(False)
    for _ in range(5):
        harness.loop.step()
        assert len(harness.loop.calls) == 1
        assert not harness.asleep
    assert harness.turns_had == 0
    harness.changed = True
    harness.loop.step()
    assert harness.turns_had == 1
    assert not harness.asleep
    harness.sleep()
    assert harness.turns_had == 1


def test_turns_more_input_lengthens_it_and_does_not_double_it(harness: Harness) -> None:
    harness.turns.pushed(False)
    harness.now_ns += BUSY_POLL_NS - 1
    harness.turns.pushed(False)
    assert len(harness.loop.calls) == 1
    harness.now_ns += BUSY_POLL_NS - 1
    harness.loop.step()
    assert not harness.asleep
    harness.now_ns += 1
    harness.loop.step()
    assert harness.asleep
    assert not harness.loop.calls


@pytest.mark.parametrize(("published", "may_deliver"), [(False, True), (True, False)])
def test_turns_sleeps_on_when_no_answer_is_expected(
    harness: Harness, published: bool, may_deliver: bool
) -> None:
    harness.published = published
    harness.may_deliver = may_deliver
    harness.turns.pushed(False)
    assert harness.asleep
    assert not harness.loop.calls


def test_turns_waiting_output_gets_a_turn_at_once(harness: Harness) -> None:
    harness.turns.pushed(False)
    harness.turns.pushed(True)
    while harness.loop.calls and not harness.turns_had:
        harness.loop.step()
    assert harness.turns_had == 1
    harness.sleep()
    assert harness.turns_had == 1


def test_turns_events_while_it_falls_asleep_are_not_missed(harness: Harness) -> None:
    harness.turns.pushed(False)
    harness.now_ns += BUSY_POLL_NS
    harness.turns._core.view.moved = lambda: False  # type: ignore[method-assign]
    harness.changed = True
    harness.loop.step()
    assert not harness.asleep
    harness.loop.step()
    assert harness.turns_had == 1


def test_turns_unfinished_work_brings_the_next_turn(harness: Harness) -> None:
    harness.more = True
    harness.turns.schedule()
    for expected in (1, 2, 3):
        harness.loop.step()
        assert harness.turns_had == expected
        assert len(harness.loop.calls) == 1
    harness.more = False
    harness.loop.step()
    harness.sleep()


def test_turns_a_wake_up_brings_one(harness: Harness) -> None:
    harness.loop.woken()
    assert harness.turns_had == 1
    harness.sleep()


@pytest.mark.parametrize("moves", ["journal_written", "transient_written", "durable"])
def test_turns_a_worker_without_connections_rests_while_the_log_moves(harness: Harness, moves: str) -> None:
    """It stays awake meanwhile: otherwise the core and the flusher would wake it for each move."""
    harness.has_connections = False
    for _ in range(2):
        setattr(harness.view, moves, getattr(harness.view, moves) + 1)
        harness.loop.woken()
        assert not harness.asleep
        assert not harness.loop.calls
        rest = harness.loop.later.pop()
        assert rest.delay_s == REST_S
    before = harness.turns_had
    rest.call()
    assert harness.turns_had == before + 1
    assert harness.asleep, "the log stands still"
    assert not harness.loop.later


def test_turns_whatever_comes_ends_the_rest(harness: Harness) -> None:
    harness.has_connections = False
    harness.view.durable = 1
    harness.loop.woken()
    (rest,) = harness.loop.later
    harness.has_connections = True
    harness.turns.schedule()
    harness.loop.step()
    assert rest.cancelled
    assert not harness.asleep
    harness.sleep()


def test_turns_changes_while_it_begins_to_sleep_without_connections_are_not_missed(harness: Harness) -> None:
    harness.has_connections = False
    harness.view.fall_asleep = lambda: False
    harness.loop.woken()
    (rest,) = harness.loop.later
    assert rest.delay_s == REST_S


def test_turns_a_failed_turn_is_the_last(harness: Harness) -> None:
    def fail() -> bool:
        raise ValueError("broken")

    harness.turns._work = fail  # type: ignore[method-assign]
    harness.turns.schedule()
    harness.loop.step()
    assert "broken" in harness.failures[0]
    assert not harness.loop.calls
