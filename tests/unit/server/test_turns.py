"""A worker's turns: what brings one, how long it lingers after one, and when it sleeps."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amps.server.transport import turns as module
from amps.server.transport.turns import LINGER_NS, Turns


class Loop:
    """An event loop that runs what was called for one by one."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def add_reader(self, descriptor: int, call: Callable[[], None]) -> None:
        self.rung = call

    def step(self) -> None:
        self.calls.popleft()()


class Bench:
    """Turns over a core, an event loop and a clock that do what they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 1000
        self.asleep = False
        self.changed = False
        self.published = True
        self.more = False
        self.turns_had = 0
        self.loop = Loop()
        self.failures: list[str] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic_ns=lambda: self.now_ns))
        view = SimpleNamespace(moved=lambda: self.changed, wake=self._wake, fall_asleep=self._fall_asleep)
        core: Any = SimpleNamespace(view=view, publish_pushed=lambda: self.published)
        bell: Any = SimpleNamespace(fd=0, clear=lambda: None)
        self.turns = Turns(core, bell, self._work, self.failures.append)
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
        self.now_ns += LINGER_NS
        while self.loop.calls:
            self.loop.step()
        assert self.asleep


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_turns_lingers_for_the_core_and_the_sockets(bench: Bench) -> None:
    """After input that somebody here may get: the core need not ring, and the event loop goes round in between."""
    bench.turns.pushed(False, True)
    for _ in range(5):
        bench.loop.step()
        assert len(bench.loop.calls) == 1
        assert not bench.asleep
    assert bench.turns_had == 0
    bench.changed = True
    bench.loop.step()
    assert bench.turns_had == 1
    assert not bench.asleep
    bench.sleep()
    assert bench.turns_had == 1


def test_turns_more_input_lengthens_it_and_does_not_double_it(bench: Bench) -> None:
    bench.turns.pushed(False, True)
    bench.now_ns += LINGER_NS - 1
    bench.turns.pushed(False, True)
    assert len(bench.loop.calls) == 1
    bench.now_ns += LINGER_NS - 1
    bench.loop.step()
    assert not bench.asleep
    bench.now_ns += 1
    bench.loop.step()
    assert bench.asleep
    assert not bench.loop.calls


@pytest.mark.parametrize(("published", "may_wait"), [(False, True), (True, False)])
def test_turns_sleeps_on_when_nothing_is_to_be_expected(
    bench: Bench, published: bool, may_wait: bool
) -> None:
    bench.published = published
    bench.turns.pushed(False, may_wait)
    assert bench.asleep
    assert not bench.loop.calls


def test_turns_output_that_waits_has_a_turn_at_once(bench: Bench) -> None:
    bench.turns.pushed(False, True)
    bench.turns.pushed(True, True)
    while bench.loop.calls and not bench.turns_had:
        bench.loop.step()
    assert bench.turns_had == 1
    bench.sleep()
    assert bench.turns_had == 1


def test_turns_what_happens_while_it_falls_asleep_is_not_missed(bench: Bench) -> None:
    bench.turns.pushed(False, True)
    bench.now_ns += LINGER_NS
    bench.turns._core.view.moved = lambda: False  # type: ignore[method-assign]
    bench.changed = True
    bench.loop.step()
    assert not bench.asleep
    bench.loop.step()
    assert bench.turns_had == 1


def test_turns_work_that_is_left_brings_the_next_turn(bench: Bench) -> None:
    bench.more = True
    bench.turns.schedule()
    for expected in (1, 2, 3):
        bench.loop.step()
        assert bench.turns_had == expected
        assert len(bench.loop.calls) == 1
    bench.more = False
    bench.loop.step()
    bench.sleep()


def test_turns_the_bell_brings_one(bench: Bench) -> None:
    bench.loop.rung()
    assert bench.turns_had == 1
    bench.sleep()


def test_turns_one_that_fails_is_the_last(bench: Bench) -> None:
    def fail() -> bool:
        raise ValueError("broken")

    bench.turns._work = fail  # type: ignore[method-assign]
    bench.turns.schedule()
    bench.loop.step()
    assert "broken" in bench.failures[0]
    assert not bench.loop.calls
