"""Requests to the replication process (`amps.server.shared.replication_requests`): the asking side."""

import socket

from amps.server.services.requests import Requests
from amps.server.shared.replication_requests import (
    DOWNGRADE_OLDER,
    UPGRADE_YOUNGER,
)


class ReplicationRequests(Requests):
    """The asking side. `begin` must be called in the event loop. All methods raise RequestRefused."""

    def __init__(self, channel: socket.socket) -> None:
        super().__init__(channel, "the replication process")

    async def change(self, verb: str, destination: int) -> bool:
        """Have a destination downgraded, upgraded or reconnected. Return whether anything changed."""
        return bool(await self.ask(verb, destination))

    async def downgrade_older(self, age_s: float) -> list[int]:
        """Have sync destinations downgraded whose oldest unacknowledged message is older; return those downgraded."""
        return [int(number) for number in await self.ask(DOWNGRADE_OLDER, age_s)]

    async def upgrade_younger(self, age_s: float) -> list[int]:
        """Have downgraded destinations upgraded that have acknowledged all older messages; return those upgraded."""
        return [int(number) for number in await self.ask(UPGRADE_YOUNGER, age_s)]
