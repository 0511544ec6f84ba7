"""Entering a shared feed at exactly the right position, in order, and with bounded work."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from amps.server.transport import shared_feeds
from amps.server.transport.session import Phase
from amps.server.transport.shared_feeds import DurableFeed


@dataclass
class FakeTailer:
    """A tailer at a position. Each of its steps is one message, for any number of bytes allowed."""

    position: int = 0
    steps: int = 0
    cost: Callable[[], None] = lambda: None

    def run(self, limit: int, bytes_max: int) -> bool:
        assert limit >= self.position, "it was to stop at an earlier place"
        if self.position < limit:
            self.cost()
            self.position += 1
            self.steps += 1
        return self.position == limit


@dataclass
class FakeClock:
    """A clock that advances only by calls of `work`."""

    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def work(self) -> None:
        self.now_s += 0.25


@dataclass
class Stage:
    """A feed with a tailer and one member that has costly filters."""

    clock: FakeClock
    tailer: FakeTailer
    view: SimpleNamespace
    members: set[str]
    turns_asked: list[str] = field(default_factory=list)
    done: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        members: Any = SimpleMembers(self.members)
        core: Any = SimpleNamespace(view=self.view)
        self.feed = DurableFeed(members, core, lambda: self.turns_asked.append("turn"), lambda: None)
        tailer: Any = self.tailer
        self.feed.tailer = tailer

    def enter(self, name: str, also: Callable[[], None] = lambda: None) -> Any:
        connection: Any = SimpleNamespace(phase=Phase.READY)

        def action() -> None:
            self.done.append((name, self.tailer.position))
            also()

        self.feed.enter(connection, action)
        return connection

    def leave(self, name: str) -> None:
        subscription: Any = name
        self.feed.remove(subscription)

    def run_to_the_end(self) -> int:
        """Run until the feed has caught up. Returns the number of turns."""
        turns = 1
        while not self.feed.run():
            turns += 1
            assert turns < 1000
        return turns


class SimpleMembers:
    """The names of members."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __bool__(self) -> bool:
        return bool(self._names)

    def remove(self, name: str) -> None:
        self._names.discard(name)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    clock = FakeClock()
    monkeypatch.setattr(shared_feeds, "time", clock)
    return Stage(clock, FakeTailer(cost=clock.work), SimpleNamespace(durable=0), {"costly"})


def test_shared_feed_a_client_at_its_position_enters_at_once(stage: Stage) -> None:
    stage.enter("a")
    stage.view.durable = 1
    stage.enter("b")
    assert stage.done == [("a", 0), ("b", 1)]
    assert not stage.turns_asked


def test_shared_feed_each_enters_at_its_place_in_order(stage: Stage) -> None:
    for name, durable in (("a", 5), ("b", 5), ("c", 8)):
        stage.view.durable = durable
        stage.enter(name)
    stage.view.durable = 10
    assert stage.turns_asked
    assert not stage.done
    stage.run_to_the_end()
    assert stage.done == [("a", 5), ("b", 5), ("c", 8)]
    assert stage.tailer.position == 10


def test_shared_feed_later_clients_enter_behind_waiting_ones(stage: Stage) -> None:
    """A later client enters behind waiting ones, even if the tailer could reach its position in one step."""
    stage.view.durable = 3
    stage.enter("a")
    stage.feed.run()
    assert stage.tailer.position == 2
    stage.enter("b")
    assert stage.done == []
    stage.run_to_the_end()
    assert stage.done == [("a", 3), ("b", 3)]


def test_shared_feed_a_turn_evaluates_one_costly_message_however_many_wait(stage: Stage) -> None:
    for durable in range(2, 30):
        stage.view.durable = durable
        stage.enter(f"{durable}")
    while len(stage.done) < 28:
        before = stage.tailer.steps
        stage.feed.run()
        assert stage.tailer.steps <= before + 1
    assert stage.done == [(f"{durable}", durable) for durable in range(2, 30)]


def test_shared_feed_steps_between_turns_are_bounded(stage: Stage) -> None:
    """A client that subscribes repeatedly, with one costly message between two commands, does not block the worker."""
    for durable in range(1, 100):
        stage.view.durable = durable
        stage.enter(f"{durable}")
    assert stage.tailer.steps == 1
    stage.run_to_the_end()
    assert stage.done == [(f"{durable}", durable) for durable in range(1, 100)]


def test_shared_feed_the_time_for_entering_counts_against_the_turn(stage: Stage) -> None:
    stage.view.durable = 2
    for number in range(20):
        stage.enter(f"{number}", stage.clock.work)
    while len(stage.done) < 20:
        before = len(stage.done)
        stage.feed.run()
        assert len(stage.done) <= before + 1
    assert [position for _, position in stage.done] == [2] * 20


def test_shared_feed_a_closed_client_does_not_enter(stage: Stage) -> None:
    stage.view.durable = 3
    gone, _ = stage.enter("gone"), stage.enter("b")
    gone.phase = Phase.CLOSED
    stage.run_to_the_end()
    assert stage.done == [("b", 3)]


def test_shared_feed_the_tailer_stays_for_waiting_clients(stage: Stage) -> None:
    """The last member may leave earlier. Waiting clients still need the tailer's position."""
    stage.view.durable = 3
    stage.enter("a", lambda: stage.members.add("a"))
    stage.leave("costly")
    stage.view.durable = 5
    stage.run_to_the_end()
    assert stage.done == [("a", 3)]
    assert stage.tailer.position == 5
    stage.leave("a")
    assert stage.feed.tailer is None
    assert stage.feed.run()


def test_shared_feed_the_tailer_is_dropped_when_all_have_left(stage: Stage) -> None:
    stage.view.durable = 3
    connection = stage.enter("a")
    stage.leave("costly")
    connection.phase = Phase.CLOSED
    stage.run_to_the_end()
    assert stage.feed.tailer is None


def test_shared_feed_an_entering_client_may_enter_another_one_and_leave(stage: Stage) -> None:
    """Releasing a client's input carries out its next commands immediately."""
    stage.view.durable = 3

    def next_commands() -> None:
        stage.view.durable = 6
        stage.enter("next")
        stage.leave("costly")

    stage.enter("a", next_commands)
    stage.run_to_the_end()
    assert stage.done == [("a", 3), ("next", 6)]
    assert stage.feed.tailer is None
