"""The document `details` of a queue: its counters, its subscriptions, and its first messages (queues.md §18).

The core provides its own state (`amps._core.queues.manager`). The log provides the rest: the transaction ids of these
messages, their journals and their times. A message that cannot be read there, or is too new to be written, has
transaction id 0.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy

from amps.journal.bookmark_text import format_bookmark
from amps.server.admin.formats import format_time_ns
from amps.server.admin.message_heads import MessageHead
from amps.server.admin.queue_counters import COUNTERS_DTYPE, NEVER, named, owned

Rows = Sequence[Sequence[Any]]
Heads = Mapping[int, MessageHead | None]
NS_PER_S = 10**9
SHOWN_DIGITS = 3


def counters_in(rows: Rows) -> dict[str, int]:
    """The queue's counters, from the core's rows."""
    (found,) = (row[1] for row in rows if row[0] == "queue")
    return named(numpy.frombuffer(found, COUNTERS_DTYPE)[0])


def positions_in(rows: Rows) -> set[int]:
    """Log positions of all messages in the core's rows."""
    counters = counters_in(rows)
    found = {counters[name] for name in ("oldest_position", "last_queued_position", "last_acked_position")}
    for row in rows:
        if row[0] == "cursor":
            found.update(row[3:5])
        elif row[0] == "message":
            found.add(row[1])
    return found - {0, NEVER}


def details_text(
    rows: Rows,
    heads: Heads,
    now_ns: int,
    seconds_behind: int,
    age_of_oldest_lease: int,
    priority_count: int,
    *,
    has_delays: bool = False,
    has_ordering_key: bool = False,
    transactions: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """The document, as JSON.

    has_delays: the queue delays cancelled messages. transactions: their counts by name, if there were any. Figures of
    extensions that are not in use are left out.
    """
    counters = counters_in(rows)
    (internal_depth,) = (row[2] for row in rows if row[0] == "queue")
    subscriptions: defaultdict[int, list[Sequence[Any]]] = defaultdict(list)
    for row in rows:
        if row[0] == "subscription":
            subscriptions[row[1]].append(row[2:])
    extensions: dict[str, Any] = {}
    if has_delays or counters["delayed"]:
        at_ns = counters["next_delivery_ns"]
        extensions["delayed"] = counters["delayed"]
        extensions["next_delivery"] = None if at_ns == NEVER else format_time_ns(at_ns)
    if has_ordering_key:
        extensions["waiting"] = counters["waiting"]
    extensions |= transactions
    document = {
        "internal_depth": internal_depth,
        "insert_count": counters["insert_count"],
        "delete_count": counters["delete_count"],
        "depth": counters["depth"],
        **extensions,
        "last_queued_txid": _txid(heads, counters["last_queued_position"]),
        "last_acked_txid": _txid(heads, counters["last_acked_position"]),
        "priority_count": priority_count,
        "seconds_behind": seconds_behind,
        "age_of_oldest_lease": age_of_oldest_lease,
        "backlog": counters["leased"] + counters["delivered"],
        "expired_leases": counters["expired_leases"],
        "locally_owned": owned(counters),
        "transferred_in": counters["transferred_in"],
        "cursors": [_cursor(row, subscriptions[row[1]], heads) for row in rows if row[0] == "cursor"],
        "messages": [_message(row, heads, now_ns) for row in rows if row[0] == "message"],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _txid(heads: Heads, position: int) -> int:
    head = heads.get(position)
    return 0 if head is None else head.txid


def _cursor(row: Sequence[Any], subscriptions: Rows, heads: Heads) -> dict[str, Any]:
    _, number, state, processed, delivered, held = row
    result = "passed" if processed else "none"
    return {
        "cursor_id": number,
        "state": state,
        "last_processed_txid": _txid(heads, processed),
        "last_delivered_txid": _txid(heads, delivered),
        "last_result": "delivered" if processed and processed == delivered else result,
        "processing_count": held,
        "cursor_subscriptions": [
            {
                "client_name": client,
                "sub_id": sub_id,
                "topic": topic,
                "filter": filter_text,
                "backlog": backlog,
                "max_backlog": limit,
            }
            for client, sub_id, topic, filter_text, backlog, limit in subscriptions
        ],
    }


def _message(row: Sequence[Any], heads: Heads, now_ns: int) -> dict[str, Any]:
    _, position, publisher, sequence, deliverable, priority, leased_to, began_ns, deliver_at_ns, is_own = row
    head = heads.get(position)
    shown = {
        "txid": 0 if head is None else head.txid,
        "bookmark": format_bookmark(publisher, sequence),
        "journal": "" if head is None else head.path,
        "deliverable": deliverable,
        "age": 0 if head is None else _age_s(now_ns, head.timestamp_ns),
        "locally_owned": is_own,
        "priority": priority,
    }
    if leased_to is not None:
        shown |= {"leased_to": leased_to, "leased_age": _age_s(now_ns, began_ns)}
    if deliver_at_ns:
        shown["next_delivery"] = format_time_ns(deliver_at_ns)
    return shown


def _age_s(now_ns: int, since_ns: int) -> float:
    return round(max(0, now_ns - since_ns) / NS_PER_S, SHOWN_DIGITS)
