"""Destinations of replication, and readiness, in the administration interface (replication.md §17).

The id of a destination is its number in the configuration, from 0; its label is accepted, too (25.40). Metrics come
from memory that the replication process writes, operations are requests to it. Rates are averages over the last
interval of RATE_INTERVAL_S.

An instance with `Tuning/Replication/MinSyncDestinations` is ready while at least so many destinations are in sync mode
and connected; every other instance is ready as soon as it serves (25.54).
"""

import asyncio
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, Decimal
from functools import partial

from amps._core.shm.memory import MODE_SYNC
from amps.config import ServerConfig
from amps.server.admin.formats import format_time_ns
from amps.server.admin.tree import Collection, Document, Dynamic, Group, Leaf, Node, Operation, Refused
from amps.server.runtime import Runtime
from amps.server.services.replication_requests import ReplicationRequests
from amps.server.services.requests import RequestRefused
from amps.server.shared.replication_requests import DOWNGRADE, RECONNECT, UPGRADE

RATE_INTERVAL_S = 10.0
NS_PER_S = 10**9
_DESCRIPTIONS: Mapping[str, str] = {
    DOWNGRADE: "acknowledge messages without waiting for this destination",
    UPGRADE: "wait for this destination again, if it is configured sync",
    RECONNECT: "close the connection, and connect again",
}


class ReplicationView:
    """All destinations of the instance. It is made in the services process."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        requests: ReplicationRequests | None,
        monotonic_s: Callable[[], float] | None = None,
    ) -> None:
        """`requests`: None if the instance does not replicate. `monotonic_s`: None: the clock of the runtime."""
        self._destinations = config.destinations
        self._min_sync = config.min_sync_destinations
        self._statistics = runtime.replication_statistics
        self._control = runtime.control
        self._requests = requests
        self._monotonic_s = monotonic_s or runtime.clock.monotonic_s
        self._sampled_s = self._monotonic_s()
        self._totals = self._read_totals()
        self._rates = [(0.0, 0.0)] * len(self._destinations)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take samples for the rates from now on."""

        def tick() -> None:
            self.sample()
            loop.call_later(RATE_INTERVAL_S, tick)

        loop.call_later(RATE_INTERVAL_S, tick)

    def sample(self) -> None:
        """End an interval of the rates, and begin the next."""
        now_s, totals = self._monotonic_s(), self._read_totals()
        passed_s = now_s - self._sampled_s
        if passed_s > 0:
            self._rates = [
                (max(0, messages - before[0]) / passed_s, max(0, size - before[1]) / passed_s)
                for (messages, size), before in zip(totals, self._totals, strict=True)
            ]
            self._sampled_s, self._totals = now_s, totals

    def _read_totals(self) -> list[tuple[int, int]]:
        read = [one.read() for one in self._statistics.destinations]
        return [(facts.messages_out, facts.bytes_out) for facts in read]

    @property
    def has_destinations(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._destinations)

    # --- nodes ----------------------------------------------------------------------------------------------

    def instance_node(self) -> Collection:
        """`/amps/instance/replication`"""
        return self._collection(lambda number: Dynamic(partial(self._destination, number)))

    def administrator_node(self) -> Collection:
        """`/amps/administrator/replication`"""
        return self._collection(lambda number: Group(self._operations(number, DOWNGRADE, RECONNECT, UPGRADE)))

    def ready_node(self) -> Document:
        """`/amps/instance/ready`: status 503 with the reason, unless the instance is ready."""
        return Document(self._ready, "text/plain")

    def _collection(self, make: Callable[[int], Group | Dynamic]) -> Collection:
        members = {str(number): make(number) for number in range(len(self._destinations))}
        aliases = {
            destination.label: str(number)
            for number, destination in enumerate(self._destinations)
            if destination.label not in members
        }
        return Collection("destination", members, aliases=aliases)

    async def _destination(self, number: int) -> Group:
        values = {name: Leaf(partial(str, value)) for name, value in self.metrics(number).items()}
        # The documents have these two operations here, too (operations.md §5.4).
        children: dict[str, Node] = {**values, **self._operations(number, DOWNGRADE, RECONNECT)}
        return Group(dict(sorted(children.items())))

    def metrics(self, number: int) -> dict[str, str]:
        """The metrics of a destination by name."""
        destination = self._destinations[number]
        facts = self._statistics.destinations[number].read()
        messages_rate, bytes_rate = self._rates[number]
        return {
            "authenticated_id": facts.peer.authenticated_id,
            "bytes_out": str(facts.bytes_out),
            "bytes_out_per_sec": f"{bytes_rate:.2f}",
            "client_name": facts.peer.client_name,
            "client_type": "destination",
            "connect_time": format_time_ns(facts.connect_time_ns),
            "destination_admin_addr": facts.peer.admin_address,
            "destination_group_name": destination.group or facts.peer.group,
            "destination_name": facts.peer.name or destination.label,
            "disconnect_count": str(facts.disconnect_count),
            "disconnect_time": format_time_ns(facts.disconnect_time_ns),
            "is_connected": "1" if facts.is_connected else "0",
            "messages_out": str(facts.messages_out),
            "messages_out_per_sec": f"{messages_rate:.2f}",
            "name": destination.label,
            "pass_through": "0" if destination.pass_through is None else "1",
            "replication_type": "sync" if self._is_sync(number) else "async",
            "seconds_behind": seconds_behind(facts.behind_ns),
        }

    def _is_sync(self, number: int) -> bool:
        mode, *_ = self._control.destination(number)
        return bool(mode == MODE_SYNC)

    # --- operations -----------------------------------------------------------------------------------------

    def _operations(self, number: int, *verbs: str) -> dict[str, Node]:
        return {verb: Operation(partial(self._run, verb, number), _DESCRIPTIONS[verb]) for verb in verbs}

    async def _run(self, verb: str, number: int, parameters: Mapping[str, str]) -> None:
        assert self._requests is not None  # there are no destinations without
        try:
            await self._requests.change(verb, number)
        except RequestRefused as refusal:
            raise Refused(409 if refusal.answered else 500, str(refusal)) from None

    # --- readiness ------------------------------------------------------------------------------------------

    async def _ready(self) -> str:
        if self._min_sync is not None:
            good = sum(
                self._is_sync(number) and statistics.is_connected
                for number, statistics in enumerate(self._statistics.destinations)
            )
            if good < self._min_sync:
                raise Refused(
                    503,
                    f"not ready: {good} destinations are in sync mode and connected, MinSyncDestinations is "
                    f"{self._min_sync}",
                )
        return "ready\n"


def seconds_behind(behind_ns: int) -> str:
    """Seconds with up to three places; 0 below one second (replication.md 25.38)."""
    if behind_ns < NS_PER_S:
        return "0"
    text = str((Decimal(behind_ns) / NS_PER_S).quantize(Decimal("0.001"), ROUND_DOWN))
    return text.rstrip("0").rstrip(".")
