"""Answers of the core that a sink uses only when they are durable (replication.md §24.5)."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from amps.server.records import KIND_REPLICATION_FLOW, KIND_REPLICATION_VECTOR
from amps.server.replication.core_sessions import CoreSessions

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
