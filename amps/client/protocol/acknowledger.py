"""Batching of queue acknowledgements.

One batch per subscription and topic. A batch goes out when the subscription's unsent acknowledgements
reach the batch size or the subscription's effective backlog, whichever is less (a larger batch would
stall the subscription), when the time limit passes, or when the application flushes. Acknowledgements with
options are never merged: each is sent alone, after the plain ones of its topic. This module decides when
batches are due; it sends nothing.
"""

from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route


class QueueAcknowledger:
    """The acknowledgements that have not been sent."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self._batches: dict[tuple[int, str], tuple[Route | None, list[str]]] = {}
        self._returned: list[Command] = []

    def add(
        self,
        topic: str,
        bookmark: str,
        options: str,
        route: Route | None,
        now: float,
        batch_size: int,
        timeout_s: float | None,
    ) -> list[Command]:
        """Add one acknowledgement (or a comma-separated list); return the commands that are now due."""
        if options:
            due = self._take([key for key in self._batches if key[1] == topic])
            return [*due, Command("sow_delete", topic, bookmark=bookmark, options=options)]
        _, bookmarks = self._batches.setdefault((id(route), topic), (route, []))
        added = bookmark.split(",")
        bookmarks.extend(added)
        waiting = len(bookmarks)
        limit = batch_size
        if route is not None:
            route.unsent_acks += len(added)
            waiting = route.unsent_acks
            if route.max_backlog is not None:
                limit = min(limit, route.max_backlog)
        if waiting >= limit:
            return self._take([key for key in self._batches if key[0] == id(route)])
        if timeout_s is not None and self.deadline is None:
            self.deadline = now + timeout_s
        return []

    def take_all(self) -> list[Command]:
        """Remove and return all unsent acknowledgements, oldest first."""
        returned, self._returned = self._returned, []
        return returned + self._take(list(self._batches))

    @property
    def returned(self) -> bool:
        """Whether there are commands that could not be sent."""
        return bool(self._returned)

    def put_back(self, commands: list[Command]) -> None:
        """Keep commands that could not be sent; the next `take_all` returns them first."""
        self._returned.extend(commands)

    def _take(self, keys: list[tuple[int, str]]) -> list[Command]:
        commands = []
        for key in keys:
            route, bookmarks = self._batches.pop(key)
            if route is not None:
                route.unsent_acks = 0
            commands.append(Command("sow_delete", key[1], bookmark=",".join(bookmarks)))
        if not self._batches:
            self.deadline = None
        return commands
