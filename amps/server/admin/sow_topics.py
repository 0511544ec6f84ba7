"""SOW topics in the administration interface (sow.md §22; operations.md §5.7).

The core keeps counters in the key table of each topic, and workers count their queries. So reading them costs the core
nothing. Rates are averages over the last interval of RATE_INTERVAL_S. The number and the size of values are those of
now; counts begin at 0 when the instance starts. A topic with `Pattern` counts all its logical topics together.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path

from amps._core.sow.table import TABLE_HEAD_BYTES, VALUE_FILE_HEADER_BYTES, slab_bytes, table_counters
from amps.config import ServerConfig
from amps.config.model_sow import SowTopicConfig
from amps.server.admin.tree import Collection, Dynamic, Group, Leaf, Refused
from amps.server.runtime import Runtime
from amps.server.shared.sow_topics import value_path

RATE_INTERVAL_S = 10.0
BLOCK_BYTES = 512  # the unit of `st_blocks`
_RATES: Mapping[str, str] = {
    "insert_count": "inserts_per_sec",
    "update_count": "updates_per_sec",
    "delete_count": "deletes_per_sec",
    "query_count": "queries_per_sec",
}
"""Counts, and the metrics with their rates."""


class SowView:
    """All SOW topics of the instance. It is made in the services process."""

    def __init__(
        self, config: ServerConfig, runtime: Runtime, monotonic_s: Callable[[], float] | None = None
    ) -> None:
        """`monotonic_s`: None: the clock of the runtime."""
        self._topics = config.sow_topics
        self._runtime = runtime
        self._paths = [value_path(topic, runtime).absolute() for topic in self._topics]
        self._monotonic_s = monotonic_s or runtime.clock.monotonic_s
        self._sampled_s = self._monotonic_s()
        self._totals = self._read_totals()
        self._rates = [dict.fromkeys(_RATES, 0.0) for _ in self._topics]

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
                {name: max(0, new[name] - old[name]) / passed_s for name in _RATES}
                for new, old in zip(totals, self._totals, strict=True)
            ]
            self._sampled_s, self._totals = now_s, totals

    def _read_totals(self) -> list[dict[str, int]]:
        """All counts; those of a topic whose table is not there yet are 0."""
        found = []
        for number in range(len(self._topics)):
            try:
                counters = self._counters(number)
            except OSError:
                counters = dict.fromkeys(_RATES, 0)
            found.append({name: counters[name] for name in _RATES})
        return found

    def _counters(self, number: int) -> dict[str, int]:
        """The counters of a topic. Raises OSError."""
        with self._runtime.sow_keys_path(number).open("rb", buffering=0) as file:
            head = file.read(TABLE_HEAD_BYTES)
        if len(head) < TABLE_HEAD_BYTES:
            raise OSError("the core has not made it yet")
        return {**table_counters(head), "query_count": self._runtime.sow_statistics.queries(number)}

    # --- nodes ----------------------------------------------------------------------------------------------

    def node(self) -> Collection:
        """The topics' part of `/amps/instance/sow`."""
        members = {topic_id(topic): Dynamic(partial(self._topic, topic)) for topic in self._topics}
        return Collection("topic", members)

    async def _topic(self, topic: SowTopicConfig) -> Group:
        try:
            metrics = self.metrics(topic.number)
        except OSError as error:
            raise Refused(500, f"the figures of {topic.name} cannot be read: {error.strerror or error}") from None
        return Group({name: Leaf(partial(str, value)) for name, value in metrics.items()})

    def metrics(self, number: int) -> dict[str, str]:
        """The metrics of a topic by name. Raises OSError."""
        topic, path = self._topics[number], self._paths[number]
        counters = self._counters(number)
        keys, values = self._runtime.sow_keys_path(number).stat(), path.stat()
        memory_bytes = BLOCK_BYTES * keys.st_blocks
        if topic.durability == "transient":
            memory_bytes += BLOCK_BYTES * values.st_blocks
        history = topic.history
        history = topic.history
        rates = {rate: f"{self._rates[number][count]:.2f}" for count, rate in _RATES.items()}
        return dict(
            sorted(
                {
                    **{name: str(counters[name]) for name in _RATES},
                    **rates,
                    "device": device_of(values.st_dev),
                    "historical_granularity": f"{history.granularity_s if history else 0:g}",
                    "historical_window": f"{history.window_s if history else 0:g}",
                    "memory_bytes": str(memory_bytes),
                    "message_type": topic.message_type,
                    "path": str(path),
                    "slab_count": str(slabs_in(values.st_size, topic)),
                    "slab_size": str(topic.slab_size_bytes),
                    "stored_bytes": str(counters["stored_bytes"]),
                    "topic": topic.name,
                    "valid_keys": str(counters["valid_keys"]),
                }.items()
            )
        )


def topic_id(topic: SowTopicConfig) -> str:
    """The id of a topic in the interface."""
    return f"{topic.name}!{topic.message_type}"


def slabs_in(file_bytes: int, topic: SowTopicConfig) -> int:
    """The number of slabs in a value file of that size."""
    return max(0, file_bytes - VALUE_FILE_HEADER_BYTES) // slab_bytes(topic.slab_size_bytes)


def device_of(number: int) -> str:
    """The name of a device, such as `sda1`; empty for memory and for devices that have none."""
    link = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    try:
        return link.readlink().name
    except OSError:
        return ""


def joined(parts: list[Collection]) -> Collection:
    """Collections of one kind as one: the members of the first one come first."""
    first, *_ = parts

    async def each() -> AsyncIterator[tuple[str, Group]]:
        for part in parts:
            if part.each is not None:
                async for name, group in part.each():
                    yield name, group
                continue
            for name, member in part.members.items():
                made = await member.make() if isinstance(member, Dynamic) else member
                assert isinstance(made, Group)
                yield name, made

    members = {name: member for part in parts for name, member in part.members.items()}
    return Collection(first.singular, members, each)
