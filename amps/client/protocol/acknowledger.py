"""Batching of queue acknowledgements.

One batch per subscription and topic. A batch goes out when the subscription's unsent acknowledgements
reach the batch size or the subscription's effective backlog, whichever is less (a larger batch would
stall the subscription), when the time limit passes, or when the application flushes. Acknowledgements with
options are never merged: each is sent alone, after the plain ones of its topic. This module decides when
batches are due; it sends nothing.

The first acknowledgement of a batch comes here. The following ones of the same topic are added by the messages
themselves (`ReceivedMessage.ack`), as long as the batch is not due: `AckBatch.limit` is what it may hold until then.
"""

from amps.client.protocol.command import Command
from amps.client.protocol.engine_types import Route
from amps.client.protocol.traffic import AckBatch


class QueueAcknowledger:
    """The acknowledgements that have not been sent."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self._batches: dict[tuple[int, str], tuple[Route | None, AckBatch]] = {}
        self._returned: list[Command] = []

    def unsent(self, route: Route) -> int:
        """The number of unsent acknowledgements of a subscription, for all topics."""
        return sum(batch.count for key, (_, batch) in self._batches.items() if key[0] == id(route))

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
        key = (id(route), topic)
        if key not in self._batches:
            self._batches[key] = (route, AckBatch(topic))
        batch = self._batches[key][1]
        batch.add(bookmark.encode(), bookmark.count(",") + 1)
        limit = batch_size
        waiting = batch.count
        if route is not None:
            waiting = self.unsent(route)
            if route.max_backlog is not None:
                limit = min(limit, route.max_backlog)
        if waiting >= limit:
            return self._take([key for key in self._batches if key[0] == id(route)])
        if route is not None:
            # The batches of other topics do not grow meanwhile.
            if route.ack_batch is not None:
                route.ack_batch.limit = 0
            batch.limit = limit - (waiting - batch.count)
            route.ack_batch = batch
        if timeout_s is not None and self.deadline is None:
            self.deadline = now + timeout_s
        return []

    def review(self) -> None:
        """Note that the batch size or a backlog has changed: the next acknowledgement of each batch comes to `add`."""
        for _, batch in self._batches.values():
            batch.limit = 0

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
            route, batch = self._batches.pop(key)
            if route is not None:
                route.ack_batch = None
            commands.append(Command("sow_delete", key[1], bookmark=batch.take()))
        if not self._batches:
            self.deadline = None
        return commands
