"""Answers of the core that a sink uses only when they are durable (replication.md §24.5)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps.server.records import KIND_REPLICATION_FLOW, KIND_REPLICATION_VECTOR
from amps.server.replication.core_sessions import BUSY_BYTES, REST_S, CoreSessions

POSITION = 4711
LAST_TXID = 99
VECTOR = bytes(range(32))


class _Sessions(CoreSessions):
    """Its core answers at once, and the test says when the log is durable."""

    def __init__(self, directory: Path) -> None:
        self._runtime = cast(Any, SimpleNamespace(directory=SimpleNamespace(path=directory)))
        self._loop = asyncio.get_running_loop()
        self._sessions = {}
        self._serial = 0
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        self.link = cast(
            Any, SimpleNamespace(when_durable=lambda position, then: self.waiting.append((position, then)))
        )

    def schedule(self) -> None:
        pass

    async def _ask(self, session: Any, content: list[Any], kind: int) -> list[Any]:
        if kind == KIND_REPLICATION_FLOW:
            return [LAST_TXID, POSITION]
        assert kind == KIND_REPLICATION_VECTOR
        Path(content[0]).write_bytes(VECTOR)
        return [2, POSITION]


async def _only_when_durable(sessions: _Sessions, work: asyncio.Task[Any]) -> Any:
    for _ in range(5):
        await asyncio.sleep(0)
    assert not work.done()
    [(position, then)] = sessions.waiting
    assert position == POSITION
    then()
    sessions.waiting.clear()
    return await work


def test_what_a_resume_says_is_durable(tmp_path: Path) -> None:
    """A crash of the machine must not take back what the source was told: it would never send that again."""

    async def resume() -> None:
        sessions = _Sessions(tmp_path)
        begun = asyncio.create_task(sessions.begin_session("amps-server: from A e1 e2"))
        session, last_txid = await _only_when_durable(sessions, begun)
        assert last_txid == LAST_TXID
        read = asyncio.create_task(sessions.vector(session))
        assert await _only_when_durable(sessions, read) == VECTOR
        assert list(tmp_path.iterdir()) == []

    asyncio.run(resume())


class _Turns(CoreSessions):
    """Turns over a log, a time and a loop that the test controls."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.asleep = False
        self.changed = False
        self.view = SimpleNamespace(
            wake=lambda: setattr(self, "asleep", False),
            read=lambda: None,
            set_transient_read=lambda position: None,
            fall_asleep=self._fall_asleep,
            transient_written=0,
            journal_written=0,
            durable=0,
        )

        def nothing() -> None:
            """Nothing is to be done."""

        self.link = cast(
            Any,
            SimpleNamespace(
                view=self.view,
                answers=list,
                push_waiting=nothing,
                run_waiting=nothing,
                publish_pushed=nothing,
                durable_awaited=False,
            ),
        )
        self._loop = cast(
            Any,
            SimpleNamespace(
                time=lambda: self.now_s,
                call_soon=self.soon.append,
                call_later=lambda delay_s, call: self.later.append((delay_s, call)),
            ),
        )
        self._sessions = {}
        self._scheduled = self._stopped = self.wants_durable = False
        self._seen, self._rests_until_s = 0, 0.0
        self._moved = nothing
        self._failed = lambda trace: self.failures.append(trace)
        self.failures: list[str] = []

    def _fall_asleep(self) -> bool:
        self.asleep = not self.changed
        return self.asleep

    def grow(self, count: int) -> None:
        """The log grows; then there is a turn."""
        self.view.journal_written += count
        self.schedule()
        (turn,) = self.soon
        self.soon.clear()
        turn()
        assert not self.failures


def test_turns_rest_while_the_log_grows_fast() -> None:
    """The process stays awake meanwhile, and events wait for the next turn. A slow log is followed at once."""
    turns = _Turns()
    turns.grow(BUSY_BYTES - 1)
    assert turns.asleep
    assert not turns.later
    turns.grow(BUSY_BYTES)
    assert not turns.asleep
    ((delay_s, turn),) = turns.later
    assert delay_s == pytest.approx(REST_S)
    turns.schedule()
    assert not turns.soon, "a turn is due already"
    turns.now_s += REST_S
    turn()
    assert turns.asleep
    turns.view.durable += BUSY_BYTES
    turns.grow(0)
    turns.now_s += REST_S
    turns.later.pop()[1]()
    turns.changed = True
    turns.grow(1)
    assert not turns.asleep
    assert len(turns.soon) == 1, "something has changed in the turn"
