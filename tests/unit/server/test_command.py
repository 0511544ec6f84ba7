"""Commands carried out as coroutines: when they continue, what holds the input, and how they end."""

import gc
import sys
import weakref
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from amps._core.journal.reader import LogDamaged
from amps.server.transport.command import Command
from amps.server.transport.failures import CommandFailure
from amps.server.transport.session import Phase


class FakeSession:
    """A session that records the calls about its input, and its answers."""

    def __init__(self) -> None:
        self.phase = Phase.READY
        self.under_way: set[Command] = set()
        self.acks = SimpleNamespace(crowded=False)
        self.shown_name = "c"
        self.done: list[Any] = []
        self.log = SimpleNamespace(log=lambda record_id, **values: self.done.append(record_id))

    def hold(self) -> None:
        self.done.append("hold")

    def release(self) -> None:
        self.done.append("release")

    def acknowledge(self, kind: str, command_id: str | None, failure: str, **extra: Any) -> None:
        self.done.append((kind, command_id, failure))

    def close(self) -> None:
        self.phase = Phase.CLOSED
        for command in list(self.under_way):
            command.cancel()


class Place:
    """A condition that can be waited for repeatedly; `tell` ends the oldest wait."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []

    def begin(self, over: Callable[[Any], None]) -> None:
        self.waiting.append(over)

    def tell(self, result: Any = None) -> None:
        self.waiting.pop(0)(result)


class Stage:
    def __init__(self) -> None:
        self.session = FakeSession()
        self.damaged: list[LogDamaged] = []
        self.later: list[Any] = []
        feeds = SimpleNamespace(journal_damaged=self._damaged)
        core = SimpleNamespace(release_later=self.later.append)
        self.worker = SimpleNamespace(feeds=feeds, core=core)
        self.place = Place()
        self.done = self.session.done

    def _damaged(self, connection: FakeSession, damage: LogDamaged) -> None:
        self.damaged.append(damage)
        connection.close()

    def run(
        self, carry_out: Callable[[Command], Coroutine[None, None, None]], *, holds: bool = True, **header: Any
    ) -> Coroutine[None, None, None]:
        session: Any = self.session
        worker: Any = self.worker
        command = Command(session, worker, {"cmd": "sow", "cmd_id": "1", **header})
        coroutine = carry_out(command)
        command.run(coroutine, holds=holds)
        return coroutine


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_input_is_held_from_the_beginning_to_the_end(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        stage.done.append("begun")
        stage.done.append(await command.wait(stage.place.begin))

    stage.run(carry_out)
    assert stage.done == ["hold", "begun"]
    assert len(stage.session.under_way) == 1
    stage.place.tell("result")
    assert stage.done == ["hold", "begun", "result", "release"]
    assert not stage.session.under_way


def test_it_continues_inside_the_call_that_ends_the_wait(stage: Stage) -> None:
    """A subscription is answered in the place where it was entered, before the tailer goes on."""

    async def carry_out(command: Command) -> None:
        await command.wait(stage.place.begin)
        stage.done.append("answered")

    stage.run(carry_out, holds=False)
    stage.place.tell()
    stage.done.append("told")
    assert stage.done == ["answered", "told"]


def test_waits_that_are_over_at_once_cost_no_depth(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        total = 0
        for number in range(10 * sys.getrecursionlimit()):
            total += await command.wait(lambda over, number=number: over(number))  # type: ignore[misc]
        stage.done.append(total)

    stage.run(carry_out, holds=False)
    count = 10 * sys.getrecursionlimit()
    assert stage.done == [count * (count - 1) // 2]


def test_a_wait_without_a_result(stage: Stage) -> None:
    told: list[Callable[[], None]] = []

    async def carry_out(command: Command) -> None:
        assert await command.until(told.append) is None  # type: ignore[func-returns-value]
        stage.done.append("on")

    stage.run(carry_out, holds=False)
    assert stage.done == []
    told[0]()
    assert stage.done == ["on"]


def test_a_closed_session_ends_its_commands_and_keeps_nothing(stage: Stage) -> None:
    class Kept:
        pass

    references: list[weakref.ref[Kept]] = []

    async def carry_out(command: Command) -> None:
        kept = Kept()
        references.append(weakref.ref(kept))
        try:
            await command.wait(stage.place.begin)
            stage.done.append("went on")
        finally:
            stage.done.append("cleaned up")

    gc.disable()
    try:
        _kept = [stage.run(carry_out), stage.run(carry_out)]
        assert len(stage.session.under_way) == 2
        stage.session.close()
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
    assert stage.done == ["hold", "hold", "cleaned up", "cleaned up"]
    assert not stage.session.under_way
    # The conditions that they waited for still occur.
    stage.place.tell()
    stage.place.tell()
    assert "went on" not in stage.done
    assert "release" not in stage.done


def test_the_phase_counts_even_without_a_notification_that_the_session_ended(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        await command.wait(stage.place.begin)
        stage.done.append("went on")

    stage.run(carry_out)
    stage.session.phase = Phase.CLOSED
    stage.place.tell()
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_a_command_may_close_its_own_session(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        stage.session.close()
        stage.done.append("closed")
        try:
            await command.wait(stage.place.begin)
            stage.done.append("went on")
        finally:
            stage.done.append("cleaned up")

    _kept = stage.run(carry_out)
    assert stage.done == ["hold", "closed", "cleaned up"]
    assert not stage.place.waiting
    assert not stage.session.under_way


def test_a_session_may_close_while_a_wait_is_begun(stage: Stage) -> None:
    def begin(over: Callable[[None], None]) -> None:
        stage.session.close()
        over(None)

    async def carry_out(command: Command) -> None:
        await command.wait(begin)
        stage.done.append("went on")

    stage.run(carry_out)
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_a_refusal_is_answered_before_the_input_goes_on(stage: Stage) -> None:
    """`received` was sent when the command arrived."""

    async def carry_out(command: Command) -> None:
        await command.wait(stage.place.begin)
        raise CommandFailure("bad filter")

    stage.run(carry_out, ack_type="received,processed")
    stage.place.tell()
    assert stage.done == ["hold", "02-0030", ("processed", "1", "bad filter"), "release"]


def test_a_refusal_of_a_closed_session_is_not_answered(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        stage.session.close()
        raise CommandFailure("bad filter")

    stage.run(carry_out, ack_type="processed")
    assert stage.done == ["hold"]


def test_damage_to_the_journal_ends_the_connection(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        await command.wait(stage.place.begin)
        raise LogDamaged("path", 0, "detail")

    stage.run(carry_out)
    stage.place.tell()
    assert len(stage.damaged) == 1
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_an_exception_while_a_wait_begins_is_raised_in_the_coroutine(stage: Stage) -> None:
    def begin(over: Callable[[None], None]) -> None:
        raise CommandFailure("invalid bookmark")

    async def carry_out(command: Command) -> None:
        try:
            await command.wait(begin)
        except CommandFailure:
            stage.done.append("caught")
        await command.wait(begin)

    stage.run(carry_out, ack_type="processed")
    assert stage.done == ["hold", "caught", "02-0030", ("processed", "1", "invalid bookmark"), "release"]


def test_failures_keep_nothing_alive(stage: Stage) -> None:
    """A failure may refer to a journal's file."""

    class Failure(CommandFailure):
        pass

    references: list[weakref.ref[Failure]] = []

    def fail() -> None:
        failure = Failure("bad filter")
        references.append(weakref.ref(failure))
        try:
            raise failure
        finally:
            del failure

    async def fail_at_once(command: Command) -> None:
        fail()

    async def fail_at_a_wait(command: Command) -> None:
        await command.wait(lambda over: fail())

    gc.disable()
    try:
        for carry_out in (fail_at_once, fail_at_a_wait):
            stage.run(carry_out)
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_an_unexpected_exception_is_raised_in_the_caller(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        await command.wait(stage.place.begin)
        raise OverflowError

    stage.run(carry_out)
    with pytest.raises(OverflowError):
        stage.place.tell()
    # The caller ends the connection, or the worker.
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_input_may_be_released_before_the_end(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        command.release()
        await command.wait(stage.place.begin)
        stage.done.append("end")

    stage.run(carry_out)
    assert stage.done == ["hold", "release"]
    stage.place.tell()
    assert stage.done == ["hold", "release", "end"]


def test_input_continues_behind_refusals_that_must_be_sent_first(stage: Stage) -> None:
    async def carry_out(command: Command) -> None:
        stage.session.acks.crowded = True

    stage.run(carry_out)
    assert stage.done == ["hold"]
    assert stage.later == [stage.session]


def test_the_next_command_may_be_carried_out_by_the_release(stage: Stage) -> None:
    session = stage.session
    next_ones = ["second", "third"]

    def release() -> None:
        stage.done.append("release")
        if next_ones:
            name = next_ones.pop(0)
            begin(name)

    session.release = release  # type: ignore[method-assign]

    def begin(name: str) -> None:
        async def carry_out(command: Command) -> None:
            stage.done.append(name)

        stage.run(carry_out)

    begin("first")
    assert stage.done == ["hold", "first", "release", "hold", "second", "release", "hold", "third", "release"]
    assert not session.under_way
