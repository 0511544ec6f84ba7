"""An event loop of asyncio without system calls: its time is the simulation's, and it runs only when the world says so.

Each simulated process has a loop of its own. So a paused process stands still while the others go on, and a dead one
never runs again: no `finally` of it, no callback.
"""

import asyncio
from collections.abc import Callable
from typing import Any


class _NoSelector:
    """There is nothing to wait for: the world decides what happens next."""

    def select(self, timeout: float | None) -> list[Any]:
        return []

    def close(self) -> None: ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. `now_s`: the world's time, which only grows. `failed`: gets what no code awaited."""

    def __init__(self, now_s: Callable[[], float], failed: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._now_s = now_s
        self._selector = _NoSelector()
        self.set_exception_handler(lambda loop, context: failed(context))

    def time(self) -> float:
        return self._now_s()

    def _process_events(self, events: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    @property
    def busy(self) -> bool:
        """Whether something is to be run now."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        return bool(self._ready) or bool(scheduled and scheduled[0].when() <= self.time())  # type: ignore[attr-defined]

    def run_some(self, rounds: int) -> None:
        """Run what is ready, at most that many rounds of callbacks."""
        with Running(self):
            for _ in range(rounds):
                if not self.busy:
                    return
                self._run_once()  # type: ignore[attr-defined]

    def call(self, action: Callable[[], Any]) -> Any:
        """Call a function as a callback of this loop."""
        with Running(self):
            return action()


class Running:
    """Makes a loop the running one for a while."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._before = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)

    def __exit__(self, *exception: object) -> None:
        asyncio._set_running_loop(self._before)
