"""Carrying out commands as coroutines: when they go on, what holds the input, and how they end."""

import gc
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amps._core.journal.reader import LogDamaged
from amps.server.transport.command import Command, Wait, until
from amps.server.transport.failures import CommandFailure
from amps.server.transport.session import Phase


class FakeSession:
    """Notes what is done with its input, and what it is answered."""

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
    """Something to wait for, as often as one likes; `tell` says that the oldest wait is over."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], None]] = []

    def wait(self) -> Wait[Any]:
        return Wait(self.waiting.append)

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

    def command(self, **header: Any) -> Command:
        session: Any = self.session
        worker: Any = self.worker
        return Command(session, worker, {"cmd": "sow", "cmd_id": "1", **header})


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_input_is_held_from_the_beginning_to_the_end(stage: Stage) -> None:
    async def carry_out() -> None:
        stage.done.append("begun")
        stage.done.append(await stage.place.wait())

    stage.command().run(carry_out())
    assert stage.done == ["hold", "begun"]
    assert len(stage.session.under_way) == 1
    stage.place.tell("result")
    assert stage.done == ["hold", "begun", "result", "release"]
    assert not stage.session.under_way


def test_it_goes_on_inside_the_call_that_ends_the_wait(stage: Stage) -> None:
    """A subscription is answered where it was entered, before the tailer goes on."""

    async def carry_out() -> None:
        await stage.place.wait()
        stage.done.append("answered")

    stage.command().run(carry_out(), holds=False)
    stage.place.tell()
    stage.done.append("told")
    assert stage.done == ["answered", "told"]


def test_waits_that_are_over_at_once_cost_no_depth(stage: Stage) -> None:
    async def carry_out() -> None:
        total = 0
        for number in range(10 * sys.getrecursionlimit()):
            total += await Wait(lambda over, number=number: over(number))  # type: ignore[misc]
        stage.done.append(total)

    stage.command().run(carry_out(), holds=False)
    count = 10 * sys.getrecursionlimit()
    assert stage.done == [count * (count - 1) // 2]


def test_a_wait_without_a_result(stage: Stage) -> None:
    told: list[Callable[[], None]] = []

    async def carry_out() -> None:
        assert await until(told.append) is None  # type: ignore[func-returns-value]
        stage.done.append("on")

    stage.command().run(carry_out(), holds=False)
    assert stage.done == []
    told[0]()
    assert stage.done == ["on"]


def test_a_closed_session_ends_its_commands_and_keeps_nothing(stage: Stage) -> None:
    class Kept:
        pass

    references: list[weakref.ref[Kept]] = []

    async def carry_out() -> None:
        kept = Kept()
        references.append(weakref.ref(kept))
        try:
            await stage.place.wait()
            stage.done.append("went on")
        finally:
            stage.done.append("cleaned up")

    gc.disable()
    try:
        coroutines = [carry_out(), carry_out()]
        for coroutine in coroutines:
            stage.command().run(coroutine)
        assert len(stage.session.under_way) == 2
        stage.session.close()
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
    assert stage.done == ["hold", "hold", "cleaned up", "cleaned up"]
    assert not stage.session.under_way
    # Whatever they waited for still comes.
    stage.place.tell()
    stage.place.tell()
    assert "went on" not in stage.done
    assert "release" not in stage.done


def test_the_phase_counts_even_if_no_one_has_said_that_the_session_ended(stage: Stage) -> None:
    async def carry_out() -> None:
        await stage.place.wait()
        stage.done.append("went on")

    stage.command().run(carry_out())
    stage.session.phase = Phase.CLOSED
    stage.place.tell()
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_a_command_may_close_its_own_session(stage: Stage) -> None:
    async def carry_out() -> None:
        stage.session.close()
        stage.done.append("closed")
        try:
            await stage.place.wait()
            stage.done.append("went on")
        finally:
            stage.done.append("cleaned up")

    coroutine = carry_out()
    stage.command().run(coroutine)
    assert stage.done == ["hold", "closed", "cleaned up"]
    assert not stage.place.waiting
    assert not stage.session.under_way


def test_a_session_may_close_while_a_wait_is_begun(stage: Stage) -> None:
    def begin(over: Callable[[None], None]) -> None:
        stage.session.close()
        over(None)

    async def carry_out() -> None:
        await Wait(begin)
        stage.done.append("went on")

    stage.command().run(carry_out())
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_a_refusal_is_answered_before_the_input_goes_on(stage: Stage) -> None:
    """`received` was sent when the command came."""

    async def carry_out() -> None:
        await stage.place.wait()
        raise CommandFailure("bad filter")

    stage.command(ack_type="received,processed").run(carry_out())
    stage.place.tell()
    assert stage.done == ["hold", "02-0030", ("processed", "1", "bad filter"), "release"]


def test_a_refusal_of_a_closed_session_is_not_answered(stage: Stage) -> None:
    async def carry_out() -> None:
        stage.session.close()
        raise CommandFailure("bad filter")

    stage.command(ack_type="processed").run(carry_out())
    assert stage.done == ["hold"]


def test_damage_to_the_journal_ends_the_connection(stage: Stage) -> None:
    async def carry_out() -> None:
        await stage.place.wait()
        raise LogDamaged("path", 0, "detail")

    stage.command().run(carry_out())
    stage.place.tell()
    assert len(stage.damaged) == 1
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_what_a_wait_raises_while_it_is_begun_comes_to_the_coroutine(stage: Stage) -> None:
    def begin(over: Callable[[None], None]) -> None:
        raise CommandFailure("invalid bookmark")

    async def carry_out() -> None:
        try:
            await Wait(begin)
        except CommandFailure:
            stage.done.append("caught")
        await Wait(begin)

    stage.command(ack_type="processed").run(carry_out())
    assert stage.done == ["hold", "caught", "02-0030", ("processed", "1", "invalid bookmark"), "release"]


def test_failures_keep_nothing_alive(stage: Stage) -> None:
    """What a failure refers to may be a journal's file."""

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

    async def fail_at_once() -> None:
        fail()

    async def fail_at_a_wait() -> None:
        await Wait(lambda over: fail())

    gc.disable()
    try:
        for coroutine in (fail_at_once(), fail_at_a_wait()):
            stage.command().run(coroutine)
            del coroutine
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()


def test_an_exception_that_nothing_foresaw_goes_to_the_caller(stage: Stage) -> None:
    async def carry_out() -> None:
        await stage.place.wait()
        raise OverflowError

    stage.command().run(carry_out())
    with pytest.raises(OverflowError):
        stage.place.tell()
    # The caller ends the connection, or the worker.
    assert stage.done == ["hold"]
    assert not stage.session.under_way


def test_input_may_be_let_go_before_the_end(stage: Stage) -> None:
    async def carry_out() -> None:
        command.release()
        await stage.place.wait()
        stage.done.append("end")

    command = stage.command()
    command.run(carry_out())
    assert stage.done == ["hold", "release"]
    stage.place.tell()
    assert stage.done == ["hold", "release", "end"]


def test_input_goes_on_behind_refusals_that_must_be_told_first(stage: Stage) -> None:
    async def carry_out() -> None:
        stage.session.acks.crowded = True

    stage.command().run(carry_out())
    assert stage.done == ["hold"]
    assert stage.later == [stage.session]


def test_the_next_command_may_be_carried_out_by_the_release(stage: Stage) -> None:
    session = stage.session
    next_ones = ["second", "third"]

    def release() -> None:
        stage.done.append("release")
        if next_ones:
            name = next_ones.pop(0)
            stage.command().run(carry_out(name))

    session.release = release  # type: ignore[method-assign]

    async def carry_out(name: str) -> None:
        stage.done.append(name)

    stage.command().run(carry_out("first"))
    assert stage.done == ["hold", "first", "release", "hold", "second", "release", "hold", "third", "release"]
    assert not session.under_way
