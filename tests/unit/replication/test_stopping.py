"""How replication ends in order (amps/server/replication/replication.py)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from amps.server.replication.replication import Replication


class _Core:
    """Its log grows with each turn: other instances go on to send records."""

    def __init__(self, source: SimpleNamespace) -> None:
        self.written = 1000
        self.link = SimpleNamespace(written=lambda: self.written)
        self.turns = 0
        self._source = source

    def schedule(self) -> None:
        self.turns += 1
        self.written += 100
        self._source.acked_position += 100

    def stop(self) -> None:
        pass


def test_a_stop_waits_for_what_the_log_had_and_not_for_what_others_still_send() -> None:
    source = SimpleNamespace(acked_position=500)
    core = _Core(source)
    surroundings = SimpleNamespace(
        _incoming=[],
        core=core,
        destinations=[SimpleNamespace(connection=object(), source=source)],
        links=[],
        _end_tasks=lambda: None,
        _save=lambda: None,
        durable=lambda: core.written,
    )
    asyncio.run(Replication.stop(cast(Any, surroundings)))
    assert core.turns == 5
