"""The threads that run the handlers of one process; `task_pool` has the tasks for coroutine functions.

Both take messages until the backlog is stopped.
"""

import inspect
import threading
from collections.abc import Callable
from typing import Any, Protocol

from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog
from amps.client.workers.handling import Handling
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
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        from amps.client.workers.task_pool import TaskPool  # asyncio is loaded only if it is used

        return TaskPool(handler, concurrency, backlog, outcomes, wake)
    return ThreadPool(handler, concurrency, backlog, outcomes, wake)


class ThreadPool(Handling):
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
                self.ended()

    def abandon(self) -> None:
        """Leave the threads; those without a handler end."""
