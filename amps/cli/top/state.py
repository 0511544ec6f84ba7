"""The values of an instance as rows, and their rates between two readings.

A consumer of a queue is a subscription that holds a backlog of queues and whose topic matches the queue. Values that
the interface does not give are None. After a restart of the server, counters begin at 0 again: there is no rate then.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from amps.topic_expressions import BadTopicExpression, topic_predicate

Row = dict[str, Any]
VIEWS: dict[str, tuple[str, ...]] = {
    "queues": (
        "queue", "type", "depth", "in_per_s", "out_per_s", "age_s", "consumers", "leased", "lease_age_s",
        "expired_leases", "inactive", "delayed", "waiting", "transactions", "transactions_lease_lost",
        "transactions_refused",
    ),
    "clients": ("client", "subscriptions", "topics", "backlog"),
    "subscriptions": ("client", "sub_id", "topic", "type", "backlog", "filter", "bookmark", "options"),
    "topics": ("topic", "type", "subscriptions", "clients", "replays", "depth"),
    "destinations": ("destination", "instance", "mode", "connected", "behind_s", "messages_per_s", "disconnects"),
    "sow": (
        "topic", "type", "records", "stored_bytes", "inserts_per_s", "updates_per_s", "deletes_per_s", "queries_per_s",
    ),
}  # fmt: skip
"""The columns of each view."""


@dataclass(frozen=True)
class Reading:
    """One reading. `at_s`: its time on a monotonic clock."""

    at_s: float
    instance: Row
    clients: list[Row] = field(default_factory=list)
    subscriptions: list[Row] = field(default_factory=list)
    topics: list[Row] = field(default_factory=list)
    queues: list[Row] = field(default_factory=list)
    destinations: list[Row] = field(default_factory=list)
    """Of replication; none if the instance does not replicate."""
    sow: list[Row] = field(default_factory=list)
    """SOW topics, without queues."""
    counters: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Messages that have entered and left each queue, by id."""

    def as_json(self) -> dict[str, object]:
        """The values for programs."""
        return {
            "instance": self.instance,
            "clients": self.clients,
            "subscriptions": self.subscriptions,
            "topics": self.topics,
            "queues": self.queues,
            "destinations": self.destinations,
            "sow": self.sow,
        }


class Consumers:
    """Counts the consumers of queues."""

    def __init__(self, subscriptions: Sequence[Row]) -> None:
        self._counts = Counter(
            (row["topic"], row["type"]) for row in subscriptions if "max_backlog=" in row["options"]
        )
        self._expressions = [
            (predicate, topic, message_type, count)
            for (topic, message_type), count in self._counts.items()
            if (predicate := _predicate(topic)) is not None
        ]

    def of(self, queue: str, message_type: str) -> int:
        """The number of subscriptions to a queue, by its name or by an expression."""
        return self._counts[queue, message_type] + sum(
            count
            for matches, topic, its_type, count in self._expressions
            if its_type == message_type and topic != queue and matches(queue)
        )


def _predicate(topic: str) -> Callable[[str], bool] | None:
    try:
        return topic_predicate(topic, True)
    except BadTopicExpression:
        return None


def read_values(values: Mapping[str, Any], at_s: float, before: Reading | None = None) -> Reading:
    """The rows for the values of an instance. `before`: the last reading, for rates."""
    subscriptions = [_subscription(row) for row in _members(values, "subscriptions")]
    counters = {
        row["id"]: (entered, left)
        for row in _members(values, "sow")
        if (entered := _number(row.get("insert_count"))) is not None
        and (left := _number(row.get("delete_count"))) is not None
    }
    instance = _instance(values)
    comparable = before if before is not None and before.instance["pid"] == instance["pid"] else None
    consumers = Consumers(subscriptions)
    queues = [
        _queue(row, counters.get(row["id"]), at_s, comparable, consumers) for row in _members(values, "queues")
    ]
    queue_ids = {row["id"] for row in _members(values, "queues")}
    return Reading(
        at_s,
        instance,
        _clients(subscriptions),
        subscriptions,
        _topics(subscriptions, queues),
        queues,
        [_destination(row) for row in _members(values, "replication")],
        [_sow(row) for row in _members(values, "sow") if row["id"] not in queue_ids],
        counters,
    )


def _members(values: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = values.get(name)
    return [row for row in rows if isinstance(row, dict) and "id" in row] if isinstance(rows, list) else []


def _number(text: object) -> int | None:
    try:
        return int(str(text))
    except ValueError:
        return None


def _decimal(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


def _instance(values: Mapping[str, Any]) -> Row:
    log = values.get("transaction_log")
    log = log if isinstance(log, dict) else {}
    journals = log.get("journals")
    latency = log.get("write_latency")
    return {
        "name": str(values.get("name", "")),
        "version": str(values.get("version", "")),
        "pid": _number(values.get("pid")),
        "journals": len(journals) if isinstance(journals, list) else None,
        "journal_free_bytes": _number(log.get("file_system_free_bytes")),
        "journal_free_percent": _decimal(log.get("file_system_free_percent")),
        "write_latency_max": _number(latency.get("maximum")) if isinstance(latency, dict) else None,
    }


def _subscription(row: Mapping[str, Any]) -> Row:
    return {
        "client": str(row.get("client_id", "")),
        "sub_id": str(row.get("sub_id", "")),
        "topic": str(row.get("topic", "")),
        "type": str(row.get("message_type", "")),
        "backlog": _number(row.get("backlog")),
        "filter": str(row.get("filter", "")),
        "bookmark": str(row.get("bookmark", "")),
        "options": str(row.get("options", "")),
    }


def _queue(
    row: Mapping[str, Any],
    counter: tuple[int, int] | None,
    at_s: float,
    before: Reading | None,
    consumers: Consumers,
) -> Row:
    entered, left = counter if counter is not None else (None, None)
    topic, message_type = str(row.get("topic", "")), str(row.get("message_type", ""))
    last = before.counters.get(row["id"]) if before is not None else None
    rates: tuple[float | None, float | None] = (None, None)
    if counter is not None and last is not None and before is not None and at_s > before.at_s:
        pairs = zip(counter, last, strict=True)
        passed_s = at_s - before.at_s
        rates = tuple((now - then) / passed_s if now >= then else None for now, then in pairs)  # type: ignore[assignment]
    return {
        "queue": topic,
        "type": message_type,
        "depth": _number(row.get("queue_depth")),
        "in_per_s": rates[0],
        "out_per_s": rates[1],
        "age_s": _number(row.get("seconds_behind")),
        "consumers": consumers.of(topic, message_type),
        "leased": _number(row.get("backlog")),
        "lease_age_s": _number(row.get("age_of_oldest_lease")),
        "expired_leases": _number(row.get("expired_leases")),
        "inactive": _number(row.get("inactive_message_count")),
        "delayed": _number(row.get("delayed")),
        "waiting": _number(row.get("waiting")),
        "transactions": _number(row.get("transactions")),
        "transactions_lease_lost": _number(row.get("transactions_lease_lost")),
        "transactions_refused": _number(row.get("transactions_refused")),
        "entered": entered,
        "left": left,
    }


def _destination(row: Mapping[str, Any]) -> Row:
    """A destination. Its rate is the server's own, so the first reading has it, too."""
    connected = {"1": "yes", "0": "no"}.get(str(row.get("is_connected", "")))
    return {
        "destination": str(row.get("name", "")),
        "instance": str(row.get("destination_name", "")),
        "mode": str(row.get("replication_type", "")),
        "connected": connected,
        "behind_s": _decimal(row.get("seconds_behind")),
        "messages_per_s": _decimal(row.get("messages_out_per_sec")),
        "disconnects": _number(row.get("disconnect_count")),
    }


def _sow(row: Mapping[str, Any]) -> Row:
    """A SOW topic. Its rates are the server's own, as those of destinations."""
    rates = ("inserts", "updates", "deletes", "queries")
    return {
        "topic": str(row.get("topic", "")),
        "type": str(row.get("message_type", "")),
        "records": _number(row.get("valid_keys")),
        "stored_bytes": _number(row.get("stored_bytes")),
        **{f"{name}_per_s": _decimal(row.get(f"{name}_per_sec")) for name in rates},
    }


def _clients(subscriptions: Sequence[Row]) -> list[Row]:
    grouped: defaultdict[str, list[Row]] = defaultdict(list)
    for row in subscriptions:
        grouped[row["client"]].append(row)
    return [
        {
            "client": name,
            "subscriptions": len(rows),
            "topics": len({row["topic"] for row in rows}),
            "backlog": sum(row["backlog"] or 0 for row in rows),
        }
        for name, rows in sorted(grouped.items())
    ]


def _topics(subscriptions: Sequence[Row], queues: Sequence[Row]) -> list[Row]:
    grouped: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in subscriptions:
        grouped[row["topic"], row["type"]].append(row)
    depths = {(row["queue"], row["type"]): row["depth"] for row in queues}
    return [
        {
            "topic": topic,
            "type": message_type,
            "subscriptions": len(rows),
            "clients": len({row["client"] for row in rows}),
            "replays": sum(bool(row["bookmark"]) for row in rows),
            "depth": depths.get((topic, message_type)),
        }
        for topic, message_type in sorted({*grouped, *depths})
        for rows in [grouped.get((topic, message_type), [])]
    ]


def sorted_rows(rows: Sequence[Row], column: str, reverse: bool) -> list[Row]:
    """Rows in the order of a column; those without a value come last."""
    key: Callable[[Row], Any] = lambda row: row[column]  # noqa: E731
    known = [row for row in rows if row[column] is not None]
    return sorted(known, key=key, reverse=reverse) + [row for row in rows if row[column] is None]
