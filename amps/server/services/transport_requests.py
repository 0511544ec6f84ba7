"""Requests to the transports (`amps.server.transport.subscription_list`)."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from amps.server.services.requests import Requests


class TransportRequests:
    """The requesting side. `begin` must be called in the event loop."""

    def __init__(self, channels: Sequence[socket.socket]) -> None:
        """`channels`: one to each transport, in their order."""
        self._transports = [
            Requests(channel, f"transport {number}") for number, channel in enumerate(channels)
        ]
        self._listing: asyncio.Task[list[list[Any]]] | None = None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Receive answers from now on."""
        for transport in self._transports:
            transport.begin(loop)

    async def subscriptions(self) -> list[list[Any]]:
        """All subscriptions of all transports: number of the transport, then the columns of
        `amps.server.transport.subscription_list.subscription_row`. Raises RequestRefused.

        Concurrent calls share one request to each transport.
        """
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list_subscriptions())
        return await asyncio.shield(self._listing)

    async def _list_subscriptions(self) -> list[list[Any]]:
        asked = (transport.ask("subscriptions") for transport in self._transports)
        return [
            [number, *row]
            for number, rows in enumerate(await asyncio.gather(*asked))
            for row in rows
            if isinstance(row, list)
        ]
