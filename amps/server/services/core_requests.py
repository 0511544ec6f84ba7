"""Requests to the core about journals and queues."""

import asyncio
import socket
from typing import Any, ClassVar

from amps._core.queues.manager import SUBSCRIPTIONS_MAX
from amps.server.services.requests import RequestRefused, Requests


class CoreRefused(RequestRefused):
    """The core refused a request; the text has the reason."""


class CoreRequests(Requests):
    """The requesting side. `begin` must be called in the event loop."""

    refusal: ClassVar[type[RequestRefused]] = CoreRefused

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel, "the core")
        self._listing: asyncio.Task[list[Any]] | None = None

    async def journals(self) -> list[dict[str, Any]]:
        """The properties of each journal, oldest first. Raises CoreRefused.

        Concurrent calls share one request to the core.
        """
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self.ask("list"))
        found = await asyncio.shield(self._listing)
        return [journal for journal in found if isinstance(journal, dict)]

    async def mark(self, verb: str, which: dict[str, Any]) -> list[int]:
        """Have journals marked to be archived, compressed or removed, and return their numbers. Raises CoreRefused."""
        return [int(number) for number in await self.ask(verb, which)]

    async def switch_proxied_transfer(self, number: int, enabled: bool) -> None:
        """Switch whether a queue takes over messages whose owner cannot be reached. Raises CoreRefused."""
        await self.ask("proxied transfer", number, int(enabled))

    async def queue(self, number: int) -> list[list[Any]]:
        """The core's rows about a queue, see `amps._core.queues.manager`. Raises CoreRefused."""
        return [row for row in await self.ask("queue", number) if isinstance(row, list)]

    async def queue_subscriptions(self) -> list[list[Any]]:
        """The core's rows about all subscriptions to queues, see `amps._core.queues.manager`, in the order in which
        they began. They are requested in several steps: a subscription that begins or ends meanwhile may be included or
        not, but none is included twice. Raises CoreRefused.
        """
        found: dict[tuple[int, int], list[Any]] = {}
        skip = 0
        while True:
            rows = [row for row in await self.ask("queue subscriptions", skip) if isinstance(row, list)]
            found |= {(row[0], row[1]): row for row in rows}
            skip += len(rows)
            if len(rows) < SUBSCRIPTIONS_MAX:
                return list(found.values())
