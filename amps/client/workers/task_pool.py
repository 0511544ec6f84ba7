"""The tasks that run coroutine handlers of one process. They take messages until the backlog is stopped."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog, Held
from amps.client.workers.handling import Handling
from amps.client.workers.outcomes import Outcomes


class TaskPool(Handling):
    """Handlers as tasks of an event loop, which has a thread of its own. One more thread takes messages for them."""

    def __init__(
        self,
        handler: Callable[[Message], Any],
        concurrency: int,
        backlog: Backlog,
        outcomes: Outcomes,
        wake: Callable[[], Any],
    ) -> None:
        super().__init__(handler, concurrency, backlog, outcomes, wake)
        self._loop = asyncio.new_event_loop()
        self._free = threading.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._abandoned = False
        self._start_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run_loop, name="amps-worker-loop", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        with self._start_lock:
            if self._abandoned:
                return
            self._thread.start()
        threading.Thread(target=self._feed, name="amps-worker-feed", daemon=True).start()

    def _run_loop(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _feed(self) -> None:
        while True:
            self._free.acquire()
            held = self._backlog.take()
            if held is None:
                return
            self._loop.call_soon_threadsafe(self._begin, held)

    def _begin(self, held: Held) -> None:
        task = self._loop.create_task(self._handle(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, held: Held) -> None:
        try:
            await self._handler(held.message)
        except BaseException as error:
            if not self._abandoned:
                await asyncio.to_thread(self._outcomes.failed, held, error)
        else:
            self._outcomes.succeeded(held)
        finally:
            self._free.release()
            self.ended()

    def abandon(self) -> None:
        """Cancel the tasks and end the loop."""
        with self._start_lock:
            self._abandoned = True
            if self._thread.ident is None:  # the worker was stopped before it was connected
                self._loop.close()
                return
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop)
        self._thread.join(1.0)

    async def _finish(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=0.5) if self._tasks else None
        self._loop.stop()
