"""What the threads and the tasks that run handlers have in common."""

from collections.abc import Callable
from typing import Any

from amps.client.protocol.message import Message
from amps.client.workers.backlog import Backlog
from amps.client.workers.outcomes import Outcomes


class Handling:
    """What threads and tasks have in common."""

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

    def ended(self) -> None:
        """Note that a handler has ended."""
        self._backlog.handled()
        self._wake()
