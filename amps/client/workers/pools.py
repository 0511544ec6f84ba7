"""The threads or tasks that run the handlers of one process. They take messages until the backlog is stopped."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog, Held
from amps.client.workers.outcomes import Outcomes


class Pool(Protocol):
    """Runs handlers."""

    def start(self) -> None:
        """Begin to take messages."""

    def abandon(self) -> None:
        """End, with handlers that still run, which are cancelled if that is possible. The backlog is stopped."""


def pool_for(
    handler: Callable[[Message], Any], concurrency: int, backlog: Backlog, outcomes: Outcomes, wake: Callable[[], Any]
) -> Pool:
    """Return tasks for a coroutine function, threads for other handlers. `wake` is called when a handler has ended."""
    call = getattr(handler, "__call__", None)  # noqa: B004
    kind = TaskPool if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call) else ThreadPool
    return kind(handler, concurrency, backlog, outcomes, wake)


class _Handling:
    def __init__(
        self,
        handler: Callable[[Message], Any],
        concurrency: int,
        backlog: Backlog,
        outcomes: Outcomes,
        wake: Callable[[], Any],
    ) -> None:
        self._handler = handler
        self._concurrency = concurrency
        self._backlog = backlog
        self._outcomes = outcomes
        self._wake = wake

    def _ended(self) -> None:
        self._backlog.handled()
        self._wake()


class ThreadPool(_Handling):
    """Handlers in threads. A handler that does not end cannot be stopped, but does not delay the process's end."""

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._concurrency):
            threading.Thread(target=self._work, name=f"amps-worker-{number}", daemon=True).start()

    def _work(self) -> None:
        while (held := self._backlog.take()) is not None:
            try:
                self._handler(held.message)
            except BaseException as error:  # also SystemExit: one message does not end the worker
                self._outcomes.failed(held, error)
            else:
                self._outcomes.succeeded(held)
            finally:
                self._ended()

    def abandon(self) -> None:
        """Leave the threads; those without a handler end."""


class TaskPool(_Handling):
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
            self._ended()

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
