"""Queues in the administration interface (queues.md §16.4, §18; operations.md §5.4, §5.7, §5.8).

Metrics come from counters that the core keeps in shared memory: reading them for ten thousand queues costs the core
nothing. The time of a queue's oldest message is in the log, where it is looked up once for each oldest message. Only
the `details` of a queue are requested from the core.

Each message of a queue has one instance that owns it. Other instances may take messages whose owner cannot be reached,
if that is switched on: *proxied transfer* (replication.md §14.4). It is a setting of the running core.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from amps.config import ServerConfig
from amps.config.model_queues import QueueConfig
from amps.server.admin.formats import format_time_ns
from amps.server.admin.message_heads import read_heads
from amps.server.admin.queue_counters import NEVER, QueueCounters, count_priorities, named, owned
from amps.server.admin.queue_details import counters_in, details_text, positions_in
from amps.server.admin.tree import (
    Collection,
    Document,
    Dynamic,
    Group,
    Leaf,
    Operation,
    Refused,
)
from amps.server.runtime import Runtime
from amps.server.services.core_requests import CoreRefused, CoreRequests

NS_PER_S = 10**9
DUMP_BYTES_MAX = 100_000
"""Limit of the dump. The event log cuts longer texts itself, at MAX_TEXT_BYTES (eventlog/records.py)."""


class QueueView:
    """All queues of the instance, with their metrics and operations. It is made in the services process."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        core: CoreRequests,
        now_ns: Callable[[], int] | None = None,
    ) -> None:
        """`now_ns`: UNIX time; None: that of the runtime."""
        self._now_ns = now_ns or runtime.clock.time_ns
        self._config = config
        self._queues = config.queues
        self._runtime = runtime
        self._core = core
        self._counters = QueueCounters(runtime.queue_counters_path, len(config.queues))
        self._oldest: dict[int, tuple[int, int | None]] = {}
        """By queue: log position of its last known oldest message, and the message's UNIX time in ns, if known."""

    # --- nodes ----------------------------------------------------------------------------------------------

    def queues_node(self) -> Collection:
        """`/amps/instance/queues`"""
        members = {queue_id(queue): Dynamic(partial(self._queue, n)) for n, queue in enumerate(self._queues)}
        return Collection("queue", members, self._each_queue)

    def sow_node(self) -> Collection:
        """The queues' part of `/amps/instance/sow` (queues.md D-39)."""
        members = {queue_id(queue): Dynamic(partial(self._sow, n)) for n, queue in enumerate(self._queues)}
        return Collection("topic", members, self._each_sow)

    def administrator_node(self) -> Collection:
        """`/amps/administrator/queues`"""
        return Collection(
            "queue",
            {
                queue_id(queue): Group(
                    {
                        "disable_proxied_transfer": Operation(
                            partial(self._switch_proxied_transfer, number, False),
                            "no longer take messages whose owner cannot be reached",
                        ),
                        "enable_proxied_transfer": Operation(
                            partial(self._switch_proxied_transfer, number, True),
                            "take messages whose owner cannot be reached; enable it on one instance only",
                        ),
                    }
                )
                for number, queue in enumerate(self._queues)
            },
        )

    async def _switch_proxied_transfer(
        self, number: int, enabled: bool, parameters: Mapping[str, str]
    ) -> None:
        try:
            await self._core.switch_proxied_transfer(number, enabled)
        except CoreRefused as refusal:
            raise Refused(409, str(refusal)) from None

    # --- metrics --------------------------------------------------------------------------------------------

    async def _queue(self, number: int) -> Group:
        row = self._read(number)
        await self._look_up_oldest([(number, row["oldest_position"])])
        return Group(
            {
                **self._metrics(number, row, self._now_ns()),
                "details": Document(partial(self._details, number), "application/json"),
            }
        )

    async def _each_queue(self) -> AsyncIterator[tuple[str, Group]]:
        rows = self._read_all()
        await self._look_up_oldest(enumerate(rows["oldest_position"].tolist()))
        now_ns = self._now_ns()
        for number, queue in enumerate(self._queues):
            yield queue_id(queue), Group(self._metrics(number, named(rows[number]), now_ns))

    def _metrics(self, number: int, row: Mapping[str, int], now_ns: int) -> dict[str, Leaf]:
        queue = self._queues[number]
        behind_s = self._seconds_behind(number, row["oldest_position"], now_ns)
        values = {
            "age_of_oldest_lease": str(oldest_lease_s(row, now_ns)),
            "backlog": str(row["leased"] + row["delivered"]),
            "deferred_ack_count": str(row["deferred"]),
            "delayed": str(row["delayed"]),
            "expired_leases": str(row["expired_leases"]),
            "inactive_message_count": str(row["inactive"]),
            "max_backlog": str(queue.max_backlog or 0),
            "message_type": queue.message_type,
            "next_delivery": next_delivery(row),
            "owned": str(owned(row)),
            "proxied_transfer": proxied_transfer(row),
            "queue_depth": str(row["depth"]),
            "seconds_behind": "" if behind_s is None else str(behind_s),
            "target_queue_depth": str(queue.target_queue_depth or 0),
            "topic": queue.name,
            "transferred_in": str(row["transferred_in"]),
            "transferred_out": str(row["transferred_out"]),
        }
        if not row["delayed"] and queue.cancel_delay_s is None:
            del values["delayed"], values["next_delivery"]
        if queue.ordering_key is not None:
            values["waiting"] = str(row["waiting"])
        values |= {name: str(count) for name, count in self._transactions(number, row).items()}
        return {name: _fixed(value) for name, value in values.items()}

    def _transactions(self, number: int, row: Mapping[str, int]) -> dict[str, int]:
        """The counts of transactions of a queue's messages; empty if there were none (queue_guarantees.md Q-60)."""
        counts = {
            "transactions": row["transactions"],
            "transactions_lease_lost": row["transactions_lease_lost"],
            "transactions_refused": self._runtime.queue_statistics.refused_transactions(number),
        }
        return counts if any(counts.values()) else {}

    async def _sow(self, number: int) -> Group:
        return self._sow_metrics(number, self._read(number))

    async def _each_sow(self) -> AsyncIterator[tuple[str, Group]]:
        rows = self._read_all()
        for number, queue in enumerate(self._queues):
            yield queue_id(queue), self._sow_metrics(number, named(rows[number]))

    def _sow_metrics(self, number: int, row: Mapping[str, int]) -> Group:
        queue = self._queues[number]
        values = {
            "delete_count": str(row["delete_count"]),
            "insert_count": str(row["insert_count"]),
            "memory_bytes": "0",
            "message_type": queue.message_type,
            "mmaps": "0",
            "query_count": str(self._runtime.queue_statistics.queries(number)),
            "slab_count": "0",
            "stored_bytes": "0",
            "topic": queue.name,
            "update_count": "0",
            "valid_keys": str(row["depth"]),
        }
        return Group({name: _fixed(value) for name, value in values.items()})

    def _read(self, number: int) -> dict[str, int]:
        try:
            return self._counters.read(number)
        except OSError as error:
            raise Refused(500, f"the core's counters cannot be read: {error.strerror}") from None

    def _read_all(self) -> Any:
        try:
            return self._counters.read_all()
        except OSError as error:
            raise Refused(500, f"the core's counters cannot be read: {error.strerror}") from None

    # --- the oldest message ---------------------------------------------------------------------------------

    async def _look_up_oldest(self, positions: Iterable[tuple[int, int]]) -> None:
        """Look up the times of the oldest messages of queues, (number, log position)."""
        wanted = {}
        for number, position in positions:
            if position == NEVER:
                self._oldest.pop(number, None)
            elif self._oldest.get(number, (NEVER, None))[0] != position:
                wanted[number] = position
        if not wanted:
            return
        heads = await asyncio.to_thread(read_heads, self._config, self._runtime.control, wanted.values())
        for number, position in wanted.items():
            if position in heads:
                head = heads[position]
                self._oldest[number] = (position, None if head is None else head.timestamp_ns)

    def _seconds_behind(self, number: int, position: int, now_ns: int) -> int | None:
        """Age of the oldest message, at most the age of the process tree. None: unknown."""
        if position == NEVER:
            return 0
        known, since_ns = self._oldest.get(number, (NEVER, None))
        if known != position:
            return 0  # the message is not written yet
        if since_ns is None:
            return None
        return max(0, now_ns - max(since_ns, self._runtime.began_ns)) // NS_PER_S

    # --- details, dump --------------------------------------------------------------------------------------

    async def _details(self, number: int) -> str:
        try:
            rows = await self._core.queue(number)
        except CoreRefused as refusal:
            raise Refused(500, str(refusal)) from None
        return await asyncio.to_thread(self._details_of, number, rows)

    def _details_of(self, number: int, rows: list[list[object]]) -> str:
        counters = counters_in(rows)
        heads = read_heads(self._config, self._runtime.control, positions_in(rows))
        now_ns = self._now_ns()
        oldest = heads.get(counters["oldest_position"])
        behind_ns = 0 if oldest is None else now_ns - max(oldest.timestamp_ns, self._runtime.began_ns)
        priorities = 0
        if self._queues[number].priority is not None:
            first_block = counters["first_block_plus_one"]
            priorities = count_priorities(self._runtime.queue_slots_path, number, first_block)
        return details_text(
            rows,
            heads,
            now_ns,
            max(0, behind_ns) // NS_PER_S,
            oldest_lease_s(counters, now_ns),
            priorities,
            has_delays=self._queues[number].cancel_delay_s is not None,
            has_ordering_key=self._queues[number].ordering_key is not None,
            transactions=self._transactions(number, counters),
        )

    async def dump(self) -> str:
        """One line per queue, those with the most messages first, as many as fit into a record of the event log."""
        rows = self._read_all()
        await self._look_up_oldest(enumerate(rows["oldest_position"].tolist()))
        now_ns = self._now_ns()
        lines: list[str] = []
        size = 0
        for number in (-rows["depth"].astype("i8")).argsort(kind="stable").tolist():
            line = self._line(number, named(rows[number]), now_ns)
            size += len(line.encode("utf-8", "backslashreplace")) + 1
            if size > DUMP_BYTES_MAX:
                lines.append(f"and {len(self._queues) - len(lines)} more")
                break
            lines.append(line)
        return "\n".join(lines)

    def _line(self, number: int, row: Mapping[str, int], now_ns: int) -> str:
        queue = self._queues[number]
        behind_s = self._seconds_behind(number, row["oldest_position"], now_ns)
        delayed = f"delayed {row['delayed']}, next_delivery {next_delivery(row)}, " if row["delayed"] else ""
        waiting = "" if queue.ordering_key is None else f"waiting {row['waiting']}, "
        transactions = "".join(f"{name} {count}, " for name, count in self._transactions(number, row).items())
        # A name may contain any characters, but must not start a new record.
        return (
            f"{queue_id(queue)!a}: queue_depth {row['depth']}, inactive {row['inactive']}, {delayed}{waiting}"
            f"backlog {row['leased'] + row['delivered']}, subscriptions {row['members']}, "
            f"inserted {row['insert_count']}, deleted {row['delete_count']}, "
            f"expired_leases {row['expired_leases']}, deferred_acks {row['deferred']}, {transactions}"
            f"seconds_behind {'?' if behind_s is None else behind_s}, "
            f"age_of_oldest_lease {oldest_lease_s(row, now_ns)}, "
            f"proxied_transfer {proxied_transfer(row)}"
        )


def queue_id(queue: QueueConfig) -> str:
    """The id of a queue in the interface."""
    return f"{queue.name}!{queue.message_type}"


def oldest_lease_s(row: Mapping[str, int], now_ns: int) -> int:
    """Age of the oldest lease, in whole seconds; 0 if no message is leased."""
    began_ns = row["oldest_lease_ns"]
    return 0 if began_ns == NEVER else max(0, now_ns - began_ns) // NS_PER_S


def proxied_transfer(row: Mapping[str, int]) -> str:
    """Whether this instance may take messages of a queue whose owners cannot be reached."""
    return "enabled" if row["proxied"] else "disabled"


def next_delivery(row: Mapping[str, int]) -> str:
    """The time at which the first delayed message becomes available; empty if there is none."""
    at_ns = row["next_delivery_ns"]
    return "" if at_ns == NEVER else format_time_ns(at_ns)


def _fixed(value: str) -> Leaf:
    return Leaf(lambda: value)
