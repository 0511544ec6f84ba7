"""Tasks that wait: for an answer, for room in the connection, for the publish store, for a change of the connection.

While a task waits, queues take more than their bound: what it waits for may be behind the messages that do not fit.
"""

import asyncio
from collections.abc import Callable

from amps.client.aio.connection import seconds_left

Futures = list["asyncio.Future[None]"]


class Waits:
    """The tasks of one client that wait."""

    def __init__(self) -> None:
        self.count = 0
        """The number of tasks that wait."""
        self.begun: Callable[[], None] = lambda: None
        """Called when a task begins to wait."""
        self.writable: Futures = []
        self.discarded: Futures = []
        self.changed: Futures = []
        """Waits that end with each change of the connection's state."""

    def note_change(self) -> None:
        """End the waits for a change of the connection's state."""
        release(self.changed)

    def note_discard(self, sequence: int) -> None:
        """End the waits for the publish store: it has discarded messages."""
        release(self.discarded)

    def note_loss(self) -> None:
        """End all waits but those for answers: the connection is lost."""
        for waiters in (self.writable, self.discarded, self.changed):
            release(waiters)

    async def wait_in(self, waiters: Futures, deadline: float | None) -> bool:
        """Wait until the futures in a list are released; False: the time is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(waiter)
        self.count += 1
        try:
            self.begun()
            async with asyncio.timeout(seconds_left(deadline)):
                await waiter
        except TimeoutError:
            return False
        finally:
            self.count -= 1
            if waiter in waiters:
                waiters.remove(waiter)
        return True


def release(waiters: Futures) -> None:
    """Let all futures in a list end their wait."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
    waiters.clear()
